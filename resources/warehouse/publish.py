"""Putting period tables in force: the order that was measured to be safe for readers (DESIGN section 5).

With 8 readers and one that holds the view for 20 s this order gave readers a p99 of 31 ms and no wrong read; the naive
ones stalled them for 20 s or had PostgreSQL kill them as deadlocks.

1. Wait until no snapshot is older than the load: a REPEATABLE READ reader would see the new table through the new view,
   but none of its rows, and silently miss the period.
2. Do not queue behind somebody who has held the view for long: whoever comes after would queue behind us.
3. One transaction: lock of the view's publishers, catalog rows, the view last; with a short `lock_timeout`, again and
   again with growing, jittered pauses. Nothing is renamed and nothing dropped: the view binds tables, not names.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from pipeline_defs.model.errors import NOTHING_LOST, PublishTimeout, VarveError
from resources.warehouse import view

if TYPE_CHECKING:
    from resources.catalog import Catalog
    from resources.store import Build

_LOCK_TIMEOUT = "set local lock_timeout = '100ms'"
_PUBLISHERS = "select pg_advisory_xact_lock(hashtextextended('view of ' || %s, 0))"
_THIS_TRANSACTION = "select pg_current_xact_id()::xid::text"
# Ages, because transaction ids wrap around.
_OLDER_SNAPSHOTS = """
    select pid, application_name from pg_stat_activity
    where backend_xmin is not null and pid <> pg_backend_pid() and backend_type = 'client backend'
      and datname = current_database() and age(backend_xmin) >= age(%s::xid)
"""
_LONG_HOLDER = """
    select a.pid, a.application_name from pg_locks l join pg_stat_activity a using (pid)
    where l.granted and l.locktype = 'relation' and l.relation = to_regclass(%s)
      and l.database = (select oid from pg_database where datname = current_database())
      and clock_timestamp() - a.xact_start > interval '100 ms' and a.pid <> pg_backend_pid() limit 1
"""
_POLL_SECONDS = 0.02


class ViewBusy(Exception):
    """Somebody has held the view for longer than we may make others wait."""


def publish(catalog: Catalog, build: Build, *, seconds: float) -> None:
    """Publish the staged batches of the build: all of its periods at once, or none.

    Raises PublishTimeout after `seconds`, naming who is in the way, and StalePublish.
    """
    deadline = time.monotonic() + seconds
    _wait_for_snapshots(catalog.connection, build, deadline)
    name = view.view_name(build.dataset).as_string(catalog.connection)
    try:
        for attempt in Retrying(
            retry=retry_if_exception_type((ViewBusy, psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)),
            stop=stop_after_delay(max(deadline - time.monotonic(), 0.001)),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            reraise=True,
        ):
            with attempt:
                _swap(catalog, build, name)
    except (ViewBusy, psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        raise PublishTimeout(
            f"{build}: the view {name} was in use for longer than {seconds:g} s ({error}). {NOTHING_LOST} "
            "Run it again when the reader has finished, or raise VARVE_PUBLISH_SECONDS."
        ) from error


def _wait_for_snapshots(connection: psycopg.Connection, build: Build, deadline: float) -> None:
    row = connection.execute(_THIS_TRANSACTION).fetchone()
    assert row is not None
    while older := connection.execute(_OLDER_SNAPSHOTS, (row[0],)).fetchall():
        if time.monotonic() > deadline:
            who = ", ".join(f"pid {pid} ({application or 'unnamed'})" for pid, application in older[:3])
            raise PublishTimeout(
                f"{build}: a reader's snapshot is older than the load, and would miss the new period: {who}. "
                f"{NOTHING_LOST} Run it again when that transaction has ended, or raise VARVE_PUBLISH_SECONDS."
            )
        time.sleep(_POLL_SECONDS)


def _swap(catalog: Catalog, build: Build, name: str) -> None:
    connection, dataset = catalog.connection, build.dataset
    if held := connection.execute(_LONG_HOLDER, (name,)).fetchone():
        raise ViewBusy(f"pid {held[0]}, {held[1] or 'unnamed'}, holds it")
    with connection.transaction():
        # Before the list of tables is read, and without a timeout: it is held for milliseconds.
        connection.execute(_PUBLISHERS, (dataset.name,))
        connection.execute(_LOCK_TIMEOUT)
        catalog.publish(build)
        first = connection.execute("select to_regclass(%s) is null", (name,)).fetchone() == (True,)
        current = catalog.current(dataset.name)
        try:
            connection.execute(view.create_view(dataset, current.values()))
        except psycopg.errors.InvalidTableDefinition as error:
            raise VarveError(
                f"{build}: the view {name} has other columns than the dataset declares now "
                f"({str(error).splitlines()[0]}). {NOTHING_LOST} New columns go to the end; for anything else drop the "
                "view and what depends on it, and run the partitions again."
            ) from error
        if first:
            for statement in view.comments(dataset):
                connection.execute(statement)
        # The view is this dataset's projection, and has followed in the same transaction.
        catalog.projected(dataset.name, catalog.lagging(dataset.name).values())
