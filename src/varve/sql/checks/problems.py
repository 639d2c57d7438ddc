"""The problems of one file beyond its syntax: names, full scans, columns and types that do not fit.

Not here: its scopes (partitions/scopes.py), the code that it names (code/foreign.py), its EXPECT (expectations.py),
clocks and random values (volatile.py), and problems between files (sql_project.py).
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import nearest, some
from varve.sql.checks.habits import dialect_problems
from varve.sql.checks.volatile import named_day_problems, volatile_problems
from varve.sql.names.generators import names_of, result_selects
from varve.sql.names.scope_variables import name_clashes
from varve.sql.names.visible import reached_tables
from varve.sql.names.written_query import UnplacedName, written_query
from varve.sql.syntax.body import reads_of, span_of
from varve.sql.syntax.sql_file import Allowed, SqlDataset
from varve.sql.syntax.type_names import declared_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from varve.sql.partitions.dependencies import Inference
    from varve.sql.pushdown.scans import Dependencies
    from varve.sql.syntax.errors import Problem, Span
    from varve.sql.types.outputs import Output

# The types to which a store widens a type without loss.
_WIDENS = {
    "TINYINT": ("INT", "BIGINT", "DOUBLE"),
    "SMALLINT": ("INT", "BIGINT", "DOUBLE"),
    "INT": ("BIGINT", "DOUBLE"),
    "FLOAT": ("DOUBLE",),
}


def plan_problems(
    sql: SqlDataset, queries: Inference, dependencies: Sequence[Dependencies], unanswered: Collection[str] = ()
) -> Iterator[Problem]:
    """Yield a problem for each unknown column, and for each full scan that the file does not allow.

    `unanswered`: calls in the conditions, as they are written, that Spark was not asked for yet.
    """
    for finding in queries.findings:
        yield sql.problem(sql.span_at(finding.node), finding.message)
    if queries.findings:
        return
    for query in queries.queries:
        yield from named_day_problems(sql, query.tree)
    read = {scan.dataset for query_scans in dependencies for scan in query_scans.scans}
    for name, span in sql.full_scans:
        if name not in read:
            yield sql.problem(span, f"{name} is not read, so that there is nothing to allow.{nearest(name, read)}")
    yield from _unplanned_problems(sql, read)
    allowed = read if Allowed.FULL_SCAN in sql.allows else {name for name, _ in sql.full_scans}
    for query_scans in dependencies:
        for scan in query_scans.unrestricted:
            if scan.dataset not in allowed:
                value = "a variable of the scope" if sql.generators else "a value"
                ask = (
                    " Or ask Spark what the functions in its conditions give: run `varve check`." if unanswered else ""
                )
                yield sql.problem(
                    sql.span_at(scan.table),
                    f"nothing says which partitions of {scan.dataset} are read; compare {', '.join(scan.columns)} with "
                    f"{value}, or write ALLOW FULL SCAN OF {scan.dataset} to read all of them.{ask}",
                )


def _unplanned_problems(sql: SqlDataset, read: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each dataset that a query reads where the planner found no scan of it: it would see no rows.

    `read` has the datasets of all scans. What stands in a CTE that nothing refers to is read by nobody.
    """
    told: set[str] = set()
    for table in (table for query in sql.queries for table in reached_tables(query)):
        name = f"{table.db}.{table.name}".lower()
        if name not in read and name not in told:
            told.add(name)
            yield sql.problem(
                sql.span_at(table),
                f"which partitions of {name} are read cannot be told from this place of the query; read it in a CTE or "
                "a join of its own.",
            )


def wait_problems(sql: SqlDataset) -> Iterator[Problem]:
    """Yield a problem for each wait for, and each REBUILD WITHIN of, what the queries do not read."""
    reads = reads_of(sql.queries)
    if sql.queries and sql.waits and not reads:
        yield sql.problem(sql.span_of("WAIT"), "WAIT is for what a query reads, and this one reads no dataset.")
        return
    yield from _within_problems(sql, reads)
    for wait in sql.waits if sql.queries else ():
        for name, span in wait.datasets:
            if name not in reads:
                yield sql.problem(
                    span, f"{name} is not read, so that nothing waits for it.{nearest(name, reads) or _reads(reads)}"
                )


def _within_problems(sql: SqlDataset, reads: Sequence[str]) -> Iterator[Problem]:
    for name, span in sql.rebuild_within_of if sql.queries else ():
        if name not in reads:
            yield sql.problem(
                span, f"{name} is not read, so that no change of it is followed.{nearest(name, reads) or _reads(reads)}"
            )


def _reads(names: Sequence[str]) -> str:
    return f" It reads {some(names)}."


def query_problems(sql: SqlDataset, columns: Mapping[str, tuple[str, ...]]) -> Iterator[Problem]:
    """Yield a problem for each function that a query must not call, and for ambiguous names; `columns` by dataset."""
    for query, span in zip(sql.queries, sql.query_spans, strict=True):
        try:
            text = written_query(sql, query, columns.get)
            assert text.pieces([*text.inputs(), *text.bound(str)])
        except UnplacedName as error:
            yield sql.problem(span, str(error))
        yield from volatile_problems(sql, query)
        yield from dialect_problems(sql, query, columns)
        yield from name_clashes(sql.source, query, sql.variables, columns.get)


def _is_star(projection: exp.Expr) -> bool:
    """Whether a projection is `*` or `table.*`, and not COUNT(*)."""
    return isinstance(projection, exp.Star) or (isinstance(projection, exp.Column) and projection.is_star)


def declared_problems(sql: SqlDataset, reported: Collection[Span] = ()) -> Iterator[Problem]:
    """Yield a problem for each declared column that the query does not have, and the other way round.

    Nothing of a column that is misspelt in the query: `reported` is where a problem was found already.
    """
    if sql.query is None or not sql.columns:
        return
    first = next(result_selects(sql.query), None)
    if first is None or any(map(_is_star, first.expressions)):
        return
    projections = {
        name.lower(): expression for expression in first.expressions for name in _output_names(expression) if name
    }
    declared = {column.name.lower(): column for column in sql.columns}
    misspelt = {
        name
        for name, projection in projections.items()
        if isinstance(projection, exp.Column) and sql.span_at(projection) in reported
    }
    missing = declared.keys() - projections.keys()
    meant = {match for name in misspelt for match in get_close_matches(name, missing, n=1)}
    for name, column in declared.items():
        if name not in projections and name not in meant:
            yield sql.problem(column.span, f"the query has no column {column.name}.{nearest(name, projections)}")
    partitions = {column.name.lower() for column in sql.partition_columns}
    for name, projection in projections.items():
        if name in partitions:
            yield sql.problem(
                sql.span_at(projection),
                f"{name} is a partition column: its value is INSERT's, so leave it out of the query.",
            )
        elif name not in declared and name not in misspelt:
            remedy = nearest(name, declared) or " Declare it, or leave it out."
            yield sql.problem(
                sql.span_at(projection),
                f"{name} is not among the declared columns.{remedy}",
            )


def _output_names(projection: exp.Expr) -> tuple[str, ...]:
    """The names of the columns that a part of a SELECT's list is; that of a field or a cast is its column's."""
    return names_of(projection) if isinstance(projection, exp.Aliases) else (projection.output_name,)


def _is_named(projection: exp.Expr, name: str) -> bool:
    return name.lower() in {own.lower() for own in _output_names(projection)}


def partition_problems(sql: SqlDataset, inferred: Sequence[Output]) -> Iterator[Problem]:
    """Yield a problem for each column of a query that is also a partition column, where no columns are declared."""
    partitions = {column.name.lower() for column in sql.partition_columns}
    first = next(result_selects(sql.query), None) if sql.query is not None else None
    for output in inferred:
        if first is None or output.name.lower() not in partitions:
            continue
        named = [expression for expression in first.expressions if _is_named(expression, output.name)]
        star = next((expression for expression in first.expressions if _is_star(expression)), None)
        node = named[0] if named else star
        remedy = "leave it out of the query" if named else f"write * EXCEPT ({output.name})"
        yield sql.problem(
            sql.span_at(node) if node is not None and span_of(node) else sql.span_of("AS"),
            f"{output.name} is a partition column: its value is INSERT's, so {remedy}.",
        )


def same_name_problems(sql: SqlDataset, inferred: Sequence[Output]) -> Iterator[Problem]:
    """Yield a problem for each column of a query that has the name of one before it: no table can have both."""
    first = next(result_selects(sql.query), None) if sql.query is not None else None
    seen: set[str] = set()
    for output in inferred:
        name = output.name.lower()
        if name in seen and first is not None and name != "*":
            named = [expression for expression in first.expressions if _is_named(expression, name)]
            star = next((expression for expression in first.expressions if _is_star(expression)), None)
            node = named[-1] if len(named) > 1 or star is None else star
            yield sql.problem(
                sql.span_at(node) if node is not None and span_of(node) else sql.span_of("AS"),
                f"two columns are called {output.name}; write AS behind one of them, with a name of its own"
                f"{f', or * EXCEPT ({output.name})' if node is star else ''}.",
            )
        seen.add(name)


def type_problems(sql: SqlDataset, inferred: Sequence[Output]) -> Iterator[Problem]:
    """Yield a problem for each declared type to which the query's own type does not convert without loss."""
    verified = {output.name.lower(): output for output in inferred if output.verified}
    for column in sql.columns:
        output = verified.get(column.name.lower())
        if output is None or output.type == "void":
            continue
        kind = declared_name(output.type)
        if not fits(kind, column.type):
            yield sql.problem(
                column.span,
                f"{column.name} is declared {column.type}, but the query gives {kind}; declare {kind}, or write "
                f"CAST(... AS {column.type}) AS {column.name}.",
            )


def fits(kind: str, declared: str) -> bool:
    """Whether a column of one type can be stored as the declared one without loss. Capitals of fields do not count."""
    same = declared.replace(", ", ",").upper() == kind.replace(", ", ",").upper()
    return same or declared in _WIDENS.get(kind, ())
