"""Random datasets for laws that hold of all: products of unlike windows, lists and sets, and rules between them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pendulum
from hypothesis import strategies as st

from varve.model.errors import VarveError
from varve.model.partitions.calendar import Every, Tiling, calendar_of
from varve.model.partitions.dimension import Dimension, DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.own_calendar import Calendar
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import All, Latest, Only, Overlap, Rule, Same, TableReads, Unit
from varve.planning.mapping.dataset_mapping import Dependency
from varve.planning.mapping.dimension_mapping import moved

if TYPE_CHECKING:
    from varve.model.partitions.key import PartitionKey, Value

NOW = pendulum.datetime(2024, 3, 14, 12)
# What the sets have at NOW; with what Dagster and paths would misread.
MEMBERS = {"users": ("a|b", "ann", "~x"), "devices": (1, 2)}
# Clocks go forward on 2024-03-10 in New York and back by half an hour on 2024-04-07 on Lord Howe.
ZONES = ("UTC", "America/New_York", "Australia/Lord_Howe")
ANCHOR = pendulum.datetime(2024, 3, 1, 10, 35)
TILINGS: tuple[Tiling, ...] = (
    "@hourly",
    "30 * * * *",
    "0 */6 * * *",
    "@daily",
    "30 2 * * *",
    "0 0 * * 1",
    "@weekly",
    "@monthly",
    Every(dt.timedelta(hours=8), ANCHOR),
    Every(dt.timedelta(minutes=90), ANCHOR),
    Every(dt.timedelta(days=2), ANCHOR),
    # Calendars of one's own: with gaps, end to end, with unequal windows, and with several a day.
    Calendar.of_weekdays("nyse", dt.date(2024, 2, 26), dt.date(2024, 4, 12), without=[dt.date(2024, 3, 29)]),
    Calendar.of_weeks("fiscal", dt.date(2024, 2, 26), (1, 1, 2, 1, 2)),
    Calendar.of("terms", [(dt.date(2024, 3, 1), dt.date(2024, 3, 8)), (dt.date(2024, 3, 11), dt.date(2024, 4, 2))]),
    Calendar.parse(
        "sessions",
        "\n".join(
            f"2024-03-{day:02}T{begin}, 2024-03-{day:02}T{end}"
            for day in range(1, 30)
            for begin, end in (("01:30", "02:30"), ("09:30", "13:00"), ("13:00", "16:00"))
            if day % 7
        ),
    ),
)
STATICS = (
    StaticDimension("origin", ("EWR", "JFK", "LGA")),
    StaticDimension("origin", ("JFK", "BOS")),
    StaticDimension("store", ("Paris", "a,b[c]", "x~y|z", "...")),
    StaticDimension("shard", (2, 1)),
)
DYNAMICS = (DynamicDimension("user", "users"), DynamicDimension("device", "devices", int))


@st.composite
def times(draw: st.DrawFn, name: str = "time") -> TimeDimension:
    """Windows of March 2024, with an end or without."""
    tiling, zone = draw(st.sampled_from(TILINGS)), draw(st.sampled_from(ZONES))
    calendar = calendar_of(tiling, zone)
    start = calendar.next_start(int(pendulum.datetime(2024, 3, draw(st.integers(1, 12))).timestamp()) - 1)
    # A calendar may have ended before: then it is its last window.
    start = min(start, calendar.previous_start(calendar.extent[1])) if calendar.has_gaps else start
    ends = min(moved(calendar, start, draw(st.integers(1, 30))), calendar.extent[1])
    end = ends if draw(st.booleans()) and ends > start else None
    return TimeDimension(
        name,
        tiling,
        pendulum.from_timestamp(start, tz=zone),
        None if end is None else pendulum.from_timestamp(end, tz=zone),
        end_offset=draw(st.sampled_from((0, 0, 0, 1))),
    )


@st.composite
def partitionings(draw: st.DrawFn, *, time: st.SearchStrategy[TimeDimension] | None = None) -> Partitioning:
    """Products of one to three dimensions."""
    pool: list[Dimension] = [*draw(st.permutations(STATICS))[:3], *DYNAMICS]
    others = {dimension.name: dimension for dimension in draw(st.permutations(pool))[: draw(st.integers(0, 2))]}
    dimensions = list(others.values())
    if not dimensions or draw(st.booleans()):
        dimensions.append(draw(time or times()))
    return Partitioning(tuple(draw(st.permutations(dimensions))))


@st.composite
def dependencies(draw: st.DrawFn) -> Dependency:
    """What one dataset reads of another: by what is taken for granted, or by any rule that can hold."""
    reader, upstream = draw(partitionings()), draw(partitionings())
    if reader.time and draw(st.booleans()):
        # The same windows on both sides, as most datasets have.
        upstream = Partitioning(
            tuple(reader.time if dimension is upstream.time else dimension for dimension in upstream.dimensions)
        )
    if draw(st.integers(0, 4)) == 0:
        upstream = reader
    rules = {
        dimension.name: rule
        for dimension in upstream.dimensions
        if (rule := draw(st.none() | rules_of(reader, dimension))) is not None
    }
    dependency = Dependency(reader, upstream, rules)
    try:
        dependency.check()
    except VarveError:
        whole: dict[str, Rule] = {dimension.name: All() for dimension in upstream.dimensions}
        dependency = Dependency(reader, upstream, whole)
        dependency.check()
    return dependency


@st.composite
def rules_of(draw: st.DrawFn, reader: Partitioning, dimension: Dimension) -> Rule:
    """A rule for one dimension of the upstream; it need not hold."""
    values = keys_of(dimension)
    kinds: list[Rule] = [All(), Latest()]
    if values:
        kinds.append(Only(tuple(draw(st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True)))))
    if isinstance(dimension, TimeDimension) and reader.time is not None:
        first, last = sorted((draw(st.integers(-3, 3)), draw(st.integers(-3, 3))))
        kinds += [Overlap(first, last, draw(st.sampled_from(Unit)))] * 3
    others = [other for other in reader.dimensions if not isinstance(other, TimeDimension)]
    if others and not isinstance(dimension, TimeDimension):
        of = draw(st.sampled_from(others))
        kinds.append(Same(of.name))
        if values:
            row = st.lists(st.sampled_from(values), max_size=2, unique=True).map(tuple)
            kinds.append(TableReads(of.name, draw(st.dictionaries(st.sampled_from(keys_of(of)), row, max_size=3))))
    return draw(st.sampled_from(kinds))


def keys_of(dimension: Dimension) -> list[Value]:
    return list(dimension.keys(MEMBERS, NOW))


def all_keys(partitioning: Partitioning) -> list[PartitionKey]:
    return list(partitioning.keys(MEMBERS, NOW))
