"""`PartitionKey`, the identity of one partition, and the text that names it in catalog and paths.

Not here: dimensions and what keys they have (dimension.py), Dagster's spelling of a key (dimension.py, `Partitioning`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

Value: TypeAlias = str | int | dt.date

# What Hive and Spark escape in a partition path (org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils).
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(0x20)))


def escape(text: str) -> str:
    """One value as Hive and Spark write it in a path: `2013-01-05T13:00` -> `2013-01-05T13%3A00`."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """One point of the product of a dataset's dimensions: named, typed values in the dataset's order of dimensions."""

    fields: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, **values: Value) -> PartitionKey:
        """The key with these values, in this order: `PartitionKey.of(day=date(2013, 1, 5), origin="EWR")`."""
        return cls(tuple(values.items()))

    @property
    def values(self) -> tuple[Value, ...]:
        """The values alone, in the order of the dimensions."""
        return tuple(value for _, value in self.fields)

    @property
    def path(self) -> str:
        """The key as a Hive path and as the catalog spells it: `day=2013-01-05/origin=EWR`."""
        return "/".join(f"{name}={escape(str(value))}" for name, value in self.fields)

    def __getitem__(self, name: str) -> Value:
        return dict(self.fields)[name]

    def __str__(self) -> str:
        return self.path


def parse_path(path: str) -> tuple[tuple[str, str], ...]:
    """The inverse of `PartitionKey.path`, values still as text: their dimension types them."""
    pairs = (segment.partition("=") for segment in path.split("/"))
    return tuple((name, unquote(value)) for name, _, value in pairs)
