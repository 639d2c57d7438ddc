"""The catalog: PostgreSQL tables that say which batch of each partition is current; the only truth.

Each method is one statement or one short transaction over any number of partitions. A build holds session locks on the
connection that it is given: whoever loses the connection loses the locks, and cannot publish. Why the catalog is in
PostgreSQL: docs/decisions/0002.

Not here: the locks (living), queries that change nothing (reader.py), how far the projections have followed
(projection_progress.py), the tables (schema.py), the SQL (statements.py), where batches lie (varve/stores) and when to
build them (varve/planning).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from varve.catalog import statements
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.generations import Generations
from varve.catalog.code.going_forward import GoingForward
from varve.catalog.living.leases import MARK_SESSION, UNMARK_SESSION, Leases
from varve.catalog.living.partition_locks import PartitionLocks
from varve.catalog.parts import Parts
from varve.catalog.projection_progress import ProjectionProgress
from varve.catalog.reader import CatalogReader
from varve.catalog.rows import full_declaration
from varve.catalog.schema import CatalogSchema
from varve.model.batch import BatchId, StagedBatch
from varve.model.build import Build
from varve.model.errors import NOTHING_LOST, NotKept, StalePublish, some

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from varve.model.batch import Input
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey

# A build that adds at least so many partitions makes PostgreSQL's statistics worse than none: they are made again.
_MANY_NEW = 200
# So many characters of an error are kept.
_REASON = 2_000


@dataclass(frozen=True)
class Catalog(ProjectionProgress, CatalogReader):
    """The catalog over one connection, which must be in autocommit mode and not shared between threads."""

    def ensure_schema(self) -> None:
        """Make the catalog's tables, or upgrade older ones; safe to call from several processes at once.

        Raises VarveError where the tables are newer than this Varve, or older than what it can upgrade.
        """
        CatalogSchema().ensure(self.connection)

    def begin(self, dataset: Dataset, partitions: Sequence[PartitionKey], *, run_id: str, code_version: str) -> Build:
        """Lock the partitions, remember what is current, and start a batch of each.

        Raises AlreadyBuilding, naming the run that holds a partition, and then holds no lock.
        """
        return self._begin(dataset, partitions, run_id, code_version)

    def lock_partitions(self, dataset: Dataset, partitions: Sequence[PartitionKey], *, run_id: str) -> Build:
        """Lock the partitions and remember what is current, to make earlier batches current again: starts no batch.

        Raises AlreadyBuilding, as `begin` does.
        """
        return self._begin(dataset, partitions, run_id, None)

    def unlocked(
        self, dataset: Dataset, partitions: Sequence[PartitionKey], *, run_id: str, code_version: str
    ) -> Build:
        """A build that starts no batch and holds no lock, to point at batches that exist.

        Builds of others may go on meanwhile: they are refused as stale when they publish after it.
        """
        paths = [partition.path for partition in partitions]
        row = self.connection.execute(statements.NEXT_BATCH_ID).fetchone()
        assert row is not None
        current = self._pointers(dataset, paths)
        registered, generation = self._registered(dataset)
        expected = {key: BatchId(current[key.path]) if key.path in current else None for key in partitions}
        return Build(
            dataset, tuple(partitions), BatchId(row[0]), run_id, expected, code_version=code_version, holds=False,
            registered=registered, generation=generation,
        )  # fmt: skip

    def register(self, dataset: Dataset, before: Mapping[str, Any] | None) -> None:
        """Note that the dataset is published with this declaration from now on; `before` is the one it had."""
        declared = Jsonb(full_declaration(dataset, before))
        self.connection.execute(statements.REGISTER, (dataset.name, dataset.store, declared))

    def staged(self, build: Build, batches: Sequence[StagedBatch]) -> None:
        """Record for every batch of the build what lies in the store, and what it was made from (its trace)."""
        inputs = [_inputs_text(build.inputs.get(batch.partition, ())) for batch in batches]
        with self.connection.transaction():
            Parts(self.connection).record(build, batches)
            self.connection.execute(
                statements.STAGED,
                (
                    [batch.partition.path for batch in batches],
                    [batch.location for batch in batches],
                    [batch.rows for batch in batches],
                    [batch.size for batch in batches],
                    [batch.files for batch in batches],
                    inputs,
                    [batch.content for batch in batches],
                    [
                        json.dumps({bounds.column: [bounds.low, bounds.high] for bounds in batch.bounds})
                        for batch in batches
                    ],
                    [json.dumps(dict(batch.digests)) if batch.digests else None for batch in batches],
                    build.dataset.name,
                    build.batch_id.millis,
                ),
            )

    def publish(self, build: Build, *, at: dt.datetime | None = None) -> None:
        """Point every partition of the build at its batch: compare and swap, all or nothing.

        Opens a transaction, or a savepoint inside the caller's: a warehouse swaps its view in the same one. `at` is the
        time of the publish where several builds share one.

        Raises StalePublish where another batch has become current since the build began, and LeaseLost where its run
        counts as dead, and CodeNotDeployed where other code was deployed or readers left its generation since.
        """
        batch_id, paths = build.batch_id.millis, build.paths
        with self.connection.transaction():
            Leases(self.connection).refuse_lost(build.run_id, str(build))
            Deployments(self.connection).refuse_other_code(build)
            self._refuse_stale(build)
            Generations(self.connection).refuse_left(build)
            targets = dict.fromkeys(paths, batch_id)
            count = self._point(build, targets, at or self.instant(), kind="publish", reason="", states=["staged"])
            if count != len(paths):
                raise StalePublish(
                    f"{build}: {len(paths) - count} of {len(paths)} batches are not staged any more; "
                    f"another run took them for dead. {NOTHING_LOST} Rerun the partitions."
                )
            self.let_go(build)
            if build.registered != full_declaration(build.dataset, build.registered):
                self.register(build.dataset, build.registered)

    def let_go(self, build: Build) -> None:
        """Leave the partitions of the build to the sensors again, which a rollback has told to leave them alone."""
        self.connection.execute(statements.LET_GO, (build.dataset.name, build.paths))

    def publish_all(self, builds: Iterable[Build]) -> None:
        """Publish several builds in one transaction, or in the caller's, all with the same time of publish."""
        with self.connection.transaction():
            at = self.instant()
            for build in builds:
                self.publish(build, at=at)

    def instant(self) -> dt.datetime:
        """The current time of the server's clock, which gives all publishes their times."""
        row = self.connection.execute(statements.INSTANT).fetchone()
        assert row is not None
        instant: dt.datetime = row[0]
        return instant

    def repoint(
        self, build: Build, targets: Mapping[PartitionKey, BatchId], *, reason: str = "", at: dt.datetime | None = None
    ) -> None:
        """Make earlier batches current again: compare and swap, all or nothing, as `publish` does.

        A partition of the build without a target is withdrawn: it has no batch afterwards. Where the build `holds` its
        partitions, the sensors leave them alone until one of their inputs changes.

        Opens a transaction, or a savepoint inside the caller's. Raises StalePublish where another batch has become
        current since the build began, NotKept where a target was swept or never published, and CodeNotDeployed where
        other code than the build's was deployed since.
        """
        name = build.dataset.name
        target_ids = {partition.path: target.millis for partition, target in targets.items()}
        with self.connection.transaction():
            Leases(self.connection).refuse_lost(build.run_id, str(build))
            Deployments(self.connection).refuse_other_code(build)
            self._refuse_stale(build)
            self._refuse_not_kept(
                statements.LOCK_TARGETS, name, target_ids,
                generation=build.generation, holds=build.holds,
            )  # fmt: skip
            kind, states = "rollback" if build.holds else "publish", ["retired", "published"]
            count = self._point(build, target_ids, at or self.instant(), kind=kind, reason=reason, states=states)
            assert count == len(target_ids), "the targets are locked and were checked"
            withdrawn = [path for path in build.paths if path not in target_ids]
            self.connection.execute(statements.WITHDRAW, (name, withdrawn))
            if build.holds:
                self.connection.execute(statements.HOLD, (name, self.instant(), build.paths))
                GoingForward(self.connection).accept_returned(build.dataset, list(target_ids))

    def fail(
        self,
        build: Build,
        reason: str,
        blamed: Mapping[str, str] | None = None,
        broken: Collection[str] = (),
        *,
        outage: bool = False,
    ) -> int:
        """Mark the unpublished batches of the build as failed. Returns how many: 0 where the build has published.

        `broken` are the names of the expectations that rows of it broke. Where only some of its partitions are
        `blamed`, by their paths and with a reason of their own or none, the batches of the others are forgotten as if
        they had not begun: those need not wait until they are tried again. With `outage` it was no attempt: a service
        was away.
        """
        with self.connection.transaction():
            of_build = (build.dataset.name, build.batch_id.millis)
            # Blame of others counts for nothing: all of them would be tried again at once, for ever.
            if of_those := [path for path in build.paths if path in (blamed or {})]:
                self.connection.execute(statements.FORGET_OTHERS, (*of_build, of_those))
            count = self.connection.execute(statements.FAIL, (_as_kept(reason), *of_build)).rowcount
            own = {path: _as_kept(own_reason) for path in of_those if (own_reason := (blamed or {})[path])}
            if own and count:
                self.connection.execute(statements.NOTE_REASONS, (list(own), list(own.values()), *of_build))
            if broken and count:
                self.connection.execute(statements.NOTE_BROKEN, (sorted(broken), *of_build))
            if outage and count:
                self.connection.execute(statements.NOTE_OUTAGE, of_build)
            return count

    def release(self, build: Build) -> None:
        """Release the build's locks; where it added many partitions, have PostgreSQL make its statistics again.

        The publish does not do that: it may be part of a view swap, and readers wait for the end of a swap.
        """
        PartitionLocks(self.connection, self.environment).release(build.dataset, build.paths)
        self.connection.execute(UNMARK_SESSION, (build.run_id,))
        if sum(batch_id is None for batch_id in build.expected.values()) >= _MANY_NEW:
            self.connection.execute(statements.ANALYZE)

    def arrived(
        self, dataset: str, partition: PartitionKey, *, uri: str, size: int, fingerprint: str, stamp: str = ""
    ) -> bool:
        """Record a landing file and its state. Returns whether it is new or has other content than before."""
        arrival = {"uri": uri, "bytes": size, "fingerprint": fingerprint, "stamp": stamp}
        row = self.connection.execute(
            statements.ARRIVED, {"dataset": dataset, "partition": partition.path, **arrival}
        ).fetchone()
        return row is not None and bool(row[0])

    def departed_unused(self, dataset: str, paths: Sequence[str], source: str) -> None:
        """Forget landing files that are gone before a batch was made of them; `source` is their name in traces."""
        if paths:
            self.connection.execute(statements.DEPARTED_UNUSED, (dataset, list(paths), source))

    def departed(self, dataset: str, paths: Sequence[str]) -> None:
        """Forget the landing files of partitions that do not exist any more; their batches stay."""
        self.connection.execute(statements.DEPARTED, (dataset, list(paths)))

    def _begin(
        self, dataset: Dataset, partitions: Sequence[PartitionKey], run_id: str, code_version: str | None
    ) -> Build:
        paths = [partition.path for partition in partitions]
        PartitionLocks(self.connection, self.environment).take(dataset, paths)
        self.connection.execute(MARK_SESSION, (run_id,))
        with self.connection.transaction():
            registration = (dataset.name, dataset.store, Jsonb(full_declaration(dataset)))
            self.connection.execute(statements.REGISTER_FIRST, registration)
            registered, generation = self._registered(dataset)
            self.connection.execute(statements.FAIL_LOCKED, (statements.KILLED, dataset.name, self.environment, paths))
            row = self.connection.execute(statements.NEXT_BATCH_ID).fetchone()
            assert row is not None
            batch_id = BatchId(row[0])
            if code_version is not None:
                begun = {
                    "dataset": dataset.name, "batch": batch_id.millis, "run": run_id, "code": code_version,
                    "environment": self.environment, "paths": paths,
                }  # fmt: skip
                self.connection.execute(statements.BEGIN, begun)
            current = self._pointers(dataset, paths)
        expected = {
            partition: BatchId(current[partition.path]) if partition.path in current else None
            for partition in partitions
        }
        return Build(
            dataset, tuple(partitions), batch_id, run_id, expected,
            code_version=code_version or "", registered=registered, generation=generation,
        )  # fmt: skip

    def _registered(self, dataset: Dataset) -> tuple[Mapping[str, Any] | None, int | None]:
        """The declaration of the last publish, and the generation of a build, where readers do not see that one."""
        row = self.connection.execute(statements.DECLARED, (dataset.name,)).fetchone()
        return (None if row is None else row[0]), None

    def _pointers(self, dataset: Dataset, paths: Sequence[str]) -> dict[str, int]:
        """The current batches of these partitions, which a publish expects to find again."""
        return dict(self.connection.execute(statements.EXPECTED, (dataset.name, paths)).fetchall())

    def _refuse_stale(self, build: Build) -> None:
        """Lock the current batches of the build's partitions; raise StalePublish where they changed since it began."""
        rows = self.connection.execute(statements.LOCK_CURRENT, (build.dataset.name, build.paths)).fetchall()
        current = {path: BatchId(batch_id) for path, batch_id in rows}
        stale = [
            f"{partition}: expected {expected or 'none'} to be current, found {current.get(path) or 'none'}"
            for partition, path in zip(build.partitions, build.paths, strict=True)
            if current.get(path) != (expected := build.expected[partition])
        ]
        if stale:
            raise StalePublish(
                f"{build} is older than what is current: {some(stale, limit=3)}. {NOTHING_LOST} "
                "Rerun the partitions to build on what is current now."
            )

    def look_at_targets(self, dataset: str, targets: Mapping[str, BatchId]) -> None:
        """Raise NotKept where a rollback to these batches, by partition path, would be refused; nothing is locked."""
        ids = {path: batch_id.millis for path, batch_id in targets.items()}
        self._refuse_not_kept(statements.TARGETS, dataset, ids, generation=None, holds=True)

    def _refuse_not_kept(
        self, statement: str, dataset: str, targets: Mapping[str, int], *, generation: int | None, holds: bool
    ) -> None:
        """Read the targets of a rollback by this statement, which may lock them. Raises NotKept."""
        parameters = {
            "partitions": list(targets), "ids": list(targets.values()), "dataset": dataset, "generation": generation,
        }  # fmt: skip
        batches = {(path, batch_id): rest for path, batch_id, *rest in self.connection.execute(statement, parameters)}
        problems, of_others = [], []
        for path, batch_id in targets.items():
            state, swept_at, environment, is_other = batches.get((path, batch_id), ("unknown", None, "", False))
            if state == "swept":
                problems.append(f"{path} batch {batch_id} was swept on {swept_at:%Y-%m-%d %H:%M} UTC")
            elif environment and holds:
                problems.append(f"{path} batch {batch_id} is of environment {environment}, and was never current")
            elif state not in {"retired", "published"}:
                problems.append(f"{path} batch {batch_id} was never published (it is {state})")
            if is_other:
                of_others.append(
                    f"{path} batch {batch_id} is of another generation than readers see (`varve evolve "
                    f"{dataset}` with the declaration of then goes back to it)"
                )
        problems += of_others
        if problems:
            raise NotKept(
                f"{dataset}: cannot go back: {some(problems, limit=3)}. Nothing was changed. "
                f"`varve history {dataset}` lists what can be had."
            )

    def _point(
        self,
        build: Build,
        targets: Mapping[str, int],
        at: dt.datetime,
        *,
        kind: str,
        reason: str,
        states: Sequence[str],
    ) -> int:
        """Retire what is current, point at the targets, and record it. Returns how many targets were in `states`."""
        name = build.dataset.name
        paths, ids = list(targets), list(targets.values())
        retired = {
            path: expected.millis
            for partition, path in zip(build.partitions, build.paths, strict=True)
            if (expected := build.expected[partition]) is not None
        }
        self.connection.execute(statements.RETIRE, (at, name, *_batch_parameters(retired)))
        self.connection.execute(statements.POINT, (name, paths, ids))
        done = self.connection.execute(statements.PUBLISHED, (at, name, *_batch_parameters(targets), states)).rowcount
        recorded = [targets.get(path) for path in build.paths]
        self.connection.execute(
            statements.RECORD, (name, build.batch_id.millis, kind, build.run_id, reason, at, build.paths, recorded)
        )
        return done


def _batch_parameters(batches: Mapping[str, int]) -> tuple[object, ...]:
    """The parameters of RETIRE and PUBLISHED: partitions, their batch ids, and (twice) the pairs where ids differ."""
    ids = sorted(set(batches.values()))
    pairs = [f"{batch_id}/{path}" for path, batch_id in batches.items()] if len(ids) > 1 else None
    return list(batches), ids, pairs, pairs


def _as_kept(reason: str) -> str:
    """The beginning of an error, without what PostgreSQL takes in no text: an error may quote any value of the data."""
    return reason[:_REASON].replace("\0", "\u2400").encode(errors="replace").decode()


def _inputs_text(inputs: Iterable[Input]) -> str:
    return json.dumps(sorted([read.source, read.partition, read.version] for read in inputs))
