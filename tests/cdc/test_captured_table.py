"""What a captured table must declare; no server is needed to refuse the others."""

from __future__ import annotations

import pytest

from varve.cdc.captured_table import CapturedTable
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema


def test_a_captured_table_has_partitions() -> None:
    columns = Schema((Column("id", ColumnType.BIGINT, "which"),))
    planes = Dataset("fleet.planes", Partitioning(), columns, StoreKind.LAKE, "One row per plane.")
    with pytest.raises(VarveError, match=r"fleet\.planes: a table that is captured .* has partitions.*Give it a dimen"):
        CapturedTable(planes, "public.planes", {})


def test_a_column_of_the_source_whose_name_another_one_has_in_the_dataset_is_none_of_it() -> None:
    columns = Schema((Column("id", ColumnType.BIGINT), Column("name", ColumnType.STRING)))
    parts = Partitioning((StaticDimension("part", ("0",)),))
    people = Dataset("app.people", parts, columns, StoreKind.LAKE, "One row per person.")
    captured = CapturedTable(people, "public.people", {"part": "'0'"}, {"full_name": "name"})
    assert [captured.column(name) for name in ("id", "full_name")] == ["id", "name"]
    assert captured.column("name") not in captured.names
    swapped = CapturedTable(people, "public.people", {"part": "'0'"}, {"id": "name", "name": "id"})
    assert [swapped.column(name) for name in ("id", "name")] == ["name", "id"]
