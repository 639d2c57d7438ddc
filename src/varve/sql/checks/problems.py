"""What is wrong with one file beyond its syntax: clocks, random values, scans of everything, types that do not fit.

Not here: its scopes (partitions/scopes.py), code that it names (foreign_code.py), and what concerns several files
(sql_project.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import nearest, some
from varve.sql.checks.habits import called, habits
from varve.sql.names.scope_variables import clashes, variable_of
from varve.sql.names.written_query import Unplaced, written
from varve.sql.syntax.body import span_of
from varve.sql.syntax.sql_file import Allowed, SqlDataset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varve.sql.partitions.dependencies import Inference
    from varve.sql.pushdown.scans import Dependencies
    from varve.sql.syntax.errors import Problem
    from varve.sql.types.outputs import Output

_CLOCKS = {
    "CURRENT_DATE", "CURDATE", "CURRENT_TIMESTAMP", "CURRENT_TIME", "NOW", "LOCALTIMESTAMP", "CURRENT_TIMEZONE",
    "UNIX_TIMESTAMP",
}  # fmt: skip
_RANDOM = {
    "RAND", "RANDN", "RANDOM", "UUID", "SHUFFLE", "RANDSTR", "UNIFORM", "MONOTONICALLY_INCREASING_ID",
    "SPARK_PARTITION_ID", "INPUT_FILE_NAME", "CURRENT_USER", "USER", "CURRENT_DATABASE", "CURRENT_CATALOG",
}  # fmt: skip


# Types that a store widens without loss.
_WIDENS = {
    "TINYINT": ("INT", "BIGINT", "DOUBLE"),
    "SMALLINT": ("INT", "BIGINT", "DOUBLE"),
    "INT": ("BIGINT", "DOUBLE"),
    "FLOAT": ("DOUBLE",),
}


def plan_problems(sql: SqlDataset, queries: Inference, found: Sequence[Dependencies]) -> Iterator[Problem]:
    """Unknown columns, and scans of all partitions that the file does not allow."""
    for finding in queries.findings:
        yield sql.problem(sql.span_at(finding.node), finding.message)
    if queries.findings:
        return
    read = {scan.dataset for each in found for scan in each.scans}
    for name, span in sql.full_scans:
        if name not in read:
            yield sql.problem(span, f"{name} is not read, so that there is nothing to allow.{nearest(name, read)}")
    allowed = read if Allowed.FULL_SCAN in sql.allows else {name for name, _ in sql.full_scans}
    for each in found:
        for scan in each.unrestricted:
            if scan.dataset not in allowed:
                yield sql.problem(
                    sql.span_at(scan.table),
                    f"nothing says which partitions of {scan.dataset} are read; compare {', '.join(scan.columns)} with "
                    f"a variable of the scope, or write ALLOW FULL SCAN OF {scan.dataset} to read all of them.",
                )


def query_problems(sql: SqlDataset, columns: Mapping[str, tuple[str, ...]]) -> Iterator[Problem]:
    """Functions that a query must not call, and names that are a variable and a column; `columns` by dataset."""
    for query, span in zip(sql.queries, sql.query_spans, strict=True):
        try:
            text = written(sql, query, columns.get)
            assert text.pieces([*text.inputs(), *text.bound(str)])
        except Unplaced as error:
            yield sql.problem(span, str(error))
        yield from _calls(sql, query)
        yield from habits(sql, query, columns)
        yield from clashes(sql.source, query, sql.variables, columns.get)


def _outermost(query: exp.Query) -> Iterator[exp.Select]:
    """The SELECTs that give the result its columns; the first one names them."""
    if isinstance(query, exp.Select):
        yield query
    elif isinstance(query, exp.SetOperation):
        for side in (query.left, query.right):
            if isinstance(side, exp.Query):
                yield from _outermost(side)
    elif isinstance(query, exp.Subquery):
        yield from _outermost(query.unnest())  # type: ignore[arg-type]


def _is_star(projection: exp.Expr) -> bool:
    """Whether it is `*` or `table.*`, and not COUNT(*)."""
    return isinstance(projection, exp.Star) or (isinstance(projection, exp.Column) and projection.is_star)


def _calls(sql: SqlDataset, query: exp.Query) -> Iterator[Problem]:
    """Functions whose value is not a matter of the inputs."""
    for node in query.walk():
        name = ""
        if isinstance(node, exp.Anonymous):
            name = node.name.upper()
        elif isinstance(node, exp.Func):
            name = node.sql_name().upper()
        elif isinstance(node, exp.Column) and not node.table and node.name.upper() in _CLOCKS:
            name = node.name.upper() if variable_of(node, sql.variables) is None else ""
        takes = isinstance(node, exp.Func) and any(each is not None for each in node.args.values() if each != [])
        if name == "UNIX_TIMESTAMP" and takes:
            continue
        if name in _CLOCKS and Allowed.CLOCK not in sql.allows:
            yield sql.problem(
                called(sql, node, name),
                f"{name} depends on when it runs, so that a rerun gives other rows; take a variable of the scope "
                "(the end of its window is t_end), or write ALLOW CLOCK.",
            )
        elif name in _RANDOM and Allowed.RANDOM not in sql.allows:
            yield sql.problem(
                called(sql, node, name), f"{name} gives other values in every run; take it out, or write ALLOW RANDOM."
            )


def declared_problems(sql: SqlDataset) -> Iterator[Problem]:
    """Declared columns that the query does not have, and the other way round."""
    if sql.query is None or not sql.columns:
        return
    first = next(_outermost(sql.query), None)
    if first is None or any(map(_is_star, first.expressions)):
        return
    given = {each.output_name.lower(): each for each in first.expressions if each.output_name}
    declared = {column.name.lower(): column for column in sql.columns}
    for name, column in declared.items():
        if name not in given:
            yield sql.problem(column.span, f"the query has no column {column.name}.{nearest(name, given)}")
    partitions = {column.name.lower() for column in sql.partition_columns}
    for name, projection in given.items():
        if name in partitions:
            yield sql.problem(
                sql.span_at(projection),
                f"{name} is a partition column: its value is INSERT's, so leave it out of the query.",
            )
        elif name not in declared:
            remedy = nearest(name, declared) or " Declare it, or leave it out."
            yield sql.problem(
                sql.span_at(projection),
                f"{name} is not among the declared columns.{remedy}",
            )


def partition_problems(sql: SqlDataset, inferred: Sequence[Output]) -> Iterator[Problem]:
    """Columns of a query that are the dataset's partition columns, where none are declared."""
    partitions = {column.name.lower() for column in sql.partition_columns}
    first = next(_outermost(sql.query), None) if sql.query is not None else None
    for output in inferred:
        if first is None or output.name.lower() not in partitions:
            continue
        named = [each for each in first.expressions if each.output_name.lower() == output.name.lower()]
        star = next((each for each in first.expressions if _is_star(each)), None)
        node = named[0] if named else star
        remedy = "leave it out of the query" if named else f"write * EXCEPT ({output.name})"
        yield sql.problem(
            sql.span_at(node) if node is not None and span_of(node) else sql.span_of("AS"),
            f"{output.name} is a partition column: its value is INSERT's, so {remedy}.",
        )


def expectation_problems(sql: SqlDataset, columns: Sequence[str]) -> Iterator[Problem]:
    """Names in EXPECT that are no column of the dataset, as far as the text tells."""
    known = [*columns, *(column.name for column in sql.partition_columns)]
    lowered = {name.lower() for name in known}
    for each in sql.expectations:
        if each.expression.find(exp.Lambda, exp.Query):
            continue
        for column in each.expression.find_all(exp.Column):
            if not column.table and isinstance(column.this, exp.Identifier) and column.name.lower() not in lowered:
                remedy = nearest(column.name, known) or f" It has {some(known)}."
                yield sql.problem(span_of(column) or each.span, f"{sql.name} has no column {column.name}.{remedy}")


def type_problems(sql: SqlDataset, inferred: Sequence[Output]) -> Iterator[Problem]:
    """Declared types that the query's own do not fit without loss."""
    found = {each.name.lower(): each for each in inferred if each.verified}
    for column in sql.columns:
        output = found.get(column.name.lower())
        if output is None or output.type == "void":
            continue
        kind = output.type.upper()
        if not fits(kind, column.type):
            yield sql.problem(
                column.span,
                f"{column.name} is declared {column.type}, but the query gives {kind}; declare {kind}, or write "
                f"CAST(... AS {column.type}) AS {column.name}.",
            )


def fits(kind: str, declared: str) -> bool:
    """Whether a column of one type can be stored as the declared one without loss."""
    return declared.replace(", ", ",") == kind.replace(", ", ",") or declared in _WIDENS.get(kind, ())
