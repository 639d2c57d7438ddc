"""`varve retire`: hide partitions that the graph no longer has from readers; sweeps delete their data later."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from varve.catalog.backfills import Backfills
from varve.catalog.catalog import Catalog
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.plan.open_plan import opened_plan, refuse_unplanned
from varve.cli.printing import Table
from varve.cli.selection import dataset_named, refuse_of_others, who
from varve.dagster.automation.retiring import removed
from varve.dagster.automation.retiring import retire as retire_partitions
from varve.dagster.instance import open_instance
from varve.model.broken_dataset import DatasetIsBroken
from varve.model.errors import VarveError, counted
from varve.services.spark import open_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

_REMOVED = "the code declares its dataset no more"


def retire(name: str | None, *, dry_run: bool) -> list[dict[str, Any]]:
    """Retire the partitions that the graph no longer has, of one dataset or of all.

    Returns each retired partition as plain values, with the reason. A dataset that the code does not declare any more
    is retired whole, if it is named. Datasets are retired one after another, each one completely or not at all; one
    that cannot be, as a run builds one of its partitions, keeps no other.

    Raises VarveError for an unknown dataset, and where a dataset could not be retired: with what was; and
    DatasetIsBroken for a dataset that a file with an error declares, or may declare.
    """
    settings = chosen_settings()
    with opened_plan() as open_plan:
        catalog = Catalog(open_plan.connection)
        if name is not None:
            refuse_of_others(open_plan.connection, [name.replace("/", ".")])
        undeclared = removed(catalog, chosen_graph())
        if name is not None and (broken := chosen_graph().broken_dataset(name.replace("/", "."))) is not None:
            raise DatasetIsBroken(broken)
        if name is not None and (dataset := undeclared.get(name.replace("/", "."))) is not None:
            reasons_by_dataset = {dataset.name: dict.fromkeys(sorted(catalog.current(dataset.name)), _REMOVED)}
        else:
            wanted = None if name is None else dataset_named(name).name
            plan = open_plan.overview()
            if wanted is not None:
                refuse_unplanned(plan, wanted)
            for dataset_name, marked in plan.unmark.items():
                if wanted in {None, dataset_name} and not dry_run:
                    Backfills(open_plan.connection).leave_out(dataset_name, marked)
            reasons_by_dataset = {
                dataset_name: {path: plan.judgements[dataset_name][path].reason for path in paths}
                for dataset_name, paths in plan.retire.items()
                if wanted in {None, dataset_name}
            }
        if not dry_run:
            with open_instance(settings) as instance:
                left: dict[str, VarveError] = {}
                for dataset_name, paths in reasons_by_dataset.items():
                    dataset = undeclared.get(dataset_name) or chosen_graph().datasets[dataset_name]
                    try:
                        retire_partitions(
                            catalog, instance, dataset, list(paths), by=who(), settings=settings,
                            spark=partial(open_session, settings),
                        )  # fmt: skip
                    except VarveError as error:
                        left[dataset_name] = error
            if left:
                raise _not_all(left, {name: paths for name, paths in reasons_by_dataset.items() if name not in left})
    return [
        {"dataset": dataset_name, "partition": path, "reason": reason}
        for dataset_name, paths in reasons_by_dataset.items()
        for path, reason in paths.items()
    ]


def _not_all(left: Mapping[str, VarveError], retired: Mapping[str, Mapping[str, str]]) -> VarveError:
    """What says which datasets could not be retired, and which were."""
    if not retired and len(left) == 1:
        return next(iter(left.values()))
    done = [f"{counted(len(paths), 'partition')} of {name}" for name, paths in retired.items()]
    reasons = " ".join(f"{name} was not: {error}" for name, error in left.items())
    return VarveError(f"retired: {', '.join(done) or 'nothing'}. {reasons} Then again: varve retire")


def show(console: Console, retired: list[dict[str, Any]], *, done: bool) -> None:
    """Print what was retired, or would be."""
    table = Table("dataset", "partition", "why", title="Retired" if done else "Would be retired", title_justify="left")
    for partition in retired:
        table.add_row(partition["dataset"], partition["partition"], partition["reason"])
    console.print(table if retired else "Every partition that has a batch is one of the graph.")
    if retired and done:
        console.print("Readers do not see them any more; `varve sweep` deletes their data when its time has come.")
    elif retired:
        console.print("Nothing was changed: this was a dry run.")
