"""Spark's types by their simple names (`decimal(7,2)`, `array<int>`), as sqlglot's types and back.

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
    """Sqlglot's type of Spark's text: `BIGINT`, `decimal(7,2)`, `struct<a:int>`. Raises ValueError."""
    try:
        return exp.DataType.build("null" if text.lower() == "void" else text, dialect="spark")
    except Exception as error:
        raise ValueError(f"{text!r} is no type of Spark SQL") from error


def simple_name(kind: exp.DataType | None) -> str:
    """Spark's simple name of a type; `unknown` where it has none."""
    if kind is None:
        return UNKNOWN
    if kind.this == T.DECIMAL:
        numbers = [int(each.this.name) for each in kind.expressions]
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
    """The simple name of a type however it is spelt: `DECIMAL(7, 2)` -> `decimal(7,2)`. Raises ValueError."""
    found = simple_name(parse_type(text))
    if found == UNKNOWN:
        raise ValueError(f"{text!r} is no type of Spark SQL")
    return found


def _nested(name: str, kind: exp.DataType) -> str:
    parts = [simple_name(each) if isinstance(each, exp.DataType) else UNKNOWN for each in kind.expressions]
    expected = 2 if name == "map" else 1
    return UNKNOWN if UNKNOWN in parts or len(parts) != expected else f"{name}<{','.join(parts)}>"


def _struct(kind: exp.DataType) -> str:
    fields = []
    for field in kind.expressions:
        if not isinstance(field, exp.ColumnDef) or not isinstance(field.kind, exp.DataType):
            return UNKNOWN
        fields.append((field.name, simple_name(field.kind)))
    if not fields or any(found == UNKNOWN for _, found in fields):
        return UNKNOWN
    return f"struct<{','.join(f'{name}:{found}' for name, found in fields)}>"
