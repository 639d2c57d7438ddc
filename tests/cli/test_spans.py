"""Words of commands: spans of time, `--older-than 7d`, and partitions, `hour=2026-10-25T02`."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import pendulum
import pytest

from tests.support.sales import sales_dataset
from varve.cli.selection import by_column, matching, named_path, partition_named, span, spelt_out, words_of
from varve.model.dataset import StoreKind
from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.time_columns import TimeColumn
from varve.model.schema import ColumnType
from varve.planning.environment_runs import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from varve.model.dataset import Dataset


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", dt.timedelta(0)),
        ("7d", dt.timedelta(days=7)),
        ("1.5h", dt.timedelta(minutes=90)),
        ("365000d", dt.timedelta(days=365_000)),
    ],
)
def test_a_span_is_a_number_and_a_unit(text: str, expected: dt.timedelta) -> None:
    assert span(text) == expected


@pytest.mark.parametrize("text", ["", "7", "7 d", "-1d", "7w"])
def test_other_texts_are_refused_with_examples(text: str) -> None:
    with pytest.raises(VarveError, match=r"is no span of time; write it like 7d"):
        span(text)


@pytest.mark.parametrize("text", ["365001d", f"{'9' * 12}h", f"{'9' * 400}s"])
def test_a_span_that_no_calendar_reaches_is_refused_and_no_defect(text: str) -> None:
    with pytest.raises(VarveError, match="is longer than a thousand years"):
        span(text)


MOMENTS = sales_dataset(
    StoreKind.LAKE,
    dimensions=(
        TimeDimension(
            "t", Grain.HOUR, pendulum.datetime(2026, 10, 24, tz="Europe/Berlin"),
            columns=(TimeColumn("hour", "%s", ColumnType.TIMESTAMP),),
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("hour=2026-10-25T02", "hour=2026-10-25 00%3A00%3A00"),
        ("hour=2026-10-25T02+0100", "hour=2026-10-25 01%3A00%3A00"),
        ("hour=2026-10-25T00", "hour=2026-10-24 22%3A00%3A00"),
        # As it is printed, and as it is in SQL.
        ("hour=2026-10-25 00%3A00%3A00", "hour=2026-10-25 00%3A00%3A00"),
        ("hour=2026-10-25 00:00:00", "hour=2026-10-25 00%3A00%3A00"),
    ],
)
def test_a_moment_is_one_partition_for_every_command(word: str, path: str) -> None:
    """Those that look for batches, those that look one up, and those that compute: all take the same one."""
    paths = [key.path for key in MOMENTS.partitioning.keys(now=dt.datetime(2026, 10, 26, tzinfo=dt.UTC))]
    assert matching(MOMENTS, [word], paths) == [path]
    assert named_path(MOMENTS, [word]) == path
    assert partition_named(MOMENTS, [word]).path == path
    wanted = Wanted(values=by_column([word]))
    assert [each for each in paths if wanted.includes(MOMENTS, each)] == [path]


DAYS = TimeDimension("day", Grain.DAY, pendulum.datetime(2026, 11, 1))
OF_STORES = sales_dataset(StoreKind.LAKE, dimensions=(DAYS, StaticDimension("store", ("EWR", "a/b", "10:30"))))
OF_DAYS = sales_dataset(StoreKind.LAKE, dimensions=(DAYS,))
OF_A_SET = sales_dataset(StoreKind.LAKE, dimensions=(DynamicDimension("store", "stores"),))


@pytest.mark.parametrize(
    ("dataset", "word", "path"),
    [
        (OF_DAYS, "2026-11-22", "day=2026-11-22"),
        (OF_STORES, "2026-11-22|EWR", "day=2026-11-22/store=EWR"),
        (OF_STORES, "2026-11-22|a/b", "day=2026-11-22/store=a%2Fb"),
        (OF_STORES, "day=2026-11-22/store=EWR", "day=2026-11-22/store=EWR"),
        (OF_STORES, "day=2026-11-22/store=10%3A30", "day=2026-11-22/store=10%3A30"),
        (OF_A_SET, "Zürich", "store=Zürich"),
        (OF_A_SET, "store=a=b", "store=a%3Db"),
        (MOMENTS, "2026-10-25T02", "hour=2026-10-25 00%3A00%3A00"),
    ],
)
def test_a_whole_partition_is_one_word_as_dagster_and_as_our_outputs_spell_it(
    dataset: Dataset, word: str, path: str
) -> None:
    assert partition_named(dataset, [word]).path == path
    assert named_path(dataset, [word]) == path
    assert matching(dataset, [word], [path, "day=2026-11-21/store=EWR"]) == [path]
    assert spelt_out(dataset, words_of(path)) == words_of(path)


@pytest.mark.parametrize(
    ("dataset", "word"),
    [
        (OF_DAYS, "dai=2026-11-22"), (OF_DAYS, "2026-13-22"), (OF_STORES, "2026-11-22"), (OF_STORES, "2026-11-22|JFK"),
        (OF_STORES, "day=2026-11-22/shop=EWR"), (OF_A_SET, "stor=x"), (OF_STORES, "EWR"),
    ],
)  # fmt: skip
def test_a_word_that_is_no_whole_partition_is_refused_as_it_was_typed(dataset: Dataset, word: str) -> None:
    assert spelt_out(dataset, [word]) == [word]
    with pytest.raises(UnknownPartition, match=re.escape(word)):
        partition_named(dataset, [word])
    assert named_path(dataset, [word]) is None


def test_a_part_of_a_key_is_left_to_those_that_take_one() -> None:
    paths = ["day=2026-11-22/store=EWR", "day=2026-11-23/store=EWR"]
    assert matching(OF_STORES, ["store=EWR"], paths) == paths
    assert matching(OF_STORES, ["day=2026-11-23"], paths) == paths[1:]


@pytest.mark.parametrize("named", [partition_named, named_path, lambda dataset, words: matching(dataset, words, [])])
def test_a_column_that_is_named_twice_is_refused(named: Callable[[Dataset, list[str]], object]) -> None:
    """Of two days only the last one was pinned, rolled back, marked or tested, without a word."""
    with pytest.raises(UnknownPartition, match=r"hour is named twice, with '2026-10-25T00' and '2026-10-25T01'"):
        named(MOMENTS, ["hour=2026-10-25T00", "hour=2026-10-25T01"])
    assert by_column(["a=1", "b=x=y", "a=1"]) == {"a": "1", "b": "x=y"}


def test_a_text_that_is_no_moment_names_no_partition() -> None:
    with pytest.raises(UnknownPartition, match="has no partition hour=soon"):
        matching(MOMENTS, ["hour=soon"], ["hour=2026-10-25 00%3A00%3A00"])
    with pytest.raises(UnknownPartition, match="its keys look like 2026-10-24T00"):
        partition_named(MOMENTS, ["hour=2026-10-25 02h"])


@pytest.mark.parametrize(
    ("key", "told"), [("2020-01-01T00", "lies outside dimension"), ("soon", "is no key of dimension")]
)
def test_a_key_that_cannot_be_is_told_with_its_dataset(key: str, told: str) -> None:
    with pytest.raises(UnknownPartition, match=rf"^{MOMENTS}: .*{told} t\b"):
        partition_named(MOMENTS, [f"hour={key}"])
