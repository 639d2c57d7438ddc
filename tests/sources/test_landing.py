"""What partners may send and what is refused: on real files and real Spark, by file, line and column."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.sales import DAY
from tests.support.workbench import Workbench
from varve.dagster.runs.failures import explained
from varve.model.batch import Input
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import BadInput, MissingUpstream
from varve.model.landing.options import Header, LandingOptions
from varve.model.partitions.dimension import Dimension, StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.sources.landing.inspection import inspect
from varve.sources.landing.landing import Landing
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.spark

UNENDED = (
    "the file ends in the middle of a line: it is truncated. If its sender never ends the last line, declare "
    "last_line = 'any' in its OPTIONS."
)
HEADER = "product,sold,price,on_day,at,open\n"
GOOD = "pen,3,1.5,2013-01-05,2013-01-05T13:00:00Z,true\n"
FIRST, SECOND = PartitionKey.of(day=dt.date(2013, 1, 5)), PartitionKey.of(day=dt.date(2013, 1, 6))


def landing_dataset(dimension: Dimension = DAY) -> Dataset:
    return Dataset(
        name=f"t{uuid.uuid4().hex[:8]}.sales",
        comment="One row per sale.",
        partitioning=Partitioning((dimension,)),
        schema=Schema(
            (
                Column("product", ColumnType.STRING),
                Column("sold", ColumnType.INT),
                Column("price", ColumnType.DOUBLE),
                Column("on_day", ColumnType.DATE),
                Column("at", ColumnType.TIMESTAMP),
                Column("open", ColumnType.BOOLEAN),
            )
        ),
        store=StoreKind.LAKE,
        landing=True,
    )


@dataclass
class Dock:
    """A landing folder of one dataset, and its partitions taken in without Dagster."""

    workbench: Workbench
    dataset: Dataset
    landing: Landing

    def send(self, content: str | bytes, key: PartitionKey = FIRST) -> Path:
        path = Path(self.landing.uri(self.dataset, self.dataset.partitioning.to_dagster(key)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def take(self, *keys: PartitionKey, disturb: Path | None = None) -> dict[PartitionKey, set[Input]]:
        """What a run does, from its first read to its publish; what it was made from."""
        catalog = self.workbench.catalog()
        try:
            store = self.workbench.store(self.dataset, catalog)
            opened = OpenBuild(self.workbench.begin(catalog, self.dataset, keys or (FIRST,)), catalog)
            with explained(opened, self.workbench.settings):
                frame = self.landing.read(opened, self.workbench.spark)
                staged = store.stage(opened.build, frame)
                catalog.staged(opened.build, staged)
                store.verify(opened.build, staged)
                if disturb is not None:
                    disturb.write_bytes(disturb.read_bytes() + GOOD.encode())
                for look in opened.pre_publish_checks:
                    look()
                store.publish(opened.build, staged)
            return opened.build.inputs
        finally:
            # As a run does: a server lets go of a closed session's locks a moment later.
            catalog.connection.execute("select pg_advisory_unlock_all()")
            catalog.connection.close()

    def read(self) -> list[tuple[object, ...]]:
        catalog = self.workbench.catalog()
        try:
            batches = list(catalog.current(self.dataset.name).values())
            frame = self.workbench.store(self.dataset, catalog).read(self.dataset, batches)
            return sorted((tuple(row) for row in frame.collect()), key=repr)
        finally:
            catalog.connection.close()


@pytest.fixture
def dock(workbench: Workbench, tmp_path: Path) -> Dock:
    return Dock(workbench, landing_dataset(), Landing(str(tmp_path)))


@pytest.fixture(scope="module")
def taken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dock:
    """A dock whose first day is published once, for all the files that must not replace it."""
    workbench = Workbench(request.getfixturevalue("settings"), request.getfixturevalue("spark"))
    dock = Dock(workbench, landing_dataset(), Landing(str(tmp_path_factory.mktemp("landing"))))
    dock.send(HEADER + GOOD)
    dock.take()
    return dock


def rows(*products: str) -> list[tuple[object, ...]]:
    # Timestamps come back as the naive local time of this process, so they are compared elsewhere.
    return [(product, 3, 1.5, dt.date(2013, 1, 5), True) for product in products]


def without_instants(rows: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [(*row[:4], row[5]) for row in rows]


def test_files_are_typed_rows_of_their_partitions_and_the_trace_names_their_content(dock: Dock) -> None:
    first = dock.send(HEADER + GOOD + "NA,NA,NA,NA,NA,NA\n")
    dock.send(HEADER.replace("\n", "\r\n") + "ink,,,,,\r\n", SECOND)
    inputs = dock.take(FIRST, SECOND)
    listed_file = dock.read()
    day = FIRST["day"]
    assert without_instants(listed_file) == [
        ("ink", None, None, None, None),
        ("pen", 3, 1.5, day, True),
        (None, None, None, None, None),
    ]
    assert [row[-1] for row in listed_file] == [SECOND["day"], day, day]
    looked = inspect(dock.dataset, str(first))
    assert looked is not None
    assert inputs[FIRST] == {Input(f"landing:{dock.dataset}", "day=2013-01-05", looked.fingerprint)}


def test_a_header_without_rows_is_a_partition_without_rows(dock: Dock) -> None:
    dock.send(HEADER)
    dock.take()
    assert dock.read() == []
    catalog = dock.workbench.catalog()
    assert {path: batch.rows for path, batch in catalog.current(dock.dataset.name).items()} == {FIRST.path: 0}
    catalog.connection.close()


def test_a_line_break_alone_is_a_partition_without_rows_of_json_lines(dock: Dock) -> None:
    csv = dock.send("")
    file = csv.rename(csv.with_suffix(".jsonl"))
    with pytest.raises(BadInput, match="One without rows has a line break, and nothing else"):
        dock.take()
    file.write_text("\n")
    dock.take()
    assert dock.read() == []


def test_a_byte_order_mark_is_no_part_of_the_first_column(dock: Dock) -> None:
    dock.send(b"\xef\xbb\xbf" + (HEADER + GOOD).encode())
    dock.take()
    assert without_instants(dock.read()) == rows("pen")


def test_quoted_commas_and_letters_beyond_ascii_are_read_as_they_are(dock: Dock) -> None:
    dock.send(HEADER + GOOD.replace("pen", '"pen, blue"') + GOOD.replace("pen", "Füller 東京"))
    dock.take()
    assert without_instants(dock.read()) == rows("Füller 東京", "pen, blue")


def test_a_missing_file_is_named_and_those_beside_it_are_not_taken(dock: Dock) -> None:
    dock.send(HEADER + GOOD)
    with pytest.raises(MissingUpstream) as refused:
        dock.take(FIRST, SECOND)
    missing = dock.landing.uri(dock.dataset, "2013-01-06")
    assert f"{dock.dataset}: no landing file {missing}." in str(refused.value)
    assert "the current batch is unchanged" in str(refused.value)
    assert dock.read() == []


WHOLE_FILES: dict[str, tuple[bytes, str]] = {
    "a missing column": (
        b"product,sold,price,on_day,at\n",
        "line 1: the columns are not the declared ones: missing open.",
    ),
    "an extra column": (
        HEADER.replace("open", "open,colour").encode(),
        "line 1: the columns are not the declared ones: not declared colour.",
    ),
    "a renamed column": (
        HEADER.replace("sold", "Sold").encode(),
        "line 1: the columns are not the declared ones: missing sold; not declared Sold.",
    ),
    "another order": (
        HEADER.replace("product,sold", "sold,product").encode(),
        "line 1: the columns are not the declared ones: another order.",
    ),
    "an empty file": (b"", "the file is empty, without even a header line."),
    "a file cut off in a line": (
        (HEADER + GOOD + "ink,").encode(),
        UNENDED,
    ),
    "a file cut off in its header": (
        HEADER.strip().encode(),
        UNENDED,
    ),
    "UTF-16": ((HEADER + GOOD).encode("utf-16"), "the file is UTF-16; UTF-8 is expected."),
    "Latin-1 in the header": (HEADER.replace("open", "öffen").encode("latin-1"), "line 1: the header is not UTF-8."),
}


@pytest.mark.parametrize(("content", "problem"), WHOLE_FILES.values(), ids=WHOLE_FILES.keys())
def test_a_file_that_is_wrong_as_a_whole_is_refused_before_any_job(taken: Dock, content: bytes, problem: str) -> None:
    path = taken.send(content)
    with pytest.raises(BadInput) as refused:
        taken.take()
    assert str(refused.value).startswith(f"{path} ({taken.dataset}): {problem} Nothing was published")
    assert without_instants(taken.read()) == rows("pen")


def test_what_is_no_file_is_refused_by_its_name_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.csv")
    (folder := tmp_path / "folder.csv").mkdir()
    (device := tmp_path / "device.csv").symlink_to("/dev/zero")
    dataset = landing_dataset()
    for path, kind in ((pipe, "something else"), (folder, "a directory"), (device, "something else")):
        with pytest.raises(BadInput) as refused:
            inspect(dataset, str(path))
        assert str(refused.value).startswith(f"{path} ({dataset}): {kind} lies where a file is expected. Nothing was")
    (gone := tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere")
    assert inspect(dataset, str(gone)) is None


def test_a_file_that_may_not_be_read_is_bad_input_so_that_a_sensor_passes_over_it(tmp_path: Path) -> None:
    (path := tmp_path / "2013-01-05.csv").write_text(HEADER + GOOD)
    path.chmod(0)
    us = os.geteuid()
    if us == 0:  # who may read anything
        os.seteuid(65_534)
    try:
        with pytest.raises(BadInput) as refused:
            inspect(landing_dataset(), str(path))
    finally:
        os.seteuid(us)
    assert "may not be read: Permission denied. Nothing was published" in str(refused.value)
    assert "the right to read it" in str(refused.value)


BAD_ROWS: dict[str, tuple[bytes, str]] = {
    "a text in place of a number": (
        GOOD.replace("3", "three", 1).encode(),
        "line 4: column sold: 'three' is not of type INT",
    ),
    "a fraction in place of a whole number": (
        GOOD.replace("3", "3.5", 1).encode(),
        "line 4: column sold: '3.5' is not of type INT",
    ),
    "a number beyond its type": (
        GOOD.replace("3", "3000000000", 1).encode(),
        "line 4: column sold: '3000000000' is not of type INT",
    ),
    "a number as only Python writes it": (
        GOOD.replace("3", "1_0", 1).encode(),
        "line 4: column sold: '1_0' is not of type INT",
    ),
    "a quote in a number": (GOOD.replace("3", '3"', 1).encode(), "line 4: column sold: '3\"' is not of type INT"),
    "a backslash in a number": (
        GOOD.replace("3", "3\\4", 1).encode(),
        "line 4: column sold: '3\\\\4' is not of type INT",
    ),
    "a brace in a number": (GOOD.replace("3", "{3}", 1).encode(), "line 4: column sold: '{3}' is not of type INT"),
    "a price in words": (GOOD.replace("1.5", "cheap").encode(), "line 4: column price: 'cheap' is not of type DOUBLE"),
    "a day that is none": (
        GOOD.replace("2013-01-05,", "2013-02-30,").encode(),
        "line 4: column on_day: '2013-02-30' is not of type DATE",
    ),
    "an instant that is none": (
        GOOD.replace("T13:", "T25:").encode(),
        "line 4: column at: '2013-01-05T25:00:00Z' is not of type TIMESTAMP",
    ),
    "neither true nor false": (
        GOOD.replace("true", "maybe").encode(),
        "line 4: column open: 'maybe' is not of type BOOLEAN",
    ),
    "too few fields": (b"pen,3\n", "line 4: 2 fields, 6 expected"),
    "too many fields": (GOOD.replace("\n", ",red\n").encode(), "line 4: 7 fields, 6 expected"),
    "Latin-1 in a text": (
        GOOD.replace("pen", "Füller").encode("latin-1"),
        "line 4: column product: 'F\ufffdller' is not UTF-8",
    ),
    "Latin-1 in a number": (GOOD.replace("3", "ü", 1).encode("latin-1"), "line 4: column sold: '\ufffd' is not UTF-8"),
}


@pytest.mark.parametrize(("line", "problem"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_a_bad_row_is_refused_by_line_and_column(taken: Dock, line: bytes, problem: str) -> None:
    path = taken.send((HEADER + GOOD + GOOD).encode() + line + GOOD.encode() + b"\n")
    with pytest.raises(BadInput) as refused:
        taken.take()
    assert str(refused.value).startswith(f"{path} ({taken.dataset}): {problem}. Nothing was published")
    assert without_instants(taken.read()) == rows("pen")


def test_every_bad_row_is_told_up_to_a_number(taken: Dock) -> None:
    taken.send(HEADER + GOOD + "".join(f"pen,x{number},y,,,\n" for number in range(4)))
    with pytest.raises(BadInput) as refused:
        taken.take()
    assert "line 3: column sold: 'x0' is not of type INT, line 3: column price: 'y' is not of type DOUBLE" in str(
        refused.value
    )
    assert "and 3 more" in str(refused.value)


def test_one_bad_file_of_many_is_the_one_that_is_named(dock: Dock) -> None:
    dock.send(HEADER + GOOD)
    bad = dock.send(HEADER + GOOD.replace("3", "x", 1), SECOND)
    with pytest.raises(BadInput, match=r"2013-01-06\.csv .*line 2: column sold: 'x'") as refused:
        dock.take(FIRST, SECOND)
    assert str(refused.value).startswith(f"{bad} (")
    assert dock.read() == []


def test_a_directory_in_the_place_of_a_file_is_refused_by_a_run_too(taken: Dock) -> None:
    path = Path(taken.landing.uri(taken.dataset, "2013-01-06"))
    path.mkdir(parents=True)
    with pytest.raises(BadInput, match="a directory lies where a file is expected"):
        taken.take(SECOND)
    path.rmdir()


def test_a_file_that_changes_while_it_is_read_is_not_published(taken: Dock) -> None:
    path = taken.send(HEADER + GOOD.replace("pen", "ink"))
    with pytest.raises(BadInput) as refused:
        taken.take(disturb=path)
    assert str(refused.value).startswith(f"{path} ({taken.dataset}) changed while it was read. Nothing was published")
    assert without_instants(taken.read()) == rows("pen")


@pytest.mark.parametrize("bytes_for_spark", [-1, 1 << 20], ids=["by workers", "by this process"])
def test_a_bad_row_is_found_under_a_folder_with_spaces_and_letters_beyond_ascii(
    workbench: Workbench, tmp_path: Path, bytes_for_spark: int
) -> None:
    landing = Landing(str(tmp_path / 'von Zürich 50% "'), bytes_for_spark=bytes_for_spark)
    dock = Dock(workbench, landing_dataset(), landing)
    path = dock.send(HEADER + GOOD.replace("3", "x", 1))
    with pytest.raises(BadInput) as refused:
        dock.take()
    assert str(refused.value).startswith(f"{path} ({dock.dataset}): line 2: column sold: 'x' is not of type INT.")


def test_keys_with_spaces_and_letters_beyond_ascii_are_partitions_of_their_files(
    workbench: Workbench, tmp_path: Path
) -> None:
    names = ("a b", "Zürich", "50%", "it's")
    dock = Dock(workbench, landing_dataset(StaticDimension("store", names)), Landing(str(tmp_path)))
    keys = [PartitionKey.of(store=name) for name in names]
    for key in keys:
        dock.send(HEADER + GOOD, key)
    dock.take(*keys)
    assert sorted(str(row[-1]) for row in dock.read()) == sorted(names)


def test_a_link_is_its_file_and_as_new_as_the_newer_of_both(tmp_path: Path) -> None:
    dataset = landing_dataset()
    landing, elsewhere = Landing(str(tmp_path / "landing")), tmp_path / "landing" / "elsewhere.csv"
    folder = Path(landing.folder(dataset))
    folder.mkdir(parents=True)
    elsewhere.write_bytes(b"n\n1\n")
    os.utime(elsewhere, (1_000, 1_000))
    made = elsewhere.stat().st_ctime
    time.sleep(0.05)
    (folder / "2013-01-05.csv").symlink_to(elsewhere)
    (listed_file,) = landing.files(dataset)
    assert (listed_file.key, listed_file.size, listed_file.problem) == ("2013-01-05", 4, "")
    assert listed_file.changed_at > made
    os.utime(elsewhere, (4_000_000_000, 4_000_000_000))
    (again,) = landing.files(dataset)
    assert again.changed_at == 4_000_000_000
    assert again.stamp != listed_file.stamp


def with_columns(**columns: str) -> Dataset:
    schema = Schema(tuple(Column(name, ColumnType(kind)) for name, kind in columns.items()))
    return replace(landing_dataset(), schema=schema)


def test_csv_is_read_as_rfc_4180_has_it_and_no_row_is_dropped(workbench: Workbench, tmp_path: Path) -> None:
    dock = Dock(workbench, with_columns(a="STRING", b="STRING"), Landing(str(tmp_path)))
    dock.send('a,b\r\n"say ""hi"", you\r\n\r\nthere","back\\slash\\"\r\n,\r\n\x1a,\x1a\r\n" x ", y\r\n')
    dock.take()
    assert sorted([row[:2] for row in dock.read()], key=repr) == [
        (" x ", " y"), ("\x1a", "\x1a"), ('say "hi", you\r\n\r\nthere', "back\\slash\\"), (None, None),
    ]  # fmt: skip
    dock.send('a,b\n"open,1\nx,2\n')
    with pytest.raises(BadInput, match="line 2: the quote that opens field 1 on line 2 is not closed"):
        dock.take()
    string_dock = Dock(workbench, with_columns(a="STRING"), Landing(str(tmp_path)))
    string_dock.send("a\n\x1a\n\n  \nx\n")
    string_dock.take()
    assert sorted([row[0] for row in string_dock.read()], key=repr) == ["  ", "\x1a", "x", None]


def test_no_value_is_rounded_or_cut(workbench: Workbench, tmp_path: Path) -> None:
    dataset = with_columns(a="DECIMAL(10,2)", b="TIMESTAMP", c="DATE", d="DOUBLE")
    dock = Dock(workbench, dataset, Landing(str(tmp_path)))
    path = dock.send("a,b,c,d\n1.230,2013-01-05T13:00:00.123456Z,2013-01-05,1.5\n")
    dock.take()
    path.write_text("a,b,c,d\n1.239,,,\n,2013-01-05T13:00:00.1234567Z,,\n,,2013-01-05T10:00:00,\n,,,1e999\n")
    with pytest.raises(BadInput) as refused:
        dock.take()
    assert str(refused.value).startswith(
        f"{path} ({dataset}): "
        "line 2: column a: '1.239' is not of type DECIMAL(10,2): it has more than 2 digits after the point, "
        "line 3: column b: '2013-01-05T13:00:00.1234567Z' is not of type TIMESTAMP: it has more digits than "
        "microseconds, "
        "line 4: column c: '2013-01-05T10:00:00' is not of type DATE, "
        "line 5: column d: '1e999' is not of type DOUBLE: it is too large. Nothing was published"
    )


def test_a_link_out_of_the_landing_folder_or_to_nothing_is_told(tmp_path: Path) -> None:
    dataset = landing_dataset()
    landing, outside = Landing(str(tmp_path / "landing")), tmp_path / "secret.csv"
    folder = Path(landing.folder(dataset))
    folder.mkdir(parents=True)
    outside.write_bytes(b"n\n1\n")
    (folder / "2013-01-05.csv").symlink_to(outside)
    (folder / "2013-01-06.csv").symlink_to(folder / "gone.csv")
    (folder / "2013-01-07.csv").symlink_to(folder)
    (folder / "2013-01-08.csv").symlink_to(folder / "2013-01-08.csv")
    (folder / "2013-01-09.csv").symlink_to(outside / "2013-01-09.csv")
    assert {file.key: file.problem for file in landing.files(dataset)} == {
        "2013-01-05": "it is a link out of the landing folder.",
        "2013-01-06": "it is a link to nothing.",
        "2013-01-07": "a directory lies where a file is expected.",
        "2013-01-08": "it is a link to nothing.",
        "2013-01-09": "it is a link to nothing.",
    }


def test_what_was_written_over_with_the_same_size_and_an_old_time_has_another_stamp(dock: Dock) -> None:
    path = dock.send(HEADER + GOOD)
    os.utime(path, (1_000, 1_000))
    (before,) = dock.landing.files(dock.dataset)
    time.sleep(0.02)
    path.write_text((HEADER + GOOD).swapcase(), encoding="utf-8")
    os.utime(path, (1_000, 1_000))
    (after,) = dock.landing.files(dock.dataset)
    assert (before.size, before.stamp) != (after.size, after.stamp)
    assert before.stamp != after.stamp


def test_everything_that_is_not_hidden_is_listed_and_says_what_it_is(dock: Dock) -> None:
    path = dock.send(HEADER + GOOD)
    for name in (".2013-01-06.csv", "_2013-01-06.csv", "2013-01-06.csv.part", "readme.txt"):
        (path.parent / name).write_text(HEADER)
    (path.parent / "2013-01-07.csv").mkdir()
    (path.parent / "archive").mkdir()
    listed = {file.key: file for file in dock.landing.files(dock.dataset)}
    listed_file = listed["2013-01-05"]
    assert (listed_file.problem, listed_file.size) == ("", len(HEADER + GOOD))
    assert abs(listed_file.changed_at - path.stat().st_mtime) < 1
    assert {key: file.problem for key, file in listed.items() if file.problem} == {
        "2013-01-07": "a directory lies where a file is expected.",
        "readme.txt": "its ending is of no known format; known are .csv, .jsonl, .ndjson, .parquet, .avro and 9 more, "
        "or say which it is with the option format.",
    }
    assert [key for key, file in listed.items() if file.temporary] == ["2013-01-06.csv.part"]
    assert list(dock.landing.files(landing_dataset())) == []


def test_another_spelling_of_a_file_is_told_and_the_one_that_is_spelt_as_we_would_is_taken(tmp_path: Path) -> None:
    dataset, landing = landing_dataset(StaticDimension("store", ("50%", "EU"))), Landing(str(tmp_path))
    folder = Path(landing.folder(dataset))
    folder.mkdir(parents=True)
    for name in ("50%.csv", "50%25.csv", "EU.csv.gz", "EU.parquet", "E%55.csv", "US.csv"):
        (folder / name).write_text(HEADER)
    problems = {Path(file.uri).name: file.problem for file in landing.files(dataset)}
    assert problems == {
        "50%25.csv": "",
        "50%.csv": "50%25.csv is a file of the same partition, store=50%25, and is taken; remove one of them.",
        "EU.csv.gz": "",
        "EU.parquet": "EU.csv.gz is a file of the same partition, store=EU, and is taken; remove one of them.",
        "E%55.csv": "'E%55' is another spelling of 'EU'; name it so.",
        "US.csv": "'US' is no key of dimension store, which has 50%, EU.",
    }


IN_WORKERS = -1


def test_files_of_two_dimensions_in_every_format_are_one_job_of_sparks_workers(
    workbench: Workbench, tmp_path: Path
) -> None:
    dataset = replace(
        landing_dataset(), partitioning=Partitioning((DAY, StaticDimension("region", ("a/b", "EU", "US"))))
    )
    dock = Dock(workbench, dataset, Landing(str(tmp_path), bytes_for_spark=IN_WORKERS))
    keys = [PartitionKey.of(day=FIRST["day"], region=region) for region in ("a/b", "EU", "US")]
    later = PartitionKey.of(day=SECOND["day"], region="EU")
    folder = dock.send(HEADER + GOOD.replace("pen", '"a ""b""\r\nc"'), keys[0]).parent
    assert (folder / "2013-01-05|a%2Fb.csv").is_file()
    (folder / "2013-01-05|EU.csv.gz").write_bytes(gzip.compress((HEADER + GOOD).encode()))
    at = dt.datetime(2013, 1, 5, 13, tzinfo=dt.UTC)
    typed = {"product": "pen", "sold": 3, "price": 1.5, "on_day": at.date(), "at": at, "open": True}
    row = {**typed, "on_day": "2013-01-05", "at": "2013-01-05T13:00:00Z"}
    (folder / "2013-01-05|US.jsonl").write_text(json.dumps(row) + "\n")
    pq.write_table(pa.Table.from_pylist([typed]), folder / "2013-01-06|EU.parquet")
    dock.take(*keys, later)
    assert [(row[0], row[1], *row[-2:]) for row in dock.read()] == [
        ('a "b"\r\nc', 3, FIRST["day"], "a/b"), ("pen", 3, FIRST["day"], "EU"), ("pen", 3, FIRST["day"], "US"),
        ("pen", 3, SECOND["day"], "EU"),
    ]  # fmt: skip
    (folder / "2013-01-06|EU.parquet").unlink()
    bad = folder / "2013-01-06|EU.csv"
    bad.write_text(HEADER + '"two\nlines",3,,,,\n' + "pen,x,1e999,2013-02-30,,\n")
    with pytest.raises(BadInput) as refused:
        dock.take(keys[1], later)
    assert str(refused.value).startswith(
        f"{bad} ({dataset}): line 4: column sold: 'x' is not of type INT, line 4: column price: '1e999' is not of type "
        "DOUBLE: it is too large, line 4: column on_day: '2013-02-30' is not of type DATE. Nothing was published"
    )


@contextmanager
def growing(path: Path) -> Iterator[None]:
    """A file that somebody writes all the time."""
    enough = threading.Event()

    def write() -> None:
        while not enough.wait(0.01):
            path.write_text(HEADER + "half")

    path.write_text(HEADER + "half")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        enough.set()
        writer.join()


def test_a_file_whose_time_is_yet_to_come_is_of_its_partition_all_the_same(
    workbench: Workbench, tmp_path: Path
) -> None:
    dataset = replace(landing_dataset(), landing=LandingOptions(files="day={day}/*.csv"))
    dock = Dock(workbench, dataset, Landing(str(tmp_path), settle_seconds=0.1))
    folder = Path(dock.landing.folder(dataset)) / "day=2013-01-05"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text(HEADER + GOOD)
    os.utime(folder / "a.csv", (4_000_000_000, 4_000_000_000))
    dock.take()
    assert without_instants(dock.read()) == rows("pen")


def test_all_settled_files_of_a_partition_are_one_batch(workbench: Workbench, tmp_path: Path) -> None:
    dataset = replace(landing_dataset(), landing=LandingOptions(files="day={day}/*.csv", header=Header.BY_NAME))
    dock = Dock(workbench, dataset, Landing(str(tmp_path), settle_seconds=1.0))
    folder = Path(dock.landing.folder(dataset)) / "day=2013-01-05"
    folder.mkdir(parents=True)
    turned = ",".join(reversed(HEADER.strip().split(","))) + "\n" + ",".join(reversed(GOOD.strip().split(","))) + "\n"
    (folder / "b.csv").write_text(HEADER + GOOD.replace("pen", "ink"))
    (folder / "a.csv").write_text(turned)
    with growing(folder / "growing.csv"):
        listed = sorted(dock.landing.files(dataset), key=lambda file: file.uri)
        assert {file.key for file in listed} == {"2013-01-05"}
        first = dock.take()
    assert without_instants(dock.read()) == rows("ink", "pen")
    looked = [inspect(dataset, file.uri) for file in listed[:2]]
    arrived = dock.landing.joined(dataset, [inspected for inspected in looked if inspected is not None])
    assert first[FIRST] == {Input(f"landing:{dataset}", "day=2013-01-05", arrived.fingerprint)}
    (folder / "growing.csv").write_text(HEADER + GOOD.replace("pen", "cap"))
    # It is waited for until it has settled.
    assert dock.take() != first
    assert without_instants(dock.read()) == rows("cap", "ink", "pen")
    with pytest.raises(MissingUpstream, match=r"no landing file .*/day=2013-01-06/\*\.csv"):
        dock.take(SECOND)
