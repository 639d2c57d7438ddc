"""`varve warehouse migrate | compact | roles`: the commands that only the warehouse has.

Not here: commands for both stores (batches/keeping.py).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.printing import open_console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset
    from varve.services.settings import Settings

app = typer.Typer(help="The warehouse: migrations, compaction and roles.", no_args_is_help=True)
console = open_console()

Named = Annotated[str, typer.Argument(metavar="DATASET", help="For example shop.revenue.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done; change nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("migrate")
def migrate_view(dataset: Named, *, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Make a dataset's view exactly as it is declared, where a column has another type or is to go, or by its grants.

    Tables stay, the view and all that depends on it are made anew in one transaction: readers see the one or the other.
    """
    from varve.cli.selection import refuse_of_others
    from varve.stores.warehouse.migrate import migrate

    with _catalog() as (settings, catalog):
        refuse_of_others(catalog.connection, [dataset])
        migration = migrate(catalog, _declared(dataset), seconds=settings.publish_seconds, dry_run=dry_run)
    if as_json:
        console.print_json(
            json.dumps(
                {"changes": migration.changes, "statements": migration.statements, "restored": migration.restored}
            )
        )
        return
    if not migration.changes:
        console.print(f"The view of {dataset} is as it is declared.")
        return
    for statement in migration.statements:
        console.print(f"{statement};", markup=False, highlight=False, soft_wrap=True)
    restored_text = f" Made again: {', '.join(migration.restored)}." if migration.restored else ""
    outcome = "That is what would be done; nothing was changed." if dry_run else "Done, in one transaction."
    console.print(f"\n{'; '.join(migration.changes)}.{restored_text} {outcome}", markup=False, highlight=False)


@app.command("compact")
def compact_periods(dataset: Named, *, dry_run: DryRun = False) -> None:
    """Put the tables of every period that is over into one each, as a publish of the dataset does by itself."""
    from varve.cli.selection import refuse_of_others
    from varve.stores.warehouse.compact import compact, due

    with _catalog() as (settings, catalog):
        declared = _declared(dataset)
        refuse_of_others(catalog.connection, [dataset])
        periods = due(catalog, declared)
        for period in periods:
            if dry_run:
                console.print(f"{period} would share one table.", highlight=False)
            else:
                table = compact(catalog, declared, period, seconds=settings.publish_seconds)
                console.print(f"{period} shares {table}.", markup=False, highlight=False)
    if not periods:
        console.print(f"{dataset} has no period to put together.")


@app.command()
def roles(*, dry_run: DryRun = False) -> None:
    """Make the roles varve_owner and varve_reader on the server, once; needs the right to create roles."""
    from varve.services.postgres import connect
    from varve.stores.warehouse.tables.roles import create_roles, ensure_roles

    settings = chosen_settings()
    # The catalog's tables are not created here: the user who creates the roles is not the one who shall own the tables.
    with connect(settings, application="varve warehouse") as connection:
        apply = create_roles if dry_run else ensure_roles
        executed = apply(connection, connections=settings.reader_connections, statement_seconds=settings.reader_seconds)
        statements = [sql if isinstance(sql, str) else sql.as_string(connection) for sql in executed]
    for statement in statements:
        console.print(f"{statement};", markup=False, highlight=False, soft_wrap=True)
    if not statements:
        console.print("Both roles are there.")


@contextmanager
def _catalog() -> Iterator[tuple[Settings, Catalog]]:
    from varve.catalog.catalog import Catalog
    from varve.services.postgres import connect

    settings = chosen_settings()
    with connect(settings, application="varve warehouse") as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        yield settings, catalog


def _declared(name: str) -> Dataset:

    from varve.model.errors import VarveError
    from varve.stores.warehouse.store import in_warehouse

    warehouse_names = sorted(dataset.name for dataset in chosen_graph().datasets.values() if in_warehouse(dataset))
    if name not in warehouse_names:
        raise VarveError(f"{name} is no dataset of the warehouse; those are {', '.join(warehouse_names) or 'none'}.")
    return chosen_graph().datasets[name]
