"""Whether the server has enough locks: a query of a union view locks every table under it, however few it reads.

Not here: how many periods a dataset should have (docs/concepts.md).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, VarveError
from varve.stores.warehouse.tables.notes import LEAF_TABLES

if TYPE_CHECKING:
    from varve.catalog.catalog import Catalog
    from varve.model.build import Build

logger = logging.getLogger(__name__)

# So many readers at once should find enough locks; where fewer do, we warn.
_READERS = 10
_MANY_TABLES = 2_000
# The size that PostgreSQL gives to its lock table when it starts.
_CAPACITY = """
    select current_setting('max_locks_per_transaction')::bigint
         * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)
"""
# Of the partitions that the build does not publish: how many tables of their own they have, and how many they share.
_TABLES = """
    select coalesce(sum(coalesce(cardinality(g.parts), 1)) filter (where s.table_name is null), 0),
        count(distinct s.table_name)
    from varve.current c left join varve.compacted s using (dataset, partition, batch_id)
    left join varve.batch_part g using (dataset, partition, batch_id)
    where c.dataset = %s and c.partition <> all(%s::text[])
"""
# How many tables the partitions of the build have.
_OWN = """
    select coalesce(sum(coalesce(cardinality(g.parts), 1)), 0) from unnest(%s::text[]) as w (partition)
    left join varve.batch_part g on (g.dataset, g.partition, g.batch_id) = (%s, w.partition, %s)
"""


def locks_of_a_reader(own: int, shared: int, indexes: int) -> int:
    """How many locks one query of the view takes: the view, its leaves, their tables and the tables' indexes.

    A table that partitions share has one index more, by partition.
    """
    return 1 + -(-(own + shared) // LEAF_TABLES) + own * (1 + indexes) + shared * (2 + indexes)


def refuse_or_warn(catalog: Catalog, build: Build) -> None:
    """Raise VarveError where after this publish no reader would find enough locks; warn where few would."""
    name, paths = build.dataset.name, build.paths
    row = catalog.connection.execute(_TABLES, (name, paths)).fetchone()
    added = catalog.connection.execute(_OWN, (paths, name, build.batch_id.millis)).fetchone()
    capacity = catalog.connection.execute(_CAPACITY).fetchone()
    assert row is not None
    assert added is not None
    assert capacity is not None
    own, shared = int(row[0]) + int(added[0]), int(row[1])
    locks = locks_of_a_reader(own, shared, len(build.dataset.warehouse.indexes))
    readers = int(capacity[0]) // locks
    if readers < 1:
        raise VarveError(
            f"{build}: with this publish the view has {own + shared} tables, and a query of it takes {locks} locks; "
            f"the server has room for {capacity[0]}. {NOTHING_LOST} Raise max_locks_per_transaction (and restart "
            "PostgreSQL), make the periods coarser, or let those that are over share tables (compact)."
        )
    if readers < _READERS:
        logger.warning(
            "%s: a query of the view takes %d locks and the server has room for %d: %d readers at once. Raise "
            "max_locks_per_transaction.", build, locks, capacity[0], readers,
        )  # fmt: skip
    if own + shared > _MANY_TABLES:
        logger.warning(
            "%s: %d tables make every query slow to plan; make the periods coarser, or let those that are over share "
            "tables (compact).", build, own + shared,
        )  # fmt: skip
