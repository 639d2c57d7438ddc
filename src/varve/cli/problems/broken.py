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
    """Return the datasets that are broken or on hold, as plain values."""
    return [
        {
            "dataset": dataset.name or None,
            "file": dataset.file,
            "state": dataset.state,
            "errors": list(dataset.errors),
            "waits_for": list(dataset.waits_for),
            "causes": list(dataset.causes),
            "reads": list(dataset.reads),
        }
        for dataset in broken
    ]


def show_broken(console: Console, broken_datasets: Sequence[Mapping[str, Any]]) -> None:
    """Print the broken datasets: each error with its line of SQL and a caret below the place."""
    for dataset in broken_datasets:
        waits_for_text = (
            f": it reads {', '.join(dataset['waits_for'])}: {'; '.join(dataset['causes'])}"
            if not dataset["errors"]
            else ""
        )
        title = f"{dataset['state']}: {dataset['dataset'] or dataset['file']}{waits_for_text}"
        console.print(title, markup=False, highlight=False, soft_wrap=True)
        for error in dataset["errors"]:
            text = "\n".join(f"  {line}" for line in error.splitlines())
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    if broken_datasets:
        console.print(f"{UNTOUCHED} `varve check` tells all that is wrong.", highlight=False)


def refuse_broken(name: str, graph: Graph) -> None:
    """Raise DatasetIsBroken for a dataset that is broken or on hold."""
    broken = graph.broken_dataset(name.replace("/", "."))
    if broken is not None and broken.name:
        raise DatasetIsBroken(broken)
