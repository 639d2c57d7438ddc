"""The first dataset of one's own, as README.md and docs/python.md show it, put where they say and run."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.e2e.project import ROOT, days, flights, url_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.project import Project


@pytest.fixture(params=[("README.md", "sql"), ("docs/python.md", "python")], ids=["a query", "a function"])
def busiest(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The block of the page as the file it names."""
    page, language = request.param
    found = re.search(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    file = ROOT / "assets" / f"busiest.{'sql' if language == 'sql' else 'py'}"
    assert not file.exists()
    file.write_text(found[1], encoding="utf-8")
    yield file
    file.unlink()


def test_the_first_dataset_works_as_it_stands(week: Project, busiest: Path) -> None:
    assert busiest.is_file()
    # The query as a function is other code for the same dataset: that a plan is applied first is what it comes to.
    if (number := week.varve_json("plan")["changes"]["number"]) is not None:
        assert week.varve("apply", str(number), "--rebuild").code == 0
    week.must_materialize("flights/busiest", partitions="2013-01-01...2013-01-03")
    with psycopg.connect(url_of(week)) as connection:
        found = connection.execute("select day, sum(flights)::int from flights.busiest group by day order by day")
        assert found.fetchall() == [(day, len(flights(day))) for day in days(dt.date(2013, 1, 1), 3)]
