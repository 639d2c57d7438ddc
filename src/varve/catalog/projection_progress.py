"""How far those have come who follow the catalog: a dataset's Hive table (its projection) and the store's own record.

Not here: the Hive table (stores/lake/projection.py) and the record (stores/lake/record.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg.types.json import Jsonb

from varve.catalog import statements
from varve.catalog.rows import batches_of, columns_of, declaration
from varve.model.batch import BatchId
from varve.model.inventory import Publication

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.schema import ColumnType


class Lag(NamedTuple):
    """A dataset whose projection does not show what is current.

    Attributes:
        partitions: of how many partitions.
        newest: the id of the newest batch that it does not show; 0 where it only shows partitions that have none.
    """

    dataset: str
    partitions: int
    newest: int


@dataclass(frozen=True)
class ProjectionProgress:
    """The progress of projections and records, over the catalog's connection."""

    connection: psycopg.Connection

    def lagging(self, dataset: str) -> dict[str, Batch]:
        """The current batches that the dataset's projection does not show yet."""
        return batches_of(self.connection.execute(statements.LAGGING, (dataset,)))

    def all_lagging(self, *, older_than: float) -> list[Lag]:
        """The datasets whose projections lag by something that was published longer ago than so many seconds."""
        return [Lag(*row) for row in self.connection.execute(statements.ALL_LAGGING, (older_than,))]

    def ever_projected(self, dataset: str, partitions: Iterable[str]) -> set[str]:
        """Those of the partitions that the projection has shown before, at whatever batch."""
        return {path for (path,) in self.connection.execute(statements.EVER_PROJECTED, (dataset, list(partitions)))}

    def projecting(self, dataset: str, partitions: Iterable[str]) -> None:
        """Record that the projection is about to show other batches of these partitions.

        They lag until `projected` says what it shows, whatever becomes current meanwhile: who moves them may die
        before it can say so, and the batch of before may be current again by then.
        """
        self.connection.execute(statements.PROJECTING, (dataset, list(partitions), dataset))

    def projected(self, dataset: str, batches: Iterable[Batch]) -> None:
        """Record that the projection shows these batches now."""
        listed = list(batches)
        paths, ids = [batch.partition for batch in listed], [batch.batch_id.millis for batch in listed]
        self.connection.execute(statements.PROJECTED, (paths, ids, dataset))

    def unrecorded(self, dataset: str) -> list[Publication]:
        """The publications that are not in the store's own record yet, oldest first."""
        rows = self.connection.execute(statements.UNRECORDED, (dataset,))
        return [Publication(BatchId(build_id), *rest) for build_id, *rest in rows]

    def recorded(self, dataset: str, publications: Iterable[Publication]) -> None:
        """Record that these publications are in the store's own record."""
        builds = [publication.build_id.millis for publication in publications]
        self.connection.execute(statements.RECORDED, (dataset, builds))

    def shown_columns(self, dataset: str) -> dict[str, Any] | None:
        """The declaration whose columns the projection has; None where nobody has looked."""
        row = self.connection.execute(statements.SHOWN_COLUMNS, (dataset,)).fetchone()
        return None if row is None else row[0]

    def set_shown_columns(self, dataset: Dataset) -> None:
        """Record that the projection has the columns that the dataset declares."""
        self.connection.execute(statements.SET_SHOWN_COLUMNS, (Jsonb(declaration(dataset)), dataset.name))

    def published_columns(self, dataset: str) -> dict[str, ColumnType]:
        """The columns with which the dataset was published last, by name; none where it never was."""
        row = self.connection.execute(statements.DECLARED, (dataset,)).fetchone()
        columns = columns_of({} if row is None else row[0])
        return {column.name: column.type for column in (*columns.data, *columns.partitions)}

    def withdrawn(self, dataset: str) -> list[str]:
        """The partitions without a batch that the projection may still show."""
        return [path for (path,) in self.connection.execute(statements.WITHDRAWN, (dataset,))]

    def forget_withdrawn(self, dataset: str, partitions: Iterable[str]) -> None:
        """Record that the projection does not show these partitions any more."""
        self.connection.execute(statements.FORGET_WITHDRAWN, (dataset, list(partitions)))

    def invalidate_projection(self, dataset: str, wrong: Iterable[str], extra: Iterable[str]) -> None:
        """Record that the projection shows wrong batches of some partitions, and shows others that have none."""
        self.connection.execute(statements.FORGET_SHOWN, (dataset, list(wrong)))
        self.connection.execute(statements.SHOWN_WITHOUT, (dataset, list(extra)))

    def unknown(self, dataset: str, batch_ids: Iterable[int]) -> set[int]:
        """Those of the ids by which the catalog knows no batch of the dataset."""
        parameters = {"dataset": dataset, "ids": list(batch_ids)}
        return {batch_id for (batch_id,) in self.connection.execute(statements.UNKNOWN, parameters)}

    def forget_projection(self, dataset: str) -> None:
        """Record that the projection shows nothing: its table was lost."""
        self.connection.execute(statements.FORGET_PROJECTION, (dataset,))

    def lock_projection(self, dataset: str) -> None:
        """Wait for the lock under which the dataset's projection is changed."""
        self.connection.execute(statements.LOCK_PROJECTION, (dataset,))

    def unlock_projection(self, dataset: str) -> None:
        """Release that lock."""
        self.connection.execute(statements.UNLOCK_PROJECTION, (dataset,))
