"""The catalog: PostgreSQL tables that say which batch of each partition is current; the only truth.

Each method is one statement or one short transaction over any number of partitions. Locks of a build are session locks
on the connection given: losing it loses the locks, and a build without its connection cannot publish.

Not here: what is asked of it (reader.py), how far those have come who follow it (projection_progress.py), its SQL
(statements.py), where batches lie (lake/, warehouse/) and when to build them (varve/planning).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from varve.catalog import statements
from varve.catalog.leases import MARK_SESSION, UNMARK_SESSION, Leases, holding
from varve.catalog.parts import Parts
from varve.catalog.projection_progress import ProjectionProgress
from varve.catalog.reader import CatalogReader
from varve.catalog.rows import declaration
from varve.model.batch import BatchId, StagedBatch
from varve.model.build import Build
from varve.model.errors import NOTHING_LOST, AlreadyBuilding, NotKept, StalePublish, VarveError, some

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping, Sequence

    from varve.model.batch import Input
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey

VERSION = 8
# New partitions of one build, from which on the statistics of before are worse than none.
_MANY_NEW = 200
# The script that makes each version of the schema out of the one before.
_STEPS = {1: "catalog.sql", **{version: f"catalog_{version}.sql" for version in range(2, VERSION + 1)}}


@dataclass(frozen=True)
class Catalog(ProjectionProgress, CatalogReader):
    """The catalog over one connection, which must be in autocommit mode and not shared between threads."""

    def ensure_schema(self) -> None:
        """Make the catalog's tables, or bring older ones up to date; safe to call from several processes at once.

        Raises VarveError where a newer Varve has made them.
        """
        if self._schema_version() == VERSION:
            return
        with self.connection.transaction():
            self.connection.execute(statements.LOCK_SCHEMA)
            found = self._schema_version()
            if found > VERSION:
                raise VarveError(
                    f"the catalog has version {found} of its schema, and this Varve knows {VERSION}: a newer one has "
                    "upgraded it. Nothing was read or changed. Install that Varve here too."
                )
            for version in range(found + 1, VERSION + 1):
                script = resources.files("varve.catalog").joinpath(_STEPS[version]).read_text(encoding="utf-8")
                self.connection.execute(script.encode())
            self.connection.execute(statements.SET_SCHEMA_VERSION, (VERSION,))

    def begin(self, dataset: Dataset, partitions: Sequence[PartitionKey], *, run_id: str, code_version: str) -> Build:
        """Lock the partitions, remember what is current, and start a batch of each.

        Raises AlreadyBuilding, naming the run that holds a partition, and then holds no lock.
        """
        return self._begin(dataset, partitions, run_id, code_version)

    def take(self, dataset: Dataset, partitions: Sequence[PartitionKey], *, run_id: str) -> Build:
        """Lock the partitions and remember what is current, to put earlier batches back in force: starts no batch.

        Raises AlreadyBuilding, as `begin` does.
        """
        return self._begin(dataset, partitions, run_id, None)

    def staged(self, build: Build, batches: Sequence[StagedBatch]) -> None:
        """Record what lies in the store, and the trace, for every batch of the build."""
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
                    [json.dumps({one.column: [one.low, one.high] for one in batch.bounds}) for batch in batches],
                    build.dataset.name,
                    build.batch_id.millis,
                ),
            )

    def publish(self, build: Build, *, at: dt.datetime | None = None) -> None:
        """Point every partition of the build at its batch: compare and swap, all or nothing.

        Opens a transaction, or a savepoint inside the caller's: a warehouse swaps its view in the same one. `at` is the
        instant of a publish that has other builds too. Raises StalePublish where another batch has become current since
        the build began, and LeaseLost where its run counts as dead.
        """
        name, batch_id = build.dataset.name, build.batch_id.millis
        paths = build.paths
        with self.connection.transaction():
            Leases(self.connection).refuse_lost(build.run_id, str(build))
            self._refuse_stale(build)
            targets = dict.fromkeys(paths, batch_id)
            done = self._point(build, targets, at or self.instant(), kind="publish", reason="", states=["staged"])
            if done != len(paths):
                raise StalePublish(
                    f"{build}: {len(paths) - done} of {len(paths)} batches are not staged any more; "
                    f"another run took them for dead. {NOTHING_LOST} Rerun the partitions."
                )
            self.connection.execute(statements.LET_GO, (name, paths))
            if build.registered != (declared := declaration(build.dataset)):
                self.connection.execute(statements.REGISTER, (name, build.dataset.store, Jsonb(declared)))

    def publish_all(self, builds: Iterable[Build]) -> None:
        """Publish several builds in one transaction, or in the caller's, and as of one instant."""
        with self.connection.transaction():
            at = self.instant()
            for build in builds:
                self.publish(build, at=at)

    def instant(self) -> dt.datetime:
        """Now, by the server's clock: the one by which publishes are told apart."""
        row = self.connection.execute(statements.INSTANT).fetchone()
        assert row is not None
        found: dt.datetime = row[0]
        return found

    def repoint(
        self, build: Build, targets: Mapping[PartitionKey, BatchId], *, reason: str = "", at: dt.datetime | None = None
    ) -> None:
        """Put earlier batches back in force: compare and swap, all or nothing, as `publish` does.

        A partition of the build without a target is withdrawn: it has no batch afterwards. Where the build `holds`, the
        sensors leave all of them alone until an input changes.

        Opens a transaction, or a savepoint inside the caller's. Raises StalePublish where another batch has become
        current since the build began, and NotKept where a target was swept or never published.
        """
        name = build.dataset.name
        wanted = {partition.path: target.millis for partition, target in targets.items()}
        with self.connection.transaction():
            Leases(self.connection).refuse_lost(build.run_id, str(build))
            self._refuse_stale(build)
            self._refuse_not_kept(build, wanted)
            kind, states = "rollback" if build.holds else "publish", ["retired", "published"]
            done = self._point(build, wanted, at or self.instant(), kind=kind, reason=reason, states=states)
            assert done == len(wanted), "the targets are locked and were looked at"
            withdrawn = [path for path in build.paths if path not in wanted]
            self.connection.execute(statements.WITHDRAW, (name, withdrawn))
            if build.holds:
                self.connection.execute(statements.HOLD, (name, self.instant(), build.paths))

    def fail(self, build: Build, reason: str) -> int:
        """Mark what the build has not published as failed; how many partitions, none where it has published."""
        found = self.connection.execute(statements.FAIL, (reason[:2_000], build.dataset.name, build.batch_id.millis))
        return found.rowcount

    def release(self, build: Build) -> None:
        """Give the build's locks back; where it added much, let PostgreSQL look at what there is now.

        Not in the publish: it may be part of a swap, for whose end readers of a view wait.
        """
        self.connection.execute(statements.UNLOCK, (build.dataset.name, build.paths))
        self.connection.execute(UNMARK_SESSION, (build.run_id,))
        if sum(known is None for known in build.expected.values()) >= _MANY_NEW:
            self.connection.execute(statements.ANALYZE)

    def dead(self) -> list[tuple[str, str, BatchId]]:
        """(dataset, partition, batch) of every build whose run ended without a word."""
        rows = self.connection.execute(statements.DEAD)
        return [(dataset, path, BatchId(batch_id)) for dataset, path, batch_id in rows]

    def bury_dead(self) -> int:
        """Mark those as failed; how many."""
        return self.connection.execute(statements.BURY_DEAD, (statements.KILLED,)).rowcount

    def arrived(
        self, dataset: str, partition: PartitionKey, *, uri: str, size: int, fingerprint: str, stamp: str = ""
    ) -> bool:
        """Record a landing file, and the state in which it was; whether it is new, or has other content than before."""
        given = {"uri": uri, "bytes": size, "fingerprint": fingerprint, "stamp": stamp}
        row = self.connection.execute(
            statements.ARRIVED, {"dataset": dataset, "partition": partition.path, **given}
        ).fetchone()
        return row is not None and bool(row[0])

    def departed_unused(self, dataset: str, paths: Sequence[str], source: str) -> None:
        """Forget what had arrived and is gone before a batch was made of it; `source`: what traces call it."""
        if paths:
            self.connection.execute(statements.DEPARTED_UNUSED, (dataset, list(paths), source))

    def departed(self, dataset: str, paths: Sequence[str]) -> None:
        """Forget what had arrived of partitions that are there no more; their batches stay."""
        self.connection.execute(statements.DEPARTED, (dataset, list(paths)))

    def _schema_version(self) -> int:
        if self.connection.execute(statements.HAS_SCHEMA).fetchone() is None:
            return 0
        row = self.connection.execute(statements.SCHEMA_VERSION).fetchone()
        assert row is not None
        return int(row[0])

    def _begin(
        self, dataset: Dataset, partitions: Sequence[PartitionKey], run_id: str, code_version: str | None
    ) -> Build:
        paths = [partition.path for partition in partitions]
        refused = self._lock(dataset, paths)
        if refused and self._end_dead_holders(dataset, refused):
            refused = self._lock(dataset, paths)
        if refused:
            raise self._already_building(dataset, refused)
        self.connection.execute(MARK_SESSION, (run_id,))
        with self.connection.transaction():
            first = (dataset.name, dataset.store, Jsonb(declaration(dataset)))
            self.connection.execute(statements.REGISTER_FIRST, first)
            registered = self.connection.execute(statements.DECLARED, (dataset.name,)).fetchone()
            self.connection.execute(statements.BURY, (statements.KILLED, dataset.name, paths))
            row = self.connection.execute(statements.NEXT_BATCH_ID).fetchone()
            assert row is not None
            batch_id = BatchId(row[0])
            if code_version is not None:
                self.connection.execute(statements.BEGIN, (dataset.name, batch_id.millis, run_id, code_version, paths))
            found: dict[str, int] = dict(self.connection.execute(statements.EXPECTED, (dataset.name, paths)).fetchall())
        expected = {
            partition: BatchId(found[partition.path]) if partition.path in found else None for partition in partitions
        }
        return Build(
            dataset, tuple(partitions), batch_id, run_id, expected,
            code_version=code_version or "", registered=None if registered is None else registered[0],
        )  # fmt: skip

    def _lock(self, dataset: Dataset, paths: Sequence[str]) -> list[str]:
        """Lock all of the partitions, or none; those that others hold."""
        taken = self.connection.execute(statements.LOCK, (dataset.name, paths)).fetchall()
        refused = [path for path, got in taken if not got]
        if refused:
            self.connection.execute(statements.UNLOCK, (dataset.name, [path for path, got in taken if got]))
        return refused

    def _end_dead_holders(self, dataset: Dataset, refused: Sequence[str]) -> bool:
        """Whether runs that hold these partitions count as dead; their sessions are then ended, where we may."""
        holders = self.connection.execute(statements.HOLDERS, (dataset.name, list(refused))).fetchall()
        leases = Leases(self.connection)
        dead = leases.lost({run_id for _, run_id, _ in holders})
        for run_id in dead:
            leases.end_sessions(run_id)
        return bool(dead)

    def _refuse_stale(self, build: Build) -> None:
        """Lock what is current of the build's partitions, and compare it with what was when the build began."""
        rows = self.connection.execute(statements.LOCK_CURRENT, (build.dataset.name, build.paths)).fetchall()
        found = {path: BatchId(current) for path, current in rows}
        stale = [
            f"{partition}: expected {expected or 'none'} to be current, found {found.get(path) or 'none'}"
            for partition, path in zip(build.partitions, build.paths, strict=True)
            if found.get(path) != (expected := build.expected[partition])
        ]
        if stale:
            raise StalePublish(
                f"{build} is older than what is current: {some(stale, limit=3)}. {NOTHING_LOST} "
                "Rerun the partitions to build on what is current now."
            )

    def _refuse_not_kept(self, build: Build, wanted: Mapping[str, int]) -> None:
        """Lock the batches to go back to, which no sweep then takes. Raises NotKept."""
        parameters = (list(wanted), list(wanted.values()), build.dataset.name)
        found = {
            (path, batch_id): (state, swept_at)
            for path, batch_id, state, swept_at in self.connection.execute(statements.LOCK_TARGETS, parameters)
        }
        problems = []
        for path, batch_id in wanted.items():
            state, swept_at = found.get((path, batch_id), ("unknown", None))
            if state == "swept":
                problems.append(f"{path} batch {batch_id} was swept on {swept_at:%Y-%m-%d %H:%M} UTC")
            elif state not in {"retired", "published"}:
                problems.append(f"{path} batch {batch_id} was never published (it is {state})")
        if problems:
            raise NotKept(
                f"{build.dataset}: cannot go back: {some(problems, limit=3)}. Nothing was changed. "
                f"`varve history {build.dataset}` lists what can be had."
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
        """Retire what is current, point at the targets, and record it; how many targets were in one of the states."""
        name = build.dataset.name
        paths, ids = list(targets), list(targets.values())
        retired = {
            path: known.millis
            for partition, path in zip(build.partitions, build.paths, strict=True)
            if (known := build.expected[partition]) is not None
        }
        self.connection.execute(statements.RETIRE, (at, name, *_listed(retired)))
        self.connection.execute(statements.POINT, (name, paths, ids))
        done = self.connection.execute(statements.PUBLISHED, (at, name, *_listed(targets), states)).rowcount
        recorded = [targets.get(path) for path in build.paths]
        self.connection.execute(
            statements.RECORD, (name, build.batch_id.millis, kind, build.run_id, reason, at, build.paths, recorded)
        )
        return done

    def _already_building(self, dataset: Dataset, refused: Sequence[str]) -> AlreadyBuilding:
        holders = self.connection.execute(statements.HOLDERS, (dataset.name, list(refused))).fetchall()
        leases = Leases(self.connection)
        told = {run_id: holding(leases, run_id) for run_id in {run_id for _, run_id, _ in holders}}
        said = [
            f"{path} (run {run_id}, since {at:%Y-%m-%d %H:%M:%S} UTC{told[run_id]})" for path, run_id, at in holders
        ]
        return AlreadyBuilding(
            f"{dataset}: another run is building {some(said or refused, limit=3)}. One run writes a partition at a "
            "time; nothing was changed by this one. Wait for the other, or end it, and run again."
        )


def _listed(batches: Mapping[str, int]) -> tuple[object, ...]:
    """Batch ids by partition as RETIRE and PUBLISHED ask for them: partitions, ids, and pairs (twice) if ids differ."""
    ids = sorted(set(batches.values()))
    pairs = [f"{batch_id}/{path}" for path, batch_id in batches.items()] if len(ids) > 1 else None
    return list(batches), ids, pairs, pairs


def _inputs_text(inputs: Iterable[Input]) -> str:
    return json.dumps(sorted([found.source, found.partition, found.version] for found in inputs))
