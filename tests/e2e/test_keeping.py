"""`varve history | rollback | pin | sweep | doctor | repair` as a person uses them, while readers look on."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.project import Project, Reader, flights

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "flights.departures"
FIRST, SECOND = dt.date(2013, 3, 4), dt.date(2013, 3, 5)
FIRST_WORD = f"day={FIRST}"

pytestmark = pytest.mark.slow


def rows_by_name(reader: Reader, day: dt.date) -> int:
    ((rows,),) = reader.sql(f"SELECT count(*) FROM {NAME} WHERE day = DATE'{day}'")
    return int(rows)


def history(project: Project, *words: str) -> list[tuple[str, bool, str]]:
    """(state, whether it is current, location) of the batches, newest first."""
    return [(one["state"], one["is_current"], one["location"]) for one in project.varve_json("history", NAME, *words)]


@pytest.fixture(scope="module")
def twice() -> Iterator[Project]:
    """Two days, of which the partner has corrected the first: two runs, two batches of it, and nothing else."""
    with Project.of_its_own("keep") as project:
        project.send_flights(FIRST, SECOND)
        project.must_materialize("flights/departures", partitions=f"{FIRST}...{SECOND}")
        project.send_flights(FIRST, keep=100)
        project.must_materialize("flights/departures", partition=str(FIRST))
        yield project


@pytest.fixture(scope="module")
def reader(twice: Project) -> Iterator[Reader]:
    """Somebody who reads by name all the while."""
    found = Reader(twice)
    yield found
    found.close()


def test_a_bad_run_is_rolled_back_and_readers_see_the_batch_before(twice: Project, reader: Reader) -> None:
    assert rows_by_name(reader, FIRST) == 100
    newest, oldest = twice.varve_json("history", NAME, FIRST_WORD)
    assert (newest["state"], newest["is_current"], newest["rows"]) == ("published", True, 100)
    assert (oldest["state"], oldest["is_current"], oldest["rows"]) == ("retired", False, len(flights(FIRST)))

    planned = twice.varve_json("rollback", "--run", newest["run_id"][:12], "--dry-run")
    change = {"dataset": NAME, "partition": FIRST_WORD, "from": newest["batch_id"], "to": oldest["batch_id"]}
    assert planned == {"done": False, "changes": [change]}
    assert rows_by_name(reader, FIRST) == 100
    done = twice.varve_json("rollback", "--run", newest["run_id"], "--reason", "half a file")
    assert done == {"done": True, "changes": [change]}
    assert rows_by_name(reader, FIRST) == len(flights(FIRST))
    assert rows_by_name(reader, SECOND) == len(flights(SECOND))
    last, *_ = twice.varve_json("history", NAME, FIRST_WORD, "--log")
    assert (last["kind"], last["batch_id"], last["reason"]) == ("rollback", oldest["batch_id"], "half a file")

    again = twice.varve("rollback", "--run", newest["run_id"])
    assert again.code == 1
    assert "is taken back already" in again.told
    twice.varve_json("rollback", NAME, FIRST_WORD, "--to", str(newest["batch_id"]))
    assert rows_by_name(reader, FIRST) == 100
    twice.varve_json("rollback", NAME, FIRST_WORD, "--at", last["published_at"])
    assert rows_by_name(reader, FIRST) == len(flights(FIRST))


def test_a_pinned_batch_stays_and_an_unpinned_one_is_swept(twice: Project, reader: Reader) -> None:
    (retired,) = [one for one in twice.varve_json("history", NAME, FIRST_WORD) if one["state"] == "retired"]
    batch = str(retired["batch_id"])
    (pinned,) = twice.varve_json("pin", NAME, FIRST_WORD, "--batch", batch, "--reason", "audit", "--owner", "ann")
    assert (pinned["partition"], pinned["owner"]) == (FIRST_WORD, "ann")
    swept = twice.varve_json("sweep", NAME, "--older-than", "0", "--orphans-older-than", "0")
    assert swept["kept"]["pinned"]["count"] == 1
    assert Path(retired["location"]).is_dir()
    assert twice.varve_json("unpin", NAME, FIRST_WORD, "--owner", "ann") == {"unpinned": 1, "snapshots": []}

    planned = twice.varve_json("sweep", NAME, "--older-than", "0", "--dry-run")
    assert planned["batches"] == {NAME: {"count": 1, "size": retired["bytes"]}}
    assert twice.varve_json("sweep", NAME, "--dry-run")["kept"]["recent"]["count"] == 1
    assert Path(retired["location"]).is_dir()
    swept = twice.varve_json("sweep", NAME, "--older-than", "0")
    assert swept["batches"] == planned["batches"]
    assert not Path(retired["location"]).exists()
    assert rows_by_name(reader, FIRST) == len(flights(FIRST))
    refused = twice.varve("rollback", NAME, FIRST_WORD, "--to", batch)
    assert refused.code == 1
    assert "was swept on" in refused.told
    assert twice.varve("pin", NAME, FIRST_WORD, "--batch", batch, "--reason", "too late").code == 1


def test_the_doctor_finds_what_a_killed_run_left_and_one_sweep_clears_it(twice: Project) -> None:
    killed = twice.crash("after", "varve.catalog.catalog:Catalog.staged", "flights/departures", partition=str(SECOND))
    assert killed.code < 0
    sick = twice.varve("doctor", NAME)
    assert sick.code == 1
    assert "its run ended without a word" in sick.told
    twice.varve_json("sweep", NAME, "--orphans-older-than", "0")
    well = twice.varve("doctor", NAME)
    assert well.code == 0, well.output
    assert "All is well" in well.told


def test_a_folder_deleted_behind_our_back_is_named_with_what_to_do(twice: Project, reader: Reader) -> None:
    location = Path(twice.current(NAME)[f"day={SECOND}"].location)
    aside = location.with_name("aside")
    location.rename(aside)
    try:
        (found,) = twice.varve_json("doctor", NAME)["findings"]
        assert (found["partition"], found["problem"]) == (f"day={SECOND}", f"the folder {location} is gone")
        assert "run the partition again" in found["remedy"]
        assert rows_by_name(reader, FIRST) == len(flights(FIRST))
    finally:
        aside.rename(location)
    assert twice.varve_json("repair", NAME) == {
        "shown": {NAME: 0}, "recovered": [], "rejected": [], "datasets": 0, "batches": 0, "findings": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("history", "flights.nothing"), "there is no dataset 'flights.nothing'"),
        (("history", NAME, "year=2013"), "'year=2013' names no partition"),
        (("history", NAME, "day=1999-01-01"), "has no partition day=1999-01-01"),
        (("rollback", NAME), f"{NAME}: say where to go back to: one of --to"),
        (("rollback", "--run", "no-such-run"), "no run whose id begins with 'no-such-run'"),
        (("sweep", "--older-than", "soon"), "'soon' is no span of time"),
        (("unpin", NAME), "there is no pin"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(twice: Project, words: tuple[str, ...], told: str) -> None:
    done = twice.varve(*words)
    assert done.code == 1
    assert told in done.told
