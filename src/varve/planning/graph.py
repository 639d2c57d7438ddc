"""The graph of datasets: who reads whom, and which partitions of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.model.reads import Reads
from varve.planning.mapping.dataset_mapping import Dependency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.broken_dataset import BrokenDataset
    from varve.model.dataset import Dataset
    from varve.model.reads import Wait


@dataclass(frozen=True, kw_only=True)
class PlannedReads(Reads):
    """A dataset that another one reads, where the partitions follow from a query and not from rules."""

    dependency: Dependency


@dataclass(frozen=True, slots=True)
class Edge:
    """One dataset that another reads: which of its partitions and columns, and how long it waits for them."""

    upstream: Dataset
    dependency: Dependency
    wait: Wait
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Graph:
    """The datasets of a project by name, and for each those it reads.

    Attributes:
        code_versions: for each dataset a hash of the code that computes it.
        broken: what the code declares too, and cannot be used as it is written: it is no part of the graph, and
            nothing may be concluded from its absence.
    """

    datasets: Mapping[str, Dataset]
    reads: Mapping[str, tuple[Reads, ...]]
    code_versions: Mapping[str, str]
    broken: tuple[BrokenDataset, ...] = ()

    def __post_init__(self) -> None:
        for name, reads in self.reads.items():
            if unknown := [read.dataset.name for read in reads if read.dataset.name not in self.datasets]:
                raise VarveError(
                    f"dataset {name} reads {', '.join(unknown)}, which nobody declares; add its asset to these."
                )
        self.in_order()

    @cached_property
    def edges(self) -> dict[str, tuple[Edge, ...]]:
        """For each dataset what it reads."""
        return {
            name: tuple(edge(self.datasets[name], read) for read in self.reads.get(name, ())) for name in self.datasets
        }

    def broken_dataset(self, name: str) -> BrokenDataset | None:
        """The broken dataset of that name; for a name that nobody declares a file that may, as it does not say what."""
        if name in self.datasets:
            return None
        by_name = {each.rejected: each for each in self.broken if each.rejected}
        by_name |= {each.name: each for each in self.broken}
        return by_name.get(name) or by_name.get("")

    def in_order(self) -> list[Dataset]:
        """All datasets, each after those it reads. Raises VarveError with the path of a cycle."""
        names = {name: [read.dataset.name for read in self.reads.get(name, ())] for name in self.datasets}
        try:
            return [self.datasets[name] for name in TopologicalSorter(names).static_order()]
        except CycleError as error:
            raise VarveError(f"datasets read each other in a circle: {' <- '.join(error.args[1])}.") from None

    def upstreams(self, dataset: Dataset) -> list[Dataset]:
        """The datasets that `dataset` reads."""
        return [found.upstream for found in self.edges[dataset.name]]

    def edge(self, reader: Dataset, upstream: Dataset) -> Edge:
        """What one dataset reads of another. Raises VarveError where it reads nothing of it."""
        for found in self.edges.get(reader.name, ()):
            if found.upstream.name == upstream.name:
                return found
        raise VarveError(f"dataset {reader} does not read {upstream}; name it in `reads` of its asset.")


def edge(reader: Dataset, reads: Reads) -> Edge:
    """What `reader` reads of one dataset. Raises VarveError, naming both and the dimension, where that cannot be."""
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
