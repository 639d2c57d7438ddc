"""What of an environment may be promoted: its batches that are not current, and its code that is not deployed.

Not here: whether that leaves production consistent (closure.py), and promoting it (promoter.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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
    from varve.catalog.environments.environments import EnvironmentCode
    from varve.model.partitions.dimension import Members
    from varve.planning.changes.generation import EnvironmentGeneration
    from varve.planning.graph import Graph


@dataclass(frozen=True)
class Candidates:
    """What environments that have computed with the code of a graph have to promote.

    Attributes:
        members: the members of dynamic sets there.
        only: the datasets that may be promoted; None: all.
        earlier_code: whether code may go in force again that was deployed before, and was replaced since.
    """

    connection: psycopg.Connection
    graph: Graph
    members: Members
    only: frozenset[str] | None = None
    earlier_code: bool = False

    def of(self, name: str, *, incomplete: bool) -> Promotion:
        """What an environment has that production has not; nothing of it was asked for consistency yet.

        Raises VarveError where the environment follows production, has computed with other code than the graph's, has
        changed code that was replaced in production since, or has code that production had before what it has now.
        """
        connection = self.connection
        code = self._code_of(name)
        deployed = Deployments(connection).current()
        codes, replaced = self._changed(name, code, deployed)
        if not self.earlier_code:
            self._refuse_earlier(name, codes)
        entered = Generations(connection).of_environment(name)
        if not self.earlier_code:
            self._refuse_earlier_declaration(name, codes, entered)
        batches = self._batches(name, entered)
        if both := sorted(replaced & batches.keys()):
            raise VarveError(
                f"{both[0]}: environment {name} has computed with its code of before, and there is other code since, "
                f"by {_who(deployed[both[0]])}. Nothing was promoted. Take that into the code here, then "
                f"varve env rebase {name} --merged, varve env run {name}, and promote it again."
            )
        Owners(connection, self.graph.project).refuse({*codes, *batches}, "Nothing was promoted.")
        return Promotion(
            name,
            codes,
            batches,
            Closure(),
            {},
            self._removed(code, deployed),
            generations={dataset: entered[dataset] for dataset in self._new(entered)},
            incomplete=incomplete,
            earlier_code=self.earlier_code,
            replaced=tuple(sorted(replaced)),
            instead_of={dataset: deployed[dataset].code_version if dataset in deployed else "" for dataset in codes},
        )

    @cached_property
    def _versions(self) -> dict[str, str]:
        """The code versions of the datasets that may be promoted, where they have one."""
        return {
            dataset: version
            for dataset, version in self.graph.code_versions.items()
            if version and self._may_be_promoted(dataset)
        }

    def _may_be_promoted(self, dataset: str) -> bool:
        return dataset in (self.graph.datasets if self.only is None else self.only)

    def _code_of(self, name: str) -> Mapping[str, EnvironmentCode]:
        """The code that an environment has computed with. Raises VarveError where it is not the code of the graph."""
        environments = Environments(self.connection)
        if environments.base(name) is None:
            raise VarveError(
                f"environment {name} follows production (--live): what it shows was never one state of it. Nothing was "
                "promoted. Make one without --live, and run it."
            )
        code = environments.code(name)
        other = [
            dataset
            for dataset, version in sorted(self._versions.items())
            if dataset not in code or code[dataset].version != version
        ]
        if other:
            raise VarveError(
                f"environment {name} has not computed with the code that is here: {some(other)}. Nothing was promoted. "
                f"varve env run {name}"
            )
        return code

    def _changed(
        self, name: str, code: Mapping[str, EnvironmentCode], deployed: Mapping[str, Deployment]
    ) -> tuple[dict[str, str], set[str]]:
        """The code that the environment has changed, and the datasets whose code was replaced since it was made.

        Raises VarveError where it is one dataset.
        """
        codes, replaced = {}, set[str]()
        for dataset, version in self._versions.items():
            deployed_version = deployed[dataset].code_version if dataset in deployed else ""
            if deployed_version and version in {deployed_version, code[dataset].base}:
                if version != deployed_version:
                    replaced.add(dataset)
                continue
            if deployed_version != code[dataset].base:
                raise VarveError(
                    f"{dataset}: environment {name} has changed its code, and so has {_who(deployed[dataset])}. "
                    "Nothing was promoted. Merge the two versions of its file, then "
                    f"varve env rebase {name} --merged, varve env run {name}, and promote it again."
                )
            codes[dataset] = version
        return codes, replaced

    def _new(self, entered: Mapping[str, EnvironmentGeneration]) -> list[str]:
        return [
            dataset for dataset, generation in entered.items() if generation.is_new and self._may_be_promoted(dataset)
        ]

    def _batches(self, name: str, entered: Mapping[str, EnvironmentGeneration]) -> dict[str, dict[str, BatchId]]:
        """The batches of the environment by dataset and path, of the generation that is its dataset's there."""
        batches: dict[str, dict[str, BatchId]] = {dataset: {} for dataset in self._new(entered)}
        for dataset, path, batch_id, made_in, shown in Promotions(self.connection).candidates(name):
            number = entered[dataset].number if dataset in entered else shown
            if self._may_be_promoted(dataset) and made_in == number and self._is_key(dataset, path):
                batches.setdefault(dataset, {})[path] = BatchId(batch_id)
        return batches

    def _is_key(self, dataset: str, path: str) -> bool:
        """Whether the declaration has such a partition still: what it has not, no promotion brings to readers."""
        if (declared := self.graph.datasets.get(dataset)) is None:
            return True
        try:
            return declared.partitioning.exists(declared.partitioning.from_path(path), self.members)
        except VarveError:
            return False

    def _removed(self, code: Mapping[str, EnvironmentCode], deployed: Mapping[str, Deployment]) -> tuple[str, ...]:
        """The datasets that the code here does not declare any more, which were deployed and have partitions."""
        declared = {*self.graph.datasets, *(broken.name for broken in self.graph.broken)}
        # The code of other projects was copied when the environment was made.
        declared |= Owners(self.connection, self.graph.project).others().keys()
        facts = CatalogFacts(self.connection)
        return tuple(
            dataset
            for dataset in sorted(code.keys() & deployed.keys() - declared)
            if code[dataset].base and facts.existing_partitions(dataset)
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

    def _refuse_earlier_declaration(
        self, environment: str, codes: Mapping[str, str], entered: Mapping[str, EnvironmentGeneration]
    ) -> None:
        """Raise VarveError where readers would go back to a generation that they have left, though no code changes.

        Where a dataset lies, and which windows it has, is no part of its code: an old checkout has that as it was.
        """
        for dataset in self._new(entered):
            number = entered[dataset].number
            if dataset not in codes and Generations(self.connection).was_shown(dataset, number):
                raise VarveError(
                    f"{dataset}: it is declared here as readers had it before, in the {entered[dataset].store} now. Is "
                    "this checkout behind? Promoted, it would undo that. Nothing was promoted. Take what is deployed "
                    f"into the code here, and varve env run {environment} again; or, to go back to it on purpose: "
                    f"varve promote {environment} --earlier-code"
                )


def _who(deployment: Deployment) -> str:
    return f"{deployment.deployed_by} in production on {deployment.deployed_at:%Y-%m-%d %H:%M} UTC"
