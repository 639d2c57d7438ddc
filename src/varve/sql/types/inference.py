"""Infers the columns of a query's result: names, types, and the dataset columns that they are computed from.

No JVM is needed, and nothing is guessed: a type that is not certain is `unknown`, and whoever needs it asks Spark's
analyzer (`varve check`; see docs/decisions/0007-sql.md). The rules are Spark's own in its ANSI mode;
tests/sql/test_inference.py compares them with the analyzer.

Not here: the type of each kind of expression (expressions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from varve.model.errors import nearest, some
from varve.sql.names.paths import resolved
from varve.sql.names.scope_variables import SCOPE, replace_variables
from varve.sql.names.trees import copied, rows_of_values
from varve.sql.types.bracketed_joins import without_brackets
from varve.sql.types.bracketed_queries import bracket_findings, within_brackets
from varve.sql.types.generators import generator_findings, open_generators
from varve.sql.types.join_using import as_spark_gives, mark_authors
from varve.sql.types.left_out import mark_left_out
from varve.sql.types.lineage import Walk
from varve.sql.types.outputs import Inferred, Output, QueryFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def qualified(query: exp.Expr, schemas: Mapping[str, Mapping[str, str]], variables: Mapping[str, str]) -> Inferred:
    """Infer the columns of the result of a query.

    Args:
        query: the query as it is written.
        schemas: for each dataset that the query may read, the Spark types of its columns, including partition columns.
        variables: the Spark types of the scope's variables.
    """
    types = {name.lower(): kind.lower() for name, kind in variables.items()}
    lowered = {
        name.lower(): {column.lower(): kind for column, kind in schema.items()} for name, schema in schemas.items()
    }
    tree = replace_variables(query, set(types), lambda name: exp.column(name, SCOPE))
    findings = list(bracket_findings(tree))
    tree = resolved(within_brackets(tree), lowered.get)
    _name_values(tree)
    open_generators(tree)
    has_using = mark_authors(tree)
    mark_left_out(tree)
    findings += [*_name_findings(tree, lowered), *generator_findings(tree)]
    if findings:
        return Inferred(tree, (), (), tuple(findings))
    nested: dict[str, dict[str, dict[str, str]]] = {}
    for name, columns in lowered.items():
        db, _, table = name.partition(".")
        nested.setdefault(db, {})[table] = columns
    schema = MappingSchema(nested, dialect="spark", normalize=False)  # type: ignore[arg-type]
    while (result := _qualified(tree, schema)) is None or isinstance(result, QueryFinding):
        finding = result or QueryFinding("its columns cannot be told.", query)
        unknown = finding.node if isinstance(finding.node, exp.Column) else None
        column_names = [column for columns in lowered.values() for column in columns]
        if unknown is None:
            return Inferred(tree, (), (), (*findings, finding))
        # sqlglot stops at the first unknown column: replace it by NULL, to report the next one too.
        near = nearest(unknown.name, [*column_names, *types])
        names = some(dict.fromkeys(column_names), limit=8)
        listed = near or (f" What is read here has {names}." if names else "")
        findings.append(QueryFinding(f"{finding.message}{listed}", unknown))
        same = [column for column in tree.find_all(exp.Column) if column == unknown]
        for unknown_column in same:
            unknown_column.replace(
                exp.alias_(exp.null(), unknown_column.name)
                if isinstance(unknown_column.parent, exp.Select)
                else exp.null()
            )
    tree = without_brackets(as_spark_gives(result) if has_using else result)
    if findings:
        return Inferred(tree, (), (), tuple(findings))
    walk = Walk(lowered, types)
    outputs = tuple(Output(column.name, *column.cell, column.copy_of) for column in walk.query(tree, {}, {}))
    return Inferred(tree, outputs, tuple(walk.uses), (*_unaliased(query), *walk.findings))


def _name_values(tree: exp.Expr) -> None:
    """Give the columns of inline tables the names that Spark gives them, where the query does not: col1, col2 ...

    The one of RANGE is `id`. Of a source whose columns are not known, nothing is concluded for those beside it.
    """
    for table in tree.find_all(exp.Table):
        alias = table.args.get("alias") or exp.TableAlias()
        if isinstance(table.this, exp.Anonymous) and table.this.name.upper() == "RANGE" and not alias.columns:
            alias.set("columns", [exp.to_identifier("id")])
            table.set("alias", alias)
    for node in tree.find_all(exp.Values):
        alias = node.args.get("alias") or exp.TableAlias()
        if isinstance(node.parent, exp.From | exp.Join) and isinstance(alias, exp.TableAlias) and not alias.columns:
            width = max(map(len, rows_of_values(node)))
            alias.set("columns", [exp.to_identifier(f"col{place}") for place in range(1, width + 1)])
            node.set("alias", alias)


def _qualified(tree: exp.Expr, schema: MappingSchema) -> exp.Expr | QueryFinding | None:
    """Return the tree with every column qualified, or the first problem that sqlglot reports."""
    try:
        return qualify(
            copied(tree),
            schema=schema,
            dialect="spark",
            quote_identifiers=False,
            identify=False,
            validate_qualify_columns=False,
        )
    except SqlglotError as error:
        message = str(error).split("\n", 1)[0]
        name = message.removeprefix("Unknown column: ")
        for column in tree.find_all(exp.Column):
            if name != message and column.table and column.name.lower() == name.lower():
                if isinstance(column.this, exp.Star):
                    text = f"{column.sql('spark')} stands in a function; write * there, or name the columns."
                    return QueryFinding(text, column)
                return QueryFinding(f"unknown column {column.sql('spark')}.", column)
        return QueryFinding(message, tree)


def _name_findings(tree: exp.Expr, schemas: Mapping[str, Mapping[str, str]]) -> Iterator[QueryFinding]:
    for table in tree.find_all(exp.Table):
        name = f"{table.db}.{table.name}".lower()
        if table.db and name not in schemas:
            yield QueryFinding(f"unknown dataset {name}.{nearest(name, schemas)}", table)
        alias = table.args.get("alias")
        if table.db and isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
            yield QueryFinding(
                f"{name} cannot have its columns renamed by an alias; write (SELECT ... AS ...) instead.", table
            )
    for join in tree.find_all(exp.Join):
        if join.method.upper() == "NATURAL":
            yield QueryFinding(
                "NATURAL JOIN follows the columns of two datasets as they change; write USING (...).", join
            )


def _unaliased(query: exp.Expr) -> Iterator[QueryFinding]:
    """Yield the result's columns that have no name: the name that Spark derives from an expression is no contract."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.left if isinstance(query, exp.SetOperation) else query.this
    for projection in query.selects if isinstance(query, exp.Select) else ():
        column = isinstance(projection, exp.Star) or (isinstance(projection, exp.Column) and projection.is_star)
        named = projection.alias_or_name not in {"", "*"} or isinstance(projection, exp.Aliases)
        if not column and not named:
            yield QueryFinding("this column has no name; write AS and one behind it.", projection)
