"""Parses texts to values of a type: exactly, or they are refused with the reason.

A column whose texts are all in the plain form is parsed by Arrow, others value by value. The results are the same.

Not here: reading the files (csv_files.py), and converting values that have a type already (objects.py).
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The character that replaces bytes that cannot be decoded; no decoded text contains it.
NOT_TEXT = "\udc80"
_BLANK = " \t\n\r\x0b\x0c"
_DECIMAL_PLACES = 200
# With more of them, those that the type adds after the point included, Arrow's numbers overflow without an error.
MOST_DECIMAL_DIGITS = 38
_MICROSECONDS = 6
_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_NO_NUMBER = {"nan", "inf", "infinity"}
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_INSTANT = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?)?"
    r" ?(Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?|[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+)?",
    re.ASCII,
)
# The forms that Arrow parses exactly as we do, for whole columns at once.
_PLAIN_WHOLE = r"^-?[0-9]+$"
_PLAIN_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$"
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_PLAIN_LOCAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_PLAIN_UTC = _PLAIN_LOCAL.replace("$", "Z$")
_BEFORE_YEAR_1 = "0000"


@dataclass(frozen=True)
class Spelling:
    """How a partner writes values; see `LandingOptions`."""

    decimal: str = "."
    thousands: str = ""
    date_format: str = ""
    timestamp_format: str = ""
    timezone: str = "UTC"

    @property
    def plain_numbers(self) -> bool:
        """Whether numbers are written with a decimal point and without a mark for thousands."""
        return self.decimal == "." and not self.thousands


@dataclass
class TextReader:
    """Parses the texts of one type.

    Attributes:
        kind: the Arrow type.
        parse: parses one trimmed text to a Python value. Raises ValueError, or RefusedText with the reason.
    """

    kind: pa.DataType
    spelling: Spelling
    parse: Callable[[str], Any] = field(init=False)

    def __post_init__(self) -> None:
        self.parse = self._parser()
        grouped = re.escape(self.spelling.thousands)
        self._grouped = re.compile(
            rf"[+-]?\d{{1,3}}(?:{grouped}\d{{3}})+(?:{re.escape(self.spelling.decimal)}\d*)?(?:[eE][+-]?\d{{1,4}})?",
            re.ASCII,
        )

    def column(self, texts: Sequence[str | None]) -> tuple[pa.Array, dict[int, str]]:
        """The values of many texts, and the reason of each refused text by its position ("": its form is wrong)."""
        fast = self._at_once(texts)
        if fast is not None:
            return fast, {}
        values: list[Any] = [None] * len(texts)
        refused: dict[int, str] = {}
        value_of_text: dict[str, Any] = {}
        for place, text in enumerate(texts):
            if text is None:
                continue
            if text not in value_of_text:
                try:
                    value_of_text[text] = self._parsed(text)
                except (ValueError, ArithmeticError) as error:
                    refused[place] = reason_of(error)
                    continue
            values[place] = value_of_text[text]
        return pa.array(values, self.kind), refused

    def _parsed(self, text: str) -> Any:
        if NOT_TEXT in text:
            raise RefusedText("not text")
        if pa.types.is_string(self.kind) or pa.types.is_binary(self.kind):
            return self.parse(text)
        return self.parse(text.strip(_BLANK))

    def _at_once(self, texts: Sequence[str | None]) -> pa.Array | None:
        """All values, parsed by Arrow; None where a text is not of the plain form, or a value would not be exact."""
        try:
            array = pa.array(texts, pa.string())
            if pa.types.is_string(self.kind):
                return array
            return self._cast(pc.ascii_trim_whitespace(array))
        except (UnicodeEncodeError, pa.ArrowInvalid):
            return None

    def _cast(self, array: pa.Array) -> pa.Array | None:
        kind, spelling, kinds = self.kind, self.spelling, pa.types
        if kinds.is_temporal(kind) and pc.any(pc.starts_with(array, _BEFORE_YEAR_1)).as_py():
            return None
        if kinds.is_timestamp(kind):
            return None if spelling.timestamp_format else self._instants(array)
        if kinds.is_date(kind):
            form = "" if spelling.date_format else _PLAIN_DATE
        elif spelling.plain_numbers:
            form = _PLAIN_WHOLE if kinds.is_integer(kind) else "" if kinds.is_boolean(kind) else _PLAIN_NUMBER
        else:
            form = ""
        if not form or kinds.is_binary(kind) or kinds.is_nested(kind) or not _all(array, form):
            return None
        if kinds.is_decimal(kind) and not _surely_fit(array, kind):
            return None
        return self._floats(array) if kinds.is_floating(kind) else array.cast(kind)

    def _floats(self, array: pa.Array) -> pa.Array | None:
        values = array.cast(self.kind)
        size = pc.abs(values)
        # Below this size whole numbers are exact; 0.0 may come from a number that is too small.
        exact = pc.and_(pc.less(size, float(2 ** _mantissa(self.kind))), pc.greater(size, 0.0))
        zero = pc.match_substring_regex(array, r"^[+-]?[0.]+$")
        return values if pc.all(pc.or_(exact, zero)).as_py() is not False else None

    def _instants(self, array: pa.Array) -> pa.Array | None:
        if self.kind.tz is None:
            return array.cast(self.kind) if _all(array, _PLAIN_LOCAL) else None
        if _all(array, _PLAIN_UTC):
            return array.cast(self.kind)
        if self.spelling.timezone == "UTC" and _all(array, _PLAIN_LOCAL):
            return array.cast(pa.timestamp("us")).cast(self.kind)
        return None

    def _parser(self) -> Callable[[str], Any]:
        kind, kinds = self.kind, pa.types
        parsers: list[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]]] = [
            (kinds.is_string, str),
            (kinds.is_binary, str.encode),
            (kinds.is_boolean, _boolean),
            (kinds.is_integer, lambda text: whole(int(_matching(_WHOLE, self._number(text))), kind)),
            (kinds.is_decimal, lambda text: exact_decimal(_decimal(self._number(text)), kind)),
            (kinds.is_floating, self._float),
            (kinds.is_date, lambda text: date_of(text, self.spelling.date_format)),
            (kinds.is_timestamp, lambda text: instant_of(text, self.spelling, zoned=kind.tz is not None)),
        ]
        for test, parse in parsers:
            if test(kind):
                return parse
        return _nothing

    def _number(self, text: str) -> str:
        """The text of a number with a decimal point and without marks for thousands."""
        spelling = self.spelling
        if spelling.plain_numbers:
            return text
        if spelling.thousands and spelling.thousands in text:
            text = _matching(self._grouped, text).replace(spelling.thousands, "")
        if spelling.decimal != ".":
            if "." in text:
                raise ValueError(text)
            text = text.replace(spelling.decimal, ".")
        return text

    def _float(self, text: str) -> float:
        if text.lower().lstrip("+-") in _NO_NUMBER:
            return float(text)
        return nearest_float(_decimal(self._number(text)), self.kind)


def whole(number: int, kind: pa.DataType) -> int:
    """The number. Raises ValueError where the type cannot hold it."""
    if not -(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1:
        raise ValueError(number)
    return number


def exact_decimal(number: decimal.Decimal, kind: pa.DataType) -> decimal.Decimal:
    """The number with the type's digits after the point. Raises RefusedText where that would lose digits."""
    if not number.is_finite():
        raise ValueError(number)
    with decimal.localcontext() as context:
        context.prec = _DECIMAL_PLACES
        # A number beyond 200 digits raises InvalidOperation.
        fitted = number.quantize(decimal.Decimal(1).scaleb(-kind.scale))
    if fitted != number:
        raise RefusedText(f"it has more than {kind.scale} digits after the point")
    if len(fitted.as_tuple().digits) > kind.precision:
        raise RefusedText(f"it has more than {kind.precision - kind.scale} digits before the point")
    return fitted


def nearest_float(number: decimal.Decimal, kind: pa.DataType) -> float:
    """The nearest float. Raises RefusedText for a whole number that is not exact, and for overflow and underflow."""
    if not number.is_finite():
        return float(number)
    nearest = float(number) if kind == pa.float64() else pa.scalar(float(number)).cast(pa.float32()).as_py()
    if math.isinf(nearest) or (nearest == 0.0 and number != 0):
        raise RefusedText("it is too large" if nearest else "it is too small")
    if number == number.to_integral_value() and number.as_tuple().exponent == 0 and decimal.Decimal(nearest) != number:
        raise RefusedText(
            f"the nearest {'DOUBLE' if kind == pa.float64() else 'FLOAT'} is {decimal.Decimal(nearest):f}"
        )
    return nearest


def date_of(text: str, form: str) -> dt.date:
    """The date of a text in a format (strftime); without one it is written as 2013-01-05."""
    if form:
        moment = dt.datetime.strptime(text, form)  # noqa: DTZ007 - only its date is taken
        if moment.time() != dt.time() or moment.tzinfo is not None:
            raise RefusedText("it has a time of day")
        return moment.date()
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return dt.date(*map(int, match.groups()))


def instant_of(text: str, spelling: Spelling, *, zoned: bool) -> dt.datetime:
    """The instant of a text (`zoned`), or the wall-clock time of it."""
    form = spelling.timestamp_format
    moment = dt.datetime.strptime(text, form) if form else _iso_instant(text)  # noqa: DTZ007 - as the text has it
    if not zoned:
        if moment.tzinfo is not None:
            raise RefusedText("it names a zone, of which the column has none")
        return moment
    return moment.astimezone(dt.UTC) if moment.tzinfo is not None else in_zone(moment, spelling.timezone)


def in_zone(moment: dt.datetime, name: str) -> dt.datetime:
    """The instant at which the clock of a zone shows `moment`. Raises RefusedText where that is never or twice."""
    zone = ZoneInfo(name)
    early, late = moment.replace(tzinfo=zone, fold=0), moment.replace(tzinfo=zone, fold=1)
    if early.utcoffset() != late.utcoffset():
        shown_twice = early.astimezone(dt.UTC).astimezone(zone).replace(tzinfo=None) == moment
        raise RefusedText(f"the clock of {name} shows it {'twice' if shown_twice else 'never'}")
    return early.astimezone(dt.UTC)


def _iso_instant(text: str) -> dt.datetime:
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    *numbers, fraction, zone = match.groups()
    if (fraction or "")[_MICROSECONDS:].strip("0"):
        raise RefusedText("it has more digits than microseconds")
    micro = int((fraction or "").ljust(_MICROSECONDS, "0")[:_MICROSECONDS])
    moment = dt.datetime(*[int(number or 0) for number in numbers], micro)  # type: ignore[arg-type,call-arg]  # noqa: DTZ001
    if zone is None:
        return moment
    if zone in {"Z", "UTC", "GMT"}:
        return moment.replace(tzinfo=dt.UTC)
    if zone[0] in "+-":
        hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
        offset = dt.timedelta(hours=hours, minutes=minutes)
        return moment.replace(tzinfo=dt.timezone(offset if zone[0] == "+" else -offset))
    try:
        return in_zone(moment, zone)
    except (OSError, KeyError):
        raise RefusedText(f"there is no time zone {zone}") from None


def _decimal(text: str) -> decimal.Decimal:
    return decimal.Decimal(_matching(_NUMBER, text))


def _nothing(text: str) -> Any:
    raise RefusedText(f"no text is a value of it, as {text[:20]!r} is")


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(text)


def _matching(form: re.Pattern[str], text: str) -> str:
    if not form.fullmatch(text):
        raise ValueError(text)
    return text


def _surely_fit(array: pa.Array, kind: pa.DataType) -> bool:
    """Whether no number has more digits than Arrow counts: beyond 38 of them it goes on with another number."""
    longest = pc.max(pc.utf8_length(array)).as_py() or 0
    return bool(longest + kind.scale <= MOST_DECIMAL_DIGITS)


def _all(array: pa.Array, form: str) -> bool:
    return pc.all(pc.match_substring_regex(array, form)).as_py() is not False


def _mantissa(kind: pa.DataType) -> int:
    return 53 if kind == pa.float64() else 24


class RefusedText(ValueError):
    """A value is refused for a reason that a person should read; any other ValueError means that the form is wrong."""


def reason_of(error: Exception) -> str:
    """The reason for which a value was refused; "" where only its form is wrong."""
    return str(error) if isinstance(error, RefusedText) else ""
