"""The facts of a whole graph, asked of the catalog for many datasets at once: for who looks at all of it.

Not here: the facts of one dataset (facts.py), and what is compared (comparing.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog.planning import statements
from varve.catalog.planning.comparing import sources_of, with_notes, with_other_traces, with_other_versions
from varve.planning.judgement.facts import WantedInputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import psycopg

    from varve.planning.judgement.facts import BulkFacts, DatasetInputs, Fact

# One statement about all datasets could not be interrupted for half a minute.
_AT_ONCE = 500


@dataclass(frozen=True)
class FactsTogether:
    """Facts that know already what is said in bulk of some datasets, and ask other facts for all else.

    Attributes:
        existing: by dataset its partitions that have a batch; a dataset that was not asked about is absent.
        unsettled_alone: by dataset the partitions that are unsettled whatever they read.
        other_versions: by dataset that reads only its own paths, the partitions made from other versions.
    """

    facts: BulkFacts
    connection: psycopg.Connection
    existing: Mapping[str, set[str]]
    unsettled_alone: Mapping[str, set[str]]
    other_versions: Mapping[str, set[str]]

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """See `planning.facts.Facts`."""
        return self.facts.of(dataset, paths)

    def existing_partitions(self, dataset: str) -> set[str]:
        """See `planning.facts.BulkFacts`."""
        return self.existing[dataset] if dataset in self.existing else self.facts.existing_partitions(dataset)

    def unsettled(self, dataset: str, landing: str, reads: Sequence[WantedInputs]) -> set[str]:
        """See `planning.facts.BulkFacts`."""
        if dataset not in self.unsettled_alone:
            return self.facts.unsettled(dataset, landing, reads)
        paths = self.unsettled_alone[dataset]
        if dataset in self.other_versions:
            return paths | self.other_versions[dataset]
        return paths | with_other_traces(self.connection, dataset, sources_of(dataset, landing, reads))


def asked_together(
    facts: BulkFacts,
    connection: psycopg.Connection,
    in_flight: Mapping[str, Collection[str]],
    asked: Sequence[DatasetInputs],
    *,
    existing: bool,
) -> FactsTogether:
    """Ask the catalog about these datasets; see `planning.facts.FactsOfGraph`."""
    chunks = [asked[start : start + _AT_ONCE] for start in range(0, len(asked), _AT_ONCE)]
    there: dict[str, set[str]] = {inputs.dataset: set() for inputs in asked} if existing else {}
    for chunk in chunks if existing else ():
        names = [inputs.dataset for inputs in chunk]
        rows = connection.execute(statements.EXISTING_TOGETHER, (names,), binary=True).fetchall()
        there |= {name: set(paths) for name, paths in rows}
    # After those: a partition that is published between the two has no batch yet, and is judged by its facts.
    alone: dict[str, set[str]] = {inputs.dataset: {*in_flight.get(inputs.dataset, ())} for inputs in asked}
    other: dict[str, set[str]] = {inputs.dataset: set() for inputs in asked if inputs.same_path is not None}
    for chunk in chunks:
        for name, paths in with_notes(connection, [inputs.dataset for inputs in chunk]).items():
            alone[name] |= paths
        sources = {
            inputs.dataset: sources_of(
                inputs.dataset, inputs.landing, [WantedInputs(name, None) for name in inputs.same_path]
            )
            for inputs in chunk
            if inputs.same_path is not None
        }
        other |= with_other_versions(connection, sources)
    return FactsTogether(facts, connection, there, alone, other)
