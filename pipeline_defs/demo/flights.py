"""`varve demo`: the whole pipeline on real data, in a few minutes, with checks.

Files arrive, sensors request runs, the weekly view appears; then the partner corrects a day while a reader keeps
querying the view. Every printed figure is compared with the source or with the catalog; a difference ends with exit
code 1.
"""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from pipeline_defs.definitions import defs, graph
from resources import partner
from varve.catalog.catalog import Catalog
from varve.cli.context import chosen_settings
from varve.cli.printing import Table
from varve.cli.servers import services
from varve.dagster.automation.sensors import DATASET_TAG
from varve.dagster.driver import Driver, spelt
from varve.dagster.instance import open_instance
from varve.dagster.internal.partition_keys import keys_in_range
from varve.dagster.partitions.definitions import dataset_partitions_def
from varve.dagster.partitions.sets_sensor import sets_of
from varve.model.errors import VarveError
from varve.model.partitions.key import PartitionKey
from varve.planning.mapping.dataset_mapping import Dependency
from varve.planning.requested import RANGE_END_TAG, RANGE_START_TAG
from varve.services.folders import writable
from varve.services.postgres import connect, warehouse_url
from varve.services.sessions import open_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dagster as dg
    from rich.console import Console

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.services.settings import Settings

DEPARTURES, WEATHER, FLEET = (graph.datasets[f"flights.{name}"] for name in ("departures", "weather", "fleet"))
CORRECTED = dt.date(2013, 1, 3)
_STATE_OF_VIEW = """
    select count(*), sum(flights)::bigint, sum(delay_minutes)::bigint, count(distinct (week, origin))
    from flights.weekly_delays
"""


def land(console: Console, days: int) -> None:
    """Write the sample files of the first `days` days of 2013 into the landing folder."""
    folder = writable(Path(chosen_settings().landing))
    days_to_send, hours = _days_and_hours(days)
    with _progress(console) as progress:
        task = progress.add_task(f"files into {folder}", total=len(days_to_send) + len(hours) + 1)
        for _ in partner.send_days(folder, days_to_send, hours):
            progress.advance(task)


def run(console: Console, *, days: int, fresh: bool) -> None:
    """Run the demo. Raises VarveError where a count differs from its source."""
    settings = chosen_settings()
    if fresh:
        _forget(console, settings)
    services.up(console)
    console.rule("[bold]1. A partner sends files")
    land(console, days)
    with open_instance(settings) as instance, connect(settings, application="varve demo") as connection:
        catalog = Catalog(connection)
        console.rule("[bold]2. Sensors run what became possible")
        _drive(console, instance, settings)
        before = _current(catalog)
        _check_source(catalog, days)
        console.rule("[bold]3. The partner corrects a day, and nobody notices")
        _correct(console, settings)
        reader = Reader(warehouse_url(settings))
        with reader:
            _drive(console, instance, settings)
        after = _current(catalog)
        _show_change(console, reader, before, after, sets_of(instance, graph).members())
        _show_result(console, catalog, days)
    _show_next(console, settings)


@dataclass
class Reader:
    """A dashboard of other people: it queries the view again and again, on one connection, and keeps each new answer.

    Attributes:
        reads: how many answers there were.
        slowest: how long the slowest answer took, in seconds.
        states: the answers, without those that equal the answer before.
        errors: the messages of failed queries.
    """

    url: str
    reads: int = 0
    slowest: float = 0.0
    states: list[tuple[int, ...]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._read, name="reader")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _read(self) -> None:
        with open_session(self.url, application="dashboard") as connection:
            # The view is read once more after the end was asked for, so that `states` has the last state.
            while True:
                last = self._stop.is_set()
                start = time.monotonic()
                try:
                    row = connection.execute(_STATE_OF_VIEW).fetchone()
                except psycopg.Error as error:
                    self.errors.append(str(error))
                    return
                self.slowest = max(self.slowest, time.monotonic() - start)
                self.reads += 1
                assert row is not None
                if not self.states or self.states[-1] != row:
                    self.states.append(row)
                if last:
                    return
                time.sleep(0.005)


def _days_and_hours(days: int) -> tuple[list[dt.date], list[str]]:
    first_days = [
        key for key in itertools.islice(DEPARTURES.partitioning.dimensions[0].keys(), days) if isinstance(key, dt.date)
    ]
    keys = [
        key
        for day in first_days
        for key in Dependency(DEPARTURES.partitioning, WEATHER.partitioning).upstream_of(PartitionKey.of(day=day)).keys
    ]
    return first_days, sorted({str(key["hour"]) for key in keys})


def _forget(console: Console, settings: Settings) -> None:
    services.down(console)
    for name in ("postgres", "spark", "lake", "landing", "dagster"):
        shutil.rmtree(settings.home_dir / name, ignore_errors=True)


def _drive(console: Console, instance: dg.DagsterInstance, settings: Settings) -> None:
    with console.status(f"Waiting {settings.settle_seconds:g} s: a file must be settled before it is taken..."):
        time.sleep(settings.settle_seconds)
    with _progress(console) as progress:
        tasks: dict[str, TaskID] = {}

        def before(request: dg.RunRequest) -> None:
            name = request.tags[DATASET_TAG]
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=0)
            total = progress.tasks[tasks[name]].total or 0
            progress.update(tasks[name], total=total + _size(request, instance), description=spelt(request))

        def after(request: dg.RunRequest, run_id: str) -> None:
            name = request.tags[DATASET_TAG]
            progress.advance(tasks[name], _size(request, instance))
            progress.update(tasks[name], description=f"{name} [dim](run {run_id[:8]})")

        Driver(instance, defs, graph, before, after).until_quiet()
        if not tasks:
            progress.add_task("nothing to run: everything is current", total=1, completed=1)


def _size(request: dg.RunRequest, instance: dg.DagsterInstance) -> int:
    """Return how many partitions a run request asks for."""
    if request.partition_key is not None or RANGE_START_TAG not in request.tags:
        return 1
    definition = dataset_partitions_def(graph.datasets[request.tags[DATASET_TAG]])
    assert definition is not None
    return len(keys_in_range(definition, instance, request.tags[RANGE_START_TAG], request.tags[RANGE_END_TAG]))


def _current(catalog: Catalog) -> dict[str, dict[str, Batch]]:
    return {dataset.name: catalog.current(dataset.name) for dataset in graph.in_order()}


def _correct(console: Console, settings: Settings) -> None:
    """Send the corrected file of the day, in which every delay is five minutes longer."""
    key = CORRECTED.isoformat()
    rows = partner.flights_by_day([CORRECTED])[key]
    for row in rows:
        if row["dep_delay"] != "NA":
            row["dep_delay"] = str(int(row["dep_delay"]) + 5)
    folder = Path(settings.landing) / DEPARTURES.db / DEPARTURES.table
    partner.send(folder, key, partner.FLIGHTS_COLUMNS, rows)
    console.print(f"{DEPARTURES} {key} arrives again: every delay of its {len(rows)} flights is 5 minutes longer.")


def _check_source(catalog: Catalog, days: int) -> None:
    for dataset, expected in _source_rows(days).items():
        row_count = sum(catalog.current(dataset.name)[path].rows for path in expected)
        if row_count != sum(expected.values()):
            raise VarveError(f"{dataset} holds {row_count:,} rows; its files have {sum(expected.values()):,}.")


def _source_rows(days: int) -> dict[Dataset, dict[str, int]]:
    """Return how many rows the source package has for every landed partition, by dataset and partition path."""
    days_of_year, hours = _days_and_hours(days)
    flights, weather = partner.flights_by_day(days_of_year), partner.weather_by_hour(hours)
    return {
        DEPARTURES: {PartitionKey.of(day=day).path: len(flights[day.isoformat()]) for day in days_of_year},
        WEATHER: {PartitionKey.of(hour=hour).path: len(weather[hour]) for hour in hours},
        FLEET: {PartitionKey.of(of_year="2013").path: len(partner.planes())},
    }


def _show_change(
    console: Console,
    reader: Reader,
    before: dict[str, dict[str, Batch]],
    after: dict[str, dict[str, Batch]],
    members: Members,
) -> None:
    changed = {
        name: [path for path, batch in batches.items() if batch != before[name].get(path)]
        for name, batches in after.items()
    }
    table = Table("dataset", "new", "untouched", "which", title="What the correction touched", title_justify="left")
    for name, paths in changed.items():
        table.add_row(name, f"{len(paths):,}", f"{len(after[name]) - len(paths):,}", _span(paths))
    console.print(table)
    expected = {name: paths & set(before[name]) for name, paths in _expected_change(members).items()}
    if {name: set(paths) for name, paths in changed.items()} != expected:
        raise VarveError(f"the correction should have touched {expected}.")
    if reader.errors or len(reader.states) != 2:
        raise VarveError(f"the reader should have seen two states, old and new; saw {reader.states} {reader.errors}.")
    old, new = reader.states
    console.print(
        f"A reader asked the view {reader.reads:,} times meanwhile (slowest {reader.slowest * 1000:.0f} ms) and saw "
        f"exactly two states: {_state(old)}, then {_state(new)}.",
        highlight=False,
    )


def _span(paths: Sequence[str]) -> str:
    """Return the range of values in each partition column as text: `2013-01-03 ... 2013-01-09, EWR ... LGA`."""
    columns = zip(*([part.split("=", 1)[1] for part in path.split("/")] for path in paths), strict=True)
    ends = [(min(values), max(values)) for values in columns]
    return ", ".join(first if first == last else f"{first} ... {last}" for first, last in ends)


def _expected_change(members: Members) -> dict[str, set[str]]:
    """Return the paths of the corrected day and of everything downstream of it, computed from the mappings alone."""
    affected = {DEPARTURES.name: {PartitionKey.of(day=CORRECTED)}}
    for dataset in graph.in_order():
        for edge in graph.edges[dataset.name]:
            for key in affected.get(edge.upstream.name, ()):
                readers = edge.dependency.readers_of(key, members=members)
                affected.setdefault(dataset.name, set()).update(readers.keys)
    return {dataset.name: {key.path for key in affected.get(dataset.name, ())} for dataset in graph.in_order()}


def _state(row: tuple[Any, ...]) -> str:
    return f"{row[3]} periods, {row[1]:,} flights, {row[2]:,} minutes of delay"


def _show_result(console: Console, catalog: Catalog, days: int) -> None:
    source = {dataset.name: sum(rows.values()) for dataset, rows in _source_rows(days).items()}
    table = Table(title="What there is now", title_justify="left")
    for name in ("dataset", "store", "partitions", "rows", "source", "batches"):
        table.add_column(name, no_wrap=True)
    for count in catalog.counts():
        if count.dataset in graph.datasets:
            table.add_row(
                count.dataset, count.store, f"{count.partitions:,}", f"{count.rows:,}",
                f"{source[count.dataset]:,}" if count.dataset in source else "", f"{count.batches:,}",
            )  # fmt: skip
    console.print(table)
    answer = catalog.connection.execute(
        "select week, sum(flights)::bigint, sum(cancelled)::bigint, round(sum(delay_minutes) / sum(flights), 1) "
        "from flights.weekly_delays group by week order by week"
    ).fetchall()
    weeks = Table(
        "week", "flights", "cancelled", "mean delay (min)", title="flights.weekly_delays", title_justify="left"
    )
    for week, flights, cancelled, mean in answer:
        weeks.add_row(str(week), f"{flights:,}", f"{cancelled:,}", f"{mean}")
    console.print(weeks)


def _show_next(console: Console, settings: Settings) -> None:
    places = Table.grid(Column(overflow="fold"), Column(), padding=(0, 2))
    places.add_row("make ui", "the Dagster UI: every run above, backfills, sensors")
    places.add_row("varve psql -c 'table flights.weekly_delays'", "the union view, in SQL")
    places.add_row("varve status", "how to reach PostgreSQL and Spark with your own tools")
    places.add_row("spark.table('flights.departures')", "the current batches, in any session of that Spark")
    places.add_row(f"{settings.lake}/flights", "every batch, old and new, as plain parquet")
    console.print(Panel(places, title="Where to look next", title_align="left", expand=False), highlight=False)


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
