"""The inputs from which a partition would be made now, compared with the inputs of its batch.

Not here: what follows from the difference (judging.py).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from varve.planning.judgement.code import MadeBy
from varve.planning.judgement.wait_policy import verdict
from varve.planning.reasons import ChangedInputs, InputName
from varve.planning.run_requests import landing_source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.reads import Wait
    from varve.planning.judgement.facts import Fact
    from varve.planning.judgement.judgement import Judgement


# After every deadline.
_END_OF_TIME = dt.datetime.max.replace(tzinfo=dt.UTC)


class Read(NamedTuple):
    """What a partition reads of one upstream: the paths, their facts, and the judgements of those not settled.

    `columns` is the set of columns that a run of the reader gets (see `column_set`); None: all columns. Batches
    that were published at `last_change` or later are not followed; None: all are. `is_past` says which of the paths are
    past the retention of the upstream; None: none is. With `of_window`, what is read follows the reader's window: an
    input whose retention is over stays an input of the batch that was made from it.
    """

    source: str
    wait: Wait
    wanted: Sequence[str]
    facts: Mapping[str, Fact]
    judged: Mapping[str, Judgement]
    columns: str | None = None
    last_change: float | None = None
    is_past: Callable[[str], bool] | None = None
    of_window: bool = False


class Inputs:
    """The inputs from which a partition would be made, which of them changed, and whether all of them are there."""

    __slots__ = (
        "_accepted",
        "_awaited",
        "_new",
        "accepted",
        "changed",
        "emptied",
        "inputs",
        "late",
        "may_empty",
        "never_ready",
        "newest",
        "newest_rows",
        "past",
        "pending",
        "spared",
        "unready",
        "until",
    )

    def __init__(
        self,
        dataset: Dataset,
        path: str,
        fact: Fact,
        reads: Sequence[Read],
        *,
        now: float,
        window_end: float | None,
        may_empty: Collection[str] = (),
    ) -> None:
        self.unready = ""
        # Whether it stays unready, whatever comes: too many of the missing inputs are past their retention.
        self.never_ready = False
        self.until: float | None = None
        # When the newest of its inputs was published, and since when one has the rows that it has.
        self.newest = self.newest_rows = 0.0
        self.inputs: list[tuple[str, str, str]] = []
        self.pending: list[str] = []
        # Inputs of the batch whose retention is over. They are not gone: the batch holds what became of them.
        self.past: list[str] = []
        # Inputs that have other rows, but not in the columns that are read.
        self.spared: list[str] = []
        # Inputs that have other rows, so long after the window that its partition does not follow them.
        self.late: list[str] = []
        # Inputs that have changed, and with which a person has accepted the batch as it is.
        self.accepted: list[str] = []
        self._accepted = {acceptance[:3] for acceptance in fact.accepted}
        self._awaited = {acceptance[:2] for acceptance in fact.accepted if acceptance.version is None}
        self._new: set[InputName] = set()
        trace = {(source, partition): version for source, partition, version in fact.trace}
        seen = set[tuple[str, str]]()
        if dataset.arrives:
            self._landed(dataset, path, fact, trace, seen)
        whole, not_followed = True, set[str]()
        for read in reads:
            # A batch of earlier code may have been made from other columns.
            by_columns = read.columns is not None and fact.made_by == MadeBy.DEPLOYED
            within = dataset.policy.rebuilds_within(read.source)
            last_change = None if within is None or window_end is None or not fact.batch else window_end + within
            columns = read.columns if by_columns else None
            if last_change is not None and now >= last_change:
                not_followed.add(read.source)
            whole &= self._read(read._replace(columns=columns, last_change=last_change), trace, seen, now, window_end)
        # An input that is not there any more is a change too, unless the partition still waits for it.
        gone = [
            InputName(*name) for name in sorted(trace.keys() - seen)
            if whole and fact.batch and name[0] not in not_followed and not self._is_accepted(*name, "")
        ]  # fmt: skip
        self.changed = ChangedInputs(frozenset(self._new), frozenset(gone))
        self.may_empty = any(name.source in may_empty for name in gone)
        # Whether what it was made of is no partition any more, and nothing else is read; retention alone empties none.
        self.emptied = not (self.inputs or self.unready) and any(not _retired(name, reads) for name in gone)

    def _landed(
        self, dataset: Dataset, path: str, fact: Fact, trace: Mapping[tuple[str, str], str], seen: set[tuple[str, str]]
    ) -> None:
        source = landing_source(dataset)
        seen.add((source, path))
        if not fact.arrival:
            table = dataset.external
            self.unready = "no landing file has arrived" if table is None else f"{table} has no such partition"
            return
        self.inputs.append((source, path, fact.arrival))
        if trace.get((source, path)) != fact.arrival and not self._is_accepted(source, path, fact.arrival):
            self._new.add(InputName(source, path))

    def _is_accepted(self, source: str, path: str, version: str) -> bool:
        """Whether the batch was accepted although the input has this version now; notes it where it was."""
        if (source, path, version) not in self._accepted:
            return False
        self.accepted.append(f"{source} {path}")
        return True

    def _is_past(self, read: Read, path: str, trace: Mapping[tuple[str, str], str], seen: set[tuple[str, str]]) -> bool:
        """Whether a missing input is past its retention; notes it where the batch was made from it."""
        if read.is_past is None or not read.is_past(path):
            return False
        if read.of_window and (read.source, path) in trace:
            seen.add((read.source, path))
            self.past.append(f"{read.source} {path}")
        return True

    def _read(
        self,
        read: Read,
        trace: Mapping[tuple[str, str], str],
        seen: set[tuple[str, str]],
        now: float,
        window_end: float | None,
    ) -> bool:
        present = past = 0
        for path in read.wanted:
            follows = read.last_change is None or now < read.last_change
            judgement = read.judged.get(path) if follows else None
            if judgement is not None and judgement.pending and (read.source, path) not in self._awaited:
                self.pending.append(f"{read.source} {path}")
                if read.last_change is not None:
                    # From then on it is not followed any more.
                    self.until = min(self.until or float("inf"), read.last_change)
            fact = read.facts.get(path)
            if fact is None or not fact.batch:
                past += self._is_past(read, path, trace, seen)
                continue
            present += 1
            rows_since = fact.rows_since or fact.published
            self.newest = max(self.newest, fact.published)
            self.newest_rows = max(self.newest_rows, rows_since)
            version = str(fact.batch)
            self.inputs.append((read.source, path, version))
            seen.add((read.source, path))
            made_from = trace.get((read.source, path))
            if made_from == version or (made_from is not None and int(made_from) in fact.equal):
                continue
            if made_from is not None and _same_columns(fact, int(made_from), read.columns):
                self.spared.append(f"{read.source} {path}")
            elif any(self._is_accepted(read.source, path, same) for same in (version, *map(str, fact.equal))):
                # Those of a published input with the same rows count as well.
                continue
            elif read.last_change is not None and rows_since >= read.last_change:
                self.late.append(f"{read.source} {path}")
            else:
                self._new.add(InputName(read.source, path))
        if present == len(read.wanted):
            return True
        deadline = read.wait.deadline
        end = None if window_end is None else instant(window_end)
        wait_verdict = verdict(read.wait, wanted=len(read.wanted), present=present, window_end=end, now=instant(now))
        if deadline is not None and window_end is not None and now < window_end + deadline.total_seconds():
            self.until = min(self.until or float("inf"), window_end + deadline.total_seconds())
        if not wait_verdict.ready:
            self._note_unready(read, f"{read.source}: {wait_verdict.reason}{_will_not_come(past)}", past, end)
        return wait_verdict.ready

    def _note_unready(self, read: Read, reason: str, past: int, end: dt.datetime | None) -> None:
        """Note why it waits; what will never be there comes before what may come."""
        wanted = len(read.wanted)
        never = not verdict(read.wait, wanted=wanted, present=wanted - past, window_end=end, now=_END_OF_TIME).ready
        if never or not self.never_ready:
            self.unready = reason
        self.never_ready |= never


def _retired(name: InputName, reads: Sequence[Read]) -> bool:
    """Whether the retention of an input is over, or its dataset is not read any more."""
    of_source = [read for read in reads if read.source == name.source]
    return not of_source or any(read.is_past is not None and read.is_past(name.path) for read in of_source)


def _will_not_come(past: int) -> str:
    """What is said of so many missing inputs that are past the retention of their dataset."""
    if not past:
        return ""
    return f", though {past} of the others will not come, past {'its' if past == 1 else 'their'} retention"


def _same_columns(fact: Fact, batch: int, columns: str | None) -> bool:
    """Whether the current batch has the same rows in these columns as another batch of its partition."""
    return columns is not None and fact.equal_in is not None and batch in fact.equal_in.get(columns, ())


def is_settled(dataset: Dataset, path: str, fact: Fact, reads: Sequence[Read]) -> bool:
    """Whether the only fact of a partition is a batch that was made from exactly the current inputs.

    Nearly all partitions are like this; `judge` would come to the same result at ten times the cost.
    """
    if not fact.batch or fact.run or fact.marks or fact.failures or fact.rolled_back or fact.made_by == MadeBy.OTHER:
        return False
    if fact.accepted:
        return False
    trace = {(source, partition): version for source, partition, version in fact.trace}
    count = 0
    if dataset.arrives:
        if trace.get((landing_source(dataset), path)) != fact.arrival:
            return False
        count = 1
    for source, _, wanted, facts, unsettled, _, _, _, _ in reads:
        count += len(wanted)
        for upstream_path in wanted:
            upstream_fact = facts.get(upstream_path)
            if (
                upstream_fact is None
                or not upstream_fact.batch
                or trace.get((source, upstream_path)) != str(upstream_fact.batch)
            ):
                return False
            if unsettled and (judgement := unsettled.get(upstream_path)) is not None and judgement.pending:
                return False
    return count == len(trace)


def instant(seconds: float) -> dt.datetime:
    """Seconds since 1970 as a datetime in UTC."""
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
