"""Windows are complete, open, upcoming or outside: where clocks change, at the end of a series, and in Dagster."""

from __future__ import annotations

import datetime as dt

import dagster as dg
import pendulum
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from varve.dagster.partitions.definitions import fold_def
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.windows import WindowState, kept_from, there_from, why_not_there, window_state
from varve.model.schema import Column, ColumnType, Schema

NEW_YORK = "America/New_York"
DAY = TimeDimension.of("day", "@daily", "2026-03-01", "2026-12-01", timezone=NEW_YORK)


def at(text: str, zone: str = NEW_YORK) -> float:
    instant = pendulum.parse(text, tz=zone)
    assert isinstance(instant, pendulum.DateTime)
    return instant.timestamp()


@pytest.mark.parametrize(
    ("day", "now", "state"),
    [
        # Days of 23 and of 25 hours are open until the clock of the zone shows midnight.
        ("2026-03-08", "2026-03-08T23:59", WindowState.OPEN),
        ("2026-03-08", "2026-03-09T00:00", WindowState.COMPLETE),
        ("2026-11-01", "2026-11-01T23:59:59", WindowState.OPEN),
        ("2026-11-01", "2026-11-02T00:00", WindowState.COMPLETE),
        ("2026-11-01", "2026-11-01T00:00", WindowState.OPEN),
        ("2026-11-01", "2026-10-31T23:59:59", WindowState.UPCOMING),
        ("2026-11-30", "2026-11-30T12:00", WindowState.OPEN),
        ("2026-12-01", "2026-12-01T12:00", WindowState.OUTSIDE),
        ("2026-02-28", "2026-03-01T12:00", WindowState.OUTSIDE),
    ],
)
def test_the_state_of_a_window(day: str, now: str, state: WindowState) -> None:
    assert window_state(DAY, DAY.start_of(dt.date.fromisoformat(day)), at(now)) is state


def test_lengths_of_days_that_clocks_make() -> None:
    long, short = (DAY.window(dt.date.fromisoformat(day)) for day in ("2026-11-01", "2026-03-08"))
    assert (long.total_hours(), short.total_hours()) == (25, 23)


def test_a_window_is_a_partition_when_it_is_complete_or_as_far_ahead_as_is_declared() -> None:
    start = DAY.start_of(dt.date(2026, 11, 2))
    assert there_from(DAY, start) == at("2026-11-03T00:00")
    assert there_from(DAY.reaching(1), start) == at("2026-11-02T00:00")
    assert there_from(DAY.reaching(3), start) == at("2026-10-31T00:00")


def test_why_a_window_is_no_partition_is_said_with_the_moment_from_which_it_is() -> None:
    now = at("2026-11-02T12:00")

    def why(day: int, dimension: TimeDimension = DAY, retention: dt.timedelta | None = None) -> str:
        return why_not_there(dimension, dimension.start_of(dt.date(2026, 11, day)), now, retention)

    assert why(1) == ""
    assert why(2) == (
        "its window is open until 2026-11-03 00:00 America/New_York, and it is a partition from 2026-11-03 00:00 "
        "America/New_York on"
    )
    assert why(2, DAY.reaching(1)) == ""
    assert why(3, DAY.reaching(1)).startswith("its window begins at 2026-11-03 00:00 America/New_York")
    assert why(1, retention=dt.timedelta(hours=1)) == ""
    assert "retention" in why(1, DAY, dt.timedelta(seconds=1)) or why(1, DAY, dt.timedelta(seconds=1)) == ""


def test_what_arrives_has_the_open_window_and_what_is_made_of_it_only_complete_ones() -> None:
    rows = Schema((Column("n", ColumnType.BIGINT),))
    endless = TimeDimension.of("day", "@daily", "2026-11-01", timezone=NEW_YORK)
    landing = Dataset("t.a", Partitioning((endless,)), rows, StoreKind.LAKE, "", landing=True)
    derived = Dataset("t.b", Partitioning((endless,)), rows, StoreKind.LAKE, "")
    now = pendulum.datetime(2026, 11, 3, 10, tz=NEW_YORK)
    assert [str(key) for key in landing.partitioning.keys(now=now)][-1] == "day=2026-11-03"
    assert [str(key) for key in derived.partitioning.keys(now=now)][-1] == "day=2026-11-02"
    assert landing.partitioning.same_keys(derived.partitioning)
    assert landing.partitioning != derived.partitioning


@settings(max_examples=60)
@given(
    st.sampled_from(["@hourly", "@daily", "@weekly", "0 6 * * *"]),
    st.integers(0, 3),
    st.sampled_from([None, dt.timedelta(days=2), dt.timedelta(days=9)]),
    st.sampled_from([(None, "UTC"), (None, NEW_YORK), ("2026-11-01", "UTC"), ("2026-11-01", NEW_YORK)]),
    st.integers(int(at("2026-10-20T00:00")), int(at("2026-11-10T00:00"))),
)
def test_dagster_lists_exactly_the_windows_that_are_there(
    tiling: str, ahead: int, retention: dt.timedelta | None, extent: tuple[str | None, str], seconds: int
) -> None:
    end, zone = extent
    start = {"@weekly": "2026-09-06", "0 6 * * *": "2026-10-10T06:00"}.get(tiling, "2026-10-10")
    stop = end and {"@weekly": end, "0 6 * * *": f"{end}T06:00"}.get(tiling, end)
    dimension = TimeDimension.of("time", tiling, start, stop, timezone=zone).reaching(ahead)
    dimension.check()
    now = pendulum.from_timestamp(seconds, tz="UTC")
    fold_def.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pendulum.now", lambda tz="UTC": now.in_timezone(tz))
        definition = fold_def((dimension,), retention)
    fold_def.cache_clear()
    # Windows that Dagster cannot express are a dynamic set, which a sensor of its own updates.
    assume(isinstance(definition, dg.TimeWindowPartitionsDefinition))
    kept = dimension.first if retention is None else kept_from(dimension, retention, seconds)
    ours = [str(key) for key in dimension.keys(now=now) if dimension.start_of(key) >= kept]
    with dg.partition_loading_context(now):
        assert list(definition.get_partition_keys()) == ours
        assert all(definition.has_partition_key(key) for key in ours)
