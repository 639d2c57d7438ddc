"""What the catalog keeps, as values and back: declarations, and the rows of its queries for batches.

Not here: any query (catalog.py, history/history.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.model.batch import Batch, BatchId, Input

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varve.model.dataset import Dataset


def declaration(dataset: Dataset) -> dict[str, Any]:
    """What a dataset declares, as the catalog and manifests keep it."""
    return {
        "columns": [[column.name, column.type, column.nullable, column.comment] for column in dataset.schema.columns],
        "partition_columns": [[column.name, column.type] for column in dataset.partition_columns],
        "comment": dataset.comment,
        **({} if (into := dataset.reject_into) is None else {"reject_into": [into.at_most, into.dataset]}),
    }


def batches_of(rows: Iterable[tuple[Any, ...]]) -> dict[str, Batch]:
    """Rows of a query for published batches as values, by partition."""
    return {
        partition: Batch(
            partition,
            BatchId(batch_id),
            location,
            count,
            size,
            run_id,
            published_at,
            frozenset(Input(*found) for found in inputs),
            content,
        )
        for partition, batch_id, location, count, size, run_id, published_at, inputs, content in rows
    }
