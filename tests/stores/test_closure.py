"""What is left of a promotion where only what is consistent may go in force. No server needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pendulum

from tests.planning.test_reconcile import DAY, dataset, graph
from varve.model.batch import BatchId
from varve.planning.changes.generation import EnvironmentGeneration
from varve.planning.reconcile import Limits
from varve.stores.environments.closure import ClosureCheck
from varve.stores.environments.promotion import Closure, Promotion

REVENUE, REPORT, OTHER = dataset("revenue", DAY), dataset("report", DAY), dataset("other", DAY)
PATHS = ("day=2024-01-01", "day=2024-01-02")
BATCHES = {path: BatchId(number) for number, path in enumerate(PATHS, start=1)}
NEW = EnvironmentGeneration(7, 0, "warehouse", {})


def check() -> ClosureCheck:
    connection: Any = None
    now = pendulum.datetime(2024, 1, 5)
    return ClosureCheck(connection, graph({REVENUE: [], REPORT: [REVENUE], OTHER: []}), {}, Limits(), now)


def promotion(**codes: str) -> Promotion:
    batches = {"t.revenue": BATCHES, "t.other": BATCHES}
    of_codes = {f"t.{name}": code for name, code in codes.items()}
    return Promotion("alice", of_codes, batches, Closure(), {}, generations={"t.revenue": NEW})


def test_a_new_generation_is_left_out_as_a_whole_whether_its_code_is_another_one_or_not() -> None:
    for codes in ({}, {"revenue": "r2"}):
        for closure in (
            Closure(moved={"t.revenue": {PATHS[0]: "its input was replaced"}}),
            Closure(behind={"t.report": {PATHS[1]: "reads an old batch"}}),
        ):
            left = check().without(promotion(**codes, other="o2"), closure)
            assert (left.batches, left.codes, left.generations) == ({"t.other": BATCHES}, {"t.other": "o2"}, {})
            assert left.left_out.keys() == {"t.revenue"}
            assert left.left_out["t.revenue"].keys() == set(PATHS)


def test_what_is_promoted_keeps_its_generation_also_without_partitions() -> None:
    empty = replace(promotion(other="o2"), batches={"t.revenue": {}, "t.other": BATCHES})
    left = check().without(empty, Closure(moved={"t.other": {PATHS[0]: "its input was replaced"}}))
    assert (left.batches, left.codes, left.generations) == ({"t.revenue": {}}, {}, {"t.revenue": NEW})
