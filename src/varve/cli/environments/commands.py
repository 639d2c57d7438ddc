"""`varve env create | list | show | run | diff | rebase | drop`.

Each command is a few lines over work.py, which is imported when the command runs; app.py adds them.

Not here: what makes an environment current (promoting.py).
"""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from varve.cli.printing import open_console

app = typer.Typer(
    help="Environments: try a change over production's data, without a copy of it, and promote it.",
    no_args_is_help=True,
)
console = open_console()

Name = Annotated[str, typer.Argument(metavar="NAME", help="For example alice.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")]
Words = Annotated[
    list[str] | None, typer.Argument(help="A dataset, and values of its columns.", metavar="DATASET|COL=VALUE")
]
First = Annotated[str | None, typer.Option("--from", metavar="DATE", help="The first day; default: no limit.")]
Last = Annotated[str | None, typer.Option("--to", metavar="DATE", help="The last day, included; default: no limit.")]


@app.command()
def create(
    name: Name,
    *,
    live: Annotated[
        bool, typer.Option("--live", help="Follow production instead of its state now: to watch, not to promote.")
    ] = False,
    ttl: Annotated[
        str, typer.Option(metavar="SPAN", help="So long after its last use it may be forgotten, like 7d; 0: never.")
    ] = "7d",
    as_json: Json = False,
) -> None:
    """Make an environment over what is current now. Nothing is copied, and nothing is computed.

    Example: [bold]varve env create alice[/], then [bold]varve env run alice --from 2026-11-01 --to 2026-11-07[/]
    """
    from varve.cli.environments import report, work

    made = work.create(name, live=live, ttl=ttl)
    if as_json:
        console.print_json(json.dumps(work.values_of(made)))
    else:
        report.show_created(console, made)


@app.command("list")
def list_all(*, as_json: Json = False) -> None:
    """List the environments: whose they are, what they stand on, and the data that only they need."""
    from varve.cli.environments import report, work

    environments = work.listed()
    if as_json:
        console.print_json(json.dumps([work.values_of(environment) for environment in environments]))
    else:
        report.show_list(console, environments)


@app.command()
def show(name: Name, *, as_json: Json = False) -> None:
    """Show what an environment has instead of production: by dataset, how many partitions differ."""
    from varve.cli.environments import report, work

    comparison = work.compared(name)
    if as_json:
        console.print_json(json.dumps(comparison))
    else:
        report.show_compared(console, comparison)


@app.command()
def run(
    name: Name,
    words: Words = None,
    *,
    first: First = None,
    last: Last = None,
    effects: Annotated[
        bool, typer.Option("--effects", help="Run foreign programs and functions too, which may change other systems.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is due.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on as production moves, one run at a time, until Ctrl-C; if --live.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compute, with the code that is here, what differs from production in code or inputs, and what follows downstream.

    Only partitions that were asked for are computed, and those that they read. What the same code has made from the
    same inputs before, anywhere, is taken and not computed. Readers of production see nothing of it.

    Example: [bold]varve env run alice shop.revenue day=2026-11-05[/]
    """
    from varve.cli.environments import report, work

    if follow:
        from varve.cli.environments import following

        with following.until_ctrl_c() as (go_on, stopped):
            done = following.follow(
                None if as_json else console, name, words or [],
                first=first, last=last, effects=effects, go_on=go_on, stopped=stopped,
            )  # fmt: skip
        result = {"environment": name, "stuck": {}, **work.counts_of(done)}
        if as_json:
            console.print_json(json.dumps(result))
        else:
            report.show_run(console, result)
        return
    result = work.run(
        None if as_json else console, name, words or [], first=first, last=last, effects=effects, dry_run=dry_run
    )
    if as_json:
        console.print_json(json.dumps(result))
    else:
        report.show_run(console, result)


@app.command()
def land(
    name: Name,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="One whose files arrive, like shop.sales.")],
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A file as the partner would send it.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="COL=VALUE", help="The partition that it is of, where it has any."),
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """Take a corrected landing file into an environment only, to see what would follow from it.

    When it is right, [bold]varve promote[/] makes it current with all that was made of it, and puts the file into the
    landing folder with that. [bold]varve correct[/] does all of it at once.

    Example: [bold]varve env land alice shop.sales corrected.csv day=2026-11-05 store=Paris[/]
    """
    from varve.cli.environments import work

    partition = work.land(name, dataset, file, words or [])
    if as_json:
        console.print_json(json.dumps({"environment": name, "dataset": dataset, "partition": partition}))
    else:
        line = f"{dataset} {partition} is of {file} in {name}. varve env run {name} computes what follows."
        console.print(line, markup=False)


@app.command()
def rebase(
    name: Name,
    *,
    merged: Annotated[
        bool, typer.Option("--merged", help="The code here contains what was deployed since: nothing of it is undone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Move an environment onto what is current in production now. What differs by that is due at its next run."""
    from varve.cli.environments import work

    moved = work.rebase(name, merged=merged)
    if as_json:
        console.print_json(json.dumps(work.values_of(moved)))
    else:
        console.print(f"{name} stands on publish {moved.base} now. varve env run {name} computes what follows.")


@app.command()
def views(
    name: Name,
    *,
    role: Annotated[
        list[str] | None, typer.Option(metavar="ROLE", help="A role of PostgreSQL that may read them. Repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show an environment by SQL as it is now: shop.revenue of alice as shop__alice.revenue, in both stores.

    All datasets of the project are there, so that they can be joined. Run it again to see what was computed since. Who
    may read the views keeps that right when they are made again; [bold]varve env drop[/] ends it with them.

    Example: [bold]varve env views alice --role analysts[/]
    """
    from varve.cli.environments import work

    shown = work.show_views(name, role or [])
    if as_json:
        console.print_json(json.dumps(shown))
    else:
        for view in shown:
            console.print(view, highlight=False)


@app.command()
def drop(name: Name, *, as_json: Json = False) -> None:
    """Forget an environment. A later sweep deletes the data that only it needs."""
    from varve.cli.environments import report, work

    dropped = work.drop(name)
    if as_json:
        console.print_json(json.dumps(work.values_of(dropped)))
    else:
        report.show_dropped(console, dropped)
