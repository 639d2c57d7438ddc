"""`varve costs`: what datasets, runs and months have cost, for a person and as JSON.

Not here: how it is computed (varve/observe/costs.py), and what a plan will cost (varve/cli/plan/heat.py).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from rich.table import Column

from varve.cli.context import chosen_settings
from varve.cli.observe.opened import opened_catalog, refuse_never_built
from varve.cli.printing import Table
from varve.cli.selection import duration_text, size_text, span
from varve.observe.cost_statements import CostsBy
from varve.observe.costs import Costs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.observe.costs import Cost


def costs(dataset: str | None, *, by: CostsBy, since: str | None) -> list[dict[str, Any]]:
    """Return the costs as plain values, what cost most or began last first: seconds, rows, bytes.

    Raises VarveError for a dataset of which nothing was built, and where there is no catalog.
    """
    began = None if since is None else dt.datetime.now(dt.UTC) - span(since)
    with opened_catalog(chosen_settings(), "varve costs") as connection:
        if dataset is not None:
            refuse_never_built(connection, dataset)
        return [_values(cost) for cost in Costs(connection).listed(dataset, by=by, since=began)]


def show(console: Console, values: Sequence[dict[str, Any]], *, by: CostsBy, limit: int) -> None:
    """Print the first `limit` of the costs as a table, and how many there are besides."""
    if not values:
        console.print("No run has cost anything there yet.")
        return
    first = {CostsBy.DATASET: (), CostsBy.RUN: ("began (UTC)", "run"), CostsBy.MONTH: ("month",)}[by]
    held = ("current", "retired", "pinned", "environments") if by is CostsBy.DATASET else ()
    # On a narrow terminal numbers fold, and what they are about does not.
    table = Table(
        *first,
        Column("dataset", no_wrap=True),
        "runs",
        "failed",
        "partitions",
        "time",
        "rows",
        "read",
        "written",
        *held,
    )
    for row in values[:limit]:
        table.add_row(
            *_what(row, by), row["dataset"], f"{row['runs']:,}", f"{row['failed']:,}", f"{row['partitions']:,}",
            duration_text(row["seconds"]), f"{row['rows']:,}", size_text(row["bytes_read"]),
            size_text(row["bytes_written"]), *[size_text(row["storage"][name]) for name in held],
        )  # fmt: skip
    console.print(table)
    if len(values) > limit:
        console.print(f"{len(values) - limit:,} lines more: --limit {len(values)}")


def _what(row: dict[str, Any], by: CostsBy) -> list[str]:
    """Return the cells that say what a line is about, besides the dataset."""
    if by is CostsBy.DATASET:
        return []
    return [row["began"][:19], _run(row)] if by is CostsBy.RUN else [row["month"]]


def _run(row: dict[str, Any]) -> str:
    short = str(row["run_id"])[:8]
    return f"{short} in {row['environment']}" if row["environment"] else short


def _values(cost: Cost) -> dict[str, Any]:
    storage = None if cost.storage is None else {
        "current": cost.storage.current, "retired": cost.storage.retired, "pinned": cost.storage.pinned,
        "environments": cost.storage.environments,
    }  # fmt: skip
    return {
        "dataset": cost.dataset,
        **({"run_id": cost.run_id, "environment": cost.environment} if cost.run_id else {}),
        **({"month": cost.month} if cost.month else {}),
        "began": cost.began.isoformat(sep=" "),
        "runs": cost.runs,
        "failed": cost.failed,
        "partitions": cost.partitions,
        "seconds": round(cost.seconds, 3),
        "rows": cost.rows,
        "bytes_read": cost.bytes_read,
        "bytes_written": cost.bytes_written,
        **({} if storage is None else {"storage": storage}),
    }
