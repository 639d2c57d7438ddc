"""Sales by day and shop: the dataset that tests of catalog and stores publish, and its keys."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING

import pendulum

from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence


DAY = TimeDimension("day", Grain.DAY, pendulum.datetime(2013, 1, 1), pendulum.datetime(2014, 1, 1))
STORE = StaticDimension("store", ("Detroit", "Paris", "Zürich"))
COLUMNS = Schema(
    (
        Column("product", ColumnType.STRING, "what was sold"),
        Column("sold", ColumnType.BIGINT, "pieces"),
        Column("price", ColumnType.DOUBLE, "euros"),
        Column("at", ColumnType.TIMESTAMP, "when"),
    )
)


def sales_dataset(store: StoreKind, *, dimensions: Sequence[object] = (DAY, STORE)) -> Dataset:
    """A dataset of its own database for one test."""
    return Dataset(
        name=f"t{uuid.uuid4().hex[:8]}.sales",
        comment='One row per product sold, it\'s "quoted".',
        partitioning=Partitioning(tuple(dimensions)),  # type: ignore[arg-type]
        schema=COLUMNS,
        store=store,
    )


def key(store: str, day: int = 5) -> PartitionKey:
    """The partition of a shop on a day of January 2013."""
    return PartitionKey.of(day=dt.date(2013, 1, day), store=store)


PARIS, ZURICH, DETROIT = key("Paris"), key("Zürich"), key("Detroit")
