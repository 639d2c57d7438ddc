"""CSV as RFC 4180 has it: Python's csv module is the oracle, over random dialects and contents."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from varve.sources.formats.file_reading import BadFile, DeclaredColumn, FileReading, FileSource
from varve.sources.formats.formats import chunks
from varve.sources.formats.records import Records, unmarked

if TYPE_CHECKING:
    from varve.sources.formats.chunk import Chunk

# What parsers stumble over, often.
ODD = [
    '"',
    "'",
    ",",
    ";",
    "\t",
    "|",
    "\n",
    "\r",
    "\r\n",
    "\x1a",
    "\x00",
    "\\",
    " ",
    "\u00a0",
    "\u2028",
    "\x85",
    "\x0b",
    "é",
]
PIECES = st.one_of(st.sampled_from(ODD), st.sampled_from(["a", "NA", "0", "\ufffd", "東", "😀"]))
TEXTS = st.lists(PIECES, max_size=12).map("".join)
SEPARATORS, QUOTES = st.sampled_from([",", ";", "\t", "|"]), st.sampled_from(['"', "'"])


def parsed(text: str, separator: str, quote: str) -> tuple[list[list[str]], list[str]]:
    records = Records(iter(io.StringIO(text, newline="")), separator, quote)
    fields_of_records = list(records)
    fields = [[unmarked(field) for field in fields] for _, fields, _ in fields_of_records]
    return fields, [problem for _, _, problem in fields_of_records if problem]


@settings(max_examples=1_000)
@given(TEXTS, SEPARATORS, QUOTES)
def test_any_text_is_the_records_of_the_csv_module_or_refused_where_it_refuses(
    text: str, separator: str, quote: str
) -> None:
    fields, problems = parsed(text, separator, quote)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quotechar=quote, strict=True)
    try:
        expected = [row for row in reader if row]
    except csv.Error:
        assert problems
    else:
        assert (fields, problems) == (expected, [])


def chunk(content: bytes, reading: FileReading, *, kind: str = "csv", packed: str = "") -> Chunk:
    (only_chunk,) = chunks(io.BytesIO(content), FileSource("file", kind, packed), reading)
    return only_chunk


@settings(max_examples=300)
@given(
    st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(TEXTS, min_size=width, max_size=width), max_size=6)),
    st.tuples(SEPARATORS, QUOTES, st.sampled_from(["\n", "\r\n"])),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "gb18030"]),
)
def test_whatever_the_csv_module_writes_is_read_as_it_was_and_no_row_is_dropped(
    rows: list[list[str]], dialect: tuple[str, str, str], quoting: int, encoding: str
) -> None:
    separator, quote, end = dialect
    width = len(rows[0]) if rows else 2
    names = [f"c{number}" for number in range(width)]
    text = io.StringIO(newline="")
    # Python 3.11 writes a lone CR without quotes where lines end in LF, and then reads it as an end itself.
    quoting = quoting if end == "\r\n" else csv.QUOTE_ALL
    writer = csv.writer(text, delimiter=separator, quotechar=quote, lineterminator=end, quoting=quoting)  # type: ignore[arg-type]
    writer.writerows([names, *rows])
    reading = FileReading(
        tuple(DeclaredColumn(name, "STRING", pa.string()) for name in names),
        separator,
        quote,
        "utf-8" if encoding == "utf-8-sig" else encoding,
    )
    if not rows:
        assert list(chunks(io.BytesIO(text.getvalue().encode(encoding)), FileSource("f", "csv"), reading)) == []
        return
    read_chunk = chunk(text.getvalue().encode(encoding), reading)
    assert read_chunk.problems == []
    values = [list(row) for row in zip(*[column.to_pylist() for column in read_chunk.columns], strict=True)]
    # Nothing and NA are NULL; nothing between quotes is a text. Whether it is written so is the writer's choice.
    assert [["" if value in {None, "NA"} else value for value in row] for row in values] == [
        ["" if value == "NA" else value for value in row] for row in rows
    ]


ONE = FileReading((DeclaredColumn("a", "STRING", pa.string()),))
TWO = FileReading((DeclaredColumn("a", "STRING", pa.string()), DeclaredColumn("b", "STRING", pa.string())))


@pytest.mark.parametrize(
    ("content", "reading", "expected"),
    [
        (b"a\n\x1a\n", ONE, [["\x1a"]]),
        (b"a\n \n", ONE, [[" "]]),
        (b'a\nx\n\n""\n', ONE, [["x"], [None], [""]]),
        (b"a,b\n,\n", TWO, [[None, None]]),
        (b'a,b\n"",NA\n', TWO, [["", None]]),
        (b'a,b\n"x\r\ny","p""q"\n', TWO, [["x\r\ny", 'p"q']]),
        (b'a,b\r\n\\"x,3"\r\n', TWO, [['\\"x', '3"']]),
        (b"a,b\rx,y\r", TWO, [["x", "y"]]),
        (b"\xef\xbb\xbfa,b\nx,y\n", TWO, [["x", "y"]]),
        (b'"a","b"\n  x , y\n', TWO, [["  x ", " y"]]),
    ],
)
def test_no_row_is_dropped_and_no_text_is_trimmed(
    content: bytes, reading: FileReading, expected: list[list[str]]
) -> None:
    read_chunk = chunk(content, reading)
    assert [list(row) for row in zip(*[column.to_pylist() for column in read_chunk.columns], strict=True)] == expected
    assert read_chunk.problems == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'a,b\nx,y\n"open,y\nz,w\n', "line 3: the quote that opens field 1 on line 3 is not closed"),
        (b'a,b\nx,"y\n\n"z,w\n', "line 2: something follows the closing quote of field 2"),
        (b'a,b\n"x\ny",z\nonly\n', "line 4: 1 fields, 2 expected"),
        (b"a,b\n\x1a\n", "line 2: 1 fields, 2 expected"),
        (b"a,b\n  \n", "line 2: 1 fields, 2 expected"),
        (b"a,b\n,,\n", "line 2: 3 fields, 2 expected"),
        (b"a,b\nx,F\xfc\n", "line 2: column b: 'F\ufffd' is not UTF-8"),
    ],
)
def test_what_is_no_record_is_refused_by_the_line_on_which_it_begins(content: bytes, message: str) -> None:
    assert [problem.message("line") for problem in chunk(content, TWO).problems] == [message]


def test_a_replacement_character_of_the_partners_own_is_a_text() -> None:
    assert chunk("a,b\n\ufffd,y\n".encode(), TWO).columns[0].to_pylist() == ["\ufffd"]


def test_a_last_line_without_an_end_is_refused_unless_it_may_have_none() -> None:
    with pytest.raises(BadFile, match="truncated"):
        chunk(b'a,b\nx,"y"', TWO)
    free = FileReading(TWO.columns, ended=False)
    assert chunk(b'a,b\nx,"y"', free).rows == 1
