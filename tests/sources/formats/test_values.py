"""Values of every type and format: exactly as they were sent, or refused with their place and the reason."""

from __future__ import annotations

import bz2
import datetime as dt
import decimal
import gzip
import io
import json
import re
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from varve.model.errors import VarveError
from varve.model.landing.options import LandingOptions
from varve.model.schema import ColumnType
from varve.sources.formats import lines, records
from varve.sources.formats.file_reading import BadFile, DeclaredColumn, FileReading, FileSource
from varve.sources.formats.formats import chunks, look
from varve.sources.formats.texts import Spelling, TextReader
from varve.stores.frames import arrow_type

if TYPE_CHECKING:
    from varve.sources.formats.chunk import Chunk

KINDS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "BOOLEAN", "DATE", "TIMESTAMP",
         "TIMESTAMP_NTZ", "STRING")  # fmt: skip
UTC = dt.UTC
TOO_FINE = "it has more digits than microseconds"


def wanted(**columns: str) -> tuple[DeclaredColumn, ...]:
    return tuple(DeclaredColumn(name, kind, arrow_type(ColumnType(kind))) for name, kind in columns.items())


def read(content: bytes, columns: tuple[DeclaredColumn, ...], kind: str = "csv", packed: str = "", **how: Any) -> Chunk:
    (only_chunk,) = chunks(io.BytesIO(content), FileSource("file", kind, packed), FileReading(columns, **how))
    return only_chunk


def told(read_chunk: Chunk) -> list[str]:
    return [problem.message("line") for problem in read_chunk.problems]


def value(text: str, kind: str, spelling: Spelling | None = None) -> Any:
    """The value of a text, or the reason that it was refused for."""
    array, refused = TextReader(arrow_type(ColumnType(kind)), spelling or Spelling()).column([text])
    return refused[0] if refused else array.to_pylist()[0]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("1.230", "DECIMAL(10,2)", Decimal("1.23")),
        ("1e2", "DECIMAL(10,2)", Decimal("100.00")),
        ("1.239", "DECIMAL(10,2)", "it has more than 2 digits after the point"),
        ("123456789.00", "DECIMAL(10,2)", "it has more than 8 digits before the point"),
        ("9888244515508103224771869364016269889566", "DECIMAL(38,0)", "it has more than 38 digits before the point"),
        ("1234567890123456789012.5", "DECIMAL(38,18)", "it has more than 20 digits before the point"),
        ("7.00", "DECIMAL(38,38)", "it has more than 0 digits before the point"),
        ("99999999999999999999999999999999999999", "DECIMAL(38,0)", Decimal("9" * 38)),
        ("NaN", "DECIMAL(10,2)", ""),
        (" +7 ", "INT", 7),
        ("2147483648", "INT", ""),
        ("-129", "TINYINT", ""),
        ("0x10", "INT", ""),
        ("3.0", "INT", ""),
        ("\u0661", "INT", ""),
        ("1.5", "DOUBLE", 1.5),
        ("-0.0", "DOUBLE", -0.0),
        ("1e400", "DOUBLE", "it is too large"),
        ("0." + "0" * 400 + "1", "DOUBLE", "it is too small"),
        ("9007199254740993", "DOUBLE", "the nearest DOUBLE is 9007199254740992"),
        ("16777217", "FLOAT", "the nearest FLOAT is 16777216"),
        ("1_000", "DOUBLE", ""),
        ("Infinity", "DOUBLE", float("inf")),
        ("Y", "BOOLEAN", True),
        ("maybe", "BOOLEAN", ""),
        ("2013-1-5", "DATE", dt.date(2013, 1, 5)),
        ("2013-02-30", "DATE", ""),
        ("0000-01-01", "DATE", ""),
        ("2013-01-05T10:00:00", "DATE", ""),
        ("2013-01-05 13:00:00.123456", "TIMESTAMP", dt.datetime(2013, 1, 5, 13, 0, 0, 123456, UTC)),
        ("2013-01-05T13:00:00+02:00", "TIMESTAMP", dt.datetime(2013, 1, 5, 11, tzinfo=UTC)),
        ("2013-01-05T13:00:00 Europe/Paris", "TIMESTAMP", dt.datetime(2013, 1, 5, 12, tzinfo=UTC)),
        ("2013-01-05T13:00:00 Europe/Nowhere", "TIMESTAMP", "there is no time zone Europe/Nowhere"),
        ("2013-01-05T13:00:00 N/A", "TIMESTAMP", "there is no time zone N/A"),
        ("2013-01-05T13:00:00.1234567Z", "TIMESTAMP", TOO_FINE),
        ("2013-01-05T13:00:00.1234560Z", "TIMESTAMP", dt.datetime(2013, 1, 5, 13, 0, 0, 123456, UTC)),
        ("2013-01-05T25:00:00Z", "TIMESTAMP", ""),
        ("2013-01-05T13:00:00Z", "TIMESTAMP_NTZ", "it names a zone, of which the column has none"),
        ("2013-01-05T13:00:00", "TIMESTAMP_NTZ", dt.datetime(2013, 1, 5, 13)),  # noqa: DTZ001
    ],
)
def test_a_text_is_its_value_exactly_or_refused(text: str, kind: str, expected: object) -> None:
    parsed = value(text, kind)
    assert parsed == expected
    assert type(parsed) is type(expected)


NUMBERS = st.from_regex(r"\A ?[+-]?[0-9]{0,12}(\.[0-9]{0,8})?([eE][+-]?[0-9]{1,3})?\Z")
MOMENTS = st.from_regex(r"\A[0-9]{4}-[0-1][0-9]-[0-3][0-9]([T ][0-2][0-9]:[0-5][0-9]:[0-6][0-9](\.[0-9]{1,8})?Z?)?\Z")


@settings(max_examples=400)
@given(st.lists(st.one_of(NUMBERS, MOMENTS), min_size=1, max_size=4), st.sampled_from(KINDS))
def test_whole_columns_say_what_their_values_say_one_by_one(texts: list[str], kind: str) -> None:
    reader = TextReader(arrow_type(ColumnType(kind)), Spelling())
    array, refused = reader.column(texts)
    # With a text that Arrow cannot take, each goes by itself.
    slow, all_refused = TextReader(reader.kind, Spelling()).column([*texts, "\udc80"])
    assert {**refused, len(texts): ""}.keys() == all_refused.keys()
    assert array.equals(slow[:-1])


@pytest.mark.parametrize(("form", "refused"), [("%Y %Z", True), ("%%%Z", True), ("%%Z%Y", False), ("%Y%z", False)])
def test_the_name_of_a_zone_is_not_read_by_a_format(form: str, refused: bool) -> None:  # noqa: FBT001
    if refused:
        with pytest.raises(VarveError, match=r"what %Z reads depends on the machine, and is no offset\. Write %z"):
            LandingOptions(timestamp_format=form)
    else:
        assert LandingOptions(timestamp_format=form).timestamp_format == form


@settings(max_examples=200)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9))
def test_a_decimal_is_never_rounded(number: decimal.Decimal) -> None:
    parsed = value(str(number), "DECIMAL(10,2)")
    fits = number == number.quantize(Decimal("0.01")) and abs(number) < 10**8
    assert (parsed == number) if fits else isinstance(parsed, str)


def test_numbers_dates_and_texts_as_other_countries_write_them() -> None:
    spelling = Spelling(",", ".", "%d.%m.%Y", "%d.%m.%Y %H:%M", "Europe/Paris")
    columns = wanted(a="STRING", b="DECIMAL(10,2)", c="DOUBLE", d="DATE", e="TIMESTAMP", f="INT")
    content = "f;e;d;c;b;a\n1.234;05.07.2013 10:00;05.07.2013;1.234,5;-1.234,50;Größe\n-;-;;;;\n".encode("windows-1252")
    how = {"separator": ";", "encoding": "windows-1252", "header": "by name", "nulls": frozenset({"-"})}
    read_chunk = read(content, columns, spelling=spelling, **how)
    assert [column.to_pylist() for column in read_chunk.columns] == [
        ["Größe", None], [Decimal("-1234.50"), None], [1234.5, None], [dt.date(2013, 7, 5), None],
        [dt.datetime(2013, 7, 5, 8, tzinfo=UTC), None], [1234, None],
    ]  # fmt: skip
    assert value("12.34,5", "DOUBLE", spelling) == ""
    assert value("1,5", "INT", spelling) == ""
    assert value("31.03.2013 02:30", "TIMESTAMP", spelling) == "the clock of Europe/Paris shows it never"
    assert value("27.10.2013 02:30", "TIMESTAMP", spelling) == "the clock of Europe/Paris shows it twice"


PACKED = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": lambda content: pa.compress(content, "zstd", asbytes=True),
}


@pytest.mark.parametrize("packed", PACKED)
def test_a_packed_file_is_read_whole_or_refused(packed: str) -> None:
    columns, content = wanted(a="STRING"), b"a\n" + b"some text\n" * 1_000
    whole = PACKED[packed](content)
    assert read(whole, columns, packed=packed).rows == 1_000
    for cut in (len(whole) - 1, len(whole) // 2, 3):
        with pytest.raises(BadFile, match=packed):
            read(whole[:cut], columns, packed=packed)
    with pytest.raises(BadFile, match=packed):
        read(b"no such thing", columns, packed=packed)


@pytest.mark.parametrize("packed", PACKED)
def test_a_packed_file_of_nothing_is_empty_and_not_truncated(packed: str) -> None:
    file, reading = io.BytesIO(PACKED[packed](b"")), FileReading(wanted(a="STRING"))
    with pytest.raises(BadFile, match=r"^the file is empty\. One without rows has a line break, and nothing else\.$"):
        look(file, FileSource("file", "jsonl", packed), reading)


def test_two_members_of_gzip_are_one_file() -> None:
    packed = gzip.compress(b"a\nx\n") + gzip.compress(b"y\n")
    assert read(packed, wanted(a="STRING"), packed="gzip").columns[0].to_pylist() == ["x", "y"]


def test_lines_of_json_are_read_by_name_and_refused_by_line() -> None:
    columns = wanted(a="STRING", b="INT", c="DECIMAL(10,2)", d="ARRAY<INT>", e="STRUCT<x: DATE>", f="MAP<STRING, INT>")
    good = {"b": 3, "a": "é\n", "c": 1.5, "d": [1, None], "e": {"x": "2013-01-05"}, "f": {"k": 1}}
    lines = [json.dumps(good), "", "{}", '{"c": 1.239, "b": 1.5}', '{"a": 1}', "[1]", "{", '{"a": "x", "a": "y"}',
             '{"g": 1}', '{"e": {"y": 1}}', '{"b": true}']  # fmt: skip
    read_chunk = read("\n".join([*lines, ""]).encode(), columns, "jsonl")
    assert [column.to_pylist()[0] for column in read_chunk.columns] == [
        "é\n", 3, Decimal("1.50"), [1, None], {"x": dt.date(2013, 1, 5)}, [("k", 1)],
    ]  # fmt: skip
    assert [column.to_pylist()[1] for column in read_chunk.columns] == [None] * 6
    assert told(read_chunk) == [
        "line 4: column b: 1.5 is not of type INT",
        "line 4: column c: 1.239 is not of type DECIMAL(10,2): it has more than 2 digits after the point",
        "line 5: column a: 1 is not of type STRING",
        "line 6: '[1]' is no object",
        "line 7: it is no JSON: Expecting property name enclosed in double quotes: line 2 column 1 (char 2)",
        "line 8: a name stands twice in one object",
        "line 9: not declared g",
        "line 10: column e: {'y': 1} is not of type STRUCT<x: DATE>: y is no field of it",
        "line 11: column b: True is not of type INT",
    ]


def parquet(**columns: pa.Array) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def test_parquet_is_read_by_name_and_refused_by_row() -> None:
    columns = wanted(a="INT", b="DECIMAL(10,2)", c="TIMESTAMP")
    moments = pa.array([0, 1_000, 1_001], pa.timestamp("ns", "UTC"))
    content = parquet(c=moments, b=pa.array([1.5, 1.239, None]), a=pa.array([1, None, 1 << 40]))
    read_chunk = read(content, columns, "parquet")
    assert [problem.message("row") for problem in read_chunk.problems] == [
        "row 2: column b: 1.239 is not of type DECIMAL(10,2): it has more than 2 digits after the point",
        "row 3: column a: 1099511627776 is not of type INT",
        f"row 3: column c: 1970-01-01 00:00:00.000001001+00:00 is not of type TIMESTAMP: {TOO_FINE}",
    ]
    assert [column.to_pylist()[0] for column in read_chunk.columns] == [
        1,
        Decimal("1.50"),
        dt.datetime(1970, 1, 1, tzinfo=UTC),
    ]
    with pytest.raises(BadFile, match="a is string in the file, declared INT"):
        read(parquet(a=pa.array(["1"]), b=pa.array([1]), c=moments[:1]), columns, "parquet")
    with pytest.raises(BadFile, match="missing c; not declared d"):
        read(parquet(a=pa.array([1]), b=pa.array([1]), d=pa.array([1])), columns, "parquet")
    with pytest.raises(BadFile, match="parquet"):
        read(content[:-10], columns, "parquet")


@pytest.mark.parametrize(
    ("number", "in_file", "declared", "digits"),
    [
        ("777000000000000000000", pa.decimal128(38, 0), "DECIMAL(38,18)", 20),
        ("7.32", pa.decimal128(5, 2), "DECIMAL(38,38)", 0),
        ("0.32", pa.decimal128(5, 2), "DECIMAL(38,38)", None),
        ("12.5", pa.decimal128(38, 10), "DECIMAL(38,18)", None),
    ],
)
def test_a_decimal_of_parquet_with_more_digits_than_the_declared_one_is_refused(
    number: str, in_file: pa.DataType, declared: str, digits: int | None
) -> None:
    chunk = read(parquet(a=pa.array([Decimal(number)], in_file)), wanted(a=declared), "parquet")
    if digits is None:
        assert (chunk.columns[0].to_pylist(), chunk.problems) == ([Decimal(number)], [])
    else:
        (problem,) = chunk.problems
        assert problem.words.endswith(f"is not of type {declared}: it has more than {digits} digits before the point")


def test_the_oldest_moments_of_parquet_are_read_with_all_their_digits() -> None:
    def old(*moments: int, unit: str = "ns") -> bytes:
        out = io.BytesIO()
        table = pa.table({"a": pa.array(moments, pa.timestamp(unit))})
        pq.write_table(table, out, use_deprecated_int96_timestamps=True)
        return out.getvalue()

    columns = wanted(a="TIMESTAMP_NTZ")
    (found,) = read(old(1_000_001_000, 0), columns, "parquet").columns
    assert found.to_pylist() == [dt.datetime(1970, 1, 1, 0, 0, 1, 1), dt.datetime(1970, 1, 1)]  # noqa: DTZ001
    read_chunk = read(old(1_000_001_000, 1_000_001_999), columns, "parquet")
    assert [problem.message("row") for problem in read_chunk.problems] == [
        f"row 2: column a: 1970-01-01 00:00:01.000001999 is not of type TIMESTAMP_NTZ: {TOO_FINE}"
    ]
    far = int(dt.datetime(3000, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    (found,) = read(old(far, 0, unit="us"), columns, "parquet").columns
    assert found.to_pylist()[0] == dt.datetime(3000, 1, 1)  # noqa: DTZ001


def test_a_column_that_a_file_has_twice_is_named() -> None:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "b", "b"]), out)
    with pytest.raises(BadFile, match="its columns are not the declared ones: twice b"):
        read(out.getvalue(), wanted(a="INT", b="INT"), "parquet")
    with pytest.raises(BadFile, match="the columns are not the declared ones: twice b"):
        read(b"a,b,b\n1,2,3\n", wanted(a="INT", b="INT"), extra=True)


def test_columns_that_are_not_declared_and_left_out_may_all_have_one_name_or_none() -> None:
    (column,) = read(b"x,a,x,,\n1,2,3,,\n", wanted(a="INT"), extra=True).columns
    assert column.to_pylist() == [2]


def test_names_of_columns_with_nothing_but_blanks_wrong_are_told_in_quotes() -> None:
    with pytest.raises(BadFile, match=r"missing a; not declared ' a', ''\.$"):
        read(b" a,b,\n1,2,\n", wanted(a="INT", b="INT"))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("number", ["1e10000000", "1e999999999", "-1E99999999"])
def test_a_whole_number_of_millions_of_digits_is_refused_at_once(number: str) -> None:
    read_chunk = read(f'{{"a": {number}}}\n'.encode(), wanted(a="BIGINT"), "jsonl")
    assert ["is not of type BIGINT" in problem.message("line") for problem in read_chunk.problems] == [True]


def test_a_number_of_json_that_python_cannot_hold_refuses_its_row_alone() -> None:
    numbers = ["1e99999999999999999999", "-1e-99999999999999999999", "2"]
    content = "".join(f'{{"a": {number}}}\n' for number in numbers).encode()
    read_chunk = read(content, wanted(a="DOUBLE"), "jsonl")
    assert read_chunk.columns[0].to_pylist()[2] == 2.0
    assert told(read_chunk) == [
        "line 1: a number in it has an exponent of too many digits",
        "line 2: a number in it has an exponent of too many digits",
    ]


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "avro"])
def test_rows_of_megabytes_are_read_a_few_at_a_time(kind: str) -> None:
    rows = [{"a": str(number) * 8 * 2**20} for number in range(9)]
    if kind == "avro":
        out = io.BytesIO()
        fastavro.writer(out, {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}, rows)
        content = out.getvalue()
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), out := io.BytesIO())
        content = out.getvalue()
    elif kind == "csv":
        content = "\n".join(["a", *[row["a"] for row in rows], ""]).encode()
    else:
        content = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    found = list(chunks(io.BytesIO(content), FileSource("file", kind, ""), FileReading(wanted(a="STRING"))))
    assert max(chunk.rows for chunk in found) <= 4
    assert [text[0] for chunk in found for text in chunk.columns[0].to_pylist()] == list("012345678")


def test_a_number_of_json_of_thousands_of_digits_refuses_its_row_in_words_of_its_own() -> None:
    content = f'{{"a": {"7" * 5_000}}}\n{{"a": 2}}\n'.encode()
    assert told(read(content, wanted(a="DOUBLE"), "jsonl")) == ["line 1: a number in it has more than 1,000 digits"]


class Endless(io.RawIOBase):
    """A file that begins with a text and goes on with another one, up to a size; it counts what was read of it."""

    def __init__(self, begin: bytes, again: bytes, size: int) -> None:
        self.begin, self.again, self.left, self.count = begin, again, size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self.begin or (self.again * (1 + 65_536 // len(self.again)))[: min(len(buffer), self.left)]
        self.begin, self.left, self.count = b"", self.left - len(block), self.count + len(block)
        buffer[: len(block)] = block
        return len(block)


@pytest.mark.parametrize(
    ("kind", "begin", "again", "problem"),
    [
        ("csv", b"a", b"a", "line 1 has 1,048,576 or more characters: that is no row."),
        ("csv", b"a\n1\n", b"2", "line 3 has 1,048,576 or more characters: that is no row."),
        ("csv", b'a\n1\n"', b"2\n", "the quote that opens field 1 on line 3 is not closed within 1,048,576 characters"),
        ("jsonl", b'{"a": 1}\n', b" ", "line 2 has 1,048,576 or more characters: that is no row."),
    ],
)
def test_a_row_without_end_is_refused_before_it_fills_the_memory(
    kind: str, begin: bytes, again: bytes, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (lines, records):
        monkeypatch.setattr(module, "LONGEST", 1 << 20)
    file = Endless(begin, again, 1 << 24)
    with pytest.raises(BadFile, match=re.escape(problem)):
        list(chunks(file, FileSource("file", kind), FileReading(wanted(a="INT"))))
    assert file.count < 1 << 21


def test_names_in_a_file_are_told_as_every_store_takes_a_text() -> None:
    read_chunk = read(b'{"a\\ud800": 1}\n{"b\\u0000": 1}\n{"c\\n": 1}\n', wanted(a="INT"), "jsonl")
    told_rows = [row.removeprefix("line ") for row in told(read_chunk)]
    assert told_rows == ["1: not declared a?", "2: not declared b\u2400", "3: not declared c\u240a"]


def test_avro_is_read_by_name_and_refused_by_row() -> None:
    schema = {
        "type": "record", "name": "sale", "fields": [
            {"name": "b", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}]},
            {"name": "a", "type": "long"},
            {"name": "c", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }  # fmt: skip
    at = dt.datetime(2013, 1, 5, 13, tzinfo=UTC)
    rows = [{"a": 1, "b": Decimal("1.230"), "c": at}, {"a": 1 << 40, "b": Decimal("1.231"), "c": at}]
    out = io.BytesIO()
    fastavro.writer(out, schema, rows)
    read_chunk = read(out.getvalue(), wanted(a="INT", b="DECIMAL(10,2)", c="TIMESTAMP"), "avro")
    assert [column.to_pylist()[0] for column in read_chunk.columns] == [1, Decimal("1.23"), at]
    assert [problem.message("row") for problem in read_chunk.problems] == [
        "row 2: column a: 1099511627776 is not of type INT",
        "row 2: column b: 1.231 is not of type DECIMAL(10,2): it has more than 2 digits after the point",
    ]
    with pytest.raises(BadFile, match="avro"):
        read(out.getvalue()[:-4], wanted(a="INT", b="DECIMAL(10,2)", c="TIMESTAMP"), "avro")


def test_a_text_of_avro_that_is_a_uuid_is_a_text() -> None:
    field = {"name": "a", "type": ["null", {"type": "string", "logicalType": "uuid"}]}
    out = io.BytesIO()
    sent = [uuid.UUID(int=5), None]
    fastavro.writer(out, {"type": "record", "name": "sale", "fields": [field]}, [{"a": value} for value in sent])
    read_chunk = read(out.getvalue(), wanted(a="STRING"), "avro")
    assert read_chunk.columns[0].to_pylist() == ["00000000-0000-0000-0000-000000000005", None]
    assert told(read_chunk) == []


def test_a_text_between_quotes_is_no_null_in_a_column_of_texts() -> None:
    content = b'a,b,c\n"NA",NA,1\n"",,"NA"\nNA,"x ""NA""",\n"NA","NA",""\n'
    columns = wanted(a="STRING", b="STRING", c="INT")
    taken = read(content, columns)
    assert told(taken) == []
    assert [column.to_pylist() for column in taken.columns] == [
        ["NA", "", None, "NA"], [None, None, 'x "NA"', "NA"], [1, None, None, None],
    ]  # fmt: skip
    nothing = read(content, columns, nulls=frozenset())
    assert told(nothing) == ["line 3: column c: 'NA' is not of type INT"]
    assert nothing.columns[0].to_pylist() == ["NA", "", "NA", "NA"]
    # What is refused is told and kept as it stood in the file.
    (bad,) = read(b'a,c\n"NA",x\n', wanted(a="STRING", c="INT")).problems
    assert bad.raw == '"NA",x'


def parquet_of(**columns: pa.Array) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def test_a_column_of_nothing_but_null_has_no_type_in_a_file_and_every_type_in_a_dataset() -> None:
    nulls = pa.nulls(2)
    for kind in KINDS:
        assert read(parquet_of(a=nulls), wanted(a=kind), "parquet").columns[0].null_count == 2, kind


def test_moments_that_a_file_spells_as_words_of_a_dictionary_are_read_in_the_zone() -> None:
    plain = pa.array([dt.datetime(2026, 7, 1, 12), None], pa.timestamp("us"))  # noqa: DTZ001 - the zone is said below
    paris = Spelling(timezone="Europe/Paris")
    of_words = parquet_of(a=plain.dictionary_encode())
    for content in (of_words, parquet_of(a=plain)):
        values = read(content, wanted(a="TIMESTAMP"), "parquet", spelling=paris).columns[0].to_pylist()
        assert values == [dt.datetime(2026, 7, 1, 10, tzinfo=UTC), None]


def test_what_a_library_cannot_read_is_the_error_of_its_file() -> None:
    late = pa.array([300_000_000_000_000_000], pa.timestamp("us"))
    with pytest.raises(BadFile, match="it cannot be read as parquet"):
        read(parquet_of(a=late), wanted(a="TIMESTAMP"), "parquet", spelling=Spelling(timezone="Europe/Paris"))
    buffer = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": [{"name": "a", "type": "long"}]}
    fastavro.writer(buffer, schema, [{"a": number} for number in range(1_000)], codec="deflate")
    content = bytearray(buffer.getvalue())
    # All of the packed rows, up to the mark of 16 bytes that ends their block.
    content[-1_600:-20] = b"\xff" * 1_580
    with pytest.raises(BadFile, match="it is no whole avro file"):
        read(bytes(content), wanted(a="BIGINT"), "avro")
    with pytest.raises(BadFile, match="it cannot be read as csv"):
        read(b"a\n1\n", wanted(a="INT"), encoding="utf-16")


def test_a_blank_line_is_a_row_of_a_file_of_one_column_only() -> None:
    of_two = read(b"a,day\n1,x\n\n2,y\n", wanted(a="INT"), extra=True)
    assert (of_two.columns[0].to_pylist(), told(of_two)) == ([1, 2], [])
    assert read(b"a\n1\n\n2\n", wanted(a="INT")).columns[0].to_pylist() == [1, None, 2]
