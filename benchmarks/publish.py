"""What readers notice while periods are republished: `python -m benchmarks.publish`.

Eight readers check every answer, one of them for twenty seconds at a time and one in REPEATABLE READ; two publishers
replace periods all the while. Ours beside the same readers alone, and beside three peers in the same run: the obvious
order (view without the period, drop, create, view with it, load), DELETE + INSERT in one transaction
(as Dagster's database IO managers do), and TRUNCATE + INSERT.

Goals: no wrong answer, no error; p99 within 1.5 of no publisher; slowest read below 150 ms.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.protocols import PERIODS, ways
from benchmarks.readers import LONG_SECONDS, Reads, Target, reading
from varve.services.postgres import warehouse_url
from varve.services.postgres_server import PostgresServer
from varve.services.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.protocols import PublishProtocol

PUBLISHERS = 2
_TIDY_SECONDS = 5.0


@dataclass(frozen=True)
class Measured:
    """What the readers saw during one way, and how often it published."""

    name: str
    reads: tuple[Reads, ...]
    published: int

    def milliseconds(self, share: float) -> float:
        """The quantile of all reads; 1.0 is the slowest."""
        every = sorted(second for reads in self.reads for second in reads.seconds)
        return every[min(int(len(every) * share), len(every) - 1)] * 1000

    @property
    def count(self) -> int:
        """How many reads."""
        return sum(len(reads.seconds) for reads in self.reads)

    @property
    def wrong(self) -> list[str]:
        """Wrong answers, with the reader that got them."""
        return [f"{reads.kind}: {text}" for reads in self.reads for text in reads.wrong]

    @property
    def errors(self) -> list[str]:
        """Errors, with the reader that got them."""
        return [f"{reads.kind}: {text}" for reads in self.reads for text in reads.errors]


def measure(way: PublishProtocol, target: Target, *, seconds: float, long_seconds: float, publishers: int) -> Measured:
    """Read for so many seconds while publishers replace periods, each its own share of them."""
    done = threading.Event()
    counts = [0] * publishers
    failures: list[BaseException] = []

    def work(number: int) -> None:
        replace, end = way.publisher()
        try:
            period = number
            while not done.is_set():
                replace(period)
                counts[number] += 1
                period = period + publishers if period + publishers < PERIODS else number
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that asked
            failures.append(error)
        finally:
            end()

    with reading(target, long_seconds=long_seconds) as found:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(publishers)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + seconds
        while not failures and (left := deadline - time.monotonic()) > 0:
            done.wait(min(_TIDY_SECONDS, left))
            if publishers:
                way.tidy()
        # Readers first: a publisher may be waiting for the long one.
    done.set()
    for thread in threads:
        thread.join(180)
    if failures:
        raise failures[0]
    return Measured(way.name if publishers else "no publisher", tuple(found), sum(counts))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and say whether the goals were met (exit 1 where not)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long each way is read (default 60)")
    parser.add_argument("--rows", type=int, default=2_000, help="rows of a period (default 2000)")
    parser.add_argument("--only", help="the beginning of the name of one way")
    given = parser.parse_args(arguments)
    console = Console(width=120)
    measured: list[Measured] = []
    with _server() as url, console.status("") as status:
        chosen = [way for way in ways(url, given.rows) if way.name.startswith(given.only or "")]
        for turn, way in enumerate(chosen):
            way.prepare()
            for publishers in (0, PUBLISHERS) if turn == 0 else (PUBLISHERS,):
                status.update(f"{way.name}, {publishers} publishers, {given.seconds:g} s")
                long_seconds = min(LONG_SECONDS, given.seconds / 3)
                target = Target(url, way.relation, PERIODS, given.rows)
                found = measure(way, target, seconds=given.seconds, long_seconds=long_seconds, publishers=publishers)
                measured.append(found)
    return _report(console, measured, given.seconds, given.rows)


@contextmanager
def _server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as home:
        Path(home).chmod(0o755)
        os.environ["VARVE_HOME"] = home
        settings = Settings()
        try:
            yield warehouse_url(settings)
        finally:
            PostgresServer(settings.home_dir).stop()


def _report(console: Console, measured: Sequence[Measured], seconds: float, rows: int) -> int:
    alone, ours = measured[0], measured[1]
    table = Table(
        "", "reads", "publishes", "p50 ms", "p99 ms", "x alone", "slowest ms", "wrong", "errors",
        title=f"publish: {PERIODS} periods of {rows:,} rows, 8 readers, {PUBLISHERS} publishers, {seconds:g} s each",
    )  # fmt: skip
    for one in measured:
        p99 = one.milliseconds(0.99)
        table.add_row(
            one.name, f"{one.count:,}", f"{one.published:,}", f"{one.milliseconds(0.5):.0f}", f"{p99:.0f}",
            f"{p99 / alone.milliseconds(0.99):.1f}", f"{one.milliseconds(1):.0f}", str(len(one.wrong)),
            str(len(one.errors)),
        )  # fmt: skip
    console.print(table)
    for one in measured:
        for problem in (*one.wrong[:2], *one.errors[:2]):
            console.print(f"{one.name}: {problem}", markup=False, highlight=False)
    met = not ours.wrong and not ours.errors and ours.published > 0
    met = met and ours.milliseconds(0.99) <= 1.5 * alone.milliseconds(0.99) and ours.milliseconds(1) < 150
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
