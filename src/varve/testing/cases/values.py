"""What a scalar, a list or a mapping of a file means for a column of a declared type.

Not here: the same for rows that a test in Python gives (varve/testing/rows.py).
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from varve.model.errors import nearest
from varve.model.schema import ColumnType, Kind
from varve.stores.frames import arrow_type
from varve.testing.files.nodes import List, Mapping, Scalar, composed

if TYPE_CHECKING:
    from collections.abc import Callable

    from varve.testing.files.nodes import Node

_WHOLE = re.compile(r"[+-]?\d+")
_HEX = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
# As YAML, Python and Spark write them.
_NOT_FINITE = {
    ".nan": "nan", "nan": "nan", ".inf": "inf", "inf": "inf", "infinity": "inf", "-.inf": "-inf", "-inf": "-inf",
    "-infinity": "-inf",
}  # fmt: skip


# With room for every digit that a type can have.
_EXACT = Context(prec=100)
_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}


class NoValue(Exception):
    """What is written is no value of the type; the message says why."""


def value_of(node: Node, kind: ColumnType) -> Any:
    """Return the value as Arrow gives it back for this type. Raises NoValue where there is none.

    Timestamps without an offset are in UTC, as Spark's session is. A list or a mapping may be written as text too,
    which is YAML again: that is how a cell of CSV has one.
    """
    import pyarrow as pa

    value = _read(node, kind)
    try:
        return pa.array([value], arrow_type(kind)).to_pylist()[0]
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise NoValue(str(error).strip().splitlines()[0].rstrip(".")) from None


def _read(node: Node, kind: ColumnType) -> Any:
    if isinstance(node, Scalar) and node.text is None:
        return None
    if kind.nested:
        return _NESTED[kind.kind](_unquoted(node), kind)
    if not isinstance(node, Scalar):
        raise NoValue(f"it is {node}")
    assert node.text is not None
    if node.is_binary and kind.kind is not Kind.BINARY:
        raise NoValue("!!binary is for columns of type BINARY")
    if kind.kind is Kind.BINARY:
        return _binary(node.text, is_base64=node.is_binary)
    value = _SCALARS[kind.kind](node.text)
    _check_size(value, kind)
    return value


def _check_size(value: Any, kind: ColumnType) -> None:
    """Raise NoValue for a number that the type cannot hold."""
    if (bits := _BITS.get(kind.kind)) is not None and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise NoValue(f"it is from {-(2 ** (bits - 1))} to {2 ** (bits - 1) - 1}")
    if kind.kind is Kind.DECIMAL:
        precision, scale = kind.digits
        # Not its absolute value, which Python would round to 28 digits.
        if not -(10 ** (precision - scale)) < value < 10 ** (precision - scale):
            raise NoValue(f"it has more than {precision - scale} digits before the point")
        if _EXACT.remainder(value, Decimal(1).scaleb(-scale)):
            raise NoValue(f"it has more than {scale} digits after the point")


def _unquoted(node: Node) -> Node:
    if not isinstance(node, Scalar) or node.text is None:
        return node
    problems: list[Any] = []
    written = composed(node.text, node.place.path, problems, node.place.line)
    if written is None or problems:
        raise NoValue("a list is written [a, b] and a mapping {a: 1}")
    return written


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise NoValue("write true or false")
    return text.lower() == "true"


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise NoValue("write a whole number")
    return int(text)


def _float(text: str) -> float:
    try:
        return float(_NOT_FINITE.get(text.lower(), text))
    except ValueError:
        raise NoValue("write a number such as 1.5, .nan or .inf") from None


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise NoValue("write a number such as 1.50")
    return number


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise NoValue("write a date such as 2013-01-05") from None


def _timestamp(text: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise NoValue("write a moment such as 2013-01-05T10:00:00-05:00; without an offset it is in UTC") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _local(text: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise NoValue("write a moment such as 2013-01-05T10:00:00") from None
    if moment.tzinfo:
        raise NoValue("a moment without a time zone has no offset")
    return moment


def _binary(text: str, *, is_base64: bool) -> bytes:
    if not is_base64:
        if not _HEX.fullmatch(text):
            raise NoValue("write bytes as 0x00ff, or as !!binary with Base64")
        return bytes.fromhex(text[2:])
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise NoValue("what follows !!binary is no Base64") from None


def _array(node: Node, kind: ColumnType) -> list[Any]:
    if not isinstance(node, List):
        raise NoValue("a list is written [a, b]")
    ((_, element),) = kind.parts
    return [_read(item, element) for item in node.items]


def _map(node: Node, kind: ColumnType) -> list[tuple[Any, Any]]:
    if not isinstance(node, Mapping):
        raise NoValue("a mapping is written {a: 1}")
    (_, key_type), (_, value_type) = kind.parts
    return [(_read(key, key_type), _read(value, value_type)) for key, value in node.pairs]


def _struct(node: Node, kind: ColumnType) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        raise NoValue("a struct is written {field: value}")
    fields, named = dict(kind.parts), node.named()
    for name in named:
        if name not in fields:
            raise NoValue(f"it has no field {name!r}.{nearest(name, fields)} It has {', '.join(fields)}")
    return {name: _read(named[name][1], field) if name in named else None for name, field in fields.items()}


_NESTED: dict[Kind, Callable[[Node, ColumnType], Any]] = {Kind.ARRAY: _array, Kind.MAP: _map, Kind.STRUCT: _struct}
_SCALARS: dict[Kind, Callable[[str], Any]] = {
    Kind.STRING: str,
    Kind.BOOLEAN: _boolean,
    Kind.TINYINT: _whole,
    Kind.SMALLINT: _whole,
    Kind.INT: _whole,
    Kind.BIGINT: _whole,
    Kind.FLOAT: _float,
    Kind.DOUBLE: _float,
    Kind.DECIMAL: _decimal,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMP_NTZ: _local,
}
