"""The graph of datasets: who reads whom."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from pipeline_defs.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline_defs.model.dataset import Dataset


@dataclass(frozen=True)
class Graph:
    """The datasets of a project by name, and for each the names of those it reads.

    Attributes:
        code_versions: for each dataset a hash of the code that computes it.
    """

    datasets: Mapping[str, Dataset]
    reads: Mapping[str, tuple[str, ...]]
    code_versions: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, upstreams in self.reads.items():
            if unknown := [upstream for upstream in upstreams if upstream not in self.datasets]:
                raise VarveError(f"dataset {name} reads {', '.join(unknown)}, which nobody declares.")
        self.in_order()

    def in_order(self) -> list[Dataset]:
        """All datasets, each after those it reads. Raises VarveError with the path of a cycle."""
        try:
            names = TopologicalSorter({name: self.reads.get(name, ()) for name in self.datasets}).static_order()
            return [self.datasets[name] for name in names]
        except CycleError as error:
            raise VarveError(f"datasets read each other in a circle: {' <- '.join(error.args[1])}.") from None

    def upstreams(self, dataset: Dataset) -> list[Dataset]:
        """The datasets that `dataset` reads."""
        return [self.datasets[name] for name in self.reads.get(dataset.name, ())]
