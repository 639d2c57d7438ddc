"""Whether a new generation has what readers had of the one before: what it lacks is found, and why.

Where partitions are the same ones, each that readers have must be there. Else what the old batches were made from
tells: a new batch must have been made from each of those inputs, and no partition may wait. Of rows from outside, whose
files may be cut otherwise too, there must be as many.

Not here: whether what is promoted was made from what is current (closure.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations, shape_of
from varve.catalog.planning.facts import CatalogFacts
from varve.model.errors import counted
from varve.planning.changes.generation import has_same_partitions
from varve.planning.judgement.judgement import State
from varve.planning.run_requests import landing_source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import psycopg

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Graph

# A partition in one of these states has no batch of the new generation, and computing would not give it one now.
_NOT_YET = {State.WAITING, State.UPCOMING, State.ON_HOLD}
_GONE = "readers have it, and the new generation has not"


@dataclass(frozen=True, slots=True)
class Former:
    """What readers have of a dataset that moves to another generation.

    Attributes:
        paths: the partitions that readers have.
        batches: what they have of each, where the new generation has other partitions; else None.
        files: of a dataset that arrives, by partition the version of the file of which they have the rows.
    """

    paths: Collection[str]
    batches: Mapping[str, Batch] | None
    files: Mapping[str, str] = field(default_factory=dict)


def former(connection: psycopg.Connection, graph: Graph, names: Collection[str]) -> dict[str, Former]:
    """What readers have of each of these datasets, before they move."""
    published, facts = Generations(connection).published(names), CatalogFacts(connection)
    result = {}
    for name in names:
        if name not in published:
            result[name] = Former((), None)
        elif has_same_partitions(published[name].shape, shape_of(graph.datasets[name])):
            files = files_of(connection, graph.datasets[name])
            result[name] = Former(facts.existing_partitions(name), None, files)
        else:
            batches = Catalog(connection).current(name)
            result[name] = Former(batches.keys(), batches)
    return result


def files_of(connection: psycopg.Connection, dataset: Dataset) -> dict[str, str]:
    """By partition the version of the file, or table of others, of which the current batch has the rows."""
    if not dataset.arrives:
        return {}
    source = landing_source(dataset)
    return {
        path: read.version
        for path, batch in Catalog(connection).current(dataset.name).items()
        for read in batch.inputs if (read.source, read.partition) == (source, path)
    }  # fmt: skip


@dataclass(frozen=True)
class Completeness:
    """Asked over one connection, in whose transaction readers have been moved."""

    connection: psycopg.Connection
    graph: Graph
    members: Members
    formers: Mapping[str, Former]

    def lacking(self, name: str, there: Collection[str], judgements: Mapping[str, tuple[State, str]]) -> dict[str, str]:
        """What readers would miss of a dataset, by partition of the new generation or else of the old one, and why.

        `there` are the partitions that are promoted, or can be computed before that.
        """
        dataset, before = self.graph.datasets[name], self.formers[name]
        waiting = {
            path: reason for path, (state, reason) in judgements.items()
            if state in _NOT_YET and path not in there and (path in before.paths or before.batches is not None)
        }  # fmt: skip
        never: dict[str, str] = {}
        if before.batches is None:
            never = dict.fromkeys(sorted(set(before.paths) - set(there) - waiting.keys()), _GONE)
        elif not dataset.rejected_of:
            never = dict(self._not_covered(dataset, before.batches, set(waiting)))
        # What waits for nothing comes first: of many only some are shown.
        return never | waiting

    def never_made(self, name: str, paths: Collection[str]) -> dict[str, str]:
        """What readers have of a dataset, and would not have once all of these partitions are there, and why.

        Of one that arrives nobody can say which rows its files will have.
        """
        dataset, before = self.graph.datasets[name], self.formers[name]
        if before.batches is None:
            return dict.fromkeys(sorted(set(before.paths) - set(paths)), _GONE)
        if dataset.arrives or dataset.rejected_of:
            return {}
        return dict(self._unread(dataset, before.batches, self._wanted_by(dataset, paths), is_any=bool(paths)))

    def _not_covered(
        self, dataset: Dataset, before: Mapping[str, Batch], waiting: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        now = Catalog(self.connection).current(dataset.name)
        if dataset.arrives:
            rows, rows_before = (sum(batch.rows for batch in batches.values()) for batches in (now, before))
            if rows < rows_before:
                yield "", f"it has {counted(rows, 'row')} where readers have {rows_before:,}"
            return
        made_from = {(read.source, read.partition) for batch in now.values() for read in batch.inputs}
        made_from |= self._wanted_by(dataset, waiting)
        yield from self._unread(dataset, before, made_from, is_any=bool(now))

    def _unread(
        self, dataset: Dataset, before: Mapping[str, Batch], made_from: Collection[tuple[str, str]], *, is_any: bool
    ) -> Iterator[tuple[str, str]]:
        """Yield the partitions that were made from what the new generation is not made from."""
        # Partitions of an upstream that is cut otherwise itself cannot be found again.
        sources = {
            edge.upstream.name for edge in self.graph.edges[dataset.name]
            if edge.upstream.name not in self.formers or self.formers[edge.upstream.name].batches is None
        }  # fmt: skip
        for path, batch in sorted(before.items()):
            unread = sorted(
                (read.source, read.partition)
                for read in batch.inputs
                if read.source in sources and (read.source, read.partition) not in made_from
            )
            if unread:
                source, partition = unread[0]
                yield path, f"it was made from {source} {partition}, from which nothing of the new generation is made"
            elif not is_any:
                yield path, _GONE

    def _wanted_by(self, dataset: Dataset, paths: Collection[str]) -> set[tuple[str, str]]:
        """The upstream partitions that these partitions read."""
        keys = [dataset.partitioning.from_path(path) for path in paths]
        return {
            (edge.upstream.name, upstream.path)
            for edge in (self.graph.edges[dataset.name] if keys else ())
            for mapped in edge.dependency.upstream_of_each(keys, members=self.members)
            for upstream in mapped.keys
        }
