"""The variables of a scope in expressions and queries: found and replaced in the tree, never in the text.

A bare name is a variable where no column of that name can be seen; where one can, the file says `:name`.

Not here: their values (partitions/scopes.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import nearest
from varve.sql.names.visible import owner_of
from varve.sql.syntax.body import span_of
from varve.sql.syntax.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from varve.sql.syntax.errors import SourceFile, Span

# The table of the columns that scope variables are, once a query is qualified.
SCOPE = "@scope"


def free_names(expression: exp.Expr) -> list[tuple[str, Span | None]]:
    """The variables that an expression outside any query names, in lower case, with their places."""
    found = []
    for node in expression.walk():
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            found.append((node.sql("spark").replace("`", "").lower(), span_of(node)))
        elif isinstance(node, exp.Placeholder) and isinstance(node.this, str):
            found.append((node.this.lower(), span_of(node)))
    return found


def substituted(expression: exp.Expr, values: Mapping[str, exp.Expr]) -> exp.Expr:
    """The expression with some of its variables replaced."""
    return bound(expression, set(values), lambda name: exp.paren(values[name].copy()))


def bound(tree: exp.Expr, variables: Collection[str], value: Callable[[str], exp.Expr]) -> exp.Expr:
    """A copy of an expression or a query in which each variable is what `value` makes of it."""

    def replaced(node: exp.Expr) -> exp.Expr:
        name = variable_of(node, variables)
        if name is None:
            return node
        found = value(name)
        # The column of a result keeps its name.
        if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
            return exp.alias_(found, name, quoted=True)
        return found

    return tree.copy().transform(replaced, copy=False)


def variable_of(node: exp.Expr, variables: Collection[str]) -> str | None:
    """The variable that a node of a tree names, bare or with a colon."""
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


def clashes(
    source: SourceFile,
    query: exp.Query,
    variables: Collection[str],
    columns_of: Callable[[str], Collection[str] | None],
) -> Iterator[Problem]:
    """Bare names that are both a variable and a column that can be seen there; unknown `:names`.

    `columns_of` gives the columns of a dataset, partition columns among them; None where it is not known.
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
                _colon(source, query, name),
                f":{name} is no variable of the scope; those are {', '.join(variables) or 'none'}."
                f"{nearest(name, variables)}",
            )


def _colon(source: SourceFile, query: exp.Query, name: str) -> Span:
    """Where a query has `:name`, for which the parser keeps no place."""
    from varve.sql.syntax.errors import Span

    begin = _start(query)
    found = re.compile(rf":\s*{re.escape(name)}\b").search(source.text, begin.start)
    return Span(*found.span()) if found else begin


def _start(query: exp.Query) -> Span:
    from varve.sql.syntax.errors import Span

    return span_of(query) or Span(0, 1)
