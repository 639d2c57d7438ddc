"""`BasicStore`: what a store need not write itself whose readers find the current batches by the catalog alone.

Not here: where its batches lie, and in what form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog.history.drops import Drops
from varve.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from varve.catalog.catalog import Catalog
    from varve.catalog.history.drops import DroppedDataset
    from varve.model.batch import Batch, BatchId, Hashes, StagedBatch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.inventory import Finding, StoreInventory


@dataclass(frozen=True)
class BasicStore(Store):
    """A publish is the catalog's transaction, and nothing else is shown to anybody.

    Attributes:
        catalog: over the connection of the build that the store is opened for.
    """

    catalog: Catalog

    def publish(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """See `Store.publish`."""
        del staged
        self.catalog.publish(build)
        self.published(build)

    def commit(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """See `Store.commit`."""
        del builds
        point()

    def commit_in_environment(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """See `Store.commit_in_environment`: only the catalog changes."""
        del builds
        point()

    def name_publishes(self, dataset_name: str, publishes: Mapping[str, BatchId | None]) -> None:
        """See `Store.name_publishes`: readers are shown what is current."""
        del dataset_name, publishes

    def shown_together(self) -> Sequence[tuple[str, str, str]]:
        """See `Store.shown_together`: readers see one state of all."""
        return ()

    def name_current(self, name: str) -> Sequence[str]:
        """See `Store.name_current`."""
        del name
        return ()

    def published(self, build: Build) -> None:
        """See `Store.published`."""
        self.follow(build.dataset)

    def republish(self, build: Build, batches: Sequence[Batch], *, reason: str = "") -> None:
        """See `Store.republish`."""
        self.refuse_missing(build.dataset, batches)
        keys = {partition.path: partition for partition in build.partitions}
        self.catalog.repoint(build, {keys[batch.partition]: batch.batch_id for batch in batches}, reason=reason)
        self.published(build)

    def damaged(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> Sequence[Finding]:
        """See `Store.damaged`: readers are shown nothing else, so that `examine` finds nothing else."""
        return self.examine(dataset, batches, deep=deep)

    def unnamed(self, strays: Sequence[str]) -> Sequence[str]:
        """See `Store.unnamed`: which were named before is remembered nowhere."""
        return strays

    def follow(self, dataset: Dataset) -> int:
        """See `Store.follow`: readers see what the catalog has, which it notes; a sweep waits for that."""
        behind, withdrawn = self.catalog.lagging(dataset.name), self.catalog.withdrawn(dataset.name)
        self.catalog.projected(dataset.name, behind.values())
        self.catalog.forget_withdrawn(dataset.name, withdrawn)
        return len(behind) + len(withdrawn)

    def show_as(self, dataset: Dataset, batches: Sequence[Batch], database: str, readers: Sequence[str] = ()) -> bool:
        """See `Store.show_as`: its readers do not ask by SQL."""
        del dataset, batches, database, readers
        return False

    def taken(self, database: str, tables: Sequence[str]) -> Sequence[str]:
        """See `Store.taken`: nothing of it is found by SQL."""
        del database, tables
        return ()

    def hide(self, database: str, tables: Sequence[str]) -> None:
        """See `Store.hide`: nothing was shown."""

    def repair(self, dataset: Dataset) -> int:
        """See `Store.repair`."""
        return self.follow(dataset)

    def refuse_drop(self, dataset_name: str) -> None:
        """See `Store.refuse_drop`: nothing else is shown to anybody."""

    def drop(self, dataset_name: str, end: Callable[[], DroppedDataset]) -> DroppedDataset:
        """See `Store.drop`."""
        del dataset_name
        return end()

    def finish_drop(self, dropped: DroppedDataset) -> None:
        """See `Store.finish_drop`."""
        Drops(self.catalog.connection).finished(dropped)

    def forget_drop(self, dropped: DroppedDataset) -> None:
        """See `Store.forget_drop`: it remembers nothing."""

    def leave(self, dataset_name: str, point: Callable[[], None]) -> None:
        """See `Store.leave`."""
        del dataset_name
        point()

    def left(self, dataset_name: str) -> None:
        """See `Store.left`: nothing else is shown to anybody."""

    def inventory(self) -> Sequence[StoreInventory]:
        """See `Store.inventory`: its batches do not describe themselves."""
        return ()

    def hashes(self, build: Build, batches: Sequence[Batch]) -> Mapping[str, Hashes]:
        """See `Store.hashes`: it has none."""
        del build, batches
        return {}
