"""What of an environment may be promoted: its batches that are not current, and its code that is not deployed.

Not here: whether that leaves production consistent (closure.py), and promoting it (promoter.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog.code.deployments import Deployments
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.catalog.code.promotions import Promotions
from varve.catalog.environments.environments import Environments
from varve.catalog.planning.facts import CatalogFacts
from varve.model.batch import BatchId
from varve.model.errors import VarveError, some
from varve.stores.environments.promotion import Closure, Promotion

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from varve.catalog.code.deployments import Deployment
    from varve.planning.graph import Graph


@dataclass(frozen=True)
class Candidates:
    """What environments that have computed with the code of a graph have to promote.

    Attributes:
        only: the datasets that may be promoted; None: all.
        earlier_code: whether code may go in force again that was deployed before, and was replaced since.
    """

    connection: psycopg.Connection
    graph: Graph
    only: frozenset[str] | None = None
    earlier_code: bool = False

    def of(self, name: str, *, incomplete: bool) -> Promotion:
        """What an environment has that production has not; nothing of it was asked for consistency yet.

        Raises VarveError where the environment follows production, has computed with other code than the graph's, has
        changed code that was replaced in production since, or has code that production had before what it has now.
        """
        environments, connection = Environments(self.connection), self.connection
        if environments.base(name) is None:
            raise VarveError(
                f"environment {name} follows production (--live): what it shows was never one state of it. Nothing was "
                "promoted. Make one without --live, and run it."
            )
        code = environments.code(name)
        chosen = frozenset(self.graph.datasets if self.only is None else self.only)
        versions = {
            dataset: version for dataset, version in self.graph.code_versions.items() if version and dataset in chosen
        }  # fmt: skip
        if other := sorted(dataset for dataset, version in versions.items()
                           if dataset not in code or code[dataset].version != version):  # fmt: skip
            raise VarveError(
                f"environment {name} has not computed with the code that is here: {some(other)}. Nothing was promoted. "
                f"varve env run {name}"
            )
        deployed = Deployments(connection).current()
        codes, replaced = {}, []
        for dataset, version in versions.items():
            deployed_version = deployed[dataset].code_version if dataset in deployed else ""
            if version in {deployed_version, code[dataset].base} and deployed_version:
                replaced += [dataset] if version != deployed_version else []
                continue
            if deployed_version != code[dataset].base:
                raise VarveError(
                    f"{dataset}: environment {name} has changed its code, and so has {_who(deployed[dataset])}. "
                    "Nothing was promoted. Merge the two versions of its file, then "
                    f"varve env rebase {name} --merged, varve env run {name}, and promote it again."
                )
            codes[dataset] = version
        if not self.earlier_code:
            self._refuse_earlier(name, codes)
        entered = Generations(connection).of_environment(name)
        generations = {
            dataset: generation for dataset, generation in entered.items()
            if generation.is_new and dataset in chosen
        }  # fmt: skip
        batches: dict[str, dict[str, BatchId]] = {dataset: {} for dataset in generations}
        for dataset, path, batch_id, made_in, shown in Promotions(connection).candidates(name):
            number = entered[dataset].number if dataset in entered else shown
            if dataset in chosen and made_in == number:
                batches.setdefault(dataset, {})[path] = BatchId(batch_id)
        for dataset in replaced:
            if dataset in batches:
                raise VarveError(
                    f"{dataset}: environment {name} has computed with its code of before, and there is other code "
                    f"since, by {_who(deployed[dataset])}. Nothing was promoted. Take that into the code "
                    f"here, then varve env rebase {name} --merged, varve env run {name}, and promote it again."
                )
        Owners(connection, self.graph.project).refuse({*codes, *batches}, "Nothing was promoted.")
        declared = {*self.graph.datasets, *(broken.name for broken in self.graph.broken)}
        removed = tuple(sorted(
            dataset for dataset in code.keys() & deployed.keys() - declared
            if code[dataset].base and CatalogFacts(connection).existing_partitions(dataset)
        ))  # fmt: skip
        return Promotion(
            name,
            codes,
            batches,
            Closure(),
            {},
            removed,
            generations=generations,
            incomplete=incomplete,
            earlier_code=self.earlier_code,
            replaced=tuple(replaced),
            instead_of={name: deployed[name].code_version if name in deployed else "" for name in codes},
        )

    def _refuse_earlier(self, environment: str, codes: Mapping[str, str]) -> None:
        """Raise VarveError where code would go in force that somebody has replaced, as an old checkout has it."""
        deployments = Deployments(self.connection)
        for dataset, version in codes.items():
            if until := deployments.until(dataset, version):
                raise VarveError(
                    f"{dataset}: {until}. Is this checkout behind? Promoted, it would undo that. Nothing was promoted. "
                    f"Take what is deployed into the code here, and varve env run {environment} again; or, to go back "
                    f"to it on purpose: varve promote {environment} --earlier-code"
                )


def _who(deployment: Deployment) -> str:
    return f"{deployment.deployed_by} in production on {deployment.deployed_at:%Y-%m-%d %H:%M} UTC"
