"""What a captured table must declare; no server is needed to refuse the others."""

from __future__ import annotations

import pytest

from varve.cdc.captured_table import CapturedTable
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema


def test_a_captured_table_has_partitions() -> None:
    columns = Schema((Column("id", ColumnType.BIGINT, "which"),))
    planes = Dataset("fleet.planes", Partitioning(), columns, StoreKind.LAKE, "One row per plane.")
    with pytest.raises(VarveError, match=r"fleet\.planes: a table that is captured .* has partitions.*Give it a dimen"):
        CapturedTable(planes, "public.planes", {})
