"""Period tables as a data source of Spark: its tasks read them through ADBC, and send filters to PostgreSQL.

The module is sent to Spark by value, like warehouse/loading/copying.py: Varve need not be installed there.
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
from varve.stores.postgres.driver import connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "varve_periods"
# Texts, which are sent to the workers with the functions.
_SETTINGS = (
    "set local statement_timeout = 0", "set local search_path = pg_catalog, public", settings_statement(local=True)
)  # fmt: skip
# Each table is locked until its transaction ends, and a server has room for some thousands of locks.
_QUERIES_A_TRANSACTION = 100
_COMPARISONS = {GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}


class PeriodTables(DataSource):
    """Options: `url`, `schema` (DDL), `arrow` (hex of a serialised Arrow schema), `queries` (JSON), a list a task."""

    @classmethod
    def name(cls) -> str:
        """The name under which it is registered."""
        return NAME

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    def schema(self) -> str:
        """The schema that the caller has given."""
        return self.options["schema"]

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of all queries."""
        del schema
        return PeriodReader(self.options["url"], self.options["arrow"], json.loads(self.options["queries"]))


@dataclass
class ReadTask(InputPartition):
    """Queries that are run over one connection."""

    queries: list[str]


class PeriodReader(DataSourceReader):
    """Reads the rows of each query that pass Spark's filters, as far as PostgreSQL can evaluate these."""

    def __init__(self, url: str, arrow: str, queries: Sequence[Sequence[str]]) -> None:
        self.url, self.arrow, self.queries = url, arrow, queries
        self.conditions: list[str] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Add filters to the queries. Spark applies them again: only rows that it would drop may be left out."""
        for pushed in filters:
            if (condition := condition_of(pushed)) is not None:
                self.conditions.append(condition)
            yield pushed

    def partitions(self) -> Sequence[InputPartition]:
        """One task for each list of queries."""
        where = "".join(f" and ({condition})" for condition in self.conditions)
        # Conditions consist of quoted names and literals (condition_of); no text of a user is part of them.
        return [
            ReadTask([f"select * from ({query}) as period where true{where}" for query in queries])  # noqa: S608
            for queries in self.queries
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the queries of one task."""
        import pyarrow as pa

        assert isinstance(partition, ReadTask)
        schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self.arrow)))
        yield from fetch(self.url, partition.queries, schema)


def fetch(url: str, queries: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of queries as Arrow, in the schema's types, over one connection."""
    with connect(url) as connection, connection.cursor() as cursor:
        for first in range(0, len(queries), _QUERIES_A_TRANSACTION):
            # Set for this transaction only: there may be a pooler before the server.
            for setting in _SETTINGS:
                cursor.execute(setting)
            for query in queries[first : first + _QUERIES_A_TRANSACTION]:
                cursor.execute(query)
                for batch in cursor.fetch_record_batch():
                    yield typed(batch.rename_columns(schema.names), schema)
            connection.commit()


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the schema's types. Raises ArrowInvalid for a value that does not fit.

    A numeric arrives as text, which is exact. Where one has more digits than Arrow counts, Arrow makes another number
    of it without an error, so that Python converts such columns.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, column in enumerate(schema):
        if not pa.types.is_decimal(column.type):
            continue
        # The driver has a type of its own for it.
        texts = batch.column(place).cast(pa.string())
        too_long = rf"^-?[1-9][0-9]{{{column.type.precision - column.type.scale}}}|[0-9.]{{40}}"
        if pc.any(pc.match_substring_regex(texts, too_long)).as_py():
            numbers = [None if text is None else Decimal(text) for text in texts.to_pylist()]
            try:
                batch = batch.set_column(place, column, pa.array(numbers, column.type))
            except pa.ArrowInvalid as error:
                raise pa.ArrowInvalid(f"column {column.name}: {error}") from None
    return batch.cast(schema)


def condition_of(pushed: Filter) -> str | None:
    """A filter of Spark as SQL that is true wherever the filter is; None where that is not certain."""
    column = getattr(pushed, "attribute", None)
    if not isinstance(column, tuple) or len(column) != 1:
        return None
    name = '"' + column[0].replace('"', '""') + '"'
    if isinstance(pushed, IsNull | IsNotNull):
        return f"{name} is null" if isinstance(pushed, IsNull) else f"{name} is not null"
    values = [
        literal(value) for value in (pushed.value if isinstance(pushed, In) else (getattr(pushed, "value", None),))
    ]
    literals = [value for value in values if value is not None]
    if not literals or len(literals) < len(values):
        return None
    if isinstance(pushed, EqualTo | EqualNullSafe | In):
        return f"{name} in ({', '.join(literals)})"
    if (operator := _COMPARISONS.get(type(pushed))) is None:
        return None
    # Spark compares texts by their bytes; a database may have any collation.
    collation = ' collate "C"' if isinstance(getattr(pushed, "value", None), str) else ""
    return f"{name} {operator} {literals[0]}{collation}"


def literal(value: Any) -> str | None:
    """A value of Spark as a literal of PostgreSQL; None where it is not certain to be the same value."""
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
