"""Patterns of texts: LIKE with its escapes, and those of Java's regular expressions that mean the same in Python.

What Java and Python may interpret differently (classes within classes, lookarounds, possessive quantifiers, references,
letters beyond ASCII) raises `CannotEvaluate`: a planner then takes the condition for TRUE.

Not here: the functions that have patterns (texts.py, lists.py).
"""

from __future__ import annotations

import re
from functools import lru_cache

from varve.sql.evaluate.vector import CannotEvaluate

_LITERAL = r"[^\\\[\](){}.*+?^$|]"
_ESCAPED = r"\\[dDwWsS.\\\-/\[\](){}*+?^$|]"
_CLASS = r"\[\^?(?:[^\\\[\]&^]|\\[dws.\\\-\[\]/^])+\]"
_QUANTIFIER = r"(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??"
_TOKENS = re.compile(rf"(?:(?:{_LITERAL}|{_ESCAPED}|{_CLASS}|\.|\)|\^|\$)(?:{_QUANTIFIER})?|\((?:\?:)?|\|)*", re.DOTALL)
# In Java and Python, `.` and `$` recognise different line ends.
_LINES = re.compile("[\n\r\u0085\u2028\u2029]")


@lru_cache(maxsize=256)
def java_regex(pattern: str) -> re.Pattern[str]:
    """Return the pattern as a Python regex. Raises CannotEvaluate where its meaning may differ."""
    if not pattern.isascii() or _TOKENS.fullmatch(pattern) is None or re.search(r"[*+?}][*+]", _plain(pattern)):
        raise CannotEvaluate(None, f"the regular expression {pattern!r} is not read before a run")
    try:
        return re.compile(pattern, re.ASCII)
    except re.error:
        raise CannotEvaluate(None, f"{pattern!r} is no regular expression that is read here") from None


def searched(text: str, pattern: str) -> re.Match[str] | None:
    """Return the first match of a pattern in a text; None where there is none."""
    return java_regex(pattern).search(one_line(text))


def one_line(text: str) -> str:
    """Return the text unchanged. Raises CannotEvaluate where it contains a line end."""
    if _LINES.search(text):
        raise CannotEvaluate(None, "a regular expression over several lines")
    return text


@lru_cache(maxsize=1024)
def like_pattern(pattern: str, escape: str = "\\") -> re.Pattern[str]:
    """Return a LIKE pattern as a Python regex. Raises CannotEvaluate where Spark refuses it."""
    parts, place = [], 0
    while place < len(pattern):
        char = pattern[place]
        if char == escape:
            place += 1
            if place == len(pattern) or pattern[place] not in {"%", "_", escape}:
                raise CannotEvaluate(None, f"{pattern!r} has an escape before something else than %, _ or itself")
            parts.append(re.escape(pattern[place]))
        else:
            parts.append({"%": ".*", "_": "."}.get(char) or re.escape(char))
        place += 1
    return re.compile("".join(parts), re.DOTALL)


def _plain(pattern: str) -> str:
    """Return the pattern without escapes and classes, so that the remaining quantifier signs are quantifiers."""
    return re.sub(rf"{_CLASS}|\\.", "x", pattern, flags=re.DOTALL)
