"""The type of each kind of expression: a type name, or a function of the types of its parts.

Not here: how an expression is traversed, and what may be NULL (expressions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.syntax.type_names import UNKNOWN, simple_name
from varve.sql.types.functions import FUNCTIONS, Rule, same
from varve.sql.types.numeric import (
    FLOATS,
    INTEGERS,
    argument,
    arithmetic,
    average,
    common_type,
    rounded,
    sum_of,
    whole_of,
)

if TYPE_CHECKING:
    from varve.sql.types.cells import CellOf


def _common(node: exp.Expr, of: CellOf) -> str:
    return common_type([of(child).type for child in (node.this, *node.expressions)])


def _literal(node: exp.Expr, _: CellOf) -> str:
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


def _distinct(node: exp.Expr, of: CellOf) -> str:
    return of(node.expressions[0]).type if len(node.expressions) == 1 else UNKNOWN


def _conditional(node: exp.Expr, of: CellOf) -> str:
    if isinstance(node, exp.Case):
        kinds = [of(branch).type for branch in node.args["ifs"]]
        return common_type([*kinds, *([of(node.args["default"]).type] if node.args.get("default") is not None else [])])
    kinds = [of(node.args["true"]).type]
    if node.args.get("false") is not None:
        kinds.append(of(node.args["false"]).type)
    return common_type(kinds)


def _concat(node: exp.Expr, of: CellOf) -> str:
    parts = node.expressions or [node.args["this"], node.expression]
    simple = ("string", "date", "timestamp", "boolean", *INTEGERS, *FLOATS)
    kinds = [of(part).type for part in parts]
    return "string" if all(kind in simple or kind.startswith("decimal") for kind in kinds) else UNKNOWN


def _array(node: exp.Expr, of: CellOf) -> str:
    kinds = [of(expression).type for expression in node.expressions]
    return f"array<{common_type(kinds)}>" if kinds else UNKNOWN


def _extract(node: exp.Expr, of: CellOf) -> str:
    """EXTRACT of a moment; the fields of an interval have other types."""
    if of(node.expression).type not in {"date", "timestamp", "string"}:
        return UNKNOWN
    return "decimal(8,6)" if node.this.name.upper() in {"SECOND", "SECONDS", "S", "SEC", "SECS"} else "int"


def _string_only(node: exp.Expr, of: CellOf) -> str:
    return "string" if of(node.this).type == "string" else UNKNOWN


RULES: dict[type[exp.Expr], Rule] = {
    exp.Literal: _literal,
    exp.Boolean: "boolean",
    exp.Null: "void",
    exp.Paren: same,
    exp.Alias: same,
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
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod), arithmetic),
    exp.IntDiv: "bigint",
    exp.Neg: same,
    exp.Abs: same,
    **dict.fromkeys((exp.Case, exp.If), _conditional),
    **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least), _common),
    exp.Nullif: same,
    exp.Sum: sum_of,
    exp.Avg: average,
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
        same,
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
    exp.ArrayAgg: lambda node, of: f"array<{argument(node, of)}>",
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
    exp.Round: rounded,
    **dict.fromkeys((exp.Ceil, exp.Floor), whole_of),
    **FUNCTIONS,
}
