"""Converts typed values of JSON, Avro and Parquet to the declared type: exactly, or they are refused.

Not here: texts of CSV (texts.py).
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from varve.sources.formats.texts import (
    RefusedText,
    Spelling,
    date_of,
    exact_decimal,
    in_zone,
    instant_of,
    nearest_float,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# A number of more digits is no BIGINT.
_MOST_DIGITS = 18


def column(values: Sequence[Any], kind: pa.DataType, spelling: Spelling) -> tuple[pa.Array, dict[int, Exception]]:
    """The values of a column, and the errors of the refused values by their position."""
    converted: list[Any] = [None] * len(values)
    refused: dict[int, Exception] = {}
    for place, value in enumerate(values):
        try:
            converted[place] = fitted(value, kind, spelling)
        except (ValueError, TypeError, ArithmeticError) as error:
            refused[place] = error
    return pa.array(converted, kind), refused


def fitted(value: Any, kind: pa.DataType, spelling: Spelling) -> Any:
    """The value as Arrow accepts it for the type. Raises ValueError where it is no value of the type."""
    if value is None:
        return None
    kinds = pa.types
    if kinds.is_nested(kind):
        converted = _nested(value, kind, spelling)
    elif kinds.is_string(kind):
        converted = _string(value)
    elif kinds.is_binary(kind):
        converted = bytes(value) if isinstance(value, bytes) else base64.b64decode(_string(value), validate=True)
    elif kinds.is_boolean(kind):
        converted = _boolean(value)
    elif kinds.is_date(kind):
        converted = _date(value, spelling)
    elif kinds.is_timestamp(kind):
        converted = _instant(value, spelling, zoned=kind.tz is not None)
    else:
        converted = _number(value, kind)
    return converted


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)  # noqa: TRY004 - the value is wrong
    return value


def _string(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        # A text of Avro that is said to be one.
        return str(value)
    if not isinstance(value, str):
        raise ValueError(value)  # noqa: TRY004 - the value is wrong
    value.encode()
    return value


def _number(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise ValueError(value)  # noqa: TRY004
    # A float stands for the shortest decimal number that is read as this float.
    number = decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)
    if pa.types.is_floating(kind):
        if isinstance(value, float) and kind == pa.float64():
            return value
        return nearest_float(number, kind)
    if pa.types.is_decimal(kind):
        return exact_decimal(number, kind)
    # 1e999999999 is a whole number as well, which takes hours to write down.
    if not number.is_finite() or number.adjusted() > _MOST_DIGITS or number != number.to_integral_value():
        raise ValueError(value)
    return whole(int(number), kind)


def _date(value: Any, spelling: Spelling) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    return date_of(_string(value), spelling.date_format)


def _instant(value: Any, spelling: Spelling, *, zoned: bool) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        return instant_of(_string(value), spelling, zoned=zoned)
    if getattr(value, "nanosecond", 0):
        raise RefusedText("it has more digits than microseconds")
    if not zoned:
        if value.tzinfo is not None:
            raise RefusedText("it names a zone, of which the column has none")
        return value
    return value.astimezone(dt.UTC) if value.tzinfo is not None else in_zone(value, spelling.timezone)


def _nested(value: Any, kind: pa.DataType, spelling: Spelling) -> Any:
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise ValueError(value)
        fields = {kind.field(place).name: kind.field(place).type for place in range(kind.num_fields)}
        if unknown := [name for name in value if name not in fields]:
            raise RefusedText(f"{', '.join(unknown)} is no field of it")
        return {name: fitted(value.get(name), field, spelling) for name, field in fields.items()}
    if pa.types.is_map(kind):
        pairs = list(value.items()) if isinstance(value, dict) else value
        return [
            (fitted(key, kind.key_type, spelling), fitted(item, kind.item_type, spelling))
            for key, item in _listed(pairs)
        ]
    return [fitted(element, kind.value_type, spelling) for element in _listed(value)]


def _listed(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(value)  # noqa: TRY004
    return value
