"""Whose old snapshots a publish waits for: everybody's but of our own sessions that only load. No Spark here."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.stores.warehouse.test_projection import Shop, dataset, key
from varve.model.errors import PublishTimeout
from varve.services.postgres import warehouse_url
from varve.stores.warehouse import publish
from varve.stores.warehouse.loading.load import loading
from varve.stores.warehouse.tables import notes

if TYPE_CHECKING:
    from varve.catalog.catalog import Catalog
    from varve.services.settings import Settings


@pytest.fixture
def shop(catalog: Catalog) -> Shop:
    return Shop(catalog)


def test_a_reader_cannot_hide_its_snapshot_by_our_name(shop: Shop, settings: Settings) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    with psycopg.connect(warehouse_url(settings), application_name="varve-load") as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select 1").fetchone()
        build = shop.stage(sales, {key(1): [("pen", 2)]})
        with pytest.raises(PublishTimeout, match=rf"pid {reader.info.backend_pid} \(varve-load\)"):
            publish.publish(shop.catalog, build, seconds=0.3)
        assert reader.execute(f"select sold from {sales}".encode()).fetchall() == [(1,)]
    shop.catalog.release(build)


def test_within_a_transaction_it_is_seen_too_that_a_reader_has_ended(shop: Shop, settings: Settings) -> None:
    """As where a dataset moves to the warehouse: PostgreSQL shows a transaction the sessions of its first look."""
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    with psycopg.connect(warehouse_url(settings)) as reader, ThreadPoolExecutor() as pool:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select 1").fetchone()
        build = shop.stage(sales, {key(1): [("pen", 2)]})

        def end_soon() -> None:
            time.sleep(0.5)
            reader.rollback()

        ending = pool.submit(end_soon)
        with shop.catalog.connection.transaction():
            publish.publish(shop.catalog, build, seconds=20)
        ending.result(30)
        assert reader.execute(f"select sold from {sales}".encode()).fetchall() == [(2,)]
    shop.catalog.release(build)


def test_within_a_transaction_who_begins_to_read_meanwhile_is_not_waited_for(shop: Shop, settings: Settings) -> None:
    """Its oldest transaction is the one of the publish."""
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    build = shop.stage(sales, {key(1): [("pen", 2)]})
    with psycopg.connect(warehouse_url(settings)) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with shop.catalog.connection.transaction():
            shop.catalog.connection.execute("select pg_current_xact_id()")
            reader.execute("select 1").fetchone()
            publish.publish(shop.catalog, build, seconds=0.5)
    shop.catalog.release(build)


def test_a_reader_that_takes_another_name_while_we_wait_is_still_waited_for(shop: Shop, settings: Settings) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    over = threading.Event()
    with psycopg.connect(warehouse_url(settings)) as reader, ThreadPoolExecutor() as pool:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select 1").fetchone()

        def rename_again_and_again() -> None:
            number = 0
            while not over.wait(0.01):
                number += 1
                reader.execute(f"set application_name = 'reader {number}'".encode())

        renaming = pool.submit(rename_again_and_again)
        build = shop.stage(sales, {key(1): [("pen", 2)]})
        try:
            with pytest.raises(PublishTimeout, match=f"pid {reader.info.backend_pid} "):
                publish.publish(shop.catalog, build, seconds=0.5)
        finally:
            over.set()
        renaming.result(30)
        assert reader.execute(f"select sold from {sales}".encode()).fetchall() == [(1,)]
    shop.catalog.release(build)


def test_who_begins_to_read_later_is_not_waited_for_though_somebody_has_written_for_long(
    shop: Shop, settings: Settings
) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    stop = threading.Event()
    url = warehouse_url(settings)

    def read_again_and_again() -> None:
        """Two sessions in turn, so that one of them always has a snapshot."""
        with psycopg.connect(url) as first, psycopg.connect(url) as second:
            for reader in (first, second):
                reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            first.execute("select 1").fetchone()
            while not stop.is_set():
                second.execute("select 1").fetchone()
                first.rollback()
                time.sleep(0.005)
                first.execute("select 1").fetchone()
                second.rollback()
                time.sleep(0.005)

    with psycopg.connect(url) as writer, ThreadPoolExecutor() as pool:
        assert writer.execute("select pg_current_xact_id()").fetchone() is not None
        reading = pool.submit(read_again_and_again)
        try:
            for sold in (2, 3, 4):
                build = shop.stage(sales, {key(1): [("pen", sold)]})
                publish.publish(shop.catalog, build, seconds=5)
                shop.catalog.release(build)
        finally:
            stop.set()
        reading.result(30)
    assert [row[3] for row in shop.rows(sales)] == [4]


def test_nobody_waits_for_a_session_of_ours_while_it_loads_and_afterwards_again(shop: Shop, settings: Settings) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    with psycopg.connect(warehouse_url(settings), autocommit=True) as ours:
        with loading(ours), ours.transaction():
            ours.execute("set transaction isolation level repeatable read")
            ours.execute("select 1").fetchone()
            build = shop.stage(sales, {key(1): [("pen", 2)]})
            publish.publish(shop.catalog, build, seconds=5)
            shop.catalog.release(build)
        assert shop.rows(sales, "sold, product, day") != []
        with ours.transaction():
            ours.execute("set transaction isolation level repeatable read")
            ours.execute("select 1").fetchone()
            build = shop.stage(sales, {key(1): [("pen", 3)]})
            with pytest.raises(PublishTimeout, match=f"pid {ours.info.backend_pid} "):
                publish.publish(shop.catalog, build, seconds=0.3)
            shop.catalog.release(build)


def test_only_who_owns_the_catalog_may_say_so_and_what_has_ended_is_forgotten(shop: Shop, settings: Settings) -> None:
    notes.ensure_tables(shop.connection)
    row = shop.connection.execute("select has_table_privilege('public', 'varve.loading', 'insert')").fetchone()
    assert row == (False,)
    with psycopg.connect(warehouse_url(settings), autocommit=True) as gone:
        notes.start_loading(gone)
        pid = gone.info.backend_pid
    with psycopg.connect(warehouse_url(settings), autocommit=True) as other:
        # A session ends a moment after its connection.
        deadline = time.monotonic() + 10
        while pid in (pids := _loading(shop)) and time.monotonic() < deadline:
            notes.start_loading(other)
        notes.start_loading(other)
        assert other.info.backend_pid in _loading(shop)
    assert pid not in pids


def _loading(shop: Shop) -> set[int]:
    return {pid for (pid,) in shop.connection.execute("select pid from varve.loading")}
