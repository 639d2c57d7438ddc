"""`EnvironmentCatalog`: the catalog as an environment sees it: a publish moves pointers of its overlay.

Batches of an environment are never current in production: they are kept like batches that were current once, and a
promotion points at them.

Not here: the environments themselves (environments.py), and which store writes the batches (varve/stores).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.living.leases import Leases
from varve.catalog.rows import batches_of
from varve.model.errors import NOTHING_LOST, NotKept, StalePublish, VarveError, some

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping, Sequence

    from varve.model.batch import Batch, BatchId
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey

_CURRENT = """
    select c.partition, c.batch_id, b.location, b.rows, b.bytes, b.run_id,
        coalesce(b.published_at, b.staged_at), b.inputs, b.content
    from varve.environment_current c cross join lateral (
        select * from varve.batch x
        where (x.dataset, x.partition, x.batch_id) = (c.dataset, c.partition, c.batch_id) offset 0
    ) b
    where c.environment = %s and c.dataset = %s and (%s::text[] is null or c.partition = any(%s)) order by c.partition
"""
_POINTERS = """
    select partition, batch_id from varve.overlay
    where environment = %s and dataset = %s and partition = any(%s) and batch_id is not null
"""
# Against a drop of the environment in this moment.
_LOCK_ENVIRONMENT = "select from varve.environment where name = %s for share"
_LOCK_POINTERS = _POINTERS + " order by partition for update"
# From now on the batches are kept, as those that were current once are.
_KEEP = """
    update varve.batch set state = 'retired', retired_at = clock_timestamp()
    where dataset = %s and batch_id = %s and partition = any(%s) and state = 'staged'
"""
# Against a sweep in this moment.
_LOCK_TARGETS = """
    select b.partition from varve.batch b
    join unnest(%s::text[], %s::bigint[]) as t (partition, batch_id) using (partition, batch_id)
    where b.dataset = %s and b.state in ('published', 'retired') order by b.partition for share of b
"""
_POINT = """
    insert into varve.overlay (environment, dataset, partition, batch_id)
    select %s, %s, t.partition, t.batch_id from unnest(%s::text[], %s::bigint[]) as t (partition, batch_id)
    on conflict (environment, dataset, partition) do update
    set batch_id = excluded.batch_id, pointed_at = clock_timestamp()
"""
_GENERATION = """
    select g.declaration, g.generation from varve.environment_generation g join varve.dataset d using (dataset)
    where g.environment = %s and g.dataset = %s and g.generation <> d.generation
"""
_WAS_PUBLISHED = "select from varve.overlay where environment = %s and dataset = %s and batch_id = %s limit 1"


@dataclass(frozen=True)
class EnvironmentCatalog(Catalog):
    """The catalog as an environment sees it, over one connection in autocommit mode."""

    def current(self, dataset: str, partitions: Iterable[PartitionKey] | None = None) -> dict[str, Batch]:
        """The batch of each of these partitions (None: of all) in the environment: of its overlay, else of its base."""
        paths = None if partitions is None else [partition.path for partition in partitions]
        return batches_of(self.connection.execute(_CURRENT, (self.environment, dataset, paths, paths)))

    def was_published(self, build: Build) -> bool:
        """Whether the overlay points at batches of this build."""
        parameters = (self.environment, build.dataset.name, build.batch_id.millis)
        return self.connection.execute(_WAS_PUBLISHED, parameters).rowcount > 0

    def publish(self, build: Build, *, at: dt.datetime | None = None) -> None:
        """Point the overlay at the staged batches of the build: compare and swap, all or nothing.

        Raises StalePublish where the overlay has changed since the build began, LeaseLost where its run counts as dead,
        and VarveError where the environment was dropped.
        """
        del at
        paths = build.paths
        with self.connection.transaction():
            self._lock_overlay(build)
            count = self.connection.execute(_KEEP, (build.dataset.name, build.batch_id.millis, paths)).rowcount
            if count != len(paths):
                raise StalePublish(
                    f"{build}: {len(paths) - count} of {len(paths)} batches are not staged any more; another run took "
                    f"them for dead. {NOTHING_LOST} Run the partitions again."
                )
            self._set_overlay(build, dict.fromkeys(paths, build.batch_id.millis))

    def repoint(
        self, build: Build, targets: Mapping[PartitionKey, BatchId], *, reason: str = "", at: dt.datetime | None = None
    ) -> None:
        """Point the overlay at existing batches; a partition without a target has none afterwards.

        Raises what `publish` raises, and NotKept where a batch was swept meanwhile.
        """
        del reason, at
        ids = {partition.path: target.millis for partition, target in targets.items()}
        with self.connection.transaction():
            self._lock_overlay(build)
            parameters = (list(ids), list(ids.values()), build.dataset.name)
            kept = {path for (path,) in self.connection.execute(_LOCK_TARGETS, parameters)}
            if lost := sorted(ids.keys() - kept):
                raise NotKept(f"{build.dataset}: the batches of {some(lost)} were swept. Nothing was changed.")
            self._set_overlay(build, {path: ids.get(path) for path in build.paths})

    def _registered(self, dataset: Dataset) -> tuple[Mapping[str, Any] | None, int | None]:
        """Those of the generation in which the environment builds the dataset."""
        row = self.connection.execute(_GENERATION, (self.environment, dataset.name)).fetchone()
        return super()._registered(dataset) if row is None else (row[0], row[1])

    def _lock_environment(self) -> None:
        if self.connection.execute(_LOCK_ENVIRONMENT, (self.environment,)).rowcount == 0:
            raise VarveError(f"environment {self.environment} was dropped. {NOTHING_LOST}")

    def _pointers(self, dataset: Dataset, paths: Sequence[str]) -> dict[str, int]:
        return dict(self.connection.execute(_POINTERS, (self.environment, dataset.name, list(paths))).fetchall())

    def _lock_overlay(self, build: Build) -> None:
        """Refuse a dead run, a dropped environment, and an overlay that has changed since the build began."""
        Leases(self.connection).refuse_lost(build.run_id, str(build))
        self._lock_environment()
        parameters = (self.environment, build.dataset.name, build.paths)
        current: dict[str, int] = dict(self.connection.execute(_LOCK_POINTERS, parameters).fetchall())
        expected = {
            partition.path: None if batch is None else batch.millis for partition, batch in build.expected.items()
        }
        if moved := [path for path in build.paths if current.get(path) != expected[path]]:
            raise StalePublish(
                f"{build}: another run in environment {self.environment} has computed {some(moved, limit=3)} since "
                f"this one began. {NOTHING_LOST} Run the partitions again."
            )

    def _set_overlay(self, build: Build, batches: Mapping[str, int | None]) -> None:
        self.connection.execute(_POINT, (self.environment, build.dataset.name, list(batches), list(batches.values())))
