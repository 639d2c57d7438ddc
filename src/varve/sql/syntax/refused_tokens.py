"""Finds signs and words that Spark refuses, or knows no value for, although sqlglot's parser may accept them.

Most come from another SQL dialect. tests/sql/test_habits.py tries each of them on Spark.

Not here: functions and names of other dialects (checks/habits.py), and what Spark's analyzer says (spark/refusals.py).
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from typing import TYPE_CHECKING, TypeAlias

from sqlglot.tokenizer_core import TokenType

from varve.sql.syntax.errors import Span
from varve.sql.syntax.other_dialects import SIZED, TRUNC_UNITS, TYPES, UNIT_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlglot.tokenizer_core import Token

Refusal: TypeAlias = tuple[Span, str]

_LOOKALIKES = {
    "\N{LEFT SINGLE QUOTATION MARK}": "'", "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": "'", "\N{RIGHT DOUBLE QUOTATION MARK}": "'",
    "\N{ZERO WIDTH SPACE}": "", "\N{ZERO WIDTH NO-BREAK SPACE}": "",
    "\N{EN DASH}": "-", "\N{MINUS SIGN}": "-", "\N{FULLWIDTH COMMA}": ",", "\N{GREEK QUESTION MARK}": ";",
}  # fmt: skip
_LITERALS = {TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER}
_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "JOIN", "UNION", "DISTINCT", "BETWEEN", "PARTITION",
    "LATERAL", "WINDOW", "INNER", "OUTER", "CROSS", "WITH", "OVER",
)  # fmt: skip
_VALUES = {
    TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER, TokenType.R_PAREN, TokenType.R_BRACKET,
}  # fmt: skip
# Words that may stand before a text between quotes, as a typed literal.
_TYPED = {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME", "INTERVAL", "X", "R"}


def lookalike_sign(text: str, tokens: Sequence[Token]) -> Refusal | None:
    """Return the first sign outside of texts and comments that only looks like a sign of SQL."""
    for token in () if text.isascii() else tokens:
        if token.token_type in _LITERALS:
            continue
        for at in range(token.start, token.end + 1):
            if (instead := _LOOKALIKES.get(text[at])) is not None:
                name = f"U+{ord(text[at]):04X} ({unicodedata.name(text[at]).lower()})"
                remedy = f"only looks like {instead}; write {instead}" if instead else "cannot be seen; take it out"
                return Span(at, at + 1), f"this is {name}, which {remedy}."
    return None


def refused_syntax(text: str, tokens: Sequence[Token]) -> Refusal | None:
    """Return the first place that Spark refuses, and what to write instead."""
    if (sign := lookalike_sign(text, tokens)) is not None:
        return sign
    by_place = _Tokens(tokens)
    rules = [rule for rule, about in _RULES if about.search(text)]
    refusals = [refusal for rule in rules for refusal in rule(text, by_place)]
    return min(refusals, key=lambda refusal: refusal[0], default=None)


def misspelt_keyword(tokens: Sequence[Token], start: int) -> Refusal | None:
    """Return a name that resembles a keyword, where the parser failed, directly before it, or first of all.

    A query that begins with a misspelt SELECT is an expression to the parser, until its first comma.
    """
    place = next((at for at, token in enumerate(tokens) if token.start == start), None)
    if place is None:
        return None
    if tokens[place].text.upper() in {"GROUP", "ORDER", "PARTITION"}:
        word = tokens[place].text
        return _span(tokens[place]), f"{word} is not followed by BY; write {word.upper()} BY."
    for at in (place, place - 1, 0):
        if at < 0 or tokens[at].token_type is not TokenType.VAR:
            continue
        near = difflib.get_close_matches(tokens[at].text.upper(), _KEYWORDS, n=1, cutoff=0.7)
        if near:
            return _span(tokens[at]), f"'{tokens[at].text}' is not expected here. Did you mean {near[0]}?"
    return None


class _Tokens:
    """Tokens by position; positions outside of the list are allowed, and have no token."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.all = tokens
        self._words = ["" if token.token_type in _LITERALS else token.text.upper() for token in tokens]

    def __len__(self) -> int:
        return len(self.all)

    def word(self, at: int) -> str:
        """Return the word or sign in capitals; empty for texts and names between quotes."""
        return self._words[at] if 0 <= at < len(self._words) else ""

    def words(self, at: int, *expected: str) -> bool:
        return all(self.word(at + place) == word for place, word in enumerate(expected))

    def is_text(self, at: int) -> bool:
        return 0 <= at < len(self.all) and self.all[at].token_type is TokenType.STRING

    def kind(self, at: int) -> TokenType | None:
        return self.all[at].token_type if 0 <= at < len(self.all) else None

    def is_clause(self, at: int) -> bool:
        """Whether a FROM belongs to a SELECT, and not to EXTRACT, TRIM and similar functions."""
        depth = 0
        for place in range(at - 1, -1, -1):
            depth += (self.kind(place) is TokenType.R_PAREN) - (self.kind(place) is TokenType.L_PAREN)
            if depth < 0:
                return False
            if not depth and self.word(place) == "SELECT":
                return True
        return True

    def commas(self, at: int) -> int:
        """How many commas stand between this parenthesis and its end, outside of others within it."""
        depth = count = 0
        for place in range(at + 1, self.closing(at)):
            depth += (self.kind(place) is TokenType.L_PAREN) - (self.kind(place) is TokenType.R_PAREN)
            count += depth == 0 and self.word(place) == ","
        return count

    def closing(self, at: int) -> int:
        """Return the position of the matching closing parenthesis; that of the last token where it is missing."""
        depth = 0
        for place in range(at, len(self.all)):
            depth += (self.kind(place) is TokenType.L_PAREN) - (self.kind(place) is TokenType.R_PAREN)
            if not depth:
                return place
        return len(self.all) - 1


def _span(first: Token, last: Token | None = None) -> Span:
    return Span(first.start, (last or first).end + 1)


def _top(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    del text
    for at in range(len(tokens)):
        if tokens.word(at) == "TOP" and tokens.word(at - 1) in {"SELECT", "DISTINCT"}:
            number = at + 2 if tokens.word(at + 1) == "(" else at + 1
            if tokens.kind(number) is TokenType.NUMBER:
                limit = tokens.all[number].text
                yield _span(tokens.all[at], tokens.all[number]), f"Spark has no TOP; write LIMIT {limit} at the end."


def _fetch(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    del text
    for at in range(len(tokens)):
        if tokens.word(at) == "FETCH" and tokens.word(at + 1) in {"FIRST", "NEXT"}:
            number = tokens.all[at + 2].text if tokens.kind(at + 2) is TokenType.NUMBER else "n"
            yield _span(tokens.all[at], tokens.all[at + 1]), f"Spark has no FETCH FIRST; write LIMIT {number}."


def _double_quotes(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    for at in range(len(tokens)):
        if not tokens.is_text(at) or text[tokens.all[at].start] != '"':
            continue
        name = tokens.all[at].text
        before = tokens.word(at - 1)
        plain = tokens.kind(at - 1) is TokenType.VAR and before not in _TYPED
        listed = before in {"SELECT", "DISTINCT"} and name.isidentifier() and tokens.word(at + 1) in {",", "FROM", "AS"}
        if before in {"AS", ".", "JOIN"} or plain or (before == "FROM" and tokens.is_clause(at - 1)):
            yield (
                _span(tokens.all[at]),
                f'to Spark "{name}" is a text, and no text can stand here; write {_name(name)} for the name.',
            )
        elif listed:
            yield (
                _span(tokens.all[at]),
                (
                    f'to Spark "{name}" is a text, the same in every row; write {_name(name)} for the column, or '
                    f"'{name}' for the text."
                ),
            )


def _name(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def _brackets(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    for at in range(len(tokens)):
        if tokens.kind(at) is not TokenType.L_BRACKET:
            continue
        if tokens.word(at - 1) == "ARRAY":
            yield _span(tokens.all[at - 1], tokens.all[at]), "Spark writes arrays as ARRAY(1, 2), with parentheses."
        elif tokens.kind(at - 1) not in _VALUES:
            named = tokens.kind(at + 1) is TokenType.VAR and tokens.kind(at + 2) is TokenType.R_BRACKET
            if named:
                name = tokens.all[at + 1].text
                yield _span(tokens.all[at], tokens.all[at + 2]), f"Spark has no names between brackets; write {name}."
            else:
                yield _span(tokens.all[at]), "Spark writes arrays as ARRAY(1, 2), with parentheses."
    for at in range(len(tokens)):
        if tokens.kind(at) is TokenType.L_BRACE and text[tokens.all[at].start + 1 : tokens.all[at].start + 2] != "{":
            yield _span(tokens.all[at]), "Spark has no braces; write NAMED_STRUCT('name', value) or MAP('key', value)."


def _stars(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    del text
    for at in range(len(tokens)):
        is_star = tokens.word(at) == "*" and tokens.word(at - 1) in {"SELECT", "DISTINCT", "ALL", ",", "."}
        if is_star and tokens.word(at + 1) in {"EXCLUDE", "REPLACE"} and tokens.word(at + 2) == "(":
            word = tokens.word(at + 1)
            instead = "* EXCEPT (name)" if word == "EXCLUDE" else "* EXCEPT (name), value AS name"
            yield _span(tokens.all[at + 1]), f"Spark has no * {word}; write {instead}."
        if tokens.words(at, "DISTINCT", "ON", "("):
            yield (
                _span(tokens.all[at], tokens.all[at + 1]),
                (
                    "Spark has no DISTINCT ON; write QUALIFY ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) = 1 "
                    "at the end."
                ),
            )


def _operators(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    for at in range(1, len(tokens)):
        token = tokens.all[at]
        if tokens.word(at) == "~" and tokens.kind(at - 1) in _VALUES:
            yield _span(token), "Spark has no ~ between two values; write text RLIKE 'pattern'."
        elif tokens.word(at) == "SIMILAR TO":
            yield _span(token), "Spark has no SIMILAR TO; write text RLIKE 'pattern'."
        elif tokens.words(at, "AT", "TIME", "ZONE") or text[token.start : token.end + 1].upper() == "AT TIME ZONE":
            yield _span(token), "Spark has no AT TIME ZONE; write FROM_UTC_TIMESTAMP(value, 'Europe/Paris')."
        elif text[token.start : token.start + 3] == "->>":
            yield Span(token.start, token.start + 3), "Spark has no ->>; write GET_JSON_OBJECT(text, '$.name')."


def _commas(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    del text
    for at in range(len(tokens)):
        if tokens.word(at) == "," and tokens.word(at + 1) in {",", "FROM", "WHERE", ")", "GROUP BY", "ORDER BY"}:
            yield _span(tokens.all[at]), f"a comma too many: '{tokens.all[at + 1].text}' follows it; take it out."


def _casts(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    calls: list[str] = []
    for at in range(len(tokens)):
        kind = tokens.kind(at)
        if kind is TokenType.L_PAREN:
            calls.append(tokens.word(at - 1))
        elif kind is TokenType.R_PAREN and calls:
            calls.pop()
        is_cast = bool(calls) and calls[-1] in {"CAST", "TRY_CAST"} and tokens.word(at) == "AS"
        if (is_cast or kind is TokenType.DCOLON) and at + 1 < len(tokens):
            yield from _type(text, tokens, at + 1)


def _type(text: str, tokens: _Tokens, at: int) -> Iterator[Refusal]:
    token = tokens.all[at]
    word = text[token.start : token.end + 1].upper()
    if instead := TYPES.get(word):
        yield _span(token), f"Spark has no type {word}; write {instead}."
    elif word in SIZED and tokens.word(at + 1) != "(":
        yield _span(token), f"Spark has {word} with a length only; write STRING."
    elif tokens.words(at, "DOUBLE", "PRECISION") or word == "DOUBLE PRECISION":
        yield _span(token), "Spark has no type DOUBLE PRECISION; write DOUBLE."


def _units(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    """Yield units between quotes, and intervals where a number of days is expected."""
    del text
    for at in range(len(tokens)):
        word = tokens.word(at)
        if word in {"DATEADD", "DATEDIFF", "TIMESTAMPADD", "TIMESTAMPDIFF"} and tokens.word(at + 1) == "(":
            # With two arguments both are dates, or a date and a number.
            if tokens.is_text(at + 2) and tokens.commas(at + 1) == 2:
                unit = tokens.all[at + 2].text.upper()
                yield (
                    _span(tokens.all[at + 2]),
                    f"Spark has the unit of {word} without quotes; write {word}({unit}, ...).",
                )
        elif word in {"DATE_ADD", "DATE_SUB"} and tokens.word(at + 1) == "(":
            end = tokens.closing(at + 1)
            for place in range(at + 2, end):
                if tokens.word(place) == "INTERVAL" and tokens.word(place - 1) == ",":
                    sign = "+" if word == "DATE_ADD" else "-"
                    yield (
                        _span(tokens.all[place]),
                        f"{word} takes a number of days; write {word}(date, 1), or date {sign} INTERVAL 1 DAY.",
                    )


def _trunc_units(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    """Yield units of TRUNC and DATE_TRUNC for which Spark gives NULL: to the parser, 'Q' is 'QUARTER'."""
    del text
    for at in range(len(tokens)):
        name = tokens.word(at)
        if name not in TRUNC_UNITS or tokens.word(at + 1) != "(":
            continue
        end = tokens.closing(at + 1)
        unit = at + 2 if name == "DATE_TRUNC" else end - 1
        if not tokens.is_text(unit) or "," not in {tokens.word(unit + 1), tokens.word(unit - 1)}:
            continue
        text_of_unit = tokens.all[unit].text
        written = text_of_unit.upper()
        if written in TRUNC_UNITS[name] or (meant := UNIT_NAMES.get(written)) is None:
            continue
        instead = f"'{meant}'" if meant in TRUNC_UNITS[name] else f"DATE_TRUNC('{meant}', ...)"
        yield (
            _span(tokens.all[unit]),
            f"Spark has no unit '{text_of_unit}' of {name} and gives NULL; write {instead}.",
        )


def _pipes(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    """Yield the operator of pipes: the parser puts what is behind it into the SELECT before it, in another order."""
    del text
    for at in range(len(tokens)):
        if tokens.kind(at) is TokenType.PIPE_GT:
            message = "which partitions a query with |> reads is not known before it runs; write it with SELECT, and "
            yield _span(tokens.all[at]), f"{message}what stands before a LIMIT or a JOIN as a subquery."


def _unnest(text: str, tokens: _Tokens) -> Iterator[Refusal]:
    del text
    for at in range(len(tokens)):
        if tokens.word(at) != "UNNEST" or tokens.word(at + 1) != "(":
            continue
        end, before, span = tokens.closing(at + 1), tokens.word(at - 1), _span(tokens.all[at])
        named = end + 2 if tokens.word(end + 1) == "AS" else end + 1
        if before == "IN":
            yield span, "Spark has no IN UNNEST; write ARRAY_CONTAINS(values, value)."
        elif before == "VIEW":
            yield span, "UNNEST stands behind LATERAL, not LATERAL VIEW; write LATERAL VIEW EXPLODE(values) e AS value."
        elif before in {"LATERAL", "FROM", ",", "JOIN"} and tokens.word(named + 1) != "(":
            explanation = "behind UNNEST stands the name of a table, then those of its columns"
            yield span, f"{explanation}; write UNNEST(values) AS e(value)."


# Each rule with what a text has in which it finds something.
_RULES: tuple[tuple[Callable[[str, _Tokens], Iterator[Refusal]], re.Pattern[str]], ...] = tuple(
    (rule, re.compile(about, re.IGNORECASE))
    for rule, about in (
        (_top, "TOP"), (_fetch, "FETCH"), (_double_quotes, '"'), (_brackets, r"[\[{]"),
        (_stars, "EXCLUDE|REPLACE|DISTINCT"), (_operators, "~|SIMILAR|ZONE|->>"), (_commas, ","), (_casts, "CAST|::"),
        (_units, "DATE|TIMESTAMP"), (_trunc_units, "TRUNC"), (_unnest, "UNNEST"), (_pipes, r"\|>"),
    )
)  # fmt: skip
