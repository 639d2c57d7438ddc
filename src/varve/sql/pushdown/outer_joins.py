"""Which conditions are never TRUE where all columns of a source are NULL, as they are in rows that an outer join adds.

Not here: what follows for the sources of a query (scans.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


# These return NULL where an operand is NULL: a condition with one of them on top is never TRUE for an added row.
_STRICT = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In, exp.Like,
           exp.RegexpLike)  # fmt: skip

_STRICT_WITHIN = (
    exp.Column, exp.Literal, exp.Paren, exp.Cast, exp.TryCast, exp.TsOrDsAdd, exp.TsOrDsToDate, exp.Add, exp.Sub,
    exp.Mul, exp.Neg, exp.TimeToStr, exp.TimeStrToTime, exp.Substring, exp.Upper, exp.Lower, exp.Year, exp.Month,
    exp.Day, exp.DateTrunc, exp.TimestampTrunc, exp.DataType, exp.Identifier, exp.Var, exp.Interval,
)  # fmt: skip


def null_rejected(conditions: Iterable[exp.Expr], aliases: Collection[str]) -> frozenset[str]:
    """The sources whose columns cannot all be NULL where the conditions are TRUE."""
    rejected_by: set[str] = set()
    for condition in conditions:
        rejected_by |= {alias for alias in aliases if _rejects(condition, alias)}
    return frozenset(rejected_by)


def _rejects(condition: exp.Expr, alias: str) -> bool:
    condition = condition.unnest()
    if isinstance(condition, exp.Or):
        return _rejects(condition.left, alias) and _rejects(condition.right, alias)
    if isinstance(condition, exp.And):
        return _rejects(condition.left, alias) or _rejects(condition.right, alias)
    negated = isinstance(condition, exp.Not)
    atom = condition.this.unnest() if negated else condition
    if negated and isinstance(atom, exp.Is) and isinstance(atom.expression, exp.Null):
        return _reaches(atom.this, alias)
    if isinstance(atom, exp.In):
        return not (negated and atom.args.get("query")) and _reaches(atom.this, alias)
    if isinstance(atom, exp.Between):
        parts = [atom.this] if negated else [atom.this, atom.args["low"], atom.args["high"]]
        return not atom.args.get("symmetric") and any(_reaches(part, alias) for part in parts)
    return isinstance(atom, _STRICT) and (_reaches(atom.this, alias) or _reaches(atom.expression, alias))


def _reaches(node: exp.Expr, alias: str) -> bool:
    """Whether the value of the expression is NULL where the columns of the source are NULL."""
    if isinstance(node, exp.Column):
        return node.table == alias
    return isinstance(node, _STRICT_WITHIN) and any(_reaches(child, alias) for child in node.iter_expressions())
