"""`varve up | down | migrate | status | ui | psql`, each a few lines over services.py and migrate.py.

Heavy libraries are imported by the command that needs them.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from varve.cli.printing import open_console

app = typer.Typer()
console = open_console()
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of a table.")]


@app.command()
def up() -> None:
    """Start the embedded PostgreSQL and Spark, where the settings name no servers of your own. Safe to repeat."""
    from varve.cli.servers import services

    services.up(console)


@app.command()
def down() -> None:
    """Stop the embedded services. Data and catalog stay; the next command that needs a service starts it again."""
    from varve.cli.servers import services

    services.down(console)


@app.command()
def migrate(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which steps are missing.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also where code too old for a step was here in the last 10 minutes."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring the catalog to the version that this Varve needs; code of the version before goes on meanwhile.

    On a server of your own nothing else does it. Where Varve runs the server itself, any command does.
    """
    from varve.cli.servers import migrate as migrate_command

    migration = migrate_command.migrate(None if as_json else console, dry_run=dry_run, force=force)
    if as_json:
        console.print_json(json.dumps(migration.as_values()))
    else:
        migrate_command.show(console, migration)


@app.command()
def status(*, as_json: Json = False) -> None:
    """Show the services, how to reach them with other tools, and what each dataset holds. Starts nothing."""
    from varve.cli.servers import services

    service_status = services.status()
    if as_json:
        console.print_json(json.dumps(service_status))
    else:
        services.show_status(console, service_status)


@app.command()
def ui(
    *,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Port on 127.0.0.1; default: VARVE_UI_PORT, else 3000.")
    ] = None,
    environment: Annotated[
        str,
        typer.Option(
            "--env", help="Of this environment: what is launched there is computed in it, and no sensor is on."
        ),
    ] = "",
    console_port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Port of the console; default: the one after --port.")
    ] = None,
    with_console: Annotated[
        bool, typer.Option("--console/--no-console", help="Whether `varve console` is served beside it.")
    ] = True,
) -> None:
    """Serve the Dagster UI with its daemon, and the console, until Ctrl-C.

    Backfills run while it is up, and sensors you switch on.
    """
    from varve.cli.servers import ui

    ui.serve_ui(console, port, environment, console_port=console_port, with_console=with_console)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(context: typer.Context) -> None:
    """Open psql on the warehouse. Further words go to psql: `varve psql -c 'select * from shop.revenue'`."""
    from varve.cli.servers import services

    services.psql(context.args)
