"""What a partition would be made from, beside what its batch was made from.

Not here: what follows from the difference (judging.py).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from varve.planning.judgement.wait_policy import verdict
from varve.planning.run_requests import landing_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.reads import Wait
    from varve.planning.judgement.facts import Fact
    from varve.planning.judgement.judgement import Judgement


class Read(NamedTuple):
    """What a partition reads of one dataset: all that it wants, their facts, and judgements of the unsettled ones."""

    source: str
    wait: Wait
    wanted: Sequence[str]
    facts: Mapping[str, Fact]
    judged: Mapping[str, Judgement]


class Inputs:
    """What a partition would be made from, and whether it is all there."""

    __slots__ = ("changed", "inputs", "newest", "pending", "unready", "until")

    def __init__(
        self, dataset: Dataset, path: str, fact: Fact, reads: Sequence[Read], *, now: float, window_end: float | None
    ) -> None:
        self.unready = ""
        self.until: float | None = None
        self.newest = 0.0
        self.inputs: list[tuple[str, str, str]] = []
        self.pending: list[str] = []
        self.changed = 0
        trace = {(source, partition): version for source, partition, version in fact.trace}
        known = set[tuple[str, str]]()
        if dataset.arrives:
            self._landed(dataset, path, fact, trace, known)
        whole = True
        for read in reads:
            whole &= self._read(read, trace, known, now, window_end)
        # What is not there any more is a change too, unless it is still waited for.
        if whole and fact.batch:
            self.changed += len(trace.keys() - known)

    def _landed(
        self, dataset: Dataset, path: str, fact: Fact, trace: Mapping[tuple[str, str], str], known: set[tuple[str, str]]
    ) -> None:
        source = landing_source(dataset)
        known.add((source, path))
        if not fact.arrival:
            table = dataset.outside
            self.unready = "no landing file has arrived" if table is None else f"{table} has no such partition"
            return
        self.inputs.append((source, path, fact.arrival))
        self.changed += trace.get((source, path)) != fact.arrival

    def _read(
        self,
        read: Read,
        trace: Mapping[tuple[str, str], str],
        known: set[tuple[str, str]],
        now: float,
        window_end: float | None,
    ) -> bool:
        there = 0
        for path in read.wanted:
            if (judged := read.judged.get(path)) is not None and judged.pending:
                self.pending.append(f"{read.source} {path}")
            fact = read.facts.get(path)
            if fact is None or not fact.batch:
                continue
            there += 1
            self.newest = max(self.newest, fact.published)
            version = str(fact.batch)
            self.inputs.append((read.source, path, version))
            known.add((read.source, path))
            made_from = trace.get((read.source, path))
            if made_from != version and (made_from is None or int(made_from) not in fact.equal):
                self.changed += 1
        if there == len(read.wanted):
            return True
        deadline = read.wait.deadline
        said = verdict(
            read.wait,
            wanted=len(read.wanted),
            there=there,
            window_end=None if window_end is None else instant(window_end),
            now=instant(now),
        )
        if deadline is not None and window_end is not None and now < window_end + deadline.total_seconds():
            self.until = min(self.until or float("inf"), window_end + deadline.total_seconds())
        if not said.ready:
            self.unready = f"{read.source}: {said.reason}"
        return said.ready


def is_settled(dataset: Dataset, path: str, fact: Fact, reads: Sequence[Read]) -> bool:
    """Whether nothing is known of a partition but a batch, made from exactly what is current, which is to stay.

    So are nearly all, and `judge` would say the same at ten times the cost.
    """
    if not fact.batch or fact.run or fact.marks or fact.failures or fact.held:
        return False
    trace = {(source, partition): version for source, partition, version in fact.trace}
    count = 0
    if dataset.arrives:
        if trace.get((landing_source(dataset), path)) != fact.arrival:
            return False
        count = 1
    for source, _, wanted, facts, unsettled in reads:
        count += len(wanted)
        for up in wanted:
            known = facts.get(up)
            if known is None or not known.batch or trace.get((source, up)) != str(known.batch):
                return False
            if unsettled and (judged := unsettled.get(up)) is not None and judged.pending:
                return False
    return count == len(trace)


def instant(seconds: float) -> dt.datetime:
    """Seconds since 1970 as a moment in UTC."""
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
