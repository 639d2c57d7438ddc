"""The benchmark of large catalogs still runs every command: it reaches into them, and nothing else would notice."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def test_every_command_runs_over_a_small_catalog(tmp_path: Path) -> None:
    size = ["--datasets", "20", "--partitions", "120", "--rounds", "3", "--large", "12", "--times", "1"]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.catalog_scale", *size, "--home", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    rows = [line.split("│")[1].strip() for line in run.stdout.splitlines() if line.startswith("│")]
    commands = ["why", "history", "show", "pin", "unpin", "status", "report", "sweep --dry-run", "costs", "doctor"]
    assert set(commands) <= set(rows), run.stdout
