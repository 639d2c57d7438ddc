"""Every type of a column through Spark, parquet, COPY, PostgreSQL and back, and what PostgreSQL cannot hold by name."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sales import DAY
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import BadInput, VarveError
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Kind, Schema
from varve.stores.postgres.types import postgres_type, refuse_what_postgresql_cannot_hold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.workbench import Workbench

FIRST = PartitionKey.of(day=dt.date(2013, 1, 5))
# Of every type: its PostgreSQL type, and values as Spark writes them with what psycopg reads for each.
INFINITY = float("inf")
VALUES: dict[str, tuple[str, list[tuple[str, Any]]]] = {
    "STRING": (
        "text",
        [("''", ""), ("'Zürich \U0001f600 % %s \"quoted\" \\\\'", 'Zürich \U0001f600 % %s "quoted" \\')],
    ),
    "BOOLEAN": ("boolean", [("true", True), ("false", False)]),
    "TINYINT": ("smallint", [("-128Y", -128), ("127Y", 127)]),
    "SMALLINT": ("smallint", [("-32768S", -32768), ("32767S", 32767)]),
    "INT": ("integer", [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)]),
    "BIGINT": ("bigint", [("-9223372036854775808L", -(2**63)), ("9223372036854775807L", 2**63 - 1)]),
    "FLOAT": ("real", [("1.5F", 1.5), ("float('-Infinity')", -INFINITY), ("float('NaN')", "NaN")]),
    "DOUBLE": ("double precision", [("0.1D", 0.1), ("double('Infinity')", INFINITY), ("double('NaN')", "NaN")]),
    "DECIMAL(38,18)": (
        "numeric(38,18)",
        [
            ("99999999999999999999.999999999999999999BD", "99999999999999999999.999999999999999999"),
            ("-0.000000000000000001BD", "-1E-18"),
        ],
    ),
    "DECIMAL(3,0)": ("numeric(3,0)", [("-999BD", "-999"), ("0BD", "0")]),
    "DATE": ("date", [("DATE'0001-01-01'", dt.date.min), ("DATE'9999-12-31'", dt.date.max)]),
    "TIMESTAMP": (
        "timestamp with time zone",
        [
            ("TIMESTAMP'0001-01-02 00:00:00.000001+00:00'", dt.datetime(1, 1, 2, 0, 0, 0, 1, dt.UTC)),
            ("TIMESTAMP'2013-11-03 01:30:00.123456-05:00'", dt.datetime(2013, 11, 3, 6, 30, 0, 123456, dt.UTC)),
        ],
    ),
    "TIMESTAMP_NTZ": (
        "timestamp without time zone",
        [("TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999))],  # noqa: DTZ001
    ),
    "BINARY": ("bytea", [("X'00FF'", b"\x00\xff"), ("X''", b"")]),
    "ARRAY<INT>": ("jsonb", [("array(1, null, 3)", [1, None, 3]), ("array()", [])]),
    "MAP<STRING, DECIMAL(4,2)>": ("jsonb", [("map('it''s', 12.34BD)", {"it's": 12.34})]),
    "STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING, d: TIMESTAMP>>>": (
        "jsonb",
        [
            (
                (
                    "named_struct('a', null, 'b', array(named_struct("
                    "'c', 'é', 'd', TIMESTAMP'2013-01-05 00:00:00.000001Z')))"
                ),
                {"a": None, "b": [{"c": "é", "d": "2013-01-05T00:00:00.000001Z"}]},
            )
        ],
    ),
}


def dataset_of(*columns: Column) -> Dataset:
    name = f"t{uuid.uuid4().hex[:8]}.every"
    return Dataset(name, Partitioning((DAY,)), Schema(columns), StoreKind.WAREHOUSE, "One row per value.")


def every() -> Dataset:
    columns = [Column(f"c{place}", ColumnType(kind)) for place, kind in enumerate(VALUES)]
    return dataset_of(Column("id", ColumnType.INT), *columns)


def rows_of_every(spark: SparkSession) -> DataFrame:
    """Row 0 is NULL throughout; row n has the n-th value of each type that has so many."""
    most = max(len(values) for _, values in VALUES.values())
    rows = []
    for number in range(most + 1):
        items = [
            f"cast({values[number - 1][0] if 0 < number <= len(values) else 'null'} as {kind}) as c{place}"
            for place, (kind, (_, values)) in enumerate(VALUES.items())
        ]
        rows.append(f"select {number} as id, {', '.join(items)}")
    return spark.sql(" union all ".join(rows))


def test_every_kind_of_type_is_among_the_values() -> None:
    assert {ColumnType(kind).kind for kind in VALUES} == set(Kind)
    assert {kind: postgres_type(ColumnType(kind)) for kind in VALUES} == {
        kind: sql for kind, (sql, _) in VALUES.items()
    }


@pytest.mark.spark
def test_every_value_of_every_type_arrives_and_comes_back(workbench: Workbench, spark: SparkSession) -> None:
    dataset = every()
    frame = rows_of_every(spark)
    current = workbench.publish_frame(dataset, [FIRST], frame)
    catalog = workbench.catalog()
    rows = catalog.connection.execute(f"select * from {dataset} order by id".encode()).fetchall()
    for place, (kind, (_, values)) in enumerate(VALUES.items(), start=2):
        arrived = [row[place] for row in rows]
        assert arrived[0] is None, kind
        for (_, expected), value in zip(values, arrived[1:], strict=False):
            if expected == "NaN":
                assert value != value, kind  # noqa: PLR0124 - what NaN is
            else:
                assert (str(value) if kind.startswith("DECIMAL") else value) == expected, kind
    back = workbench.store(dataset, catalog).read(dataset, list(current.values())).drop("day")
    assert back.schema.simpleString() == frame.schema.simpleString()
    assert [str(row) for row in back.orderBy("id").collect()] == [str(row) for row in frame.orderBy("id").collect()]
    catalog.connection.close()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "value", "column"),
    [
        ("STRING", "concat('a', char(0))", "value: invalid byte sequence .* holds no NUL character"),
        ("ARRAY<STRING>", "array(concat('a', char(0)))", "value: unsupported Unicode escape .* holds no NUL character"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'-10000-01-01 00:00:00'", "value: timestamp out of range"),
    ],
)
def test_a_value_that_postgresql_cannot_hold_is_refused_by_row_and_column(
    workbench: Workbench, spark: SparkSession, kind: str, value: str, column: str
) -> None:
    dataset = dataset_of(Column("value", ColumnType(kind)))
    with pytest.raises(BadInput, match=rf"refused the rows of day=2013-01-05: row 1 of a file, column {column}"):
        workbench.publish_frame(dataset, [FIRST], spark.sql(f"select cast({value} as {kind}) as value"))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([Column("c" * 64, ColumnType.INT)], r"The column c{30}\.\.\. is 64 bytes long, 63 are a name's limit"),
        ([Column("xmin", ColumnType.INT)], "a column xmin of PostgreSQL's own"),
        ([Column("m", ColumnType("MAP<INT, INT>"))], "make MAP<INT, INT> a MAP<STRING"),
        ([Column("m", ColumnType("ARRAY<STRUCT<a: MAP<DATE, INT>>>"))], "make MAP<DATE, INT> a MAP<STRING"),
        (
            [Column(f"c{place}", ColumnType.INT) for place in range(1_600)],
            "1601 columns, where a table has at most 1600",
        ),
    ],
)
def test_columns_without_a_place_in_postgresql_are_refused_by_name(columns: list[Column], expected: str) -> None:
    with pytest.raises(VarveError, match=expected):
        refuse_what_postgresql_cannot_hold(dataset_of(*columns))


def test_names_that_postgresql_would_cut_are_refused() -> None:
    fine = dataset_of(Column("a", ColumnType.INT))
    refuse_what_postgresql_cannot_hold(fine)
    with pytest.raises(VarveError, match="64 bytes long, 63 are left"):
        refuse_what_postgresql_cannot_hold(replace(fine, name=f"db.{'t' * 64}"))
    with pytest.raises(VarveError, match="56 bytes long, 55 are left"):
        refuse_what_postgresql_cannot_hold(replace(fine, name=f"{'d' * 56}.t"))
