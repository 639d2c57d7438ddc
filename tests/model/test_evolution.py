"""How declarations may change: the rules, without any store."""

from __future__ import annotations

import pytest

from varve.model.evolution import evolution, partition_problems, widens
from varve.model.schema import Column, ColumnType

INT, BIGINT, DOUBLE, STRING, DATE = (ColumnType(name) for name in ("INT", "BIGINT", "DOUBLE", "STRING", "DATE"))
BEFORE = [Column("a", INT), Column("b", STRING, "a comment")]


def test_what_stays_the_same_is_no_change_in_any_order_and_with_other_comments() -> None:
    change = evolution(BEFORE, [Column("b", STRING), Column("a", INT, "new comment")])
    assert (change.added, change.widened, change.problems) == ((), (), ())


def test_columns_that_may_be_null_are_added_and_types_widened() -> None:
    change = evolution(BEFORE, [Column("a", BIGINT), Column("b", STRING), Column("c", DATE)])
    assert [column.name for column in change.added] == ["c"]
    assert [column.name for column in change.widened] == ["a"]
    assert change.problems == ()


def test_every_other_change_is_told_by_name() -> None:
    change = evolution(BEFORE, [Column("a", DATE), Column("c", STRING, nullable=False)])
    assert change.problems == (
        "Dropped or renamed: b STRING.",
        "Added, but may not be NULL, which it is in every older batch: c.",
        "a was INT and is DATE now, which does not hold all its values.",
    )
    assert partition_problems([Column("day", DATE)], [Column("day", STRING)]) == [
        "It was partitioned by day DATE, and now by day STRING."
    ]
    assert partition_problems([Column("day", DATE)], [Column("day", DATE, "comment")]) == []


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        ("INT", "BIGINT", True), ("BIGINT", "INT", False), ("INT", "DOUBLE", True), ("BIGINT", "DOUBLE", False),
        ("INT", "FLOAT", False), ("FLOAT", "DOUBLE", True), ("STRING", "BINARY", False), ("INT", "STRING", False),
        ("DECIMAL(10,2)", "DECIMAL(12,2)", True), ("DECIMAL(10,2)", "DECIMAL(12,4)", True),
        ("DECIMAL(10,2)", "DECIMAL(10,4)", False), ("DECIMAL(10,2)", "DECIMAL(9,2)", False),
    ],
)  # fmt: skip
def test_a_type_is_wider_where_it_holds_every_value(narrow: str, wide: str, *, expected: bool) -> None:
    assert widens(ColumnType(narrow), ColumnType(wide)) is expected
