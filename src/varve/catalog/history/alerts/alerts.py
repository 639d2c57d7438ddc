"""Alerts: conditions that hold are opened once, and closed when they hold no more.

Not here: which conditions hold (varve/planning/operations/conditions.py), and what is said of them (messages.py).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.planning.operations.conditions import LOOKED_AT_NO_MORE, AlertIdentity, AlertKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import psycopg

    from varve.planning.operations.conditions import Condition

# Alerts that were closed so long ago are forgotten, with what is still unsaid of them.
FORGOTTEN_AFTER_DAYS = 90

_LOCK = "select pg_try_advisory_lock(hashtextextended('varve alerts', 0))"
_UNLOCK = "select pg_advisory_unlock(hashtextextended('varve alerts', 0))"
_OPEN = """
    insert into varve.alert (kind, dataset, subject, message, opened_at, seen_at, project)
    select kind, dataset, subject, message, to_timestamp(%(now)s), to_timestamp(%(now)s), %(project)s
    from unnest(%(kinds)s::text[], %(datasets)s::text[], %(subjects)s::text[], %(messages)s::text[])
        as c (kind, dataset, subject, message)
    order by kind, dataset, subject
    on conflict (kind, dataset, subject) where closed_at is null
    do update set message = excluded.message, seen_at = excluded.seen_at
    returning xmax = 0
"""
# What another project has opened and looks at no more: of a dataset that is this project's by now, and all of a project
# that owns nothing and has not looked of late, as its name was changed.
_TAKE_OVER = """
    update varve.alert a set project = %(project)s
    where a.closed_at is null and a.project not in ('', %(project)s) and not a.dataset = any(%(untouched)s) and (
        a.dataset in (select dataset from varve.owner where project = %(project)s)
        or not exists (select from varve.owner o where o.project = a.project)
            and not exists (
                select from varve.alert_watch w where w.project = a.project and w.until > clock_timestamp()))
"""
# A window that is looked at no more may still be missing.
_CLOSE = """
    update varve.alert a set closed_at = to_timestamp(%(now)s), message = case
        when a.kind = %(of_windows)s and a.subject <> '' and not (a.dataset, a.subject) in (
            select * from unnest(%(window_datasets)s::text[], %(windows)s::text[]))
        then %(looked_at_no_more)s || a.message else a.message end
    where a.closed_at is null and a.kind = any(%(known)s) and a.project in ('', %(project)s)
        and not a.dataset = any(%(untouched)s)
        and not (a.kind, a.dataset) in (select * from unnest(%(unknown_kinds)s::text[], %(unknown_datasets)s::text[]))
        and not exists (
        select from unnest(%(kinds)s::text[], %(datasets)s::text[], %(subjects)s::text[]) as c (kind, dataset, subject)
        where (c.kind, c.dataset, c.subject) = (a.kind, a.dataset, a.subject))
"""
_FORGET = "delete from varve.alert where closed_at < to_timestamp(%s) - make_interval(days => %s)"
_LIST = """
    select id, kind, dataset, subject, message, extract(epoch from opened_at)::float8,
        extract(epoch from closed_at)::float8
    from varve.alert where closed_at is null or %s order by closed_at is not null, opened_at desc, id desc
"""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; times are in seconds since 1970. `closed_at` is None while its condition holds."""

    number: int
    identity: AlertIdentity
    text: str
    opened_at: float
    closed_at: float | None


@dataclass(frozen=True)
class Alerts:
    """The alerts, over a connection to the catalog in autocommit mode.

    Attributes:
        project: the name of the project that evaluates conditions; what other projects have opened stays as it is,
            as long as it is theirs.
    """

    connection: psycopg.Connection
    project: str = ""

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[bool]:
        """Whether this session is the one that evaluates conditions now; others leave it to that one.

        Facts that were read before those of another session would open again what that one has closed.
        """
        row = self.connection.execute(_LOCK).fetchone()
        is_ours = row is not None and bool(row[0])
        try:
            yield is_ours
        finally:
            if is_ours and not self.connection.closed:
                self.connection.execute(_UNLOCK)

    def update(
        self,
        conditions: Collection[Condition],
        known_kinds: Collection[AlertKind],
        now: float,
        untouched: Collection[str] = (),
        unknown: Collection[tuple[AlertKind, str]] = (),
        *,
        windows_looked_at: Collection[tuple[str, str]] = (),
    ) -> tuple[int, int]:
        """Open what holds at `now` (seconds since 1970) and is not open, close what holds no more.

        Of a window that is not among `windows_looked_at`, by dataset and subject, the closing says that it may still be
        missing.

        Alerts of kinds that are not known are left as they are, or that are `unknown` of one dataset, and those of the
        datasets `untouched`, which belong to other projects or cannot be looked at. Returns how many were opened and
        closed.
        """
        conditions = [condition for condition in conditions if condition.identity.dataset not in untouched]
        identities = [condition.identity for condition in conditions]
        values = {
            "now": now,
            "kinds": [identity.kind.value for identity in identities],
            "datasets": [identity.dataset for identity in identities],
            "subjects": [identity.subject for identity in identities],
            "messages": [condition.text for condition in conditions],
            "project": self.project,
            "untouched": list(untouched),
            "known": [kind.value for kind in known_kinds],
            "of_windows": AlertKind.NOT_FRESH.value,
            "window_datasets": [dataset for dataset, _ in windows_looked_at],
            "windows": [window for _, window in windows_looked_at],
            "looked_at_no_more": LOOKED_AT_NO_MORE,
            "unknown_kinds": [kind.value for kind, _ in unknown],
            "unknown_datasets": [dataset for _, dataset in unknown],
        }
        with self.connection.transaction():
            self.connection.execute(_TAKE_OVER, values)
            opened = sum(is_new for (is_new,) in self.connection.execute(_OPEN, values))
            closed = self.connection.execute(_CLOSE, values).rowcount
            self.connection.execute(_FORGET, (now, FORGOTTEN_AFTER_DAYS))
        return opened, closed

    def list(self, *, closed_too: bool = False) -> list[Alert]:
        """The open alerts, newest first, and after them those that are closed, where they are asked for."""
        return [
            Alert(number, AlertIdentity(AlertKind(kind), dataset, subject), text, opened_at, closed_at)
            for number, kind, dataset, subject, text, opened_at, closed_at in self.connection.execute(
                _LIST, (closed_too,)
            )
        ]
