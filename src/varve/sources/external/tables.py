"""The interface of all kinds of external tables, and the functions that they share.

Not here: each kind (hive.py, postgres.py, jdbc.py), reading one for a build (read.py), and when one is listed
(varve/dagster/automation/sensors.py).
"""

from __future__ import annotations

import datetime as dt
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from varve.model.errors import (
    NOTHING_LOST,
    BadInput,
    ServiceUnavailable,
    UnknownPartition,
    VarveError,
    some,
)
from varve.model.partitions.key import text_of
from varve.model.schema import Kind
from varve.stores.frames import exactly

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from varve.model.dataset import Dataset
    from varve.model.external import ExternalTable
    from varve.model.partitions.key import PartitionKey
    from varve.stores.folders.listing import ListedFile

# How many unknown partitions a message shows at most.
_STRAYS_TOLD = 3
_WHOLE_KINDS = (Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """The present state of a partition: another `token` means another content.

    Attributes:
        size: in bytes or in rows.
        folders: the files by folder, where the table consists of files.
    """

    token: str
    size: int
    folders: Mapping[str, Sequence[ListedFile]] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with their partition columns. They are fetched already (`here`), or Spark fetches them when it writes."""

    frame: DataFrame
    here: bool


class ExternalSource(Protocol):
    """An external table whose partitions a dataset copies."""

    def listed(self, dataset: Dataset, keys: Sequence[PartitionKey] | None = None) -> Listing:
        """The table's partitions (only `keys`, or all). Raises VarveError where the table cannot be listed."""
        ...

    def read(self, dataset: Dataset, keys: Sequence[PartitionKey]) -> Rows:
        """The rows of partitions. Raises BadInput where a declared column is missing or its type does not fit."""
        ...


@dataclass(frozen=True, slots=True)
class Listing:
    """The partitions of the dataset in an external table, and why it has none for others, by their columns there."""

    partitions: Mapping[PartitionKey, ListedPartition]
    strays: Mapping[str, str] = field(default_factory=dict)

    def message(self) -> str:
        """The partitions that the dataset does not have, as a phrase for a message."""
        return f"{len(self.strays)} partitions are not taken: {some(list(self.strays.values()), limit=_STRAYS_TOLD)}"


def listing(dataset: Dataset, rows: Iterable[tuple[Mapping[str, str | None], ListedPartition]]) -> Listing:
    """The listing of partitions that are given by the texts of their partition columns."""
    found: dict[PartitionKey, list[ListedPartition]] = {}
    strays = dict[str, str]()
    for texts, listed in rows:
        try:
            found.setdefault(key_of(dataset, texts), []).append(listed)
        except UnknownPartition as error:
            strays[as_path(texts)] = str(error).rstrip(".")
    partitions = {key: each[0] if len(each) == 1 else _together(each) for key, each in found.items()}
    return Listing(partitions, strays)


def as_path(texts: Mapping[str, str | None]) -> str:
    """What a partition is called that the dataset does not have: `day=2026-1-2/store=NULL`."""
    return "/".join(f"{name}={'NULL' if text is None else text}" for name, text in texts.items())


def _together(listed: Sequence[ListedPartition]) -> ListedPartition:
    """One partition of several that spell its key otherwise (`3` and `03`): a change of any of them is one of it."""
    return ListedPartition("; ".join(sorted(each.token for each in listed)), sum(each.size for each in listed))


def listing_of_rows(dataset: Dataset, rows: Sequence[Sequence[Any]]) -> Listing:
    """The listing from rows of the partition columns, the number of rows, and the highest value of `changed`."""
    names = dataset.partitioning.names
    texts_of_rows = ([None if value is None else str(value) for value in row[: len(names)]] for row in rows)
    columns_of_rows = (
        (dict(zip(names, values_by_name, strict=True)), row)
        for values_by_name, row in zip(texts_of_rows, rows, strict=True)
    )
    return listing(
        dataset,
        (
            (values_by_name, ListedPartition(f"{row[-2]} rows, {row[-1]}", row[-2]))
            for values_by_name, row in columns_of_rows
        ),
    )


def as_texts(listed: DataFrame, dataset: Dataset, newest: str) -> DataFrame:
    """The rows of a listing with their keys, and what tells a change, as Spark's texts.

    Python would have instants in the zone of its process, which no key and no other process has.
    """
    from pyspark.sql import functions as F  # noqa: N812

    keys = {name.lower() for name in dataset.partitioning.names}
    columns = []
    for each in listed.schema.fields:
        column = F.col(f"`{each.name}`")
        if each.name.lower() in {*keys, newest}:
            column = column.cast("string")
        if each.name.lower() in keys and each.dataType.typeName() == "decimal":
            # A number without a scale has Spark's: 7.0000000000 is the key 7.
            column = F.regexp_replace(column, "[.]0*$", "")
        columns.append(column.alias(each.name))
    return listed.select(*columns)


def declared_columns(dataset: Dataset, rows: DataFrame, numbers: Container[str] = ()) -> DataFrame:
    """The declared columns and the partition columns of what Spark reads; others are left out.

    `numbers` are columns whose numbers are read as texts, by the names that are declared.
    """
    from pyspark.sql import functions as F  # noqa: N812

    by = dataset.partitioning.names
    return rows.select(
        *[
            F.expr(exactly(column, by) if column.name in numbers else f"`{column.name}`").alias(column.name)
            for column in dataset.schema.columns
        ],
        # A partition column is cast to the type of the key, whatever its type there is.
        *[F.col(f"`{column.name}`").cast(str(column.type)).alias(column.name) for column in dataset.partition_columns],
    )


def url_of(dataset: Dataset, table: ExternalTable) -> str:
    """The URL of the table's database, from an environment variable. Raises ServiceUnavailable where it is not set."""
    url = os.environ.get(table.url)
    if not url:
        raise ServiceUnavailable(
            f"{dataset}: the environment variable {table.url} is not set; it holds the URL of the database that has "
            f"{table}."
        )
    return url


def key_of(dataset: Dataset, texts: Mapping[str, str | None]) -> PartitionKey:
    """The partition from the texts of its columns. Raises UnknownPartition, also for another spelling of a key."""
    values = []
    whole = {column.name for column in dataset.partition_columns if column.type.kind in _WHOLE_KINDS}
    for dimension in dataset.partitioning.dimensions:
        spelt: dict[str, str] = {}
        for name in dimension.column_names:
            if (text := texts[name]) is None:
                raise UnknownPartition(f"{name} is NULL, which names no partition.")
            # As it is compared where rows are read.
            spelt[name] = str(int(text)) if name in whole and _WHOLE.fullmatch(text) else text
        value = dimension.parse_columns(spelt)
        for name, column_value in zip(dimension.column_names, dimension.column_values(value), strict=True):
            # A number and a moment are the same partition in any spelling.
            if not isinstance(column_value, int | dt.datetime) and text_of(column_value) != spelt[name]:
                raise UnknownPartition(
                    f"{spelt[name]!r} is no key of dimension {dimension.name}, which spells it {column_value}."
                )
        values.append(value)
    return dataset.partitioning.key(values)


def no_such_column(
    dataset: Dataset, table: ExternalTable, missing: Sequence[str], columns: Sequence[str]
) -> VarveError:
    """The error for columns that an external table does not have."""
    return BadInput(
        f"{dataset}: {table} has no column {', '.join(missing)}; it has {some(columns, limit=20)}. {NOTHING_LOST}"
    )
