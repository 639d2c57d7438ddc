"""Names with dots, resolved as Spark resolves them: the name of a table's column, or of the fields of a struct.

`db.table.column` is a column where `db.table` is read under no other name; `alias.struct.field` and `struct.field` are
fields. sqlglot's parser calls the last three names database, table and column whatever they are.

Not here: names without dots (visible.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.trees import copied
from varve.sql.names.visible import aliases_of, columns_of, visible_sources

if TYPE_CHECKING:
    from typing import TypeAlias

    from varve.sql.names.visible import Columns

    # The table (or None), the column, and the struct fields behind it.
    _Taken: TypeAlias = tuple[exp.Expr | None, exp.Expr, list[exp.Expr]]


def parts_of(column: exp.Column) -> list[exp.Expr]:
    """The parts of a column's name from left to right; the last one may be a star."""
    return [part for part in (column.args.get(name) for name in ("catalog", "db", "table", "this")) if part is not None]


def is_by_database(column: exp.Column, columns: Columns) -> bool:
    """Whether a column's name begins with the database of a dataset that the query reads."""
    names = [part.name.lower() for part in parts_of(column)]
    if len(names) < 3:
        return False
    for sources in visible_sources(column):
        if any(_is_dataset(source, names[0], names[1]) for source in sources):
            return True
        if any(names[0] in aliases_of(source) or names[0] in columns_of(source, columns) for source in sources):
            return False
    return False


def resolved(tree: exp.Expr, columns: Columns) -> exp.Expr:
    """Return the tree, modified in place, with struct fields as `Dot` nodes, and without a database before a column."""
    for column in list(tree.find_all(exp.Column)):
        parts = parts_of(column)
        if len(parts) == 1 or isinstance(parts[-1], exp.Star):
            if len(parts) > 2 and is_by_database(column, columns):
                column.set("db", None)
            continue
        if is_by_database(column, columns):
            parts = parts[1:]
            resolved_parts: _Taken | None = (parts[0], parts[1], parts[2:])
        else:
            resolved_parts = _field(column, parts, columns)
        if resolved_parts is None:
            continue
        table, name, fields = resolved_parts
        expression: exp.Expr = exp.Column(this=copied(name), table=copied(table) if table is not None else None)
        for field in fields:
            expression = exp.Dot(this=expression, expression=copied(field))
        column.replace(expression)
    return tree


def _field(column: exp.Column, parts: list[exp.Expr], columns: Columns) -> _Taken | None:
    """Return table, column and fields of a struct access; None where the name is a column of a table, or is unknown."""
    first = parts[0].name.lower()
    for sources in visible_sources(column):
        if any(first in aliases_of(source) for source in sources):
            return (parts[0], parts[1], parts[2:]) if len(parts) > 2 else None
        if any(first in columns_of(source, columns) for source in sources):
            return None, parts[0], parts[1:]
    return None


def _is_dataset(source: exp.Expr, db: str, table: str) -> bool:
    return (
        isinstance(source, exp.Table) and source.db.lower() == db and source.name.lower() == table and not source.alias
    )
