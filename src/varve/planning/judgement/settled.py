"""Which partitions need no judgement: told in bulk by the facts, or looked at one by one where those cannot.

Nearly all partitions are settled: there is a batch, made from exactly what is current, and nothing else is known. The
first tick of a code server has a million of them to pass over.

Not here: the judgement of the others (judging.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.planning.judgement.facts import BulkFacts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from varve.planning.judgement.facts import Fact, Facts, WantedInputs


def in_bulk(facts: Facts) -> BulkFacts:
    """The facts, with an answer in bulk of their own or with the one that looks at each."""
    return facts if isinstance(facts, BulkFacts) else OneByOne(facts)


@dataclass(frozen=True, slots=True)
class OneByOne:
    """Any facts as `BulkFacts`: the same answers, at the price of all facts."""

    facts: Facts

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """See `Facts`."""
        return self.facts.of(dataset, paths)

    def there(self, dataset: str) -> set[str]:
        """See `BulkFacts`."""
        return {path for path, fact in self.of(dataset, None).items() if fact.batch}

    def unsettled(self, dataset: str, landing: str, reads: Sequence[WantedInputs]) -> set[str]:
        """See `BulkFacts`."""
        above = [self.of(read.source, None) for read in reads]
        return {
            path
            for path, fact in self.of(dataset, None).items()
            if fact.run
            or fact.marks
            or fact.failures
            or fact.held
            or not _is_made_from(path, fact, landing, reads, above)
        }


def _is_made_from(
    path: str, fact: Fact, landing: str, reads: Sequence[WantedInputs], above: Sequence[Mapping[str, Fact]]
) -> bool:
    """Whether there is a batch, made from what is current of all that is wanted, and from nothing else."""
    if not fact.batch:
        return False
    wanted = {(landing, path, fact.arrival)} if landing else set()
    for read, facts in zip(reads, above, strict=True):
        for up in (path,) if read.paths is None else read.paths.get(path, ()):
            if up not in facts or not facts[up].batch:
                return False
            wanted.add((read.source, up, str(facts[up].batch)))
    return len(fact.trace) == len(wanted) and {(one[0], one[1], one[2]) for one in fact.trace} == wanted
