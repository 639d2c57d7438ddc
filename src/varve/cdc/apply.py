"""Apply: captured events are resolved to rows, and published together with the new position in one transaction.

Only partitions whose rows differ get new batches; a partition without rows any more gets an empty one. After a crash
before the transaction the work is repeated and nothing is lost; after the transaction nothing is left to do.

The steps (`step`) are those of the machine in docs/decisions/0018-models.md, of which every state was explored.

Not here: how events are resolved (resolve/resolve.py).
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import psycopg

from varve.cdc.backfill import Addition, additions_of, backfilled, filled
from varve.cdc.event import Counts, format_lsn
from varve.cdc.resolve.event_frame import EVENT_DDL, with_time
from varve.cdc.resolve.late import NOTHING_APPLIED, LateEvents, Place
from varve.cdc.resolve.resolve import resolve
from varve.cdc.resolve.shape import WEIGHT, Resolution, TableShape, joined
from varve.model.batch import Input
from varve.model.errors import NOTHING_LOST, BadInput, StalePublish, UnknownPartition, some
from varve.model.partitions.key import plain
from varve.model.partitions.time_columns import columns_text
from varve.services.files import open_files
from varve.sql.spark.run_errors import run_message
from varve.stores.frames import partition_texts, spark_errors

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
    """The result of one apply: how many events it took, up to which LSN, and the batches that it published."""

    events: int
    lsn: int
    quarantined: int
    published: tuple[StagedBatch, ...] = field(default=())


@dataclass(frozen=True)
class Apply:
    """Applies the captured events of one table to its dataset.

    Attributes:
        store: where the dataset's batches lie, over the catalog's connection.
        step: called with the name of each step before the step is taken; for tests that stop there.
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
        """Apply every captured batch that is not applied yet; None where there is none.

        Raises NeedsResnapshot where the events contradict the rows of the dataset; BadInput where a row belongs to no
        partition.
        """
        position = self.positions.of(self.captured.dataset.name)
        additions = additions_of(self.captured, position)
        batches = self.log.batches(position.generation, after=position.applied_lsn)
        if not batches and not additions:
            return None
        dataset, catalog = self.captured.dataset, self.catalog
        current = catalog.current(dataset.name)
        base = self.store.read(dataset, list(current.values()))
        if self.captured.history:
            self._refuse_other_lsns(base, batches)
        resolution = self._resolve(position, batches, base, additions)
        self.step("resolved")
        keys = self._changed(resolution)
        quarantine, quarantined = self._set_aside(position, batches, resolution)
        self.step("set aside")
        events = sum(batch.counts.events for batch in batches)
        lsn = batches[-1].last_lsn if batches else position.applied_lsn
        staged: Sequence[StagedBatch] = ()
        if keys:
            lsns = [batch.last_lsn for batch in batches] or [lsn]
            staged = self._publish(position, lsns, resolution, current, keys, (quarantine, quarantined))
        else:
            self.positions.applied(position, lsn, quarantine, quarantined, self._declared(position))
        self.step("done")
        return Applied(events, lsn, quarantined, tuple(staged))

    def _resolve(
        self, position: Position, batches: Sequence[EventBatch], base: DataFrame, additions: tuple[Addition, ...]
    ) -> Resolution:
        if additions:
            return self._resolve_added(position, batches, base, additions)
        events, counted_batches, shape = self._events(batches), batches, shape_of(self.captured, position.table)
        if self.captured.files is None:
            # A capture that lost its lock while it wrote may make a batch durable that begins before the position.
            events = events.where(f"commitLsn > {position.applied_lsn}")
        else:
            known = self.log.batches(position.generation)
            applied = [batch for batch in known if batch.last_lsn <= position.applied_lsn]
            shape = replace(shape, applied=_last_place(applied))
            if any(batch.late for batch in batches):
                events, counted_batches = self._with_late(shape, batches, applied)
        counts = reduce(lambda total, counts: total + counts, [batch.counts for batch in counted_batches])
        if position.quarantine:
            events = events.unionByName(self.spark.read.schema(EVENT_DDL).parquet(position.quarantine))
            counts += Counts(masked=position.quarantined)
        if self.captured.changed_at:
            events = with_time(events, self.captured.changed_at)
        return resolve(base, events, shape, counts)

    def _resolve_added(
        self, position: Position, batches: Sequence[EventBatch], base: DataFrame, additions: tuple[Addition, ...]
    ) -> Resolution:
        """As `_resolve`, with columns that were added: all rows are compared, as each may have a value in them."""
        shape, since = shape_of(self.captured, position.table), min(addition.since for addition in additions)
        applied_batches = [
            batch for batch in self.log.batches(position.generation, after=since)
            if batch.last_lsn <= position.applied_lsn and batch.kind == "stream"
        ]  # fmt: skip
        applied = self._events(applied_batches).where(f"commitLsn <= {position.applied_lsn}")
        rows = backfilled(self.captured, base, applied, shape, additions)
        names = [*shape.stored, *shape.places]
        if not batches:
            return Resolution(base.select(*names), rows.select(*shape.stored), lambda part: part.limit(0))
        counts = reduce(lambda total, counts: total + counts, [batch.counts for batch in batches])
        events = filled(self._events(batches).where(f"commitLsn > {position.applied_lsn}"), additions)
        if self.captured.changed_at:
            events = with_time(events, self.captured.changed_at)
        # What is masked was counted without these columns.
        resolved = resolve(rows, events, shape, replace(counts, masked=counts.masked + counts.events))
        after = resolved.replaced(rows).select(*shape.stored).unionByName(resolved.after.select(*shape.stored))
        return Resolution(base.select(*names), after, lambda part: part.limit(0), resolved.quarantined)

    def _events(self, batches: Sequence[EventBatch]) -> DataFrame:
        if not batches:
            return self.spark.createDataFrame([], EVENT_DDL)
        return self.spark.read.schema(EVENT_DDL).parquet(*[batch.data for batch in batches])

    def _with_late(
        self, shape: TableShape, batches: Sequence[EventBatch], applied: Sequence[EventBatch]
    ) -> tuple[DataFrame, Sequence[EventBatch]]:
        """The events of these batches, with the applied ones that late ones ask for; and the batches of all of them."""
        files, _ = open_files(self.log.root)
        first = min(batch.first_lsn for batch in batches if batch.late)
        since = [batch for batch in applied if batch.horizon[0] >= first]
        kept = [batch for batch in since if files.exists(batch.data)]
        known = {batch.location for batch in kept}
        removed = _last_place([batch for batch in since if batch.location not in known])
        if shape.history:
            kept = [batch for batch in kept if batch.counts.deletes + batch.counts.truncates + batch.counts.moves]
        again = self._events(kept).where(f"commitLsn >= {first}")
        late = LateEvents(shape, self._events(batches), again, _last_place(applied), removed)
        return late.for_history() if shape.history else late.for_rows(), [*batches, *kept]

    def _declared(self, position: Position) -> dict[str, Any] | None:
        """The declaration to record with the rows; None where positions of an earlier version have none."""
        return None if position.declared is None else self.captured.declaration

    def _refuse_other_lsns(self, base: DataFrame, batches: Sequence[EventBatch]) -> None:
        """Raise BadInput where a new snapshot has lower LSNs than the history, and so cannot continue it."""
        from pyspark.sql import functions as F  # noqa: N812

        snapshot = next((batch for batch in batches if batch.kind == "snapshot"), None)
        if snapshot is None:
            return
        last = base.agg(F.max(F.greatest("valid_from_lsn", "valid_to_lsn")).alias("last")).first()
        if last is not None and last["last"] is not None and last["last"] > snapshot.last_lsn:
            raise BadInput(
                f"{self.captured.dataset}: its history reaches to LSN {format_lsn(last['last'])}, and the new snapshot "
                f"of {self.captured.source} was taken at {format_lsn(snapshot.last_lsn)}: the source is another "
                f"server. {NOTHING_LOST} Declare a new dataset for the history from here on."
            )

    def _changed(self, resolution: Resolution) -> list[PartitionKey]:
        """The partitions whose rows changed."""
        from pyspark.sql import functions as F  # noqa: N812

        dataset = self.captured.dataset
        names, data = dataset.partitioning.names, dataset.schema.names
        # The old partition of a row is where it is stored, although partition_by might compute another one now.
        sides = ((resolution.before, -1), (self._partitioned(resolution.after), 1))
        weighted = [frame.select(*data, *names, F.lit(weight).alias(WEIGHT)) for frame, weight in sides]
        summed = weighted[0].unionByName(weighted[1]).groupBy(*data, *names).agg(F.sum(WEIGHT).alias(WEIGHT))
        # As texts: what a value of a column says of a partition, its dimension knows, which may have several columns.
        rows = summed.where(f"{WEIGHT} <> 0").select(*partition_texts(names)).distinct().collect()
        if any(value is None for row in rows for value in row):
            raise BadInput(
                f"{dataset}: partition_by gives NULL for a row ({dict(self.captured.partition_by)}), which is no "
                f"partition. {NOTHING_LOST} Give such rows a partition of their own: coalesce(..., 'unknown')."
            )
        keys, unknown = [], []
        for row in rows:
            try:
                keys.append(dataset.partitioning.parsed(row.asDict()))
            except UnknownPartition:
                unknown.append(columns_text(row.asDict().items()))
        if unknown:
            raise BadInput(
                f"{dataset}: rows belong to partitions that it does not have: {some(sorted(unknown))}. {NOTHING_LOST} "
                "Widen its dimension, or change partition_by."
            )
        return sorted(keys)

    def _set_aside(
        self, position: Position, batches: Sequence[EventBatch], resolution: Resolution
    ) -> tuple[str | None, int]:
        if resolution.quarantined is None:
            return None, 0
        folder = f"{self.log.generation(position.generation)}/quarantine={batches[-1].last_lsn}-{uuid.uuid4().hex[:8]}"
        resolution.quarantined.write.mode("error").parquet(folder)
        # A TRUNCATE is among them for the sake of the others.
        return folder, resolution.quarantined.where("changeType <> 'truncate'").count()

    def _publish(  # noqa: PLR0917 - what one publish is made of
        self, position: Position, lsns: Sequence[int], resolution: Resolution,
        current: dict[str, Batch], keys: Sequence[PartitionKey], quarantine: tuple[str | None, int],
    ) -> Sequence[StagedBatch]:  # fmt: skip
        dataset, catalog = self.captured.dataset, self.catalog
        build = catalog.begin(dataset, keys, run_id=self.run_id, code_version=CODE_VERSION)
        try:
            self._refuse_stale(build, current)
            for key in keys:
                for read_lsn in lsns:
                    build.reads(key, Input(f"cdc:{self.captured.source}", f"generation={position.generation}",
                                           str(read_lsn)))  # fmt: skip
            old = self.store.read(dataset, [current[key.path] for key in keys if key.path in current])
            kept_rows = resolution.replaced(old).select(*dataset.schema.names, *dataset.partitioning.names)
            key_rows = self.spark.createDataFrame([tuple(map(plain, key.values)) for key in keys], ", ".join(
                f"__w_{column.name} {column.type}" for column in dataset.partition_columns))  # fmt: skip
            pairs = [(name, f"__w_{name}") for name in dataset.partitioning.names]
            new_rows = joined(self._partitioned(resolution.after), key_rows, pairs, "left_semi")
            staged = self._staged(build, kept_rows.unionByName(new_rows))
            self.step("staged")
            catalog.staged(build, staged)
            self.store.verify(build, staged)
            self.step("verified")
            self.store.commit([build], lambda: self._commit(build, position, lsns[-1], quarantine))
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

    def _staged(self, build: Build, rows: DataFrame) -> Sequence[StagedBatch]:
        """Stage the rows. Raises BadInput for a row that the declaration does not allow, as one without a value."""
        try:
            return self.store.stage(build, rows)
        except spark_errors() as error:
            if text := run_message(error):
                raise BadInput(
                    f"{build}: {text} {NOTHING_LOST} So the source has it: correct it there, or declare what it has."
                ) from error
            raise

    def _commit(self, build: Build, position: Position, lsn: int, quarantine: tuple[str | None, int]) -> None:
        """Make the batches current and move the position, in one transaction."""
        with self.catalog.connection.transaction():
            self.catalog.publish(build)
            self.positions.applied(position, lsn, *quarantine, self._declared(position))
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


def _last_place(batches: Sequence[EventBatch]) -> Place:
    """The place (commit LSN, seq) of the last event of these batches of files."""
    return max((batch.horizon for batch in batches), default=NOTHING_APPLIED)


def shape_of(captured: CapturedTable, table: SourceTable) -> TableShape:
    """The description of a captured table for the resolver."""
    key = tuple(captured.column(name) for name in table.key) if table.keyed else ()
    of_time = [column for column in captured.dataset.schema.columns if column.name == captured.changed_at]
    return TableShape(
        captured.dataset.name, (*captured.columns, *of_time), key,
        tuple((ours, theirs) for theirs, ours in captured.renames.items()),
        captured.ignore_null_updates, captured.history, captured.dataset.partitioning.names,
    )  # fmt: skip
