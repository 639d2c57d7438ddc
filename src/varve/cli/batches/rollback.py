"""`varve rollback`: make earlier batches current again, by partition, by run or as of a time; planned first, then done.

Not here: the publish itself (varve/dagster/runs/atomic_publish.py).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.code.promotions import Promotions
from varve.catalog.code.shown import as_shown
from varve.catalog.history.history import NOTHING_CHANGED
from varve.cli.batches.history import current_ids, matching_partitions, opened
from varve.cli.batches.published_with import batches_beside
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.printing import Table
from varve.cli.selection import dataset_named, matching, named_path, refuse_of_others, who
from varve.dagster.runs import atomic_publish
from varve.model.batch import BatchId
from varve.model.errors import NotKept, VarveError, counted, nearest, some
from varve.model.partitions.key import made, parse_path
from varve.observe.lineage.moves import tell_moves
from varve.stores.environments.promotion import PROMOTION_RUN
from varve.stores.environments.undoing import Undo, Undoing
from varve.stores.open import open_store

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from rich.console import Console

    from varve.catalog.history.history import History
    from varve.model.batch import Batch
    from varve.model.build import Build


@dataclass
class RollbackPlan:
    """What a rollback changes in one dataset.

    Attributes:
        moves: by partition path, the current batch and the batch that shall become current; None stands for no batch.
        follows: the dataset that this one is rolled back with, as one run publishes both; "" where the rollback of
            this dataset was asked for.
        undo: for the promotion of another generation: what undoing it changes in the dataset.
    """

    dataset: str
    moves: dict[str, tuple[BatchId | None, Batch | None]] = field(default_factory=dict)
    follows: str = ""
    undo: Undo | None = None

    @property
    def withdrawn(self) -> list[str]:
        """Return the paths of the partitions that will have no current batch."""
        return [path for path, (_, target) in self.moves.items() if target is None]


def plan_batch(dataset_name: str, words: Sequence[str], batch: int) -> list[RollbackPlan]:
    """Plan to make one batch current again in the matching partitions; without words in all that it has."""
    dataset = dataset_named(dataset_name)
    with opened() as history:
        paths = matching_partitions(history, dataset, words) if words else None
        targets = history.batch(dataset.name, BatchId(batch), paths)
        return _with_rejected(history, [_plan(history, dataset.name, dict(targets))])


def plan_time(dataset_name: str, words: Sequence[str], at: dt.datetime) -> list[RollbackPlan]:
    """Plan to go back to the batches that were current at an instant, for the matching partitions.

    Raises NotKept where the data of such a batch was swept since.
    """
    dataset = dataset_named(dataset_name)
    with opened() as history:
        # One partition is looked up by its name, where that is known; else all are, and those that match are taken.
        path = named_path(dataset, words)
        one = [path] if path is not None and history.partitions(dataset.name, [path]) else None
        current = current_ids(history, dataset.name, one)
        then = history.as_of(dataset.name, at, one, swept_too=True)
        kept = history.as_of(dataset.name, at, one)
        paths = matching(dataset, words, {*current, *then})
        lost = [f"{path} batch {then[path].batch_id}" for path in paths if path in then and path not in kept]
        if lost:
            raise NotKept(
                f"{dataset}: what was current on {at:%Y-%m-%d %H:%M:%S} UTC was swept since: {some(lost)}. "
                f"{NOTHING_CHANGED} Choose a later time, or the other partitions."
            )
        return _with_rejected(history, [_plan(history, dataset.name, {path: kept.get(path) for path in paths})])


def plan_run(run: str, dataset_name: str | None) -> list[RollbackPlan]:
    """Plan to undo what a run published: each of its partitions goes back to the batch that was current before.

    Raises VarveError where the run is unknown or has published nothing of that dataset, where another run has published
    one of the partitions since, and where a dataset is named of what can only go back together.
    """
    with opened() as history:
        run_id = _full_run_id(history, run)
        dataset_name = None if dataset_name is None else dataset_name.replace("/", ".")
        plans, of_run = [], history.of_run(run_id, dataset_name)
        if dataset_name is not None and not of_run:
            published = sorted({change.dataset for change in history.of_run(run_id, None)})
            raise VarveError(
                f"run {run_id} has published nothing of {dataset_name}; it has of {some(published) or 'none'}."
                f"{nearest(dataset_name, published)} {NOTHING_CHANGED}"
            )
        if of_run and all(change.current == change.before != change.published for change in of_run):
            raise VarveError(
                f"run {run_id} is taken back already: what was current before it is current. {NOTHING_CHANGED} To have "
                "what it published again: varve rollback DATASET --to BATCH, or where it moved readers to another "
                "declaration, varve evolve DATASET."
            )
        if run_id.startswith(PROMOTION_RUN):
            undos = _undoing(history).look(run_id)
            if undos:
                if others := sorted({undo.dataset for undo in undos} - {dataset_name or undos[0].dataset}):
                    _refuse_apart(run_id, dataset_name, others)
                return [
                    RollbackPlan(undo.dataset, dict(undo.moves) | _leaving(history, undo), undo=undo) for undo in undos
                ]
            if Promotions(history.connection).made(run_id).codes:
                raise VarveError(
                    f"run {run_id} is the promotion of an environment, which deployed code too: its batches cannot go "
                    f"back without that. {NOTHING_CHANGED} Both go back, and later corrections stay: "
                    f"varve revert {run_id}"
                )
        for name in sorted({run_change.dataset for run_change in of_run}):
            run_changes = [run_change for run_change in of_run if run_change.dataset == name]
            newer = [
                f"{run_change.partition} (now at batch {run_change.current or 'none'})"
                for run_change in run_changes
                if run_change.current != run_change.published
            ]
            if newer:
                raise VarveError(
                    f"{name}: since run {run_id}, others have changed {some(newer, limit=3)}. {NOTHING_CHANGED} "
                    "Roll those partitions back by name, to the batch you want: varve rollback DATASET col=value --to."
                )
            targets: dict[str, Batch | None] = {
                run_change.partition: None for run_change in run_changes if run_change.before is None
            }
            for batch_before in {run_change.before for run_change in run_changes if run_change.before is not None}:
                paths = [run_change.partition for run_change in run_changes if run_change.before == batch_before]
                targets |= history.batch(name, batch_before, paths)
            plans.append(_plan(history, name, targets))
        return _with_rejected(history, plans)


def show(console: Console, plans: Sequence[RollbackPlan], *, done: bool) -> None:
    """Print the plans as tables."""
    for plan in plans:
        table = Table("partition", "from", "to", title=plan.dataset, title_justify="left")
        for path, (now, target) in plan.moves.items():
            table.add_row(path, str(now or "none"), str(target.batch_id) if target else "[yellow]none[/]")
        console.print(table if plan.moves else f"{plan.dataset}: everything is there already.")
    if not done:
        console.print("Nothing was changed: this was a dry run.")


def as_values(plans: Sequence[RollbackPlan], *, done: bool) -> dict[str, Any]:
    """Return the plans as plain values for `--json`."""
    return {
        "done": done,
        "changes": [
            {
                "dataset": plan.dataset,
                "partition": path,
                "from": now.millis if now else None,
                "to": target.batch_id.millis if target else None,
            }
            for plan in plans
            for path, (now, target) in plan.moves.items()
        ],
    }


def refuse_others(plans: Sequence[RollbackPlan]) -> None:
    """Raise OtherOwner where a plan is about a dataset of another project."""
    with opened() as history:
        refuse_of_others(history.connection, [plan.dataset for plan in plans])


def carry_out(plans: Sequence[RollbackPlan], *, reason: str, withdraw: bool) -> None:
    """Publish the earlier batches of all plans in one transaction.

    Raises VarveError where a partition would be left without a batch and `withdraw` does not allow it, OtherOwner for a
    dataset of another project.
    """
    refuse_others(plans)
    if plans and plans[0].undo is not None:
        _undo(plans, reason=reason, withdraw=withdraw)
        return
    datasets = chosen_graph().datasets
    # A partition that was taken before its rejected rows were kept goes back without any.
    meant = {plan.dataset for plan in plans if plan.follows and datasets[plan.dataset].rejected_of}
    without = [f"{plan.dataset} {path}" for plan in plans if plan.dataset not in meant for path in plan.withdrawn]
    if without and not withdraw:
        raise VarveError(
            f"{some(without, limit=3)} had no batch then, and would have none again. {NOTHING_CHANGED} "
            "Say --withdraw if that is meant, or name the partitions to roll back."
        )
    settings, run_id = chosen_settings(), f"rollback-{uuid.uuid4().hex[:8]} by {who()}"
    with opened() as history:
        catalog = Catalog(history.connection)
        returns: dict[str, tuple[Build, Sequence[Batch]]] = {}
        try:
            for plan in (plan for plan in plans if plan.moves):
                build = _take_partitions(catalog, plan, run_id)
                returns[plan.dataset] = build, [target for _, target in plan.moves.values() if target is not None]
            atomic_publish.republish(
                catalog,
                returns,
                lambda dataset: open_store(dataset.store, settings, catalog, _session),
                reason=reason,
            )
        finally:
            for build, _ in returns.values():
                catalog.release(build)
        tell_moves(chosen_graph(), history.connection, settings.project, run_id)


def _undoing(history: History) -> Undoing:
    settings, catalog = chosen_settings(), Catalog(history.connection)
    return Undoing(
        catalog, lambda dataset: open_store(dataset.store, settings, catalog, _session), chosen_graph().datasets
    )


def _leaving(history: History, undo: Undo) -> dict[str, tuple[BatchId | None, Batch | None]]:
    """The partitions that were published since in the generation that readers leave."""
    current = Catalog(history.connection).current(undo.dataset)
    return {path: (current[path].batch_id, None) for path in undo.since if path in current}


def _undo(plans: Sequence[RollbackPlan], *, reason: str, withdraw: bool) -> None:
    """Go back to the generations before a promotion. Raises VarveError where that hides what was published since."""
    undos = [plan.undo for plan in plans if plan.undo is not None]
    if (since := [f"{undo.dataset} {path}" for undo in undos for path in undo.since]) and not withdraw:
        raise VarveError(
            f"{some(since, limit=3)} were published since, in the generation that readers would leave. "
            f"{NOTHING_CHANGED} Say --withdraw if that is meant; or go back with the code of before: varve evolve "
            "DATASET computes them anew."
        )
    with opened() as history:
        run_id = _undoing(history).undo(undos, reason=reason, by=who())
        tell_moves(chosen_graph(), history.connection, chosen_settings().project, run_id)


def _take_partitions(catalog: Catalog, plan: RollbackPlan, run_id: str) -> Build:
    """Lock the partitions of a plan; the build expects the batches that were current when the plan was made."""
    dataset = as_shown(catalog.connection, dataset_named(plan.dataset))
    # From texts: a partition that has left the dimensions goes back as the others do.
    keys = [made(parse_path(path)) for path in plan.moves]
    build = catalog.lock_partitions(dataset, keys, run_id=run_id)
    build.expected = {key: plan.moves[key.path][0] for key in keys}
    return build


def _plan(history: History, name: str, targets: dict[str, Batch | None]) -> RollbackPlan:
    """What is to be moved to reach the targets. Raises NotKept where they cannot be had, as the rollback does."""
    current = current_ids(history, name, list(targets))
    plan = RollbackPlan(name)
    for path, target in sorted(targets.items()):
        now = current.get(path)
        if now != (target.batch_id if target else None):
            plan.moves[path] = (now, target)
    Catalog(history.connection).look_at_targets(
        name, {path: target.batch_id for path, (_, target) in plan.moves.items() if target is not None}
    )
    return plan


def _with_rejected(history: History, plans: Sequence[RollbackPlan]) -> list[RollbackPlan]:
    """Add to each plan the dataset that the same runs publish: rejected rows with accepted rows, and vice versa.

    Raises NotKept where a batch of that one was swept.
    """
    planned = list(plans)
    for plan in plans:
        dataset = chosen_graph().datasets.get(plan.dataset)
        if dataset is None:
            continue
        other = dataset.published_with
        if not other or any(present.dataset == other for present in planned):
            continue
        batches: dict[BatchId, list[str]] = {}
        for path, (_, batch) in plan.moves.items():
            if batch is not None:
                batches.setdefault(batch.batch_id, []).append(path)
        targets: dict[str, Batch | None] = dict.fromkeys(plan.moves)
        try:
            for batch_id, paths in batches_beside(history, dataset, batches, swept_too=True).items():
                targets |= history.batch(other, batch_id, paths)
        except NotKept as error:
            raise NotKept(f"{dataset} goes back together with {other}, as one run makes both. {error}") from None
        rejected_plan = _plan(history, other, targets)
        rejected_plan.follows = plan.dataset
        planned.append(rejected_plan)
    return planned


def _refuse_apart(run_id: str, dataset_name: str | None, others: Sequence[str]) -> None:
    """Raise VarveError where one dataset is named of those that a promotion moved to other generations together."""
    if dataset_name is not None:
        raise VarveError(
            f"run {run_id} has moved {dataset_name} to another declaration together with {some(others)}, and it goes "
            f"back whole. {NOTHING_CHANGED} All of it: varve rollback --run {run_id}"
        )


def _full_run_id(history: History, run: str) -> str:
    # Every run begins with nothing, also where a script has left it empty.
    run_ids = history.runs_like(run) if run else []
    if len(run_ids) != 1:
        raise VarveError(
            f"no run whose id begins with {run!r} has published anything."
            if not run_ids
            else f"{counted(len(run_ids), 'run')} have ids that begin with {run!r}: {some(run_ids)}. Write more of it."
        )
    return run_ids[0]


def _session() -> Any:
    from varve.services.spark import open_session

    return open_session(chosen_settings())
