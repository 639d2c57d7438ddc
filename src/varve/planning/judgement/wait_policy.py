"""When a partition has waited long enough for its inputs: all are there, enough of them, or a deadline has passed.

Not here: which inputs it has (varve/planning/mapping/dataset_mapping.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    from varve.model.reads import Wait


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a partition may run without waiting longer for one of its upstream datasets, and why, as a phrase."""

    ready: bool
    reason: str


def verdict(
    wait: Wait, *, wanted: int, present: int, window_end: dt.datetime | None = None, now: dt.datetime | None = None
) -> Verdict:
    """Whether a partition that reads `wanted` partitions, of which `present` are there, may run.

    Args:
        wait: the policy. A policy that can never be met (at least 30 of 24) waits for all instead of for ever.
        wanted: how many existing partitions the reader's partition reads; where it reads none, it may always run.
        present: how many of them have a batch.
        window_end: the end of the reader's window, from which a deadline counts; None: it has no window.
        now: the instant with which the deadline is compared.
    """
    enough = wanted - wait.missing if wait.at_least is None else min(wait.at_least, wanted)
    if present >= wanted:
        return Verdict(ready=True, reason=f"all {wanted} there")
    if present >= max(enough, 1):
        return Verdict(ready=True, reason=f"{present} of {wanted} there, {max(enough, 1)} are enough")
    if present and wait.deadline is not None and window_end is not None and now is not None:
        due = window_end + wait.deadline
        if now >= due:
            return Verdict(ready=True, reason=f"{present} of {wanted} there at the deadline, {due.isoformat()}")
        return Verdict(ready=False, reason=f"{present} of {wanted} there; waits until {due.isoformat()}")
    return Verdict(ready=False, reason=f"{present} of {wanted} there; waits for {max(enough, 1)}")
