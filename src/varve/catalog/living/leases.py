"""Leases say which runs live: the catalog has one for each run, which the run's own process renews.

A lease is kept for a process that is starting, is taken by it, and is given back at its end; or it expires, is missed,
and is lost. A lost lease is never renewed, and what its run would publish is refused. Only the server's clock counts.
Why a lease and not a lock: docs/decisions/0012. Its life as a machine, explored whole: docs/decisions/0018-models.md.

Not here: renewing (varve/dagster/leases/heartbeat.py), and what Dagster is told (varve/dagster/internal).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from varve.model.errors import NOTHING_LOST, LeaseLost

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection

# A process renews its lease three times in a term. Two looks at an expired lease leave time for one renewal.
BEATS_A_TERM = 3
# How many terms a process that is starting has before it must have taken its lease.
_TERMS_TO_COME_UP = 2
_TERMINATE_MILLISECONDS = 5_000

_KEEP = """
    insert into varve.lease (run_id, holder, taken, term, expires_at)
    select run_id, %s, false, %s * interval '1 second', clock_timestamp() + %s * interval '1 second'
    from unnest(%s::text[]) as run_id
    on conflict do nothing
"""
# A lease that was lost before any process took it may still be taken: its run has written and locked nothing.
_TAKE = """
    insert into varve.lease as l (run_id, holder, taken, term, expires_at)
    select run_id, holder, true, term, clock_timestamp() + term
    from (values (%s, %s, %s * interval '1 second')) as given (run_id, holder, term)
    on conflict (run_id) do update set
        holder = case when l.taken then l.holder else excluded.holder end,
        taken_at = case when l.taken then l.taken_at else clock_timestamp() end,
        taken = true, term = excluded.term, renewed_at = clock_timestamp(),
        expires_at = clock_timestamp() + excluded.term, missed_at = null, lost_at = null, lost_because = ''
    where l.lost_at is null or not l.taken
"""
_WITHDRAW = "delete from varve.lease where run_id = any(%s) and holder = %s and not taken and lost_at is null"
_GIVE_BACK = "delete from varve.lease where run_id = %s and lost_at is null"
_END = """
    update varve.lease set lost_at = clock_timestamp(), lost_because = %s, taken = true
    where run_id = %s and lost_at is null
"""
_MISS = """
    update varve.lease set missed_at = clock_timestamp()
    where lost_at is null and missed_at is null and expires_at < clock_timestamp()
"""
_OVERDUE = """
    select run_id from varve.lease
    where lost_at is null and expires_at < clock_timestamp() and missed_at + term / %(beats)s < clock_timestamp()
"""
# Rows that a publish has locked (_CHECK) are skipped: its run lives. A renewal in between is seen too.
_LOSE = """
    update varve.lease set lost_at = clock_timestamp(), lost_because = %(because)s
    where run_id in (
        select run_id from varve.lease
        where run_id = any(%(runs)s) and lost_at is null and expires_at < clock_timestamp()
          and missed_at + term / %(beats)s < clock_timestamp()
        for update skip locked
    )
"""
_LOST = "select run_id from varve.lease where run_id = any(%s) and lost_at is not null"
_FORGET = "delete from varve.lease where lost_at < clock_timestamp() - interval '30 days'"
# Renewals do not wait for this lock; whoever declares the run dead does.
_CHECK = """
    select holder, taken, taken_at, renewed_at, expires_at, lost_at, lost_because from varve.lease
    where run_id = %s for key share
"""
_OF = """
    select holder, taken, taken_at, renewed_at, expires_at, lost_at, lost_because from varve.lease where run_id = %s
"""
# Every session that builds for a run holds a shared lock of the run's name, by which `sessions` finds it.
MARK_SESSION = "select pg_advisory_lock_shared(hashtextextended('sessions of run ' || %s, 0))"
UNMARK_SESSION = "select pg_advisory_unlock_shared(hashtextextended('sessions of run ' || %s, 0))"
_SESSIONS = """
    select distinct l.pid from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.pid <> pg_backend_pid()
      and l.database = (select oid from pg_database where datname = current_database())
      and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('sessions of run ' || %s, 0)
    order by l.pid
"""
_TERMINATE = "select pg_terminate_backend(%s, %s)"
_EXPIRED = "it did not renew its lease"


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of one run. All times are of the server's clock, in UTC.

    Attributes:
        holder: the process and its host, or who has launched the run.
        taken: whether the run's own process has taken it.
        renewed_at: its last sign of life.
        lost_at: since when the run counts as dead; None where it lives or may live.
    """

    run_id: str
    holder: str
    taken: bool
    taken_at: dt.datetime
    renewed_at: dt.datetime
    expires_at: dt.datetime
    lost_at: dt.datetime | None
    lost_because: str


@dataclass(frozen=True)
class Leases:
    """The leases in the catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def keep(self, run_ids: Collection[str], holder: str, term: float) -> None:
        """Begin the leases of runs whose processes are starting, where they have none; `term` is in seconds."""
        if run_ids:
            self.connection.execute(_KEEP, (holder, term, term * _TERMS_TO_COME_UP, sorted(run_ids)))

    def withdraw(self, run_ids: Collection[str], holder: str) -> None:
        """Take back what was kept under this holder's name for runs whose processes have not begun."""
        if run_ids:
            self.connection.execute(_WITHDRAW, (sorted(run_ids), holder))

    def take(self, run_id: str, holder: str, term: float) -> bool:
        """Take or renew the lease of a run for `term` seconds from now. Returns False where it is lost for good."""
        return self.connection.execute(_TAKE, (run_id, holder, term)).rowcount == 1

    def give_back(self, run_id: str) -> None:
        """End the lease of a run that has ended by itself."""
        self.connection.execute(_GIVE_BACK, (run_id,))

    def end(self, run_id: str, because: str) -> None:
        """End the lease of a run that others have ended: whatever its process still does, it publishes nothing."""
        self.connection.execute(_END, (because, run_id))

    def of(self, run_id: str) -> Lease | None:
        """The lease of a run; None where it has none: it has not begun, or it has ended."""
        row = self.connection.execute(_OF, (run_id,)).fetchone()
        return None if row is None else Lease(run_id, *row)

    def may_note(self) -> bool:
        """Whether this server takes notes: who only looks may ask a standby."""
        row = self.connection.execute("select pg_is_in_recovery()").fetchone()
        return row is not None and not row[0]

    def dead_runs(self, run_ids: Collection[str], *, notes: bool = True) -> set[str]:
        """Which of these runs count as dead.

        Before it answers, it marks the expired leases of all runs: as missed at the first look, as lost at a later one.
        Without `notes` it marks none.
        """
        if notes:
            self._note_expired()
        return {run_id for (run_id,) in self.connection.execute(_LOST, (sorted(run_ids),)).fetchall()}

    def _note_expired(self) -> None:
        self.connection.execute(_MISS)
        beats = {"beats": BEATS_A_TERM}
        if overdue := [run_id for (run_id,) in self.connection.execute(_OVERDUE, beats).fetchall()]:
            for run_id in overdue:
                # First: a frozen process may be in the middle of its publish, whose lock would keep us from the row.
                self.end_sessions(run_id)
            self.connection.execute(_LOSE, {"runs": overdue, "because": _EXPIRED, **beats})
            self.connection.execute(_FORGET)

    def sessions(self, run_id: str) -> list[int]:
        """The process ids (of the server) of the sessions in which the run builds."""
        return [pid for (pid,) in self.connection.execute(_SESSIONS, (run_id,)).fetchall()]

    def refuse_lost(self, run_id: str, action: str) -> None:
        """Raise LeaseLost where the run counts as dead; nobody can declare it dead until the transaction ends.

        `action` is what the run is doing, for the message.
        """
        row = self.connection.execute(_CHECK, (run_id,)).fetchone()
        if row is not None and (lease := Lease(run_id, *row)).lost_at is not None:
            raise lease_lost(lease, action)

    def end_sessions(self, run_id: str) -> None:
        """End the sessions in which a dead run builds, and with them its locks, as far as we may."""
        for pid in self.sessions(run_id):
            # Where we may not, the partitions stay locked, and the next build of them names the holder.
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                self.connection.execute(_TERMINATE, (pid, _TERMINATE_MILLISECONDS))


def describe_holder(leases: Leases, run_id: str) -> str:
    """Describes a run that holds partitions, beginning with a comma; empty for a run without a lease."""
    lease = leases.of(run_id)
    if lease is None:
        return ""
    if lease.lost_at is None:
        return f", {lease.holder}, last sign of life {lease.renewed_at:%H:%M:%S}"
    pids = ", ".join(f"select pg_terminate_backend({pid})" for pid in leases.sessions(run_id))
    return f", {lease.holder}, which counts as dead, but whose session we may not end: {pids or 'it is ending now'}"


def lease_lost(lease: Lease, action: str) -> LeaseLost:
    """The error for a run that counts as dead and goes on nevertheless; `action` is what it was doing."""
    return LeaseLost(
        f"{action}: run {lease.run_id} ({lease.holder}) has counted as dead since {lease.lost_at:%Y-%m-%d %H:%M:%S} UTC"
        f": {lease.lost_because}; its last sign of life was at {lease.renewed_at:%H:%M:%S}. {NOTHING_LOST} Other runs "
        "may have built the partition since: run it again where `varve why` says that it is due."
    )
