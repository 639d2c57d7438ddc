"""When a partition has waited long enough for what it reads (seed 003; Airflow's wait policies, and a deadline).

Not here: what it reads (mapping/dataset_mapping.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    from varve.model.reads import Wait


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a partition need not wait for one of the datasets it reads any more, and why, in words."""

    ready: bool
    reason: str


def verdict(
    wait: Wait, *, wanted: int, there: int, window_end: dt.datetime | None = None, now: dt.datetime | None = None
) -> Verdict:
    """Whether `there` of `wanted` partitions are enough.

    Args:
        wait: the policy. One that can never hold (at least 30 of 24) waits for all instead of for ever.
        wanted: how many existing partitions the reader's partition reads; none is always enough.
        there: how many of them have a batch.
        window_end: where the reader's window ends, for a deadline; None: it has no window.
        now: the moment that the deadline is compared with.
    """
    enough = wanted - wait.missing if wait.at_least is None else min(wait.at_least, wanted)
    if there >= wanted:
        return Verdict(ready=True, reason=f"all {wanted} there")
    if there and there >= enough:
        return Verdict(ready=True, reason=f"{there} of {wanted} there, {max(enough, 1)} are enough")
    if there and wait.deadline is not None and window_end is not None and now is not None:
        due = window_end + wait.deadline
        if now >= due:
            return Verdict(ready=True, reason=f"{there} of {wanted} there at the deadline, {due.isoformat()}")
        return Verdict(ready=False, reason=f"{there} of {wanted} there; waits until {due.isoformat()}")
    return Verdict(ready=False, reason=f"{there} of {wanted} there; waits for {max(enough, 1)}")
