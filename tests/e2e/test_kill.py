"""kill -9 at every step of a run: readers see exactly the old state or exactly the new; the next run simply works."""

from __future__ import annotations

import datetime as dt
import signal
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.e2e.project import flights, url_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _pytest.mark import ParameterSet

    from tests.e2e.project import Project, Reader

DAY = dt.date(2013, 1, 1)
DAY_PATH = f"day={DAY}"
WEEK_KEY, WEEK_PATH = "EWR|2012-12-31", "week=2012-12-31/origin=EWR"
# How many flights of the day each next version of its file holds: no two versions are alike.
VERSIONS = count(400)


@dataclass(frozen=True)
class Moment:
    """Where a run dies, and whether readers of the catalog and of the table or view see the new state afterwards."""

    name: str
    when: str
    function: str
    catalog_is_new: bool = False
    table_is_new: bool = False
    is_slow: bool = False

    def __str__(self) -> str:
        return self.name


LAKE = [
    Moment("after the build began", "after", "varve.catalog.catalog:Catalog.begin", is_slow=True),
    Moment("before Spark writes", "before", "varve.stores.folders.write:write_batches", is_slow=True),
    Moment("after Spark wrote", "after", "varve.stores.folders.write:write_batches"),
    Moment("after the footers were read", "after", "varve.stores.folders.write:survey", is_slow=True),
    Moment("after the batch was staged", "after", "varve.catalog.catalog:Catalog.staged", is_slow=True),
    Moment("before the publish", "before", "varve.catalog.catalog:Catalog.publish"),
    Moment("inside it, after Iceberg's row moved", "after", "varve.stores.lake.iceberg.pointers:Pointers.move"),
    Moment("after the publish", "after", "varve.stores.lake.store:LakeStore.commit", catalog_is_new=True),
    Moment(
        "after the Hive table followed, before the catalog notes it",
        "before", "varve.catalog.catalog:Catalog.projected", catalog_is_new=True, table_is_new=True,
    ),
]  # fmt: skip
WAREHOUSE = [
    Moment("between an empty period table and its rows", "before", "varve.stores.warehouse.loading.copying:_copy"),
    Moment("between a load and the count of its rows", "before", "varve.stores.warehouse.loading.load:_finish",
           is_slow=True),
    Moment("after the load", "after", "varve.stores.warehouse.loading.load:load", is_slow=True),
    Moment("before the swap", "before", "varve.stores.warehouse.publish:_swap", is_slow=True),
    Moment("inside the swap, before the view is created", "after", "varve.catalog.catalog:Catalog.publish"),
    Moment("inside the swap, after the view is created", "after", "varve.stores.warehouse.publish:replace_views"),
    Moment(
        "after the swap", "after", "varve.stores.warehouse.publish:_swap", catalog_is_new=True, table_is_new=True
    ),
]  # fmt: skip


def moments(of_a_store: Iterable[Moment]) -> list[ParameterSet]:
    """Those at which something has been written or is being published, for the suite; the others for `make torture`."""
    return [
        pytest.param(moment, id=str(moment), marks=[pytest.mark.slow] if moment.is_slow else [])
        for moment in of_a_store
    ]


def version_in_catalog(project: Project) -> tuple[int, int]:
    """Rows and the sum of the flight numbers of the day in the folder that the catalog calls current."""
    with project.catalog() as catalog:
        folder = catalog.current("flights.departures")[DAY_PATH].location
    column = [value for file in Path(folder).glob("*.parquet") for value in pq.read_table(file)["flight"].to_pylist()]
    return len(column), sum(column)


def version_in_table(reader: Reader) -> tuple[int, int]:
    """The same of the Hive table, by its name."""
    ((rows, numbers),) = reader.sql(f"SELECT count(*), sum(flight) FROM flights.departures WHERE day = DATE'{DAY}'")
    return rows, numbers


def unfinished(project: Project) -> list[Any]:
    """Batches that some run still seems to be building."""
    with project.catalog() as catalog:
        return catalog.connection.execute(
            "select dataset, partition from varve.batch where state in ('building', 'staged')"
        ).fetchall()


@pytest.fixture(scope="module", autouse=True)
def _the_day_as_it_was(week: Project) -> Iterator[None]:
    yield
    week.send_flights(DAY)
    week.must_materialize("flights/departures", partition=str(DAY))


@pytest.mark.parametrize("moment", moments(LAKE))
def test_readers_of_the_lake_see_one_state_when_a_run_is_killed(week: Project, reader: Reader, moment: Moment) -> None:
    old = version_in_catalog(week)
    assert version_in_table(reader) == old
    rows = next(VERSIONS)
    week.send_flights(DAY, keep=rows)
    new = rows, sum(int(row["flight"]) for row in flights(DAY)[:rows])

    killed = week.crash(moment.when, moment.function, "flights/departures", partition=str(DAY))

    assert killed.code == -signal.SIGKILL, killed.output
    assert version_in_catalog(week) == (new if moment.catalog_is_new else old)
    assert version_in_table(reader) == (new if moment.table_is_new else old)
    week.must_materialize("flights/departures", partition=str(DAY))
    assert version_in_catalog(week) == version_in_table(reader) == new
    assert unfinished(week) == []


def rows_and_tables_of_the_view(project: Project) -> tuple[list[Any], set[str]]:
    """What a reader of the view sees for the week and airport, and from which tables PostgreSQL takes it."""
    query = "select * from flights.weekly_delays where week = '2012-12-31' and origin = 'EWR' order by carrier"
    with psycopg.connect(url_of(project)) as connection:
        rows = connection.execute(query).fetchall()
        plan = connection.execute(f"explain (format json) {query}").fetchone()
    assert plan is not None
    return rows, set(_relations(plan[0]))


def _relations(plan: Any) -> Iterator[str]:
    if isinstance(plan, list):
        for part in plan:
            yield from _relations(part)
    elif isinstance(plan, dict):
        if "Relation Name" in plan:
            yield plan["Relation Name"]
        for part in plan.values():
            if isinstance(part, dict | list):
                yield from _relations(part)


@pytest.mark.parametrize("moment", moments(WAREHOUSE))
def test_readers_of_the_warehouse_see_one_state_when_a_run_is_killed(week: Project, moment: Moment) -> None:
    before = week.current("flights.weekly_delays")
    rows, tables = rows_and_tables_of_the_view(week)
    assert rows
    assert tables == {before[WEEK_PATH].location}

    killed = week.crash(moment.when, moment.function, "flights/weekly_delays", partition=WEEK_KEY)

    assert killed.code == -signal.SIGKILL, killed.output
    after = week.current("flights.weekly_delays")
    assert (after[WEEK_PATH] != before[WEEK_PATH]) == moment.catalog_is_new
    # View and catalog move in one transaction; the rows are the same in both states, neither missing nor doubled.
    assert rows_and_tables_of_the_view(week) == (rows, {after[WEEK_PATH].location})
    week.must_materialize("flights/weekly_delays", partition=WEEK_KEY)
    latest = week.current("flights.weekly_delays")
    assert latest[WEEK_PATH].batch_id > after[WEEK_PATH].batch_id
    assert rows_and_tables_of_the_view(week) == (rows, {latest[WEEK_PATH].location})
    assert {path for path in latest if latest[path] != before[path]} == {WEEK_PATH}
    assert unfinished(week) == []
