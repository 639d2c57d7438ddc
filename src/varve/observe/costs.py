"""What datasets and runs have cost: seconds of execution, rows, bytes read and written, and the storage that is held.

Everything is read from what the catalog records of each batch; nothing is measured anew.

Not here: what a plan will cost (varve/catalog/backfills.py), and printing (varve/cli/observe/costs.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from varve.observe import cost_statements as statements
from varve.observe.cost_statements import CostsBy

if TYPE_CHECKING:
    import datetime as dt

    import psycopg


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that the batches of a dataset hold, as each was counted when it was written.

    Attributes:
        current: of the batches that readers see.
        retired: of replaced batches, which a sweep may take.
        pinned: of replaced batches that a pin keeps.
        environments: of batches that were computed in an environment and never were current in production.
    """

    current: int = 0
    retired: int = 0
    pinned: int = 0
    environments: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What the builds of one dataset, of one run, or of one month of a dataset have cost.

    Attributes:
        dataset: the dataset.
        run_id: the run, by runs only; else "".
        month: as `2026-11` in UTC, by months only; else "".
        environment: the environment of the run, by runs only; "" for production.
        runs: how many runs there were, failed ones too.
        failed: how many of their builds failed. What they took is counted.
        partitions: how many partitions they computed, with repetitions.
        seconds: from the begin of each build until its rows were verified to lie in the store, or it failed. The
            partitions of a run are one job, whose seconds count once.
        rows: how many rows were written; to a partition that grows, how many were added.
        bytes_read: the size of the batches and landing files that were read, each once for a run; of a partition that
            grows, of the new files. A query that reads few of the columns reads less.
        bytes_written: the size of these rows.
        storage: what the dataset holds now, by datasets only.
    """

    dataset: str
    run_id: str
    month: str
    environment: str
    began: dt.datetime
    runs: int
    failed: int
    partitions: int
    seconds: float
    rows: int
    bytes_read: int
    bytes_written: int
    storage: Storage | None = None


_NAMES = sql.SQL(statements.NAMES)


@dataclass(frozen=True)
class Costs:
    """The costs in a catalog, over a connection in autocommit mode."""

    connection: psycopg.Connection

    def listed(
        self, dataset: str | None = None, *, by: CostsBy = CostsBy.DATASET, since: dt.datetime | None = None
    ) -> list[Cost]:
        """What each dataset, run or month has cost: runs and months newest first; of one dataset, or of all (None).

        Those that were dropped under the name of the one are lines of their own.

        `since` leaves out builds that began earlier; the storage is that of now in any case.
        """
        key, group, order = map(sql.SQL, statements.LINES[by])
        batches_read = sql.SQL(statements.JOINED if dataset is None and since is None else statements.LOOKED_UP)
        statement = sql.SQL(statements.BUILDS).format(
            names=_NAMES, key=key, group=group, order=order, batches_read=batches_read
        )
        held = self.storage(dataset) if by is CostsBy.DATASET else {}
        with self.connection.transaction():
            self.connection.execute(statements.MORE_MEMORY)
            rows = self.connection.execute(statement, {"dataset": dataset, "since": since}).fetchall()
        return [
            Cost(*row, storage=held.get(row[0], Storage()) if by is CostsBy.DATASET else None)  # type: ignore[misc]
            for row in rows
        ]

    def storage(self, dataset: str | None = None) -> dict[str, Storage]:
        """The storage that each dataset holds; of one dataset, or of all (None)."""
        statement = sql.SQL(statements.STORAGE).format(names=_NAMES)
        rows = self.connection.execute(statement, {"dataset": dataset})
        return {name: Storage(*sizes) for name, *sizes in rows}
