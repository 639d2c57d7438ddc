"""The Spark type of an expression by the types of its parts, where that is certain.

Not here: where columns come from (inference.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from sqlglot import exp

from pipeline_defs.sql.types import UNKNOWN, simple_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A dataset and one of its columns.
ColumnName: TypeAlias = tuple[str, str]


class Cell(NamedTuple):
    """What is known of an expression: its type, whether it may be NULL, and the columns that it is made of."""

    type: str
    nullable: bool = True
    sources: frozenset[ColumnName] = frozenset()


class Lookup(Protocol):
    """What an expression can name."""

    def column(self, node: exp.Column) -> Cell:
        """The cell of a column."""
        ...

    def nested(self, node: exp.Expr) -> Cell:
        """The cell of a query inside an expression."""
        ...


_INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_FLOATS = ("float", "double")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def typed(node: exp.Expr, lookup: Lookup) -> Cell:
    """What is known of an expression."""
    if isinstance(node, exp.Column):
        return lookup.column(node)
    if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
        return lookup.nested(node)
    if isinstance(node, exp.DataType | exp.Identifier | exp.Var):
        return Cell(UNKNOWN, nullable=False)
    parts = {id(child): typed(child, lookup) for child in node.iter_expressions()}
    sources = frozenset(source for part in parts.values() for source in part.sources)

    def of(child: exp.Expr | None) -> Cell:
        return parts[id(child)] if child is not None else Cell("void", nullable=True)

    kind = _type(node, of)
    return Cell(kind if UNKNOWN not in kind else UNKNOWN, _nullable(node, parts.values()), sources)  # type: ignore[arg-type]


def common_type(types: Sequence[str]) -> str:
    """The type in which values of these types meet, as in CASE, COALESCE and UNION."""
    found = "void"
    for kind in types:
        found = _wider(found, kind)
    return found


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal, or of a whole number as one."""
    if kind in _INTEGERS:
        return _INTEGERS[kind], 0
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def _wider(one: str, other: str) -> str:  # noqa: PLR0911 - one for each pair of kinds
    if other in (one, "void"):
        return one
    if one == "void":
        return other
    if one in _INTEGERS and other in _INTEGERS:
        return max(one, other, key=_INTEGERS.__getitem__)
    numeric = [decimal_of(each) is not None or each in _FLOATS for each in (one, other)]
    if all(numeric) and (one in _FLOATS or other in _FLOATS):
        return "double"
    if all(numeric):
        (p1, s1), (p2, s2) = decimal_of(one), decimal_of(other)  # type: ignore[misc]
        scale, whole = max(s1, s2), max(p1 - s1, p2 - s2)
        return f"decimal({min(whole + scale, 38)},{min(scale, 38)})" if whole + scale <= 38 else UNKNOWN
    if {one, other} == {"date", "timestamp"}:
        return "timestamp"
    return UNKNOWN


def _type(node: exp.Expr, of: Callable[[exp.Expr | None], Cell]) -> str:
    rule = _RULES.get(type(node))
    if isinstance(node, exp.Anonymous):
        return _NAMED.get(node.name.upper(), UNKNOWN)
    if rule is None:
        return UNKNOWN
    return rule if isinstance(rule, str) else rule(node, of)


def _nullable(node: exp.Expr, parts: Sequence[Cell]) -> bool:
    if isinstance(node, exp.Count | exp.RowNumber | exp.Rank | exp.DenseRank | exp.Is | exp.Exists | exp.CountIf):
        return False
    if isinstance(node, exp.Null):
        return True
    if isinstance(node, exp.Literal | exp.Boolean | exp.NullSafeEQ | exp.NullSafeNEQ):
        return False
    if isinstance(node, exp.Coalesce):
        return all(part.nullable for part in parts)
    if isinstance(node, exp.Window):
        return typed_window_nullable(node, parts)
    keeps = (
        exp.Paren, exp.Alias, exp.Add, exp.Sub, exp.Mul, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.And,
        exp.Or, exp.Not, exp.Between, exp.Upper, exp.Lower, exp.Concat, exp.DPipe, exp.Year, exp.Month, exp.Length,
        exp.Neg, exp.Abs, exp.Substring, exp.Trim,
    )  # fmt: skip
    return any(part.nullable for part in parts) if isinstance(node, keeps) else True


def typed_window_nullable(node: exp.Window, parts: Sequence[Cell]) -> bool:
    """Whether a window function may give NULL: as its function outside a window; of an empty frame all may."""
    return not isinstance(node.this, exp.RowNumber | exp.Rank | exp.DenseRank | exp.Count) or not parts


_Rule: TypeAlias = "str | Callable[[exp.Expr, Callable[[exp.Expr | None], Cell]], str]"
_Of: TypeAlias = "Callable[[exp.Expr | None], Cell]"


def _same(node: exp.Expr, of: _Of) -> str:
    return of(node.this).type


def _common(node: exp.Expr, of: _Of) -> str:
    return common_type([of(each).type for each in (node.this, *node.expressions)])


def _literal(node: exp.Expr, _: _Of) -> str:
    if node.is_string:
        return "string"
    text = node.name
    if node.is_int:
        value = int(text)
        return "int" if value < 2**31 else "bigint" if value < 2**63 else f"decimal({len(str(value))},0)"
    if "e" in text.lower():
        return "double"
    whole, fraction = text.split(".")
    whole = whole.lstrip("0")
    return f"decimal({max(len(whole) + len(fraction), 1)},{len(fraction)})"


def _bounded(precision: int, scale: int) -> str:
    """A decimal of at most 38 digits; of what is beyond, the fraction gives way down to six digits."""
    if precision <= 38:
        return f"decimal({precision},{scale})"
    least = min(scale, 6)
    return f"decimal(38,{max(38 - (precision - scale), least)})"


def _operand(node: exp.Expr, of: _Of) -> tuple[int, int] | None:
    """An operand beside a decimal: a whole literal counts by its digits."""
    bare = node.unnest()
    bare = bare.this if isinstance(bare, exp.Neg) else bare
    if isinstance(bare, exp.Literal) and bare.is_int:
        return len(bare.name.lstrip("0")) or 1, 0
    return decimal_of(of(node).type)


def _arithmetic(node: exp.Expr, of: _Of) -> str:  # noqa: PLR0911 - one for each pair of kinds
    left, right = node.args["this"], node.expression
    one, other = of(left).type, of(right).type
    if isinstance(right, exp.Interval):
        return _with_interval(one, right)
    if one == "date" and other in ("int", "smallint", "tinyint") and isinstance(node, exp.Add | exp.Sub):
        return "date"
    if one.startswith("decimal") or other.startswith("decimal"):
        if one in _FLOATS or other in _FLOATS:
            return "double"
        return _decimal_arithmetic(node, _operand(left, of), _operand(right, of))
    numbers = {one, other} <= {*_INTEGERS, *_FLOATS}
    if not numbers:
        return UNKNOWN
    if isinstance(node, exp.Div):
        return "double"
    if one in _INTEGERS and other in _INTEGERS:
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


def _sum(node: exp.Expr, of: _Of) -> str:
    kind = _argument(node, of)
    if kind in _INTEGERS:
        return "bigint"
    if found := decimal_of(kind):
        return f"decimal({min(found[0] + 10, 38)},{found[1]})"
    return "double" if kind in _FLOATS else UNKNOWN


def _average(node: exp.Expr, of: _Of) -> str:
    kind = _argument(node, of)
    if kind in (*_INTEGERS, *_FLOATS):
        return "double"
    found = decimal_of(kind)
    return f"decimal({min(found[0] + 4, 38)},{min(found[1] + 4, 38)})" if found else UNKNOWN


def _argument(node: exp.Expr, of: _Of) -> str:
    """The type of what is aggregated; SUM(DISTINCT x) wraps it."""
    return of(node.this).type


def _distinct(node: exp.Expr, of: _Of) -> str:
    return of(node.expressions[0]).type if len(node.expressions) == 1 else UNKNOWN


def _conditional(node: exp.Expr, of: _Of) -> str:
    if isinstance(node, exp.Case):
        kinds = [of(each).type for each in node.args["ifs"]]
        return common_type([*kinds, *([of(node.args["default"]).type] if node.args.get("default") is not None else [])])
    kinds = [of(node.args["true"]).type]
    if node.args.get("false") is not None:
        kinds.append(of(node.args["false"]).type)
    return common_type(kinds)


def _round(node: exp.Expr, of: _Of) -> str:
    kind = of(node.this).type
    if not kind.startswith("decimal"):
        return kind if kind in (*_INTEGERS, *_FLOATS) else UNKNOWN
    precision, scale = decimal_of(kind)  # type: ignore[misc]
    digits = node.args.get("decimals")
    if digits is not None and not (isinstance(digits, exp.Literal) and digits.is_int):
        return UNKNOWN
    count = int(digits.name) if digits is not None else 0
    kept = min(scale, count)
    return f"decimal({max(precision - scale + kept + (1 if count < scale else 0), 1)},{kept})"


def _whole(node: exp.Expr, of: _Of) -> str:
    kind = of(node.this).type
    if node.args.get("decimals") is not None:
        return UNKNOWN
    if kind.startswith("decimal"):
        precision, scale = decimal_of(kind)  # type: ignore[misc]
        return f"decimal({precision - scale + 1 if scale else precision},0)"
    return "bigint" if kind in (*_INTEGERS, *_FLOATS) else UNKNOWN


def _concat(node: exp.Expr, of: _Of) -> str:
    parts = node.expressions or [node.args["this"], node.expression]
    simple = ("string", "date", "timestamp", "boolean", *_INTEGERS, *_FLOATS)
    kinds = [of(each).type for each in parts]
    return "string" if all(kind in simple or kind.startswith("decimal") for kind in kinds) else UNKNOWN


def _array(node: exp.Expr, of: _Of) -> str:
    kinds = [of(each).type for each in node.expressions]
    return f"array<{common_type(kinds)}>" if kinds else UNKNOWN


def _element(node: exp.Expr, of: _Of) -> str:
    """What EXPLODE gives, or an index: the element of an array."""
    kind = of(node.this).type
    return kind[6:-1] if kind.startswith("array<") else UNKNOWN


def _extract(node: exp.Expr, _: _Of) -> str:
    return "decimal(8,6)" if node.this.name.upper() in {"SECOND", "SECONDS", "S"} else "int"


def _string_only(node: exp.Expr, of: _Of) -> str:
    return "string" if of(node.this).type == "string" else UNKNOWN


_RULES: dict[type[exp.Expr], _Rule] = {
    exp.Literal: _literal,
    exp.Boolean: "boolean",
    exp.Null: "void",
    exp.Paren: _same,
    exp.Alias: _same,
    exp.Distinct: _distinct,
    exp.Cast: lambda node, _: simple_name(node.args["to"]),
    exp.TryCast: lambda node, _: simple_name(node.args["to"]),
    **dict.fromkeys(
        (
            exp.EQ,
            exp.NEQ,
            exp.LT,
            exp.LTE,
            exp.GT,
            exp.GTE,
            exp.NullSafeEQ,
            exp.NullSafeNEQ,
            exp.And,
            exp.Or,
            exp.Not,
            exp.Is,
            exp.In,
            exp.Between,
            exp.Like,
            exp.ILike,
            exp.RegexpLike,
            exp.Exists,
            exp.StartsWith,
            exp.EndsWith,
            exp.Contains,
            exp.Escape,
            exp.LogicalOr,
            exp.LogicalAnd,
            exp.ArrayContains,
        ),
        "boolean",
    ),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod), _arithmetic),
    exp.IntDiv: "bigint",
    exp.Neg: _same,
    exp.Abs: _same,
    **dict.fromkeys((exp.Case, exp.If), _conditional),
    **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least), _common),
    exp.Nullif: _same,
    exp.Sum: _sum,
    exp.Avg: _average,
    **dict.fromkeys((exp.Count, exp.CountIf, exp.ApproxDistinct, exp.StrToUnix), "bigint"),
    **dict.fromkeys(
        (
            exp.Min,
            exp.Max,
            exp.First,
            exp.Last,
            exp.AnyValue,
            exp.Lag,
            exp.Lead,
            exp.FirstValue,
            exp.LastValue,
            exp.NthValue,
            exp.Filter,
            exp.Window,
            exp.IgnoreNulls,
            exp.RespectNulls,
        ),
        _same,
    ),
    **dict.fromkeys(
        (
            exp.Stddev,
            exp.StddevSamp,
            exp.StddevPop,
            exp.Variance,
            exp.VariancePop,
            exp.Corr,
            exp.CovarSamp,
            exp.CovarPop,
            exp.PercentRank,
            exp.CumeDist,
            exp.Sqrt,
            exp.Exp,
            exp.Ln,
            exp.Pow,
            exp.MonthsBetween,
            exp.Rand,
            exp.Randn,
        ),
        "double",
    ),
    exp.ArrayAgg: lambda node, of: f"array<{_argument(node, of)}>",
    **dict.fromkeys((exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile), "int"),
    **dict.fromkeys(
        (exp.TsOrDsAdd, exp.AddMonths, exp.LastDay, exp.TsOrDsToDate, exp.NextDay, exp.DateTrunc, exp.CurrentDate),
        "date",
    ),
    **dict.fromkeys(
        (
            exp.TimestampTrunc,
            exp.StrToTime,
            exp.TimeStrToTime,
            exp.AtTimeZone,
            exp.FromTimeZone,
            exp.CurrentTimestamp,
            exp.TimestampAdd,
        ),
        "timestamp",
    ),
    **dict.fromkeys(
        (
            exp.Year,
            exp.Quarter,
            exp.Month,
            exp.Day,
            exp.DayOfMonth,
            exp.DayOfWeek,
            exp.DayOfYear,
            exp.WeekOfYear,
            exp.Hour,
            exp.Minute,
            exp.Second,
            exp.Length,
            exp.StrPosition,
            exp.Ascii,
            exp.Levenshtein,
        ),
        "int",
    ),
    exp.DateDiff: lambda node, _: "bigint" if node.args.get("unit") is not None else "int",
    exp.TimestampDiff: "bigint",
    exp.Extract: _extract,
    **dict.fromkeys(
        (
            exp.TimeToStr,
            exp.UnixToStr,
            exp.Upper,
            exp.Lower,
            exp.Trim,
            exp.Replace,
            exp.Repeat,
            exp.Initcap,
            exp.RegexpReplace,
            exp.RegexpExtract,
            exp.ConcatWs,
            exp.SubstringIndex,
            exp.MD5,
        ),
        "string",
    ),
    **dict.fromkeys((exp.Substring, exp.Left, exp.Right, exp.Reverse, exp.Pad), _string_only),
    **dict.fromkeys((exp.Concat, exp.DPipe), _concat),
    exp.RegexpSplit: "array<string>",
    exp.Array: _array,
    **dict.fromkeys((exp.Explode, exp.Bracket), _element),
    exp.Round: _round,
    **dict.fromkeys((exp.Ceil, exp.Floor), _whole),
}
_NAMED = {
    "WEEKDAY": "int", "MAKE_DATE": "date", "TIMESTAMP_SECONDS": "timestamp", "HASH": "int", "XXHASH64": "bigint",
    "NOW": "timestamp", "UUID": "string", "MONOTONICALLY_INCREASING_ID": "bigint", "BTRIM": "string",
}  # fmt: skip
