"""What a look at a landing folder costs, counted: names taken apart, entries described, windows computed."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from fsspec.implementations.local import LocalFileSystem

from varve.model.dataset import Dataset, StoreKind
from varve.model.landing.options import LandingOptions
from varve.model.landing.pattern import FilePattern
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.window_keys import WindowKeys
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.arrivals.arrivals import Arrived, SortedFiles, Sorter, stamp_of
from varve.sources.landing import listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOUR = TimeDimension.of("hour", "@hourly", "2026-01-01")


def arriving(files: str) -> Dataset:
    partitioning = Partitioning((HOUR, StaticDimension("store", ("EU/1", "US"))))
    options = LandingOptions(files=files)
    return Dataset(
        "counted.arriving", partitioning, Schema((Column("n", ColumnType.INT),)), StoreKind.LAKE, "", landing=options
    )


def sent(dataset: Dataset, folder: Path, count: int = 100) -> None:
    pattern = listing.pattern_of(dataset)
    for _, key in zip(range(count), dataset.partitioning.keys(), strict=False):
        path = folder / pattern.name(key).replace("*", "a")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("n\n1\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))


def _counting(calls: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        calls[name] += 1
        return function(*args)

    return call


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The calls meanwhile of what costs time for each file."""
    calls: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (FilePattern, "_parsed"), (Partitioning, "from_dagster"), (Partitioning, "to_dagster"),
            (WindowKeys, "_start_of"), (listing, "_local_entry"), (LocalFileSystem, "info"),
        ):  # fmt: skip
            patch.setattr(owner, name, _counting(calls, name, getattr(owner, name)))
        yield calls


def look(dataset: Dataset, folder: Path, arrived: dict[str, Arrived]) -> SortedFiles:
    return Sorter(dataset, arrived, {}, {}, time.time() + 60, 0.0).sort(listing.listed(dataset, str(folder)))


PATTERNS = ["", "{hour}|{store}.csv", "{store}/at_{hour:%Y%m%d%H}.csv.gz", "store={store}/hour={hour}/*.csv"]


@pytest.mark.parametrize("files", PATTERNS)
def test_a_look_at_files_that_were_taken_takes_no_name_apart_and_notices_the_one_that_changed(
    files: str, tmp_path: Path
) -> None:
    dataset = arriving(files)
    sent(dataset, tmp_path)
    (tmp_path / "stray.csv").write_text("n\n")
    first = look(dataset, tmp_path, {})
    assert (len(first.take), len(first.rejected)) == (100, 1)
    arrived = {key.path: Arrived("", stamp_of(of)) for key, of in first.take}
    with counted() as calls:
        again = look(dataset, tmp_path, arrived)
    assert (again.take, len(again.standing), again.rejected.keys()) == ([], 100, first.rejected.keys())
    calls.pop("_local_entry")
    assert calls == {"info": 1}, calls
    key, (file,) = first.take[7]
    Path(file.uri).write_text("n\n2\n")
    os.utime(file.uri, (1_000_000_000, 1_000_000_000))
    assert [taken for taken, _ in look(dataset, tmp_path, arrived).take] == [key]


@pytest.mark.parametrize("files", PATTERNS)
def test_a_run_of_one_partition_describes_and_takes_apart_its_own_files_alone(files: str, tmp_path: Path) -> None:
    dataset = arriving(files)
    sent(dataset, tmp_path)
    everything = list(listing.listed(dataset, str(tmp_path)))
    listing._pattern.cache_clear()
    listing.pattern_of(dataset)
    with counted() as calls:
        found = list(listing.listed(dataset, str(tmp_path), [everything[40].partition]))  # type: ignore[list-item]
    assert found == [everything[40]]
    assert calls["_parsed"] == 1
    assert calls["_local_entry"] <= 3


def test_a_file_of_this_machine_has_the_stamp_that_was_made_of_the_description_of_fsspec(tmp_path: Path) -> None:
    """The catalog has the stamps of all files that were taken: with other ones each would be read again."""
    dataset = arriving("")
    sent(dataset, tmp_path, 3)
    with mock.patch.object(listing, "is_local", return_value=False):
        described = list(listing.listed(dataset, str(tmp_path)))
    assert described == list(listing.listed(dataset, str(tmp_path)))
    assert all(file.stamp and file.changed_at for file in described)
