"""The columns that a view has and should have: which changes it takes under its readers, and which need a migration.

`CREATE OR REPLACE VIEW` keeps grants, comments and dependents, and can only append columns. So a new column is added at
the end. A column that is not declared any more stays in a publish: periods that have it still show it, others show
NULL. After the publish the view is made again without it, where nothing else depends on the view (migrate.py). A column
with a new name is renamed. Another type needs a migration: `varve warehouse migrate`.

Not here: SQL text (view.py) and the migration itself (warehouse/migrate.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.stores.postgres.types import postgres_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from varve.model.dataset import Dataset

_COLUMNS = """
    select c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = any(%s) and a.attnum > 0 and not a.attisdropped
    order by c.relname, a.attnum
"""


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """One column of a view.

    Attributes:
        type: its PostgreSQL type, as `format_type` spells it.
        was: the names that it has in older tables.
    """

    name: str
    type: str
    was: tuple[str, ...] = ()

    def source_in(self, columns: Sequence[str]) -> str | None:
        """The column of a table that this one shows; None where the table has none."""
        return next((name for name in (self.name, *reversed(self.was)) if name in columns), None)


@dataclass(frozen=True, slots=True)
class ViewShape:
    """The columns of a view in their order."""

    columns: tuple[ViewColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def plain(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the columns, as PostgreSQL has them."""
        return tuple((column.name, column.type) for column in self.columns)


@dataclass(frozen=True, slots=True)
class ViewChange:
    """The change of a view to the shape that it should have.

    Attributes:
        shape: the shape that it should have.
        renames: the columns to rename first: old and new name.
        breaking: the changes that need a migration, for people; empty where there are none.
    """

    shape: ViewShape
    renames: tuple[tuple[str, str], ...] = ()
    breaking: tuple[str, ...] = ()


def declared_shape(dataset: Dataset) -> ViewShape:
    """Exactly what the dataset declares: partition columns, then data columns."""
    return ViewShape(
        tuple(
            ViewColumn(column.name, postgres_type(column.type), column.was)
            for column in (*dataset.partition_columns, *dataset.schema.columns)
        )
    )


def evolve(dataset: Dataset, existing: Sequence[tuple[str, str]]) -> ViewChange:
    """The change of a view with these columns to one that shows the dataset; without columns, a new view."""
    declared = declared_shape(dataset)
    if not existing:
        return ViewChange(declared)
    wanted = {column.name: column for column in declared.columns}
    present = {name for name, _ in existing}
    renames = tuple(
        (old, column.name)
        for column in declared.columns
        if column.name not in present
        and (old := next((name for name in reversed(column.was) if name in present), None))
    )
    named = [(dict(renames).get(name, name), kind) for name, kind in existing]
    breaking = [
        f"{name} is {kind} in the view and {wanted[name].type} in the declaration"
        for name, kind in named
        if name in wanted and wanted[name].type != kind
    ]
    keys = {column.name for column in dataset.partition_columns}
    names_in_view = {name for name, _ in named}
    # The periods of a view with fewer dimensions have no value for the new one.
    breaking.extend(f"the view has no partition column {name}" for name in keys - names_in_view)
    kept = [wanted.get(name) or ViewColumn(name, kind) for name, kind in named]
    added = [column for column in declared.columns if column.name not in names_in_view]
    return ViewChange(ViewShape((*kept, *added)), renames, tuple(breaking))


def columns_of(
    connection: psycopg.Connection, schema: str, relations: Sequence[str]
) -> dict[str, list[tuple[str, str]]]:
    """The columns of tables or views, with their types, by relation; relations that do not exist are left out."""
    columns: dict[str, list[tuple[str, str]]] = {}
    for relation, name, kind in connection.execute(_COLUMNS, (schema, list(relations))):
        columns.setdefault(relation, []).append((name, kind))
    return columns
