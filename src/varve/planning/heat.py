"""Every dataset over time: for some neighbouring partitions one cell, which has the worst of their states.

Not here: how that is drawn (varve/cli/plan/heat.py, varve/dagster/automation/report.py).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from varve.planning.judgement.judgement import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.planning.graph import Graph
    from varve.planning.judgement.judgement import Judgement
    from varve.planning.reconcile import RunPlan

_CELLS = 32
# From the one that a person should see first to the one that needs nobody.
WORST_FIRST = (
    State.FAILED,
    State.BACKING_OFF,
    State.HELD,
    State.UNWANTED,
    State.IN_FLIGHT,
    State.DUE,
    State.WAITING,
    State.UPCOMING,
    State.MISSING,
    State.CURRENT,
)


def heat(graph: Graph, plan: RunPlan) -> dict[str, Any]:
    """For each dataset its counts by state, and its cells in order: from which partition to which, in which state.

    `plan` is one of `reconcile`, with a judgement of every partition.
    """
    return {
        "datasets": [_dataset(dataset, plan.judgements[dataset.name]) for dataset in graph.in_order()],
        "due": [
            {"dataset": run.dataset.name, "first": run.first.path, "last": run.last.path,
             "partitions": len(run.partitions), "reason": run.reason}
            for run in plan.runs
        ],
    }  # fmt: skip


def _dataset(dataset: Dataset, judged: Mapping[str, Judgement]) -> dict[str, Any]:
    counts = Counter(found.state for found in judged.values())
    return {
        "dataset": dataset.name,
        "states": {str(state): counts[state] for state in WORST_FIRST if counts[state]},
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
            "state": str(min((found.state for _, found in piece), key=WORST_FIRST.index)),
        }
        for piece in pieces
    ]
