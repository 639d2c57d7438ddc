"""Masks of values: the same by the same, of the same type and size, and what is written of them is read back."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varve.model.schema import ColumnType
from varve.testing.cases.compare import same_value
from varve.testing.cases.values import value_of
from varve.testing.files.nodes import List, composed
from varve.testing.sampling.masks import masked
from varve.testing.sampling.written import value_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LARGE = Context(prec=60)
MOMENTS = st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2030, 1, 1))  # noqa: DTZ001 - a zone follows
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "STRING": TEXTS,
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32),
    "DOUBLE": st.floats(),
    "DECIMAL(12,3)": st.decimals(-999_999_999, 999_999_999, places=3),
    "DECIMAL(38,18)": st.integers(1 - 10**38, 10**38 - 1).map(lambda digits: Decimal(digits).scaleb(-18, LARGE)),
    "DECIMAL(38,0)": st.integers(1 - 10**38, 10**38 - 1).map(Decimal),
    "DATE": st.dates(dt.date(1990, 1, 1), dt.date(2030, 1, 1)),
    "TIMESTAMP": MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    "TIMESTAMP_NTZ": MOMENTS,
    "BINARY": st.binary(max_size=12),
    "ARRAY<STRING>": st.lists(st.none() | TEXTS, max_size=4),
    "MAP<STRING, INT>": st.lists(
        st.tuples(TEXTS, st.none() | st.integers(-9, 9)), max_size=3, unique_by=lambda pair: pair[0]
    ),
    "STRUCT<a: DATE, `b c`: ARRAY<INT>>": st.fixed_dictionaries(
        {"a": st.none() | st.dates(), "b c": st.none() | st.lists(st.integers(0, 9), max_size=2)}
    ),
}  # fmt: skip


def read(text: str, kind: ColumnType) -> Any:
    problems: list[Any] = []
    document = composed(f"- {text}\n", "a.test.yaml", problems)
    assert not problems, (text, problems)
    assert isinstance(document, List)
    return value_of(document.items[0], kind)


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_written_is_read_back(kind: str) -> None:
    @given(st.none() | VALUES[kind])
    def check(value: Any) -> None:
        column_type = ColumnType(kind)
        assert same_value(value, read(value_text(value, column_type), column_type), column_type, 0.0)

    check()


@pytest.mark.parametrize("kind", VALUES)
def test_a_mask_is_a_value_of_the_same_type_and_the_same_each_time(kind: str) -> None:
    @given(VALUES[kind])
    def check(value: Any) -> None:
        column_type = ColumnType(kind)
        other = masked(value, column_type)
        assert same_value(other, masked(value, column_type), column_type, 0.0)
        # The type holds it.
        assert same_value(other, read(value_text(other, column_type), column_type), column_type, 0.0)

    check()


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_number_keeps_its_sign_and_its_digits_and_joins_in_every_type(number: int) -> None:
    other = masked(number, ColumnType.INT)
    assert (other > 0) - (other < 0) == (number > 0) - (number < 0)
    assert len(str(other)) == len(str(number))
    assert masked(number, ColumnType.BIGINT) == other
    assert masked(float(number), ColumnType.DOUBLE) == other
    assert masked(Decimal(number), ColumnType.decimal(20, 2)) == other


def test_a_mask_hides_what_it_masks() -> None:
    assert masked(None, ColumnType.STRING) is None
    names = [f"N{number:05}" for number in range(2_000)]
    masks = [masked(name, ColumnType.STRING) for name in names]
    assert len(set(masks)) == len(names)
    assert not [name for name, mask in zip(names, masks, strict=True) if name in mask]
    assert math.isnan(masked(math.nan, ColumnType.DOUBLE))


@pytest.mark.parametrize("year", [1, 9999])
def test_the_ends_of_time_are_moved_to_where_the_calendar_is(year: int) -> None:
    for month, day in ((1, 1), (6, 30), (12, 31)):
        date = dt.date(year, month, day)
        moment = dt.datetime(year, month, day, 12, tzinfo=dt.UTC)
        assert 0 < abs((masked(date, ColumnType("DATE")) - date).days) <= 365
        assert moment != masked(moment, ColumnType("TIMESTAMP"))
        assert moment.replace(tzinfo=None) != masked(moment.replace(tzinfo=None), ColumnType("TIMESTAMP_NTZ"))


def test_long_numbers_that_differ_in_their_last_digit_are_masked_as_two() -> None:
    first, second = (masked(Decimal(10**37 + last), ColumnType("DECIMAL(38,0)")) for last in (1, 2))
    assert first != second
