"""Which partitions scopes read, and which scopes read a partition: documented examples, zones, bounds."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import pendulum
import pytest
import sqlglot

from tests.sql.constructs import SINGLE, constructs
from tests.sql.test_soundness import NOW, SCHEMAS, SCOPES, UPSTREAMS, VARIABLES, partitions, planned
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.planning.mapping.partition_subset import PartitionBox
from varve.sql.evaluate.functions import Evaluator, truth
from varve.sql.evaluate.vector import Vector
from varve.sql.partitions.axes import Bindings, Upstream
from varve.sql.partitions.scan_reads import readers, readings
from varve.sql.pushdown.scans import dependencies
from varve.sql.types.inference import qualified

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.sql.partitions.matching import ScanReading

STORES_BY_DAY = Partitioning(
    (
        TimeDimension("day", Grain.DAY, pendulum.datetime(2022, 3, 1), key_format="%Y-%m-%d"),
        StaticDimension("store", ("Detroit", "Paris")),
    )
)
STORES_SALES = {"product_id": "bigint", "nb_sales": "bigint", "revenue": "double", "day": "string", "store": "string"}


def read(
    where: str, partitioning: Partitioning, kinds: dict[str, str], rows: Sequence[dict[str, object]],
    variables: dict[str, str], **options: object,
) -> list[list[ScanReading]]:  # fmt: skip
    """The readings of `SELECT ... FROM b.up s WHERE ...`."""
    columns = {"b.up": {"n": "int", **kinds}}
    tree = qualified(
        sqlglot.parse_one(f"SELECT s.n FROM b.up s WHERE {where}", dialect="spark"), columns, variables
    ).tree
    members = options.pop("members", None)
    upstreams = {"b.up": Upstream("b.up", partitioning, kinds, members)}  # type: ignore[arg-type]
    query_scans = dependencies(tree, {"b.up": kinds})
    return [part for _, part in readings(query_scans, upstreams, Bindings.of(variables, rows), **options)]  # type: ignore[arg-type]


def paths(reading: ScanReading, scope: int = 0) -> list[str]:
    return [key.path for box in reading.boxes(scope) for key in box.partitions()]


def stores_read(where: str) -> list[str]:
    query = f"SELECT product_id, SUM(nb_sales) AS nb FROM bigdataflow.stores_sales WHERE {where} GROUP BY product_id"
    variables = {"partition_day": "string"}
    tree = qualified(
        sqlglot.parse_one(query, dialect="spark"), {"bigdataflow.stores_sales": STORES_SALES}, variables
    ).tree
    kinds = {"day": "string", "store": "string"}
    query_scans = dependencies(tree, {"bigdataflow.stores_sales": kinds})
    up = {"bigdataflow.stores_sales": Upstream("bigdataflow.stores_sales", STORES_BY_DAY, kinds)}
    scopes = Bindings.of(variables, [{"partition_day": "2022-03-31"}])
    ((_, (reading,)),) = readings(query_scans, up, scopes, now=dt.datetime(2022, 4, 1, tzinfo=dt.UTC))
    return paths(reading)


def test_a_task_of_a_day_reads_both_stores_of_that_day() -> None:
    assert stores_read("stores_sales.day = partition_day") == [
        "day=2022-03-31/store=Detroit",
        "day=2022-03-31/store=Paris",
    ]


def test_a_pattern_over_four_days_reads_the_three_days_before_too() -> None:
    paths = stores_read("stores_sales.day BETWEEN DATE_SUB(partition_day, 3) AND partition_day")
    assert paths == [f"day=2022-03-{day}/store={store}" for day in range(28, 32) for store in ("Detroit", "Paris")]


BRACKETS = """
a JOIN (b JOIN c ON b.day = c.day) ON a.day = b.day
a JOIN (b CROSS JOIN c) ON a.day = b.day AND a.day = c.day
a LEFT JOIN (b JOIN c ON b.day = c.day) ON a.day = b.day
a LEFT JOIN ((b JOIN c ON b.day = c.day)) ON a.day = b.day
a LEFT OUTER JOIN (b INNER JOIN c ON b.day = c.day) ON a.day = c.day
(a JOIN b ON a.day = b.day) JOIN c ON a.day = c.day
(a LEFT JOIN b ON a.day = b.day) LEFT JOIN c ON a.day = c.day
((a JOIN b ON a.day = b.day) LEFT JOIN c ON a.day = c.day)
""".strip().splitlines()


@pytest.mark.parametrize("joined", BRACKETS)
def test_conditions_reach_the_parts_of_joins_in_brackets(joined: str) -> None:
    kinds, names = {"day": "date"}, ("b.a", "b.b", "b.c")
    sources = re.sub(r"\b([abc])\b(?!\.)", r"b.\1 AS \1", joined)
    tree = qualified(
        sqlglot.parse_one(f"SELECT a.n, b.n AS m, c.n AS k FROM {sources} WHERE a.day = today", dialect="spark"),
        {name: {"n": "int", **kinds} for name in names}, {"today": "date"},
    )  # fmt: skip
    # Each part has its types, too.
    assert [output.type for output in tree.outputs] == ["int", "int", "int"]
    days = Partitioning((TimeDimension("day", Grain.DAY, pendulum.datetime(2022, 3, 1)),))
    upstreams = {name: Upstream(name, days, kinds) for name in names}
    scopes = Bindings.of({"today": "date"}, [{"today": dt.date(2022, 3, 9)}])
    now = dt.datetime(2022, 4, 1, tzinfo=dt.UTC)
    read_scans = readings(dependencies(tree.tree, dict.fromkeys(names, kinds)), upstreams, scopes, now=now)
    assert [paths(reading) for _, parts in read_scans for reading in parts] == [["day=2022-03-09"]] * 3


@pytest.mark.parametrize("condition", SINGLE)
def test_bounds_leave_nothing_out(condition: str) -> None:
    """What is read is what the condition keeps among all partitions, looked at one by one."""
    query = f"SELECT s.n FROM b.sales s WHERE {condition}"
    query_scans, (reading,), _ = planned(query)
    for scope, values in enumerate(SCOPES):
        expected = []
        for key in partitions("b.sales"):
            columns = {("@scope", name): Vector.of(kind, [values[name]]) for name, kind in VARIABLES.items()}
            columns |= {("@0", name): Vector.of("string", [key[name]]) for name in ("day", "store")}
            evaluator = Evaluator(columns)
            if all(bool(truth(evaluator.of(condition))[0].all()) for condition in query_scans.scans[0].conditions):
                expected.append(key.path)
        assert sorted(paths(reading, scope)) == sorted(expected)


@pytest.mark.parametrize("timezone", ["America/New_York", "Europe/Paris", "Asia/Kolkata", "America/Sao_Paulo"])
@pytest.mark.parametrize(
    "where",
    ["s.hour >= pd AND s.hour < CAST(DATE_ADD(pd, 1) AS STRING)", "SUBSTR(s.hour, 1, 10) = pd", "TO_DATE(s.hour) = pd",
     "s.hour BETWEEN CAST(DATE_SUB(pd, 1) AS STRING) AND CONCAT(pd, 'T05')",
     "s.hour IN (CONCAT(pd, 'T01'), CONCAT(pd, 'T02'))"],
)  # fmt: skip
def test_hours_of_a_zone_are_found_where_clocks_turn(timezone: str, where: str) -> None:
    start = pendulum.datetime(2018, 1, 1, tz=timezone)
    hours = TimeDimension("hour", Grain.HOUR, start, start.add(years=1))
    days = ["2018-03-11", "2018-03-25", "2018-10-28", "2018-11-04", "2018-02-18", "2018-07-01"]
    kinds = {"hour": "string"}
    (((reading,)),) = read(where, Partitioning((hours,)), kinds, [{"pd": day} for day in days], {"pd": "string"})
    keys = [str(value) for value in hours.keys()]  # noqa: SIM118
    for scope, day in enumerate(days):
        columns = {("@scope", "pd"): Vector.of("string", [day]), ("@0", "hour"): Vector.of("string", keys)}
        kept = [
            truth(Evaluator(columns).of(condition))[0]
            for condition in reading.scan.conditions
        ]  # fmt: skip
        expected = [f"hour={key.replace(':', '%3A')}" for at, key in enumerate(keys) if all(mask[at] for mask in kept)]
        assert paths(reading, scope) == expected


def test_ten_years_of_hours_are_not_listed_for_one_day() -> None:
    start = pendulum.datetime(2014, 1, 1)
    hours = Partitioning((TimeDimension("hour", Grain.HOUR, start, start.add(years=10)),))
    where = "s.hour >= pd AND s.hour < CAST(DATE_ADD(pd, 1) AS STRING)"
    (((reading,)),) = read(where, hours, {"hour": "string"}, [{"pd": "2019-05-05"}], {"pd": "string"})
    assert len(reading.groups[0].axes[0].keys) < 24 * 8
    assert len(paths(reading)) == 24


def test_windows_that_are_not_over_are_read_where_a_condition_bounds_them() -> None:
    now = dt.datetime(2022, 3, 31, 12, tzinfo=dt.UTC)
    rows, kinds = [{"pd": "2022-03-31"}], {"day": "string", "store": "string"}
    (((reading,)),) = read("s.day BETWEEN pd AND '2022-04-01'", STORES_BY_DAY, kinds, rows, {"pd": "string"}, now=now)
    assert {path.split("/")[0] for path in paths(reading)} == {"day=2022-03-31", "day=2022-04-01"}
    (((reading,)),) = read("s.day >= '2022-03-29'", STORES_BY_DAY, kinds, rows, {"pd": "string"}, now=now)
    assert {path.split("/")[0] for path in paths(reading)} == {"day=2022-03-29", "day=2022-03-30"}


def test_texts_of_another_spelling_bound_nothing() -> None:
    rows, kinds = [{"pd": "20220331"}], {"day": "string", "store": "string"}
    now = dt.datetime(2022, 4, 10, tzinfo=dt.UTC)
    (((reading,)),) = read("s.day <= pd", STORES_BY_DAY, kinds, rows, {"pd": "string"}, now=now)
    assert len(paths(reading)) == 80  # '-' is less than any digit: all forty days


def test_members_of_a_dynamic_set_are_read_by_their_values() -> None:
    carriers = Partitioning((DynamicDimension("carrier", "carriers"),))
    rows, members = [{"c": "AA"}, {"c": "UA"}, {"c": "ZZ"}], {"carriers": ["AA", "UA"]}
    ((reading,),) = read("s.carrier = c", carriers, {"carrier": "string"}, rows, {"c": "string"}, members=members)
    assert [paths(reading, scope) for scope in range(3)] == [["carrier=AA"], ["carrier=UA"], []]


def test_a_type_that_is_not_evaluated_keeps_every_partition() -> None:
    kinds = {"day": "decimal(8,0)", "store": "string"}
    now = dt.datetime(2022, 3, 5, tzinfo=dt.UTC)
    (((reading,)),) = read(
        "s.day = 20220331 AND s.store = 'Paris'", STORES_BY_DAY, kinds, [{"pd": "x"}], {"pd": "string"}, now=now
    )
    assert len(paths(reading)) == 4


def test_a_scan_without_a_condition_on_partitions_is_told() -> None:
    for query, expected in {
        "SELECT n FROM b.sales WHERE n > 3": 1,
        "SELECT n FROM b.sales WHERE day = pd": 0,
        "SELECT n FROM b.sales WHERE MY_UDF(day)": 1,
        "SELECT name FROM b.products": 0,
        # Spark takes the alias, not the column: months, of which the day is none.
        "SELECT SUBSTR(day, 1, 7) AS day, SUM(n) AS n FROM b.sales GROUP BY day HAVING day = pd": 1,
        "SELECT s.n FROM b.sales s TABLESAMPLE (10 PERCENT) WHERE s.day = pd": 1,
        "SELECT s.n FROM (b.sales s JOIN b.costs c ON c.day = s.day) WHERE s.day = pd": 0,
        "SELECT s.n FROM b.sales s RIGHT JOIN (b.costs c JOIN b.costs g ON g.day = c.day) ON c.day = dd": 3,
        "SELECT s.n FROM b.sales s LEFT JOIN b.costs c ON s.day = pd": 2,
    }.items():
        query_scans, _, _ = planned(query)
        assert len(query_scans.unrestricted) == expected, query


@pytest.mark.parametrize("query", constructs()[::6])
def test_who_reads_a_partition_is_who_it_is_read_by(query: str) -> None:
    query_scans, reads, _ = planned(query)
    scopes = Bindings.of(VARIABLES, SCOPES)
    for dataset in {scan_reading.scan.dataset for scan_reading in reads} - {"b.products"}:
        partitioning = UPSTREAMS[dataset].partitioning
        assert partitioning is not None
        read_by: dict[str, set[int]] = {}
        for reading in reads:
            if reading.scan.dataset == dataset:
                for scope in range(len(SCOPES)):
                    for path in paths(reading, scope):
                        read_by.setdefault(path, set()).add(scope)
        for key in partitions(dataset)[::5]:
            answer = readers(query_scans, UPSTREAMS, scopes, dataset, PartitionBox.at(partitioning, key))
            # Confined to one partition, more may be concluded or less of another scan; never one reader too few.
            assert read_by.get(key.path, set()) <= set(answer.nonzero()[0].tolist()), key.path


def test_the_readers_of_a_partition_are_exact_for_a_plain_condition() -> None:
    query_scans, _, _ = planned("SELECT s.n FROM b.sales s WHERE s.day BETWEEN DATE_SUB(pd, 1) AND pd AND s.store = st")
    partitioning = UPSTREAMS["b.sales"].partitioning
    assert partitioning is not None
    key = partitioning.key(["2022-03-29", "Paris"])
    scopes = Bindings.of(VARIABLES, SCOPES)
    assert readers(query_scans, UPSTREAMS, scopes, "b.sales", PartitionBox.at(partitioning, key)).tolist() == [
        True,
        False,
        False,
        False,
    ]
    assert dt.datetime(2022, 4, 10, tzinfo=dt.UTC) < NOW
    assert "b.sales" in SCHEMAS
