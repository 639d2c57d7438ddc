"""The commands `varve test` and `varve test new`, each a few lines over a module of its own.

Not here: what a test is and how it is run (varve/testing).
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from varve.cli.printing import open_console

RUN = "run"


class RunsUnlessNamed(TyperGroup):
    """A group whose command `run` need not be named: `varve test -k weekly` is `varve test run -k weekly`."""

    default_command = RUN

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the default command before words that begin with no command."""
        if not args or args[0] not in {*self.commands, "--help"}:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=RunsUnlessNamed,
    help="Run the tests of datasets that are files, *.test.yaml beside the datasets. `varve test new` writes one.",
)
console = open_console()


@app.command(RUN)
def run(
    datasets: Annotated[
        list[str] | None, typer.Argument(help="Only tests of these, db.table; default: all.", metavar="DATASET")
    ] = None,
    expression: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only tests with these words: 'delays and not weekly'.")
    ] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", "-x", help="Stop at the first that fails.")] = False,  # noqa: FBT002
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the outcome as JUnit's XML too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,  # noqa: FBT002
) -> None:
    """Run tests on a small Spark of this process; `run` need not be written. No service is started.

    Exit code: 0 where all pass, 1 where one fails or a file is wrong, 5 where no test is chosen.

    Example: [bold]varve test -k 'delays and not weekly'[/]
    """
    from varve.cli.tests import report

    code = report.run(
        console, datasets or [], expression, fail_fast=fail_fast, junit=junit, as_json=as_json,
    )  # fmt: skip
    if code:
        raise typer.Exit(code)


@app.command()
def new(
    dataset: Annotated[str, typer.Argument(help="db.table", metavar="DATASET")],
    partition: Annotated[
        list[str] | None,
        typer.Argument(
            help="One partition, as column=value words; nothing for a dataset without partitions.",
            metavar="COL=VALUE",
        ),
    ] = None,
    *,
    rows: Annotated[int, typer.Option(min=1, help="At most so many rows of each input.")] = 10,
    mask: Annotated[
        str | None,
        typer.Option(metavar="COLUMN,...", help="Columns of inputs whose values are replaced."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The file that it is added to; default: beside the dataset's.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What the test is called; default: after the partition.")] = None,
) -> None:
    """Write a test from what a partition reads now: a few rows that join, and the rows that they make.

    The dataset is run on exactly the rows that are written, so that the test passes at once; look at the rows that it
    expects, and correct what should be otherwise. Nothing is published.

    Example: [bold]varve test new shop.sales day=2026-11-01 store=Paris --mask customer[/]
    """
    from varve.cli.tests import writing

    masked = [column.strip() for column in (mask or "").split(",") if column.strip()]
    writing.new(console, dataset, partition or [], rows=rows, masked=masked, output=output, name=name)
