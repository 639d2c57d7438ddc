"""Masks values: the same value always becomes the same other one, in every dataset and column, so that rows join.

A mask hides values from those who read a file of tests. It is no encryption: somebody who can list all values that
there may be (tail numbers, for example) can mask each of them and compare.

Not here: which columns are masked (sample.py).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import sys
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

from varve.model.schema import Kind

if TYPE_CHECKING:
    from varve.model.schema import ColumnType

_HASH_BYTES = 16
_DAYS = 365
_SECONDS_A_DAY = 86_400
# Of a number of 38 digits before or behind the point, which is more than Python reckons with by itself.
_DIGITS = 80
_LARGEST_FLOAT = {Kind.FLOAT: int(3.4028234663852886e38), Kind.DOUBLE: int(sys.float_info.max)}
# Of TINYINT, SMALLINT, INT and BIGINT.
_LARGEST = (2**7 - 1, 2**15 - 1, 2**31 - 1, 2**63 - 1)


def masked(value: Any, kind: ColumnType) -> Any:
    """Return another value of the same type; NULL stays NULL.

    A text becomes `x` and eight hexadecimal digits, bytes as many others. A number keeps its sign and how many digits
    it has before the point, 0 stays 0, and a number that is not finite stays. A date or a moment moves by up to a year.
    Of lists, mappings and structs the parts are masked.
    """
    if value is None:
        return None
    if kind.kind is Kind.ARRAY:
        ((_, element),) = kind.parts
        return [masked(item, element) for item in value]
    if kind.kind is Kind.STRUCT:
        return {name: masked(value[name], field) for name, field in kind.parts}
    if kind.kind is Kind.MAP:
        (_, key_type), (_, value_type) = kind.parts
        return [(masked(key, key_type), masked(item, value_type)) for key, item in value]
    return _masked_scalar(value, kind)


def _masked_scalar(value: Any, kind: ColumnType) -> Any:
    number = _number(value)
    days = number % (2 * _DAYS) - _DAYS or 1
    match kind.kind:
        case Kind.STRING:
            other: Any = f"x{number % 16**8:08x}"
        case Kind.BINARY:
            other = hashlib.shake_128(b"varve" + value).digest(len(value))
        case Kind.BOOLEAN:
            other = bool(number % 2)
        case Kind.FLOAT | Kind.DOUBLE:
            other = _masked_float(value, number, _LARGEST_FLOAT[kind.kind])
        case Kind.DECIMAL:
            other = _masked_decimal(value, number, kind.digits[1])
        case Kind.DATE:
            other = _moved(value, dt.timedelta(days=days))
        case Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ:
            other = _moved(value, dt.timedelta(days=days, seconds=number // (2 * _DAYS) % _SECONDS_A_DAY))
        case _:
            other = _masked_whole(value, number)
    return other


def _moved(value: Any, by: dt.timedelta) -> Any:
    """A date or a moment, moved; the other way where that leaves the calendar, as from the end of the year 9999."""
    try:
        return value + by
    except OverflowError:
        return value - by


def _number(value: Any) -> int:
    """A large number that stands for a value; 1, 1.0 and Decimal('1.00') are the same value, and join."""
    text = repr(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        decimal = Decimal(repr(value) if isinstance(value, float) else value)
        with localcontext(prec=_DIGITS):
            text = format(decimal.normalize(), "f") if decimal.is_finite() else text
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_HASH_BYTES, person=b"varve mask").digest(), "big")


def _masked_whole(value: int, number: int) -> int:
    """A number with the same sign and as many digits, which every type can hold that holds the value."""
    if value == 0:
        return 0
    lowest: int = 10 ** (len(str(abs(value))) - 1)
    highest = next(
        (largest for largest in _LARGEST if lowest <= largest and abs(value) <= largest + 1), 10 * lowest - 1
    )
    other = lowest + number % (min(highest, 10 * lowest - 1) - lowest + 1)
    return other if value > 0 else -other


def _masked_decimal(value: Decimal, number: int, scale: int) -> Decimal:
    whole = int(value)
    fraction = Decimal(number % 10**scale).scaleb(-scale) if value != whole else Decimal(0)
    # Without a digit before the point nothing says the sign but the value.
    with localcontext(prec=_DIGITS):
        return (_masked_whole(whole, number) + fraction.copy_sign(value)).quantize(Decimal(1).scaleb(-scale))


def _masked_float(value: float, number: int, largest: int) -> float:
    if not math.isfinite(value):
        return value
    whole = int(value)
    other = _masked_whole(whole, number)
    if abs(other) > largest:
        # As many digits may be more than the type holds.
        other = (largest if whole > 0 else -largest) // (2 + number % 97)
    return float(other) + (math.copysign(number % 97 / 97, value) if value != whole else 0.0)
