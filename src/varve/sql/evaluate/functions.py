"""The functions that can be evaluated before a run, as in Spark, over whole columns of scopes and partitions.

This is an allow-list: each function is compared with Spark itself in tests/sql/test_functions.py. A function that is
not on the list, or a value on which Spark would fail, raises `CannotEvaluate`; a planner then takes the condition for
TRUE. Logic is three-valued: a column knows where it is NULL.

Not here: casts (casts.py), the functions themselves (scalars.py), and which partitions a condition keeps
(pushdown/scans.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from varve.model.errors import counted
from varve.sql.evaluate import lists, scalars, texts
from varve.sql.evaluate.asked import NoValues, asked_value, is_asked
from varve.sql.evaluate.calls import named, takes, written
from varve.sql.evaluate.casts import cast, common, compared
from varve.sql.evaluate.vector import BOOLEAN, NULL, STRING, Array, CannotEvaluate, Vector, ranked
from varve.sql.syntax.type_names import simple_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from varve.sql.evaluate.asked import SparkValues

_COMPARISONS: dict[type[exp.Expr], Callable[..., Array]] = {
    exp.EQ: np.equal,
    exp.NEQ: np.not_equal,
    exp.LT: np.less,
    exp.LTE: np.less_equal,
    exp.GT: np.greater,
    exp.GTE: np.greater_equal,
}

# The arguments that a node may have; any other changes its meaning in a way that is not known here (BETWEEN SYMMETRIC).
_ARGUMENTS = frozenset({
    "this", "expression", "expressions", "start", "length", "replacement", "fill_pattern", "is_left", "format", "unit",
    "low", "high", "true", "false", "ifs", "default", "to", "times", "position", "zone", "query", "unnest", "negate",
    "safe", "ignore_nulls", "is_string", "quoted", "table", "db", "is_nvl", "coalesce", "limit", "offset", "substr",
    "delimiter", "part_index", "count",
})  # fmt: skip


class Evaluator:
    """Evaluates expressions over columns.

    Args:
        columns: the columns by table and name, in lower case; the table is "" for a name without one.
        timezone: the time zone of the Spark session.
        spark_values: what Spark said of calls that are not evaluated here.
    """

    def __init__(
        self,
        columns: Mapping[tuple[str, str], Vector],
        timezone: str = "UTC",
        spark_values: SparkValues | None = None,
    ) -> None:
        self.columns = columns
        self.timezone = timezone
        self.spark_values = spark_values or NoValues()

    def of(self, node: exp.Expr) -> Vector:
        """Return the value of an expression. Raises CannotEvaluate."""
        if not isinstance(node, exp.Expr):
            raise CannotEvaluate(None, "a call without one of its arguments")
        if strange := [name for name, value in node.args.items() if value and name not in _ARGUMENTS]:
            raise CannotEvaluate(node, f"{written(node)} ({', '.join(strange)}) is not evaluated before a run")
        try:
            value = self._value(node)
        except CannotEvaluate:
            raise
        except (OverflowError, ValueError) as error:
            # Python's calendar has the years 1 to 9999: DATE '9999-12-31' is a moment of the next one in other zones.
            raise CannotEvaluate(node, f"{written(node)} ({error})") from None
        if node.args.get("negate"):
            # s NOT LIKE 'a%' is one node.
            return _not(value)
        return value

    def _value(self, node: exp.Expr) -> Vector:
        evaluate_node = _NODES.get(type(node))
        if evaluate_node is not None:
            return evaluate_node(self, node)
        if is_asked(node):
            return asked_value(node, self.of, self.spark_values)
        if isinstance(node, exp.Anonymous):
            called = scalars.BY_NAME.get(node.name.upper())
            arguments = node.expressions
        else:
            called = scalars.BY_CLASS.get(type(node))
            arguments = scalars.arguments_of(node)
        if called is None:
            raise CannotEvaluate(node, f"{written(node)} is not evaluated before a run")
        if not takes(called, len(arguments)):
            raise CannotEvaluate(node, f"{written(node)} with {counted(len(arguments), 'argument')}")
        return called(self, node, *[self.of(argument) for argument in arguments])

    def cast(self, vector: Vector, to: str) -> Vector:
        """Cast a column to another type, in the session's time zone."""
        return cast(vector, to, self.timezone)


def is_known(node: exp.Expr) -> bool:
    """Whether an expression is on the allow-list, regardless of its columns and values."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper() in scalars.BY_NAME or is_asked(node)
    return type(node) in _NODES or type(node) in scalars.BY_CLASS


def truth(vector: Vector) -> tuple[Array, Array]:
    """Return where a condition is TRUE, and where it is FALSE; elsewhere it is NULL."""
    if vector.type == NULL:
        none = np.zeros(vector.values.shape, dtype=bool)
        return none, none
    if vector.type != BOOLEAN:
        raise CannotEvaluate(None, f"a condition is a boolean, not {vector.type}")
    return vector.values & vector.valid, ~vector.values & vector.valid


def _column(evaluator: Evaluator, node: exp.Expr) -> Vector:
    assert isinstance(node, exp.Column)
    column = evaluator.columns.get((node.table.lower(), node.name.lower()))
    if column is None:
        raise CannotEvaluate(node, f"{node.sql('spark')} is not known before a run")
    return column


def _literal(_: Evaluator, node: exp.Expr) -> Vector:
    if node.is_string:
        return Vector.constant(STRING, node.name)
    if not node.is_int:
        raise CannotEvaluate(node, "decimals are not evaluated before a run")
    value = int(node.name)
    return Vector.constant("int" if value < 2**31 else "bigint", value)


def _cast(evaluator: Evaluator, node: exp.Expr) -> Vector:
    assert isinstance(node, exp.Cast | exp.TryCast)
    if node.args.get("safe") or node.args.get("format"):
        raise CannotEvaluate(node, "TRY_CAST is not evaluated before a run")
    return evaluator.cast(evaluator.of(node.this), simple_name(node.to))


def _compare(evaluator: Evaluator, node: exp.Expr) -> Vector:
    return _comparison(evaluator, type(node), evaluator.of(node.this), evaluator.of(node.expression))


def _comparison(evaluator: Evaluator, kind: type[exp.Expr], left: Vector, right: Vector) -> Vector:
    left, right = compared(left, right, evaluator.timezone)
    left_values, right_values = (
        ranked(left.values, right.values) if left.type == STRING else (left.values, right.values)
    )
    values = np.asarray(_COMPARISONS[kind](left_values, right_values), dtype=bool)
    return Vector(BOOLEAN, values, np.broadcast_to(left.valid & right.valid, values.shape))


def _null_safe(evaluator: Evaluator, node: exp.Expr) -> Vector:
    left, right = compared(evaluator.of(node.this), evaluator.of(node.expression), evaluator.timezone)
    equal = _comparison(evaluator, exp.EQ, left, right)
    same = (equal.values & equal.valid) | (~left.valid & ~right.valid)
    values = ~same if isinstance(node, exp.NullSafeNEQ) else same
    return Vector(BOOLEAN, values, np.ones(values.shape, dtype=bool))


def _between(evaluator: Evaluator, node: exp.Expr) -> Vector:
    """BETWEEN as two comparisons, each with its own implied casts."""
    value = evaluator.of(node.this)
    low = _comparison(evaluator, exp.GTE, value, evaluator.of(node.args["low"]))
    return _and(low, _comparison(evaluator, exp.LTE, value, evaluator.of(node.args["high"])))


def _in(evaluator: Evaluator, node: exp.Expr) -> Vector:
    if node.args.get("query") or node.args.get("unnest") or not node.expressions:
        raise CannotEvaluate(node, "IN of a query")
    if isinstance(node.this, exp.Tuple):
        return lists.rows_in(evaluator, node, lambda *pair: _comparison(evaluator, exp.EQ, *pair), _and, _or)
    return _among(evaluator, evaluator.of(node.this), [evaluator.of(item) for item in node.expressions])


def _among(evaluator: Evaluator, value: Vector, items: Sequence[Vector]) -> Vector:
    to = common([value.type, *(item.type for item in items)])
    value = evaluator.cast(value, to)
    result = Vector.constant(BOOLEAN, False)  # noqa: FBT003 - a value
    for item in items:
        result = _or(result, _comparison(evaluator, exp.EQ, value, evaluator.cast(item, to)))
    return result


def _array_contains(evaluator: Evaluator, node: exp.Expr) -> Vector:
    return lists.array_contains(evaluator, node, lambda value, items: _among(evaluator, value, items))


def _escaped_like(evaluator: Evaluator, node: exp.Expr) -> Vector:
    """LIKE ... ESCAPE '/'."""
    like, escape = node.this, node.expression
    if type(like) is not exp.Like or not escape.is_string or len(escape.name) != 1:
        raise CannotEvaluate(node, "an ESCAPE of another kind")
    result = texts.like(evaluator, like, evaluator.of(like.this), evaluator.of(like.expression), escape.name)
    return _not(result) if like.args.get("negate") else result


def _and(left: Vector, right: Vector) -> Vector:
    (yes, no), (also, nor) = truth(left), truth(right)
    return _decided(yes & also, no | nor)


def _or(left: Vector, right: Vector) -> Vector:
    (yes, no), (also, nor) = truth(left), truth(right)
    return _decided(yes | also, no & nor)


def _not(vector: Vector) -> Vector:
    yes, no = truth(vector)
    return _decided(no, yes)


def _decided(yes: Array, no: Array) -> Vector:
    return Vector(BOOLEAN, yes, yes | no)


def _is(evaluator: Evaluator, node: exp.Expr) -> Vector:
    value, what = evaluator.of(node.this), node.expression
    if isinstance(what, exp.Null):
        # `value.valid` alone decides: the values of a NULL have no meaning.
        return Vector(BOOLEAN, ~value.valid, np.ones(value.valid.shape, dtype=bool))
    if isinstance(what, exp.Boolean):
        yes, no = truth(value)
        return _decided(yes, ~yes) if what.this else _decided(no, ~no)
    raise CannotEvaluate(node, "only IS NULL, IS TRUE and IS FALSE are evaluated before a run")


def _conditional(evaluator: Evaluator, node: exp.Expr) -> Vector:
    """IF and both forms of CASE."""
    if isinstance(node, exp.If):
        branches, otherwise = [node], node.args.get("false")
    else:
        branches, otherwise = node.args["ifs"], node.args.get("default")
    subject = node.this if isinstance(node, exp.Case) else None
    results = [evaluator.of(branch.args["true"]) for branch in branches]
    last = evaluator.of(otherwise) if otherwise is not None else Vector.constant(NULL, None)
    to = common([*(result.type for result in results), last.type])
    result_column = evaluator.cast(last, to)
    for branch, result in reversed(list(zip(branches, results, strict=True))):
        when = evaluator.of(branch.this)
        if subject is not None:
            when = _comparison(evaluator, exp.EQ, evaluator.of(subject), when)
        result_column = chosen(truth(when)[0], evaluator.cast(result, to), result_column)
    return result_column


def chosen(where: Array, where_true: Vector, where_false: Vector) -> Vector:
    """Return the first column where a condition holds, the second elsewhere; both must have one type."""
    return Vector(
        where_true.type,
        np.where(where, where_true.values, where_false.values),
        np.where(where, where_true.valid, where_false.valid),
    )


def _coalesce(evaluator: Evaluator, node: exp.Expr) -> Vector:
    vectors = [evaluator.of(argument) for argument in (node.this, *node.expressions)]
    to = common([vector.type for vector in vectors])
    result = evaluator.cast(vectors[-1], to)
    for vector in reversed(vectors[:-1]):
        result = chosen(vector.valid, evaluator.cast(vector, to), result)
    return result


def _nvl2(evaluator: Evaluator, node: exp.Expr) -> Vector:
    condition = evaluator.of(node.this)
    not_null_value, null_value = named(evaluator, node, "true"), named(evaluator, node, "false")
    to = common([not_null_value.type, null_value.type])
    return chosen(condition.valid, evaluator.cast(not_null_value, to), evaluator.cast(null_value, to))


def _refuse(node: exp.Expr, what: str) -> Vector:
    raise CannotEvaluate(node, f"{what} is not evaluated before a run")


def _nullif(evaluator: Evaluator, node: exp.Expr) -> Vector:
    value = evaluator.of(node.this)
    equal = truth(_comparison(evaluator, exp.EQ, value, evaluator.of(node.expression)))[0]
    valid = value.valid & ~equal
    return Vector(value.type, np.broadcast_to(value.values, valid.shape), valid)


def _extreme(evaluator: Evaluator, node: exp.Expr) -> Vector:
    """GREATEST and LEAST, which ignore NULLs."""
    vectors = [evaluator.of(argument) for argument in (node.this, *node.expressions)]
    to = common([vector.type for vector in vectors])
    kind = exp.GT if isinstance(node, exp.Greatest) else exp.LT
    extreme = evaluator.cast(vectors[0], to)
    for vector in vectors[1:]:
        candidate = evaluator.cast(vector, to)
        better = truth(_comparison(evaluator, kind, candidate, extreme))[0] | (candidate.valid & ~extreme.valid)
        extreme = chosen(better, candidate, extreme)
    return extreme


_NODES: dict[type[exp.Expr], Callable[[Evaluator, exp.Expr], Vector]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: lambda _, node: Vector.constant(BOOLEAN, bool(node.this)),
    exp.Null: lambda _, __: Vector.constant(NULL, None),
    exp.Paren: lambda evaluator, node: evaluator.of(node.this),
    exp.Cast: _cast,
    exp.TryCast: _cast,
    **dict.fromkeys(_COMPARISONS, _compare),
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: _null_safe,
    exp.Between: _between,
    exp.In: _in,
    # These are evaluated only within IN, ARRAY_CONTAINS and similar functions; by themselves they have no value here.
    exp.Tuple: lambda _, node: _refuse(node, "a row of values"),
    exp.Array: lambda _, node: _refuse(node, "a list"),
    exp.RegexpSplit: lambda _, node: _refuse(node, "a list"),
    exp.ArrayContains: _array_contains,
    exp.ArraySize: lists.size,
    exp.Bracket: lists.element,
    exp.Escape: _escaped_like,
    exp.Nvl2: _nvl2,
    exp.EqualNull: _null_safe,
    exp.And: lambda evaluator, node: _and(evaluator.of(node.this), evaluator.of(node.expression)),
    exp.Or: lambda evaluator, node: _or(evaluator.of(node.this), evaluator.of(node.expression)),
    exp.Not: lambda evaluator, node: _not(evaluator.of(node.this)),
    exp.Is: _is,
    exp.Add: scalars.plus,
    exp.Sub: scalars.plus,
    exp.If: _conditional,
    exp.Case: _conditional,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Greatest: _extreme,
    exp.Least: _extreme,
}
