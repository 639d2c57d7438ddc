"""A dump restored elsewhere is a working warehouse, and one whose catalog was lost tells a new one everything."""

from __future__ import annotations

import datetime as dt
import subprocess
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from psycopg import sql

from tests.stores.warehouse.test_projection import comments_of
from tests.stores.warehouse.test_publish import KEYS, PARIS, Desk, periods
from tests.support.sales import sales_dataset
from varve.catalog.catalog import Catalog
from varve.catalog.environments.environments import Environments
from varve.catalog.recovery.recovery import recover
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.key import PartitionKey
from varve.model.store_options import Period, WarehouseOptions
from varve.services.postgres import connect, warehouse_url
from varve.services.postgres_server import binaries
from varve.stores.warehouse import examine
from varve.stores.warehouse.compact import compact_closed
from varve.stores.warehouse.inventory import take_inventory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from varve.services.settings import Settings


@pytest.fixture
def databases(settings: Settings) -> Iterator[tuple[Settings, Settings]]:
    """Two databases of the suite's server, for this test alone."""
    names = [f"dump_{uuid.uuid4().hex[:8]}" for _ in range(2)]
    url = urlsplit(warehouse_url(settings))
    with connect(settings) as administrator:
        for name in names:
            administrator.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    source, target = [
        settings.model_copy(update={"postgres_url": url._replace(path=f"/{name}").geturl()}) for name in names
    ]
    yield source, target
    with connect(settings) as administrator:
        for name in names:
            administrator.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def dump(source: Settings, target: Settings, file: Path) -> None:
    subprocess.run(
        [binaries() / "pg_dump", "--file", file, warehouse_url(source)], check=True, timeout=60, capture_output=True
    )
    subprocess.run(
        [binaries() / "psql", "-v", "ON_ERROR_STOP=1", "-q", "-f", file, warehouse_url(target)],
        check=True, timeout=60, capture_output=True,
    )  # fmt: skip


def filled(settings: Settings, sales: Dataset, folder: Path) -> dict[str, int]:
    with connect(settings) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        desk = Desk(settings, sales, folder, catalog)
        desk.publish(KEYS)
        desk.publish([PARIS])
        return desk.current()


def test_a_restored_dump_is_a_working_warehouse(databases: tuple[Settings, Settings], tmp_path: Path) -> None:
    source, target = databases
    sales = sales_dataset(StoreKind.WAREHOUSE)
    before = filled(source, sales, tmp_path)
    dump(source, target, tmp_path / "dump.sql")
    with connect(target) as connection:
        desk = Desk(target, sales, tmp_path, Catalog(connection))
        assert periods(connection, sales) == desk.current() == before
        assert comments_of(connection, sales)[None] == sales.comment
        second = desk.publish([PARIS]).batch_id.millis
        assert periods(connection, sales) == before | {PARIS.path: second}
    with connect(source) as connection:
        assert periods(connection, sales) == before


def test_a_restored_dump_knows_what_environments_have_let_go_of(
    databases: tuple[Settings, Settings], tmp_path: Path
) -> None:
    source, target = databases
    filled(source, sales_dataset(StoreKind.WAREHOUSE), tmp_path)
    left = "select (select count(*) from varve.former_base), (select count(*) from varve.former_overlay)"
    overlay = "insert into varve.overlay select %s, dataset, partition, batch_id from varve.current"
    with connect(source) as connection:
        for name in ("alice", "bob"):
            Environments(connection).create(name, by="ann")
            connection.execute(overlay, (name,))
        Environments(connection).drop("alice")
        assert connection.execute(left).fetchone() == (1, len(KEYS))
    dump(source, target, tmp_path / "dump.sql")
    with connect(target) as connection:
        assert connection.execute(left).fetchone() == (1, len(KEYS))
        Environments(connection).drop("bob")
        assert connection.execute(left).fetchone() == (2, 2 * len(KEYS))


@pytest.mark.parametrize("options", [WarehouseOptions(), WarehouseOptions(compact=Period.WEEK)], ids=["", "compacted"])
def test_a_lost_catalog_is_made_again_from_tables_and_views(
    databases: tuple[Settings, Settings], tmp_path: Path, options: WarehouseOptions
) -> None:
    own, _ = databases
    sales = replace(sales_dataset(StoreKind.WAREHOUSE), warehouse=options)
    filled(own, sales, tmp_path)
    with connect(own) as connection:
        catalog = Catalog(connection)
        desk = Desk(own, sales, tmp_path, catalog)
        desk.publish([PartitionKey.of(day=dt.date(2013, 1, 14), store="Paris")])
        assert compact_closed(catalog, sales, seconds=10) == (1 if options.compact else 0)
        # One of the period is loaded again, and has a table of its own beside the shared one.
        desk.publish([PARIS])
        seen, current, batches = periods(connection, sales), desk.current(), catalog.current(sales.name)
        killed = desk.stage([PARIS])
        catalog.release(killed)
        connection.execute("drop schema varve cascade")
        assert periods(connection, sales) == seen

        catalog.ensure_schema()
        (inventory,) = take_inventory(connection)
        recovered = recover(connection, StoreKind.WAREHOUSE, inventory)

        assert recovered.current == len(current)
        assert desk.current() == current
        after = catalog.current(sales.name)
        assert {path: (batch.location, batch.rows, batch.inputs) for path, batch in after.items()} == {
            path: (batch.location, batch.rows, batch.inputs) for path, batch in batches.items()
        }
        assert list(examine.shown(connection, sales, after)) == []
        assert list(examine.tables(connection, sales, list(after.values()))) == []
        second = desk.publish([PARIS]).batch_id.millis
        assert periods(connection, sales) == seen | {PARIS.path: second}
