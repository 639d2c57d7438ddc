"""`PartitionKey` and its path: spelt as Hive and Spark spell it, and read back whatever its characters."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varve.model.partitions.key import PartitionKey, escape, parse_path

# All but control characters, which no key may have.
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1)


def test_a_key_is_spelt_as_a_hive_path_in_the_order_of_its_dimensions() -> None:
    assert PartitionKey.of(day=dt.date(2013, 1, 5), origin="EWR").path == "day=2013-01-05/origin=EWR"
    assert str(PartitionKey.of(origin="EWR", day=dt.date(2013, 1, 5))) == "origin=EWR/day=2013-01-05"
    assert PartitionKey.of(cls="a", self="b").path == "cls=a/self=b"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("2013-01-05T13:00", "2013-01-05T13%3A00"),
        ("a/b=c", "a%2Fb%3Dc"),
        ("50%", "50%25"),
        ('it\'s "quoted"', "it%27s %22quoted%22"),
        ("a\\b?*#", "a%5Cb%3F%2A%23"),
        ("{[^]}", "%7B%5B%5E%5D}"),
        ("Zürich 东京", "Zürich 东京"),
        ("tab\there", "tab%09here"),
        ("\x7f", "%7F"),
    ],
)
def test_a_value_is_escaped_as_spark_escapes_it(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@given(st.lists(texts, min_size=1, max_size=3))
def test_a_path_is_read_back_as_the_texts_it_was_made_of(values: list[str]) -> None:
    key = PartitionKey.of(**{f"d{position}": value for position, value in enumerate(values)})
    assert parse_path(key.path) == key.fields


@given(texts, texts)
def test_unlike_values_have_unlike_paths(value: str, other_value: str) -> None:
    assert (escape(value) == escape(other_value)) == (value == other_value)


@given(texts)
def test_an_escaped_value_is_one_segment_of_a_path(text: str) -> None:
    assert not set("/=\"#'*:?\\{[]^\n") & set(escape(text))


def test_a_key_gives_its_values_by_name_and_in_order() -> None:
    key = PartitionKey.of(day=dt.date(2013, 1, 5), origin="EWR")
    assert key["origin"] == "EWR"
    assert key.values == (dt.date(2013, 1, 5), "EWR")
    with pytest.raises(KeyError):
        key["store"]


def test_keys_of_one_dataset_sort_by_their_values_in_the_order_of_the_dimensions() -> None:
    days = [dt.date(2013, 1, 6), dt.date(2013, 1, 5)]
    keys = [PartitionKey.of(day=day, origin=origin) for day in days for origin in ("LGA", "EWR")]
    assert [key.path for key in sorted(keys)] == [
        "day=2013-01-05/origin=EWR",
        "day=2013-01-05/origin=LGA",
        "day=2013-01-06/origin=EWR",
        "day=2013-01-06/origin=LGA",
    ]
