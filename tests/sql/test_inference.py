"""Names and types that are inferred without a JVM, against Spark's analyzer; lineage, uses, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlglot
from pyspark.errors import AnalysisException

from tests.sql.warehouse_queries import EXPRESSIONS, QUERIES, TABLES
from varve.sql.types.inference import qualified

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from varve.sql.types.outputs import Inferred

SALES = {"b.sales": {"product": "string", "sold": "int", "price": "decimal(7,2)", "day": "string"},
         "b.stores": {"store": "string", "city": "string"}}  # fmt: skip


def inferred(query: str, variables: dict[str, str] | None = None) -> Inferred:
    return qualified(sqlglot.parse_one(query, dialect="spark"), SALES, variables or {})


NESTED = {"b.nested": {
    "id": "int", "about": "struct<shelf:int,Tags:array<string>,inner:struct<x:decimal(7,2),y:date>>",
    "items": "array<struct<sku:string,price:decimal(7,2)>>", "names": "map<string,bigint>",
}}  # fmt: skip
OF_NESTED = [
    "about.shelf", "n.about.shelf", "b.nested.about.shelf", "about.INNER.x", "about.inner", "about.tags",
    "about.Tags[0]",
    "items.price", "items[0].price", "items[0]", "names['a']", "MAX(about.shelf)", "about.inner.x * 2",
    "SUM(names['a'])", "CASE WHEN about.shelf > 1 THEN about.inner.y END", "COALESCE(about.shelf, names['b'])",
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("expression", OF_NESTED)
def test_fields_of_structs_and_values_of_maps_have_the_analyzers_type(spark: SparkSession, expression: str) -> None:
    """No JVM is asked, and nothing has to be declared, for what the schema tells."""
    kinds = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in NESTED["b.nested"].items())
    spark.sql(f"SELECT {kinds}").createOrReplaceTempView("nested")
    table = "b.nested" if "b.nested" in expression else "b.nested AS n"
    query = f"SELECT f FROM (SELECT {expression} AS f FROM {table})"
    (output,) = qualified(sqlglot.parse_one(query, dialect="spark"), NESTED, {}).outputs
    assert output.type == spark.sql(query.replace("b.nested", "nested")).schema["f"].dataType.simpleString()
    assert output.sources <= {("b.nested", column) for column in NESTED["b.nested"]}
    assert output.sources


# The columns of their results.
OF_GENERATORS = {
    "SELECT x.id, x.item, x.place FROM (SELECT n.id, POSEXPLODE(n.items) AS (place, item) FROM b.nested n) x":
        ["id", "item", "place"],
    "WITH x AS (SELECT id, EXPLODE(names) AS (k, v) FROM b.nested) SELECT * FROM x WHERE k = 'a'": ["id", "k", "v"],
    "SELECT x.id, x.key, x.value FROM (SELECT n.id, EXPLODE(n.names) FROM b.nested n) x": ["id", "key", "value"],
    "SELECT id, pos, col FROM (SELECT id, POSEXPLODE_OUTER(items) FROM b.nested)": ["id", "pos", "col"],
    "SELECT x.sku, x.price FROM (SELECT id, INLINE(items) FROM b.nested) x": ["sku", "price"],
    "SELECT x.sku FROM (SELECT id, INLINE_OUTER(items) AS (sku, price) FROM b.nested) x": ["sku"],
    "SELECT x.col1 FROM (SELECT STACK(2, id, 'a', 2, 'b') FROM b.nested) x": ["col1"],
    "SELECT x.item FROM (SELECT EXPLODE(items) AS (item) FROM b.nested) x": ["item"],
    "SELECT key FROM (SELECT EXPLODE(names), id FROM b.nested UNION ALL SELECT 'a', 2, 3) x": ["key"],
    "WITH x (v, key) AS (SELECT EXPLODE(ARRAY(1, 2)), id FROM b.nested) SELECT key, v FROM x": ["key", "v"],
    "SELECT x.value FROM (SELECT id AS value, EXPLODE(items) FROM b.nested) x": ["value"],
}  # fmt: skip


@pytest.mark.parametrize("query", OF_GENERATORS)
def test_each_column_of_a_generator_is_one_of_its_query(query: str) -> None:
    inferred_query = qualified(sqlglot.parse_one(query, dialect="spark"), NESTED, {})
    assert not inferred_query.findings
    assert [output.name for output in inferred_query.outputs] == OF_GENERATORS[query]
    generated = {output.name: output for output in inferred_query.outputs}.get("item")
    assert generated is None or generated.sources == {("b.nested", "items")}


@pytest.mark.spark
def test_the_columns_of_generators_are_the_analyzers(spark: SparkSession) -> None:
    kinds = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in NESTED["b.nested"].items())
    spark.sql(f"SELECT {kinds}").createOrReplaceTempView("nested")
    for query, names in OF_GENERATORS.items():
        found = [field.dataType.simpleString() for field in spark.sql(query.replace("b.nested", "nested")).schema]
        inferred_query = qualified(sqlglot.parse_one(query, dialect="spark"), NESTED, {})
        told = [
            output.type if output.verified else kind for output, kind in zip(inferred_query.outputs, found, strict=True)
        ]
        assert told == found, query
        assert spark.sql(query.replace("b.nested", "nested")).columns == names, query


def _plain(query: str) -> str:
    return query.replace("tpc.", "")


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> None:
    for name, columns in TABLES.items():
        kinds = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in columns.items())
        spark.sql(f"SELECT {kinds}").createOrReplaceTempView(_plain(name))


@pytest.mark.spark
@pytest.mark.usefixtures("tables")
def test_warehouse_queries_have_the_analyzers_columns(spark: SparkSession) -> None:
    total = right = 0
    wrong = []
    for query in QUERIES:
        inferred_query = qualified(sqlglot.parse_one(query, dialect="spark"), TABLES, {})
        assert inferred_query.findings == (), query
        expected = [(field.name.lower(), field.dataType.simpleString()) for field in spark.sql(_plain(query)).schema]
        assert [output.name for output in inferred_query.outputs] == [name for name, _ in expected], query
        for output, (name, kind) in zip(inferred_query.outputs, expected, strict=True):
            total += 1
            right += output.type == kind
            if output.verified and output.type != kind:
                wrong.append(f"{name}: ours {output.type}, Spark {kind}: {query}")
    assert not wrong, "\n".join(wrong)
    assert right / total >= 0.99, f"{right} of {total}"


@pytest.mark.spark
@pytest.mark.usefixtures("tables")
def test_an_expression_has_the_analyzers_type_or_none(spark: SparkSession) -> None:
    spark.sql("CREATE TEMPORARY FUNCTION my_udf(x INT) RETURNS INT RETURN x + 1")
    wrong, verified_count, total = [], 0, 0
    for text in [part.strip() for line in EXPRESSIONS.splitlines() for part in line.split(" | ")]:
        query = f"SELECT {text} AS c FROM tpc.events"
        (output,) = qualified(sqlglot.parse_one(query, dialect="spark"), TABLES, {}).outputs
        try:
            (field,) = spark.sql(_plain(query)).schema.fields
        except AnalysisException as error:
            wrong.append(f"{text}: Spark refuses it: {str(error)[:100]}")
            continue
        total += 1
        verified_count += output.verified
        if output.verified and output.type != field.dataType.simpleString():
            wrong.append(f"{text}: ours {output.type}, Spark {field.dataType.simpleString()}")
    assert not wrong, "\n".join(wrong)
    assert verified_count / total > 0.9, f"{verified_count} of {total}"


def test_lineage_goes_through_ctes_unions_joins_and_stars() -> None:
    inferred_query = inferred(
        "WITH x AS (SELECT * FROM b.sales), y AS (SELECT product AS p, sold * price AS worth FROM x) "
        "SELECT p, SUM(worth) AS worth, MAX(city) AS city FROM y JOIN b.stores ON store = p GROUP BY p "
        "UNION ALL SELECT product, price, day FROM b.sales"
    )
    assert {output.name: output.sources for output in inferred_query.outputs} == {
        "p": {("b.sales", "product")},
        "worth": {("b.sales", "sold"), ("b.sales", "price")},
        "city": {("b.stores", "city"), ("b.sales", "day")},
    }


def test_a_use_is_a_place_that_names_a_column_and_a_star_names_none() -> None:
    inferred_query = inferred("WITH x AS (SELECT * FROM b.sales) SELECT x.product AS p FROM x WHERE sold > 1")
    assert [use.column for use in inferred_query.uses] == [("b.sales", "product"), ("b.sales", "sold")]
    assert inferred("SELECT * FROM b.sales").uses == ()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT prduct FROM b.sales", "unknown column prduct. Did you mean product?"),
        ("SELECT s.prce AS p FROM b.sales s", "unknown column s.prce. Did you mean price?"),
        (
            "SELECT day AS d FROM b.sales a JOIN b.sales b ON a.sold = b.sold",
            "day is a column of a and of b; write a.day or b.day.",
        ),
        ("SELECT s.d AS d FROM b.sales AS s (a, b, c, d)", "b.sales cannot have its columns renamed by an alias"),
        ("SELECT a FROM b.sale", "unknown dataset b.sale. Did you mean b.sales?"),
        ("SELECT SUM(sold) FROM b.sales", "this column has no name; write AS and one behind it."),
        ("SELECT product FROM b.sales NATURAL JOIN b.stores", "NATURAL JOIN follows the columns"),
        ("SELECT product FROM b.sales UNION SELECT store, city FROM b.stores", "the sides of a UNION have 1"),
        (
            "SELECT product FROM b.sales WHERE day = partition_dy",
            "unknown column partition_dy. Did you mean partition_day?",
        ),
    ],
)
def test_what_is_wrong_in_a_query_is_found_with_its_place(query: str, message: str) -> None:
    findings = inferred(query, {"partition_day": "string"}).findings
    assert [finding.message for finding in findings if finding.message.startswith(message)], [
        finding.message for finding in findings
    ]


def test_all_that_is_wrong_is_found_at_once() -> None:
    assert len(inferred("SELECT prduct, pric FROM b.sales WHERE dy = 'x'").findings) == 3


def test_variables_have_their_types_and_no_column_has_them() -> None:
    inferred_query = inferred("SELECT pd AS d, DATE_SUB(pd, 1) AS e FROM b.sales WHERE day = :pd", {"pd": "string"})
    assert [(output.type, output.sources) for output in inferred_query.outputs] == [
        ("string", frozenset()), ("date", frozenset()),
    ]  # fmt: skip
