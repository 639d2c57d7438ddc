"""`-k`: the tests whose words match an expression, as pytest writes it: `delays and not (weekly or cancelled)`.

Not here: where the words of a test come from (Case.title and its file).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = re.compile(r"\s*(\(|\)|[^\s()]+)")
_OPERATORS = frozenset({"and", "or", "not"})


def selector(expression: str) -> Callable[[str], bool]:
    """Return whether a text matches the expression: each word that is no operator must be a part of it.

    Upper and lower case are the same; words that follow each other are one phrase. Raises VarveError where the
    expression is none.
    """
    parser = _Parser(expression)
    matches = parser.either()
    parser.end()
    return lambda text: matches(text.lower())


class _Parser:
    """A recursive-descent parser: `or` binds least, then `and`, then `not`."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = [match[1].lower() for match in _TOKEN.finditer(expression)]
        self._place = 0

    def either(self) -> Callable[[str], bool]:
        parts = [self._both()]
        while self._took("or"):
            parts.append(self._both())
        return lambda text: any(part(text) for part in parts)

    def end(self) -> None:
        if self._place < len(self._tokens):
            raise self._error()

    def _both(self) -> Callable[[str], bool]:
        parts = [self._negated()]
        while self._took("and"):
            parts.append(self._negated())
        return lambda text: all(part(text) for part in parts)

    def _negated(self) -> Callable[[str], bool]:
        if self._took("not"):
            part = self._negated()
            return lambda text: not part(text)
        if self._took("("):
            part = self.either()
            if not self._took(")"):
                raise self._error()
            return part
        words: list[str] = []
        while self._place < len(self._tokens) and self._tokens[self._place] not in _OPERATORS | {"(", ")"}:
            words.append(self._tokens[self._place])
            self._place += 1
        if not words:
            raise self._error()
        phrase = " ".join(words)
        return lambda text: phrase in text

    def _took(self, token: str) -> bool:
        if self._place < len(self._tokens) and self._tokens[self._place] == token:
            self._place += 1
            return True
        return False

    def _error(self) -> VarveError:
        return VarveError(
            f"-k {self._expression!r} is no expression: write parts of names with and, or, not and ( ), such as "
            "'delays and not weekly'."
        )
