"""Parses the contents of clauses: columns with their types, waits, schedules, named expressions, options.

Not here: which clauses there are (header.py), FOR (generators.py, timeseries.py), and how a dataset is stored
(storage.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import TokenType

from varve.model.errors import VarveError
from varve.model.landing.rejection import RejectInto
from varve.model.partitions.schedule import Schedule
from varve.model.reads import Wait
from varve.sql.syntax.body import parse_expression, parse_type
from varve.sql.syntax.clauses.timeseries import length_of_time
from varve.sql.syntax.errors import SourceFile, Span
from varve.sql.syntax.sql_file import Allowed, ColumnDefinition, DeclaredSchedule, DeclaredWait, Named

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def parse_rejection(at: Cursor) -> tuple[RejectInto, Span]:
    """Parse `n ROWS INTO db.name`; return it and the place of the name. Raises SqlError."""
    example = "REJECT UP TO 10 ROWS INTO shop.orders_rejected"
    at_most, span = at.number("how many rows")
    if not at.takes("ROW"):
        at.needs("ROWS", example=example)
    at.needs("INTO", example=example)
    begin = at.span.start
    db, _ = at.name("a dataset", example=example)
    at.needs(".", example=example)
    table, _ = at.name("a dataset", example=example)
    try:
        return RejectInto(at_most, f"{db}.{table}"), Span(begin, at.behind)
    except VarveError as error:
        at.fail(str(error), span)


def parse_allowances(at: Cursor) -> tuple[frozenset[Allowed], tuple[tuple[str, Span], ...]]:
    """Parse what ALLOW allows: for all that is read, and `FULL SCAN OF` for these datasets. Raises SqlError."""
    words = [allowance.value.upper() for allowance in Allowed]
    allowances, tables = set[Allowed](), dict[str, Span]()
    while True:
        allowed = Allowed(at.choice("what to allow", *words).lower())
        if allowed is Allowed.FULL_SCAN and at.takes("OF"):
            more = parse_datasets(at, tables, "ALLOW FULL SCAN OF shop.products", words)
        else:
            allowances.add(allowed)
            more = at.takes(",")
        if not more:
            return frozenset(allowances), tuple(tables.items())
