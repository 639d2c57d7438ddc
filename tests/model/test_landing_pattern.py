"""Names of landing files: each is of exactly one partition and spelt as its key is, or told why it is not taken."""

from __future__ import annotations

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varve.model.errors import OutsideDimension, UnknownPartition, VarveError
from varve.model.landing.options import LandingFormat, LandingOptions
from varve.model.landing.pattern import FilePattern
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.time_columns import TimeColumn
from varve.model.schema import ColumnType

DAY = TimeDimension("day", Grain.DAY, pendulum.datetime(2026, 1, 1))
HOUR = TimeDimension("hour", Grain.HOUR, pendulum.datetime(2013, 1, 1, tz="America/New_York"))
PARTS = TimeDimension(
    "t",
    Grain.HOUR,
    pendulum.datetime(2026, 1, 1),
    columns=(TimeColumn("day", "%Y-%m-%d", ColumnType.DATE), TimeColumn("hour", "%H", ColumnType.INT)),
)
MOMENT = TimeDimension(
    "t",
    Grain.HOUR,
    pendulum.datetime(2026, 10, 24, tz="Europe/Berlin"),
    columns=(TimeColumn("hour", "%s", ColumnType.TIMESTAMP),),
)
REGION = StaticDimension("region", ("EU", "US", "x", "x_y", "a|b", "a/b", "50%"))
STORE = StaticDimension("store", ("z", "y_z"))
ANY = DynamicDimension("who", "people")


def pattern(files: str, *dimensions: object, form: LandingFormat | None = None) -> FilePattern:
    return FilePattern.of(LandingOptions(files=files, format=form), Partitioning(tuple(dimensions)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("files", "dimensions", "name", "path"),
    [
        ("", (DAY, REGION), "2026-09-01|EU.csv", "day=2026-09-01/region=EU"),
        ("", (DAY, REGION), "2026-09-01|EU.csv.gz", "day=2026-09-01/region=EU"),
        ("", (DAY, REGION), "2026-09-01|a%7Cb.parquet", "day=2026-09-01/region=a|b"),
        ("", (DAY, REGION), "2026-09-01|a%2Fb.csv", "day=2026-09-01/region=a%2Fb"),
        ("", (REGION,), "50%.csv", "region=50%25"),
        ("", (REGION,), "50%25.csv", "region=50%25"),
        ("{day}|{region}.csv", (DAY, REGION), "2026-09-01|a|b.csv", "day=2026-09-01/region=a|b"),
        ("{region}/orders_{day:%Y%m%d}.csv.gz", (DAY, REGION), "EU/orders_20260901.csv.gz", "day=2026-09-01/region=EU"),
        ("day={day}/region={region}/*", (DAY, REGION), "day=2026-09-01/region=a%2Fb/p-1.avro",
         "day=2026-09-01/region=a%2Fb"),
        ("{day:%Y}/{day:%m}/{day:%d}/*.csv", (DAY,), "2026/09/01/a.csv", "day=2026-09-01"),
        ("{day}/{day:%Y%m%d}.csv", (DAY,), "2026-09-01/20260901.csv", "day=2026-09-01"),
        ("{day:%Y/%m/%d}.csv", (DAY,), "2026/09/01.csv", "day=2026-09-01"),
        ("{day:%Y}/{day}.csv", (DAY,), "2026/2026-09-05.csv", "day=2026-09-05"),
        ("{day:%Y}/{day:%Y-%m-%d}.csv", (DAY,), "2026/2026-09-05.csv", "day=2026-09-05"),
        ("{hour:%Y-%m-%d}/{hour}.csv", (HOUR,), "2013-11-03/2013-11-03T01-0500.csv", "hour=2013-11-03T01-0500"),
        ("h{hour:%Y%m%d%H}.csv", (HOUR,), "h2013110301.csv", "hour=2013-11-03T01"),
        ("h{hour:%Y%m%d%H%z}.csv", (HOUR,), "h2013110301-0400.csv", "hour=2013-11-03T01"),
        ("h{hour:%Y%m%d%H%z}.csv", (HOUR,), "h2013110301-0500.csv", "hour=2013-11-03T01-0500"),
        ("{region}_{store}.csv", (REGION, STORE), "EU_y_z.csv", "region=EU/store=y_z"),
        ("{{{region}}}.csv", (REGION,), "{EU}.csv", "region=EU"),
        ("day={day}/hour={hour}/*.csv", (PARTS,), "day=2026-09-01/hour=7/a.csv", "day=2026-09-01/hour=7"),
        ("day={day}/hour={hour}/*.csv", (PARTS,), "day=2026-09-01/hour=07/a.csv", "day=2026-09-01/hour=7"),
        ("{t:%Y}/{t:%m}/{t:%d}/{t:%H}.csv", (PARTS,), "2026/09/01/07.csv", "day=2026-09-01/hour=7"),
        ("{day}/{region}/{hour}.csv", (PARTS, REGION), "2026-09-01/EU/23.csv", "day=2026-09-01/hour=23/region=EU"),
        ("", (PARTS,), "2026-09-01T07.csv", "day=2026-09-01/hour=7"),
        # A moment is named on the clock of the zone, as its key is, with a pattern and without one.
        ("", (MOMENT,), "2026-10-25T02.csv", "hour=2026-10-25 00%3A00%3A00"),
        ("{hour}.csv", (MOMENT,), "2026-10-25T02.csv", "hour=2026-10-25 00%3A00%3A00"),
        ("{hour}.csv", (MOMENT,), "2026-10-25T00.csv", "hour=2026-10-24 22%3A00%3A00"),
        ("{hour}.csv", (MOMENT,), "2026-10-25T02+0100.csv", "hour=2026-10-25 01%3A00%3A00"),
        ("{hour}.csv", (MOMENT,), "2026-10-25 00%3A00%3A00.csv", "hour=2026-10-25 00%3A00%3A00"),
        ("{hour:%Y-%m-%dT%H%z}.csv", (MOMENT,), "2026-10-25T02+0100.csv", "hour=2026-10-25 01%3A00%3A00"),
        # Of a dump of Hive's it is a path, which is in UTC.
        ("hour={hour}/*.csv", (MOMENT,), "hour=2026-10-25 00%3A00%3A00/a.csv", "hour=2026-10-25 00%3A00%3A00"),
    ],
)  # fmt: skip
def test_a_name_says_its_partition(files: str, dimensions: tuple[object, ...], name: str, path: str) -> None:
    said = pattern(files, *dimensions)
    assert said.key(name).path == path
    # A run looks at what its partitions may be called, and at nothing else: it must miss no spelling.
    wanted, (*folders, file) = said.wanted([said.key(name)]), name.split("/")
    assert all(wanted.fit(depth, text) for depth, text in enumerate([*folders, said.stem(file)]))


def test_the_name_of_a_moment_is_its_key_but_in_a_path_of_hive() -> None:
    key = Partitioning((MOMENT,)).from_dagster("2026-10-25T02+0100")
    assert pattern("{hour}.csv", MOMENT).name(key) == "2026-10-25T02+0100.csv"
    assert pattern("x/hour={hour}/*.csv", MOMENT).name(key) == "x/hour=2026-10-25 01%3A00%3A00/*.csv"
    for files in ("{hour}.csv", "a/{hour}.csv", "hour={hour}/a.csv"):
        assert pattern(files, MOMENT).key(pattern(files, MOMENT).name(key)) == key


@pytest.mark.parametrize(
    ("files", "dimensions", "name", "reason"),
    [
        ("", (DAY,), "2026-9-1.csv", "is no key of dimension day"),
        ("", (DAY,), "2026-09-01.txt", "its ending is of no known format"),
        ("", (DAY, REGION), "2026-09-01.csv", "must have 2 parts"),
        ("", (REGION,), "%45U.csv", "'%45U' is another spelling of 'EU'; name it so."),
        ("{region}.csv", (REGION,), "%45U.csv", "'%45U' is another spelling of 'EU'; name it so."),
        ("{day}.csv", (DAY,), "2026-09-01.csv.gz", "its name does not fit {day}.csv."),
        ("{day:%Y%m%d}.csv", (DAY,), "2026901.csv", "another spelling of"),
        # The same moment in another offset is another spelling of it, and only of it.
        (
            "{hour:%Y%m%d%H%z}.csv",
            (MOMENT,),
            "2026112510+0200.csv",
            "'2026112510+0200' is another spelling of 2026-11-25T09, '2026112509+0100'; name it so.",
        ),
        (
            "{hour:%Y%m%d%H%M%z}.csv",
            (MOMENT,),
            "202611251030+0100.csv",
            "begins no window of t; the next one begins at 2026-11-25T1",
        ),
        ("{day:%Y%m%d}.csv", (DAY,), "20260230.csv", "is no day as %Y%m%d writes it"),
        ("{day}/{day:%Y%m%d}.csv", (DAY,), "2026-09-01/20260902.csv", "its name says of day both"),
        ("{day:%Y}/{day}.csv", (DAY,), "2026/2027-09-05.csv", "its name says of day both 2027-09-05 and 2026"),
        ("{day:%Y}/{day:%Y-%m-%d}.csv", (DAY,), "2026/2027-09-05.csv", "do not say together which day it is"),
        ("{region}_{store}.csv", (REGION, STORE), "x_y_z.csv", "of region=x/store=y_z or of region=x_y/store=z"),
        ("{region}/*.csv", (REGION,), "EU/deep/a.csv", "does not fit"),
        ("{region}/*.csv", (REGION,), "DE/a.csv", "'DE' is no key of dimension region"),
    ],
)
def test_a_name_that_says_none_or_several_is_told_why(
    files: str, dimensions: tuple[object, ...], name: str, reason: str
) -> None:
    with pytest.raises(UnknownPartition) as refused:
        pattern(files, *dimensions).key(name)
    assert reason in str(refused.value)


@pytest.mark.parametrize("files", ["", "{day}.csv", "{day:%Y-%m-%d}.csv", "day={day}/*.csv"])
def test_a_name_from_before_the_start_is_spelt_well_and_outside(files: str) -> None:
    name = "day=2019-02-01/a.csv" if "/" in files else "2019-02-01.csv"
    with pytest.raises(OutsideDimension, match=r"2019-02-01.* lies outside dimension day, which runs from 2026-01-01"):
        pattern(files, DAY).key(name)


PATTERNS = [
    pattern("", DAY, ANY), pattern("{who}.csv", ANY), pattern("who={who}/*.csv", ANY),
    pattern("x_{who}_{day:%d%m%Y}.csv", DAY, ANY), pattern("{day}~{who}", DAY, ANY),
]  # fmt: skip


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12),
    st.sampled_from(PATTERNS),
    st.dates(min_value=pendulum.date(2026, 1, 1), max_value=pendulum.date(2100, 1, 1)),
)
def test_whatever_a_key_holds_its_file_is_its_own(who: str, pattern: FilePattern, day: object) -> None:
    try:
        value = ANY.parse(who)
    except UnknownPartition:
        return
    key = pattern.partitioning.key((day, value)[-len(pattern.partitioning.names) :])  # type: ignore[arg-type]
    name = pattern.name(key).replace("/*", "/part-1")
    assert name.count("/") == pattern.text.count("/")
    assert pattern.key(name) == key


def test_the_names_of_very_many_partitions_are_any_name() -> None:
    said = pattern("{day:%Y}/{day}.csv", DAY)
    keys = [said.partitioning.key([DAY.value_at(DAY.first + day * 86_400)]) for day in range(700)]
    few, many = said.wanted(keys[:2]), said.wanted(keys)
    assert [few.fit(1, name) for name in ("2026-01-01.csv", "2026-01-02.csv", "2026-01-03.csv")] == [True, True, False]
    assert (many.fit(1, "anything"), many.fit(0, "2027"), many.fit(0, "2028")) == (True, True, False)


def test_a_column_of_time_without_the_others_says_nothing_of_the_partitions_that_are_wanted() -> None:
    said = pattern("hour={hour}/{t}.csv", PARTS)
    key = said.key("hour=7/2026-09-01T05.csv")
    assert (key.path, said.wanted([key]).fit(0, "hour=7")) == ("day=2026-09-01/hour=5", True)


def test_a_name_of_separators_is_refused_after_a_look_at_few_of_its_millions_of_ways() -> None:
    four = [StaticDimension(name, ("x", "y")) for name in "abcd"]
    said = pattern("{a}_{b}_{c}_{d}.csv", *four)
    with pytest.raises(UnknownPartition, match="in more than 10,000 ways; rename it"):
        said.key("_" * 250 + ".csv")
    assert said.key("x_y_x_y.csv").path == "a=x/b=y/c=x/d=y"
    # Where its end does not fit, there is no way at all, which is found out once for each place.
    with pytest.raises(UnknownPartition, match="does not fit"):
        pattern("{a}_{b}_{c}_{d}-{day}.csv", *four, DAY).key("_" * 250 + ".csv")
    with pytest.raises(UnknownPartition) as several:
        pattern("{who}_{other}.csv", ANY, DynamicDimension("other", "things")).key("_" * 250 + ".csv")
    assert str(several.value).count(" or of ") == 5


def test_a_declared_format_needs_no_ending() -> None:
    assert pattern("{day}/*", DAY, form=LandingFormat.CSV).key("2026-09-01/part-0001").path == "day=2026-09-01"
    with pytest.raises(VarveError, match="a brace has no partner"):
        pattern("{day", DAY)
