"""Partitions that grow, in the catalog: the parts of each batch, the files of each part, and reopened partitions.

Why a batch lists parts: docs/decisions/0013. Not here: which files are new (planning/arrivals/growing.py), and how
stores add rows (stores/).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from varve.model.batch import BatchId, Part, TakenFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg

    from varve.model.batch import Batch, StagedBatch
    from varve.model.build import Build
    from varve.model.inventory import DescribedBatch

# Each batch is looked up by its key and not joined: PostgreSQL's statistics may not know the dataset yet.
_OF = """
    select b.partition, b.batch_id, p.part_id, p.location, p.rows, p.bytes
    from unnest(%s::text[], %s::bigint[]) as w (partition, batch_id)
    cross join lateral (
        select * from varve.batch_part x
        where (x.dataset, x.partition, x.batch_id) = (%s, w.partition, w.batch_id) offset 0
    ) b
    cross join lateral unnest(b.parts) with ordinality as u (part_id, place)
    cross join lateral (
        select * from varve.part x
        where (x.dataset, x.partition, x.part_id) = (b.dataset, b.partition, u.part_id) offset 0
    ) p
    order by b.partition, b.batch_id, u.place
"""
_FILES = """
    select partition, part_id, name, token, fingerprint, bytes from varve.part_file
    where dataset = %s and partition = any(%s) and part_id = any(%s) order by partition, part_id, name
"""
_RECORD_PART = """
    insert into varve.part (dataset, partition, part_id, location, rows, bytes) values (%s, %s, %s, %s, %s, %s)
    on conflict do nothing
"""
_RECORD_FILES = """
    insert into varve.part_file (dataset, partition, part_id, name, token, fingerprint, bytes)
    select %s, %s, %s, f.name, f.token, f.fingerprint, f.bytes
    from unnest(%s::text[], %s::text[], %s::text[], %s::bigint[]) as f (name, token, fingerprint, bytes)
    on conflict do nothing
"""
_RECORD_BATCH = """
    insert into varve.batch_part (dataset, partition, batch_id, parts, reason) values (%s, %s, %s, %s, %s)
    on conflict do nothing
"""
_REASONS = "select partition, reason from varve.batch_part where dataset = %s and batch_id = %s"
# The current batches with several parts, and the hash of the code that made each.
_SEVERAL = """
    select c.partition, c.batch_id, cardinality(g.parts), b.code_version
    from varve.current c
    join varve.batch_part g using (dataset, partition, batch_id) join varve.batch b using (dataset, partition, batch_id)
    where c.dataset = %s and cardinality(g.parts) > 1 order by c.partition
"""
_CODE = (
    "select partition, code_version from varve.batch where dataset = %s and batch_id = any(%s) and partition = any(%s)"
)
_MARKED = "select partition from varve.dirty where dataset = %s and partition = any(%s)"
# Batches whose data was deleted, and batches that failed.
_FORGET_BATCHES = """
    delete from varve.batch_part g using varve.batch b
    where g.dataset = %s and (b.dataset, b.partition, b.batch_id) = (g.dataset, g.partition, g.batch_id)
      and (b.state = 'failed' or b.deleted_at is not null)
"""
_FORGET_PARTS = """
    with needed as materialized (
        select partition, unnest(parts) as part_id from varve.batch_part where dataset = %(dataset)s
    ), gone as (
        delete from varve.part p where p.dataset = %(dataset)s
          and not exists (select from needed n where (n.partition, n.part_id) = (p.partition, p.part_id))
        returning p.partition, p.part_id
    )
    delete from varve.part_file f using gone
    where f.dataset = %(dataset)s and (f.partition, f.part_id) = (gone.partition, gone.part_id)
"""
_OPEN_AGAIN = """
    select partition from (
        select distinct on (partition) partition, is_open from varve.reopened
        where dataset = %s order by partition, at desc
    ) last where is_open
"""
_REOPEN = """
    insert into varve.reopened (dataset, partition, is_open, owner, reason)
    select %s, partition, %s, %s, %s from unnest(%s::text[]) as partition
"""


@dataclass(frozen=True)
class Parts:
    """The tables of growing partitions, over the catalog's connection."""

    connection: psycopg.Connection

    def of(self, dataset: str, batches: Iterable[tuple[str, BatchId]]) -> dict[tuple[str, int], tuple[Part, ...]]:
        """The parts of these batches, by partition and batch id, without their files.

        A batch that did not grow has no parts, and is missing.
        """
        keys = list(batches)
        paths, ids = [path for path, _ in keys], [batch_id.millis for _, batch_id in keys]
        collected: dict[tuple[str, int], list[Part]] = defaultdict(list)
        for path, batch_id, part_id, *part in self.connection.execute(_OF, (paths, ids, dataset)):
            collected[path, batch_id].append(Part(BatchId(part_id), *part))
        return {key: tuple(parts) for key, parts in collected.items()}

    def with_files(self, dataset: str, batches: Sequence[Batch]) -> dict[str, tuple[Part, ...]]:
        """The parts of these batches with their files, by partition."""
        parts = self.of(dataset, [(batch.partition, batch.batch_id) for batch in batches])
        ids = sorted({part.batch_id.millis for batch_parts in parts.values() for part in batch_parts})
        paths = [path for path, _ in parts]
        files: dict[tuple[str, int], list[TakenFile]] = defaultdict(list)
        for path, part_id, *file in self.connection.execute(_FILES, (dataset, paths, ids)):
            files[path, part_id].append(TakenFile(*file))
        return {
            path: tuple(replace(part, files=tuple(files[path, part.batch_id.millis])) for part in batch_parts)
            for (path, _), batch_parts in parts.items()
        }

    def code_versions(self, dataset: str, batches: Sequence[Batch]) -> dict[str, str]:
        """The hash of the code that made each of these batches, by partition; one batch of each partition."""
        ids, paths = [batch.batch_id.millis for batch in batches], [batch.partition for batch in batches]
        return dict(self.connection.execute(_CODE, (dataset, ids, paths)).fetchall())

    def marked(self, dataset: str, paths: Sequence[str]) -> set[str]:
        """Those of the partitions that somebody has marked as dirty and that are not computed again yet."""
        return {path for (path,) in self.connection.execute(_MARKED, (dataset, list(paths)))}

    def several(self, dataset: str) -> list[tuple[str, BatchId, int, str]]:
        """(partition, batch, number of parts, code version) of all current batches with more than one part."""
        rows = self.connection.execute(_SEVERAL, (dataset,))
        return [(path, BatchId(batch_id), count, version) for path, batch_id, count, version in rows]

    def reasons(self, dataset: str, batch_id: BatchId) -> dict[str, str]:
        """Why the batches of a build were made as they were, by partition."""
        return dict(self.connection.execute(_REASONS, (dataset, batch_id.millis)).fetchall())

    def record(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """Record the parts of staged batches, with the files of the new part; in the caller's transaction."""
        for batch in staged:
            if batch.parts:
                growth = build.growth.get(batch.partition)
                reason = growth.reason if growth is not None else ""
                # The other parts are those of the batch before, which are recorded already.
                self._record_parts(build.dataset.name, batch.partition.path, batch.parts[-1:])
                self._record_batch(build.dataset.name, batch.partition.path, build.batch_id, batch.parts, reason)

    def restore(self, dataset: str, described: Sequence[DescribedBatch]) -> None:
        """Record the parts of batches again, as the batches describe them in their store."""
        for batch in described:
            if batch.parts:
                self._record_parts(dataset, batch.partition, batch.parts)
                self._record_batch(dataset, batch.partition, batch.batch_id, batch.parts, "found again in its store")

    def forget(self, dataset: str) -> None:
        """Delete the rows of batches that were deleted or failed, and of parts that no batch lists any more."""
        with self.connection.transaction():
            self.connection.execute(_FORGET_BATCHES, (dataset,))
            self.connection.execute(_FORGET_PARTS, {"dataset": dataset})

    def open_again(self, dataset: str) -> set[str]:
        """The partitions of a dataset that a person has opened again after they were closed."""
        return {path for (path,) in self.connection.execute(_OPEN_AGAIN, (dataset,))}

    def reopen(self, dataset: str, paths: Sequence[str], *, is_open: bool, owner: str, reason: str) -> None:
        """Open partitions for late files, or close them again."""
        self.connection.execute(_REOPEN, (dataset, is_open, owner, reason, list(paths)))

    def _record_parts(self, dataset: str, path: str, parts: Sequence[Part]) -> None:
        for part in parts:
            key = (dataset, path, part.batch_id.millis)
            self.connection.execute(_RECORD_PART, (*key, part.location, part.rows, part.size))
            if part.files:
                columns = zip(
                    *[(file.name, file.token, file.fingerprint, file.size) for file in part.files], strict=True
                )
                self.connection.execute(_RECORD_FILES, (*key, *map(list, columns)))

    def _record_batch(self, dataset: str, path: str, batch_id: BatchId, parts: Sequence[Part], reason: str) -> None:
        ids = [part.batch_id.millis for part in parts]
        self.connection.execute(_RECORD_BATCH, (dataset, path, batch_id.millis, ids, reason))


def rows_of(parts: Iterable[Part]) -> int:
    """The number of rows of these parts together."""
    return sum(part.rows for part in parts)


def locations(parts: Mapping[tuple[str, int], Sequence[Part]]) -> dict[tuple[str, int], tuple[str, ...]]:
    """The tables of parts, by partition and batch id."""
    return {key: tuple(part.location for part in batch_parts) for key, batch_parts in parts.items()}
