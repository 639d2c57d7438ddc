"""Runs within an environment: what differs there in code or inputs is computed, for the partitions that were asked for.

Its runs have a Dagster instance of their own, in Varve's home: they are no part of what Dagster shows of production.

Not here: what arrives there (arrivals.py), the overlay that runs write (varve/catalog/environments) and
promoting it (varve/stores/environments).
"""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import dagster as dg
import pendulum

from varve.catalog.catalog import Catalog
from varve.catalog.code.code_states import CodeStates
from varve.catalog.code.generations import Generations
from varve.catalog.environments.dropped import unless_dropped
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.facts import EnvironmentFacts, codes_of
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.catalog.planning.facts import living
from varve.catalog.traces import Traces
from varve.dagster.automation.planner_facts import limits_of
from varve.dagster.automation.requesting import acceptable, run_request
from varve.dagster.discovery import load_project
from varve.dagster.driver import RUN_CONFIG, failure_reason
from varve.dagster.environments.carrying_over import CarryingOver
from varve.dagster.instance import open_instance
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.dagster.partitions.sets_sensor import grow, sets_of
from varve.dagster.runs.whole import still_whole
from varve.model.errors import VarveError, counted, some
from varve.model.partitions.partitioning import base_set, dagster_text
from varve.planning.environment_runs import Wanted, needed
from varve.planning.judgement.judgement import State
from varve.planning.judgement.judging import RetryLimits
from varve.planning.reconcile import Planner
from varve.planning.requested import AGAIN_TAG, EFFECTS_TAG, ENVIRONMENT_TAG
from varve.planning.run_requests import parts_of
from varve.services.folders import environment_home
from varve.services.postgres import connect
from varve.services.spark import open_session
from varve.sources.landing.corrections import CorrectedFiles
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    import psycopg

    from varve.model.partitions.dimension import DynamicDimension, Members
    from varve.model.partitions.key import Value
    from varve.planning.graph import Graph
    from varve.planning.judgement.judgement import Judgement
    from varve.planning.run_requests import Run
    from varve.project import Project
    from varve.services.settings import Settings

# Of what a person has asked for, an attempt that failed or was killed keeps nothing waiting.
_AT_ONCE = RetryLimits(attempts=1_000_000, first=0.0, most=0.0)
_STUCK = {State.FAILED, State.BACKING_OFF, State.WAITING, State.ON_HOLD}
# Partitions whose run failed are not tried again by the same command.
_UNSETTLED = {State.DUE, State.BACKING_OFF, State.FAILED, State.WAITING, State.MISSING, State.IN_FLIGHT}


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """What is to be computed in an environment.

    Attributes:
        runs: what can be computed now, upstream first.
        due: by dataset, the partitions that differ in code or inputs, as far as that is known now: readers of what will
            be computed follow.
        stuck: by dataset and partition, why a wanted partition cannot be computed.
        judgements: of every partition that is not settled, by dataset.
        rewritten: by dataset the partitions of a new generation that are first made of the rows of the one before; only
            of a look ahead.
    """

    runs: tuple[Run, ...]
    due: Mapping[str, tuple[str, ...]]
    stuck: Mapping[str, Mapping[str, str]]
    judgements: Mapping[str, Mapping[str, Judgement]]
    rewritten: Mapping[str, Collection[str]] = field(default_factory=dict)

    def held(self) -> dict[str, dict[str, str]]:
        """By dataset and partition why it stays as it is, although what it reads has changed."""
        held: dict[str, dict[str, str]] = {}
        for name, paths in self.stuck.items():
            on_hold = {path: why for path, why in paths.items() if self.judgements[name][path].state is State.ON_HOLD}
            if on_hold:
                held[name] = on_hold
        return held


@dataclass
class EnvironmentWork:
    """What a run in an environment has done, by dataset: how many partitions were computed, and how many taken.

    Taken are batches that the same code has made from the same inputs before, in any environment; rewritten are those
    of a new generation that hold the rows of the one before. What is held stays as it is, each partition with why.
    """

    computed: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    rewritten: dict[str, int] = field(default_factory=dict)
    held: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenEnvironment:
    """An environment that is worked in, with the code of a project.

    Attributes:
        instance: Dagster's instance of the environment.
        backs_off: whether what has failed waits until it is tried again, as where nobody has asked for it now.
    """

    name: str
    project: Project
    graph: Graph
    connection: psycopg.Connection
    instance: dg.DagsterInstance
    backs_off: bool = False

    @property
    def members(self) -> Members:
        """The members of dynamic sets: those of production when the environment was opened."""
        return sets_of(self.instance, self.graph).members()

    @unless_dropped
    def plan(self, wanted: Wanted) -> EnvironmentPlan:
        """What is to be computed of the wanted partitions, and of those that they read.

        Raises UnknownPartition where the wanted partitions do not exist.
        """
        return self._plan(wanted)

    @unless_dropped
    def look(self, wanted: Wanted) -> EnvironmentPlan:
        """The same plan, and nothing is changed: neither code nor generations that were not here are entered."""
        with self.connection.transaction(force_rollback=True):
            plan = self._plan(wanted)
            rewritten = self.carrying_over().rewritable(wanted)
        due = {name: tuple(path for path in paths if path not in rewritten.get(name, ()))
               for name, paths in plan.due.items()}  # fmt: skip
        return replace(plan, due={name: paths for name, paths in due.items() if paths}, rewritten=rewritten)

    def _plan(self, wanted: Wanted) -> EnvironmentPlan:
        generations = Generations(self.connection)
        generations.enter(self.name, self.graph)
        now, members = pendulum.now("UTC"), self.members
        settings = self.project.settings
        facts = EnvironmentFacts(self.connection, self.name, self.graph, living(self.connection, self.name))
        # What a new generation has other partitions of, readers lose with its promotion, which shows that first.
        entered = generations.of_environment(self.name).items()
        new = frozenset(name for name, generation in entered if generation.is_new)
        limits = replace(limits_of(settings), may_empty=new)
        planner = Planner(self.graph, limits if self.backs_off else replace(limits, patience=_AT_ONCE))
        first_seen = CodeStates(self.connection).first_seen(self.graph)
        codes = codes_of(self.graph, first_seen, facts.earlier_code.boundaries)
        plan = planner.tick(facts, None, now=now, members=members, codes=codes)
        chosen = needed(self.graph, wanted, plan.judgements, facts.existing_partitions, members)
        runs = [part for run in plan.runs for part in _within(run, chosen.get(run.dataset.name, frozenset()))]
        due = {}
        stuck: dict[str, dict[str, str]] = {}
        for name, judgements in plan.judgements.items():
            paths = chosen.get(name, frozenset())
            if due_paths := tuple(path for path in sorted(paths) if _is_due(judgements.get(path))):
                due[name] = due_paths
            for path in sorted(paths):
                judgement = judgements.get(path)
                if judgement is not None and judgement.state in _STUCK:
                    stuck.setdefault(name, {})[path] = judgement.reason
        return EnvironmentPlan(tuple(runs), due, stuck, plan.judgements)

    @unless_dropped
    def run(
        self,
        wanted: Wanted,
        *,
        effects: bool = False,
        rewrite: bool = False,
        before: Callable[[Run], None] = lambda run: None,  # noqa: ARG005
        done: EnvironmentWork | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> EnvironmentWork:
        """Compute what is due of the wanted partitions, or take what was made like it before.

        With `rewrite`, batches of a new generation are made of the rows of the one before where that is possible; for
        rows from outside that is so anyway. `before` is called with each run; what is done is added to `done`; no run
        begins once it is `stopped`. Raises VarveError where a run fails: what was computed stays in the overlay,
        and the same call goes on from there.
        """
        environments = Environments(self.connection)
        environments.set_code(self.name, self.graph)
        Generations(self.connection).enter(self.name, self.graph)
        done = done or EnvironmentWork()
        for kept, carried in zip(
            (done.rewritten, done.taken), self.carrying_over(everything=rewrite).carry(wanted), strict=True
        ):
            for name, count in carried.items():
                kept[name] = kept.get(name, 0) + count
        while (plan := self.plan(wanted)).runs:
            for run in plan.runs:
                environments.use(self.name)
                name = run.dataset.name
                taken = self._take(run, plan.judgements[name])
                done.taken[name] = done.taken.get(name, 0) + len(taken)
                for part in parts_of(run, [key for key in run.partitions if key.path not in taken]):
                    for accepted in self._accepted(part):
                        if stopped():
                            return done
                        before(accepted)
                        self._execute(accepted, effects=effects)
                        done.computed[name] = done.computed.get(name, 0) + len(accepted.partitions)
        done.held = plan.held()
        environments.use(self.name)
        return done

    def carrying_over(self, *, everything: bool = False) -> CarryingOver:
        """What carries the rows of earlier generations over into this environment."""
        settings = self.project.settings
        session = cache(lambda: open_session(settings))
        return CarryingOver(self.connection, self.name, self.graph, settings, session, everything)

    @unless_dropped
    def take(self, wanted: Wanted) -> tuple[EnvironmentWork, Mapping[str, tuple[str, ...]]]:
        """Take, of the wanted partitions that are due, those that were made like it before, and compute nothing.

        Returns what was taken, and by dataset the partitions that would have to be computed.
        """
        environments = Environments(self.connection)
        environments.set_code(self.name, self.graph)
        done = EnvironmentWork()
        while True:
            plan, count = self.plan(wanted), sum(done.taken.values())
            for run in plan.runs:
                name = run.dataset.name
                done.taken[name] = done.taken.get(name, 0) + len(self._take(run, plan.judgements[name]))
            if sum(done.taken.values()) == count:
                return done, plan.due

    @property
    def corrections(self) -> CorrectedFiles:
        """The files that were landed into the environment."""
        settings = self.project.settings
        folder = _home(settings, self.name) / "landing"
        return CorrectedFiles(self.connection, self.graph, self.name, folder, settings.landing)

    def job(self, selection: Sequence[dg.AssetKey]) -> dg.JobDefinition:
        """The job of these assets, as the project defines them."""
        definitions = self.project.module(self.project.definitions).defs
        job: dg.JobDefinition = definitions.get_repository_def().get_implicit_job_def_for_assets(selection)
        return job

    def _take(self, run: Run, judgements: Mapping[str, Judgement]) -> set[str]:
        """Point the overlay at batches that the same code made from the same inputs; returns their partitions."""
        dataset, settings = run.dataset, self.project.settings
        if dataset.recomputes:
            return set()
        inputs = {key.path: reads for key in run.partitions if (reads := judgements[key.path].inputs)}
        version = self.graph.code_versions[dataset.name]
        generation = Generations(self.connection).of_environment(self.name).get(dataset.name)
        batches = Traces(self.connection).equal_batches(
            dataset.name, version, inputs, current_too=True, generation=generation.number if generation else None
        )
        if not batches:
            return set()
        catalog = EnvironmentCatalog(self.connection, self.name)
        store = open_store(dataset.store, settings, catalog, partial(open_session, settings))
        if batches := still_whole(store, dataset, batches):
            keys = [key for key in run.partitions if key.path in batches]
            build = catalog.unlocked(dataset, keys, run_id=f"env-{uuid.uuid4()}", code_version=version)
            store.republish(build, list(batches.values()))
        return set(batches)

    def _accepted(self, run: Run) -> list[Run]:
        parts, left_out = acceptable(run, self.instance)
        if left_out:
            raise VarveError(f"{run.dataset} {left_out[0].subject} cannot be run: {left_out[0].reason}")
        return parts

    def _execute(self, run: Run, *, effects: bool) -> None:
        request = run_request(run)
        tags = {
            **request.tags,
            ENVIRONMENT_TAG: self.name,
            AGAIN_TAG: "yes",
            **({EFFECTS_TAG: "yes"} if effects else {}),
        }
        job = self.job(request.asset_selection or ())
        result = job.execute_in_process(
            run_config=RUN_CONFIG, instance=self.instance, asset_selection=list(request.asset_selection or ()),
            partition_key=request.partition_key, tags=tags, raise_on_error=False,
        )  # fmt: skip
        if not result.success:
            raise VarveError(
                f"{run.dataset} {some(run.partitions, limit=2)} failed in environment {self.name}: "
                f"{failure_reason(result)} What was computed before stays: run it again to go on."
            )


@contextmanager
def opened_environment(project: Project, name: str, *, shown: bool = True) -> Iterator[OpenEnvironment]:
    """Open an environment with the code of a project.

    Its runs are `shown` by `varve ui --env`. Those that nobody will look at are kept in memory, which is quicker: on
    disk Dagster makes a database for each of them.

    Raises VarveError where there is none of that name, where a file of the project has errors, or a server cannot be
    reached.
    """
    settings, graph = project.settings, load_project(project).graph
    if graph.broken:
        raise VarveError(
            f"{counted(len(graph.broken), 'dataset')} of the project cannot be used as written: "
            f"{some([broken.title for broken in graph.broken])}. "
            "`varve check` shows the errors. Nothing was computed."
        )
    with connect(settings, application=f"varve env {name}") as connection:
        Catalog(connection).ensure_schema()
        Environments(connection).get(name)
        with open_instance(settings) as production:
            members = sets_of(production, graph)
            keys = {dimension: members.members()[set_name] for set_name, dimension in members.dimensions.items()}
        home = _home(settings, name)
        with dg.DagsterInstance.from_config(str(home)) if shown else dg.DagsterInstance.ephemeral() as instance:
            sets = PartitionSets(instance, [dataset.partitioning for dataset in graph.datasets.values()])
            _forget_keys(home, instance, keys)
            for dimension, values in keys.items():
                sets.add(dimension, values)
            while grow(instance, graph):
                pass
            yield OpenEnvironment(name, project, graph, connection, instance)


def _forget_keys(home: Path, instance: dg.DagsterInstance, keys: Mapping[DynamicDimension, Sequence[Value]]) -> None:
    """Take out of the sets what was copied from production when the environment was opened before, and is gone there.

    Keys that the environment's own runs have added stay.
    """
    note = home / "copied_keys.json"
    texts = {base_set(dimension): sorted(map(dagster_text, values)) for dimension, values in keys.items()}
    try:
        before = json.loads(note.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        before = {}
    for name, listed in texts.items():
        for text in set(before.get(name, ())) - set(listed):
            instance.delete_dynamic_partition(name, text)
    # After it: what is interrupted is done again. Keys of sets that this code does not have are kept in mind.
    note.write_text(json.dumps({**before, **texts}), encoding="utf-8")


def _home(settings: Settings, name: str) -> Path:
    home = environment_home(settings, name)
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    return home


def _is_due(judgement: Judgement | None) -> bool:
    return judgement is not None and judgement.state in _UNSETTLED - {State.MISSING}


def _within(run: Run, paths: frozenset[str]) -> Iterator[Run]:
    """The part of a run that is wanted."""
    keys = [key for key in run.partitions if key.path in paths]
    if keys:
        yield from parts_of(run, keys)
