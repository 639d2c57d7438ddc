"""Creates a dataset's view again with other columns, in the transaction of the caller, and all that depends on it.

Renamed columns are renamed first, so that dependents follow. Views over it are dropped one by one and created again
with their owners, grants, comments and options; nothing is dropped by CASCADE. What cannot be made again, or would need
a column that is gone, is named in the refusal.

Not here: when that is done (migrate.py for the batches that are there, publish.py for a new generation).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from varve.model.errors import VarveError, some
from varve.stores.warehouse import projection
from varve.stores.warehouse.tables import roles, shape, view
from varve.stores.warehouse.tables.dependents import dependents, owners

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset
    from varve.model.schema import Column

_NOTHING_CHANGED = "Nothing was changed."
_DOES_NOT_FIT = (
    psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedFunction, psycopg.errors.DatatypeMismatch,
    psycopg.errors.CannotCoerce,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was done: the exact SQL, in order, and the views over it, which were dropped and created again."""

    statements: tuple[str, ...]
    restored: tuple[str, ...]


def rebuild(
    catalog: Catalog, dataset: Dataset, existing: Sequence[tuple[str, str]], before: Sequence[Column] = ()
) -> Rebuilt:
    """Make the view, which has these columns, exactly as it is declared, over what is current in the catalog.

    `before` are the columns as they were declared, whose renames are taken back where their former names are declared.

    Raises VarveError where something depends on the view that cannot be made again, that needs what is gone, or that
    belongs to a role for which ours may not act.
    """
    # Asked for first: after an error PostgreSQL answers nothing more in this transaction.
    view_owners = owners(catalog.connection, view.view_name(dataset))
    try:
        return _rebuild(catalog, dataset, existing, before)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _not_ours(dataset, view_owners, error) from error


@contextmanager
def ours(connection: psycopg.Connection, *datasets: Dataset) -> Iterator[None]:
    """Raise VarveError, with the owners of the views of these datasets, where our role may not change one of them.

    It is around the transaction that changes them, as PostgreSQL answers nothing more within it.
    """
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        is_over = connection.info.transaction_status is not psycopg.pq.TransactionStatus.INERROR
        for dataset in datasets if is_over else ():
            view_owners = owners(connection, view.view_name(dataset))
            if any(owner != role for _, owner, role in view_owners):
                raise _not_ours(dataset, view_owners, error) from error
        raise VarveError(
            f"{', '.join(map(str, datasets))}: {str(error).splitlines()[0]}. {_NOTHING_CHANGED}"
        ) from error


def _not_ours(dataset: Dataset, view_owners: Sequence[tuple[str, str, str]], error: psycopg.Error) -> VarveError:
    """The refusal that names the views which belong to others, and their owners."""
    role = view_owners[0][2]
    others = [(name, owner) for name, owner, _ in view_owners if owner != role]
    problem = (
        f"{dataset}: {role} may not make its view again with all that depends on it: {str(error).splitlines()[0]}."
    )
    if not others:
        return VarveError(f"{problem} {_NOTHING_CHANGED} Grant {role} the right that it lacks, and do this again.")
    of_owners = some(f"{name} belongs to {owner}" for name, owner in others)
    granted = ", ".join(sorted({owner for _, owner in others}))
    return VarveError(
        f"{problem} {of_owners}. {_NOTHING_CHANGED} Let an administrator run `grant {granted} to {role}`, and do this "
        "again; or let the owners drop their views over it, and create them anew afterwards."
    )


def _rebuild(
    catalog: Catalog, dataset: Dataset, existing: Sequence[tuple[str, str]], before: Sequence[Column]
) -> Rebuilt:
    connection, name, wanted = catalog.connection, view.view_name(dataset), shape.declared_shape(dataset)
    statements: list[str] = []

    def run(statement: sql.Composable | str) -> None:
        text = statement if isinstance(statement, str) else statement.as_string(connection)
        connection.execute(text.encode())
        statements.append(text)

    # Renamed first: what depends on a column follows its new name only while the view exists.
    for old, new in (*shape.evolve(dataset, existing).renames, *_taken_back(existing, before, wanted.names)):
        run(view.rename_column(dataset, old, new))
    dependent_objects = dependents(connection, name)
    if dependent_objects.others:
        raise VarveError(
            f"{dataset}: {some(dependent_objects.others)} depend on its view, and cannot be made again by us. "
            f"{_NOTHING_CHANGED} Drop them, do this again, and create them anew."
        )
    comments = projection.comments_of(connection, dataset)
    try:
        for dependent in reversed(dependent_objects.views):
            run(dependent.drop)
        run(sql.SQL("drop view {}").format(name))
        plan = projection.plan(catalog, dataset, (), shape.ViewChange(wanted), comments_before=comments)
        for statement in (*plan.first, *plan.last):
            run(statement)
        for restore in dependent_objects.restore:
            if restore.column is None or restore.column in wanted.names:
                run(restore.statement)
        for statement in plan.comments:
            run(statement)
        if _is_of_somebody_else(dataset, existing):
            for statement in roles.let_read(connection, dataset.db, dataset.table):
                run(statement)
        for dependent in dependent_objects.views:
            run(dependent.create)
            for restore in dependent.restore:
                run(restore.statement)
    except _DOES_NOT_FIT as error:
        raise VarveError(
            f"{dataset}: a view that depends on it would not work any more: {str(error).splitlines()[0]} "
            f"({', '.join(dependent.name.as_string(connection) for dependent in dependent_objects.views)}). "
            f"{_NOTHING_CHANGED} Change or drop that view first."
        ) from error
    return Rebuilt(
        tuple(statements), tuple(dependent.name.as_string(connection) for dependent in dependent_objects.views)
    )


def _is_of_somebody_else(dataset: Dataset, existing: Sequence[tuple[str, str]]) -> bool:
    """Whether a view with these columns was never one of ours: it lets nobody read who may read a new one."""
    return bool(dataset.partitioning.names) and not {name for name, _ in existing} & set(dataset.partitioning.names)


def _taken_back(
    existing: Sequence[tuple[str, str]], before: Sequence[Column], wanted: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """The columns of the view that had a former name which is declared again: both names."""
    present = {name for name, _ in existing}
    for column in before:
        former = next((name for name in reversed(column.was) if name in wanted and name not in present), None)
        if former is not None and column.name in present and column.name not in wanted:
            yield column.name, former
