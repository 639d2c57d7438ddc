"""EXTERNAL tables under the sensors: new and changed partitions run, and so do the datasets that read them."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import psycopg
import pytest

from tests.dagster.test_sql_assets import HEAD, materialise, rows
from tests.support.project import PROJECT
from varve.catalog.planning.facts import CatalogFacts
from varve.catalog.rejected import RejectedArrivals
from varve.dagster.assets.datasets import graph_of
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.automation.sensors import arrival_sensor, downstream_sensor
from varve.planning.arrivals.landing_file import RejectionKind
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import reconcile
from varve.planning.requested import FULL_REASON_TAG, RANGE_END_TAG, RANGE_START_TAG
from varve.sources.external import postgres
from varve.sources.external.postgres import PostgresTable
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.workbench import Workbench
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.services.settings import Settings

URL = "VARVE_TEST_SHOP_URL"
SALES = "AS SELECT product, SUM(price) AS revenue FROM {db}.receipts WHERE receipts.day = today GROUP BY product"


def files(db: str, options: str) -> list[DatasetAsset]:
    texts = {
        "receipts": HEAD.format(db=db, name="receipts", columns="product STRING, price INT")
        + f"EXTERNAL OPTIONS ({options})",
        "sales": HEAD.format(db=db, name="sales", columns="product STRING, revenue BIGINT") + SALES.format(db=db),
    }
    return sql_assets(compiled([SourceFile(f"{name}.sql", text) for name, text in texts.items()], {}))


def tick(sensor: dg.SensorDefinition) -> dict[tuple[str, str, str], str]:
    """Return what one tick requests: by table and the ends of the range, the reason."""
    with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance) as context:
        result: Any = sensor(context)
    if isinstance(result, dg.SkipReason):
        assert "Nothing was looked at" not in str(result.skip_message)
        return {}
    reasons = {}
    for request in result.run_requests:
        first = request.partition_key or request.tags[RANGE_START_TAG]
        last = request.tags.get(RANGE_END_TAG, first)
        reasons[request.asset_selection[0].path[-1], first, last] = request.tags[FULL_REASON_TAG].partition(": ")[2]
    return reasons


@pytest.mark.spark
@pytest.mark.parametrize("source", ["postgres", "table"])
def test_partitions_run_as_they_come_and_change_and_what_reads_them_follows(
    source: str,
    workbench: Workbench,
    fresh_database: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    db = f"o{uuid.uuid4().hex[:8]}"
    table = f"default.{db}" if source == "table" else "public.receipts"
    spark = workbench.spark
    run: Callable[[str], object]
    if source == "table":
        run = spark.sql
        run(f"CREATE TABLE {table} (product STRING, price INT, day STRING) USING parquet PARTITIONED BY (day)")
        options = f"source = 'table', table = '{table}'"
        change = f"INSERT OVERWRITE {table} PARTITION (day = '2022-03-02') VALUES ('y', 5)"
    else:
        shop = psycopg.connect(fresh_database, autocommit=True)
        request.addfinalizer(shop.close)
        run = shop.execute
        run("create table receipts (product text, price int, day date)")
        monkeypatch.setenv(URL, fresh_database)
        options = f"source = 'postgres', table = '{table}', url = '{URL}'"
        change = "update receipts set price = 5 where product = 'y'"
    assets = files(db, options)
    graph = graph_of(assets)
    arrivals, downstream = arrival_sensor(graph, PROJECT), downstream_sensor(graph, PROJECT)
    assert tick(arrivals) == {}
    assert tick(downstream) == {}

    run(f"INSERT INTO {table} VALUES ('x', 1, '2022-03-01'), ('y', 2, '2022-03-02'), ('z', 3, '2022-03-04')")
    assert tick(arrivals) == {
        ("receipts", "2022-03-01", "2022-03-02"): f"new in {table}",
        ("receipts", "2022-03-04", "2022-03-04"): f"new in {table}",
    }
    assert materialise(assets, f"{db}.receipts", "2022-03-01", "2022-03-02").success
    assert materialise(assets, f"{db}.receipts", "2022-03-04", "2022-03-04").success
    assert tick(arrivals) == {}
    assert set(tick(downstream)) == {("sales", "2022-03-01", "2022-03-02"), ("sales", "2022-03-04", "2022-03-04")}
    assert rows(workbench, assets, f"{db}.receipts") == [
        ("x", 1, "2022-03-01"), ("y", 2, "2022-03-02"), ("z", 3, "2022-03-04"),
    ]  # fmt: skip

    # A partition that nobody has declared is noted by its columns, and with the reason.
    run(f"INSERT INTO {table} VALUES ('q', 9, '2020-01-31')")
    assert tick(arrivals) == {}
    catalog = workbench.catalog()
    ((uri, rejected),) = RejectedArrivals(catalog.connection).of(f"{db}.receipts").items()
    catalog.connection.close()
    assert (uri, rejected.kind) == (f"{table}/day=2020-01-31", RejectionKind.NO_KEY)
    assert rejected.reason.startswith("'2020-01-31' lies outside dimension day")
    no_more = f"ALTER TABLE {table} DROP PARTITION (day = '2020-01-31')"
    run(no_more if source == "table" else "delete from receipts where product = 'q'")

    run(change)
    assert tick(arrivals) == {("receipts", "2022-03-02", "2022-03-02"): f"changed in {table}"}
    assert materialise(assets, f"{db}.receipts", "2022-03-02", "2022-03-02").success
    assert tick(arrivals) == {}
    assert ("y", 5, "2022-03-02") in rows(workbench, assets, f"{db}.receipts")

    # The partition is gone between the look and the run: the run says so, and the next look does not request it.
    run(f"INSERT INTO {table} VALUES ('w', 3, '2022-03-03')")
    assert list(tick(arrivals)) == [("receipts", "2022-03-03", "2022-03-03")]
    gone = f"ALTER TABLE {table} DROP PARTITION (day = '2022-03-03')"
    run(gone if source == "table" else "delete from receipts where product = 'w'")
    failed = materialise(assets, f"{db}.receipts", "2022-03-03", "2022-03-03")
    assert f"{table} has no partition day=2022-03-03" in str(failed.failure_data_for_node(f"{db}__receipts"))
    assert tick(arrivals) == {}
    # The table itself is gone: its batches stay, and no run is requested.
    before = rows(workbench, assets, f"{db}.receipts")
    run(f"DROP TABLE {table}")
    assert tick(arrivals) == {}
    catalog = workbench.catalog()
    plan = reconcile(graph, CatalogFacts(catalog.connection), now=dt.datetime.now(dt.UTC))
    catalog.connection.close()
    states = {path: judgement.state for path, judgement in plan.judgements[f"{db}.receipts"].items()}
    assert {path: state for path, state in states.items() if state is State.DUE} == {}
    assert rows(workbench, assets, f"{db}.receipts") == before


@pytest.mark.spark
# For each read, whether somebody writes right after it: for a run that is published, and for one that is refused.
@pytest.mark.parametrize(
    ("rows_for_spark", "writes", "price"), [(1_000, ([0, 1], [1, 1, 1]), 2), (0, ([0], [1]), 1)], ids=["small", "large"]
)
def test_what_changes_while_it_is_read_is_read_again_or_not_published(  # noqa: PLR0917
    rows_for_spark: int,
    writes: tuple[list[int], list[int]],
    price: int,
    workbench: Workbench,
    fresh_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db = f"o{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv(URL, fresh_database)
    monkeypatch.setattr(postgres, "_ROWS_FOR_SPARK", rows_for_spark)
    read, (now, then) = PostgresTable.read, writes
    with psycopg.connect(fresh_database, autocommit=True) as shop:
        shop.execute("create table receipts as select 'x' as product, 1 as price, '2022-03-01' as day")

        def disturbed(*arguments: Any) -> Any:
            read_rows = read(*arguments)
            if now.pop():
                shop.execute("update receipts set price = price + 1")
            return read_rows

        monkeypatch.setattr(PostgresTable, "read", disturbed)
        assets = files(db, f"source = 'postgres', table = 'public.receipts', url = '{URL}'")
        assert materialise(assets, f"{db}.receipts", "2022-03-01", "2022-03-01").success
        now = then
        failed = materialise(assets, f"{db}.receipts", "2022-03-01", "2022-03-01")
    assert "changed while it was read" in str(failed.failure_data_for_node(f"{db}__receipts"))
    assert now == []
    assert rows(workbench, assets, f"{db}.receipts") == [("x", price, "2022-03-01")]


@pytest.mark.parametrize(
    ("options", "expected_message"),
    [
        ("source = 'odbc', table = 'a.b'", "it is one of 'landing', 'table', 'parquet', 'postgres', 'jdbc'"),
        ("source = 'tabel', table = 'a.b'", "Did you mean table?"),
        ("source = 'jdbc', table = 'a.b', changed = 'at'", "where is the database?"),
        ("source = 'jdbc', table = 'a.b', url = 'X'", "which column's highest value tells"),
        ("source = 'jdbc', table = 'a.b', changed = 'at', url = 'jdbc:x:y'", "does not belong in a file"),
        ("source = 'table'", "which table? Write OPTIONS (source = 'table', table = 'db.name')"),
        ("source = 'table', table = 'a; drop table b'", "names no table"),
        ("source = 'table', table = 'a.b', url = 'X'", "source 'table' has no option url"),
        ("table = 'a.b'", "source 'landing' has no option table"),
        ("source = 'postgres', table = 'a.b'", "where is the database?"),
        ("source = 'postgres', table = 'a.b', url = 'postgresql://me:pw@host/db'", "does not belong in a file"),
        ("source = 'table', table = 'a.b', chagned = 'at'", "EXTERNAL has no option chagned"),
        ("source = 'table', table = 'a.b', changed = ''", "changed is empty"),
    ],
)
def test_options_of_external_are_refused_with_their_place(options: str, expected_message: str) -> None:
    with pytest.raises(SqlErrors) as caught:
        files("shop", options)
    assert expected_message in str(caught.value)
    assert str(caught.value).startswith("receipts.sql:6:")


def test_a_table_that_cannot_be_asked_keeps_nobody_waiting(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    db = f"o{uuid.uuid4().hex[:8]}"
    texts = {
        "receipts": f"EXTERNAL OPTIONS (source = 'postgres', table = 'a.b', url = '{URL}')",
        "files": "EXTERNAL",
    }
    heads = {name: HEAD.format(db=db, name=name, columns="product STRING, price INT") for name in texts}
    assets = sql_assets(compiled([SourceFile(f"{name}.sql", heads[name] + body) for name, body in texts.items()], {}))
    folder = Path(settings.landing) / db / "files"
    folder.mkdir(parents=True)
    (folder / "2022-03-01.csv").write_text("product,price\nx,1\n", encoding="utf-8")
    assert tick(arrival_sensor(graph_of(assets), PROJECT)) == {("files", "2022-03-01", "2022-03-01"): "files arrived"}
    assert f"a.b was not looked at: {db}.receipts: the environment variable {URL} is not set" in capfd.readouterr().err
