"""Whether readers have locks enough: a query of a union view locks every table under it, however few it reads.

Not here: how many periods a dataset should have (docs/concepts.md).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pipeline_defs.model.errors import NOTHING_LOST, VarveError
from resources.warehouse.notes import LEAF_TABLES

if TYPE_CHECKING:
    from resources.catalog import Catalog
    from resources.store import Build

logger = logging.getLogger(__name__)

# So many readers at once should find locks; with fewer we warn.
_READERS = 10
_MANY_PERIODS = 2_000
# The lock table as PostgreSQL sizes it when it starts.
_CAPACITY = """
    select current_setting('max_locks_per_transaction')::bigint
         * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)
"""
_PERIODS = """
    select count(*) from (
        select partition from varve.current where dataset = %s union select unnest(%s::text[])
    ) as periods
"""


def locks_of_a_reader(periods: int, indexes: int) -> int:
    """How many locks one query of the view takes: the view, its leaves, their tables and the tables' indexes."""
    return 1 + -(-periods // LEAF_TABLES) + periods * (1 + indexes)


def refuse_or_warn(catalog: Catalog, build: Build) -> None:
    """Raise VarveError where after this publish not even one reader would find locks enough; warn where few would."""
    name, paths = build.dataset.name, [partition.path for partition in build.partitions]
    row = catalog.connection.execute(_PERIODS, (name, paths)).fetchone()
    capacity = catalog.connection.execute(_CAPACITY).fetchone()
    assert row is not None
    assert capacity is not None
    locks = locks_of_a_reader(int(row[0]), len(build.dataset.warehouse.indexes))
    readers = int(capacity[0]) // locks
    if readers < 1:
        raise VarveError(
            f"{build}: with this publish the view has {row[0]} periods, and a query of it takes {locks} locks; the "
            f"server has room for {capacity[0]}. {NOTHING_LOST} Raise max_locks_per_transaction (and restart "
            "PostgreSQL), or make the periods coarser."
        )
    if readers < _READERS:
        logger.warning(
            "%s: a query of the view takes %d locks and the server has room for %d: %d readers at once. Raise "
            "max_locks_per_transaction.", build, locks, capacity[0], readers,
        )  # fmt: skip
    if int(row[0]) > _MANY_PERIODS:
        logger.warning("%s: %d periods make every query slow to plan; make them coarser.", build, row[0])
