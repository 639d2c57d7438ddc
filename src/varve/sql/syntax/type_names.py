"""Spark's types by their simple names (`decimal(7,2)`, `array<int>`), converted to and from sqlglot's types.

Not here: which type an expression has (varve/sql/types/inference.py).
"""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp

T = exp.DType

_NAMES = {
    T.TINYINT: "tinyint",
    T.SMALLINT: "smallint",
    T.INT: "int",
    T.BIGINT: "bigint",
    T.FLOAT: "float",
    T.DOUBLE: "double",
    T.BOOLEAN: "boolean",
    T.DATE: "date",
    T.TIMESTAMP: "timestamp",
    T.TIMESTAMPTZ: "timestamp",
    T.TIMESTAMPLTZ: "timestamp",
    T.TIMESTAMPNTZ: "timestamp_ntz",
    T.BINARY: "binary",
    T.VARBINARY: "binary",
    T.TEXT: "string",
    T.VARCHAR: "string",
    T.CHAR: "string",
    T.NULL: "void",
    T.VARIANT: "variant",
}
UNKNOWN = "unknown"


@lru_cache(maxsize=4_096)
def parse_type(text: str) -> exp.DataType:
    """Parse Spark's text of a type: `BIGINT`, `decimal(7,2)`, `struct<a:int>`. Raises ValueError."""
    try:
        return exp.DataType.build("null" if text.lower() == "void" else text, dialect="spark")
    except Exception as error:
        raise ValueError(f"{text!r} is no type of Spark SQL") from error


def declared_name(text: str) -> str:
    """A type as declarations write it, in capitals; the names of fields stay as they are."""
    return parse_type(text).sql("spark") if "struct<" in text.lower() else text.upper()


def simple_name(kind: exp.DataType | None) -> str:
    """Return Spark's simple name of a type; `unknown` where it has none."""
    if kind is None:
        return UNKNOWN
    if kind.this == T.DECIMAL:
        numbers = [int(parameter.this.name) for parameter in kind.expressions]
        precision, scale = (*numbers, 0)[:2] if numbers else (10, 0)
        return f"decimal({precision},{scale})"
    if kind.this in (T.ARRAY, T.LIST):
        return _nested("array", kind)
    if kind.this == T.MAP:
        return _nested("map", kind)
    if kind.this == T.STRUCT:
        return _struct(kind)
    return _NAMES.get(kind.this, UNKNOWN)


def canonical(text: str) -> str:
    """Return the simple name of a type, however it is spelt: `DECIMAL(7, 2)` -> `decimal(7,2)`. Raises ValueError."""
    name = simple_name(parse_type(text))
    if name == UNKNOWN:
        raise ValueError(f"{text!r} is no type of Spark SQL")
    return name


def _nested(name: str, kind: exp.DataType) -> str:
    parts = [simple_name(part) if isinstance(part, exp.DataType) else UNKNOWN for part in kind.expressions]
    expected = 2 if name == "map" else 1
    return UNKNOWN if UNKNOWN in parts or len(parts) != expected else f"{name}<{','.join(parts)}>"


def _struct(kind: exp.DataType) -> str:
    fields = []
    for field in kind.expressions:
        if not isinstance(field, exp.ColumnDef) or not isinstance(field.kind, exp.DataType):
            return UNKNOWN
        fields.append((field.name, simple_name(field.kind)))
    if not fields or any(field_type == UNKNOWN for _, field_type in fields):
        return UNKNOWN
    return f"struct<{','.join(f'{name}:{field_type}' for name, field_type in fields)}>"
