"""Schedules whose ticks need not match the windows: what each tick requests, evaluated by Dagster itself."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import dagster as dg
import pendulum
import pytest

from tests.support.project import ROOT
from varve.dagster.assets.datasets import dataset_asset
from varve.dagster.automation.schedules import keys_at, partition_schedule
from varve.dagster.automation.sensors import REASON_TAG
from varve.dagster.definitions import build_defs
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.model.batch import StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.calendar import Every
from varve.model.partitions.dimension import Dimension, DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning, time_set
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.requested import AGAIN_TAG, RANGE_END_TAG, RANGE_START_TAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from varve.catalog.catalog import Catalog
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings

NEW_YORK = "America/New_York"
HOUR = TimeDimension.of("hour", "@hourly", "2013-01-01", "2014-01-01", timezone=NEW_YORK)
DAY = TimeDimension.of("day", "@daily", "2013-01-01", "2014-01-01", timezone=NEW_YORK)

# Dagster warns that the form of its own tags for keys of two dimensions is deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")


def dataset(*dimensions: Dimension) -> Dataset:
    """Return a dataset in a database of its own, for one test."""
    columns = Schema((Column("text", ColumnType.STRING, "anything"),))
    return Dataset(f"t{uuid.uuid4().hex[:8]}.rows", Partitioning(dimensions), columns, StoreKind.LAKE, "Rows.")


@pytest.fixture(scope="module")
def instance(settings: Settings) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance whose storage is the suite's PostgreSQL."""
    with dg.DagsterInstance.from_config(str(ROOT)) as configured:
        yield configured


@dataclass(frozen=True)
class Ticks:
    """Evaluates schedules over one catalog and one Dagster instance."""

    instance: dg.DagsterInstance

    def at(
        self, dataset: Dataset, cron: str, tick: pendulum.DateTime, *, timezone: str = NEW_YORK
    ) -> tuple[list[dg.RunRequest], str | None]:
        """Evaluate one tick as Dagster does: return the requested runs, and the reason where there are none."""

        @dataset_asset(dataset)
        def rows() -> None: ...

        schedule = partition_schedule(dataset, cron, timezone=timezone)
        definitions = dg.Definitions.merge(build_defs([rows]), dg.Definitions(schedules=[schedule]))
        context = dg.build_schedule_context(
            instance=self.instance,
            scheduled_execution_time=tick,
            repository_def=definitions.get_repository_def(),
        )
        tick_result = schedule.evaluate_tick(context)
        return list(tick_result.run_requests or ()), tick_result.skip_message


@pytest.fixture
def ticks(instance: dg.DagsterInstance) -> Ticks:
    return Ticks(instance)


def publish(catalog: Catalog, dataset: Dataset, keys: Iterable[PartitionKey]) -> None:
    """Enter in the catalog what a run by hand leaves there, without the data."""
    listed = list(keys)
    build = catalog.begin(dataset, listed, run_id=str(uuid.uuid4()), code_version="")
    catalog.staged(build, [StagedBatch(key, "/nowhere", 1, 1, 1) for key in listed])
    catalog.publish(build)
    catalog.release(build)


def ends_of(request: dg.RunRequest) -> tuple[str, str]:
    """Return the first and the last partition that are requested."""
    if request.partition_key is not None:
        return request.partition_key, request.partition_key
    return request.tags[RANGE_START_TAG], request.tags[RANGE_END_TAG]


def midnight(month: int, day: int) -> pendulum.DateTime:
    return pendulum.datetime(2013, month, day, tz=NEW_YORK)


@pytest.mark.parametrize(
    ("month", "day", "hours"), [(1, 5, 24), (3, 10, 23), (11, 3, 25)], ids=["24 hours", "23 hours", "25 hours"]
)
def test_a_daily_schedule_over_hours_asks_for_the_hours_of_the_day_in_one_run(
    ticks: Ticks, month: int, day: int, hours: int
) -> None:
    hourly = dataset(HOUR)
    ((request,), _) = ticks.at(hourly, "0 0 * * *", midnight(month, day + 1))
    first, last = ends_of(request)
    assert (first, last) == (f"2013-{month:02}-{day:02}T00", f"2013-{month:02}-{day:02}T23")
    span = HOUR.window(last).end.timestamp() - HOUR.window(first).start.timestamp()
    assert span == hours * 3_600
    assert request.tags[REASON_TAG] == f"{first}...23 ({hours}): scheduled"
    assert request.asset_selection == [dg.AssetKey(hourly.name.split("."))]


def test_an_hourly_schedule_over_days_asks_only_when_the_day_is_complete(ticks: Ticks) -> None:
    daily = dataset(DAY)
    # The 23 ticks of the day on which the clock goes forward, the last one at the midnight that ends it.
    moments = [midnight(3, 10).add(hours=hours) for hours in range(1, 24)]
    requested = [ticks.at(daily, "@hourly", moment) for moment in moments]
    assert [requests for requests, _ in requested[:-1]] == [[]] * 22
    assert requested[0][1] == f"No window of {daily} is complete that was not at the tick before."
    assert [ends_of(request) for request in requested[-1][0]] == [("2013-03-10", "2013-03-10")]
    assert moments[-1] == midnight(3, 11)


def test_what_has_a_batch_already_is_not_asked_for_again(ticks: Ticks, catalog: Catalog) -> None:
    hourly = dataset(HOUR)
    keys = {hour: hourly.partitioning.key([hour]) for hour in HOUR.keys()}  # noqa: SIM118 - a dimension is no dict
    publish(catalog, hourly, [keys["2013-01-05T07"], keys["2013-01-05T08"]])
    requests, _ = ticks.at(hourly, "0 0 * * *", midnight(1, 6))
    assert [ends_of(request) for request in requests] == [
        ("2013-01-05T00", "2013-01-05T06"), ("2013-01-05T09", "2013-01-05T23"),
    ]  # fmt: skip
    publish(catalog, hourly, [key for hour, key in keys.items() if str(hour).startswith("2013-01-05")])
    assert ticks.at(hourly, "0 0 * * *", midnight(1, 6)) == (
        [], f"All 24 partitions of {hourly} that this tick completes have batches already.",
    )  # fmt: skip


def test_two_ticks_ask_for_neighbouring_windows_once_each(ticks: Ticks) -> None:
    hourly = dataset(HOUR)
    requested = [ticks.at(hourly, "0 */6 * * *", midnight(1, 5).add(hours=hours))[0] for hours in (6, 12)]
    assert [[ends_of(request) for request in requests] for requests in requested] == [
        [("2013-01-05T00", "2013-01-05T05")], [("2013-01-05T06", "2013-01-05T11")],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "cron", "switch", "offset"),
    [
        ("Europe/Berlin", "0 2 * * *", "2026-10-25", "+01:00"),
        (NEW_YORK, "0 1 * * *", "2026-11-01", "-05:00"),
    ],
)
def test_a_tick_at_a_time_that_the_clock_shows_twice_completes_the_day_before_it(
    zone: str, cron: str, switch: str, offset: str
) -> None:
    daily = dataset(TimeDimension.of("day", "@daily", "2026-01-01", "2027-01-01", timezone=zone))
    # Dagster ticks when the clock shows the time for the second time.
    tick = pendulum.parse(f"{switch}T{cron.split()[1]:>02}:00{offset}")
    assert isinstance(tick, pendulum.DateTime)
    days = [keys_at(daily, cron, zone, moment) for moment in (tick, tick.add(days=1))]
    yesterday = pendulum.parse(switch).subtract(days=1).to_date_string()  # type: ignore[union-attr]
    assert [[key.path for key in keys] for keys in days] == [[f"day={yesterday}"], [f"day={switch}"]]


def test_a_schedule_in_another_zone_asks_for_what_ended_between_its_own_ticks(ticks: Ticks) -> None:
    daily = dataset(DAY)
    requests, _ = ticks.at(daily, "0 9 * * *", pendulum.datetime(2013, 1, 6, 9, tz="Asia/Tokyo"), timezone="Asia/Tokyo")
    # 9:00 in Tokyo is 19:00 of the day before in New York: the day that ended since is that of the 4th.
    assert [ends_of(request) for request in requests] == [("2013-01-04", "2013-01-04")]


def test_a_product_is_asked_for_whole(ticks: Ticks) -> None:
    origin = StaticDimension("origin", ("EWR", "JFK", "LGA"))
    requests, _ = ticks.at(dataset(DAY, origin), "0 0 * * *", midnight(1, 6))
    assert [ends_of(request) for request in requests] == [("2013-01-05|EWR", "2013-01-05|LGA")]


def test_a_dynamic_dimension_is_asked_for_with_the_keys_that_its_set_has(
    ticks: Ticks, instance: dg.DagsterInstance
) -> None:
    tenant = DynamicDimension("tenant", f"tenants_{uuid.uuid4().hex[:8]}")
    daily = dataset(DAY, tenant)
    assert ticks.at(daily, "0 0 * * *", midnight(1, 6))[0] == []
    PartitionSets(instance, [daily.partitioning]).add(tenant, ["a|b", "c"])
    ((request,), _) = ticks.at(daily, "0 0 * * *", midnight(1, 6))
    assert ends_of(request) == ("2013-01-05|a%7Cb", "2013-01-05|c")
    # Dagster takes several runs of one tick only where each has a key.
    assert request.run_key


def test_windows_that_dagster_has_as_a_set_are_in_it_before_they_are_asked_for(
    ticks: Ticks, instance: dg.DagsterInstance
) -> None:
    start = pendulum.datetime(2013, 1, 1, tz=NEW_YORK)
    span = TimeDimension("span", Every(dt.timedelta(minutes=90), start), start, start.add(days=3))
    spanned = dataset(span)
    ((request,), _) = ticks.at(spanned, "0 0 * * *", midnight(1, 2))
    assert ends_of(request) == ("2013-01-01T00:00", "2013-01-01T22:30")
    there = instance.get_dynamic_partitions(time_set(span))
    assert (there[0], there[15], len(there)) == ("2013-01-01T00:00", "2013-01-01T22:30", 48)


def test_a_tick_before_the_first_window_asks_for_nothing(ticks: Ticks) -> None:
    assert ticks.at(dataset(DAY), "0 0 * * *", midnight(1, 1))[0] == []


def test_without_the_catalog_a_tick_says_so_and_asks_for_nothing(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARVE_POSTGRES_URL", "postgresql://nobody@127.0.0.1:1/nowhere")
    requests, reason = ticks.at(dataset(DAY), "0 0 * * *", midnight(1, 6))
    assert requests == []
    assert "PostgreSQL (VARVE_POSTGRES_URL) cannot be reached" in str(reason)


def test_in_an_environment_a_tick_asks_for_nothing(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    daily = dataset(DAY)
    monkeypatch.setenv("VARVE_ENVIRONMENT", "alice")
    requests, reason = ticks.at(daily, "0 0 * * *", midnight(1, 6))
    assert (requests, str(reason).partition(":")[0]) == ([], "Nothing is scheduled in the environment alice")
    monkeypatch.delenv("VARVE_ENVIRONMENT")
    assert [ends_of(request) for request in ticks.at(daily, "0 0 * * *", midnight(1, 6))[0]] == [("2013-01-05",) * 2]


def test_a_schedule_over_a_sequence_asks_for_each_member_at_each_tick(ticks: Ticks, catalog: Catalog) -> None:
    houses = dataset(StaticDimension("dwh", ("marketing", "engineering")))
    asked = [ticks.at(houses, "0 0 * * *", midnight(1, day)) for day in (5, 6)]
    assert [[ends_of(request) for request in requests] for requests, _ in asked] == [[("marketing", "engineering")]] * 2
    # Dagster starts both, as their run keys differ; and the runs compute, whatever was made from the same inputs.
    assert asked[0][0][0].run_key != asked[1][0][0].run_key
    assert AGAIN_TAG not in asked[0][0][0].tags
    # A batch of now is newer than these ticks: what was begun since a tick is not asked for again at it.
    publish(catalog, houses, [houses.partitioning.key(["marketing"])])
    assert [ends_of(request) for request in ticks.at(houses, "0 0 * * *", midnight(1, 6))[0]] == [
        ("engineering", "engineering")
    ]
    later = pendulum.now(NEW_YORK).add(days=2).start_of("day")
    ((request,), _) = ticks.at(houses, "0 0 * * *", later)
    assert ends_of(request) == ("marketing", "engineering")


def test_a_schedule_over_a_set_that_grows_asks_for_each_key_there_is(ticks: Ticks) -> None:
    customer = DynamicDimension("customer", f"c{uuid.uuid4().hex[:8]}")
    models = dataset(customer)
    assert ticks.at(models, "0 0 * * *", midnight(1, 5)) == ([], f"{models} has no partition yet.")
    PartitionSets(ticks.instance, [models.partitioning]).add(customer, ["ann", "bob"])
    assert [ends_of(request) for request in ticks.at(models, "0 0 * * *", midnight(1, 6))[0]] == [("ann", "bob")]


def test_what_has_no_partitions_or_only_arrives_is_refused_by_name() -> None:
    without = dataset()
    with pytest.raises(VarveError, match=f"dataset {without}: a schedule of partitions needs some, and it has none"):
        partition_schedule(without, "@daily")
    landing = replace(dataset(DAY), landing=True)
    with pytest.raises(VarveError, match=f"dataset {landing}: a schedule computes partitions, and those of it arrive"):
        partition_schedule(landing, "@daily")


@pytest.mark.parametrize(("cron", "timezone"), [("61 * * * *", "UTC"), ("never", "UTC"), ("@daily", "Mars/Olympus")])
def test_a_cron_or_zone_that_is_none_is_refused_by_the_name_of_the_dataset(cron: str, timezone: str) -> None:
    daily = dataset(DAY)
    with pytest.raises(VarveError, match=f"dataset {daily}: its schedule: "):
        partition_schedule(daily, cron, timezone=timezone)
