"""Datasets whose files cannot be used, as `varve graph`, `plan`, `status` and `doctor` show them.

Not here: which those are (varve/sql/sql_project.py), and the same in Dagster (varve/dagster/assets/broken.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.model.broken_dataset import UNTOUCHED, DatasetIsBroken

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console

    from varve.model.broken_dataset import BrokenDataset
    from varve.planning.graph import Graph


def broken_values(broken: Iterable[BrokenDataset]) -> list[dict[str, Any]]:
    """What is broken or on hold, as plain values."""
    return [
        {
            "dataset": each.name or None,
            "file": each.file,
            "state": each.state,
            "errors": list(each.errors),
            "waits_for": list(each.waits_for),
            "causes": list(each.causes),
            "reads": list(each.reads),
        }
        for each in broken
    ]


def show_broken(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """The same for people: each error with its line and a caret."""
    for each in found:
        waits = f": it reads {', '.join(each['waits_for'])}: {'; '.join(each['causes'])}" if not each["errors"] else ""
        title = f"{each['state']}: {each['dataset'] or each['file']}{waits}"
        console.print(title, markup=False, highlight=False, soft_wrap=True)
        for error in each["errors"]:
            text = "\n".join(f"  {line}" for line in error.splitlines())
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    if found:
        console.print(f"{UNTOUCHED} `varve check` tells all that is wrong.", highlight=False)


def refuse_broken(name: str, graph: Graph) -> None:
    """Raise DatasetIsBroken for a dataset that is broken or on hold."""
    broken = graph.broken_dataset(name.replace("/", "."))
    if broken is not None and broken.name:
        raise DatasetIsBroken(broken)
