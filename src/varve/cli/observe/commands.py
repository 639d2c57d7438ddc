"""The commands over what the pipeline does and has cost: costs, metrics, logs, console.

Each command is a few lines over a module of its own, which is imported when the command runs; app.py adds them all.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from varve.cli.printing import open_console
from varve.observe.cost_statements import CostsBy

app = typer.Typer()
console = open_console()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of a table.")]
DatasetName = Annotated[str, typer.Argument(help="For example shop.orders.", metavar="DATASET")]
AnyDataset = Annotated[str | None, typer.Argument(help="Only this one; default: all.", metavar="DATASET")]


@app.command()
def costs(
    dataset: AnyDataset = None,
    *,
    by: Annotated[CostsBy, typer.Option(help="What one line is about.")] = CostsBy.DATASET,
    since: Annotated[
        str | None, typer.Option(help="Only builds of the last 30d, 12h, ...; default: all.", metavar="SPAN")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many lines.")] = 100,
    as_json: Json = False,
) -> None:
    """Show what datasets, runs or months have cost: seconds, rows, bytes read and written, and the storage held.

    Example: [bold]varve costs shop.sales --by run --since 7d[/]
    """
    from varve.cli.observe import costs as costs_command

    values = costs_command.costs(dataset, by=by, since=since)
    if as_json:
        console.print_json(json.dumps(values[:limit]))
    else:
        costs_command.show(console, values, by=by, limit=limit)


@app.command()
def metrics() -> None:
    """Print the metrics of the catalog as Prometheus reads them: ticks, runs, publishes, partitions, storage."""
    from varve.cli.observe import metrics as metrics_command

    sys.stdout.write(metrics_command.text())


@app.command()
def logs(
    dataset: DatasetName,
    words: Annotated[
        list[str] | None, typer.Argument(help="Partitions by column, like day=2013-01-05.", metavar="COL=VALUE")
    ] = None,
    *,
    run: Annotated[str | None, typer.Option(help="Only this run: its id, or how it begins.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="So many of the last runs.")] = 1,
    output: Annotated[
        bool, typer.Option("--output", help="Also what the processes of the run wrote to stdout and stderr.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print the log of the runs that made or tried a partition, oldest line first: by default of its last run.

    Example: [bold]varve logs shop.sales day=2026-11-01 --runs 3[/]
    """
    from varve.cli.observe import logs as logs_command

    logs_command.show(console, dataset, words or [], run=run, runs=runs, output=output, as_json=as_json)


@app.command("console")
def serve_console(
    *,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="The port to listen on.")] = 3001,
    host: Annotated[
        str, typer.Option(help="The address to listen on; beyond loopback others can reach it.")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="A name by which browsers ask for it, besides localhost and addresses.")
    ] = None,
) -> None:
    """Serve pages of all datasets over time, partitions and why they are as they are, runs and environments.

    They change nothing, and need the token in the link that is printed.
    """
    from varve.cli.observe.console.serving import serve

    serve(console, port, host, name or [])
