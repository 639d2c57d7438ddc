"""The commands over existing batches: history, folders, rollback, pin, unpin, reopen, sweep, drop, doctor, repair.

Each command is a few lines over a module of its own, which is imported when the command runs; app.py adds them all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from varve.cli.printing import open_console
from varve.model.errors import VarveError, counted

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer()
console = open_console()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of a table.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")]
DatasetName = Annotated[str, typer.Argument(help="For example shop.orders.", metavar="DATASET")]
AnyDataset = Annotated[str | None, typer.Argument(help="Only this one; default: all.", metavar="DATASET")]
Words = Annotated[
    list[str] | None,
    typer.Argument(help="Partitions by column, like day=2013-01-05; none means all.", metavar="COL=VALUE"),
]


@app.command()
def history(
    dataset: DatasetName,
    words: Words = None,
    *,
    run: Annotated[str | None, typer.Option(help="Only what this run has made: its id, or how it begins.")] = None,
    log: Annotated[bool, typer.Option("--log", help="What became current when, instead of the batches.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many lines.")] = 100,
    as_json: Json = False,
) -> None:
    """Show every batch of a dataset: what it holds, whose run made it, and what became of it."""
    from varve.cli.batches import history as history_command

    # One more than is shown tells whether there are more.
    if log:
        values = history_command.changes(dataset, words or [], run=run, limit=limit + 1)
        show = history_command.show_changes
    else:
        values = history_command.history(dataset, words or [], run=run, limit=limit + 1)
        show = history_command.show_history
    _print_values(values[:limit], as_json=as_json, show=lambda: show(console, dataset, values, limit=limit))


@app.command()
def folders(dataset: DatasetName, words: Words = None, *, as_json: Json = False) -> None:
    """Print the current folders, a line each, for an engine that reads parquet by path."""
    from varve.cli.batches import history as history_command

    current_folders = history_command.folders(dataset, words or [])
    _print_values(current_folders, as_json=as_json, show=lambda: history_command.show_folders(current_folders))


@app.command()
def rollback(
    dataset: Annotated[str | None, typer.Argument(help="With --run it may be left out.", metavar="DATASET")] = None,
    words: Words = None,
    *,
    to: Annotated[int | None, typer.Option(help="Back to this batch.", metavar="BATCH")] = None,
    at: Annotated[str | None, typer.Option(help="Back to what was current then (UTC).", metavar="TIME")] = None,
    run: Annotated[str | None, typer.Option(help="Undo what this run published: its id, or how it begins.")] = None,
    reason: Annotated[str, typer.Option(help="Why; the history keeps it.")] = "",
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Partitions that had no batch then have none afterwards.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make earlier batches current again, all at once.

    The sensors leave those partitions alone until an input of theirs changes.
    """
    from varve.cli.batches import rollback as rollback_command
    from varve.cli.selection import moment

    if sum(target is not None for target in (to, at, run)) != 1:
        raise VarveError(
            f"{f'{dataset}: ' if dataset else ''}say where to go back to: one of --to BATCH, --at TIME and --run RUN. "
            f"`varve history {dataset or 'DATASET'}` lists them. Nothing was changed."
        )
    if run is not None:
        if words:
            raise VarveError("a run is undone whole: write --run without partitions, or --to with them.")
        plans = rollback_command.plan_run(run, dataset)
    elif dataset is None:
        raise VarveError("which dataset? Write: varve rollback DATASET ...")
    elif to is not None:
        plans = rollback_command.plan_batch(dataset, words or [], to)
    else:
        plans = rollback_command.plan_time(dataset, words or [], moment(str(at)))
    rollback_command.refuse_others(plans)
    if not dry_run:
        rollback_command.carry_out(plans, reason=reason, withdraw=withdraw)
    values = rollback_command.as_values(plans, done=not dry_run)
    _print_values(values, as_json=as_json, show=lambda: rollback_command.show(console, plans, done=not dry_run))


@app.command()
def pin(
    dataset: DatasetName,
    words: Words = None,
    *,
    reason: Annotated[str, typer.Option(help="Why it must stay.")],
    batch: Annotated[int | None, typer.Option(help="Which batch; default: the current one.")] = None,
    owner: Annotated[str | None, typer.Option(help="Who wants it; default: you.")] = None,
    keep_for: Annotated[str | None, typer.Option("--for", help="Like 30d; default: until it is unpinned.")] = None,
    as_json: Json = False,
) -> None:
    """Keep batches from every sweep, whatever its policy; with rows of landing files their rejected rows, too."""
    import datetime as dt

    from varve.cli.batches import pins
    from varve.cli.selection import span

    expires_at = dt.datetime.now(dt.UTC) + span(keep_for) if keep_for else None
    pinned = pins.pin(dataset, words or [], batch=batch, owner=owner, reason=reason, expires_at=expires_at)
    _print_values(pinned, as_json=as_json, show=lambda: pins.show_pinned(console, pinned))


@app.command()
def snapshot(
    name: Annotated[str | None, typer.Argument(help="Give it this name: a tag of every table.", metavar="NAME")] = None,
    *,
    environment: Annotated[str | None, typer.Option("--env", help="Of this environment; default: production.")] = None,
    as_json: Json = False,
) -> None:
    """Show where the metadata of every Iceberg table is, all as of one moment: engines then read one state of all.

    With a name, each table gets a tag of that name, and the batches that it shows are pinned under it.
    """
    from varve.cli.batches import snapshot as snapshot_command

    tables = snapshot_command.take(name, environment)
    _print_values(tables, as_json=as_json, show=lambda: snapshot_command.show(console, tables))


@app.command()
def unpin(
    dataset: DatasetName,
    words: Words = None,
    *,
    batch: Annotated[int | None, typer.Option(help="Which batch; default: every pinned one.")] = None,
    owner: Annotated[str | None, typer.Option(help="Whose pins; default: those of all people.")] = None,
    as_json: Json = False,
) -> None:
    """Take pins off: the next sweep may take the batches, as its policy says.

    Those of `varve snapshot NAME` only with --owner 'snapshot NAME'. Those of running readers expire by themselves.
    """
    from varve.cli.batches import pins

    unpinned = pins.unpin(dataset, words or [], batch=batch, owner=owner)
    values = {"unpinned": unpinned.count, "snapshots": list(unpinned.snapshots)}
    _print_values(values, as_json=as_json, show=lambda: pins.show_unpinned(console, unpinned))


@app.command()
def reopen(
    dataset: DatasetName,
    words: Words = None,
    *,
    reason: Annotated[str, typer.Option(help="Why; the catalog keeps it.")],
    close: Annotated[bool, typer.Option("--close", help="Close again what was opened.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Open partitions that were closed when their window was over: files that came late are taken.

    They stay open until --close.
    """
    from varve.cli.batches import reopen as reopen_command

    reopened = reopen_command.reopen(dataset, words or [], reason=reason, close=close, dry_run=dry_run)
    _print_values(reopened, as_json=as_json, show=lambda: reopen_command.show(console, reopened))


@app.command()
def sweep(
    dataset: AnyDataset = None,
    *,
    older_than: Annotated[str, typer.Option(help="Retired longer ago, and longer than any query runs.")] = "7d",
    keep_last: Annotated[int, typer.Option(min=0, help="Keep so many retired batches of each partition.")] = 0,
    orphans_older_than: Annotated[str, typer.Option(help="Folders of no batch that are older.")] = "1d",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete the data of retired batches, and what killed runs have left behind.

    Never what is current, pinned, or may be read by a run that lives.
    """
    from varve.cli.batches import sweep as sweep_command
    from varve.cli.batches import sweep_report
    from varve.cli.selection import span

    report = sweep_command.sweep(
        dataset=dataset,
        older_than=span(older_than),
        keep_last=keep_last,
        orphans_older_than=span(orphans_older_than),
        dry_run=dry_run,
    )
    _print_values(report.as_values(), as_json=as_json, show=lambda: sweep_report.show(console, report))


@app.command()
def drop(
    dataset: DatasetName,
    *,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete its data at once, and not when the sweep would. Asks twice.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --purge: do not ask.")] = False,
    source_is_gone: Annotated[
        bool, typer.Option("--source-is-gone", help="Of a captured table: its source is no more, remove nothing there.")
    ] = False,
    although_read: Annotated[
        bool, typer.Option("--although-read", help="Also where another project has made something from it.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """End a dataset whose declaration was deleted: its Hive table or view, its capture, its rows in the catalog.

    The data of its batches is deleted by the sweep, when their time has come. Refused where other datasets of the
    project, other projects or things of others still need it; nothing of others is ever dropped. Killed at any point,
    run it again.
    """
    from varve.cli.batches import drop as drop_command
    from varve.cli.selection import size_text

    def confirm(report: drop_command.DropReport) -> bool:
        if yes or dry_run:
            return True
        if as_json:
            raise VarveError("--purge asks before it deletes, and --json cannot: say --yes too. Nothing was changed.")
        batches = f"{counted(report.batches, 'batch')} ({size_text(report.size)}) of {report.dataset}"
        if not typer.confirm(f"Delete {batches} for ever?"):
            return False
        return bool(typer.prompt("Write the name of the dataset") == report.dataset)

    report = drop_command.drop(
        dataset, purge=purge, dry_run=dry_run, source_is_gone=source_is_gone, although_read=although_read,
        confirm=confirm,
    )  # fmt: skip
    _print_values(report.as_values(), as_json=as_json, show=lambda: drop_command.show(console, report))


@app.command()
def doctor(
    dataset: AnyDataset = None,
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read all data: each page's checksum, and the rows of tables.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare the catalog with what lies in the stores and what readers are shown. Exit code 1 for a difference."""
    from varve.cli.batches import doctor as doctor_command

    examined = doctor_command.doctor(dataset, deep=deep)
    _print_values(examined.as_values(), as_json=as_json, show=lambda: doctor_command.show_examined(console, examined))
    if examined.findings:
        raise typer.Exit(1)


@app.command()
def repair(
    dataset: AnyDataset = None,
    *,
    from_storage: Annotated[
        bool, typer.Option("--from-storage", help="First rebuild a lost catalog from what batches say of themselves.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show readers what the catalog says is current, where they are not. Exit code 1 for what cannot be mended."""
    from varve.cli.batches import doctor as doctor_command

    repaired = doctor_command.repair(dataset, from_storage=from_storage)
    _print_values(repaired.as_values(), as_json=as_json, show=lambda: doctor_command.show_repaired(console, repaired))
    if repaired.findings:
        raise typer.Exit(1)


def _print_values(values: object, *, as_json: bool, show: Callable[[], None]) -> None:
    """Print one JSON value for programs, or call `show`, which prints for people."""
    if as_json:
        console.print_json(json.dumps(values))
    else:
        show()
