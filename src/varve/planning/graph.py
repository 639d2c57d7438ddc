"""The graph of datasets: which dataset reads which, and which partitions of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.model.partitions.dimension import DynamicDimension
from varve.model.reads import Reads
from varve.planning.mapping.dataset_mapping import Dependency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.broken_dataset import BrokenDataset
    from varve.model.dataset import Dataset
    from varve.model.reads import Wait
    from varve.model.schema import Column


@dataclass(frozen=True, kw_only=True)
class PlannedReads(Reads):
    """Reads whose partitions are derived from a query and not from declared rules."""

    dependency: Dependency


@dataclass(frozen=True, slots=True)
class Edge:
    """An upstream of a dataset: which of its partitions and columns are read, and how long the reader waits."""

    upstream: Dataset
    dependency: Dependency
    wait: Wait
    columns: tuple[str, ...] | None = None

    @property
    def reads_all_windows(self) -> bool:
        """Whether every partition of the reader reads all windows that the upstream has, and so none past retention."""
        return self.dependency.reads_all_windows

    @property
    def reads_by_window(self) -> bool:
        """Whether the windows that a partition of the reader reads follow its own window."""
        return self.dependency.reader.time is not None and not self.reads_all_windows

    @property
    def columns_read(self) -> tuple[Column, ...] | None:
        """The data columns that a run of the reader gets, and no others; None: all of them."""
        if self.columns is None:
            return None
        return tuple(column for column in self.upstream.schema.columns if column.name in self.columns)


@dataclass(frozen=True)
class Graph:
    """The datasets of a project by name, and for each the datasets that it reads.

    Attributes:
        code_versions: for each dataset a hash of the code that computes it; "" where that is not the project's own.
        sources: for each dataset its declaration as it is written.
        broken: declared datasets that cannot be used as they are written. They are no part of the graph, but nothing
            may be retired or deleted because they are absent.
        lineage: for each dataset whose body is a SELECT, its columns, and of which columns of datasets each is made.
        expectations: for each dataset the conditions that its rows must meet before they are published, by name.
        project: the name under which the project owns datasets of a catalog that it shares with others; "" for none.
    """

    datasets: Mapping[str, Dataset]
    reads: Mapping[str, tuple[Reads, ...]]
    code_versions: Mapping[str, str]
    broken: tuple[BrokenDataset, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    lineage: Mapping[str, Mapping[str, tuple[tuple[str, str], ...]]] = field(default_factory=dict)
    expectations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    project: str = ""

    def __post_init__(self) -> None:
        for name, reads in self.reads.items():
            if unknown := [read.dataset.name for read in reads if read.dataset.name not in self.datasets]:
                raise VarveError(
                    f"dataset {name} reads {', '.join(unknown)}, which nobody declares; add its asset to these."
                )
        self._check_sets()
        self.in_order()

    @cached_property
    def edges(self) -> dict[str, tuple[Edge, ...]]:
        """For each dataset the edges to its upstream datasets."""
        return {
            name: tuple(edge(self.datasets[name], read) for read in self.reads.get(name, ())) for name in self.datasets
        }

    @property
    def own(self) -> list[str]:
        """The names of the datasets that are declared to be computed or taken in here."""
        return [name for name, dataset in self.datasets.items() if not dataset.of_project]

    def broken_dataset(self, name: str) -> BrokenDataset | None:
        """The broken dataset of that name, else a broken file whose name is not known; None where there is neither."""
        if name in self.datasets:
            return None
        by_name = {broken.rejected: broken for broken in self.broken if broken.rejected}
        by_name |= {broken.name: broken for broken in self.broken}
        return by_name.get(name) or by_name.get("")

    def perhaps_in(self, name: str) -> str:
        """Where a dataset that is not known may be: in a file that cannot be read; a sentence after a blank, or ""."""
        broken = self.broken_dataset(name)
        return f" It may be in {broken.file}, which cannot be read: `varve check`." if broken is not None else ""

    def in_order(self) -> list[Dataset]:
        """All datasets, each after the datasets that it reads. Raises VarveError with the path of a cycle."""
        names = {name: [read.dataset.name for read in self.reads.get(name, ())] for name in self.datasets}
        try:
            return [self.datasets[name] for name in TopologicalSorter(names).static_order()]
        except CycleError as error:
            raise VarveError(f"datasets read each other in a circle: {' <- '.join(error.args[1])}.") from None

    def _check_sets(self) -> None:
        """Raise VarveError for a set with keys of two types: the keys of one dataset would be none of the other."""
        declared: dict[str, tuple[str, type]] = {}
        for name, dataset in self.datasets.items():
            for dimension in dataset.partitioning.dimensions:
                if not isinstance(dimension, DynamicDimension):
                    continue
                other, value_type = declared.setdefault(dimension.set_name, (name, dimension.value_type))
                if value_type is not dimension.value_type:
                    raise VarveError(
                        f"dataset {name}: the set {dimension.set_name} has keys of {value_type.__name__} in {other}, "
                        f"and of {dimension.value_type.__name__} here. Declare one type in both, or name another set."
                    )

    def upstreams(self, dataset: Dataset) -> list[Dataset]:
        """The datasets that `dataset` reads."""
        return [edge.upstream for edge in self.edges[dataset.name]]

    def downstream(self, name: str) -> set[str]:
        """The datasets that read this one, themselves or through others."""
        reached: set[str] = set()
        for dataset in self.in_order():
            if {upstream.name for upstream in self.upstreams(dataset)} & {name, *reached}:
                reached.add(dataset.name)
        return reached

    def upstream(self, name: str) -> set[str]:
        """The datasets that this one reads, itself or through others."""
        reached: set[str] = set()
        for dataset in reversed(self.in_order()):
            if dataset.name in {name, *reached}:
                reached |= {upstream.name for upstream in self.upstreams(dataset)}
        return reached

    def column_sets(self, dataset: Dataset) -> tuple[tuple[Column, ...], ...]:
        """The data columns of a dataset that a reader names: each set of them once, that of all columns too.

        Readers by which nothing says what they read, and so may read all, have none.
        """
        columns_of_reads = {
            read.columns_read: None
            for edges in self.edges.values() for read in edges
            if read.upstream.name == dataset.name and read.columns_read is not None
        }  # fmt: skip
        return tuple(columns for columns in columns_of_reads if columns is not None)

    def edge(self, reader: Dataset, upstream: Dataset) -> Edge:
        """The edge from one dataset to an upstream. Raises VarveError where it does not read that dataset."""
        for candidate in self.edges.get(reader.name, ()):
            if candidate.upstream.name == upstream.name:
                return candidate
        raise VarveError(f"dataset {reader} does not read {upstream}; name it in `reads` of its asset.")


def edge(reader: Dataset, reads: Reads) -> Edge:
    """The edge that `reads` declares. Raises VarveError that names both datasets and the dimension if it is invalid."""
    dependency = (
        reads.dependency
        if isinstance(reads, PlannedReads)
        else Dependency(reader.partitioning, reads.dataset.partitioning, reads.rules)
    )
    try:
        dependency.check()
    except VarveError as error:
        raise VarveError(f"dataset {reader} reads {reads.dataset}: {error}") from None
    if reads.wait.deadline is not None and reader.partitioning.time is None:
        raise VarveError(
            f"dataset {reader} reads {reads.dataset}: a deadline counts from the end of a window, and {reader} has "
            "no time dimension; say at_least or missing instead."
        )
    return Edge(reads.dataset, dependency, reads.wait, reads.columns)
