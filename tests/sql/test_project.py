"""Files together: the shipped pipeline and a shop's, what their queries say they read, and every problem at once."""

from __future__ import annotations

import datetime as dt
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from sqlglot.dialects.spark import Spark

from pipeline_defs.definitions import graph
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.assets.sql_folders import planned_reads
from varve.dagster.partitions import mappings
from varve.model.errors import VarveError
from varve.model.evolution import evolution
from varve.model.partitions.key import PartitionKey
from varve.model.policy import OnUpstreamChange
from varve.model.schema import ColumnType
from varve.planning.mapping.dataset_mapping import Dependency
from varve.planning.mapping.partition_subset import PartitionBox
from varve.sql import sql_project
from varve.sql.files import drafts
from varve.sql.sql_project import compiled, load, usable
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.formatting import formatted

if TYPE_CHECKING:
    from types import ModuleType

    from varve.sql.sql_asset import SqlAsset
    from varve.sql.syntax.sql_file import SqlDataset

ROOT = Path(__file__).parents[2]
HEAD = """CREATE DATASET shop.{name} ({columns})
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
"""
RECEIPTS = HEAD.format(name="receipts", columns="product STRING, price DOUBLE") + "EXTERNAL"


def sales(query: str, columns: str = "product STRING, price DOUBLE", name: str = "sales") -> str:
    return HEAD.format(name=name, columns=columns) + query


def read(*texts: str) -> dict[str, SqlAsset]:
    return compiled([SourceFile(f"{place}.sql", text) for place, text in enumerate(texts)], {})


def problems(*texts: str) -> str:
    with pytest.raises(SqlErrors) as caught:
        read(*texts)
    return str(caught.value)


@pytest.mark.parametrize("edge", [("departures", "delays"), ("weather", "delays"), ("delays", "weekly_delays")])
def test_the_shipped_queries_read_what_overlaps_them_also_where_clocks_move(edge: tuple[str, str]) -> None:
    upstream, reader = (graph.datasets[f"flights.{name}"] for name in edge)
    planned = graph.edge(reader, upstream).dependency
    declared = Dependency(reader.partitioning, upstream.partitioning)
    keys = list(reader.partitioning.keys())
    turns = [key for key in keys if str(key.values[0]) in {"2013-03-10", "2013-11-03", "2013-03-04", "2013-10-28"}]
    assert turns
    for key in [*keys[:3], *turns, *keys[-3:]]:
        assert sorted(planned.upstream_of(key).keys) == sorted(declared.upstream_of(key).keys)
    at_once = dict(planned.read_by(keys[:40]))  # type: ignore[attr-defined]
    together = {key for boxes in at_once.values() for box in boxes for key in box.partitions()}
    assert together >= set(declared.upstream_of(keys[20]).keys)
    probe = list(upstream.partitioning.keys())[40]
    assert sorted(planned.readers_of(probe).keys) == sorted(declared.readers_of(probe).keys)


def test_the_documented_example_reads_both_stores_of_its_day() -> None:
    files = load(ROOT / "docs" / "examples" / "bigdataflow")
    assets = {sql_asset.dataset.name: sql_asset for sql_asset in sql_assets(files)}
    reads = assets["bigdataflow.products_sales"].reads[0]
    day = PartitionKey.of(day="2022-03-31")
    assert [key.path for key in reads.dependency.upstream_of(day).keys] == [  # type: ignore[attr-defined]
        "day=2022-03-31/store=Detroit", "day=2022-03-31/store=Paris",
    ]  # fmt: skip


def test_a_trailing_window_is_read_off_the_query() -> None:
    query = "AS SELECT product, price FROM shop.receipts WHERE day BETWEEN DATE_SUB(today, 3) AND today"
    files = read(RECEIPTS, sales(query))
    (asset,) = [sql_asset for sql_asset in sql_assets(files) if sql_asset.reads]
    read_ = asset.reads[0].dependency.upstream_of(PartitionKey.of(day="2022-03-31")).keys  # type: ignore[attr-defined]
    assert [key["day"] for key in read_] == ["2022-03-28", "2022-03-29", "2022-03-30", "2022-03-31"]


@pytest.mark.parametrize(
    "file", sorted(ROOT.glob("assets/*.sql")) + sorted(ROOT.glob("docs/examples/*/*.sql")), ids=str
)
def test_the_shipped_files_are_laid_out(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert formatted(SourceFile(str(file), text)) == text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("AS SELECT product, prize AS price FROM shop.receipts WHERE day = today", "prize"),
        ("AS SELECT product, price FROM shop.receits WHERE day = today", "Did you mean shop.receipts?"),
        ("AS SELECT product, price FROM receipts WHERE day = today", "Did you mean shop.receipts?"),
        ("AS SELECT product, SUM(price) FROM shop.receipts WHERE day = today GROUP BY product", "AS"),
        ("AS SELECT product, price FROM shop.receipts", "nothing says which partitions of shop.receipts are read"),
        ("AS SELECT product, price FROM shop.receipts WHERE day = CURRENT_DATE", "CURRENT_DATE depends on when"),
        ("AS SELECT product, RAND() AS price FROM shop.receipts WHERE day = today", "ALLOW RANDOM"),
        ("AS SELECT product, price FROM shop.receipts TABLESAMPLE (10 PERCENT) WHERE day = today",
         "write REPEATABLE (1) behind it"),
        ("AS SELECT SESSION_USER() AS product, price FROM shop.receipts WHERE day = today", "ALLOW RANDOM"),
        ("AS SELECT CURRENT_SCHEMA() AS product, price FROM shop.receipts WHERE day = today", "ALLOW RANDOM"),
        ("AS SELECT product, INPUT_FILE_BLOCK_START() AS price FROM shop.receipts WHERE day = today", "ALLOW RANDOM"),
        ("AS SELECT product, INPUT_FILE_BLOCK_LENGTH() AS price FROM shop.receipts WHERE day = today", "ALLOW RANDOM"),
        ("AS SELECT product, price FROM shop.receipts WHERE day = :tody", ":tody is no variable of the scope"),
        ("PYTHON 'pipeline_defs.nothing:run'", "there is no module pipeline_defs.nothing"),
        ("PYTHON 'varve.sql.sql_project:laod'", "Did you mean load?"),
        ("AS SELECT product FROM shop.receipts WHERE day = today", "the query has no column price"),
        ("AS SELECT product, price, day FROM shop.receipts WHERE day = today", "day is a partition column"),
        ("AS SELECT product, CAST(price AS STRING) AS price FROM shop.receipts WHERE day = today",
         "price is declared DOUBLE, but the query gives STRING"),
        ("AS SELECT product, price FROM shop.sales WHERE day = today", "in a circle: shop.sales reads itself"),
    ],
)  # fmt: skip
def test_a_bad_query_is_refused_with_its_place(query: str, expected: str) -> None:
    message = problems(RECEIPTS, sales(query))
    assert expected in message
    assert message.startswith("1.sql:")
    assert "^" in message


def test_the_columns_of_a_generator_are_declared_by_their_names() -> None:
    query = "AS SELECT product, POSEXPLODE(SPLIT(product, '-')) AS (place, part) FROM shop.receipts WHERE day = today"
    columns = "product STRING, place INT, part STRING"
    assert read(RECEIPTS, sales(query, columns))["shop.sales"].dataset.schema.names == ("product", "place", "part")
    message = problems(RECEIPTS, sales(query, columns.replace("part", "parts")))
    assert "the query has no column parts. Did you mean part?" in message
    assert "is a partition column" in problems(RECEIPTS, sales(query.replace("(place,", "(day,"), columns))


def test_a_sample_with_a_seed_and_one_of_a_number_of_rows_are_taken() -> None:
    for sample in ("(10 PERCENT) REPEATABLE (1)", "(BUCKET 1 OUT OF 4) REPEATABLE (1)", "(3 ROWS)"):
        rows = f"(SELECT product, price FROM shop.receipts WHERE day = today) TABLESAMPLE {sample}"
        assert "shop.sales" in read(RECEIPTS, sales(f"AS SELECT product, price FROM {rows}"))


def test_one_misspelt_column_is_one_problem() -> None:
    message = problems(RECEIPTS, sales("AS SELECT product, prise FROM shop.receipts WHERE day = today"))
    assert "unknown column prise. Did you mean price?" in message
    assert message.count("1.sql:") == 1


def test_a_variable_that_a_column_hides_is_refused() -> None:
    text = (
        sales("AS SELECT product, price FROM shop.receipts WHERE day = today")
        .replace("today", "day")
        .replace("INSERT (day = day)\n", "")
    )
    assert "day is a variable of the scope and a column of receipts; write :day" in problems(RECEIPTS, text)
    assert read(RECEIPTS, text.replace("day = day", "receipts.day = :day"))["shop.sales"].reads == ("shop.receipts",)


@pytest.mark.parametrize(
    ("name", "write"), [("shop.größe", "shop.grosse"), ("shop._x", "shop.x"), ("Shop.T1", "shop.t1")]
)
def test_a_name_that_cannot_be_is_told_with_one_that_can(name: str, write: str) -> None:
    told = problems(RECEIPTS.replace("shop.receipts", name))
    assert f"names are of letters a to z, digits and _, a letter first; write {write}." in told


def test_a_dataset_and_a_column_may_be_called_like_any_word_of_the_language() -> None:
    keywords = [word for words in Spark.Tokenizer.KEYWORDS for word in words.lower().split()]
    words = sorted({word for word in keywords if word.isalpha()})
    assert {"select", "values", "from", "order", "window"} <= {*words}
    files = [HEAD.format(name=word, columns=f"`{word}` DOUBLE") + "EXTERNAL" for word in words]
    # A part of a name is a name, in every place where one may stand.
    reads = (
        "AS SELECT it.{0} AS price, it.day AS product FROM shop.{0} AS it JOIN shop.{0} AS other ON it.{0} = other.{0} "
    )
    where = "AND other.day = today WHERE it.day = today AND it.{0} > 1"
    files += [sales((reads + where).format(word), name=f"of_{word}") for word in words]
    assert {*read(*files)} == {f"shop.{name}" for word in words for name in (word, f"of_{word}")}


def test_all_problems_of_all_files_are_told_in_one_run() -> None:
    message = problems(
        RECEIPTS.replace("1 DAY", "1 DAI"),
        sales("AS SELECT product price FROM"),
        sales("AS SELECT 1 AS product, RAND() AS price", name="other"),
    )
    assert {line.split(":")[0] for line in message.splitlines() if ".sql:" in line} == {"0.sql", "1.sql", "2.sql"}


def test_a_dataset_that_two_files_declare_is_told_in_both_and_its_readers_are_blamed_for_nothing() -> None:
    one = RECEIPTS.replace("price DOUBLE", "amount DOUBLE")
    reader = sales("AS SELECT product, price FROM shop.receipts WHERE receipts.day = today")
    for files in ([one, RECEIPTS, reader], [RECEIPTS, reader, one], [reader, one, RECEIPTS]):
        first, second = (f"{place}.sql" for place, text in enumerate(files) if text != reader)
        told = problems(*files)
        assert told.count("is also declared in") == 2
        assert f"{first}:1:16: shop.receipts is also declared in {second}." in told
        assert f"{second}:1:16: shop.receipts is also declared in {first}." in told
        assert f"{files.index(reader)}.sql:" not in told


@pytest.mark.parametrize(
    ("module", "step"), [(drafts, "parse"), (sql_project, "query_problems"), (sql_project, "compile_dataset")]
)
def test_a_defect_of_ours_in_one_file_stops_that_dataset_and_what_reads_it_and_no_other(
    module: ModuleType, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(module, step)

    def unless_of_sales(of: SourceFile | SqlDataset, *given: object, **named: object) -> object:
        if (of.path if isinstance(of, SourceFile) else of.source.path) == "1.sql":
            raise LookupError("nobody thought of this")
        return real(of, *given, **named)

    monkeypatch.setattr(module, step, unless_of_sales)
    query = "AS SELECT product, price FROM shop.{} AS it WHERE it.day = today"
    texts = (
        RECEIPTS, sales(query.format("receipts")), sales(query.format("sales"), name="after"),
        sales(query.format("receipts"), name="other"),
    )  # fmt: skip
    files = usable([SourceFile(f"{place}.sql", text) for place, text in enumerate(texts)], {})
    assert set(files) == {"shop.receipts", "shop.other"}
    assert {broken.name for broken in files.broken} == {"shop.sales", "shop.after"}
    (problem,) = files.problems
    assert problem.place.startswith("1.sql:1:")
    assert "a defect of Varve (LookupError in test_project.py:" in problem.message
    assert "nobody thought of this" in problem.message


def test_columns_of_a_select_are_inferred_where_they_are_not_declared() -> None:
    text = sales("AS SELECT product, SUM(price) AS price, COUNT(*) AS n FROM shop.receipts WHERE day = today "
                 "GROUP BY product").replace(" (product STRING, price DOUBLE)", "")  # fmt: skip
    schema = read(RECEIPTS, text)["shop.sales"].dataset.schema
    assert [(column.name, column.type) for column in schema.columns] == [
        ("product", "STRING"), ("price", "DOUBLE"), ("n", "BIGINT"),
    ]  # fmt: skip


def test_only_an_author_says_not_null() -> None:
    query = "AS SELECT today, 'x' AS fixed, COUNT(*) AS n FROM shop.receipts WHERE day = today"
    of_columns = sales(query).replace(" (product STRING, price DOUBLE)", "{}")
    for declared, nullable in (
        ("", [True, True, True]),
        (" (today STRING, fixed STRING NOT NULL, n BIGINT)", [1, 0, 1]),
    ):
        columns = read(RECEIPTS, of_columns.replace("{}", declared))["shop.sales"].dataset.schema.columns
        assert [column.nullable for column in columns] == list(map(bool, nullable))


@pytest.mark.parametrize(
    "column", ["COUNT(*) AS n", "'EUR' AS currency", "MAX(today) AS sold_on", "COALESCE(SUM(price), 0) AS s"]
)
def test_any_column_may_be_added_where_none_is_declared(column: str) -> None:
    query = "AS SELECT product, SUM(price) AS price{} FROM shop.receipts WHERE day = today GROUP BY product"
    text = sales(query).replace(" (product STRING, price DOUBLE)", "")
    before, after = (read(RECEIPTS, text.format(more))["shop.sales"].dataset for more in ("", f", {column}"))
    assert evolution(before.schema.columns, after.schema.columns).problems == ()


def test_the_code_version_follows_the_meaning_and_not_the_layout() -> None:
    query = "AS SELECT product, price FROM shop.receipts WHERE day = today"
    version = read(RECEIPTS, sales(query))["shop.sales"].code_version
    assert read(RECEIPTS, sales(query.replace(" FROM", "\n-- why\nfrom")))["shop.sales"].code_version == version
    assert read(RECEIPTS, sales(query.replace("today", "'2022-03-01'")))["shop.sales"].code_version != version


JOINED = (
    "SELECT a.product, 1D AS price FROM shop.receipts AS a JOIN shop.receipts AS b USING (product) "
    "WHERE a.day = today AND b.day = today"
)
RENAMED = (
    "WITH dear AS (SELECT product AS p FROM shop.receipts WHERE day = today AND PRICE > 3) "
    "SELECT p AS product, 1D AS price FROM dear"
)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT product, 1D AS price FROM shop.receipts WHERE day = today", ("product",)),
        ("SELECT 'a' AS product, COUNT(*) * 1D AS price FROM shop.receipts WHERE day = today", ()),
        ("SELECT x.product, x.price FROM (SELECT * FROM shop.receipts WHERE day = today) AS x", None),
        ("SELECT 'a' AS product, COUNT(DISTINCT *) * 1D AS price FROM shop.receipts WHERE day = today", None),
        (JOINED, ("product",)),
        (RENAMED, ("product", "price")),
    ],
)
def test_what_a_query_reads_of_the_columns_is_known_or_all(query: str, columns: tuple[str, ...] | None) -> None:
    files = read(RECEIPTS, sales(f"AS {query}"))
    assert files["shop.sales"].compiled.columns["shop.receipts"] == columns


def test_a_column_that_the_parser_takes_for_something_else_is_read() -> None:
    columns = "product STRING, price DOUBLE, seen TIMESTAMP, unit STRING, sold BIGINT, session_user STRING"
    receipts = HEAD.format(name="receipts", columns=columns) + "EXTERNAL"
    for expression, needed in {
        "session_user": ("session_user",),
        "DATE_FORMAT(DATE_TRUNC(unit, seen), 'yyyy')": ("seen", "unit"),
        "CAST(TRUNC(seen, Unit) AS STRING)": ("seen", "unit"),
        "CAST(PERCENTILE(price, 0.5, `sold`) AS STRING)": ("price", "sold"),
    }.items():
        query = f"AS SELECT {expression} AS product, 1D AS price FROM shop.receipts WHERE day = today"
        files = read(receipts, sales(query))
        assert files["shop.sales"].compiled.columns["shop.receipts"] == needed
    assert "unknown column session_user" in problems(RECEIPTS, sales(query.replace(expression, "session_user")))


def test_the_header_says_what_the_planner_may_do_by_itself() -> None:
    text = """CREATE DATASET b.daily (n BIGINT)
    PARTITIONED BY (day STRING)
    FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', RETENTION 30 DAYS)
    LET day = DATE_FORMAT(t, 'yyyy-MM-dd')
    {change}
    REFRESH LAST 3
    AS SELECT 1 AS n"""
    kept = compiled([SourceFile("daily.sql", text.format(change=""))], {})["b.daily"].dataset.policy
    assert kept.retention == dt.timedelta(days=30)
    assert kept.refresh_last == 3
    assert kept.on_upstream_change is OnUpstreamChange.REBUILD
    # It reads nothing: its windows run as they complete.
    assert kept.by_itself
    ahead = compiled([SourceFile("daily.sql", text.format(change="WINDOWS AHEAD 2"))], {})[
        "b.daily"
    ].dataset.partitioning
    assert ahead.time is not None
    assert ahead.time.end_offset == 3
    held = compiled([SourceFile("daily.sql", text.format(change="ON UPSTREAM CHANGE IGNORE"))], {})["b.daily"]
    assert held.dataset.policy.on_upstream_change is OnUpstreamChange.HOLD


def test_the_fields_of_a_struct_keep_their_names() -> None:
    place = "STRUCT<city: STRING, no: ARRAY<STRUCT<n: INT>>>"
    places = HEAD.format(name="places", columns=f"place {place}") + "EXTERNAL"
    declared = sales("AS SELECT place FROM shop.places WHERE day = today", columns=f"place {place}")
    for text in (declared, declared.replace(f" (place {place})", ""), declared.replace("city", "City")):
        (column,) = read(places, text)["shop.sales"].dataset.schema.columns
        assert column.type == ColumnType(place.replace("city", "City") if "City" in text else place)
    assert "place is declared STRUCT<town: STRING>, but the query gives STRUCT<city: STRING" in problems(
        places, declared.replace(place, "STRUCT<town: STRING>")
    )


def test_dagster_shows_a_dataset_with_a_set_more_than_its_query_reads_and_that_is_said() -> None:
    header = (
        "CREATE DATASET shop.{name} (n BIGINT) PARTITIONED BY (day STRING, product STRING)\n"
        "FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-30', END '2022-04-02'), p IN DYNAMIC 'products'\n"
        "LET today = DATE_FORMAT(t, 'yyyy-MM-dd') INSERT (day = today, product = p) "
    )
    count = "AS SELECT COUNT(*) AS n FROM shop.sales"
    of_day = header.format(name="of_day") + f"{count} WHERE sales.day = today AND sales.product = p"
    of_all = header.format(name="of_all") + f"ALLOW FULL SCAN OF shop.sales {count} WHERE sales.product = p"
    files = read(sales("EXTERNAL"), of_day, of_all)

    dependency = files["shop.of_day"].dependency("shop.sales")
    key, members = PartitionKey.of(day="2022-03-30", product="pen"), {"products": ["pen"]}
    assert len(dependency.upstream_of(key, members=members).keys) == 1
    mapping = mappings.compiled(dependency)
    assert isinstance(mapping.mapping, dg.AllPartitionMapping)
    assert (mapping.exact, mapping.why) == (False, "the keys of a set are not known when the project is loaded")
    mapping = mappings.compiled(files["shop.of_all"].dependency("shop.sales"))
    assert (mapping.exact, mapping.why) == (True, "")


def test_a_growing_set_is_read_whole_by_a_dataset_without_that_dimension() -> None:
    """When files are loaded nobody knows the members: any condition on them may hold, for Dagster and for people."""
    models = (
        "CREATE DATASET shop.models (carrier_id INT, delay DOUBLE) PARTITIONED BY (day STRING, carrier STRING)\n"
        "FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01'), c IN DYNAMIC 'carriers'\n"
        "INSERT (day = DATE_FORMAT(t, 'yyyy-MM-dd'), carrier = c) EXTERNAL"
    )
    whole = "ALLOW FULL SCAN OF shop.models AS SELECT COUNT(*) AS n FROM shop.models"
    of_day = "AS SELECT COUNT(*) AS n FROM shop.models WHERE models.day = today AND models.carrier <> 'ZZ'"
    files = read(models, sales(whole, "n BIGINT", "counts"), sales(of_day, "n BIGINT", "daily"))
    members = {"carriers": ["AA", "UA", "ZZ"]}
    day = PartitionKey.of(day="2022-03-02")

    dependency = files["shop.daily"].dependency("shop.models")
    assert [type(mapping.rule).__name__ for mapping in dependency.dimension_mappings] == ["Overlap", "All"]
    # Varve's own planner asks with the members.
    assert [str(key["carrier"]) for key in dependency.upstream_of(day, members=members).keys] == ["AA", "UA"]

    dependency = files["shop.counts"].dependency("shop.models")
    assert [type(mapping.rule).__name__ for mapping in dependency.dimension_mappings] == ["All", "All"]
    now = dt.datetime(2022, 3, 3, 12, tzinfo=dt.UTC)
    # The window that is still open is a partition too, as others send it.
    assert len(dependency.upstream_of(day, members=members, now=now).keys) == 9


def test_a_set_has_keys_of_one_type_in_all_files() -> None:
    declared = [
        f"CREATE DATASET shop.{name} (n INT) PARTITIONED BY (customer {kind})\n"
        "FOR c IN DYNAMIC 'customers' INSERT (customer = c) EXTERNAL"
        for name, kind in {"a": "BIGINT", "b": "BIGINT", "c": "STRING"}.items()
    ]
    assert list(read(*declared[:2])) == ["shop.a", "shop.b"]
    found = problems(*declared)
    assert "2.sql:2:5: the set 'customers' has BIGINT keys in shop.a, and STRING keys here; declare one type" in found
    assert "1.sql" not in found


def test_datasets_compiled_together_have_the_rules_that_each_has_alone() -> None:
    """What one dataset's rules for Dagster follow from is kept for those that read alike; near misses do not."""
    zones = {"here": "UTC", "there": "America/New_York"}
    upstreams = [
        f"CREATE DATASET shop.{name} (price DOUBLE) PARTITIONED BY (day STRING)\n"
        f"FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', TIMEZONE '{zone}')\n"
        "INSERT (day = DATE_FORMAT(t, 'yyyy-MM-dd')) EXTERNAL"
        for name, zone in zones.items()
    ]
    conditions = ["r.day = today", "r.day BETWEEN DATE_SUB(today, 2) AND today", "r.day = DATE_SUB(today, 1)"]
    shifts = ["t", "t - INTERVAL 1 DAY"]
    readers = []
    for place, (upstream, condition, shift, zone) in enumerate(product(zones, conditions, shifts, zones.values())):
        head = HEAD.format(name=f"r{place}", columns="price DOUBLE").replace(
            "'2022-03-01'", f"'2022-04-01', TIMEZONE '{zone}'"
        )
        head = head.replace("LET today = DATE_FORMAT(t,", f"LET today = DATE_FORMAT({shift},").replace(
            "(day = today)", "(day = DATE_FORMAT(t, 'yyyy-MM-dd'))"
        )
        readers.append(f"{head}AS SELECT r.price FROM shop.{upstream} r WHERE {condition}")
    together = read(*upstreams, *readers, *[text.replace("shop.r", "shop.again") for text in readers])
    seen = set()
    for place, text in enumerate(readers):
        alone = read(*upstreams, text)[f"shop.r{place}"]
        for name in (f"shop.r{place}", f"shop.again{place}"):
            assert together[name].compiled.dimension_mappings == alone.compiled.dimension_mappings
            assert together[name].dataset.partitioning == alone.dataset.partitioning
        seen.add(repr(alone.compiled.dimension_mappings))
    assert len(seen) == 20


def test_the_readers_of_one_partition_after_the_other_are_those_that_read_it() -> None:
    query = "AS SELECT product, price FROM shop.receipts WHERE receipts.day BETWEEN DATE_SUB(today, 2) AND today"
    assets = read(RECEIPTS, sales(query))
    kept = assets["shop.sales"].dependency("shop.receipts")
    for now in (dt.datetime(2022, 3, 20, tzinfo=dt.UTC), dt.datetime(2022, 3, 9, tzinfo=dt.UTC)):
        for day in ("2022-03-01", "2022-03-07", "2022-03-08"):
            key = PartitionKey.of(day=day)
            fresh = read(RECEIPTS, sales(query))["shop.sales"].dependency("shop.receipts")
            mapped = kept.readers_of(key, now=now)
            assert mapped == fresh.readers_of(key, now=now)
            for reader in mapped.keys:
                assert key in kept.upstream_of(reader, now=now).keys
    box = PartitionBox.at(kept.reader, PartitionKey.of(day="2022-03-08"))
    assert kept.plan.candidates(box)[0] is kept.plan.candidates(box)[0]


def test_a_set_may_have_dates_as_keys() -> None:
    text = (
        "CREATE DATASET shop.late (n BIGINT) PARTITIONED BY (d DATE) FOR d IN DYNAMIC 'days' "
        "LET before = DATE_FORMAT(DATE_SUB(d, 1), 'yyyy-MM-dd') INSERT (d = d) "
        "AS SELECT COUNT(*) AS n FROM shop.receipts WHERE receipts.day = before"
    )
    asset = read(RECEIPTS, text)["shop.late"]
    key = PartitionKey.of(d=dt.date(2022, 3, 5))
    assert {name: str(typed) for name, typed in asset.scopes.of(key).values.items()} == {
        "d": "2022-03-05", "before": "2022-03-04",
    }  # fmt: skip
    (planned,) = planned_reads(asset).values()

    reads = planned.dependency.upstream_of(key, members={"days": (key["d"],)}).keys
    assert [read.path for read in reads] == ["day=2022-03-04"]


def test_a_key_for_which_a_let_has_no_value_is_named() -> None:
    text = (
        "CREATE DATASET shop.towns (n BIGINT) PARTITIONED BY (code STRING) FOR town IN DYNAMIC 'towns' "
        "LET code = LOWER(town) INSERT (code = town) "
        "AS SELECT COUNT(*) AS n FROM shop.receipts WHERE receipts.product = code AND receipts.day = '2022-03-05'"
    )
    scopes = read(RECEIPTS, text)["shop.towns"].scopes
    keys = [PartitionKey.of(code=town) for town in ("Bern", "Zürich", "Genf")]
    assert scopes.columns(keys[::2])["code"].to_list() == ["bern", "genf"]
    with pytest.raises(VarveError, match=r"shop\.towns code=Zürich: LET code has no value there: letters beyond ASCII"):
        scopes.columns(keys)
