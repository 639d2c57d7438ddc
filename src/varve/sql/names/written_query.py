"""A query as a person wrote it, with the places at which a run puts something else.

The text that Spark gets is the text of the file but for these edits: the name of a dataset becomes that of the run's
input, the database before such a name goes, a variable becomes its value or a column. Nothing else is touched, and
nothing is ever written anew from a tree.

Not here: what each variable becomes (spark/execute.py), and the clauses that many scopes need (spark/scope_join.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from varve.model.errors import VarveError
from varve.sql.names.paths import is_by_database, parts_of
from varve.sql.names.scope_variables import variable_of
from varve.sql.syntax.body import tables_of
from varve.sql.syntax.errors import Span
from varve.sql.syntax.lexer import tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlglot.tokenizer_core import Token

    from varve.sql.names.visible import Columns
    from varve.sql.syntax.sql_file import SqlDataset


@dataclass(frozen=True, slots=True)
class QueryPiece:
    """A part of the text that runs: the author's, from place `at` of the file; ours; or the input for a dataset."""

    text: str
    at: int | None = None
    dataset: str = ""


@dataclass(frozen=True)
class Edit:
    """What stands in the place of some characters of the file; of none, where start is end."""

    span: Span
    pieces: tuple[QueryPiece, ...]

    @classmethod
    def of(cls, start: int, end: int, text: str) -> Edit:
        """Our own words in the place of some characters."""
        return cls(Span(start, end), (QueryPiece(text),) if text else ())


@dataclass(frozen=True)
class Mention:
    """A variable in the text. `is_result`: it stands by itself among the columns that a SELECT gives out."""

    span: Span
    name: str
    is_result: bool


class Unplaced(VarveError):
    """A name of the tree is not where the text has it: the query cannot be run as it is written."""


@dataclass(frozen=True, eq=False)
class WrittenQuery:
    """A query of a file: its characters, its tokens, its tree."""

    text: str
    span: Span
    tree: exp.Query
    variables: frozenset[str]
    columns: Columns

    @cached_property
    def tokens(self) -> list[Token]:
        """Its tokens; their places are those of the file."""
        blank = "".join(char if char == "\n" else " " for char in self.text[: self.span.start])
        return tokens_of(blank + self.text[self.span.start : self.span.end])

    def pieces(self, edits: Iterable[Edit], span: Span | None = None) -> list[QueryPiece]:
        """The text, or a part of it, with these edits; those outside of the part are left out."""
        where = span or self.span
        found: list[QueryPiece] = []
        at = where.start
        inside = [each for each in edits if where.start <= each.span.start and each.span.end <= where.end]
        for edit in sorted(inside, key=lambda each: (each.span.start, each.span.end)):
            if edit.span.start < at:
                raise Unplaced(f"two edits at {edit.span.start} of {self.text[at - 20 : at + 20]!r}.")
            if edit.span.start > at:
                found.append(QueryPiece(self.text[at : edit.span.start], at))
            found += edit.pieces
            at = edit.span.end
        if at < where.end:
            found.append(QueryPiece(self.text[at : where.end], at))
        return found

    def inputs(self) -> list[Edit]:
        """The datasets become inputs under the name that the query knows them by."""
        found = {}
        for table in tables_of(self.tree):
            start, end = self._place(table.args.get("catalog") or table.args.get("db") or table.this, table.this)
            dataset = f"{table.db}.{table.name}".lower()
            named = "" if table.alias else f" AS `{table.name.replace('`', '``')}`"
            if named and table.args.get("sample"):
                # Spark has the name behind the sample.
                behind = self._after_sample(end)
                found[start, end] = Edit(Span(start, end), (QueryPiece("", dataset=dataset),))
                found[behind, behind] = Edit.of(behind, behind, named)
            else:
                found[start, end] = Edit(
                    Span(start, end), (QueryPiece("", dataset=dataset), *((QueryPiece(named),) if named else ()))
                )
        return [*found.values(), *self._databases()]

    @cached_property
    def mentions(self) -> tuple[Mention, ...]:
        """The variables, bare and with a colon, in the order of the text."""
        found: dict[Span, Mention] = {}
        for column in self.tree.find_all(exp.Column):
            name = variable_of(column, self.variables)
            if name is not None:
                start, end = self._place(column.this, column.this)
                found[Span(start, end)] = Mention(Span(start, end), name, _is_result(column))
        for span, name in self._colons():
            found[span] = Mention(span, name, self._is_alone(span))
        return tuple(found[span] for span in sorted(found))

    def bound(self, value: Callable[[str], str]) -> list[Edit]:
        """The variables become what `value` makes of them; a column of a result keeps its name."""
        return [
            Edit.of(each.span.start, each.span.end, value(each.name) + (f" AS `{each.name}`" if each.is_result else ""))
            for each in self.mentions
        ]

    def _databases(self) -> list[Edit]:
        """`db.` before the columns of a dataset."""
        found = {}
        for column in self.tree.find_all(exp.Column):
            # Of what stands in a hint, the parser keeps no place.
            if is_by_database(column, self.columns) and not column.find_ancestor(exp.Hint):
                first, second = parts_of(column)[:2]
                found[self._place(first, first)[0]] = self._place(second, second)[0]
        return [Edit.of(start, end, "") for start, end in found.items()]

    def _place(self, first: exp.Expr, last: exp.Expr) -> tuple[int, int]:
        if "start" not in first.meta or "end" not in last.meta:
            raise Unplaced(f"the place of {last.name} in the text is not known; write the query in another way.")
        start, end = first.meta["start"], last.meta["end"] + 1
        names = {each.name.lower() for each in (first, last)}
        if not (self.span.start <= start < end <= self.span.end) or not any(
            name in self.text[start:end].replace("``", "`").lower() for name in names
        ):
            raise Unplaced(f"{last.name} is not at its place in the text; write the query in another way.")
        return start, end

    def _colons(self) -> list[tuple[Span, str]]:
        """`:name`, but where a colon stands between a field and its type."""
        found, depth, tokens = [], 0, self.tokens
        for place, token in enumerate(tokens):
            before = tokens[place - 1] if place else None
            if token.token_type is TokenType.LT and before is not None and before.text.upper() in _NESTED:
                depth += 1
            elif depth and set(token.text) == {">"}:
                depth -= len(token.text)
            elif token.token_type is TokenType.COLON and not depth and place + 1 < len(tokens):
                name = tokens[place + 1].text.lower()
                if name in self.variables:
                    found.append((Span(token.start, tokens[place + 1].end + 1), name))
        named = Counter(
            each.name.lower() for each in self.tree.find_all(exp.Placeholder) if each.name.lower() in self.variables
        )
        if set(named) != {name for _, name in found}:
            raise Unplaced("a variable with a colon stands where no value can; write the query in another way.")
        return found

    def _is_alone(self, span: Span) -> bool:
        """Whether a `:name` is a column of a result by itself: between commas, in the list of a SELECT."""
        tokens = self.tokens
        place = next(at for at, each in enumerate(tokens) if each.start == span.start)
        after = tokens[place + 2].token_type if place + 2 < len(tokens) else None
        if tokens[place - 1].token_type not in _STARTS or after not in {None, *_ENDS}:
            return False
        depth = 0
        for token in reversed(tokens[:place]):
            depth += (token.token_type is TokenType.R_PAREN) - (token.token_type is TokenType.L_PAREN)
            if depth < 0 or (depth == 0 and token.token_type in _ENDS and token.token_type is not TokenType.COMMA):
                return False
            if depth == 0 and token.token_type is TokenType.SELECT:
                return True
        return False

    def _after_sample(self, end: int) -> int:
        """Behind `TABLESAMPLE (...) [REPEATABLE (...)]`."""
        place = next(at for at, each in enumerate(self.tokens) if each.start >= end)
        while (
            self.tokens[place].token_type is TokenType.TABLE_SAMPLE or self.tokens[place].text.upper() == "REPEATABLE"
        ):
            depth, place = 0, place + 1
            while True:
                kind = self.tokens[place].token_type
                depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
                place += 1
                if not depth or place == len(self.tokens):
                    break
            if place == len(self.tokens):
                break
        return self.tokens[place - 1].end + 1


_NESTED = {"STRUCT", "MAP", "ARRAY"}
# What may stand before and after a column of a result.
_STARTS = {TokenType.SELECT, TokenType.DISTINCT, TokenType.ALL, TokenType.COMMA, TokenType.HINT}
_ENDS = (
    TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING,
    TokenType.ORDER_BY, TokenType.LIMIT, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.LATERAL,
    TokenType.QUALIFY, TokenType.WINDOW,
)  # fmt: skip


def written(sql: SqlDataset, query: exp.Query, columns: Columns | None = None) -> WrittenQuery:
    """A query of a file: its body, or one of its USING. `columns` gives those of a dataset, where they are known."""
    spans = [span for each, span in zip(sql.queries, sql.query_spans, strict=True) if each is query]
    if not spans:
        raise Unplaced(f"{sql.name}: this is no query of {sql.source.path}.")
    return WrittenQuery(sql.source.text, spans[0], query, frozenset(sql.variables), columns or (lambda _: None))


def text_of(pieces: Sequence[QueryPiece], name_of: Callable[[str], str]) -> str:
    """The pieces as one text, with the inputs by name."""
    return "".join(name_of(each.dataset) if each.dataset else each.text for each in pieces)


def author_place(pieces: Sequence[QueryPiece], name_of: Callable[[str], str], offset: int) -> int | None:
    """The place in the file of a character of the text that runs; where it is ours, the author's next one."""
    at = 0
    for place, piece in enumerate(pieces):
        size = len(name_of(piece.dataset)) if piece.dataset else len(piece.text)
        if offset < at + size:
            if piece.at is not None:
                return piece.at + offset - at
            before = next((each for each in reversed(pieces[:place]) if each.at is not None), None)
            return before.at + len(before.text) if before is not None and before.at is not None else None
        at += size
    return None


def _is_result(node: exp.Expr) -> bool:
    return isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
