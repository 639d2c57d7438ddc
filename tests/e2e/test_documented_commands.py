"""The commands of README.md and docs/, as they are written there, by a shell in a copy of this project.

A block says above itself that it is run here. Only what a reader replaces too is replaced: a batch, a run.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.documents.pages import Block, blocks
from tests.e2e.project import COMMAND_SECONDS, ROOT, Project, flights

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A dozen commands in processes of their own, on a machine that may be busy.
pytestmark = pytest.mark.timeout(3_600)

HERE = "tests/e2e/test_documented_commands.py"
OURS = {(block.page, block.heading): block for block in blocks("console") if block.runner == HERE}
PROJECT_FILES = ("assets", "pipeline_defs", "resources", "docs", "pyproject.toml", "workspace.yaml", "dagster.yaml")
CORRECTED = dt.date(2013, 1, 5)
NAME = "flights.departures"
# As the README has them, for somebody to replace.
BATCH, RUN = "1795210813484", "3f9c0d2e"
# This environment is what it would switch on.
ACTIVATE = "source .venv/bin/activate"
RUN_HERE = {
    ("README.md", "Run partitions"),
    ("README.md", "Go back"),
    ("README.md", "Your first dataset"),
    ("docs/cdc.md", "Change data capture"),
    ("docs/sql.md", "SQL datasets"),
    ("docs/testing.md", "A test from real rows"),
}


@dataclass(frozen=True)
class Copy:
    """A copy of the project's files, with services of its own."""

    project: Project
    folder: Path

    def shell(self, command: str) -> str:
        """What a command says; it must end well."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=dict(self.project.environment), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(self, block: Block, replaced: Mapping[str, str] | None = None) -> dict[str, str]:
        """Every command of a block, in order, with what it says."""
        said = {}
        for command in block.commands:
            if command != ACTIVATE:
                text = command
                for word, other in (replaced or {}).items():
                    text = text.replace(word, other)
                said[command] = self.shell(text)
        return said


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    folder = tmp_path_factory.mktemp("documented")
    for name in PROJECT_FILES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    with Project.of_its_own("documented") as project:
        path = f"{Path(sys.executable).parent}{os.pathsep}{project.environment['PATH']}"
        yield Copy(Project({**project.environment, "PATH": path, "COLUMNS": "160"}), folder)


@pytest.fixture(scope="module")
def published(copy: Copy) -> dict[str, str]:
    """What the commands said that run the first partitions."""
    return copy.run(OURS["README.md", "Run partitions"])


def test_every_block_that_says_so_is_run_here() -> None:
    assert set(OURS) == RUN_HERE


@pytest.mark.slow
def test_partitions_are_run_from_the_shell(copy: Copy, published: Mapping[str, str]) -> None:
    in_view = published["varve psql -c 'table flights.weekly_delays'"]
    assert "2012-12-31" in in_view
    batches = copy.project.current(NAME)
    assert {path: batch.rows for path, batch in batches.items()} == {
        f"day=2013-01-0{day}": len(flights(dt.date(2013, 1, day))) for day in range(1, 7)
    }
    assert len(copy.project.current("flights.delays")) == 18
    assert len(copy.project.current("flights.weekly_delays")) == 3
    assert NAME in published["varve status"]


@pytest.mark.slow
def test_a_batch_and_a_run_are_taken_back(copy: Copy, published: Mapping[str, str]) -> None:
    def corrected(day: dt.date) -> tuple[str, str]:
        """The partner sends half a file: which batch was current before, and which run took it."""
        before = copy.project.current(NAME)[f"day={day}"]
        copy.project.send_flights(day, keep=100)
        copy.shell(
            f"dagster asset materialize -m pipeline_defs.definitions --select flights/departures --partition {day}"
        )
        after = copy.project.current(NAME)[f"day={day}"]
        assert (after.rows, after.batch_id == before.batch_id) == (100, False)
        return str(before.batch_id), after.run_id

    other = CORRECTED + dt.timedelta(days=1)
    (batch, _), (_, run) = corrected(CORRECTED), corrected(other)
    said = copy.run(OURS["README.md", "Go back"], {BATCH: batch, RUN: run[:8]})

    current = copy.project.current(NAME)
    assert str(current[f"day={CORRECTED}"].batch_id) == batch
    assert current[f"day={other}"].rows == len(flights(other))
    assert batch in said[f"varve history {NAME} day={CORRECTED}"]


@pytest.mark.slow
def test_the_first_dataset_is_a_new_file(copy: Copy, published: Mapping[str, str]) -> None:
    (query,) = [block for block in blocks("sql") if (block.page, block.heading) == ("README.md", "Your first dataset")]
    (copy.folder / "assets" / "busiest.sql").write_text(query.text, encoding="utf-8")
    said = copy.run(OURS["README.md", "Your first dataset"])
    (asked,) = [text for command, text in said.items() if command.startswith("varve psql")]
    assert "(5 rows)" in asked


@pytest.mark.slow
def test_a_captured_table_is_made_followed_and_compared(copy: Copy) -> None:
    said = copy.run(OURS["docs/cdc.md", "Change data capture"], {"--seconds 20": "--seconds 2"})
    assert "fleet.planes" in said["varve cdc status"]


def test_an_example_prints_what_the_page_shows(copy: Copy) -> None:
    block = OURS["docs/sql.md", "SQL datasets"]
    # The page leaves out the frames of tables.
    lines = [line for text in copy.run(block).values() for line in text.splitlines()]
    printed = [" ".join(line.translate({ord(bar): " " for bar in "│┃"}).split()) for line in lines]
    shown = [" ".join(line.split()) for line in block.text.splitlines() if not line.startswith(("$ ", "..."))]
    assert [line for line in shown if line not in printed] == []


@pytest.mark.slow
def test_a_test_of_real_rows_is_written_and_passes(copy: Copy, published: Mapping[str, str]) -> None:
    said = copy.run(OURS["docs/testing.md", "A test from real rows"])
    (new, tested) = said.values()
    assert "assets/flights_delays.test.yaml has the test 'real rows of day=2013-01-05 origin=EWR'" in new
    assert "passed flights.delays: real rows of day=2013-01-05 origin=EWR" in tested
