"""Columns that the source has added, and that the dataset declares since then: loaded without a new snapshot.

A row that no event has sent since the ALTER has in such a column what PostgreSQL keeps for it: NULL, or the constant of
`ADD COLUMN ... DEFAULT`. What the others have is in the batches of events, as these contain undeclared columns too.
Where these batches are not there any more, or do not say it, a new snapshot is needed.

Not here: the rows with these columns (backfill.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from varve.cdc.captured_table import NeedsResnapshot, SourceRefused
from varve.cdc.declaration_checks import check_type, refuse_other_declaration

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from varve.cdc.captured_table import CapturedTable, SourceColumn, SourceTable


def newly_declared(captured: CapturedTable, table: SourceTable, before: Any) -> frozenset[str]:
    """The source's names of the columns that the dataset declares now, and not `before`, when its rows were loaded.

    `table` is the source's table as it was captured last. Raises NeedsResnapshot where anything else of the declaration
    has changed, or where such a column cannot be loaded from the stream.
    """
    now = captured.declaration
    if before is None or now == before:
        return frozenset()
    added = [name for name in now["columns"] if name not in before["columns"]]
    others = {name: kind for name, kind in now["columns"].items() if name not in added}
    if not added or {**now, "columns": others} != before or captured.files is not None:
        refuse_other_declaration(captured, before)
    problem = _problem(captured, table, added)
    if problem:
        raise refused(captured, ", ".join(added), problem)
    sources = {captured.column(name): name for name in captured.source_columns}
    return frozenset(sources[name] for name in added)


def _problem(captured: CapturedTable, table: SourceTable, added: list[str]) -> str:
    """Why the columns cannot be loaded from the stream; "": they can, as far as is known without the events."""
    known = {captured.column(column.name): column for column in table.columns}
    if captured.history:
        return "the versions that lie in its history were made without it"
    if captured.ignore_null_updates:
        return "ignore_null_updates keeps values that events say nothing of"
    if not table.keyed:
        return "the table has no key that tells which of its rows were changed since"
    if required := [column.name for column in captured.columns if column.name in added and not column.nullable]:
        return f"{required[0]} is declared NOT NULL, and older batches do not have it"
    if old := [name for name in added if name in known and known[name].since is None]:
        return (
            f"{old[0]} was not added since the last snapshot, columns were renamed or dropped at that time, or the "
            "events since then are not kept any more (VARVE_CHANGES_DAYS)"
        )
    return ""


def check_added(captured: CapturedTable, table: SourceTable, names: frozenset[str]) -> None:
    """Raise SourceRefused where the source lacks a column that the dataset declares now, or has another type."""
    sources = {column.name: column for column in table.columns}
    if absent := sorted(names - set(sources)):
        raise SourceRefused(
            f"{captured.dataset} from {captured.source}: the dataset declares {', '.join(absent)} since its rows were "
            f"loaded, and the source does not send it; it has {', '.join(table.names)}. Nothing was captured, and "
            "nothing is lost. Add the column to the source first, and capture goes on by itself; or take it out of the "
            "declaration."
        )
    for name in sorted(names):
        check_type(captured, sources[name])
        if sources[name].since is None:
            reason = "what its older rows have in it cannot be read, or columns were renamed or dropped at that time"
            raise refused(captured, captured.column(name), reason)


def since_then(now: SourceTable, before: SourceTable, confirmed_lsn: int) -> SourceTable:
    """The table with what is known of its columns: which were added after the place that was confirmed last.

    Events know columns by their names alone. Where a column has another name, or one was dropped that may have had the
    name of a new one, they do not say what the rows have in it.
    """
    known, columns = {column.number: column for column in before.columns}, []
    last_number = before.last_number or max(known, default=0)
    numbers = {*known, *range(last_number + 1, now.last_number + 1)}
    is_any_dropped = not numbers <= {column.number for column in now.columns}
    for column in now.columns:
        if column.number in known:
            was = known[column.number]
            since = was.since if was.name == column.name else None
            columns.append(replace(column, since=since, missing=was.missing))
        else:
            # One that was computed and is not any more has an older number.
            is_new = column.number > last_number and column.knows_missing and not is_any_dropped
            columns.append(replace(column, since=confirmed_lsn if is_new else None))
    return replace(now, columns=tuple(columns))


def named_otherwise(captured: CapturedTable, table: SourceTable) -> SourceTable:
    """The table, where events may call columns otherwise: those that the dataset lacks need a new snapshot."""
    columns = [
        column if column.name in captured.source_columns else replace(column, since=None) for column in table.columns
    ]
    return replace(table, columns=tuple(columns))


def forgotten(captured: CapturedTable, table: SourceTable, declared: Collection[str], lsn: int) -> SourceTable:
    """The table, where events up to this LSN are about to be removed: it needs a new snapshot for older columns.

    `declared` are the dataset's columns that its rows have already.
    """

    def is_lost(column: SourceColumn) -> bool:
        return column.since is not None and column.since < lsn and captured.column(column.name) not in declared

    columns = [replace(column, since=None) if is_lost(column) else column for column in table.columns]
    return replace(table, columns=tuple(columns))


def refused(captured: CapturedTable, name: str, reason: str) -> NeedsResnapshot:
    """The error for a column that needs a new snapshot."""
    return NeedsResnapshot(
        f"{captured.dataset}: {name} is declared since its rows were loaded, and cannot be loaded from the stream: "
        f"{reason}. Nothing was changed; the dataset serves its last exact state. Take a new snapshot: varve cdc "
        f"resnapshot {captured.dataset}"
    )
