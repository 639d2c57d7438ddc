"""Which partitions need no judgement: the facts answer for all at once, or the partitions are compared one by one.

Nearly all partitions are settled: their only fact is a batch that was made from exactly the current inputs. The first
tick of a code server passes over a million of them.

Not here: the judgement of the others (judging.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.planning.judgement.code import MadeBy
from varve.planning.judgement.facts import BulkFacts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from varve.planning.judgement.facts import Fact, Facts, WantedInputs


def in_bulk(facts: Facts) -> BulkFacts:
    """The facts as `BulkFacts`: with their own answer for many partitions, or with one that compares each partition."""
    return facts if isinstance(facts, BulkFacts) else OneByOne(facts)


@dataclass(frozen=True, slots=True)
class OneByOne:
    """Any facts as `BulkFacts`: it gives the same answers, but must read all facts."""

    facts: Facts

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """See `Facts`."""
        return self.facts.of(dataset, paths)

    def existing_partitions(self, dataset: str) -> set[str]:
        """See `BulkFacts`."""
        return {path for path, fact in self.of(dataset, None).items() if fact.batch}

    def unsettled(self, dataset: str, landing: str, reads: Sequence[WantedInputs]) -> set[str]:
        """See `BulkFacts`."""
        upstream_facts = [self.of(read.source, None) for read in reads]
        return {
            path
            for path, fact in self.of(dataset, None).items()
            if fact.run
            or fact.marks
            or fact.failures
            or fact.rolled_back
            or fact.made_by == MadeBy.OTHER
            or not _is_made_from(path, fact, landing, reads, upstream_facts)
        }


def _is_made_from(
    path: str, fact: Fact, landing: str, reads: Sequence[WantedInputs], upstream_facts: Sequence[Mapping[str, Fact]]
) -> bool:
    """Whether there is a batch that was made from the current batches of all its inputs, and from nothing else."""
    if not fact.batch:
        return False
    wanted = {(landing, path, fact.arrival)} if landing else set()
    for read, facts in zip(reads, upstream_facts, strict=True):
        for upstream_path in (path,) if read.paths is None else read.paths.get(path, ()):
            if upstream_path not in facts or not facts[upstream_path].batch:
                return False
            wanted.add((read.source, upstream_path, str(facts[upstream_path].batch)))
    return (
        len(fact.trace) == len(wanted)
        and {(source, partition, version) for source, partition, version in fact.trace} == wanted
    )
