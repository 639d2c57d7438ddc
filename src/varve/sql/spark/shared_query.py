"""Decides which queries are computed for many scopes in one job, and in which of two forms.

Both forms consist of constructs that tests/sql/test_execute.py compares with a query for each scope. A query with other
constructs runs scope by scope: slower, but never with other rows.

Not here: the forms of the query (scope_join.py, execute.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.scope_variables import variable_of
from varve.sql.pushdown.grouping import is_aggregate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

# Clauses that choose rows by looking at all of them, or that leave no place for another table.
_REFUSED = ("limit", "offset", "connect", "match", "sample", "windows", "sort", "cluster", "distribute", "pivots",
            "kind", "into", "settings", "format")  # fmt: skip


def no_lateral(query: exp.Query, variables: Collection[str]) -> str:  # noqa: PLR0911 - one for each construct
    """Return why the scopes cannot be joined with a query as a whole by LATERAL; empty where they can."""
    if any((join.side or "").upper() == "FULL" for join in query.find_all(exp.Join)):
        # Spark 4.3 decorrelates the ON of a FULL JOIN into a condition on its rows, and loses some without an error.
        return "FULL JOIN"
    if any(with_.recursive for with_ in query.find_all(exp.With)):
        return "WITH RECURSIVE"
    if query.find(exp.Pivot):
        return "PIVOT or UNPIVOT"
    if query.find(exp.TableSample):
        return "TABLESAMPLE"
    if query.find(exp.QueryTransform, exp.MatchRecognize):
        return "TRANSFORM"
    # A struct takes its field names from the expressions in it, and the variable has another name there.
    fields = [expression for node in query.find_all(exp.Struct) for expression in node.expressions]
    if any(variable_of(field_, variables) or _is_named_after(field_, variables) for field_ in fields):
        return "a variable as a field of STRUCT"
    # In a function, a star would include the columns of the scopes.
    if not all(_is_result(star) or _is_counted(star) for star in query.find_all(exp.Star)):
        return "* in a function"
    return ""


def no_join(query: exp.Query, variables: Collection[str]) -> str:
    """Return why the scopes cannot be a table of the outermost SELECT; empty where the tree shows no reason."""
    if reason := no_lateral(query, variables):
        return reason
    with_ = [
        name
        for node in query.find_all(exp.With)
        for name in (expression.alias.lower() for expression in node.expressions)
    ]
    if len(with_) != len(set(with_)):
        return "two CTEs of one name"
    selects = selects_of(query)
    if selects is None:
        return "its set operations"
    return next((why for select in selects if (why := _no_select(select, select is query, variables))), "")


def selects_of(query: exp.Expr) -> list[exp.Select] | None:
    """Return the SELECTs that produce the rows of a query, in text order; None where something limits them."""
    if isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query):
        # With an alias, or anything behind the parentheses, it is a derived table.
        return None if any(value for name, value in query.args.items() if name != "this") else selects_of(query.this)
    if isinstance(query, exp.Select):
        return [query]
    if not isinstance(query, exp.SetOperation) or any(query.args.get(clause) for clause in (*_REFUSED, "by_name")):
        return None
    if query.args.get("with_") and query.parent is not None:
        return None
    left, right = selects_of(query.left), selects_of(query.right)
    return None if left is None or right is None else [*left, *right]


def is_plain(source: exp.Expr) -> bool:
    """Whether a source is a table, an aliased query or a LATERAL query, without joins, pivots or samples."""
    if any(source.args.get(clause) for clause in ("joins", "pivots", "sample", "laterals")):
        return False
    if isinstance(source, exp.Subquery | exp.Lateral):
        return isinstance(source.this, exp.Query | exp.Subquery)
    return isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)


def _no_select(select: exp.Select, is_whole: bool, variables: Collection[str]) -> str:  # noqa: FBT001
    joins: Sequence[exp.Join] = select.args.get("joins") or ()
    if refused := next((clause for clause in _REFUSED if select.args.get(clause)), ""):
        return refused.upper()
    if select.args.get("with_") and not is_whole:
        return "a WITH within"
    if not all(map(_keeps_the_left, joins)):
        return "RIGHT JOIN"
    return _no_group(select, variables)


def _no_group(select: exp.Select, variables: Collection[str]) -> str:
    """Return why the grouping of a SELECT cannot take the scopes' keys; empty where it can.

    An aggregate without GROUP BY returns a row even for no input, which a join does not; and `GROUP BY 1` counts
    columns of the result.
    """
    group = select.args.get("group")
    if group is None:
        if select.args.get("having") is not None or any(map(is_aggregate, select.expressions)):
            return "an aggregate without GROUP BY"
        return ""
    if any(group.args.get(kind) for kind in ("cube", "rollup", "grouping_sets", "totals", "all")):
        return "GROUP BY of several kinds"
    for expression in group.expressions:
        if isinstance(expression, exp.Rollup | exp.Cube | exp.GroupingSets):
            # The keys and variables stand before them, so they are part of every grouping set.
            if not all(_has_column(element, select, variables) for element in _elements(expression)):
                return "ROLLUP, CUBE or GROUPING SETS of what is the same in the whole scope"
            continue
        if not expression.find(exp.Column, exp.Placeholder):
            # GROUP BY 1 counts the columns of the result; GROUP BY () is one group, even of no rows.
            return "GROUP BY of no column"
    return "" if group.expressions else "GROUP BY of no column"


def _elements(group: exp.Expr) -> Iterator[exp.Expr]:
    """Yield what ROLLUP, CUBE and GROUPING SETS group by."""
    for element in group.expressions:
        if isinstance(element, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
            yield from _elements(element)
        else:
            yield element.unnest()


def _has_column(element: exp.Expr, select: exp.Select, variables: Collection[str]) -> bool:
    """Whether a grouping element, or what it is the alias of, depends on a column and not on the scope alone.

    What is the same in the whole scope is NULL in the rows of the sets without it, but a variable is part of each.
    """
    aliases = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    columns = [
        column for column in element.find_all(exp.Column)
        if variable_of(column, variables) is None and not isinstance(column.this, exp.Star)
    ]  # fmt: skip
    return bool(columns) and all(
        column.table or (meant := aliases.get(column.name.lower())) is None
        or any(variable_of(inner, variables) is None for inner in meant.find_all(exp.Column))
        for column in columns
    )  # fmt: skip


def _keeps_the_left(join: exp.Join) -> bool:
    return (join.side or "").upper() not in {"RIGHT", "FULL"} and not join.method


def _is_named_after(field: exp.Expr, variables: Collection[str]) -> bool:
    inner = field.expression if isinstance(field, exp.PropertyEQ) else field.unalias()
    return inner is not None and variable_of(inner, variables) is not None


def _is_result(star: exp.Star) -> bool:
    """Whether a star is `*` or `table.*` in the column list of a SELECT."""
    node = star.parent if isinstance(star.parent, exp.Column) else star
    return isinstance(node, exp.Expr) and isinstance(node.parent, exp.Select) and node.arg_key == "expressions"


def _is_counted(star: exp.Star) -> bool:
    return isinstance(star.parent, exp.Count) and star.parent.this is star and not star.parent.expressions
