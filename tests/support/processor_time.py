"""Where a suite's time goes: the processor seconds of its workers, of Spark, of PostgreSQL and of the browser.

Servers are no children of the tests, and most end before the suite does: so all processes whose temporary files are in
the suite's folder are looked at every second, and the last look at each counts. What ends within a second of its start
and is nobody's child here is missed, as most sessions of PostgreSQL are: so the first line has what the machine did in
all, too, for which the suite should have it for itself.

Not here: which rooms of the tests take it (tests/conftest.py).
"""

from __future__ import annotations

import resource
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A program is told by its first word; all that is none of these is Python: workers, commands, Dagster's processes.
PROGRAMS = {"java": "Spark", "postgres": "PostgreSQL", "postgres:": "PostgreSQL", "pg_ctl": "PostgreSQL"}
BROWSERS = ("chromium", "chrome", "chromedriver")


def _busy() -> float:
    """For how many seconds the machine's processors have worked since it was started."""
    times = psutil.cpu_times()
    return float(times.user + times.system)


@dataclass
class ProcessorTime:
    """What the processes of one suite have used up to the last look, by pid and start, and which program each is."""

    folder: Path
    busy_before: float = field(default_factory=_busy)
    seconds: dict[tuple[int, float], tuple[str, float]] = field(default_factory=dict)
    _of_others: set[tuple[int, float]] = field(default_factory=set)

    def look(self) -> None:
        """Note how much each of the suite's processes has used."""
        for process in psutil.process_iter():
            # Any of these may find that it has ended just now.
            try:
                with process.oneshot():
                    place = (process.pid, process.create_time())
                    if place in self._of_others:
                        continue
                    if place not in self.seconds and temporary_files(process) != str(self.folder):
                        self._of_others.add(place)
                        continue
                    spent = process.cpu_times()
                    self.seconds[place] = (_program(process), spent.user + spent.system)
            except psutil.Error:
                continue

    def lines(self, elapsed: float) -> Iterator[str]:
        """A line for each program, the greatest first, and one for the whole."""
        by_program: dict[str, float] = defaultdict(float)
        for program, seconds in self.seconds.values():
            by_program[program] += seconds
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Children of children that were waited for, however short they were: they are Python's, or the browser's.
        short = children.ru_utime + children.ru_stime - by_program["Python"] - by_program["the browser"]
        by_program["Python"] += max(0.0, short)
        total = sum(by_program.values())
        busy = _busy() - self.busy_before
        yield f"{elapsed:,.0f} s, {total:,.0f} processor seconds on {psutil.cpu_count()} cores, busy for {busy:,.0f}"
        for program, seconds in sorted(by_program.items(), key=lambda each: -each[1]):
            yield f"  {seconds:7,.0f} s  {program}"


def temporary_files(process: psutil.Process) -> str | None:
    """The folder of a process's temporary files, where its environment says so and may be read."""
    try:
        environment: dict[str, str] = process.environ()
    except psutil.Error:
        return None
    return environment.get("TMPDIR")


def _program(process: psutil.Process) -> str:
    name = process.name()
    if name in BROWSERS:
        return "the browser"
    return PROGRAMS.get(name.split()[0] if name else "", "Python")
