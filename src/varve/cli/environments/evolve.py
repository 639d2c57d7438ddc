"""`varve evolve`: builds the generation that a declaration begins beside what readers see, and moves them to it.

It does with an environment of its own what anybody can do with one: compute there, then promote. A killed one goes on
where it was, because what was computed is kept.

Not here: the environment (varve/dagster/environments) and the promotion (varve/stores/environments).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.code.generations import Generations, shape_of
from varve.catalog.code.plans import Plans
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.held import held
from varve.cdc.capture.positions import Positions
from varve.cli.context import chosen_graph
from varve.cli.environments import promotions, work
from varve.cli.selection import refuse_of_others, who
from varve.model.errors import VarveError, counted, nearest, some
from varve.planning.backfill import with_downstream
from varve.planning.changes.generation import begins_generation
from varve.planning.environment_runs import Wanted
from varve.planning.judgement.judgement import State
from varve.stores.environments.completeness import Completeness, former
from varve.stores.environments.promotion import LeftBehind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import psycopg
    from rich.console import Console

    from varve.dagster.environments.open_environment import EnvironmentWork, OpenEnvironment
    from varve.planning.graph import Graph

# The longest name of an environment, without what each of these begins with.
_LENGTH = 24


@dataclass
class Evolution:
    """What a command has done, or would do.

    Attributes:
        reasons: why the dataset needs another generation; empty where it needs none.
        due: by dataset the partitions to compute, of a dry run.
        follows: by dataset how many partitions read those at most, of a dry run.
        waiting: by dataset and partition why it cannot be made now, of a dry run.
        rewritten: by dataset how many partitions were or would be rewritten from those of the generation before.
        lacking: by dataset what readers had before and miss now, and why; of a dry run what they would miss for good.
        held: by dataset and partition why it stays as it is, although what it reads is other now.
        also_deployed: readers whose code here waits for a decision, and would be in force with this; of a dry run.
        shown: by dataset how many batches readers are shown that were current before, as of one that was killed.
        without_values: by dataset the columns that are NULL in rewritten batches, as those before have no such column.
        run: under which the publish is recorded; "" where nothing was published.
    """

    dataset: str
    reasons: tuple[str, ...]
    due: dict[str, list[str]] = field(default_factory=dict)
    rewritten: dict[str, int] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    run: str = ""
    follows: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, dict[str, str]] = field(default_factory=dict)
    lacking: dict[str, dict[str, str]] = field(default_factory=dict)
    held: dict[str, dict[str, str]] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    also_deployed: list[str] = field(default_factory=list)
    without_values: dict[str, list[str]] = field(default_factory=dict)

    def tell(self, built: EnvironmentWork) -> None:
        """Take over what was built in the environment."""
        self.rewritten = {name: count for name, count in built.rewritten.items() if count}
        self.computed = {name: count for name, count in built.computed.items() if count}
        self.taken = {name: count for name, count in built.taken.items() if count}
        self.held = built.held

    def as_values(self) -> dict[str, Any]:
        """Return it as plain values for `--json`."""
        return {
            "dataset": self.dataset, "reasons": list(self.reasons), "due": self.due, "rewritten": self.rewritten,
            "computed": self.computed, "taken": self.taken, "partitions": self.partitions, "run": self.run or None,
            "follows": self.follows, "waiting": self.waiting, "lacking": self.lacking,
            "held": self.held, "shown": self.shown, "also_deployed": self.also_deployed,
            "without_values": self.without_values,
        }  # fmt: skip


def environment_of(dataset: str) -> str:
    """Return the name of the environment in which a dataset is evolved."""
    slug = dataset.replace(".", "_")
    if len(slug) > _LENGTH or "_" in dataset:
        # `a_b.c` and `a.b_c` are two.
        slug = f"{slug[: _LENGTH - 9]}_{blake2b(dataset.encode(), digest_size=4).hexdigest()}"
    return f"{work.EVOLVE}{slug}"


def evolve(
    console: Console | None, dataset: str, *, dry_run: bool, rewrite: bool, effects: bool, incomplete: bool = False
) -> Evolution:
    """Build the generation that the declaration of a dataset begins, with what reads it, and move readers to it.

    Raises VarveError where nobody declares the dataset, a run fails, something that depends on its view cannot follow,
    another command evolves it right now, somebody has begun to move it to another declaration and this one needs
    nothing, or, unless it may be `incomplete`, a partition that readers have cannot be made; what was computed stays,
    and the same call goes on.
    """
    from varve.dagster.environments.arrivals import look_at_arrivals

    graph, dataset = chosen_graph(), dataset.replace("/", ".")
    part, name = _part(graph, dataset), environment_of(dataset)
    with work.connected("evolve") as connection, held(connection, name):
        refuse_of_others(connection, [dataset])
        published = Generations(connection).published([dataset]).get(dataset)
        reasons = () if published is None else begins_generation(published.shape, shape_of(graph.datasets[dataset]))
        _refuse_captured(connection, dataset, reasons)
        environments, done, also_done = Environments(connection), Evolution(dataset, reasons), list[str]()
        is_made = any(environment.name == name for environment in environments.all())
        if not reasons:
            _refuse_begun(environments, name, dataset)
        elif not is_made:
            environments.create(name, by=who())
        elif not dry_run:
            # As if it were begun now: what was deployed meanwhile is what this declaration changes.
            environments.rebase(name, code_too=True)
            if console is not None:
                console.print(f"Going on with environment {name}, in which this was begun.", highlight=False)
        try:
            if reasons:
                with work.opened(name) as opened:
                    if dry_run:
                        _look(opened, done, part, rewrite=rewrite)
                    else:
                        look_at_arrivals(opened, part)
                        built = opened.run(
                            _wanted(opened, dataset), effects=effects, rewrite=rewrite, before=work.announcing(console)
                        )
                        done.without_values = opened.carrying_over().without_values(built.rewritten)
                        promotion = promotions.promote_opened(
                            console, opened, connection, LeftBehind.REFUSE, only=part, incomplete=incomplete,
                            earlier_code=True, done=built, effects=effects,
                        )  # fmt: skip
                        done.tell(built)
                        done.partitions = {name: len(batches) for name, batches in promotion.batches.items()}
                        done.run, done.lacking = promotion.run_id, promotion.closure.lacking
                        also_done = [environment_of(other) for other in promotion.generations if other != dataset]
        except BaseException:
            # A dry run leaves nothing behind but what was begun before it; else the same call goes on from there.
            if dry_run and not is_made:
                work.drop(name)
            raise
        if not dry_run:
            # One that was killed right after its transaction has not shown all of it.
            done.shown = promotions.show_what_lags(connection)
        # Begun for a dataset that has moved with this one.
        for other in sorted({each.name for each in environments.all()} & set(also_done)):
            work.drop(other)
        # Where readers have moved, all of it is theirs.
        if (reasons or is_made) and not (dry_run and is_made):
            work.drop(name)
    return done


def _refuse_captured(connection: psycopg.Connection, dataset: str, reasons: Sequence[str]) -> None:
    """Raise VarveError for a captured table: what its stream says belongs to the declaration it was begun with."""
    positions = Positions(connection)
    if reasons and positions.exist() and positions.find(dataset) is not None:
        raise VarveError(
            f"{dataset} is captured from a database: {' '.join(reasons)} Its stream belongs to the declaration it was "
            f"begun with. Nothing was changed. varve cdc resnapshot {dataset} takes a new snapshot with this one where "
            "columns allow it; or declare a dataset of another name."
        )


def _refuse_begun(environments: Environments, name: str, dataset: str) -> None:
    """Raise VarveError where there is an environment that builds another generation than readers see.

    That of a command that was killed right after its promotion builds none that readers do not see.
    """
    entered = Generations(environments.connection).of_environment(name).get(dataset)
    if entered is not None and entered.is_new:
        environment = environments.get(name)
        raise VarveError(
            f"{dataset}: its declaration here fits to what readers see, and with another declaration "
            f"{environment.created_by} began to evolve it at {environment.created_at:%Y-%m-%d %H:%M} UTC, in "
            f"environment {name}. Nothing was changed. To go on with that: the same command, where that "
            f"declaration is. To give it up: varve env drop {name}"
        )


def _part(graph: Graph, dataset: str) -> frozenset[str]:
    """The dataset with all that reads it, and all that those read."""
    if dataset not in graph.datasets:
        raise VarveError(
            f"there is no dataset {dataset!r}.{nearest(dataset, graph.datasets)} There are {some(graph.datasets)}."
        )
    names = {dataset, *graph.downstream(dataset)}
    return frozenset(names | {upstream for name in names for upstream in graph.upstream(name)})


def _wanted(opened: OpenEnvironment, dataset: str) -> Wanted:
    return Wanted(datasets=tuple(sorted({dataset, *opened.graph.downstream(dataset)})))


def _look(opened: OpenEnvironment, done: Evolution, part: Collection[str], *, rewrite: bool) -> None:
    """Find what would be done, and change nothing: what somebody has begun here before stays as that is."""
    from varve.dagster.environments.arrivals import look_at_arrivals

    with opened.connection.transaction(force_rollback=True):
        # As the command does that this looks ahead to.
        Environments(opened.connection).rebase(opened.name, code_too=True)
        look_at_arrivals(opened, part)
        _find(opened, done, rewrite=rewrite)


def _find(opened: OpenEnvironment, done: Evolution, *, rewrite: bool) -> None:
    graph, dataset, wanted = opened.graph, opened.graph.datasets[done.dataset], _wanted(opened, done.dataset)
    plan, rewritable = opened.plan(wanted), opened.carrying_over(everything=rewrite).rewritable(wanted)
    changed = set(rewritable.get(dataset.name, ()))
    for name, judgements in plan.judgements.items():
        carried = rewritable.get(name, set())
        due = sorted(path for path, judged in judgements.items() if judged.state is State.DUE and path not in carried)
        if due and name in wanted.datasets:
            done.due[name] = due
        # What waits only for what would be computed is no news.
        waiting = {
            path: judged.reason for path, judged in sorted(judgements.items())
            if judged.state is State.WAITING and not judged.pending and path not in carried
        }  # fmt: skip
        if waiting and name in wanted.datasets:
            done.waiting[name] = waiting
    changed |= set(done.due.get(dataset.name, ()))
    keys = [dataset.partitioning.from_path(path) for path in sorted(changed)]
    reached = with_downstream(graph, dataset, keys, None, members=opened.members, now=pendulum.now("UTC"))
    done.rewritten = {name: len(paths) for name, paths in rewritable.items()}
    done.without_values = opened.carrying_over().without_values(done.rewritten)
    done.held = plan.held()
    decisions = Plans(opened.connection, graph, opened.members).look(pendulum.now("UTC")).decisions
    readers = set(wanted.datasets) - {dataset.name}
    done.also_deployed = sorted({change.dataset for change in decisions} & readers)
    following = {
        name: {key.path for key in partitions} - {*done.due.get(name, ()), *rewritable.get(name, ())}
        for name, partitions in reached.items() if name != dataset.name
    }  # fmt: skip
    done.follows = {name: len(paths) for name, paths in following.items() if paths}
    # What reads partitions that would be there waits for those, as they are not yet.
    for name, paths in following.items():
        for path in paths & done.waiting.get(name, {}).keys():
            del done.waiting[name][path]
    done.waiting = {name: reasons for name, reasons in done.waiting.items() if reasons}
    formers = former(opened.connection, graph, [dataset.name])
    completeness = Completeness(opened.connection, graph, opened.members, formers)
    if never := completeness.never_made(dataset.name, list(plan.judgements.get(dataset.name, {}))):
        done.lacking = {dataset.name: never}


def show(console: Console, done: Evolution, *, dry_run: bool) -> None:
    """Print what was done, or would be."""
    for name, count in done.shown.items():
        console.print(f"{name}: readers are shown {counted(count, 'batch')} that had become current before.")
    if not done.reasons:
        console.print(
            f"{done.dataset}: its declaration fits to what readers see; nothing is to be done here. Whether its code "
            "waits for a decision: varve plan", highlight=False, soft_wrap=True,
        )  # fmt: skip
        return
    console.print(f"{done.dataset} begins another generation. {' '.join(done.reasons)}", highlight=False)
    for verb, counts in _counts(done, dry_run=dry_run):
        for name, count in counts.items():
            console.print(f"  {name}: {counted(count, 'partition')} {verb}", highlight=False)
    for name, columns in done.without_values.items():
        console.print(
            f"  {name}: {some(columns)} {'is' if len(columns) == 1 else 'are'} NULL where it is rewritten, as the one "
            f"before has no such column. Where the files are there still: varve backfill start {name}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    for name, count in done.follows.items():
        console.print(f"  {name}: at most {counted(count, 'partition')} would be computed, as it reads that")
    for name in done.also_deployed:
        console.print(f"  {name}: its code here, which waits for a decision (varve plan), would be deployed with this")
    misses = [
        ("left as it is", done.held), ("cannot be computed now", done.waiting),
        ("readers have, and would lose" if dry_run else "readers miss", done.lacking),
    ]  # fmt: skip
    for what, listed in misses:
        for name, paths in listed.items():
            path, reason = next(iter(paths.items()))
            such = f", such as {path}" if path else ""
            line = f"  {name}: {what}: {counted(len(paths), 'partition')}{such}: {reason}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    if dry_run and (done.waiting or done.lacking):
        console.print("Where readers have rows of that, they are moved only with --incomplete.")
    if dry_run:
        console.print("Readers go on with the old one until all of it is there. Nothing was computed: a dry run.")
    elif done.run:
        console.print(
            f"Readers see it now, as run {done.run}. To go back: with the declaration before, varve evolve "
            f"{done.dataset}; what is kept is taken and not computed.", highlight=False, soft_wrap=True,
        )  # fmt: skip


def _counts(done: Evolution, *, dry_run: bool) -> Sequence[tuple[str, Mapping[str, int]]]:
    if dry_run:
        due = {name: len(paths) for name, paths in done.due.items()}
        return [("would be rewritten", done.rewritten), ("would be computed", due)]
    return [
        ("rewritten from the one before", done.rewritten), ("computed", done.computed),
        ("taken, as the same code made them from the same inputs before", done.taken),
    ]  # fmt: skip
