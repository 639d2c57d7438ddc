"""Rows of every type, nested, NULL, and in partitions with odd values, which all engines have to read alike."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.support.sales import DAY, sales_dataset
from varve.model.dataset import StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.model.schema import Column, ColumnType, Schema
from varve.model.store_options import LakeOptions

if TYPE_CHECKING:
    from varve.model.dataset import Dataset

LOCAL = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 - a clock time
NOON = dt.datetime(2013, 1, 5, 12, tzinfo=dt.UTC)
TYPES = Schema(
    (
        Column("n", ColumnType.BIGINT), Column("small", ColumnType.SMALLINT), Column("tiny", ColumnType.TINYINT),
        Column("i", ColumnType.INT), Column("name", ColumnType.STRING), Column("price", ColumnType.decimal(12, 3)),
        Column("huge", ColumnType.decimal(38, 10)), Column("weight", ColumnType.DOUBLE), Column("f", ColumnType.FLOAT),
        Column("on", ColumnType.DATE), Column("at", ColumnType.TIMESTAMP), Column("local", ColumnType.TIMESTAMP_NTZ),
        Column("raw", ColumnType.BINARY), Column("yes", ColumnType.BOOLEAN),
        Column("tags", ColumnType.array(ColumnType.STRING)),
        Column("pair", ColumnType("STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING>>>")),
        Column("counts", ColumnType.map(ColumnType.STRING, ColumnType.BIGINT)),
    )
)  # fmt: skip
STORES = ("Paris", "Zürich", "100% a/b=c", 'it\'s "here"', "+1 2", "*[{?#", "ß€𝄞")


def every_type() -> tuple[Dataset, dict[PartitionKey, list[dict[str, Any]]]]:
    """A dataset with a column of each type, and for each of its stores a row with values and one of NULLs."""
    stores = StaticDimension("store", STORES)
    dataset = replace(
        sales_dataset(StoreKind.LAKE, dimensions=(DAY, stores)), schema=TYPES,
        lake=LakeOptions(bounds=("n", "name", "price", "huge", "on", "local", "tiny")),
    )  # fmt: skip
    whole = {
        "n": -(2**63), "small": -3, "tiny": -128, "i": 7, "name": "é", "price": Decimal("-1.125"),
        "huge": Decimal("1234567890123456789012345678.0123456789"), "weight": 0.5, "f": 1.25,
        "on": dt.date(1582, 1, 1), "at": NOON, "local": LOCAL,
        "raw": b"\x00\xff", "yes": True, "tags": ["a", None], "pair": {"a": 1, "b": [{"c": "d"}, None]},
        "counts": [("x", 1), ("y", None)],
    }  # fmt: skip
    nothing = dict.fromkeys(whole)
    rows = {
        PartitionKey.of(day=dt.date(2013, 1, 5), store=store): [whole | {"i": place}, nothing]
        for place, store in enumerate(STORES)
    }
    return dataset, rows
