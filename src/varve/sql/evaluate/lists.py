"""Lists that are evaluated before a run: IN of rows, ARRAY(...), SPLIT(...), their elements and membership tests.

A list is no value of its own here: it exists only between SPLIT or ARRAY and the function that takes it.

Not here: lists of single values (functions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.evaluate.calls import written
from varve.sql.evaluate.regexes import java_regex, one_line
from varve.sql.evaluate.vector import BOOLEAN, NULL, STRING, CannotEvaluate, Vector, mapped_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varve.sql.evaluate.evaluation import Evaluation

# Separates the parts of a split text within one text; a text that contains this character is not split here.
_BETWEEN = "\x1f"


def rows_in(
    evaluator: Evaluation,
    node: exp.Expr,
    equal: Callable[[Vector, Vector], Vector],
    both: Callable[[Vector, Vector], Vector],
    either: Callable[[Vector, Vector], Vector],
) -> Vector:
    """`(a, b) IN ((1, 2), (3, 4))`.

    Rows must have no NULL, because Spark takes a NULL in a row for equal.
    """
    row = [evaluator.of(column) for column in node.this.expressions]
    result = Vector.constant(BOOLEAN, False)  # noqa: FBT003 - a value
    for item in node.expressions:
        if not isinstance(item, exp.Tuple) or len(item.expressions) != len(row):
            raise CannotEvaluate(node, "rows of another length")
        same = Vector.constant(BOOLEAN, True)  # noqa: FBT003 - a value
        for left, right in zip(row, map(evaluator.of, item.expressions), strict=True):
            if left.type != right.type or NULL in (left.type, right.type):
                raise CannotEvaluate(node, "rows of other types")
            if not (left.valid.all() and right.valid.all()):
                raise CannotEvaluate(node, "a NULL in a row")
            same = both(same, equal(left, right))
        result = either(result, same)
    return result


def array_contains(
    evaluator: Evaluation, node: exp.Expr, among: Callable[[Vector, Sequence[Vector]], Vector]
) -> Vector:
    """ARRAY_CONTAINS of an ARRAY(...), or of the parts of a split text."""
    value = evaluator.of(node.expression)
    if isinstance(node.this, exp.Array):
        items = [evaluator.of(item) for item in node.this.expressions]
        if not items or any(item.type != value.type for item in items):
            raise CannotEvaluate(node, "a list of other types")
        return among(value, items)
    if value.type != STRING:
        raise CannotEvaluate(node, "parts of a text that are no texts")
    parts = _split(evaluator, node.this)
    return mapped_texts(lambda text, part: part in text.split(_BETWEEN), BOOLEAN, [parts, value])


def element(evaluator: Evaluation, node: exp.Expr) -> Vector:
    """`SPLIT(...)[0]` and `ELEMENT_AT(SPLIT(...), 1)`. Raises CannotEvaluate beyond the end, where Spark fails."""
    (index,) = node.expressions
    places = evaluator.of(index)
    first = int(node.args.get("offset") or 0)
    if not places.is_integer:
        raise CannotEvaluate(node, "a place that is no whole number")

    def at(text: str, place: int) -> str:
        parts = text.split(_BETWEEN)
        start = len(parts) + place if first and place < 0 else place - first
        if not 0 <= start < len(parts) or (first and place == 0):
            raise CannotEvaluate(node, f"no element {place}")
        return parts[start]

    return mapped_texts(at, STRING, [_split(evaluator, node.this), places])


def size(evaluator: Evaluation, node: exp.Expr) -> Vector:
    """SIZE of the parts of a split text; not of NULL, where it depends on a setting of Spark."""
    parts = _split(evaluator, node.this)
    if not parts.valid.all():
        raise CannotEvaluate(node, "the size of NULL")
    return mapped_texts(lambda text: len(text.split(_BETWEEN)), "int", [parts])


def _split(evaluator: Evaluation, node: exp.Expr) -> Vector:
    """Return the parts of a split text, joined by `_BETWEEN` to one text."""
    if not isinstance(node, exp.RegexpSplit):
        raise CannotEvaluate(node, f"{written(node)} is not evaluated before a run")
    limit = node.args.get("limit")
    arguments = [
        evaluator.of(argument) for argument in (node.this, node.expression, *([limit] if limit is not None else []))
    ]
    if any(argument.type != kind for argument, kind in zip(arguments, (STRING, STRING, "int"), strict=False)):
        raise CannotEvaluate(node, "SPLIT of something else than texts")

    def split(text: str, pattern: str, most: int = -1) -> str:
        regex = java_regex(pattern)
        if regex.groups or regex.search("") is not None or _BETWEEN in text:
            raise CannotEvaluate(node, f"SPLIT by {pattern!r}")
        if any(not match[0] for match in regex.finditer(one_line(text))):
            raise CannotEvaluate(node, f"SPLIT by {pattern!r}, which may be nothing")
        if most == 1:
            return text
        return _BETWEEN.join(regex.split(text, maxsplit=max(most - 1, 0)))

    return mapped_texts(split, STRING, arguments)
