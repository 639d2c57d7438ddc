"""What a test runs: a SQL dataset as a run computes it, or a Python dataset as the function that it is.

Not here: the rows that it is given, and what becomes of those that it makes (running.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from varve.dagster.assets.python_files import python_assets
from varve.dagster.assets.sql_rows import broken_expectations, computed, row_error, watched
from varve.model.broken_dataset import DatasetIsBroken
from varve.model.errors import VarveError, nearest, some
from varve.planning.graph import edge
from varve.sql.spark.run_errors import run_message
from varve.sql.syntax.sql_file import Body
from varve.testing.context import called
from varve.testing.sql import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.dagster.assets.datasets import DatasetAsset
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.mapping.dataset_mapping import Dependency
    from varve.project import Project
    from varve.sql.sql_asset import SqlAsset


@dataclass(frozen=True)
class Upstream:
    """A dataset that is read: which of its partitions, and which data columns (None: all)."""

    dataset: Dataset
    dependency: Dependency
    columns: tuple[str, ...] | None


class UnknownDataset(VarveError):
    """No file of the project declares it."""


@dataclass(frozen=True)
class SqlTarget:
    """A SQL dataset whose body is a query or names a Python function."""

    sql_asset: SqlAsset

    @property
    def dataset(self) -> Dataset:
        """The dataset."""
        return self.sql_asset.dataset

    @cached_property
    def upstreams(self) -> dict[str, Upstream]:
        """The datasets that it reads, by name."""
        asset = self.sql_asset
        return {
            name: Upstream(asset.upstreams[name], asset.dependency(name), asset.compiled.columns[name])
            for name in asset.reads
        }

    def rows(
        self, spark: SparkSession, keys: Sequence[PartitionKey], frames: Mapping[str, DataFrame]
    ) -> tuple[DataFrame, Any]:
        """Return the rows, and an observation of its EXPECT (None: it has none); nothing runs yet."""
        return watched(self.sql_asset, computed(self.sql_asset, spark, keys, frames))

    def row_error(self, keys: Sequence[PartitionKey], error: Exception) -> str:
        """Return what an error of Spark over the rows is, at its place; "" where rows have not caused it."""
        return row_error(self.sql_asset, keys, error)

    def broken(self, counts: Mapping[str, int]) -> str:
        """Return which EXPECT rows break, by the counts of the observation; "" where none."""
        return broken_expectations(self.sql_asset, counts)


@dataclass(frozen=True)
class PythonTarget:
    """A dataset of `@varve.asset`."""

    asset: DatasetAsset

    @property
    def dataset(self) -> Dataset:
        """The dataset."""
        return self.asset.dataset

    @cached_property
    def upstreams(self) -> dict[str, Upstream]:
        """The datasets that it reads, by name."""
        edges = [edge(self.asset.dataset, reads) for reads in self.asset.reads]
        return {read.upstream.name: Upstream(read.upstream, read.dependency, read.columns) for read in edges}

    def rows(
        self, spark: SparkSession, keys: Sequence[PartitionKey], frames: Mapping[str, DataFrame]
    ) -> tuple[DataFrame, Any]:
        """Return the rows that the function returns."""
        return called(self.asset, keys, frames, spark), None

    def row_error(self, keys: Sequence[PartitionKey], error: Exception) -> str:
        """Return what an error of Spark over the rows is; "" where rows have not caused it."""
        del keys
        return run_message(error)

    def broken(self, counts: Mapping[str, int]) -> str:
        """Its expectations are looked at where its rows are staged."""
        del counts
        return ""


Target = SqlTarget | PythonTarget


class Targets:
    """The datasets of a project that tests may run; its files are compiled once."""

    def __init__(self, project: Project, spark: Callable[[], SparkSession]) -> None:
        project.importable()
        self._folder = project.assets
        self._files = compiled(project.assets, spark)
        self._targets: dict[str, Target] = {}

    def of(self, name: str) -> Target:
        """Return the dataset of that name.

        Raises UnknownDataset, DatasetIsBroken, and VarveError for a dataset that has neither a query nor a function.
        """
        if name not in self._targets:
            self._targets[name] = self._target(name)
        return self._targets[name]

    def file_of(self, name: str) -> str:
        """Return the path of the file that declares a SQL dataset, relative to the project; "" for one of Python."""
        return self._files[name].source.path if name in self._files else ""

    @cached_property
    def _python(self) -> dict[str, DatasetAsset]:
        return {asset.dataset.name: asset for asset in python_assets(self._folder)}

    def _target(self, name: str) -> Target:
        for broken in self._files.broken:
            if broken.name == name:
                raise DatasetIsBroken(broken)
        if name in self._files:
            asset = self._files[name]
            if asset.sql.body is Body.EXTERNAL:
                raise VarveError(
                    f"{name} comes from others and has no query; give its rows as inputs of what reads it."
                )
            if asset.sql.body is Body.SPARK:
                raise VarveError(f"{name} is a program that spark-submit runs; test the functions that it is made of.")
            return SqlTarget(asset)
        if name in self._python:
            python = self._python[name]
            if python.compute is None or python.dataset.arrives:
                raise VarveError(f"{name} comes from others; give its rows as inputs of what reads it.")
            return PythonTarget(python)
        names = sorted([*self._files, *self._python])
        raise UnknownDataset(f"nobody declares {name}.{nearest(name, names)} There are {some(names) or 'none'}.")
