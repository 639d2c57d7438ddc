"""PostgreSQL itself says what is right: after any history the lake's table is PostgreSQL's, row for row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cdc.lab import DEFAULT, FULL, UNKEYED, Application, Killed, Lab

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]

# Three kinds of tables, so many workloads each, of two sessions that wait for each other's locks. Each workload has
# rows of its own, so that Spark resolves all of them at once.
WORKLOADS, CHANGES = 10, 1_000
# Of the suite; `make torture` has the sizes above.
FEW_WORKLOADS, FEW_CHANGES = 4, 300
KINDS = [DEFAULT, FULL, UNKEYED]
IN_CAPTURE = ("peek", "write", "durable", "confirm", "confirmed")
IN_APPLY = ("resolved", "set aside", "staged", "verified", "committing", "published", "done")


def laid(lab: Lab, workloads: int) -> Lab:
    lab.sql("insert into {t} select w, i, 'old', i, now(), true, i, repeat('old', 1000) "
            f"from generate_series(0, {workloads - 1}) w, generate_series(0, 39) i")  # fmt: skip
    return lab


def sessions(lab: Lab, workloads: int, changes: int, seed: int) -> list[Application]:
    """Running sessions, which change so much in each workload."""
    made = [
        Application(lab, workload, 1_000 * seed + 2 * workload + side, changes // 2, truncates=lab.kind == FULL)
        for workload in range(workloads)
        for side in (0, 1)
    ]
    for session in made:
        session.start()
    return made


def capture_while(lab: Lab, running: list[Application]) -> None:
    """Batches of any size, while the application goes on."""
    while any(session.is_alive() for session in running):
        lab.capture(most=1_500)
    while lab.capture() is not None:
        pass
    assert [session.error for session in running] == [None] * len(running)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("workloads", "changes"), [(FEW_WORKLOADS, FEW_CHANGES), pytest.param(WORKLOADS, CHANGES, marks=pytest.mark.slow)]
)
def test_random_workloads_of_many_sessions_end_in_the_table_that_postgresql_has(
    make_lab: Callable[..., Lab], kind: str, workloads: int, changes: int
) -> None:
    """4 workloads of 300 changes for each kind of table; `make torture` has 10 of 1,000."""
    lab = laid(make_lab(kind), workloads)
    running = sessions(lab, workloads, changes, seed=0)
    lab.bootstrap()
    capture_while(lab, running)
    assert all(session.done >= changes // 2 for session in running)
    done = lab.apply()
    assert done is not None
    assert done.quarantined == 0
    assert lab.in_lake() == lab.in_source()
    assert lab.apply() is None


# Each step once, as every kind of table takes the same ones; all of them for each kind: below.
STEPS = {DEFAULT: ("resolved", "set aside", "done"), FULL: ("staged", "committing"), UNKEYED: ("verified", "published")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_at_any_step_leaves_the_last_exact_state_or_the_next(make_lab: Callable[..., Lab], kind: str) -> None:
    """4 workloads of 50 changes for each step; of all steps for each kind, `make torture` has 10."""
    lab = laid(make_lab(kind), FEW_WORKLOADS)
    lab.bootstrap()
    assert lab.apply() is not None
    exact = lab.in_lake()
    for round_, step in enumerate(STEPS[kind]):
        running = sessions(lab, FEW_WORKLOADS, 50, seed=round_)
        # Each process finds things as those before it left them when they died.
        lab.die_in_capture(IN_CAPTURE[round_ % len(IN_CAPTURE)])
        capture_while(lab, running)
        with pytest.raises(Killed):
            lab.apply(die_at=step)
        exact = lab.in_source() if step in {"published", "done"} else exact
        assert lab.in_lake() == exact
    lab.apply()
    assert lab.in_lake() == lab.in_source()
    assert lab.apply() is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_at_any_step_of_capture_and_apply_repeats_nothing_and_loses_nothing(
    make_lab: Callable[..., Lab], kind: str
) -> None:
    lab = laid(make_lab(kind), WORKLOADS)
    lab.bootstrap()
    for round_, step in enumerate(IN_APPLY):
        running = sessions(lab, WORKLOADS, CHANGES // len(IN_APPLY), seed=round_)
        # Each time the next process finds things as the dead one left them.
        lab.die_in_capture(IN_CAPTURE[round_ % len(IN_CAPTURE)])
        capture_while(lab, running)
        with pytest.raises(Killed):
            lab.apply(die_at=step)
        done = lab.apply()
        assert done is None or done.quarantined == 0
        assert lab.in_lake() == lab.in_source()
    assert lab.apply() is None
