"""The judgement of one partition: a pure function of its own facts, of what it reads, and of now.

A partition is due when it is missing, marked dirty, or made from something else than what is current (early cutoff: a
batch with the same rows is the same), and ready when nothing that it reads is about to change.

Not here: what it reads (inputs.py), and which partitions are looked at, and when (tick.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.batch import Input
from varve.model.errors import counted, some
from varve.model.policy import OnUpstreamChange
from varve.planning.judgement.inputs import Inputs, instant
from varve.planning.judgement.judgement import Judgement, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.dataset import Dataset
    from varve.planning.judgement.facts import Fact
    from varve.planning.judgement.inputs import Read


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How failures are met.

    Attributes:
        attempts: a partition is given up after so many failures alone with the same inputs.
        first, most: seconds to wait after the first failure, doubled by each further one, and at most.
    """

    attempts: int = 3
    first: float = 30.0
    most: float = 3_600.0

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        return min(self.most, self.first * 2.0 ** min(failures - 1, 40))


_CURRENT = Judgement(State.CURRENT, "made from what is current")


def judge(  # noqa: PLR0911 - one for each state
    dataset: Dataset,
    path: str,
    fact: Fact,
    reads: Sequence[Read],
    *,
    now: float,
    patience: RetryLimits,
    window_end: float | None = None,
    refreshed_since: float | None = None,
) -> Judgement:
    """The judgement of one partition that the graph has.

    `window_end` is where its window ends, if that matters; `refreshed_since` when the last window was complete, for one
    of the newest of a dataset that refreshes them.
    """
    if fact.run:
        return Judgement(State.IN_FLIGHT, f"run {fact.run[:8]} is on it", pending=True)
    found = Inputs(dataset, path, fact, reads, now=now, window_end=window_end)
    if dataset.rejected_of:
        return _rejected_rows(dataset, fact, pending=bool(found.pending))
    cause = _cause(dataset, fact, found, refreshed_since)
    if cause is None:
        if fact.batch:
            return _settled(dataset, found)
        return Judgement(State.MISSING, "it reads nothing: it runs by schedules, by hand and in backfills")
    if cause.held:
        return Judgement(State.HELD, cause.reason)
    if found.unready:
        nothing = not (fact.batch or fact.marks or found.inputs or found.pending)
        return Judgement(
            State.MISSING if nothing else State.WAITING,
            f"{cause.reason}, and waits: {found.unready}",
            until=found.until,
        )
    if found.pending:
        return Judgement(State.WAITING, f"{cause.reason}, and waits for {some(found.pending, limit=3)}", pending=True)
    since = max([found.newest, fact.arrived, cause.period, *(mark.number / 1000 for mark in fact.marks)])
    if since > now:
        # A clock went back: nobody knows which inputs a failure had, and so it counts.
        since = 0.0
    if fact.held > since:
        return Judgement(State.HELD, f"{cause.reason}, but a person took its batch back; waits for a newer input")
    return _tried(fact, cause, found, since=since, now=now, patience=patience)


def _rejected_rows(dataset: Dataset, fact: Fact, *, pending: bool) -> Judgement:
    """Of rejected rows: no run of their own is ever due, and they change when those that were taken do."""
    if fact.batch:
        return Judgement(State.CURRENT, f"written by the runs of {dataset.rejected_of}", pending=pending)
    return Judgement(State.MISSING, f"no run of {dataset.rejected_of} has written it", pending=pending)


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a partition should be computed; `held`: why it should be, and is not."""

    reason: str
    held: bool = False
    backfill: bool = False
    period: float = 0.0


def _settled(dataset: Dataset, found: Inputs) -> Judgement:
    # What it reads may come out as it was; else it changes too, and what reads both would run twice.
    if found.pending and dataset.policy.on_upstream_change is OnUpstreamChange.REBUILD:
        reason = f"{_CURRENT.reason}, of which {some(found.pending, limit=1)} is about to change"
        return Judgement(State.CURRENT, reason, pending=True, until=found.until)
    return _CURRENT if found.until is None else Judgement(State.CURRENT, _CURRENT.reason, until=found.until)


def _cause(dataset: Dataset, fact: Fact, found: Inputs, refreshed_since: float | None) -> _Cause | None:
    """Why the partition should be computed; None where there is no reason."""
    changed = _changed(dataset, fact, found)
    if changed is not None and not changed.held:
        return changed
    if marks := [mark for mark in fact.marks if not mark.held]:
        return _Cause(f"dirty: {marks[-1].reason}", backfill=True)
    if fact.batch and refreshed_since is not None and fact.batch / 1000 < refreshed_since:
        return _Cause("refreshed, as another window is complete", period=refreshed_since)
    if fact.marks:
        return _Cause(f"dirty: {fact.marks[-1].reason}; backfill {fact.marks[-1].backfill} is paused", held=True)
    return changed


def _changed(dataset: Dataset, fact: Fact, found: Inputs) -> _Cause | None:
    if not fact.batch:
        # One without any input is not missed: it runs by schedules.
        return _Cause("missing") if found.inputs or found.unready or dataset.policy.by_itself else None
    # A dataset that reads nothing any more has nothing to follow.
    if not found.changed or not (found.inputs or found.unready):
        return None
    if dataset.arrives and not found.unready:
        return _Cause(f"changed in {dataset.outside}" if dataset.outside else "re-sent")
    said = f"{found.changed} input{'s' if found.changed > 1 else ''} changed"
    if dataset.policy.on_upstream_change is OnUpstreamChange.HOLD:
        return _Cause(f"{said}, and its policy is to hold", held=True)
    return _Cause(said)


def _tried(fact: Fact, cause: _Cause, found: Inputs, *, since: float, now: float, patience: RetryLimits) -> Judgement:
    """Due, or not now after failures: only those alone count as the partition's own; a larger run is halved."""
    failures = [failure for failure in fact.failures if failure.began > since]
    alone = sum(failure.together == 1 for failure in failures)
    if alone >= patience.attempts:
        return Judgement(State.FAILED, f"{cause.reason}, but {alone} attempts failed; waits for other inputs or a mark")
    if failures and now < (until := failures[-1].ended + patience.after(len(failures))):
        at = instant(until).isoformat(timespec="seconds")
        reason = f"{cause.reason}, but {counted(len(failures), 'attempt')} failed; tried again at {at}"
        return Judgement(State.BACKING_OFF, reason, pending=True, until=until)
    token = "/".join(
        [
            *([f"f{fact.failures[-1].began:.3f}"] if fact.failures else []),
            *([f"m{fact.marks[-1].number}"] if fact.marks else []),
            *([f"r{cause.period:.0f}"] if cause.period else []),
        ]
    )
    return Judgement(
        State.DUE,
        cause.reason,
        pending=True,
        inputs=frozenset(Input(*each) for each in found.inputs),
        token=token,
        together=max(1, failures[-1].together // 2) if failures else 0,
        backfill=cause.backfill,
    )
