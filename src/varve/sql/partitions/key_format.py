"""The keys of a time dimension, taken from its INSERT expression such as `DATE_FORMAT(t, 'yyyy-MM-dd')`.

A key must identify its window. So the expression is compared with the dimension's own keys over many windows (those
where clocks go back among them), and refused at the first window where they differ.

Not here: how the expression is evaluated (evaluate/constants.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pendulum
from sqlglot import exp

from varve.model.errors import VarveError
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.zone import stretch
from varve.sql.evaluate.date_patterns import pattern_of
from varve.sql.evaluate.vector import CannotEvaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from varve.sql.syntax.sql_file import ColumnDefinition, TimeSeries

    Computed: TypeAlias = Callable[[Sequence[tuple[int, int]]], list[object]]

_STRFTIME = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_USUAL = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H", "%Y-%m", "%Y")
_SAMPLES = 40


def key_format(series: TimeSeries, column: ColumnDefinition, expression: exp.Expr, computed: Computed) -> TimeDimension:
    """Return the dimension whose keys are the values of the expression.

    `computed` returns the expression's values for windows that are given as (start, end) in seconds since 1970.

    Raises VarveError where values repeat, are NULL, have another type, or cannot be parsed back into a window.
    """
    plain = TimeDimension(column.name, series.tiling, series.start, series.end)
    (first,) = computed([(plain.first, plain.calendar.following(plain.first))])
    if first is None:
        raise VarveError(f"{column.name} is NULL at {series.start}; no partition is named by NULL.")
    key_type = "STRING" if isinstance(first, str) else type(first).__name__.upper()
    if key_type != column.type:
        raise VarveError(f"{column.name} is declared {column.type}, but its expression is {key_type}.")
    candidates = [plain] if column.type == "DATE" or plain.value_type is str else []
    if column.type == "STRING":
        formats = dict.fromkeys([*_patterns(expression), *_USUAL])
        candidates += [TimeDimension(column.name, series.tiling, series.start, series.end, text) for text in formats]
    last: VarveError | None = None
    for candidate in candidates:
        try:
            candidate.check()
        except VarveError as error:
            last = last or error
            continue
        if candidate.value_at(candidate.first) == first:
            _compare(candidate, computed)
            return candidate
    if _repeats(plain, computed):
        raise VarveError(
            f"{column.name} is {first!r} for more than one window of {plain.tiling}: two scopes would write one "
            "partition. Write all of the time into it, such as DATE_FORMAT(t, \"yyyy-MM-dd'T'HH:mm\")."
        )
    raise VarveError(
        f"{column.name} is {first!r} at {series.start}, from which its window cannot be read back; write "
        f"{_advice(plain)}."
    )


def _advice(plain: TimeDimension) -> str:
    return "CAST(t AS DATE)" if plain.value_type is not str else "DATE_FORMAT(t, \"yyyy-MM-dd'T'HH:mm\")"


def _repeats(plain: TimeDimension, computed: Computed) -> bool:
    following = plain.calendar.following
    second = following(plain.first)
    first_key, second_key = computed([(plain.first, second), (second, following(second))])
    return first_key == second_key


def _patterns(expression: exp.Expr) -> Iterator[str]:
    """Yield the strftime formats that correspond to the DATE_FORMAT patterns in the expression."""
    for node in expression.find_all(exp.TimeToStr):
        try:
            parts = pattern_of(node.args["format"])
        except CannotEvaluate:
            continue
        if all(text in _STRFTIME for text, letters in parts if letters):
            yield "".join(_STRFTIME[text] if letters else text.replace("%", "%%") for text, letters in parts)


def _compare(dimension: TimeDimension, computed: Computed) -> None:
    starts = list(_windows(dimension))
    values = computed([(start, dimension.calendar.following(start)) for start in starts])
    for start, value in zip(starts, values, strict=True):
        key = dimension.value_at(start)
        if key != value:
            at = pendulum.from_timestamp(start, tz=dimension.timezone)
            why = (
                f"the clock of {dimension.timezone} shows it twice, so that two scopes would write one partition; take "
                "TIMEZONE 'UTC'"
                if str(key).startswith(str(value))
                else f"by which its window cannot be found; write {_advice(dimension)}"
            )
            raise VarveError(f"{dimension.name} is {value!r} at {at}: {why}.")


def _windows(dimension: TimeDimension) -> Iterator[int]:
    """Yield the starts of the windows to compare.

    These are the first ones, a sample over ten years, and those around each change of the clock.
    """
    following, floor = dimension.calendar.following, dimension.calendar.floor
    last = dimension.last or dimension.first + 10 * 366 * 86_400
    at = dimension.first
    for _ in range(_SAMPLES):
        if at < last:
            yield at
            at = following(at)
    step = max(1, (last - dimension.first) // _SAMPLES)
    yield from (floor(instant) for instant in range(dimension.first, last, step))
    turn = dimension.first
    while turn < last:
        around = stretch(dimension.timezone, turn)
        if around.offset < around.before and around.start > dimension.first:
            at = floor(around.start - 7_200)
            while at < min(around.start + 7_200, last):
                if at >= dimension.first:
                    yield at
                at = following(at)
        turn = around.end
