"""`varve.testing` on a project of somebody's own: SQL over given rows, Python as a function, and what it refuses."""

from __future__ import annotations

import datetime as dt
import gc
import sys
import textwrap
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

import varve
from tests.support.environment import clean_environment
from tests.support.prepared import run_prepared
from varve.model.broken_dataset import DatasetIsBroken
from varve.model.errors import BadInput, UnknownPartition, VarveError, VerifyFailed
from varve.testing import check, context_for, run_sql, spark_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ORDERS = """\
CREATE DATASET shop.orders (
  product STRING NOT NULL COMMENT 'what was sold',
  price DECIMAL(10, 2) COMMENT 'euros',
  at TIMESTAMP COMMENT 'when'
)
  COMMENT 'One row per order.'
  STORED IN LAKE
  PARTITIONED BY (day DATE, store STRING)
  FOR
    t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-12-01'),
    shop IN ('Paris', 'Rome')
  LET today = CAST(t AS DATE)
  INSERT (day = today, store = shop)
EXTERNAL;
"""
REVENUE = """\
CREATE DATASET shop.revenue (
  product STRING COMMENT 'what was sold',
  orders BIGINT COMMENT 'how many',
  revenue DECIMAL(20, 2) COMMENT 'euros',
  first_at TIMESTAMP COMMENT 'when the first was ordered'
)
  COMMENT 'One row per product and day.'
  STORED IN WAREHOUSE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-12-01')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
  EXPECT no_refunds: revenue >= 0
AS
SELECT
  product,
  COUNT(*) AS orders,
  CAST(SUM(price) AS DECIMAL(20, 2)) AS revenue,
  MIN(at) AS first_at
FROM shop.orders
WHERE day BETWEEN DATE_SUB(today, 1) AND today
GROUP BY product;
"""
SHOUTED = """\
CREATE DATASET shop.shouted (
  product STRING COMMENT 'what was sold, in capitals'
)
  COMMENT 'One row per product.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-12-01')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
PYTHON 'assets.shouting:shout'
USING sold AS (
  SELECT orders.product FROM shop.orders WHERE orders.day = today
);
"""
SHOUTING = """\
def shout(spark, scope, sold):
    from pyspark.sql import functions as F

    return sold.select(F.upper("product").alias("product")).distinct()
"""
BEST = """\
import varve

DAY = varve.TimeDimension.of("day", "@daily", "2026-11-01", "2026-12-01")
ORDERS = varve.Dataset(
    name="shop.clicks",
    comment="One row per click.",
    partitioning=varve.Partitioning((DAY,)),
    schema=varve.Schema((varve.Column("product", varve.ColumnType.STRING),)),
    store=varve.StoreKind.LAKE,
    landing=True,
)
BEST = varve.Dataset(
    name="shop.best",
    comment="One row: the product that was clicked most.",
    partitioning=varve.Partitioning((DAY,)),
    schema=varve.Schema((varve.Column("product", varve.ColumnType.STRING),)),
    store=varve.StoreKind.LAKE,
)


@varve.asset(ORDERS)
def clicks(context):
    return context.resources.landing.read(context)


@varve.asset(BEST, reads={"clicks": varve.Reads(ORDERS, rules={"day": varve.trailing(2)})})
def best(context, clicks):
    where = varve.partitions_of(context).where
    counts = clicks.where(where).groupBy("day", "product").count()
    return counts.orderBy("count", ascending=False).drop("count").limit(1)
"""
DAY1, DAY2, DAY3 = ({"day": f"2026-11-0{day}"} for day in (1, 2, 3))


@pytest.fixture
def project(tmp_path: Path) -> varve.Project:
    (tmp_path / "varve.toml").touch()
    assets = tmp_path / "assets"
    assets.mkdir()
    files = {
        "__init__.py": "", "orders.sql": ORDERS, "revenue.sql": REVENUE, "shouted.sql": SHOUTED,
        "shouting.py": SHOUTING, "best.py": BEST,
    }  # fmt: skip
    for name, text in files.items():
        (assets / name).write_text(text)
    return varve.Project.find(tmp_path)


def order(day: str, product: str, price: object, *, store: str = "Paris", at: object = None) -> dict[str, Any]:
    return {"day": day, "store": store, "product": product, "price": price, "at": at}


SOLD = [
    order("2026-11-01", "ink", "0.10", at="2026-11-01T08:30:00+01:00"),
    order("2026-11-02", "ink", "0.20", store="Rome", at=dt.datetime(2026, 11, 2, 9)),  # noqa: DTZ001 - UTC, as it says
    order("2026-11-02", "pen", 2),
    order("2026-11-03", "pen", 7.5),
]


def test_a_query_gives_the_rows_that_a_run_would_publish(project: varve.Project, spark: SparkSession) -> None:
    rows = run_sql(project, "shop.revenue", partition=DAY2, inputs={"shop.orders": SOLD}, spark=spark)
    assert rows == [
        {
            "product": "ink", "orders": 2, "revenue": Decimal("0.30"),
            "first_at": dt.datetime(2026, 11, 1, 7, 30, tzinfo=dt.UTC), "day": dt.date(2026, 11, 2),
        },
        {"product": "pen", "orders": 1, "revenue": Decimal("2.00"), "first_at": None, "day": dt.date(2026, 11, 2)},
    ]  # fmt: skip


def test_many_partitions_are_one_run(project: varve.Project, spark: SparkSession) -> None:
    keys = [DAY3, {"day": dt.date(2026, 11, 1)}, varve.PartitionKey.of(day=dt.date(2026, 11, 2)), DAY3]
    rows = run_sql(project, "shop.revenue", partition=keys, inputs={"shop.orders": SOLD}, spark=spark)
    assert [(row["day"].day, row["product"], row["orders"]) for row in rows] == [
        (1, "ink", 1), (2, "ink", 2), (2, "pen", 1), (3, "ink", 1), (3, "pen", 2),
    ]  # fmt: skip


def test_it_is_run_by_the_folder_the_file_and_frames_of_spark_and_pandas(
    project: varve.Project, spark: SparkSession
) -> None:
    import pandas as pd

    typed = spark.createDataFrame(
        [("pen", Decimal("2.00"), None, dt.date(2026, 11, 2), "Paris")],
        "product STRING, price DECIMAL(10,2), at TIMESTAMP, day DATE, store STRING",
    )
    table = pd.DataFrame([order("2026-11-02", "pen", 2.0)])
    expected = run_sql(project, "shop.revenue", partition=DAY2, inputs={"shop.orders": SOLD[2:]}, spark=spark)
    assert [row["revenue"] for row in expected] == [2]
    for source, given in (
        (project.root, typed),
        (str(project.assets), table),
        (project.assets / "revenue.sql", SOLD[2:]),
    ):
        assert run_sql(source, "shop.revenue", partition=DAY2, inputs={"shop.orders": given}, spark=spark) == expected


def test_a_python_function_that_a_file_names_runs_on_what_its_query_gives_it(
    project: varve.Project, spark: SparkSession
) -> None:
    rows = run_sql(project, "shop.shouted", partition=DAY2, inputs={"shop.orders": SOLD}, spark=spark)
    assert [row["product"] for row in rows] == ["INK", "PEN"]


def test_no_rows_are_an_input_too(project: varve.Project, spark: SparkSession) -> None:
    assert run_sql(project, "shop.revenue", partition=DAY2, inputs={"shop.orders": []}, spark=spark) == []


def test_rows_that_break_an_expectation_fail_it(project: varve.Project, spark: SparkSession) -> None:
    refunded = [order("2026-11-02", "pen", -2), order("2026-11-02", "ink", -1)]
    with pytest.raises(VerifyFailed, match=r"shop\.revenue: 2 rows break no_refunds \(revenue >= 0\)"):
        run_sql(project, "shop.revenue", partition=DAY2, inputs={"shop.orders": refunded}, spark=spark)


def test_a_row_without_a_value_where_one_is_declared_fails_it_as_it_fails_a_run(
    project: varve.Project, spark: SparkSession
) -> None:
    text = REVENUE.replace("revenue DECIMAL(20, 2)", "revenue DECIMAL(20, 2) NOT NULL")
    (project.assets / "revenue.sql").write_text(text, encoding="utf-8")
    free = [order("2026-11-02", "pen", None)]
    told = r"revenue is declared NOT NULL, and nothing stands there in a row of day=2026-11-02\. A run would publish"
    with pytest.raises(BadInput, match=told):
        run_sql(project, "shop.revenue", partition=DAY2, inputs={"shop.orders": free}, spark=spark)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"partition": {"day": "2027-01-01"}}, UnknownPartition, "'2027-01-01' lies outside dimension day"),
        ({"partition": {"date": "2026-11-02"}}, UnknownPartition, "is not partitioned by 'date', but by day"),
        ({"partition": {}}, UnknownPartition, r"the partition {} has no day"),
        ({"partition": []}, VarveError, "no partition is given"),
        ({"partition": "2026-11-02"}, VarveError, r"'2026-11-02' is no partition; write {'day': \.\.\.}, or a list"),
        ({"partition": None}, VarveError, "None is no partition"),
        ({"inputs": {"shop.orders": None}}, BadInput, "None are no rows: give a list of dicts"),
        ({"inputs": {}}, VarveError, r"reads shop\.orders, of which no rows are given: write inputs={'shop\.orders'"),
        ({"inputs": {"shop.order": []}}, VarveError, r"does not read shop\.order, .*Did you mean shop\.orders\?"),
        ({"inputs": {"shop.orders": [{**SOLD[0], "prise": 1}]}}, BadInput, "row 1: .*'prise'. Did you mean price?"),
        (
            {"inputs": {"shop.orders": [SOLD[0], {"product": "pen"}]}},
            BadInput,
            "row 2: the partition column day has no",
        ),
        ({"inputs": {"shop.orders": [{**SOLD[0], "product": None}]}}, BadInput, "the column product has no value"),
        ({"inputs": {"shop.orders": [order("1 May", "pen", 1)]}}, BadInput, "row 1: day is DATE, and '1 May' is none"),
        ({"inputs": {"shop.orders": [order("2026-11-02", "pen", "much")]}}, BadInput, r"price is DECIMAL\(10,2\), and"),
        ({"inputs": {"shop.orders": ["pen"]}}, BadInput, "row 1 is 'pen': write a row as a dict of product, price"),
        ({"dataset": "shop.revenu"}, VarveError, r"declares shop\.revenu\. Did you mean shop\.revenue\? They declare"),
        ({"dataset": "shop.orders"}, VarveError, r"shop\.orders comes from others and has no query"),
        ({"dataset": "shop.best"}, VarveError, r"shop\.best is declared in Python: call its function"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(
    project: varve.Project, spark: SparkSession, given: dict[str, Any], kind: type[Exception], message: str
) -> None:
    asked = {"dataset": "shop.revenue", "partition": DAY2, "inputs": {"shop.orders": SOLD}, **given}
    with pytest.raises(kind, match=message):
        run_sql(project, spark=spark, **asked)


def test_a_file_that_is_wrong_is_told_by_run_and_check(project: varve.Project, spark: SparkSession) -> None:
    assert check(project, spark=spark) == []
    file = project.assets / "revenue.sql"
    file.write_text(REVENUE.replace("SUM(price)", "SUM(prise)"))
    with pytest.raises(DatasetIsBroken, match=r"revenue\.sql:18:12: .*prise.*price"):
        run_sql(project, "shop.revenue", partition=DAY2, inputs={"shop.orders": SOLD}, spark=spark)
    (problem,) = check(project.root, spark=spark)
    assert problem.startswith("assets/revenue.sql:18:12: ")
    # What only Spark's analyzer sees.
    file.write_text(REVENUE.replace("COUNT(*)", "COUNT(DISTINCT product, NO_SUCH(product))"))
    (problem,) = check(project.assets, spark=spark)
    assert "Spark has no function NO_SUCH" in problem


def test_types_that_only_spark_knows_are_asked_of_it(project: varve.Project, spark: SparkSession) -> None:
    header, _, body = REVENUE.partition(" (\n  product STRING COMMENT")
    query = body[body.index("  COMMENT 'One row per product and day.'") :].replace(
        "  EXPECT no_refunds: revenue >= 0\n", ""
    )
    guessed = query.replace("MIN(at) AS first_at", "LUHN_CHECK(product) AS is_number")
    (project.assets / "revenue.sql").write_text(f"{header}\n{guessed}")
    rows = run_sql(project, "shop.revenue", partition=DAY3, inputs={"shop.orders": SOLD[3:]}, spark=spark)
    assert [(row["product"], row["is_number"]) for row in rows] == [("pen", False)]
    assert not (project.assets / "varve.columns.json").exists()


def test_a_folder_without_sql_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(VarveError, match=r"is no project's folder, and has no \.sql files"):
        check(tmp_path, spark=spark)
    with pytest.raises(VarveError, match="does not exist"):
        check(tmp_path / "nowhere", spark=spark)


@pytest.fixture
def best(project: varve.Project) -> Callable[..., Any]:
    """The Python dataset of the project."""
    from varve.dagster.discovery import load_project

    found = {asset.dataset.name: asset for asset in load_project(project).datasets}
    return found["shop.best"]


def test_a_python_dataset_is_called_as_the_function_that_it_is(
    best: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicked = spark.createDataFrame(
        [("pen", dt.date(2026, 11, 1)), ("ink", dt.date(2026, 11, 2)), ("ink", dt.date(2026, 11, 2))],
        "product STRING, day DATE",
    )
    context = context_for(best, partition=DAY2, spark=spark)
    assert context.partition_key == "2026-11-02"
    assert context.resources.spark.spark_session is spark
    assert varve.partitions_of(context).window.start.day == 2
    assert [row["product"] for row in best(context, clicks=clicked).collect()] == ["ink"]
    assert [row["product"] for row in best(context, clicked).collect()] == ["ink"]
    both = context_for(best, partition=[DAY2, DAY1], spark=spark)
    assert [key["day"].day for key in varve.partitions_of(both).keys] == [1, 2]
    with pytest.raises(UnknownPartition, match="lies outside dimension day"):
        context_for(best, partition={"day": "2027-01-01"})
    # A context that is collected after the instance in which it was made leaves nothing of that one behind. Dagster
    # notes instances here as it does everywhere but in this suite.
    noting = sys.modules["dagster._core.storage.defs_state.base"]
    monkeypatch.setattr(noting, "set_defs_state_storage", noting.set_as_dagster_does)
    with dg.instance_for_test():
        context = context_for(best, partition=DAY2, spark=spark)
    del context
    gc.collect()
    assert dg.Definitions().get_repository_def()


def run_day(project: varve.Project, spark: SparkSession) -> list[dict[str, Any]]:
    return run_sql(project, "shop.revenue", partition=DAY1, inputs={"shop.orders": []}, spark=spark)


def test_a_session_of_another_zone_than_that_of_runs_is_refused_with_what_to_write(
    project: varve.Project, spark: SparkSession
) -> None:
    # Its HOUR and DATE of a moment are others than those that a run makes, and the test would be green.
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    message = r"timeZone = Asia/Kathmandu, and that of a run UTC: .* or call spark\.conf\.set"
    try:
        for use in (spark_session, lambda: check(project, spark=spark), lambda: run_day(project, spark)):
            with pytest.raises(VarveError, match=message):
                use()
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Kathmandu"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert spark_session() is spark
    assert run_day(project, spark) == []


def test_a_test_of_a_project_needs_no_server_and_shares_one_small_session(
    project: varve.Project, tmp_path: Path
) -> None:
    """As people run it: pytest in their project, with a session of its own."""
    (tmp_path / "test_shop.py").write_text(
        textwrap.dedent(
            """\
            from pathlib import Path
            from varve.testing import check, run_sql, spark_session

            HERE = Path(__file__).parent

            def test_revenue():
                sold = [{"day": "2026-11-02", "store": "Rome", "product": "pen", "price": "2.50"}]
                (row,) = run_sql(HERE, "shop.revenue", partition={"day": "2026-11-02"}, inputs={"shop.orders": sold})
                assert (row["product"], str(row["revenue"])) == ("pen", "2.50")

            def test_files():
                assert check(HERE) == []

            def test_it_is_one_small_session():
                assert spark_session() is spark_session()
                assert spark_session().sparkContext.master == "local[1]"
                assert not (HERE / ".varve").exists()
            """
        )
    )
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
    done = run_prepared(*words, cwd=tmp_path, env=clean_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert not (tmp_path / ".varve").exists()
    assert not (tmp_path / "metastore_db").exists()
