"""The columns of JOIN ... USING as Spark gives them: one side's, not COALESCE of both as sqlglot writes.

Spark 4.3 gives the left side's column where the join keeps the left side's rows (inner, LEFT, SEMI, ANTI), the right
side's of a RIGHT JOIN, and COALESCE of both of a FULL JOIN. It matters for types (a text joined with a date stays a
text) and for planning: a condition on the column is one on a side's own column.

Not here: the rest of what makes names certain (inference.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Mapping

_AUTHORS = "varve_author"


def mark_authors(tree: exp.Expr) -> bool:
    """Note which COALESCE are the author's own; whether there is any USING at all."""
    for node in tree.find_all(exp.Coalesce):
        node.meta[_AUTHORS] = True
    return any(join.args.get("using") for join in tree.find_all(exp.Join))


def as_spark_gives(tree: exp.Expr) -> exp.Expr:
    """A qualified tree with the columns of USING as one side's; it is changed."""
    for node in list(tree.find_all(exp.Coalesce)):
        columns = [node.this, *node.expressions]
        if node.meta.get(_AUTHORS) or not all(isinstance(each, exp.Column) and each.table for each in columns):
            continue
        select = node.find_ancestor(exp.Select)
        if select is not None and (chosen := _chosen(columns, _joined(select))) is not None:
            node.replace(chosen.copy())
    return tree


def _joined(select: exp.Select) -> Mapping[str, str]:
    """The sources of a SELECT in their order, each with the side of its join."""
    from_ = select.args.get("from_") or select.args.get("from")
    found = {from_.this.alias_or_name: ""} if from_ is not None else {}
    for join in select.args.get("joins") or ():
        found[join.this.alias_or_name] = (join.side or "").upper()
    return found


def _chosen(columns: list[exp.Expr], sides: Mapping[str, str]) -> exp.Expr | None:
    """The column that Spark gives; None where it is COALESCE of several, or the sources are others than they seem."""
    tables = [each.table for each in columns if isinstance(each, exp.Column)]
    if any(table not in sides for table in tables) or sorted(tables, key=list(sides).index) != tables:
        return None
    between = list(sides)[list(sides).index(tables[0]) + 1 : list(sides).index(tables[-1]) + 1]
    kinds = {sides[table] for table in between}
    if kinds <= {"", "LEFT"}:
        return columns[0]
    if kinds == {"RIGHT"} and len(columns) == len(sides) == 2:
        return columns[1]
    return None
