"""Which windows of a dataset keep, in an environment too, what earlier code has made of them (ON CODE CHANGE FORWARD).

Where the environment has changed the code, its declaration says from which window on that counts; else what was decided
in production when the code was deployed.

Not here: which batches stay in production (varve/catalog/code/deployments.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from varve.catalog.code.decision import Decision, begins_before
from varve.catalog.code.deployments import Deployments
from varve.catalog.environments.environments import Environments
from varve.model.policy import OnCodeChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import psycopg

    from varve.planning.graph import Graph

_OTHERS = """
    select c.partition, b.code_version from varve.current c join varve.batch b using (dataset, partition, batch_id)
    where c.dataset = %s and b.code_version not in ('', %s)
"""


@dataclass(frozen=True)
class EarlierCode:
    """The windows that keep what earlier code has made, in an environment that computes with the code of a graph.

    For one plan: it reads what is deployed once.
    """

    connection: psycopg.Connection
    environment: str
    graph: Graph

    @cached_property
    def boundaries(self) -> Mapping[str, float]:
        """By dataset that goes forward the begin of the first window that its code makes, in seconds since 1970."""
        bases, deployments = Environments(self.connection).code(self.environment), Deployments(self.connection)
        deployed = deployments.current(self.graph.datasets)
        instants = {}
        for name, version in self.graph.code_versions.items():
            dataset, base = self.graph.datasets[name], bases[name].base if name in bases else ""
            if not version or not base or dataset.partitioning.time is None:
                continue
            if version != base:
                instant = Decision.of_policy(dataset).instant(dataset)
            else:
                deployment = deployed.get(name)
                if deployment is None or deployment.code_version != version:
                    continue
                if (other := deployments.declared_otherwise(dataset, deployment)) is not None:
                    if (instant := other.instant(dataset)) is not None:
                        instants[name] = instant
                    continue
                boundary = deployment.forward_from if deployment.decision is OnCodeChange.FORWARD else None
                instant = None if boundary is None else boundary.timestamp()
            if instant is not None:
                instants[name] = instant
        return instants

    def among(self, name: str, paths: Iterable[str]) -> set[str]:
        """Those of the partitions whose windows begin before the boundary of the dataset."""
        if (instant := self.boundaries.get(name)) is None:
            return set()
        dataset = self.graph.datasets[name]
        return {path for path in paths if begins_before(dataset, path, instant)}

    def current(self, name: str) -> dict[str, str]:
        """The partitions of production that stay so, with the version of the code that has made each."""
        if name not in self.boundaries:
            return {}
        rows = self.connection.execute(_OTHERS, (name, self.graph.code_versions[name])).fetchall()
        made_by: dict[str, str] = dict(rows)
        return {path: made_by[path] for path in sorted(self.among(name, made_by))}
