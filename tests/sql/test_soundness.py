# ruff: noqa: E501 - patterns
"""No query's result may change when it reads only the partitions planned for it: Spark decides.

Each mention of a dataset is confined to its own plan, which is stricter than what a run does. Queries go to Spark many
in one job, as their number of rows and the sum of the rows' hashes.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pendulum
import pytest
import sqlglot
from sqlglot import exp

from tests.sql import time_columns
from tests.sql.constructs import constructs, random_queries, words
from tests.sql.short_tasks import one_short_task_each
from varve.model.partitions.calendar import Every
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.sql.partitions.axes import Bindings, Upstream
from varve.sql.partitions.scan_reads import readings
from varve.sql.partitions.value_questions import OpenCall, Recorder
from varve.sql.pushdown.asked_calls import with_asked_calls
from varve.sql.pushdown.scans import Dependencies, dependencies
from varve.sql.spark.values import values_by_spark
from varve.sql.types.inference import qualified

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from varve.model.partitions.key import PartitionKey
    from varve.sql.evaluate.asked import TypedCall
    from varve.sql.partitions.matching import ScanReading
    from varve.sql.values import Answer

FIRST = pendulum.datetime(2022, 3, 25)
DAY_TEXT = TimeDimension("day", Grain.DAY, FIRST, FIRST.add(days=10), key_format="%Y-%m-%d")
DAY_DATE = TimeDimension("day", Grain.DAY, FIRST.add(days=1), FIRST.add(days=10))
AT = TimeDimension("at", Every(dt.timedelta(hours=6), FIRST), FIRST.add(days=3), FIRST.add(days=8))
UPSTREAMS = {
    "b.sales": Upstream(
        "b.sales",
        Partitioning((DAY_TEXT, StaticDimension("store", ("Detroit", "Lyon", "Paris")))),
        {"day": "string", "store": "string"},
    ),
    "b.costs": Upstream(
        "b.costs",
        Partitioning((DAY_DATE, StaticDimension("store", ("Lyon", "Oslo", "Paris")))),
        {"day": "date", "store": "string"},
    ),
    "b.hours": Upstream(
        "b.hours",
        Partitioning((AT, StaticDimension("region", ("eu", "us")))),
        {"at": "timestamp", "region": "string"},
    ),
    "b.products": Upstream("b.products", None),
    **time_columns.UPSTREAMS,
}
SCHEMAS = {
    "b.sales": {"id": "int", "n": "int", "day": "string", "store": "string"},
    "b.costs": {"id": "int", "cost": "int", "day": "date", "store": "string"},
    "b.hours": {"v": "int", "at": "timestamp", "region": "string"},
    "b.products": {"id": "int", "name": "string"},
    **time_columns.SCHEMAS,
}
VARIABLES = {"pd": "string", "dd": "date", "t": "timestamp", "st": "string"}
SCOPES = [
    {"pd": str(day), "dd": day, "t": dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC), "st": store}
    for day, store in (
        (dt.date(2022, 3, 30), "Paris"), (dt.date(2022, 4, 1), "Detroit"), (dt.date(2022, 3, 25), "Lyon"),
        (dt.date(2022, 4, 9), "Oslo"),
    )
]  # fmt: skip
NOW = dt.datetime(2022, 4, 20, tzinfo=dt.UTC)
_BATCH = 40
# What Spark was asked for, with the number of values or the reason why there are none.
ASKED: list[str] = []
# Of the suite; `make torture` asks hundreds.
QUERIES = 70


def partitions(dataset: str) -> list[PartitionKey]:
    """The theoretical partitions of a dataset, in the order of their numbers in Spark's column `_p`."""
    partitioning = UPSTREAMS[dataset].partitioning
    return list(partitioning.keys(now=NOW)) if partitioning else []


def rows(dataset: str) -> list[tuple[object, ...]]:
    """Two or three rows in each partition; NULLs among the data."""
    random_ = random.Random(dataset)
    rows_: list[tuple[object, ...]] = []
    for place, key in enumerate(partitions(dataset)):
        values = list(key.values)
        if dataset == "b.hours":
            values[0] = dt.datetime.fromtimestamp(AT.start_of(key["at"]), tz=dt.UTC)
        for _ in range(random_.randint(2, 3)):
            number = random_.choice([None, *range(1, 10)])
            rows_.append((*((number,) if dataset == "b.hours" else (random_.randint(1, 9), number)), *values, place))
    return rows_


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> None:
    for dataset, columns in SCHEMAS.items():
        data = [(number, f"p{number}") for number in range(1, 8)] if dataset == "b.products" else rows(dataset)
        kinds = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        hidden = "" if dataset == "b.products" else ", _p int"
        spark.createDataFrame(data, kinds + hidden).createOrReplaceTempView(dataset.replace(".", "_"))


def planned(query: str, spark: SparkSession | None = None) -> tuple[Dependencies, list[ScanReading], exp.Expr]:
    """What is planned for a query; with a session, Spark is asked for what only it evaluates."""
    tree = qualified(sqlglot.parse_one(query, dialect="spark"), SCHEMAS, VARIABLES).tree
    if spark is not None:
        tree = with_asked_calls(tree, query, lambda _: True)
    query_scans = dependencies(tree, {name: upstream.types for name, upstream in UPSTREAMS.items()})
    scopes = Bindings.of(VARIABLES, SCOPES)
    answers: dict[TypedCall, Answer] = {}
    while True:
        recorder = Recorder(answers)
        ((_, reads),) = list(readings(query_scans, UPSTREAMS, replace(scopes, spark_values=recorder), now=NOW))
        if not recorder.rows or spark is None:
            return query_scans, reads, tree
        for (call, types), rows_of_call in recorder.rows.items():
            answer = values_by_spark(spark, OpenCall(call, types, tuple(rows_of_call)))
            answers[call, types] = answer.with_values_of(answers.get((call, types)))
            ASKED.append(f"{call}: {answer.why or len(rows_of_call)}")


def places(reads: list[ScanReading], scope: int) -> dict[int, set[int]]:
    """For each mention of a dataset the numbers of its planned partitions."""
    partitions_by_table: dict[int, set[int]] = {}
    for reading in reads:
        numbers = {key: place for place, key in enumerate(partitions(reading.scan.dataset))}
        keys = {numbers[key] for box in reading.boxes(scope) for key in box.partitions()}
        partitions_by_table[id(reading.scan.table)] = partitions_by_table.get(id(reading.scan.table), set()) | keys
    return partitions_by_table


def whole(query: str, scope: int, views: str = "b") -> str:
    """The author's text with the variables of a scope put in by hand, over everything."""
    return _by_hand(query, scope, {}, views)


def confined(query: str, reads: list[ScanReading], scope: int) -> str:
    """The same text, with each mention of a dataset over what was planned for it."""
    allowed: dict[tuple[int, int], set[int]] = {}
    for reading in reads:
        table = reading.scan.table
        place = (table.args["db"].meta["start"], table.this.meta["end"] + 1)
        allowed[place] = allowed.get(place, set()) | places(reads, scope)[id(table)]
    return _by_hand(query, scope, allowed)


# Texts and what stands in backticks, so that nothing in them is taken for a name.
_KEPT = r"'(?:[^'\\]|\\.)*'|`[^`]*`|\bb\.(sales|costs|hours|products|dumps|logs|local|ticks)\b|(?<![\w.]):?\b(pd|dd|st|t)\b(?![.(\w])"
_NO_ALIAS = r"\s*($|[,)]|\b(WHERE|GROUP|ORDER|UNION|INTERSECT|EXCEPT|MINUS|HAVING|LIMIT|JOIN|LEFT|RIGHT|FULL|CROSS|INNER|LATERAL|QUALIFY|PIVOT|UNPIVOT|WINDOW)\b)"


def _by_hand(query: str, scope: int, allowed: Mapping[tuple[int, int], set[int]], views: str = "b") -> str:
    """No tree, none of our code: a regular expression finds the tables and the variables of these queries."""

    def put(match: re.Match[str]) -> str:
        if match[1]:
            view = f"SELECT {', '.join(SCHEMAS[f'b.{match[1]}'])} FROM {views}_{match[1]}"
            here = allowed.get(match.span())
            if here is not None and match[1] != "products":
                view += f" WHERE _p IN ({', '.join(map(str, sorted(here))) or '-1'})"
            return f"({view})" + (f" AS {match[1]}" if re.match(_NO_ALIAS, query[match.end() :]) else "")
        if match[2]:
            value = f"CAST('{SCOPES[scope][match[2]]}' AS {VARIABLES[match[2]]})"
            alone = re.search(r"(SELECT|,)\s*$", query[: match.start()]) and re.match(
                r"\s*(,|FROM)", query[match.end() :]
            )
            return f"{value} AS {match[2]}" if alone else value
        return match[0]

    return re.sub(_KEPT, put, query)


def fingerprints(spark: SparkSession, queries: list[str]) -> list[tuple[object, ...]]:
    """For each query how many rows it has, and the sum of their hashes."""
    results: list[tuple[object, ...]] = [()] * len(queries)
    for start in range(0, len(queries), _BATCH):
        arms = [
            f"SELECT {start + place} AS k, COUNT(*) AS n, SUM(CAST(xxhash64(*) AS DECIMAL(38, 0))) AS h FROM ({query})"
            for place, query in enumerate(queries[start : start + _BATCH])
        ]
        for row in spark.sql(" UNION ALL ".join(arms)).collect():
            results[row["k"]] = (row["n"], row["h"])
    return results


def check(
    spark: SparkSession, queries: list[str], scopes: list[list[int]], *, asking: bool = False, least: float = 0.6
) -> None:
    """Compare the whole with the confined result of each query in some scopes; `least` is how many have to have rows."""
    texts, labels = [], []
    for query, chosen in zip(queries, scopes, strict=True):
        _, reads, _ = planned(query, spark if asking else None)
        for scope in chosen:
            texts += [whole(query, scope), confined(query, reads, scope)]
            conditions = [
                (scan_reading.scan.dataset, [c.sql("spark") for c in scan_reading.scan.conditions])
                for scan_reading in reads
            ]
            labels.append(f"{query} in scope {SCOPES[scope]}: {conditions}")
    with one_short_task_each(spark):
        results = fingerprints(spark, texts)
    wrong = [
        f"{label}: {everything} of everything, {part} of what was planned"
        for label, everything, part in zip(labels, results[::2], results[1::2], strict=True)
        if everything != part
    ]
    assert not wrong, "\n".join(wrong)
    # A comparison of nothing with nothing would prove nothing.
    assert sum(result[0] > 0 for result in results[::2]) > len(labels) * least  # type: ignore[operator]


@pytest.mark.spark
@pytest.mark.usefixtures("tables")
def test_every_construct_reads_enough(spark: SparkSession) -> None:
    queries = constructs()
    assert len(set(queries)) >= 150
    check(spark, queries, [[place % 2] for place in range(len(queries))])


def test_the_random_queries_of_the_suite_have_every_construct_of_more_of_them() -> None:
    assert words(random_queries(QUERIES, seed=2022)) == words(random_queries(2_000, seed=1))


@pytest.mark.spark
@pytest.mark.usefixtures("tables")
def test_random_queries_read_enough(spark: SparkSession) -> None:
    queries = random_queries(QUERIES, seed=2022)
    check(spark, queries, [[place % len(SCOPES)] for place in range(len(queries))])


# What the planner takes apart, or reads as it stands: joins and whole queries in brackets, and generators.
TAKEN_APART = [
    "WITH good AS (SELECT s.n, s.store FROM b.sales s WHERE s.day = pd AND s.n IN (SELECT c.cost FROM b.costs c WHERE c.day = dd)) SELECT h.v, g.n FROM b.hours h LEFT JOIN (good g LEFT JOIN b.products p ON p.id = g.n) ON g.n = h.v WHERE h.at >= t",
    "SELECT s.n FROM b.sales s WHERE s.day = pd UNION ALL SELECT c.cost FROM b.costs c WHERE c.day = dd ORDER BY CASE WHEN n = (SELECT MAX(h.v) FROM b.hours h WHERE h.at >= t) THEN 0 ELSE 1 END, n LIMIT 2",
    "WITH x AS (SELECT s.n, s.store FROM b.sales s WHERE s.day = pd) (SELECT x.n, x.store FROM x) ORDER BY n, store LIMIT 3",
    "SELECT q.n FROM (WITH x AS (SELECT s.n, s.day FROM b.sales s) ((SELECT x.n, x.day FROM x) UNION ALL (SELECT 1, pd)) ORDER BY n, day LIMIT 30) q WHERE q.day = pd",
    "SELECT x.n, x.k, x.v FROM (SELECT s.day AS d, s.n, EXPLODE(MAP(s.store, s.day, 'x', '2022')) AS (k, v) FROM b.sales s) x WHERE x.d = pd AND x.v = x.d",
    "SELECT q.e FROM (SELECT EXPLODE(MAP(1, s.day)) AS (k, v), s.day AS c, s.day AS e FROM b.sales s UNION ALL SELECT 1, s.day, EXPLODE(MAP(CAST(DATE_SUB(s.day, 1) AS STRING), s.day)) AS (k, v) FROM b.sales s) q WHERE q.c = pd",
    "SELECT x.value FROM (SELECT s.day AS d, EXPLODE(MAP(1, s.n)) FROM b.sales s) x WHERE x.d = pd AND x.key = 1",
]


@pytest.mark.spark
@pytest.mark.usefixtures("tables")
def test_what_is_taken_apart_reads_enough(spark: SparkSession) -> None:
    check(spark, TAKEN_APART, [[0]] * len(TAKEN_APART))
    assert [len(planned(query)[0].scans) for query in TAKEN_APART] == [4, 3, 1, 1, 1, 2, 1]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("seed", range(2022, 2026))
def test_many_random_queries_read_enough(spark: SparkSession, seed: int) -> None:
    queries = random_queries(200, seed)
    check(spark, queries, [[place % len(SCOPES)] for place in range(len(queries))])


@pytest.mark.spark
@pytest.mark.usefixtures("tables")
def test_queries_over_several_columns_of_time_read_enough(spark: SparkSession) -> None:
    queries = [*time_columns.column_queries()[::2], *time_columns.random_column_queries(80, seed=2022)]
    check(spark, queries, [[place % 3] for place in range(len(queries))])


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("scope", range(len(SCOPES)))
def test_all_queries_over_several_columns_of_time_read_enough(spark: SparkSession, scope: int) -> None:
    queries = [*time_columns.column_queries(), *time_columns.random_column_queries(400, seed=scope)]
    # The last two scopes are at the ends of what there is: of what lies before or after it nothing is read.
    check(spark, queries, [[scope]] * len(queries), least=0.4)


@pytest.fixture
def files(spark: SparkSession, tables: None) -> Iterator[None]:
    """The same rows as partitioned tables of the catalog, `f_sales` and so on, of which Spark opens what it needs."""
    names = [dataset.replace("b.", "f_") for dataset in SCHEMAS]
    for dataset, name in zip(SCHEMAS, names, strict=True):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        frame = spark.table(dataset.replace(".", "_")).select(*SCHEMAS[dataset]).coalesce(1)
        partitioning = UPSTREAMS[dataset].partitioning
        frame.write.partitionBy(*(partitioning.names if partitioning else ())).saveAsTable(name, format="parquet")
    yield
    for name in names:
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.spark
@pytest.mark.usefixtures("files")
def test_not_much_more_is_planned_than_spark_opens(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    ours = theirs = 0
    wider = []
    for query in constructs()[::5]:
        # Spark does not list the files of queries that it plans apart from the rest.
        if any(f"(SELECT {word}(" in query for word in ("MAX", "AVG", "MIN", "COUNT")):
            continue
        _, reads, _ = planned(query)
        files = spark.sql(whole(query, 0, "f")).inputFiles()
        opened = len({file.rpartition("/")[0] for file in files if "f_products" not in file})
        keys = {
            (scan_reading.scan.dataset, key.path)
            for scan_reading in reads
            for box in scan_reading.boxes(0)
            for key in box.partitions()
        }
        ours, theirs = ours + len(keys), theirs + opened
        if len(keys) > opened:
            wider.append(f"{len(keys)} / {opened}: {query}")
    with capsys.disabled():
        print(f"\npartitions planned / opened by Spark: {ours} / {theirs} = {ours / theirs:.3f}", *wider, sep="\n")  # noqa: T201
    assert ours <= theirs * 1.1, "\n".join(wider)
