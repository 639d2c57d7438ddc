"""What differs between two batches of a partition, as far as the catalog knows it.

Not here: which rows differ, which Spark reads (`varve diff`, varve/cli/rows/diff.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.catalog.history.history import History
from varve.catalog.traces import Traces
from varve.model.batch import BatchId
from varve.model.errors import VarveError

if TYPE_CHECKING:
    import psycopg

    from varve.catalog.history.rows import PastBatch
    from varve.catalog.traces import Trace
    from varve.model.dataset import Dataset

_LISTED = 500


def batch_differences(
    connection: psycopg.Connection, dataset: Dataset, path: str, first: int, last: int
) -> dict[str, Any]:
    """Both batches, their values side by side, and the inputs that one was made from and the other was not.

    Raises VarveError where one of them is no batch of the partition.
    """
    past = {batch.batch_id.millis: batch for batch in History(connection).batches(dataset.name, [path])}
    if missing := [number for number in (first, last) if number not in past]:
        listed = ", ".join(str(number) for number in list(past)[:8]) or "none"
        raise VarveError(f"{dataset} {path}: there is no batch {missing[0]}; there are {listed}.")
    before, after = past[first], past[last]
    traces = [Traces(connection).of(dataset.name, BatchId(number), [path])[0] for number in (first, last)]
    values = [
        {"name": name, "before": old, "after": new, "same": old == new}
        for (name, old), (_, new) in zip(_values(before, traces[0]), _values(after, traces[1]), strict=True)
    ]
    inputs = _inputs(*traces)
    return {
        "before": first, "after": last, "values": values, "columns": _columns(before, after),
        "inputs": inputs[:_LISTED], "more_inputs": max(0, len(inputs) - _LISTED),
        "same_content": before.content is not None and before.content == after.content,
    }  # fmt: skip


def _values(batch: PastBatch, trace: Trace) -> list[tuple[str, Any]]:
    return [
        ("state", batch.state.value), ("rows", batch.rows), ("bytes", batch.size), ("files", batch.files),
        ("hash of the rows", batch.content or "not hashed"), ("code", trace.code_version), ("run", batch.run_id),
        ("began (UTC)", f"{batch.started_at:%Y-%m-%d %H:%M:%S}"),
        ("published (UTC)", f"{batch.published_at:%Y-%m-%d %H:%M:%S}" if batch.published_at else ""),
    ]  # fmt: skip


def _columns(before: PastBatch, after: PastBatch) -> list[dict[str, Any]]:
    """The columns of whose values the catalog keeps bounds, and whose bounds differ."""
    old, new = ({bounds.column: [bounds.low, bounds.high] for bounds in batch.bounds} for batch in (before, after))
    return [
        {"column": column, "before": old.get(column), "after": new.get(column)}
        for column in sorted(old.keys() | new.keys())
        if old.get(column) != new.get(column)
    ]


def _inputs(before: Trace, after: Trace) -> list[dict[str, Any]]:
    old, new = ({(read.source, read.partition): read.version for read in trace.inputs} for trace in (before, after))
    return [
        {"source": source, "partition": partition, "before": old.get((source, partition)),
         "after": new.get((source, partition))}
        for source, partition in sorted(old.keys() | new.keys())
        if old.get((source, partition)) != new.get((source, partition))
    ]  # fmt: skip
