"""`varve retire`: partitions that the graph has no more go out of readers' sight; sweeps delete their data later."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.drive import open_instance
from varve.cli.looking import looking
from varve.cli.printing import Table
from varve.cli.selection import who
from varve.cli.show import dataset_named
from varve.dagster.automation.retiring import removed
from varve.dagster.automation.retiring import retire as leave
from varve.model.broken_dataset import DatasetIsBroken
from varve.services.spark import open_session

if TYPE_CHECKING:
    from rich.console import Console

_REMOVED = "the code declares its dataset no more"


def retire(name: str | None, *, dry_run: bool) -> list[dict[str, Any]]:
    """Retire what one dataset or all have too much; each partition as plain values, with the reason.

    A dataset that the code does not declare any more is retired whole, where it is named. One dataset after the other,
    each whole or not at all. Raises VarveError for an unknown dataset, AlreadyBuilding where a run is on one of them,
    DatasetIsBroken for a dataset that a file with an error declares, or may declare.
    """
    settings = chosen_settings()
    with looking() as found:
        catalog = Catalog(found.connection)
        gone = removed(catalog, chosen_graph())
        if name is not None and (broken := chosen_graph().broken_dataset(name.replace("/", "."))) is not None:
            raise DatasetIsBroken(broken)
        if name is not None and (dataset := gone.get(name.replace("/", "."))) is not None:
            listed = {dataset.name: dict.fromkeys(sorted(catalog.current(dataset.name)), _REMOVED)}
        else:
            wanted = None if name is None else dataset_named(name, chosen_graph()).name
            plan = found.plan()
            listed = {
                each: {path: plan.judgements[each][path].reason for path in paths}
                for each, paths in plan.retire.items()
                if wanted in {None, each}
            }
        if not dry_run:
            with open_instance(settings) as instance:
                for each, paths in listed.items():
                    dataset = gone[each] if each in gone else chosen_graph().datasets[each]
                    leave(
                        catalog, instance, dataset, list(paths), by=who(), settings=settings,
                        spark=partial(open_session, settings),
                    )  # fmt: skip
    return [
        {"dataset": each, "partition": path, "reason": reason}
        for each, paths in listed.items()
        for path, reason in paths.items()
    ]


def show(console: Console, found: list[dict[str, Any]], *, done: bool) -> None:
    """The same for people."""
    table = Table("dataset", "partition", "why", title="Retired" if done else "Would be retired", title_justify="left")
    for one in found:
        table.add_row(one["dataset"], one["partition"], one["reason"])
    console.print(table if found else "Every partition that has a batch is one of the graph.")
    if found and done:
        console.print("Readers do not see them any more; `varve sweep` deletes their data when its time has come.")
    elif found:
        console.print("Nothing was changed: this was a dry run.")
