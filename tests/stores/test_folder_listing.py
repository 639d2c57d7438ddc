"""Folders of others: every file is listed, or none and the reason is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.dagster.test_bad_folders_and_clocks import as_somebody_without_rights
from varve.model.errors import BadInput, VarveError
from varve.services.files import open_files
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile
from varve.stores.folders.listing import listed_files
from varve.stores.views.footers import rows_by_footer

if TYPE_CHECKING:
    from pathlib import Path

    from varve.model.dataset import Dataset


@pytest.mark.parametrize("shut", ["", "day=2"])
def test_a_folder_that_cannot_be_listed_is_told_and_its_files_do_not_count_as_gone(shut: str, tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / "clicks" / f"day={day}").mkdir(parents=True)
        (tmp_path / "clicks" / f"day={day}" / "part-0.parquet").write_text("x")
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o011)
    root = tmp_path / "clicks"
    assert [file.inside for file in listed_files(str(root)) or ()] == ["/day=1/part-0.parquet", "/day=2/part-0.parquet"]
    (root / shut).chmod(0)
    try:
        with as_somebody_without_rights(), pytest.raises(VarveError, match="cannot be listed: Permission denied"):
            listed_files(str(root))
    finally:
        (root / shut).chmod(0o755)
    assert listed_files(str(root / "day=3")) is None


def test_two_colons_in_a_name_are_part_of_it(tmp_path: Path) -> None:
    file = tmp_path / "EU::west.csv"
    file.write_text("x")
    for location in (str(file), f"file://{file}"):
        files, place = open_files(location)
        assert place == str(file)
        assert files.cat(place) == b"x"


def declared(columns: str, folder: Path) -> Dataset:
    text = (
        f"CREATE DATASET shop.clicks ({columns}) PARTITIONED BY (day STRING) "
        "FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01') INSERT (day = DATE_FORMAT(t, 'yyyy-MM-dd')) "
        f"EXTERNAL OPTIONS (source = 'parquet', folder = '{folder}')"
    )
    return compiled([SourceFile("clicks.sql", text)], {})["shop.clicks"].dataset


def test_texts_fit_in_whatever_form_their_writer_had_them(tmp_path: Path) -> None:
    texts = pa.array(["a", "b", "a"])
    kinds = (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))
    table = pa.table({f"c{place}": texts.cast(kind) for place, kind in enumerate(kinds)} | {
        "raw": pa.array([b"x", None, b""], pa.large_binary())
    })  # fmt: skip
    pq.write_table(table, tmp_path / "part-0.parquet")
    dataset = declared("c0 STRING, c1 STRING, c2 STRING, raw BINARY", tmp_path)
    files = listed_files(str(tmp_path)) or []
    assert list(rows_by_footer(dataset, files).values()) == [3]


@pytest.mark.parametrize(
    ("kind", "declared_kind", "fits"),
    [
        (pa.int32(), "SMALLINT", False), (pa.int32(), "TINYINT", False), (pa.int16(), "TINYINT", False),
        (pa.uint32(), "INT", False), (pa.uint8(), "TINYINT", False), (pa.int32(), "INT", True),
        (pa.int16(), "INT", True), (pa.uint8(), "SMALLINT", True), (pa.uint32(), "BIGINT", True),
    ],
)  # fmt: skip
def test_a_copy_may_widen_whole_numbers_and_never_cut_them(
    kind: pa.DataType,
    declared_kind: str,
    fits: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    pq.write_table(pa.table({"n": pa.array([1], kind)}), tmp_path / "part-0.parquet")
    dataset, files = declared(f"n {declared_kind}", tmp_path), listed_files(str(tmp_path)) or []
    if fits:
        assert list(rows_by_footer(dataset, files, copied=True).values()) == [1]
        return
    with pytest.raises(BadInput, match=f"n is {kind} there and declared {declared_kind}. Nothing was published"):
        rows_by_footer(dataset, files, copied=True)
