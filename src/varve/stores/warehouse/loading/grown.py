"""Batches of partitions that grow: a batch lists the tables of the batch before and one table of its own.

To add rows, nothing is copied: the view has an arm for each table. When the partition is complete, the tables are
copied into one (a fold), which must hold the same rows by number and by hash. Why: docs/decisions/0013.

Not here: which landing files are new (sources/landing/growth.py), and the views (warehouse/projection.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from psycopg import sql

from varve.catalog.parts import rows_of
from varve.model.batch import BatchId, Part, TakenFile
from varve.model.errors import NOTHING_LOST, VerifyFailed
from varve.stores.folders.hash_text import added_content
from varve.stores.warehouse.tables import notes, view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from varve.model.batch import StagedBatch
    from varve.model.build import Build
    from varve.model.inventory import DescribedBatch
    from varve.model.partitions.key import PartitionKey


def fill(connection: psycopg.Connection, build: Build, partition: PartitionKey, table: str) -> None:
    """Copy the rows of the parts into the empty table of a fold; do nothing for other batches."""
    growth = build.growth.get(partition)
    if growth is None or not growth.fold:
        return
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in build.dataset.schema.columns)
    target = view.table_name(build.dataset, table)
    with connection.transaction():
        for part in growth.parts:
            source = view.table_name(build.dataset, part.location)
            connection.execute(sql.SQL("insert into {0} ({1}) select {1} from {2}").format(target, columns, source))


def refuse_other_rows(connection: psycopg.Connection, build: Build, loaded: Sequence[StagedBatch]) -> None:
    """Raise VerifyFailed where a fold does not hold the rows with which its parts were loaded."""
    for batch in loaded:
        growth = build.growth.get(batch.partition)
        if growth is None or not growth.fold:
            continue
        seals = notes.seals(connection, [batch.location, *(part.location for part in growth.parts)])
        ours, theirs = seals[batch.location], [seals.get(part.location) for part in growth.parts]
        other_hash = None not in theirs and sum(seal for seal in theirs if seal is not None) != ours
        if other_hash or batch.rows != rows_of(growth.parts):
            raise VerifyFailed(
                f"{build}: the {len(growth.parts)} tables of {batch.partition} had {rows_of(growth.parts)} rows when "
                f"they were loaded, and put together they have {batch.rows}{', of another hash' if other_hash else ''}"
                f": somebody changed one. {NOTHING_LOST} `varve doctor {build.dataset} --deep` says which; "
                f"`varve backfill start {build.dataset}` reads all files again."
            )


def with_base(build: Build, loaded: StagedBatch) -> StagedBatch:
    """The batch together with the parts that it keeps of the batch before: their rows, bytes and hash."""
    growth = build.growth.get(loaded.partition)
    if growth is None:
        return loaded
    new_part = Part(build.batch_id, loaded.location, loaded.rows, loaded.size, growth.files)
    if growth.base is None:
        return replace(loaded, parts=(new_part,))
    if growth.fold:
        return replace(loaded, parts=(new_part,), content=growth.base.content)
    return replace(
        loaded,
        rows=growth.base.rows + loaded.rows,
        size=growth.base.size + loaded.size,
        files=len(growth.parts) + 1,
        content=added_content(growth.base.content, loaded.content),
        parts=(*growth.parts, new_part),
    )


def description(build: Build, batch: StagedBatch) -> dict[str, Any]:
    """What a table's description says of growth; empty where the partition does not grow."""
    growth = build.growth.get(batch.partition)
    if growth is None:
        return {}
    rows = rows_of(growth.parts) if growth.fold else batch.rows
    own_rows = replace(batch, location="", rows=rows)
    whole = with_base(build, own_rows)
    return {
        "rows": rows,
        "growth": {
            "rows": whole.rows,
            "content": whole.content,
            "parts": [part.batch_id.millis for part in whole.parts],
            "files": [[file.name, file.token, file.fingerprint, file.size] for file in growth.files],
        },
    }


def parts_of_batches(
    tables: Mapping[tuple[str, int], tuple[dict[str, Any], str, int]],
) -> dict[tuple[str, int], list[Part]]:
    """The parts of every complete batch that grew, by partition and batch id.

    `tables` are complete tables: the description, name and size of each.
    """
    parts = {
        (path, batch_id): Part(
            BatchId(batch_id), table, int(description["rows"]), size,
            tuple(TakenFile(*file) for file in description["growth"]["files"]),
        )
        for (path, batch_id), (description, table, size) in tables.items()
        if "growth" in description
    }  # fmt: skip
    part_ids = {
        (path, batch_id): description["growth"]["parts"]
        for (path, batch_id), (description, _, _) in tables.items()
        if "growth" in description
    }
    return {
        (path, batch_id): [parts[path, part_id] for part_id in ids]
        for (path, batch_id), ids in part_ids.items()
        if all((path, part_id) in parts for part_id in ids)
    }


def with_parts(batch: DescribedBatch, description: dict[str, Any], parts: Sequence[Part]) -> DescribedBatch:
    """A batch that grew, as it was published: with the rows of all of its parts."""
    growth = description["growth"]
    return replace(
        batch, rows=int(growth["rows"]), size=sum(part.size for part in parts), files=len(parts),
        content=growth["content"], parts=tuple(parts),
    )  # fmt: skip
