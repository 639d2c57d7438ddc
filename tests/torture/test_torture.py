"""The torture's own parts, without a server: one seed is one history, and its model notices what is wrong."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from tests.torture import facts
from tests.torture.facts import DAYS, State
from tests.torture.history import CLOCKS, DEATHS, DEATHS_OF_A_CAPTURE, MORTAL, WEIGHTS, Turn, turns
from tests.torture.model import Model, Shown
from tests.torture.operations import Operations
from tests.torture.readers import differing

if TYPE_CHECKING:
    import datetime as dt


def test_a_seed_is_one_history_also_by_way_of_its_log() -> None:
    first, second = list(islice(turns(7), 300)), list(islice(turns(7), 300))
    assert first == second
    assert [Turn.of(json.loads(json.dumps(turn.as_values()))).as_values() for turn in first] == [
        turn.as_values() for turn in first
    ]
    assert list(islice(turns(8), 300)) != first


def test_every_operation_and_every_fate_comes_in_some_history() -> None:
    operations = [operation for turn in islice(turns(1), 3_000) for operation in turn.operations]
    assert {operation.name for operation in operations} == set(WEIGHTS)
    assert all(hasattr(Operations, name) for name in WEIGHTS)
    assert {operation.fate.get("at") for operation in operations} == {*DEATHS, *DEATHS_OF_A_CAPTURE, None}
    assert {operation.fate.get("clock") for operation in operations} == {*CLOCKS, None}
    signals = {each.fate.get("signal") for each in operations if "milliseconds" in each.fate}
    assert signals == {"SIGKILL", "SIGTERM", "SIGINT"}


def test_in_a_deadly_history_everything_that_can_be_killed_is() -> None:
    history = list(islice(turns(7, deadly=True), 300))
    assert history == list(islice(turns(7, deadly=True), 300))
    operations = [operation for turn in history for operation in turn.operations]
    assert all((operation.name in MORTAL) == operation.dies for operation in operations)
    assert {operation.name for operation in operations if operation.dies} == MORTAL - {"edit"}
    assert sum(operation.dies for operation in operations) > 600


@pytest.mark.parametrize("place", sorted({*DEATHS, *DEATHS_OF_A_CAPTURE}))
def test_the_places_of_deaths_are_there(place: str) -> None:
    import importlib

    module, _, qualified = place.partition(":")
    owner = importlib.import_module(module)
    for step in qualified.split("."):
        owner = getattr(owner, step)
    assert callable(owner)


def settled() -> tuple[Model, dict[str, dict[object, Shown]]]:
    """A model after each file was sent twice, and what is current then."""
    model = Model()
    for day in DAYS * 2:
        model.landed[day] = model.numbered(day)
    states = {day: State(2, 1) for day in DAYS}
    current = {
        "sales": {day: facts.file_rows(day, 2) for day in DAYS},
        "revenue": {day: facts.revenue(day, states[day]) for day in DAYS},
        "totals": {day: [facts.totals(day, states[day])] for day in DAYS},
        "trailing": {},
    }
    for day in DAYS:
        text = facts.made_from(states, day)
        current["trailing"][day] = [(facts.trailing_cents(text), text)]
    return model, current  # type: ignore[return-value]


def test_what_follows_from_the_files_is_at_rest_and_may_be_read() -> None:
    model, current = settled()
    assert model.problems_at_rest(current) == []  # type: ignore[arg-type]
    for dataset, days in current.items():
        for day, rows in days.items():
            assert model.problem_of(dataset, day, rows) is None  # type: ignore[arg-type]


def test_an_older_state_may_be_read_and_is_not_at_rest_unless_it_was_rolled_back_to() -> None:
    model, current = settled()
    day = DAYS[0]
    older = facts.revenue(day, State(1, 1))
    assert model.problem_of("revenue", day, older) is None
    current["revenue"][day] = older  # type: ignore[assignment]
    current["totals"][day] = [facts.totals(day, State(1, 1))]
    trailing = {each: State(2, 1) for each in DAYS} | {day: State(1, 1)}
    for each in DAYS[: facts.WINDOW]:
        text = facts.made_from(trailing, each)
        current["trailing"][each] = [(facts.trailing_cents(text), text)]
    assert len(model.problems_at_rest(current)) == 1  # type: ignore[arg-type]
    model.rolled_back["revenue", day] = [older]  # type: ignore[list-item]
    assert model.problems_at_rest(current) == []  # type: ignore[arg-type]


def test_rows_of_two_versions_a_lost_row_a_doubled_one_and_what_was_never_sent_are_noticed() -> None:
    model, _ = settled()
    day = DAYS[3]
    first, second = facts.revenue(day, State(1, 1)), facts.revenue(day, State(2, 1))
    for wrong in (
        first[:1] + second[1:], second[1:], [*second, second[0]], [], facts.revenue(day, State(3, 1)),
        facts.revenue(day, State(2, 9)),
    ):  # fmt: skip
        assert model.problem_of("revenue", day, wrong) is not None
    total = facts.totals(day, State(2, 1))
    assert model.problem_of("totals", day, [(total[0], total[1] + 1, *total[2:])]) is not None
    assert model.problem_of("totals", day, [total, total]) is not None


def test_views_of_two_files_are_noticed_while_a_correction_runs() -> None:
    _, current = settled()
    seen: dict[str, dict[dt.date, Shown]] = {name: dict(current[name]) for name in ("totals", "trailing")}  # type: ignore[misc]
    assert differing(seen) == []
    seen["totals"][DAYS[3]] = [facts.totals(DAYS[3], State(1, 1))]
    assert [each.split()[1] for each in differing(seen)] == [str(day) for day in DAYS[3:]]
