"""`varve plan`: every dataset over time, a cell for some windows, in the colour of its worst state; and the counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table
from rich.text import Text

from pipeline_defs.cli.looking import looking
from pipeline_defs.definitions import graph
from pipeline_defs.planning.judging import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.planning.judging import Judgement

_CELLS = 32
# From the one that a person should see first to the one that needs nobody.
_COLOURS = {
    State.FAILED: "red",
    State.BACKING_OFF: "dark_orange",
    State.HELD: "magenta",
    State.UNWANTED: "grey50",
    State.IN_FLIGHT: "cyan",
    State.DUE: "yellow",
    State.WAITING: "blue",
    State.MISSING: "grey30",
    State.CURRENT: "green",
}
_WORST = list(_COLOURS)


def heat() -> dict[str, Any]:
    """For each dataset its counts by state, and its cells in order: from which partition to which, in which state."""
    with looking() as found:
        plan = found.plan()
    return {
        "datasets": [_dataset(dataset, plan.judgements[dataset.name]) for dataset in graph.in_order()],
        "due": [
            {"dataset": run.dataset.name, "first": run.first.path, "last": run.last.path,
             "partitions": len(run.partitions), "reason": run.reason}
            for run in plan.runs
        ],
    }  # fmt: skip


def show(console: Console, found: dict[str, Any]) -> None:
    """The same for people."""
    table = Table(Column("dataset", no_wrap=True), Column("over time", no_wrap=True), "partitions")
    for one in found["datasets"]:
        cells = Text.assemble(*[("■", _COLOURS[State(cell["state"])]) for cell in one["cells"]])
        counts = ", ".join(f"{count:,} {state}" for state, count in one["states"].items()) or "nothing yet"
        table.add_row(one["dataset"], cells, counts)
    console.print(table)
    console.print(
        Text.assemble(*[part for state, colour in _COLOURS.items() for part in (("■ ", colour), f"{state}  ")])
    )
    for run in found["due"][:10]:
        last = f" ... {run['last']}" if run["last"] != run["first"] else ""
        console.print(f"due: {run['dataset']} {run['first']}{last}: {run['reason']}", markup=False, highlight=False)


def _dataset(dataset: Dataset, judged: Mapping[str, Judgement]) -> dict[str, Any]:
    counts = Counter(found.state for found in judged.values())
    return {
        "dataset": dataset.name,
        "states": {str(state): counts[state] for state in _WORST if counts[state]},
        "cells": _cells(sorted(judged.items())),
    }


def _cells(judged: Sequence[tuple[str, Judgement]]) -> list[dict[str, str]]:
    """At most so many cells, each the worst of its partitions."""
    size = max(1, -(-len(judged) // _CELLS))
    pieces = [judged[start : start + size] for start in range(0, len(judged), size)]
    return [
        {
            "first": piece[0][0],
            "last": piece[-1][0],
            "state": str(min((found.state for _, found in piece), key=_WORST.index)),
        }
        for piece in pieces
    ]
