"""From an edit of a query to its rows: `python -m benchmarks.preview`.

Each round edits a SQL file of a copy of this project, as a person would, and then runs the commands that a person would
type, as whole processes against warm services. Goal: rows within 3 s at the median. Processor seconds are those of the
command alone: on a busy machine they tell more than wall time does.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.commands import home_of_its_own, materialize
from resources import partner
from varve.project import Project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.services.settings import Settings

GOAL_SECONDS = 3.0
DAY, NEXT_DAY = "2013-01-05", "2013-01-06"
FILES = ("assets", "pipeline_defs", "resources", "pyproject.toml")
DELAYS = "preview flights.delays day=2013-01-05 origin=EWR"
COMMANDS = {
    DELAYS: GOAL_SECONDS,
    f"{DELAYS} --explain": None,
    "diff flights.departures day=2013-01-05 --key carrier,flight,origin": None,
    "check --no-spark": None,
}


@dataclass
class Timed:
    """Seconds of each counted round: on the wall, and of the processor in the command itself."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and say whether the goal was met (exit 1 where not)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="counted rounds, after one that is not (default 7)")
    rounds = parser.parse_args(arguments).rounds
    console = Console()
    with home_of_its_own() as settings, tempfile.TemporaryDirectory(prefix="varve-bench-project-") as folder:
        with console.status("Starting services and publishing two days..."):
            project = _prepare(settings, Path(folder))
        measured = {command: Timed() for command in COMMANDS}
        for number in range(rounds + 1):
            for command, timed in measured.items():
                _edit(project, number)
                wall, processor = _seconds(project, command)
                if number:
                    timed.wall.append(wall)
                    timed.processor.append(processor)
    return _report(console, measured, rounds)


def _prepare(settings: Settings, folder: Path) -> Path:
    hours = [f"{day}T{hour:02}" for day in (DAY, NEXT_DAY) for hour in range(24)][5:29]
    for _ in partner.send_days(Path(settings.landing), [dt.date.fromisoformat(DAY)], hours):
        pass
    materialize("flights/departures", "--partition", DAY)
    materialize("flights/weather", "--partition-range", f"{DAY}T05...{NEXT_DAY}T04")
    # A second batch of the day, to compare it with.
    materialize("flights/departures", "--partition", DAY)
    for name in FILES:
        source = Project.find().root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    return folder


def _edit(project: Path, number: int) -> None:
    """Change what the query computes: every round another number."""
    file = project / "assets" / "flights_delays.sql"
    text = (Project.find().root / "assets" / file.name).read_text(encoding="utf-8")
    before, after = "COALESCE(SUM(departures.dep_delay), 0)", f"COALESCE(SUM(departures.dep_delay), 0) + {number}"
    assert before in text
    file.write_text(text.replace(before, after), encoding="utf-8")


def _seconds(project: Path, command: str) -> tuple[float, float]:
    """Seconds on the wall and of the processor. Ends the benchmark where the command fails."""
    words = [str(Path(sys.executable).parent / "varve"), "--project", str(project), *command.split()]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(words, cwd=project, env=dict(os.environ), capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr[-3000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _report(console: Console, measured: dict[str, Timed], rounds: int) -> int:
    table = Table(title=f"From an edit to rows: {rounds} rounds")
    for name in ("command", "wall s (median)", "min - max", "processor s (median)", "goal"):
        table.add_column(name, overflow="fold")
    missed = False
    for command, timed in measured.items():
        goal, median = COMMANDS[command], statistics.median(timed.wall)
        missed = missed or (goal is not None and median >= goal)
        table.add_row(
            f"varve {command}",
            f"{median:.2f}",
            f"{min(timed.wall):.2f} - {max(timed.wall):.2f}",
            f"{statistics.median(timed.processor):.2f}",
            "" if goal is None else f"< {goal:g}",
        )
    console.print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
