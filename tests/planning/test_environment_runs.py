"""What may be asked for in an environment."""

from __future__ import annotations

import pytest

from tests.planning.test_reconcile import DAY, dataset
from varve.model.errors import VarveError
from varve.planning.environment_runs import Wanted

SALES = dataset("sales", DAY)


def test_days_and_moments_are_taken_with_both_ends() -> None:
    days = [f"2024-01-{number:02}" for number in range(1, 8)]

    def included(first: str | None, last: str | None) -> list[str]:
        wanted = Wanted(first=first, last=last)
        return [day for day in days if wanted.includes(SALES, f"day={day}")]

    assert included("2024-01-03", "2024-01-05") == days[2:5]
    assert included("2024-01-03T00:00", "2024-01-05T00:00") == days[2:4]
    assert included(None, "2024-01-02") == days[:2]


@pytest.mark.parametrize("text", ["2024-01", "2024", "2024-W03", "January"])
def test_a_month_is_no_day(text: str) -> None:
    for wanted in (Wanted(first=text), Wanted(last=text)):
        with pytest.raises(VarveError, match=f"'{text}' is no day; write for example 2026-01-31"):
            wanted.includes(SALES, "day=2024-01-03")
