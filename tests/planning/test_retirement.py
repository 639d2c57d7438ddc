"""Which partitions that left the graph may be retired without asking a person."""

from __future__ import annotations

from varve.planning.judgement.judgement import Judgement, State
from varve.planning.reconcile import RunPlan
from varve.planning.retirement import retirements


def plan(count: int, batch: int = 1) -> RunPlan:
    paths = tuple(f"day=2013-01-{number:04}" for number in range(count))
    judged = {path: Judgement(State.UNWANTED, "its retention is over", token=str(batch)) for path in paths}
    return RunPlan((), {"a.b": paths}, {"a.b": judged}, count)


def test_a_few_may_always_go_and_of_more_at_most_half() -> None:
    assert [len(retirement.partitions) for retirement in retirements(plan(10), {"a.b": 10})[0]] == [10]
    assert [len(retirement.partitions) for retirement in retirements(plan(11), {"a.b": 22})[0]] == [11]
    wanted, (refused,) = retirements(plan(11), {"a.b": 21})
    assert wanted == []
    assert (refused.dataset, refused.count, refused.of) == ("a.b", 11, 21)
    assert "If that is meant: varve retire a.b." in str(refused)


def test_many_go_in_pieces_each_partition_once() -> None:
    wanted, refused = retirements(plan(2_500), {"a.b": 5_000})
    assert refused == []
    assert [len(retirement.partitions) for retirement in wanted] == [1_000, 1_000, 500]
    assert len({path for retirement in wanted for path in retirement.partitions}) == 2_500
    assert len({retirement.identity for retirement in wanted}) == 3


def test_a_partition_that_came_back_and_left_again_is_another_retirement() -> None:
    before, again, later = (retirements(plan(3, batch), {"a.b": 9})[0][0].identity for batch in (1, 1, 2))
    assert before == again != later
