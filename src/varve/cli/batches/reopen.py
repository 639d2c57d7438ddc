"""`varve reopen`: let closed partitions take late files, until somebody closes them again.

Not here: the rule that says when a partition is closed (varve/planning/arrivals/growing.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.parts import Parts
from varve.cli.batches.history import opened
from varve.cli.selection import dataset_named, matching, refuse_of_others, who
from varve.model.errors import UnknownPartition, VarveError, counted
from varve.planning.arrivals.growing import closed_since

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.model.dataset import Dataset


def reopen(name: str, words: Sequence[str], *, reason: str, close: bool, dry_run: bool) -> dict[str, Any]:
    """Open the closed partitions that the words name, or with `close` close those that were opened.

    Returns what was done, as plain values. Raises VarveError where there is nothing to open, or to close.
    """
    dataset = dataset_named(name)
    if dataset.incremental is None or dataset.incremental.closed_after is None:
        raise VarveError(
            f"{dataset} closes no partition: its header has no INCREMENTAL CLOSED AFTER. Nothing was changed."
        )
    with opened() as history:
        refuse_of_others(history.connection, [dataset.name])
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


def show(console: Console, reopened: dict[str, Any]) -> None:
    """Print what was opened or closed."""
    for path in reopened["partitions"]:
        console.print(f"{reopened['dataset']} {path}", markup=False, highlight=False, soft_wrap=True)
    count = counted(len(reopened["partitions"]), "partition")
    if not reopened["done"]:
        console.print(f"{count} would be {'open' if reopened['open'] else 'closed'}; nothing was changed.")
    elif reopened["open"]:
        console.print(f"{count} open again: the next look takes the files that came late. --close closes them again.")
    else:
        console.print(f"{count} closed again.")


# Only partitions with arrived files can be opened: any other one takes its first files whenever they come.
_ARRIVED = "select partition from varve.arrival where dataset = %s"


def _is_to_change(dataset: Dataset, path: str, open_again: set[str], *, close: bool) -> bool:
    if close:
        return path in open_again
    try:
        key = dataset.partitioning.from_path(path)
    except UnknownPartition:
        return False
    return closed_since(dataset, key, pendulum.now("UTC").timestamp(), open_again) is not None
