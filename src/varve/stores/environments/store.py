"""`EnvironmentStore`: a store for builds within an environment.

Batches are staged, verified and read as everywhere; a publish moves pointers in the catalog, and no view and no
table of production follows.

Not here: the pointers (varve/catalog/environments/overlay.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from varve.catalog.environments.overlay import EnvironmentCatalog
    from varve.catalog.history.drops import DroppedDataset
    from varve.model.batch import Batch, BatchId, Hashes, StagedBatch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.inventory import Finding, Leftover, StoreInventory
    from varve.stores.store import Store


@dataclass(frozen=True)
class EnvironmentStore:
    """A store as an environment uses it.

    Attributes:
        store: where the batches lie.
        catalog: that of the environment; the store has the same one.
    """

    store: Store
    catalog: EnvironmentCatalog

    def stage(self, build: Build, frame: DataFrame) -> Sequence[StagedBatch]:
        """See `Store.stage`."""
        return self.store.stage(build, frame)

    def verify(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """See `Store.verify`."""
        self.store.verify(build, staged)

    def publish(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """See `Store.publish`: the overlay points at the batches."""
        del staged
        self.commit([build], partial(self.catalog.publish, build))

    def commit(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """See `Store.commit`: the overlay changes, and what shows it to readers of the environment."""
        self.store.commit_in_environment(builds, point)

    def commit_in_environment(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """See `Store.commit_in_environment`."""
        self.store.commit_in_environment(builds, point)

    def name_publishes(self, dataset_name: str, publishes: Mapping[str, BatchId | None]) -> None:
        """See `Store.name_publishes`: what an environment publishes has no names."""
        del dataset_name, publishes

    def shown_together(self) -> Sequence[tuple[str, str, str]]:
        """See `Store.shown_together`: of this environment."""
        return self.store.shown_together()

    def name_current(self, name: str) -> Sequence[str]:
        """See `Store.name_current`: what is current in an environment has no names."""
        del name
        return ()

    def published(self, build: Build) -> None:
        """See `Store.published`: nothing follows."""

    def discard(self, build: Build) -> None:
        """See `Store.discard`."""
        self.store.discard(build)

    def republish(self, build: Build, batches: Sequence[Batch], *, reason: str = "") -> None:
        """See `Store.republish`: the overlay points at the batches."""
        self.store.refuse_missing(build.dataset, batches)
        keys = {partition.path: partition for partition in build.partitions}
        targets = {keys[batch.partition]: batch.batch_id for batch in batches}
        self.commit([build], partial(self.catalog.repoint, build, targets, reason=reason))

    def refuse_missing(self, dataset: Dataset, batches: Sequence[Batch]) -> None:
        """See `Store.refuse_missing`."""
        self.store.refuse_missing(dataset, batches)

    def sweep(self, dataset_name: str, locations: Sequence[str]) -> None:
        """See `Store.sweep`."""
        self.store.sweep(dataset_name, locations)

    def leftovers(self) -> Sequence[Leftover]:
        """See `Store.leftovers`."""
        return self.store.leftovers()

    def unnamed(self, strays: Sequence[str]) -> Sequence[str]:
        """See `Store.unnamed`."""
        return self.store.unnamed(strays)

    def scratch(self, dataset: Dataset) -> str:
        """See `Store.scratch`."""
        return self.store.scratch(dataset)

    def damaged(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> Sequence[Finding]:
        """See `Store.damaged`."""
        return self.store.damaged(dataset, batches, deep=deep)

    def examine(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> Sequence[Finding]:
        """See `Store.examine`."""
        return self.store.examine(dataset, batches, deep=deep)

    def follow(self, dataset: Dataset) -> int:
        """See `Store.follow`: readers of production are shown nothing of it."""
        del dataset
        return 0

    def repair(self, dataset: Dataset) -> int:
        """See `Store.repair`: the same."""
        del dataset
        return 0

    def inventory(self) -> Sequence[StoreInventory]:
        """See `Store.inventory`."""
        return self.store.inventory()

    def show_as(self, dataset: Dataset, batches: Sequence[Batch], database: str, readers: Sequence[str] = ()) -> bool:
        """See `Store.show_as`."""
        return self.store.show_as(dataset, batches, database, readers)

    def taken(self, database: str, tables: Sequence[str]) -> Sequence[str]:
        """See `Store.taken`."""
        return self.store.taken(database, tables)

    def hide(self, database: str, tables: Sequence[str]) -> None:
        """See `Store.hide`."""
        self.store.hide(database, tables)

    def refuse_drop(self, dataset_name: str) -> None:
        """See `Store.refuse_drop`."""
        self.store.refuse_drop(dataset_name)

    def drop(self, dataset_name: str, end: Callable[[], DroppedDataset]) -> DroppedDataset:
        """See `Store.drop`."""
        return self.store.drop(dataset_name, end)

    def finish_drop(self, dropped: DroppedDataset) -> None:
        """See `Store.finish_drop`."""
        self.store.finish_drop(dropped)

    def forget_drop(self, dropped: DroppedDataset) -> None:
        """See `Store.forget_drop`."""
        self.store.forget_drop(dropped)

    def leave(self, dataset_name: str, point: Callable[[], None]) -> None:
        """See `Store.leave`: readers of production stay."""
        del dataset_name
        point()

    def left(self, dataset_name: str) -> None:
        """See `Store.left`: the same."""

    def read(self, dataset: Dataset, batches: Sequence[Batch], columns: Sequence[str] | None = None) -> DataFrame:
        """See `Store.read`."""
        return self.store.read(dataset, batches, columns)

    def hashes(self, build: Build, batches: Sequence[Batch]) -> Mapping[str, Hashes]:
        """See `Store.hashes`."""
        return self.store.hashes(build, batches)
