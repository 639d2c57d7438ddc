"""`varve rollback`: earlier batches back in force, by partition, by run or as of a time; planned first, then done."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.history.history import NOTHING_CHANGED
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.history import opened
from varve.cli.printing import Table
from varve.cli.selection import declared, matching, who
from varve.dagster.runs import atomic_publish as group
from varve.model.batch import BatchId
from varve.model.errors import NotKept, VarveError, counted, some
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
    """What a rollback changes in one dataset: by partition what is in force, and what is to be (None: nothing).

    Attributes:
        follows: the dataset with which it goes back, as one run publishes both; "": it was asked for itself.
    """

    dataset: str
    moves: dict[str, tuple[BatchId | None, Batch | None]] = field(default_factory=dict)
    follows: str = ""

    @property
    def withdrawn(self) -> list[str]:
        """The partitions that will have no batch."""
        return [path for path, (_, target) in self.moves.items() if target is None]


def plan_batch(dataset_name: str, words: Sequence[str], batch: int) -> list[RollbackPlan]:
    """Back to one batch of the matching partitions; without words of all that it has."""
    dataset = declared(dataset_name)
    with opened() as history:
        every = {one.partition for one in history.batches(dataset.name)}
        paths = matching(dataset, words, every) if words else None
        targets = history.batch(dataset.name, BatchId(batch), paths)
        return _with_rejected(history, [_plan(history, dataset.name, dict(targets))])


def plan_time(dataset_name: str, words: Sequence[str], at: dt.datetime) -> list[RollbackPlan]:
    """Back to what was in force at an instant, for the matching partitions."""
    dataset = declared(dataset_name)
    with opened() as history:
        current = Catalog(history.connection).current(dataset.name)
        then = history.as_of(dataset.name, at, swept_too=True)
        kept = history.as_of(dataset.name, at)
        paths = matching(dataset, words, {*current, *then})
        lost = [f"{path} batch {then[path].batch_id}" for path in paths if path in then and path not in kept]
        if lost:
            raise NotKept(
                f"{dataset}: what was in force on {at:%Y-%m-%d %H:%M:%S} UTC was swept since: {some(lost)}. "
                f"{NOTHING_CHANGED} Choose a later time, or the other partitions."
            )
        return _with_rejected(history, [_plan(history, dataset.name, {path: kept.get(path) for path in paths})])


def plan_run(run: str, dataset_name: str | None) -> list[RollbackPlan]:
    """Undo what a run published: each of its partitions back to what was in force before it.

    Raises VarveError where the run is unknown, or another has published since.
    """
    with opened() as history:
        run_id = _whole_run(history, run)
        plans = []
        for name in sorted({one.dataset for one in history.of_run(run_id, dataset_name)}):
            done = history.of_run(run_id, name)
            newer = [
                f"{one.partition} (now at batch {one.current or 'none'})"
                for one in done
                if one.current != one.published
            ]
            if newer:
                raise VarveError(
                    f"{name}: since run {run_id}, others have changed {some(newer, limit=3)}. {NOTHING_CHANGED} "
                    "Roll those partitions back by name, to the batch you want: varve rollback DATASET col=value --to."
                )
            targets: dict[str, Batch | None] = {one.partition: None for one in done if one.before is None}
            for before in {one.before for one in done if one.before is not None}:
                paths = [one.partition for one in done if one.before == before]
                targets |= history.batch(name, before, paths)
            plans.append(_plan(history, name, targets))
        return _with_rejected(history, plans)


def show(console: Console, plans: Sequence[RollbackPlan], *, done: bool) -> None:
    """The plans for people."""
    for plan in plans:
        table = Table("partition", "from", "to", title=plan.dataset, title_justify="left")
        for path, (now, target) in plan.moves.items():
            table.add_row(path, str(now or "none"), str(target.batch_id) if target else "[yellow]none[/]")
        console.print(table if plan.moves else f"{plan.dataset}: everything is there already.")
    if not done:
        console.print("Nothing was changed: this was a dry run.")


def as_values(plans: Sequence[RollbackPlan], *, done: bool) -> dict[str, Any]:
    """The plans for `--json`."""
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


def carry_out(plans: Sequence[RollbackPlan], *, reason: str, withdraw: bool) -> None:
    """Do it: all of it at once, or nothing.

    Raises VarveError where a partition would be left without a batch and `withdraw` does not say so.
    """
    without = [f"{plan.dataset} {path}" for plan in plans for path in plan.withdrawn if not plan.follows]
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
                build = _taken(catalog, plan, run_id)
                returns[plan.dataset] = build, [target for _, target in plan.moves.values() if target is not None]
            group.republish(
                catalog,
                returns,
                lambda dataset: open_store(dataset.store, settings, catalog, _session),
                reason=reason,
                seconds=settings.publish_seconds,
            )
        finally:
            for build, _ in returns.values():
                catalog.release(build)


def _taken(catalog: Catalog, plan: RollbackPlan, run_id: str) -> Build:
    """The plan's partitions, locked; what was planned on is what must still be in force."""
    dataset = declared(plan.dataset)
    keys = [dataset.partitioning.from_path(path) for path in plan.moves]
    build = catalog.take(dataset, keys, run_id=run_id)
    build.expected = {key: plan.moves[key.path][0] for key in keys}
    return build


def _plan(history: History, name: str, targets: dict[str, Batch | None]) -> RollbackPlan:
    current = Catalog(history.connection).current(name)
    plan = RollbackPlan(name)
    for path, target in sorted(targets.items()):
        now = current[path].batch_id if path in current else None
        if now != (target.batch_id if target else None):
            plan.moves[path] = (now, target)
    return plan


def _with_rejected(history: History, plans: Sequence[RollbackPlan]) -> list[RollbackPlan]:
    """The plans, and for rows that were taken those that were rejected with them, and the other way round."""
    planned = list(plans)
    for plan in plans:
        dataset = chosen_graph().datasets.get(plan.dataset)
        if dataset is None:
            continue
        other = dataset.rejected_of or (dataset.reject_into.dataset if dataset.reject_into else "")
        if not other or any(each.dataset == other for each in planned):
            continue
        targets: dict[str, Batch | None] = dict.fromkeys(plan.moves)
        made_by = {path: batch.run_id for path, (_, batch) in plan.moves.items() if batch is not None}
        for run_id in set(made_by.values()):
            for done in history.of_run(run_id, other):
                if made_by.get(done.partition) == run_id and done.published is not None:
                    targets |= history.batch(other, done.published, [done.partition])
        follower = _plan(history, other, targets)
        follower.follows = plan.dataset
        planned.append(follower)
    return planned


def _whole_run(history: History, run: str) -> str:
    found = history.runs_like(run)
    if len(found) != 1:
        raise VarveError(
            f"no run whose id begins with {run!r} has published anything."
            if not found
            else f"{counted(len(found), 'run')} have ids that begin with {run!r}: {some(found)}. Write more of it."
        )
    return found[0]


def _session() -> Any:
    from varve.services.spark import open_session

    return open_session(chosen_settings())
