"""Reads one landing file of any format as chunks of Arrow columns, with all refused values.

Not here: parsing values (texts.py, objects.py), and reading many files (tasks.py).
"""

from __future__ import annotations

import bisect
import codecs
import contextlib
import io
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from varve.sources.formats import objects
from varve.sources.formats.checks import (
    TEXT_CHARACTERS,
    RowProblem,
    absent_rows,
    contradicting_rows,
    row_text,
    shown,
    value_text,
)
from varve.sources.formats.records import QUOTED_EMPTY, Records
from varve.sources.formats.texts import NOT_TEXT, RefusedText, Spelling, TextReader, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_CHUNK_ROWS = 32_768
_SHOWN = 80
_BLOCK = 1 << 20
# The names of compressions in Arrow.
_CODECS = {"gzip": "gzip", "zstd": "zstd", "bzip2": "bz2"}
_ERRORS = "varve.landing"
_TEXTS = {"csv", "jsonl"}


class BadFile(Exception):
    """An error of a file as a whole; its text is a sentence for people."""


@dataclass(frozen=True)
class DeclaredColumn:
    """A declared column: its name, its type as people write it (`label`), its Arrow type, and its nullability."""

    name: str
    label: str
    kind: pa.DataType
    nullable: bool = True


@dataclass(frozen=True)
class FileReading:
    """How the files of a dataset are read; see `LandingOptions`.

    Attributes:
        nulls: the texts that mean NULL.
        ended: whether the last line must end in a line break.
        extra: whether columns that are not declared are ignored.
        keys: partition columns that a file may contain too; their values must agree with its name.
    """

    columns: tuple[DeclaredColumn, ...]
    separator: str = ","
    quote: str = '"'
    encoding: str = "utf-8"
    header: str = "in order"
    nulls: frozenset[str] = frozenset({"NA"})
    ended: bool = True
    extra: bool = False
    spelling: Spelling = field(default=Spelling())
    keys: tuple[DeclaredColumn, ...] = ()

    @property
    def known_names(self) -> set[str]:
        """The names of the columns that a file may have."""
        return {column.name for column in (*self.columns, *self.keys)}

    @property
    def names(self) -> list[str]:
        """The names of the declared columns, in order."""
        return [column.name for column in self.columns]


@dataclass(frozen=True)
class FileSource:
    """A file: its URI, its format, and its compression ("": none)."""

    uri: str
    format: str
    compression: str = ""

    @property
    def unit(self) -> str:
        """The unit of `RowProblem.place`: `line` for text formats, else `row`."""
        return "line" if self.format in _TEXTS else "row"


@dataclass
class Chunk:
    """Consecutive rows: the declared columns, and the problems of refused values, which are NULL in the columns."""

    columns: list[pa.Array]
    rows: int
    problems: list[RowProblem] = field(default_factory=list)


def chunks(
    file: Any, source: FileSource, reading: FileReading, key: Mapping[str, Any] | None = None
) -> Iterator[Chunk]:
    """The rows of an open binary file of the partition `key`. Raises BadFile for an error of the file as a whole."""
    read = {"csv": _csv, "jsonl": _json_lines, "parquet": _parquet, "avro": _avro}[source.format]
    try:
        yield from read(unpacked(file, source.compression), reading, key or {})
    except (pa.ArrowInvalid, EOFError) as error:
        raise BadFile(f"it cannot be read as {source.format}: {_first_line(error)}.") from error
    except OSError as error:
        if source.compression or source.format not in _TEXTS:
            raise BadFile(
                f"it is no whole {source.compression or source.format} file: {_first_line(error)}."
            ) from error
        raise


def unpacked(file: Any, compression: str) -> Any:
    """The decompressed file; reading to the end of a truncated one raises OSError."""
    return pa.CompressedInputStream(pa.PythonFile(file, "r"), _CODECS[compression]) if compression else file


def lines_of(file: Any, encoding: str) -> Iterator[str]:
    """The lines of a text with their line breaks; bytes that cannot be decoded become NOT_TEXT."""
    codecs.register_error(_ERRORS, _not_text)
    name = codecs.lookup(encoding).name
    raw = io.BufferedReader(file) if isinstance(file, io.RawIOBase) else file
    text = io.TextIOWrapper(raw, "utf-8-sig" if name == "utf-8" else name, _ERRORS, newline="")
    try:
        for number, line in enumerate(text):
            yield line.removeprefix("\ufeff") if number == 0 else line
    finally:
        # The caller has opened the file, and closes it.
        with contextlib.suppress(ValueError):
            text.detach()


UNENDED = (
    "the file ends in the middle of a line: it is truncated. If its sender never ends the last line, declare "
    "last_line = 'any' in its OPTIONS."
)


def header_problem(names: Sequence[str], reading: FileReading) -> str:
    """The problem with the column names of a file, as a phrase; "" where they are right."""
    wanted = reading.names
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in reading.known_names]
    twice = sorted({name for name in names if list(names).count(name) > 1})
    differences = [f"missing {', '.join(missing)}"] if missing else []
    differences += [f"not declared {', '.join(extra)}"] if extra and not reading.extra else []
    differences += [f"twice {', '.join(twice)}"] if twice and not differences else []
    if not differences and reading.header == "in order" and [name for name in names if name in wanted] != wanted:
        differences = ["another order"]
    return f"the columns are not the declared ones: {'; '.join(differences)}" if differences else ""


def header_of(records: Iterator[tuple[int, list[str], str]], reading: FileReading) -> list[str]:
    """The column names in the first record. Raises BadFile where they are not the declared ones."""
    first = next(records, None)
    if first is None:
        raise BadFile("the file is empty, without even a header line.")
    line, names, problem = first
    names = ["" if name == QUOTED_EMPTY else name for name in names]
    if any(NOT_TEXT in name for name in names):
        problem = f"the header is not {reading.encoding.upper()}"
    if problem := problem or header_problem(names, reading):
        raise BadFile(f"line {line}: {problem}.")
    return names


def records_of(file: Any, reading: FileReading) -> Records:
    """The records of an unpacked CSV file."""
    lines = lines_of(file, reading.encoding)
    return Records(lines, reading.separator, reading.quote, blank_lines=len(reading.columns) == 1)


def look(file: Any, source: FileSource, reading: FileReading) -> None:
    """Check the columns and the end of an open file without reading its rows. Raises BadFile."""
    stream = unpacked(file, source.compression)
    try:
        if source.format == "csv" and reading.header != "none":
            header_of(iter(records_of(stream, reading)), reading)
        elif source.format in {"parquet", "avro"}:
            next(chunks(stream, FileSource(source.uri, source.format), reading), None)
        if source.compression:
            last = b""
            file.seek(0)
            # The first stream must stay alive: when it is garbage-collected it closes the file.
            second_stream = unpacked(file, source.compression)
            while read := second_stream.read(_BLOCK):
                last = read
            refuse_unended(last, reading)
    except (OSError, pa.ArrowInvalid) as error:
        raise BadFile(f"it is no whole {source.compression or source.format} file: {_first_line(error)}.") from error


def refuse_unended(last: bytes, reading: FileReading) -> None:
    """Raise BadFile where the last bytes of a text are not the end of a line."""
    if reading.ended and not last[-4:].replace(b"\0", b"").endswith((b"\n", b"\r")):
        raise BadFile(UNENDED)


def _csv(file: Any, reading: FileReading, key: Mapping[str, Any]) -> Iterator[Chunk]:
    all_records = records_of(file, reading)
    records = iter(all_records)
    names = reading.names if reading.header == "none" else header_of(records, reading)
    declared = [(column, names.index(column.name)) for column in reading.columns]
    keys = [
        (column, names.index(column.name)) for column in reading.keys if column.name in names and column.name in key
    ]
    readers = [TextReader(column.kind, reading.spelling) for column, _ in (*declared, *keys)]
    expected = len(names)
    while rows := list(itertools.islice(records, _CHUNK_ROWS)):
        if all_records.unended and reading.ended:
            raise BadFile(UNENDED)
        refused_rows: dict[int, RowProblem] = {}
        for row, (line, fields, problem) in enumerate(rows):
            if problem or len(fields) != expected:
                reason_text = problem or f"{len(fields)} fields, {expected} expected"
                raw = row_text(fields, reading.separator, reading.quote)
                refused_rows[row] = RowProblem(line, row, "", reason_text, raw, lines=all_records.spans.get(line, 1))
                rows[row] = (line, [""] * expected, "")
        all_records.spans.clear()
        texts = list(zip(*[fields for _, fields, _ in rows], strict=True))
        builder = _ChunkBuilder([line for line, _, _ in rows], refused_rows)
        for reader, (column, place) in zip(readers, (*declared, *keys), strict=True):
            array, refused = reader.column(_without_nulls(texts[place], reading.nulls, column.kind))
            words = {row: _words(texts[place][row], column, reading, reason) for row, reason in refused.items()}
            builder.add(array, texts[place], words, column, key if column in reading.keys else None)
        yield builder.chunk(lambda row: row_text(rows[row][1], reading.separator, reading.quote))


@dataclass
class _ChunkBuilder:
    """Collects the columns of a chunk and the problems in them.

    Attributes:
        places: the line or the number of each row.
        lost: the rows that were refused as a whole, by their number in the chunk.
    """

    places: Sequence[int]
    lost: dict[int, RowProblem]
    columns: list[pa.Array] = field(default_factory=list)
    problems: list[RowProblem] = field(default_factory=list)

    def add(
        self,
        array: pa.Array,
        values: Sequence[Any],
        refused: Mapping[int, str],
        column: DeclaredColumn,
        key: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a column, with the reason for each refused row; with `key` it is a partition column, and only checked."""
        words = {row: reason for row, reason in refused.items() if row not in self.lost}
        passed_over = {*refused, *self.lost}
        if key is not None:
            for row, value in contradicting_rows(array, key[column.name], passed_over):
                contradiction = (
                    "nothing stands there" if value is None else f"{value_text(value)!r} contradicts the file's name"
                )
                words[row] = f"{contradiction}; it is a file of {column.name} = {value_text(key[column.name])!r}"
        elif not column.nullable:
            words |= dict.fromkeys(absent_rows(array, passed_over), "nothing stands there, and it is NOT NULL")
        if key is None:
            self.columns.append(array)
        self.problems += [
            RowProblem(self.places[row], row, column.name, reason, value=value_text(values[row]))
            for row, reason in words.items()
        ]

    def chunk(self, raw: Callable[[int], str], group: Callable[[int], int] | None = None) -> Chunk:
        """The chunk; `raw` returns the text of a row, `group` the row group of a place."""
        problems = [
            replace(refused, raw=raw(refused.row), group=group(refused.place) if group else 0)
            for refused in self.problems
        ]
        refused = sorted([*self.lost.values(), *problems], key=lambda problem: problem.row)
        return Chunk(self.columns, len(self.places), refused)


def _without_nulls(texts: Sequence[str], nulls: frozenset[str], kind: pa.DataType) -> list[str | None]:
    """The texts, with None for empty fields and for texts that mean NULL; `""` is an empty text in a text column."""
    empty = "" if pa.types.is_string(kind) or pa.types.is_binary(kind) else None
    absent = nulls | {""}
    if QUOTED_EMPTY not in texts:
        return [None if text in absent else text for text in texts]
    return [empty if text == QUOTED_EMPTY else None if text in absent else text for text in texts]


def _json_lines(file: Any, reading: FileReading, key: Mapping[str, Any]) -> Iterator[Chunk]:
    lines = enumerate(lines_of(file, reading.encoding), start=1)
    while numbered_lines := list(itertools.islice(lines, _CHUNK_ROWS)):
        if reading.ended and numbered_lines[-1][1][-1] not in "\r\n":
            raise BadFile(UNENDED)
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        refused_rows: dict[int, RowProblem] = {}
        for line, text in numbered_lines:
            if not text.strip():
                continue
            try:
                rows.append(_json_row(text, reading))
            except (ValueError, RecursionError) as error:
                words = reason_of(error) or f"it is no JSON: {_first_line(error)}"
                refused_rows[len(rows)] = RowProblem(
                    line, len(rows), "", words, shown(text.rstrip("\r\n"), TEXT_CHARACTERS)
                )
                rows.append({})
            places.append(line)
        raws = [text for _, text in numbered_lines if text.strip()]
        yield _chunk_of_objects(rows, _ChunkBuilder(places, refused_rows), reading, key, raws)


def _json_row(text: str, reading: FileReading) -> dict[str, Any]:
    import decimal

    if NOT_TEXT in text:
        raise RefusedText(f"{text.strip()[:_SHOWN].replace(NOT_TEXT, chr(0xFFFD))!r} is not {reading.encoding.upper()}")
    row = json.loads(text, parse_float=decimal.Decimal, object_pairs_hook=_once)
    if not isinstance(row, dict):
        raise RefusedText(f"{text.strip()[:_SHOWN]!r} is no object")
    if not reading.extra and (unknown := [name for name in row if name not in reading.known_names]):
        raise RefusedText(f"not declared {', '.join(unknown)}")
    return row


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise RefusedText("a name stands twice in one object")
    return fields


def _avro(file: Any, reading: FileReading, key: Mapping[str, Any]) -> Iterator[Chunk]:
    import fastavro

    try:
        reader = fastavro.reader(file)
        schema, place = reader.writer_schema, 0
        _refuse_columns([field["name"] for field in schema["fields"]] if isinstance(schema, dict) else [], reading)
        while rows := cast("list[dict[str, Any]]", list(itertools.islice(reader, _CHUNK_ROWS))):
            yield _chunk_of_objects(rows, _ChunkBuilder(range(place + 1, place + 1 + len(rows)), {}), reading, key)
            place += len(rows)
    except BadFile:
        raise
    except (ValueError, KeyError, IndexError, TypeError, EOFError, fastavro.schema.SchemaParseException) as error:
        raise BadFile(f"it is no whole avro file: {_first_line(error)}.") from error


def _parquet(file: Any, reading: FileReading, key: Mapping[str, Any]) -> Iterator[Chunk]:
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    schema = parquet.schema_arrow
    _refuse_columns(schema.names, reading)
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
    for batch in parquet.iter_batches(_CHUNK_ROWS, columns=[*reading.names, *(column.name for column in keys)]):
        builder = _ChunkBuilder(range(place + 1, place + 1 + batch.num_rows), {})
        for column in (*reading.columns, *keys):
            values = batch.column(batch.schema.get_field_index(column.name))
            words: dict[int, str] = {}
            try:
                array = _cast(values, column, reading)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                array, refused = objects.column(values.to_pylist(), column.kind, reading.spelling)
                words = {
                    row: _words(values[row].as_py(), column, reading, reason_of(error))
                    for row, error in refused.items()
                }
            builder.add(array, _Lazily(values), words, column, key if column in keys else None)
        yield builder.chunk(_row_of(batch), None if len(ends) < 2 else lambda row: bisect.bisect_left(ends, row) + 1)
        place += batch.num_rows


class _Lazily(Sequence[Any]):
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
    if values.type == column.kind:
        return values
    kinds = pa.types
    local = kinds.is_timestamp(column.kind) and (values.type.tz is None) != (column.kind.tz is None)
    from_binary = kinds.is_floating(values.type) and not kinds.is_float64(column.kind)
    to_binary = kinds.is_floating(column.kind) and not kinds.is_floating(values.type)
    if local or from_binary or to_binary or kinds.is_nested(column.kind):
        raise pa.ArrowInvalid(reading.spelling.timezone)
    return values.cast(column.kind)


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


def _chunk_of_objects(
    rows: Sequence[dict[str, Any]],
    builder: _ChunkBuilder,
    reading: FileReading,
    key: Mapping[str, Any],
    raws: Sequence[str] | None = None,
) -> Chunk:
    keys = [column for column in reading.keys if column.name in key and any(column.name in row for row in rows)]
    for column in (*reading.columns, *keys):
        values = [row.get(column.name) for row in rows]
        is_key = column in keys
        if is_key:
            # An object without the partition column does not contradict the partition of the file.
            values = [row.get(column.name, key[column.name]) for row in rows]
        array, refused = objects.column(values, column.kind, reading.spelling)
        words = {row: _words(values[row], column, reading, reason_of(error)) for row, error in refused.items()}
        builder.add(array, values, words, column, key if is_key else None)

    def raw(row: int) -> str:
        if raws is not None:
            return shown(raws[row].rstrip("\r\n"), TEXT_CHARACTERS)
        return shown(json.dumps(rows[row], default=str, ensure_ascii=False), TEXT_CHARACTERS)

    return builder.chunk(raw)


def _refuse_columns(names: Sequence[str], reading: FileReading) -> None:
    """Raise BadFile where the columns of a Parquet or Avro file are not the declared ones, in any order."""
    wanted = reading.names
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in reading.known_names and not reading.extra]
    differences = [f"missing {', '.join(missing)}"] if missing else []
    differences += [f"not declared {', '.join(extra)}"] if extra else []
    if differences:
        raise BadFile(f"its columns are not the declared ones: {'; '.join(differences)}.")


def _words(value: Any, column: DeclaredColumn, reading: FileReading, reason: str) -> str:
    shown = "" if value == QUOTED_EMPTY else value
    if isinstance(shown, str):
        shown = shown[:_SHOWN].replace(NOT_TEXT, "\ufffd")
    text = repr(shown) if isinstance(shown, str) else str(shown)[:_SHOWN]
    if isinstance(value, str) and NOT_TEXT in value:
        return f"{text} is not {reading.encoding.upper()}"
    return f"{text} is not of type {column.label}{f': {reason}' if reason else ''}"


def _not_text(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return NOT_TEXT, error.end


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
