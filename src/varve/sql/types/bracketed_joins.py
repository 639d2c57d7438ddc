"""Joins in brackets, `x LEFT JOIN (a JOIN b ON p) ON q`, as joins one after the other, for what is concluded of them.

Spark is given the author's text. Here each part gets its place among the joins, so that its columns have types, and
conditions reach it:

- brackets that come first mean nothing: `(a LEFT JOIN b ON p) JOIN c ON q` is the same without them;
- of inner joins within an inner join, each part is joined alone, and all conditions are those of the last one;
- of inner joins within a left join, a row of each part matters only where there are rows of all parts with which `p`
  and `q` are TRUE: each part is joined by a left join with both conditions.

Of anything else nothing is concluded: a right join, for one, keeps rows of the brackets for which `q` is not TRUE.

Not here: which conditions reach a source (varve/sql/pushdown/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.trees import copied

if TYPE_CHECKING:
    from collections.abc import Sequence

_INNER = ("", "INNER", "CROSS")
# What else brackets may have: a name hides the names of the parts, the others choose among the rows of all of them.
_MORE = ("alias", "sample", "pivots", "laterals", "limit", "offset", "order", "with_", "with", "joins")


def without_brackets(tree: exp.Expr) -> exp.Expr:
    """Return the qualified tree, modified in place, with joins one after the other where that says the same."""
    for select in list(tree.find_all(exp.Select)):
        from_ = select.args.get("from_") or select.args.get("from")
        joins = list(select.args.get("joins") or ())
        if from_ is None or all(_joined(source.this) is None for source in (from_, *joins)):
            continue
        while (bracketed := _joined(from_.this)) is not None:
            first, inner = _opened(bracketed)
            from_.set("this", first)
            joins = [*inner, *joins]
        flat: list[exp.Join] = []
        while joins:
            join = joins.pop(0)
            if (parts := _parts(join)) is None:
                flat.append(join)
            else:
                joins = [*parts, *joins]
        select.set("joins", flat or None)
    return tree


def _joined(node: exp.Expr) -> exp.Expr | None:
    """The first of the joined tables in brackets, which has the joins of the others; None where it is anything else."""
    while isinstance(node, exp.Subquery) and not any(node.args.get(word) for word in _MORE):
        node = node.this
        if isinstance(node, exp.Table | exp.Subquery) and node.args.get("joins"):
            return node
    return None


def _opened(first: exp.Expr) -> tuple[exp.Expr, Sequence[exp.Join]]:
    """The first part and the joins of the others; the brackets are not used any more."""
    inner = list(first.args["joins"])
    first.set("joins", None)
    return first, inner


def _parts(join: exp.Join) -> list[exp.Join] | None:
    """The joins in the place of one whose source is in brackets; None where nothing can be said of them."""
    bracketed = _joined(join.this)
    if bracketed is None or not _is_plain(join, ("", "LEFT")):
        return None
    if not all(_is_plain(inner, ("",)) for inner in bracketed.args["joins"]):
        return None
    first, inner = _opened(bracketed)
    own = join.args.get("on")
    if not join.side:
        *before, last = inner
        on = exp.and_(*filter(None, [last.args.get("on"), own]), copy=False) if own is not None else last.args.get("on")
        last = exp.Join(this=last.this, kind=None if on is not None else "CROSS", on=on)
        return [exp.Join(this=first, kind="CROSS"), *before, last]
    conditions = [each for each in (*(part.args.get("on") for part in inner), own) if each is not None]
    parts = [first, *(part.this for part in inner)]
    return [exp.Join(this=part, side="LEFT", on=exp.and_(*map(copied, conditions), copy=False)) for part in parts]


def _is_plain(join: exp.Join, sides: Sequence[str]) -> bool:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    return side in sides and kind in (*_INNER, "OUTER") and not join.method and not join.args.get("using")
