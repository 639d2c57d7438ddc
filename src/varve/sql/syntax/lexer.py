"""The tokens of a text as Spark reads them: sqlglot's, with the meaning that Spark gives to its literals.

Where sqlglot's tokenizer differs, its tokens are put right here, so that everything that is planned, evaluated or
inferred from its trees is of the text that Spark will run. tests/sql/test_literals.py compares each kind
of literal with Spark.

Not here: the parser (body.py, tokens.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot.dialects import Dialect
from sqlglot.tokenizer_core import Token, TokenType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STRINGS = {TokenType.STRING, TokenType.RAW_STRING}
# `0` to `1` first: Spark reads three octal digits of a byte, and anything else as the digit itself.
_ESCAPES = {
    quote: re.compile(rf"\\(u[0-9a-fA-F]{{4}}|U[0-9a-fA-F]{{8}}|[01][0-7]{{2}}|.)|{quote}{quote}", re.DOTALL)
    for quote in "'\""
}
_NAMED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_TEMPLATE = re.compile(r"\{\{|\{%|\$\{")
_WORDS = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN}
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_CONTINUED = re.compile(r"--[^\n]*\\\r?\n")


class Continued(ValueError):
    """A `--` comment ends with a backslash: for Spark the next line belongs to it. `start` is where it begins."""

    def __init__(self, start: int) -> None:
        self.start = start
        super().__init__("a comment that ends with \\ goes on in the next line; write something after the \\.")


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text. Raises sqlglot's TokenError for what has no end, and Continued."""
    found = Dialect.get_or_raise("spark").tokenize(text)
    _refuse_continued(text, found)
    return list(_with_numbers(list(_with_strings(text, found)), text))


def decoded(literal: str) -> str:
    """The value of one string literal of Spark, as it is typed, raw or not."""
    if literal[0] in "rR":
        return literal[2:-1]
    return _ESCAPES[literal[0]].sub(_escaped, literal[1:-1])


def template_in(text: str, tokens: Sequence[Token]) -> tuple[int, int] | None:
    """Where `{{ ... }}`, `{% ... %}` or `${...}` begins, outside of texts and comments."""
    for token in tokens:
        if token.token_type not in _STRINGS and (found := _TEMPLATE.match(text, token.start)):
            return found.span()
    return None


def lacks_comma(tokens: Sequence[Token], start: int) -> bool:
    """Whether what stands at a place is a name right behind a name."""
    place = next((at for at, each in enumerate(tokens) if each.start == start), 0)
    if place == 0 or tokens[place].token_type is TokenType.R_PAREN:
        return False
    return tokens[place].token_type in _WORDS and tokens[place - 1].token_type in _WORDS


def quoted(value: str) -> str:
    """A text as a string literal of Spark."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _escaped(found: re.Match[str]) -> str:
    what = found[1]
    if what is None:
        return found[0][0]
    if what[0] in "uU" and len(what) > 1:
        return chr(int(what[1:], 16))
    if len(what) == 3:
        return chr(int(what, 8))
    return _NAMED.get(what, what)


def _refuse_continued(text: str, tokens: Sequence[Token]) -> None:
    end = 0
    for start, after in [*((each.start, each.end + 1) for each in tokens), (len(text), len(text))]:
        gap = _BLOCK_COMMENT.sub(lambda found: " " * len(found[0]), text[end:start])
        if comment := _CONTINUED.search(gap):
            raise Continued(end + comment.start())
        end = max(end, after)


def _with_strings(text: str, tokens: Sequence[Token]) -> Iterator[Token]:
    """Strings beside each other as one: doubled quotes are a quote, others are joined."""
    place = 0
    while place < len(tokens):
        run = place
        while run < len(tokens) and tokens[run].token_type in _STRINGS:
            run += 1
        if run == place:
            yield tokens[place]
            place += 1
            continue
        spans: list[list[int]] = []
        for token in tokens[place:run]:
            quote = text[token.start]
            doubled = spans and spans[-1][1] == token.start and text[spans[-1][0]] == quote and quote in "'\""
            if doubled:
                spans[-1][1] = token.end + 1
            else:
                spans.append([token.start, token.end + 1])
        value = "".join(decoded(text[start:end]) for start, end in spans)
        first = tokens[place]
        comments = [each for token in tokens[place:run] for each in token.comments]
        yield Token(
            TokenType.STRING, value, line=first.line, col=first.col, start=first.start, end=spans[-1][1] - 1,
            comments=comments,
        )  # fmt: skip
        place = run


def _with_numbers(tokens: Sequence[Token], text: str) -> Iterator[Token]:
    """`1.5BD` is the decimal 1.5, not a cast to the widest one; `0x1F` is a name."""
    place = 0
    while place < len(tokens):
        token = tokens[place]
        written = text[token.start : token.end + 1]
        if token.token_type is TokenType.HEX_STRING and written[:2] in {"0x", "0X"}:
            yield _as(token, TokenType.VAR, written)
        elif token.token_type is TokenType.NUMBER and re.fullmatch(r"[\d.]+BD", written, re.IGNORECASE):
            digits = written[:-2]
            yield _as(token, TokenType.NUMBER, digits if "." in digits else f"{digits}.")
            # What follows of it are the signs of a cast, in no characters of their own.
            place += 2
        else:
            yield token
        place += 1


def _as(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, line=token.line, col=token.col, start=token.start, end=token.end, comments=token.comments)
