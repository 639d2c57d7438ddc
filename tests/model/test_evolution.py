"""How declarations may change: the rules, without any store."""

from __future__ import annotations

import pytest

from varve.model.evolution import DeclaredColumns, evolution, former_problems, partition_problems, widens
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
        "Renamed, or one dropped and another added: b STRING -> c STRING.",
        "Added, but may not be NULL, which it is in every older batch: c.",
        "a was INT and is DATE now, as which older rows are not read.",
    )
    assert partition_problems([Column("day", DATE)], [Column("day", STRING)]) == [
        "It was partitioned by day DATE, and now by day STRING."
    ]
    assert partition_problems([Column("day", DATE)], [Column("day", DATE, "comment")]) == []


def test_a_new_name_that_is_declared_is_no_guess_and_neither_is_the_way_back() -> None:
    renamed = [Column("a", INT), Column("c", STRING, nullable=False, was=("b",))]
    assert evolution(BEFORE, renamed).problems == ("Renamed: b STRING -> c STRING.",)
    assert evolution(renamed, BEFORE).problems == ("Renamed: c STRING -> b STRING.",)
    both = evolution(BEFORE, [Column("c", STRING, was=("b",)), Column("d", DATE)])
    assert both.problems == (
        "Renamed: b STRING -> c STRING.", "Renamed, or one dropped and another added: a INT -> d DATE.",
    )  # fmt: skip


def test_a_column_that_is_taken_away_may_come_back_with_a_type_that_holds_its_values() -> None:
    change = evolution(BEFORE, BEFORE[:1])
    assert ([column.name for column in change.removed], change.problems) == (["b"], ())
    former = [Column("n", INT), Column("b", STRING)]
    for kind in (INT, BIGINT):
        change = evolution(BEFORE[:1], [*BEFORE, Column("n", kind)], former)
        assert ([column.name for column in change.added], change.widened, change.problems) == (["b", "n"], (), ())
    assert evolution(BEFORE[:1], [BEFORE[0], Column("n", DATE)], former).problems == (
        "n was INT and is DATE now, as which older rows are not read.",
    )
    # One that goes while a former one comes back is no new name.
    assert evolution(BEFORE, [BEFORE[0], Column("n", INT)], former).problems == ()
    assert former_problems(DeclaredColumns(former=tuple(former)), [*BEFORE, Column("n", STRING)]) == (
        "n was INT and is STRING now, as which older rows are not read.",
    )


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
