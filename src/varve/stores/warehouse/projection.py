"""Makes the statements by which the views show what is current: which leaves change, and in which order.

A reader locks the view, then its leaves, then their tables. Whoever replaces views must lock in the same order, or
PostgreSQL ends readers as deadlocked: new leaves are created first (no reader has them yet), then the view is replaced
where it has to be, then leaves by their number.

Not here: waiting for readers, and the transaction (publish.py).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, UnfitView, VarveError, some
from varve.model.partitions.key import made, parse_path
from varve.stores.warehouse.tables import dependents, grants, notes, roles, shape, view
from varve.stores.warehouse.tables.batch_tables import BatchTables
from varve.stores.warehouse.tables.naming import leaf_view, periods_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import psycopg
    from psycopg import sql

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.stores.warehouse.tables.shape import ViewShape

_KIND = """
    select c.relkind from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = %s
"""
_KINDS = {"r": "a table", "p": "a partitioned table", "m": "a materialised view", "f": "a foreign table"}
_COMMENTS = """
    select a.attname, d.description
    from pg_catalog.pg_description d left join pg_catalog.pg_attribute a
      on a.attrelid = d.objoid and a.attnum = d.objsubid and d.objsubid > 0
    where d.classoid = 'pg_class'::regclass and d.objoid = to_regclass(%s)
"""


# Of the tables here, those of several partitions: their comments list them.
_DESCRIPTIONS = """
    select c.relname, obj_description(c.oid, 'pg_class')
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = any(%s) and obj_description(c.oid, 'pg_class') like '{%%"compacted"%%'
"""
_OPTIONS = """
    select c.relname, c.reloptions from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind = 'v' and c.relname = any(%s) and c.reloptions is not null
"""


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """The statements that make a dataset's views show what is current.

    Attributes:
        first: create new leaves, which no reader has locked.
        last: replace views, for which readers wait, in the order in which readers lock them.
        comments: set changed comments and grants.
    """

    first: tuple[sql.Composed, ...]
    last: tuple[sql.Composed, ...]
    comments: tuple[sql.Composed, ...]


def existing_columns(connection: psycopg.Connection, dataset: Dataset) -> list[tuple[str, str]]:
    """Names and types of the view's columns; empty where there is none. Raises VarveError for what is no view."""
    row = connection.execute(_KIND, (dataset.db, dataset.table)).fetchone()
    if row is None:
        return []
    if row[0] != "v":
        raise VarveError(
            f"{dataset}: {_KINDS.get(row[0], 'something else')} of PostgreSQL has the name of its view. {NOTHING_LOST} "
            "Rename or drop that one, or rename the dataset."
        )
    return shape.columns_of(connection, dataset.db, [dataset.table]).get(dataset.table, [])


def change_of(connection: psycopg.Connection, dataset: Dataset) -> shape.ViewChange:
    """The change of the view to what the dataset declares. Raises UnfitView where only a migration can do it."""
    change = shape.evolve(dataset, existing_columns(connection, dataset))
    if change.breaking:
        raise UnfitView(
            f"{dataset}: {'; '.join(change.breaking)}. {NOTHING_LOST} That cannot be changed under readers: "
            f"`varve warehouse migrate {dataset} --dry-run` shows what would be rebuilt and restored, without "
            "--dry-run it is done; the next attempt then goes on."
        )
    return change


def plan(
    catalog: Catalog,
    dataset: Dataset,
    changed: Sequence[PartitionKey],
    change: shape.ViewChange | None = None,
    *,
    all_again: bool = False,
    lost_leaves: Collection[int] = (),
    comments_before: Mapping[str | None, str] | None = None,
) -> ViewPlan:
    """The statements that show the current batches of the changed partitions; all others are shown already.

    Call it in the publish's transaction, under the lock of the dataset's publishers. A migration, which has dropped the
    view before, gives its `change` and the `comments_before`. `all_again` creates all views again; `lost_leaves` are
    leaves that have lost a partition to other leaves.
    """
    connection = catalog.connection
    before = existing_columns(connection, dataset) if change is None else []
    change = change or change_of(connection, dataset)
    generation = former = notes.generation(connection, dataset)
    all_again = all_again or generation == 0 or tuple(before) != change.shape.plain
    vacated = notes.vacate(connection, dataset)
    leaf_by_path = notes.leaves(connection, dataset)
    paths = sorted(catalog.current(dataset.name, None if all_again else changed))
    if all_again:
        # By the clock: the last number may be lost with the catalog, while its leaves still exist.
        generation = max(generation + 1, int(time.time()))
        notes.set_generation(connection, dataset, generation)
    new_paths = [path for path in paths if path not in leaf_by_path]
    # What is replaced keeps its leaf, and nobody asks how much room there is.
    shares = notes.current_share(connection, dataset.name) if new_paths else []
    shared_tables = {path: table for path, _, table in shares if table is not None}
    placed = notes.place(connection, dataset, leaf_by_path, new_paths, shared_tables)
    leaf_of = leaf_by_path | placed
    touched = (
        set(leaf_of.values())
        if all_again
        else {leaf_of[path] for path in paths} | ((vacated | set(lost_leaves)) & set(leaf_of.values()))
    )
    new = touched if all_again else touched - set(leaf_by_path.values())
    emptied = (vacated | set(lost_leaves)) - set(leaf_of.values())
    leaves = _leaves(
        catalog, dataset, change.shape, generation, {leaf: _paths_of_leaf(leaf_of, leaf) for leaf in touched}
    )
    last = [statement for leaf, statement in sorted(leaves.items()) if leaf not in new]
    if all_again or new or emptied:
        names = [leaf_view(dataset, generation, leaf) for leaf in sorted(set(leaf_of.values()))]
        renames = [view.rename_column(dataset, old, name) for old, name in change.renames]
        options = _options(connection, dataset.db, [dataset.table]).get(dataset.table, ())
        last = [*renames, view.create_view(dataset, change.shape, names, options), *last]
    is_new = comments_before is None and not before
    comments_before = comments_of(connection, dataset) if comments_before is None else comments_before
    return ViewPlan(
        (
            *(statement for leaf, statement in sorted(leaves.items()) if leaf in new),
            *_as_existing_leaves(
                connection, dataset, former, leaf_by_path, {leaf: leaf_view(dataset, generation, leaf) for leaf in new}
            ),
        ),
        tuple(last),
        (
            # A view that is made again has the grants of the one before, also where somebody has revoked this one.
            *(roles.let_read(connection, dataset.db, dataset.table) if is_new else ()),
            *grants.changes(connection, dataset),
            *_comments(connection, dataset, dict(change.renames), comments_before, fresh=is_new),
        ),
    )


def views_to_replace(connection: psycopg.Connection, dataset: Dataset, changed: Sequence[str]) -> list[str]:
    """The views that a publish of these partitions would replace, as far as that is known without its locks."""
    taken, generation = notes.leaves(connection, dataset), notes.generation(connection, dataset)
    names = {leaf_view(dataset, generation, taken[path]) for path in changed if path in taken}
    views = [view.table_name(dataset, name).as_string(connection) for name in sorted(names)]
    if any(path not in taken for path in changed):
        views.append(view.view_name(dataset).as_string(connection))
    return views


def _leaves(
    catalog: Catalog, dataset: Dataset, wanted: ViewShape, generation: int, members: dict[int, list[str]]
) -> dict[int, sql.Composed]:
    # From texts: a partition that has left the dimensions is shown until it is retired.
    keys = [made(parse_path(path)) for paths in members.values() for path in paths]
    current = catalog.shown(dataset.name, keys)
    tables = BatchTables.of(catalog.connection, dataset.name, current.values())
    columns = _columns(catalog.connection, dataset, tables.of_all(current.values()))
    held = _held(catalog.connection, dataset, columns)
    names = {leaf: leaf_view(dataset, generation, leaf) for leaf in members}
    options = _options(catalog.connection, periods_schema(dataset), list(names.values()))
    return {
        leaf: view.create_leaf(
            dataset,
            names[leaf],
            wanted,
            list(_arms(dataset, wanted, [current[path] for path in paths if path in current], tables, columns, held)),
            options.get(names[leaf], ()),
        )
        for leaf, paths in members.items()
    }


def _options(connection: psycopg.Connection, schema: str, views: Sequence[str]) -> dict[str, list[str]]:
    """The options that somebody has set for these views (security_barrier, security_invoker, check_option)."""
    return dict(connection.execute(_OPTIONS, (schema, list(views))).fetchall())


def _as_existing_leaves(
    connection: psycopg.Connection,
    dataset: Dataset,
    former: int,
    leaf_by_path: Mapping[str, int],
    new: Mapping[int, str],
) -> Iterable[sql.Composed]:
    """The statements that give new leaves the options, the owner and the grants of an existing leaf.

    A leaf of a new generation takes them from the former leaf with its number, any other from the first leaf.
    """
    existing_leaves = sorted(set(leaf_by_path.values()))
    for leaf, name in sorted(new.items()):
        sibling = leaf if leaf in existing_leaves else next(iter(existing_leaves), None)
        if sibling is None or (leaf_view(dataset, former, sibling) == name):
            continue
        model = view.table_name(dataset, leaf_view(dataset, former, sibling))
        yield from dependents.as_another(connection, model, view.table_name(dataset, name))


def arms_of(catalog: Catalog, dataset: Dataset, wanted: ViewShape, batches: Sequence[Batch]) -> list[sql.Composed]:
    """The rows of these batches as the view shows them: an arm of its query for each table."""
    tables = BatchTables.of(catalog.connection, dataset.name, batches)
    columns = _columns(catalog.connection, dataset, tables.of_all(batches))
    return list(_arms(dataset, wanted, batches, tables, columns, _held(catalog.connection, dataset, columns)))


def _columns(connection: psycopg.Connection, dataset: Dataset, tables: set[str]) -> dict[str, list[str]]:
    """The columns of each of these tables. Raises VarveError where one is missing."""
    schema = periods_schema(dataset)
    columns = {
        table: [name for name, _ in table_columns]
        for table, table_columns in shape.columns_of(connection, schema, sorted(tables)).items()
    }
    if missing := sorted(tables - columns.keys()):
        raise VarveError(
            f"{dataset}: the catalog names {some(missing)} in {schema}, which is not there: somebody dropped it. "
            f"{NOTHING_LOST} Compute the partitions that were in it again, all in one run: `varve doctor {dataset}` "
            "names them, and the command. Or restore the table."
        )
    return columns


def _held(connection: psycopg.Connection, dataset: Dataset, tables: Iterable[str]) -> dict[str, int]:
    """How many partitions each shared table holds, as it was filled.

    The notes may say fewer: of what a later table holds too, they name that one.
    """
    described = connection.execute(_DESCRIPTIONS, (periods_schema(dataset), list(tables))).fetchall()
    return {table: len(members) for table, text in described if (members := json.loads(text).get("compacted"))}


def _arms(  # noqa: PLR0917 - what an arm is made of
    dataset: Dataset,
    wanted: ViewShape,
    batches: Sequence[Batch],
    tables: BatchTables,
    columns: Mapping[str, list[str]],
    held: Mapping[str, int],
) -> Iterable[sql.Composed]:
    """One arm for each table: of one batch, of a part, or a shared one, in which some batches may be out of date."""
    holds = {batch.partition: table for batch in batches if (table := tables.shared_by(batch)) is not None}
    for batch in batches:
        if batch.partition not in holds:
            for table in tables.own(batch):
                yield view.table_arm(dataset, wanted, batch.partition, table, columns[table])
    for table in sorted(set(holds.values())):
        shown = [path for path, shared_table in holds.items() if shared_table == table]
        all_of_it = len(shown) == held.get(table)
        yield view.shared_arm(dataset, wanted, table, columns[table], None if all_of_it else shown)


def _paths_of_leaf(leaf_of: dict[str, int], leaf: int) -> list[str]:
    return sorted(path for path, number in leaf_of.items() if number == leaf)


def comments_of(connection: psycopg.Connection, dataset: Dataset) -> dict[str | None, str]:
    """The comments of the view (None) and of its columns; empty where there is no view, or it has no comment."""
    name = view.view_name(dataset).as_string(connection)
    return dict(connection.execute(_COMMENTS, (name,)).fetchall())


def _comments(
    connection: psycopg.Connection,
    dataset: Dataset,
    renamed: Mapping[str, str],
    current: Mapping[str | None, str],
    *,
    fresh: bool,
) -> list[sql.Composed]:
    """The statements that change comments. A comment that somebody else has written since our last one stays."""

    def renamed_columns(texts: Mapping[str | None, str]) -> dict[str | None, str]:
        return {column if column is None else renamed.get(column, column): text for column, text in texts.items()}

    current, written = renamed_columns(current), {} if fresh else renamed_columns(notes.comments(connection, dataset))
    statements = []
    taken_away: dict[str | None, str] = {column.name: "" for column in dataset.schema.columns if column.name in written}
    for column, text in {**taken_away, **view.comments(dataset)}.items():
        # PostgreSQL keeps no empty comment: "" is the same as none.
        if current.get(column, "") == text:
            written[column] = text
        elif current.get(column, "") == written.get(column, ""):
            statements.append(view.comment(dataset, column, text))
            written[column] = text
    notes.set_comments(connection, dataset, written)
    return statements
