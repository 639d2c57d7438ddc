"""A query as its author wrote it, with the places that a run replaces.

The text that Spark gets is the text of the file with these edits: the name of a dataset is replaced by the name of the
run's input, the database before such a name is removed, and a variable is replaced by its value or by a column. Nothing
else is changed, and no text is ever generated from a tree.

Not here: what each variable is replaced by (spark/execute.py), and the clauses for many scopes (spark/scope_join.py).
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
from varve.sql.syntax.lexer import tokens_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlglot.tokenizer_core import Token

    from varve.sql.names.visible import Columns
    from varve.sql.syntax.sql_file import SqlDataset


@dataclass(frozen=True, slots=True)
class QueryPiece:
    """A part of the text that runs: the author's from offset `at` of the file, our own (`at` is None), or an input."""

    text: str
    at: int | None = None
    dataset: str = ""


@dataclass(frozen=True)
class Edit:
    """The replacement of some characters of the file; an insertion where the start of the span is its end."""

    span: Span
    pieces: tuple[QueryPiece, ...]

    @classmethod
    def of(cls, start: int, end: int, text: str) -> Edit:
        """Replace some characters by our own text."""
        return cls(Span(start, end), (QueryPiece(text),) if text else ())


@dataclass(frozen=True)
class VariableMention:
    """A variable in the text. `is_result`: it is, by itself, a column of the result of a SELECT."""

    span: Span
    name: str
    is_result: bool


class UnplacedName(VarveError):
    """A name of the tree is not at its recorded place in the text, so that the query cannot be run as it is written."""


@dataclass(frozen=True, eq=False)
class WrittenQuery:
    """A query of a file: its text, its tokens and its tree."""

    text: str
    span: Span
    tree: exp.Query
    variables: frozenset[str]
    columns: Columns

    @cached_property
    def tokens(self) -> Sequence[Token]:
        """The tokens of the query; their offsets are those of the file."""
        return tokens_within(self.text, self.span.start, self.span.end)

    def pieces(self, edits: Iterable[Edit], span: Span | None = None) -> list[QueryPiece]:
        """Return the text of the query, or of `span`, after these edits; edits outside of the span are ignored."""
        where = span or self.span
        pieces: list[QueryPiece] = []
        at = where.start
        inside = [edit for edit in edits if where.start <= edit.span.start and edit.span.end <= where.end]
        for edit in sorted(inside, key=lambda edit: (edit.span.start, edit.span.end)):
            if edit.span.start < at:
                raise UnplacedName(f"two edits at {edit.span.start} of {self.text[at - 20 : at + 20]!r}.")
            if edit.span.start > at:
                pieces.append(QueryPiece(self.text[at : edit.span.start], at))
            pieces += edit.pieces
            at = edit.span.end
        if at < where.end:
            pieces.append(QueryPiece(self.text[at : where.end], at))
        return pieces

    def inputs(self) -> list[Edit]:
        """The edits that replace each dataset by its input, under the name by which the query refers to it."""
        edits = {}
        for table in tables_of(self.tree):
            start, end = self._place(table.args.get("catalog") or table.args.get("db") or table.this, table.this)
            dataset = f"{table.db}.{table.name}".lower()
            named = "" if table.alias else f" AS `{table.name.replace('`', '``')}`"
            if named and table.args.get("sample"):
                # In Spark, the alias stands behind the sample.
                behind = self._after_sample(end)
                edits[start, end] = Edit(Span(start, end), (QueryPiece("", dataset=dataset),))
                edits[behind, behind] = Edit.of(behind, behind, named)
            else:
                edits[start, end] = Edit(
                    Span(start, end), (QueryPiece("", dataset=dataset), *((QueryPiece(named),) if named else ()))
                )
        return [*edits.values(), *self._databases()]

    @cached_property
    def mentions(self) -> tuple[VariableMention, ...]:
        """The mentions of variables, bare and with a colon, in the order of the text."""
        mentions: dict[Span, VariableMention] = {}
        for column in self.tree.find_all(exp.Column):
            name = variable_of(column, self.variables)
            if name is not None:
                start, end = self._place(column.this, column.this)
                mentions[Span(start, end)] = VariableMention(Span(start, end), name, _is_result(column))
        for span, name in self._colons():
            mentions[span] = VariableMention(span, name, self._is_alone(span))
        return tuple(mentions[span] for span in sorted(mentions))

    def bound(self, value: Callable[[str], str]) -> list[Edit]:
        """The edits that replace each variable by the result of `value(name)`; result columns keep their names."""
        return [
            Edit.of(
                mention.span.start,
                mention.span.end,
                value(mention.name) + (f" AS `{mention.name}`" if mention.is_result else ""),
            )
            for mention in self.mentions
        ]

    def _databases(self) -> list[Edit]:
        """The edits that remove `db.` before the columns of a dataset."""
        ends_by_start = {}
        for column in self.tree.find_all(exp.Column):
            # The parser records no places within a hint.
            if is_by_database(column, self.columns) and not column.find_ancestor(exp.Hint):
                first, second = parts_of(column)[:2]
                ends_by_start[self._place(first, first)[0]] = self._place(second, second)[0]
        return [Edit.of(start, end, "") for start, end in ends_by_start.items()]

    def _place(self, first: exp.Expr, last: exp.Expr) -> tuple[int, int]:
        if "start" not in first.meta or "end" not in last.meta:
            raise UnplacedName(f"the place of {last.name} in the text is not known; write the query in another way.")
        start, end = first.meta["start"], last.meta["end"] + 1
        names = {part.name.lower() for part in (first, last)}
        if not (self.span.start <= start < end <= self.span.end) or not any(
            name in self.text[start:end].replace("``", "`").lower() for name in names
        ):
            raise UnplacedName(f"{last.name} is not at its place in the text; write the query in another way.")
        return start, end

    def _colons(self) -> list[tuple[Span, str]]:
        """The places of each `:name`, except where the colon stands between a field and its type."""
        colons, depth, tokens = [], 0, self.tokens
        for place, token in enumerate(tokens):
            before = tokens[place - 1] if place else None
            if token.token_type is TokenType.LT and before is not None and before.text.upper() in _NESTED:
                depth += 1
            elif depth and set(token.text) == {">"}:
                depth -= len(token.text)
            elif token.token_type is TokenType.COLON and not depth and place + 1 < len(tokens):
                name = tokens[place + 1].text.lower()
                if name in self.variables:
                    colons.append((Span(token.start, tokens[place + 1].end + 1), name))
        named = Counter(
            placeholder.name.lower()
            for placeholder in self.tree.find_all(exp.Placeholder)
            if placeholder.name.lower() in self.variables
        )
        if set(named) != {name for _, name in colons}:
            raise UnplacedName("a variable with a colon stands where no value can; write the query in another way.")
        return colons

    def _is_alone(self, span: Span) -> bool:
        """Whether a `:name` is, by itself, a column of a result: between commas, in the list of a SELECT."""
        tokens = self.tokens
        place = next(at for at, token in enumerate(tokens) if token.start == span.start)
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
        """The offset behind `TABLESAMPLE (...) [REPEATABLE (...)]`."""
        place = next(at for at, token in enumerate(self.tokens) if token.start >= end)
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
# The tokens that may stand before and after a column of a result.
_STARTS = {TokenType.SELECT, TokenType.DISTINCT, TokenType.ALL, TokenType.COMMA, TokenType.HINT}
_ENDS = (
    TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING,
    TokenType.ORDER_BY, TokenType.LIMIT, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.LATERAL,
    TokenType.QUALIFY, TokenType.WINDOW,
)  # fmt: skip


def written_query(sql: SqlDataset, query: exp.Query, columns: Columns | None = None) -> WrittenQuery:
    """Return a query of a file: its body, or one of its USING.

    `columns` returns the columns of a dataset; None where they are unknown.
    """
    spans = [span for own_query, span in zip(sql.queries, sql.query_spans, strict=True) if own_query is query]
    if not spans:
        raise UnplacedName(f"{sql.name}: this is no query of {sql.source.path}.")
    return WrittenQuery(sql.source.text, spans[0], query, frozenset(sql.variables), columns or (lambda _: None))


def text_of(pieces: Sequence[QueryPiece], name_of: Callable[[str], str]) -> str:
    """Join the pieces to one text, with the inputs by name."""
    return "".join(name_of(piece.dataset) if piece.dataset else piece.text for piece in pieces)


def author_place(pieces: Sequence[QueryPiece], name_of: Callable[[str], str], offset: int) -> int | None:
    """Return the offset in the file of a character of the text that runs.

    For our own text it is the end of the author's piece before it; None where there is none.
    """
    at = 0
    for place, piece in enumerate(pieces):
        size = len(name_of(piece.dataset)) if piece.dataset else len(piece.text)
        if offset < at + size:
            if piece.at is not None:
                return piece.at + offset - at
            before = next((piece for piece in reversed(pieces[:place]) if piece.at is not None), None)
            return before.at + len(before.text) if before is not None and before.at is not None else None
        at += size
    return None


def _is_result(node: exp.Expr) -> bool:
    return isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
