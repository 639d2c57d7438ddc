"""Alerts with the real catalog, the real sensors and a webhook that listens: each begins and ends once, for everybody.

Only the Spark job of a run is left out: what it would publish goes into the catalog as the run would have it.
"""

from __future__ import annotations

import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import dagster as dg
import pendulum
import psycopg
import pytest
from typer.testing import CliRunner

from tests.support.project import PROJECT, commands_on
from tests.support.webhook import listening_webhook
from varve.catalog.catalog import Catalog
from varve.catalog.history.alerts.alerts import Alerts
from varve.catalog.history.alerts.messages import Messages
from varve.cdc.capture.event_log import EventLog
from varve.cdc.capture.positions import Positions
from varve.cdc.captured_table import CapturedTable, ChangeFiles, ChangeFormat
from varve.cdc.lag import capture_facts
from varve.cli.app import app
from varve.dagster.assets.asset_definitions import freshness_policy
from varve.dagster.assets.datasets import dataset_asset, graph_of
from varve.dagster.automation.alerting import evaluate
from varve.dagster.definitions import build_defs
from varve.model.batch import Input, StagedBatch
from varve.model.broken_dataset import BrokenDataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import Policy
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.operations.conditions import AlertIdentity, AlertKind, Condition, DiskFacts
from varve.planning.requested import asked_partitions
from varve.planning.run_requests import landing_source
from varve.planning.tick import Tick
from varve.services.postgres import connect
from varve.services.settings import Settings
from varve.sources.landing.inspection import inspect
from varve.sources.landing.landing import Landing
from varve.stores.folders.layout import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.webhook import Webhook

TWO_HOURS = Policy(fresh_within=pendulum.duration(hours=2).as_timedelta())
N = Schema((Column("n", ColumnType.BIGINT),))
DAY = TimeDimension.of("day", "@daily", "2026-11-01")
ORDERS = Dataset("partner.orders", Partitioning((DAY,)), N, StoreKind.LAKE, "", landing=True, policy=TWO_HOURS)
WHOLE = replace(ORDERS, name="partner.whole", partitioning=Partitioning(), landing=False)
THIRD = AlertIdentity(AlertKind.NOT_FRESH, "partner.orders", "day=2026-11-03")


@dataset_asset(ORDERS)
def orders(context) -> None: ...  # type: ignore[no-untyped-def]


@dataset_asset(WHOLE)
def whole(context) -> None: ...  # type: ignore[no-untyped-def]


GRAPH = graph_of([orders])


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with listening_webhook() as hook:
        yield hook


@dataclass
class World:
    """A landing folder, a catalog of its own, Dagster and a clock."""

    instance: dg.DagsterInstance
    now: pendulum.DateTime
    cursor: str | None = None
    # The expectations that rows of runs break.
    broken: list[str] = field(default_factory=list)
    defs: dg.Definitions = field(default_factory=lambda: build_defs([orders]))

    @property
    def settings(self) -> Settings:
        return PROJECT.settings

    @contextlib.contextmanager
    def clock(self) -> Iterator[None]:
        """Let every clock that Varve and Dagster read show the world's time."""
        now = self.now
        with (
            mock.patch("dagster._time._mockable_get_current_datetime", return_value=now.in_timezone("UTC")),
            mock.patch("dagster._time._mockable_get_current_timestamp", return_value=now.timestamp()),
            mock.patch("pendulum.now", side_effect=lambda tz="UTC": now.in_timezone(tz)),
            mock.patch("varve.dagster.automation.arriving.time.time", return_value=now.timestamp()),
        ):
            yield

    def send(self, day: str, content: str) -> None:
        """The partner sends the file of a day."""
        folder = Path(Landing(self.settings.landing).folder(ORDERS))
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f".{day}"
        beside.write_text(content, encoding="utf-8")
        os.utime(beside, (self.now.timestamp() - 60,) * 2)
        beside.replace(folder / f"{day}.csv")

    def tick(self, at: str | None = None) -> str:
        """The sensors look, at another moment; returns what the sensor of the alerts says."""
        moment = pendulum.parse(at) if at else self.now.add(seconds=30)
        assert isinstance(moment, pendulum.DateTime)
        # A file that seems to come from the future is taken when a later look finds it unchanged.
        for seconds in (3, 2, 1):
            self.now = moment.subtract(seconds=seconds)
            with self.clock():
                for request in self._sensor("arrivals").run_requests or ():
                    self._publish(request)
        self.now = moment
        with self.clock():
            return str(self._sensor("alerts").skip_message)

    def _sensor(self, name: str) -> Any:
        repository = self.defs.get_repository_def()
        cursor = self.cursor if name == "arrivals" else None
        context = dg.build_sensor_context(
            instance=self.instance, repository_def=repository, cursor=cursor, sensor_name=name
        )
        result = repository.get_sensor_def(name).evaluate_tick(context)
        if name == "arrivals":
            self.cursor = result.cursor
        assert "Nothing was looked at" not in str(result.skip_message)
        return result

    def _publish(self, request: dg.RunRequest) -> None:
        keys = asked_partitions(ORDERS, request.tags)
        with self.catalog() as catalog:
            build = catalog.begin(ORDERS, keys, run_id=request.run_key or "run", code_version="")
            for key in keys:
                inspected = inspect(ORDERS, catalog.arrived_files(ORDERS.name)[key.path].uri)
                assert inspected is not None
                build.inputs[key] = {Input(landing_source(ORDERS), key.path, inspected.fingerprint)}
            if self.broken:
                catalog.fail(build, "1 of 1 rows break it.", broken=self.broken)
                catalog.release(build)
                return
            catalog.staged(build, [StagedBatch(key, "/nowhere", 1, 1, 1) for key in keys])
            catalog.publish(build)
            catalog.projected(ORDERS.name, catalog.lagging(ORDERS.name).values())
            catalog.release(build)

    @contextlib.contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with connect(self.settings, application="varve test") as connection:
            Catalog(connection).ensure_schema()
            yield Catalog(connection)

    def open_alerts(self) -> set[tuple[str, str]]:
        with self.catalog() as catalog:
            return {
                (alert.identity.kind.value, alert.identity.subject.rsplit("/", 1)[-1])
                for alert in Alerts(catalog.connection).list()
            }


@pytest.fixture
def world(
    settings: Settings, fresh_database: str, webhook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    monkeypatch.setenv("VARVE_LANDING_ROOT", str(tmp_path / "landing"))
    monkeypatch.setenv("VARVE_ALERTS", json.dumps({"team": webhook.url}))
    monkeypatch.setenv("VARVE_ALERTS_DISK_PERCENT", "100")
    commands_on(GRAPH, monkeypatch)
    with dg.DagsterInstance.ephemeral() as instance:
        yield World(instance, pendulum.datetime(2026, 11, 3, 1))


def test_a_file_that_is_late_then_broken_then_corrected_is_told_of_once_each(world: World, webhook: Webhook) -> None:
    # The files of the first two days come in time, and nothing is said.
    for day in ("2026-11-01", "2026-11-02"):
        world.send(day, "n\n1\n")
    assert world.tick() == "0 alerts opened, 0 closed.", world.open_alerts()
    assert webhook.received == []
    # The third does not come: until 02:00 of the next day it is not late, and then it is.
    world.tick("2026-11-04T01:59:00")
    assert world.open_alerts() == set()
    assert world.tick("2026-11-04T02:01:00") == "1 alert opened, 0 closed. team was told of 1."
    for _ in range(3):
        assert world.tick() == "0 alerts opened, 0 closed."
    (message,) = webhook.received
    assert message["message"] == (
        "opened 2026-11-04 02:01 UTC: not fresh partner.orders day=2026-11-03: not there, "
        "late since 2026-11-04 02:00 UTC"
    )
    # It comes, and is broken: that is another alert, and the first goes on.
    world.send("2026-11-03", "amount\n1\n")
    assert world.tick("2026-11-04T05:00:00").startswith("1 alert opened, 0 closed.")
    world.tick()
    assert world.open_alerts() == {("not fresh", "day=2026-11-03"), ("rejected arrival", "2026-11-03.csv")}
    # It is corrected: both end, in one message, and nothing is said twice.
    world.send("2026-11-03", "n\n1\n")
    assert world.tick("2026-11-04T06:00:00") == "0 alerts opened, 2 closed. team was told of 2."
    world.tick()
    assert world.open_alerts() == set()
    assert [message["title"] for message in webhook.received] == [
        "Varve: 1 opened", "Varve: 1 opened", "Varve: 2 closed",
    ]  # fmt: skip
    text = "\n".join(message["message"] for message in webhook.received)
    assert text.count("opened ") == text.count("closed ") == 2
    assert text.count("not fresh partner.orders day=2026-11-03") == 2
    # A day later the next one is late: an alert of its own.
    world.tick("2026-11-05T02:01:00")
    assert world.open_alerts() == {("not fresh", "day=2026-11-04")}


def test_of_a_window_that_is_looked_at_no_more_the_closing_does_not_say_that_it_has_come(
    world: World, webhook: Webhook
) -> None:
    """As of an hour that is missing on a Friday evening: on Sunday its alert is closed, and it is missing still."""
    for day in ("2026-11-01", "2026-11-02"):
        world.send(day, "n\n1\n")
    assert world.tick("2026-11-04T02:01:00") == "1 alert opened, 0 closed. team was told of 1."
    assert world.tick("2026-12-05T02:01:00") == "31 alerts opened, 1 closed. team was told of 32."
    (closed,) = [line for line in webhook.received[-1]["message"].splitlines() if line.startswith("closed")]
    assert closed == (
        "closed 2026-12-05 02:01 UTC: not fresh partner.orders day=2026-11-03: looked at no more; when it was last: "
        "not there, late since 2026-11-04 02:00 UTC"
    )
    # One that comes is told of as ever.
    world.send("2026-12-04", "n\n1\n")
    world.tick("2026-12-05T03:00:00")
    assert "closed 2026-12-05 03:00 UTC: not fresh partner.orders day=2026-12-04" in {
        line for message in webhook.received for line in message["message"].splitlines()
    }


def test_a_channel_that_is_down_is_told_later_and_nobody_else_waits(
    world: World, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_ALERTS", json.dumps({"team": webhook.url, "away": "json://127.0.0.1:1/secret-of-away"}))
    webhook.status = 500
    world.send("2026-11-02", "n\n1\n")
    said = world.tick("2026-11-04T03:00:00")
    assert "team was told nothing: it answered 500." in said
    assert "away was told nothing: it could not be reached" in said
    webhook.status = 200
    # It is tried again after a minute, then after two; what happened meanwhile is said in the same message.
    assert "team was told nothing: it answered 500; it is tried again later." in world.tick()
    world.send("2026-11-03", "n\n1\n")
    assert "team was told of 2." in world.tick("2026-11-04T03:01:01")
    assert [message["title"] for message in webhook.received] == ["Varve: 1 opened, 1 closed"]
    with world.catalog() as catalog:
        messages = Messages(catalog.connection)
        assert list(messages.down()) == ["away"]
        assert messages.counts() == {"away": 2}
    shown = CliRunner().invoke(app, ["alerts", "--all"]).output
    assert "channel away: 2 messages waiting; down since 2026-11-04T03:00:00+00:00: it could not be reached" in shown
    assert "channel team: told of everything" in shown
    assert "secret" not in shown
    assert "hidden" not in shown


def test_what_happens_in_quiet_hours_is_one_message_when_they_are_over(
    world: World, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_ALERTS_QUIET", "22:00-07:00 Europe/Zurich")
    world.send("2026-11-02", "n\n1\n")
    assert "team was told nothing: quiet hours." in world.tick("2026-11-04T03:00:00")
    world.send("2026-11-03", "n\n1\n")
    assert "quiet hours" in world.tick("2026-11-04T05:59:00")
    assert webhook.received == []
    assert "team was told of 2." in world.tick("2026-11-04T06:00:00")
    assert [message["title"] for message in webhook.received] == ["Varve: 1 opened, 1 closed"]


def test_a_channel_that_is_new_is_told_of_what_is_open_and_of_no_history(
    world: World, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_ALERTS", "{}")
    world.send("2026-11-02", "n\n1\n")
    world.tick("2026-11-04T03:00:00")
    world.send("2026-11-03", "n\n1\n")
    world.tick("2026-11-04T04:00:00")
    world.tick("2026-11-05T03:00:00")
    monkeypatch.setenv("VARVE_ALERTS", json.dumps({"team": webhook.url}))
    assert world.tick() == "0 alerts opened, 0 closed. team was told of 1."
    assert "day=2026-11-04" in webhook.received[0]["message"]


def test_two_evaluations_at_once_open_an_alert_once(world: World, webhook: Webhook) -> None:
    def look(_: int) -> tuple[int, int]:
        with connect(world.settings, application="varve test") as connection:
            return Alerts(connection).update([Condition(THIRD, "late")], [AlertKind.NOT_FRESH], 1_000_000.0)

    with world.catalog() as catalog, ThreadPoolExecutor(4) as threads:
        assert sum(opened for opened, _ in threads.map(look, range(8))) == 1
        assert len(Alerts(catalog.connection).list()) == 1
        with pytest.raises(psycopg.errors.UniqueViolation):
            catalog.connection.execute(
                "insert into varve.alert (kind, dataset, subject, message, opened_at, seen_at) "
                "select kind, dataset, subject, message, now(), now() from varve.alert"
            )
        # Who evaluates while somebody else does, leaves it to them; and a kind whose facts are not known stays open.
        with Alerts(catalog.connection).evaluating() as is_ours, world.clock():
            assert is_ours
            assert "Another process evaluates" in str(evaluate(GRAPH, [], world.instance, world.settings))
        assert Alerts(catalog.connection).update([], [AlertKind.DISK], 1_000_060.0) == (0, 0)
        assert Alerts(catalog.connection).update([], [AlertKind.NOT_FRESH], 1_000_060.0) == (0, 1)
    assert webhook.received == []


def test_who_dies_between_sending_and_noting_it_sends_it_again(world: World, webhook: Webhook) -> None:
    world.send("2026-11-02", "n\n1\n")
    with mock.patch.object(Messages, "sent", side_effect=KeyboardInterrupt), contextlib.suppress(KeyboardInterrupt):
        world.tick("2026-11-04T03:00:00")
    assert len(webhook.received) == 1
    assert "team was told of 1." in world.tick()
    assert webhook.received[0]["message"] == webhook.received[1]["message"]


def test_the_command_lists_what_is_open_and_tries_the_channels(
    world: World, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send("2026-11-02", "n\n1\n")
    world.tick("2026-11-04T03:00:00")
    values = json.loads(CliRunner().invoke(app, ["alerts", "--json"]).output)
    (alert,) = values["alerts"]
    assert (alert["kind"], alert["subject"], alert["opened_at"]) == (
        "not fresh", "day=2026-11-03", "2026-11-04T03:00:00+00:00",
    )  # fmt: skip
    tried = CliRunner().invoke(app, ["alerts", "--test"])
    assert (tried.exit_code, tried.output) == (0, "team: has taken the trial message\n")
    assert webhook.received[-1]["title"] == "Varve: a trial message"
    webhook.status = 403
    monkeypatch.setenv("VARVE_ALERTS", json.dumps({"team": webhook.url, "odd": "nobody://hidden"}))
    tried = CliRunner().invoke(app, ["alerts", "--test"])
    assert tried.exit_code == 1
    assert tried.output == (
        "odd: its URL is none that Apprise knows: docs/alerts.md says how it is written\nteam: it answered 403\n"
    )


def test_a_daemon_that_has_not_ticked_is_told_by_the_command_and_over_when_it_ticks(world: World) -> None:
    seen = "varve.dagster.automation.alerting.sensor_daemon_seen"
    with mock.patch(seen, return_value=world.now.timestamp() - 1_000), world.clock():
        evaluate(GRAPH, [], world.instance, world.settings)
    assert ("daemon has not ticked", "") in world.open_alerts()
    # Another machine may have another storage of Dagster: what that does not know is not over.
    with mock.patch(seen, return_value=0.0), world.clock():
        evaluate(GRAPH, [], world.instance, world.settings)
    assert ("daemon has not ticked", "") in world.open_alerts()
    world.tick()
    assert ("daemon has not ticked", "") not in world.open_alerts()


def test_what_differs_from_machine_to_machine_is_told_by_one_of_them(
    world: World, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_ALERTS_DISK_PERCENT", "90")
    disks, seen = "varve.dagster.automation.alerting.disks_of", "varve.dagster.automation.alerting.sensor_daemon_seen"
    alert = ("disk nearly full", "home")
    for day in ("2026-11-01", "2026-11-02"):
        world.send(day, "n\n1\n")

    def sensor(used: int) -> str:
        with mock.patch(disks, return_value=[DiskFacts("home", used, 100, "one")]):
            return world.tick()

    def command(used: int, machine: str, daemon_seen: float = 0.0) -> str:
        with (
            mock.patch(disks, return_value=[DiskFacts("home", used, 100, machine)]), world.clock(),
            mock.patch("varve.dagster.automation.alerting.socket.gethostname", return_value=machine),
            mock.patch(seen, return_value=daemon_seen),
        ):  # fmt: skip
            return str(evaluate(GRAPH, [], world.instance, world.settings))

    def pass_time() -> None:
        with world.catalog() as catalog:
            catalog.connection.execute("update varve.alert_watch set until = clock_timestamp()")

    # The disk of the sensor's machine is full, and that of another one is not; nor does that one know the daemon.
    assert sensor(99) == "1 alert opened, 0 closed. team was told of 1."
    left = "0 alerts opened, 0 closed. Disks and captures are looked at by the sensor."
    assert command(1, "two", world.now.timestamp() - 100_000) == left
    assert sensor(99) == "0 alerts opened, 0 closed."
    assert world.open_alerts() == {alert}
    assert len(webhook.received) == 1
    # The sensor looks no more: the first machine that does looks in its place, and a third one leaves it to that.
    pass_time()
    assert command(1, "two") == "0 alerts opened, 1 closed. team was told of 1."
    assert command(99, "three") == "0 alerts opened, 0 closed. Disks and captures are looked at by two."
    assert command(99, "two") == "1 alert opened, 0 closed. team was told of 1."
    pass_time()
    assert command(99, "three") == "0 alerts opened, 0 closed."
    # The sensor has it back at once.
    assert sensor(1) == "0 alerts opened, 1 closed. team was told of 1."
    assert command(99, "three") == left


def test_failing_expectations_are_told_until_their_partitions_are_computed(world: World) -> None:
    world.send("2026-11-02", "n\n1\n")
    world.tick()
    key = ORDERS.partitioning.from_path("day=2026-11-01")
    failure = "partner.orders day=2026-11-01: positive (n > 0): 1 of 1 rows break it."
    with world.catalog() as catalog:
        build = catalog.begin(ORDERS, [key], run_id="r1", code_version="")
        catalog.fail(build, failure, broken=["positive"])
        catalog.release(build)
    world.tick()
    assert ("expectation fails", "day=2026-11-01") in world.open_alerts()
    with world.catalog() as catalog:
        build = catalog.begin(ORDERS, [key], run_id="r2", code_version="")
        catalog.staged(build, [StagedBatch(key, "/nowhere", 1, 1, 1)])
        catalog.publish(build)
        catalog.release(build)
    world.tick()
    assert "expectation fails" not in {kind for kind, _ in world.open_alerts()}


def test_a_failing_expectation_is_over_where_the_file_of_before_is_sent_again(world: World) -> None:
    alert = ("expectation fails", "day=2026-11-01")
    world.send("2026-11-01", "n\n1\n")
    world.tick()
    world.broken = ["positive"]
    world.send("2026-11-01", "n\n-1\n")
    world.tick()
    assert alert in world.open_alerts()
    world.tick()
    assert alert in world.open_alerts()
    world.send("2026-11-01", "n\n1\n")
    world.tick()
    assert alert not in world.open_alerts()


def test_a_dataset_that_cannot_be_judged_mutes_no_other_one_and_opens_nothing(world: World) -> None:
    judged, broken = Tick.judge_dataset, set[str]()

    def failing(tick: Tick, dataset: Dataset) -> int:
        if dataset.name in broken:
            raise RuntimeError("a defect")
        return judged(tick, dataset)

    graph, given_up = graph_of([orders, whole]), AlertIdentity(AlertKind.GIVEN_UP, "partner.whole", "all")
    # The file of before came again: what its successor broke is settled.
    for content, world.broken in (("n\n1\n", []), ("n\n-1\n", ["positive"]), ("n\n1\n", [])):
        world.send("2026-11-01", content)
        world.tick()
    with mock.patch.object(Tick, "judge_dataset", failing), world.catalog() as catalog, world.clock():
        now = world.now.timestamp()
        Alerts(catalog.connection).update([Condition(given_up, "3 attempts failed")], [AlertKind.GIVEN_UP], now)
        for names, is_open in (({"partner.whole"}, True), ({"partner.orders"}, False)):
            broken |= names
            evaluate(graph, [], world.instance, world.settings)
            assert (("given up", "all") in world.open_alerts()) is is_open
            assert "expectation fails" not in {kind for kind, _ in world.open_alerts()}
            broken.clear()


def test_a_lake_that_cannot_be_reached_is_told_and_all_else_too(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder in the place of a manifest: reading it raises what a file system raises that is away.
    table, lake = CapturedTable(ORDERS, "public.planes", {"day": "current_date"}), tmp_path / "lake"
    (Path(EventLog(str(lake), ORDERS).generation(1)) / "events=1000" / MANIFEST).mkdir(parents=True)
    monkeypatch.setenv("VARVE_LAKE_ROOT", str(lake))
    with world.catalog() as catalog:
        Positions(catalog.connection).ensure_schema()
        catalog.connection.execute(
            "insert into varve.cdc_position (dataset, source, state, generation, applied_lsn)"
            " values ('partner.orders', 'public.planes', 'stopped', 1, 0)"
        )
    world.now = pendulum.datetime(2026, 11, 4, 3)
    behind = AlertIdentity(AlertKind.CAPTURE, "partner.orders", "behind")
    with world.catalog() as catalog, world.clock():
        Alerts(catalog.connection).update([Condition(behind, "for 20 minutes")], [AlertKind.CAPTURE], 1_000_000.0)
        evaluate(GRAPH, [table], world.instance, world.settings)
        told = {alert.identity.subject: alert.text for alert in Alerts(catalog.connection).list()}
    assert {"log", "stopped", "behind", "day=2026-11-03"} <= told.keys()
    assert told["log"].startswith(f"its captured changes in {lake} cannot be read: ")


def test_a_lake_that_is_not_mounted_is_told_and_ends_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, lake = CapturedTable(ORDERS, "public.planes", {"day": "current_date"}), tmp_path / "mount"
    files = replace(
        table, dataset=replace(ORDERS, name="partner.files"), files=ChangeFiles(ChangeFormat.EVENTS, ("n",))
    )
    lake.mkdir()
    monkeypatch.setenv("VARVE_LAKE_ROOT", str(lake))
    behind = AlertIdentity(AlertKind.CAPTURE, "partner.orders", "behind")
    with world.catalog() as catalog, world.clock():
        Positions(catalog.connection).ensure_schema()
        # Of the second one no file has come yet: its folder need not be there.
        catalog.connection.execute(
            "insert into varve.cdc_position (dataset, source, state, generation, applied_lsn) values"
            " ('partner.orders', 'public.planes', 'stopped', 1, -1), ('partner.files', 'planes', 'stopped', 1, -1)"
        )
        Alerts(catalog.connection).update([Condition(behind, "for 20 minutes")], [AlertKind.CAPTURE], 1_000_000.0)
        facts = {each.dataset: each for each in capture_facts([table, files], catalog.connection, world.settings)}
        evaluate(GRAPH, [table], world.instance, world.settings)
        told = {alert.identity.subject for alert in Alerts(catalog.connection).list()}
    assert facts["partner.files"].unread == ""
    assert facts["partner.orders"].unread == (
        f"its captured changes in {lake} cannot be read: {lake}/_changes/partner/orders/generation=1 has no batch of "
        "events"
    )
    assert {"behind", "log", "stopped"} <= told


def test_dagster_has_a_check_of_each_and_its_own_policy_where_that_means_the_same(world: World) -> None:
    world.send("2026-11-02", "n\n1\n")
    world.tick("2026-11-04T03:00:00")
    (check,) = [
        check
        for check in world.defs.asset_checks or ()
        if isinstance(check, dg.AssetChecksDefinition) and next(iter(check.check_keys)).name == "fresh"
    ]
    with world.clock():
        job = dg.Definitions(asset_checks=[check])
        result = (
            job.get_repository_def().get_implicit_global_asset_job_def().execute_in_process(instance=world.instance)
        )
    (evaluation,) = result.get_asset_check_evaluations()
    assert not evaluation.passed
    assert evaluation.description == "1 window late: day=2026-11-03."
    assert freshness_policy(ORDERS) is None
    assert freshness_policy(WHOLE) == dg.FreshnessPolicy.time_window(pendulum.duration(hours=2).as_timedelta())


def test_channels_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    from varve.model.errors import VarveError
    from varve.services.secrets import redacted

    url = "slack://TokenAaaaaaa/TokenBbbbbbb/TokenCcccccc"
    monkeypatch.setenv("VARVE_ALERTS", json.dumps({"team": url}))
    assert "Token" not in repr(Settings())
    assert redacted(f"could not post to {url} (TokenBbbbbbb)") == "could not post to *** (***)"
    monkeypatch.setenv("VARVE_ALERTS", json.dumps([url]))
    with pytest.raises(VarveError) as error:
        Settings()
    assert "VARVE_ALERTS" in str(error.value)
    assert "Token" not in str(error.value)
    monkeypatch.setenv("VARVE_ALERTS", "{}")
    monkeypatch.setenv("VARVE_ALERTS_QUIET", "at night")
    with pytest.raises(VarveError, match="VARVE_ALERTS_QUIET says when nothing is sent: 'at night' are no quiet hours"):
        Settings()


def test_what_is_told_of_a_dataset_stays_while_its_file_is_broken_and_ends_with_its_declaration(world: World) -> None:
    told = AlertIdentity(AlertKind.GIVEN_UP, "partner.whole", "all")
    broken = BrokenDataset("partner.whole", "whole.sql", errors=("whole.sql:1:1: unknown word",))
    with world.catalog() as catalog, world.clock():
        now = world.now.timestamp()
        Alerts(catalog.connection).update([Condition(told, "3 attempts failed")], [AlertKind.GIVEN_UP], now)
        for declared, is_open in (([orders, broken], True), ([orders], False)):
            evaluate(graph_of(declared), [], world.instance, world.settings)  # type: ignore[arg-type]
            assert (("given up", "all") in world.open_alerts()) is is_open
