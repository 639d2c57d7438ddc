"""Batches of a new generation that are not computed: taken from the generation to which it goes back, or rewritten.

What comes from outside is never fetched again where the rows that were taken say the same: landing files and tables of
others may be gone. Windows that keep what earlier code has made of them (FORWARD FROM) are never computed with the code
of now. With `everything`, computed datasets are carried over too.

Not here: how a batch is rewritten (varve/stores/environments/rewriting.py), and what is computed (open_environment.py).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations, shape_of
from varve.catalog.environments.earlier_code import EarlierCode
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.catalog.traces import Traces
from varve.dagster.runs.whole import still_whole
from varve.model.errors import VarveError, counted, some
from varve.planning.changes.generation import added_columns, begins_generation, not_rewritable
from varve.stores.environments.rewriting import AT_ONCE, Rewriter
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import psycopg

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.planning.environment_runs import Wanted
    from varve.planning.graph import Graph
    from varve.services.settings import Settings
    from varve.stores.store import Store


@dataclass(frozen=True)
class CarryingOver:
    """Carries the partitions that readers have over into the new generations of an environment.

    Attributes:
        everything: whether batches of computed datasets are rewritten too, where that is possible.
        before: called with a dataset and how many of its partitions are rewritten next.
    """

    connection: psycopg.Connection
    environment: str
    graph: Graph
    settings: Settings
    spark: Callable[[], Any]
    everything: bool = False
    before: Callable[[Dataset, int], None] = lambda dataset, count: None  # noqa: ARG005

    def carry(self, wanted: Wanted) -> tuple[dict[str, int], dict[str, int]]:
        """Do it for the wanted datasets and what they read; how many partitions were rewritten, and taken, by dataset.

        Raises BadInput for a value that would be another one, and what a build raises.
        """
        rewritten, taken = dict[str, int](), dict[str, int]()
        names = set(wanted.datasets) or set(self.graph.datasets)
        names |= {upstream for name in wanted.datasets for upstream in self.graph.upstream(name)}
        for dataset in self.graph.in_order():
            if dataset.name in names:
                for version, missing in self._missing(dataset, wanted).items():
                    if batches := self._earlier(dataset, version, missing):
                        taken[dataset.name] = taken.get(dataset.name, 0) + self._take(dataset, version, batches)
                    left = [batch for path, batch in missing.items() if path not in batches]
                    if left and self._is_rewritten(dataset):
                        count = self._rewrite(dataset, version, left)
                        rewritten[dataset.name] = rewritten.get(dataset.name, 0) + count
        return rewritten, taken

    def rewritable(self, wanted: Wanted) -> dict[str, set[str]]:
        """By dataset the partitions that would be rewritten or taken. Raises as `carry` does."""
        names = set(wanted.datasets) or set(self.graph.datasets)
        names |= {upstream for name in wanted.datasets for upstream in self.graph.upstream(name)}
        missing = {
            dataset.name: {path for batches in self._missing(dataset, wanted).values() for path in batches}
            for dataset in self.graph.in_order() if dataset.name in names and self._is_rewritten(dataset)
        }  # fmt: skip
        return {name: paths for name, paths in missing.items() if paths}

    def read_again(self, names: Collection[str]) -> list[Dataset]:
        """Of these, the datasets of a new generation whose rows from outside cannot be carried over."""
        published = Generations(self.connection).published(sorted(names))
        arriving = [dataset for dataset in self.graph.in_order() if dataset.arrives and dataset.name in published]
        shapes = [(dataset, published[dataset.name].shape, shape_of(dataset)) for dataset in arriving]
        return [
            dataset for dataset, before, after in shapes
            if begins_generation(before, after) and (not self._is_rewritten(dataset) or not_rewritable(before, after))
        ]  # fmt: skip

    def without_values(self, names: Collection[str]) -> dict[str, list[str]]:
        """By dataset the columns of which rewritten batches have no value, as what readers have has no such column."""
        added = {
            name: added_columns(published.shape, shape_of(self.graph.datasets[name]))
            for name, published in Generations(self.connection).published(sorted(names)).items()
        }
        return {name: columns for name, columns in added.items() if columns}

    def _missing(self, dataset: Dataset, wanted: Wanted) -> dict[str, dict[str, Batch]]:
        """What readers have of a dataset with a new generation, and the environment has not, by code and partition.

        Raises VarveError where windows keep what earlier code has made of them, and their rows cannot be carried over.
        """
        generations = Generations(self.connection)
        generation = generations.of_environment(self.environment).get(dataset.name)
        if generation is None or not generation.is_new:
            return {}
        stay = EarlierCode(self.connection, self.environment, self.graph).current(dataset.name)
        everything = self.everything or dataset.arrives or bool(dataset.rejected_of)
        if not (everything or stay):
            return {}
        there = EnvironmentCatalog(self.connection, self.environment).current(dataset.name)
        current = Catalog(self.connection).current(dataset.name)
        # Of what a named dataset reads, everything: which of it, is known when it is planned.
        is_read = wanted.datasets and dataset.name not in wanted.datasets
        is_wanted = (lambda *_: True) if is_read else wanted.includes
        shape = generations.published([dataset.name])[dataset.name].shape
        reason = not_rewritable(shape, shape_of(dataset))
        if reason and not stay:
            return {}
        everything &= not reason
        version = self.graph.code_versions[dataset.name]
        missing: dict[str, dict[str, Batch]] = {}
        for path, batch in current.items():
            if path not in there and (everything or path in stay) and is_wanted(dataset, path):
                missing.setdefault(stay.get(path, version), {})[path] = batch
        if reason:
            # Those of the generation to which it goes back need not be rewritten.
            earlier = {
                path for made_by, batches in missing.items() for path in self._earlier(dataset, made_by, batches)
            }
            if left := [path for batches in missing.values() for path in batches if path not in earlier]:
                raise _cannot_stay(dataset, left, reason)
        return missing

    def _is_rewritten(self, dataset: Dataset) -> bool:
        # The parts of a partition that grows are files that were read: they are read again.
        return dataset.incremental is None

    def _earlier(self, dataset: Dataset, version: str, missing: dict[str, Batch]) -> dict[str, Batch]:
        """Batches that this very code has made from the same inputs, in the generation to which it goes back."""
        inputs = {path: batch.inputs for path, batch in missing.items() if batch.inputs}
        generation = Generations(self.connection).of_environment(self.environment)[dataset.name]
        earlier = Traces(self.connection).equal_batches(
            dataset.name, version, inputs, current_too=True, generation=generation.number
        )
        return still_whole(self._store(dataset), dataset, earlier) if earlier else {}

    def _store(self, dataset: Dataset) -> Store:
        catalog = EnvironmentCatalog(self.connection, self.environment)
        return open_store(dataset.store, self.settings, catalog, self.spark)

    def _take(self, dataset: Dataset, version: str, batches: dict[str, Batch]) -> int:
        catalog = EnvironmentCatalog(self.connection, self.environment)
        store = self._store(dataset)
        keys = [dataset.partitioning.from_path(path) for path in sorted(batches)]
        build = catalog.unlocked(dataset, keys, run_id=f"env-{uuid.uuid4()}", code_version=version)
        store.republish(build, list(batches.values()))
        return len(batches)

    def _rewrite(self, dataset: Dataset, version: str, batches: list[Batch]) -> int:
        published = Generations(self.connection).published([dataset.name])[dataset.name]
        catalog = EnvironmentCatalog(self.connection, self.environment)
        rewriter = Rewriter(
            catalog, dataset, published.shape,
            open_store(published.store, self.settings, Catalog(self.connection), self.spark),
            open_store(dataset.store, self.settings, catalog, self.spark),
        )  # fmt: skip
        for start in range(0, len(batches), AT_ONCE):
            part = batches[start : start + AT_ONCE]
            self.before(dataset, len(part))
            rewriter.rewrite(part, run_id=f"rewrite-{uuid.uuid4()}", code_version=version)
        return len(batches)


def _cannot_stay(dataset: Dataset, stay: Sequence[str], reason: str) -> VarveError:
    return VarveError(
        f"{dataset}: {counted(len(stay), 'partition')} ({some(stay, limit=2)}) of windows before the boundary of its "
        f"FORWARD FROM keep what earlier code has made of them, and those rows cannot be carried over. {reason} "
        "Nothing was computed, and readers see what they saw. With ON CODE CHANGE REBUILD, or an earlier date, all of "
        "it is computed with the code of now."
    )
