"""`varve reopen`: partitions that are closed take late files again, until they are closed again.

Not here: when a partition is closed (varve/planning/arrivals/growing.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.parts import Parts
from varve.cli.batches.history import opened
from varve.cli.selection import declared, matching, who
from varve.model.errors import UnknownPartition, VarveError, counted
from varve.planning.arrivals.growing import closed_since

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.model.dataset import Dataset


def reopen(name: str, words: Sequence[str], *, reason: str, close: bool, dry_run: bool) -> dict[str, Any]:
    """Open the closed partitions that the words name, or close again what was opened; what was done, as plain values.

    Raises VarveError where none of them is closed, or with `close` none was opened.
    """
    dataset = declared(name.replace("/", "."))
    if dataset.incremental is None or dataset.incremental.closed_after is None:
        raise VarveError(
            f"{dataset} closes no partition: its header has no INCREMENTAL CLOSED AFTER. Nothing was changed."
        )
    with opened() as history:
        parts = Parts(history.connection)
        open_again = parts.open_again(dataset.name)
        arrived = [path for (path,) in history.connection.execute(_ARRIVED, (dataset.name,))]
        paths = matching(dataset, words, arrived)
        chosen = [path for path in paths if _is_to_change(dataset, path, open_again, close=close)]
        if not chosen:
            what = "was opened" if close else "is closed"
            raise VarveError(f"{dataset}: none of {counted(len(paths), 'partition')} {what}. Nothing was changed.")
        if not dry_run:
            parts.reopen(dataset.name, chosen, is_open=not close, owner=who(), reason=reason)
    return {"dataset": dataset.name, "partitions": chosen, "open": not close, "done": not dry_run}


def show(console: Console, found: dict[str, Any]) -> None:
    """The same for people."""
    for path in found["partitions"]:
        console.print(f"{found['dataset']} {path}", markup=False, highlight=False, soft_wrap=True)
    count = counted(len(found["partitions"]), "partition")
    if not found["done"]:
        console.print(f"{count} would be {'open' if found['open'] else 'closed'}; nothing was changed.")
    elif found["open"]:
        console.print(f"{count} open again: the next look takes the files that came late. --close closes them again.")
    else:
        console.print(f"{count} closed again.")


# A partition of which nothing has arrived takes its first files whenever they come.
_ARRIVED = "select partition from varve.arrival where dataset = %s"


def _is_to_change(dataset: Dataset, path: str, open_again: set[str], *, close: bool) -> bool:
    if close:
        return path in open_again
    try:
        key = dataset.partitioning.from_path(path)
    except UnknownPartition:
        return False
    return closed_since(dataset, key, pendulum.now("UTC").timestamp(), open_again) is not None
