"""CSV files: their header and their records as chunks.

Not here: records (records.py), and parsing the texts of their fields (texts.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from varve.sources.formats.checks import RowProblem, row_text
from varve.sources.formats.chunk import Chunk, ChunkBuilder, next_rows, refusal
from varve.sources.formats.file_reading import BadFile, FileReading
from varve.sources.formats.lines import UNENDED, lines_of
from varve.sources.formats.records import QUOTED, Records, unmarked
from varve.sources.formats.texts import NOT_TEXT, TextReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def csv_chunks(file: Any, reading: FileReading, key: Mapping[str, Any]) -> Iterator[Chunk]:
    """The rows of an unpacked CSV file of the partition `key`. Raises BadFile."""
    all_records = records_of(file, reading)
    records = iter(all_records)
    names = reading.names if reading.header == "none" else header_of(records, reading)
    all_records.blank_lines = len(names) == 1
    declared = [(column, names.index(column.name)) for column in reading.columns]
    keys = [
        (column, names.index(column.name)) for column in reading.keys if column.name in names and column.name in key
    ]
    readers = [TextReader(column.kind, reading.spelling) for column, _ in (*declared, *keys)]
    expected = len(names)
    while rows := next_rows(records, lambda record: sum(map(len, record[1]))):
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
        builder = ChunkBuilder([line for line, _, _ in rows], refused_rows)
        for reader, (column, place) in zip(readers, (*declared, *keys), strict=True):
            array, refused = reader.column(_without_nulls(texts[place], reading.nulls, column.kind))
            words = {row: refusal(texts[place][row], column, reading, reason) for row, reason in refused.items()}
            builder.add(array, texts[place], words, column, key if column in reading.keys else None)
        yield builder.chunk(lambda row: row_text(rows[row][1], reading.separator, reading.quote))


def header_of(records: Iterator[tuple[int, list[str], str]], reading: FileReading) -> list[str]:
    """The column names in the first record. Raises BadFile where they are not the declared ones."""
    first = next(records, None)
    if first is None:
        raise BadFile("the file is empty, without even a header line.")
    line, names, problem = first
    names = [unmarked(name) for name in names]
    if any(NOT_TEXT in name for name in names):
        problem = f"the header is not {reading.encoding.upper()}"
    if problem := problem or _header_problem(names, reading):
        raise BadFile(f"line {line}: {problem}.")
    return names


def records_of(file: Any, reading: FileReading) -> Records:
    """The records of an unpacked CSV file."""
    lines = lines_of(file, reading.encoding)
    return Records(lines, reading.separator, reading.quote, nulls=reading.nulls)


def _header_problem(names: Sequence[str], reading: FileReading) -> str:
    """The problem with the column names of a file, as a phrase; "" where they are right."""
    wanted = reading.names
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in reading.known_names]
    # Of the others several may have one name, or none, as behind separators at the end of each line.
    twice = sorted({name for name in names if name in reading.known_names and list(names).count(name) > 1})
    differences = [f"missing {', '.join(missing)}"] if missing else []
    # Where blanks are all that is wrong with a name, or there is none, nobody sees it without quotes.
    shown = [name if name and name == name.strip() else repr(name) for name in extra]
    differences += [f"not declared {', '.join(shown)}"] if extra and not reading.extra else []
    differences += [f"twice {', '.join(twice)}"] if twice and not differences else []
    if not differences and reading.header == "in order" and [name for name in names if name in wanted] != wanted:
        differences = ["another order"]
    return f"the columns are not the declared ones: {'; '.join(differences)}" if differences else ""


def _without_nulls(texts: Sequence[str], nulls: frozenset[str], kind: pa.DataType) -> list[str | None]:
    """The texts, with None for empty fields and for texts that mean NULL; in a text column not for those in quotes."""
    absent = nulls | {""}
    if not any(text[:1] == QUOTED for text in texts):
        return [None if text in absent else text for text in texts]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return [text[1:] if text[:1] == QUOTED else None if text in absent else text for text in texts]
    return [None if text in absent or text[:1] == QUOTED else text for text in texts]
