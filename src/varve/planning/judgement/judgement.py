"""`Judgement`: the state that a partition is in, and why.

Not here: how it is decided (judging.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from varve.planning.reasons import UNCHANGED

if TYPE_CHECKING:
    from varve.model.batch import Input
    from varve.planning.reasons import ChangedInputs


class State(StrEnum):
    """The state of a partition; the values are shown to people."""

    CURRENT = "current"
    ACCEPTED = "accepted"
    MISSING = "missing"
    UPCOMING = "upcoming"
    WAITING = "waiting"
    DUE = "due"
    IN_FLIGHT = "in flight"
    BACKING_OFF = "backing off"
    FAILED = "failed"
    ON_HOLD = "on hold"
    OUTDATED = "outdated"
    UNWANTED = "unwanted"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The state of a partition, the reason, and what a run of it would need.

    Attributes:
        pending: whether its batch is about to change, so that its readers wait.
        until: when to judge it again although nothing else happened, in seconds since 1970.
        inputs: the inputs from which it would be made; only for a due partition.
        token: makes another attempt with the same inputs a different one; for an unwanted partition its batch id,
            if it has a batch.
        together: the largest number of partitions in its run, as a larger run has failed; 0: no limit.
        backfill: whether only a mark of a backfill makes it due.
        changed: the inputs for which it is due; none where it is due for another reason.
        outages: how many of the last attempts came to nothing because what it needs was away, full or in use.
    """

    state: State
    reason: str
    pending: bool = False
    until: float | None = None
    inputs: frozenset[Input] = frozenset()
    token: str = ""
    together: int = 0
    backfill: bool = False
    changed: ChangedInputs = UNCHANGED
    outages: int = 0


# Of a partition whose only fact is a batch that was made from exactly the current inputs, as nearly all are.
SETTLED = Judgement(State.CURRENT, "made from what is current")
