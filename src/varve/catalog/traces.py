"""Traces: from which inputs batches were made, to show them, and to recognise work that was done before.

Not here: what a build reads (varve/dagster/runs/builds), and whether a partition is stale (varve/planning).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog.rows import batches_of
from varve.model.batch import BatchId, Input

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence

    import psycopg

    from varve.model.batch import Batch
    from varve.model.build import Build

_OF = """
    select b.partition, b.state, c.batch_id is not null, b.run_id, b.code_version, b.rows, b.content, b.started_at,
        b.published_at, b.inputs
    from varve.batch b left join varve.current c using (dataset, partition, batch_id)
    where b.dataset = %s and b.batch_id = %s and (%s::text[] is null or b.partition = any(%s)) order by b.partition
"""
_READ_BY = """
    select dataset, partition, batch_id, state from varve.batch
    where inputs @> jsonb_build_array(jsonb_build_array(%s::text, %s::text, %s::text)) order by 1, 2, 3
"""
_READ_BY_THESE = """
    select b.dataset, b.partition, b.batch_id, b.state
    from unnest(%s::text[], %s::text[]) r(dataset, partition) join varve.batch b using (dataset, partition)
    where b.inputs @> jsonb_build_array(jsonb_build_array(%s::text, %s::text, %s::text)) order by 1, 2, 3
"""
_NOW = """
    select c.dataset, c.partition, c.batch_id
    from unnest(%s::text[], %s::text[]) i(dataset, partition) join varve.current c using (dataset, partition)
"""
_INPUTS_NOW = """
    select c.dataset, c.partition, b.inputs from unnest(%s::text[], %s::text[]) i(dataset, partition)
    join varve.current c using (dataset, partition) join varve.batch b using (dataset, partition, batch_id)
"""
# The newest batch of each partition that still exists and that the same code made from the same inputs. The current
# batch does not count: who runs its partition again wants it computed. Partitions that are marked dirty have none: a
# mark says that the data is wrong, whatever it was made from.
_EQUAL = """
    select distinct on (b.partition) b.partition, b.batch_id, b.location, b.rows, b.bytes, b.run_id, b.published_at,
        b.inputs, b.content
    from unnest(%s::text[], %s::jsonb[]) w(partition, inputs)
    join varve.batch b on b.dataset = %s and b.partition = w.partition and b.inputs = w.inputs
    where b.code_version = %s and b.state = any(%s) and b.swept_at is null
      and b.generation = coalesce(%s::bigint, (select generation from varve.dataset d where d.dataset = b.dataset))
      and not exists (select from varve.dirty d where d.dataset = b.dataset and d.partition = b.partition)
    order by b.partition, b.batch_id desc
"""
_FORGET = "delete from varve.batch where dataset = %s and batch_id = %s and state = 'building'"


@dataclass(frozen=True, slots=True)
class Trace:
    """One batch, and everything from which it was made.

    Attributes:
        code_version: the hash of the code that made it.
        content: the hash of its rows; None where it was not asked for.
    """

    partition: str
    state: str
    is_current: bool
    run_id: str
    code_version: str
    rows: int | None
    content: str | None
    started_at: dt.datetime
    published_at: dt.datetime | None
    inputs: tuple[Input, ...]


@dataclass(frozen=True, slots=True)
class ReusedBatches:
    """What an asset returns instead of rows: existing batches that hold what it would compute."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True)
class Traces:
    """The traces in a catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def of(self, dataset: str, batch_id: BatchId, partitions: Sequence[str] | None = None) -> list[Trace]:
        """The traces of a build's batches, of these partitions or of all, whatever state the batches are in."""
        paths = None if partitions is None else list(partitions)
        rows = self.connection.execute(_OF, (dataset, batch_id.millis, paths, paths))
        return [Trace(*fields, tuple(Input(*read) for read in inputs)) for *fields, inputs in rows]  # type: ignore[call-arg]

    def read_by(self, dataset: str, partition: str, batch_id: BatchId) -> list[tuple[str, str, int, str]]:
        """(dataset, partition, batch, state) of every batch that was made from this one; reads the whole catalog."""
        return self.connection.execute(_READ_BY, (dataset, partition, str(batch_id))).fetchall()

    def read_by_these(
        self, dataset: str, partition: str, batch_id: BatchId, readers: Collection[tuple[str, str]]
    ) -> list[tuple[str, str, int, str]]:
        """The same among the batches of these (dataset, partition) only; costs what they are."""
        names, paths = [name for name, _ in readers], [path for _, path in readers]
        return self.connection.execute(_READ_BY_THESE, (names, paths, dataset, partition, str(batch_id))).fetchall()

    def current(self, partitions: Collection[tuple[str, str]]) -> dict[tuple[str, str], BatchId]:
        """The current batch of each of these (dataset, partition) that has one."""
        names, paths = [name for name, _ in partitions], [path for _, path in partitions]
        rows = self.connection.execute(_NOW, (names, paths))
        return {(name, path): BatchId(batch_id) for name, path, batch_id in rows}

    def inputs_of_current(self, partitions: Collection[tuple[str, str]]) -> dict[tuple[str, str], set[tuple[str, str]]]:
        """From which (source, partition) the current batch of each of these was made."""
        names, paths = [name for name, _ in partitions], [path for _, path in partitions]
        rows = self.connection.execute(_INPUTS_NOW, (names, paths))
        return {(name, path): {(source, read) for source, read, _ in inputs} for name, path, inputs in rows}

    def reusable_batches(self, build: Build, *, current_too: bool = False) -> ReusedBatches | None:
        """Earlier batches that the same code made from the build's inputs; None unless every partition has one.

        It may have been made in any environment. `current_too`: also the one that is current in production.
        """
        if not all(build.inputs.get(partition) for partition in build.partitions):
            return None
        inputs = {partition.path: build.inputs[partition] for partition in build.partitions}
        batches = self.equal_batches(
            build.dataset.name, build.code_version, inputs, current_too=current_too, generation=build.generation
        )
        return ReusedBatches(tuple(batches.values())) if len(batches) == len(inputs) else None

    def equal_batches(
        self,
        dataset: str,
        code_version: str,
        inputs: Mapping[str, Collection[Input]],
        *,
        current_too: bool,
        generation: int | None = None,
    ) -> dict[str, Batch]:
        """By partition the newest kept batch that this code made from exactly these inputs, where there is one.

        It may have been made in any environment. `current_too`: also one that is current in production. Of this
        `generation`; None: of the one that readers see.
        """
        texts = [json.dumps(sorted([read.source, read.partition, read.version] for read in reads))
                 for reads in inputs.values()]  # fmt: skip
        states = ["retired", "published"] if current_too else ["retired"]
        return batches_of(
            self.connection.execute(_EQUAL, (list(inputs), texts, dataset, code_version, states, generation))
        )

    def forget(self, build: Build) -> None:
        """Delete the rows of batches that a build began and does not need."""
        self.connection.execute(_FORGET, (build.dataset.name, build.batch_id.millis))
