"""What really lies in a batch folder, by the footers of its parquet files: rows, bytes, bounds, and the columns' types.

Not here: writing them (write.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_defs.model.batch import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from pipeline_defs.model.schema import Column


@dataclass(frozen=True, slots=True)
class Found:
    """The data files of one folder, taken together."""

    rows: int
    size: int
    files: int
    bounds: tuple[Bounds, ...] = ()
    problems: tuple[str, ...] = ()


def data_files(files: Any, folder: str) -> list[dict[str, Any]]:
    """The parquet files of a batch folder, with their sizes; none where there is no folder."""
    if not files.exists(folder):
        return []
    return [entry for entry in files.ls(folder, detail=True, refresh=True) if entry["name"].endswith(".parquet")]


def footer_rows(files: Any, name: str) -> int:
    """The rows of a parquet file by its footer. Raises OSError or ValueError where it has no whole one."""
    return int(_footer(files, name).num_rows)


def survey(
    files: Any, entries: Iterable[dict[str, Any]], columns: Sequence[Column], *, bounds: Sequence[str] = ()
) -> Found:
    """All of these files, compared with the declared columns. Raises OSError or ValueError for a broken one."""
    rows = size = count = 0
    problems: list[str] = []
    ranges: dict[str, list[tuple[Any, Any] | None]] = {name: [] for name in bounds}
    for entry in entries:
        footer = _footer(files, entry["name"])
        rows, size, count = rows + footer.num_rows, size + entry["size"], count + 1
        problems += [f"{entry['name']}: {text}" for text in _differences(footer.schema.to_arrow_schema(), columns)]
        for name in bounds:
            ranges[name] += _ranges(footer, name)
    return Found(rows, size, count, tuple(_bounds(ranges)), tuple(problems))


def _footer(files: Any, name: str) -> Any:
    import pyarrow.parquet as pq

    with files.open(name, "rb") as file:
        return pq.read_metadata(file)


def _differences(found: pa.Schema, columns: Sequence[Column]) -> Iterable[str]:
    from resources.frames import arrow_type

    if found.names != (names := [column.name for column in columns]):
        yield f"it has the columns {', '.join(found.names)}, declared are {', '.join(names)}."
        return
    for column in columns:
        # The parts of nested types are spelt in many ways; Spark has checked them when it cast the frame.
        written = found.field(column.name).type
        if not column.type.nested and not written.equals(arrow_type(column.type)):
            yield f"{column.name} is declared {column.type}, and written as {written}."


def _ranges(footer: Any, column: str) -> list[tuple[Any, Any] | None]:
    """The range of each row group; None where the file does not tell."""
    found: list[tuple[Any, Any] | None] = []
    for place in range(footer.num_row_groups):
        group = footer.row_group(place)
        for index in range(group.num_columns):
            part = group.column(index)
            if part.path_in_schema == column:
                told = part.statistics
                if told is not None and told.has_min_max:
                    found.append((told.min, told.max))
                elif told is None or told.null_count != part.num_values:
                    found.append(None)
    return found


def _bounds(ranges: dict[str, list[tuple[Any, Any] | None]]) -> Iterable[Bounds]:
    for name, found in ranges.items():
        whole = [pair for pair in found if pair is not None]
        if len(whole) == len(found):
            low, high = min((pair[0] for pair in whole), default=None), max((pair[1] for pair in whole), default=None)
            yield Bounds(name, _text(low), _text(high))


def _text(value: Any) -> str | None:
    if isinstance(value, dt.date):
        return value.isoformat()
    return None if value is None else str(value)
