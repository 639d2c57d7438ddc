"""Has something become slower? `python -m benchmarks.quick [--rounds N] [--keep] [--only NAME]`, `make bench-quick`.

Small runs of the other benchmarks, two minutes a round. Only ratios count, each of two figures of one run on one
machine: how fast the machine is, and what else it does, is in both. They are compared with those that `quick.json` has
of an earlier commit; what has moved by more than the noise of the rounds is named, and where it is worse, the command
ends with 1. `--keep` writes the ratios of now in their place.

Small runs say whether something has moved, not how fast it is: the figures are those of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KEPT = Path(__file__).with_name("quick.json")
# A ratio that has moved by less than this share has not moved: caches and clocks differ that much between processes.
_LEAST = 0.25
# So many times the distance between the rounds counts as noise.
_NOISE = 2.0
_MOST_SECONDS = 300

Cells = list[list[str]]


@dataclass(frozen=True)
class Watched:
    """A small run of one benchmark, and the ratios in its table: by what is measured, from the cells of its rows.

    Attributes:
        more_is_better: whether a larger ratio is a better one.
    """

    name: str
    words: tuple[str, ...]
    ratios: Callable[[Cells], dict[str, float]]
    more_is_better: bool


@dataclass(frozen=True)
class Measured:
    """A ratio over the rounds: its median, and how far the rounds are apart as a share of that."""

    ratio: float
    spread: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Measured:
        """The median and the spread of the rounds."""
        median = statistics.median(ratios)
        return cls(round(median, 4), round((max(ratios) - min(ratios)) / median, 3) if median else 0.0)

    def moved(self, kept: Measured) -> float:
        """By which share it differs from what was kept; 0.0 where that is within the noise of both."""
        share = self.ratio / kept.ratio - 1 if kept.ratio else 0.0
        return share if abs(share) > max(_LEAST, _NOISE * max(self.spread, kept.spread)) else 0.0


def number(text: str) -> float:
    """The first number in a cell: `1,234.5 ms`, `12 x cheaper`, `3.4%`."""
    found = re.search(r"-?[\d,]*\.?\d+", text)
    assert found is not None, text
    value = float(found[0].replace(",", ""))
    return value / 100 if "%" in text else value


def column(place: int) -> Callable[[Cells], dict[str, float]]:
    """The ratios that stand in a column, by the first cell of their rows."""

    def ratios(rows: Cells) -> dict[str, float]:
        return {row[0]: number(row[place]) for row in rows if re.search(r"\d", row[place])}

    return ratios


def _by_periods(rows: Cells) -> dict[str, float]:
    """What a load, a publish and a query cost at the most periods, as times of the fewest; of our views alone."""
    ours = [row for row in rows if row[0] == rows[0][0]]
    few, many = ours[0], ours[-1]
    return {
        f"{many[1]} periods beside {few[1]}: {what}": number(many[place]) / number(few[place])
        for what, place in (("load", 2), ("publish", 3), ("query one", 5))
    }


def _with_iceberg(rows: Cells) -> dict[str, float]:
    return {f"publish of {row[0]} with Iceberg beside without": number(row[2]) / number(row[1]) for row in rows}


WATCHED = (
    Watched("partitions", ("--rounds", "2"), column(5), more_is_better=False),
    Watched(
        "planner", ("--datasets", "60", "--scopes", "400", "--single", "20", "--rounds", "3"), column(3),
        more_is_better=True,
    ),
    Watched(
        "reconcile", ("--datasets", "30", "--partitions", "3000", "--ticks", "10", "--no-dagster"), column(2),
        more_is_better=False,
    ),
    Watched("view", ("--periods", "26,260", "--rounds", "7"), _by_periods, more_is_better=False),
    Watched(
        "capture", ("--rows", "50000", "--events", "50000", "--rounds", "1", "--giant", "0"), column(3),
        more_is_better=False,
    ),
    Watched("load", ("--rows", "200000", "--rounds", "2"), column(4), more_is_better=True),
    Watched(
        "iceberg", ("--partitions", "100", "--rounds", "5", "--without-pyiceberg"), _with_iceberg, more_is_better=False
    ),
)  # fmt: skip


def cells_of(output: str) -> Cells:
    """The rows of the tables in what a benchmark prints, without their headings."""
    lines = [line.strip() for line in output.splitlines()]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]


def measured_once(watched: Watched) -> dict[str, float]:
    """Run the benchmark in a process of its own; raises SystemExit with what it said where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{watched.name}", *watched.words],
        env={**os.environ, "COLUMNS": "220", "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True, text=True, timeout=_MOST_SECONDS, check=False,
    )  # fmt: skip
    rows = cells_of(done.stdout)
    # Some end with 1 where a goal is missed, which small runs do not say.
    if not rows:
        sys.exit(f"benchmarks.{watched.name} ended with {done.returncode} and no table:\n{done.stdout}{done.stderr}")
    return {f"{watched.name}: {what}": ratio for what, ratio in watched.ratios(rows).items()}


def kept_before(file: Path = KEPT) -> dict[str, Measured]:
    """The ratios that were kept; none where there is no file."""
    if not file.exists():
        return {}
    ratios: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return {what: Measured(**values) for what, values in ratios.items()}


def main(words: Sequence[str] | None = None) -> int:
    """Measure, compare and print; 1 where something is worse by more than noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often each benchmark runs (default 2)")
    parser.add_argument("--only", choices=[watched.name for watched in WATCHED], action="append")
    parser.add_argument("--keep", action="store_true", help="write the ratios of now into quick.json")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    given = parser.parse_args(words)
    chosen = [watched for watched in WATCHED if given.only is None or watched.name in given.only]
    rounds: dict[str, list[float]] = {}
    better = {}
    began, progress = time.monotonic(), Console(stderr=True)
    for turn in range(given.rounds):
        for watched in chosen:
            seconds = time.monotonic() - began
            progress.print(f"{seconds:4.0f} s  round {turn + 1} of {given.rounds}: {watched.name}", highlight=False)
            for what, ratio in measured_once(watched).items():
                rounds.setdefault(what, []).append(ratio)
                better[what] = watched.more_is_better
    # What a benchmark compares the others with is always once itself.
    now = {what: Measured.of(ratios) for what, ratios in rounds.items() if set(ratios) != {1.0}}
    before = kept_before()
    moved = {what: each.moved(before[what]) for what, each in now.items() if what in before}
    worse = [what for what, share in moved.items() if share and (share < 0) == better[what]]
    if given.json:
        print(json.dumps({what: {**vars(each), "moved": moved.get(what)} for what, each in now.items()}))
    else:
        show(Console(), now, before, moved, worse)
    if given.keep:
        kept = {what: vars(each) for what, each in sorted({**before, **now}.items())}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 1 if worse else 0


def show(
    console: Console, now: dict[str, Measured], before: dict[str, Measured], moved: dict[str, float], worse: list[str]
) -> None:
    """Print every ratio beside the one that was kept."""
    table = Table("ratio", "kept", "now", "rounds apart", "moved")
    for what, each in now.items():
        share = moved.get(what, 0.0)
        word = "worse" if what in worse else "better"
        table.add_row(
            what, f"{before[what].ratio:g}" if what in before else "", f"{each.ratio:g}", f"{each.spread:.0%}",
            f"{word} by {abs(share):.0%}" if share else "" if what in before else "new",
        )  # fmt: skip
    console.print(table)
    console.print(f"{len(worse)} of {len(now)} are worse by more than noise.", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
