"""The SQL file of a table that exists: its columns, and which partitions it has, inferred from those that are there.

Not here: asking the metastore (varve/cli/files/importing.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import VarveError, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# So many values are listed in the file; a column with more is a dynamic set.
_LISTED = 50
_VARIABLE = "t"
# Texts that say which window it is: Python's format, Spark's, and the interval of the series. Finer ones come first.
_FORMS = (
    ("%Y-%m-%dT%H", "yyyy-MM-dd'T'HH", "HOUR"),
    ("%Y-%m-%d-%H", "yyyy-MM-dd-HH", "HOUR"),
    ("%Y-%m-%d %H", "yyyy-MM-dd HH", "HOUR"),
    ("%Y%m%d%H", "yyyyMMddHH", "HOUR"),
    ("%Y-%m-%d", "yyyy-MM-dd", "DAY"),
    ("%Y%m%d", "yyyyMMdd", "DAY"),
    ("%Y-%m", "yyyy-MM", "MONTH"),
    ("%Y%m", "yyyyMM", "MONTH"),
)
# Columns that are a part of the time each, coarsest first, with the function and the format of their part.
_PARTS = (
    ("year", "YEAR", "yyyy", 4),
    ("month", "MONTH", "MM", 2),
    ("day", "DAY", "dd", 2),
    ("hour", "HOUR", "HH", 2),
)
_HOURS = ("hour", "hr", "hh", "h")
_WHOLE = {"TINYINT", "SMALLINT", "INT", "BIGINT"}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the table. `type` is Spark SQL in capitals."""

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """A table of others.

    Attributes:
        columns: its data columns.
        partition_columns: its partition columns, in their order.
        partitions: by partition column the text of its value, for each partition that is there.
    """

    name: str
    columns: Sequence[TableColumn]
    partition_columns: Sequence[TableColumn] = ()
    partitions: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, slots=True)
class _Series:
    """The series of the table: its interval, its first window, and the expression of each of its columns."""

    interval: str
    start: dt.datetime
    expressions: Mapping[str, str]


def declaration_text(table: ExistingTable, name: str, *, copies: bool) -> str:
    """The text of a file that declares the table as dataset `name`, before it is laid out.

    Raises VarveError where no partition is there that says what the partition columns mean.
    """
    return "\n".join(_lines(table, name, copies=copies)) + "\n"


def _lines(table: ExistingTable, name: str, *, copies: bool) -> Iterator[str]:
    columns = [f"{_named(column)} {column.type}{_comment(column.comment)}" for column in table.columns]
    yield f"CREATE DATASET {name} ({', '.join(columns)})"
    if table.partition_columns:
        if not table.partitions:
            raise VarveError(
                f"{table.name} has no partition yet, so that nothing says what its partition columns "
                f"{', '.join(column.name for column in table.partition_columns)} mean. Nothing was written. Import it "
                "when the first one is there, or write the file by hand (docs/sql.md)."
            )
        yield from _partition_lines(table)
    body = "EXTERNAL" if copies else "EXTERNAL VIEW"
    yield f"{body} OPTIONS (source = 'table', table = '{table.name}');"


def _partition_lines(table: ExistingTable) -> Iterator[str]:
    series = _series(table)
    expressions = {} if series is None else dict(series.expressions)
    generators = []
    if series is not None:
        start = series.start.strftime("%Y-%m-%dT%H:00" if series.interval == "HOUR" else "%Y-%m-%d")
        generators.append(f"{_VARIABLE} IN TIMESERIES(INTERVAL 1 {series.interval}, START '{start}')")
    columns = table.partition_columns
    generators += [_keys(table, column) for column in columns if column.name not in expressions]
    declared = [f"{_named(column)} {_key_type(column, of_series=column.name in expressions)}" for column in columns]
    yield f"PARTITIONED BY ({', '.join(declared)})"
    yield f"FOR {', '.join(generators)}"
    if series is not None or any(_variable(column) != column.name for column in columns):
        inserts = [f"{_named(column)} = {expressions.get(column.name, _variable(column))}" for column in columns]
        yield f"INSERT ({', '.join(inserts)})"


def _key_type(column: TableColumn, *, of_series: bool) -> str:
    """The type of a partition column: whole numbers of a list are BIGINT, and texts of whatever else STRING."""
    if of_series:
        return _type_in_series(column)
    return "BIGINT" if column.type in _WHOLE else "STRING"


def _keys(table: ExistingTable, column: TableColumn) -> str:
    values = sorted({values[column.name] for values in table.partitions})
    if len(values) > _LISTED:
        set_name = f"{table.name}_{column.name}".replace(".", "_").lower()
        return f"{_variable(column)} IN DYNAMIC '{set_name}'"
    written = sorted(map(int, values)) if column.type in _WHOLE else [_quoted(value) for value in values]
    return f"{_variable(column)} IN ({', '.join(map(str, written))})"


def _variable(column: TableColumn) -> str:
    return f"{column.name}_" if column.name == _VARIABLE else column.name


def _series(table: ExistingTable) -> _Series | None:
    """The series that the partition columns follow; None where none of them is time."""
    return _of_parts(table) or _of_one_column(table)


def _of_parts(table: ExistingTable) -> _Series | None:
    """A series of a column for the year, and of some for the month, the day and the hour."""
    columns = {column.name.lower(): column for column in table.partition_columns}
    parts = []
    for part in _PARTS:
        if part[0] not in columns:
            break
        parts.append(part)
    if not parts:
        return None
    try:
        starts = [
            dt.datetime(*(_padded([int(values[columns[name].name]) for name, *_ in parts])))  # noqa: DTZ001
            for values in table.partitions
        ]
    except ValueError:
        return None
    expressions = {}
    for name, function, form, digits in parts:
        column = columns[name]
        if column.type in _WHOLE:
            expressions[column.name] = f"{function}({_VARIABLE})"
        elif all(len(values[column.name]) == digits for values in table.partitions):
            expressions[column.name] = f"DATE_FORMAT({_VARIABLE}, '{form}')"
        else:
            expressions[column.name] = f"CAST({function}({_VARIABLE}) AS STRING)"
    return _Series(parts[-1][0].upper(), min(starts), expressions)


def _padded(numbers: list[int]) -> tuple[int, int, int, int]:
    year, month, day, hour = [*numbers, *[1, 1, 0][len(numbers) - 1 :]]
    return year, month, day, hour


def _of_one_column(table: ExistingTable) -> _Series | None:
    """A series of one column, or of a day and an hour."""
    for column in table.partition_columns:
        texts = [values[column.name] for values in table.partitions]
        for python_form, spark_form, interval in _FORMS:
            starts = _parsed(texts, python_form)
            if starts is None:
                continue
            expression = _expression(column, spark_form)
            hours = _hours(table) if interval == "DAY" else None
            if hours is None:
                return _Series(interval, min(starts), {column.name: expression})
            begins = [
                start + dt.timedelta(hours=int(values[hours.name]))
                for start, values in zip(starts, table.partitions, strict=True)
            ]
            padded = all(len(values[hours.name]) == 2 for values in table.partitions)
            text = f"DATE_FORMAT({_VARIABLE}, 'HH')" if padded else f"CAST(HOUR({_VARIABLE}) AS STRING)"
            of_hour = f"HOUR({_VARIABLE})" if hours.type in _WHOLE else text
            return _Series("HOUR", min(begins), {column.name: expression, hours.name: of_hour})
    return None


def _hours(table: ExistingTable) -> TableColumn | None:
    """The column whose values are the hours of a day."""
    for column in table.partition_columns:
        texts = [values[column.name] for values in table.partitions]
        if column.name.lower() in _HOURS and all(text.isdecimal() and int(text) < 24 for text in texts):
            return column
    return None


def _parsed(texts: Sequence[str], form: str) -> list[dt.datetime] | None:
    """The instants that the texts spell; None where one of them is spelled otherwise."""
    try:
        starts = [dt.datetime.strptime(text, form) for text in texts]  # noqa: DTZ007 - compared among themselves
    except ValueError:
        return None
    return starts if all(start.strftime(form) == text for start, text in zip(starts, texts, strict=True)) else None


def _expression(column: TableColumn, form: str) -> str:
    if column.type == "DATE":
        return f"CAST({_VARIABLE} AS DATE)"
    written = f"DATE_FORMAT({_VARIABLE}, {_quoted(form)})"
    return f"CAST({written} AS {_type_in_series(column)})" if column.type in _WHOLE else written


def _type_in_series(column: TableColumn) -> str:
    """The type of a partition column of time, which has no smaller numbers than INT."""
    return "INT" if column.type in {"TINYINT", "SMALLINT"} else column.type


def _named(column: TableColumn) -> str:
    if not column.name.replace("_", "").isalnum():
        raise VarveError(f"column {some([column.name])}: its name has characters that no dataset takes.")
    return column.name


def _comment(text: str) -> str:
    return f" COMMENT {_quoted(text)}" if text else ""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
