"""PostgreSQL itself says what is right: after any history the lake's table is PostgreSQL's, row for row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cdc.lab import DEFAULT, FULL, UNKEYED, Application, Killed, Lab

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200), pytest.mark.slow]

# Three kinds of tables, ten workloads each, of two sessions that wait for each other's locks.
WORKLOADS, CHANGES = 10, 1_000
# Where a process dies, spread over the kinds of tables; each time the next one finds things as the dead one left them.
DEATHS = {DEFAULT: ("resolved", "committing"), FULL: ("staged", "verified"), UNKEYED: ("published", "done")}


@pytest.mark.parametrize("kind", [DEFAULT, FULL, UNKEYED])
def test_random_workloads_of_many_sessions_end_in_the_table_that_postgresql_has(
    make_lab: Callable[..., Lab], kind: str
) -> None:
    lab = make_lab(kind)
    lab.sql("insert into {t} select w, i, 'old', i, now(), true, i, repeat('old', 1000) "
            f"from generate_series(0, {WORKLOADS - 1}) w, generate_series(0, 39) i")  # fmt: skip
    for round_, step in enumerate(DEATHS[kind]):
        sessions = [
            Application(lab, workload, 100 * round_ + 2 * workload + side, CHANGES // 4, truncates=kind == FULL)
            for workload in range(WORKLOADS) for side in (0, 1)
        ]  # fmt: skip
        for session in sessions:
            session.start()
        if round_ == 0:
            lab.bootstrap()
        # Batches of any size, while the application goes on.
        while any(session.is_alive() for session in sessions):
            lab.capture(most=1_500)
        while lab.capture() is not None:
            pass
        assert [session.error for session in sessions] == [None] * len(sessions)
        assert sum(session.done for session in sessions) >= WORKLOADS * CHANGES // 2
        with pytest.raises(Killed):
            lab.apply(die_at=step)
        done = lab.apply()
        assert done is None or done.quarantined == 0
        assert lab.in_lake() == lab.in_source()
    assert lab.apply() is None
