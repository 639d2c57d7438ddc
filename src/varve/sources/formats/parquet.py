"""Parquet files as chunks: their types are compared with the declared ones, and values cast where nothing is lost.

Not here: values that Arrow cannot cast (objects.py).
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from varve.sources.formats import objects
from varve.sources.formats.checks import TEXT_CHARACTERS, shown
from varve.sources.formats.chunk import CHUNK_CHARACTERS, CHUNK_ROWS, Chunk, ChunkBuilder, refusal
from varve.sources.formats.file_reading import BadFile, DeclaredColumn, FileReading, refuse_columns
from varve.sources.formats.texts import MOST_DECIMAL_DIGITS, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow.parquet as pq

# About how far from 1970 a moment in nanoseconds may be.
_MOST_MICROS = 9_200_000_000_000_000


def parquet_chunks(file: Any, reading: FileReading, key: Mapping[str, Any]) -> Iterator[Chunk]:
    """The rows of an unpacked Parquet file of the partition `key`. Raises BadFile."""
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    schema = parquet.schema_arrow
    refuse_columns(schema.names, reading)
    keys = [column for column in reading.keys if column.name in schema.names and column.name in key]
    if wrong := [
        f"{column.name} is {schema.field(column.name).type} in the file, declared {column.label}"
        for column in (*reading.columns, *keys)
        if not _compatible(schema.field(column.name).type, column.kind)
    ]:
        raise BadFile(f"its columns are of other types: {'; '.join(wrong)}.")
    metadata = parquet.metadata
    ends = list(itertools.accumulate(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)))
    place = 0
    names = [*reading.names, *(column.name for column in keys)]
    for batch in _batches(file, parquet, names):
        builder = ChunkBuilder(range(place + 1, place + 1 + batch.num_rows), {})
        for column in (*reading.columns, *keys):
            values = batch.column(batch.schema.get_field_index(column.name))
            words: dict[int, str] = {}
            try:
                array = _cast(values, column, reading)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                array, refused = objects.column(values.to_pylist(), column.kind, reading.spelling)
                words = {
                    row: refusal(values[row].as_py(), column, reading, reason_of(error))
                    for row, error in refused.items()
                }
            builder.add(array, _LazyValues(values), words, column, key if column in keys else None)
        yield builder.chunk(_row_of(batch), None if len(ends) < 2 else lambda row: bisect.bisect_left(ends, row) + 1)
        place += batch.num_rows


def _batches(file: Any, parquet: pq.ParquetFile, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of these columns, with all the digits that a moment has in the file.

    The oldest type of moments (INT96) is read as microseconds, because nanoseconds reach from 1677 to 2262 only. Where
    all moments of a batch lie there, they are read as nanoseconds, so that no digit is cut in silence.
    """
    import pyarrow.parquet as pq

    rows = _rows_at_once(parquet.metadata)
    batches = parquet.iter_batches(rows, columns=[*names])
    columns = map(parquet.schema.column, range(len(parquet.schema)))
    if not (old := [column.path for column in columns if column.physical_type == "INT96" and column.path in names]):
        yield from batches
        return
    finer = pq.ParquetFile(file).iter_batches(rows, columns=old)
    for batch, fine in zip(batches, finer, strict=True):
        whole = batch
        for name in old:
            moments, at = batch.column(name), batch.schema.get_field_index(name)
            lowest, highest = (value.value for value in pc.min_max(moments).values())
            if lowest is None or (lowest > -_MOST_MICROS and highest < _MOST_MICROS):
                field = fine.schema.field(name)
                whole = whole.set_column(at, field, fine.column(name))
        yield whole


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    """How many rows of the file are in memory at once: fewer where they are large, by its largest row group."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    largest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(CHUNK_ROWS, CHUNK_CHARACTERS // max(largest, 1)))


class _LazyValues(Sequence[Any]):
    """The values of an Arrow array as Python values, each converted when it is accessed."""

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: Any) -> Any:
        return self.values[row].as_py()


def _row_of(batch: pa.RecordBatch) -> Callable[[int], str]:
    return lambda row: shown(
        json.dumps(batch.slice(row, 1).to_pylist()[0], default=str, ensure_ascii=False), TEXT_CHARACTERS
    )


def _cast(values: pa.Array, column: DeclaredColumn, reading: FileReading) -> pa.Array:
    """The values cast to the declared type. Raises ArrowInvalid where the cast might lose something."""
    kinds = pa.types
    if kinds.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type == column.kind:
        return values
    # A column of nothing but NULL may have a type of its own, which has no zone.
    instants = kinds.is_timestamp(column.kind) and kinds.is_timestamp(values.type)
    local = instants and (values.type.tz is None) != (column.kind.tz is None)
    from_binary = kinds.is_floating(values.type) and not kinds.is_float64(column.kind)
    to_binary = kinds.is_floating(column.kind) and not kinds.is_floating(values.type)
    if local or from_binary or to_binary or kinds.is_nested(column.kind) or _may_overflow(values.type, column.kind):
        raise pa.ArrowInvalid(reading.spelling.timezone)
    return values.cast(column.kind)


def _may_overflow(file_type: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a decimal number may get more digits, by those that are added after the point, than Arrow counts."""
    if not (pa.types.is_decimal(file_type) and pa.types.is_decimal(declared)):
        return False
    return bool(file_type.precision + max(0, declared.scale - file_type.scale) > MOST_DECIMAL_DIGITS)


def _compatible(file_type: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of the file's type can be values of the declared type at all."""
    kinds = pa.types
    if kinds.is_dictionary(file_type):
        return _compatible(file_type.value_type, declared)
    if kinds.is_null(file_type):
        return True

    def family(kind: pa.DataType) -> str:
        tests = {
            "number": (kinds.is_integer, kinds.is_floating, kinds.is_decimal),
            "text": (kinds.is_string, kinds.is_large_string, kinds.is_string_view),
            "bytes": (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary, kinds.is_binary_view),
            "truth": (kinds.is_boolean,),
            "date": (kinds.is_date,),
            "instant": (kinds.is_timestamp,),
            "fields": (kinds.is_struct,),
            "pairs": (kinds.is_map,),
            "list": (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list),
        }
        return next(
            (name for name, tests_of_family in tests.items() if any(test(kind) for test in tests_of_family)), str(kind)
        )

    return family(file_type) == family(declared)
