"""`varve revert`: the code before a promotion and what that code makes of the inputs of now, in force again.

An environment over what is current now is given the code before. What that code has made from the same inputs is taken;
what was corrected since is computed, where the code before is checked out. Then the environment is promoted.

Not here: going back to batches (varve/cli/batches/rollback.py).
"""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.code.promotions import REVERT, Promotions
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.held import held
from varve.catalog.history.history import History
from varve.catalog.rows import declaration
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.environments import promotions, work
from varve.cli.selection import who
from varve.model.batch import BatchId
from varve.model.errors import VarveError, counted, some
from varve.planning.environment_runs import Wanted
from varve.services.postgres import connect
from varve.stores.environments.promotion import Closure, LeftBehind, Promotion
from varve.stores.environments.undoing import left_generations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg
    from rich.console import Console

    from varve.catalog.code.deployments import Deployment
    from varve.catalog.code.promotions import PromotionPlan
    from varve.planning.graph import Graph

_COLUMN = ("name", "type", "nullable")


@dataclass(frozen=True)
class Reverted:
    """What a revert has done.

    Attributes:
        plan: the promotion that was taken back.
        codes: by dataset the code version that is deployed again.
        added: datasets that the promotion had added; they stay.
        taken, computed: by dataset, how many partitions got a batch that was kept, or a new one.
        checked_out: whether the code here is the one that is deployed now.
        finished: whether a command before has taken it back, and this one only did what that had left to do.
    """

    plan: PromotionPlan
    codes: Mapping[str, str]
    added: tuple[str, ...]
    taken: Mapping[str, int]
    computed: Mapping[str, int]
    promotion: Promotion
    checked_out: bool = True
    finished: bool = False

    def as_values(self) -> dict[str, Any]:
        """The same as plain values for `--json`."""
        return {
            "reverted": self.plan.number,
            "codes": dict(self.codes),
            "added": list(self.added),
            "taken": {name: count for name, count in self.taken.items() if count},
            "computed": {name: count for name, count in self.computed.items() if count},
            "checked_out": self.checked_out,
            **promotions.promotion_values(self.promotion),
        }


def revert(console: Console | None, name: str, *, effects: bool) -> Reverted:
    """Take a promotion back, given by its number or its run.

    Raises VarveError where it is none, where other code was deployed since, and where something would have to be
    computed with the code before, and that is not here; NotClosed as a promotion does.
    """
    graph = chosen_graph()
    with connect(chosen_settings(), application="varve revert") as connection:
        Catalog(connection).ensure_schema()
        plan = Promotions(connection).made(name)
        if (last := Promotions(connection).taken_back(plan)) is not None:
            return _finished(connection, graph, plan, last)
        before = _before(connection, plan)
        earlier = {dataset: deployment for dataset, deployment in before.items() if deployment is not None}
        not_here = {
            name for name, deployment in earlier.items()
            if graph.code_versions.get(name) != deployment.code_version
        }  # fmt: skip
        if not_here:
            _refuse_other_shape(connection, graph, plan, earlier)
            graph = _with_code_before(graph, earlier)
        wanted = Wanted(datasets=_with_readers(graph, set(earlier)))
        with _environment(connection, plan) as environment, work.opened(environment) as opened_as_written:
            opened = replace(opened_as_written, graph=graph)
            done, left = opened.take(wanted)
            if impossible := {name: paths for name, paths in left.items() if name in not_here}:
                raise _to_be_computed(plan, impossible)
            if left:
                # Readers whose code is here are made of what is taken back, those that the promotion added, too.
                with_code = tuple(name for name in wanted.datasets if name not in not_here)
                computing = Wanted(datasets=with_code)
                done = opened.run(computing, effects=effects, before=work.announcing(console), done=done)
            promotion = promotions.promote_opened(
                console, opened, connection, LeftBehind.REFUSE, run_first=not not_here, only=wanted.datasets,
                earlier_code=True, done=done, effects=effects,
            )  # fmt: skip
    work.drop(environment)
    added = tuple(dataset for dataset, deployment in before.items() if deployment is None)
    codes = {dataset: deployment.code_version for dataset, deployment in earlier.items()}
    return Reverted(plan, codes, added, done.taken, done.computed, promotion, not not_here)


def show(console: Console, reverted: Reverted) -> None:
    """Print what is in force again, and what is left to do."""
    codes = [f"{name} with code {version}" for name, version in reverted.codes.items()]
    computed = sum(reverted.computed.values())
    # A command before that was killed may have taken some already.
    taken = max(sum(reverted.taken.values()), reverted.promotion.partitions - computed)
    how = (
        f"{counted(taken, 'partition')} taken as they were kept, {computed:,} computed; "
        f"all in one transaction, as run {reverted.promotion.run_id}."
        if not reverted.finished
        else f"That was done as run {reverted.promotion.run_id}; what it had left to do is done now."
    )
    console.print(
        f"Promotion {reverted.plan.number} of {reverted.plan.environment} is taken back: {', '.join(codes)}. {how}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    for name in reverted.added:
        console.print(f"{name} was new then and stays: varve drop {name}", highlight=False, soft_wrap=True)
    if not reverted.checked_out:
        console.print(
            f"The code here is another one: until the one before is here, nothing of {some([*reverted.codes])} is "
            "computed.", highlight=False, soft_wrap=True,
        )  # fmt: skip


@contextmanager
def _environment(connection: psycopg.Connection, plan: PromotionPlan) -> Iterator[str]:
    """The environment in which a promotion is taken back, over what is current now.

    One that fails before anything was computed in it leaves nothing behind; else the same command goes on from there.
    Raises VarveError while another command takes the same promotion back.
    """
    name, environments = _name(plan), Environments(connection)
    with held(connection, name):
        if name not in {other.name for other in environments.all()}:
            environments.create(name, by=who())
        environments.rebase(name, code_too=True)
        try:
            yield name
        except BaseException:
            if any(other.name == name and not other.size for other in environments.all()):
                work.drop(name)
            raise


def _finished(connection: psycopg.Connection, graph: Graph, plan: PromotionPlan, last: PromotionPlan) -> Reverted:
    """Do what a command had left to do that was killed after its promotion.

    Raises VarveError where that is nothing.
    """
    promotions.show_what_lags(connection)
    if _name(plan) not in {other.name for other in Environments(connection).all()}:
        raise VarveError(
            f"promotion {plan.number} of {plan.environment} is taken back already: by promotion {last.number}, "
            f"{last.applied_by} at {last.applied_at:%Y-%m-%d %H:%M} UTC. Nothing was changed. "
            f"To have it in force again: varve revert {last.number}"
        )
    work.drop(_name(plan))
    batches = {name: {path: BatchId(batch) for path, batch in paths.items()} for name, paths in last.batches.items()}
    promotion = Promotion(
        last.environment, last.codes, batches, Closure(), {}, run_id=last.run_id, number=last.number
    )  # fmt: skip
    checked_out = all(graph.code_versions.get(name) == version for name, version in last.codes.items())
    return Reverted(plan, last.codes, (), {}, {}, promotion, checked_out, finished=True)


def _name(plan: PromotionPlan) -> str:
    return f"{REVERT}{plan.number}"


def _before(connection: psycopg.Connection, plan: PromotionPlan) -> dict[str, Deployment | None]:
    before = Promotions(connection).code_before(plan)
    if not any(before.values()):
        if moved := sorted(left_generations(connection, History(connection).of_run(plan.run_id))):
            raise VarveError(
                f"promotion {plan.number} of {plan.environment} has replaced no code: it moved {some(moved)} to "
                "another generation, which the same code made. Nothing was changed. Readers go back with all that "
                f"moved then by: varve rollback --run {shlex.quote(plan.run_id)}; or, with what was corrected since, "
                f"by the declaration of before and: varve evolve {moved[0]}"
            )
        if before:
            raise VarveError(
                f"promotion {plan.number} of {plan.environment} has replaced no code: it added {some(sorted(before))}. "
                "Nothing was changed. What it added stays until its declaration is gone here, and: "
                f"{', '.join(f'varve drop {name}' for name in sorted(before))}"
            )
        raise VarveError(
            f"promotion {plan.number} of {plan.environment} has replaced no code: what it made current was made by the "
            "code before from what was current, and going back would change nothing. Nothing was changed."
        )
    return before


def _refuse_other_shape(
    connection: psycopg.Connection, graph: Graph, plan: PromotionPlan, earlier: Mapping[str, Deployment]
) -> None:
    """Raise VarveError where what is declared here does not say what the code before has made."""
    left = left_generations(connection, History(connection).of_run(plan.run_id))
    for name in earlier:
        dataset = graph.datasets.get(name)
        columns_differ = dataset is None or _columns(declaration(dataset)) != _columns(plan.declarations.get(name, {}))
        if columns_differ or name in left:
            what = "had other columns" if columns_differ else "was of another generation (its windows, or its store)"
            raise VarveError(
                f"{name} {what} before promotion {plan.number} than in the code here. Nothing was "
                f"changed. Check out the code before, then again: varve revert {plan.number}"
            )


def _with_code_before(graph: Graph, earlier: Mapping[str, Deployment]) -> Graph:
    """The graph as it stands for the code before, which is not here: for batches that exist, that is enough.

    A batch is taken only where that code has made it from all that is current now; which inputs those are, its trace
    says.
    """
    versions = {name: deployment.code_version for name, deployment in earlier.items()}
    sources = {name: deployment.source for name, deployment in earlier.items()}
    return replace(graph, code_versions={**graph.code_versions, **versions}, sources={**graph.sources, **sources})


def _columns(declared: Mapping[str, Any]) -> list[list[Any]]:
    return [
        [str(value) for value in column[: len(_COLUMN)]]
        for column in (*declared.get("columns", ()), *declared.get("partition_columns", ()))
    ]


def _with_readers(graph: Graph, names: set[str]) -> tuple[str, ...]:
    """These datasets and all that read them, directly or not."""
    with_readers = set(names)
    for dataset in graph.in_order():
        if any(edge.upstream.name in with_readers for edge in graph.edges[dataset.name]):
            with_readers.add(dataset.name)
    return tuple(sorted(with_readers & graph.datasets.keys()))


def _to_be_computed(plan: PromotionPlan, left: Mapping[str, tuple[str, ...]]) -> VarveError:
    count = sum(map(len, left.values()))
    partitions = [f"{name} {path}" for name, paths in left.items() for path in paths]
    return VarveError(
        f"since promotion {plan.number}, what {counted(count, 'partition')} would be made from has changed "
        f"({some(partitions, limit=3)}), or the code before reads other partitions than the one here does; and the "
        "code before is not here to compute that. Nothing was changed. "
        f"Check out the code before, then again: varve revert {plan.number}"
    )
