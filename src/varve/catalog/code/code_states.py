"""The code of each dataset of a graph beside what is deployed, as the planner needs it.

Not here: deployments themselves (deployments.py), and what follows for a partition (varve/planning/judgement/code.py).
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from varve.catalog.code.decision import Decision
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.model.errors import CodeNotDeployed
from varve.model.partitions.own_calendar import Calendar
from varve.model.policy import OnCodeChange
from varve.planning.judgement.code import CodeState

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from varve.catalog.code.deployments import Deployment
    from varve.planning.graph import Graph

# No command takes a deployment away: a dataset that was dropped and is declared again has been seen before.
_FIRST = """
    select dataset, extract(epoch from min(deployed_at))::float8 from varve.deployment where dataset = any(%s)
    group by dataset
"""
# Since when the deployed code is, for those of which other code was deployed before it. It may have been deployed
# several times since, with other decisions. What failed before the only code there was is of no other code.
_CHANGED = """
    select p.dataset, extract(epoch from min(p.deployed_at))::float8
    from varve.deployment p join varve.deployed d using (dataset)
    where p.dataset = any(%s) and p.id > (
        select max(o.id) from varve.deployment o where o.dataset = d.dataset and o.code_version <> d.code_version)
    group by p.dataset
"""
# Of those deployments that were looked at: another one may have taken their place since.
_SETTLE = """
    update varve.deployed d set may_be_mixed = false from unnest(%s::text[], %s::bigint[]) as s (dataset, deployment)
    where (d.dataset, d.deployment) = (s.dataset, s.deployment)
"""


@dataclass(frozen=True)
class CodeStates:
    """The states in a catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def of(self, graph: Graph, *, deploy: bool = False) -> dict[str, CodeState]:
        """The code of each dataset of a graph beside what is deployed.

        With `deploy`, new code is deployed where nobody has to decide, and datasets that nobody owns are claimed;
        without it, new code only counts as if it were deployed.
        """
        owners, deployments = Owners(self.connection, graph.project), Deployments(self.connection)
        of_others = owners.claim(graph.own) if deploy else owners.others(graph.own)
        current = deployments.current(graph.datasets)
        held = [
            name for name, deployment in current.items()
            if deployment.may_be_mixed and deployment.decision is OnCodeChange.HOLD
        ]  # fmt: skip
        still_mixed = set(deployments.outdated(held)) if held else set()
        if deploy and (settled := sorted(set(held) - still_mixed)):
            self.connection.execute(_SETTLE, (settled, [current[name].number for name in settled]))
        states: dict[str, CodeState] = {}
        deployed_at: dict[str, float] = {}
        evolving = self._evolving(graph, current)
        for name, version in graph.code_versions.items():
            dataset, deployment = graph.datasets[name], current.get(name)
            if name in of_others:
                deployed_version = "" if deployment is None else deployment.code_version
                states[name] = CodeState(version, deployed_version, owner=of_others[name])
                continue
            if not version:
                continue
            is_deployed = deployment is not None and deployment.code_version == version
            if name in evolving:
                deployed_version = "" if deployment is None else deployment.code_version
                of_project = graph.datasets[evolving[name]].of_project
                states[name] = CodeState(version, deployed_version, evolving=evolving[name], of_project=of_project)
                continue
            if not is_deployed and deployments.decided_by_itself(dataset, version, deployment, by_run=False):
                if deploy:
                    with contextlib.suppress(CodeNotDeployed):
                        deployments.admit(dataset, version, graph.sources.get(name, ""))
                    # Where another process was first, its code counts.
                    deployment = deployments.current([name])[name]
                else:
                    kind = Decision.of_policy(dataset).kind
                    at = 0.0 if deployment is None else time.time()
                    states[name] = CodeState(version, version, kind, deployed_at=at, changed_at=at)
                    continue
            assert deployment is not None
            same_code = deployment.code_version == version
            if deploy and same_code and deployments.declared_otherwise(dataset, deployment) is not None:
                deployment = deployments.decide_as_declared(dataset, deployment)
            mixed = deployment.may_be_mixed and (name in still_mixed or name not in held)
            deployed_at[name] = deployment.deployed_at.timestamp()
            states[name] = CodeState(version, deployment.code_version, deployment.decision, mixed)
        for name, changed_at in self.connection.execute(_CHANGED, (list(deployed_at),)):
            states[name] = replace(states[name], deployed_at=deployed_at[name], changed_at=changed_at)
        first = self.first_seen(graph)
        return {name: replace(state, since=first.get(name, 0.0)) for name, state in states.items()}

    def first_seen(self, graph: Graph) -> dict[str, float]:
        """When the first code of a dataset was deployed, in seconds since 1970, where its policy depends on that.

        What was never deployed is seen first at this moment.
        """
        names = [
            name for name, dataset in graph.datasets.items()
            if dataset.policy.schedule is not None or not dataset.policy.catchup
        ]  # fmt: skip
        if not names:
            return {}
        return dict.fromkeys(names, time.time()) | dict(self.connection.execute(_FIRST, (names,)).fetchall())

    def _evolving(self, graph: Graph, current: Mapping[str, Deployment]) -> dict[str, str]:
        """By dataset: itself or what it reads, where that is declared here as a generation that readers do not see."""
        # The code version says neither where the batches lie, nor where the windows of a calendar of one's own end.
        deployed = [name for name in graph.code_versions if name in current]
        changed = Generations(self.connection).stored_elsewhere(graph.datasets[name] for name in deployed) | {
            name for name in deployed
            if (version := graph.code_versions[name]) and current[name].code_version != version
        }  # fmt: skip
        changed |= {
            name for name in deployed
            if (windows := graph.datasets[name].partitioning.time) is not None and isinstance(windows.tiling, Calendar)
        }  # fmt: skip
        changed |= {name for name, dataset in graph.datasets.items() if dataset.of_project}
        moving = Generations(self.connection).breaking(graph.datasets[name] for name in sorted(changed))
        readers = {
            name: upstream.name for name, dataset in graph.datasets.items() if moving
            for upstream in graph.upstreams(dataset) if upstream.name in moving
        }  # fmt: skip
        return readers | {name: name for name in moving}
