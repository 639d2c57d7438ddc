"""The total order of events: (commit LSN, sequence), and a fallback for events that have only timestamps.

Not here: what an order is used for (resolve/resolve.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from varve.cdc.event import ChangeEvent, ChangeType
from varve.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

# The order of events with the same timestamp: a key is deleted before it is inserted again.
_RANK = {ChangeType.TRUNCATE: 0, ChangeType.DELETE: 1, ChangeType.INSERT: 2, ChangeType.UPDATE: 3}


def in_order(events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
    """Each event once, in the order of the source, whatever the order and number in which the events came.

    Raises BadInput where two different events have the same place.
    """
    event_at: dict[tuple[int, int], ChangeEvent] = {}
    for event in events:
        if event_at.setdefault(event.order, event) != event:
            raise BadInput(
                f"{event.relation or 'the table'}: two different events at LSN {event.commit_lsn}, sequence "
                f"{event.seq}: {event_at[event.order]} and {event}. Nothing was applied. Capture them again."
            )
    return [event_at[order] for order in sorted(event_at)]


def by_timestamp(events: Sequence[ChangeEvent], *, strict: bool = False) -> tuple[list[ChangeEvent], int]:
    """Events without LSNs, numbered in the order of their timestamps, and the number of ambiguous events.

    Timestamps are compared as numbers or as instants, never as text ('9' is before '10'). Events with the same
    timestamp are ordered by the type of the change and then by their place in the input. This is only a convention:
    changes of one key at one instant are ambiguous; they are counted, and with `strict` refused with BadInput.
    """
    placed = sorted(enumerate(events), key=lambda place: (_instant(place[1]), _RANK[place[1].change_type], place[0]))
    unique: list[ChangeEvent] = []
    seen_events: set[ChangeEvent] = set()
    for _, event in placed:
        if event not in seen_events:
            seen_events.add(event)
            unique.append(event)
    changes_of_key: dict[tuple[float, tuple[tuple[str, str | None], ...]], int] = {}
    for event in unique:
        for key in _keys(event, unique):
            changes_of_key[_instant(event), key] = changes_of_key.get((_instant(event), key), 0) + 1
    clashes = {place for place, count in changes_of_key.items() if count > 1}
    ambiguous = sum(any((_instant(event), key) in clashes for key in _keys(event, unique)) for event in unique)
    if ambiguous and strict:
        raise BadInput(
            f"{ambiguous} events change one key at one instant, and nothing says in which order. Nothing was applied. "
            "Capture them with LSNs, or allow the convention: deletes, inserts, updates, each in the input's order."
        )
    return [replace(event, commit_lsn=place, seq=0) for place, event in enumerate(unique, 1)], ambiguous


def _keys(event: ChangeEvent, events: Sequence[ChangeEvent]) -> set[tuple[tuple[str, str | None], ...]]:
    names = event.old_key_names or next((other.old_key_names for other in events if other.old_key_names), ())
    keys = {tuple(event.old_key.items())} if event.old_key else set()
    if names and set(names) <= set(event.column_names):
        keys.add(tuple((name, event.new[name]) for name in names))
    return keys


def _instant(event: ChangeEvent) -> float:
    try:
        return float(event.timestamp)
    except ValueError:
        pass
    try:
        timestamp = dt.datetime.fromisoformat(event.timestamp)
    except ValueError as error:
        raise BadInput(
            f"{event.relation or 'the table'}: {event.timestamp!r} is no timestamp of an event. Nothing was applied. "
            "Write ISO 8601 or a number."
        ) from error
    return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=dt.UTC)).timestamp()
