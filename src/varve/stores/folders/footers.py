"""What really lies in a batch folder, by the footers of its parquet files: rows, bytes, bounds, and the columns' types.

Not here: writing them (write.py).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.model.batch import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from varve.model.schema import Column


_MARK = b"PAR1"
# Most footers are shorter: one read of the end is enough.
_TAIL = 1 << 16


@dataclass(frozen=True, slots=True)
class Found:
    """The data files of one folder, taken together."""

    rows: int
    size: int
    files: int
    bounds: tuple[Bounds, ...] = ()
    problems: tuple[str, ...] = ()
    seal: str | None = None


def data_files(files: Any, folder: str) -> list[dict[str, Any]]:
    """The parquet files of a batch folder, with their sizes; none where there is no folder."""
    if not files.exists(folder):
        return []
    return [entry for entry in files.ls(folder, detail=True, refresh=True) if entry["name"].endswith(".parquet")]


def rows_and_seal(files: Any, entries: Iterable[dict[str, Any]]) -> tuple[int, str]:
    """The rows of parquet files by their footers, and the seal of those.

    Raises OSError or ValueError, which names the file, where one has no whole footer.
    """
    rows, sealed = 0, _Seal()
    for entry in entries:
        try:
            footer, raw = _footer(files, entry["name"])
        except (OSError, ValueError) as error:
            raise ValueError(f"{entry['name']} is no whole parquet file: {str(error).splitlines()[0]}") from error
        rows += int(footer.num_rows)
        sealed.add(entry["name"], raw)
    return rows, sealed.text()


def refuse_broken_pages(files: Any, name: str) -> None:
    """Read all of a parquet file. Raises OSError or ValueError where a page is not as its checksum says, or no page."""
    import pyarrow.parquet as pq

    with files.open(name, "rb") as file:
        whole = pq.ParquetFile(file, page_checksum_verification=True)
        for _ in whole.iter_batches():
            pass


class _Seal:
    """A hash of files' names and footers, in whatever order they are added."""

    def __init__(self) -> None:
        self._of_files: dict[str, bytes] = {}

    def add(self, name: str, footer: bytes) -> None:
        """One more file."""
        self._of_files[name.rsplit("/", 1)[-1]] = hashlib.blake2b(footer, digest_size=16).digest()

    def text(self) -> str:
        """The hash."""
        whole = hashlib.blake2b(digest_size=16)
        for name, digest in sorted(self._of_files.items()):
            whole.update(name.encode() + b"\0" + digest)
        return whole.hexdigest()


def footer_rows(files: Any, name: str) -> int:
    """The rows of a parquet file by its footer. Raises OSError or ValueError where it has no whole one."""
    return int(_footer(files, name)[0].num_rows)


def survey(
    files: Any, entries: Iterable[dict[str, Any]], columns: Sequence[Column], *, bounds: Sequence[str] = ()
) -> Found:
    """All of these files, compared with the declared columns. Raises OSError or ValueError for a broken one."""
    rows = size = count = 0
    sealed = _Seal()
    problems: list[str] = []
    ranges: dict[str, list[tuple[Any, Any] | None]] = {name: [] for name in bounds}
    for entry in entries:
        footer, raw = _footer(files, entry["name"])
        sealed.add(entry["name"], raw)
        rows, size, count = rows + footer.num_rows, size + entry["size"], count + 1
        problems += [f"{entry['name']}: {text}" for text in _differences(footer.schema.to_arrow_schema(), columns)]
        for name in bounds:
            ranges[name] += _ranges(footer, name)
    return Found(rows, size, count, tuple(_bounds(ranges)), tuple(problems), sealed.text())


def _footer(files: Any, name: str) -> tuple[Any, bytes]:
    """What the footer says, and its bytes with the mark and the length at the end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with files.open(name, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - _TAIL))
        tail = file.read()
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > len(tail) and length <= end:
            file.seek(end - length)
            tail = file.read()
    raw = tail[-length:]
    # The reader wants the mark of a file's beginning too.
    return pq.read_metadata(pa.BufferReader(_MARK + raw)), raw


def _differences(found: pa.Schema, columns: Sequence[Column]) -> Iterable[str]:
    from varve.stores.frames import arrow_type

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
