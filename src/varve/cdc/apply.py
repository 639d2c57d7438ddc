"""Apply: what was captured, resolved, and published with its position in one transaction.

Only partitions whose rows differ get new batches; one that has lost its last row becomes empty. A crash before the
transaction repeats the work and loses nothing; after it there is nothing to do.

Not here: how events are resolved (resolve/resolve.py).
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import psycopg

from varve.cdc.captured_table import refuse_other_declaration
from varve.cdc.event import Counts, format_lsn
from varve.cdc.resolve.event_frame import EVENT_DDL
from varve.cdc.resolve.resolve import resolve
from varve.cdc.resolve.shape import WEIGHT, Resolution, TableShape, joined
from varve.model.batch import Input
from varve.model.errors import NOTHING_LOST, BadInput, StalePublish, some

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.catalog.catalog import Catalog
    from varve.cdc.capture.batch_writer import EventBatch
    from varve.cdc.capture.event_log import EventLog
    from varve.cdc.capture.positions import Position, Positions
    from varve.cdc.captured_table import CapturedTable, SourceTable
    from varve.model.batch import Batch, StagedBatch
    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.stores.store import Store

CODE_VERSION = "cdc"


@dataclass(frozen=True)
class Applied:
    """What one apply has done: the batches that it published, and what it set aside."""

    events: int
    lsn: int
    quarantined: int
    published: tuple[StagedBatch, ...] = field(default=())


@dataclass(frozen=True)
class Apply:
    """Brings the dataset of one captured table up to what was captured.

    Attributes:
        store: where the dataset's batches lie, over the catalog's connection.
        step: told the name of each step before it is taken.
        run_id: who does it, for the catalog.
    """

    captured: CapturedTable
    positions: Positions
    log: EventLog
    catalog: Catalog
    store: Store
    spark: SparkSession
    step: Callable[[str], None] = lambda _: None
    run_id: str = field(default_factory=lambda: f"cdc-{uuid.uuid4()}")

    def apply(self) -> Applied | None:
        """Apply every batch that was captured and not applied; None where there is none.

        Raises NeedsResnapshot where the events cannot be true of what the dataset holds; BadInput where a row belongs
        to no partition.
        """
        position = self.positions.of(self.captured.dataset.name)
        refuse_other_declaration(self.captured, position.declared)
        batches = self.log.batches(position.generation, after=position.applied_lsn)
        if not batches:
            return None
        dataset, catalog = self.captured.dataset, self.catalog
        current = catalog.current(dataset.name)
        base = self.store.read(dataset, list(current.values()))
        if self.captured.history:
            self._refuse_other_lsns(base, batches)
        resolution = self._resolve(position, batches, base)
        self.step("resolved")
        keys = self._changed(resolution)
        quarantine, quarantined = self._set_aside(position, batches, resolution)
        self.step("set aside")
        events = sum(batch.counts.events for batch in batches)
        lsn = batches[-1].last_lsn
        staged: Sequence[StagedBatch] = ()
        if keys:
            staged = self._publish(position, batches, resolution, current, keys, (quarantine, quarantined))
        else:
            self.positions.applied(position, lsn, quarantine, quarantined)
        self.step("done")
        return Applied(events, lsn, quarantined, tuple(staged))

    def _resolve(self, position: Position, batches: Sequence[EventBatch], base: DataFrame) -> Resolution:
        events = self.spark.read.schema(EVENT_DDL).parquet(*[batch.data for batch in batches])
        counts = reduce(lambda one, other: one + other, [batch.counts for batch in batches])
        if position.quarantine:
            events = events.unionByName(self.spark.read.schema(EVENT_DDL).parquet(position.quarantine))
            counts += Counts(masked=position.quarantined)
        return resolve(base, events, shape_of(self.captured, position.table), counts)

    def _refuse_other_lsns(self, base: DataFrame, batches: Sequence[EventBatch]) -> None:
        """A history is ordered by LSNs: those of another server, which begins lower, cannot continue it."""
        from pyspark.sql import functions as F  # noqa: N812

        if batches[0].kind != "snapshot":
            return
        last = base.agg(F.max(F.greatest("valid_from_lsn", "valid_to_lsn")).alias("last")).first()
        if last is not None and last["last"] is not None and last["last"] > batches[0].last_lsn:
            raise BadInput(
                f"{self.captured.dataset}: its history reaches to LSN {format_lsn(last['last'])}, and the new snapshot "
                f"of {self.captured.source} was taken at {format_lsn(batches[0].last_lsn)}: the source is another "
                f"server. {NOTHING_LOST} Declare a new dataset for the history from here on."
            )

    def _changed(self, resolution: Resolution) -> list[PartitionKey]:
        """The partitions whose rows are not as they were."""
        from pyspark.sql import functions as F  # noqa: N812

        dataset = self.captured.dataset
        names, data = dataset.partitioning.names, dataset.schema.names
        # A row was where it lies, whatever partition_by would say of it now.
        sides = ((resolution.before, -1), (self._partitioned(resolution.after), 1))
        weighted = [frame.select(*data, *names, F.lit(weight).alias(WEIGHT)) for frame, weight in sides]
        summed = weighted[0].unionByName(weighted[1]).groupBy(*data, *names).agg(F.sum(WEIGHT).alias(WEIGHT))
        rows = summed.where(f"{WEIGHT} <> 0").select(*names).distinct().collect()
        if any(value is None for row in rows for value in row):
            raise BadInput(
                f"{dataset}: partition_by gives NULL for a row ({dict(self.captured.partition_by)}), which is no "
                f"partition. {NOTHING_LOST} Give such rows a partition of their own: coalesce(..., 'unknown')."
            )
        keys = sorted(dataset.partitioning.key(tuple(row)) for row in rows)
        if strangers := [key for key in keys if not dataset.partitioning.exists(key)]:
            raise BadInput(
                f"{dataset}: rows belong to partitions that it does not have: {some(strangers)}. {NOTHING_LOST} Widen "
                "its dimension, or change partition_by."
            )
        return keys

    def _set_aside(
        self, position: Position, batches: Sequence[EventBatch], resolution: Resolution
    ) -> tuple[str | None, int]:
        if resolution.quarantined is None:
            return None, 0
        folder = f"{self.log.generation(position.generation)}/quarantine={batches[-1].last_lsn}-{uuid.uuid4().hex[:8]}"
        resolution.quarantined.write.mode("error").parquet(folder)
        return folder, resolution.quarantined.count()

    def _publish(  # noqa: PLR0917 - what one publish is made of
        self, position: Position, batches: Sequence[EventBatch], resolution: Resolution,
        current: dict[str, Batch], keys: Sequence[PartitionKey], quarantine: tuple[str | None, int],
    ) -> Sequence[StagedBatch]:  # fmt: skip
        dataset, catalog = self.captured.dataset, self.catalog
        build = catalog.begin(dataset, keys, run_id=self.run_id, code_version=CODE_VERSION)
        try:
            self._refuse_stale(build, current)
            for key in keys:
                for batch in batches:
                    build.reads(key, Input(f"cdc:{self.captured.source}", f"generation={batch.generation}",
                                           str(batch.last_lsn)))  # fmt: skip
            old = self.store.read(dataset, [current[key.path] for key in keys if key.path in current])
            kept = resolution.replaced(old).select(*dataset.schema.names, *dataset.partitioning.names)
            wanted = self.spark.createDataFrame([tuple(key.values) for key in keys], ", ".join(
                f"__w_{column.name} {column.type}" for column in dataset.partition_columns))  # fmt: skip
            pairs = [(name, f"__w_{name}") for name in dataset.partitioning.names]
            fresh = joined(self._partitioned(resolution.after), wanted, pairs, "left_semi")
            staged = self.store.stage(build, kept.unionByName(fresh))
            self.step("staged")
            catalog.staged(build, staged)
            self.store.verify(build, staged)
            self.step("verified")
            self.store.commit([build], lambda: self._commit(build, position, batches[-1].last_lsn, quarantine))
        except BaseException as error:
            with contextlib.suppress(psycopg.Error, OSError):
                catalog.fail(build, str(error))
                self.store.discard(build)
            raise
        finally:
            with contextlib.suppress(psycopg.Error):
                catalog.release(build)
        self.step("published")
        self.store.published(build)
        return staged

    def _commit(self, build: Build, position: Position, lsn: int, quarantine: tuple[str | None, int]) -> None:
        """What is current, and up to which event: in one transaction."""
        with self.catalog.connection.transaction():
            self.catalog.publish(build)
            self.positions.applied(position, lsn, *quarantine)
            self.step("committing")

    def _partitioned(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        for column in self.captured.dataset.partition_columns:
            expression = F.expr(self.captured.partition_by[column.name])
            frame = frame.withColumn(column.name, expression.cast(str(column.type).lower()))
        return frame

    def _refuse_stale(self, build: Build, current: dict[str, Batch]) -> None:
        read = {key: current[key.path].batch_id if key.path in current else None for key in build.partitions}
        if build.expected != read:
            raise StalePublish(
                f"{build}: somebody else has published partitions of it since they were read. {NOTHING_LOST} A "
                "captured dataset is written by its capture alone; run it again."
            )


def shape_of(captured: CapturedTable, table: SourceTable) -> TableShape:
    """What the resolver must know of a captured table."""
    key = tuple(captured.column(name) for name in table.key) if table.keyed else ()
    return TableShape(
        captured.dataset.name, captured.columns, key,
        tuple((ours, theirs) for theirs, ours in captured.renames.items()),
        captured.ignore_null_updates, captured.history, captured.dataset.partitioning.names,
    )  # fmt: skip
