"""`varve retire`: partitions that the graph has no more go out of readers' sight; sweeps delete their data later."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import dagster as dg
from rich.table import Table

from pipeline_defs.cli.drive import open_instance
from pipeline_defs.cli.looking import looking
from pipeline_defs.cli.selection import who
from pipeline_defs.cli.show import dataset_named
from pipeline_defs.definitions import graph
from pipeline_defs.model.partition import PartitionKey, parse_path
from resources.catalog import Catalog
from resources.settings import Settings
from resources.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg
    from rich.console import Console

    from pipeline_defs.model.dataset import Dataset


def retire(name: str | None, *, dry_run: bool) -> list[dict[str, Any]]:
    """Retire what one dataset or all have too much; each partition as plain values, with the reason.

    One dataset after the other, each whole or not at all. Raises AlreadyBuilding where a run is on one of them.
    """
    wanted = None if name is None else dataset_named(name, graph).name
    with looking() as found:
        plan = found.plan()
        listed = {each: paths for each, paths in plan.retire.items() if wanted in {None, each}}
        if not dry_run:
            for each, paths in listed.items():
                _retire(found.connection, graph.datasets[each], paths)
    return [
        {"dataset": each, "partition": path, "reason": plan.judgements[each][path].reason}
        for each, paths in listed.items()
        for path in paths
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


def _retire(connection: psycopg.Connection, dataset: Dataset, paths: Sequence[str]) -> None:
    settings, catalog = Settings(), Catalog(connection)
    # The dataset's dimensions may not have them any more: their texts are enough to take them back by.
    keys = [PartitionKey.of(**dict(parse_path(path))) for path in paths]
    build = catalog.take(dataset, keys, run_id=f"retire-{uuid.uuid4().hex[:8]} by {who()}")
    try:
        open_store(dataset.store, settings, catalog, _session).republish(build, [], reason="retired")
    finally:
        catalog.release(build)
    with open_instance(settings) as instance:
        for path in paths:
            instance.report_runless_asset_event(
                dg.AssetObservation(
                    dg.AssetKey([dataset.db, dataset.table]), description=f"{path} was retired",
                    metadata={"varve/retired": path},
                )
            )  # fmt: skip


def _session() -> Any:
    from resources.spark import open_session

    return open_session(Settings())
