"""Each kind of bad input, at definition: an error that names the dataset, the dimension and the remedy."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pendulum
import pytest

from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.calendar import Every
from varve.model.partitions.dimension import Dimension, DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import All, Custom, Only, Overlap, Reads, Same, TableReads, Wait, trailing
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import edge

if TYPE_CHECKING:
    from collections.abc import Callable

    from varve.model.reads import Rule

START = pendulum.datetime(2013, 1, 1)
DAY = TimeDimension("day", "@daily", START)
ORIGIN = StaticDimension("origin", ("EWR", "JFK"))


def dataset(*dimensions: Dimension, name: str = "t.sales") -> Dataset:
    schema = Schema((Column("sold", ColumnType.BIGINT),))
    return Dataset(name, Partitioning(dimensions), schema, StoreKind.LAKE, "One row per sale.")


BAD: dict[str, tuple[Callable[[], tuple[Dimension, ...]], str, str]] = {
    "a cron of a day that never comes": (lambda: (TimeDimension("day", "0 0 30 2 *", START),), "day", "no day"),
    "a cron that is none": (lambda: (TimeDimension("day", "daily", START),), "day", "five fields are expected"),
    "a cron out of range": (lambda: (TimeDimension("day", "0 25 * * *", START),), "day", "five fields are expected"),
    "a cron of the weekday nearest to a day": (
        lambda: (TimeDimension("day", "0 6 15W * *", START),), "day",
        "15W is not understood. R, H and W are not known here; write the numbers",
    ),
    "a cron of a random minute": (lambda: (TimeDimension("day", "R * * * *", START),), "day", "R is not understood"),
    "a cron of a random hour of some": (
        lambda: (TimeDimension("day", "0 r(1-5)/2 * * *", START),), "day", "H and W are not known here",
    ),
    "a duration of nothing": (
        lambda: (TimeDimension("day", Every(dt.timedelta(0), START), START),), "day", "one or more",
    ),
    "a start off a boundary": (
        lambda: (TimeDimension.of("day", "@daily", "2013-01-01T10:35"),), "day",
        "the nearest are 2013-01-01",
    ),
    "an end off a boundary": (
        lambda: (TimeDimension.of("day", "@daily", "2013-01-01", "2013-02-01T01:00"),), "day", "end .* the nearest are",
    ),
    "an end before the start": (
        lambda: (TimeDimension.of("day", "@daily", "2013-01-01", "2012-01-01"),), "day", "is not after start",
    ),
    "an end at the start": (
        lambda: (TimeDimension.of("day", "@daily", "2013-01-01", "2013-01-01"),), "day", "is not after start",
    ),
    "no moment": (lambda: (TimeDimension.of("day", "@daily", "in May"),), "day", "write it as 2013-01-01"),
    "an unknown zone": (
        lambda: (TimeDimension.of("day", "@daily", "2013-01-01", timezone="Mars/Olympus"),), "day",
        "write a name of the IANA database",
    ),
    "an offset for a zone": (
        lambda: (TimeDimension("day", "@daily", pendulum.parse("2013-01-01T00:00:00+05:00")),), "day",  # type: ignore[arg-type]
        "not a zone; name one",
    ),
    "an end offset below nothing": (
        lambda: (TimeDimension("day", "@daily", START, end_offset=-1),), "day", "less than 0",
    ),
    "keys that tell half of the windows": (
        lambda: (TimeDimension("hour", "@hourly", START, key_format="%Y-%m-%d %I"),), "hour", "try '%Y-%m-%dT%H'",
    ),
    "keys that tell no window": (
        lambda: (TimeDimension("hour", "@hourly", START, key_format="%Y-%m-%d"),), "hour", "try '%Y-%m-%dT%H'",
    ),
    "two of one name": (lambda: (DAY, StaticDimension("day", ("a",))), "day", "give each its own"),
    "two of time": (
        lambda: (DAY, TimeDimension("hour", "@hourly", START)), "hour",
        "Make the other a column, or a static dimension",
    ),
    "no keys": (lambda: (StaticDimension("origin", ()),), "origin", "give a tuple"),
    "a key twice": (lambda: (StaticDimension("origin", ("a", "b", "a")),), "origin", "a is given more than once; give"),
    "an empty key": (lambda: (StaticDimension("origin", ("a", "")),), "origin", "an empty key is no key; give"),
    "a NUL": (lambda: (StaticDimension("origin", ("a\0",)),), "origin", "Take them out"),
    "a control character": (lambda: (StaticDimension("origin", ("a\x85b",)),), "origin", "Take them out"),
    "a newline": (lambda: (StaticDimension("origin", ("a\nb",)),), "origin", "Take them out"),
    "half a surrogate": (lambda: (StaticDimension("origin", ("\udcff",)),), "origin", "Take them out"),
    "keys of two types": (lambda: (StaticDimension("origin", ("1", 1)),), "origin", "its keys are of str and int"),
    "a float": (lambda: (StaticDimension("origin", (1.5,)),), "origin", "give each key a text"),
    "Hive's null": (lambda: (StaticDimension("origin", ("__HIVE_DEFAULT_PARTITION__",)),), "origin", "give each key"),
    "a key of 300 bytes": (lambda: (StaticDimension("origin", ("é" * 150,)),), "origin", "give it a shorter name"),
    "too many keys": (
        lambda: (StaticDimension("origin", tuple(map(str, range(10_001)))),), "origin",
        "above the limit of 10000. Raise `limit`",
    ),
    "a name that is no column": (lambda: (StaticDimension("Origin Airport", ("a",)),), "Origin Airport", "lower-case"),
    "a set without a name": (lambda: (DynamicDimension("user", ""),), "user", "a set is named in"),
    "a set of floats": (lambda: (DynamicDimension("user", "users", float),), "user", "take text instead"),
}  # fmt: skip


@pytest.mark.parametrize(("dimensions", "dimension", "remedy"), BAD.values(), ids=BAD.keys())
def test_a_bad_dimension_is_refused_with_its_dataset_its_name_and_the_remedy(
    dimensions: Callable[[], tuple[Dimension, ...]], dimension: str, remedy: str
) -> None:
    with pytest.raises(VarveError, match=remedy) as refused:
        dataset(*dimensions())
    # What `TimeDimension.of` refuses, it does before any dataset has the dimension.
    by_dataset = remedy not in {"write it as 2013-01-01", "write a name of the IANA database"}
    assert not by_dataset or "dataset t.sales" in str(refused.value)
    assert dimension in str(refused.value)


WEEK = TimeDimension("week", "@weekly", pendulum.datetime(2013, 1, 6))
STORE = StaticDimension("store", ("Paris", "Detroit"))
RULES: dict[str, tuple[tuple[Dimension, ...], tuple[Dimension, ...], dict[str, Rule], str, str]] = {
    "nothing shared": ((ORIGIN,), (STORE,), {}, "store", r"say so: Reads\(..., {'store': All\(\)}\)"),
    "time of a reader that has none": ((ORIGIN,), (DAY, ORIGIN), {"day": Overlap()}, "day", "name its keys with"),
    "a rule for no dimension": ((DAY,), (DAY,), {"hour": All()}, "hour", "its dimensions are day"),
    "an offset that ends before it begins": ((DAY,), (DAY,), {"day": Overlap(1, 0)}, "day", "ends before it begins"),
    "overlap of keys": ((DAY, ORIGIN), (ORIGIN,), {"origin": Overlap()}, "origin", "only time dimensions overlap"),
    "the same window": ((DAY,), (DAY,), {"day": Same()}, "day", "not the same but Overlap"),
    "the same of a dimension that is not there": (
        (DAY,), (DAY, ORIGIN), {"origin": Same("airport")}, "origin", "no dimension airport to follow",
    ),
    "the same key of another kind": (
        (StaticDimension("origin", (1, 2)),), (ORIGIN,), {}, "origin", "by a Table or a Custom function",
    ),
    "the same key of lists that share none": (
        (StaticDimension("origin", ("LGA",)),), (ORIGIN,), {}, "origin", r"by a Table, or read All\(\)",
    ),
    "only a key that is not there": (
        (DAY,), (DAY, ORIGIN), {"origin": Only(("LGA",))}, "origin", "its keys are EWR, JFK",
    ),
    "a table of keys that are not there": (
        (DAY, STORE), (DAY, ORIGIN), {"origin": TableReads("store", {"Paris": ("LGA",)})}, "origin",
        "LGA is no key of it",
    ),
    "a table of strangers": (
        (DAY, STORE), (DAY, ORIGIN), {"origin": TableReads("store", {"Rome": ("EWR",)})}, "origin",
        "Rome is no key of the reader's dimension store",
    ),
    "a function that is not there": (
        (DAY, STORE), (DAY, ORIGIN), {"origin": Custom("pipeline_defs.nowhere:found", "store")}, "origin",
        "name it as module:function",
    ),
    "a function that is none": (
        (DAY, STORE), (DAY, ORIGIN), {"origin": Custom("varve.model.partitions.zone:DAY", "store")}, "origin",
        "name it as module:function",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reader", "upstream", "rules", "dimension", "remedy"), RULES.values(), ids=RULES.keys())
def test_a_mapping_that_cannot_be_is_refused_with_both_datasets_the_dimension_and_the_remedy(
    reader: tuple[Dimension, ...],
    upstream: tuple[Dimension, ...],
    rules: dict[str, Rule],
    dimension: str,
    remedy: str,
) -> None:
    with pytest.raises(VarveError, match=remedy) as refused:
        edge(dataset(*reader, name="t.reader"), Reads(dataset(*upstream, name="t.upstream"), rules))
    assert str(refused.value).startswith("dataset t.reader reads t.upstream: ")
    assert dimension in str(refused.value)


def test_a_deadline_of_a_reader_without_windows_is_refused() -> None:
    reads = Reads(dataset(ORIGIN, name="t.upstream"), wait=Wait(deadline=dt.timedelta(hours=1)))
    with pytest.raises(VarveError, match=r"dataset t\.reader reads t\.upstream: .* say at_least or missing instead"):
        edge(dataset(ORIGIN, name="t.reader"), reads)


@pytest.mark.parametrize("make", [lambda: trailing(0), lambda: Wait(missing=-1), lambda: Wait(at_least=2, missing=1)])
def test_a_count_that_cannot_be_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(VarveError):
        make()


@pytest.mark.parametrize(
    ("dimension", "text"),
    [
        (DAY, "2013-02-30"), (DAY, "2012-12-31"), (DAY, "20130101"), (DAY, ""), (DAY, "2013-01-01T00"),
        (ORIGIN, "LGA"), (ORIGIN, ""), (DynamicDimension("user", "users"), ""),
        (DynamicDimension("user", "users"), "a\0b"), (DynamicDimension("user", "users", int), "01"),
        (DynamicDimension("user", "users", int), "1.0"), (DynamicDimension("user", "users", dt.date), "2013-W01-1"),
    ],
)  # fmt: skip
def test_a_key_that_parses_in_no_dimension_names_the_dimension(dimension: Dimension, text: str) -> None:
    with pytest.raises(UnknownPartition, match=f"dimension {dimension.name}"):
        Partitioning((dimension,)).from_dagster(text)
