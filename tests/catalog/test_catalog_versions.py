"""A catalog of an earlier version is upgraded in place and keeps its rows; a version that does not fit is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata, resources
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.catalog.test_history import current, publish
from tests.support.sales import PARIS, ZURICH
from varve.catalog.catalog import Catalog
from varve.catalog.code.deployments import Decision, Deployments
from varve.catalog.schema import FIRST_VERSION, VERSION, CatalogSchema
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


@pytest.fixture
def later(tmp_path: Path) -> CatalogSchema:
    """The schema of a Varve that is two versions later."""
    with resources.as_file(resources.files("varve.catalog")) as folder:
        for file in folder.glob("*.sql"):
            shutil.copy(file, tmp_path)
    for version, script in UPGRADES.items():
        (tmp_path / f"upgrade_{version}.sql").write_text(script, encoding="utf-8")
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
    later.ensure(connection)
    assert version_of(connection) == [AFTER_NEXT]
    assert notes(connection) == {(PARIS.path, f"batch {batch_id.millis}")}
    assert current(Catalog(connection), sales) == {PARIS.path: batch_id}


def test_four_that_upgrade_at_once_run_each_step_once(
    connection: psycopg.Connection, fresh_database: str, later: CatalogSchema, sales: Dataset
) -> None:
    publish(Catalog(connection), sales, PARIS, ZURICH)
    together = threading.Barrier(4)

    def upgrade(_: int) -> None:
        with psycopg.connect(fresh_database, autocommit=True) as opened:
            together.wait(timeout=30)
            later.ensure(opened)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(upgrade, range(4)))
    assert version_of(connection) == [AFTER_NEXT]
    assert connection.execute("select count(*) from varve.noted").fetchall() == [(2,)]
    assert publish(Catalog(connection), sales, PARIS) == current(Catalog(connection), sales)[PARIS.path]


def test_a_new_catalog_and_an_upgraded_one_are_the_same(
    connection: psycopg.Connection, fresh_database: str, later: CatalogSchema
) -> None:
    later.ensure(connection)
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
    connection: psycopg.Connection, sales: Dataset, version: int
) -> None:
    new = columns(connection)
    connection.execute("drop schema varve cascade")
    CatalogSchema(FIRST_VERSION).ensure(connection)
    connection.execute(EARLIER)
    connection.execute("update varve.schema_version set version = %s", (version,))
    Catalog(connection).ensure_schema()
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
    connection.execute("update varve.schema_version set version = %s", (version,))
    with pytest.raises(VarveError, match=reason) as refused:
        Catalog(connection).ensure_schema()
    message = str(refused.value)
    place = f"database {connection.info.dbname} on {connection.info.host} port {connection.info.port}"
    assert message.startswith(f"{place}: the catalog has schema version {version}, ")
    assert f"Varve {metadata.version('varve')} " in message
    assert remedy in message
    assert "\n" not in message
    assert version_of(connection) == [version]
