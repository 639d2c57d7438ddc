"""Promotion: the batches of an environment and its code go in force in one transaction, and nothing is computed.

Whether that leaves production consistent is asked in the transaction, after the pointers have moved (closure.py). Where
it does not, everything is taken back.

Not here: computing in an environment (varve/dagster/environments).
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import psycopg

from varve.catalog.code.decision import Decision
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.generations import Generations
from varve.catalog.code.going_forward import GoingForward
from varve.catalog.code.promotions import PromotionPlan, Promotions
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.named_files import misnamed
from varve.model.errors import CodeNotDeployed, VarveError
from varve.model.policy import OnCodeChange
from varve.stores.environments.candidates import Candidates
from varve.stores.environments.closure import ClosureCheck, Judged
from varve.stores.environments.promotion import PROMOTION_RUN, Closure, LeftBehind, NotClosed, Promotion
from varve.stores.together import PendingChange, make_current, unless_locked

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping

    from varve.catalog.catalog import Catalog
    from varve.model.batch import BatchId
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.model.partitions.partitioning import Partitioning
    from varve.planning.graph import Graph
    from varve.planning.reconcile import Limits
    from varve.stores.environments.promotion import Corrections
    from varve.stores.store import Store

_IS_MADE = "select from varve.publish where run_id = %s limit 1"


@dataclass(frozen=True)
class Promoter:
    """Promotes an environment that has computed with the code of a graph.

    Attributes:
        catalog: that of production.
        store_of: opens the store of a dataset over that catalog.
        only: the datasets that are promoted; None: all.
        corrections: files that were landed into the environment, which go to production with what was made from them.
        incomplete: whether readers may miss what a new generation lacks of the one before.
        earlier_code: whether code may go in force again that was deployed before, and was replaced since.
        reason: why it is done, as the history of each partition says it; "": that it was promoted.
    """

    catalog: Catalog
    graph: Graph
    store_of: Callable[[Dataset], Store]
    members: Members
    limits: Limits
    now: dt.datetime
    only: frozenset[str] | None = None
    corrections: Corrections | None = None
    reason: str = ""
    incomplete: bool = False
    earlier_code: bool = False

    @cached_property
    def check(self) -> ClosureCheck:
        """What is asked of the planner, over the connection of the catalog."""
        return ClosureCheck(self.catalog.connection, self.graph, self.members, self.limits, self.now)

    def look(self, name: str, behind: LeftBehind = LeftBehind.REFUSE) -> Promotion:
        """What a promotion would do; nothing is changed.

        Raises VarveError where the environment follows production, has computed with other code than the graph's, has
        changed code that was replaced in production since, or has code that production had before what it has now.
        """
        promotion = self._candidates(name)
        while True:
            closure = unless_locked(partial(self._tried, promotion, behind))
            if behind is not LeftBehind.LEAVE_OUT or not (closure.moved or closure.behind):
                return replace(promotion, closure=closure)
            smaller = self.check.without(promotion, closure)
            if (smaller.batches, smaller.codes) == (promotion.batches, promotion.codes):
                return replace(promotion, closure=closure)
            promotion = smaller

    def promote(self, name: str, behind: LeftBehind, *, by: str, plan: PromotionPlan | None = None) -> Promotion:
        """Make the batches of the environment and its code current, in one transaction; computes nothing.

        Raises NotClosed with what would be inconsistent, what `look` raises, what a publish raises, and VarveError
        where a `plan` is given and is not what would be promoted now.
        """
        # What of it may go in force is found by trying. Else the promotion itself finds what would be inconsistent.
        promotion = self.look(name, behind) if behind is LeftBehind.LEAVE_OUT else self._candidates(name)
        if plan is not None and promotion.plan(behind).digest != plan.digest:
            raise VarveError(
                f"plan {plan.number} is not what would be promoted from environment {name} now: its batches or its "
                f"code have moved since. Nothing was changed. varve promote {name} --dry-run shows what it is now, and "
                "gives it a number."
            )
        if not promotion.batches and not promotion.codes:
            return promotion
        promotion = replace(promotion, run_id=f"{PROMOTION_RUN}{uuid.uuid4()}")
        done: list[Promotion] = []

        def within(point: Callable[[], None]) -> None:
            # Again, as production may have moved since; publishers wait from here until the end.
            closure, number = self._swapped(promotion, behind, point, by)
            if (closed := replace(promotion, closure=closure)).is_refused(behind):
                raise NotClosed(closed)
            self._follow(promotion)
            if self.corrections is not None:
                self.corrections.send(promotion.batches)
            done[:] = [replace(promotion, closure=closure, number=number)]

        leaving = [
            (self.store_of(replace(self.graph.datasets[name], store=generation.store)), name)
            for name, generation in promotion.generations.items()
            if generation.store != self.graph.datasets[name].store
        ]

        def attempt() -> None:
            # What production has now is what is replaced: that it fits is asked under the lock.
            changes = self._changes(promotion)
            make_current(self.catalog, changes, self.store_of, within=within, leaving=leaving)

        try:
            unless_locked(attempt)
        except BaseException as error:
            if self.corrections is not None and not self._is_made(promotion):
                self.corrections.take_back()
            if isinstance(error, CodeNotDeployed):
                raise _deployed_meanwhile(name, str(error)) from error
            raise
        return done[0]

    def _is_made(self, promotion: Promotion) -> bool:
        """Whether the transaction of a promotion went through, as far as can be told: what came after it may fail."""
        try:
            return self.catalog.connection.execute(_IS_MADE, (promotion.run_id,)).fetchone() is not None
        except psycopg.Error:
            return True

    def _candidates(self, name: str) -> Promotion:
        return Candidates(self.catalog.connection, self.graph, self.members, self.only, self.earlier_code).of(
            name, incomplete=self.incomplete
        )

    def _tried(self, promotion: Promotion, behind: LeftBehind) -> Closure:
        """Promote and take everything back, without a word to readers; returns what was inconsistent."""
        changes = self._changes(promotion)
        closure = Closure()
        with self.catalog.connection.transaction(force_rollback=True):

            def point() -> None:
                instant = self.catalog.instant()
                for change in changes:
                    change.point(instant)

            closure, _ = self._swapped(promotion, behind, point, None)
        return closure

    def _swapped(
        self, promotion: Promotion, behind: LeftBehind, point: Callable[[], None], by: str | None
    ) -> tuple[Closure, int]:
        """In a transaction: deploy the code, move the pointers, and ask what is inconsistent by that."""
        connection = self.catalog.connection
        Deployments(connection).lock(promotion.codes)
        self._refuse_deployed_meanwhile(promotion)
        Generations(connection).lock_current()
        before: Judged = {}
        formers = self.check.former(promotion)
        with connection.transaction() as savepoint:
            number = self._point_all(promotion, behind, point, by)
            after = self.check.judged(promotion)
            if others := self.check.others(promotion, {}, after):
                # Was it so before? That is seen without the promotion, which is made again after that.
                raise psycopg.Rollback(savepoint)
        if others:
            before = self.check.judged(promotion)
            number = self._point_all(promotion, behind, point, by)
        return self.check.unclosed(promotion, before, after, formers), number

    def _refuse_deployed_meanwhile(self, promotion: Promotion) -> None:
        """With deployments locked: raise VarveError where somebody has deployed since the candidates were read."""
        deployed = Deployments(self.catalog.connection).current(promotion.codes)
        for name in sorted(promotion.codes):
            version = deployed[name].code_version if name in deployed else ""
            if version != promotion.instead_of[name]:
                raise _deployed_meanwhile(promotion.environment, f"{name}, by {deployed[name].deployed_by}")

    def _point_all(self, promotion: Promotion, behind: LeftBehind, point: Callable[[], None], by: str | None) -> int:
        """Deploy the code and move the pointers; returns the number of the plan that says so.

        Where it is only tried, by None, the plan names no batches: of a hundred thousand they are megabytes.
        """
        connection, deployments = self.catalog.connection, Deployments(self.catalog.connection)
        plan = promotion.plan(behind) if by is not None else replace(promotion, batches={}).plan(behind)
        number = Promotions(connection).applied(plan, by=by or "")
        for name, version in sorted(promotion.codes.items()):
            dataset = self.graph.datasets[name]
            decision = replace(_decision(dataset, behind), plan=number)
            deployments.deploy(dataset, version, self.graph.sources.get(name, ""), decision, by=by or "")
        if self.corrections is not None:
            self.corrections.arrive(promotion.batches)
        point()
        for name in sorted(promotion.codes.keys() | promotion.generations.keys()):
            GoingForward(connection).accept_earlier(self.graph.datasets[name], self.graph.code_versions[name])
        return number

    def _changes(self, promotion: Promotion) -> list[PendingChange]:
        changes = []
        # Datasets of one calendar have the same keys, and to read a hundred thousand of them takes seconds.
        keys_of: dict[Partitioning, dict[str, PartitionKey]] = defaultdict(dict)
        for name, batches in promotion.batches.items():
            dataset = self.graph.datasets[name]
            keys = keys_of[dataset.partitioning]
            for path in batches.keys() - keys.keys():
                keys[path] = dataset.partitioning.from_path(path)
            targets = {keys[path]: batch_id for path, batch_id in batches.items()}
            build = self.catalog.unlocked(
                dataset, sorted(targets), run_id=promotion.run_id, code_version=self.graph.code_versions[name]
            )
            if name in promotion.generations:
                generation = promotion.generations[name]
                build.generation, build.registered = generation.number, generation.declaration
            point = partial(self._point, promotion, dataset, targets, build)
            changes.append(PendingChange(build, point))
        return changes

    def _point(
        self, promotion: Promotion, dataset: Dataset, targets: Mapping[PartitionKey, BatchId], build: Build,
        at: dt.datetime,
    ) -> None:  # fmt: skip
        reason = self.reason or f"promoted from environment {promotion.environment}"
        self.catalog.repoint(build, targets, reason=reason, at=at)
        if build.generation is not None:
            Generations(self.catalog.connection).move(
                dataset.name, build.generation, build.batch_id.millis, build.paths
            )
            # Nothing was made of them for this generation, and nothing can be.
            files = {path: arrived.uri for path, arrived in self.catalog.arrived_files(dataset.name).items()}
            self.catalog.departed(dataset.name, sorted(misnamed(dataset, files)))
        self.catalog.register(dataset, build.registered)
        if build.generation is None or not dataset.arrives:
            # A file that a person took back lies in the landing folder, and is not what the new generation has.
            self.catalog.let_go(build)

    def _follow(self, promotion: Promotion) -> None:
        """The environment stands on what was promoted: its overlay has only what is not current."""
        environments = Environments(self.catalog.connection)
        environments.forget_promoted(promotion.environment, promotion.batches)
        environments.rebase(promotion.environment, code_too=False)
        environments.adopt(promotion.environment)


def _deployed_meanwhile(environment: str, what: str) -> VarveError:
    return VarveError(
        f"other code was deployed in production while environment {environment} was promoted: {what.rstrip('.')}. "
        "Nothing was promoted. The same command again says what that means for it."
    )


def _decision(dataset: Dataset, behind: LeftBehind) -> Decision:
    if dataset.policy.on_code_change is OnCodeChange.FORWARD:
        return Decision.of_policy(dataset)
    return Decision(OnCodeChange.REBUILD if behind is LeftBehind.RUN else OnCodeChange.HOLD)
