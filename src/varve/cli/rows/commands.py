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
OnePartition = Annotated[
    list[str] | None,
    typer.Argument(
        help="One partition, like day=2013-01-05; nothing for a dataset without partitions.", metavar="COL=VALUE"
    ),
]
Limit = Annotated[int, typer.Option(min=0, help="Show at most so many rows.")]


@app.command()
def preview(
    dataset: DatasetName,
    words: OnePartition = None,
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

    computed, seconds = preview_command.preview(dataset, words or [], limit=limit, explain=explain)
    if as_json:
        console.print_json(json.dumps(preview_command.as_values(computed, seconds)))
    else:
        preview_command.show(console, computed, seconds)


@app.command()
def diff(
    dataset: DatasetName,
    words: Annotated[
        list[str] | None, typer.Argument(help="Only partitions with these values.", metavar="COL=VALUE")
    ] = None,
    *,
    first: Annotated[
        str | None,
        typer.Option("--from", help="A batch or a time (UTC); default: what was current before.", metavar="BATCH|TIME"),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option(
            "--to", help="A batch, a time, or env:NAME; default: what is current.", metavar="BATCH|TIME|env:NAME"
        ),
    ] = None,
    key: Annotated[
        str, typer.Option(help="Columns that tell the rows of a partition apart, with commas; default: as declared.")
    ] = "",
    columns: Annotated[
        bool, typer.Option("--columns", help="NULLs, lowest, highest and mean of each column that differs.")
    ] = False,
    limit: Limit = 20,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 where something differs, as `git diff` does.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare two states of a dataset: which partitions differ, and which of their rows.

    With a key rows are added, removed or changed; without one, a changed row is one that is removed and one that is
    added. Of a batch only its own partitions are compared.

    Example: [bold]varve diff shop.sales day=2026-11-01 --key product,store --columns[/]
    """
    from varve.cli.rows import diff as diff_command

    key_columns = [name.strip() for name in key.split(",") if name.strip()]
    difference = diff_command.diff(
        dataset, words or [], first=first, last=last, key=key_columns, columns=columns, limit=limit
    )
    if as_json:
        console.print_json(json.dumps(diff_command.as_values(difference)))
    else:
        diff_command.show(console, difference)
    if exit_code and not difference.equal:
        raise typer.Exit(1)
