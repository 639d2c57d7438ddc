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
from varve.sql.evaluate.date_patterns import pattern_of
from varve.sql.evaluate.vector import CannotEvaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from varve.sql.syntax.sql_file import ColumnDefinition, TimeSeries

    Computed: TypeAlias = Callable[[Sequence[tuple[int, int]]], list[object]]

_STRFTIME = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_UNPADDED = {"M": "%-m", "d": "%-d", "H": "%-H"}
_USUAL = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H", "%Y-%m", "%Y")


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
        formats = dict.fromkeys([*date_formats(expression), *_USUAL])
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
            "partition. Write all of the time into it, such as DATE_FORMAT(t, \"yyyy-MM-dd'T'HH:mm\"), or into several "
            f"columns: PARTITIONED BY (day DATE, hour INT) and INSERT (day = CAST(t AS DATE), hour = HOUR(t))."
        )
    raise VarveError(
        f"{column.name} is {first!r} at {series.start}, from which its window cannot be read back; write "
        f"{_advice(plain)}."
    )


def _advice(plain: TimeDimension) -> str:
    return "CAST(t AS DATE)" if plain.value_type is not str else "DATE_FORMAT(t, \"yyyy-MM-dd'T'HH:mm\")"


def _repeats(plain: TimeDimension, computed: Computed) -> bool:
    following = plain.calendar.following
    second = plain.calendar.next_start(plain.first)
    first_key, second_key = computed([(start, following(start)) for start in (plain.first, second)])
    return first_key == second_key


def date_formats(expression: exp.Expr) -> Iterator[str]:
    """Yield the strftime formats that correspond to the DATE_FORMAT patterns in the expression."""
    for node in expression.find_all(exp.TimeToStr):
        try:
            parts = pattern_of(node.args["format"])
        except CannotEvaluate:
            continue
        formats = _STRFTIME | _UNPADDED
        if all(text in formats for text, letters in parts if letters):
            yield "".join(formats[text] if letters else text.replace("%", "%%") for text, letters in parts)


def _compare(dimension: TimeDimension, computed: Computed) -> None:
    starts = list(dimension.sample())
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
