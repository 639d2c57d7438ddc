"""An external table in a PostgreSQL database: a GROUP BY lists its partitions, and ADBC reads the rows.

A change of a partition is detected by the number of its rows and the sum of the ids of the transactions that wrote
them: a write has a higher id than the write it replaces, in any order of commits. VACUUM and ANALYZE change neither.

Not here: the warehouse of the project itself (varve/stores/warehouse/).
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from varve.model.errors import NOTHING_LOST, BadInput, MissingUpstream, ServiceUnavailable, VarveError
from varve.model.partitions.key import text_of
from varve.model.schema import Column, ColumnType, Kind
from varve.services.addresses import libpq_url
from varve.services.secrets import redacted
from varve.services.sessions import reading
from varve.sources.external.tables import ListedPartition, Listing, Rows, listing, no_such_column, url_of
from varve.stores.postgres import fetch, types
from varve.stores.postgres.types import postgres_type, type_sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from varve.model.dataset import Dataset
    from varve.model.external import ExternalTable
    from varve.model.partitions.key import PartitionKey

# Fewer rows are fetched by this process: a Spark job with Python workers costs a second before its first row.
_ROWS_FOR_SPARK = 500_000
_TASKS = 8
# Shorter than the minute that Dagster gives a sensor.
_SECONDS = 30
_COLUMNS = """
    select a.attname, format_type(a.atttypid, -1) from pg_catalog.pg_attribute a
    where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
# The columns of texts of which two may be equal and spelled otherwise, as in citext, its domains, and collations of ICU
# that ignore case.
_LOOSE = """
    select a.attname from pg_catalog.pg_attribute a
    join pg_catalog.pg_type t on t.oid = a.atttypid left join pg_catalog.pg_collation c on c.oid = a.attcollation
    where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped and t.typcategory = 'S'
          and (t.typname not in ('text', 'varchar', 'bpchar', 'name') or not c.collisdeterministic)
"""
_WHOLE = ("smallint", "integer", "bigint")
# The PostgreSQL types that fit each type without loss. A STRING takes every type that is not in this table.
_FITS: dict[Kind, tuple[str, ...]] = {
    Kind.BOOLEAN: ("boolean",),
    Kind.SMALLINT: _WHOLE[:1],
    Kind.INT: _WHOLE[:2],
    Kind.BIGINT: _WHOLE,
    Kind.FLOAT: ("real",),
    Kind.DOUBLE: ("real", "double precision", *_WHOLE[:2]),
    Kind.DECIMAL: ("numeric", *_WHOLE),
    Kind.DATE: ("date",),
    Kind.TIMESTAMP: ("timestamp with time zone",),
    Kind.TIMESTAMP_NTZ: ("timestamp without time zone",),
    Kind.BINARY: ("bytea",),
}
_TEXTS = ("text", "character varying", "character", "name", "citext")
_NO_TEXT = {kind for kinds in _FITS.values() for kind in kinds}
_JSON = ("json", "jsonb")
_OF_TIME = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
_INFINITE = " in the column "


@dataclass(frozen=True)
class PostgresTable:
    """See `tables.ExternalSource`."""

    table: ExternalTable
    spark: Callable[[], SparkSession]

    def listed(self, dataset: Dataset, keys: Sequence[PartitionKey] | None = None) -> Listing:
        """See `tables.ExternalSource`. It reads the partition columns of all rows, from an index if there is one."""
        names = dataset.partitioning.names
        token = sql.SQL("sum(xmin::text::bigint)")
        if self.table.changed:
            token = sql.SQL("max({})").format(sql.Identifier(self.table.changed))  # type: ignore[assignment]
        with self._asking(dataset) as connection:
            found = self._refuse_missing(connection, dataset, [*names, *filter(None, [self.table.changed])])
            self._refuse_keys(dataset, found)
            columns = self._key_columns(connection, dataset)
            # Without partitions it is one row, also of a table without rows.
            by = sql.SQL(", ").join(columns)
            statement = sql.SQL("select {}count(*), ({})::text from {}{}{}").format(
                sql.SQL("").join(sql.SQL("{}::text, ").format(column) for column in columns),
                token,
                self._name,
                sql.SQL("") if keys is None else _where(columns, keys),
                sql.SQL(" group by {}").format(by) if names else sql.SQL(""),
            )
            rows = connection.execute(statement).fetchall()
        return listing(
            dataset,
            (
                (dict(zip(names, row, strict=False)), ListedPartition(f"{row[-2]} rows, {row[-1]}", row[-2]))
                for row in rows
            ),
        )

    def read(self, dataset: Dataset, keys: Sequence[PartitionKey]) -> Rows:
        """See `tables.ExternalSource`."""
        wanted = dataset.read_columns()
        with self._asking(dataset) as connection:
            types_of_columns = self._refuse_missing(connection, dataset, [column.name for column in wanted])
            self._refuse_unfit(dataset, types_of_columns)
            items = sql.SQL(", ").join(map(_item, wanted))
            columns = self._key_columns(connection, dataset)

            def query(some: Sequence[PartitionKey]) -> str:
                text = sql.SQL("select {} from {}{}").format(items, self._name, _where(columns, some))
                return text.as_string(connection)

            count = sum(partition.size for partition in self.listed(dataset, keys).partitions.values())
            large = count >= _ROWS_FOR_SPARK
            # One statement reads one snapshot; after several statements the caller lists again to detect a change.
            queries = [query(part) for part in _parts(keys, _TASKS)] if large else [query(keys)]
        with self._explained(dataset):
            source = self.spark(), self._url(dataset), [*map(_wire, wanted)]
            frame = fetch.lazily(*source, [[query] for query in queries]) if large else fetch.at_once(*source, queries)
            return Rows(types.from_wire(wanted, frame), here=not large)

    @property
    def _name(self) -> sql.Identifier:
        return sql.Identifier(*self.table.name.split("."))

    def _url(self, dataset: Dataset) -> str:
        try:
            return libpq_url(url_of(dataset, self.table))
        except ServiceUnavailable:
            raise
        except VarveError:
            # The value is not shown, as it may contain a password.
            raise ServiceUnavailable(
                f"{dataset}: what the environment variable {self.table.url} holds is no PostgreSQL URL; "
                "write postgresql://user@host/database."
            ) from None

    @contextlib.contextmanager
    def _asking(self, dataset: Dataset) -> Iterator[psycopg.Connection]:
        """A transaction that only reads, in UTC, with a limit of time for each statement."""
        with self._explained(dataset):
            url = self._url(dataset)
            with reading(url, application="varve external", wanted={"statement_timeout": f"{_SECONDS}s"}) as opened:
                yield opened

    @contextlib.contextmanager
    def _explained(self, dataset: Dataset) -> Iterator[None]:
        import adbc_driver_manager
        import pyarrow as pa

        where = f"{dataset}: {self.table} ({self.table.url})"
        try:
            yield
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise MissingUpstream(f"{where} is not there. {NOTHING_LOST}") from error
        except psycopg.errors.QueryCanceled as error:
            names = ", ".join([*dataset.partitioning.names, *filter(None, [self.table.changed])])
            raise VarveError(
                f"{where} was not listed within {_SECONDS} s; give it an index over {names}. {NOTHING_LOST}"
            ) from error
        except psycopg.errors.UndefinedColumn as error:
            raise VarveError(
                f"{where} does not say which transactions wrote its rows, as a view does not; name a column whose "
                f"highest value tells a change: OPTIONS (changed = 'updated_at'). {NOTHING_LOST}"
            ) from error
        except (psycopg.errors.ConnectionException, psycopg.errors.OperationalError) as error:
            raise ServiceUnavailable(
                f"{where} cannot be reached: {redacted(str(error).strip())} {NOTHING_LOST}"
            ) from error
        except (psycopg.Error, adbc_driver_manager.Error, OSError) as error:
            # An error behind the first rows comes from Arrow's reader, as an OSError.
            first_line = redacted(str(error).strip().splitlines()[0])
            if named := re.search(rf'"(-?infinity{_INFINITE}.+?)"', str(error)):
                raise BadInput(
                    f"{where} has {named[1]}, which is no date or instant in Spark. {NOTHING_LOST} Read a view of the "
                    "source that gives NULL for it."
                ) from error
            raise VarveError(f"{where} cannot be read: {first_line} {NOTHING_LOST}") from error
        except pa.ArrowInvalid as error:
            raise BadInput(f"{where} holds a value that does not fit: {error}. {NOTHING_LOST}") from error

    def _refuse_missing(
        self, connection: psycopg.Connection, dataset: Dataset, wanted: Sequence[str]
    ) -> dict[str, str]:
        """The types of the table's columns by name. Raises BadInput where a wanted column is missing."""
        type_of_column: dict[str, str] = dict(
            connection.execute(_COLUMNS, (self._name.as_string(connection),)).fetchall()
        )
        if missing := [name for name in wanted if name not in type_of_column]:
            raise no_such_column(dataset, self.table, missing, list(type_of_column))
        return type_of_column

    def _key_columns(self, connection: psycopg.Connection, dataset: Dataset) -> list[sql.Composable]:
        """The partition columns as they are compared: texts letter by letter, as everybody else compares them."""
        loose = {name for (name,) in connection.execute(_LOOSE, (self._name.as_string(connection),)).fetchall()}
        return [
            sql.SQL('({}::text collate "C")').format(sql.Identifier(name)) if name in loose else sql.Identifier(name)
            for name in dataset.partitioning.names
        ]

    def _refuse_unfit(self, dataset: Dataset, type_of_column: Mapping[str, str]) -> None:
        unfit = [column for column in dataset.schema.columns if not _fits(type_of_column[column.name], column.type)]
        if unfit:
            differences = "; ".join(
                f"{column.name} is declared {column.type}, found {type_of_column[column.name]}" for column in unfit
            )
            raise BadInput(f"{dataset}: {self.table} does not fit the declaration: {differences}. {NOTHING_LOST}")

    def _refuse_keys(self, dataset: Dataset, type_of_column: Mapping[str, str]) -> None:
        """Raise BadInput where keys are declared as dates or numbers, and the column holds texts.

        Several texts may spell one key (`3` and `03`), and the statements compare it as the column has it.
        """
        for column in dataset.partition_columns:
            if column.type is not ColumnType.STRING and type_of_column[column.name] in _TEXTS:
                raise BadInput(
                    f"{dataset}: {self.table} does not fit the declaration: {column.name} is declared {column.type}, "
                    f"found {type_of_column[column.name]}. {NOTHING_LOST} Declare it STRING, or read a view of the "
                    f"source that casts it."
                )


def _fits(postgres_type_name: str, declared: ColumnType) -> bool:
    if declared.nested:
        return postgres_type_name in _JSON
    if declared is ColumnType.STRING:
        return postgres_type_name not in _NO_TEXT
    return postgres_type_name in _FITS.get(declared.kind, ())


def _item(column: Column) -> sql.Composed:
    """The expression that fetches a column. A numeric is not cast to its precision, which would silently round it."""
    kind = "numeric" if column.type.kind is Kind.DECIMAL else postgres_type(_wire(column).type)
    if column.type.kind in _OF_TIME:
        # Arrow has no infinity, and gives a day in the distant past for it. This text is no date, which is told.
        return sql.SQL("case when isfinite({0}) then {0} else ({0}::text || {2})::{1} end as {0}").format(
            sql.Identifier(column.name), type_sql(kind), sql.Literal(f"{_INFINITE}{column.name}")
        )
    return sql.SQL("{0}::{1} as {0}").format(sql.Identifier(column.name), type_sql(kind))


def _wire(column: Column) -> Column:
    return Column(column.name, ColumnType.STRING if column.type.nested else column.type)


def _where(columns: Sequence[sql.Composable], keys: Sequence[PartitionKey]) -> sql.Composed:
    """The WHERE clause for partitions; empty for a dataset without any.

    Untyped literals take the type of the column, so that an index can be used.
    """
    if not columns:
        return sql.Composed([])
    rows = sql.SQL(", ").join(
        sql.SQL("({})").format(sql.SQL(", ").join(sql.Literal(text_of(value)) for value in key.values)) for key in keys
    )
    return sql.SQL(" where ({}) in ({})").format(sql.SQL(", ").join(columns), rows)


def _parts(keys: Sequence[PartitionKey], most: int) -> list[Sequence[PartitionKey]]:
    size = -(-len(keys) // most)
    return [keys[place : place + size] for place in range(0, len(keys), size)]
