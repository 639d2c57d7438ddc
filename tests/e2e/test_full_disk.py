"""A lake on a disk that runs full: the run fails in plain words, readers lose nothing, and the next run works."""

from __future__ import annotations

import datetime as dt
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.project import flights, rows_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import ColdStart
    from tests.e2e.project import Project, Reader
    from varve.model.batch import Batch

FIRST, SECOND = dt.date(2013, 2, 1), dt.date(2013, 2, 2)
PAGE = 4096


@pytest.fixture(scope="module")
def small(project: Project, cold_start: ColdStart, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The services of all tests, with a catalog of its own and a lake of one megabyte; one day is published in it."""
    assert cold_start.outcome.code == 0, cold_start.outcome.output
    lake = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", lake], check=True, timeout=30)
    try:
        found = project.with_databases("disk").having(lake_root=lake)
        found.send_flights(FIRST, SECOND)
        found.must_materialize("flights/departures", partition=str(FIRST))
        yield found
    finally:
        subprocess.run(["umount", "--lazy", lake], check=True, timeout=30)


@pytest.fixture
def filler(small: Project) -> Iterator[Path]:
    """A file that a test may let grow, and that is gone afterwards."""
    file = Path(small.settings.lake) / "somebody-elses.bin"
    yield file
    file.unlink(missing_ok=True)


def fill(file: Path, *, leave: int) -> None:
    """Let the file grow until so many bytes of its disk are free."""
    with file.open("wb", buffering=0) as opened:
        found = subprocess.run(
            ["stat", "--file-system", "--format", "%a %S", file], check=True, capture_output=True, text=True, timeout=30
        )
        blocks, size = map(int, found.stdout.split())
        for _ in range((blocks * size - leave) // PAGE):
            opened.write(b"\0" * PAGE)


def day_of(project: Project, day: dt.date) -> Batch | None:
    return project.current("flights.departures").get(f"day={day}")


def count_by_name(reader: Reader, day: dt.date) -> int:
    ((rows,),) = reader.sql(f"SELECT count(*) FROM flights.departures WHERE day = DATE'{day}'")
    return int(rows)


def folders_of(batch: Batch) -> set[Path]:
    """All batch folders of the partition."""
    return set(Path(batch.location).parent.iterdir())


def test_a_disk_that_is_full_after_the_data_was_written_is_told_the_same(small: Project, filler: Path) -> None:
    before = day_of(small, FIRST)
    assert before is not None
    # First of all tests here: a Spark that has met a full disk may hold deleted files open for a while.
    # The same rows need the same pages: room for the data and its checksum, none for the batch's description.
    data = [file for file in Path(before.location).iterdir() if file.name != "_varve.json"]
    fill(filler, leave=sum(-(-file.stat().st_size // PAGE) * PAGE for file in data))

    done = small.materialize("flights/departures", partition=str(FIRST))

    assert done.code == 1
    assert "the disk under the lake is full. Nothing was published; the current batch is unchanged." in done.output
    assert day_of(small, FIRST) == before
    assert folders_of(before) == {Path(before.location)}
    assert rows_in(before.location) == len(flights(FIRST))


def test_a_run_that_does_not_fit_says_that_the_disk_is_full(small: Project, reader: Reader, filler: Path) -> None:
    before = day_of(small, FIRST)
    assert before is not None
    fill(filler, leave=2 * PAGE)

    done = small.materialize("flights/departures", partition=str(FIRST))

    assert done.code == 1
    assert "flights.departures batch " in done.output
    assert "the disk under the lake is full. Nothing was published; the current batch is unchanged." in done.output
    assert day_of(small, FIRST) == before
    assert rows_in(before.location) == count_by_name(reader, FIRST) == len(flights(FIRST))
    assert folders_of(before) == {Path(before.location)}

    filler.unlink()
    small.must_materialize("flights/departures", partition=str(FIRST))
    after = day_of(small, FIRST)
    assert after is not None
    assert after.batch_id > before.batch_id
    assert rows_in(after.location) == count_by_name(reader, FIRST) == len(flights(FIRST))


def test_after_the_disk_has_grown_the_next_day_is_published(small: Project, reader: Reader, filler: Path) -> None:
    fill(filler, leave=0)
    assert small.materialize("flights/departures", partition=str(SECOND)).code == 1
    assert day_of(small, SECOND) is None

    subprocess.run(["mount", "-o", "remount,size=8m", small.settings.lake], check=True, timeout=30)

    small.must_materialize("flights/departures", partition=str(SECOND))
    after = day_of(small, SECOND)
    assert after is not None
    assert after.rows == count_by_name(reader, SECOND) == len(flights(SECOND))
