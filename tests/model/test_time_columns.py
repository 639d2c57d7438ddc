"""Several partition columns of one time dimension: each window has its own values, and is found by them again."""

from __future__ import annotations

import datetime as dt

import pendulum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from varve.model.errors import OutsideDimension, UnknownPartition, VarveError
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.time_columns import TimeColumn
from varve.model.schema import ColumnType

INT, BIGINT, DATE, TIMESTAMP = ColumnType.INT, ColumnType.BIGINT, ColumnType.DATE, ColumnType.TIMESTAMP
YEAR, MONTH, DAY = TimeColumn("year", "%Y", INT), TimeColumn("month", "%m", INT), TimeColumn("day", "%d", INT)
HOUR = TimeColumn("hour", "%H", INT)
START = pendulum.datetime(2013, 1, 1)
DUMPS = TimeDimension("t", "@hourly", START, columns=(YEAR, MONTH, DAY, HOUR))
STORE = StaticDimension("store", ("Detroit", "Paris"))
ZONES = st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu"])
# Layouts, each with a tiling whose windows it tells apart in every zone.
LAYOUTS = st.sampled_from(
    [
        ("@hourly", (TimeColumn("day", "%Y-%m-%d", DATE), TimeColumn("hour", "%H"), TimeColumn("offset", "%z"))),
        ("@hourly", (TimeColumn("second", "%s", BIGINT),)),
        ("@hourly", (TimeColumn("at", "%s", TIMESTAMP),)),
        ("@hourly", (YEAR, TimeColumn("day", "%j", INT), TimeColumn("second", "%s000", BIGINT))),
        ("@daily", (YEAR, MONTH, DAY)),
        ("@daily", (TimeColumn("day", "%Y%m%d", INT),)),
        ("@daily", (TimeColumn("month", "%Y-%-m"), TimeColumn("day", "%-d"))),
        ("30 6 * * *", (TimeColumn("month", "%Y-%m-01", DATE), DAY)),
        ("0 0 * * 1", (TimeColumn("year", "%G", INT), TimeColumn("week", "%V", INT))),
        ("0 0 1 * *", (YEAR, MONTH)),
        ("0 0 1 */3 *", (YEAR, TimeColumn("quarter", "Q%q"))),
    ]
)


@settings(max_examples=60)
@given(LAYOUTS, ZONES, st.datetimes(dt.datetime(2012, 1, 1), dt.datetime(2030, 1, 1)))  # noqa: DTZ001
def test_the_columns_of_a_window_say_which_it_is_in_every_zone(
    layout: tuple[str, tuple[TimeColumn, ...]], zone: str, moment: dt.datetime
) -> None:
    tiling, columns = layout
    calendar = TimeDimension("t", tiling, pendulum.datetime(2000, 1, 3, tz=zone)).calendar
    start = pendulum.from_timestamp(calendar.following(calendar.floor(946_684_800)), tz=zone)
    dimension = TimeDimension("t", tiling, start, columns=columns)
    dimension.check()
    window = calendar.floor(int(pendulum.instance(moment, tz=zone).timestamp()))
    for _ in range(30):
        values = dimension.column_values_at(window)
        texts = {column.name: str(value) for column, value in zip(columns, values, strict=True)}
        assert dimension.start_of(dimension.value_of_columns(values)) == window
        assert dimension.start_of(dimension.parse_columns(texts)) == window
        window = calendar.following(window)


def test_the_key_has_the_columns_and_dagster_one_text() -> None:
    partitioning = Partitioning((DUMPS, STORE))
    key = partitioning.from_dagster("Paris|2022-03-31T07")
    assert key == PartitionKey.of(year=2022, month=3, day=31, hour=7, store="Paris")
    assert key.path == "year=2022/month=3/day=31/hour=7/store=Paris"
    assert partitioning.from_path(key.path) == key
    assert partitioning.to_dagster(key) == "Paris|2022-03-31T07"


@pytest.mark.needs_seconds
def test_other_columns_may_stand_between_those_of_time() -> None:
    partitioning = Partitioning((DUMPS, STORE), ("store", "year", "month", "day", "hour"))
    partitioning.check()
    first = next(partitioning.keys())
    assert first.path == "store=Detroit/year=2013/month=1/day=1/hour=0"
    assert partitioning.from_path(first.path) == first
    assert partitioning.values(first) == ("2013-01-01T00", "Detroit")


def test_numbers_may_have_leading_zeros_where_others_wrote_them() -> None:
    partitioning = Partitioning((DUMPS,))
    assert partitioning.from_path("year=2022/month=03/day=09/hour=07").path == "year=2022/month=3/day=9/hour=7"


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("year=2022/month=13/day=1/hour=0", UnknownPartition, "year=2022 month=13 day=1 hour=0 begins no window"),
        ("year=2022/month=2/day=30/hour=0", UnknownPartition, "the first one is year=2013 month=1 day=1 hour=0"),
        ("year=2012/month=2/day=3/hour=0", OutsideDimension, "lies outside dimension t, which runs from 2013-01-01T00"),
        ("year=2022/month=March/day=3/hour=0", UnknownPartition, "month=March"),
        ("year=2022/month=3/day=3", UnknownPartition, "must name the columns year, month, day, hour"),
    ],
)
def test_what_names_no_window_is_told(path: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Partitioning((DUMPS,)).from_path(path)


@pytest.mark.parametrize(
    ("tiling", "zone", "columns", "message"),
    [
        (
            "@hourly",
            "America/New_York",
            (YEAR, MONTH, DAY, HOUR),
            "the clock of America/New_York shows that hour twice",
        ),
        ("@hourly", "UTC", (YEAR, MONTH, DAY), "add a column with the part that is missing"),
        ("@hourly", "UTC", (DAY, HOUR), "together the columns name the year and all below it"),
        ("@hourly", "UTC", (YEAR, DAY, HOUR), "so that the columns do not say which|does not say that its window"),
        ("@daily", "UTC", (TimeColumn("day", "%Y-%b", INT),), "%b in '%Y-%b' is not known"),
        ("@daily", "UTC", (TimeColumn("day", "%Y-%m-%d", INT),), "day is INT, and %Y-%m-%d is 2013-01-01"),
        ("@daily", "UTC", (TimeColumn("day", "%Y%m%d", ColumnType.DOUBLE),), "a column of time is STRING, INT"),
        ("@daily", "UTC", (TimeColumn("day", "%d.%m.%Y", DATE),), "a DATE is written %Y-%m-%d"),
        ("@daily", "UTC", (TimeColumn("Day", "%Y%m%d"),), "a name is lower-case letters"),
    ],
)
def test_columns_that_do_not_say_which_window_it_is_are_refused(
    tiling: str, zone: str, columns: tuple[TimeColumn, ...], message: str
) -> None:
    with pytest.raises(VarveError, match=message):
        TimeDimension("t", tiling, pendulum.datetime(2013, 1, 1, tz=zone), columns=columns).check()
