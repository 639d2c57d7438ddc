"""The types of numbers: where they meet, and what arithmetic and aggregates make of them in Spark's ANSI mode.

Not here: all other expressions (expressions.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.syntax.type_names import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.sql.types.cells import Of

INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
FLOATS = ("float", "double")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def common_type(types: Sequence[str]) -> str:
    """The type in which values of these types meet, as in CASE, COALESCE and UNION."""
    found = "void"
    for kind in types:
        found = _wider(found, kind)
    return found


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal, or of a whole number as one."""
    if kind in INTEGERS:
        return INTEGERS[kind], 0
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def _wider(one: str, other: str) -> str:  # noqa: PLR0911 - one for each pair of kinds
    if other in (one, "void"):
        return one
    if one == "void":
        return other
    if one in INTEGERS and other in INTEGERS:
        return max(one, other, key=INTEGERS.__getitem__)
    numeric = [decimal_of(each) is not None or each in FLOATS for each in (one, other)]
    if all(numeric) and (one in FLOATS or other in FLOATS):
        return "double"
    if all(numeric):
        (p1, s1), (p2, s2) = decimal_of(one), decimal_of(other)  # type: ignore[misc]
        scale, whole = max(s1, s2), max(p1 - s1, p2 - s2)
        return f"decimal({min(whole + scale, 38)},{min(scale, 38)})" if whole + scale <= 38 else UNKNOWN
    if {one, other} == {"date", "timestamp"}:
        return "timestamp"
    return UNKNOWN


def _bounded(precision: int, scale: int) -> str:
    """A decimal of at most 38 digits; of what is beyond, the fraction gives way down to six digits."""
    if precision <= 38:
        return f"decimal({precision},{scale})"
    least = min(scale, 6)
    return f"decimal(38,{max(38 - (precision - scale), least)})"


def _operand(node: exp.Expr, of: Of) -> tuple[int, int] | None:
    """An operand beside a decimal: a whole literal counts by its digits."""
    bare = node.unnest()
    bare = bare.this if isinstance(bare, exp.Neg) else bare
    if isinstance(bare, exp.Literal) and bare.is_int:
        return len(bare.name.lstrip("0")) or 1, 0
    return decimal_of(of(node).type)


def arithmetic(node: exp.Expr, of: Of) -> str:  # noqa: PLR0911 - one for each pair of kinds
    """What `+ - * / %` give; UNKNOWN where only Spark can tell."""
    left, right = node.args["this"], node.expression
    one, other = of(left).type, of(right).type
    if isinstance(right, exp.Interval):
        return _with_interval(one, right)
    if one == "date" and other in ("int", "smallint", "tinyint") and isinstance(node, exp.Add | exp.Sub):
        return "date"
    if one.startswith("decimal") or other.startswith("decimal"):
        if one in FLOATS or other in FLOATS:
            return "double"
        return _decimal_arithmetic(node, _operand(left, of), _operand(right, of))
    numbers = {one, other} <= {*INTEGERS, *FLOATS}
    if not numbers:
        return UNKNOWN
    if isinstance(node, exp.Div):
        return "double"
    if one in INTEGERS and other in INTEGERS:
        return common_type([one, other])
    return "float" if {one, other} == {"float"} else "double"


def _decimal_arithmetic(node: exp.Expr, one: tuple[int, int] | None, other: tuple[int, int] | None) -> str:
    if one is None or other is None:
        return UNKNOWN
    (p1, s1), (p2, s2) = one, other
    if isinstance(node, exp.Add | exp.Sub):
        scale = max(s1, s2)
        return _bounded(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if isinstance(node, exp.Mul):
        return _bounded(p1 + p2 + 1, s1 + s2)
    if isinstance(node, exp.Div):
        scale = max(6, s1 + p2 + 1)
        return _bounded(p1 - s1 + s2 + scale, scale)
    if isinstance(node, exp.Mod):
        scale = max(s1, s2)
        return _bounded(min(p1 - s1, p2 - s2) + scale, scale)
    return UNKNOWN


def _with_interval(kind: str, interval: exp.Interval) -> str:
    unit = interval.args.get("unit")
    name = unit.name.upper().removesuffix("S") if unit is not None else ""
    if kind == "timestamp":
        return "timestamp"
    if kind == "date" and name in {"DAY", "WEEK", "MONTH", "YEAR", "QUARTER"}:
        return "date"
    return "timestamp" if kind == "date" and name in {"HOUR", "MINUTE", "SECOND"} else UNKNOWN


def sum_of(node: exp.Expr, of: Of) -> str:
    """The type of SUM."""
    kind = argument(node, of)
    if kind in INTEGERS:
        return "bigint"
    if found := decimal_of(kind):
        return f"decimal({min(found[0] + 10, 38)},{found[1]})"
    return "double" if kind in FLOATS else UNKNOWN


def average(node: exp.Expr, of: Of) -> str:
    """The type of AVG."""
    kind = argument(node, of)
    if kind in (*INTEGERS, *FLOATS):
        return "double"
    found = decimal_of(kind)
    return f"decimal({min(found[0] + 4, 38)},{min(found[1] + 4, 38)})" if found else UNKNOWN


def argument(node: exp.Expr, of: Of) -> str:
    """The type of what is aggregated; SUM(DISTINCT x) wraps it."""
    return of(node.this).type


def rounded(node: exp.Expr, of: Of) -> str:
    """The type of ROUND."""
    kind = of(node.this).type
    if not kind.startswith("decimal"):
        return kind if kind in (*INTEGERS, *FLOATS) else UNKNOWN
    precision, scale = decimal_of(kind)  # type: ignore[misc]
    digits = node.args.get("decimals")
    if digits is not None and not (isinstance(digits, exp.Literal) and digits.is_int):
        return UNKNOWN
    count = int(digits.name) if digits is not None else 0
    kept = min(scale, count)
    return f"decimal({max(precision - scale + kept + (1 if count < scale else 0), 1)},{kept})"


def whole_of(node: exp.Expr, of: Of) -> str:
    """The type of CEIL and FLOOR."""
    kind = of(node.this).type
    if node.args.get("decimals") is not None:
        return UNKNOWN
    if kind.startswith("decimal"):
        precision, scale = decimal_of(kind)  # type: ignore[misc]
        return f"decimal({precision - scale + 1 if scale else precision},0)"
    return "bigint" if kind in (*INTEGERS, *FLOATS) else UNKNOWN
