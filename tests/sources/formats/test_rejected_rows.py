"""Rows that cannot be read as declared, of every format: which they are, and what is told of them."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varve.model.landing.rejection import REJECTED_ROWS, TEXT_CHARACTERS
from varve.model.schema import ColumnType
from varve.sources.formats import checks, tasks
from varve.sources.formats.file_reading import BadFile, DeclaredColumn, FileReading, FileSource
from varve.sources.formats.tasks import BadRows, FilePiece
from varve.stores.frames import arrow_schema, arrow_type

if TYPE_CHECKING:
    from pathlib import Path


def wanted(name: str, kind: str, *, nullable: bool = True) -> DeclaredColumn:
    return DeclaredColumn(name, kind, arrow_type(ColumnType(kind)), nullable)


DAY = dt.date(2026, 9, 1)
COLUMNS = (wanted("product", "STRING", nullable=False), wanted("price", "DECIMAL(10,2)"))
KEYS = (wanted("day", "DATE", nullable=False), wanted("region", "STRING", nullable=False))
SCHEMA = pa.schema([(each.name, each.kind) for each in (*COLUMNS, *KEYS)])
READING = FileReading(COLUMNS, header="by name", keys=KEYS)
NOTHING = "nothing stands there, and it is NOT NULL"
OTHER_REGION = "'US' contradicts the file's name; it is a file of region = 'EU'"


def taken(
    path: Path, kind: str, packed: str = "", reading: FileReading = READING
) -> tuple[list[Any], list[dict[str, Any]]]:
    """The rows that are taken, and those that are rejected."""
    piece = FilePiece(FileSource(str(path), kind, packed), (DAY, "EU"), 1)
    rejected: list[checks.RowProblem] = []
    table = pa.Table.from_batches(tasks.file_batches(piece, reading, SCHEMA, rejected), SCHEMA)
    rows = list(tasks.rows_of(piece, rejected))
    # What Spark's workers give out of the same file.
    assert tasks.rejected_rows(piece, reading, ["day", "region"], 100) == [
        {**row, "day": DAY, "region": "EU"} for row in rows
    ]
    assert all(row["file"] == str(path) for row in rows)
    # It is what the dataset of rejected rows has.
    assert set(arrow_schema(REJECTED_ROWS.columns).names) == set(
        rows[0] if rows else arrow_schema(REJECTED_ROWS.columns).names
    )
    return [tuple(row.values()) for row in table.to_pylist()], rows


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["line"], row["column_name"], row["value"], row["reason"]) for row in rows]


def test_rows_of_csv_are_rejected_for_what_the_reader_can_go_on_after(tmp_path: Path) -> None:
    lines = [
        b"product,price,region",
        b"pen,1.50,EU",
        b"ink,cheap,EU",
        b"cap",
        b"pad,1.00,EU,red",
        "F\u00fcller,2.00,EU".encode("latin-1"),
        b",3.00,EU",
        b"nib,4.00,US",
        b'"a ""b"" c"d,5.00,EU',
        b",x,US",
        b'"two',
        b'lines",6.00,EU',
    ]
    (path := tmp_path / "a.csv").write_bytes(b"\n".join(lines) + b"\n")
    rows, rejected = taken(path, "csv")
    assert rows == [("pen", Decimal("1.50"), DAY, "EU"), ("two\nlines", Decimal("6.00"), DAY, "EU")]
    assert told(rejected) == [
        (3, "price", "cheap", "'cheap' is not of type DECIMAL(10,2)"),
        (4, None, None, "1 fields, 3 expected"),
        (5, None, None, "4 fields, 3 expected"),
        (6, "product", "F\ufffdller", "'F\ufffdller' is not UTF-8"),
        (7, "product", "", NOTHING),
        (8, "region", "US", OTHER_REGION),
        (9, None, None, "something follows the closing quote of field 1"),
        (10, "product", "", NOTHING),
    ]
    assert rejected[-1]["more"] == f"column price: 'x' is not of type DECIMAL(10,2); column region: {OTHER_REGION}"
    assert [row["text"] for row in rejected[:4]] == ["ink,cheap,EU", "cap", "pad,1.00,EU,red", "F\ufffdller,2.00,EU"]


def test_a_quote_that_is_not_closed_costs_every_line_that_it_swallows(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text('product,price\n"pen,1.50\nink,2.00\ncap,3.00\n')
    rows, rejected = taken(path, "csv")
    assert rows == []
    assert [(row["line"], row["reason"]) for row in rejected] == [
        (2, "the quote that opens field 1 on line 2 is not closed"),
        (3, "it belongs to the row that begins on line 2"),
        (4, "it belongs to the row that begins on line 2"),
    ]


def test_rows_of_json_are_rejected_by_their_line(tmp_path: Path) -> None:
    lines = [
        '{"product": "pen", "price": 1.50, "region": "EU", "day": "2026-09-01"}',
        '{"product": "ink", "price": "cheap"}',
        "{",
        "",
        '{"product": "ink", "colour": "red"}',
        '{"product": null, "price": 1}',
        '{"product": "ink", "price": 1, "day": "2026-09-02"}',
        '{"product": "cap", "price": 1, "region": null}',
        '{"product": "nib"}',
    ]
    (path := tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    rows, rejected = taken(path, "jsonl", "gzip")
    assert rows == [("pen", Decimal("1.50"), DAY, "EU"), ("nib", None, DAY, "EU")]
    assert told(rejected)[0] == (
        2,
        "price",
        "cheap",
        "'cheap' is not of type DECIMAL(10,2): it is a text there, and no number",
    )
    assert told(rejected)[1][:3] == (3, None, None)
    assert "it is no JSON" in rejected[1]["reason"]
    assert told(rejected)[2:] == [
        (5, None, None, "not declared colour"),
        (6, "product", None, NOTHING),
        (7, "day", "2026-09-02", "'2026-09-02' contradicts the file's name; it is a file of day = '2026-09-01'"),
        (8, "region", None, "nothing stands there; it is a file of region = 'EU'"),
    ]
    assert rejected[0]["text"] == lines[1]


ROWS = [
    {"product": "pen", "price": Decimal("1.500"), "region": "EU"},
    {"product": "ink", "price": Decimal("1.239"), "region": "EU"},
    {"product": None, "price": Decimal("2.000"), "region": "EU"},
    {"product": "cap", "price": Decimal("3.000"), "region": "US"},
]
TOO_FINE = "1.239 is not of type DECIMAL(10,2): it has more than 2 digits after the point"


def test_rows_of_parquet_are_rejected_by_their_number_and_row_group(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    schema = pa.schema([("product", pa.string()), ("price", pa.decimal128(10, 3)), ("region", pa.string())])
    pq.write_table(pa.Table.from_pylist(ROWS, schema), path, row_group_size=2)
    rows, rejected = taken(path, "parquet")
    assert rows == [("pen", Decimal("1.50"), DAY, "EU")]
    assert told(rejected) == [
        (2, "price", "1.239", TOO_FINE), (3, "product", None, NOTHING), (4, "region", "US", OTHER_REGION),
    ]  # fmt: skip
    assert json.loads(rejected[1]["text"]) == {"product": None, "price": "2.000", "region": "EU"}
    with pytest.raises(BadRows) as refused:
        list(tasks.file_batches(FilePiece(FileSource(str(path), "parquet"), (DAY, "EU"), 1), READING, SCHEMA))
    assert [problem.message("row") for problem in refused.value.problems] == [
        f"row 2 (row group 1): column price: {TOO_FINE}",
        f"row 3 (row group 2): column product: {NOTHING}",
        f"row 4 (row group 2): column region: {OTHER_REGION}",
    ]


def test_rows_of_avro_are_rejected_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    fields = [
        {"name": "product", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 3}},
        {"name": "region", "type": "string"},
    ]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "order", "fields": fields}, ROWS)
    rows, rejected = taken(path, "avro")
    assert rows == [("pen", Decimal("1.50"), DAY, "EU")]
    assert told(rejected) == [
        (2, "price", "1.239", TOO_FINE), (3, "product", None, NOTHING), (4, "region", "US", OTHER_REGION),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "content"),
    [("parquet", b"PAR1 and then nothing"), ("avro", b"Obj\x01 and then nothing"), ("csv", b"product,price\npen,1")],
)
def test_a_file_that_is_damaged_as_a_whole_has_no_rows_to_reject(kind: str, content: bytes, tmp_path: Path) -> None:
    (path := tmp_path / f"a.{kind}").write_bytes(content)
    with pytest.raises(BadFile):
        taken(path, kind)


def test_a_partition_column_may_stand_in_a_file_and_needs_not(tmp_path: Path) -> None:
    in_order = FileReading(COLUMNS, keys=KEYS)
    (path := tmp_path / "a.csv").write_text("region,product,price\nEU,pen,1.50\n")
    assert taken(path, "csv", reading=in_order) == ([("pen", Decimal("1.50"), DAY, "EU")], [])
    path.write_text("product,price\npen,1.50\n")
    assert taken(path, "csv", reading=in_order) == ([("pen", Decimal("1.50"), DAY, "EU")], [])


FIELDS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(',"\n\r\0'), max_size=6)


@given(st.lists(st.lists(FIELDS, min_size=1, max_size=3), max_size=8))
def test_every_row_is_taken_or_rejected_once_and_can_be_stored(records: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(records)
    # Python's own reader says which rows there are; a blank line is none.
    content = "product,price\n" + text.getvalue()
    expected = [row for row in csv.reader(io.StringIO(content, newline=""), strict=True) if row][1:]
    from varve.sources.formats.formats import chunks

    columns = (wanted("product", "STRING"), wanted("price", "INT"))
    read_chunks = list(
        chunks(io.BytesIO(content.encode()), FileSource("a", "csv"), FileReading(columns, nulls=frozenset()))
    )
    lost = {problem.row for chunk in read_chunks for problem in chunk.problems}
    good = [row for chunk in read_chunks for row in zip(*(column.to_pylist() for column in chunk.columns), strict=True)]
    assert len(good) == len(expected)
    assert [(row[0] or "") for number, row in enumerate(good) if number not in lost] == [
        row[0] for number, row in enumerate(expected) if number not in lost
    ]
    piece = FilePiece(FileSource("a", "csv"), (), 1)
    for row in tasks.rows_of(piece, [problem for chunk in read_chunks for problem in chunk.problems]):
        for value in (row["value"], row["reason"], row["more"], row["text"]):
            assert value is None or ("\0" not in value and value.encode())
            assert len(value or "") <= TEXT_CHARACTERS == checks.TEXT_CHARACTERS
