"""What every kind of outside table can be asked, and what all kinds answer in the same way.

Not here: how each kind answers (hive.py, postgres.py, jdbc.py), a build's read of one (read.py), and when it is asked
(varve/dagster/automation/sensors.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from varve.model.dataset import Dataset
    from varve.model.external import OutsideTable
    from varve.model.partitions.key import PartitionKey

# What a partition of no dataset is told by, at most.
_STRAYS_TOLD = 3


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """A partition as it is now: another `token` is another content. `size` is in bytes, or in rows."""

    token: str
    size: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with their partition columns; they are `here` already, or Spark fetches them when it writes."""

    frame: DataFrame
    here: bool


class Outside(Protocol):
    """An outside table, of which a dataset takes the partitions."""

    def listed(self, dataset: Dataset, keys: Sequence[PartitionKey] | None = None) -> Listing:
        """Its partitions (of these or all). Raises VarveError where it cannot be asked."""
        ...

    def read(self, dataset: Dataset, keys: Sequence[PartitionKey]) -> Rows:
        """Their rows with the partition columns. Raises BadInput where a declared column is not there or cannot fit."""
        ...


@dataclass(frozen=True, slots=True)
class Listing:
    """What was found: the dataset's partitions, and how others are spelt, which it has not."""

    partitions: Mapping[PartitionKey, ListedPartition]
    strays: Sequence[str] = ()

    def told(self) -> str:
        """The strays, in words; "" where there are none."""
        return f"{len(self.strays)} partitions are not taken: {some(self.strays, limit=_STRAYS_TOLD)}"


def listing(dataset: Dataset, found: Iterable[tuple[Mapping[str, str | None], ListedPartition]]) -> Listing:
    """What a table has, by the text of its partition columns, as partitions of the dataset."""
    partitions: dict[PartitionKey, ListedPartition] = {}
    strays = []
    for texts, listed in found:
        try:
            partitions[key_of(dataset, texts)] = listed
        except UnknownPartition as error:
            strays.append(str(error).rstrip("."))
    return Listing(partitions, tuple(strays))


def listing_of_rows(dataset: Dataset, rows: Sequence[Sequence[Any]]) -> Listing:
    """What Spark has counted: rows of the partition columns, the number of rows, and the highest value of `changed`."""
    names = dataset.partitioning.names
    texts = ([None if value is None else str(value) for value in row[: len(names)]] for row in rows)
    found = ((dict(zip(names, each, strict=True)), row) for each, row in zip(texts, rows, strict=True))
    return listing(dataset, ((each, ListedPartition(f"{row[-2]} rows, {row[-1]}", row[-2])) for each, row in found))


def declared_columns(dataset: Dataset, rows: DataFrame) -> DataFrame:
    """The declared columns and the partition columns of what Spark reads; others are left out."""
    from pyspark.sql import functions as F  # noqa: N812

    return rows.select(
        *[F.col(f"`{column.name}`").alias(column.name) for column in dataset.schema.columns],
        # Whatever its type there, it reads as the key does: the partitions were found by that.
        *[F.col(f"`{column.name}`").cast(str(column.type)).alias(column.name) for column in dataset.partition_columns],
    )


def url_of(dataset: Dataset, table: OutsideTable) -> str:
    """What the environment says of where its database is. Raises ServiceUnavailable."""
    found = os.environ.get(table.url)
    if not found:
        raise ServiceUnavailable(
            f"{dataset}: the environment variable {table.url} is not set; it holds the URL of the database that has "
            f"{table}."
        )
    return found


def key_of(dataset: Dataset, texts: Mapping[str, str | None]) -> PartitionKey:
    """The partition whose columns read so. Raises UnknownPartition, for another spelling of a key too."""
    values = []
    for dimension in dataset.partitioning.dimensions:
        text = texts[dimension.name]
        if text is None:
            raise UnknownPartition(f"{dimension.name} is NULL, which names no partition.")
        value = dimension.parse(text)
        if text_of(value) != text:
            raise UnknownPartition(f"{text!r} is no key of dimension {dimension.name}, which spells it {value}.")
        values.append(value)
    return dataset.partitioning.key(values)


def no_such_column(dataset: Dataset, table: OutsideTable, missing: Sequence[str], there: Sequence[str]) -> VarveError:
    """The error for columns that a table has not."""
    return BadInput(
        f"{dataset}: {table} has no column {', '.join(missing)}; it has {some(there, limit=20)}. {NOTHING_LOST}"
    )
