"""The folder of a batch: `<root>/<db>/<table>/<col>=<value>/.../batch_id=<id>/part-*.parquet`.

Not here: reading or writing anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from varve.model.batch import BatchId
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey

# Spark and Hive ignore names with a leading underscore, so that a batch folder can hold its own description.
MANIFEST = "_varve.json"
RECORD = "_varve"
# Spark's committers keep the files of running jobs in it, below the folder that is written to.
TEMPORARY = "_temporary"
BATCH_COLUMN = "batch_id"


@dataclass(frozen=True, slots=True)
class Layout:
    """The lake's folders under one root (a local folder or a URI, without a trailing slash)."""

    root: str

    def table(self, dataset: Dataset) -> str:
        """The folder of a dataset. Never read it by path: it holds all batches, also the old ones."""
        return self.table_of(dataset.name)

    def table_of(self, name: str) -> str:
        """The same by the dataset's name, for datasets that may not be declared any more."""
        return f"{self.root}/{name.replace('.', '/', 1)}"

    def temporary(self, dataset: Dataset, job: int) -> str:
        """Where one job that writes many batches keeps the files of tasks that have not ended."""
        return f"{self.table(dataset)}/{TEMPORARY}/{job}"

    def record_of(self, name: str) -> str:
        """The folder of the lake's own record of publishes, by the dataset's name."""
        return f"{self.table_of(name)}/{RECORD}"

    def partition(self, dataset: Dataset, partition: PartitionKey) -> str:
        """The folder of a partition."""
        return f"{self.table(dataset)}/{partition.path}"

    def batch(self, dataset: Dataset, partition: PartitionKey, batch_id: BatchId) -> str:
        """The folder of one batch of a partition; written once, never changed."""
        return self.at(dataset.name, partition.path, batch_id)

    def at(self, name: str, path: str, batch_id: BatchId) -> str:
        """The same, by the dataset's name and the catalog's spelling of the partition."""
        return f"{self.table_of(name)}/{path}/{batch_id.folder}"
