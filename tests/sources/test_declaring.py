"""The file of a table that exists: every partition that is there is one of the dataset that it declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from varve.model.errors import VarveError
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.key import escape
from varve.sources.external.declaring import ExistingTable, TableColumn, declaration_text
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile
from varve.sql.syntax.formatting import formatted

if TYPE_CHECKING:
    from varve.model.dataset import Dataset

COLUMNS = (TableColumn("product", "STRING", "what was sold, isn't it"), TableColumn("price", "DECIMAL(9,2)"))


def imported(columns: str, *partitions: str, copies: bool = False) -> Dataset:
    partition_columns = [TableColumn(*column.split()) for column in columns.split(", ") if column]
    values = [
        dict(zip([column.name for column in partition_columns], row.split(" "), strict=True)) for row in partitions
    ]
    table = ExistingTable("dumps.clicks", COLUMNS, partition_columns, values)
    text = declaration_text(table, "shop.clicks", copies=copies)
    dataset = compiled([SourceFile("clicks.sql", formatted(SourceFile("clicks.sql", text)))], {})["shop.clicks"].dataset
    for of_partition in values:
        path = "/".join(f"{name}={escape(value)}" for name, value in of_partition.items())
        if not any(isinstance(dimension, DynamicDimension) for dimension in dataset.partitioning.dimensions):
            assert dataset.partitioning.exists(dataset.partitioning.from_path(path)), path
    return dataset


@pytest.mark.parametrize(
    ("columns", "partitions", "first"),
    [
        ("day STRING", ("2022-03-02", "2022-03-01"), "2022-03-01"),
        ("day DATE", ("2022-03-02", "2022-03-05"), "2022-03-02"),
        ("dt INT", ("20220302", "20220301"), "2022-03-01"),
        ("month STRING", ("2022-03", "2021-12"), "2021-12"),
        ("hour STRING", ("2022-03-01T07",), "2022-03-01T07"),
        ("hour STRING", ("2022030107", "2022030123"), "2022-03-01T07"),
        ("year INT, month INT, day INT, hour INT", ("2022 3 1 7", "2022 3 1 0"), "2022-03-01T00"),
        ("year STRING, month STRING", ("2022 03", "2022 11"), "2022-03"),
        ("year STRING, month STRING, day STRING", ("2022 3 1", "2022 11 20"), "2022-03-01"),
        ("day STRING, hour STRING", ("2022-03-01 07", "2022-03-02 00"), "2022-03-01T07"),
        ("dt STRING, hr INT", ("2022-03-01 7", "2022-03-02 0"), "2022-03-01T07"),
        ("year INT, month TINYINT, day SMALLINT", ("2022 3 1", "2022 11 20"), "2022-03-01"),
    ],
)
def test_columns_of_time_become_a_series_from_the_first_window_that_is_there(
    columns: str, partitions: tuple[str, ...], first: str
) -> None:
    dataset = imported(columns, *partitions)
    time = dataset.partitioning.time
    assert time is not None
    assert time.start.isoformat().startswith(first)
    assert dataset.is_view


def test_other_columns_become_a_list_or_a_set_where_there_are_many() -> None:
    dimensions = imported("day STRING, store STRING", "2022-03-01 Zürich", "2022-03-01 O'Hare").partitioning.dimensions
    assert [type(dimension) for dimension in dimensions] == [TimeDimension, StaticDimension]
    shards = imported("shard INT", *map(str, range(12))).partitioning.dimensions
    assert shards == (StaticDimension("shard", tuple(range(12))),)
    (users,) = imported("user STRING", *[f"user{number}" for number in range(51)]).partitioning.dimensions
    assert users == DynamicDimension("user", "dumps_clicks_user")
    # Its variable has another name, as that of a series would have this one.
    assert imported("t STRING", "a", "b").partitioning.dimensions == (StaticDimension("t", ("a", "b")),)


def test_a_table_without_partition_columns_is_one_without_partitions() -> None:
    dataset = imported("", copies=True)
    assert dataset.partitioning.dimensions == ()
    assert not dataset.is_view
    assert dataset.schema.columns[0].comment == "what was sold, isn't it"


def test_without_a_partition_nothing_says_what_the_columns_mean() -> None:
    with pytest.raises(VarveError, match=r"dumps\.clicks has no partition yet, .* day mean\. Nothing was written"):
        imported("day STRING")
