"""Two versions of a project's datasets compared as values: what became of each, and who reads what has changed."""

from __future__ import annotations

import json

from varve.planning.changes.changes import ChangeKind, ColumnChangeKind, DatasetChange, column_readers, dataset_changes
from varve.planning.changes.snapshot import DatasetSnapshot, as_values, from_values

SALES = DatasetSnapshot(
    "s.sales", {"id": "int", "price": "int", "day": "date"}, ("team:tills",), file="assets/sales.sql"
)
# A query: `total` is made of the price, and the id is only in its condition.
TOTALS = DatasetSnapshot(
    "s.totals",
    {"total": "bigint", "day": "date"},
    ("team:money",),
    {"s.sales": ("id", "price", "day")},
    {"total": (("s.sales", "price"),)},
)
REPORT = DatasetSnapshot("s.report", {"line": "string"}, ("ann@example.com",), {"s.totals": ("total",)}, {"line": ()})
# A function that says nothing of the columns that it reads.
MODEL = DatasetSnapshot("s.model", {"weight": "double"}, (), {"s.sales": None}, None, "a/model.py:7", in_python=True)
FORECAST = DatasetSnapshot(
    "s.forecast", {"next": "double"}, (), {"s.model": ("weight",)}, {"next": (("s.model", "weight"),)}
)
OLD = {each.name: each for each in (SALES, TOTALS, REPORT, MODEL, FORECAST)}
WIDER = {("int", "bigint")}


def holds(before: str, after: str) -> bool:
    return before == after or (before, after) in WIDER


def with_sales(**columns: str) -> dict[str, DatasetSnapshot]:
    return {**OLD, "s.sales": DatasetSnapshot("s.sales", columns, SALES.owners)}


def readers(change: DatasetChange) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(reader.column, reader.dataset, reader.through) for reader in change.readers]


def test_a_version_against_itself_has_no_change() -> None:
    assert dataset_changes(OLD, OLD, holds) == []


def test_a_snapshot_survives_json() -> None:
    assert from_values(json.loads(json.dumps(as_values(OLD.values())))) == OLD


def test_a_dropped_column_is_told_with_its_readers_the_nearest_first() -> None:
    (change,) = dataset_changes(OLD, with_sales(id="int", day="date"), holds)
    (column,) = change.columns
    assert (change.kind, column.kind, column.breaks) == (ChangeKind.CHANGED, ColumnChangeKind.DROPPED, True)
    assert readers(change) == [
        ("price", "s.model", ()),
        ("price", "s.totals", ()),
        ("price", "s.forecast", ("s.model",)),
        ("price", "s.report", ("s.totals",)),
    ]
    assert [reader.owners for reader in change.readers if reader.dataset == "s.totals"] == [("team:money",)]


def test_a_column_in_a_condition_only_reaches_no_further() -> None:
    reached = [(reader.name, through) for reader, through in column_readers(OLD, ("s.sales", "id"))]
    # The model's columns may be made of anything that it reads; the total is not made of the id.
    assert reached == [("s.model", ()), ("s.totals", ()), ("s.forecast", ("s.model",))]


def test_the_only_new_column_of_the_same_type_is_the_likely_new_name() -> None:
    (change,) = dataset_changes(OLD, with_sales(id="int", cost="int", day="date"), holds)
    assert [(column.column, column.kind, column.renamed_to) for column in change.columns] == [
        ("price", ColumnChangeKind.RENAMED, "cost"),
        ("cost", ColumnChangeKind.ADDED, None),
    ]


def test_a_new_name_that_is_declared_is_told_as_such_also_with_another_type() -> None:
    declared = {"columns": [["id", "INT", True, ""], ["cost", "BIGINT", True, "", ["price"]]]}
    sales = DatasetSnapshot("s.sales", {"id": "int", "cost": "bigint", "day": "date"}, declaration=declared)
    (change,) = dataset_changes(OLD, {**OLD, "s.sales": sales}, holds)
    assert [column.message("s.sales") for column in change.columns] == ["s.sales.price is called cost now."]
    assert {reader.dataset for reader in change.readers} == {"s.model", "s.totals", "s.forecast", "s.report"}
    # Nor is it taken for another column that goes at the same time.
    older = {**OLD, "s.sales": DatasetSnapshot("s.sales", {"id": "int", "price": "bigint", "tax": "bigint"})}
    newer = {**OLD, "s.sales": DatasetSnapshot("s.sales", {"id": "int", "cost": "bigint"}, declaration=declared)}
    (change,) = dataset_changes(older, newer, holds)
    assert [column.message("s.sales") for column in change.columns] == [
        "s.sales.price is called cost now.", "s.sales no longer has tax.",
    ]  # fmt: skip
    # What was renamed long ago is no change.
    assert dataset_changes({"s.sales": sales}, {"s.sales": sales}, holds) == []


def test_a_wider_type_is_a_change_that_breaks_nobody_and_a_narrower_one_is_another() -> None:
    wide = with_sales(id="int", price="bigint", day="date")
    (change,) = dataset_changes(OLD, wide, holds)
    assert ([column.kind for column in change.columns], change.readers) == ([ColumnChangeKind.WIDENED], ())
    (back,) = dataset_changes(wide, OLD, holds)
    assert [column.kind for column in back.columns] == [ColumnChangeKind.RETYPED]
    assert {reader.dataset for reader in back.readers} == {"s.model", "s.totals", "s.forecast", "s.report"}


def test_datasets_that_are_new_and_gone_are_told() -> None:
    new = {name: snapshot for name, snapshot in OLD.items() if name != "s.totals"}
    new["s.other"] = DatasetSnapshot("s.other", {"n": "int"})
    added, gone = dataset_changes(OLD, new, holds)
    assert (added.dataset, added.kind, added.readers) == ("s.other", ChangeKind.ADDED, ())
    assert (gone.dataset, gone.kind, gone.owners) == ("s.totals", ChangeKind.REMOVED, ("team:money",))
    assert [(reader.dataset, reader.column) for reader in gone.readers] == [("s.report", "")]
