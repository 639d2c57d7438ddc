"""`varve cdc ...`: captured tables, each command a few lines over cdc.py.

Heavy libraries are imported by the command that needs them.
"""

from __future__ import annotations

from typing import Annotated

import typer

from varve.cli.printing import open_console

app = typer.Typer(help="Tables of a live PostgreSQL, captured as they change.", no_args_is_help=True)
console = open_console()
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of a table.")]
LeaveOut = Annotated[
    bool, typer.Option("--leave-out", help="Of a history: go on without what is not captured or not applied.")
]
Captured = Annotated[str, typer.Argument(metavar="DATASET", help="db.table")]


@app.command("status")
def cdc_status(*, as_json: Json = False) -> None:
    """Show how far each captured table is, what is quarantined, and what the source keeps for us.

    The state is `running`, `starting` (a snapshot was begun: run it again) or `stopped` (the reason says what to do;
    the dataset serves its last exact state). `kept at the source` grows until we have read it: where it nears the
    limit that the source has for it, that is said too.
    """
    from varve.cli.captures import cdc as cdc_command

    cdc_command.status(console, as_json=as_json)


@app.command("bootstrap")
def cdc_bootstrap(dataset: Captured, *, as_json: Json = False) -> None:
    """Take the first snapshot of a table while it is written; the stream of its changes goes on from exactly there.

    The table is checked first: nothing is published that would break its application, and what cannot be captured
    exactly is refused with the ALTER TABLE that it needs. One that died is run again.
    """
    from varve.cli.captures import cdc as cdc_command

    cdc_command.bootstrap(console, dataset, resnapshot=False, as_json=as_json)


@app.command("capture")
def cdc_capture(dataset: Captured, *, as_json: Json = False) -> None:
    """Capture what was committed since the last time, and publish the partitions that differ.

    Killed at any moment it has repeated nothing and lost nothing: run it again. Where it stops because the stream
    cannot say what the table holds (a renamed column, a rewritten table, a lost slot), it says which, and `varve cdc
    resnapshot` goes on from there.
    """
    from varve.cli.captures import cdc as cdc_command

    cdc_command.capture(console, dataset, as_json=as_json)


@app.command("resnapshot")
def cdc_resnapshot(dataset: Captured, *, leave_out: LeaveOut = False, as_json: Json = False) -> None:
    """Take a new snapshot where the stream cannot say what the table holds; what is unchanged is not published.

    Also after a change of the dataset's declaration: another column, type or partition_by. A history whose changes
    are not all captured and applied is refused, as the versions in them would be lost.
    """
    from varve.cli.captures import cdc as cdc_command

    cdc_command.bootstrap(console, dataset, resnapshot=True, as_json=as_json, leave_out=leave_out)


@app.command("verify")
def cdc_verify(
    dataset: Captured,
    *,
    rows: Annotated[int, typer.Option(min=0, help="Show so many of the rows that differ.")] = 20,
    as_json: Json = False,
) -> None:
    """Compare a captured table with its source, row for row at one place of its log; exit code 1 where they differ.

    A snapshot of the source is opened, and the dataset is brought up to exactly there: captured, applied and published,
    as `varve cdc capture` does. Then PostgreSQL and Spark add up the hashes of the rows, each where its rows lie, and
    only what differs is read: the row's key and the values of both sides. Applications go on writing, and captures go
    on too; the source keeps what the snapshot shows until the end. The snapshot begins when the transactions that are
    open now have ended (VARVE_BOOTSTRAP_SECONDS).

    A difference is healed by `varve cdc resnapshot`, which publishes the partitions that differ and no others. For a
    comparison of every night, give the table `verify="0 3 * * *"`: Dagster then makes it as the check `equal`.
    """
    from varve.cli.captures import cdc as cdc_command

    if not cdc_command.verify(console, dataset, rows_shown=rows, as_json=as_json):
        raise typer.Exit(1)


@app.command("quarantine")
def cdc_quarantine(dataset: Captured, *, as_json: Json = False) -> None:
    """Show the events that could not be decided, and why; each apply tries them again.

    Their rows stay as they were. A later full row or delete of the same key releases them, and so does a new snapshot.
    """
    from varve.cli.captures import cdc as cdc_command

    cdc_command.quarantine(console, dataset, as_json=as_json)
