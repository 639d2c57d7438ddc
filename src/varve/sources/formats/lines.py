"""A landing file as bytes and as lines of text: decompressed, decoded, and whole to its last line break.

Not here: records of CSV, which may take several lines (records.py).
"""

from __future__ import annotations

import codecs
import contextlib
import io
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from varve.sources.formats.file_reading import BadFile, FileReading
from varve.sources.formats.records import LONGEST
from varve.sources.formats.texts import NOT_TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator

# The names of compressions in Arrow.
_CODECS = {"gzip": "gzip", "zstd": "zstd", "bzip2": "bz2"}
_ERRORS = "varve.landing"
EMPTY = "the file is empty. One without rows has a line break, and nothing else."
UNENDED = (
    "the file ends in the middle of a line: it is truncated. If its sender never ends the last line, declare "
    "last_line = 'any' in its OPTIONS."
)


def unpacked(file: Any, compression: str) -> Any:
    """The decompressed file; reading to the end of a truncated one raises OSError."""
    return pa.CompressedInputStream(pa.PythonFile(file, "r"), _CODECS[compression]) if compression else file


def lines_of(file: Any, encoding: str) -> Iterator[str]:
    """The lines of a text with their line breaks; bytes that cannot be decoded become NOT_TEXT.

    Raises BadFile for a line that is longer than any row: a small packed file may hold one of many gigabytes.
    """
    codecs.register_error(_ERRORS, _not_text)
    name = codecs.lookup(encoding).name
    raw = io.BufferedReader(file) if isinstance(file, io.RawIOBase) else file
    text = io.TextIOWrapper(raw, "utf-8-sig" if name == "utf-8" else name, _ERRORS, newline="")
    try:
        for number, line in enumerate(iter(partial(text.readline, LONGEST), "")):
            if len(line) == LONGEST:
                raise BadFile(f"line {number + 1} has {LONGEST:,} or more characters: that is no row.")
            yield line.removeprefix("\ufeff") if number == 0 else line
    finally:
        # The caller has opened the file, and closes it.
        with contextlib.suppress(ValueError):
            text.detach()


def refuse_unended(last: bytes, reading: FileReading) -> None:
    """Raise BadFile where the last bytes of a text are not the end of a line, or there are none."""
    if reading.ended and not last:
        raise BadFile(EMPTY)
    if reading.ended and not last[-4:].replace(b"\0", b"").endswith((b"\n", b"\r")):
        raise BadFile(UNENDED)


def _not_text(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return NOT_TEXT, error.end
