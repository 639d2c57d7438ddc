"""The history of a catalog: every batch there was, what was in force when, pins, and what a sweep may take.

Not here: changing what is in force (catalog.py, `publish` and `repoint`) and deleting anything (the stores).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.catalog.history import statements
from varve.catalog.history.rows import CurrentChange, Reversal, batch_id_of, described_of, past_batch_of, retired_of
from varve.catalog.rows import batches_of
from varve.model.batch import BatchId, BatchState
from varve.model.errors import NotKept, VarveError, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import psycopg

    from varve.catalog.history.rows import PastBatch, Retired
    from varve.model.batch import Batch
    from varve.model.inventory import DescribedBatch

_ALL = 1_000_000
NOTHING_CHANGED = "Nothing was changed."


@dataclass(frozen=True)
class History:
    """The history over one connection, which must be in autocommit mode and not shared between threads."""

    connection: psycopg.Connection

    def batches(
        self,
        dataset: str,
        partitions: Sequence[str] | None = None,
        *,
        run_id: str | None = None,
        limit: int = _ALL,
    ) -> list[PastBatch]:
        """All batches of these partitions (None: of all), newest first in each partition."""
        paths = None if partitions is None else list(partitions)
        rows = self.connection.execute(statements.BATCHES, (dataset, paths, paths, run_id, run_id, limit))
        return [past_batch_of(row) for row in rows]

    def changes(
        self, dataset: str, partitions: Sequence[str] | None = None, *, limit: int = _ALL
    ) -> list[CurrentChange]:
        """Every change of what is in force, the last one first."""
        paths = None if partitions is None else list(partitions)
        rows = self.connection.execute(statements.CHANGES, (dataset, paths, paths, limit))
        return [CurrentChange(row[0], batch_id_of(row[1]), *row[2:]) for row in rows]

    def as_of(
        self, dataset: str, at: dt.datetime, partitions: Sequence[str] | None = None, *, swept_too: bool = False
    ) -> dict[str, Batch]:
        """What was in force at an instant, by partition, as far as its data is kept.

        With `swept_too` also what was swept since: to say what is missing.
        """
        paths = None if partitions is None else list(partitions)
        return batches_of(self.connection.execute(statements.AS_OF, (dataset, at, paths, paths, not swept_too)))

    def as_of_run(self, dataset: str, run_id: str, *, swept_too: bool = False) -> dict[str, Batch]:
        """What was in force after a run had published the last of its own; nothing where it published nothing."""
        parameters = (dataset, dataset, run_id, not swept_too)
        return batches_of(self.connection.execute(statements.AS_OF_RUN, parameters))

    def batch(self, dataset: str, batch_id: BatchId, partitions: Sequence[str] | None = None) -> dict[str, Batch]:
        """One batch of each of its partitions, in force or retired. Raises NotKept, saying what became of it."""
        paths = None if partitions is None else list(partitions)
        parameters = (dataset, batch_id.millis, paths, paths)
        found = batches_of(self.connection.execute(statements.BY_ID, parameters))
        rows = self.connection.execute(statements.STATE_OF, parameters).fetchall()
        self._refuse_lost(dataset, batch_id, rows, paths)
        return found

    def of_run(self, run_id: str, dataset: str | None = None) -> list[Reversal]:
        """What a run published, and what was in force before it."""
        rows = self.connection.execute(statements.BEFORE_RUN, (run_id, dataset, dataset))
        return [
            Reversal(name, path, batch_id_of(before), batch_id_of(published), batch_id_of(current))
            for name, path, before, published, current in rows
        ]

    def pin(
        self,
        dataset: str,
        batch_id: BatchId,
        partitions: Sequence[str] | None = None,
        *,
        owner: str,
        reason: str,
        expires_at: dt.datetime | None = None,
    ) -> list[str]:
        """Keep a batch of these partitions (None: of all that it has) from every sweep; the partitions pinned.

        Pinning again replaces the owner's reason and expiry. Raises NotKept where the batch was swept.
        """
        if expires_at is not None and expires_at <= dt.datetime.now(dt.UTC):
            raise VarveError(f"the pin would expire on {expires_at:%Y-%m-%d %H:%M} UTC, in the past. {NOTHING_CHANGED}")
        paths = None if partitions is None else list(partitions)
        with self.connection.transaction():
            parameters = (dataset, batch_id.millis, paths, paths)
            rows = self.connection.execute(statements.LOCK_BATCHES, parameters).fetchall()
            self._refuse_lost(dataset, batch_id, rows, paths)
            found = [path for path, state, _ in rows if state in {"published", "retired"}]
            self.connection.execute(statements.PIN, (dataset, batch_id.millis, owner, reason, expires_at, found))
        return found

    def unpin(
        self, dataset: str, batch_id: BatchId, partitions: Sequence[str] | None = None, *, owner: str | None = None
    ) -> int:
        """Take the pins of an owner (None: of all) off a batch; how many there were."""
        paths = None if partitions is None else list(partitions)
        return self.connection.execute(
            statements.UNPIN, (dataset, batch_id.millis, paths, paths, owner, owner)
        ).rowcount

    def forget_expired(self) -> int:
        """Forget the pins that hold nothing any more; how many."""
        return self.connection.execute(statements.FORGET_EXPIRED).rowcount

    def retired(self, dataset: str | None, *, older_than: dt.timedelta, keep_last: int) -> list[Retired]:
        """Every retired batch, with why a sweep would leave it.

        Kept are pinned ones, those of partitions whose Hive table lags and may still show them, those retired within
        `older_than`, the `keep_last` newest of each partition, and what was in force since the oldest living build
        began: it may be one of its inputs.
        """
        rows = self.connection.execute(statements.RETIRED, (dataset, dataset, older_than, keep_last))
        return [retired_of(row) for row in rows]

    def mark_swept(self, retired: Iterable[Retired]) -> int:
        """Make these batches unreachable, but for those that were pinned or put back in force meanwhile; how many."""
        marked = 0
        for dataset, group in _by_dataset(retired):
            with self.connection.transaction():
                asked = ([one.partition for one in group], [one.batch_id.millis for one in group], dataset)
                locked = self.connection.execute(statements.LOCK_RETIRED, asked).fetchall()
                keys = [path for path, _ in locked], [batch_id for _, batch_id in locked]
                marked += self.connection.execute(statements.MARK, (*keys, dataset)).rowcount
        return marked

    def undeleted(self, dataset: str | None) -> list[Retired]:
        """The swept batches whose data was not deleted yet, or not to the end."""
        return [retired_of(row) for row in self.connection.execute(statements.UNDELETED, (dataset, dataset))]

    def deleted(self, batches: Iterable[Retired]) -> None:
        """Record that the data of these swept batches is gone."""
        for dataset, group in _by_dataset(batches):
            keys = [one.partition for one in group], [one.batch_id.millis for one in group]
            self.connection.execute(statements.DELETED, (*keys, dataset))

    def oldest_living(self) -> dt.datetime | None:
        """When the oldest build that still lives began."""
        row = self.connection.execute(statements.OLDEST_LIVING).fetchone()
        return None if row is None else row[0]

    def kept(self) -> list[tuple[str, str, BatchId, str | None]]:
        """(dataset, partition, batch, location) of everything whose data is there, or may be written right now."""
        rows = self.connection.execute(statements.KEPT)
        return [(dataset, path, BatchId(batch_id), location) for dataset, path, batch_id, location in rows]

    def present(self, dataset: str) -> list[Batch]:
        """Every batch whose data must be there: in force or retired."""
        rows = self.connection.execute(statements.PRESENT, (dataset,)).fetchall()
        return [batch for row in rows for batch in batches_of([row]).values()]

    def described(self, dataset: str) -> list[DescribedBatch]:
        """The same as they should describe themselves where they lie."""
        return [described_of(dataset, row) for row in self.connection.execute(statements.DESCRIBED, (dataset,))]

    def runs_like(self, beginning: str) -> list[str]:
        """The runs that have published anything and whose ids begin so; ten at most."""
        return [run_id for (run_id,) in self.connection.execute(statements.RUNS_LIKE, (beginning,))]

    def stores(self) -> dict[str, str]:
        """The kind of store of each dataset that was ever built, declared today or not."""
        return dict(self.connection.execute(statements.DATASETS).fetchall())

    def _refuse_lost(
        self, dataset: str, batch_id: BatchId, rows: Sequence[tuple[Any, ...]], paths: Sequence[str] | None
    ) -> None:
        there = {path for path, _, _ in rows}
        problems = [
            f"{path} batch {batch_id} was swept on {swept_at:%Y-%m-%d %H:%M} UTC"
            if state == BatchState.SWEPT
            else f"{path} batch {batch_id} was never in force (it is {state})"
            for path, state, swept_at in rows
            if state not in {"published", "retired"}
        ]
        problems += [f"{path} has no batch {batch_id}" for path in paths or () if path not in there]
        if not rows and paths is None:
            problems = [f"there is no batch {batch_id}"]
        if problems:
            raise NotKept(
                f"{dataset}: {some(problems, limit=3)}. {NOTHING_CHANGED} `varve history {dataset}` lists what is kept."
            )


def _by_dataset(batches: Iterable[Retired]) -> list[tuple[str, list[Retired]]]:
    groups: dict[str, list[Retired]] = {}
    for batch in batches:
        groups.setdefault(batch.dataset, []).append(batch)
    return sorted(groups.items())
