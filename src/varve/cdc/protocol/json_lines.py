"""Lines of JSON, and their values as PostgreSQL writes them.

Not here: what an object of a line means (wal2json.py, debezium.py, change_events.py).
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from varve.model.errors import BadInput

if TYPE_CHECKING:
    from varve.cdc.event import Text


# How an escaped half of a character begins; JSON may write a character as two of them.
_SURROGATE = "\\ud"
_MOST_DIGITS = 1000


class _Number(int):
    """A whole number of the JSON, which is not a text."""


class _Fraction(str):
    """A number with a fraction, an exponent or very many digits, as the JSON writes it."""

    __slots__ = ()


def _whole_number(text: str) -> _Number | _Fraction:
    # A numeric of PostgreSQL may have more digits than Python reads as a number.
    return _Number(text) if len(text) <= _MOST_DIGITS else _Fraction(text)


def parse(line: str, number: int, line_of: str) -> dict[str, Any]:
    """The JSON object of a line; its numbers keep their text. Raises BadInput that names the line."""
    try:
        parsed_object = json.loads(line, parse_float=_Fraction, parse_int=_whole_number, parse_constant=str)
        if _SURROGATE in line.lower():
            # Raises where half of a character stands alone, which no file can hold.
            json.dumps(parsed_object, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{line_of} {number} is no JSON ({error}): {line[:80]!r}. Nothing was taken from it on."
        ) from error
    if not isinstance(parsed_object, dict):
        raise BadInput(f"{line_of} {number} is no JSON object: {line[:80]!r}. Nothing was taken from it on.")
    return parsed_object


def text(value: Any, kind: str = "") -> Text:
    """A JSON value of a type of PostgreSQL ("": not told) in PostgreSQL's output format.

    wal2json leaves out how the text of a bytea begins, of which only the type tells. Raises ValueError for a value that
    is nested too deeply.
    """
    if value is None:
        return None
    if isinstance(value, _Fraction):
        return str(value)
    if isinstance(value, str):
        return f"\\x{value}" if kind == "bytea" and not value.startswith("\\x") else value
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return str(value)
    try:
        return _json(value)
    except RecursionError as error:
        raise ValueError("has a value that is nested too deeply") from error


def whole(value: Any, name: str) -> int:
    """The whole number of a field, or of its text, as events keep it. Raises ValueError that names the field."""
    with contextlib.suppress(TypeError, ValueError):
        if -(2**63) <= (number := int(value)) < 2**63:
            return number
    raise ValueError(f"has the {name} {str(value)[:80]!r}, which is no whole number of 64 bits")


def _json(value: Any) -> str:
    """The JSON of a value within which numbers are as they were written."""
    if isinstance(value, _Fraction):
        return str(value)
    if isinstance(value, dict):
        pairs = [f"{_json(name)}: {_json(each)}" for name, each in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
