"""The commands that show rows: preview, diff.

Each command is a few lines over a module of its own, which is imported when the command runs; app.py adds them all.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from varve.cli.printing import open_console

app = typer.Typer()
console = open_console()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
DatasetName = Annotated[str, typer.Argument(help="For example shop.orders.", metavar="DATASET")]
Limit = Annotated[int, typer.Option(min=0, help="Show at most so many rows.")]


@app.command()
def preview(
    dataset: DatasetName,
    words: Annotated[list[str], typer.Argument(help="One partition, like day=2013-01-05.", metavar="COL=VALUE...")],
    *,
    limit: Limit = 20,
    explain: Annotated[bool, typer.Option("--explain", help="Print Spark's plan too.")] = False,
    as_json: Json = False,
) -> None:
    """Compute a partition from what is current now, and show its rows: nothing is written, locked or published.

    It is what a run would publish: of the file as it is on disk now, of a query as of a function, with every EXPECT.

    Example: [bold]varve preview shop.revenue day=2026-11-01 --limit 5[/]
    """
    from varve.cli.rows import preview as preview_command

    computed, seconds = preview_command.preview(dataset, words, limit=limit, explain=explain)
    if as_json:
        console.print_json(json.dumps(preview_command.as_values(computed, seconds)))
    else:
        preview_command.show(console, computed, seconds)
