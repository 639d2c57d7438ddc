"""Reading a dataset from a notebook or a script: what is in force, or what was as of a batch, a time or a run.

    from varve.dagster.reading import open_reader

    with open_reader() as reader:
        reader.read(DEPARTURES, where={"day": "2013-01-05"}, as_of=dt.datetime(2013, 2, 1), with_batch_id=True).show()

Not here: the inputs of runs (runs/io_manager.py), whose batches are chosen when the run begins.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.model.batch import BatchId
from varve.model.errors import NotKept, UnknownPartition, VarveError, some
from varve.model.partitions.key import parse_path
from varve.project import Project
from varve.services.postgres import connect
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.services.settings import Settings

BATCH_ID = "_batch_id"
# A frame is computed when it is used, not when it is made: so long a sweep leaves it what it reads.
HELD_FOR = dt.timedelta(days=1)


@dataclass(frozen=True)
class Reader:
    """Reads pinned batches: they are chosen once, when `read` is called, whatever is published later."""

    settings: Settings
    catalog: Catalog
    spark: Callable[[], SparkSession]

    def read(
        self,
        dataset: Dataset,
        *,
        where: Mapping[str, object] | None = None,
        as_of: BatchId | dt.datetime | None = None,
        run: str | None = None,
        columns: Sequence[str] | None = None,
        with_batch_id: bool = False,
    ) -> DataFrame:
        """The rows of the matching partitions: data columns, typed partition columns, and `_batch_id` on request.

        Args:
            dataset: which.
            where: values of partition columns, as their keys are spelt; none mean every partition.
            as_of: a batch (of the partitions that have it), or an instant (one without a zone is UTC).
            run: as of the moment after this run had published; in the place of `as_of`.
            columns: which data columns; None for all. Nothing else is fetched.
            with_batch_id: whether to say of each row which batch it is from.

        Raises NotKept where what was in force then was swept, UnknownPartition where nothing matches.
        """
        batches = self.batches(dataset, where=where, as_of=as_of, run=run)
        store = open_store(dataset.store, self.settings, self.catalog, self.spark)
        frame = store.read(dataset, batches, columns)
        return self._with_batch_id(dataset, frame, batches) if with_batch_id else frame

    def batches(
        self,
        dataset: Dataset,
        *,
        where: Mapping[str, object] | None = None,
        as_of: BatchId | dt.datetime | None = None,
        run: str | None = None,
    ) -> list[Batch]:
        """The batches that `read` reads, one for each partition; those out of force are pinned for a day."""
        if as_of is not None and run is not None:
            raise VarveError("give one of as_of and run, not both.")
        history = History(self.catalog.connection)
        found = self._found(history, dataset, as_of, run)
        chosen = {path: batch for path, batch in found.items() if _matches(dataset, path, where or {})}
        if where and not chosen:
            raise UnknownPartition(f"{dataset}: no partition with {dict(where)} had a batch then.")
        if as_of is not None or run is not None:
            self._hold(history, dataset, chosen)
        return [batch for _, batch in sorted(chosen.items())]

    def _found(
        self, history: History, dataset: Dataset, as_of: BatchId | dt.datetime | None, run: str | None
    ) -> dict[str, Batch]:
        if isinstance(as_of, BatchId):
            return history.batch(dataset.name, as_of)
        if as_of is None and run is None:
            return self.catalog.current(dataset.name)
        if as_of is not None:
            at = as_of if as_of.tzinfo else as_of.replace(tzinfo=dt.UTC)
            then, kept = history.as_of(dataset.name, at, swept_too=True), history.as_of(dataset.name, at)
        else:
            assert run is not None
            then, kept = history.as_of_run(dataset.name, run, swept_too=True), history.as_of_run(dataset.name, run)
            if not then:
                raise VarveError(f"run {run!r} has published nothing; `varve history {dataset} --log` lists runs.")
        if lost := [f"{path} batch {batch.batch_id}" for path, batch in then.items() if path not in kept]:
            raise NotKept(
                f"{dataset}: what was in force then was swept since: {some(lost)}. Nothing was read. "
                f"`varve history {dataset}` lists what is kept."
            )
        return kept

    def _hold(self, history: History, dataset: Dataset, chosen: Mapping[str, Batch]) -> None:
        owner = f"reader {os.getpid()}@{socket.gethostname()}"
        by_id: dict[BatchId, list[str]] = {}
        for path, batch in chosen.items():
            by_id.setdefault(batch.batch_id, []).append(path)
        until = dt.datetime.now(dt.UTC) + HELD_FOR
        for batch_id, paths in by_id.items():
            history.pin(dataset.name, batch_id, paths, owner=owner, reason="being read", expires_at=until)

    def _with_batch_id(self, dataset: Dataset, frame: DataFrame, batches: Sequence[Batch]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        ids = {batch.batch_id.millis for batch in batches}
        if len(ids) <= 1:
            return frame.withColumn(BATCH_ID, F.lit(next(iter(ids), None)).cast("bigint"))
        names = dataset.partitioning.names
        keys = [dataset.partitioning.from_path(batch.partition) for batch in batches]
        rows = [
            (*(str(value) for value in key.values), batch.batch_id.millis)
            for key, batch in zip(keys, batches, strict=True)
        ]
        columns = ", ".join(f"`{name}` STRING" for name in names)
        known = self.spark().createDataFrame(rows, f"{columns}, {BATCH_ID} BIGINT")
        for column in dataset.partition_columns:
            known = known.withColumn(column.name, F.col(f"`{column.name}`").cast(str(column.type)))
        return frame.join(F.broadcast(known), list(names)).select(*frame.columns, BATCH_ID)


@contextlib.contextmanager
def open_reader(project: Project | None = None) -> Iterator[Reader]:
    """A reader with a connection of its own, on the Spark of the project (None: of the working directory)."""
    from varve.services.spark import open_session

    settings = (project or Project.find()).settings
    with connect(settings, application="varve reader") as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        yield Reader(settings, catalog, lambda: open_session(settings))


def _matches(dataset: Dataset, path: str, where: Mapping[str, object]) -> bool:
    if unknown := set(where) - set(dataset.partitioning.names):
        columns = ", ".join(dataset.partitioning.names)
        raise UnknownPartition(f"{dataset} is not partitioned by {', '.join(sorted(unknown))}, but by {columns}.")
    spelt = dict(parse_path(path))
    return all(spelt[name] == str(value) for name, value in where.items())
