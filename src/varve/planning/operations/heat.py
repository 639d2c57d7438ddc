"""Every dataset over time as a row of cells; a cell has the worst state of some neighbouring partitions.

Not here: how the cells are drawn (varve/cli/plan/heat.py, varve/dagster/automation/report.py).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from varve.planning.judgement.judgement import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.planning.graph import Graph
    from varve.planning.judgement.judgement import Judgement
    from varve.planning.reconcile import RunPlan

_CELLS = 32
# From the state that a person should see first to the state that needs no attention.
WORST_FIRST = (
    State.FAILED,
    State.BACKING_OFF,
    State.ON_HOLD,
    State.OUTDATED,
    State.UNWANTED,
    State.IN_FLIGHT,
    State.DUE,
    State.WAITING,
    State.UPCOMING,
    State.MISSING,
    State.ACCEPTED,
    State.CURRENT,
)


def heat(graph: Graph, plan: RunPlan) -> dict[str, Any]:
    """For each dataset the number of partitions by state, and its cells in order (first and last partition, state).

    `plan` is a result of `overview` or `reconcile`, which has a judgement of every partition.
    """
    return {
        "datasets": [heat_of_dataset(dataset.name, plan.judgements[dataset.name]) for dataset in graph.in_order()],
        "due": due_runs(plan),
    }


def due_runs(plan: RunPlan) -> list[dict[str, Any]]:
    """The runs that are due, each with its first and last partition, their number, and the reason."""
    return [
        {"dataset": run.dataset.name, "first": run.first.path, "last": run.last.path,
         "partitions": len(run.partitions), "reason": run.reason, "text": run.in_words}
        for run in plan.runs
    ]  # fmt: skip


def heat_of_dataset(name: str, judgements: Mapping[str, Judgement]) -> dict[str, Any]:
    """One dataset of `heat`, by the judgements of its partitions."""
    counts = Counter(judgement.state for judgement in judgements.values())
    return {
        "dataset": name,
        "states": {str(state): counts[state] for state in WORST_FIRST if counts[state]},
        "cells": _cells(sorted(judgements.items())),
    }


def _cells(judgements: Sequence[tuple[str, Judgement]]) -> list[dict[str, str]]:
    """At most `_CELLS` cells, each with the worst state of its partitions."""
    size = max(1, -(-len(judgements) // _CELLS))
    pieces = [judgements[start : start + size] for start in range(0, len(judgements), size)]
    return [
        {
            "first": piece[0][0],
            "last": piece[-1][0],
            "state": str(min((judgement.state for _, judgement in piece), key=WORST_FIRST.index)),
        }
        for piece in pieces
    ]
