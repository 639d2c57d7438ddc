"""`Judgement`: the state that a partition is in, and why.

Not here: how it is come to (judging.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from varve.model.batch import Input


class State(StrEnum):
    """What a partition is in; in words for people."""

    CURRENT = "current"
    MISSING = "missing"
    UPCOMING = "upcoming"
    WAITING = "waiting"
    DUE = "due"
    IN_FLIGHT = "in flight"
    BACKING_OFF = "backing off"
    FAILED = "failed"
    HELD = "held"
    UNWANTED = "unwanted"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be done with a partition, and why.

    Attributes:
        pending: whether its batch is about to change, so that what reads it waits.
        until: when to look again, where nothing else happens.
        inputs: what it would be made from; of a due one only.
        token: what makes another attempt of the same inputs another one; of an unwanted one its batch.
        together: it may be computed with so many others at most, as a run of more has failed; 0: with any number.
        backfill: whether it is due by a mark only.
    """

    state: State
    reason: str
    pending: bool = False
    until: float | None = None
    inputs: frozenset[Input] = frozenset()
    token: str = ""
    together: int = 0
    backfill: bool = False
