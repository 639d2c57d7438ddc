"""Parses the contents of clauses: columns with their types, generators, named expressions, options.

Not here: which clauses there are (header.py), and TIMESERIES (timeseries.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from varve.model.errors import VarveError, nearest
from varve.model.partitions.schedule import Schedule
from varve.model.partitions.set_source import OnRemoval, SetSource
from varve.model.reads import Wait
from varve.sql.syntax.body import parse_expression, parse_query, parse_type, span_of
from varve.sql.syntax.errors import SourceFile, Span
from varve.sql.syntax.sql_file import (
    ColumnDefinition,
    DeclaredSchedule,
    DeclaredWait,
    DynamicSet,
    Generator,
    Named,
    ValueList,
)
from varve.sql.syntax.timeseries import length_of_time, parse_timeseries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.partitions.key import Value
    from varve.sql.syntax.tokens import Cursor


def parse_columns(at: Cursor) -> tuple[ColumnDefinition, ...]:
    """Parse columns between parentheses, with their types. Raises SqlError."""
    columns_by_name = dict[str, ColumnDefinition]()
    example, opened = "(product_id BIGINT COMMENT 'what was sold')", at.span
    at.needs("(", example=example)
    while not at.takes(")"):
        name, span = at.name("a column", example=example)
        column = ColumnDefinition(name, _type(at, name), span, nullable=not at.takes("NOT", "NULL"))
        if at.takes("RENAMED", "FROM"):
            former, _ = at.name("the former name of the column", example=f"{name} {column.type} RENAMED FROM before")
            column = replace(column, was=former)
        if at.takes("COMMENT"):
            text, _ = at.string("a comment")
            column = replace(column, comment=text)
        if at.token is None or at.clause():
            at.fail("this parenthesis is not closed; write ) behind the last column.", opened)
        if name.lower() in columns_by_name:
            at.fail(f"column {name} is declared twice.", span)
        columns_by_name[name.lower()] = column
        if not at.sees(")") and not at.takes(","):
            at.fail(
                f"expected ',' or ')' behind {name} {column.type}, found {at.shown_token}; columns have a comma "
                "between them."
            )
    if not columns_by_name:
        at.fail("there is no column between the parentheses; write for example " + example + ".")
    return tuple(columns_by_name.values())


def _type(at: Cursor, column: str) -> str:
    start, depth = at.span.start, 0
    begin = at.place
    while at.token is not None:
        if depth == 0 and (at.sees(",") or at.sees(")") or (at.place > begin and not (at.sees("(") or at.sees("<")))):
            break
        depth += (at.sees("(") or at.sees("<")) - (at.sees(")") or at.sees(">")) - 2 * at.sees(">>")
        at.place += 1
    if at.place == begin:
        at.fail(f"column {column} has no type; write {column} STRING, for example.")
    return parse_type(SourceFile(at.source.path, at.text), Span(start, at.behind))


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


_FROM = "FROM (SELECT DISTINCT carrier FROM shop.orders)"


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
    line, column = at.source.position((span_of(key) or where).start)
    return DynamicSet(
        variable, set_name, Span(start, at.behind),
        SetSource(
            f"{table.db}.{table.name}".lower(), _unqualified(key),
            "" if condition is None else _unqualified(condition.this), on_removal, f"{at.source.path}:{line}:{column}",
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


def _unqualified(expression: exp.Expr) -> str:
    """Return the text of an expression over one dataset, whose columns need no name of it."""

    def bare(node: exp.Expr) -> exp.Expr:
        return exp.column(node.this.copy()) if isinstance(node, exp.Column) and node.table else node

    return expression.copy().transform(bare).sql("spark", comments=False)


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


def parse_waits(at: Cursor) -> tuple[DeclaredWait, ...]:
    """Parse `ALL | AT LEAST n | ALL BUT n [UNTIL time] [OF db.table {, db.table}]`, one or more. Raises SqlError."""
    waits, example = list[DeclaredWait](), "WAIT AT LEAST 20 UNTIL 6 HOURS"
    while True:
        begin = at.span
        amount = at.choice(f"for how many partitions it waits (as in {example})", "ALL BUT", "AT LEAST", "ALL")
        count = 0 if amount == "ALL" else at.number("how many partitions")[0]
        deadline = length_of_time(at) if at.takes("UNTIL") else None
        datasets, more = dict[str, Span](), False
        if at.takes("OF"):
            more = parse_datasets(at, datasets, f"{example} OF shop.receipts", ("ALL", "AT"))
        else:
            more = at.takes(",")
        if any(not wait.datasets for wait in waits) and not datasets:
            at.fail("two waits are for all datasets; write OF db.table behind one of them, or take it out.", begin)
        if both := sorted({name for wait in waits for name, _ in wait.datasets} & set(datasets)):
            at.fail(f"{both[0]} has a wait already; take one of them out.", datasets[both[0]])
        wait = Wait(
            at_least=count if amount == "AT LEAST" else None,
            missing=count if amount == "ALL BUT" else 0,
            deadline=deadline,
        )
        waits.append(DeclaredWait(wait, tuple(datasets.items()), Span(begin.start, at.behind)))
        if not more:
            return tuple(waits)


def parse_schedule(at: Cursor) -> DeclaredSchedule:
    """Parse `'cron' [TIMEZONE 'zone']`. Raises SqlError."""
    example = "SCHEDULE '0 6 * * *' TIMEZONE 'Europe/Paris'"
    cron, span = at.string("a cron expression or a shorthand", example=example)
    zone, zone_span = at.string("a time zone", example=example) if at.takes("TIMEZONE") else ("", span)
    try:
        Schedule(cron)
    except VarveError as error:
        at.fail(str(error), span)
    try:
        Schedule(cron, zone or "UTC")
    except VarveError as error:
        at.fail(str(error), zone_span)
    return DeclaredSchedule(cron, zone)


def parse_datasets(at: Cursor, places: dict[str, Span], example: str, others: Sequence[str]) -> bool:
    """Parse `db.table {, db.table}` into `places`; return whether a comma and one of the `others` follow.

    Raises SqlError.
    """
    while True:
        start = at.span.start
        db, _ = at.name("a dataset", example=example)
        at.needs(".", example=example)
        table, _ = at.name("a dataset", example=example)
        places[f"{db}.{table}".lower()] = Span(start, at.behind)
        if not at.takes(","):
            return False
        if any(at.sees(*words.split()) for words in others):
            return True


def parse_named_expressions(at: Cursor, sign: str, example: str) -> tuple[Named, ...]:
    """Parse named expressions, with `sign` between name and expression. Raises SqlError."""
    expressions = dict[str, Named]()
    while True:
        name, span = at.name("a name", example=example)
        if not at.takes(sign):
            at.fail(f"expected '{sign}' behind the name {name}, found {at.shown_token}; write {example}.")
        where = at.expression("an expression")
        expression = parse_expression(SourceFile(at.source.path, at.text), where)
        if name.lower() in expressions:
            at.fail(f"{name} is given twice; give one of them another name.", span)
        expressions[name.lower()] = Named(
            name.lower(), expression, Span(span.start, where.end), at.text[where.start : where.end], where.start
        )
        if not at.takes(","):
            return tuple(expressions.values())


def parse_named_texts(at: Cursor, example: str) -> tuple[tuple[tuple[str, str], ...], dict[str, Span]]:
    """Parse `(name = 'text', ...)`; return the texts by name, and the span of each. Raises SqlError."""
    texts, spans = dict[str, str](), dict[str, Span]()
    at.needs("(", example=example)
    while not at.takes(")"):
        name, span = at.name("a name", example=example)
        while at.takes("."):
            name = f"{name}.{at.name('a name', example=example)[0]}"
        at.needs("=", example=example)
        if name in texts:
            at.fail(f"{name} is given twice; take one out.", span)
        if at.token is not None and at.token.token_type is not TokenType.STRING:
            at.fail(f"the value of {name} stands between quotes; write {name} = '{at.token.text}'.")
        texts[name], value = at.string("its value")
        spans[name] = Span(span.start, value.end)
        if not at.sees(")"):
            at.needs(",", example=example)
    return tuple(texts.items()), spans
