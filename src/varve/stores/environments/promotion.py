"""Promotion: the batches of an environment and its code go in force in one transaction, and nothing is computed.

The closure check asks the ordinary planner, in the transaction and after the pointers have moved: which partitions are
not made from what is current now? A promoted batch must be; and where a partition of production is not although it was
before, it reads what was promoted through an old batch. With either of them, everything is taken back.

Not here: computing in an environment (varve/dagster/environments.py).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from varve.catalog.code.deployments import Decision, Deployments
from varve.catalog.code.generations import Generations, shape_of
from varve.catalog.code.promotions import PromotionPlan, Promotions
from varve.catalog.environments.environments import Environments
from varve.catalog.planning.facts import CatalogFacts
from varve.model.errors import VarveError, counted, some
from varve.model.policy import OnCodeChange
from varve.planning.changes.generation import has_same_partitions
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import Planner
from varve.stores.together import PendingChange, make_current

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping

    from varve.catalog.catalog import Catalog
    from varve.model.batch import BatchId
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.changes.generation import EnvironmentGeneration
    from varve.planning.graph import Graph
    from varve.planning.reconcile import Limits
    from varve.stores.store import Store

T = TypeVar("T")
_ATTEMPTS = 5
# A partition in one of these states is not made from what is current, by the code that is deployed.
_STALE = {State.DUE, State.WAITING, State.OUTDATED, State.ON_HOLD, State.BACKING_OFF, State.FAILED}
# How the ids begin under which promotions are recorded.
PROMOTION_RUN = "promote-"
_SETTLED = (State.CURRENT, "")
# Publishers take this lock when they compare what is current with what they expect. From here on they wait.
_LOCK_CURRENT = "lock table varve.current in exclusive mode"
_LET_GO = "delete from varve.hold where dataset = %s and partition = any(%s)"

# Partitions by dataset, each with the reason for which it is listed.
Listed = dict[str, dict[str, str]]
# By dataset and partition: the state, and why.
Judged = dict[str, dict[str, tuple[State, str]]]


class LeftBehind(StrEnum):
    """What a promotion does where partitions of production would be left with old inputs or old code.

    REFUSE: nothing is promoted. RUN: they become due, and the sensors compute them. LEAVE_OUT: what they depend on is
    not promoted either: the largest part that is consistent is.
    """

    REFUSE = "refuse"
    RUN = "then run"
    LEAVE_OUT = "only consistent"


@dataclass(frozen=True, slots=True)
class Closure:
    """What a promotion would leave inconsistent.

    Attributes:
        moved: promoted partitions whose inputs production has replaced since: they are to be computed again first.
        behind: partitions of production that would be left with old inputs or old code.
    """

    moved: Listed = field(default_factory=dict)
    behind: Listed = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Promotion:
    """A promotion, made or only looked at.

    Attributes:
        codes: by dataset the code version that is deployed by it.
        batches: by dataset and partition the batch that becomes current.
        closure: what it leaves inconsistent; empty where nothing is.
        left_out: what of the environment is not promoted, by dataset and partition.
        removed: the deployed datasets that the environment's code does not declare; a promotion leaves them alone.
        run_id: under which its publishes are recorded (`varve history --run`); "" where nothing was promoted.
        generations: by dataset the generation to which readers move, where that is another one.
    """

    environment: str
    codes: Mapping[str, str]
    batches: Mapping[str, Mapping[str, BatchId]]
    closure: Closure
    left_out: Listed
    removed: tuple[str, ...] = ()
    run_id: str = ""
    number: int | None = None
    generations: Mapping[str, EnvironmentGeneration] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """How many partitions get another batch."""
        return sum(map(len, self.batches.values()))

    def plan(self, behind: LeftBehind) -> PromotionPlan:
        """The promotion as it is kept in the catalog."""
        batches = {name: {path: batch_id.millis for path, batch_id in paths.items()}
                   for name, paths in self.batches.items()}  # fmt: skip
        return PromotionPlan(self.environment, str(behind), dict(self.codes), batches, self.run_id)


class Corrections(Protocol):
    """The corrected files of an environment (varve/sources/landing/corrections.py)."""

    def arrive(self, batches: Mapping[str, Mapping[str, BatchId]]) -> None:
        """Record, in the transaction, that production has the files from which these batches were made."""

    def send(self, batches: Mapping[str, Mapping[str, BatchId]]) -> None:
        """Put them into the landing folder of production."""


class NotClosed(VarveError):
    """A promotion would leave production inconsistent; nothing was promoted."""

    def __init__(self, promotion: Promotion) -> None:
        super().__init__(_not_closed(promotion))
        self.promotion = promotion


@dataclass(frozen=True)
class Promoter:
    """Promotes an environment that has computed with the code of a graph.

    Attributes:
        catalog: that of production.
        store_of: opens the store of a dataset over that catalog.
        only: the datasets that are promoted; None: all.
        corrections: files that were landed into the environment, which go to production with what was made from them.
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

    def look(self, name: str, behind: LeftBehind = LeftBehind.REFUSE) -> Promotion:
        """What a promotion would do; nothing is changed.

        Raises VarveError where the environment follows production, has computed with other code than the graph's, or
        has changed code that was replaced in production since.
        """
        promotion = self._candidates(name)
        while True:
            closure = _unless_locked(partial(self._tried, promotion, behind))
            if behind is not LeftBehind.LEAVE_OUT or not (closure.moved or closure.behind):
                return replace(promotion, closure=closure)
            smaller = self._without(promotion, closure)
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
        changes = self._changes(promotion)
        done: list[Promotion] = []

        def within(point: Callable[[], None]) -> None:
            # Again, as production may have moved since; publishers wait from here until the end.
            closure, number = self._swapped(promotion, behind, point, by)
            if closure.moved or (behind is not LeftBehind.RUN and closure.behind):
                raise NotClosed(replace(promotion, closure=closure))
            self._follow(promotion)
            if self.corrections is not None:
                self.corrections.send(promotion.batches)
            done[:] = [replace(promotion, closure=closure, number=number)]

        leaving = [
            (self.store_of(replace(self.graph.datasets[name], store=generation.store)), name)
            for name, generation in promotion.generations.items()
            if generation.store != self.graph.datasets[name].store
        ]
        _unless_locked(partial(make_current, self.catalog, changes, self.store_of, within=within, leaving=leaving))
        return done[0]

    def _candidates(self, name: str) -> Promotion:
        environments, connection = Environments(self.catalog.connection), self.catalog.connection
        if environments.get(name).base is None:
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
        codes = {}
        for dataset, version in versions.items():
            in_force = deployed[dataset].code_version if dataset in deployed else ""
            if version in {in_force, code[dataset].base} and in_force:
                continue
            if in_force != code[dataset].base:
                raise VarveError(
                    f"{dataset}: environment {name} has changed its code, and so has "
                    f"{deployed[dataset].deployed_by} in production on {deployed[dataset].deployed_at:%Y-%m-%d %H:%M} "
                    "UTC. Nothing was promoted. Merge the two versions of its file, then "
                    f"varve env rebase {name} --merged, varve env run {name}, and promote it again."
                )
            codes[dataset] = version
        entered = Generations(connection).of_environment(name)
        generations = {
            dataset: generation for dataset, generation in entered.items()
            if generation.is_new and dataset in chosen
        }  # fmt: skip
        batches: dict[str, dict[str, BatchId]] = {dataset: {} for dataset in generations}
        for row in environments.overlay(name):
            number = entered[row.dataset].number if row.dataset in entered else row.shown
            is_known = row.dataset in chosen and row.generation == number
            if is_known and row.batch_id is not None and row.batch_id != row.current:
                batches.setdefault(row.dataset, {})[row.partition] = row.batch_id
        declared = {*self.graph.datasets, *(broken.name for broken in self.graph.broken)}
        removed = tuple(sorted(
            dataset for dataset in code.keys() & deployed.keys() - declared
            if code[dataset].base and CatalogFacts(connection).existing_partitions(dataset)
        ))  # fmt: skip
        return Promotion(name, codes, batches, Closure(), {}, removed, generations=generations)

    def _tried(self, promotion: Promotion, behind: LeftBehind) -> Closure:
        """Promote and take everything back, without a word to readers; returns what was inconsistent."""
        changes = self._changes(promotion)
        closure = Closure()
        with self.catalog.connection.transaction(force_rollback=True):

            def point() -> None:
                instant = self.catalog.instant()
                for change in changes:
                    change.point(instant)

            closure, _ = self._swapped(promotion, behind, point, "")
        return closure

    def _swapped(
        self, promotion: Promotion, behind: LeftBehind, point: Callable[[], None], by: str
    ) -> tuple[Closure, int]:
        """In a transaction: deploy the code, move the pointers, and ask what is inconsistent by that."""
        connection = self.catalog.connection
        connection.execute(_LOCK_CURRENT)
        before: Judged = {}
        former = self._former(promotion)
        with connection.transaction() as savepoint:
            number = self._point_all(promotion, behind, point, by)
            after = self._judged(promotion)
            if others := self._others(promotion, {}, after):
                # Was it so before? That is seen without the promotion, which is made again after that.
                raise psycopg.Rollback(savepoint)
        if others:
            before = self._judged(promotion)
            number = self._point_all(promotion, behind, point, by)
        return self._unclosed(promotion, before, after, former), number

    def _point_all(self, promotion: Promotion, behind: LeftBehind, point: Callable[[], None], by: str) -> int:
        """Deploy the code and move the pointers; returns the number of the plan that says so."""
        connection, deployments = self.catalog.connection, Deployments(self.catalog.connection)
        number = Promotions(connection).applied(promotion.plan(behind), by=by)
        for name, version in sorted(promotion.codes.items()):
            dataset = self.graph.datasets[name]
            decision = replace(_decision(dataset, behind), plan=number)
            deployments.deploy(dataset, version, self.graph.sources.get(name, ""), decision, by=by)
        if self.corrections is not None:
            self.corrections.arrive(promotion.batches)
        point()
        return number

    def _former(self, promotion: Promotion) -> dict[str, set[str]]:
        """What readers have now of the datasets that move to another generation with the same partitions."""
        published = Generations(self.catalog.connection).published(promotion.generations)
        facts = CatalogFacts(self.catalog.connection)
        return {
            name: facts.existing_partitions(name) for name in promotion.generations
            if name in published and has_same_partitions(published[name].shape, shape_of(self.graph.datasets[name]))
        }  # fmt: skip

    def _judged(self, promotion: Promotion) -> Judged:
        """The states of partitions that are not settled, as the transaction sees the catalog.

        Of the datasets that are promoted and their direct readers: only there are inputs, code or batches others than
        before, and from what a partition is made decides whether it is stale.
        """
        connection = self.catalog.connection
        codes = Deployments(connection).states(self.graph)
        planner = Planner(self.graph, self.limits, fatal=(Exception,), only=concerned(self.graph, promotion))
        facts = CatalogFacts(connection, {}, codes)
        plan = planner.tick(facts, None, now=self.now, members=self.members, codes=codes)
        return {
            name: {path: (judgement.state, judgement.reason) for path, judgement in judgements.items()}
            for name, judgements in plan.judgements.items()
        }

    def _others(self, promotion: Promotion, before: Judged, after: Judged) -> Listed:
        """The partitions that exist, are stale, and are neither promoted nor were stale before.

        Whether a new generation is complete is asked elsewhere.
        """
        # Before, these waited for the new generation: that does not say that they are out of date anyway.
        waited = {name for moved in promotion.generations for name in self.graph.downstream(moved)}
        listed: Listed = {}
        for name in after.keys() - promotion.generations.keys():
            others = {
                path: reason
                for path, (state, reason) in after[name].items()
                if state in _STALE and path not in promotion.batches.get(name, {})
                and (name in waited or before.get(name, {}).get(path, _SETTLED)[0] not in _STALE)
            }  # fmt: skip
            existing = CatalogFacts(self.catalog.connection).existing_partitions(name) if others else set()
            if others := {path: reason for path, reason in others.items() if path in existing}:
                listed[name] = others
        return listed

    def _unclosed(self, promotion: Promotion, before: Judged, after: Judged, former: Mapping[str, set[str]]) -> Closure:
        moved: Listed = {}
        for name, judgements in after.items():
            promoted = promotion.batches.get(name, {})
            if name in promotion.generations:
                moved[name] = self._not_complete(promoted, judgements, former.get(name, set()))
            else:
                moved[name] = {
                    path: reason for path, (state, reason) in judgements.items()
                    if state in _STALE and path in promoted
                }  # fmt: skip
        return Closure({name: paths for name, paths in moved.items() if paths}, self._others(promotion, before, after))

    @staticmethod
    def _not_complete(
        promoted: Mapping[str, BatchId], judgements: Mapping[str, tuple[State, str]], former: set[str]
    ) -> dict[str, str]:
        """What a new generation still needs: what is due in it, and what readers have of the one before it."""
        needed = {
            path: reason for path, (state, reason) in judgements.items()
            if state in _STALE and (path in promoted or path in former or state is not State.WAITING)
        }  # fmt: skip
        for path in sorted(former - promoted.keys() - needed.keys()):
            needed[path] = judgements.get(path, _SETTLED)[1] or "readers have it, and the new generation has not"
        return needed

    def _without(self, promotion: Promotion, closure: Closure) -> Promotion:
        """The promotion without what is inconsistent: partitions, or all of a dataset whose code would be mixed."""
        batches = {name: dict(paths) for name, paths in promotion.batches.items()}
        codes, left_out = dict(promotion.codes), {name: dict(paths) for name, paths in promotion.left_out.items()}

        def leave_out(name: str, paths: Mapping[str, str]) -> None:
            for path, reason in paths.items():
                if batches.get(name, {}).pop(path, None) is not None:
                    left_out.setdefault(name, {})[path] = reason

        # What is behind first: without what it reads, other batches may be made from what is current after all.
        found = closure.behind or closure.moved
        mixed = {name for name in found if name in codes}
        for name in mixed:
            del codes[name]
            leave_out(name, dict.fromkeys(batches.get(name, {}), "its dataset would have partitions of two codes"))
        for name, paths in ({} if closure.behind else closure.moved).items():
            leave_out(name, paths)
        for name, paths in closure.behind.items():
            if name in mixed:
                continue
            for path, reason in paths.items():
                for source, upstream_path in self._promoted_inputs(batches, name, path):
                    if source in codes:
                        del codes[source]
                        leave_out(source, dict.fromkeys(batches[source], f"{name} {path} reads some of it"))
                    leave_out(source, {upstream_path: f"{name} {path} {reason}"})
        return replace(
            promotion, codes=codes, batches={name: paths for name, paths in batches.items() if paths}, left_out=left_out
        )

    def _promoted_inputs(
        self, batches: Mapping[str, Mapping[str, BatchId]], name: str, path: str
    ) -> list[tuple[str, str]]:
        """The promoted partitions that a partition of production reads."""
        key = self.graph.datasets[name].partitioning.from_path(path)
        return [
            (edge.upstream.name, upstream.path)
            for edge in self.graph.edges[name]
            for upstream in edge.dependency.upstream_of(key, members=self.members).keys
            if upstream.path in batches.get(edge.upstream.name, {})
        ]

    def _changes(self, promotion: Promotion) -> list[PendingChange]:
        changes = []
        for name, batches in promotion.batches.items():
            dataset = self.graph.datasets[name]
            targets = {dataset.partitioning.from_path(path): batch_id for path, batch_id in batches.items()}
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
        self.catalog.register(dataset, build.registered)
        self.catalog.connection.execute(_LET_GO, (dataset.name, build.paths))

    def _follow(self, promotion: Promotion) -> None:
        """The environment stands on what was promoted: its overlay has only what is not current."""
        environments = Environments(self.catalog.connection)
        environments.forget_overlay(promotion.environment, {name: list(b) for name, b in promotion.batches.items()})
        environments.rebase(promotion.environment, code_too=False)
        environments.adopt(promotion.environment)


def concerned(graph: Graph, promotion: Promotion) -> set[str]:
    """The datasets of which a promotion can change whether partitions are stale."""
    promoted = {*promotion.batches, *promotion.codes}
    return promoted | {
        name for name, edges in graph.edges.items() if any(edge.upstream.name in promoted for edge in edges)
    }


def _unless_locked(work: Callable[[], T]) -> T:
    """Do it, again where PostgreSQL ended it so that a publish of several datasets could go on."""
    return Retrying(
        retry=retry_if_exception_type((psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable)),
        stop=stop_after_attempt(_ATTEMPTS), wait=wait_random_exponential(multiplier=0.05, max=1), reraise=True,
    )(work)  # fmt: skip


def _decision(dataset: Dataset, behind: LeftBehind) -> Decision:
    if dataset.policy.on_code_change is OnCodeChange.FORWARD:
        return Decision.of_policy(dataset)
    return Decision(OnCodeChange.REBUILD if behind is LeftBehind.RUN else OnCodeChange.HOLD)


def _not_closed(promotion: Promotion) -> str:
    closure = promotion.closure
    texts = []
    if closure.moved:
        texts.append(
            f"of it {_count(closure.moved)} made from inputs that production has replaced since "
            f"({_some(closure.moved)}); varve promote {promotion.environment} without --no-run computes them first"
        )
    if closure.behind:
        texts.append(
            f"{_count(closure.behind)} of production would be left behind ({_some(closure.behind)}): compute them in "
            f"the environment too (varve env run {promotion.environment}), or promote with --then-run, after which the "
            "sensors compute them, or with --only-consistent, which leaves out what they depend on"
        )
    return f"environment {promotion.environment} was not promoted, and nothing was changed: {'; '.join(texts)}."


def _count(listed: Listed) -> str:
    return counted(sum(map(len, listed.values())), "partition")


def _some(listed: Listed) -> str:
    return some(
        [f"{name} {path}: {reason}" for name, paths in listed.items() for path, reason in paths.items()], limit=3
    )
