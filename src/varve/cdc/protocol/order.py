"""The total order of events: (commit LSN, sequence), and a fallback for events that carry timestamps alone.

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

# Of one instant, without anything better: a key is freed before it is used again.
_RANK = {ChangeType.TRUNCATE: 0, ChangeType.DELETE: 1, ChangeType.INSERT: 2, ChangeType.UPDATE: 3}


def in_order(events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
    """Each event once, in the order of the source, whatever the order and however often they came.

    Raises BadInput where two different events claim one place.
    """
    found: dict[tuple[int, int], ChangeEvent] = {}
    for event in events:
        if found.setdefault(event.order, event) != event:
            raise BadInput(
                f"{event.relation or 'the table'}: two different events at LSN {event.commit_lsn}, sequence "
                f"{event.seq}: {found[event.order]} and {event}. Nothing was applied. Capture them again."
            )
    return [found[order] for order in sorted(found)]


def by_timestamp(events: Sequence[ChangeEvent], *, strict: bool = False) -> tuple[list[ChangeEvent], int]:
    """Events without LSNs, numbered in the order of their timestamps; and how many of them are ambiguous.

    Timestamps compare as numbers or as instants, never as text ('9' before '10'). Of one instant the type of the change
    decides and then the place in the input, which is a convention and no knowledge: changes of one key at one instant
    are counted, and refused with BadInput where `strict`.
    """
    placed = sorted(enumerate(events), key=lambda found: (_instant(found[1]), _RANK[found[1].change_type], found[0]))
    unique: list[ChangeEvent] = []
    seen: set[ChangeEvent] = set()
    for _, event in placed:
        if event not in seen:
            seen.add(event)
            unique.append(event)
    moments: dict[tuple[float, tuple[tuple[str, str | None], ...]], int] = {}
    for event in unique:
        for key in _keys(event, unique):
            moments[_instant(event), key] = moments.get((_instant(event), key), 0) + 1
    clashes = {place for place, count in moments.items() if count > 1}
    ambiguous = sum(any((_instant(event), key) in clashes for key in _keys(event, unique)) for event in unique)
    if ambiguous and strict:
        raise BadInput(
            f"{ambiguous} events change one key at one instant, and nothing says in which order. Nothing was applied. "
            "Capture them with LSNs, or allow the convention: deletes, inserts, updates, each in the input's order."
        )
    return [replace(event, commit_lsn=place, seq=0) for place, event in enumerate(unique, 1)], ambiguous


def _keys(event: ChangeEvent, events: Sequence[ChangeEvent]) -> set[tuple[tuple[str, str | None], ...]]:
    names = event.old_key_names or next((found.old_key_names for found in events if found.old_key_names), ())
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
        found = dt.datetime.fromisoformat(event.timestamp)
    except ValueError as error:
        raise BadInput(
            f"{event.relation or 'the table'}: {event.timestamp!r} is no timestamp of an event. Nothing was applied. "
            "Write ISO 8601 or a number."
        ) from error
    return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp()
