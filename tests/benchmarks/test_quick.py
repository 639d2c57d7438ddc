"""`make bench-quick`: what it reads of the tables of others, and when it says that something has moved."""

from __future__ import annotations

import io
import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from rich.table import Table

from benchmarks import quick
from benchmarks.quick import Measured, cells_of, column, kept_before, number

if TYPE_CHECKING:
    from pathlib import Path


def printed(*rows: tuple[str, ...]) -> str:
    """What a benchmark prints to a file."""
    table = Table("what", "ours", "ratio", title="a benchmark")
    for row in rows:
        table.add_row(*row)
    file = io.StringIO()
    Console(file=file, width=120).print("Before it.", table, "After it: 7 of 7.")
    return file.getvalue()


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234.5 ms", 1234.5), ("12 x cheaper", 12), ("0.65%", 0.0065), ("21 ms, CPU 3", 21), ("-3.5", -3.5)],
)
def test_the_first_number_of_a_cell_counts(text: str, value: float) -> None:
    assert number(text) == pytest.approx(value)


def test_ratios_are_read_from_the_table_and_from_nothing_else() -> None:
    rows = cells_of(printed(("first", "3 ms", "2.5 x"), ("second", "4 ms", ""), ("third", "1 ms", "0.04")))
    assert rows == [["first", "3 ms", "2.5 x"], ["second", "4 ms", ""], ["third", "1 ms", "0.04"]]
    assert column(2)(rows) == {"first": 2.5, "third": 0.04}


@pytest.mark.parametrize(
    ("rounds", "kept", "moved"),
    [
        ([1.0, 1.0, 1.0], Measured(1.0, 0.0), False),
        # A share that processes differ by anyway.
        ([1.2, 1.2, 1.2], Measured(1.0, 0.0), False),
        ([1.5, 1.5, 1.5], Measured(1.0, 0.0), True),
        # Rounds that are far apart say nothing, whenever they were.
        ([1.0, 1.5, 1.6], Measured(1.0, 0.0), False),
        ([1.5, 1.5, 1.5], Measured(1.0, 0.3), False),
        ([0.4, 0.4, 0.4], Measured(1.0, 0.1), True),
    ],
)
def test_what_differs_by_no_more_than_noise_has_not_moved(rounds: list[float], kept: Measured, *, moved: bool) -> None:
    assert (Measured.of(rounds).moved(kept) != 0.0) is moved


def test_what_is_worse_is_named_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ratios = {"partitions": "0.5", "planner": "40 x cheaper"}

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        name = words[2].removeprefix("benchmarks.")
        cells = ["" for _ in range(7)]
        cells[{"partitions": 5, "planner": 3}[name]] = ratios[name]
        return subprocess.CompletedProcess(words, 1, "│ a row │" + " │ ".join(cells[1:]) + " │", "")

    monkeypatch.setattr(quick, "KEPT", tmp_path / "quick.json")
    monkeypatch.setattr(quick, "kept_before", lambda: kept_before(tmp_path / "quick.json"))
    monkeypatch.setattr(subprocess, "run", run)
    both = ["--only", "partitions", "--only", "planner", "--json"]
    assert quick.main([*both, "--keep"]) == 0
    assert json.loads(capsys.readouterr().out)["planner: a row"] == {"ratio": 40.0, "spread": 0.0, "moved": None}
    # Less of the one, more of the other: both are better.
    ratios |= {"partitions": "0.2", "planner": "80 x cheaper"}
    assert quick.main(both) == 0
    assert json.loads(capsys.readouterr().out)["partitions: a row"]["moved"] == pytest.approx(-0.6)
    ratios |= {"partitions": "0.9", "planner": "40 x cheaper"}
    assert quick.main(both) == 1


def test_what_was_never_kept_is_new_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quick, "kept_before", lambda: kept_before(tmp_path / "quick.json"))
    monkeypatch.setattr(quick, "measured_once", lambda watched: {f"{watched.name}: a row": 3.0})
    assert quick.main(["--only", "view", "--rounds", "2"]) == 0
    shown = capsys.readouterr().out
    assert "new" in shown
    assert "0 of 1 are worse" in shown
