"""The partitions of a dataset as a calendar: days of a month, hours of a day, weeks of a year, as its windows are.

Not here: how it looks (templates/dataset.html), and the one line of a dataset on the first page
(varve/planning/operations/heat.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError
from varve.model.partitions.key import parse_path
from varve.planning.operations.heat import WORST_FIRST

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.time_dimension import TimeDimension
    from varve.planning.judgement.judgement import Judgement

_HOUR, _DAY = 3_600, 86_400
# With more of them a page takes longer to read than to ask for the next one.
ROWS = 60
_COLUMNS = 60
# Of an earlier declaration: its windows are others.
OTHER = "other"
_WEEKDAY = "%a"
# Of our own, and not of a locale: they are in their order, too.
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a partition stands: on which page (a month, a year), in which row and in which column."""

    page: str
    row: tuple[str, ...]
    column: str


@dataclass(frozen=True)
class Scale:
    """What a page, a row and a column are, as formats of a window's begin (strftime); "" where it is not divided."""

    page: str
    row: str
    column: str


def scale_of(time: TimeDimension, *, alone: bool) -> Scale:
    """By the length of its first window; `alone`: the dataset has no other dimension whose keys would be the rows."""
    length = time.calendar.following(time.first) - time.first
    if length < 23 * _HOUR:
        return Scale("%Y-%m", "%Y-%m-%d", "%H:%M")
    if length < 2 * _DAY:
        return Scale("%Y-%m", "%G-W%V", _WEEKDAY) if alone else Scale("%Y-%m", "", "%d")
    if length < 28 * _DAY:
        return Scale("%Y", "%Y-%m", "%d") if alone else Scale("%Y", "", "%m-%d")
    return Scale("", "%Y", "%m") if length < 360 * _DAY else Scale("", "", "%Y")


def places_of(dataset: Dataset, paths: Collection[str]) -> dict[str, Place]:
    """The place of each partition. Without a time dimension all are on one page, by their keys."""
    time = dataset.partitioning.time
    if time is None:
        return {path: _by_keys([text for _, text in parse_path(path)]) for path in paths}
    columns = set(time.column_names)
    scale = scale_of(time, alone=len(dataset.partitioning.dimensions) == 1)
    begins: dict[tuple[tuple[str, str], ...], dt.datetime | None] = {}
    places = {}
    for path in paths:
        pairs = parse_path(path)
        window = tuple([pair for pair in pairs if pair[0] in columns])
        if window not in begins:
            begins[window] = _begin(time, dict(window))
        begin = begins[window]
        keys = tuple([text for name, text in pairs if name not in columns])
        if begin is None:
            places[path] = Place(OTHER, tuple([text for _, text in pairs]), "")
        else:
            row = (*keys, begin.strftime(scale.row)) if scale.row else keys
            column = _WEEKDAYS[begin.weekday()] if scale.column == _WEEKDAY else begin.strftime(scale.column)
            places[path] = Place(begin.strftime(scale.page), row, column)
    return places


def _begin(time: TimeDimension, texts: Mapping[str, str]) -> dt.datetime | None:
    """When a window begins by the clock of its zone; None where the texts name none."""
    try:
        return time.calendar.wall(time.start_of(time.parse_columns(texts)))
    except (VarveError, KeyError):
        return None


def _by_keys(keys: Sequence[str]) -> Place:
    return Place("", tuple(keys[:-1]), keys[-1]) if len(keys) > 1 else Place("", tuple(keys), "")


def calendar_values(
    places: Mapping[str, Place], judgements: Mapping[str, Judgement], paths: Sequence[str], *, first_row: int = 0
) -> dict[str, Any] | None:
    """The page of these partitions as plain values: its columns, and from `first_row` on its rows of cells.

    None where there are too few or too many columns: it is but a list. A cell has the worst of its partitions: more
    than one stands in it where a clock shows an hour twice.
    """
    cells: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for path in paths:
        cells.setdefault((places[path].row, places[path].column), []).append(path)
    columns = sorted({column for _, column in cells}, key=_order)
    rows = sorted({row for row, _ in cells})
    if len(columns) < 2 or len(columns) > _COLUMNS:
        return None
    shown = []
    for row in rows[first_row : first_row + ROWS]:
        line = []
        for column in columns:
            in_cell = cells.get((row, column), [])
            worst = min(in_cell, key=lambda path: WORST_FIRST.index(judgements[path].state), default=None)
            line.append(
                None if worst is None
                else {"path": worst, "state": str(judgements[worst].state), "reason": judgements[worst].reason,
                      "partitions": len(in_cell)}
            )  # fmt: skip
        shown.append({"name": ", ".join(row) or "all", "cells": line})
    return {
        "columns": columns, "rows": shown, "first_row": first_row, "all_rows": len(rows), "next_row": first_row + ROWS,
    }  # fmt: skip


def _order(column: str) -> tuple[int, str]:
    return (_WEEKDAYS.index(column) if column in _WEEKDAYS else -1, column)
