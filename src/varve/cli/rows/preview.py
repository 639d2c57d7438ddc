"""`varve preview`: the rows of a partition as a run would publish them, with what they are computed from.

Not here: how the rows are computed (varve/dagster/preview.py).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from varve.cli.context import chosen_settings
from varve.cli.rows.cells import escaped, plain, table_of
from varve.cli.rows.declared import declared
from varve.cli.selection import partition_named
from varve.dagster.preview import of_python, of_sql
from varve.dagster.preview import preview as computed_preview
from varve.model.errors import counted, some
from varve.sql.sql_asset import SqlAsset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.dagster.preview import Computation, Preview


def preview(name: str, words: Sequence[str], *, limit: int, explain: bool) -> tuple[Preview, float]:
    """Compute a partition of a dataset; returns the preview, and the seconds that it took.

    Raises VarveError for a dataset that does not exist, is broken, or has nothing to compute; UnknownPartition for
    words that name no partition; and what `varve.dagster.preview.preview` raises.
    """
    start = time.monotonic()
    computation = _computation(name)
    partition = partition_named(computation.dataset, words)
    computed = computed_preview(chosen_settings(), computation, partition, limit=limit, explain=explain)
    return computed, time.monotonic() - start


def as_values(computed: Preview, seconds: float) -> dict[str, Any]:
    """The preview as plain values for `--json`."""
    return {
        "dataset": computed.dataset.name,
        "partition": computed.partition.path,
        "columns": [{"name": name, "type": kind} for name, kind in computed.columns],
        "rows": [plain(row) for row in computed.rows],
        "row_count": computed.row_count,
        "expectations": [
            {"name": kept.name, "condition": kept.condition, "broken": kept.broken} for kept in computed.expectations
        ],
        "reads": [
            {"dataset": read.source, "partition": read.partition, "batch": read.version} for read in computed.inputs
        ],
        "missing": list(computed.missing),
        "not_now": computed.not_now or None,
        "plan": computed.plan or None,
        "seconds": round(seconds, 3),
    }


def show(console: Console, computed: Preview, seconds: float) -> None:
    """Print the preview for people."""
    title = f"{computed.dataset} {computed.partition.path}"
    console.print(table_of(computed.columns, computed.rows, title))
    shown = "" if computed.row_count == len(computed.rows) else f", of which {len(computed.rows)} are shown"
    console.print(
        f"{counted(computed.row_count, 'row')}{shown}; {seconds:.1f} s. Nothing was written.", highlight=False
    )
    for kept in computed.expectations:
        outcome = (
            f"[red]broken[/] by {counted(kept.broken, 'row')}: a run would publish nothing"
            if kept.broken
            else "[green]kept[/]"
        )
        condition = escaped(" ".join(kept.condition.split()))
        console.print(f"EXPECT {kept.name} {outcome}   [dim]({condition})[/]", highlight=False)
    batches: dict[tuple[str, str], list[str]] = {}
    for read in computed.inputs:
        batches.setdefault((read.source, read.version), []).append(read.partition)
    for (dataset, batch), partitions in batches.items():
        listing = f"reads {dataset} batch {batch}: {some(partitions, limit=8)}"
        console.print(listing, markup=False, highlight=False, soft_wrap=True)
    if computed.missing:
        would_wait = "" if computed.not_now else ", for which a run would not wait"
        missing = f"goes without {some(computed.missing, limit=8)}{would_wait}"
        console.print(missing, markup=False, highlight=False, soft_wrap=True)
    if computed.not_now:
        console.print(f"no run computes it now: {computed.not_now}", style="yellow", highlight=False, soft_wrap=True)
    if computed.plan:
        console.print(computed.plan, markup=False, highlight=False, soft_wrap=True)


def _computation(name: str) -> Computation:
    declaring = declared(name, computable=True)
    return of_sql(declaring) if isinstance(declaring, SqlAsset) else of_python(declaring)
