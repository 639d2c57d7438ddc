"""The tokens of a text as Spark reads them: sqlglot's tokens, with the meaning that Spark gives to literals.

Where sqlglot's tokenizer differs from Spark, its tokens are corrected here, so that planning, evaluation and inference
use the text that Spark will run. tests/sql/test_literals.py compares each kind of literal with Spark.

Not here: the parser (body.py, tokens.py).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot.dialects import Dialect
from sqlglot.tokenizer_core import Token, TokenType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot import exp

_STRINGS = {TokenType.STRING, TokenType.RAW_STRING}
_NAMES = {TokenType.VAR, TokenType.IDENTIFIER, *_STRINGS}
_WORD = re.compile(r"[A-Za-z_]\w*")
# An octal escape begins with 0 or 1 and has three digits; Spark reads any other escaped character as itself.
_ESCAPES = {
    quote: re.compile(rf"\\(u[0-9a-fA-F]{{4}}|U[0-9a-fA-F]{{8}}|[01][0-7]{{2}}|.)|{quote}{quote}", re.DOTALL)
    for quote in "'\""
}
_NAMED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_TEMPLATE = re.compile(r"\{\{|\{%|\$\{")
_WORDS = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN}
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_CONTINUED = re.compile(r"--[^\n]*\\\r?\n")
_NOT_A_LINE_END = re.compile(r"[^\n]")
# What may be a number that Spark reads in another way.
_NUMBERS = re.compile(r"0x|\dBD|\.BD", re.IGNORECASE)


class ContinuedComment(ValueError):
    """A `--` comment that ends with a backslash, which in Spark continues in the next line; `start` is its offset."""

    def __init__(self, start: int) -> None:
        self.start = start
        super().__init__("a comment that ends with \\ goes on in the next line; write something after the \\.")


# While a file is compiled, its query is asked for several times, and so are the words of its variables.
@lru_cache(maxsize=64)
def tokens_of(text: str) -> tuple[Token, ...]:
    """Return the tokens of a text. Raises Continued, and sqlglot's TokenError for an unclosed quote or comment."""
    tokens = Dialect.get_or_raise("spark").tokenize(text)
    if _CONTINUED.search(text):
        _refuse_continued(text, tokens)
    if any(token.token_type in _STRINGS for token in tokens):
        tokens = list(_with_strings(text, tokens))
    tokens = list(_with_names(tokens))
    return tuple(_with_numbers(tokens, text) if _NUMBERS.search(text) else tokens)


def tokens_within(text: str, start: int, end: int) -> tuple[Token, ...]:
    """Return the tokens of a part of a text, with the offsets and lines of the whole. Raises as `tokens_of` does."""
    return tokens_of(blanked(text, start, end))


def parsed_tokens(tokens: Sequence[Token], text: str, *, expression: bool = False) -> list[exp.Expr | None]:
    """Return the trees of the statements, or the one `expression`, that these tokens are. Raises sqlglot's errors."""
    # The trees keep the lists of comments of their tokens, empty ones too, and the parser adds to them.
    own = [_as(token, token.token_type, token.text) for token in tokens]
    parser = Dialect.get_or_raise("spark").parser()
    if expression and own and own[0].token_type in parser.STATEMENT_PARSERS.keys() & parser.ID_VAR_TOKENS:
        # A column may be called `comment`, `load` or `begin`, by which a statement could begin.
        own[0] = _as(own[0], TokenType.VAR, own[0].text)
    trees: list[exp.Expr | None] = parser.parse(own, text)
    return trees


def blanked(text: str, start: int, end: int) -> str:
    """Return the text up to `end`, with blanks for the characters before `start`: offsets and lines stay the same."""
    return _NOT_A_LINE_END.sub(" ", text[:start]) + text[start:end]


def decoded(literal: str) -> str:
    """Return the value of a Spark string literal as it is written, raw or not."""
    if literal[0] in "rR":
        return literal[2:-1]
    return _ESCAPES[literal[0]].sub(_escaped, literal[1:-1])


def template_in(text: str, tokens: Sequence[Token]) -> tuple[int, int] | None:
    """Return start and end of the first `{{`, `{%` or `${` outside of texts and comments; None where there is none."""
    for token in tokens:
        if token.token_type not in _STRINGS and (match := _TEMPLATE.match(text, token.start)):
            return match.span()
    return None


def lacks_comma(tokens: Sequence[Token], start: int) -> bool:
    """Whether the token at an offset is a name directly behind a name."""
    place = next((at for at, token in enumerate(tokens) if token.start == start), 0)
    if place == 0 or tokens[place].token_type is TokenType.R_PAREN:
        return False
    return tokens[place].token_type in _WORDS and tokens[place - 1].token_type in _WORDS


def quoted(value: str) -> str:
    """Return a text as a string literal of Spark."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _escaped(match: re.Match[str]) -> str:
    what = match[1]
    if what is None:
        return match[0][0]
    if what[0] in "uU" and len(what) > 1:
        return chr(int(what[1:], 16))
    if len(what) == 3:
        return chr(int(what, 8))
    return _NAMED.get(what, what)


def _refuse_continued(text: str, tokens: Sequence[Token]) -> None:
    end = 0
    for start, after in [*((token.start, token.end + 1) for token in tokens), (len(text), len(text))]:
        gap = _BLOCK_COMMENT.sub(lambda comment: " " * len(comment[0]), text[end:start])
        if comment := _CONTINUED.search(gap):
            raise ContinuedComment(end + comment.start())
        end = max(end, after)


def _with_strings(text: str, tokens: Sequence[Token]) -> Iterator[Token]:
    """Join adjacent strings into one token: a doubled quote is a quote, other strings are concatenated."""
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
        comments = [comment for token in tokens[place:run] for comment in token.comments]
        yield Token(
            TokenType.STRING, value, line=first.line, col=first.col, start=first.start, end=spans[-1][1] - 1,
            comments=comments,
        )  # fmt: skip
        place = run


def _with_names(tokens: Sequence[Token]) -> Iterator[Token]:
    """Take words of the language for names where they cannot be anything else.

    So are WINDOW before a parenthesis, as the clause has a name there, and a word directly behind a dot: `shop.values`.
    SESSION_USER without one is no call: to Spark it is the column of this name, where there is one.
    """
    for before, token, after in zip((None, *tokens), tokens, (*tokens[1:], None), strict=False):
        before_bracket = after is not None and after.token_type is TokenType.L_PAREN
        is_call = token.token_type is TokenType.WINDOW and before_bracket
        is_column = token.token_type is TokenType.SESSION_USER and not before_bracket
        is_part = before is not None and before.token_type is TokenType.DOT and before.end + 1 == token.start
        is_name = is_call or (is_part and token.token_type not in _NAMES and _WORD.fullmatch(token.text))
        yield _as(token, TokenType.VAR, token.text) if is_name or is_column else token


def _with_numbers(tokens: Sequence[Token], text: str) -> Iterator[Token]:
    """Correct numbers: `1.5BD` is the decimal 1.5, not a cast to the widest one; `0x1F` is a name."""
    place = 0
    while place < len(tokens):
        token = tokens[place]
        written = text[token.start : token.end + 1]
        if token.token_type is TokenType.HEX_STRING and written[:2] in {"0x", "0X"}:
            yield _as(token, TokenType.VAR, written)
        elif token.token_type is TokenType.NUMBER and re.fullmatch(r"[\d.]+BD", written, re.IGNORECASE):
            digits = written[:-2]
            yield _as(token, TokenType.NUMBER, digits if "." in digits else f"{digits}.")
            # The tokens that follow belong to the cast, and stand for no characters of the text.
            place += 2
        else:
            yield token
        place += 1


def _as(token: Token, kind: TokenType, text: str) -> Token:
    comments = list(token.comments)
    return Token(kind, text, line=token.line, col=token.col, start=token.start, end=token.end, comments=comments)
