"""`varve check --watch` as a process: each save is checked, a broken file is watched on, and Ctrl-C ends it well."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from varve.sql.code.own_files import state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.needs_seconds

VARVE = str(Path(sys.executable).parent / "varve")
SECONDS = 120
FILE = """CREATE DATASET shop.sales (product STRING)
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-11-08', TIMEZONE 'UTC')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
EXTERNAL;
"""


class Watching:
    """The process, and what it prints, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def until(self, words: str) -> list[str]:
        """The lines up to the next one that has these words."""
        deadline, lines = time.monotonic() + SECONDS, []
        while words not in (lines[-1] if lines else ""):
            line = self._lines.get(timeout=max(deadline - time.monotonic(), 0.1))
            assert line is not None, "\n".join(lines)
            lines.append(line)
        return lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "varve.toml").write_text("")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "__init__.py").write_text("")
    (tmp_path / "assets" / "sales.sql").write_text(FILE)
    return tmp_path


@contextmanager
def watching(folder: Path) -> Iterator[Watching]:
    # A process group of its own, which is what Ctrl-C in a terminal signals.
    process = subprocess.Popen(
        [VARVE, "check", "--watch", "--no-spark"], cwd=folder, env={"PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield Watching(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)
        assert process.stdout is not None
        process.stdout.close()


def test_each_save_is_checked_and_a_broken_file_is_watched_on(folder: Path) -> None:
    file, module = folder / "assets" / "sales.sql", folder / "assets" / "other.py"
    with watching(folder) as watched:
        first = watched.until("Ctrl-C ends it.")
        assert "1 SQL dataset, no problems." in first
        assert first[-2].endswith(" s)")
        file.write_text(FILE.replace("STRING", "STRINGS"))
        broken = watched.until("Ctrl-C ends it.")
        assert "STRINGS is no type of Spark" in broken[0]
        assert broken[0].startswith("assets/sales.sql:1:36: ")
        assert " problems (" in broken[-2]
        # A dataset that a module adds, and one that cannot be imported.
        file.write_text(FILE)
        assert "1 SQL dataset, no problems." in watched.until("Ctrl-C ends it.")
        reader = FILE.replace("shop.sales (product STRING)", "shop.read").replace(
            "EXTERNAL;", "AS SELECT n FROM shop.other WHERE other.day = today;"
        )
        module.write_text("raise RuntimeError('not yet')\n")
        (folder / "assets" / "read.sql").write_text(reader)
        told = watched.until("RuntimeError: not yet")
        assert told
        watched.until("Ctrl-C ends it.")
        module.unlink()
        assert any("nobody declares shop.other" in line for line in watched.until("Ctrl-C ends it."))


def test_ctrl_c_ends_it_well(folder: Path) -> None:
    with watching(folder) as watched:
        watched.until("Ctrl-C ends it.")
        os.killpg(watched.process.pid, signal.SIGINT)
        assert watched.until("Stopped watching.")[-1] == "Stopped watching."
        assert watched.process.wait(SECONDS) == 0


@pytest.mark.parametrize("place", ["assets", "."])
def test_a_calendar_that_is_saved_is_checked(folder: Path, place: str) -> None:
    """It may lie beside the files, or in the folder above them."""
    calendar = folder / place / "own.calendar"
    calendar.write_text("2026-11-02\n2026-13-03\n")
    days = "INTERVAL 1 DAY, START '2026-11-01', END '2026-11-08'"
    (folder / "assets" / "sales.sql").write_text(FILE.replace(days, "CALENDAR 'own', START '2026-11-02'"))
    with watching(folder) as watched:
        assert watched.until("Ctrl-C ends it.")[0].startswith(f"{Path(place, 'own.calendar')}:2:")
        calendar.write_text("2026-11-02\n2026-11-03\n")
        assert "1 SQL dataset, no problems." in watched.until("Ctrl-C ends it.")


def test_what_editors_lay_beside_a_file_is_not_watched(folder: Path) -> None:
    before = state_of(folder / "assets")
    assert {Path(path).name for path in before} == {"__init__.py", "sales.sql"}
    (folder / "assets" / ".ipynb_checkpoints").mkdir()
    for name in (".ipynb_checkpoints/sales-checkpoint.sql", "._sales.sql", ".#other.py", "../.#own.calendar"):
        (folder / "assets" / name).touch()
    assert state_of(folder / "assets") == before
