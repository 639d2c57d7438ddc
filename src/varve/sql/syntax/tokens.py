"""A cursor over the tokens of a file, and the expressions between them.

sqlglot's tokenizer and parser are used unchanged: its compiled build allows no subclasses of them.

Not here: the grammar (header.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from varve.model.errors import nearest
from varve.model.store_options import Period
from varve.sql.syntax.errors import Problem, SourceFile, Span, SqlError
from varve.sql.syntax.lexer import ContinuedComment, tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlglot.tokenizer_core import Token

# The words that begin a clause, longest first; an expression outside parentheses ends before them.
CLAUSES = (
    ("ON", "UPSTREAM", "CHANGE"), ("ON", "CODE", "CHANGE"),
    ("PARTITIONED BY",), ("STORED", "IN"), ("REFRESH", "LAST"), ("OPEN", "WINDOWS"),
    ("WINDOWS", "AHEAD"), ("INCREMENTAL",), ("REJECT", "UP", "TO"), ("COMMENT",), ("OWNER",),
    ("TAGS",), ("FOR",), ("LET",), ("INSERT",), ("EXPECT",), ("ALLOW",), ("INDEX",),
    ("COMPACT",), ("SORTED", "BY"), ("BOUNDS",), ("ICEBERG",),
    ("WAIT",), ("RETAIN", "BATCHES"), ("FRESH", "WITHIN"), ("GRANT", "SELECT", "TO"),
    ("SCHEDULE",), ("CATCHUP",),
    ("OPTIONS",), ("EXTERNAL",), ("PYTHON",), ("SPARK",), ("USING",), ("AS",),
)  # fmt: skip


_CLAUSES_BY_WORD = {words[0]: [other for other in CLAUSES if other[0] == words[0]] for words in CLAUSES}

# Clauses whose word may be the name of a column too: in an expression they begin where one of these words follows.
_MAY_BE_NAMES = {
    "INDEX": {"(", "UNIQUE"},
    "COMPACT": {period.upper() for period in Period},
    "BOUNDS": {"("},
    "ICEBERG": {"ON", "OFF"},
    "WAIT": {"ALL", "AT"},
    "CATCHUP": {"ON", "OFF"},
    "TAGS": {"("},
    "OPTIONS": {"("},
    "EXTERNAL": {"OPTIONS", "VIEW", ";"},
}
# Likewise, where a text between quotes follows.
_BEFORE_TEXTS = {"SCHEDULE", "COMMENT", "OWNER", "PYTHON", "SPARK"}
# Of these, no column is meant directly behind a value either: what follows is told as a mistake of the clause.
_NEVER_BEHIND_VALUES = {"COMMENT", "OWNER", "PYTHON", "SPARK", "TAGS", "OPTIONS", "EXTERNAL"}
_VALUES = {
    TokenType.R_PAREN, TokenType.VAR, TokenType.R_BRACKET, TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER,
    TokenType.NULL, TokenType.TRUE, TokenType.FALSE, TokenType.END,
}  # fmt: skip
# Words within expressions for which the tokenizer has no token type.
_BEHIND_VALUES = {"AT", "COLLATE", "DIV", "ESCAPE", "FILTER", "IGNORE", "ILIKE", "NULLS", "OVER", "RESPECT", "WITHIN"}


class Cursor:
    """A position between the tokens of a file. Its methods raise SqlError at the place of the problem."""

    def __init__(self, source: SourceFile, text: str) -> None:
        self.source = source
        self.text = text
        self.place = 0
        try:
            self.tokens: Sequence[Token] = tokens_of(text)
        except ContinuedComment as error:
            raise SqlError(Problem(source, Span(error.start, error.start + 2), str(error))) from None
        except TokenError:
            raise SqlError(unclosed_problem(source, text)) from None

    @property
    def token(self) -> Token | None:
        """The next token; None at the end of the file."""
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    @property
    def span(self) -> Span:
        """The span of the next token; at the end of the file, that of its last character."""
        if self.token is not None:
            return Span(self.token.start, self.token.end + 1)
        end = self.tokens[-1].end + 1 if self.tokens else 0
        return Span(max(0, end - 1), end)

    @property
    def behind(self) -> int:
        """The offset behind the last token that was read."""
        return self.tokens[self.place - 1].end + 1 if self.place else 0

    @property
    def shown_token(self) -> str:
        """The next token, as messages show it."""
        if self.token is None:
            return "the end of the file"
        return f"'{self.text[self.token.start : self.token.end + 1]}'"

    def fail(self, message: str, span: Span | None = None) -> NoReturn:
        """Raise SqlError at the next token, or at `span`."""
        raise SqlError(Problem(self.source, span or self.span, message))

    def sees(self, *words: str) -> bool:
        """Whether these words come next; does not move."""
        ahead = self.tokens[self.place : self.place + len(words)]
        return len(ahead) == len(words) and all(map(_is, ahead, words))

    def takes(self, *words: str) -> bool:
        """Move past these words if they come next; return whether they did."""
        if not self.sees(*words):
            return False
        self.place += len(words)
        return True

    def needs(self, *words: str, example: str = "") -> None:
        """Move past these words. Raises SqlError where something else comes next."""
        for word in words:
            if not self.takes(word):
                shown = f"; write {example}" if example else ""
                expected = " ".join(words) if word.isalpha() else f"'{word}'"
                self.fail(f"expected {expected}, found {self.shown_token}{shown}.")

    def choice(self, what: str, *options: str) -> str:  # noqa: RET503 - fail() never returns
        """Read one of several options. Raises SqlError with all of them."""
        for option in options:
            if self.takes(*option.split()):
                return option
        word = self.token.text if self.token else ""
        self.fail(f"expected {what}: {', '.join(options)}; found {self.shown_token}.{nearest(word, options)}")

    def name(self, what: str, *, example: str) -> tuple[str, Span]:
        """Read a name; return it and its span. Raises SqlError for a literal or a sign."""
        token, span = self.token, self.span
        if token is None or not (token.text.replace("_", "a").isalnum() and not token.text[0].isdigit()) or (
            token.token_type in {TokenType.STRING, TokenType.NUMBER}
        ):  # fmt: skip
            self.fail(f"expected {what}, found {self.shown_token}; write for example {example}.")
        self.place += 1
        return token.text, span

    def string(self, what: str, *, example: str = "") -> tuple[str, Span]:
        """Read a text between quotes; adjacent texts are joined as in SQL. Return it and its span."""
        start, texts = self.span.start, []
        while self.token is not None and self.token.token_type is TokenType.STRING:
            texts.append(self.token.text)
            self.place += 1
        if not texts:
            shown = f"; write {example}" if example else ""
            self.fail(f"expected {what} between quotes, found {self.shown_token}{shown}.")
        return "".join(texts), Span(start, self.behind)

    def number(self, what: str) -> tuple[int, Span]:
        """Read a positive whole number, with or without quotes; return it and its span."""
        token, span = self.token, self.span
        if token is None or not token.text.isdecimal() or int(token.text) < 1:
            self.fail(f"expected {what}, a whole number from 1, found {self.shown_token}.")
        self.place += 1
        return int(token.text), span

    def clause(self) -> tuple[str, ...] | None:
        """Return the words of the clause that begins here; None where none does."""
        word = self.tokens[self.place].text.upper() if self.place < len(self.tokens) else ""
        return next((words for words in _CLAUSES_BY_WORD.get(word, ()) if self.sees(*words)), None)

    def clause_behind_expression(self) -> tuple[str, ...] | None:
        """Return the words of the clause that begins here, where the word may belong to an expression too."""
        words = self.clause()
        if words is None:
            return None
        if words[-1] in _NEVER_BEHIND_VALUES and self._is_behind_value():
            return words
        following = self.tokens[self.place + len(words) : self.place + len(words) + 1]
        if words[-1] in _BEFORE_TEXTS:
            return words if any(token.token_type is TokenType.STRING for token in following) else None
        if words[-1] not in _MAY_BE_NAMES or (words == ("EXTERNAL",) and not following):
            return words
        return words if any(_is(token, word) for token in following for word in _MAY_BE_NAMES[words[-1]]) else None

    def _is_behind_value(self) -> bool:
        before = self.tokens[self.place - 1] if self.place else None
        return before is not None and before.token_type in _VALUES and before.text.upper() not in _BEHIND_VALUES

    def expression(self, what: str) -> Span:
        """Move past an expression: to a comma, a closing parenthesis, a clause or the end, outside parentheses."""
        begin, depth = self.place, 0
        while (token := self.token) is not None:
            if depth == 0 and (
                token.token_type in {TokenType.COMMA, TokenType.R_PAREN, TokenType.SEMICOLON}
                or (self.clause_behind_expression() and self.place > begin)
                or (self.place > begin and self._begins_something_else())
            ):
                break
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            self.place += 1
        if self.place == begin:
            self.fail(f"expected {what}, found {self.shown_token}.")
        return Span(self.tokens[begin].start, self.behind)

    def _begins_something_else(self) -> bool:
        """Whether a plain word stands directly behind a value, where no expression continues with one."""
        token, before = self.tokens[self.place], self.tokens[self.place - 1]
        is_word = token.token_type is TokenType.VAR and token.text.upper() not in _BEHIND_VALUES
        return is_word and before.token_type in {TokenType.R_PAREN, TokenType.VAR, TokenType.R_BRACKET}

    def parenthesised(self, what: str) -> Span:
        """Move past `(...)`; return the span of its contents. Raises SqlError where the parenthesis is not closed."""
        opened = self.span
        self.needs("(", example=what)
        begin, depth = self.behind, 1
        while depth:
            if self.token is None:
                self.fail("this parenthesis is not closed.", opened)
            depth += self.sees("(") - self.sees(")")
            self.place += 1
        return Span(begin, self.tokens[self.place - 1].start)

    def skip_to_clause(self) -> None:
        """After a problem: move to the next clause, outside parentheses as far as they are closed."""
        depth = 0
        while (token := self.token) is not None and not (depth <= 0 and self.clause()):
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            self.place += 1


def unclosed(text: str) -> Span:
    """Return the span of the opening of an unclosed quote or comment; the end of the text where there is none."""
    place = 0
    while place < len(text):
        if text.startswith("--", place):
            place = _after(text.find("\n", place), text)
        elif text.startswith("/*", place):
            end = text.find("*/", place + 2)
            if end < 0:
                return Span(place, place + 2)
            place = end + 2
        elif text[place] in "'\"`":
            closing = _closing(text, place)
            if closing is None:
                return Span(place, place + 1)
            place = closing + 1
        else:
            place += 1
    return Span(len(text), len(text))


def _closing(text: str, start: int) -> int | None:
    quote, place = text[start], start + 1
    while place < len(text):
        if text[place] == "\\" and quote != "`":
            place += 2
        elif text[place] == quote:
            return place
        else:
            place += 1
    return None


def _after(offset: int, text: str) -> int:
    return len(text) if offset < 0 else offset


def _is(token: Token, word: str) -> bool:
    quoted = token.token_type in {TokenType.STRING, TokenType.IDENTIFIER}
    return not quoted and token.text.upper() == word


def unclosed_problem(source: SourceFile, text: str) -> Problem:
    """Return the problem of a text that ends within a quote or a comment."""
    span = unclosed(text)
    sign = text[span.start : span.end]
    what, closing = ("comment", "*/") if sign == "/*" else ("quote", sign or "'")
    return Problem(source, span, f"this {what} is not closed; write {closing} where it ends.")


def clause_names(clauses: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the clauses as people write them."""
    return [" ".join(words) for words in clauses]
