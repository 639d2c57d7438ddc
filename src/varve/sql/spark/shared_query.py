"""Which queries are computed for many scopes in one job, and in which of its two forms.

Both forms are of constructs that tests/sql/test_execute.py has compared with a query for each scope. What
is not among them runs scope by scope: slower, never other rows.

Not here: the forms themselves (scope_join.py, execute.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.scope_variables import variable_of
from varve.sql.pushdown.grouping import is_aggregate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# They say which rows come out by looking at all of them, or have no place for another table.
_REFUSED = ("limit", "offset", "connect", "match", "sample", "windows", "sort", "cluster", "distribute", "pivots",
            "kind", "into", "settings", "format")  # fmt: skip


def no_lateral(query: exp.Query, variables: Collection[str]) -> str:  # noqa: PLR0911 - one for each construct
    """Why the scopes are not joined with a query as a whole, LATERAL; empty where they are."""
    if any((each.side or "").upper() == "FULL" for each in query.find_all(exp.Join)):
        # Spark 4.3 decorrelates the ON of a FULL JOIN into a condition on its rows, and loses some without a word.
        return "FULL JOIN"
    if any(each.recursive for each in query.find_all(exp.With)):
        return "WITH RECURSIVE"
    if query.find(exp.Pivot):
        return "PIVOT or UNPIVOT"
    if query.find(exp.TableSample):
        return "TABLESAMPLE"
    if query.find(exp.QueryTransform, exp.MatchRecognize):
        return "TRANSFORM"
    # A struct takes the names of its fields from what stands in it, and the variable is called otherwise there.
    fields = [each for node in query.find_all(exp.Struct) for each in node.expressions]
    if any(variable_of(each, variables) or _is_named_after(each, variables) for each in fields):
        return "a variable as a field of STRUCT"
    # In a function, a star is of the columns of the scopes too.
    if not all(_is_result(each) or _is_counted(each) for each in query.find_all(exp.Star)):
        return "* in a function"
    return ""


def no_join(query: exp.Query, variables: Collection[str]) -> str:
    """Why the scopes are no table of the outermost SELECT; empty where they are, as far as the tree tells."""
    if found := no_lateral(query, variables):
        return found
    with_ = [name for node in query.find_all(exp.With) for name in (each.alias.lower() for each in node.expressions)]
    if len(with_) != len(set(with_)):
        return "two CTEs of one name"
    selects = selects_of(query)
    if selects is None:
        return "its set operations"
    return next((why for select in selects if (why := _no_select(select, select is query))), "")


def selects_of(query: exp.Expr) -> list[exp.Select] | None:
    """The SELECTs that give the rows of a query, in the order of the text; None where something cuts them."""
    if isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query):
        # With a name, or anything behind the parentheses, it is something else.
        return None if any(value for name, value in query.args.items() if name != "this") else selects_of(query.this)
    if isinstance(query, exp.Select):
        return [query]
    if not isinstance(query, exp.SetOperation) or any(query.args.get(each) for each in (*_REFUSED, "by_name")):
        return None
    if query.args.get("with_") and query.parent is not None:
        return None
    left, right = selects_of(query.left), selects_of(query.right)
    return None if left is None or right is None else [*left, *right]


def is_plain(source: exp.Expr) -> bool:
    """Whether it is a table, a query under a name or a LATERAL one, and nothing hangs on it."""
    if any(source.args.get(each) for each in ("joins", "pivots", "sample", "laterals")):
        return False
    if isinstance(source, exp.Subquery | exp.Lateral):
        return isinstance(source.this, exp.Query | exp.Subquery)
    return isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)


def _no_select(select: exp.Select, is_whole: bool) -> str:  # noqa: FBT001
    joins: Sequence[exp.Join] = select.args.get("joins") or ()
    if refused := next((each for each in _REFUSED if select.args.get(each)), ""):
        return refused.upper()
    if select.args.get("with_") and not is_whole:
        return "a WITH within"
    if not all(map(_keeps_the_left, joins)):
        return "RIGHT JOIN"
    return _no_group(select)


def _no_group(select: exp.Select) -> str:
    """A query that gives a row for no rows: no join does. And what counts the columns of the result."""
    group = select.args.get("group")
    if group is None:
        if select.args.get("having") is not None or any(map(is_aggregate, select.expressions)):
            return "an aggregate without GROUP BY"
        return ""
    if any(group.args.get(each) for each in ("cube", "rollup", "grouping_sets", "totals", "all")):
        return "GROUP BY of several kinds"
    for each in group.expressions:
        if isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets):
            # Before them, the keys are part of every one of their groups.
            continue
        if not each.find(exp.Column, exp.Placeholder):
            # GROUP BY 1 counts the columns of the result; GROUP BY () is one group, of no rows too.
            return "GROUP BY of no column"
    return "" if group.expressions else "GROUP BY of no column"


def _keeps_the_left(join: exp.Join) -> bool:
    return (join.side or "").upper() not in {"RIGHT", "FULL"} and not join.method


def _is_named_after(field: exp.Expr, variables: Collection[str]) -> bool:
    inner = field.expression if isinstance(field, exp.PropertyEQ) else field.unalias()
    return inner is not None and variable_of(inner, variables) is not None


def _is_result(star: exp.Star) -> bool:
    """Whether it is `*` or `table.*` in the list of a SELECT."""
    node = star.parent if isinstance(star.parent, exp.Column) else star
    return isinstance(node, exp.Expr) and isinstance(node.parent, exp.Select) and node.arg_key == "expressions"


def _is_counted(star: exp.Star) -> bool:
    return isinstance(star.parent, exp.Count) and star.parent.this is star and not star.parent.expressions
