"""Parses the generators of FOR: lists of values, dynamic sets with the queries that fill them, and TIMESERIES.

Not here: the contents of TIMESERIES (timeseries.py), and whether the query of a set fits its dataset
(varve/sql/checks/sets.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import TokenType

from varve.model.errors import nearest
from varve.model.partitions.set_source import OnRemoval, SetSource
from varve.sql.syntax.body import parse_query, parsed, span_of
from varve.sql.syntax.clauses.timeseries import parse_timeseries
from varve.sql.syntax.errors import SourceFile, Span
from varve.sql.syntax.lexer import blanked, tokens_of
from varve.sql.syntax.sql_file import DynamicSet, Generator, ValueList

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot.tokenizer_core import Token

    from varve.model.partitions.key import Value
    from varve.sql.syntax.tokens import Cursor

_DISTINCT = TokenType.DISTINCT
_FROM = "FROM (SELECT DISTINCT carrier FROM shop.orders)"


def parse_generator(at: Cursor) -> Generator:
    """Parse one generator of FOR: a variable and its values. Raises SqlError."""
    start = at.span.start
    name, _ = at.name("a variable", example="t IN TIMESERIES(INTERVAL 1 DAY, START '2024-01-01')")
    at.needs("IN", example=f"{name} IN TIMESERIES(...), {name} IN ('a', 'b') or {name} IN DYNAMIC 'set'")
    if at.takes("TIMESERIES"):
        return parse_timeseries(at, name.lower(), start)
    if at.takes("DYNAMIC"):
        return _dynamic_set(at, name.lower(), start)
    if not at.sees("("):
        word = at.token.text if at.token else ""
        at.fail(
            f"expected TIMESERIES(...), a list of values or DYNAMIC 'set', found {at.shown_token}."
            f"{nearest(word, ['TIMESERIES', 'DYNAMIC'])}"
        )
    return ValueList(name.lower(), _values(at), Span(start, at.behind))


def _dynamic_set(at: Cursor, variable: str, start: int) -> DynamicSet:
    """Parse the name of a set and, where data fill it, `FROM (SELECT ...) [ON REMOVAL KEEP | WITHDRAW]`."""
    set_name, _ = at.string("the name of a set")
    if not at.takes("FROM"):
        return DynamicSet(variable, set_name, Span(start, at.behind))
    begin = at.span.start
    inside = at.parenthesised(_FROM)
    where = Span(begin, at.behind)
    on_removal = OnRemoval.KEEP
    if at.takes("ON", "REMOVAL"):
        words = [choice.value.upper() for choice in OnRemoval]
        on_removal = OnRemoval(at.choice("what happens to a key that is in the data no longer", *words).lower())
    source = SourceFile(at.source.path, at.text)
    if inside.start >= inside.end or not at.text[inside.start : inside.end].strip():
        at.fail(f"there is no query between the parentheses; write {_FROM}.", where)
    query = parse_query(source, inside)
    key, table = _key_and_table(at, query, where)
    condition = query.args.get("where")
    written, limited = _written(at.text, inside, is_named=isinstance(query.expressions[0], exp.Alias))
    line, column = at.source.position((span_of(key) or where).start)
    return DynamicSet(
        variable, set_name, Span(start, at.behind),
        SetSource(
            f"{table.db}.{table.name}".lower(), _unqualified(key, table, written, at.text),
            "" if condition is None else _unqualified(condition.this, table, limited, at.text), on_removal,
            f"{at.source.path}:{line}:{column}",
        ),
        key, span_of(table.this) or where,
    )  # fmt: skip


def _key_and_table(at: Cursor, query: exp.Query, where: Span) -> tuple[exp.Expr, exp.Table]:
    """Return the key of a row and the dataset that is read. Raises SqlError unless each row counts for itself."""

    def fail(found: str, node: exp.Expr | None = None) -> NoReturn:
        at.fail(
            f"the keys of a set are one expression over the rows of one dataset, found {found}; write {_FROM}, with a "
            "WHERE where not all rows count, or make a dataset of the query and read that.",
            (span_of(node) if node is not None else None) or where,
        )

    if not isinstance(query, exp.Select):
        fail(f"a {type(query).__name__.upper()}")
    for part in ("with_", "with", "joins", "laterals", "group", "having", "qualify", "windows", "order", "limit",
                 "offset", "sample", "pivots"):  # fmt: skip
        if query.args.get(part):
            found = query.args[part]
            node = found[0] if isinstance(found, list) else found
            fail(type(node).__name__.upper(), node)
    distinct = query.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        fail("DISTINCT ON", distinct)
    if len(query.expressions) != 1:
        fail(f"{len(query.expressions)} columns", query.expressions[1] if query.expressions else None)
    source = query.args.get("from_") or query.args.get("from")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table):
        fail("no dataset" if table is None else type(table).__name__.upper(), table)
    if not table.db:
        at.fail(f"{table.name} has no database; name it db.table.", span_of(table.this) or where)
    (projection,) = query.expressions
    key = projection.unalias()
    for tree in (key, query.args.get("where")):
        for node in tree.walk() if tree is not None else ():
            if isinstance(node, exp.Star):
                fail("*: name one column", node)
            if isinstance(node, exp.Query | exp.Subquery):
                fail("a query within it", node)
            if isinstance(node, exp.AggFunc | exp.Window | exp.UDTF | exp.Explode | exp.Posexplode):
                fail(f"{node.sql('spark')}, which is not of one row", node)
    return key, table


def _written(text: str, inside: Span, *, is_named: bool) -> tuple[list[Token], list[Token]]:
    """The tokens of the key and of the condition: `SELECT [DISTINCT] key [AS name] FROM table [WHERE condition]`."""
    tokens = tokens_of(blanked(text, inside.start, inside.end))
    depth, outside = 0, list[int]()
    for place, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            outside.append(place)
    kinds = {place: tokens[place].token_type for place in outside}
    # Not that of IS DISTINCT FROM.
    froms = [at for at, kind in kinds.items() if kind is TokenType.FROM and at > 1]
    from_ = next((at for at in froms if kinds.get(at - 1) is not _DISTINCT), 0)
    where = next((at for at, kind in kinds.items() if kind is TokenType.WHERE and at > from_), len(tokens))
    begin = 2 if len(tokens) > 1 and tokens[1].token_type in {_DISTINCT, TokenType.ALL} else 1
    key = list(tokens[begin:from_])
    if is_named:
        key = key[:-2] if len(key) > 1 and key[-2].token_type is TokenType.ALIAS else key[:-1]
    return key, list(tokens[where + 1 :])


def _unqualified(expression: exp.Expr, table: exp.Table, written: Sequence[Token], text: str) -> str:
    """Return the text of an expression over one dataset, whose columns need no name of it; fields keep their struct.

    It is the author's, without comments: what sqlglot writes may be another function (TO_CHAR without its pattern).
    """
    names = {
        part.meta.get("start")
        for column in expression.find_all(exp.Column)
        for part in column.parts[: len(column.parts) - len(parts_behind(column, table))]
    }
    kept, at = list[str](), 0
    while at < len(written):
        token = written[at]
        if token.start in names:
            # With the dot behind it.
            at += 2
            continue
        is_next = at > 0 and written[at - 1].end + 1 == token.start
        kept += ["" if is_next or not kept else " ", text[token.start : token.end + 1]]
        at += 1
    ours, generated = "".join(kept), _generated(expression, table)
    try:
        is_the_same = _text(parsed(ours)) == generated
    except SqlglotError:
        is_the_same = False
    return ours if is_the_same else generated


def _generated(expression: exp.Expr, table: exp.Table) -> str:
    def bare(node: exp.Expr) -> exp.Expr:
        parts = parts_behind(node, table) if isinstance(node, exp.Column) else ()
        if not parts:
            return node
        column, *before = (
            exp.to_identifier(part.name, quoted=bool(part.args.get("quoted"))) for part in reversed(parts)
        )
        return exp.column(column, *before)

    return _text(expression.copy().transform(bare))


def _text(expression: exp.Expr) -> str:
    return expression.sql("spark", comments=False, unsupported_level=ErrorLevel.IGNORE)


def parts_behind(column: exp.Column, table: exp.Table) -> Sequence[exp.Expr]:
    """The parts of a column's name behind the name of the dataset or its alias: the column, and fields of its value."""
    parts = column.parts
    names = [part.name.lower() for part in parts]
    if len(parts) > 2 and names[:2] == [table.db.lower(), table.name.lower()]:
        return parts[2:]
    return parts[1:] if len(parts) > 1 and names[0] == table.alias_or_name.lower() else parts


def _values(at: Cursor) -> tuple[Value, ...]:
    opened = at.span
    at.needs("(")
    values: list[Value] = []
    while not at.takes(")"):
        span = at.span
        negative = at.takes("-")
        if at.token is not None and at.token.text.isdecimal() and at.shown_token[1] not in "'\"":
            number = int(at.token.text)
            at.place += 1
            value: Value = -number if negative else number
        elif at.sees("NULL"):
            at.fail("NULL is no value of a scope: no partition can be named by it. Leave it out.")
        else:
            value, _ = at.string("a value (a text between quotes, or a whole number)")
        if value in values:
            at.fail(f"{value!r} is given twice: two scopes would write one partition. Take one out.", span)
        values.append(value)
        if not at.sees(")"):
            at.needs(",", example="IN ('Detroit', 'Paris')")
    if not values:
        at.fail("the list is empty: there would be no scope at all. Write for example ('Detroit', 'Paris').", opened)
    return tuple(values)
