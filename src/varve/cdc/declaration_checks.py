"""Whether a table can be captured as a dataset declares it, and whether its rows are of that declaration.

Each check says what it found and what to do, before anything is changed at the source or in the lake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.cdc.captured_table import NeedsResnapshot, SourceRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.cdc.captured_table import CapturedTable, SourceColumn, SourceTable

# PostgreSQL type -> the lake types that hold all its values. Other types become text, just as PostgreSQL prints them.
_HOLDS = {
    "smallint": {"SMALLINT", "INT", "BIGINT"},
    "integer": {"INT", "BIGINT"},
    "bigint": {"BIGINT"},
    "bytea": {"BINARY"},
    "boolean": {"BOOLEAN"},
    "real": {"FLOAT", "DOUBLE"},
    "double precision": {"DOUBLE"},
    "date": {"DATE"},
    "timestamp without time zone": {"TIMESTAMP", "TIMESTAMP_NTZ"},
    "timestamp with time zone": {"TIMESTAMP"},
}
# Files that were written with the first type can be read with the second.
_READABLE = {("SMALLINT", "INT"), ("SMALLINT", "BIGINT"), ("INT", "BIGINT"), ("FLOAT", "DOUBLE")}


def check_key(captured: CapturedTable, *, keyed: bool) -> None:
    """Raise SourceRefused where the declaration needs a key that identifies rows, and the table has none."""
    asked = {"a history": captured.history, "ignore_null_updates": captured.ignore_null_updates}
    option = next((name for name, is_asked in (asked | {"changed_at": captured.changed_at}).items() if is_asked), None)
    if option and not keyed:
        raise SourceRefused(
            f"{captured.dataset} from {captured.source}: {option} follows rows by their key, and the table has none "
            "that is checked at once. Nothing was changed. Give it a primary key that is not deferrable, or declare "
            "the dataset without."
        )


def check(captured: CapturedTable, table: SourceTable) -> None:
    """Raise SourceRefused where capture would break the application or could not be exact."""
    where = f"{captured.dataset} from {captured.source}"
    _check_identity(captured, table)
    check_key(captured, keyed=table.keyed)
    sources = {captured.column(column.name): column for column in table.columns}
    missing = [column.name for column in captured.columns if column.name not in sources]
    if unsent := [name for name in missing if name in {captured.column(name) for name in table.unsent}]:
        raise SourceRefused(
            f"{where}: {', '.join(unsent)} is generated, and the source does not send it: PostgreSQL 18 and newer send "
            "stored generated columns, none sends virtual ones. Nothing was changed. Declare the dataset without it."
        )
    if missing:
        raise SourceRefused(
            f"{where}: the source has no column {', '.join(missing)}; it has {', '.join(table.names)}. Nothing was "
            "changed. Declare what is there, or say in `renames` what they are called."
        )
    for column in captured.columns:
        check_type(captured, sources[column.name])
    keys = {captured.column(name) for name in table.key}
    if table.keyed and (absent := keys - captured.names):
        raise SourceRefused(
            f"{where}: its key column {', '.join(sorted(absent))} is not declared. Nothing was changed. Declare it."
        )


def check_type(captured: CapturedTable, source: SourceColumn) -> None:
    """Raise SourceRefused where the dataset declares the column with a type that does not hold every value of it."""
    (column,) = [column for column in captured.columns if column.name == captured.column(source.name)]
    holds = _HOLDS.get(source.type, set()) | {"STRING"}
    if str(column.type) not in holds:
        raise SourceRefused(
            f"{captured.dataset} from {captured.source}: {column.name} is {source.type} at the source and declared "
            f"{column.type}, which does not hold every value of it. Nothing was changed. Declare it "
            f"{' or '.join(sorted(holds))}."
        )


def _check_identity(captured: CapturedTable, table: SourceTable) -> None:
    """Raise SourceRefused where PostgreSQL would refuse changes of rows, or would not send which row was changed."""
    where = f"{captured.dataset} from {captured.source}"
    consequence = (
        "so PostgreSQL would refuse every UPDATE and DELETE of the application once the table is published. Nothing "
        "was changed."
    )
    problem = ""
    if table.identity == "n":
        problem = "its replica identity is NOTHING"
    elif table.identity == "i" and not table.key:
        problem = "the index that is its replica identity is gone"
    elif table.identity == "d" and table.deferrable:
        problem = "its primary key is deferrable"
    elif table.identity == "d" and not table.key:
        problem = "it has no primary key"
    if problem:
        raise SourceRefused(
            f"{where}: {problem}, {consequence} Run this at the source first: ALTER TABLE {captured.source} REPLICA "
            "IDENTITY FULL, or give it a primary key that is not deferrable."
        )
    if table.blocked:
        raise SourceRefused(
            f"{where}: its replica identity is FULL and {', '.join(table.unsent)} is a virtual generated column, which "
            f"no publication can have, {consequence} Drop the column at the source, make it STORED, or let a key tell "
            f"its rows apart: ALTER TABLE {captured.source} REPLICA IDENTITY DEFAULT, with a primary key."
        )
    if unsent := [name for name in table.key if name in table.unsent]:
        raise SourceRefused(
            f"{where}: its key column {', '.join(unsent)} is generated, which PostgreSQL sends from version 18 on, so "
            "which rows were changed would not be said. Nothing was changed. Let other columns tell its rows apart: "
            f"ALTER TABLE {captured.source} REPLICA IDENTITY USING INDEX, with a unique index of columns that are not "
            "generated and not NULL."
        )


def refuse_other_declaration(captured: CapturedTable, declared_before: Mapping[str, Any] | None) -> None:
    """Raise NeedsResnapshot where the dataset has rows that were made with another declaration of it."""
    now = captured.declaration
    if declared_before is None or declared_before == now:
        return
    words = "; ".join(
        f"{name}: {declared_before.get(name)}, now {now[name]}"
        for name in now
        if declared_before.get(name) != now[name]
    )
    kinds = [(kind, now["columns"].get(name, kind)) for name, kind in declared_before.get("columns", {}).items()]
    undo_or_rename = "Undo it, or declare a dataset of another name: "
    if captured.files is not None:
        advice = f"{undo_or_rename}files have no snapshot."
    elif any(before != after and (before, after) not in _READABLE for before, after in kinds):
        advice = f"{undo_or_rename}rows that lie in the lake cannot be read as another type."
    else:
        advice = f"Take a new snapshot: varve cdc resnapshot {captured.dataset}"
    raise NeedsResnapshot(
        f"{captured.dataset}: its declaration has changed since its rows were loaded ({words}), which the stream does "
        f"not make up for. Nothing was changed; the dataset serves its last exact state. {advice}"
    )
