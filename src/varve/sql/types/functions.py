"""The types of Spark's functions over texts, arrays, maps and structs, and of its mathematics.

`FUNCTIONS` is by kind of expression, `BY_NAME` by the name of functions that sqlglot has no kind for. A type that is
not certain from the types of the arguments is UNKNOWN.

Not here: operators, aggregates, dates (rules.py), and numbers (numeric.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from varve.sql.syntax.type_names import UNKNOWN, T, parse_type, simple_name
from varve.sql.types.numeric import FLOATS, INTEGERS, common_type, decimal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varve.sql.types.cells import Cell, CellOf

Rule: TypeAlias = "str | Callable[[exp.Expr, Callable[[exp.Expr | None], Cell]], str]"


def same(node: exp.Expr, of: CellOf) -> str:
    """The type of the first argument."""
    return of(node.this).type


def element(node: exp.Expr, of: CellOf) -> str:
    """The type of an array's element, as EXPLODE or an index returns it; of a map's value behind `[key]`."""
    kind = of(node.this).type
    if isinstance(node, exp.Bracket) and (whole := _parsed(kind)) is not None and whole.this == T.MAP:
        return simple_name(whole.expressions[1])
    return kind[6:-1] if kind.startswith("array<") else UNKNOWN


def field(node: exp.Expr, of: CellOf) -> str:
    """The type of a struct's field; of an array of structs, an array of the field's type."""
    whole = _parsed(of(node.this).type)
    if whole is None:
        return UNKNOWN
    in_array = whole.this == T.ARRAY
    struct = whole.expressions[0] if in_array else whole
    if struct.this != T.STRUCT:
        return UNKNOWN
    kinds = [field.kind for field in struct.expressions if field.name.lower() == node.expression.name.lower()]
    if len(kinds) != 1:
        return UNKNOWN
    return f"array<{simple_name(kinds[0])}>" if in_array else simple_name(kinds[0])


def _parsed(kind: str) -> exp.DataType | None:
    """A nested type; None for others, and for one whose fields have names that cannot be read back."""
    if "<" not in kind:
        return None
    try:
        return parse_type(kind)
    except ValueError:
        return None


def _array_only(node: exp.Expr, of: CellOf) -> str:
    kind = of(node.this).type
    return kind if kind.startswith("array<") else UNKNOWN


def _array_of(node: exp.Expr, of: CellOf) -> str:
    return f"array<{of(node.this).type}>"


def _flattened(node: exp.Expr, of: CellOf) -> str:
    kind = element(node, of)
    return kind if kind.startswith("array<") else UNKNOWN


def _appended(node: exp.Expr, of: CellOf) -> str:
    """The array, where what is put into it is of its elements' type."""
    return _array_only(node, of) if element(node, of) == of(node.expression).type else UNKNOWN


def _both_alike(node: exp.Expr, of: CellOf) -> str:
    """The type of both arguments, where it is one."""
    first, second = node.expressions if isinstance(node, exp.Anonymous) else (node.this, node.expression)
    return of(first).type if of(first).type == of(second).type else UNKNOWN


def _of_map(part: str) -> Callable[[exp.Expr, CellOf], str]:
    def rule(node: exp.Expr, of: CellOf) -> str:
        whole = _parsed(of(_first(node)).type)
        if whole is None or whole.this != T.MAP:
            return UNKNOWN
        key, value = map(simple_name, whole.expressions)
        return {"keys": f"array<{key}>", "values": f"array<{value}>"}.get(
            part, f"array<struct<key:{key},value:{value}>>"
        )

    return rule


def _map(node: exp.Expr, of: CellOf) -> str:
    keys, values = (of(node.args.get(name)).type for name in ("keys", "values"))
    if not keys.startswith("array<") or not values.startswith("array<"):
        return UNKNOWN
    return f"map<{keys[6:-1]},{values[6:-1]}>"


def _struct(node: exp.Expr, of: CellOf) -> str:
    """STRUCT and NAMED_STRUCT whose fields all have names."""
    fields = []
    for part in node.expressions:
        if isinstance(part, exp.PropertyEQ):
            name, value = part.this.name, part.expression
        elif isinstance(part, exp.Alias | exp.Column):
            name, value = part.alias_or_name, part
        else:
            return UNKNOWN
        fields.append(f"{name}:{of(value if isinstance(part, exp.Alias | exp.Column) else part).type}")
    return f"struct<{','.join(fields)}>" if fields else UNKNOWN


def _sequence(node: exp.Expr, of: CellOf) -> str:
    start, end = of(node.args.get("start")).type, of(node.args.get("end")).type
    return f"array<{start}>" if start == end and start in (*INTEGERS, "date", "timestamp") else UNKNOWN


def _either(node: exp.Expr, of: CellOf) -> str:
    return common_type([of(node.args.get("true")).type, of(node.args.get("false")).type])


def _quantile(node: exp.Expr, of: CellOf) -> str:
    """PERCENTILE_APPROX, whose result is an array where several percentages are asked for."""
    kind = of(node.this).type
    return kind if isinstance(node.args.get("quantile"), exp.Literal) and _numeric(kind) else UNKNOWN


def _exact_quantile(node: exp.Expr, of: CellOf) -> str:
    single = isinstance(node, exp.Median) or isinstance(node.args.get("quantile"), exp.Literal)
    return "double" if single and _numeric(of(node.this).type) else UNKNOWN


def _double(node: exp.Expr, of: CellOf) -> str:
    """What is a double for every number, and something else for intervals."""
    return "double" if _numeric(of(_first(node)).type) else UNKNOWN


def _text_only(node: exp.Expr, of: CellOf) -> str:
    return "string" if of(_first(node)).type == "string" else UNKNOWN


def _bits(node: exp.Expr, of: CellOf) -> str:
    kinds: Sequence[str] = [of(child).type for child in node.iter_expressions()]
    return common_type(kinds) if all(kind in INTEGERS for kind in kinds) else UNKNOWN


def _divided(node: exp.Expr, of: CellOf) -> str:
    kinds = {of(node.this).type, of(node.expression).type}
    return "double" if kinds <= {*INTEGERS, *FLOATS} else UNKNOWN


def _window(node: exp.Expr, of: CellOf) -> str:
    return "struct<start:timestamp,end:timestamp>" if of(_first(node)).type == "timestamp" else UNKNOWN


def _from_json(node: exp.Expr, _: CellOf) -> str:
    """FROM_JSON by a schema that is written as a literal."""
    schema = node.expression
    if not isinstance(schema, exp.Literal) or not schema.is_string:
        return UNKNOWN
    try:
        return simple_name(parse_type(f"struct<{schema.name}>"))
    except ValueError:
        return UNKNOWN


def _first(node: exp.Expr) -> exp.Expr | None:
    by_name = isinstance(node, exp.Anonymous)
    return (node.expressions[0] if node.expressions else None) if by_name else node.this


def _numeric(kind: str) -> bool:
    return kind in FLOATS or decimal_of(kind) is not None


FUNCTIONS: dict[type[exp.Expr], Rule] = {
    exp.Dot: field,
    **dict.fromkeys((exp.Explode, exp.Bracket, exp.ArrayMax, exp.ArrayMin), element),
    **dict.fromkeys((exp.ArraySort, exp.ArrayDistinct, exp.ArraySlice, exp.ArrayFilter), _array_only),
    exp.ArrayUniqueAgg: _array_of,
    exp.Flatten: _flattened,
    exp.ArrayAppend: _appended,
    exp.ArrayExcept: _both_alike,
    exp.MapKeys: _of_map("keys"),
    exp.VarMap: _map,
    exp.Struct: _struct,
    exp.PropertyEQ: lambda node, of: of(node.expression).type,
    exp.GenerateSeries: _sequence,
    exp.Nvl2: _either,
    **dict.fromkeys((exp.ArgMax, exp.ArgMin, exp.Mode), same),
    exp.ApproxQuantile: _quantile,
    **dict.fromkeys((exp.Quantile, exp.Median), _exact_quantile),
    **dict.fromkeys((exp.Sign, exp.Cbrt, exp.Rint, exp.Skewness, exp.Kurtosis, exp.RegrSlope), _double),
    **dict.fromkeys(
        (exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan, exp.Atan2, exp.Sinh, exp.Cosh, exp.Tanh, exp.Log,
         exp.Degrees, exp.Radians, exp.Pi),
        "double",
    ),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.BitwiseAndAgg), _bits),
    exp.SafeDivide: _divided,
    exp.FromJson: _from_json,
    **dict.fromkeys((exp.ArraySize, exp.BitLength, exp.UnixDate), "int"),
    **dict.fromkeys(
        (exp.ArrayPosition, exp.UnixSeconds, exp.UnixMillis, exp.UnixMicros, exp.WidthBucket, exp.Factorial), "bigint"
    ),
    **dict.fromkeys(
        (exp.JSONFormat, exp.JSONExtractScalar, exp.SHA, exp.SHA2, exp.ArrayToString, exp.Translate, exp.Format,
         exp.Soundex, exp.Hex, exp.ToBase64, exp.Decode, exp.Chr, exp.SplitPart, exp.Uuid, exp.Typeof, exp.ParseUrl,
         exp.CurrentTimezone, exp.SessionUser, exp.Space),
        "string",
    ),
    exp.GroupConcat: _text_only,
    **dict.fromkeys((exp.Unhex, exp.FromBase64, exp.Encode, exp.HexString), "binary"),
    **dict.fromkeys((exp.Any, exp.IsNan, exp.MapContainsKey, exp.EqualNull), "boolean"),
    exp.DateFromUnixDate: "date",
    exp.StrToMap: "map<string,string>",
}  # fmt: skip

BY_NAME: dict[str, Rule] = {
    **dict.fromkeys(("WEEKDAY", "HASH", "CARDINALITY", "OCTET_LENGTH", "JSON_ARRAY_LENGTH", "FIND_IN_SET",
                     "SPARK_PARTITION_ID"), "int"),
    **dict.fromkeys(("XXHASH64", "MONOTONICALLY_INCREASING_ID", "CRC32", "BIGINT"), "bigint"),
    **dict.fromkeys(("NOW", "TIMESTAMP_SECONDS", "TIMESTAMP_MILLIS", "TIMESTAMP_MICROS"), "timestamp"),
    **dict.fromkeys(("UUID", "BTRIM", "FORMAT_NUMBER", "PRINTF", "VERSION", "URL_ENCODE", "URL_DECODE",
                     "SCHEMA_OF_JSON", "CONV", "BIN", "INPUT_FILE_NAME"), "string"),
    **dict.fromkeys(("EVERY", "SOME", "ISNULL", "ISNOTNULL", "FORALL"), "boolean"),
    **dict.fromkeys(("E", "HYPOT", "EXPM1", "LOG1P"), "double"),
    **dict.fromkeys(("ARRAY_UNION", "ARRAY_INTERSECT"), _both_alike),
    "MAKE_DATE": "date",
    "MAP_VALUES": _of_map("values"),
    "MAP_ENTRIES": _of_map("entries"),
    "WINDOW": _window,
}  # fmt: skip
