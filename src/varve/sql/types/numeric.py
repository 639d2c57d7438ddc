"""The types of numbers: their common types, and the results of arithmetic and aggregates in Spark's ANSI mode.

Not here: all other expressions (expressions.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.syntax.type_names import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.sql.types.cells import CellOf

INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
FLOATS = ("float", "double")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def common_type(types: Sequence[str]) -> str:
    """Return the common type of these types, as in CASE, COALESCE and UNION."""
    widest = "void"
    for kind in types:
        widest = _wider(widest, kind)
    return widest


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal, or of a whole number as a decimal; None for other types."""
    if kind in INTEGERS:
        return INTEGERS[kind], 0
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None


def _wider(left: str, right: str) -> str:  # noqa: PLR0911 - one for each pair of kinds
    if right in (left, "void"):
        return left
    if left == "void":
        return right
    if left in INTEGERS and right in INTEGERS:
        return max(left, right, key=INTEGERS.__getitem__)
    numeric = [decimal_of(type_name) is not None or type_name in FLOATS for type_name in (left, right)]
    if all(numeric) and (left in FLOATS or right in FLOATS):
        return "double"
    if all(numeric):
        (p1, s1), (p2, s2) = decimal_of(left), decimal_of(right)  # type: ignore[misc]
        scale, whole = max(s1, s2), max(p1 - s1, p2 - s2)
        return f"decimal({min(whole + scale, 38)},{min(scale, 38)})" if whole + scale <= 38 else UNKNOWN
    if {left, right} == {"date", "timestamp"}:
        return "timestamp"
    return UNKNOWN


def _bounded(precision: int, scale: int) -> str:
    """Return a decimal of at most 38 digits: beyond that, the scale is reduced, but not below six digits."""
    if precision <= 38:
        return f"decimal({precision},{scale})"
    least = min(scale, 6)
    return f"decimal(38,{max(38 - (precision - scale), least)})"


def _operand(node: exp.Expr, of: CellOf) -> tuple[int, int] | None:
    """Precision and scale of an operand next to a decimal: a whole literal counts by its digits."""
    bare = node.unnest()
    bare = bare.this if isinstance(bare, exp.Neg) else bare
    if isinstance(bare, exp.Literal) and bare.is_int:
        return len(bare.name.lstrip("0")) or 1, 0
    return decimal_of(of(node).type)


def arithmetic(node: exp.Expr, of: CellOf) -> str:  # noqa: PLR0911 - one for each pair of kinds
    """Return the type of `+ - * / %`; UNKNOWN where only Spark can tell."""
    left, right = node.args["this"], node.expression
    left_type, right_type = of(left).type, of(right).type
    if isinstance(right, exp.Interval):
        return _with_interval(left_type, right)
    if left_type == "date" and right_type in ("int", "smallint", "tinyint") and isinstance(node, exp.Add | exp.Sub):
        return "date"
    if left_type.startswith("decimal") or right_type.startswith("decimal"):
        if left_type in FLOATS or right_type in FLOATS:
            return "double"
        return _decimal_arithmetic(node, _operand(left, of), _operand(right, of))
    numbers = {left_type, right_type} <= {*INTEGERS, *FLOATS}
    if not numbers:
        return UNKNOWN
    if isinstance(node, exp.Div):
        return "double"
    if left_type in INTEGERS and right_type in INTEGERS:
        return common_type([left_type, right_type])
    return "float" if {left_type, right_type} == {"float"} else "double"


def _decimal_arithmetic(node: exp.Expr, left: tuple[int, int] | None, right: tuple[int, int] | None) -> str:
    if left is None or right is None:
        return UNKNOWN
    (p1, s1), (p2, s2) = left, right
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


def sum_of(node: exp.Expr, of: CellOf) -> str:
    """The type of SUM."""
    kind = argument(node, of)
    if kind in INTEGERS:
        return "bigint"
    if decimal := decimal_of(kind):
        return f"decimal({min(decimal[0] + 10, 38)},{decimal[1]})"
    return "double" if kind in FLOATS else UNKNOWN


def average(node: exp.Expr, of: CellOf) -> str:
    """The type of AVG."""
    kind = argument(node, of)
    if kind in (*INTEGERS, *FLOATS):
        return "double"
    decimal = decimal_of(kind)
    return f"decimal({min(decimal[0] + 4, 38)},{min(decimal[1] + 4, 38)})" if decimal else UNKNOWN


def argument(node: exp.Expr, of: CellOf) -> str:
    """Return the type of the aggregated expression; SUM(DISTINCT x) wraps it."""
    return of(node.this).type


def rounded(node: exp.Expr, of: CellOf) -> str:
    """The type of ROUND."""
    kind = of(node.this).type
    if not kind.startswith("decimal"):
        return kind if kind in (*INTEGERS, *FLOATS) else UNKNOWN
    precision, scale = decimal_of(kind)  # type: ignore[misc]
    digits = node.args.get("decimals")
    if digits is not None and not (isinstance(digits, exp.Literal) and digits.is_int):
        return UNKNOWN
    count = int(digits.name) if digits is not None else 0
    kept_scale = min(scale, count)
    return f"decimal({max(precision - scale + kept_scale + (1 if count < scale else 0), 1)},{kept_scale})"


def whole_of(node: exp.Expr, of: CellOf) -> str:
    """The type of CEIL and FLOOR."""
    kind = of(node.this).type
    if node.args.get("decimals") is not None:
        return UNKNOWN
    if kind.startswith("decimal"):
        precision, scale = decimal_of(kind)  # type: ignore[misc]
        return f"decimal({precision - scale + 1 if scale else precision},0)"
    return "bigint" if kind in (*INTEGERS, *FLOATS) else UNKNOWN
