"""The pointers move with the catalog or not at all: groups, rollbacks, crashes at each step, two publishers at once."""

from __future__ import annotations

import datetime as dt
import json
import random
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyiceberg.table import StaticTable

from tests.killing import kill_all
from tests.stores.lake.iceberg.readers import by_pyiceberg, by_text, iceberg_table
from tests.support.sales import DETROIT, PARIS, ZURICH, key, sales_dataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import StalePublish
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.stores.lake.iceberg.folder import MetadataFolder
from varve.stores.lake.iceberg.pointers import Pointers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.stores.lake.iceberg.builder import Builder

NOON = dt.datetime(2013, 1, 5, 12, tzinfo=dt.UTC)
STEPS = [
    (MetadataFolder, "write"), (MetadataFolder, "make_durable"),
    (Pointers, "lock"), (Pointers, "move"), (Pointers, "note"),
]  # fmt: skip
# Of each table a manifest, a list, a document, two waits for the disk, and a pointer that is locked, moved and noted.
STEPS_OF_TWO_TABLES = 16


def sold(*products: str) -> list[dict[str, Any]]:
    return [{"product": product, "sold": place, "price": 1.5, "at": NOON} for place, product in enumerate(products)]


def agree(builder: Builder, *datasets: Dataset) -> None:
    for dataset in datasets:
        names = [*dataset.schema.names, *dataset.partitioning.names]
        rows = [{name: row[name] for name in names} for row in builder.rows(dataset)]
        assert by_pyiceberg(iceberg_table(builder.settings, dataset)) == by_text(rows)


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, interrupt: Callable[[], None]) -> list[int]:
    """Call `interrupt` before the step of that number of a publish; the list counts the steps."""
    counted = [0]
    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, _interrupted(getattr(owner, name), counted, step, interrupt))
    return counted


def _interrupted(
    whole: Callable[..., Any], counted: list[int], step: int, interrupt: Callable[[], None]
) -> Callable[..., Any]:
    def instead(*args: Any) -> Any:
        counted[0] += 1
        if counted[0] == step:
            interrupt()
        return whole(*args)

    return instead


def _preceded(whole: Callable[..., Any], first: Callable[[], None]) -> Callable[..., Any]:
    def instead(*args: Any) -> Any:
        first()
        return whole(*args)

    return instead


def test_tables_that_are_published_together_have_one_instant(builder: Builder) -> None:
    datasets = [sales_dataset(StoreKind.LAKE) for _ in range(3)]
    builder.publish_together([(dataset, {PARIS: sold("pen"), ZURICH: sold("ink")}) for dataset in datasets])
    builder.publish_together([(dataset, {PARIS: sold("pad")}) for dataset in datasets])
    agree(builder, *datasets)
    tables = [iceberg_table(builder.settings, dataset) for dataset in datasets]
    instants = {table.current_snapshot().timestamp_ms for table in tables}
    assert len(instants) == 1
    assert all(table.snapshot_as_of_timestamp(min(instants)) == table.current_snapshot() for table in tables)


def test_going_back_and_withdrawing_are_snapshots_of_their_own(builder: Builder, sales: Dataset) -> None:
    first = builder.publish(sales, {PARIS: sold("pen"), ZURICH: sold("ink")})
    builder.publish(sales, {PARIS: sold("pad"), ZURICH: sold("pad")})
    builder.go_back(sales, {PARIS: first.millis, ZURICH: None})
    agree(builder, sales)
    table = iceberg_table(builder.settings, sales)
    assert [row["product"] for row in by_pyiceberg(table)] == ["pen"]
    assert len(table.snapshots()) == 3
    builder.go_back(sales, {PARIS: None})
    assert by_pyiceberg(iceberg_table(builder.settings, sales)) == []


def test_a_publish_that_is_refused_moves_nothing(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {PARIS: sold("pen")})
    with builder.store() as store:
        build, staged = builder.stage(store, sales, {PARIS: sold("late")})
        store.catalog.connection.execute("select pg_advisory_unlock_all()")
        builder.publish(sales, {PARIS: sold("early")})
        with pytest.raises(StalePublish):
            store.publish(build, staged)
    agree(builder, sales)
    assert len(iceberg_table(builder.settings, sales).snapshots()) == 2


def test_a_session_that_ends_at_any_step_leaves_the_old_state_in_both(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = [sales_dataset(StoreKind.LAKE) for _ in range(2)]
    builder.publish_together([(dataset, {PARIS: sold("old"), ZURICH: sold("old")}) for dataset in datasets])
    step, steps = 0, 1
    while step < steps:
        step += 1
        with builder.store() as store, monkeypatch.context() as patched:
            changes = builder.staged_together(store, [(dataset, {PARIS: sold("new")}) for dataset in datasets])
            counted = at_step(patched, step, partial(_end_session, builder, store.catalog.connection.info.backend_pid))
            with pytest.raises(psycopg.OperationalError):
                changes()
            store.catalog.connection.close()
        agree(builder, *datasets)
        steps = STEPS_OF_TWO_TABLES if step == 1 else steps
        assert counted[0] >= step
    builder.publish_together([(dataset, {PARIS: sold("new")}) for dataset in datasets])
    agree(builder, *datasets)


def test_a_full_disk_refuses_the_publish_and_the_next_one_goes_on(
    builder: Builder, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full() -> None:
        raise OSError(28, "No space left on device")

    builder.publish(sales, {PARIS: sold("old")})
    with monkeypatch.context() as patched:
        at_step(patched, 3, is_full)
        with pytest.raises(OSError, match="No space left"):
            builder.publish(sales, {PARIS: sold("new")})
    agree(builder, sales)
    builder.publish(sales, {PARIS: sold("newer")})
    agree(builder, sales)


def test_two_publishes_of_one_table_at_once_both_succeed(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {DETROIT: sold("first")})
    problems: list[BaseException] = []

    def many(store: str) -> None:
        try:
            for day in range(1, 11):
                builder.publish(sales, {key(store, day): sold(f"{store} {day}")})
        except BaseException as error:  # noqa: BLE001 - told below
            problems.append(error)

    threads = [threading.Thread(target=many, args=(store,)) for store in ("Paris", "Zürich")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    agree(builder, sales)
    assert len(iceberg_table(builder.settings, sales).snapshots()) == 21


def test_no_pointer_is_locked_while_metadata_is_written(
    builder: Builder, sales: Dataset, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.publish(sales, {PARIS: sold("old")})
    looks = []

    def look() -> None:
        of_table = "select from varve.iceberg_table where dataset = %s for update nowait"
        looks.append(connection.execute(of_table, (sales.name,)).rowcount)

    monkeypatch.setattr(MetadataFolder, "write", _preceded(MetadataFolder.write, look))
    builder.publish(sales, {PARIS: sold("new")})
    assert looks == [1, 1, 1]
    agree(builder, sales)


def test_a_publish_that_comes_between_is_not_lost(
    builder: Builder, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.publish(sales, {PARIS: sold("old"), ZURICH: sold("old")})
    with monkeypatch.context() as patched:
        # The manifests, the list and the document are written, and the pointer is to be locked.
        counted = at_step(patched, 6, lambda: builder.publish(sales, {ZURICH: sold("between")}))
        builder.publish(sales, {PARIS: sold("new")})
    assert counted[0] > 2 * STEPS_OF_TWO_TABLES / 2, "the first publish was prepared twice"
    agree(builder, sales)
    table = iceberg_table(builder.settings, sales)
    assert len(table.snapshots()) == 3
    instants = [snapshot.timestamp_ms for snapshot in table.snapshots()]
    assert instants == sorted(set(instants))


def test_what_was_prepared_is_not_shown_where_other_batches_become_current(builder: Builder, sales: Dataset) -> None:
    first = builder.publish(sales, {PARIS: sold("old")})
    builder.publish(sales, {PARIS: sold("newer")})
    with builder.store() as store:
        build, _ = builder.stage(store, sales, {PARIS: sold("newest")})
        # A change of the catalog that does not publish what the build has staged.
        store.commit([build], partial(store.catalog.repoint, build, {PARIS: first}))
        store.published(build)
    agree(builder, sales)
    assert [row["product"] for row in by_pyiceberg(iceberg_table(builder.settings, sales))] == ["old"]


def test_a_history_at_random_agrees_with_the_catalog_after_each_step(builder: Builder, sales: Dataset) -> None:
    chance, builder.keep = random.Random(20), 4
    keys = [key(store, day) for store in ("Paris", "Zürich") for day in (5, 6, 31)]
    batches: list[tuple[Any, int]] = []
    for step in range(25):
        chosen = chance.sample(keys, chance.randint(1, 4))
        if chance.random() < 0.6 or not batches:
            number = builder.publish(sales, {each: sold(*(f"{step}",) * chance.randint(0, 2)) for each in chosen})
            batches += [(each, number.millis) for each in chosen]
        else:
            back = dict(chance.sample(batches, min(2, len(batches))))
            builder.go_back(sales, {**back, chosen[0]: back.get(chosen[0])})
        agree(builder, sales)
    assert len(iceberg_table(builder.settings, sales).snapshots()) == 4


def _end_session(builder: Builder, pid: int) -> None:
    with connect(builder.settings, application="varve test") as other:
        other.execute("select pg_terminate_backend(%s, 5000)", (pid,))


@pytest.mark.slow
def test_a_server_that_is_killed_at_any_step_leaves_one_state_in_both(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = [sales_dataset(StoreKind.LAKE) for _ in range(2)]
    builder.publish_together([(dataset, {PARIS: sold("old"), ZURICH: sold("old")}) for dataset in datasets])
    server = PostgresServer(builder.settings.home_dir)
    for step in range(1, STEPS_OF_TWO_TABLES + 1):
        with builder.store() as store, monkeypatch.context() as patched:
            row = store.catalog.connection.execute("select pg_read_file('postmaster.pid')").fetchone()
            assert row is not None
            killing = partial(kill_all, int(row[0].split()[0]))
            changes = builder.staged_together(store, [(dataset, {PARIS: sold("new")}) for dataset in datasets])
            counted = at_step(patched, step, killing)
            try:
                changes()
            except psycopg.OperationalError:
                assert counted[0] >= step
            else:
                # It had fewer steps: the server dies after the commit.
                killing()
            store.catalog.connection.close()
        server.ensure_up()
        agree(builder, *datasets)


@pytest.mark.slow
def test_readers_of_three_tables_never_see_a_mixed_state(builder: Builder) -> None:
    datasets = [sales_dataset(StoreKind.LAKE) for _ in range(3)]
    builder.publish_together([(dataset, {PARIS: sold("0")}) for dataset in datasets])
    ended, names = threading.Event(), [(dataset.db, dataset.table) for dataset in datasets]

    def publish() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            builder.publish_together([(dataset, {PARIS: sold(str(number))}) for dataset in datasets])

    looks = mixed = separately = 0
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        with builder.store() as store:
            assert store.iceberg is not None
            pointers = store.iceberg.pointers
            while looks < 1_000:
                shown = {(db, table): location for db, table, location in pointers.all()}
                one_by_one = [pointers.of(dataset.name) for dataset in datasets]
                together = {_instant(shown[name]) for name in names}
                mixed += len(together) > 1
                separately += len({_instant(pointer.location) for pointer in one_by_one if pointer}) > 1
                if looks % 50 == 0:
                    tables = [StaticTable.from_metadata(shown[name]) for name in names]
                    assert len({row["product"] for table in tables for row in by_pyiceberg(table)}) == 1
                    as_of = [table.snapshot_as_of_timestamp(min(together)) for table in tables]
                    assert len({snapshot.timestamp_ms for snapshot in as_of if snapshot}) == 1
                looks += 1
    finally:
        ended.set()
        thread.join()
    print(f"{looks} looks: {mixed} mixed by one statement, {separately} by one statement for each table")  # noqa: T201
    assert mixed == 0


def _instant(location: str | None) -> int:
    """The instant of what the metadata at a location shows."""
    assert location is not None
    document = json.loads(Path(location.removeprefix("file://")).read_bytes())
    return int(document["snapshots"][-1]["timestamp-ms"])
