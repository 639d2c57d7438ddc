"""`varve demo`, whole: it checks its own figures, so that its exit code says whether they are right."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.project import Project
from tests.e2e.screenshots import DELAYS, take_pictures
from varve.catalog.history.history import History

if TYPE_CHECKING:
    from collections.abc import Iterator


# Whole demos, beside whatever else the machine does.
pytestmark = pytest.mark.timeout(1_800)
MAIN = "from varve.cli.app import main; main()"


@pytest.fixture(scope="module")
def fresh() -> Iterator[Project]:
    home = Path(tempfile.mkdtemp(prefix="varve-demo-"))
    home.chmod(0o755)
    found = Project({**Project.at(home).environment, "COLUMNS": "160"})
    yield found
    found.end_services()
    shutil.rmtree(home, ignore_errors=True)


def demo(project: Project, *options: str) -> str:
    done = project.run_afresh("-c", f"import sys; sys.argv[1:] = {['demo', '--days', '6', *options]!r}; {MAIN}")
    assert done.code == 0, done.output
    return done.output


def counts(project: Project) -> dict[str, tuple[int, int]]:
    done = project.run_afresh("-c", f"import sys; sys.argv[1:] = ['status', '--json']; {MAIN}")
    return {one["dataset"]: (one["partitions"], one["batches"]) for one in json.loads(done.output)["datasets"]}


# Six days, their 144 hours, three airports; the correction adds a batch of one day and of what is downstream.
# Of the trailing weeks those of the days from it on. The carriers' models wait for a seventh day.
FIRST = {
    "flights.departures": (6, 7), "flights.weather": (144, 144), "flights.fleet": (1, 1),
    "flights.delays": (18, 21), "flights.weekly_delays": (3, 6), "flights.trailing_delay": (18, 30),
    "flights.monthly_fleet": (12, 12),
}  # fmt: skip


def test_the_demo_ends_well(fresh: Project) -> None:
    assert re.search(r"saw exactly\s+two states", demo(fresh))
    assert counts(fresh) == FIRST


@pytest.mark.slow
def test_the_demo_is_repeatable_and_can_start_over(fresh: Project) -> None:
    demo(fresh)
    # Again: the partner sends the original, then the correction. Both were computed before, and are taken as they are.
    assert re.search(r"saw exactly\s+two states", demo(fresh))
    assert counts(fresh) == FIRST
    demo(fresh, "--fresh")
    assert counts(fresh) == FIRST


@pytest.mark.slow
@pytest.mark.ui
def test_every_page_shows_what_the_demo_has_made(fresh: Project, tmp_path: Path) -> None:
    demo(fresh)
    assert fresh.run_afresh("-c", f"import sys; sys.argv[1:] = ['env', 'create', 'alice']; {MAIN}").code == 0
    with fresh.catalog() as catalog:
        batches = History(catalog.connection).batches(DELAYS)
    second, first = next(pair for pair in pairwise(batches) if pair[0].partition == pair[1].partition)
    pictures = take_pictures(fresh, second, first, tmp_path)
    assert len(pictures) == 13
    assert all(picture.stat().st_size > 10_000 for picture in pictures)
