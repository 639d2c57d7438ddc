"""kill -9 of the servers at the steps of a run: readers see exactly one state, one sweep heals, the next run works.

The run itself is killed in test_kill.py.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.e2e.project import Project, flights

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

NAME = "flights.departures"
DAY = dt.date(2013, 1, 1)
VERSIONS = count(300)


@dataclass(frozen=True)
class Death:
    """Which server dies when, and whether the run's batch is current afterwards."""

    name: str
    victim: str
    when: str
    function: str
    published: bool

    def __str__(self) -> str:
        return self.name


WRITE, PUBLISH = "varve.stores.folders.write:write_batches", "varve.catalog.catalog:Catalog.publish"
COMMIT = "varve.stores.lake.store:LakeStore.commit"
DEATHS = [
    Death("Spark, while it writes", "spark", "during", WRITE, published=False),
    Death("Spark, before the Hive table follows", "spark", "after", COMMIT, published=True),
    Death("PostgreSQL, while Spark writes", "postgres", "during", WRITE, published=False),
    Death("PostgreSQL, before the publish", "postgres", "before", PUBLISH, published=False),
    Death("PostgreSQL, after the publish", "postgres", "after", COMMIT, published=True),
]


@pytest.fixture(scope="module")
def fragile() -> Iterator[Project]:
    """A project whose servers nobody else uses, with one day published."""
    with Project.of_its_own("crash") as found:
        found.send_flights(DAY)
        found.must_materialize("flights/departures", partition=str(DAY))
        yield found


def version(project: Project) -> tuple[int, int]:
    """Rows and the sum of the flight numbers in the current folder."""
    folder = Path(project.current(NAME)[f"day={DAY}"].location)
    numbers = [number for file in folder.glob("*.parquet") for number in pq.read_table(file)["flight"].to_pylist()]
    return len(numbers), sum(numbers)


@pytest.mark.parametrize("death", DEATHS, ids=str)
def test_a_server_that_is_killed_costs_readers_nothing(fragile: Project, death: Death) -> None:
    # Whoever asks starts the server that the last death has ended.
    assert fragile.varve("up").code == 0
    old, rows = version(fragile), next(VERSIONS)
    fragile.send_flights(DAY, keep=rows)
    new = rows, sum(int(row["flight"]) for row in flights(DAY)[:rows])

    done = fragile.crash(death.when, death.function, "flights/departures", partition=str(DAY), victim=death.victim)

    assert fragile.varve("up").code == 0
    assert version(fragile) == (new if death.published else old), done.output
    if not death.published:
        assert done.code != 0, done.output
    swept = fragile.varve("sweep", NAME, "--orphans-older-than", "0")
    assert swept.code == 0, swept.output
    # The doctor compares the folders and the Hive table with the catalog.
    well = fragile.varve("doctor", NAME)
    assert well.code == 0, well.output
    assert version(fragile) == (new if death.published else old)
    fragile.must_materialize("flights/departures", partition=str(DAY))
    assert version(fragile) == new
