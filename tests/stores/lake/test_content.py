"""The hash of a batch's rows over the values that are equal and not the same: zeros with a sign, NaN, NULL."""

from __future__ import annotations

import datetime as dt
import struct
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from varve.model.batch import BatchId
from varve.model.build import Build
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.stores.folders import content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KINDS = "a DOUBLE, b FLOAT, c ARRAY<DOUBLE>, d STRUCT<x: FLOAT>"
COLUMNS = [Column(name, ColumnType(kind)) for name, kind in
           (("a", "DOUBLE"), ("b", "FLOAT"), ("c", "ARRAY<DOUBLE>"), ("d", "STRUCT<x: FLOAT>"))]  # fmt: skip
PLAIN: tuple[Any, ...] = (0.0, 0.0, [0.0, 1.0], (0.0,))
NAN, OTHER_NAN = float("nan"), struct.unpack("d", struct.pack("Q", 0x7FF8000000000123))[0]


def test_zeros_with_a_sign_are_other_rows_and_all_nans_are_one_value(spark: SparkSession) -> None:
    rows = {
        "plain": [PLAIN], "again": [PLAIN],
        **{f"minus {place}": [(*PLAIN[:place], value, *PLAIN[place + 1 :])]
           for place, value in enumerate((-0.0, -0.0, [-0.0, 1.0], (-0.0,)))},
        "both": [(-0.0, -0.0, *PLAIN[2:])],
        "nan": [(NAN, NAN, [NAN], (NAN,))], "other nan": [(OTHER_NAN, NAN, [OTHER_NAN], (NAN,))],
        "null": [(None, None, None, None)], "null in an array": [(*PLAIN[:2], [0.0, 1.0, None], (0.0,))],
        "null first": [(*PLAIN[:2], [None, 0.0, 1.0], (0.0,))], "empty": [(*PLAIN[:2], [], (0.0,))],
        "nothing but a null": [(*PLAIN[:2], [None], (0.0,))], "a field is null": [(*PLAIN[:3], (None,))],
        "the struct is null": [(*PLAIN[:3], None)],
        "two": [PLAIN, (-0.0, *PLAIN[1:])], "two in another order": [(-0.0, *PLAIN[1:]), PLAIN],
        "two plain": [PLAIN, PLAIN],
    }  # fmt: skip
    given = [(name, *row) for name, some in rows.items() for row in some]
    frame = spark.createDataFrame(given, f"which STRING, {KINDS}")
    hash_of = hashes(frame)
    assert hash_of["plain"] == hash_of["again"]
    assert hash_of["nan"] == hash_of["other nan"]
    assert hash_of["two"] == hash_of["two in another order"]
    different = [name for name in rows if name not in {"again", "other nan", "two in another order"}]
    assert len({hash_of[name] for name in different}) == len(different)
    # An older batch without these has the same hash as before: nothing runs again for it.
    words = ", ".join(f"`{column.name}`, `{column.name}` is null" for column in COLUMNS[:2])
    (before,) = frame.where("which = 'nan'").select(F.expr(f"xxhash64({words})")).collect()
    assert hashes(frame, COLUMNS[:2])["nan"] == f"1:{before[0] % (1 << 64):016x}"


def test_a_partition_column_may_be_called_rows(spark: SparkSession) -> None:
    dimension = StaticDimension("rows", ("many", "few"))
    dataset = Dataset(
        "shop.sizes", Partitioning((dimension,)), Schema((Column("n", ColumnType("INT")),)), StoreKind.LAKE, ""
    )
    keys = tuple(dataset.partitioning.keys())
    frame = spark.createDataFrame([(1, "many"), (2, "many"), (3, "few")], "n INT, rows STRING")
    hashes_of = content.of_written(Build(dataset, keys, BatchId(1), "run", {}), frame)
    assert [str(hashes_of[key.path].content).partition(":")[0] for key in keys] == ["2", "1"]


def test_values_within_values_are_told_apart_by_their_place(spark: SparkSession) -> None:
    kinds = {
        "address": "STRUCT<street: STRING, city: STRING>", "tags": "ARRAY<STRING>", "more": "ARRAY<STRING>",
        "grid": "ARRAY<ARRAY<INT>>", "at": "STRUCT<moment: TIMESTAMP>",
    }  # fmt: skip
    first, later = (dt.datetime(2026, 11, 1, 0, 0, 0, micro, dt.UTC) for micro in (1, 2))
    plain: tuple[Any, ...] = (("a", "b"), ["x", "y"], [], [[1], [2]], (first,))
    rows = [
        plain, ((None, "a"), *plain[1:]), (("a", None), *plain[1:]), (None, *plain[1:]), ((None, None), *plain[1:]),
        (plain[0], ["x"], ["y"], *plain[3:]), (plain[0], ["x", "y", None], *plain[2:]),
        (plain[0], ["null", None], *plain[2:]), (plain[0], [None, "null"], *plain[2:]),
        (plain[0], ["x, y"], *plain[2:]),
        (*plain[:3], [[1, 2]], plain[4]), (*plain[:3], [[], [1, 2]], plain[4]), (*plain[:3], [[1, 2], []], plain[4]),
        (*plain[:3], [[1], [2], None], plain[4]), (*plain[:4], (later,)),
    ]  # fmt: skip
    columns = [Column(name, ColumnType(kind)) for name, kind in kinds.items()]
    given = [(str(number), *row) for number, row in enumerate(rows)]
    frame = spark.createDataFrame(given, "which STRING, " + ", ".join(f"{name} {kind}" for name, kind in kinds.items()))
    told_apart = hashes(frame, columns)
    assert len(set(told_apart.values())) == len(rows)
    # The zone of a session changes no hash.
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert hashes(frame, columns) == told_apart
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def hashes(frame: DataFrame, columns: Sequence[Column] = COLUMNS) -> dict[str, str | None]:
    counted = frame.groupBy("which").agg(F.count(F.lit(1)).alias("rows"), *content.sums(columns)).collect()
    return {row["which"]: content.text(row["rows"], row.asDict()) for row in counted}
