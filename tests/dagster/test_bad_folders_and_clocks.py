"""Folders, clocks and numbers of files as nobody wants them: what a look takes and tells, and that it forgets nothing.

Real PostgreSQL, real folders and their rights; what the planner then asks for is compared with the files.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import dagster as dg
import pendulum
import pytest

from varve.catalog.catalog import Catalog
from varve.catalog.planning.facts import CatalogFacts
from varve.catalog.rejected import LeftOut, RejectedArrivals
from varve.cli.problems.rejected import rejected_values
from varve.dagster.assets.datasets import dataset_asset, graph_of
from varve.dagster.automation.arrival_checks import arrival_check
from varve.dagster.automation.arriving import ArrivalLook
from varve.dagster.automation.requesting import acceptable
from varve.model.batch import Input, StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.arrivals.landing_file import RejectionKind
from varve.planning.reconcile import reconcile
from varve.planning.run_requests import landing_source
from varve.sources.landing.landing import Landing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.planning.run_requests import Run
    from varve.services.settings import Settings

GOOD = "n\n1\n"
NOBODY = 65_534


def arriving(dimension: TimeDimension) -> Dataset:
    name = f"t{uuid.uuid4().hex[:8]}.arriving"
    schema = Schema((Column("n", ColumnType.BIGINT),))
    return Dataset(name, Partitioning((dimension,)), schema, StoreKind.LAKE, "", landing=True)


DAY = TimeDimension.of("day", "@daily", "2026-11-01")


class Look:
    """Looks at landing folders, and plans made from what the looks leave in the catalog."""

    def __init__(self, settings: Settings, folder: Path, catalog: Catalog) -> None:
        self.settings = settings.model_copy(update={"landing_root": str(folder), "settle_seconds": 0.0})
        self.catalog = catalog

    def send(self, dataset: Dataset, key: str, content: str = GOOD) -> Path:
        path = Path(Landing(self.settings.landing).folder(dataset)) / f"{key}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, (1_000_000_000, 1_000_000_000))
        return path

    def at(self, *datasets: Dataset, ahead: float = 60.0) -> list[LeftOut]:
        """Make one look, so many seconds from now, when every file has settled; return what could not be looked at."""
        arrival_look = ArrivalLook(self.catalog, self.settings, {}, logging.getLogger("test"))
        now = time.time() + ahead
        with mock.patch("varve.dagster.automation.arriving.time.time", return_value=now):
            arrival_look.at(datasets)
        return arrival_look.left_out

    def arrived(self, dataset: Dataset) -> set[str]:
        return set(self.catalog.arrived_files(dataset.name))

    def runs(self, dataset: Dataset) -> Sequence[Run]:
        @dataset_asset(dataset)
        def asset(context) -> None: ...  # type: ignore[no-untyped-def]

        facts = CatalogFacts(self.catalog.connection)
        return reconcile(graph_of([asset]), facts, now=pendulum.now("UTC").add(minutes=1)).runs

    def asked(self, dataset: Dataset) -> set[str]:
        return {key.path for run in self.runs(dataset) for key in run.partitions}


@pytest.fixture
def look(settings: Settings, catalog: Catalog, tmp_path: Path) -> Look:
    return Look(settings, tmp_path, catalog)


@contextmanager
def as_somebody_without_rights() -> Iterator[None]:
    """Run as the user nobody where the tests run as root, who may list any folder."""
    us = os.geteuid()
    if us == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(us)


@pytest.mark.parametrize("what", ["the folder", "the folder above", "a file in its place"])
def test_a_folder_that_cannot_be_listed_costs_only_itself_and_forgets_nothing(what: str, look: Look) -> None:
    broken, other = arriving(DAY), arriving(DAY)
    file = look.send(broken, "2026-11-20")
    look.send(broken, "misnamed")
    for folder in (file.parents[2], *file.parents[2].parents):
        # Only the owner may read pytest's own folders.
        folder.chmod(folder.stat().st_mode | 0o011)
    assert look.at(broken, other) == []
    before = RejectedArrivals(look.catalog.connection).of(broken.name)
    assert (look.arrived(broken), [arrival.kind for arrival in before.values()]) == (
        {"day=2026-11-20"},
        [RejectionKind.NO_KEY],
    )
    look.send(other, "2026-11-21")
    shut = file.parent if what == "the folder" else file.parent.parent
    beside = shut.with_name(f"{shut.name}-beside")
    if what == "a file in its place":
        file.parent.rename(beside)
        file.parent.write_text("no folder")
    else:
        shut.chmod(0)
    try:
        with as_somebody_without_rights():
            (left_out,) = look.at(broken, other)
    finally:
        if what == "a file in its place":
            file.parent.unlink()
            beside.rename(file.parent)
        else:
            shut.chmod(0o755)
    assert (left_out.dataset, left_out.kind) == (broken.name, "look")
    assert ("a file lies where the folder" if "file" in what else "Permission denied") in left_out.reason
    assert look.arrived(other) == {"day=2026-11-21"}
    # The catalog's arrivals of the dataset stay: no file was removed.
    assert look.arrived(broken) == {"day=2026-11-20"}
    assert RejectedArrivals(look.catalog.connection).of(broken.name) == before
    assert look.asked(broken) == {"day=2026-11-20"}
    assert look.at(broken, other) == []


@pytest.mark.parametrize("before", ["", "2026-11-20"])
def test_a_file_that_may_not_be_read_is_looked_at_each_time_and_holds_up_no_other(before: str, look: Look) -> None:
    dataset = arriving(DAY)
    if before:
        look.send(dataset, before)
        assert look.at(dataset) == []
    file = look.send(dataset, "2026-11-20", f"{GOOD}2\n")
    other = look.send(dataset, "2026-11-21")
    for folder in file.parents:
        folder.chmod(folder.stat().st_mode | 0o055)
    other.chmod(0o644)
    file.chmod(0)
    with as_somebody_without_rights():
        assert look.at(dataset) == []
    (rejected,) = RejectedArrivals(look.catalog.connection).of(dataset.name).values()
    assert rejected.kind is RejectionKind.UNREADABLE
    assert "may not be read" in rejected.reason
    assert "day=2026-11-21" in look.arrived(dataset)
    file.chmod(0o644)
    with as_somebody_without_rights():
        assert look.at(dataset) == []
    assert RejectedArrivals(look.catalog.connection).of(dataset.name) == {}
    assert look.arrived(dataset) == {"day=2026-11-20", "day=2026-11-21"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        # UTF-16 without a mark of byte order is UTF-8 with a NUL in every second place.
        ("n\n1\n".encode("utf-16-le").decode(), "missing n; not declared n\u2400. Nothing was published"),
        ("n,\x1b[31mred\n1,2\n", "not declared \u241b[31mred. Nothing was published"),
        ("x" * 3_000_000 + "\n", "x\u2026 Nothing was published"),
    ],
    ids=["NUL", "a terminal's code", "a line of megabytes"],
)
def test_whatever_a_header_holds_is_told_in_a_short_line_and_holds_up_no_other_file(
    content: str, told: str, look: Look
) -> None:
    dataset = arriving(DAY)
    look.send(dataset, "2026-11-20", content)
    look.send(dataset, "2026-11-21")
    assert look.at(dataset) == []
    (rejected,) = RejectedArrivals(look.catalog.connection).of(dataset.name).values()
    assert rejected.kind is RejectionKind.CONTENT
    assert told in rejected.reason
    assert len(rejected.reason) < 2_000
    assert look.arrived(dataset) == {"day=2026-11-21"}
    assert look.asked(dataset) == {"day=2026-11-21"}


def test_control_characters_in_a_name_are_written_as_digits_and_their_file_is_rejected(look: Look) -> None:
    dataset = arriving(DAY)
    for name in ("2026-11-20\x1b[31m", "2026-11-21\n", "2026-11-22\x9b31mü", "2026-11-23"):
        look.send(dataset, name)
    assert look.at(dataset) == []
    assert look.arrived(dataset) == {"day=2026-11-23"}
    rejected = RejectedArrivals(look.catalog.connection).of(dataset.name)
    assert {Path(uri).stem for uri in rejected} == {"2026-11-20\\x1b[31m", "2026-11-21\\x0a", "2026-11-22\\x9b31mü"}
    assert {arrival.reason for arrival in rejected.values()} == {"its name has control characters; rename it."}


def test_of_many_files_that_are_no_longer_any_only_some_are_logged(
    look: Look, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = arriving(DAY)
    for number in range(25):
        look.send(dataset, f"of_another_pattern_{number}")
    assert look.at(dataset) == []
    assert len(RejectedArrivals(look.catalog.connection).of(dataset.name)) == 25
    told = [record.getMessage() for record in caplog.records if record.name == "test"]
    assert (len(told), told[-1]) == (11, f"{dataset}: 15 more are not taken (no key); varve status lists them")
    caplog.clear()
    # At the next look none of them is new.
    assert look.at(dataset) == []
    assert [record for record in caplog.records if record.name == "test"] == []


@pytest.mark.parametrize("files", [1, 5])
def test_files_that_cannot_be_read_ask_once_for_what_has_arrived_however_many_they_are(
    files: int, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, asked = arriving(DAY), list[str]()
    read = Catalog.arrivals

    def counting(catalog: Catalog, name: str) -> dict[str, str]:
        asked.append(name)
        return read(catalog, name)

    monkeypatch.setattr(Catalog, "arrivals", counting)
    for day in range(files):
        look.send(dataset, f"2026-11-{day + 1:02}", "other\n1\n")
    assert look.at(dataset) == []
    rejected = RejectedArrivals(look.catalog.connection).of(dataset.name).values()
    assert [arrival.kind for arrival in rejected] == [RejectionKind.CONTENT] * files
    assert asked == [dataset.name]


def test_a_file_that_is_deleted_after_it_was_recorded_is_not_asked_for_and_its_batch_stays(look: Look) -> None:
    dataset = arriving(DAY)
    made, unmade = look.send(dataset, "2026-11-20"), look.send(dataset, "2026-11-21")
    look.at(dataset)
    assert look.asked(dataset) == {"day=2026-11-20", "day=2026-11-21"}
    key = dataset.partitioning.from_dagster("2026-11-20")
    build = look.catalog.begin(dataset, [key], run_id="a run", code_version="")
    version = look.catalog.arrivals(dataset.name)[key.path]
    build.reads(key, Input(landing_source(dataset), key.path, version))
    look.catalog.staged(build, [StagedBatch(key, "/nowhere", 1, 1, 1)])
    look.catalog.publish(build)
    look.catalog.release(build)
    made.unlink()
    unmade.unlink()
    look.at(dataset)
    assert look.asked(dataset) == set()
    assert set(look.catalog.current(dataset.name)) == {key.path}
    # The file comes back, first unchanged and then corrected.
    look.send(dataset, "2026-11-20")
    look.send(dataset, "2026-11-21", "n\n2\n")
    look.at(dataset)
    assert look.asked(dataset) == {"day=2026-11-21"}


def test_three_thousand_files_at_once_are_a_few_runs_and_are_looked_into_once(look: Look) -> None:
    dataset = arriving(TimeDimension.of("hour", "@hourly", "2026-07-01"))
    first = pendulum.datetime(2026, 7, 1)
    keys = [f"{first.add(hours=hour):%Y-%m-%dT%H}" for hour in range(3_000)]
    for key in keys:
        look.send(dataset, key)
    deadline = time.monotonic() + 300
    while len(look.arrived(dataset)) < len(keys):
        assert look.at(dataset) == []
        assert time.monotonic() < deadline
    runs = look.runs(dataset)
    assert sorted(len(run.partitions) for run in runs) == [1_000, 1_000, 1_000]
    assert look.asked(dataset) == {f"hour={key}" for key in keys}
    with mock.patch(
        "varve.dagster.automation.arriving.inspect", side_effect=AssertionError("it was looked into before")
    ):
        assert look.at(dataset) == []
    # Another tick requests the same runs, which Dagster recognises by their identity.
    assert {run.identity for run in look.runs(dataset)} == {run.identity for run in runs}


@pytest.fixture
def machine_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("machine_zone", ["Pacific/Kiritimati", "America/Los_Angeles"], indirect=True)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "Pacific/Pago_Pago", "Pacific/Kiritimati"])
def test_today_is_that_of_the_dataset_whatever_the_zone_of_the_machine(
    look: Look, machine_zone: str, zone: str
) -> None:
    assert time.localtime().tm_zone in {"+14", "PST", "PDT"}, machine_zone
    today = pendulum.now(zone).start_of("day")
    dataset = arriving(TimeDimension.of("day", "@daily", "2026-11-01", timezone=zone))
    tomorrow = look.send(dataset, today.add(days=1).to_date_string())
    look.send(dataset, today.to_date_string())
    look.at(dataset, ahead=1.0)
    assert look.arrived(dataset) == {f"day={today.to_date_string()}"}
    (early,) = RejectedArrivals(look.catalog.connection).of(dataset.name).values()
    assert (early.uri, early.kind, early.until) == (str(tomorrow), RejectionKind.EARLY, today.add(days=1).timestamp())
    (run,) = look.runs(dataset)
    with dg.DagsterInstance.ephemeral() as instance:
        assert acceptable(run, instance) == ([run], [])


# New York: the clocks went forward on the eighth of March, and back on the first of November.
@pytest.mark.parametrize(("day", "hours"), [("2026-03-08", 23), ("2026-03-09", 24), ("2026-11-01", 25)])
def test_today_may_have_23_or_25_hours(day: str, hours: int, look: Look) -> None:
    zone = "America/New_York"
    daily = arriving(TimeDimension.of("day", "@daily", "2026-03-01", timezone=zone))
    hourly = arriving(TimeDimension.of("hour", "@hourly", "2026-03-01", timezone=zone))
    midnight = pendulum.parse(day, tz=zone)
    assert isinstance(midnight, pendulum.DateTime)
    look.send(daily, day)
    look.send(daily, midnight.add(days=1).to_date_string())
    # Every text that the clock of a day may show, and both texts of an hour that comes twice.
    texts = [f"{day}T{hour:02}" for hour in range(24)] + [f"{day}T01-0500"]
    for text in texts:
        look.send(hourly, text)
    taken: list[int] = []
    for hour in range(hours + 1):
        # For a clock in March, a file of today is from the future, so it takes two looks.
        for second in (60, 62):
            look.at(daily, hourly, ahead=midnight.timestamp() + 3_600 * hour + second - time.time())
        assert len(look.arrived(daily)) == (2 if hour == hours else 1), "tomorrow begins when today is over"
        taken.append(len(look.arrived(hourly)))
    # Every hour that exists gets one more row, and no other hour does.
    assert taken == [*range(1, hours + 1), hours]
    refused = {Path(arrival.uri).stem for arrival in RejectedArrivals(look.catalog.connection).of(hourly.name).values()}
    assert refused == {23: {f"{day}T02", f"{day}T01-0500"}, 24: {f"{day}T01-0500"}, 25: set()}[hours]


def test_a_clock_that_jumps_by_hours_takes_no_file_twice_and_forgets_no_batch(look: Look) -> None:
    dataset = arriving(DAY)
    today = pendulum.now("UTC").to_date_string()
    look.send(dataset, "2026-11-20")
    look.send(dataset, today)
    look.at(dataset)
    first = {run.identity for run in look.runs(dataset)}
    seen = {path: arrived.stamp for path, arrived in look.catalog.arrived_files(dataset.name).items()}
    for hours in (5, -9, 9, -30, 30, 0):
        look.at(dataset, ahead=60.0 + 3_600.0 * hours)
        assert "day=2026-11-20" in look.arrived(dataset), hours
    assert {path: arrived.stamp for path, arrived in look.catalog.arrived_files(dataset.name).items()} == seen
    # The runs are the same as before, so that Dagster launches none twice.
    assert {run.identity for run in look.runs(dataset)} == first


def test_the_check_of_a_dataset_reads_what_is_refused_of_it_and_not_of_all(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = arriving(DAY), arriving(DAY)
    for dataset in (mine, other):
        look.send(dataset, "misnamed")
    look.at(mine, other)
    monkeypatch.setattr(RejectedArrivals, "_all", mock.Mock(side_effect=AssertionError("those of all datasets")))
    project = mock.Mock(settings=look.settings)
    result = arrival_check(mine, project)()
    assert isinstance(result, dg.AssetCheckResult)
    (uri,) = RejectedArrivals(look.catalog.connection).of(mine.name)
    assert (result.passed, list(result.metadata)) == (False, [uri])
    (told,) = rejected_values(look.catalog.connection, mine.name)
    assert (told["dataset"], told["uri"]) == (mine.name, uri)
