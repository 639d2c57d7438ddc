"""The variables of a scope in expressions and queries: found and replaced in the tree, never in the text.

A bare name is a variable where no column of that name can be seen; where one can, the file says `:name`.

Not here: their values (scopes.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from pipeline_defs.sql.body import span_of
from pipeline_defs.sql.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from sqlglot.optimizer.scope import Scope

    from pipeline_defs.sql.errors import Source, Span


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
    elif isinstance(node, exp.Column) and not node.table and isinstance(node.this, exp.Identifier):
        name = node.name.lower()
    else:
        return None
    return name if name in variables else None


def clashes(
    source: Source,
    query: exp.Query,
    variables: Collection[str],
    columns_of: Callable[[str], Collection[str] | None],
) -> Iterator[Problem]:
    """Bare names that are both a variable and a column that can be seen there; unknown `:names`.

    `columns_of` gives the columns of a dataset, partition columns among them; None where it is not known.
    """
    for scope in traverse_scope(query):
        for column in scope.columns:
            name = variable_of(column, variables)
            if name is None or isinstance(column, exp.Placeholder):
                continue
            owner = _seen(scope, name, columns_of)
            if owner is not None:
                yield Problem(
                    source, span_of(column) or _start(query),
                    f"{name} is a variable of the scope and a column of {owner}; write :{name} for the variable, or "
                    f"{owner}.{name} for the column.",
                )  # fmt: skip
    for placeholder in query.find_all(exp.Placeholder):
        if variable_of(placeholder, variables) is None:
            yield Problem(
                source, _start(query),
                f":{placeholder.this} is no variable of the scope; those are {', '.join(variables) or 'none'}.",
            )  # fmt: skip


def _seen(scope: Scope, name: str, columns_of: Callable[[str], Collection[str] | None]) -> str | None:
    """The source that has a column of this name, in this query or one around it."""
    at: Scope | None = scope
    while at is not None:
        for alias, source in at.sources.items():
            if name in _columns(source, columns_of):
                return str(alias)
        at = at.parent
    return None


def _columns(source: exp.Expr | Scope, columns_of: Callable[[str], Collection[str] | None]) -> set[str]:
    if isinstance(source, exp.Table):
        found = columns_of(f"{source.db}.{source.name}".lower())
        return {each.lower() for each in found or ()}
    expression = getattr(source, "expression", None)
    if not isinstance(expression, exp.Query):
        return set()
    names = {each.lower() for each in expression.named_selects if each != "*"}
    if any(each.is_star for each in expression.selects):
        for inner in getattr(source, "sources", {}).values():
            names |= _columns(inner, columns_of)
    return names


def _start(query: exp.Query) -> Span:
    from pipeline_defs.sql.errors import Span

    return span_of(query) or Span(0, 1)
