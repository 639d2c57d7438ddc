"""Finds and replaces the variables of a scope in expressions and queries: in the tree, never in the text.

A bare name is a variable where no column of that name is visible; where one is, the file must write `:name`.

Not here: their values (partitions/scopes.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import nearest
from varve.sql.names.trees import copied
from varve.sql.names.visible import owner_of
from varve.sql.syntax.body import span_of
from varve.sql.syntax.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from varve.sql.syntax.errors import SourceFile, Span

# The table of the columns that scope variables are, once a query is qualified.
SCOPE = "@scope"


def free_names(expression: exp.Expr) -> list[tuple[str, Span | None]]:
    """The variables that an expression outside any query names, in lower case, each with its place in the file."""
    names = []
    for node in expression.walk():
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            names.append((_written(node).replace("`", "").lower(), span_of(node)))
        elif isinstance(node, exp.Placeholder) and isinstance(node.this, str):
            names.append((node.this.lower(), span_of(node)))
    return names


def _written(column: exp.Column) -> str:
    return column.name if len(column.parts) == 1 else column.sql("spark")


def substitute(expression: exp.Expr, values: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return a copy of the expression with some of its variables replaced by expressions."""
    return replace_variables(expression, set(values), lambda name: exp.Paren(this=copied(values[name])))


def replace_variables(tree: exp.Expr, variables: Collection[str], value: Callable[[str], exp.Expr]) -> exp.Expr:
    """Return a copy of an expression or a query in which each variable is replaced by the result of `value(name)`."""

    def replaced(node: exp.Expr) -> exp.Expr:
        name = variable_of(node, variables)
        if name is None:
            return node
        replacement = value(name)
        if isinstance(replacement, exp.Column) and (span := span_of(node)) is not None:
            replacement.meta.update(start=span.start, end=span.end - 1)
        # A column of the result keeps its name.
        if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
            return exp.alias_(replacement, name, quoted=True)
        return replacement

    return copied(tree).transform(replaced, copy=False)


def variable_of(node: exp.Expr, variables: Collection[str]) -> str | None:
    """The variable that a node of a tree names, bare or with a colon; None where it names none."""
    if isinstance(node, exp.Placeholder) and isinstance(node.this, str):
        name = node.this.lower()
    elif (
        isinstance(node, exp.Column)
        and not node.table
        and isinstance(node.this, exp.Identifier)
        # `* EXCEPT (day)` names columns, whatever variables there are.
        and not isinstance(node.parent, exp.Star)
    ):
        name = node.name.lower()
    else:
        return None
    return name if name in variables and not node.find_ancestor(exp.Hint) else None


def name_clashes(
    source: SourceFile,
    query: exp.Query,
    variables: Collection[str],
    columns_of: Callable[[str], Collection[str] | None],
) -> Iterator[Problem]:
    """Yield a problem for each bare name that is both a variable and a visible column, and for each unknown `:name`.

    `columns_of` returns the columns of a dataset, including partition columns; None where they are unknown.
    """
    for column in query.find_all(exp.Column):
        name = variable_of(column, variables)
        if name is None:
            continue
        place = span_of(column) or _start(query)
        owner, is_told = owner_of(column, name, columns_of)
        if owner is not None:
            what = f"a column of {owner}" if is_told else f"may be a column of {owner}, whose names only the data tells"
            or_column = f", or {owner}.{name} for the column" if is_told and owner.isidentifier() else ""
            yield Problem(
                source,
                place,
                f"{name} is a variable of the scope and {what}; write :{name} for the variable{or_column}.",
            )
    for placeholder in query.find_all(exp.Placeholder):
        if variable_of(placeholder, variables) is None:
            name = str(placeholder.this)
            yield Problem(
                source,
                _placeholder_span(source, query, name),
                f":{name} is no variable of the scope; those are {', '.join(variables) or 'none'}."
                f"{nearest(name, variables)}",
            )


def _placeholder_span(source: SourceFile, query: exp.Query, name: str) -> Span:
    """The place of `:name` in the text of a query; the parser does not record it."""
    from varve.sql.syntax.errors import Span

    begin = _start(query)
    match = re.compile(rf":\s*{re.escape(name)}\b").search(source.text, begin.start)
    return Span(*match.span()) if match else begin


def _start(query: exp.Query) -> Span:
    from varve.sql.syntax.errors import Span

    return span_of(query) or Span(0, 1)
