"""The text of a message: everything that is to be said to a channel at one time, in one message.

Not here: what is said when (varve/catalog/history/alerts/messages.py), and sending it (varve/services/channels.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pendulum

from varve.model.errors import cut
from varve.planning.operations.conditions import LOOKED_AT_NO_MORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.planning.operations.conditions import AlertIdentity

OPENED, CLOSED = "opened", "closed"
_LISTED = 30
_LONGEST_LINE = 300


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """That an alert has begun or ended. `event` is `opened` or `closed`; `at` is when, in seconds since 1970."""

    alert: int
    event: str
    identity: AlertIdentity
    text: str
    at: float

    def __str__(self) -> str:
        where = " ".join(part for part in (self.identity.dataset, self.identity.subject) if part)
        moment = pendulum.from_timestamp(self.at).format("YYYY-MM-DD HH:mm [UTC]")
        is_told = self.event == OPENED or self.text.startswith(LOOKED_AT_NO_MORE)
        details = f": {self.text}" if is_told else ""
        return f"{self.event} {moment}: {self.identity.kind}{f' {where}' if where else ''}{details}"


class Digest(NamedTuple):
    """A message to a channel."""

    title: str
    body: str


def digest(messages: Sequence[AlertMessage]) -> Digest:
    """One message of all of them, oldest first; of many only the first are listed, and the others counted."""
    opened = sum(message.event == OPENED for message in messages)
    counts = ((opened, OPENED), (len(messages) - opened, CLOSED))
    title = "Varve: " + ", ".join(f"{count} {event}" for count, event in counts if count)
    lines = [cut(str(message), _LONGEST_LINE) for message in messages[:_LISTED]]
    if len(messages) > _LISTED:
        lines.append(f"and {len(messages) - _LISTED} more; `varve alerts --all` lists them.")
    return Digest(title, "\n".join(lines))
