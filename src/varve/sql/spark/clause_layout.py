"""Finds the places of a query's clauses among its tokens, for the outermost SELECTs, which produce the rows.

Not here: what is inserted there (scope_join.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import TokenType as T

from varve.sql.syntax.errors import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot.tokenizer_core import Token

_OPEN, _CLOSE = {T.L_PAREN, T.L_BRACKET}, {T.R_PAREN, T.R_BRACKET}
_SETS = {T.UNION, T.EXCEPT, T.INTERSECT}
# The tokens that end FROM.
_AFTER = {T.WHERE, T.GROUP_BY, T.HAVING, T.QUALIFY, T.WINDOW, T.ORDER_BY, T.SORT_BY, T.CLUSTER_BY, T.DISTRIBUTE_BY,
          T.LIMIT, T.OFFSET, T.PIPE_GT}  # fmt: skip


class UnknownLayout(Exception):
    """The text has a form that this module cannot parse."""


@dataclass(frozen=True)
class CteText:
    """`name [(columns)] AS (query)`: its span, the text of its columns with parentheses, the span of its query."""

    span: Span
    columns: str
    body: Span


@dataclass(frozen=True)
class SelectText:
    """The clauses of one SELECT.

    Attributes:
        items: the span of each column of its result.
        result: the offset at which a further first column can be inserted.
        sources: the offset at which each table or query of FROM begins; empty without FROM.
        commas: for each source, the span of the comma before it; None where it follows FROM or JOIN.
        group: the offset behind the words GROUP BY; None without it.
        order: the span from ORDER BY to the end; None without it.
        windows: for each OVER (...), the offset for more keys, and whether it has a PARTITION BY.
        end: the offset behind the list of columns.
    """

    items: tuple[Span, ...]
    result: int
    end: int
    sources: tuple[int, ...]
    commas: tuple[Span | None, ...]
    group: int | None
    order: Span | None
    windows: tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class QueryText:
    """A query: its CTEs, and its SELECTs, which UNION, EXCEPT and INTERSECT combine."""

    ctes: tuple[CteText, ...]
    span: Span
    selects: tuple[SelectText, ...]


def layout(text: str, tokens: Sequence[Token]) -> QueryText:
    """Return the clauses of a query. Raises Strange."""
    tokens = _bare(tokens)
    ctes: list[CteText] = []
    place = 0
    if tokens[0].token_type is T.WITH:
        place = 1
        while True:
            cte, place = _cte(text, tokens, place)
            ctes.append(cte)
            if tokens[place].token_type is not T.COMMA:
                break
            place += 1
    rest = tokens[place:]
    return QueryText(tuple(ctes), Span(rest[0].start, rest[-1].end + 1), tuple(map(_select, _operands(rest))))


def _cte(text: str, tokens: Sequence[Token], place: int) -> tuple[CteText, int]:
    start, columns = place, ""
    place += 1
    if tokens[place].token_type is T.L_PAREN:
        end = _closing(tokens, place)
        columns = text[tokens[place].start : tokens[end].end + 1]
        place = end + 1
    if tokens[place].token_type is T.ALIAS:
        place += 1
    if tokens[place].token_type is not T.L_PAREN:
        raise UnknownLayout
    end = _closing(tokens, place)
    span = Span(tokens[start].start, tokens[end].end + 1)
    return CteText(span, columns, Span(tokens[place].end + 1, tokens[end].start)), end + 1


def _operands(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The SELECTs of unions, intersections and differences, in the order of the text."""
    inner = _bare(tokens)
    cuts = [place for place, depth in _outside(inner) if inner[place].token_type in _SETS and depth == 0]
    if not cuts:
        yield inner
        return
    start = 0
    for cut in [*cuts, len(inner)]:
        yield from _operands(inner[start:cut])
        start = cut + 1
        while start < len(inner) and inner[start].token_type in {T.ALL, T.DISTINCT}:
            start += 1


def _select(tokens: Sequence[Token]) -> SelectText:
    outside = [place for place, depth in _outside(tokens) if depth == 0]
    kinds = {place: tokens[place].token_type for place in outside}
    if not tokens or tokens[0].token_type is not T.SELECT or sum(kind is T.SELECT for kind in kinds.values()) != 1:
        raise UnknownLayout
    if any(kind is T.PIPE_GT for kind in kinds.values()):
        raise UnknownLayout
    begin = 1
    while tokens[begin].token_type in {T.HINT, T.DISTINCT, T.ALL}:
        begin += 1
    size = len(tokens)
    from_ = next((place for place in outside if kinds[place] is T.FROM and not _is_distinct_from(tokens, place)), None)
    clauses = [place for place in outside if kinds[place] in _AFTER or _is_view(tokens, place)]
    end = min([place for place in (from_, *clauses) if place is not None], default=size)
    behind = min((place for place in clauses if from_ is not None and place > from_), default=size)
    sources, commas = _sources(tokens, outside, from_, behind) if from_ is not None else ((), ())
    group = next((place for place in outside if kinds[place] is T.GROUP_BY), None)
    order = next((place for place in outside if kinds[place] is T.ORDER_BY), None)
    last = tokens[-1].end + 1
    return SelectText(
        tuple(_split(tokens, begin, end)),
        tokens[begin - 1].end + 1,
        tokens[end - 1].end + 1,
        sources,
        commas,
        tokens[group].end + 1 if group is not None else None,
        Span(tokens[order].start, last) if order is not None else None,
        tuple(_windows(tokens)),
    )


def _sources(
    tokens: Sequence[Token], outside: Sequence[int], from_: int, end: int
) -> tuple[tuple[int, ...], tuple[Span | None, ...]]:
    starts = [tokens[from_ + 1].start]
    commas: list[Span | None] = [None]
    for place in outside:
        if from_ < place < end and tokens[place].token_type in {T.COMMA, T.JOIN}:
            starts.append(tokens[place + 1].start)
            is_comma = tokens[place].token_type is T.COMMA
            commas.append(Span(tokens[place].start, tokens[place].end + 1) if is_comma else None)
    return tuple(starts), tuple(commas)


def _split(tokens: Sequence[Token], begin: int, end: int) -> Iterator[Span]:
    start = begin
    for place, depth in _outside(tokens):
        if depth == 0 and begin <= place < end and tokens[place].token_type is T.COMMA:
            yield Span(tokens[start].start, tokens[place - 1].end + 1)
            start = place + 1
    yield Span(tokens[start].start, tokens[end - 1].end + 1)


def _windows(tokens: Sequence[Token]) -> Iterator[tuple[int, bool]]:
    """Yield the windows of this SELECT, without those of queries inside it."""
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.token_type is T.L_PAREN and tokens[place + 1].token_type in {T.SELECT, T.WITH, T.FROM}:
            place = _closing(tokens, place)
        elif token.token_type is T.OVER:
            if tokens[place + 1].token_type is not T.L_PAREN:
                raise UnknownLayout
            first = tokens[place + 2]
            if first.token_type is T.PARTITION_BY:
                yield first.end + 1, True
            elif first.token_type in {T.ORDER_BY, T.R_PAREN} or first.text.upper() in {"ROWS", "RANGE"}:
                yield tokens[place + 1].end + 1, False
            else:
                raise UnknownLayout
        place += 1


def _bare(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the tokens without parentheses around the whole."""
    while tokens and tokens[0].token_type is T.L_PAREN and _closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    if not tokens:
        raise UnknownLayout
    return tokens


def _outside(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield the position of each token, with the number of parentheses around it."""
    depth = 0
    for place, token in enumerate(tokens):
        if token.token_type in _CLOSE:
            depth -= 1
        yield place, depth
        if token.token_type in _OPEN:
            depth += 1


def _closing(tokens: Sequence[Token], opened: int) -> int:
    depth = 0
    for place in range(opened, len(tokens)):
        depth += (tokens[place].token_type in _OPEN) - (tokens[place].token_type in _CLOSE)
        if depth == 0:
            return place
    raise UnknownLayout


def _is_distinct_from(tokens: Sequence[Token], place: int) -> bool:
    """Whether this FROM belongs to IS [NOT] DISTINCT FROM."""
    if place < 2 or tokens[place - 1].token_type is not T.DISTINCT:
        return False
    return tokens[place - 2].text.upper() in {"IS", "NOT"}


def _is_view(tokens: Sequence[Token], place: int) -> bool:
    following = tokens[place + 1].token_type if place + 1 < len(tokens) else None
    return tokens[place].token_type is T.LATERAL and following is T.VIEW
