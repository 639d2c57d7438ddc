"""The commands over what is to be done: why, plan, backfill, retire.

Each command is a few lines over a module of its own, which is imported when the command runs; app.py adds them all.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from varve.cli.printing import open_console

app = typer.Typer()
backfill = typer.Typer(help="Compute partitions again: start, list, pause, resume, cancel.", no_args_is_help=True)
app.add_typer(backfill, name="backfill")
console = open_console()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of a table.")]
DatasetName = Annotated[str, typer.Argument(help="For example shop.orders.", metavar="DATASET")]
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="As `varve backfill list` shows it.")]


@app.command()
def why(
    dataset: DatasetName,
    words: Annotated[list[str], typer.Argument(help="One partition, like day=2013-01-05.", metavar="COL=VALUE...")],
    *,
    as_json: Json = False,
) -> None:
    """Say what state a partition is in and why: what it is made from, what it waits for, and when it is tried again."""
    from varve.cli.plan import why as why_command

    judgement = why_command.why(dataset, words)
    if as_json:
        console.print_json(json.dumps(judgement))
    else:
        why_command.show(console, judgement)


@app.command()
def plan(*, as_json: Json = False) -> None:
    """Show what is current, due, dirty, waiting, in flight, failed and on hold of every dataset, over time."""
    from varve.cli.plan import heat as heat_command

    heat_values = heat_command.heat()
    if as_json:
        console.print_json(json.dumps(heat_values))
    else:
        heat_command.show(console, heat_values)


@backfill.command("start")
def start(
    dataset: DatasetName,
    words: Annotated[
        list[str] | None, typer.Argument(help="Only keys with these values, like origin=EWR.", metavar="[COL=VALUE]...")
    ] = None,
    *,
    first: Annotated[str | None, typer.Option("--from", help="The first window; default: the first there is.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="The last window; default: the last complete one.")] = None,
    downstream: Annotated[
        str, typer.Option(help="What follows downstream: none, all, or names between commas.")
    ] = "none",
    reason: Annotated[str, typer.Option(help="Why; every run of it says so.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan.")] = False,
    as_json: Json = False,
) -> None:
    """Mark partitions as dirty; the sensors compute them again, upstream first, and after fresh data.

    With none, what is downstream still follows where its policy is to rebuild and the rows have changed.

    Example: [bold]varve backfill start shop.sales --from 2026-11-01 --to 2026-11-07 --downstream all[/]
    """
    from varve.cli.plan import backfill as backfill_command

    parts = backfill_command.plan(dataset, words or [], first=first, last=last, downstream=downstream)
    number = None if dry_run else backfill_command.start(parts, reason=reason)
    if as_json:
        console.print_json(json.dumps(backfill_command.as_values(parts, number)))
    else:
        backfill_command.show_plan(console, parts, number)


@backfill.command("list")
def list_backfills(*, as_json: Json = False) -> None:
    """Show all backfills with how far they are."""
    from varve.cli.plan import backfill as backfill_command

    backfills = backfill_command.listed()
    if as_json:
        console.print_json(json.dumps(backfills))
    else:
        backfill_command.show_listed(console, backfills)


@backfill.command()
def pause(number: Number) -> None:
    """Launch nothing more of a backfill; what is in flight goes on."""
    from varve.cli.plan import backfill as backfill_command

    backfill_command.change(console, number, "pause")


@backfill.command()
def resume(number: Number) -> None:
    """Go on with a backfill."""
    from varve.cli.plan import backfill as backfill_command

    backfill_command.change(console, number, "resume")


@backfill.command()
def cancel(number: Number) -> None:
    """Take the marks of a backfill away; what it has computed stays."""
    from varve.cli.plan import backfill as backfill_command

    backfill_command.change(console, number, "cancel")


@app.command()
def retire(
    dataset: Annotated[str | None, typer.Argument(help="Only this one; default: all.", metavar="[DATASET]")] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be retired.")] = False,
    as_json: Json = False,
) -> None:
    """Take partitions that the graph has no more out of readers' sight; the next sweeps delete their data."""
    from varve.cli.plan import retire as retire_command

    retired = retire_command.retire(dataset, dry_run=dry_run)
    if as_json:
        console.print_json(json.dumps(retired))
    else:
        retire_command.show(console, retired, done=not dry_run)
