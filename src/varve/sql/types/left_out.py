"""The columns that a query leaves out of a star: `* EXCEPT (n)` names `n`, and Spark refuses it where there is none.

sqlglot writes out the stars of a SELECT, and forgets what they leave out.

Not here: what follows from a use (varve/sql/checks/breaking.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.trees import copied

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES = "varve_left_out"


def mark_left_out(tree: exp.Expr) -> None:
    """Keep at each SELECT the names that its stars leave out, each with the alias that is before its star."""
    for star in tree.find_all(exp.Star):
        if (select := star.find_ancestor(exp.Select)) is None:
            continue
        of = star.parent.args.get("table") if isinstance(star.parent, exp.Column) else None
        for part in star.args.get("except_") or ():
            if (column := part.find(exp.Column)) is not None:
                table = column.args.get("table") or of
                named = exp.Column(this=copied(column.this), table=None if table is None else copied(table))
                select.meta.setdefault(_NAMES, []).append(named)


def left_out_of(select: exp.Select) -> Sequence[exp.Column]:
    """Return the names that the stars of a SELECT left out before it was qualified."""
    names: Sequence[exp.Column] = select.meta.get(_NAMES, ())
    return names
