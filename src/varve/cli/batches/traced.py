"""`varve show DATASET --batch ID`: what a batch was made from, whether that is still so, and what was made from it.

Not here: what a partition would be made from now (show.py, plan/why.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.traces import Traces
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.printing import Table
from varve.cli.show import dataset_named, parsed
from varve.model.batch import BatchId
from varve.model.errors import VarveError, counted
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.catalog.traces import Trace

_LISTED = 40


def show(console: Console, name: str, pairs: Sequence[str], batch: int, *, as_json: bool) -> None:
    """Print it. Raises VarveError for an unknown dataset or batch, UnknownPartition for words that name none."""
    found = traced(name, pairs, batch)
    if as_json:
        console.print_json(json.dumps(found))
        return
    for one in found["partitions"][:_LISTED]:
        _print(console, found, one)
    if (more := len(found["partitions"]) - _LISTED) > 0:
        console.print(f"and {more:,} more partitions; name one, or --json lists them all.")


def traced(name: str, pairs: Sequence[str], batch: int) -> dict[str, Any]:
    """The same as plain values."""
    dataset = dataset_named(name, chosen_graph())
    paths = [parsed(dataset, pairs).path] if pairs else None
    with connect(chosen_settings(), application="varve show") as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        traces, wanted = Traces(connection), BatchId(batch)
        found = traces.of(dataset.name, wanted, paths)
        if not found:
            of = f" of {paths[0]}" if paths else ""
            raise VarveError(f"{dataset}: no batch {batch}{of}. `varve history {dataset}` lists what there was.")
        now = {
            source: {path: str(each.batch_id) for path, each in catalog.current(source).items()}
            for source in sorted(
                {each.source for trace in found for each in trace.inputs} & chosen_graph().datasets.keys()
            )
        }
        read_by = traces.read_by(dataset.name, found[0].partition, wanted) if len(found) == 1 else None
    code = chosen_graph().code_versions.get(dataset.name, "")
    return {
        "dataset": dataset.name,
        "batch": batch,
        "partitions": [_plain(trace, now, code) for trace in found],
        **({} if read_by is None else {"read_by": [list(each) for each in read_by]}),
    }


def _plain(trace: Trace, now: dict[str, dict[str, str]], code: str) -> dict[str, Any]:
    return {
        "partition": trace.partition,
        "state": trace.state,
        "in_force": trace.in_force,
        "run": trace.run_id,
        "started": trace.started_at.isoformat(timespec="seconds"),
        "published": trace.published_at.isoformat(timespec="seconds") if trace.published_at else None,
        "rows": trace.rows,
        "content": trace.content,
        "code_version": trace.code_version,
        "code_is_the_same": trace.code_version == code,
        "inputs": [
            {
                "source": each.source,
                "partition": each.partition,
                "version": each.version,
                # Of a landing file there is no batch: its version is a hash of its content.
                "now": now[each.source].get(each.partition) if each.source in now else None,
            }
            for each in sorted(trace.inputs)
        ],
    }


def _print(console: Console, found: dict[str, Any], one: dict[str, Any]) -> None:
    state = "in force" if one["in_force"] else one["state"]
    console.print(f"[bold]{found['dataset']} {one['partition']}[/] batch {found['batch']}: {state}", highlight=False)
    rows = "" if one["rows"] is None else f", {counted(one['rows'], 'row')}"
    console.print(f"  run {one['run']}, begun {one['started']}{rows}", highlight=False, markup=False)
    same = "the same as now" if one["code_is_the_same"] else "other code than now"
    console.print(f"  code {one['code_version']} ({same}), content {one['content'] or 'not hashed'}", highlight=False)
    if one["inputs"]:
        table = Table("made from", "partition", "version", "now in force")
        for each in one["inputs"][:_LISTED]:
            now = "the same" if each["now"] == each["version"] else each["now"] or ""
            table.add_row(each["source"], each["partition"], each["version"], now)
        console.print(table)
    if (more := len(one["inputs"]) - _LISTED) > 0:
        console.print(f"  and {more:,} more inputs; --json lists them all.")
    for dataset, path, batch, was in found.get("read_by", [])[:_LISTED]:
        console.print(f"  {dataset} {path} batch {batch} was made from it ({was})", highlight=False, markup=False)
