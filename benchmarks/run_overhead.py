"""What a run of Varve costs beside an empty one, and a range beside single runs: `python -m benchmarks.run_overhead`.

Everything is the command a person would type, as a whole process against warm services, in turn so that a machine whose
speed drifts treats both alike. A bare Dagster project tells what loading ours costs. Goals: one tiny partition at most
1.5 times an empty asset of the same project; 28 days in one run less than a third of 28 single runs (of which a few are
timed and the rest extrapolated, said so in the row).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.commands import PROJECT, home_of_its_own, materialize
from pipeline_defs.definitions import graph
from resources import partner
from varve.model.partitions.key import PartitionKey
from varve.planning.mapping.dataset_mapping import Dependency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.services.settings import Settings

DEPARTURES, WEATHER = graph.datasets["flights.departures"], graph.datasets["flights.weather"]
TINY = ("flights/delays", "--partition", "2013-01-05|EWR")
SINGLE = ("flights/departures", "--partition", "2013-01-05")
RANGE = ("flights/departures", "--partition-range", "2013-01-01...2013-01-28")
DAYS = 28


@dataclass(frozen=True)
class Timed:
    """Seconds of wall time of each counted run of one command."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and say whether the goals were met (exit 1 where not)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds, after one that is not (default 5)")
    rounds = parser.parse_args(arguments).rounds
    console = Console()
    with home_of_its_own() as settings:
        with console.status("Starting services and laying files..."):
            _prepare(settings)
        measured = _measure(console, rounds)
    return _report(console, measured, rounds)


def _prepare(settings: Settings) -> None:
    days = [key["day"] for key in _days()]
    hours = sorted(
        {
            str(found["hour"])
            for key in _days()
            for found in Dependency(DEPARTURES.partitioning, WEATHER.partitioning).upstream_of(key).keys
        }
    )
    for _ in partner.send_days(Path(settings.landing), days, hours):  # type: ignore[arg-type]
        pass
    materialize(*RANGE)
    materialize("flights/weather", "--partition-range", "2013-01-05T05...2013-01-06T04")


def _days() -> list[PartitionKey]:
    (day,) = DEPARTURES.partitioning.dimensions
    return [PartitionKey.of(day=key) for key in itertools.islice(day.keys(), DAYS)]


def _measure(console: Console, rounds: int) -> dict[str, Timed]:
    commands = {
        "bare": ("benchmarks.bare_project", ("empty",)),
        "empty": ("benchmarks.empty_project", ("empty",)),
        "tiny": (PROJECT, TINY),
        "single": (PROJECT, SINGLE),
        "range": (PROJECT, RANGE),
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    with console.status("") as status:
        for turn in range(rounds + 1):
            for name, (module, words) in commands.items():
                status.update(f"round {turn} of {rounds}: {name}")
                took = materialize(*words, module=module)
                if turn:
                    seconds[name].append(took)
    return {name: Timed(name, tuple(found)) for name, found in seconds.items()}


def _report(console: Console, measured: dict[str, Timed], rounds: int) -> int:
    bare, empty, tiny, single, ranged = (measured[name] for name in ("bare", "empty", "tiny", "single", "range"))
    loading = statistics.median(e / b for e, b in zip(empty.seconds, bare.seconds, strict=True))
    ratio = statistics.median(t / e for t, e in zip(tiny.seconds, empty.seconds, strict=True))
    share = statistics.median(r / (s * DAYS) for r, s in zip(ranged.seconds, single.seconds, strict=True))
    table = Table("what", "wall s (median)", "min - max", "ratio", "goal", title=f"run_overhead, {rounds} rounds")
    _row(table, "an empty asset of a bare Dagster project", bare, "", "")
    _row(table, "an empty asset of the same project", empty, f"1.00; {loading:.2f} x bare", "")
    _row(table, "flights/delays 2013-01-05|EWR", tiny, f"{ratio:.2f} x empty", "<= 1.50")
    _row(table, "flights/departures, 1 day", single, "", "")
    _row(
        table,
        f"flights/departures, {DAYS} days in one run",
        ranged,
        f"{share:.2f} x {DAYS} single (extrapolated)",
        "< 0.33",
    )
    console.print(table)
    return 0 if ratio <= 1.5 and share < 1 / 3 else 1


def _row(table: Table, what: str, timed: Timed, ratio: str, goal: str) -> None:
    spread = f"{min(timed.seconds):.2f} - {max(timed.seconds):.2f}"
    table.add_row(what, f"{timed.median:.2f}", spread, ratio, goal)


if __name__ == "__main__":
    sys.exit(main())
