"""`varve own`: to which project each dataset of the catalog belongs, and taking datasets over from another project.

Not here: what follows from it (varve/catalog/code/owners.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.code.owners import Owners
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.printing import Table
from varve.cli.selection import dataset_named, who
from varve.model.errors import VarveError
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console


def listed() -> list[dict[str, Any]]:
    """Return the datasets of the catalog that belong to a project, as plain values."""
    with connect(chosen_settings(), application="varve own") as connection:
        Catalog(connection).ensure_schema()
        return [
            {**owner._asdict(), "since": owner.since.isoformat()}
            for owner in Owners(connection, chosen_settings().project_name).of().values()
        ]


def take(names: Sequence[str]) -> list[dict[str, Any]]:
    """Make datasets that are declared here belong to this project; returns who had each before, as plain values.

    Raises VarveError for a project without a name, and for a dataset that is not declared to be computed here.
    """
    graph = chosen_graph()
    if not graph.project:
        raise VarveError(
            "only a project with a name owns datasets, and this one has none. Nothing was changed. Write project_name "
            "under [tool.varve.settings]."
        )
    datasets = [dataset_named(name, graph) for name in names]
    for dataset in datasets:
        if dataset.of_project:
            raise VarveError(
                f"{dataset} is declared here as a dataset of project {dataset.of_project}. Nothing was changed. "
                "Declare how it is computed, in place of EXTERNAL, and take it over then."
            )
    with connect(chosen_settings(), application="varve own") as connection:
        Catalog(connection).ensure_schema()
        owners = Owners(connection, graph.project)
        before = owners.of(dataset.name for dataset in datasets)
        owners.take((dataset.name for dataset in datasets), by=who())
    return [
        {"dataset": dataset.name, "project": graph.project, "before": before[dataset.name].project
         if dataset.name in before else None}
        for dataset in datasets
    ]  # fmt: skip


def leave(names: Sequence[str]) -> list[dict[str, Any]]:
    """Let datasets of this project belong to nobody; returns them as plain values.

    Raises VarveError for a dataset that does not belong to this project.
    """
    project = chosen_graph().project
    with connect(chosen_settings(), application="varve own") as connection:
        Catalog(connection).ensure_schema()
        owners = Owners(connection, project)
        of = owners.of(names)
        for name in names:
            if name not in of or of[name].project != project:
                owner = f"project {of[name].project}" if name in of else "no project"
                raise VarveError(f"{name} belongs to {owner}, not to this one. Nothing was changed.")
        owners.leave(names)
    return [{"dataset": name, "project": None, "before": project} for name in names]


def show(console: Console, owners: Sequence[dict[str, Any]]) -> None:
    """Print the owners as a table."""
    table = Table("dataset", "project", "since (UTC)", "by")
    for owner in owners:
        table.add_row(owner["dataset"], owner["project"], owner["since"][:19].replace("T", " "), owner["claimed_by"])
    if not table.row_count:
        console.print("No dataset belongs to a project: a project owns datasets by its setting project_name.")
        return
    console.print(table)


def show_changed(console: Console, changed: Sequence[dict[str, Any]]) -> None:
    """Print what belongs to whom now."""
    for dataset in changed:
        now = f"belongs to project {dataset['project']}" if dataset["project"] else "belongs to no project"
        before = f", and belonged to {dataset['before']}" if dataset["before"] not in {None, dataset["project"]} else ""
        console.print(f"{dataset['dataset']} {now}{before}.", highlight=False, soft_wrap=True)
