"""The catalog: PostgreSQL tables that say which batch of each partition is current; the only truth.

Each method is one statement or one short transaction over any number of partitions. Locks of a build are session locks
on the connection given: losing it loses the locks, and a build without its connection cannot publish.

Not here: where batches lie (lake/, warehouse/) and when to build them (pipeline_defs/planning).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from pipeline_defs.model.batch import Batch, BatchId, Input, StagedBatch
from pipeline_defs.model.errors import NOTHING_LOST, AlreadyBuilding, StalePublish, some
from resources import catalog_statements as statements
from resources.store import Build

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg

    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.model.partition import PartitionKey

VERSION = 1


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
class Catalog:
    """The catalog over one connection, which must be in autocommit mode and not shared between threads."""

    connection: psycopg.Connection

    def ensure_schema(self) -> None:
        """Make the catalog's tables where there are none; safe to call from several processes at once."""
        if self._has_schema():
            return
        with self.connection.transaction():
            self.connection.execute(statements.LOCK_SCHEMA)
            if not self._has_schema():
                script = resources.files("resources").joinpath("catalog.sql").read_text(encoding="utf-8")
                self.connection.execute(script.encode())

    def begin(self, dataset: Dataset, partitions: Sequence[PartitionKey], *, run_id: str, code_version: str) -> Build:
        """Lock the partitions, remember what is current, and start a batch of each.

        Raises AlreadyBuilding, naming the run that holds a partition, and then holds no lock.
        """
        paths = [partition.path for partition in partitions]
        taken = self.connection.execute(statements.LOCK, (dataset.name, paths)).fetchall()
        refused = [path for path, got in taken if not got]
        if refused:
            self.connection.execute(statements.UNLOCK, (dataset.name, [path for path, got in taken if got]))
            raise self._already_building(dataset, refused)
        with self.connection.transaction():
            self.connection.execute(statements.REGISTER, (dataset.name, dataset.store, Jsonb(declaration(dataset))))
            self.connection.execute(statements.BURY, (dataset.name, paths))
            row = self.connection.execute(statements.NEXT_BATCH_ID).fetchone()
            assert row is not None
            batch_id = BatchId(row[0])
            self.connection.execute(statements.BEGIN, (dataset.name, batch_id.millis, run_id, code_version, paths))
            found: dict[str, int] = dict(self.connection.execute(statements.EXPECTED, (dataset.name, paths)).fetchall())
        expected = {
            partition: BatchId(found[partition.path]) if partition.path in found else None for partition in partitions
        }
        return Build(dataset, tuple(partitions), batch_id, run_id, expected)

    def staged(self, build: Build, batches: Sequence[StagedBatch]) -> None:
        """Record what lies in the store, and the trace, for every batch of the build."""
        inputs = [_inputs_text(build.inputs.get(batch.partition, ())) for batch in batches]
        self.connection.execute(
            statements.STAGED,
            (
                [batch.partition.path for batch in batches],
                [batch.location for batch in batches],
                [batch.rows for batch in batches],
                [batch.size for batch in batches],
                [batch.files for batch in batches],
                inputs,
                build.dataset.name,
                build.batch_id.millis,
            ),
        )

    def publish(self, build: Build) -> None:
        """Point every partition of the build at its batch: compare and swap, all or nothing.

        Opens a transaction, or a savepoint inside the caller's: a warehouse swaps its view in the same one.
        Raises StalePublish where another batch has become current since the build began.
        """
        name, batch_id = build.dataset.name, build.batch_id.millis
        paths = [partition.path for partition in build.partitions]
        with self.connection.transaction():
            found = {
                path: BatchId(current)
                for path, current in self.connection.execute(statements.LOCK_CURRENT, (name, paths))
            }
            stale = [
                f"{partition}: expected {expected or 'none'} to be current, found {found.get(partition.path) or 'none'}"
                for partition, expected in build.expected.items()
                if found.get(partition.path) != expected
            ]
            if stale:
                raise StalePublish(
                    f"{build} is older than what is current: {some(stale, limit=3)}. {NOTHING_LOST} "
                    "Rerun the partitions to build on what is current now."
                )
            self.connection.execute(statements.RETIRE, (name, paths))
            self.connection.execute(statements.POINT, (name, batch_id, paths))
            done = self.connection.execute(statements.PUBLISHED, (name, batch_id, paths)).rowcount
            if done != len(paths):
                raise StalePublish(
                    f"{build}: {len(paths) - done} of {len(paths)} batches are not staged any more; "
                    f"another run took them for dead. {NOTHING_LOST} Rerun the partitions."
                )

    def fail(self, build: Build, reason: str) -> None:
        """Mark what the build has not published as failed."""
        self.connection.execute(statements.FAIL, (reason[:2_000], build.dataset.name, build.batch_id.millis))

    def release(self, build: Build) -> None:
        """Give the build's locks back."""
        paths = [partition.path for partition in build.partitions]
        self.connection.execute(statements.UNLOCK, (build.dataset.name, paths))

    def current(self, dataset: str, partitions: Iterable[PartitionKey] | None = None) -> dict[str, Batch]:
        """The current batch of each of these partitions (None: of all), by the partition's catalog spelling."""
        paths = None if partitions is None else [partition.path for partition in partitions]
        return _batches(self.connection.execute(statements.CURRENT, (dataset, paths, paths)))

    def lagging(self, dataset: str) -> dict[str, Batch]:
        """The current batches that the dataset's projection does not show yet."""
        return _batches(self.connection.execute(statements.LAGGING, (dataset,)))

    def ever_projected(self, dataset: str, partitions: Iterable[str]) -> set[str]:
        """Those of the partitions that the projection knows, at whatever batch."""
        return {path for (path,) in self.connection.execute(statements.EVER_PROJECTED, (dataset, list(partitions)))}

    def projected(self, dataset: str, batches: Iterable[Batch]) -> None:
        """Record that the projection shows these batches now."""
        listed = list(batches)
        paths, ids = [batch.partition for batch in listed], [batch.batch_id.millis for batch in listed]
        self.connection.execute(statements.PROJECTED, (paths, ids, dataset))

    def forget_projection(self, dataset: str) -> None:
        """Record that the projection shows nothing: its table was lost."""
        self.connection.execute(statements.FORGET_PROJECTION, (dataset,))

    def lock_projection(self, dataset: str) -> None:
        """Wait for the lock under which the dataset's projection is changed."""
        self.connection.execute(statements.LOCK_PROJECTION, (dataset,))

    def unlock_projection(self, dataset: str) -> None:
        """Give that lock back."""
        self.connection.execute(statements.UNLOCK_PROJECTION, (dataset,))

    def in_flight(self, dataset: str) -> set[str]:
        """The partitions that a living run is building; a dead one's lock is free, whatever its row says."""
        return {path for (path,) in self.connection.execute(statements.IN_FLIGHT, (dataset,))}

    def failures(self, dataset: str, *, since: Mapping[str, dt.datetime] | None = None) -> dict[str, int]:
        """How many builds of a partition have failed since its last publish, where any has.

        Those that began before its landing file arrived, or before the instant in `since`, had other inputs: they do
        not count.
        """
        given = since or {}
        return dict(
            self.connection.execute(statements.FAILURES, (list(given), list(given.values()), dataset)).fetchall()
        )

    def arrived(self, dataset: str, partition: PartitionKey, *, uri: str, size: int, fingerprint: str) -> bool:
        """Record a landing file; whether it is new, or has other content than before."""
        row = (dataset, partition.path, uri, size, fingerprint)
        return self.connection.execute(statements.ARRIVED, row).rowcount == 1

    def arrivals(self, dataset: str) -> dict[str, str]:
        """The fingerprint of the landing file of each partition."""
        return dict(self.connection.execute(statements.ARRIVALS, (dataset,)).fetchall())

    def counts(self) -> list[DatasetCounts]:
        """A summary by dataset."""
        return [DatasetCounts(*row) for row in self.connection.execute(statements.COUNTS)]

    def _has_schema(self) -> bool:
        return self.connection.execute(statements.HAS_SCHEMA).fetchone() is not None

    def _already_building(self, dataset: Dataset, refused: Sequence[str]) -> AlreadyBuilding:
        holders = self.connection.execute(statements.HOLDERS, (dataset.name, list(refused))).fetchall()
        said = [f"{path} (run {run_id}, since {started:%Y-%m-%d %H:%M:%S} UTC)" for path, run_id, started in holders]
        return AlreadyBuilding(
            f"{dataset}: another run is building {some(said or refused, limit=3)}. One run writes a partition at a "
            "time; nothing was changed by this one. Wait for the other, or end it, and run again."
        )


def declaration(dataset: Dataset) -> dict[str, Any]:
    """What a dataset declares, as the catalog and manifests keep it."""
    return {
        "columns": [[column.name, column.type, column.nullable, column.comment] for column in dataset.schema.columns],
        "partition_columns": [[column.name, column.type] for column in dataset.partition_columns],
        "comment": dataset.comment,
    }


def _inputs_text(inputs: Iterable[Input]) -> str:
    return json.dumps(sorted([found.source, found.partition, found.version] for found in inputs))


def _batches(rows: Iterable[tuple[Any, ...]]) -> dict[str, Batch]:
    return {
        partition: Batch(
            partition,
            BatchId(batch_id),
            location,
            count,
            size,
            run_id,
            published_at,
            frozenset(Input(*found) for found in inputs),
        )
        for partition, batch_id, location, count, size, run_id, published_at, inputs in rows
    }


def versions(batches: Mapping[str, Batch]) -> dict[str, str]:
    """The version of each partition as a trace names it: its batch id."""
    return {path: str(batch.batch_id) for path, batch in batches.items()}
