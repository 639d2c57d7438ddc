"""Customers who were in the lake already, the changes of them, and the table that both make together."""

from varve.cdc.event import ChangeEvent, ChangeType
from varve.cdc.resolve.shape import TableShape
from varve.model.schema import Column, ColumnType

COLUMN_NAMES = ("id", "name")  # column names of the data
OLD_KEY_NAMES = ("id",)  # column names of the primary key

CUSTOMERS = TableShape(
    "datalake.customers", (Column("id", ColumnType.STRING), Column("name", ColumnType.STRING)), OLD_KEY_NAMES
)
DATALAKE = (
    ("id1", "Alice"),
    ("id2", "Bob"),
)
CHANGE_EVENTS = (
    ChangeEvent(ChangeType.UPDATE, "1", COLUMN_NAMES, ("id1", "Angela"), OLD_KEY_NAMES, ("id1",)),
    ChangeEvent(ChangeType.DELETE, "2", (), (), OLD_KEY_NAMES, ("id2",)),
    ChangeEvent(ChangeType.INSERT, "3", COLUMN_NAMES, ("id2", "Carol"), (), ()),
)
