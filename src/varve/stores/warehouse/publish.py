"""Putting period tables in force: the order that was measured to be safe for readers (docs/decisions/0003).

With 8 readers and one that holds the view for 20 s this order gave readers a p99 of 31 ms and no wrong read; the naive
ones stalled them for 20 s or had PostgreSQL kill them as deadlocks (`python -m benchmarks.publish`).

1. Wait until no snapshot is older than the load: a REPEATABLE READ reader would see the new table through the new view,
   but none of its rows, and silently miss the period.
2. Do not queue behind somebody who has held the view for long: whoever comes after would queue behind us.
3. One transaction: lock of the view's publishers, catalog rows, the views last; with a short `lock_timeout`, again and
   again with growing, jittered pauses. Nothing is renamed and nothing dropped: the view binds tables, not names.

Not here: which views are replaced (projection.py).
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from varve.model.errors import NOTHING_LOST, PublishTimeout
from varve.model.store_options import OldSnapshots
from varve.stores.warehouse import budget, projection
from varve.stores.warehouse.tables import notes, roles, view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.build import Build
    from varve.model.dataset import Dataset

logger = logging.getLogger(__name__)

_LOCK_TIMEOUT = "select set_config('lock_timeout', %s, true)"
_NO_LOCK_TIMEOUT = "set local lock_timeout = 0"
_PUBLISHERS = "select pg_advisory_xact_lock(hashtextextended('view of ' || %s, 0))"
_THIS_TRANSACTION = "select pg_current_xact_id()::xid::text"
# Ages, because transaction ids wrap around. A session that loads reads no view, and its COPY may take hours. Readers of
# a physical standby count where it reports them: through its slot, or through the sender that serves it.
_OLDER_SNAPSHOTS = """
    select pid, coalesce(nullif(application_name, ''), usename, 'unnamed') from pg_stat_activity a
    where backend_xmin is not null and pid <> pg_backend_pid()
      and not exists (select from varve.loading l where (l.pid, l.backend_start) = (a.pid, a.backend_start))
      and (datname = current_database() and backend_type = 'client backend' or backend_type = 'walsender')
      and age(backend_xmin) >= age(%(xid)s::xid)
    union all
    select active_pid, 'standby of slot ' || slot_name from pg_replication_slots
    where slot_type = 'physical' and xmin is not null and age(xmin) >= age(%(xid)s::xid)
"""
_LONG_HOLDER = """
    select a.pid, coalesce(nullif(a.application_name, ''), 'unnamed')
    from pg_locks l join pg_stat_activity a using (pid)
    where l.granted and l.locktype = 'relation' and l.relation in (select to_regclass(n) from unnest(%s::text[]) as n)
      and l.database = (select oid from pg_database where datname = current_database())
      and clock_timestamp() - a.xact_start > make_interval(secs => %s / 1000.0) and a.pid <> pg_backend_pid() limit 1
"""
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
    """Put earlier batches back in force, and withdraw the build's partitions that have none among them."""
    keys = {partition.path: partition for partition in build.partitions}
    targets = {keys[batch.partition]: batch.batch_id for batch in batches}
    change(catalog, [build], partial(catalog.repoint, build, targets, reason=reason), seconds)


def change(catalog: Catalog, changed: Iterable[Build], point: Callable[[], None], seconds: float) -> None:
    """Do what tells the catalog what is in force from now on, and in the same transaction change the builds' views.

    Raises PublishTimeout after `seconds`, naming who is in the way, and what `point` raises.
    """
    deadline = time.monotonic() + seconds
    builds = sorted(changed, key=lambda build: build.dataset.name)
    told = ", ".join(map(str, builds))
    notes.ensure_tables(catalog.connection)
    roles.refuse_blindness(catalog.connection)
    for build in builds:
        budget.refuse_or_warn(catalog, build)
    _wait_for_snapshots(catalog.connection, [build.dataset.warehouse.old_snapshots for build in builds], told, deadline)
    names = ", ".join(build.dataset.name for build in builds)
    patiently(partial(_swap, catalog, builds, point), names, told, seconds, deadline)


def patiently(change: Callable[[], T], view_names: str, told: str, seconds: float, deadline: float | None = None) -> T:
    """Do what changes views, again and again until no reader is in the way.

    Raises PublishTimeout after `seconds`, naming who was the last.
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
            f"{told}: the view {view_names} was in use for longer than {seconds:g} s ({str(error).strip()}). "
            f"{NOTHING_LOST} Run it again when the reader has finished, or raise VARVE_PUBLISH_SECONDS; "
            "where such readers follow each other without a gap, raise stall_milliseconds of the dataset."
        ) from error
    raise AssertionError("unreachable: every attempt returns or raises")


def show_current(catalog: Catalog, dataset: Dataset, *, seconds: float) -> None:
    """Make the dataset's views anew from the catalog, where they were lost or changed by hand.

    Raises PublishTimeout after `seconds`, naming who is in the way.
    """
    notes.ensure_tables(catalog.connection)

    def anew() -> None:
        with catalog.connection.transaction():
            milliseconds = lock_publishers(catalog.connection, dataset)
            name = view.view_name(dataset).as_string(catalog.connection)
            refuse_long_holders(catalog.connection, [name], milliseconds)
            plan = projection.plan(catalog, dataset, (), anew=True)
            catalog.projected(dataset.name, catalog.lagging(dataset.name).values())
            catalog.forget_withdrawn(dataset.name, catalog.withdrawn(dataset.name))
            replace_views(catalog.connection, [plan])

    patiently(anew, dataset.name, str(dataset), seconds)


def refuse_long_holders(connection: psycopg.Connection, views: Sequence[str], milliseconds: int) -> None:
    """Raise ViewBusy where one of these views has been held for longer than we may make others wait."""
    if held := connection.execute(_LONG_HOLDER, (list(views), milliseconds)).fetchone():
        raise ViewBusy(f"pid {held[0]}, {held[1]}, holds it")


def lock_publishers(connection: psycopg.Connection, *datasets: Dataset) -> int:
    """In a transaction: wait for the other publishers of these views, all locks in the order of names.

    From then on readers are waited for so many milliseconds at a time: what it returns.
    """
    # Without a timeout: it is held for milliseconds.
    connection.execute(_NO_LOCK_TIMEOUT)
    for name in sorted(dataset.name for dataset in datasets):
        connection.execute(_PUBLISHERS, (name,))
    # Readers of the first view wait while we wait for the others': together no longer than for one.
    milliseconds = max(1, min(one.warehouse.stall_milliseconds for one in datasets) // len(datasets))
    connection.execute(_LOCK_TIMEOUT, (str(milliseconds),))
    return milliseconds


def wait_for_snapshots(connection: psycopg.Connection, dataset: Dataset, seconds: float) -> None:
    """Wait until no snapshot is older than now. Raises PublishTimeout."""
    policy = dataset.warehouse.old_snapshots
    _wait_for_snapshots(connection, [policy], dataset.name, time.monotonic() + seconds)


def _wait_for_snapshots(
    connection: psycopg.Connection, policies: Sequence[OldSnapshots], told: str, deadline: float
) -> None:
    row = connection.execute(_THIS_TRANSACTION).fetchone()
    assert row is not None
    given = {"xid": row[0]}
    while older := connection.execute(_OLDER_SNAPSHOTS, given).fetchall():
        if time.monotonic() > deadline:
            who = ", ".join(f"pid {pid} ({application})" for pid, application in older[:3])
            if set(policies) == {OldSnapshots.PUBLISH}:
                logger.warning("%s is published although %s may miss its periods.", told, who)
                return
            raise PublishTimeout(
                f"{told}: a reader's snapshot is older than the load, and would miss the new period: {who}. "
                f"{NOTHING_LOST} Run it again when that transaction has ended, or raise VARVE_PUBLISH_SECONDS."
            )
        time.sleep(_POLL_SECONDS)


def _swap(catalog: Catalog, builds: Sequence[Build], point: Callable[[], None]) -> None:
    connection = catalog.connection
    with connection.transaction():
        # Before anything is read under them.
        milliseconds = lock_publishers(connection, *(build.dataset for build in builds))
        # Under them: the publisher before us may just have given up on a reader, behind whom others still wait.
        for build in builds:
            paths = build.paths
            refuse_long_holders(connection, projection.views_to_replace(connection, build.dataset, paths), milliseconds)
        point()
        plans = [projection.plan(catalog, build.dataset, build.partitions) for build in builds]
        for name in (build.dataset.name for build in builds):
            # The view is this dataset's projection, and follows in the same transaction.
            catalog.projected(name, catalog.lagging(name).values())
            catalog.forget_withdrawn(name, catalog.withdrawn(name))
        replace_views(connection, plans)


def replace_views(connection: psycopg.Connection, plans: Sequence[projection.ViewPlan]) -> None:
    """Execute the plans, what readers wait for last."""
    for statements in ([one.first for one in plans], [one.last for one in plans], [one.comments for one in plans]):
        for statement in (found for several in statements for found in several):
            connection.execute(statement)
