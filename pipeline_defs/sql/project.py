"""All SQL files of a folder as the datasets of a project, checked together; every problem of every file at once.

Nothing is started and nothing is imported: a code location loads through here.

Not here: Dagster (pipeline_defs/sql_assets.py) and Spark.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from sqlglot import exp

from pipeline_defs.model.dataset import Dataset
from pipeline_defs.model.errors import VarveError
from pipeline_defs.model.policy import OnUpstreamChange as PolicyOnChange
from pipeline_defs.model.policy import Policy
from pipeline_defs.model.schema import Column, ColumnType, Kind, Schema
from pipeline_defs.sql.binding import clashes, variable_of
from pipeline_defs.sql.body import span_of, tables_of
from pipeline_defs.sql.errors import Problem, Source, Span, SqlErrors, nearest
from pipeline_defs.sql.header import parse
from pipeline_defs.sql.planned import Plan, plan
from pipeline_defs.sql.scopes import Scopes, scopes_of
from pipeline_defs.sql.source import Allowed, Body, ColumnDefinition, OnUpstreamChange, SqlDataset, TimeSeries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pipeline_defs.sql.inference import Output
    from pipeline_defs.sql.typing import ColumnName

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


@dataclass(frozen=True)
class SqlAsset:
    """One file, understood: what it declares, its scopes, the dataset that it is and those that it reads."""

    sql: SqlDataset
    scopes: Scopes
    dataset: Dataset
    reads: tuple[str, ...]
    plan: Plan

    @property
    def lineage(self) -> dict[str, tuple[ColumnName, ...]]:
        """For each column of a SELECT the columns of datasets that its values are made of."""
        if self.sql.query is None:
            return {}
        return {each.name: tuple(sorted(each.sources)) for each in self.plan.inferred[0].outputs}

    @property
    def code_version(self) -> str:
        """A hash of all that decides which rows come out; comments, owners and layout do not."""
        sql = self.sql
        parts = [
            repr(sql.columns and [(each.name, each.type) for each in sql.columns]),
            repr([(each.name, each.type) for each in sql.partition_columns]),
            *(f"LET {each.name} = {_text(each.expression)}" for each in sql.lets),
            *(f"INSERT {each.name} = {_text(each.expression)}" for each in sql.inserts),
            repr([[each.variable, getattr(each, "tiling", None)] for each in sql.generators]),
            sql.body,
            sql.entry,
            repr(sorted(sql.options)),
            *(_text(query) for query in sql.queries),
            _foreign_text(sql),
        ]
        return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=8).hexdigest()


def load(folder: Path, others: Mapping[str, Dataset] | None = None) -> dict[str, SqlAsset]:
    """The datasets of all `.sql` files in a folder, each after those it reads.

    `others` are the datasets that are declared in Python. Raises SqlErrors with everything that is wrong.
    """
    root = folder.parent
    sources = [
        Source(str(path.relative_to(root)), path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.sql"))
    ]
    return compiled(sources, others or {})


def compiled(sources: Iterable[Source], others: Mapping[str, Dataset]) -> dict[str, SqlAsset]:
    """The datasets of these files. See `load`."""
    problems: list[Problem] = []
    parsed = _parsed(sources, others, problems)
    scopes: dict[str, Scopes] = {}
    for sql in parsed.values():
        try:
            scopes[sql.name] = scopes_of(sql)
        except SqlErrors as error:
            problems += error.problems
    known = dict(others)
    assets: dict[str, SqlAsset] = {}
    for name in _in_order(parsed, problems):
        sql = parsed[name]
        against = list(_query_problems(sql, {each.name: _names(each) for each in known.values()}))
        problems += against
        if name not in scopes:
            continue
        reads = reads_of(sql)
        queries = None
        if all(each in known for each in reads):
            queries = plan(sql.queries, scopes[name], {each: known[each] for each in reads})
            problems += [] if against else _planned_problems(sql, queries)
        try:
            known[name] = _dataset(sql, scopes[name], queries)
        except SqlErrors as error:
            problems += error.problems
            continue
        if queries is not None:
            assets[name] = SqlAsset(sql, scopes[name], known[name], reads, queries)
    if problems:
        raise SqlErrors(problems)
    return assets


def _parsed(sources: Iterable[Source], others: Mapping[str, Dataset], problems: list[Problem]) -> dict[str, SqlDataset]:
    """The files by the name of their dataset; what is wrong is added to `problems`."""
    parsed: dict[str, SqlDataset] = {}
    broken = False
    for source in sources:
        try:
            found = parse(source)
        except SqlErrors as error:
            problems += error.problems
            broken = True
            continue
        if other := parsed.get(found.name):
            problems.append(found.problem(found.name_span, f"{found.name} is also declared in {other.source.path}."))
        elif found.name in others:
            problems.append(found.problem(found.name_span, f"{found.name} is also declared in Python."))
        else:
            parsed[found.name] = found
    # A file that cannot be read declares something too: what reads it is not blamed.
    if not broken:
        for found in parsed.values():
            problems += _unknown(found, [*parsed, *others])
    return parsed


def reads_of(sql: SqlDataset) -> tuple[str, ...]:
    """The datasets that a file reads, each once, in the order in which it names them."""
    found = [f"{table.db}.{table.name}".lower() for query in sql.queries for table in tables_of(query)]
    return tuple(dict.fromkeys(found))


def _names(dataset: Dataset) -> tuple[str, ...]:
    return (*dataset.schema.names, *dataset.partitioning.names)


def _unknown(sql: SqlDataset, known: Sequence[str]) -> Iterator[Problem]:
    for query in sql.queries:
        for table in tables_of(query):
            name = f"{table.db}.{table.name}".lower()
            if not table.db:
                tables = {each.partition(".")[2]: each for each in known}
                wanted = tables.get(table.name.lower())
                hint = f" Did you mean {wanted}?" if wanted else nearest(table.name, known)
                yield sql.problem(sql.span_at(table), f"{table.name} has no database; name it db.table.{hint}")
            elif name not in known:
                yield sql.problem(
                    span_of(table.this) or sql.span_at(table), f"nobody declares {name}.{nearest(name, known)}"
                )


def _in_order(parsed: Mapping[str, SqlDataset], problems: list[Problem]) -> list[str]:
    graph = {name: [read for read in reads_of(sql) if read in parsed] for name, sql in parsed.items()}
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        path = error.args[1]
        sql = parsed[path[0]]
        problems.append(
            sql.problem(sql.name_span, f"datasets read each other in a circle: {' <- '.join(path)}; one must not.")
        )
        # Nothing is made of them, but whatever else is wrong in them is told too.
        return list(parsed)


def _planned_problems(sql: SqlDataset, queries: Plan) -> Iterator[Problem]:
    """Unknown columns, and scans of all partitions that the file does not allow."""
    for finding in queries.findings:
        yield sql.problem(sql.span_at(finding.node), finding.message)
    if queries.findings or Allowed.FULL_SCAN in sql.allows:
        return
    for found in queries.found:
        for scan in found.unrestricted:
            yield sql.problem(
                sql.span_at(scan.table),
                f"nothing says which partitions of {scan.dataset} are read; compare {', '.join(scan.columns)} with a "
                "variable of the scope, or write ALLOW FULL SCAN to read all of them.",
            )


def _query_problems(sql: SqlDataset, columns: Mapping[str, tuple[str, ...]]) -> Iterator[Problem]:
    for query in sql.queries:
        yield from _calls(sql, query)
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
                _called(sql, node, name),
                f"{name} depends on when it runs, so that a rerun gives other rows; take a variable of the scope "
                "(the end of its window is t_end), or write ALLOW CLOCK.",
            )
        elif name in _RANDOM and Allowed.RANDOM not in sql.allows:
            yield sql.problem(
                _called(sql, node, name), f"{name} gives other values in every run; take it out, or write ALLOW RANDOM."
            )


def _called(sql: SqlDataset, node: exp.Expr, name: str) -> Span:
    """Where a call without arguments stands: the parser keeps no place for it."""
    if found := span_of(node):
        return found
    within = sql.span_of("AS") if sql.query is not None else Span(0, len(sql.source.text))
    word = re.compile(rf"\b{name}\b", re.IGNORECASE).search(sql.source.text, within.start)
    return Span(word.start(), word.end()) if word else within


def _dataset(sql: SqlDataset, scopes: Scopes, queries: Plan | None) -> Dataset:
    problems = list(_foreign(sql))
    columns = []
    inferred = queries.inferred[0].outputs if sql.query is not None and queries and not queries.findings else ()
    declared = sql.columns or tuple(
        ColumnDefinition(each.name, each.type.upper(), sql.name_span, nullable=each.nullable) for each in inferred
    )
    problems += _types(sql, inferred)
    for column in declared:
        try:
            kind = ColumnType(column.type)
        except VarveError:
            problems.append(
                sql.problem(
                    column.span,
                    f"no store has columns of type {column.type} yet; take one of {', '.join(Kind)}.",
                )
            )
            continue
        columns.append(Column(column.name, kind, column.comment, column.nullable))
    if not declared and (queries is None or not queries.findings):
        problems.append(
            sql.problem(
                sql.name_span, f"declare the columns: CREATE DATASET {sql.name} (column TYPE COMMENT 'what it means')."
            )
        )
    problems += _declared(sql)
    if problems:
        raise SqlErrors(problems)
    try:
        return Dataset(
            name=sql.name,
            partitioning=scopes.partitioning,
            schema=Schema(tuple(columns)),
            store=sql.store,
            comment=sql.comment,
            landing=sql.body is Body.EXTERNAL and (sql.option("source") or "landing") == "landing",
            owners=sql.owners,
            policy=_policy(sql),
        )
    except VarveError as error:
        raise SqlErrors([sql.problem(sql.name_span, str(error))]) from None


def _policy(sql: SqlDataset) -> Policy:
    retention = next((each.retention for each in sql.generators if isinstance(each, TimeSeries)), None)
    held = sql.on_upstream_change is OnUpstreamChange.IGNORE
    return Policy(
        on_upstream_change=PolicyOnChange.HOLD if held else PolicyOnChange.REBUILD,
        refresh_last=sql.refresh_last,
        retention=retention,
        # A query of nothing but its scope can be computed as soon as its window is over.
        by_itself=sql.body in {Body.SELECT, Body.PYTHON, Body.SPARK} and not reads_of(sql),
    )


def _declared(sql: SqlDataset) -> Iterator[Problem]:
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
            yield sql.problem(
                sql.span_at(projection), f"{name} is not among the declared columns.{nearest(name, declared)}"
            )


def _types(sql: SqlDataset, inferred: Sequence[Output]) -> Iterator[Problem]:
    """Declared types that the query's own do not fit without loss."""
    found = {each.name.lower(): each for each in inferred if each.verified}
    for column in sql.columns:
        output = found.get(column.name.lower())
        if output is None or output.type == "void":
            continue
        kind = output.type.upper()
        if kind != column.type.replace(", ", ",") and kind != column.type and column.type not in _WIDENS.get(kind, ()):
            yield sql.problem(
                column.span,
                f"{column.name} is declared {column.type}, but the query gives {kind}; declare {kind}, or write "
                f"CAST(... AS {column.type}) AS {column.name}.",
            )


def _foreign(sql: SqlDataset) -> Iterator[Problem]:
    """A Python function that is not there. The module is read, not imported."""
    if sql.body is Body.SPARK:
        yield sql.problem(sql.span_of("SPARK"), "SPARK is not run yet; call the program from a function by PYTHON.")
    if sql.body is Body.EXTERNAL:
        yield from _external(sql)
    if sql.body is not Body.PYTHON:
        return
    module, _, function = sql.entry.partition(":")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        yield sql.problem(sql.span_of("entry"), f"there is no module {module}; put it where Python finds it.")
        return
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    names = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    if function not in names:
        yield sql.problem(
            sql.span_of("entry"), f"module {module} has no function {function}.{nearest(function, names)}"
        )


def _external(sql: SqlDataset) -> Iterator[Problem]:
    source = sql.option("source") or "landing"
    if source not in {"landing", "table"}:
        yield sql.problem(sql.span_of("OPTIONS"), f"source '{source}' is unknown; it is 'landing' or 'table'.")
    if source == "table" and not sql.option("table"):
        yield sql.problem(sql.span_of("OPTIONS"), "which table? Write OPTIONS (source = 'table', table = 'db.name').")


def _foreign_text(sql: SqlDataset) -> str:
    if sql.body is not Body.PYTHON:
        return ""
    spec = importlib.util.find_spec(sql.entry.partition(":")[0])
    return Path(spec.origin).read_text(encoding="utf-8") if spec is not None and spec.origin else ""


def _text(tree: exp.Expr) -> str:
    return tree.sql("spark", comments=False, normalize=True)
