"""Listing, mapping and spelling partitions beside Dagster's own: `python -m benchmarks.partitions`.

Everything runs in this process, ours and Dagster's in turn on the same work, and the median of the rounds counts.
Dagster's objects keep what they have worked out; each round gives both new ones. Goals: mapping ten years of days to
their hours at most twice what Dagster's interval mapping takes; listing and mapping a product of dimensions at least
ten times faster per key than Dagster's multi-partitions on the part of it that they can hold: they have two
dimensions, ours has three.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from dataclasses import dataclass, field
from itertools import count
from timeit import timeit
from typing import TYPE_CHECKING

import dagster as dg
import pendulum
from rich.console import Console
from rich.progress import track
from rich.table import Table

from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.planning.mapping.dataset_mapping import Dependency, listed
from varve.planning.mapping.partition_subset import PartitionBox, TimeSpans, boxes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varve.model.partitions.key import PartitionKey

START, END = pendulum.datetime(2013, 1, 1), pendulum.datetime(2023, 1, 1)
# Dagster remembers a listing by its moment: each round has another.
NOWS = (pendulum.datetime(2023, 6, 1).add(seconds=second) for second in count())
STORES = tuple(f"store-{number}" for number in range(25))
KINDS = tuple("abcdefgh")
# What Dagster maps of a product in bearable time; it takes longer per key the more there are.
MAPPED_DAYS = 100
SCATTERED_KEYS = 2_000
SPELT_KEYS = 10_000


@dataclass
class Work:
    """One piece of work, done by us and by Dagster.

    Attributes:
        prepare: makes new objects of both, and returns what to time of each.
        ours, theirs: how many keys each of the two handles; times are compared per key where they differ.
        goal: the most that our time may be of Dagster's, per key; None: there is none.
    """

    name: str
    prepare: Callable[[], tuple[Callable[[], object], Callable[[], object]]]
    ours: int
    theirs: int
    goal: float | None = None
    seconds: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    def round(self) -> None:
        """Time both once."""
        for place, timed in enumerate(self.prepare()):
            # timeit collects no garbage while it times.
            self.seconds[place].append(timeit(timed, number=1))

    @property
    def medians(self) -> tuple[float, float]:
        """Seconds of ours and of Dagster's."""
        return statistics.median(self.seconds[0]), statistics.median(self.seconds[1])

    @property
    def ratio(self) -> float:
        """Our time per key over Dagster's."""
        ours, theirs = self.medians
        return (ours / self.ours) / (theirs / self.theirs)

    @property
    def met(self) -> bool:
        """Whether the goal is reached, where there is one."""
        return self.goal is None or self.ratio <= self.goal


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and say whether the goals were met (exit 1 where not)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="counted rounds, after one that is not (default 7)")
    rounds = parser.parse_args(arguments).rounds
    warnings.simplefilter("ignore", dg.BetaWarning)
    console = Console()
    works = [
        _years_of_hours("UTC"),
        _years_of_hours("America/New_York"),
        _half_hours(),
        *_listing(),
        _product(),
        _scattered(),
        *_spelling(),
    ]
    for turn in track(range(rounds + 1), description="rounds", console=console, transient=True):
        for work in works:
            work.round()
            if not turn:
                work.seconds[0].clear()
                work.seconds[1].clear()
    console.print(_table(works, rounds))
    return 0 if all(work.met for work in works) else 1


def _dimension(name: str, tiling: Grain | str, zone: str = "UTC", *, minute: int = 0) -> TimeDimension:
    start, end = (pendulum.datetime(moment.year, 1, 1, 0, minute, tz=zone) for moment in (START, END))
    return TimeDimension(name, tiling, start, end)


def _windows(dimension: TimeDimension, cron: str) -> dg.TimeWindowPartitionsDefinition:
    assert dimension.end is not None
    return dg.TimeWindowPartitionsDefinition(
        cron_schedule=cron, fmt="%Y-%m-%dT%H:%M", timezone=dimension.timezone,
        start=dimension.start.naive().strftime("%Y-%m-%dT%H:%M"), end=dimension.end.naive().strftime("%Y-%m-%dT%H:%M"),
    )  # fmt: skip


def _between(
    reader: TimeDimension, upstream: TimeDimension, crons: tuple[str, str], name: str, goal: float | None
) -> Work:
    """All windows of the reader to those of the upstream that they overlap, as intervals: neither lists a key."""

    def prepare() -> tuple[Callable[[], object], Callable[[], object]]:
        whole = PartitionBox(Partitioning((reader,)), (_everything(reader),))
        dependency = Dependency(Partitioning((reader,)), Partitioning((upstream,)))
        theirs, theirs_up = _windows(reader, crons[0]), _windows(upstream, crons[1])
        now = next(NOWS)
        mapping = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
        first, last = theirs.get_first_partition_key(), theirs.get_last_partition_key()
        assert first is not None
        assert last is not None
        subset = theirs.empty_subset().with_partition_key_range(theirs, dg.PartitionKeyRange(first, last))
        return (
            lambda: dependency.upstream_of(whole),
            lambda: mapping.get_upstream_mapped_partitions_result_for_partitions(subset, theirs, theirs_up, now),
        )

    return Work(name, prepare, 1, 1, goal)


def _everything(dimension: TimeDimension) -> TimeSpans:
    assert dimension.last is not None
    return TimeSpans(((dimension.first, dimension.last),))


def _years_of_hours(zone: str) -> Work:
    day, hour = _dimension("day", Grain.DAY, zone), _dimension("hour", Grain.HOUR, zone)
    return _between(day, hour, ("0 0 * * *", "0 * * * *"), f"map 10 years of days to hours, {zone}", 2.0)


def _half_hours() -> Work:
    hour, half = _dimension("hour", Grain.HOUR), _dimension("half", "30 * * * *", minute=30)
    return _between(hour, half, ("0 * * * *", "30 * * * *"), "map 10 years of hours to `30 * * * *`", 2.0)


def _three() -> Partitioning:
    return Partitioning(
        (_dimension("day", Grain.DAY), StaticDimension("store", STORES), StaticDimension("kind", KINDS))
    )


def _two() -> dg.MultiPartitionsDefinition:
    day = _windows(_dimension("day", Grain.DAY), "0 0 * * *")
    return dg.MultiPartitionsDefinition({"day": day, "store": dg.StaticPartitionsDefinition(list(STORES))})


def _listing() -> list[Work]:
    days = (END - START).days

    def whole() -> tuple[Callable[[], object], Callable[[], object]]:
        ours, theirs, now = _three(), _two(), next(NOWS)
        return lambda: list(ours.keys()), lambda: theirs.get_partition_keys(current_time=now)

    def part() -> tuple[Callable[[], object], Callable[[], object]]:
        ours, theirs, now = Partitioning(_three().dimensions[:2]), _two(), next(NOWS)
        return lambda: list(ours.keys()), lambda: theirs.get_partition_keys(current_time=now)

    return [
        Work(f"list {days:,} days x 25", part, days * 25, days * 25, 0.1),
        Work(f"list {days:,} days x 25 x 8; Dagster: x 25", whole, days * 25 * 8, days * 25, 0.1),
    ]


def _some(partitioning: Partitioning, count: int) -> list[PartitionKey]:
    keys = list(partitioning.keys())
    return keys[:: max(1, len(keys) // count)][:count]


def _mapped_by_dagster(theirs: dg.MultiPartitionsDefinition, texts: Sequence[str]) -> Callable[[], object]:
    now = next(NOWS)
    subset = theirs.empty_subset().with_partition_keys(texts)
    mapping = dg.MultiPartitionMapping(
        {
            "day": dg.DimensionPartitionMapping("day", dg.TimeWindowPartitionMapping()),
            "store": dg.DimensionPartitionMapping("store", dg.IdentityPartitionMapping()),
        }
    )

    def mapped() -> object:
        result = mapping.get_upstream_mapped_partitions_result_for_partitions(subset, theirs, theirs, now)
        return list(result.partitions_subset.get_partition_keys())

    return mapped


def _product() -> Work:
    def prepare() -> tuple[Callable[[], object], Callable[[], object]]:
        ours, theirs = _three(), _two()
        dependency = Dependency(ours, ours)
        time = ours.dimensions[0]
        assert isinstance(time, TimeDimension)
        whole = PartitionBox(ours, (_everything(time), STORES, KINDS))
        texts = theirs.get_partition_keys(current_time=next(NOWS))[: MAPPED_DAYS * 25]
        return lambda: listed(dependency.upstream_of(whole).existing), _mapped_by_dagster(theirs, texts)

    days = (END - START).days
    name = f"map that product and list the result; Dagster: {MAPPED_DAYS} days x 25"
    return Work(name, prepare, days * 25 * 8, MAPPED_DAYS * 25, 0.1)


def _scattered() -> Work:
    keys = _some(_three(), SCATTERED_KEYS)

    def prepare() -> tuple[Callable[[], object], Callable[[], object]]:
        ours, theirs = _three(), _two()
        dependency = Dependency(ours, ours)
        texts = theirs.get_partition_keys(current_time=next(NOWS))
        texts = texts[:: len(texts) // SCATTERED_KEYS][:SCATTERED_KEYS]
        return (
            lambda: listed(box for some in boxes_of(ours, keys) for box in dependency.upstream_of(some).existing),
            _mapped_by_dagster(theirs, texts),
        )

    return Work(f"map {SCATTERED_KEYS:,} scattered keys of it", prepare, SCATTERED_KEYS, SCATTERED_KEYS, 0.1)


def _spelling() -> list[Work]:
    keys = _some(_three(), SPELT_KEYS)

    def render() -> tuple[Callable[[], object], Callable[[], object]]:
        ours = _three()
        pairs = [{"day": str(key["day"]), "store": str(key["store"])} for key in keys]
        return lambda: [ours.to_dagster(key) for key in keys], lambda: [dg.MultiPartitionKey(pair) for pair in pairs]

    def parse() -> tuple[Callable[[], object], Callable[[], object]]:
        ours, theirs = _three(), _two()
        texts = [ours.to_dagster(key) for key in keys]
        theirs_texts = [f"{key['day']}T00:00|{key['store']}" for key in keys]
        return (
            lambda: [ours.from_dagster(text) for text in texts],
            lambda: [theirs.has_partition_key(text) for text in theirs_texts],
        )

    return [
        Work(f"render {SPELT_KEYS:,} keys of 3 dimensions; Dagster: of 2", render, len(keys), len(keys)),
        Work(f"parse and validate {SPELT_KEYS:,} keys of 3; Dagster: of 2", parse, len(keys), len(keys)),
    ]


def _table(works: list[Work], rounds: int) -> Table:
    table = Table(
        "what", "ours ms", "Dagster ms", "ours us/key", "Dagster us/key", "ratio", "goal",
        title=f"partitions, median of {rounds} rounds",
    )  # fmt: skip
    for work in works:
        ours, theirs = work.medians
        each = (f"{ours / work.ours * 1e6:.2f}", f"{theirs / work.theirs * 1e6:.2f}") if work.ours > 1 else ("", "")
        goal = "" if work.goal is None else f"<= {work.goal:g}"
        table.add_row(work.name, f"{ours * 1e3:.3f}", f"{theirs * 1e3:.3f}", *each, f"{work.ratio:.3f}", goal)
    return table


if __name__ == "__main__":
    sys.exit(main())
