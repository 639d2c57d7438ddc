"""`varve show DATASET --batch ID`: the inputs of a batch, whether they are still current, and what was made from it.

Not here: what a partition would be made from now (show.py, plan/why.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.traces import Traces
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.printing import Table
from varve.cli.selection import dataset_named, partition_named
from varve.model.batch import BatchId
from varve.model.errors import VarveError, counted
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import psycopg
    from rich.console import Console

    from varve.catalog.traces import Trace
    from varve.model.dataset import Dataset

_LISTED = 40


def show(console: Console, name: str, pairs: Sequence[str], batch: int, *, as_json: bool) -> None:
    """Print the trace of a batch.

    Raises VarveError for an unknown dataset or batch, UnknownPartition for words that name no partition.
    """
    trace_values = trace_of_batch(name, pairs, batch)
    if as_json:
        console.print_json(json.dumps(trace_values))
        return
    for partition in trace_values["partitions"][:_LISTED]:
        _print(console, trace_values, partition)
    if (more := len(trace_values["partitions"]) - _LISTED) > 0:
        console.print(f"and {more:,} more partitions; name one, or --json lists them all.")


def trace_of_batch(name: str, pairs: Sequence[str], batch: int) -> dict[str, Any]:
    """Return the trace of a batch as plain values; raises as `show` does."""
    dataset = dataset_named(name)
    paths = [partition_named(dataset, pairs).path] if pairs else None
    with connect(chosen_settings(), application="varve show") as connection:
        Catalog(connection).ensure_schema()
        return trace_values(connection, dataset, BatchId(batch), paths)


def trace_values(
    connection: psycopg.Connection,
    dataset: Dataset,
    batch: BatchId,
    paths: Sequence[str] | None,
    readers: Collection[tuple[str, str]] | None = None,
) -> dict[str, Any]:
    """Return the trace of a batch over a connection, of these partitions or of all.

    What was made from it is looked for among `readers`, which are (dataset, partition); None: in the whole catalog.
    Raises VarveError for an unknown batch.
    """
    traces = Traces(connection)
    batch_traces = traces.of(dataset.name, batch, paths)
    if not batch_traces:
        of_partition = f" of {paths[0]}" if paths else ""
        raise VarveError(f"{dataset}: no batch {batch}{of_partition}. `varve history {dataset}` lists what there was.")
    inputs = {
        (read.source, read.partition)
        for trace in batch_traces
        for read in trace.inputs
        if read.source in chosen_graph().datasets
    }
    current_batches = traces.current(inputs)
    values: dict[str, Any] = {"dataset": dataset.name, "batch": batch.millis}
    code = chosen_graph().code_versions.get(dataset.name, "")
    values["partitions"] = [_plain(trace, current_batches, code) for trace in batch_traces]
    if len(batch_traces) == 1:
        path = batch_traces[0].partition
        read_by = (
            traces.read_by(dataset.name, path, batch)
            if readers is None
            else traces.read_by_these(dataset.name, path, batch, readers)
        )
        values["read_by"] = [list(reader) for reader in read_by]
    return values


def _plain(trace: Trace, current_batches: Mapping[tuple[str, str], BatchId], current_code: str) -> dict[str, Any]:
    return {
        "partition": trace.partition,
        "state": trace.state,
        "is_current": trace.is_current,
        "run": trace.run_id,
        "run_url": chosen_settings().run_url(trace.run_id),
        "started": trace.started_at.isoformat(timespec="seconds"),
        "published": trace.published_at.isoformat(timespec="seconds") if trace.published_at else None,
        "rows": trace.rows,
        "content": trace.content,
        "code_version": trace.code_version,
        "code_is_the_same": trace.code_version == current_code,
        "inputs": [
            {
                "source": source_input.source,
                "partition": source_input.partition,
                "version": source_input.version,
                # A landing file has no batch: its version is a hash of its content.
                "now": str(current_batches[source_input.source, source_input.partition])
                if (source_input.source, source_input.partition) in current_batches
                else None,
            }
            for source_input in sorted(trace.inputs)
        ],
    }


def _print(console: Console, trace_values: dict[str, Any], partition: dict[str, Any]) -> None:
    state = "current" if partition["is_current"] else partition["state"]
    console.print(
        f"[bold]{trace_values['dataset']} {partition['partition']}[/] batch {trace_values['batch']}: {state}",
        highlight=False,
    )
    rows = "" if partition["rows"] is None else f", {counted(partition['rows'], 'row')}"
    console.print(f"  run {partition['run']}, begun {partition['started']}{rows}", highlight=False, markup=False)
    if partition["run_url"]:
        console.print(f"  {partition['run_url']}", highlight=False, markup=False, soft_wrap=True)
    code_text = "the same as now" if partition["code_is_the_same"] else "other code than now"
    console.print(
        f"  code {partition['code_version']} ({code_text}), content {partition['content'] or 'not hashed'}",
        highlight=False,
    )
    if partition["inputs"]:
        table = Table("made from", "partition", "version", "now current")
        for source_input in partition["inputs"][:_LISTED]:
            now = "the same" if source_input["now"] == source_input["version"] else source_input["now"] or ""
            table.add_row(source_input["source"], source_input["partition"], source_input["version"], now)
        console.print(table)
    if (more := len(partition["inputs"]) - _LISTED) > 0:
        console.print(f"  and {more:,} more inputs; --json lists them all.")
    for dataset, path, batch, state_then in trace_values.get("read_by", [])[:_LISTED]:
        console.print(
            f"  {dataset} {path} batch {batch} was made from it ({state_then})", highlight=False, markup=False
        )
