"""What the catalog says of the batches of which an Iceberg table is made: current ones, and those to be published.

Not here: their data files (folder.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.batch import BatchId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import psycopg

    from varve.model.build import Build

_CURRENT = """
    select c.partition, c.batch_id, b.location, b.rows
    from varve.current c cross join lateral (
        select * from varve.batch x
        where (x.dataset, x.partition, x.batch_id) = (c.dataset, c.partition, c.batch_id) offset 0
    ) b
    where c.dataset = %s and {which}
"""
_CURRENT_OF_ALL = _CURRENT.format(which="true")
_CURRENT_OF = _CURRENT.format(which="c.partition = any(%b::text[])")
_STAGED = """
    select partition, batch_id, location, rows from varve.batch
    where dataset = %s and batch_id = %s and partition = any(%b::text[]) and state = 'staged'
"""
_COUNT = "select count(*) from varve.current where dataset = %s and batch_id = %s and partition = any(%b::text[])"
_STATISTICS = """
    select b.partition, b.statistics from varve.batch b
    where b.dataset = %s and b.batch_id = any(%s::bigint[]) and b.partition = any(%s::text[])
      and b.batch_id || '/' || b.partition = any(%s::text[])
"""


@dataclass(frozen=True, slots=True)
class CurrentFolder:
    """What of a current batch its data files are made of."""

    partition: str
    batch_id: BatchId
    location: str
    rows: int


@dataclass(frozen=True)
class ShownBatches:
    """The batches of production, over one connection."""

    connection: psycopg.Connection

    def current(self, dataset: str, paths: list[str] | None) -> dict[str, CurrentFolder]:
        """What is current in production of these partitions (None: of all), without what only traces need."""
        if paths is None:
            return _folders(self.connection.execute(_CURRENT_OF_ALL, (dataset,)))
        return _folders(self.connection.execute(_CURRENT_OF, (dataset, paths)))

    def staged(self, build: Build) -> dict[str, CurrentFolder]:
        """The batches of a build that are staged: what is current after its publish."""
        return _folders(self.connection.execute(_STAGED, (build.dataset.name, build.batch_id.millis, build.paths)))

    def is_current(self, build: Build) -> bool:
        """Whether all batches of a build are current in production."""
        row = self.connection.execute(_COUNT, (build.dataset.name, build.batch_id.millis, build.paths)).fetchone()
        return row is not None and row[0] == len(build.paths)

    def statistics(self, dataset: str, batches: Mapping[str, int]) -> dict[str, dict[str, tuple[str, str]]]:
        """The bounds of batches (ids by partition), by partition and column; only where both ends are known."""
        pairs = [f"{batch_id}/{path}" for path, batch_id in batches.items()]
        parameters = (dataset, sorted(set(batches.values())), list(batches), pairs)
        return {
            path: {column: (low, high) for column, (low, high) in bounds.items() if low is not None is not high}
            for path, bounds in self.connection.execute(_STATISTICS, parameters)
        }


def _folders(rows: Iterable[tuple[str, int, str, int]]) -> dict[str, CurrentFolder]:
    return {path: CurrentFolder(path, BatchId(batch_id), location, count) for path, batch_id, location, count in rows}
