"""What can be asked of the catalog: what is in force, what has failed, what has arrived, and how much there is of each.

Not here: what changes it (catalog.py), what was in force before (history/history.py), and what the planner asks
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

# What a partition that was taken back counts in `failures`: more than any limit of attempts.
HELD = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DatasetCounts:
    """One line of a summary: partitions with a current batch, their rows and bytes, and all batches ever staged."""

    dataset: str
    store: str
    partitions: int
    rows: int
    size: int
    batches: int


@dataclass(frozen=True)
class CatalogReader:
    """That part of the catalog (catalog.py), over its connection."""

    connection: psycopg.Connection

    def current(self, dataset: str, partitions: Iterable[PartitionKey] | None = None) -> dict[str, Batch]:
        """The current batch of each of these partitions (None: of all), by the partition's catalog spelling."""
        paths = None if partitions is None else [partition.path for partition in partitions]
        return batches_of(self.connection.execute(statements.CURRENT, (dataset, paths, paths)))

    def in_flight(self, dataset: str) -> set[str]:
        """The partitions that a living run is building; a dead one's lock is free, whatever its row says."""
        return {path for (path,) in self.connection.execute(statements.IN_FLIGHT, (dataset,))}

    def was_published(self, build: Build) -> bool:
        """Whether a build has come into force, of which all partitions do at once."""
        return (
            self.connection.execute(statements.WAS_PUBLISHED, (build.dataset.name, build.batch_id.millis)).rowcount > 0
        )

    def failures(self, dataset: str, *, since: Mapping[str, dt.datetime] | None = None) -> dict[str, int]:
        """How many builds of a partition have failed since its last publish, where any has.

        Those that began before its landing file arrived, or before the instant in `since`, had other inputs: they do
        not count. A partition that was taken back counts as HELD until then.
        """
        given = since or {}
        parameters = (dataset, HELD, dataset, dataset, list(given), list(given.values()))
        return dict(self.connection.execute(statements.FAILURES, parameters).fetchall())

    def arrivals(self, dataset: str) -> dict[str, str]:
        """The fingerprint of the landing file of each partition."""
        return dict(self.connection.execute(statements.ARRIVALS, (dataset,)).fetchall())

    def arrived_files(self, dataset: str) -> dict[str, Arrived]:
        """The landing file of each partition, and the state in which it was taken."""
        rows = self.connection.execute(statements.ARRIVED_FILES, (dataset,))
        return {path: Arrived(uri, stamp) for path, uri, stamp in rows}

    def declared(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """(dataset, store, declaration) of every dataset that has a batch in force, as it was published last."""
        return list(self.connection.execute(statements.ALL_DECLARED).fetchall())

    def partitions_by_dataset(self) -> dict[str, int]:
        """How many partitions of each dataset have a batch."""
        return dict(self.connection.execute(statements.PARTITIONS_BY_DATASET).fetchall())

    def counts(self) -> list[DatasetCounts]:
        """A summary by dataset."""
        return [DatasetCounts(*row) for row in self.connection.execute(statements.COUNTS)]
