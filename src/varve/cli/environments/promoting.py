"""`varve correct | promote | evolve | revert`: what is computed in an environment becomes current.

Each command is a few lines over a module of its own, which is imported when the command runs; app.py adds them.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from varve.cli.environments.commands import Json, Name  # noqa: TC001 - typer reads the annotations
from varve.cli.printing import open_console

app = typer.Typer()
console = open_console()

Incomplete = Annotated[
    bool,
    typer.Option("--incomplete", help="Move readers to a new generation that lacks what they have, as it waits."),
]


@app.command()
def correct(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="One whose files arrive, like shop.sales.")],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|COL=VALUE",
            help="The corrected files as the partner would send them; the partition, where the name does not say it.",
        ),
    ],
    *,
    then_run: Annotated[
        bool, typer.Option("--then-run", help="What cannot be computed here becomes due, and the sensors compute it.")
    ] = False,
    effects: Annotated[
        bool, typer.Option("--effects", help="Run foreign programs too, which may do anything.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what may follow.")] = False,
    as_json: Json = False,
) -> None:
    """Make corrected files current, with all that follows from them, in one transaction.

    What follows is computed in an environment that nobody sees; then all of it is promoted, and the files go into the
    landing folder with that. A reader of several datasets sees the state before or the state after, and nothing in
    between. A file put into the landing folder by hand comes to the same in the end, but each dataset becomes current
    when it is computed.

    Example: [bold]varve correct shop.sales sales_2026-11-05.csv[/], or with another name
    [bold]varve correct shop.sales fixed.csv day=2026-11-05[/]
    """
    from varve.cli.environments import correct as correcting
    from varve.cli.environments import promotions

    behind = promotions.behind_of(then_run=then_run, only_consistent=False)
    shown = None if as_json else console
    done = correcting.correct(shown, dataset, words, behind, effects=effects, dry_run=dry_run)
    if as_json:
        console.print_json(json.dumps(done.as_values()))
    else:
        correcting.show(console, done)


@app.command()
def promote(
    name: Name,
    *,
    then_run: Annotated[
        bool, typer.Option("--then-run", help="What is left behind becomes due, and the sensors compute it.")
    ] = False,
    only_consistent: Annotated[
        bool, typer.Option("--only-consistent", help="Leave out whatever would leave something behind.")
    ] = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Refuse where production has moved, and do not compute what that concerns.")
    ] = False,
    incomplete: Incomplete = False,
    earlier_code: Annotated[
        bool,
        typer.Option("--earlier-code", help="Also code that was in force before and was replaced: to go back to it."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would become current.")] = False,
    as_json: Json = False,
) -> None:
    """Make the batches of an environment and its code current, in one transaction; nothing is computed by that.

    First it is proved that everything fits: each batch was made from what is current then, and nothing that reads it is
    left behind. What production has replaced meanwhile is computed in the environment before, and only that.

    Example: [bold]varve promote alice --dry-run[/]
    """
    from varve.cli.environments import promotions, report

    behind = promotions.behind_of(then_run=then_run, only_consistent=only_consistent)
    promotion = promotions.promote(
        None if as_json else console, name, behind, run_first=not no_run, dry_run=dry_run, incomplete=incomplete,
        earlier_code=earlier_code,
    )  # fmt: skip
    if as_json:
        console.print_json(json.dumps(promotions.promotion_values(promotion)))
    else:
        report.show_promotion(console, promotion, dry_run=dry_run, computes_first=not no_run)
    judged = promotion if no_run else promotion.after_a_run()
    if dry_run and judged.is_refused(behind):
        if not as_json:
            report.show_refusal(console, judged)
        raise typer.Exit(3)


@app.command()
def evolve(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="One whose declaration has changed.")],
    *,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Make new batches of the old rows, instead of computing them again.")
    ] = False,
    effects: Annotated[
        bool, typer.Option("--effects", help="Run foreign programs and functions too, which may change other systems.")
    ] = False,
    incomplete: Incomplete = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be built.")] = False,
    as_json: Json = False,
) -> None:
    """Build the dataset as it is declared here beside what readers see, with all that reads it; then move readers.

    For renamed, dropped or retyped columns, other windows, other partition columns, and another store. Readers see the
    old generation whole until the new one is complete, and then the new one whole. Where it lacks what readers have, as
    a partition waits, they are not moved, unless you say --incomplete. A killed command goes on where it was when it is
    typed again.

    Example: [bold]varve evolve shop.revenue --dry-run[/]
    """
    from varve.cli.environments import evolve as evolve_command

    done = evolve_command.evolve(
        None if as_json else console, dataset, dry_run=dry_run, rewrite=rewrite, effects=effects, incomplete=incomplete
    )
    if as_json:
        console.print_json(json.dumps(done.as_values()))
    else:
        evolve_command.show(console, done, dry_run=dry_run)


@app.command()
def revert(
    promotion: Annotated[str, typer.Argument(metavar="PROMOTION", help="Its number, or how its run begins.")],
    *,
    effects: Annotated[
        bool, typer.Option("--effects", help="Run foreign programs and functions too, which may change other systems.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take a promotion back: the code before is in force again, with what it makes of the inputs of now.

    What that code has made from the same inputs is kept and taken, so that nothing is computed of it. What was
    corrected since is computed, with the code before checked out. All in one transaction, checked like a promotion.

    Example: [bold]varve revert 12[/]
    """
    from varve.cli.environments import reverting

    reverted = reverting.revert(None if as_json else console, promotion, effects=effects)
    if as_json:
        console.print_json(json.dumps(reverted.as_values()))
    else:
        reverting.show(console, reverted)
