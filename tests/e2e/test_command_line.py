"""`dagster asset materialize`, from a cold start to reruns and refusals, on real data."""

from __future__ import annotations

import csv
import datetime as dt
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import psycopg
import pytest

from tests.e2e.conftest import WEEK
from tests.e2e.project import ROOT, flights, hours_of, rows_in, url_of

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from tests.e2e.conftest import ColdStart
    from tests.e2e.project import Project
    from varve.model.batch import Batch

ORIGINS = ("EWR", "JFK", "LGA")


def lines_of(project: Project, table: str, key: str) -> int:
    """The data rows of a landing file."""
    file = Path(project.settings.landing) / "flights" / table / f"{key}.csv"
    with file.open(encoding="utf-8", newline="") as opened:
        return sum(1 for _ in csv.DictReader(opened))


def test_the_first_command_starts_what_it_needs_and_publishes_three_days(
    project: Project, cold_start: ColdStart
) -> None:
    assert cold_start.services_before == (False, False)
    assert cold_start.outcome.code == 0, cold_start.outcome.output
    current = project.current("flights.departures")
    assert {"day=2013-01-01", "day=2013-01-02", "day=2013-01-03"} <= set(current)


def test_a_range_of_days_is_one_run_and_one_batch_id(project: Project, cold_start: ColdStart) -> None:
    current = project.current("flights.departures")
    found = [current[f"day=2013-01-0{day}"] for day in (1, 2, 3)]
    assert len({batch.batch_id for batch in found}) == 1
    assert len({batch.run_id for batch in found}) == 1


def test_every_partition_has_the_rows_of_its_landing_file(week: Project) -> None:
    departures, weather = week.current("flights.departures"), week.current("flights.weather")
    for day in WEEK:
        batch = departures[f"day={day}"]
        assert batch.rows == rows_in(batch.location) == lines_of(week, "departures", str(day))
        for hour in hours_of(day):
            observed = weather[f"hour={hour}"]
            assert observed.rows == rows_in(observed.location) == lines_of(week, "weather", hour)


def test_delays_have_a_row_for_each_carrier_of_a_day_and_airport(week: Project) -> None:
    current = week.current("flights.delays")
    assert set(current) >= {f"day={day}/origin={origin}" for day in WEEK for origin in ORIGINS}
    for day in WEEK:
        for origin in ORIGINS:
            carriers = {row["carrier"] for row in flights(day) if row["origin"] == origin}
            batch = current[f"day={day}/origin={origin}"]
            assert batch.rows == rows_in(batch.location) == len(carriers)


def test_the_week_adds_up_to_the_flights_of_its_days(week: Project) -> None:
    counts = Counter((row["origin"], row["carrier"]) for day in WEEK for row in flights(day))
    cancelled = sum(row["dep_time"] == "NA" for day in WEEK for row in flights(day))
    late = sum(int(row["dep_delay"]) for day in WEEK for row in flights(day) if row["dep_delay"] != "NA")
    with psycopg.connect(url_of(week)) as connection:
        rows = connection.execute(
            "select origin, carrier, flights from flights.weekly_delays where week = '2012-12-31'"
        ).fetchall()
        sums = connection.execute("select sum(cancelled), sum(delay_minutes) from flights.weekly_delays").fetchone()
    assert {(origin, carrier): count for origin, carrier, count in rows} == counts
    assert sums == (cancelled, late)


def metadata_of(instance: DagsterInstance, asset: str, partition: str) -> dict[str, Any]:
    """The metadata of a partition's latest materialisation."""
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset.split("/")), asset_partitions=[partition]), limit=1
    ).records
    assert len(records) == 1
    found = records[0].asset_materialization
    assert found is not None
    return {name: value.value for name, value in found.metadata.items()}


def place_of(batch: Batch) -> str:
    return batch.location if "/" in batch.location else f"flights_periods.{batch.location}"


@pytest.mark.parametrize(
    ("asset", "partitions"),
    [
        ("flights/departures", {f"day={day}": str(day) for day in WEEK}),
        ("flights/weather", {f"hour={hour}": hour for hour in hours_of(WEEK[0])}),
        ("flights/delays", {f"day={day}/origin={origin}": f"{day}|{origin}" for day in WEEK for origin in ORIGINS}),
        ("flights/weekly_delays", {f"week=2012-12-31/origin={origin}": f"{origin}|2012-12-31" for origin in ORIGINS}),
    ],
)
def test_dagster_shows_rows_table_place_and_batch_of_every_partition(
    week: Project, asset: str, partitions: dict[str, str]
) -> None:
    name = asset.replace("/", ".")
    current = week.current(name)
    with week.dagster() as instance:
        for path, key in partitions.items():
            shown, batch = metadata_of(instance, asset, key), current[path]
            assert shown["dagster/partition_row_count"] == batch.rows
            assert shown["dagster/table_name"] == name
            assert shown["dagster/uri"] == place_of(batch)
            assert shown["varve/batch_id"] == str(batch.batch_id)
            assert shown["varve/inputs"] == len(batch.inputs)


@pytest.mark.parametrize(("day", "hours"), [(dt.date(2013, 3, 10), 23), (dt.date(2013, 11, 3), 25)])
def test_a_day_on_which_the_clocks_change_reads_all_of_its_hours(week: Project, day: dt.date, hours: int) -> None:
    week.send_flights(day)
    week.send_weather(day)
    listed = hours_of(day)
    week.must_materialize("flights/departures", partition=str(day))
    week.must_materialize("flights/weather", partitions=f"{listed[0]}...{listed[-1]}")
    week.must_materialize("flights/delays", partition=f"{day}|JFK")
    batch = week.current("flights.delays")[f"day={day}/origin=JFK"]
    read = {source: {found.partition for found in batch.inputs if found.source == source} for source in (
        "flights.departures", "flights.weather",
    )}  # fmt: skip
    assert read == {"flights.departures": {f"day={day}"}, "flights.weather": {f"hour={hour}" for hour in listed}}
    assert len(read["flights.weather"]) == hours


def test_a_rerun_of_one_day_gives_only_that_day_a_new_batch(week: Project) -> None:
    names = ("flights.departures", "flights.weather", "flights.delays", "flights.weekly_delays")
    before = {name: week.current(name) for name in names}
    week.must_materialize("flights/departures", partition="2013-01-02")
    after = {name: week.current(name) for name in names}
    changed = [(name, path) for name in names for path in after[name] if after[name][path] != before[name].get(path)]
    assert changed == [("flights.departures", "day=2013-01-02")]
    old, new = (found["flights.departures"]["day=2013-01-02"] for found in (before, after))
    assert new.batch_id > old.batch_id
    assert new.rows == old.rows
    assert Path(old.location).is_dir()


class TestRefusals:
    """A run that cannot be: exit code 1, a message that says why, and nothing moves."""

    @pytest.fixture(autouse=True)
    def _nothing_moves(self, week: Project) -> Any:
        names = ("flights.departures", "flights.weather", "flights.delays", "flights.weekly_delays")
        before = {name: week.current(name) for name in names}
        rows = self.seen_by_readers(week)
        yield
        assert {name: week.current(name) for name in names} == before
        assert self.seen_by_readers(week) == rows

    @staticmethod
    def seen_by_readers(week: Project) -> tuple[Any, ...]:
        with psycopg.connect(url_of(week)) as connection:
            view = connection.execute("select * from flights.weekly_delays order by 1, 2, 3").fetchall()
        return view, {path: rows_in(batch.location) for path, batch in week.current("flights.departures").items()}

    def test_a_partition_whose_inputs_have_no_batch_is_refused_and_told_what_to_run(self, week: Project) -> None:
        done = week.materialize("flights/delays", partition="2013-05-05|EWR")
        assert done.code == 1
        assert "flights.delays day=2013-05-05/origin=EWR reads 1 partitions of flights.departures" in done.output
        assert "have no batch yet: day=2013-05-05" in done.output
        assert "--select flights/departures --partition '2013-05-05'" in done.output

    def test_a_day_without_a_landing_file_is_refused_by_the_name_of_the_file(self, week: Project) -> None:
        done = week.materialize("flights/departures", partition="2013-05-05")
        assert done.code == 1
        assert f"no landing file {week.settings.landing}/flights/departures/2013-05-05.csv" in done.output

    @pytest.mark.parametrize(
        ("asset", "key"), [("flights/departures", "2015-01-01"), ("flights/delays", "2013-01-01|XXX")]
    )
    def test_a_partition_that_does_not_exist_is_refused_by_its_key(self, week: Project, asset: str, key: str) -> None:
        done = week.materialize(asset, partition=key)
        assert done.code == 1
        assert f"`{key}`" in done.output

    def test_a_truncated_file_is_refused_and_its_day_keeps_its_rows(self, week: Project) -> None:
        file = Path(week.settings.landing) / "flights" / "departures" / "2013-01-03.csv"
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        try:
            done = week.materialize("flights/departures", partition="2013-01-03")
        finally:
            file.write_bytes(whole)
        assert done.code == 1
        assert f"{file} (flights.departures): the file ends in the middle of a line: it is truncated." in done.output
        assert "the current batch is unchanged" in done.output

    def test_a_row_that_does_not_parse_is_refused_by_file_line_and_column(self, week: Project) -> None:
        file = Path(week.settings.landing) / "flights" / "departures" / "2013-01-04.csv"
        whole = file.read_text(encoding="utf-8")
        lines = whole.splitlines(keepends=True)
        lines[7] = "soon" + lines[7][lines[7].index(",") :]
        file.write_text("".join(lines), encoding="utf-8")
        try:
            done = week.materialize("flights/departures", partition="2013-01-04")
        finally:
            file.write_text(whole, encoding="utf-8")
        assert done.code == 1
        assert f"{file} (flights.departures): line 8: column dep_time: 'soon' is not of type INT" in done.output


def test_check_asks_spark_about_a_file_once(week: Project, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / "docs" / "examples" / "bigdataflow", tmp_path / "bigdataflow"))
    assert week.varve("check", str(folder)).told == "3 SQL datasets, no problems."
    # Nothing has changed: no Spark is needed to say so again.
    without = week.having(spark_remote="sc://127.0.0.1:1")
    assert without.varve("check", str(folder)).code == 0
    file = folder / "products_sales.sql"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("SUM(revenue) AS revenue", "WEIGHED(revenue) AS revenue"), encoding="utf-8")
    assert without.varve("check", str(folder), "--no-spark").code == 0
    refused = week.varve("check", str(folder))
    assert refused.code == 1
    assert "bigdataflow/products_sales.sql:15:47: Spark has no function WEIGHED" in refused.told
    assert "WEIGHED" in refused.told.upper()
