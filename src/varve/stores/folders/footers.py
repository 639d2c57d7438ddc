"""Reads the footers of the parquet files in a batch folder: their rows, bytes, bounds, and the types of columns.

Not here: writing files (write.py).
"""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.model.batch import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from varve.model.schema import Column


_MARK = b"PAR1"
# Most footers are shorter than this, so that one read of a file's end is enough.
_TAIL = 1 << 16


@dataclass(frozen=True, slots=True)
class FolderSummary:
    """All data files of one folder together."""

    rows: int
    size: int
    files: int
    bounds: tuple[Bounds, ...] = ()
    problems: tuple[str, ...] = ()
    seal: str | None = None


def data_files(files: Any, folder: str) -> list[dict[str, Any]]:
    """The parquet files of a batch folder, with their sizes; none where there is no folder. One call."""
    try:
        entries = files.ls(folder, detail=True, refresh=True)
    except FileNotFoundError:
        return []
    return [entry for entry in entries if entry["name"].endswith(".parquet")]


def rows_and_seal(files: Any, entries: Iterable[dict[str, Any]]) -> tuple[int, str]:
    """The rows of parquet files by their footers, and the seal (a hash) of the footers.

    Raises OSError or ValueError, which names the file, where a footer is not complete.
    """
    rows, sealed = 0, _Seal()
    for entry in entries:
        try:
            footer, raw = _footer(files, entry["name"], entry["size"])
        except (OSError, ValueError) as error:
            raise ValueError(f"{entry['name']} is no whole parquet file: {str(error).splitlines()[0]}") from error
        rows += int(footer.num_rows)
        sealed.add(entry["name"], raw)
    return rows, sealed.text()


def refuse_broken_pages(files: Any, name: str) -> None:
    """Read all of a parquet file. Raises OSError or ValueError for a broken page, or one with a wrong checksum."""
    import pyarrow.parquet as pq

    with files.open(name, "rb") as file:
        whole = pq.ParquetFile(file, page_checksum_verification=True)
        for _ in whole.iter_batches():
            pass


class _Seal:
    """A hash of the names and footers of files; their order does not matter."""

    def __init__(self) -> None:
        self._of_files: dict[str, bytes] = {}

    def add(self, name: str, footer: bytes) -> None:
        """Add a file."""
        self._of_files[name.rsplit("/", 1)[-1]] = hashlib.blake2b(footer, digest_size=16).digest()

    def text(self) -> str:
        """The hash."""
        whole = hashlib.blake2b(digest_size=16)
        for name, digest in sorted(self._of_files.items()):
            whole.update(name.encode() + b"\0" + digest)
        return whole.hexdigest()


def footer_rows(files: Any, name: str, size: int | None = None) -> int:
    """The rows of a parquet file by its footer. Raises OSError or ValueError where the footer is not complete."""
    return int(_footer(files, name, size)[0].num_rows)


def rows_of_groups(files: Any, entry: dict[str, Any]) -> list[int]:
    """The rows of each row group of a listed parquet file. Raises as `footer_rows` does."""
    footer, _ = _footer(files, entry["name"], entry["size"])
    return [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]


def schema_and_rows(files: Any, name: str) -> tuple[pa.Schema, int]:
    """The columns and the number of rows of a parquet file by its footer. Raises as `footer_rows` does."""
    footer, _ = _footer(files, name)
    return footer.schema.to_arrow_schema(), int(footer.num_rows)


def column_names(files: Any, folder: str) -> Sequence[str]:
    """The columns of a batch folder, by the footer of a file. Raises as `footer_rows` does, and where there is none."""
    entries = data_files(files, folder)
    if not entries:
        raise FileNotFoundError(f"there is no parquet file in {folder}")
    footer, _ = _footer(files, entries[0]["name"], entries[0]["size"])
    return tuple(footer.schema.to_arrow_schema().names)


def survey(
    files: Any, entries: Iterable[dict[str, Any]], columns: Sequence[Column], *, bounds: Sequence[str] = ()
) -> FolderSummary:
    """Summarise files, and compare them with the declared columns. Raises OSError or ValueError for a broken file."""
    rows = size = count = 0
    sealed = _Seal()
    problems: list[str] = []
    ranges: dict[str, list[tuple[Any, Any] | None]] = {name: [] for name in bounds}
    for entry in entries:
        footer, raw = _footer(files, entry["name"], entry["size"])
        sealed.add(entry["name"], raw)
        rows, size, count = rows + footer.num_rows, size + entry["size"], count + 1
        problems += [f"{entry['name']}: {text}" for text in _differences(footer.schema.to_arrow_schema(), columns)]
        for name in bounds:
            ranges[name] += _ranges(footer, name)
    return FolderSummary(rows, size, count, tuple(_bounds(ranges)), tuple(problems), sealed.text())


def _footer(files: Any, name: str, size: int | None = None) -> tuple[Any, bytes]:
    """The metadata in the footer, and the bytes of the footer with the length and the mark at its end.

    One call, where the size is known from a listing and the footer is no longer than most.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    end = int(files.size(name) if size is None else size)
    tail = files.cat_file(name, start=max(0, end - _TAIL), end=end)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if len(tail) < length <= end:
        tail = files.cat_file(name, start=end - length, end=end)
    raw = tail[-length:]
    # The reader also expects the mark at the beginning of a file.
    return pq.read_metadata(pa.BufferReader(_MARK + raw)), raw


def _differences(schema: pa.Schema, columns: Sequence[Column]) -> Iterable[str]:
    from varve.stores.frames import arrow_type

    if schema.names != (names := [column.name for column in columns]):
        yield f"it has the columns {', '.join(schema.names)}, declared are {', '.join(names)}."
        return
    for column in columns:
        # Parts of nested types may have several names; Spark has checked the types when it cast the frame.
        written = schema.field(column.name).type
        if not column.type.nested and not written.equals(arrow_type(column.type)):
            yield f"{column.name} is declared {column.type}, and written as {written}."


def _ranges(footer: Any, column: str) -> list[tuple[Any, Any] | None]:
    """The lowest and highest value of each row group; None where the file does not have them."""
    ranges: list[tuple[Any, Any] | None] = []
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        for column_index in range(group.num_columns):
            part = group.column(column_index)
            if part.path_in_schema == column:
                statistics = part.statistics
                if statistics is not None and statistics.has_min_max:
                    ranges.append(_range(statistics))
                elif statistics is None or statistics.null_count != part.num_values:
                    ranges.append(None)
    return ranges


def _range(statistics: Any) -> tuple[Any, Any] | None:
    """The lowest and the highest value; None where Python has no such date, as of a year above 9999."""
    try:
        return statistics.min, statistics.max
    except (OverflowError, ValueError):
        return None


def _bounds(ranges: dict[str, list[tuple[Any, Any] | None]]) -> Iterable[Bounds]:
    for name, column_ranges in ranges.items():
        known_ranges = [pair for pair in column_ranges if pair is not None]
        if len(known_ranges) == len(column_ranges):
            low, high = (
                min((pair[0] for pair in known_ranges), default=None),
                max((pair[1] for pair in known_ranges), default=None),
            )
            yield Bounds(name, _text(low), _text(high))


def _text(value: Any) -> str | None:
    if isinstance(value, dt.date):
        return value.isoformat()
    return None if value is None else str(value)
