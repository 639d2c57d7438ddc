"""A catalog of an earlier version is upgraded in place and keeps its rows; a version that does not fit is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata, resources
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.catalog.test_history import current, publish
from tests.support.sales import PARIS, ZURICH
from varve.catalog.catalog import Catalog
from varve.catalog.code.decision import Decision
from varve.catalog.code.deployments import Deployments
from varve.catalog.schema import FIRST_VERSION, VERSION, CatalogSchema, state_of
from varve.model.batch import BatchId
from varve.model.errors import VarveError
from varve.model.policy import OnCodeChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from varve.model.dataset import Dataset

# What a later Varve might do: new columns for rows that are there, and a table that the next step fills.
NEXT, AFTER_NEXT = VERSION + 1, VERSION + 2
UPGRADES = {
    NEXT: """
        alter table varve.batch add column note text not null default '';
        update varve.batch set note = 'batch ' || batch_id;
        -- Waits while a test holds this lock.
        select pg_advisory_xact_lock(42);
        create table varve.noted (dataset text, partition text, note text);
    """,
    AFTER_NEXT: """
        insert into varve.noted select dataset, partition, note from varve.batch;
        alter table varve.batch drop column note;
    """,
}

# The code of the version before goes on after the first step, and not after the second one.
OLDEST = {NEXT: VERSION, AFTER_NEXT: AFTER_NEXT}


@pytest.fixture
def later(tmp_path: Path) -> CatalogSchema:
    """The schema of a Varve that is two versions later."""
    with resources.as_file(resources.files("varve.catalog")) as folder:
        for file in folder.glob("*.sql"):
            shutil.copy(file, tmp_path)
    for version, script in UPGRADES.items():
        text = f"-- Version {version}, code from {OLDEST[version]} on: of a test.\n{script}"
        (tmp_path / f"upgrade_{version}.sql").write_text(text, encoding="utf-8")
    return CatalogSchema(AFTER_NEXT, tmp_path)


@pytest.fixture
def connection(fresh_database: str) -> Iterator[psycopg.Connection]:
    """A database whose catalog is made by this Varve."""
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        Catalog(opened).ensure_schema()
        yield opened


def version_of(connection: psycopg.Connection) -> list[int]:
    return [version for (version,) in connection.execute("select version from varve.schema_version")]


def columns(connection: psycopg.Connection) -> list[tuple[str, str, str]]:
    """Every column of the catalog's tables with its type; not in their order, which an upgrade changes."""
    return connection.execute("""
        select table_name, column_name, data_type from information_schema.columns
        where table_schema = 'varve' order by table_name, column_name
    """).fetchall()


def notes(connection: psycopg.Connection) -> set[tuple[str, str]]:
    return set(connection.execute("select partition, note from varve.noted").fetchall())


def wait_until(connection: psycopg.Connection, condition: Callable[[], object], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        connection.execute("select pg_sleep(0.02)")


def test_an_upgrade_that_is_killed_in_the_middle_changes_nothing_and_is_repeated(
    connection: psycopg.Connection, fresh_database: str, later: CatalogSchema, sales: Dataset
) -> None:
    batch_id = publish(Catalog(connection), sales, PARIS)
    before = columns(connection)

    def upgrading() -> list[tuple[int, str]]:
        query = "select pid, wait_event from pg_stat_activity where application_name = 'varve upgrading'"
        return connection.execute(query).fetchall()

    connection.execute("select pg_advisory_lock(42)")
    command = [sys.executable, "-m", "tests.catalog.upgrading", fresh_database, str(later.folder), str(later.version)]
    with subprocess.Popen(command) as process:
        try:
            wait_until(connection, lambda: [event for _, event in upgrading()] == ["advisory"])
        finally:
            process.kill()
    connection.execute("select pg_advisory_unlock(42)")
    wait_until(connection, lambda: not upgrading())
    assert version_of(connection) == [VERSION]
    assert columns(connection) == before
    # This Varve goes on with the catalog, and so does the later one.
    Catalog(connection).ensure_schema()
    later.migrate(connection, force=True)
    assert version_of(connection) == [AFTER_NEXT]
    assert notes(connection) == {(PARIS.path, f"batch {batch_id.millis}")}
    assert current(Catalog(connection), sales) == {PARIS.path: batch_id}


def test_four_that_upgrade_at_once_run_each_step_once(
    connection: psycopg.Connection, fresh_database: str, later: CatalogSchema, sales: Dataset
) -> None:
    publish(Catalog(connection), sales, PARIS, ZURICH)
    together, ran = threading.Barrier(4), list[int]()

    def upgrade(_: int) -> None:
        with psycopg.connect(fresh_database, autocommit=True) as opened:
            together.wait(timeout=30)
            ran.extend(upgrade.version for upgrade in later.migrate(opened, force=True))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(upgrade, range(4)))
    assert sorted(ran) == [NEXT, AFTER_NEXT]
    assert version_of(connection) == [AFTER_NEXT]
    assert connection.execute("select count(*) from varve.noted").fetchall() == [(2,)]
    assert publish(Catalog(connection), sales, PARIS) == current(Catalog(connection), sales)[PARIS.path]


def test_a_new_catalog_and_an_upgraded_one_are_the_same(
    connection: psycopg.Connection, fresh_database: str, later: CatalogSchema
) -> None:
    later.migrate(connection, force=True)
    upgraded = columns(connection)
    connection.execute("drop schema varve cascade")
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        later.ensure(opened)
    assert version_of(connection) == [AFTER_NEXT]
    assert columns(connection) == upgraded


EARLIER = """
    insert into varve.dataset (dataset, store, declaration) values ('shop.sales', 'lake', '{}');
    insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version) values
        ('shop.sales', 'day=1', 5, 'published', 'run', 'hashed as then'),
        ('shop.sales', 'day=2', 5, 'published', 'run', '');
    insert into varve.current (dataset, partition, batch_id) values
        ('shop.sales', 'day=1', 5), ('shop.sales', 'day=2', 5);
"""


@pytest.mark.parametrize("version", [8, FIRST_VERSION])
def test_a_catalog_of_an_earlier_version_is_upgraded_and_its_batches_stay(
    connection: psycopg.Connection, fresh_database: str, sales: Dataset, version: int
) -> None:
    new = columns(connection)
    connection.execute("drop schema varve cascade")
    CatalogSchema(FIRST_VERSION).ensure(connection)
    connection.execute(EARLIER)
    connection.execute("update varve.schema_version set version = %s", (version,))
    with pytest.raises(VarveError, match=f"has schema version {version}, and Varve .+ needs version .+ varve migrate"):
        Catalog(connection).ensure_schema()
    with pytest.raises(VarveError, match=r"does not say whether it is going on.+ varve migrate --force"):
        CatalogSchema().migrate(connection)
    # Where Varve runs the server itself, or its owner wants it so, nobody is asked.
    name = sql.Identifier(connection.info.dbname)
    connection.execute(sql.SQL("alter database {} set varve.upgrades = 'automatic'").format(name))
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        Catalog(opened).ensure_schema()
    assert version_of(connection) == [VERSION]
    assert columns(connection) == new
    sales = replace(sales, name="shop.sales")
    assert current(Catalog(connection), sales) == {"day=1": BatchId(5), "day=2": BatchId(5)}
    # Their codes were hashed by another rule: nothing is outdated until the code changes from here on.
    deployments = Deployments(connection)
    deployments.admit(sales, "new", "its text")
    assert deployments.outdated(["shop.sales"]) == {}
    deployments.deploy(sales, "newer", "", Decision(OnCodeChange.REBUILD, plan=1), by="a person")
    assert deployments.outdated(["shop.sales"]) == {"shop.sales": {"day=1": 5}}


GROWN = """
    insert into varve.dataset (dataset, store, declaration) values ('shop.sales', 'lake', '{}');
    insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, rows, bytes) values
        ('shop.sales', 'day=1', 5, 'retired', 'run', '', 2, 20),
        ('shop.sales', 'day=1', 6, 'retired', 'run', '', 5, 50),
        ('shop.sales', 'day=1', 7, 'published', 'run', '', 9, 90);
    insert into varve.part (dataset, partition, part_id, location, rows, bytes) values
        ('shop.sales', 'day=1', 5, '/lake/5', 2, 20), ('shop.sales', 'day=1', 6, '/lake/6', 3, 30);
    insert into varve.part_file (dataset, partition, part_id, name, token, fingerprint, bytes) values
        ('shop.sales', 'day=1', 6, 'a.csv', 't', 'f', 4), ('shop.sales', 'day=1', 6, 'b.csv', 't', 'f', 6);
"""
OWN = "select batch_id, own_rows, own_bytes, own_read from varve.batch order by batch_id"


def test_what_runs_have_added_to_partitions_is_noted_of_batches_of_before_and_of_code_of_before(
    connection: psycopg.Connection,
) -> None:
    connection.execute("drop schema varve cascade")
    CatalogSchema(20).ensure(connection)
    connection.execute(GROWN)
    CatalogSchema().migrate(connection, force=True)
    assert connection.execute(OWN).fetchall() == [(5, 2, 20, None), (6, 3, 30, 10), (7, None, None, None)]
    connection.execute("insert into varve.part values ('shop.sales', 'day=1', 7, '/lake/7', 4, 40)")
    connection.execute("insert into varve.part_file values ('shop.sales', 'day=1', 7, 'c.csv', 't', 'f', 8)")
    assert connection.execute(OWN).fetchall()[-1] == (7, 4, 40, 8)


@pytest.mark.parametrize(
    ("version", "reason", "remedy"),
    [
        (VERSION + 1, f"which a newer Varve has made; Varve .+ knows version {VERSION}", "Install the newer Varve"),
        (7, "which is from before the first release; Varve .+ upgrades version 8 and later", "`varve up` of Varve 0.1"),
    ],
)
def test_a_catalog_of_a_version_that_does_not_fit_is_refused_in_one_line(
    connection: psycopg.Connection, version: int, reason: str, remedy: str
) -> None:
    connection.execute("update varve.schema_version set version = %s, oldest = %s", (version, version))
    with pytest.raises(VarveError, match=reason) as refused:
        Catalog(connection).ensure_schema()
    message = str(refused.value)
    place = f"database {connection.info.dbname} on {connection.info.host} port {connection.info.port}"
    assert message.startswith(f"{place}: the catalog has schema version {version}, ")
    assert f"Varve {metadata.version('varve')} " in message
    assert remedy in message
    assert "\n" not in message
    assert version_of(connection) == [version]


def test_code_of_the_version_before_goes_on_while_the_catalog_is_upgraded_and_afterwards(
    connection: psycopg.Connection, fresh_database: str, later: CatalogSchema, sales: Dataset
) -> None:
    next_schema = CatalogSchema(NEXT, later.folder)
    ended, published = threading.Event(), list[tuple[int, BatchId]]()

    def old_code() -> None:
        while not ended.is_set():
            # As a sensor's tick and a run do: a session of their own.
            with psycopg.connect(fresh_database, autocommit=True) as opened:
                Catalog(opened).ensure_schema()
                ((version,),) = opened.execute("select version from varve.schema_version").fetchall()
                published.append((version, publish(Catalog(opened), sales, PARIS)))

    with ThreadPoolExecutor(1) as pool:
        going_on = pool.submit(old_code)
        wait_until(connection, lambda: len(published) >= 5)
        assert [upgrade.version for upgrade in next_schema.migrate(connection)] == [NEXT]
        # A step that the old code would not survive waits until it has gone.
        with pytest.raises(
            VarveError, match=rf"version {AFTER_NEXT} is for code from {AFTER_NEXT} on.+{VERSION} \(\d+ s"
        ):
            later.migrate(connection)
        assert version_of(connection) == [NEXT]
        count = len(published)
        wait_until(connection, lambda: len(published) >= count + 5)
        ended.set()
        going_on.result()
    assert {version for version, _ in published} == {VERSION, NEXT}
    assert current(Catalog(connection), sales) == {PARIS.path: published[-1][1]}
    next_schema.ensure(connection)
    assert set(state_of(connection).used) == {VERSION, NEXT}  # type: ignore[union-attr]

    connection.execute("update varve.schema_version set used = used || %s", (Jsonb({str(VERSION): 0, str(NEXT): 0}),))
    assert [upgrade.version for upgrade in later.migrate(connection)] == [AFTER_NEXT]
    with pytest.raises(VarveError, match="which a newer Varve has made"):
        Catalog(connection).ensure_schema()
    later.ensure(connection)
    later.refuse_unfit(connection)


def test_an_upgrade_that_waits_for_a_lock_lets_others_pass(
    connection: psycopg.Connection, fresh_database: str, later: CatalogSchema, sales: Dataset
) -> None:
    with (
        psycopg.connect(fresh_database) as reader,
        psycopg.connect(fresh_database, autocommit=True) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        # A dump of the catalog, for example.
        reader.execute("select count(*) from varve.batch")
        upgrading = pool.submit(CatalogSchema(NEXT, later.folder).migrate, other)
        took = []
        end = time.monotonic() + 6
        while time.monotonic() < end:
            began = time.monotonic()
            publish(Catalog(connection), sales, PARIS)
            took.append(time.monotonic() - began)
        assert not upgrading.done()
        # They waited for the upgrade while it waited, and for no longer.
        assert max(took) < 2 * 3
        assert len(took) > 5
        reader.rollback()
        assert [upgrade.version for upgrade in upgrading.result(timeout=60)] == [NEXT]


def test_what_an_administrator_upgrades_belongs_to_the_owner_of_the_catalog(
    connection: psycopg.Connection, fresh_database: str
) -> None:
    role = f"owner_{uuid.uuid4().hex[:8]}"
    name, database = sql.Identifier(role), sql.Identifier(connection.info.dbname)
    connection.execute("drop schema varve, varve_iceberg cascade")
    connection.execute(sql.SQL("create role {0} login; grant create on database {1} to {0}").format(name, database))
    try:
        with psycopg.connect(fresh_database.replace("://postgres@", f"://{role}@"), autocommit=True) as opened:
            CatalogSchema(FIRST_VERSION).ensure(opened)
        CatalogSchema().migrate(connection, force=True)
        owners = """
            select distinct pg_get_userbyid(c.relowner)::text, current_user::text = 'postgres' from pg_class c
            join pg_namespace n on n.oid = c.relnamespace where n.nspname in ('varve', 'varve_iceberg')
        """
        assert connection.execute(owners).fetchall() == [(role, True)]
        assert version_of(connection) == [VERSION]
    finally:
        connection.execute(sql.SQL("drop owned by {0} cascade; drop role {0}").format(name))


def test_a_role_that_may_only_read_uses_the_catalog_without_a_note(
    connection: psycopg.Connection, fresh_database: str
) -> None:
    role = f"reader_{uuid.uuid4().hex[:8]}"
    name = sql.Identifier(role)
    connection.execute(sql.SQL("create role {0}; grant usage on schema varve to {0}").format(name))
    connection.execute(sql.SQL("grant select on all tables in schema varve to {0}").format(name))
    connection.execute("update varve.schema_version set used = '{}'")
    try:
        with psycopg.connect(fresh_database, autocommit=True) as opened:
            opened.execute(sql.SQL("set role {}").format(name))
            Catalog(opened).ensure_schema()
        assert connection.execute("select used from varve.schema_version").fetchall() == [({},)]
    finally:
        connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(name))


@pytest.mark.parametrize("version", range(FIRST_VERSION + 1, VERSION + 1))
def test_every_upgrade_says_what_it_is_for_and_for_whom(version: int) -> None:
    (upgrade,) = CatalogSchema(version).upgrades(version - 1)
    assert upgrade.what
    # From version 15 on, code of the version before goes on.
    assert upgrade.oldest == version if version <= 15 else upgrade.oldest < version
