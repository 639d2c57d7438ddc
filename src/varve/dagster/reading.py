"""Reading a dataset from a notebook or a script: its current batches, or those as of a batch, a time or a run.

    import varve

    with varve.open() as data:
        data.table("shop.sales", where={"day": "2026-11-05"}, as_of=dt.datetime(2026, 11, 20)).show()

Not here: the inputs of runs (runs/io_manager.py), whose batches are chosen when the run begins.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.catalog.history.history import READER, History
from varve.model.batch import BatchId
from varve.model.broken_dataset import DatasetIsBroken
from varve.model.errors import NotKept, UnknownPartition, VarveError, nearest, some
from varve.model.partitions.key import parse_path, text_of
from varve.project import Project
from varve.services.postgres import connect
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.planning.graph import Graph
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
            where: values of partition columns, as their keys are spelt, or as they are in Python (a moment without a
                zone is UTC); none mean every partition.
            as_of: a batch (of the partitions that have it), or an instant (one without a zone is UTC).
            run: as of the moment after this run had published; in the place of `as_of`.
            columns: which data columns; None for all. Nothing else is fetched.
            with_batch_id: whether to say of each row which batch it is from.

        Raises NotKept where what was current then was swept, UnknownPartition where nothing matches.
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
        """The batches that `read` reads, one for each partition; those that are not current are pinned for a day."""
        if as_of is not None and run is not None:
            raise VarveError("give one of as_of and run, not both.")
        history = History(self.catalog.connection)
        batches = self._batches_of(history, dataset, as_of, run)
        wanted = _in_paths(dataset, where or {}).items()
        chosen = {path: batch for path, batch in batches.items() if wanted <= dict(parse_path(path)).items()}
        if where and not chosen:
            raise UnknownPartition(f"{dataset}: no partition with {dict(where)} had a batch then.")
        if not self.catalog.environment:
            Generations(self.catalog.connection).refuse_unreadable(dataset, chosen.values())
        if as_of is not None or run is not None:
            self._hold(history, dataset, chosen)
        return [batch for _, batch in sorted(chosen.items())]

    def _batches_of(
        self, history: History, dataset: Dataset, as_of: BatchId | dt.datetime | None, run: str | None
    ) -> dict[str, Batch]:
        if isinstance(as_of, BatchId):
            return history.batch(dataset.name, as_of)
        if as_of is None and run is None:
            return self.catalog.current(dataset.name)
        if as_of is not None:
            at = _with_zone(as_of)
            then, kept = history.as_of(dataset.name, at, swept_too=True), history.as_of(dataset.name, at)
        else:
            assert run is not None
            then, kept = history.as_of_run(dataset.name, run, swept_too=True), history.as_of_run(dataset.name, run)
            if not then:
                raise VarveError(f"run {run!r} has published nothing; `varve history {dataset} --log` lists runs.")
        if lost := [f"{path} batch {batch.batch_id}" for path, batch in then.items() if path not in kept]:
            raise NotKept(
                f"{dataset}: what was current then was swept since: {some(lost)}. Nothing was read. "
                f"`varve history {dataset}` lists what is kept."
            )
        return kept

    def _hold(self, history: History, dataset: Dataset, chosen: Mapping[str, Batch]) -> None:
        owner = f"{READER}{os.getpid()}@{socket.gethostname()}"
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
        rows = [(*map(text_of, key.values), batch.batch_id.millis) for key, batch in zip(keys, batches, strict=True)]
        columns = ", ".join(f"`{name}` STRING" for name in names)
        batch_ids = self.spark().createDataFrame(rows, f"{columns}, {BATCH_ID} BIGINT")
        for column in dataset.partition_columns:
            batch_ids = batch_ids.withColumn(column.name, F.col(f"`{column.name}`").cast(str(column.type)))
        return frame.join(F.broadcast(batch_ids), list(names)).select(*frame.columns, BATCH_ID)


@contextlib.contextmanager
def open_reader(project: Project | None = None, environment: str = "") -> Iterator[Reader]:
    """A reader with a connection of its own, on the Spark of the project (None: of the working directory).

    With `environment`, what is current there is what it reads. Raises VarveError where there is none of that name.
    """
    from varve.services.spark import open_session

    settings = (project or Project.find()).settings
    with connect(settings, application="varve reader") as connection:
        catalog = EnvironmentCatalog(connection, environment) if environment else Catalog(connection)
        catalog.ensure_schema()
        if environment:
            Environments(connection).get(environment)
            Environments(connection).use(environment)
        # One session: frames of two cannot be joined.
        yield Reader(settings, catalog, cache(lambda: open_session(settings)))


class OpenProject:
    """A project that is read: `table` gives its datasets as Spark DataFrames.

    Servers are asked, and started where they are embedded, when the first table is read. `close` gives the connection
    back; frames that were read stay usable. The SQL files are read when the project is opened: after a change of what
    readers see, open it again. Python files are as the process has imported them.
    """

    def __init__(self, project: Project, environment: str = "") -> None:
        self.project = project
        self.environment = environment
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        environment = f", env={self.environment!r}" if self.environment else ""
        return f"varve.open({str(self.project.root)!r}{environment})"

    def close(self) -> None:
        """Give the connection back."""
        self._resources.close()
        self.__dict__.pop("_reader", None)
        self.__dict__.pop("_graph", None)

    @property
    def datasets(self) -> list[str]:
        """The names of all datasets that can be read, each after those it reads."""
        return [dataset.name for dataset in self._graph.in_order()]

    def table(
        self,
        dataset: str | Dataset,
        *,
        where: Mapping[str, object] | None = None,
        as_of: dt.datetime | int | BatchId | None = None,
        run: str | None = None,
        columns: Sequence[str] | None = None,
        with_batch_id: bool = False,
    ) -> DataFrame:
        """The rows of a dataset: its data columns, then its partition columns.

        The batches are chosen now. What is published later does not change the frame, and no sweep takes from it what
        it reads.

        Args:
            dataset: its name, `db.table`.
            where: values of partition columns, as their keys are spelt, or as they are in Python (a moment without a
                zone is UTC); every partition where none are given.
            as_of: an instant (one without a zone is UTC), or a batch: only the partitions that have it.
            run: as of the moment after this run had published; in the place of `as_of`.
            columns: which data columns; None for all. Nothing else is fetched.
            with_batch_id: whether a last column `_batch_id` tells of each row which batch it is from.

        Raises VarveError for a name that the project does not declare, NotKept where what was current then was swept,
        UnknownPartition where no partition matches.
        """
        batch = BatchId(as_of) if isinstance(as_of, int) else as_of
        return self._reader.read(
            self._dataset(dataset), where=where, as_of=batch, run=run, columns=columns, with_batch_id=with_batch_id
        )

    def _dataset(self, dataset: str | Dataset) -> Dataset:
        if not isinstance(dataset, str):
            return dataset
        if dataset in self._graph.datasets:
            return self._graph.datasets[dataset]
        broken = self._graph.broken_dataset(dataset)
        if broken is not None and broken.name:
            raise DatasetIsBroken(broken)
        raise VarveError(
            f"{self.project.file or self.project.root} has no dataset {dataset!r}."
            f"{nearest(dataset, self._graph.datasets)} It has {some(sorted(self._graph.datasets)) or 'none'}."
        )

    @cached_property
    def _reader(self) -> Reader:
        return self._resources.enter_context(open_reader(self.project, self.environment))

    @cached_property
    def _graph(self) -> Graph:
        from varve.dagster.discovery import load_anew

        return load_anew(self.project).graph


def open_project(
    project: Project | str | Path | None = None, *, deployment: str | None = None, env: str | None = None
) -> OpenProject:
    """A project to read from: `varve.open().table("shop.sales")`; in a `with`, or closed by `close`.

    Args:
        project: the project, or its folder; None for the one of the working directory.
        deployment: one of its deployments, where the project is not given itself.
        env: an environment, whose batches are read in the place of production's.

    Raises NoProject where there is none.
    """
    opened_project = project if isinstance(project, Project) else Project.find(project, deployment=deployment)
    return OpenProject(opened_project, env or "")


def _in_paths(dataset: Dataset, where: Mapping[str, object]) -> dict[str, str]:
    """The values as paths spell them. Raises UnknownPartition for a column by which the dataset is not partitioned."""
    if unknown := set(where) - set(dataset.partitioning.names):
        columns = ", ".join(dataset.partitioning.names)
        raise UnknownPartition(
            f"{dataset} is not partitioned by {', '.join(sorted(unknown))}, but by {columns or 'nothing'}."
        )
    values = {name: _with_zone(value) if isinstance(value, dt.datetime) else value for name, value in where.items()}
    return {
        name: dataset.partitioning.text_in_paths(name, text_of(value))  # type: ignore[arg-type]
        for name, value in values.items()
    }


def _with_zone(moment: dt.datetime) -> dt.datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
