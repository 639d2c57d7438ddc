"""The history of a catalog: all batches, which were current when, pins, and what a sweep may delete.

Not here: changing what is current (catalog.py, `publish` and `repoint`) and deleting data (the stores).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.catalog.history import statements
from varve.catalog.history.drops import declared_name
from varve.catalog.history.rows import CurrentChange, Reversal, batch_id_of, described_of, past_batch_of, retired_of
from varve.catalog.rows import batches_of
from varve.model.batch import BatchId, BatchState
from varve.model.errors import NotKept, VarveError, some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import psycopg

    from varve.catalog.history.rows import PastBatch, Retired
    from varve.model.batch import Batch
    from varve.model.inventory import DescribedBatch

_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class RetainedBatches:
    """The replaced batches of a dataset that a sweep keeps: for so long, and so many of each partition."""

    age: dt.timedelta
    last: int


NOTHING_CHANGED = "Nothing was changed."
# How the owners of pins begin that keep batches while a process reads them. These pins expire by themselves.
READER, COMPARISON = "reader ", "diff "


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
        run_ids: Collection[str] | None = None,
        limit: int = _ALL,
    ) -> list[PastBatch]:
        """All batches of these partitions (None: of all) and runs (None: of all), newest first in each partition."""
        paths = None if partitions is None else list(partitions)
        runs = [run_id] if run_id is not None else None if run_ids is None else sorted(run_ids)
        rows = self.connection.execute(statements.BATCHES, (dataset, paths, paths, runs, runs, limit))
        return [past_batch_of(row) for row in rows]

    def runs_of(
        self, dataset: str, partitions: Sequence[str] | None, beginning: str, *, changes: bool = False
    ) -> set[str]:
        """The runs whose ids begin so of the batches of these partitions (None: of all), or of their changes.

        Where one has exactly this id, only that one.
        """
        paths = None if partitions is None else list(partitions)
        statement = statements.RUNS_OF_CHANGES if changes else statements.RUNS_OF_BATCHES
        runs = {run_id for (run_id,) in self.connection.execute(statement, (dataset, paths, paths, beginning))}
        return {beginning} & runs or runs

    def partitions(self, dataset: str, among: Sequence[str] | None = None) -> set[str]:
        """The partitions that ever had a batch, whatever became of it: of all, or `among` these."""
        if among is None:
            rows = self.connection.execute(statements.PARTITIONS, (dataset,))
        else:
            rows = self.connection.execute(statements.PARTITIONS_OF, (list(among), dataset))
        return {path for (path,) in rows}

    def pinned(
        self,
        dataset: str,
        partitions: Sequence[str] | None = None,
        *,
        among: Iterable[BatchId] | None = None,
    ) -> set[BatchId]:
        """The batches that a pin keeps, of these partitions (None: of all), and `among` these batches or all."""
        paths = None if partitions is None else list(partitions)
        ids = None if among is None else [batch_id.millis for batch_id in among]
        rows = self.connection.execute(statements.PINNED, (dataset, paths, paths, ids, ids))
        return {BatchId(batch_id) for (batch_id,) in rows}

    def changes(
        self,
        dataset: str,
        partitions: Sequence[str] | None = None,
        *,
        run_ids: Collection[str] | None = None,
        limit: int = _ALL,
    ) -> list[CurrentChange]:
        """Every change of what is current, or those of these runs, the last one first."""
        paths, runs = (None if texts is None else sorted(texts) for texts in (partitions, run_ids))
        rows = self.connection.execute(statements.CHANGES, (dataset, paths, paths, runs, runs, limit))
        return [CurrentChange(row[0], batch_id_of(row[1]), *row[2:]) for row in rows]

    def as_of(
        self, dataset: str, at: dt.datetime, partitions: Sequence[str] | None = None, *, swept_too: bool = False
    ) -> dict[str, Batch]:
        """The batches that were current at this time, by partition, as far as their data is kept.

        With `swept_too` also batches that were swept since: to say which are missing.
        """
        paths = None if partitions is None else list(partitions)
        return batches_of(self.connection.execute(statements.AS_OF, (dataset, at, paths, paths, not swept_too)))

    def as_of_run(self, dataset: str, run_id: str, *, swept_too: bool = False) -> dict[str, Batch]:
        """The batches that were current after a run's last publish, by partition; none where it published nothing."""
        parameters = (dataset, dataset, run_id, not swept_too)
        return batches_of(self.connection.execute(statements.AS_OF_RUN, parameters))

    def batch(self, dataset: str, batch_id: BatchId, partitions: Sequence[str] | None = None) -> dict[str, Batch]:
        """The batches with this id, by partition, current or retired. Raises NotKept where one is not kept."""
        paths = None if partitions is None else list(partitions)
        parameters = (dataset, batch_id.millis, paths, paths)
        batches = batches_of(self.connection.execute(statements.BY_ID, parameters))
        rows = self.connection.execute(statements.STATE_OF, parameters).fetchall()
        self._refuse_lost(dataset, batch_id, rows, paths)
        return batches

    def of_run(self, run_id: str, dataset: str | None = None) -> list[Reversal]:
        """The batches that a run published, and those that were current before it."""
        rows = self.connection.execute(statements.BEFORE_RUN, (run_id, dataset, dataset))
        return [
            Reversal(name, path, batch_id_of(before), batch_id_of(published), batch_id_of(current))
            for name, path, before, published, current in rows
        ]

    def made_by(
        self, run_id: str, dataset: str, partitions: Sequence[str], *, swept_too: bool = False
    ) -> dict[str, BatchId]:
        """The batches of these partitions that a run made, whoever published them: a promotion has a run of its own.

        With `swept_too` also those whose data is not kept.
        """
        states = ["published", "retired", *(["swept"] if swept_too else [])]
        rows = self.connection.execute(statements.MADE_BY_RUN, (dataset, list(partitions), run_id, states))
        return {path: BatchId(batch_id) for path, batch_id in rows}

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
        """Protect a batch of these partitions (None: of all it has) from sweeps. Returns the partitions.

        Pinning again replaces the owner's reason and expiry. Raises NotKept where the batch was swept.
        """
        if expires_at is not None and expires_at <= dt.datetime.now(dt.UTC):
            raise VarveError(f"the pin would expire on {expires_at:%Y-%m-%d %H:%M} UTC, in the past. {NOTHING_CHANGED}")
        paths = None if partitions is None else list(partitions)
        with self.connection.transaction():
            parameters = (dataset, batch_id.millis, paths, paths)
            rows = self.connection.execute(statements.LOCK_BATCHES, parameters).fetchall()
            self._refuse_lost(dataset, batch_id, rows, paths)
            pinned = [path for path, state, _ in rows if state in {"published", "retired"}]
            self.connection.execute(statements.PIN, (dataset, batch_id.millis, owner, reason, expires_at, pinned))
        return pinned

    def unpin(
        self,
        dataset: str,
        batch_id: BatchId,
        partitions: Sequence[str] | None = None,
        *,
        owners: Collection[str] | None = None,
    ) -> int:
        """Remove the pins of these owners (None: of all) from a batch. Returns how many there were."""
        paths, names = (None if texts is None else list(texts) for texts in (partitions, owners))
        return self.connection.execute(
            statements.UNPIN, (dataset, batch_id.millis, paths, paths, names, names)
        ).rowcount

    def owners(
        self,
        dataset: str,
        partitions: Sequence[str] | None = None,
        *,
        among: Iterable[BatchId] | None = None,
    ) -> set[str]:
        """Who has pinned batches of a dataset: of these partitions (None: of all), and `among` these batches or all."""
        paths = None if partitions is None else list(partitions)
        ids = None if among is None else [batch_id.millis for batch_id in among]
        rows = self.connection.execute(statements.OWNERS, (dataset, paths, paths, ids, ids))
        return {owner for (owner,) in rows}

    def claim_owner(self, owner: str) -> list[str]:
        """In a transaction: let nobody else claim this owner of pins before it ends.

        Returns the datasets of which the owner has pinned batches already.
        """
        self.connection.execute(statements.CLAIM_OWNER, (owner,))
        return [dataset for (dataset,) in self.connection.execute(statements.PINNED_BY, (owner,))]

    def forget_expired(self) -> int:
        """Delete the pins that have expired. Returns how many there were."""
        return self.connection.execute(statements.FORGET_EXPIRED).rowcount

    def forget_left(self) -> int:
        """Forget what environments have let go of and was swept since, or is current. Returns how many rows it were."""
        return self.connection.execute(statements.FORGET_LEFT).rowcount

    def retired(
        self,
        dataset: str | None,
        *,
        older_than: dt.timedelta,
        keep_last: int,
        declared: Mapping[str, RetainedBatches | None] | None = None,
    ) -> list[Retired]:
        """Every retired batch, with the reason for which a sweep keeps it (empty: it does not).

        A sweep keeps batches that are pinned, or that an environment needs; batches of partitions whose Hive table
        lags, because it may still show them; batches that were retired within `older_than`; the `keep_last` newest of
        each partition; batches that were current at any time since the oldest living build began, because they may be
        its inputs; and those that their dataset retains: `declared` has what datasets say, None where that cannot be
        read, so that all are kept. What an environment has let go of counts as retired then.
        """
        names = list(declared or ())
        retained = [(declared or {})[name] for name in names]
        ages = [None if batches is None else batches.age for batches in retained]
        lasts = [None if batches is None else batches.last for batches in retained]
        rows = self.connection.execute(
            statements.RETIRED,
            {"dataset": dataset, "older_than": older_than, "keep_last": keep_last, "names": names, "ages": ages,
             "lasts": lasts, "longest": max([older_than, *filter(None, ages)])},
        )  # fmt: skip
        return [retired_of(row) for row in rows]

    def mark_swept(self, retired: Iterable[Retired]) -> int:
        """Mark these batches as swept, but not those that were pinned, made current or let go of meanwhile.

        Returns how many.
        """
        marked = 0
        for dataset, group in _by_dataset(retired):
            with self.connection.transaction():
                parameters = ([batch.partition for batch in group], [batch.batch_id.millis for batch in group], dataset)
                locked = self.connection.execute(statements.LOCK_RETIRED, parameters).fetchall()
                retired_at = {(batch.partition, batch.batch_id.millis): batch.retired_at for batch in group}
                keys = [path for path, _ in locked], [batch_id for _, batch_id in locked]
                times = [retired_at[key] for key in locked]
                marked += self.connection.execute(statements.MARK, (*keys, times, dataset)).rowcount
        return marked

    def undeleted(self, dataset: str | None) -> list[Retired]:
        """The swept batches whose data was not deleted yet, or not completely."""
        return [retired_of(row) for row in self.connection.execute(statements.UNDELETED, (dataset, dataset))]

    def deleted(self, batches: Iterable[Retired]) -> None:
        """Record that the data of these swept batches is gone."""
        for dataset, group in _by_dataset(batches):
            keys = [batch.partition for batch in group], [batch.batch_id.millis for batch in group]
            self.connection.execute(statements.DELETED, (*keys, dataset))

    def oldest_living(self) -> dt.datetime | None:
        """When the oldest living build began; None where no build lives."""
        row = self.connection.execute(statements.OLDEST_LIVING).fetchone()
        return None if row is None else row[0]

    def now(self) -> dt.datetime:
        """The server's time: that of every process."""
        row = self.connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        return row[0]  # type: ignore[no-any-return]

    def kept(self) -> list[tuple[str, str, BatchId, str | None]]:
        """(dataset, partition, batch, location) of every batch whose data exists, or may be written right now.

        The dataset has the name under which its data lies, also where it was dropped since.
        """
        rows = self.connection.execute(statements.KEPT)
        return [
            (declared_name(dataset), path, BatchId(batch_id), location) for dataset, path, batch_id, location in rows
        ]

    def present(self, dataset: str) -> list[Batch]:
        """Every batch of the generation that readers see whose data must exist: current and retired ones."""
        rows = self.connection.execute(statements.PRESENT, (dataset,)).fetchall()
        return [batch for row in rows for batch in batches_of([row]).values()]

    def described(self, dataset: str) -> list[DescribedBatch]:
        """The same batches, as their descriptions in the store should be."""
        return [described_of(dataset, row) for row in self.connection.execute(statements.DESCRIBED, (dataset,))]

    def runs_like(self, beginning: str) -> list[str]:
        """The runs that have published anything and whose ids begin with this text; at most ten.

        Where one has exactly this id, only that one.
        """
        if self.connection.execute(statements.HAS_RUN, (beginning,)).rowcount > 0:
            return [beginning]
        return [run_id for (run_id,) in self.connection.execute(statements.RUNS_LIKE, (beginning,))]

    def stores(self) -> dict[str, str]:
        """The store of each dataset that was ever built, whether or not it is still declared."""
        return dict(self.connection.execute(statements.DATASETS).fetchall())

    def _refuse_lost(
        self, dataset: str, batch_id: BatchId, rows: Sequence[tuple[Any, ...]], paths: Sequence[str] | None
    ) -> None:
        existing = {path for path, _, _ in rows}
        problems = [
            f"{path} batch {batch_id} was swept on {swept_at:%Y-%m-%d %H:%M} UTC"
            if state == BatchState.SWEPT
            else f"{path} batch {batch_id} was never current (it is {state})"
            for path, state, swept_at in rows
            if state not in {"published", "retired"}
        ]
        problems += [f"{path} has no batch {batch_id}" for path in paths or () if path not in existing]
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
