"""Conversions between values and what the catalog stores: declarations, and the rows of queries for batches.

Not here: the queries (statements.py).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from varve.model.batch import Batch, BatchId, Input
from varve.model.evolution import DeclaredColumns
from varve.model.partitions.windows import windows_by_key
from varve.model.schema import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.policy import Policy


def declaration(dataset: Dataset, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The declaration of a dataset, as the manifests store it; see `full_declaration`.

    With the one `before` it, also the columns that earlier ones had: batches have them, and they keep their types.
    """
    earlier = columns_of(before or {})
    names = set(dataset.schema.names)
    former = {column.name: column.type for column in (*earlier.former, *earlier.data) if column.name not in names}
    return {
        "columns": [
            [column.name, column.type, column.nullable, column.comment, *([list(column.was)] if column.was else ())]
            for column in dataset.schema.columns
        ],
        "partition_columns": [[column.name, column.type] for column in dataset.partition_columns],
        **({} if dataset.partitioning.time is None else {"windows": dataset.partitioning.time.cut}),
        "comment": dataset.comment,
        **({"former_columns": [list(column) for column in former.items()]} if former else {}),
        **({} if (into := dataset.reject_into) is None else {"reject_into": [into.at_most, into.dataset]}),
    }


def full_declaration(dataset: Dataset, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The declaration of a dataset as the catalog keeps it once.

    With all windows of a calendar, which may be many, and with how long its replaced batches are retained.
    """
    time = dataset.partitioning.time
    listed = "" if time is None else windows_by_key(time)
    of_calendar = {"listed_windows": listed} if listed else {}
    return declaration(dataset, before) | of_calendar | _retained(dataset.policy)


def _retained(policy: Policy) -> dict[str, Any]:
    """How long sweeps keep replaced batches at least, in seconds, and how many: also where nobody declares it."""
    if policy.retain_batches is None and not policy.retain_last:
        return {}
    age = policy.retain_batches.total_seconds() if policy.retain_batches is not None else 0
    return {"retain_batches": [age, policy.retain_last]}


def retained_of(declaration: Mapping[str, Any]) -> tuple[dt.timedelta, int] | None:
    """How long sweeps keep replaced batches at least, and how many, by a declaration as the catalog stores it."""
    if (retained := declaration.get("retain_batches")) is None:
        return None
    seconds, last = retained
    return dt.timedelta(seconds=seconds), last


def columns_of(declaration: Mapping[str, Any]) -> DeclaredColumns:
    """The columns of a declaration, as the catalog stores it."""
    data: Sequence[Sequence[Any]] = declaration.get("columns", [])
    partitions: Sequence[Sequence[Any]] = declaration.get("partition_columns", [])
    former: Sequence[Sequence[Any]] = declaration.get("former_columns", [])
    return DeclaredColumns(
        tuple(
            Column(name, ColumnType(kind), comment, nullable, *map(tuple, was))
            for name, kind, nullable, comment, *was in data
        ),
        tuple(Column(name, ColumnType(kind)) for name, kind, *_ in partitions),
        tuple(Column(name, ColumnType(kind)) for name, kind, *_ in former),
        declaration.get("windows", ""),
        declaration.get("listed_windows", ""),
    )


def batches_of(rows: Iterable[tuple[Any, ...]]) -> dict[str, Batch]:
    """The batches in the rows of a query, by partition."""
    return {
        partition: Batch(
            partition,
            BatchId(batch_id),
            location,
            count,
            size,
            run_id,
            published_at,
            frozenset(Input(*input_fields) for input_fields in inputs),
            content,
        )
        for partition, batch_id, location, count, size, run_id, published_at, inputs, content in rows
    }
