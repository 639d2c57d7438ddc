"""What is still to be said to which channel, and which channels are down.

A message is noted as sent after its channel has taken it. Who is killed between the two sends it again: a channel
gets each opening and each closing at least once, and exactly once otherwise.

Not here: sending (varve/services/channels.py), and the text (varve/planning/operations/digest.py).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.planning.operations.conditions import AlertIdentity, AlertKind
from varve.planning.operations.digest import AlertMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import psycopg

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 60.0, 3_600.0

_LOCK = "select pg_try_advisory_lock(hashtextextended('varve alerts to ' || %s, 0))"
_UNLOCK = "select pg_advisory_unlock(hashtextextended('varve alerts to ' || %s, 0))"
# A channel that is new is told of what is open. Who was not told of the beginning is not told of the end either.
_NOTE = """
    with opened as (
        insert into varve.alert_message (alert, event, channel)
        select a.id, 'opened', c.channel from varve.alert a cross join unnest(%(channels)s::text[]) as c (channel)
        where a.closed_at is null and a.project in ('', %(project)s) on conflict do nothing
    )
    insert into varve.alert_message (alert, event, channel)
    select a.id, 'closed', m.channel from varve.alert a join varve.alert_message m on m.alert = a.id
    where a.closed_at is not null and a.project in ('', %(project)s) and m.event = 'opened'
        and m.channel = any(%(channels)s)
    on conflict do nothing
"""
_WAITING = """
    select a.id, m.event, a.kind, a.dataset, a.subject, a.message,
        extract(epoch from case m.event when 'opened' then a.opened_at else a.closed_at end)::float8 as at
    from varve.alert_message m join varve.alert a on a.id = m.alert
    where m.channel = %s and m.sent_at is null and a.project in ('', %s) order by at, a.id, m.event desc
"""
_SENT = """
    update varve.alert_message m set sent_at = to_timestamp(%s)
    from unnest(%s::bigint[], %s::text[]) as s (alert, event)
    where m.channel = %s and (m.alert, m.event) = (s.alert, s.event)
"""
_UP = "delete from varve.alert_channel_down where channel = %s"
_DOWN = """
    insert into varve.alert_channel_down as d (channel, since, attempts, next_try_at, reason)
    values (%(channel)s, to_timestamp(%(now)s), 1, to_timestamp(%(now)s + %(first)s), %(reason)s)
    on conflict (channel) do update set attempts = d.attempts + 1, reason = excluded.reason,
        next_try_at = to_timestamp(%(now)s + least(%(first)s * power(2, least(d.attempts, 20)), %(last)s))
"""
_IS_DOWN = """
    select channel, extract(epoch from since)::float8, attempts, extract(epoch from next_try_at)::float8, reason
    from varve.alert_channel_down order by channel
"""
_COUNT = """
    select m.channel, count(*) from varve.alert_message m join varve.alert a on a.id = m.alert
    where m.sent_at is null and a.project in ('', %s) group by 1
"""


@dataclass(frozen=True, slots=True)
class ChannelDown:
    """A channel that did not take the last messages: since when, how often it was tried, when it is tried again."""

    channel: str
    since: float
    attempts: int
    next_try_at: float
    reason: str


@dataclass(frozen=True)
class Messages:
    """The messages, over a connection to the catalog in autocommit mode.

    Attributes:
        project: the name of the project whose channels these are; they are told of its alerts only.
    """

    connection: psycopg.Connection
    project: str = ""

    @contextlib.contextmanager
    def sending(self, channel: str) -> Iterator[bool]:
        """Whether this session is the one that sends to the channel now; others leave it to that one."""
        row = self.connection.execute(_LOCK, (channel,)).fetchone()
        is_ours = row is not None and bool(row[0])
        try:
            yield is_ours
        finally:
            if is_ours and not self.connection.closed:
                self.connection.execute(_UNLOCK, (channel,))

    def note(self, channels: Collection[str]) -> None:
        """Note for these channels what they are to be told: what is open, and the end of what they were told of."""
        with self.connection.transaction():
            self.connection.execute(_NOTE, {"channels": list(channels), "project": self.project})

    def waiting(self, channel: str) -> list[AlertMessage]:
        """What is still to be said to the channel, in the order in which it happened."""
        return [
            AlertMessage(alert, event, AlertIdentity(AlertKind(kind), dataset, subject), text, at)
            for alert, event, kind, dataset, subject, text, at in self.connection.execute(
                _WAITING, (channel, self.project)
            )
        ]

    def sent(self, channel: str, messages: Sequence[AlertMessage], now: float) -> None:
        """Note that the channel has taken these messages."""
        alerts, events = [message.alert for message in messages], [message.event for message in messages]
        with self.connection.transaction():
            self.connection.execute(_SENT, (now, alerts, events, channel))
            self.connection.execute(_UP, (channel,))

    def refused(self, channel: str, reason: str, now: float) -> None:
        """Note that the channel has taken nothing, and when it is tried again: later each time, and within an hour."""
        values = {"first": FIRST_RETRY_SECONDS, "last": LAST_RETRY_SECONDS}
        self.connection.execute(_DOWN, {"channel": channel, "reason": reason, "now": now, **values})

    def down(self) -> dict[str, ChannelDown]:
        """The channels that are down, by name."""
        return {row[0]: ChannelDown(*row) for row in self.connection.execute(_IS_DOWN)}

    def counts(self) -> dict[str, int]:
        """How many messages wait for each channel."""
        return dict(self.connection.execute(_COUNT, (self.project,)).fetchall())
