"""Queries of the catalog: which batches are current, what has failed, what has arrived, and how much there is.

Not here: changes of the catalog (catalog.py), what was current before (history/history.py), and the planner's queries
(planning/facts.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.catalog import statements
from varve.catalog.rows import batches_of
from varve.planning.arrivals.arrivals import Arrived

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    import psycopg

    from varve.model.batch import Batch
    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey

# The number of failures of a partition on hold (`failures`): more than any limit of attempts.
ON_HOLD = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DatasetCounts:
    """One dataset in a summary: its current partitions, their rows and bytes, and how many batches it has in all."""

    dataset: str
    store: str
    partitions: int
    rows: int
    size: int
    batches: int


@dataclass(frozen=True)
class CatalogReader:
    """The queries of the catalog (catalog.py), over its connection.

    Attributes:
        environment: the environment whose builds it is about; empty: production.
    """

    connection: psycopg.Connection
    environment: str = ""

    def current(self, dataset: str, partitions: Iterable[PartitionKey] | None = None) -> dict[str, Batch]:
        """The current batch of each of these partitions (None: of all), by the partition's catalog spelling."""
        paths = None if partitions is None else [partition.path for partition in partitions]
        return batches_of(self.connection.execute(statements.CURRENT, (dataset, paths, paths)))

    def shown(self, dataset: str, partitions: Iterable[PartitionKey]) -> dict[str, Batch]:
        """The current batch of each of these partitions in production, without its trace, which may be long."""
        paths = [partition.path for partition in partitions]
        return batches_of(self.connection.execute(statements.SHOWN, (dataset, paths, paths)))

    def in_flight(self, dataset: str) -> set[str]:
        """The partitions that a living run is building: their locks are taken, which those of a dead run are not."""
        return {path for (path,) in self.connection.execute(statements.IN_FLIGHT, (dataset, self.environment))}

    def was_published(self, build: Build) -> bool:
        """Whether a build was published; all of its partitions are published at once."""
        return (
            self.connection.execute(statements.WAS_PUBLISHED, (build.dataset.name, build.batch_id.millis)).rowcount > 0
        )

    def failures(self, dataset: str, *, since: Mapping[str, dt.datetime] | None = None) -> dict[str, int]:
        """By partition, how many of its builds have failed since its last publish; only partitions with failures.

        Builds that began before the partition's landing file arrived, or before its time in `since`, had other inputs
        and do not count. A partition on hold has ON_HOLD failures, until such a time comes.
        """
        since = since or {}
        parameters = (dataset, ON_HOLD, dataset, dataset, list(since), list(since.values()))
        return dict(self.connection.execute(statements.FAILURES, parameters).fetchall())

    def arrivals(self, dataset: str) -> dict[str, str]:
        """The fingerprint of the landing file of each partition."""
        return dict(self.connection.execute(statements.ARRIVALS, (dataset,)).fetchall())

    def arrived_files(self, dataset: str) -> dict[str, Arrived]:
        """The landing file of each partition, and the state in which it was taken."""
        rows = self.connection.execute(statements.ARRIVED_FILES, (dataset,))
        return {path: Arrived(uri, stamp) for path, uri, stamp in rows}

    def declared(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """(dataset, store, declaration) of every dataset that has a current batch, as it was published last."""
        return list(self.connection.execute(statements.ALL_DECLARED).fetchall())

    def partitions_by_dataset(self) -> dict[str, int]:
        """How many partitions of each dataset have a batch."""
        return dict(self.connection.execute(statements.PARTITIONS_BY_DATASET).fetchall())

    def counts(self) -> list[DatasetCounts]:
        """A summary by dataset."""
        return [DatasetCounts(*row) for row in self.connection.execute(statements.COUNTS)]
