"""Period tables as a data source of Spark: tasks read them through ADBC, filters go to PostgreSQL with them.

Sent to Spark by value, as warehouse/loading/copying.py is: nothing of Varve need be installed there.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from varve.services.sessions import settings_statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "varve_periods"
# Texts, which go to the workers with the functions.
_SETTINGS = (
    "set local statement_timeout = 0", "set local search_path = pg_catalog, public", settings_statement(local=True)
)  # fmt: skip
_COMPARISONS = {GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}


class PeriodTables(DataSource):
    """Options: `url`, `schema` (DDL), `arrow` (hex of a serialised Arrow schema), `queries` (JSON), one a task."""

    @classmethod
    def name(cls) -> str:
        """The name under which it is registered."""
        return NAME

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    def schema(self) -> str:
        """What the caller has said."""
        return self.options["schema"]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Over all queries."""
        del schema
        return PeriodReader(self.options["url"], self.options["arrow"], json.loads(self.options["queries"]))


@dataclass
class ReadTask(InputPartition):
    """One query."""

    query: str


class PeriodReader(DataSourceReader):
    """Reads the rows of each query, narrowed by what Spark would filter anyway."""

    def __init__(self, url: str, arrow: str, queries: Sequence[str]) -> None:
        self.url, self.arrow, self.queries = url, arrow, queries
        self.conditions: list[str] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the queries; Spark still applies every filter, so only rows that it would drop may be left out."""
        for found in filters:
            if (condition := condition_of(found)) is not None:
                self.conditions.append(condition)
            yield found

    def partitions(self) -> Sequence[InputPartition]:
        """One task for each query."""
        where = "".join(f" and ({condition})" for condition in self.conditions)
        # Conditions are made of quoted names and literals (condition_of), nothing of them is a user's text.
        return [ReadTask(f"select * from ({query}) as period where true{where}") for query in self.queries]  # noqa: S608

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one query."""
        import pyarrow as pa

        assert isinstance(partition, ReadTask)
        schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self.arrow)))
        yield from fetch(self.url, partition.query, schema)


def fetch(url: str, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a query as Arrow, in the schema's types, over a connection of its own."""
    import adbc_driver_postgresql.dbapi as adbc

    with adbc.connect(url) as connection, connection.cursor() as cursor:
        # Of this transaction alone: somebody else's server may be behind a pooler.
        for setting in _SETTINGS:
            cursor.execute(setting)
        cursor.execute(query)
        for batch in cursor.fetch_record_batch():
            # numeric arrives as text, which is exact.
            yield batch.rename_columns(schema.names).cast(schema)


def condition_of(found: Filter) -> str | None:
    """A filter of Spark as SQL that is true wherever the filter is; None where that is not certain."""
    column = getattr(found, "attribute", None)
    if not isinstance(column, tuple) or len(column) != 1:
        return None
    name = '"' + column[0].replace('"', '""') + '"'
    if isinstance(found, IsNull | IsNotNull):
        return f"{name} is null" if isinstance(found, IsNull) else f"{name} is not null"
    values = [literal(value) for value in (found.value if isinstance(found, In) else (getattr(found, "value", None),))]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    if isinstance(found, EqualTo | EqualNullSafe | In):
        return f"{name} in ({', '.join(known)})"
    if (operator := _COMPARISONS.get(type(found))) is None:
        return None
    # Spark compares texts by their bytes; a database may have any collation.
    collation = ' collate "C"' if isinstance(getattr(found, "value", None), str) else ""
    return f"{name} {operator} {known[0]}{collation}"


def literal(value: Any) -> str | None:
    """A value of Spark as a literal of PostgreSQL; None for what has no certain one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return f"({value})"
    if isinstance(value, str):
        return None if "\0" in value else "'" + value.replace("'", "''") + "'::text"
    if isinstance(value, dt.datetime):
        kind = "timestamp" if value.tzinfo is None else "timestamptz"
        return f"'{value.isoformat()}'::{kind}"
    if isinstance(value, dt.date):
        return f"'{value.isoformat()}'::date"
    return None
