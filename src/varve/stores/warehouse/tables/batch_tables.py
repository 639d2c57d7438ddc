"""The tables in which the rows of a batch lie: its own, several of a partition that grows, or a shared one.

Not here: filling tables (warehouse/loading/load.py), and which batches share one (warehouse/compact.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog.parts import Parts
from varve.stores.warehouse.tables import notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import psycopg

    from varve.model.batch import Batch, Part


@dataclass(frozen=True)
class BatchTables:
    """The tables of some batches of a dataset.

    Attributes:
        shared: the shared table of each batch that has one, by partition and batch id.
        parts: the parts of batches that grew, by partition and batch id.
    """

    shared: Mapping[tuple[str, int], str]
    parts: Mapping[tuple[str, int], tuple[Part, ...]]

    @classmethod
    def of(cls, connection: psycopg.Connection, dataset: str, batches: Iterable[Batch]) -> BatchTables:
        """The tables of these batches."""
        keys = [(batch.partition, batch.batch_id) for batch in batches]
        shared = notes.shared_by(connection, dataset, [(path, batch_id.millis) for path, batch_id in keys])
        return cls(shared, Parts(connection).of(dataset, keys))

    def shared_by(self, batch: Batch) -> str | None:
        """The table that it shares with other batches; None where it shares none."""
        return self.shared.get((batch.partition, batch.batch_id.millis))

    def own(self, batch: Batch) -> tuple[str, ...]:
        """Its own tables, which hold no other partition: one, or one for each of its parts, in order."""
        parts = self.parts.get((batch.partition, batch.batch_id.millis))
        return tuple(part.location for part in parts) if parts else (batch.location,)

    def all_of(self, batch: Batch) -> tuple[str, ...]:
        """The tables in which readers find its rows."""
        shared = self.shared_by(batch)
        return self.own(batch) if shared is None else (shared,)

    def of_all(self, batches: Iterable[Batch]) -> set[str]:
        """The tables in which readers find the rows of these batches."""
        return {table for batch in batches for table in self.all_of(batch)}
