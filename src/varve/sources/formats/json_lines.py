"""Files of JSON lines: one object a line, as chunks.

Not here: converting the values of the objects (objects.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from varve.sources.formats.checks import TEXT_CHARACTERS, RowProblem, shown
from varve.sources.formats.chunk import SHOWN_CHARACTERS, Chunk, ChunkBuilder, chunk_of_objects, next_rows
from varve.sources.formats.file_reading import BadFile, FileReading, first_line
from varve.sources.formats.lines import UNENDED, lines_of
from varve.sources.formats.texts import NOT_TEXT, RefusedText, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# No declared type holds a number of more digits, and Python reads none of some thousands.
_MOST_DIGITS = 1000


def json_chunks(file: Any, reading: FileReading, key: Mapping[str, Any]) -> Iterator[Chunk]:
    """The rows of an unpacked file of JSON lines of the partition `key`. Raises BadFile."""
    lines = enumerate(lines_of(file, reading.encoding), start=1)
    while numbered_lines := next_rows(lines, lambda line: len(line[1])):
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
                words = reason_of(error) or f"it is no JSON: {first_line(error)}"
                refused_rows[len(rows)] = RowProblem(
                    line, len(rows), "", words, shown(text.rstrip("\r\n"), TEXT_CHARACTERS)
                )
                rows.append({})
            places.append(line)
        raws = [text for _, text in numbered_lines if text.strip()]
        yield chunk_of_objects(rows, ChunkBuilder(places, refused_rows), reading, key, raws)


def _json_row(text: str, reading: FileReading) -> dict[str, Any]:
    import decimal

    if NOT_TEXT in text:
        raise RefusedText(
            f"{text.strip()[:SHOWN_CHARACTERS].replace(NOT_TEXT, chr(0xFFFD))!r} is not {reading.encoding.upper()}"
        )
    try:
        row = json.loads(text, parse_float=decimal.Decimal, parse_int=_whole, object_pairs_hook=_once)
    except decimal.InvalidOperation:
        raise RefusedText("a number in it has an exponent of too many digits") from None
    if not isinstance(row, dict):
        raise RefusedText(f"{text.strip()[:SHOWN_CHARACTERS]!r} is no object")
    if not reading.extra and (unknown := [name for name in row if name not in reading.known_names]):
        raise RefusedText(f"not declared {', '.join(unknown)}")
    return row


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise RefusedText(f"a number in it has more than {_MOST_DIGITS:,} digits")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise RefusedText("a name stands twice in one object")
    return fields
