"""Columns and their types, as every store understands them.

Not here: the type names of Spark, Arrow, PostgreSQL or Dagster; each module that talks to one of them translates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Kind(StrEnum):
    """The outermost part of a type."""

    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_NTZ = "TIMESTAMP_NTZ"
    BINARY = "BINARY"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"


_SYNONYMS = {
    "BYTE": Kind.TINYINT, "SHORT": Kind.SMALLINT, "INTEGER": Kind.INT, "LONG": Kind.BIGINT, "REAL": Kind.FLOAT,
    "DEC": Kind.DECIMAL, "NUMERIC": Kind.DECIMAL, "TIMESTAMP_LTZ": Kind.TIMESTAMP,
}  # fmt: skip
_NESTED = frozenset({Kind.ARRAY, Kind.MAP, Kind.STRUCT})
# Of Spark, Hive and parquet alike.
DECIMAL_DIGITS = 38
# The column that Spark makes of the last part of a batch's folder (`batch_id=1385164800000`): no other is called so.
FOLDER_COLUMN = "batch_id"
# What is said of a row with a value, or none, that the declaration does not allow: before the partition.
STANDS_THERE = " stands there in a row"
# What is said of a row that lacks a value: behind the name of the column, and before the partition.
NO_VALUE = f" is declared NOT NULL, and nothing{STANDS_THERE}"


class ColumnType(str):
    """The type of a column in its canonical Spark SQL spelling: `INT`, `DECIMAL(10,2)`, `STRUCT<a: INT, b: STRING>`.

    It is a str, so that it can be written to DDL and JSON as it is. `ColumnType("numeric(10, 2)")` parses any spelling.

    Attributes:
        kind: its outermost part.
        digits: the precision and the scale of a decimal; empty for other types.
        parts: pairs of a name and a type: the element of an array, the key and value of a map, the fields of a struct.
    """

    __slots__ = ("digits", "kind", "parts")

    kind: Kind
    digits: tuple[int, ...]
    parts: tuple[tuple[str, ColumnType], ...]

    STRING: ClassVar[ColumnType]
    BOOLEAN: ClassVar[ColumnType]
    TINYINT: ClassVar[ColumnType]
    SMALLINT: ClassVar[ColumnType]
    INT: ClassVar[ColumnType]
    BIGINT: ClassVar[ColumnType]
    FLOAT: ClassVar[ColumnType]
    DOUBLE: ClassVar[ColumnType]
    DATE: ClassVar[ColumnType]
    TIMESTAMP: ClassVar[ColumnType]
    TIMESTAMP_NTZ: ClassVar[ColumnType]
    BINARY: ClassVar[ColumnType]

    # Types that were parsed before: one object for each spelling, so that types can be compared with `is`.
    _parsed_types: ClassVar[dict[str, ColumnType]] = {}

    def __new__(cls, text: str) -> ColumnType:  # noqa: PYI034 - a type that was parsed before is that very object
        """The type that `text` spells. Raises VarveError where it is no type of a column."""
        if parsed_type := cls._parsed_types.get(text):
            return parsed_type
        parser = _Parser(text)
        column_type = parser.type()
        parser.end()
        return column_type

    @classmethod
    def decimal(cls, precision: int, scale: int = 0) -> ColumnType:
        """`DECIMAL(precision,scale)`."""
        if not (1 <= precision <= DECIMAL_DIGITS and 0 <= scale <= precision):
            raise VarveError(
                f"DECIMAL({precision},{scale}): a decimal has 1 to {DECIMAL_DIGITS} digits, no more of them after the "
                "point than in all."
            )
        return cls._canonical(f"DECIMAL({precision},{scale})", Kind.DECIMAL, digits=(precision, scale))

    @classmethod
    def array(cls, element: ColumnType) -> ColumnType:
        """`ARRAY<element>`."""
        return cls._canonical(f"ARRAY<{element}>", Kind.ARRAY, parts=(("element", element),))

    @classmethod
    def map(cls, key: ColumnType, value: ColumnType) -> ColumnType:
        """`MAP<key, value>`."""
        return cls._canonical(f"MAP<{key}, {value}>", Kind.MAP, parts=(("key", key), ("value", value)))

    @classmethod
    def struct(cls, fields: Mapping[str, ColumnType]) -> ColumnType:
        """`STRUCT<name: type, ...>` in the order given."""
        spelt_fields = ", ".join(f"{_spelt(name)}: {field_type}" for name, field_type in fields.items())
        return cls._canonical(f"STRUCT<{spelt_fields}>", Kind.STRUCT, parts=tuple(fields.items()))

    @property
    def nested(self) -> bool:
        """Whether it is an array, a map or a struct."""
        return self.kind in _NESTED

    @classmethod
    def _canonical(
        cls, text: str, kind: Kind, *, digits: tuple[int, ...] = (), parts: tuple[tuple[str, ColumnType], ...] = ()
    ) -> ColumnType:
        if text not in cls._parsed_types:
            column_type = str.__new__(cls, text)
            column_type.kind, column_type.digits, column_type.parts = kind, digits, parts
            cls._parsed_types[text] = column_type
        return cls._parsed_types[text]


class _Parser:
    """A recursive-descent parser for the spelling of one type."""

    _TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|(\w+)|([<>(),:]))", re.ASCII)

    def __init__(self, text: str) -> None:
        self._text, self._offset = text, 0

    def type(self) -> ColumnType:
        word = self._take().upper()
        if word not in Kind.__members__ and word not in _SYNONYMS:
            raise self._error()
        kind = _SYNONYMS.get(word) or Kind(word)
        if kind is Kind.DECIMAL:
            return self._decimal()
        if kind not in _NESTED:
            return ColumnType._canonical(kind.value, kind)
        self._take("<")
        if kind is Kind.ARRAY:
            column_type = ColumnType.array(self.type())
        elif kind is Kind.MAP:
            key = self.type()
            self._take(",")
            column_type = ColumnType.map(key, self.type())
        else:
            column_type = self._struct()
        self._take(">")
        return column_type

    def end(self) -> None:
        if self._text[self._offset :].strip():
            raise self._error()

    def _decimal(self) -> ColumnType:
        # Spark's own default.
        precision, scale = "10", "0"
        if self._next() == "(":
            self._take("(")
            precision = self._take()
            if self._next() == ",":
                self._take(",")
                scale = self._take()
            self._take(")")
        if not (precision.isdecimal() and scale.isdecimal()):
            raise self._error()
        return ColumnType.decimal(int(precision), int(scale))

    def _struct(self) -> ColumnType:
        fields: dict[str, ColumnType] = {}
        while True:
            name = self._take()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if self._next() == ":":
                self._take(":")
            if name in fields:
                raise VarveError(f"{self._text!r}: the field {name} is declared more than once.")
            fields[name] = self.type()
            if self._next() != ",":
                return ColumnType.struct(fields)
            self._take(",")

    def _next(self) -> str:
        token = self._TOKEN.match(self._text, self._offset)
        return token[token.lastindex or 0] if token else ""

    def _take(self, expected: str | None = None) -> str:
        token = self._TOKEN.match(self._text, self._offset)
        word = token[token.lastindex or 0] if token else ""
        if token is None or (word != expected if expected else word in "<>(),:"):
            raise self._error()
        self._offset = token.end()
        return word

    def _error(self) -> VarveError:
        simple_kinds = ", ".join(kind for kind in Kind if kind not in _NESTED and kind is not Kind.DECIMAL)
        return VarveError(
            f"{self._text!r} is no type of a column. Write one of {simple_kinds}, DECIMAL(digits,after_the_point), "
            "ARRAY<type>, MAP<type, type>, STRUCT<name: type, ...>; cast anything else to one of them."
        )


def _spelt(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        return name
    return "`" + name.replace("`", "``") + "`"


for _kind in Kind:
    if _kind not in _NESTED and _kind is not Kind.DECIMAL:
        setattr(ColumnType, _kind.name, ColumnType(_kind.value))


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, type and what it means (units included).

    Attributes:
        was: its former names, newest last; batches that were written with one of them are read as this column.
    """

    name: str
    type: ColumnType
    comment: str = ""
    nullable: bool = True
    was: tuple[str, ...] = ()


def column_set(columns: Iterable[Column]) -> str:
    """The name of a set of columns, by which hashes of their values are kept: each with its type, in order of names."""
    return ",".join(sorted(f"{column.name} {column.type}" for column in columns))


@dataclass(frozen=True, slots=True)
class Schema:
    """The data columns of a dataset in their declared order, without the partition columns."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [name.lower() for column in self.columns for name in (column.name, *column.was)]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise VarveError(f"column {', '.join(doubled)} is declared more than once; give each a name of its own.")

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(column.name for column in self.columns)
