"""The commands over what is to be done: tasks, why, plan, backfill, retire.

Each command is a few lines over a module of its own, which is imported when the command runs; app.py adds them all.
"""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from varve.cli.printing import open_console

app = typer.Typer()
backfill = typer.Typer(help="Compute partitions again: start, list, pause, resume, cancel.", no_args_is_help=True)
app.add_typer(backfill, name="backfill")
console = open_console()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of a table.")]
DatasetName = Annotated[str, typer.Argument(help="For example shop.orders.", metavar="DATASET")]
OnePartition = Annotated[
    list[str] | None,
    typer.Argument(
        help="One partition, like day=2013-01-05; nothing for a dataset without partitions.", metavar="COL=VALUE"
    ),
]
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="As `varve backfill list` shows it.")]


@app.command()
def why(
    dataset: DatasetName,
    words: OnePartition = None,
    *,
    as_json: Json = False,
) -> None:
    """Say what state a partition is in and why: what it is made from, what it waits for, and when it is tried again."""
    from varve.cli.plan import why as why_command

    judgement = why_command.why(dataset, words or [])
    if as_json:
        console.print_json(json.dumps(judgement))
    else:
        why_command.show(console, judgement)


@app.command()
def own(
    datasets: Annotated[
        list[str] | None, typer.Argument(help="Datasets that this project takes over; none: list the owners.")
    ] = None,
    *,
    leave: Annotated[bool, typer.Option("--leave", help="Let them belong to no project.")] = False,
    as_json: Json = False,
) -> None:
    """List to which project each dataset of the catalog belongs, or take datasets over.

    A project with a name (setting project_name) owns what it declares as soon as it runs. Other projects over the same
    catalog read it, and neither compute, change, sweep nor drop it.

    Example: [bold]varve own shop.orders[/]
    """
    from varve.cli.plan import own as own_command
    from varve.model.errors import VarveError

    if leave and not datasets:
        raise VarveError("which datasets? Write varve own --leave DATASET. Nothing was changed.")
    names = [name.replace("/", ".") for name in datasets or []]
    values = own_command.listed() if not names else (own_command.leave if leave else own_command.take)(names)
    if as_json:
        console.print_json(json.dumps(values))
    elif names:
        own_command.show_changed(console, values)
    else:
        own_command.show(console, values)


@app.command()
def tasks(
    dataset: DatasetName,
    words: Annotated[
        list[str] | None, typer.Argument(help="Only keys with these values, like origin=EWR.", metavar="COL=VALUE")
    ] = None,
    *,
    at: Annotated[
        str | None, typer.Option(help="Those that there are then (UTC); default: now.", metavar="DATE")
    ] = None,
    first: Annotated[str | None, typer.Option("--from", help="The first window.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="The last window.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many lines.")] = 50,
    folder: Annotated[Path | None, typer.Option("--in", help="A folder of .sql files; default: the project.")] = None,
    as_json: Json = False,
) -> None:
    """List the tasks of a dataset: a partition each, the scope that computes it, and its state; newest first.

    Starts nothing: without a catalog that can be asked there are no states.

    Example: [bold]varve tasks shop.sales --from 2026-11-01 --to 2026-11-07 store=Paris[/]
    """
    from varve.cli.plan import tasks as tasks_command
    from varve.cli.selection import moment

    values = tasks_command.tasks(
        dataset,
        words or [],
        at=None if at is None else moment(at),
        first=first,
        last=last,
        limit=limit,
        folder=folder,
    )
    if as_json:
        console.print_json(json.dumps(values))
    else:
        tasks_command.show(console, values)


@app.command()
def plan(
    datasets: Annotated[
        list[str] | None, typer.Argument(help="Only the map of these datasets.", metavar="DATASET")
    ] = None,
    *,
    explain: Annotated[bool, typer.Option("--explain", help="Print the whole difference of each declaration.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Only the code changes, for a pull request.")] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 3 where a change of code waits for `varve apply`.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what the code here changes, and what is current, due, waiting, failed and on hold of every dataset.

    A change of code has a number. Until `varve apply NUMBER` has deployed it, nothing of its datasets is computed here.
    """
    from varve.cli.plan import heat as heat_command
    from varve.cli.plan.changes import as_markdown

    heat_values, code_plan = heat_command.heat_and_changes(datasets or [])
    if as_json:
        console.print_json(json.dumps(heat_values))
    elif markdown:
        typer.echo(as_markdown(code_plan), nl=False)
    else:
        heat_command.show(console, heat_values, code_plan, explain=explain)
    if exit_code and code_plan.number is not None:
        raise typer.Exit(3)


@app.command()
def apply(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Of the plan, as `varve plan` shows it.")],
    datasets: Annotated[list[str] | None, typer.Argument(help="Only these datasets of it.", metavar="DATASET")] = None,
    *,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Compute the partitions of other code again.")] = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="Deploy the code, and decide later; until then none is computed.")
    ] = False,
    forward_from: Annotated[
        str | None, typer.Option("--forward-from", metavar="DATE", help="Keep windows that begin before this date.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Deploy the code of a plan, and decide what becomes of the partitions that other code has made.

    Without an option, each dataset does what its ON CODE CHANGE declares. Refused where something has moved since the
    plan was made. A plan of `varve promote --dry-run` is promoted.

    Example: [bold]varve plan[/], then [bold]varve apply 7 --rebuild[/]
    """
    from varve.cli.environments import promotions, report
    from varve.cli.plan import apply as apply_command

    if (promotion_plan := promotions.plan_of(number)) is not None:
        apply_command.refuse_options(number, promotion_plan.environment, datasets, rebuild or hold or forward_from)
        promotion = promotions.apply_plan(promotion_plan)
        if as_json:
            console.print_json(json.dumps(promotions.promotion_values(promotion)))
        else:
            report.show_promotion(console, promotion, dry_run=False)
        return
    decision = apply_command.decision_of(rebuild=rebuild, hold=hold, forward_from=forward_from)
    applied = apply_command.apply(number, datasets or [], decision)
    if as_json:
        console.print_json(json.dumps(applied))
    else:
        apply_command.show(console, applied)


@app.command()
def accept(
    dataset: DatasetName,
    words: Annotated[
        list[str] | None,
        typer.Argument(help="Only partitions with these values, like day=2013-01-05.", metavar="COL=VALUE"),
    ] = None,
    *,
    reason: Annotated[str, typer.Option(help="Why; `varve why` says so.")] = "",
    take_back: Annotated[bool, typer.Option("--take-back", help="End the acceptance: they are stale again.")] = False,
    as_json: Json = False,
) -> None:
    """Keep stale partitions as they are: current with their old inputs, until these change again.

    Example: [bold]varve accept shop.revenue day=2026-11-01 --reason 'a price of one cent'[/]
    """
    from varve.cli.plan import accept as accept_command

    values = (
        accept_command.take_back(dataset, words or [])
        if take_back
        else accept_command.accept(dataset, words or [], reason=reason)
    )
    if as_json:
        console.print_json(json.dumps(values))
    else:
        accept_command.show(console, values)


@backfill.command("start")
def start(
    dataset: DatasetName,
    words: Annotated[
        list[str] | None, typer.Argument(help="Only keys with these values, like origin=EWR.", metavar="COL=VALUE")
    ] = None,
    *,
    first: Annotated[str | None, typer.Option("--from", help="The first window; default: the first there is.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="The last window; default: the last complete one.")] = None,
    downstream: Annotated[
        str, typer.Option(help="What follows downstream: none, all, or names between commas.")
    ] = "none",
    accept: Annotated[
        str, typer.Option(help="What stays as it is downstream: none, rest (all that is not computed), or names.")
    ] = "none",
    reason: Annotated[str, typer.Option(help="Why; every run of it says so.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan.")] = False,
    as_json: Json = False,
) -> None:
    """Mark partitions as dirty; the sensors compute them again, upstream first, and after fresh data.

    With none, what is downstream still follows where its policy is to rebuild and the rows have changed. What --accept
    names does not follow what this backfill makes: it is current with its old inputs, and shown as accepted, until they
    change again or `varve accept --take-back`.

    Example: [bold]varve backfill start shop.sales --from 2026-11-01 --to 2026-11-07 --downstream all[/]
    """
    from varve.cli.plan import backfill as backfill_command

    parts, accepted = backfill_command.plan(
        dataset, words or [], first=first, last=last, downstream=downstream, accept=accept
    )
    number = None if dry_run else backfill_command.start(parts, accepted, reason=reason)
    if as_json:
        console.print_json(json.dumps(backfill_command.as_values(parts, accepted, number)))
    else:
        backfill_command.show_plan(console, parts, accepted, number)


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
    dataset: Annotated[str | None, typer.Argument(help="Only this one; default: all.", metavar="DATASET")] = None,
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
