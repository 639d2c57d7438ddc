"""Builds whose run ended without a word: they are found by their locks, fail, and somebody tells of them, once.

Not here: the locks by which they are found (partition_locks.py, leases.py), and what is told
(varve/dagster/runs/builds/telling.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog import statements
from varve.model.batch import BatchId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import psycopg

# A killed build of which nobody has told for so long is told of no more.
_TOLD_WITHIN_DAYS = 7


@dataclass(frozen=True, slots=True)
class KilledBuild:
    """A build that has failed as its run ended without a word; `paths` are its partitions in the catalog's spelling."""

    dataset: str
    batch_id: BatchId
    run_id: str
    code_version: str
    environment: str
    paths: Sequence[str]


@dataclass(frozen=True)
class KilledBuilds:
    """The builds of dead runs in a catalog, over a connection in autocommit mode."""

    connection: psycopg.Connection

    def batches(self) -> list[tuple[str, str, BatchId]]:
        """(dataset, partition, batch) of every build whose run ended without reporting it."""
        rows = self.connection.execute(statements.DEAD)
        return [(dataset, path, BatchId(batch_id)) for dataset, path, batch_id in rows]

    def fail(self) -> int:
        """Mark their batches as failed. Returns how many there were."""
        return self.connection.execute(statements.FAIL_DEAD, (statements.KILLED,)).rowcount

    @contextmanager
    def untold(self, datasets: Collection[str]) -> Iterator[list[KilledBuild]]:
        """The builds of these datasets that somebody found dead, oldest first, while the caller tells of them.

        Nobody else is given them meanwhile, nor later. Where the caller raises or dies, somebody else is.
        """
        with self.connection.transaction():
            rows = self.connection.execute(statements.TAKE_KILLED, (list(datasets),))
            yield [KilledBuild(name, BatchId(millis), *others) for name, millis, *others in rows]

    def forget_old(self) -> None:
        """Forget the builds of which nobody has told for long, as where nobody tells of builds."""
        self.connection.execute(statements.FORGET_KILLED, (_TOLD_WITHIN_DAYS,))
