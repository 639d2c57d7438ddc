"""`varve retire`: partitions that the graph has no more go out of readers' sight; sweeps delete their data later."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline_defs.cli.drive import open_instance
from pipeline_defs.cli.looking import looking
from pipeline_defs.cli.printing import Table
from pipeline_defs.cli.selection import who
from pipeline_defs.cli.show import dataset_named
from pipeline_defs.definitions import graph
from pipeline_defs.model.broken import DatasetIsBroken
from pipeline_defs.retiring import removed
from pipeline_defs.retiring import retire as leave
from resources.catalog import Catalog
from resources.settings import Settings
from resources.spark import open_session

if TYPE_CHECKING:
    from rich.console import Console

_REMOVED = "the code declares its dataset no more"


def retire(name: str | None, *, dry_run: bool) -> list[dict[str, Any]]:
    """Retire what one dataset or all have too much; each partition as plain values, with the reason.

    A dataset that the code does not declare any more is retired whole, where it is named. One dataset after the other,
    each whole or not at all. Raises VarveError for an unknown dataset, AlreadyBuilding where a run is on one of them,
    DatasetIsBroken for a dataset that a file with an error declares, or may declare.
    """
    settings = Settings()
    with looking() as found:
        catalog = Catalog(found.connection)
        gone = removed(catalog, graph)
        if name is not None and (broken := graph.broken_dataset(name.replace("/", "."))) is not None:
            raise DatasetIsBroken(broken)
        if name is not None and (dataset := gone.get(name.replace("/", "."))) is not None:
            listed = {dataset.name: dict.fromkeys(sorted(catalog.current(dataset.name)), _REMOVED)}
        else:
            wanted = None if name is None else dataset_named(name, graph).name
            plan = found.plan()
            listed = {
                each: {path: plan.judgements[each][path].reason for path in paths}
                for each, paths in plan.retire.items()
                if wanted in {None, each}
            }
        if not dry_run:
            with open_instance(settings) as instance:
                for each, paths in listed.items():
                    dataset = gone[each] if each in gone else graph.datasets[each]
                    leave(catalog, instance, dataset, list(paths), by=who(), spark=partial(open_session, settings))
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
