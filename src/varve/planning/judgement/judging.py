"""The judgement of one partition: a pure function of its own facts, of what it reads, and of now.

A partition is due when it is missing, marked dirty, or made from inputs that are not current any more. An input that
was published again with the same rows counts as the same (early cutoff). A due partition waits while one of its inputs
is about to change.

Not here: its inputs (inputs.py), and which partitions are judged and when (tick.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from varve.model.batch import Input
from varve.model.errors import counted, some
from varve.model.partitions.texts import length_text
from varve.model.policy import OnUpstreamChange
from varve.planning.judgement.code import SAME_CODE, CodeState, MadeBy, hold_reason, is_outdated, keeps_earlier
from varve.planning.judgement.inputs import Inputs, instant
from varve.planning.judgement.judgement import SETTLED, Judgement, State
from varve.planning.reasons import ARRIVED, NOTHING_TO_READ, RE_SENT, UNCHANGED

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Sequence

    from varve.model.dataset import Dataset
    from varve.planning.judgement.facts import Fact, Failure
    from varve.planning.judgement.inputs import Read
    from varve.planning.reasons import ChangedInputs


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How failures are met.

    Attributes:
        attempts: a partition is given up after so many failures alone with the same inputs.
        first, most: seconds to wait after the first failure, doubled by each further one, and at most.
        outage: seconds at most where a service is away, which comes back without a sign.
    """

    attempts: int = 3
    first: float = 30.0
    most: float = 3_600.0
    outage: float = 600.0

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        return min(self.most, self.first * 2.0 ** min(failures - 1, 40))

    def after_outages(self, outages: int) -> float:
        """Seconds to wait after so many runs for which a service was away."""
        return min(self.outage, self.after(outages))


_AWAY = "what it needs was away, full or in use"
_BY_EARLIER_CODE = "; by earlier code, which stays for windows before the boundary of FORWARD FROM"
_EMPTY_OR_KEEP = "`varve backfill start` computes it without, `varve accept` keeps it as it is"
_OUTDATED = "made by other code than is deployed"
_OUTDATED_ON_HOLD = f"{_OUTDATED}; `varve apply --rebuild` or `--forward-from` decides what follows"


def judge(  # noqa: PLR0911, PLR0912 - one for each state
    dataset: Dataset,
    path: str,
    fact: Fact,
    reads: Sequence[Read],
    *,
    now: float,
    patience: RetryLimits,
    window_end: float | None = None,
    refreshed_since: float | None = None,
    code: CodeState = SAME_CODE,
    scheduled_at: float | None = None,
    may_empty: Collection[str] = (),
) -> Judgement:
    """The judgement of one partition that the graph has.

    `window_end` is where its window ends, if that matters; `refreshed_since` when the last window was complete, for one
    of the newest of a dataset that refreshes them; `code` says which code of the dataset is deployed;
    `scheduled_at` when its schedule lets it be computed, if not now; `may_empty` names what may empty its readers: a
    batch of whose inputs none is a partition any more is followed by an empty one where one was of these datasets.
    """
    if fact.run:
        away = _last_outages(fact.failures)
        return Judgement(State.IN_FLIGHT, f"run {fact.run[:8]} is on it", pending=True, outages=away)
    if _is_before(dataset, fact, window_end, code):
        at = instant(code.since).isoformat(timespec="seconds")
        reason = f"its window was over when its dataset was first deployed, {at}, and CATCHUP is OFF"
        return Judgement(State.MISSING, f"{reason}; `varve backfill` computes it")
    inputs = Inputs(dataset, path, fact, reads, now=now, window_end=window_end, may_empty=may_empty)
    if dataset.rejected_of:
        return _rejected_rows(dataset, fact, pending=bool(inputs.pending))
    if dataset.of_project:
        return _of_project(dataset, fact)
    cause = _cause(dataset, fact, inputs, refreshed_since, code, alone=needs_no_input(dataset, reads=bool(reads)))
    if cause is None:
        if fact.batch and code.evolving == dataset.name:
            return Judgement(State.OUTDATED, hold_reason(code, fact.made_by, marked=False))
        if fact.batch and fact.made_by == MadeBy.OTHER:
            return Judgement(State.OUTDATED, _OUTDATED_ON_HOLD)
        if fact.batch:
            return _settled(dataset, inputs, fact, earlier_code=keeps_earlier(code, fact.made_by))
        if reads:
            return Judgement(State.MISSING, NOTHING_TO_READ)
        return Judgement(State.MISSING, "it reads nothing: it runs by schedules, by hand and in backfills")
    if cause.on_hold:
        return Judgement(State.ON_HOLD, cause.reason)
    if inputs.unready and inputs.never_ready and fact.batch:
        return Judgement(State.ON_HOLD, f"{cause.reason}, but its batch stays: {inputs.unready}")
    if inputs.unready:
        has_nothing = not (fact.batch or fact.marks or inputs.inputs or inputs.pending)
        return Judgement(
            State.MISSING if has_nothing else State.WAITING,
            f"{cause.reason}, and waits: {inputs.unready}",
            until=inputs.until,
        )
    if inputs.pending:
        reason = f"{cause.reason}, and waits for {some(inputs.pending, limit=3)}"
        return Judgement(State.WAITING, reason, pending=True, until=inputs.until)
    # A backfill that is paused launches nothing, and gives no other cause a reason to.
    marks = [mark for mark in fact.marks if not mark.paused]
    if on_hold := hold_reason(code, fact.made_by, marked=bool(marks)):
        return Judgement(State.ON_HOLD, f"{cause.reason}, but {on_hold}")
    if inputs.past:
        if not marks:
            return Judgement(
                State.ON_HOLD, f"{cause.reason}, but {_past(inputs)}; `varve backfill` computes it without"
            )
        cause = replace(cause, reason=f"{cause.reason}, although {_past(inputs)}", changed=UNCHANGED)
    if scheduled_at is not None and not (marks or cause.backfill):
        at = instant(scheduled_at).isoformat(timespec="seconds")
        return Judgement(State.WAITING, f"{cause.reason}, and waits for its schedule until {at}", until=scheduled_at)
    asked = max([fact.arrived, cause.period, *(mark.number / 1000 for mark in marks)])
    since, rows_since = max(inputs.newest, asked), max(inputs.newest_rows, asked)
    return _allowed(dataset, fact, cause, inputs, code, since=since, rows_since=rows_since, now=now, patience=patience)


def needs_no_input(dataset: Dataset, *, reads: bool) -> bool:
    """Whether each key of a dataset is computed, also one of which no input is there; `reads`: whether it reads any."""
    # A tick computes each key of a list or a set, also one that reads nothing. Windows follow what they read.
    has_ticks = dataset.policy.schedule is not None and not (reads and dataset.partitioning.time is not None)
    return has_ticks or (dataset.policy.by_itself and not reads)


def _is_before(dataset: Dataset, fact: Fact, window_end: float | None, code: CodeState) -> bool:
    """Whether a window is left alone, because it was over before its dataset was deployed (CATCHUP OFF)."""
    if dataset.policy.catchup or fact.batch or window_end is None or any(not mark.paused for mark in fact.marks):
        return False
    return window_end <= code.since


def _rejected_rows(dataset: Dataset, fact: Fact, *, pending: bool) -> Judgement:
    """The judgement of rejected rows, which never have runs of their own: runs of the landing dataset write them."""
    if fact.batch:
        return Judgement(State.CURRENT, f"written by the runs of {dataset.rejected_of}", pending=pending)
    return Judgement(State.MISSING, f"no run of {dataset.rejected_of} has written it", pending=pending)


def _of_project(dataset: Dataset, fact: Fact) -> Judgement:
    """The judgement of what another project computes. What was marked there is about to change, as it would be here."""
    who, pending = f"project {dataset.of_project}", any(not mark.paused for mark in fact.marks)
    if not fact.batch:
        return Judgement(State.MISSING, f"{who} has not computed it", pending=pending)
    return Judgement(State.CURRENT, f"computed by {who}", pending=pending)


@dataclass(frozen=True, slots=True)
class _ComputeReason:
    """Why a partition should be computed; with `on_hold` the reason why it is not computed although it should be.

    `period` is when the last window or tick was for which it is computed, `code` when the code was deployed for which
    it is computed again.
    """

    reason: str
    on_hold: bool = False
    backfill: bool = False
    period: float = 0.0
    code: float = 0.0
    changed: ChangedInputs = UNCHANGED


def _settled(dataset: Dataset, inputs: Inputs, fact: Fact, *, earlier_code: bool) -> Judgement:
    judgement = _settled_by_inputs(dataset, inputs, fact)
    return replace(judgement, reason=f"{judgement.reason}{_BY_EARLIER_CODE}") if earlier_code else judgement


def _settled_by_inputs(dataset: Dataset, inputs: Inputs, fact: Fact) -> Judgement:
    if inputs.accepted:
        reason = f"accepted as it is, although {some(inputs.accepted, limit=2)} changed, by {fact.accepted[-1].reason}"
        waits = bool(inputs.pending) and dataset.policy.on_upstream_change is OnUpstreamChange.REBUILD
        return Judgement(State.ACCEPTED, reason, pending=waits, until=inputs.until)
    # An input may get the same rows again. Else this partition changes too, and a reader of both would run twice.
    if inputs.pending and dataset.policy.on_upstream_change is OnUpstreamChange.REBUILD:
        reason = f"{SETTLED.reason}, of which {some(inputs.pending, limit=1)} is about to change"
        return Judgement(State.CURRENT, reason, pending=True, until=inputs.until)
    reason = SETTLED.reason
    if inputs.spared:
        reason = f"spared: nothing that it reads of {some(inputs.spared, limit=2)} has changed"
    elif inputs.late:
        late = some(inputs.late, limit=2)
        reason = f"kept as it is: {late} changed longer after its window than {length_text(_within(dataset))}"
    elif inputs.until is None:
        return SETTLED
    return Judgement(State.CURRENT, reason, until=inputs.until)


def _within(dataset: Dataset) -> dt.timedelta:
    assert dataset.policy.rebuild_within is not None, "inputs are late for a policy only"
    return dataset.policy.rebuild_within


def _cause(
    dataset: Dataset, fact: Fact, inputs: Inputs, refreshed_since: float | None, code: CodeState, *, alone: bool
) -> _ComputeReason | None:
    """Why the partition should be computed; None where there is no reason."""
    changed = _changed(dataset, fact, inputs, alone=alone)
    if changed is not None and not changed.on_hold:
        return changed
    if marks := [mark for mark in fact.marks if not mark.paused]:
        return _ComputeReason(f"dirty: {marks[-1].reason}", backfill=True)
    if fact.batch and refreshed_since is not None and fact.batch / 1000 < refreshed_since:
        refreshed = "refreshed, as another window is complete"
        if dataset.policy.schedule is not None and dataset.partitioning.time is None:
            refreshed = f"scheduled: {dataset.policy.schedule}"
        return _ComputeReason(refreshed, period=refreshed_since)
    # Other code computes again what there is to compute from.
    if _is_outdated(fact, code) and (inputs.may_empty or not inputs.emptied):
        return _ComputeReason(_OUTDATED, backfill=True)
    if fact.marks:
        return _ComputeReason(
            f"dirty: {fact.marks[-1].reason}; backfill {fact.marks[-1].backfill} is paused", on_hold=True
        )
    return changed


def _changed(dataset: Dataset, fact: Fact, inputs: Inputs, *, alone: bool) -> _ComputeReason | None:
    if not fact.batch:
        # A partition without any input is not missing: it runs by schedules.
        wanted = inputs.inputs or inputs.unready or alone
        return _ComputeReason(_first_batch(dataset, inputs)) if wanted else None
    # A dataset that reads nothing any more follows nothing.
    if not inputs.changed or not (inputs.inputs or inputs.unready or inputs.emptied):
        return None
    if dataset.arrives and not inputs.unready:
        return _ComputeReason(f"changed in {dataset.external}" if dataset.external else f"{dataset.table} {RE_SENT}")
    change = inputs.changed.in_words(dataset, len(inputs.inputs))
    if inputs.emptied and not inputs.may_empty:
        # A slip in a declaration must not empty what reads it: that is for a person to say.
        return _ComputeReason(f"{change}, and nothing else is read; {_EMPTY_OR_KEEP}", on_hold=True)
    if dataset.policy.on_upstream_change is OnUpstreamChange.HOLD:
        return _ComputeReason(f"{change}, and its policy is to hold", on_hold=True)
    return _ComputeReason(change, changed=inputs.changed)


def _past(inputs: Inputs) -> str:
    """That inputs of the batch cannot be read again, as a phrase."""
    return (
        f"{some(inputs.past, limit=2)}, of which it was made, {'is' if len(inputs.past) == 1 else 'are'} past retention"
    )


def _first_batch(dataset: Dataset, inputs: Inputs) -> str:
    """Why a partition without a batch is computed; "missing" where it is not computed yet."""
    if inputs.unready or inputs.pending:
        return "missing"
    if dataset.arrives:
        return f"new in {dataset.external}" if dataset.external else f"{dataset.table} {ARRIVED}"
    return "first batch"


def _is_outdated(fact: Fact, code: CodeState) -> bool:
    return bool(fact.batch) and is_outdated(code, fact.made_by)


def _allowed(
    dataset: Dataset,
    fact: Fact,
    cause: _ComputeReason,
    inputs: Inputs,
    code: CodeState,
    *,
    since: float,
    rows_since: float,
    now: float,
    patience: RetryLimits,
) -> Judgement:
    """Due, unless a person or failures since the newest of its inputs keep the partition from being computed.

    An input that was published again with the same rows lifts no person's hold. It gives further attempts: what failed
    may have been its files.
    """
    # A clock went back, or that of PostgreSQL is ahead of ours: until ours is as far, it is not known which inputs or
    # which code a failure had, so that every failure counts.
    by_inputs, by_rows, by_decision, by_code = (
        at if at <= now else 0.0 for at in (since, rows_since, code.deployed_at, code.changed_at)
    )
    outdated = _is_outdated(fact, code)
    # Who deploys code that computes it again does so also where somebody had gone back to this batch before. But not
    # from what came from outside after this batch: that is what the person has taken back.
    by_person = by_rows if (dataset.arrives and inputs.changed) or not outdated else max(by_rows, by_decision)
    if fact.rolled_back > by_person:
        waits_for = "another file" if dataset.landing else "a newer input"
        reason = f"{cause.reason}, but a person took its batch back; waits for {waits_for}"
        judgement = Judgement(State.ON_HOLD, reason)
    else:
        cause = replace(cause, code=by_decision) if outdated else cause
        # The same code with another decision would fail as it did: only other code gives it further attempts.
        judgement = _tried(fact, cause, inputs, since=max(by_inputs, by_code), now=now, patience=patience)
    later = [at for at in (since, code.deployed_at, code.changed_at, judgement.until or 0.0) if at > now]
    return replace(judgement, until=min(later)) if later else judgement


def _tried(
    fact: Fact, cause: _ComputeReason, inputs: Inputs, *, since: float, now: float, patience: RetryLimits
) -> Judgement:
    """Due, or not yet after failures. Only failures of the partition alone count against it; larger runs are halved.

    Where a service was away, it is tried again for as long as that lasts.
    """
    tried = [failure for failure in fact.failures if failure.began > since]
    failures = [failure for failure in tried if not failure.outage]
    alone = sum(failure.together == 1 for failure in failures)
    if alone >= patience.attempts:
        return Judgement(
            State.FAILED,
            f"{cause.reason}, but {alone} attempts failed; waits for new inputs, other code or `varve backfill start`",
        )
    if (away := _last_outages(tried)) and now < (until := tried[-1].ended + patience.after_outages(away)):
        at = instant(until).isoformat(timespec="seconds")
        reason = f"{cause.reason}, but {_AWAY} in the last {counted(away, 'attempt')}; tried again at {at}"
        return Judgement(State.BACKING_OFF, reason, pending=True, until=until, outages=away)
    if failures and now < (until := failures[-1].ended + patience.after(len(failures))):
        at = instant(until).isoformat(timespec="seconds")
        reason = f"{cause.reason}, but {counted(len(failures), 'attempt')} failed; tried again at {at}"
        return Judgement(State.BACKING_OFF, reason, pending=True, until=until)
    token = "/".join(
        [
            *([f"f{fact.failures[-1].began:.3f}"] if fact.failures else []),
            *[f"m{mark.number}" for mark in fact.marks if not mark.paused][-1:],
            *([f"r{cause.period:.0f}"] if cause.period else []),
            *([f"c{cause.code:.3f}"] if cause.code else []),
        ]
    )
    return Judgement(
        State.DUE,
        cause.reason,
        pending=True,
        inputs=frozenset(Input(*fields) for fields in inputs.inputs),
        token=token,
        together=max(1, failures[-1].together // 2) if failures else 0,
        backfill=cause.backfill,
        changed=cause.changed,
        outages=away,
    )


def _last_outages(failures: Sequence[Failure]) -> int:
    """How many of the last failures were outages."""
    return sum(1 for _ in takewhile(lambda failure: failure.outage, reversed(failures)))
