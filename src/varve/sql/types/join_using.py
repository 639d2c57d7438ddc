"""The columns of JOIN ... USING as Spark resolves them: the column of one side, not COALESCE of both as sqlglot writes.

Spark 4.3 takes the left side's column where the join keeps the left side's rows (inner, LEFT, SEMI, ANTI), the right
side's column of a RIGHT JOIN, and COALESCE of both of a FULL JOIN. It matters for types (a text joined with a date
stays a text) and for planning: a condition on the column is a condition on one side's own column.

Not here: all other name resolution (inference.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Mapping

_AUTHORS = "varve_author"
# The key of the meta of a join with the names of its USING, which are columns of ON once the query is qualified.
_NAMES = "varve_using"


def mark_authors(tree: exp.Expr) -> bool:
    """Mark the COALESCE nodes and the names in USING that the author wrote; return whether the query has any USING."""
    for node in tree.find_all(exp.Coalesce):
        node.meta[_AUTHORS] = True
    joins = [join for join in tree.find_all(exp.Join) if join.args.get("using")]
    for join in joins:
        join.meta[_NAMES] = {name.name.lower(): dict(name.meta) for name in join.args["using"]}
    return bool(joins)


def as_spark_gives(tree: exp.Expr) -> exp.Expr:
    """Return the qualified tree, modified in place, with each USING column replaced by the one that Spark takes."""
    for node in list(tree.find_all(exp.Coalesce)):
        columns = [node.this, *node.expressions]
        if node.meta.get(_AUTHORS) or not all(isinstance(column, exp.Column) and column.table for column in columns):
            continue
        select = node.find_ancestor(exp.Select)
        if select is not None and (chosen := _chosen(columns, _joined(select))) is not None:
            node.replace(chosen.copy())
    for join in tree.find_all(exp.Join):
        # The author has written these columns too: they are used where USING names them.
        names, on = join.meta.get(_NAMES, {}), join.args.get("on")
        for column in on.find_all(exp.Column) if names and on is not None else ():
            column.this.meta.update(names.get(column.name, {}))
    return tree


def _joined(select: exp.Select) -> Mapping[str, str]:
    """The sources of a SELECT in their order, with the side (LEFT, RIGHT...) of the join that adds each."""
    from_ = select.args.get("from_") or select.args.get("from")
    sides = {from_.this.alias_or_name: ""} if from_ is not None else {}
    for join in select.args.get("joins") or ():
        sides[join.this.alias_or_name] = (join.side or "").upper()
    return sides


def _chosen(columns: list[exp.Expr], sides: Mapping[str, str]) -> exp.Expr | None:
    """The column that Spark takes; None where it is a COALESCE of several, or where the sources are unexpected."""
    tables = [column.table for column in columns if isinstance(column, exp.Column)]
    if any(table not in sides for table in tables) or sorted(tables, key=list(sides).index) != tables:
        return None
    between = list(sides)[list(sides).index(tables[0]) + 1 : list(sides).index(tables[-1]) + 1]
    kinds = {sides[table] for table in between}
    if kinds <= {"", "LEFT"}:
        return columns[0]
    if kinds == {"RIGHT"} and len(columns) == len(sides) == 2:
        return columns[1]
    return None
