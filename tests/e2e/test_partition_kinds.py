"""Every kind of partition through Dagster's own doors: its commands, its sensors, its daemon and its UI.

The project is tests/e2e/kinds. What can be one process is one: `first` materialises, `second` runs what the sensors and
schedules then ask for.
"""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import dagster as dg
import pendulum
import psycopg
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browsing import opened_page, served
from tests.e2e.kinds import definitions as kinds_of
from tests.e2e.kinds.definitions import NEW_YORK, ODD_KEYS, ORDERS, PARTS, SIGNUPS, TENANT, Position
from tests.e2e.project import HERE, ROOT, url_of, wait_until
from varve.dagster.assets.datasets import graph_of
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.model.partitions.partitioning import dagster_text, set_of
from varve.planning.requested import FULL_REASON_TAG, RANGE_END_TAG, RANGE_START_TAG

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.e2e.project import Project
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey, Value

# Dagster's own tags of a key of two dimensions are of a form that it means to give up.
pytestmark = pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")

MODULE = "tests.e2e.kinds.definitions"
# A whole batch of commands, on a machine that has much else to do.
BATCH_SECONDS = 560
WORKSPACE = "tests/e2e/kinds/workspace.yaml"
GRAPH = graph_of(kinds_of.DATASETS)
DATASETS = {dataset.table: dataset for dataset in GRAPH.datasets.values()}
FIRST, SECOND = dt.date(2013, 1, 1), dt.date(2013, 1, 2)
# Who signed up on the first day, a Tuesday, and on the second.
TUESDAY, WEDNESDAY = ("Tue & co", "Tue|50%"), ("Wed & co", "Wed|50%")
WAITING = ("enough", "nearly", "in_time", "whole")
# A page that has just been opened may take its time on a busy machine.
expect.set_options(timeout=60_000)


def key(table: str, *values: Value) -> PartitionKey:
    return DATASETS[table].partitioning.key(values)


HOURS_OF_THE_CHANGE = [f"2013-11-03T{hour}" for hour in ("00", "01", "01-0500", *(f"{h:02}" for h in range(2, 24)))]
# What `first` materialises, in Dagster's order of each dimension: the first and the last key are its range.
MADE: dict[str, list[PartitionKey]] = {
    "nights": [key("nights", dt.date(2013, 1, day)) for day in (3, 4, 5)],
    "shifts": [key("shifts", shift) for shift in ("2013-01-01T10:35", "2013-01-01T12:05", "2013-01-01T13:35")],
    "hours": [key("hours", hour) for hour in HOURS_OF_THE_CHANGE],
    "odds": [key("odds", odd) for odd in ODD_KEYS],
    "cells": [key("cells", *pair) for pair in product((Position(0, 0), Position(1.5, -2, 1e300)), (3, 1, 20))],
    "stocks": [key("stocks", *pair) for pair in product((FIRST, SECOND), ODD_KEYS)],
    "signups": [key("signups", FIRST)],
    "tenants": [key("tenants", tenant) for tenant in TUESDAY],
    "places": [key("places", Position(1, 0))],
    "orders": [key("orders", FIRST, *pair) for pair in product(("left", "middle", "right"), TUESDAY)],
    "parts": [key("parts", FIRST, part) for part in ("left", "middle")],
    "everything": [key("everything")],
}


def materialize(tables: Sequence[str], first: str | None, last: str | None = None) -> list[str]:
    """A command as a user would type it; without `first` for an asset without partitions."""
    if first is None:
        return ["asset", "materialize", "-m", MODULE, "--select", ",".join(f"kinds/{table}" for table in tables)]
    which = ["--partition", first] if last in (None, first) else ["--partition-range", f"{first}...{last}"]
    return ["asset", "materialize", "-m", MODULE, "--select", ",".join(f"kinds/{table}" for table in tables), *which]


def made(table: str, keys: Sequence[PartitionKey]) -> list[str]:
    spelt = DATASETS[table].partitioning.dagster_key
    return materialize([table], spelt(keys[0]), spelt(keys[-1]))


@dataclass(frozen=True)
class Commands:
    """Commands that ran one after the other: all that they said, and the exit code of each."""

    output: str
    codes: Mapping[str, int]

    @classmethod
    def of(cls, project: Project, commands: Mapping[str, Sequence[str]]) -> Commands:
        done = subprocess.run(
            [sys.executable, "-m", "tests.e2e.kinds.commands", json.dumps(list(commands.values()))],
            cwd=ROOT, env=dict(project.environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=BATCH_SECONDS, check=False,
        )  # fmt: skip
        said = [line for line in done.stdout.splitlines() if line.startswith("ended ")]
        codes = [int(line.removeprefix("ended ")) for line in said]
        assert len(codes) == len(commands), done.stdout[-8_000:]
        return cls(done.stdout, dict(zip(commands, codes, strict=True)))


@pytest.fixture(scope="module")
def kinds(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Databases and a DAGSTER_HOME of its own: names of sets are shared by a whole deployment."""
    return project.with_databases("kinds").with_dagster_home(tmp_path_factory.mktemp("kinds") / "dagster")


@pytest.fixture(scope="module")
def first(kinds: Project) -> Commands:
    """Everything once, what waits for parts while one is missing, and then that part."""
    commands = {table: made(table, keys) for table, keys in MADE.items()}
    # Without the daemon, a tick of the sensor by hand fills the sets.
    filled = {"sets": ["sensor", "preview", "partition_sets", "-m", MODULE]}
    one = {"one cell": materialize(["cells"], "0.0%2C0.0%2C0.0|3"), "waiting": materialize(WAITING, str(FIRST))}
    last = {"last part": made("parts", [key("parts", FIRST, "right")])}
    return Commands.of(kinds, {**filled, **commands, **one, **last})


@pytest.fixture(scope="module")
def looked(kinds: Project, first: Commands) -> list[dg.RunRequest]:
    """What a tick of the downstream sensor asks for after all that."""
    return ticked(kinds, "downstream")


@pytest.fixture(scope="module")
def second(kinds: Project, looked: list[dg.RunRequest]) -> Commands:
    """What the sensor and a schedule ask for is run, and a run is killed between a set and its folds."""
    (scheduled,) = scheduled_at(kinds, "kinds_hours_schedule", pendulum.datetime(2013, 11, 3, tz=NEW_YORK))
    welcome = next(request for request in looked if table_of(request) == "welcomes")
    ran = Commands.of(
        kinds,
        {
            "scheduled": materialize(["hours"], scheduled.tags[RANGE_START_TAG], scheduled.tags[RANGE_END_TAG]),
            # One of the two, by hand.
            "welcome": materialize(["welcomes"], welcome.tags[RANGE_START_TAG]),
            "waiting": materialize(WAITING, str(FIRST)),
            "sensor": ["sensor", "start", "partition_sets", "-w", WORKSPACE],
        },
    )
    killed = kinds.run(
        HERE / "crash_run.py", "self", "before", "varve.dagster.partitions.dynamic_sets:PartitionSets.follow",
        *made("signups", [key("signups", SECOND)]),
    )  # fmt: skip
    assert killed.code == -signal.SIGKILL, killed.output
    return ran


def evaluated(project: Project, evaluate: Any) -> Any:
    """Call with Dagster's instance, in this process with the project's environment."""
    with project.dagster() as instance:
        return evaluate(instance)


def ticked(project: Project, name: str) -> list[dg.RunRequest]:
    """The runs that one tick of a sensor asks for, as Dagster has resolved them."""

    def evaluate(instance: dg.DagsterInstance) -> list[dg.RunRequest]:
        context = dg.build_sensor_context(
            instance=instance, instance_ref=instance.get_ref(), definitions=kinds_of.defs, sensor_name=name
        )
        result = kinds_of.defs.get_repository_def().get_sensor_def(name).evaluate_tick(context)
        return list(result.run_requests or ())

    found: list[dg.RunRequest] = evaluated(project, evaluate)
    return found


def scheduled_at(project: Project, name: str, tick: pendulum.DateTime) -> list[dg.RunRequest]:
    """The runs that a schedule asks for at a tick."""

    def evaluate(instance: dg.DagsterInstance) -> list[dg.RunRequest]:
        repository = kinds_of.defs.get_repository_def()
        context = dg.build_schedule_context(instance=instance, scheduled_execution_time=tick, repository_def=repository)
        return list(repository.get_schedule_def(name).evaluate_tick(context).run_requests or ())

    found: list[dg.RunRequest] = evaluated(project, evaluate)
    return found


def table_of(request: dg.RunRequest) -> str:
    assert request.asset_selection is not None
    (asset,) = request.asset_selection
    return asset.path[-1]


def materializations(project: Project, dataset: Dataset, partition: PartitionKey) -> list[Mapping[str, Any]]:
    """The metadata of all materialisations of a partition, the newest first."""
    with project.dagster() as instance:
        records = instance.fetch_materializations(
            dg.AssetRecordsFilter(
                asset_key=dg.AssetKey([dataset.db, dataset.table]),
                asset_partitions=[dataset.partitioning.to_dagster(partition)],
            ),
            limit=10,
        ).records
    found = [record.asset_materialization for record in records]
    return [{name: value.value for name, value in each.metadata.items()} for each in found if each is not None]


def texts(project: Project, table: str, partition: PartitionKey) -> list[str]:
    """What a body said of its partition."""
    batch = project.current(f"kinds.{table}")[partition.path]
    return list(pq.read_table(batch.location, columns=["text"], partitioning=None)["text"].to_pylist())


class TestCommands:
    """`dagster asset materialize` of each kind."""

    @pytest.mark.parametrize("table", MADE)
    def test_every_partition_lies_in_the_catalog_under_its_full_key_and_shows_in_dagster(
        self, kinds: Project, first: Commands, table: str
    ) -> None:
        assert first.codes[table] == 0, first.output[-20_000:]
        partitioning, current = DATASETS[table].partitioning, kinds.current(f"kinds.{table}")
        assert set(MADE[table]) <= {partitioning.from_path(path) for path in current}
        assert {current[made.path].rows for made in MADE[table]} == {1}
        with kinds.dagster() as instance:
            shown = instance.get_materialized_partitions(dg.AssetKey(["kinds", table]))
            assert instance.get_latest_materialization_event(dg.AssetKey(["kinds", table])) is not None
        assert {dagster_key for made in MADE[table] if (dagster_key := partitioning.dagster_key(made))} <= shown

    @pytest.mark.parametrize("table", ["odds", "hours", "cells", "tenants", "stocks"])
    def test_a_body_has_each_partition_as_it_was_meant(self, kinds: Project, first: Commands, table: str) -> None:
        assert first.codes[table] == 0
        assert [texts(kinds, table, made) for made in MADE[table]] == [[str(made)] for made in MADE[table]]

    def test_one_rich_key_is_materialised_by_itself(self, kinds: Project, first: Commands) -> None:
        assert first.codes["one cell"] == 0, first.output[-20_000:]
        assert len(materializations(kinds, DATASETS["cells"], MADE["cells"][0])) == 2

    def test_a_body_knows_its_window_and_its_past(self, kinds: Project, first: Commands) -> None:
        assert first.codes["nights"] == 0
        window = "2013-01-03T22:30:00+01:00/2013-01-06T22:30:00+01:00"
        assert [texts(kinds, "nights", made) for made in MADE["nights"]] == [
            [f"{window} after 2013-01-02, 2013-01-01"]
        ] * 3

    def test_windows_that_cron_cannot_say_are_there_after_a_tick_of_the_sensor_by_hand(
        self, kinds: Project, first: Commands
    ) -> None:
        assert first.codes["sets"] == 0
        windows = kinds_of.SHIFT.keys()
        with kinds.dagster() as instance:
            name = shown_set(kinds_of.SHIFTS)
            assert instance.get_dynamic_partitions(name) == list(windows)


def shown_set(dataset: Dataset) -> str:
    """The name of the set that Dagster has the dataset's windows in."""
    from varve.dagster.partitions.definitions import partitions_def

    found = partitions_def(dataset.partitioning)
    assert isinstance(found, dg.DynamicPartitionsDefinition)
    assert found.name is not None
    return found.name


def orders_set() -> str:
    name = set_of(ORDERS.partitioning.folds["part~tenant"])
    assert name is not None
    return name


class TestDynamicSets:
    """Keys that an asset adds while it runs."""

    def test_what_reads_the_asset_is_asked_for_at_the_next_tick_all_new_keys_in_one_run(
        self, first: Commands, looked: list[dg.RunRequest]
    ) -> None:
        assert first.codes["signups"] == 0
        spelt = DATASETS["welcomes"].partitioning.to_dagster
        (request,) = [request for request in looked if table_of(request) == "welcomes"]
        assert [request.tags[RANGE_START_TAG], request.tags[RANGE_END_TAG]] == [
            spelt(key("welcomes", FIRST, tenant)) for tenant in TUESDAY
        ]

    def test_what_was_asked_for_runs(self, kinds: Project, second: Commands) -> None:
        assert second.codes["welcome"] == 0, second.output[-20_000:]
        assert [batch.rows for batch in kinds.current("kinds.welcomes").values()] == [1]

    @pytest.mark.usefixtures("second")
    def test_a_run_killed_between_a_set_and_its_folds_leaves_the_set_ahead(self, kinds: Project) -> None:
        with kinds.dagster() as instance:
            assert set(instance.get_dynamic_partitions("varve/kinds.tenants")) == {
                dagster_text(tenant) for tenant in TUESDAY + WEDNESDAY
            }
        assert f"day={SECOND}" not in kinds.current(SIGNUPS.name)


class TestWaiting:
    """Three of four readers do with two parts of three, and are made again when the third is there."""

    def test_each_policy_publishes_what_is_there_and_records_what_was_missing(
        self, kinds: Project, first: Commands
    ) -> None:
        # One of the four was refused.
        assert first.codes["waiting"] == 1
        for table in ("enough", "nearly", "in_time"):
            without = materializations(kinds, DATASETS[table], key(table, FIRST))[-1]
            assert without["varve/missing"] == [f"kinds.parts day={FIRST}/part=right"]
            assert without["varve/inputs"] == 2
            assert without["dagster/partition_row_count"] == 2

    def test_without_a_policy_the_missing_one_is_named(self, first: Commands) -> None:
        assert (
            f"kinds.whole day={FIRST} reads 3 partitions of kinds.parts, of which 1 have no batch yet: "
            f"day={FIRST}/part=right"
        ) in first.output

    def test_when_the_missing_one_arrives_all_four_are_asked_for(
        self, first: Commands, looked: list[dg.RunRequest]
    ) -> None:
        assert first.codes["last part"] == 0, first.output[-20_000:]
        asked = {table_of(request): request for request in looked if table_of(request) in WAITING}
        assert {table: request.tags[FULL_REASON_TAG].partition(": ")[2] for table, request in asked.items()} == {
            **dict.fromkeys(("enough", "nearly", "in_time"), f"1 of 3 inputs new: parts {FIRST}|right"),
            "whole": "first batch",
        }
        assert {request.partition_key for request in asked.values()} == {str(FIRST)}

    def test_they_are_made_again_from_all_parts(self, kinds: Project, second: Commands) -> None:
        assert second.codes["waiting"] == 0, second.output[-20_000:]
        for table in WAITING:
            newest = materializations(kinds, DATASETS[table], key(table, FIRST))[0]
            assert "varve/missing" not in newest
            assert newest["dagster/partition_row_count"] == 3
        assert not [request for request in ticked(kinds, "downstream") if table_of(request) in WAITING]


class TestSchedules:
    """Schedules that are not tied to partitions; tests/dagster/test_schedules.py has the rest."""

    def test_a_daily_schedule_runs_the_hours_of_a_day_in_one_run(self, kinds: Project, second: Commands) -> None:
        assert second.codes["scheduled"] == 0, second.output[-20_000:]
        hours = [batch for path, batch in kinds.current("kinds.hours").items() if path.startswith("hour=2013-11-02")]
        assert len(hours) == 24
        assert len({batch.run_id for batch in hours}) == 1

    def test_what_was_run_by_hand_is_not_scheduled(self, kinds: Project, first: Commands) -> None:
        assert first.codes["hours"] == 0
        # The 25 hours of the day on which the clock went back.
        assert scheduled_at(kinds, "kinds_hours_schedule", pendulum.datetime(2013, 11, 4, tz=NEW_YORK)) == []


@pytest.fixture(scope="module")
def ui(kinds: Project, second: Commands, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the web server; the daemon runs beside it, with the sensor of the sets switched on."""
    assert second.codes["sensor"] == 0, second.output[-20_000:]
    folder = tmp_path_factory.mktemp("logs")
    with served(kinds, folder, WORKSPACE) as address:
        wait_until(
            lambda: _fold_follows(kinds),
            seconds=180, what="the daemon had repaired the fold", log=folder / "daemon.log",
        )  # fmt: skip
        yield address


@pytest.fixture
def page() -> Iterator[Page]:
    with opened_page() as found:
        yield found


@pytest.mark.ui
class TestUI:
    """The webserver and the daemon, on the dataset of three dimensions."""

    CHOSEN = (("left", TUESDAY[0]), ("right", WEDNESDAY[1]))
    DAYS = (dt.date(2013, 1, 5), dt.date(2013, 1, 6))

    @pytest.mark.slow
    def test_a_backfill_over_three_dimensions_finishes_with_every_partition_under_its_full_key(
        self, kinds: Project, ui: str, page: Page, tmp_path: Path
    ) -> None:
        before = kinds.current(ORDERS.name)
        page.goto(f"{ui}/assets/kinds/orders?view=partitions")
        page.locator("button", has_text="Materialize").first.click()
        dialog = page.get_by_role("dialog").filter(has_text="Launch")
        box = dialog.get_by_role("textbox").first
        box.fill(f"[{self.DAYS[0]}...{self.DAYS[1]}]")
        box.press("Enter")
        dialog.get_by_text("Select a partition or create one").click()
        for pair in self.CHOSEN:
            # The page behind the dialog lists them too.
            page.get_by_text("~".join(map(dagster_text, pair)), exact=True).filter(visible=True).last.click()
        expect(dialog.get_by_text("4 partitions")).to_be_visible()
        page.screenshot(path=tmp_path / "chosen.png", full_page=True)
        page.keyboard.press("Escape")
        launch = dialog.get_by_role("button", name="Launch backfill")
        expect(launch).to_be_enabled()
        launch.click()
        expect(dialog).to_be_hidden()

        wait_until(lambda: _backfills(kinds) == ["COMPLETED_SUCCESS"], seconds=300, what="the backfill had succeeded")
        after = kinds.current(ORDERS.name)
        assert {ORDERS.partitioning.from_path(path) for path in after.keys() - before.keys()} == {
            key("orders", day, *pair) for day in self.DAYS for pair in self.CHOSEN
        }
        with psycopg.connect(url_of(kinds)) as connection:
            seen = connection.execute("select day, part, tenant from kinds.orders where day > '2013-01-04'").fetchall()
        assert sorted(seen) == sorted((day, *pair) for day in self.DAYS for pair in self.CHOSEN)
        page.goto(f"{ui}/assets/kinds/orders?view=partitions")
        expect(page.get_by_text(f"Materialized ({len(after)})")).to_be_visible()
        page.screenshot(path=tmp_path / "orders.png", full_page=True)

    def test_an_asset_without_partitions_is_materialised_by_one_click(
        self, kinds: Project, ui: str, page: Page, tmp_path: Path
    ) -> None:
        (before,) = kinds.current("kinds.everything").values()
        page.goto(f"{ui}/assets/kinds/everything")
        page.locator("button", has_text="Materialize").first.click()

        def is_made_again() -> bool:
            (batch,) = kinds.current("kinds.everything").values()
            return batch.batch_id > before.batch_id

        wait_until(is_made_again, seconds=300, what="the asset without partitions was made again")
        page.screenshot(path=tmp_path / "everything.png", full_page=True)
        with psycopg.connect(url_of(kinds)) as connection:
            assert connection.execute("select * from kinds.everything").fetchall() == [("all",)]

    def test_the_ui_shows_the_partitions_of_other_kinds(self, kinds: Project, ui: str, page: Page) -> None:
        for table in ("shifts", "hours", "odds", "cells", "places"):
            page.goto(f"{ui}/assets/kinds/{table}?view=partitions")
            count = len(kinds.current(f"kinds.{table}"))
            expect(page.get_by_text(f"Materialized ({count})")).to_be_visible()

    @pytest.mark.usefixtures("ui")
    def test_a_key_that_is_removed_is_gone_from_the_set_and_its_folds_and_not_asked_for(self, kinds: Project) -> None:
        gone = TUESDAY[1]
        assert any(gone in str(request.run_key) for request in ticked(kinds, "downstream"))
        evaluated(
            kinds,
            lambda instance: PartitionSets(instance, [ORDERS.partitioning, PARTS.partitioning]).remove(TENANT, [gone]),
        )
        with kinds.dagster() as instance:
            assert dagster_text(gone) not in instance.get_dynamic_partitions("varve/kinds.tenants")
            assert not [text for text in instance.get_dynamic_partitions(orders_set()) if text.endswith("Tue%7C50%25")]
        assert not [request for request in ticked(kinds, "downstream") if gone in str(request.run_key)]


def _fold_follows(project: Project) -> bool:
    with project.dagster() as instance:
        return "right~Wed%7C50%25" in instance.get_dynamic_partitions(orders_set())


def _backfills(project: Project) -> list[str]:
    with project.dagster() as instance:
        return [found.status.value for found in instance.get_backfills()]
