"""A database whose defaults are against us in every way: all that we do there is right nevertheless."""

from __future__ import annotations

import ast
import datetime as dt
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.cdc.lab import Lab
from tests.stores.warehouse.test_publish import DETROIT, KEYS, PARIS, ZURICH, Desk
from tests.support.sales import sales_dataset
from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.catalog.planning.facts import Changes
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import AlreadyBuilding
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.stores.postgres import spark_source as source
from varve.stores.warehouse import clean
from varve.stores.warehouse.loading import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
# What a session has for each, and what it must have.
HOSTILE = {
    "default_transaction_isolation": ("repeatable read", "read committed"),
    "default_transaction_read_only": ("on", "off"),
    "default_transaction_deferrable": ("on", "off"),
    "statement_timeout": ("400ms", "0"),
    "lock_timeout": ("1ms", "0"),
    "transaction_timeout": ("600ms", "0"),
    "idle_in_transaction_session_timeout": ("400ms", "0"),
    "idle_session_timeout": ("400ms", "0"),
    "search_path": ("hostile, pg_catalog", "pg_catalog, public"),
    "synchronous_commit": ("off", "on"),
    "row_security": ("on", "off"),
    "client_encoding": ("LATIN1", "UTF8"),
    "datestyle": ("German, DMY", "ISO, YMD"),
    "intervalstyle": ("sql_standard", "postgres"),
    "timezone": ("Asia/Kathmandu", "UTC"),
    "bytea_output": ("escape", "hex"),
    "extra_float_digits": ("-15", "1"),
    "standard_conforming_strings": ("off", "on"),
    "session_replication_role": ("replica", "origin"),
    "transform_null_equals": ("on", "off"),
    "constraint_exclusion": ("off", "partition"),
    "quote_all_identifiers": ("on", "off"),
    "xmlbinary": ("hex", "base64"),
    "array_nulls": ("off", "on"),
}
SHADOWS = """
    create schema hostile;
    -- No two locks would be of the same thing, no batch would be the newest, and time would stand still.
    create function hostile.hashtextextended(text, bigint) returns bigint language sql
        as $$ select (random() * 1e9)::bigint $$;
    create function hostile.clock_timestamp() returns timestamptz language sql as $$ select 'epoch'::timestamptz $$;
    create function hostile.now() returns timestamptz language sql as $$ select 'epoch'::timestamptz $$;
    create view hostile.pg_class as select * from pg_catalog.pg_class limit 0;
    create view hostile.pg_locks as select * from pg_catalog.pg_locks limit 0;
"""


def settings_of(connection: psycopg.Connection) -> dict[str, tuple[str, str]]:
    """The hostile settings that this server has."""
    existing = {name.lower() for (name,) in connection.execute("select name from pg_settings")}
    return {name: values for name, values in HOSTILE.items() if name in existing}


def turn(url: str) -> None:
    """Turn a database against those who connect to it from now on."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(SHADOWS)
        for name, (value, _) in settings_of(admin).items():
            # A list has its parts, which are no text together.
            parts = value.split(", ") if name == "search_path" else [value]
            admin.execute(
                sql.SQL("alter database {} set {} = {}").format(
                    sql.Identifier(admin.info.dbname), sql.Identifier(name), sql.SQL(", ").join(map(sql.Literal, parts))
                )
            )


@pytest.fixture
def hostile(settings: Settings, fresh_database: str) -> Settings:
    """The settings of a project whose database is one."""
    turn(fresh_database)
    return settings.model_copy(update={"postgres_url": fresh_database})


@pytest.fixture
def sales() -> Dataset:
    return sales_dataset(StoreKind.WAREHOUSE)


@pytest.fixture
def desks(hostile: Settings, sales: Dataset, tmp_path: Path) -> Iterator[list[Desk]]:
    """Two publishers of one dataset."""
    with connect(hostile) as first, connect(hostile) as second:
        Catalog(first).ensure_schema()
        yield [Desk(hostile, sales, tmp_path, Catalog(opened)) for opened in (first, second)]


def shown(connection: psycopg.Connection, dataset: Dataset) -> dict[str, int]:
    """The batch of each period by the view: its rows are named after it."""
    query = sql.SQL("select store, min(sold), max(sold), count(*) from {} group by store").format(
        sql.Identifier(*dataset.name.split("."))
    )
    batches = {}
    for store, low, high, rows in connection.execute(query):
        assert (low, rows) == (high, 50)
        batches[f"day=2013-01-05/store={store}"] = low
    return batches


def test_a_session_of_ours_has_none_of_their_defaults(hostile: Settings) -> None:
    with psycopg.connect(hostile.postgres_url or "") as theirs, connect(hostile) as ours:
        for name, (value, wanted) in settings_of(ours).items():
            show = sql.SQL("show {}").format(sql.Identifier(name))
            assert theirs.execute(show).fetchone() == (value,), name
            theirs.rollback()
            assert ours.execute(show).fetchone() == (wanted,), name
        time.sleep(0.7)
        with ours.transaction():
            assert ours.execute("show transaction_isolation").fetchone() == ("read committed",)
            ours.execute("select pg_sleep(0.7)")
            time.sleep(0.7)
            assert ours.execute("select 'Zürich €'").fetchone() == ("Zürich €",)


def test_who_waits_for_more_than_durable_commits_goes_on_to(settings: Settings, fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        for chosen in ("remote_apply", "remote_write"):
            admin.execute(f"alter database {admin.info.dbname} set synchronous_commit = {chosen}")
            with connect(settings.model_copy(update={"postgres_url": fresh_database})) as ours:
                assert ours.execute("show synchronous_commit").fetchone() == (chosen,)


def test_two_publishers_of_one_view_leave_it_as_the_catalog_says(desks: list[Desk], sales: Dataset) -> None:
    desks[0].publish(KEYS)

    def publish_often(desk: Desk, partition: object) -> None:
        for _ in range(6):
            desk.publish([partition])  # type: ignore[list-item]

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(publish_often, *pair) for pair in zip(desks, (DETROIT, PARIS), strict=True)]:
            done.result()
    connection = desks[0].catalog.connection
    assert shown(connection, sales) == desks[0].current()
    # A trigger notes every publish for the planner.
    assert connection.execute("select count(*) from varve.change").fetchone() == (3 + 12,)


def test_one_run_writes_a_partition_at_a_time(desks: list[Desk]) -> None:
    build = desks[0].stage([ZURICH])
    with pytest.raises(AlreadyBuilding):
        desks[1].stage([ZURICH])
    desks[0].catalog.release(build)


def test_what_was_loaded_is_read_back_and_what_was_replaced_is_swept(desks: list[Desk], sales: Dataset) -> None:
    desk = desks[0]
    first, second = desk.publish([PARIS]), desk.publish([PARIS])
    catalog = desk.catalog
    (batch,) = catalog.current(sales.name).values()
    of_table = "select schemaname from pg_tables where tablename = %s"
    ((schema,),) = catalog.connection.execute(of_table, [batch.location]).fetchall()
    query = sql.SQL("select sold, at from {} where pg_sleep(0.02) is not null").format(
        sql.Identifier(schema, batch.location)
    )
    wire = pa.schema([("sold", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    url = load.Route(desk.settings.postgres_url or "").reading_url
    rows = pa.Table.from_batches(source.fetch(url, [query.as_string(None)], wire))
    assert rows["sold"].to_pylist() == [second.batch_id.millis] * 50
    history = History(catalog.connection)
    retired = history.retired(sales.name, older_than=dt.timedelta(0), keep_last=0)
    assert [batch.batch_id for batch in retired if not batch.kept] == [first.batch_id]
    history.mark_swept([batch for batch in retired if not batch.kept])
    clean.drop(catalog.connection, sales.name, [batch.location for batch in history.undeleted(sales.name)])
    left = catalog.connection.execute("select tablename from pg_tables where schemaname = %s", [schema]).fetchall()
    assert left == [(batch.location,)]
    assert Changes().since_last(catalog.connection, {}) is None


def test_changes_are_captured_whole(settings: Settings, fresh_database: str) -> None:
    ours = settings.model_copy(update={"postgres_url": fresh_database})
    lab = Lab(ours, None, fresh_database)  # type: ignore[arg-type]
    values = "'é€', 1.5, '2013-01-02 03:04:05Z', 0.1"
    lab.sql(f"insert into {{t}} (w, id, note, amount, at, x) select 1, i, {values} from generate_series(1, 3) i")
    turn(fresh_database)
    try:
        lab.bootstrap()
        with psycopg.connect(fresh_database, autocommit=True, client_encoding="utf8") as application:
            application.execute("set default_transaction_read_only = off")
            insert = f"insert into {lab.table} (w, id, note, at) values (2, 4, 'ü', '2013-01-02 03:04:05Z')"
            application.execute(insert.encode())
        assert lab.capture() is not None
        events = [row for batch in lab.log().batches(1) for row in pq.read_table(batch.data).to_pylist()]
    finally:
        with psycopg.connect(PostgresServer(settings.home_dir).url("postgres"), autocommit=True) as admin:
            drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s"
            admin.execute(drop, [conninfo_to_dict(fresh_database)["dbname"]])
    captured = [row["columnValues"] for row in events if row["columnValues"]]
    assert [row[:3] for row in captured] == [["1", "1", "é€"], ["1", "2", "é€"], ["1", "3", "é€"], ["2", "4", "ü"]]
    assert {row[4] for row in captured} == {"2013-01-02 03:04:05+00"}
    assert [row[6] for row in captured] == ["0.1"] * 3 + [None]


# They open a session by its driver: their first statements give it our settings (varve/services/sessions.py).
MAY_CONNECT = {
    "src/varve/services/sessions.py",
    "src/varve/stores/postgres/driver.py",
    "src/varve/stores/warehouse/loading/copying.py",
    "src/varve/stores/postgres/spark_source.py",
}
DRIVERS = {"psycopg", "psycopg2", "adbc", "dbapi", "PGconn", "Connection", "AsyncConnection"}
PACKAGES = {"psycopg", "psycopg2", "adbc_driver_postgresql", "psycopg_pool"}
OURS = "varve.stores.postgres.driver"


def connects(node: ast.AST) -> bool:
    """Whether it opens a session of PostgreSQL by its driver, or gives a driver's `connect` a name of its own."""
    if isinstance(node, ast.ImportFrom):
        names = {name.name for name in node.names}
        is_driver = (node.module or "").split(".")[0] in PACKAGES or node.module == OURS
        return is_driver and bool(names & {"connect", "ConnectionPool"})
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr not in {"connect", "connect_start"}:
        return False
    of = node.func.value
    return (of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else "") in DRIVERS


def test_nobody_else_opens_a_session() -> None:
    places = {
        f"{path.relative_to(ROOT)}:{node.lineno}"  # type: ignore[attr-defined]
        for folder in ("src", "pipeline_defs", "resources", "assets")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if connects(node)
    }
    others = {place for place in places if place.split(":")[0] not in MAY_CONNECT}
    # The one that makes a replication slot has to be a session of its own kind; it takes our settings next.
    assert {place.split(":")[0] for place in others} == {"src/varve/cdc/capture/source_database.py"}
    assert len(others) == 1
