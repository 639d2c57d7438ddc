"""`Store`: the seam between a build and the place where its batches lie; and `StoreType`, all that a kind of store is.

Everything in which stores differ is asked of them here: nobody outside of varve/stores looks at the kind of a store.

Not here: the order in which a build calls its store (varve/dagster/runs/io_manager.py), which stores there are
(open.py), and what a simple one need not write itself (basic.py).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.catalog.catalog import Catalog
    from varve.catalog.history.drops import DroppedDataset
    from varve.model.batch import Batch, BatchId, Hashes, StagedBatch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.evolution import Consequence, DeclaredColumns
    from varve.model.inventory import Finding, Leftover, StoreInventory
    from varve.services.settings import Settings


class Store(Protocol):
    """A place where batches lie. After a crash at any point, the next build may simply begin anew."""

    @abstractmethod
    def stage(self, build: Build, frame: DataFrame) -> Sequence[StagedBatch]:
        """Write the frame beside what is current, one batch for each partition of the build; no reader sees it.

        Raises BadInput for columns or rows that the build may not write.
        """
        ...

    @abstractmethod
    def verify(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """Compare what lies in the store with what was computed. Raises VerifyFailed."""
        ...

    @abstractmethod
    def publish(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """Make all of the batches current at once, or none. Raises StalePublish, PublishTimeout."""
        ...

    @abstractmethod
    def commit(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """Call `point`, which tells the catalog in one transaction what is current of these builds' datasets.

        `publish` and `republish` in parts, for changes that concern several datasets, or more than the catalog's rows:
        readers of this store see all of the change at once, or none of it. With datasets of several stores, `point` is
        the commit of the next store. Raises PublishTimeout, and what `point` raises.
        """
        ...

    @abstractmethod
    def commit_in_environment(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """The same within an environment, of which readers of production see nothing."""
        ...

    @abstractmethod
    def name_publishes(self, dataset_name: str, publishes: Mapping[str, BatchId | None]) -> None:
        """Let readers find what these builds had published of a dataset by a name; None takes a name away.

        Where readers cannot look back, nothing happens.
        """
        ...

    @abstractmethod
    def shown_together(self) -> Sequence[tuple[str, str, str]]:
        """(database, table, address) of all that an engine must load one by one, as of one moment.

        Empty where readers see one state of all datasets anyway.
        """
        ...

    @abstractmethod
    def name_current(self, name: str) -> Sequence[str]:
        """Let readers find by this name what is current of all these tables; returns their datasets.

        In the caller's transaction, until whose end nothing of them is published.
        """
        ...

    @abstractmethod
    def published(self, build: Build) -> None:
        """Do what follows a publish that was made by `commit`; what fails of it is told, and made good later."""
        ...

    @abstractmethod
    def discard(self, build: Build) -> None:
        """Remove what a failed build has written, as far as that can be done now; the sweep finds the rest."""
        ...

    @abstractmethod
    def republish(self, build: Build, batches: Sequence[Batch], *, reason: str = "") -> None:
        """Make earlier batches current again, all at once or none, as safely as `publish`.

        Partitions of the build without a batch among them are withdrawn: they have none afterwards.
        Raises StalePublish, PublishTimeout, and NotKept where a batch was swept meanwhile.
        """
        ...

    @abstractmethod
    def refuse_missing(self, dataset: Dataset, batches: Sequence[Batch]) -> None:
        """Raise MissingUpstream where the data of one of the batches is gone."""
        ...

    @abstractmethod
    def sweep(self, dataset_name: str, locations: Sequence[str]) -> None:
        """Delete the data of batches that nobody may read any more, or of leftovers. What is missing is fine."""
        ...

    @abstractmethod
    def leftovers(self) -> Sequence[Leftover]:
        """Everything in the store that belongs to no batch the catalog keeps and no living run."""
        ...

    @abstractmethod
    def unnamed(self, strays: Sequence[str]) -> Sequence[str]:
        """Those of the strays (leftovers of no dataset) that no sweep has named yet; they count as named from now on.

        `strays` are all that there are now: what is not among them is forgotten.
        """
        ...

    @abstractmethod
    def scratch(self, dataset: Dataset) -> str:
        """A folder (a path or a URI) for files on their way to a batch, which every Spark of the deployment reaches.

        What lies in it under a name that begins with `.spark-staging` and is left there by a killed run is a leftover.
        """
        ...

    @abstractmethod
    def damaged(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> Sequence[Finding]:
        """Compare just these batches with what lies there; empty where all of them are as they were published."""
        ...

    @abstractmethod
    def examine(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> Sequence[Finding]:
        """Compare these batches with what lies there, and what readers are shown with what is current.

        `batches` are all whose data the catalog says is there; changes nothing. `deep` reads all of it.
        """
        ...

    @abstractmethod
    def follow(self, dataset: Dataset) -> int:
        """Show readers what has become current and is not shown yet, as the catalog notes it; how many partitions."""
        ...

    @abstractmethod
    def repair(self, dataset: Dataset) -> int:
        """The same by looking at what readers are really shown and what batches say of themselves; how many."""
        ...

    @abstractmethod
    def refuse_drop(self, dataset_name: str) -> None:
        """Raise VarveError, with all owners, where something of others needs what readers are shown of the dataset."""
        ...

    @abstractmethod
    def drop(self, dataset_name: str, end: Callable[[], DroppedDataset]) -> DroppedDataset:
        """Call `end`, which ends the dataset in the catalog in one transaction, and return what it returns.

        Where readers can be shown nothing of it any more in the same transaction, they are.
        Raises PublishTimeout, VarveError where something of others depends on it, and what `end` raises.
        """
        ...

    @abstractmethod
    def finish_drop(self, dropped: DroppedDataset) -> None:
        """Show readers nothing of the dataset any more, note the drop in the store's own record, and tell the catalog.

        Safe to repeat, also where a dataset of the same name has been made since. Raises ServiceUnavailable.
        """
        ...

    @abstractmethod
    def forget_drop(self, dropped: DroppedDataset) -> None:
        """Remove what the store itself remembers of a dropped dataset, after all data of it was deleted."""
        ...

    @abstractmethod
    def leave(self, dataset_name: str, point: Callable[[], None]) -> None:
        """Call `point`, which moves a dataset to another store in one transaction.

        Where readers of this store can be shown nothing of it any more in the same transaction, they are. Raises
        PublishTimeout, VarveError where something of others depends on it, and what `point` raises.
        """
        ...

    @abstractmethod
    def left(self, dataset_name: str) -> None:
        """Show readers nothing of a dataset that has moved to another store. Safe to repeat."""
        ...

    @abstractmethod
    def inventory(self) -> Sequence[StoreInventory]:
        """What the store can tell of each of its datasets without a catalog, for a lost one to be rebuilt."""
        ...

    @abstractmethod
    def show_as(self, dataset: Dataset, batches: Sequence[Batch], database: str, readers: Sequence[str] = ()) -> bool:
        """Show exactly these batches by SQL as `database.table`, beside what is current; whether the store can.

        What was shown under that name before is replaced, and who could read it still can. Where the store has roles,
        `readers`, which exist, can read it from now on too. Raises VarveError where somebody's own object depends on
        it.
        """
        ...

    @abstractmethod
    def taken(self, database: str, tables: Sequence[str]) -> Sequence[str]:
        """Those of the names under which something can be found by SQL in that database, whosever it is."""
        ...

    @abstractmethod
    def hide(self, database: str, tables: Sequence[str]) -> None:
        """Remove what `show_as` has made, and the database where nothing else is in it. Raises VarveError too."""
        ...

    @abstractmethod
    def read(self, dataset: Dataset, batches: Sequence[Batch], columns: Sequence[str] | None = None) -> DataFrame:
        """Exactly these batches of the dataset: its data columns (None: all), then its typed partition columns."""
        ...

    @abstractmethod
    def hashes(self, build: Build, batches: Sequence[Batch]) -> Mapping[str, Hashes]:
        """The hashes of the rows of earlier batches of partitions of the build, as `stage` makes them, by partition.

        Empty where the store has none. Raises MissingUpstream where the data of one of the batches is gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoreType:
    """A kind of store: what can be said of it before one is opened, and how one is.

    Attributes:
        name: as datasets name it, in lower case; SQL files write it in any case after STORED IN.
        storage: what its data is kept as, which Dagster shows (`dagster/storage_kind`): parquet, postgres.
        open: a store by the settings, over the catalog's connection; the session is opened when it is first needed.
        in_folders: whether a batch is a folder of files, which other programs may read by its location.
        address: the location of a batch as a person finds it, where that is more than the catalog keeps.
        consequences: what follows where a declaration with the second columns replaces one with the first.
    """

    name: str
    storage: str
    open: Callable[[Settings, Catalog, Callable[[], SparkSession]], Store]
    in_folders: bool = False
    address: Callable[[Dataset, str], str] = lambda _, location: location
    consequences: Callable[[DeclaredColumns, DeclaredColumns], Sequence[Consequence]] = lambda _, __: ()
