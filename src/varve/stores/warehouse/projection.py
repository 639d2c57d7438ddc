"""From the catalog's rows to the statements that make the views show them: which leaves change, and in which order.

A reader locks the view, then its leaves, then their tables. Whoever replaces views must not go against that order, or
PostgreSQL ends readers as deadlocked: new leaves are made first (nobody can know them), then the view is replaced where
it has to be, then leaves by their number.

Not here: waiting for readers, and the transaction (publish.py).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, VarveError, some
from varve.stores.warehouse.tables import dependents, notes, roles, shape, view
from varve.stores.warehouse.tables.naming import leaf_view, periods_schema
from varve.stores.warehouse.tables.schema import BatchTables

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


_OPTIONS = """
    select c.relname, c.reloptions from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind = 'v' and c.relname = any(%s) and c.reloptions is not null
"""


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """What makes a dataset's views show what is current.

    Attributes:
        first: new leaves, which nobody knows yet; they lock nothing of anybody's.
        last: what readers wait for, in the order in which they lock.
        comments: what the view says that it did not say before, and who may read it where it is new.
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
    """How the view has to change for what the dataset declares. Raises VarveError where only a migration can do it."""
    change = shape.evolve(dataset, existing_columns(connection, dataset))
    if change.breaking:
        raise VarveError(
            f"{dataset}: {'; '.join(change.breaking)}. {NOTHING_LOST} That cannot be changed under readers: "
            f"`varve warehouse migrate {dataset} --dry-run` shows what would be rebuilt and restored, without "
            "--dry-run it is done; then run it again."
        )
    return change


def plan(
    catalog: Catalog,
    dataset: Dataset,
    changed: Sequence[PartitionKey],
    change: shape.ViewChange | None = None,
    *,
    anew: bool = False,
    also: Collection[int] = (),
    said: Mapping[str | None, str] | None = None,
) -> ViewPlan:
    """The statements that show these partitions at their current batches, where all else is shown already.

    To be called in the publish's transaction, under the lock of the dataset's publishers. `change` is given by a
    migration, which begins with no view, and with it what that `said` in its comments; `anew` makes all of it again;
    `also` are leaves that have lost a partition to others.
    """
    connection = catalog.connection
    before = existing_columns(connection, dataset) if change is None else []
    change = change or change_of(connection, dataset)
    generation = former = notes.generation(connection, dataset)
    anew = anew or generation == 0 or tuple(before) != change.shape.plain
    vacated = notes.vacate(connection, dataset)
    taken = notes.leaves(connection, dataset)
    paths = sorted(catalog.current(dataset.name, None if anew else changed))
    if anew:
        # By the clock, because the note may have been lost with the catalog, and the leaves still be there.
        generation = max(generation + 1, int(time.time()))
        notes.set_generation(connection, dataset, generation)
    together = _together(catalog, dataset)
    placed = notes.place(connection, dataset, taken, [path for path in paths if path not in taken], together)
    where = taken | placed
    touched = (
        set(where.values()) if anew else {where[path] for path in paths} | ((vacated | set(also)) & set(where.values()))
    )
    new = touched if anew else touched - set(taken.values())
    emptied = (vacated | set(also)) - set(where.values())
    leaves = _leaves(catalog, dataset, change.shape, generation, {leaf: _members(where, leaf) for leaf in touched})
    last = [statement for leaf, statement in sorted(leaves.items()) if leaf not in new]
    if anew or new or emptied:
        names = [leaf_view(dataset, generation, leaf) for leaf in sorted(set(where.values()))]
        renames = [view.rename_column(dataset, old, name) for old, name in change.renames]
        options = _options(connection, dataset.db, [dataset.table]).get(dataset.table, ())
        last = [*renames, view.create_view(dataset, change.shape, names, options), *last]
    fresh = said is None and not before
    said = comments_of(connection, dataset) if said is None else said
    return ViewPlan(
        (
            *(statement for leaf, statement in sorted(leaves.items()) if leaf in new),
            *_as_siblings(
                connection, dataset, former, taken, {leaf: leaf_view(dataset, generation, leaf) for leaf in new}
            ),
        ),
        tuple(last),
        (
            *(() if before else roles.let_read(connection, dataset.db, dataset.table)),
            *_comments(connection, dataset, dict(change.renames), said, fresh=fresh),
        ),
    )


def views_to_replace(connection: psycopg.Connection, dataset: Dataset, changed: Sequence[str]) -> list[str]:
    """The views that a publish of these partitions would replace, as far as can be said without its locks."""
    taken, generation = notes.leaves(connection, dataset), notes.generation(connection, dataset)
    names = {leaf_view(dataset, generation, taken[path]) for path in changed if path in taken}
    found = [view.table_name(dataset, name).as_string(connection) for name in sorted(names)]
    if any(path not in taken for path in changed):
        found.append(view.view_name(dataset).as_string(connection))
    return found


def _leaves(
    catalog: Catalog, dataset: Dataset, wanted: ViewShape, generation: int, members: dict[int, list[str]]
) -> dict[int, sql.Composed]:
    keys = [dataset.partitioning.from_path(path) for paths in members.values() for path in paths]
    current = catalog.current(dataset.name, keys)
    tables = BatchTables.of(catalog.connection, dataset.name, current.values())
    columns = _columns(catalog.connection, dataset, tables.of_all(current.values()))
    names = {leaf: leaf_view(dataset, generation, leaf) for leaf in members}
    options = _options(catalog.connection, periods_schema(dataset), list(names.values()))
    return {
        leaf: view.create_leaf(
            dataset,
            names[leaf],
            wanted,
            list(_arms(dataset, wanted, [current[path] for path in paths if path in current], tables, columns)),
            options.get(names[leaf], ()),
        )
        for leaf, paths in members.items()
    }


def _options(connection: psycopg.Connection, schema: str, views: Sequence[str]) -> dict[str, list[str]]:
    """What somebody has set of these views' options (security_barrier, security_invoker, check_option)."""
    return dict(connection.execute(_OPTIONS, (schema, list(views))).fetchall())


def _as_siblings(
    connection: psycopg.Connection, dataset: Dataset, former: int, taken: Mapping[str, int], new: Mapping[int, str]
) -> Iterable[sql.Composed]:
    """What makes new leaves as somebody has made those there are: options, owner and grants.

    A leaf of a new generation follows the one of its number, another one the first of them.
    """
    there = sorted(set(taken.values()))
    for leaf, name in sorted(new.items()):
        sibling = leaf if leaf in there else next(iter(there), None)
        if sibling is None or (leaf_view(dataset, former, sibling) == name):
            continue
        model = view.table_name(dataset, leaf_view(dataset, former, sibling))
        yield from dependents.as_another(connection, model, view.table_name(dataset, name))


def arms_of(catalog: Catalog, dataset: Dataset, wanted: ViewShape, batches: Sequence[Batch]) -> list[sql.Composed]:
    """The rows of these batches as the view shows them, an arm for each table."""
    tables = BatchTables.of(catalog.connection, dataset.name, batches)
    columns = _columns(catalog.connection, dataset, tables.of_all(batches))
    return list(_arms(dataset, wanted, batches, tables, columns))


def _columns(connection: psycopg.Connection, dataset: Dataset, tables: set[str]) -> dict[str, list[str]]:
    """The columns of every one of these tables. Raises VarveError where one is gone."""
    schema = periods_schema(dataset)
    columns = {
        table: [name for name, _ in found]
        for table, found in shape.columns_of(connection, schema, sorted(tables)).items()
    }
    if missing := sorted(tables - columns.keys()):
        raise VarveError(
            f"{dataset}: the catalog names {some(missing)} in {schema}, which is not there: somebody dropped it. "
            f"{NOTHING_LOST} Run those partitions again with this one, or restore the table."
        )
    return columns


def _arms(
    dataset: Dataset,
    wanted: ViewShape,
    batches: Sequence[Batch],
    tables: BatchTables,
    columns: dict[str, list[str]],
) -> Iterable[sql.Composed]:
    """One arm for each table: a period's own, a part's, or one that holds several, of which some may be out of date."""
    holds = {batch.partition: table for batch in batches if (table := tables.shared_by(batch)) is not None}
    for batch in batches:
        if batch.partition not in holds:
            for table in tables.own(batch):
                yield view.table_arm(dataset, wanted, batch.partition, table, columns[table])
    for table in sorted(set(holds.values())):
        shown = [path for path, held in holds.items() if held == table]
        all_of_it = len(shown) == sum(held == table for held in tables.shared.values())
        yield view.shared_arm(dataset, wanted, table, columns[table], None if all_of_it else shown)


def _together(catalog: Catalog, dataset: Dataset) -> dict[str, str]:
    """The shared table in which the current batch of a partition lies, where it does."""
    shared = notes.compacted(catalog.connection, dataset.name)
    if not shared:
        return {}
    current = catalog.current(dataset.name)
    return {
        path: shared[path, batch.batch_id.millis]
        for path, batch in current.items()
        if (path, batch.batch_id.millis) in shared
    }


def _members(where: dict[str, int], leaf: int) -> list[str]:
    return sorted(path for path, place in where.items() if place == leaf)


def comments_of(connection: psycopg.Connection, dataset: Dataset) -> dict[str | None, str]:
    """What the view (None) and its columns say now; empty where there is no view, or it says nothing."""
    name = view.view_name(dataset).as_string(connection)
    return dict(connection.execute(_COMMENTS, (name,)).fetchall())


def _comments(
    connection: psycopg.Connection,
    dataset: Dataset,
    renamed: Mapping[str, str],
    said: Mapping[str | None, str],
    *,
    fresh: bool,
) -> list[sql.Composed]:
    """What the view is to say anew: where it says what we last wrote, not where somebody else has written since."""

    def now(texts: Mapping[str | None, str]) -> dict[str | None, str]:
        return {column if column is None else renamed.get(column, column): text for column, text in texts.items()}

    said, ours = now(said), {} if fresh else now(notes.comments(connection, dataset))
    statements = []
    for column, text in view.comments(dataset).items():
        if said.get(column) == text:
            ours[column] = text
        elif said.get(column) == ours.get(column):
            statements.append(view.comment(dataset, column, text))
            ours[column] = text
    notes.set_comments(connection, dataset, ours)
    return statements
