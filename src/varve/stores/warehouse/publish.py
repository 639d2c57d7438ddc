"""Publishes period tables, in the order that was measured to be safe for readers (docs/decisions/0003).

With 8 readers and one that holds the view for 20 s, this order gave readers a 99th percentile of 31 ms and no wrong
read. Simpler orders stalled readers for 20 s, or PostgreSQL ended them as deadlocked (`python -m benchmarks.publish`).

1. Wait until no snapshot is older than the load: a REPEATABLE READ reader would see the new table through the new view,
   but none of its rows, and miss the period without an error.
2. Do not wait for somebody who has held the view for long: all later readers would wait behind us.
3. In one transaction: take the lock of the view's publishers, change the catalog, replace the views last; with a short
   `lock_timeout`, tried again after growing, random pauses. Nothing is renamed or dropped: a view refers to tables, not
   to their names.

Not here: which views are replaced (projection.py).
"""

from __future__ import annotations

import logging
import time
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from varve.catalog.code.generations import Generations
from varve.model.errors import NOTHING_LOST, PublishTimeout
from varve.model.store_options import OldSnapshots
from varve.stores.warehouse import budget, projection, rebuild
from varve.stores.warehouse.tables import grants, notes, roles, view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from varve.catalog.catalog import Catalog
    from varve.catalog.code.generations import PublishedDataset
    from varve.model.batch import Batch
    from varve.model.build import Build
    from varve.model.dataset import Dataset

logger = logging.getLogger(__name__)

_LOCK_TIMEOUT = "select set_config('lock_timeout', %s, true)"
_NO_LOCK_TIMEOUT = "set local lock_timeout = 0"
_PUBLISHERS = "select pg_advisory_xact_lock(hashtextextended('view of ' || %s, 0))"
_THIS_TRANSACTION = "select pg_current_xact_id()::xid::text"
# Compared by age, because transaction ids wrap around. What was loaded has a lower id than this transaction: who has
# this one as the oldest sees it. Sessions that load are left out: they read no view, and their
# COPY may take hours. Readers of a physical standby count where it reports them, by its slot or by its sender. The
# last column is another one for each transaction of a reader; NULL: it is none.
_OLDER_SNAPSHOTS = """
    select pid, coalesce(nullif(application_name, ''), usename, 'unnamed'),
        case when backend_type = 'client backend' then concat_ws(' ', backend_start, xact_start) end
    from pg_stat_activity a
    where backend_xmin is not null and pid <> pg_backend_pid()
      and not exists (select from varve.loading l where (l.pid, l.backend_start) = (a.pid, a.backend_start))
      and (datname = current_database() and backend_type = 'client backend' or backend_type = 'walsender')
      and age(backend_xmin) > age(%(xid)s::xid)
    union all
    select active_pid, 'standby of slot ' || slot_name, null from pg_replication_slots
    where slot_type = 'physical' and xmin is not null and age(xmin) > age(%(xid)s::xid)
"""
_LONG_HOLDER = """
    select a.pid, coalesce(nullif(a.application_name, ''), 'unnamed')
    from pg_locks l join pg_stat_activity a using (pid)
    where l.granted and l.locktype = 'relation' and l.relation in (select to_regclass(n) from unnest(%s::text[]) as n)
      and l.database = (select oid from pg_database where datname = current_database())
      and clock_timestamp() - a.xact_start > make_interval(secs => %s / 1000.0) and a.pid <> pg_backend_pid() limit 1
"""
# Within a transaction, as that of a move to another store, PostgreSQL goes on to show what its first look has shown.
_LOOK_AGAIN = "select pg_stat_clear_snapshot()"
_POLL_SECONDS = 0.02
T = TypeVar("T")
_IN_THE_WAY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


class ViewBusy(Exception):
    """Somebody has held the view for longer than we may make others wait."""


def publish(catalog: Catalog, *builds: Build, seconds: float) -> None:
    """Publish the staged batches of the builds: all periods of all of them at once, or none.

    Raises PublishTimeout after `seconds`, naming who is in the way, and StalePublish.
    """
    change(catalog, builds, partial(catalog.publish_all, builds), seconds)


def republish(catalog: Catalog, build: Build, batches: Sequence[Batch], *, reason: str, seconds: float) -> None:
    """Make earlier batches current again, and withdraw the partitions of the build that have none among them."""
    keys = {partition.path: partition for partition in build.partitions}
    targets = {keys[batch.partition]: batch.batch_id for batch in batches}
    change(catalog, [build], partial(catalog.repoint, build, targets, reason=reason), seconds)


def change(catalog: Catalog, changed: Iterable[Build], point: Callable[[], None], seconds: float) -> None:
    """Call `point`, which changes what is current, and in the same transaction replace the views of the builds.

    Raises PublishTimeout after `seconds`, naming who is in the way, and what `point` raises.
    """
    deadline = time.monotonic() + seconds
    builds = sorted(changed, key=lambda build: build.dataset.name)
    subject = ", ".join(map(str, builds))
    notes.ensure_tables(catalog.connection)
    roles.refuse_blindness(catalog.connection)
    for build in builds:
        budget.refuse_or_warn(catalog, build)
        grants.refuse_missing_roles(catalog.connection, build.dataset)
    _wait_for_snapshots(
        catalog.connection, [build.dataset.warehouse.old_snapshots for build in builds], subject, deadline
    )
    names = ", ".join(build.dataset.name for build in builds)
    with rebuild.ours(catalog.connection, *(build.dataset for build in builds)):
        patiently(partial(_swap, catalog, builds, point), names, subject, seconds, deadline)


def patiently(
    change: Callable[[], T], view_names: str, subject: str, seconds: float, deadline: float | None = None
) -> T:
    """Call `change`, which replaces views, again and again until no reader is in the way.

    `subject` is what is published, for the message. Raises PublishTimeout after `seconds`, naming the last reader.
    """
    try:
        for attempt in Retrying(
            retry=retry_if_exception_type((ViewBusy, *_IN_THE_WAY)),
            stop=stop_after_delay(max(seconds if deadline is None else deadline - time.monotonic(), 0.001)),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            reraise=True,
        ):
            with attempt:
                return change()
    except (ViewBusy, *_IN_THE_WAY) as error:
        raise PublishTimeout(
            f"{subject}: the view {view_names} was in use for longer than {seconds:g} s ({str(error).strip()}). "
            f"{NOTHING_LOST} Run it again when the reader has finished, or raise VARVE_PUBLISH_SECONDS; "
            "where such readers follow each other without a gap, raise stall_milliseconds of the dataset."
        ) from error
    raise AssertionError("unreachable: every attempt returns or raises")


def show_current(catalog: Catalog, dataset: Dataset, *, seconds: float) -> None:
    """Create the dataset's views again from the catalog, where they were lost or changed by hand.

    Raises PublishTimeout after `seconds`, naming who is in the way.
    """
    notes.ensure_tables(catalog.connection)

    def replace_all() -> None:
        with catalog.connection.transaction():
            milliseconds = lock_publishers(catalog.connection, dataset)
            name = view.view_name(dataset).as_string(catalog.connection)
            refuse_long_holders(catalog.connection, [name], milliseconds)
            plan = projection.plan(catalog, dataset, (), all_again=True)
            catalog.projected(dataset.name, catalog.lagging(dataset.name).values())
            catalog.forget_withdrawn(dataset.name, catalog.withdrawn(dataset.name))
            replace_views(catalog.connection, [plan])

    with rebuild.ours(catalog.connection, dataset):
        patiently(replace_all, dataset.name, str(dataset), seconds)


def refuse_long_holders(connection: psycopg.Connection, views: Sequence[str], milliseconds: int) -> None:
    """Raise ViewBusy where one of these views has been held for longer than we may make others wait."""
    connection.execute(_LOOK_AGAIN)
    if holder := connection.execute(_LONG_HOLDER, (list(views), milliseconds)).fetchone():
        raise ViewBusy(f"pid {holder[0]}, {holder[1]}, holds it")


def lock_publishers(connection: psycopg.Connection, *datasets: Dataset) -> int:
    """In a transaction: wait for the other publishers of these views, in the order of their names.

    Returns the milliseconds for which the transaction waits for readers from then on, at each lock.
    """
    # Readers of the first view also wait while we wait for the others: for all together no longer than for one.
    milliseconds = max(1, min(dataset.warehouse.stall_milliseconds for dataset in datasets) // len(datasets))
    lock_views(connection, [dataset.name for dataset in datasets], milliseconds)
    return milliseconds


def lock_views(connection: psycopg.Connection, names: Iterable[str], milliseconds: int) -> None:
    """The same by the names of the datasets, whose readers the transaction waits for from then on for so long."""
    # Without a timeout: publishers hold the lock for milliseconds.
    connection.execute(_NO_LOCK_TIMEOUT)
    for name in sorted(names):
        connection.execute(_PUBLISHERS, (name,))
    connection.execute(_LOCK_TIMEOUT, (str(milliseconds),))


def wait_for_snapshots(connection: psycopg.Connection, dataset: Dataset, seconds: float) -> None:
    """Wait until no snapshot is older than now. Raises PublishTimeout."""
    policy = dataset.warehouse.old_snapshots
    _wait_for_snapshots(connection, [policy], dataset.name, time.monotonic() + seconds)


def _wait_for_snapshots(
    connection: psycopg.Connection, policies: Sequence[OldSnapshots], subject: str, deadline: float
) -> None:
    row = connection.execute(_THIS_TRANSACTION).fetchone()
    assert row is not None
    parameters = {"xid": row[0]}
    connection.execute(_LOOK_AGAIN)
    older = connection.execute(_OLDER_SNAPSHOTS, parameters).fetchall()
    at_first = {(pid, transaction) for pid, _, transaction in older}
    while older:
        if time.monotonic() > deadline:
            who = ", ".join(f"pid {pid} ({application})" for pid, application, _ in older[:3])
            if set(policies) == {OldSnapshots.PUBLISH}:
                logger.warning("%s is published although %s may miss its periods.", subject, who)
                return
            raise PublishTimeout(
                f"{subject}: a reader's snapshot is older than the load, and would miss the new period: {who}. "
                f"{NOTHING_LOST} Run it again when that transaction has ended, or raise VARVE_PUBLISH_SECONDS."
            )
        time.sleep(_POLL_SECONDS)
        # What a session has is the oldest transaction that ran when it began to read, in whatever database: while
        # somebody writes for hours, every reader has that one. Who comes after our first look sees what was loaded.
        # Clocks do not decide it: they may be set back.
        connection.execute(_LOOK_AGAIN)
        now = connection.execute(_OLDER_SNAPSHOTS, parameters).fetchall()
        older = [session for session in now if session[2] is None or (session[0], session[2]) in at_first]


def _swap(catalog: Catalog, builds: Sequence[Build], point: Callable[[], None]) -> None:
    connection = catalog.connection
    with connection.transaction():
        # The locks come before anything is read.
        milliseconds = lock_publishers(connection, *(build.dataset for build in builds))
        # After the locks: the publisher before us may have given up on a reader, behind whom others still wait.
        for build in builds:
            paths = build.paths
            refuse_long_holders(connection, projection.views_to_replace(connection, build.dataset, paths), milliseconds)
        moving = [build.dataset.name for build in builds if build.generation is not None]
        before = Generations(connection).published(moving) if moving else {}
        point()
        plans = [
            projection.plan(catalog, build.dataset, build.partitions) for build in builds
            if not _is_rebuilt(catalog, build, before.get(build.dataset.name))
        ]  # fmt: skip
        for name in (build.dataset.name for build in builds):
            # The view is the projection of this dataset, and follows in the same transaction.
            catalog.projected(name, catalog.lagging(name).values())
            catalog.forget_withdrawn(name, catalog.withdrawn(name))
        replace_views(connection, plans)


def _is_rebuilt(catalog: Catalog, build: Build, before: PublishedDataset | None) -> bool:
    """Make the view again where the publish moves readers to another generation. Returns whether it does."""
    if build.generation is None or not (existing := projection.existing_columns(catalog.connection, build.dataset)):
        return False
    columns = () if before is None else before.shape.columns.data
    rebuild.rebuild(catalog, build.dataset, existing, columns)
    return True


def replace_views(connection: psycopg.Connection, plans: Sequence[projection.ViewPlan]) -> None:
    """Execute the plans. The statements for which readers wait come last."""
    for statements in (
        [plan.first for plan in plans],
        [plan.last for plan in plans],
        [plan.comments for plan in plans],
    ):
        for statement in chain.from_iterable(statements):
            connection.execute(statement)
