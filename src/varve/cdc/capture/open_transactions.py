"""Waiting for transactions and locks of other users of the source, with messages and with a time limit.

Not here: the commands that must wait (new_slot.py, bootstrap.py).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg

from varve.model.errors import ServiceUnavailable, counted, some

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varve.cdc.captured_table import CapturedTable

# A user without the right to see the sessions of others sees at least the process id and the user of a session.
_SESSIONS = """
    select a.pid, a.usename::text, a.application_name, a.datname::text, a.xact_start::timestamptz(0)::text,
           extract(epoch from clock_timestamp() - a.xact_start)::bigint, a.state,
           left(regexp_replace(a.query, '\\s+', ' ', 'g'), 80)
    from pg_stat_activity a
    where a.pid = any(%(pids)s)
       or %(others)s and a.backend_xid is not null and a.xact_start < to_timestamp(%(since)s)
          and a.application_name <> 'varve cdc'
    order by a.xact_start nulls last
"""
_PREPARED = """
    select gid, owner::text, database::text, prepared::timestamptz(0)::text,
           extract(epoch from clock_timestamp() - prepared)::bigint
    from pg_prepared_xacts where %(others)s and prepared < to_timestamp(%(since)s) order by prepared
"""
_BLOCKING = "select pg_blocking_pids(%s)"
# Locks that keep a table from being published or read: those of commands that change or vacuum it.
_HOLDERS = """
    select array_agg(distinct pid) from pg_locks
    where locktype = 'relation' and relation = %s and granted and pid <> pg_backend_pid()
      and mode in ('ShareUpdateExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
# A shorter wait than this needs no message.
_QUIET_SECONDS = 2.0


@dataclass
class WaitLimits:
    """The time limit for waiting for others, and the messages meanwhile.

    Attributes:
        connection: a connection to ask the source for its sessions, while another connection waits.
        seconds: the time limit of one wait.
        say: called with a message that names the sessions, when a wait takes longer and again when they change.
    """

    captured: CapturedTable
    connection: psycopg.Connection
    seconds: float
    say: Callable[[str], None] = lambda _: None
    _began: float = field(default_factory=time.monotonic)
    _since: float = field(default_factory=time.time)
    _mentioned: str = ""

    def start(self) -> None:
        """Begin a new wait."""
        self._began, self._since, self._mentioned = time.monotonic(), time.time(), ""

    @property
    def over(self) -> bool:
        """Whether the time limit has passed."""
        return time.monotonic() - self._began > self.seconds

    def mention_transactions(self, waiting_pid: int) -> None:
        """Name the transactions for which that session waits, unless they were named or the wait is still short."""
        if time.monotonic() - self._began > _QUIET_SECONDS:
            self._mention(self._transactions(waiting_pid))

    def mention_locks(self, oid: int) -> None:
        """Name the sessions that hold a lock on the table."""
        self._mention(self._sessions(self._holders(oid), others=False))

    def transactions_error(self, waiting_pid: int) -> ServiceUnavailable:
        """The error that ends a wait for transactions; it must be made while that session still waits."""
        return self._error("transactions of the source that are open", self._transactions(waiting_pid))

    def locks_error(self, oid: int) -> ServiceUnavailable:
        """The error that ends a wait for a lock."""
        return self._error(
            f"a lock on {self.captured.source} that others have", self._sessions(self._holders(oid), others=False)
        )

    def with_lock(self, oid: int, attempt: Callable[[], None]) -> None:
        """Call `attempt`, which needs a lock on the table, in a transaction of its own, until it gets the lock."""
        self.start()
        while True:
            try:
                with self.connection.transaction():
                    self.connection.execute("set local lock_timeout = '1s'")
                    attempt()
            except psycopg.errors.LockNotAvailable:
                if self.over:
                    raise self.locks_error(oid) from None
                self.mention_locks(oid)
            else:
                return

    def _mention(self, sessions: Sequence[str]) -> None:
        text = some(sessions, limit=3)
        if text and text.partition(",")[0] != self._mentioned:
            self._mentioned = text.partition(",")[0]
            self.say(f"{self.captured.dataset}: the source makes us wait, {self.seconds:g} s at most, for {text}")

    def _error(self, waits_for: str, sessions: Sequence[str]) -> ServiceUnavailable:
        who = some(sessions, limit=5) or "sessions that are not to be seen by this user"
        return ServiceUnavailable(
            f"{self.captured.dataset}: no snapshot was taken: for {self.seconds:g} s it waited for {waits_for}: {who}. "
            "Nothing of it was left at the source. End them there (select pg_terminate_backend(PID); ROLLBACK PREPARED "
            "for a prepared one), or run it again when they have ended; VARVE_BOOTSTRAP_SECONDS says how long it waits."
        )

    def _holders(self, oid: int) -> list[int]:
        row = self.connection.execute(_HOLDERS, (oid,)).fetchone()
        return list(row[0] or []) if row else []

    def _transactions(self, waiting_pid: int) -> list[str]:
        row = self.connection.execute(_BLOCKING, (waiting_pid,)).fetchone()
        return self._sessions(list(row[0]) if row else [], others=True)

    def _sessions(self, pids: list[int], *, others: bool) -> list[str]:
        values = {"pids": pids, "since": self._since, "others": others}
        described = []
        for pid, user, application, database, since, seconds, state, query in self.connection.execute(
            _SESSIONS, values
        ):
            age = f", its transaction open since {since} ({counted(seconds, 'second')})" if since else ""
            described.append(
                f"pid {pid} (user {user}, application {application or 'unnamed'}, database {database}{age}, "
                f"{state or 'state not to be seen'}: {query})"
            )
        for gid, owner, database, since, seconds in self.connection.execute(_PREPARED, values):
            described.append(
                f"the prepared transaction {gid!r} (user {owner}, database {database}, since {since}, "
                f"{counted(seconds, 'second')})"
            )
        return described
