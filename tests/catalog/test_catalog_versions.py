"""A catalog of an older version is upgraded in place and keeps its history; one of a newer version is refused."""

from __future__ import annotations

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import resources as package_files
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.catalog.test_history import PARIS, ZURICH, current, go_back, publish
from tests.conftest import sales_dataset
from varve.catalog.catalog import VERSION, Catalog
from varve.catalog.history.history import History
from varve.model.batch import BatchId
from varve.model.dataset import StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.key import PartitionKey
from varve.planning.arrivals.arrivals import Arrived

if TYPE_CHECKING:
    from varve.model.dataset import Dataset


@pytest.fixture
def sales() -> Dataset:
    return sales_dataset(StoreKind.LAKE)


OLD_BATCHES = """
    insert into varve.batch (
        dataset, partition, batch_id, state, run_id, code_version, location, rows, bytes, files,
        published_at, retired_at
    )
    select %s, %s, id, state, 'old run', '', '/lake/' || id, id, 1, 1, published, retired
    from (values
        (10, 'retired', to_timestamp(10), now()), (20, 'published', to_timestamp(20), null), (30, 'failed', null, null)
    ) v (id, state, published, retired)
"""


def test_a_catalog_of_version_1_is_upgraded_in_place_by_four_at_once(fresh_database: str, sales: Dataset) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        opened.execute(
            package_files.files("varve.catalog").joinpath("catalog.sql").read_text(encoding="utf-8").encode()
        )
        opened.execute(
            "insert into varve.dataset (dataset, store, declaration) values (%s, 'lake', '{}')", [sales.name]
        )
        opened.execute(OLD_BATCHES, (sales.name, PARIS.path))
        opened.execute("insert into varve.current values (%s, %s, 20, 20)", (sales.name, PARIS.path))
        together = threading.Barrier(4)

        def upgrade(_: int) -> None:
            with psycopg.connect(fresh_database, autocommit=True) as mine:
                together.wait(timeout=30)
                Catalog(mine).ensure_schema()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(upgrade, range(4)))
        assert opened.execute("select version from varve.schema_version").fetchall() == [(VERSION,)]
        catalog, history = Catalog(opened), History(opened)
        assert current(catalog, sales) == {PARIS.path: BatchId(20)}
        found = history.as_of(sales.name, dt.datetime.fromtimestamp(15, tz=dt.UTC))
        assert {path: batch.rows for path, batch in found.items()} == {PARIS.path: 10}
        go_back(catalog, sales, {PARIS: BatchId(10)})
        assert current(catalog, sales) == {PARIS.path: BatchId(10)}
        assert publish(catalog, sales, PARIS) > BatchId(20)


ALL_PUBLICATIONS = """
    select dataset, partition, batch_id, kind, build_id, run_id, reason, published_at, recorded
    from varve.publication order by build_id, partition
"""
OLD_PUBLICATIONS = """
    insert into varve.publication (
        dataset, partition, batch_id, kind, build_id, run_id, reason, published_at, recorded
    ) values
        (%(dataset)s, %(one)s, 10, 'publish', 10, 'first', '', to_timestamp(10), true),
        (%(dataset)s, %(two)s, 10, 'publish', 10, 'first', '', to_timestamp(10), true),
        (%(dataset)s, %(one)s, 20, 'publish', 20, 'second', '', to_timestamp(20), false),
        (%(dataset)s, %(one)s, 10, 'rollback', 30, 'third', 'it was wrong', to_timestamp(30), false),
        (%(dataset)s, %(two)s, null, 'rollback', 30, 'third', 'it was wrong', to_timestamp(30), false)
"""


def test_a_catalog_that_noted_each_partition_of_a_publish_keeps_its_history(
    fresh_database: str, sales: Dataset
) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        for script in ("catalog.sql", "catalog_2.sql", "catalog_3.sql", "catalog_4.sql"):
            opened.execute(package_files.files("varve.catalog").joinpath(script).read_text(encoding="utf-8").encode())
        opened.execute("update varve.schema_version set version = 4")
        opened.execute(
            "insert into varve.dataset (dataset, store, declaration) values (%s, 'lake', '{}')", [sales.name]
        )
        opened.execute(OLD_BATCHES, (sales.name, PARIS.path))
        opened.execute(OLD_BATCHES, (sales.name, ZURICH.path))
        opened.execute(OLD_PUBLICATIONS, {"dataset": sales.name, "one": PARIS.path, "two": ZURICH.path})
        before = opened.execute(ALL_PUBLICATIONS).fetchall()
        Catalog(opened).ensure_schema()
        assert opened.execute(ALL_PUBLICATIONS).fetchall() == before
        history = History(opened)
        told = [(one.partition, one.kind, one.run_id, one.reason) for one in history.changes(sales.name, [ZURICH.path])]
        assert told == [
            (ZURICH.path, "rollback", "third", "it was wrong"), (ZURICH.path, "publish", "first", "")
        ]  # fmt: skip
        at = dt.datetime.fromtimestamp(25, tz=dt.UTC)
        in_force = {path: batch.batch_id for path, batch in history.as_of(sales.name, at).items()}
        assert in_force == {PARIS.path: BatchId(20), ZURICH.path: BatchId(10)}
        waiting = Catalog(opened).unrecorded(sales.name)
        assert [(found.build_id, dict(found.partitions)) for found in waiting] == [
            (BatchId(20), {PARIS.path: 20}), (BatchId(30), {PARIS.path: 10, ZURICH.path: None})
        ]  # fmt: skip


def test_a_catalog_of_a_newer_version_is_refused_in_words(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        Catalog(opened).ensure_schema()
        opened.execute("update varve.schema_version set version = %s", (VERSION + 1,))
        with pytest.raises(VarveError, match=f"version {VERSION + 1} of its schema, and this Varve knows {VERSION}"):
            Catalog(opened).ensure_schema()


def test_what_had_arrived_before_version_6_is_looked_at_once_more_and_is_the_same(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        for version in range(1, 6):
            name = "catalog.sql" if version == 1 else f"catalog_{version}.sql"
            opened.execute(package_files.files("varve.catalog").joinpath(name).read_text(encoding="utf-8").encode())
        opened.execute("update varve.schema_version set version = 5")
        opened.execute("insert into varve.arrival (dataset, partition, uri, bytes, fingerprint) values "
                       "('t.a', 'day=2013-01-05', '/landing/2013-01-05.csv', 4, 'f')")  # fmt: skip
        since = opened.execute("select arrived_at from varve.arrival").fetchone()
        catalog = Catalog(opened)
        catalog.ensure_schema()
        assert catalog.arrived_files("t.a") == {"day=2013-01-05": Arrived("/landing/2013-01-05.csv", "")}
        key = PartitionKey.of(day=dt.date(2013, 1, 5))
        found = {"uri": "/landing/2013-01-05.csv", "size": 4, "stamp": "now"}
        # The same content is no news, and since then it is known in which state it was taken.
        assert not catalog.arrived("t.a", key, fingerprint="f", **found)  # type: ignore[arg-type]
        assert opened.execute("select arrived_at from varve.arrival").fetchone() == since
        assert catalog.arrived_files("t.a") == {"day=2013-01-05": Arrived("/landing/2013-01-05.csv", "now")}
        assert catalog.arrived("t.a", key, fingerprint="other", **found)  # type: ignore[arg-type]
        assert opened.execute("select arrived_at from varve.arrival").fetchone() != since
