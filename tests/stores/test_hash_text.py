"""The text of a hash: of which columns it is, and of two batches together."""

from __future__ import annotations

from varve.model.schema import Column, ColumnType
from varve.stores.folders.hash_text import added_content, content_of, sums_of

LOW, HIGH = Column("low", ColumnType("BIGINT")), Column("high", ColumnType("BIGINT"))
FF = "ffffffffffffffff"


def test_equal_values_under_other_names_or_types_or_in_another_order_are_other_rows() -> None:
    same = content_of(f"2:{FF}", [LOW, HIGH])
    assert same == content_of(f"2:{FF}", [LOW, HIGH])
    others = [[HIGH, LOW], [LOW], [LOW, HIGH, HIGH], [LOW, Column("high", ColumnType("INT"))], []]
    assert len({same, *(content_of(f"2:{FF}", columns) for columns in others)}) == len(others) + 1


def test_hashes_of_parts_add_up_to_that_of_all_rows() -> None:
    first, second = content_of(f"2:{FF}", [LOW, HIGH]), content_of("1:0000000000000003", [LOW, HIGH])
    assert added_content(first, second) == content_of("3:0000000000000002", [LOW, HIGH])
    assert added_content(first, None) is None
    assert added_content(None, first) is None
    # By an earlier version, and of other columns: it equals no other batch, and can be compared with what is folded.
    for other in ("1:0000000000000003", content_of("1:0000000000000003", [LOW])):
        together = added_content(first, other)
        assert together == "3:0000000000000002"
        assert sums_of(together) == sums_of(content_of("3:0000000000000002", [LOW, HIGH]))
