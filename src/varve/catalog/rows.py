"""Conversions between values and what the catalog stores: declarations, and the rows of queries for batches.

Not here: the queries (statements.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.model.batch import Batch, BatchId, Input

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varve.model.dataset import Dataset


def declaration(dataset: Dataset) -> dict[str, Any]:
    """The declaration of a dataset, as the catalog and the manifests store it."""
    return {
        "columns": [[column.name, column.type, column.nullable, column.comment] for column in dataset.schema.columns],
        "partition_columns": [[column.name, column.type] for column in dataset.partition_columns],
        "comment": dataset.comment,
        **({} if (into := dataset.reject_into) is None else {"reject_into": [into.at_most, into.dataset]}),
    }


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
