"""Batches of partitions that grow: the tables of the batch before and one of their own; put together, one table again.

Nothing is copied to add rows: a batch lists the tables that it consists of, and the view has an arm for each. When no
more is expected they are copied into one, which must hold the same rows by their number and by their hash.

Not here: which files are new (varve/sources/landing/growth.py), and the views (warehouse/projection.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from psycopg import sql

from varve.catalog.parts import added_content, rows_of
from varve.model.batch import BatchId, Part, TakenFile
from varve.model.errors import NOTHING_LOST, VerifyFailed
from varve.stores.warehouse.tables import notes, view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from varve.model.batch import StagedBatch
    from varve.model.build import Build
    from varve.model.inventory import DescribedBatch
    from varve.model.partitions.key import PartitionKey


def fill(connection: psycopg.Connection, build: Build, partition: PartitionKey, table: str) -> None:
    """Copy the rows of the parts into the empty table of a batch that puts them together; else nothing."""
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
    """Raise VerifyFailed where parts that were put together are not the rows that they were loaded with."""
    for batch in loaded:
        growth = build.growth.get(batch.partition)
        if growth is None or not growth.fold:
            continue
        seals = notes.seals(connection, [batch.location, *(part.location for part in growth.parts)])
        ours, theirs = seals[batch.location], [seals.get(part.location) for part in growth.parts]
        other = None not in theirs and sum(one for one in theirs if one is not None) != ours
        if other or batch.rows != rows_of(growth.parts):
            raise VerifyFailed(
                f"{build}: the {len(growth.parts)} tables of {batch.partition} had {rows_of(growth.parts)} rows when "
                f"they were loaded, and put together they have {batch.rows}{', of another hash' if other else ''}: "
                f"somebody changed one. {NOTHING_LOST} `varve doctor {build.dataset} --deep` says which; "
                f"`varve backfill {build.dataset}` reads all files again."
            )


def with_base(build: Build, loaded: StagedBatch) -> StagedBatch:
    """The batch with what it keeps of the one before: its parts, and what they hold together."""
    growth = build.growth.get(loaded.partition)
    if growth is None:
        return loaded
    own = Part(build.batch_id, loaded.location, loaded.rows, loaded.size, growth.files)
    if growth.base is None:
        return replace(loaded, parts=(own,))
    if growth.fold:
        return replace(loaded, parts=(own,), content=growth.base.content)
    return replace(
        loaded,
        rows=growth.base.rows + loaded.rows,
        size=growth.base.size + loaded.size,
        files=len(growth.parts) + 1,
        content=added_content(growth.base.content, loaded.content),
        parts=(*growth.parts, own),
    )


def description(build: Build, batch: StagedBatch) -> dict[str, Any]:
    """What the table of a batch says of itself beyond its own rows; nothing where its partition does not grow."""
    growth = build.growth.get(batch.partition)
    if growth is None:
        return {}
    rows = rows_of(growth.parts) if growth.fold else batch.rows
    own = replace(batch, location="", rows=rows)
    whole = with_base(build, own)
    return {
        "rows": rows,
        "growth": {
            "rows": whole.rows,
            "content": whole.content,
            "parts": [part.batch_id.millis for part in whole.parts],
            "files": [[file.name, file.token, file.fingerprint, file.size] for file in growth.files],
        },
    }


def parts_said(tables: Mapping[tuple[str, int], tuple[dict[str, Any], str, int]]) -> dict[tuple[str, int], list[Part]]:
    """By partition and batch id the parts of every batch that grew and is whole, as tables say it.

    `tables` are whole tables: what each says, its name and its size.
    """
    parts = {
        (path, batch_id): Part(
            BatchId(batch_id), table, int(said["rows"]), size,
            tuple(TakenFile(*file) for file in said["growth"]["files"]),
        )
        for (path, batch_id), (said, table, size) in tables.items()
        if "growth" in said
    }  # fmt: skip
    wanted = {
        (path, batch_id): said["growth"]["parts"]
        for (path, batch_id), (said, _, _) in tables.items()
        if "growth" in said
    }
    return {
        (path, batch_id): [parts[path, part_id] for part_id in ids]
        for (path, batch_id), ids in wanted.items()
        if all((path, part_id) in parts for part_id in ids)
    }


def as_described(described: DescribedBatch, said: dict[str, Any], parts: Sequence[Part]) -> DescribedBatch:
    """A batch that grew, as it was published: with the rows of all its parts."""
    growth = said["growth"]
    return replace(
        described, rows=int(growth["rows"]), size=sum(part.size for part in parts), files=len(parts),
        content=growth["content"], parts=tuple(parts),
    )  # fmt: skip
