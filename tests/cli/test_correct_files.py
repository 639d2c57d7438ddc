"""Which partitions the words of `varve correct` name: whatever characters keys have, and however files are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pendulum
import pytest

from varve import (
    Column,
    ColumnType,
    Dataset,
    Grain,
    LandingOptions,
    Partitioning,
    Schema,
    StaticDimension,
    StoreKind,
    TimeDimension,
)
from varve.cli.environments.correct import _files
from varve.model.errors import BadInput
from varve.model.landing.pattern import FilePattern
from varve.model.partitions.texts import command_words

if TYPE_CHECKING:
    from pathlib import Path

DAY = TimeDimension("day", Grain.DAY, pendulum.datetime(2026, 11, 1, tz="UTC"))
STATIONS = ("a/b", "/", "%2F", "é", "=", " ", "O'Brien", "v1.5")


def dataset_of(*dimensions: object) -> Dataset:
    return Dataset(
        name="shop.sales", comment="One row per sale.", partitioning=Partitioning(dimensions), store=StoreKind.LAKE,
        schema=Schema((Column("cents", ColumnType.BIGINT),)), landing=True,
    )  # fmt: skip


SALES = dataset_of(DAY, StaticDimension("station", STATIONS))


def sent(folder: Path, name: str) -> str:
    (folder / name).write_text("cents\n1\n")
    return str(folder / name)


@pytest.mark.parametrize("station", STATIONS)
def test_a_value_names_the_key_as_it_is(tmp_path: Path, station: str) -> None:
    """`%2F` is not the key `/`, and a value with a dot is no file that is missing."""
    file = sent(tmp_path, "fixed.csv")
    (path,) = _files(SALES, [file, "day=2026-11-05", f"station={station}"])
    key = SALES.partitioning.from_path(path)
    assert key == SALES.partitioning.parsed({"day": "2026-11-05", "station": station})
    assert key["station"] == station


def test_a_file_is_of_the_partition_that_its_own_name_says_and_not_of_where_it_links_to(tmp_path: Path) -> None:
    days = dataset_of(DAY)
    sent(tmp_path, "2026-11-04.csv")
    (tmp_path / "2026-11-05.csv").symlink_to(tmp_path / "2026-11-04.csv")
    assert list(_files(days, [str(tmp_path / "2026-11-05.csv")])) == ["day=2026-11-05"]


def test_a_dataset_without_partitions_takes_a_file_of_any_name(tmp_path: Path) -> None:
    file = sent(tmp_path, "fixed.csv")
    assert [*map(str, _files(dataset_of(), [file]).values())] == [file]


@pytest.mark.parametrize(
    ("files", "sent", "name"),
    [
        ("", "fixed.csv", "2026-11-05|a%2Fb.csv"),
        ("", "fixed.jsonl", "2026-11-05|a%2Fb.jsonl"),
        ("", "fixed.csv.gz", "2026-11-05|a%2Fb.csv.gz"),
        ("", "fixed", "2026-11-05|a%2Fb.csv"),
        ("", "fixed.txt", "2026-11-05|a%2Fb.csv"),
        ("{station}/{day}", "fixed.parquet", "a%2Fb/2026-11-05.parquet"),
        # The declaration says how such files end.
        ("{station}/{day}.csv.gz", "fixed.csv", "a%2Fb/2026-11-05.csv.gz"),
        ("{station}/{day}/*", "fixed.jsonl", "a%2Fb/2026-11-05/*"),
    ],
)
def test_a_corrected_file_keeps_its_ending_as_it_is_read_by_that(files: str, sent: str, name: str) -> None:
    pattern = FilePattern.of(LandingOptions(files=files), SALES.partitioning)
    key = SALES.partitioning.parsed({"day": "2026-11-05", "station": "a/b"})
    assert pattern.name_like(key, sent) == name
    assert name in pattern.names_of(key)


def test_what_is_neither_a_file_nor_a_partition_is_told_as_both(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"day=2026-11-05.csv is no file, and no partition: .* Nothing was changed"):
        _files(dataset_of(DAY), [sent(tmp_path, "fixed.csv"), "day=2026-11-05.csv"])


def test_the_words_of_a_partition_have_its_values_as_they_are_quoted_for_a_shell() -> None:
    key = SALES.partitioning.parsed({"day": "2026-11-05", "station": "a/b"})
    assert command_words(key.path) == "day=2026-11-05 station=a/b"
    key = SALES.partitioning.parsed({"day": "2026-11-05", "station": "O'Brien"})
    assert command_words(key.path) == """day=2026-11-05 'station=O'"'"'Brien'"""
    assert command_words("all") == ""
