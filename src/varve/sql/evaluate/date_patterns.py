"""Date patterns of DATE_FORMAT and TO_DATE, limited to those that mean the same in every year.

Not here: the functions themselves (scalars.py).
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.time import format_time

from varve.sql.evaluate.clocks import to_instant, to_wall
from varve.sql.evaluate.vector import DATE, DAY_MICROS, STRING, TIMESTAMP, CannotEvaluate, Vector, mapped_texts

if TYPE_CHECKING:
    from collections.abc import Callable

# The letters of java.time patterns that mean the same in every year from 1000 to 9999, and how to format them.
_LETTERS: dict[str, Callable[[dt.datetime], str]] = {
    "yyyy": lambda at: f"{at.year:04d}",
    "MM": lambda at: f"{at.month:02d}",
    "M": lambda at: str(at.month),
    "dd": lambda at: f"{at.day:02d}",
    "d": lambda at: str(at.day),
    "HH": lambda at: f"{at.hour:02d}",
    "H": lambda at: str(at.hour),
    "mm": lambda at: f"{at.minute:02d}",
    "ss": lambda at: f"{at.second:02d}",
}
_WIDTHS = {"yyyy": r"(\d{4})", "MM": r"(\d\d)", "dd": r"(\d\d)", "HH": r"(\d\d)", "mm": r"(\d\d)", "ss": r"(\d\d)"}
_ORDER = ("yyyy", "MM", "dd", "HH", "mm", "ss")
_QUOTED = re.compile(r"'(?:[^']|'')*'")
_TOKENS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def pattern_of(node: exp.Expr) -> list[tuple[str, bool]]:
    """Return a date pattern as pairs of a text and whether it consists of pattern letters. Raises CannotEvaluate."""
    if not isinstance(node, exp.Literal):
        raise CannotEvaluate(node, "a date pattern that is no literal")
    # sqlglot has written the letters in its own way, those within quotes too, and 'Y' and 'yyyy' are one there.
    if any("%" in quoted for quoted in _QUOTED.findall(node.name)):
        raise CannotEvaluate(node, "a date pattern with letters of dates within quotes")
    java = format_time(node.name, Spark.INVERSE_TIME_MAPPING, Spark.INVERSE_TIME_TRIE) or ""
    parts, at = [], 0
    for token in _TOKENS.finditer(java):
        if token.start() != at:
            break
        at = token.end()
        letters = token[2] is not None
        if letters and token[0] not in _LETTERS:
            break
        parts.append((token[0] if token[1] is None else token[1].replace("''", "'") or "'", letters))
    else:
        if at == len(java) and not re.search(r"[\[\]{}#]", java):
            return parts
    raise CannotEvaluate(node, f"the date pattern {java!r} is not read before a run")


def formatted(vector: Vector, pattern: exp.Expr, timezone: str) -> Vector:
    """DATE_FORMAT of timestamps."""
    parts = pattern_of(pattern)
    epoch = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's

    def spell(wall: int) -> str:
        at = epoch + dt.timedelta(microseconds=wall)
        return "".join([_LETTERS[text](at) if letters else text for text, letters in parts])

    walls = Vector(TIMESTAMP, to_wall(vector.values, timezone), vector.valid)
    return mapped_texts(spell, STRING, [walls])


def parsed(vector: Vector, pattern: exp.Expr, to: str, timezone: str) -> Vector:
    """TO_DATE and TO_TIMESTAMP of texts, for patterns of fixed width."""
    parts = pattern_of(pattern)
    letters = [text for text, is_letters in parts if is_letters]
    if not {"yyyy", "MM", "dd"} <= set(letters) <= set(_WIDTHS) or len(set(letters)) != len(letters):
        raise CannotEvaluate(pattern, "a date pattern that leaves something open")
    expected = re.compile("".join([_WIDTHS[text] if is_letters else re.escape(text) for text, is_letters in parts]))

    def read(text: str) -> int:
        match = expected.fullmatch(text)
        if match is None:
            raise CannotEvaluate(pattern, f"{text!r} is not of its pattern")
        fields = dict(zip(letters, map(int, match.groups()), strict=True))
        try:
            at = dt.datetime(*[fields.get(letter, 0) for letter in _ORDER], tzinfo=dt.UTC)  # type: ignore[arg-type,misc]
        except ValueError:
            raise CannotEvaluate(pattern, f"{text!r} is no date") from None
        return int((at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1))

    walls = mapped_texts(read, TIMESTAMP, [vector])
    instants = Vector(TIMESTAMP, to_instant(walls.values, timezone), walls.valid)
    return instants if to == TIMESTAMP else Vector(DATE, walls.values // DAY_MICROS, walls.valid)
