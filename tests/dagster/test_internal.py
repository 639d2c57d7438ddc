"""The adapter to Dagster's private names: pinned to the version it was written for."""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import shutil
import socket
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

import dagster as dg
import dagster_postgres
import pytest
from dagster._core.remote_origin import (  # noqa: TID251 - a queued run cannot be made without
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.storage import tags  # noqa: TID251 - their names are compared
from dagster._utils.schedules import schedule_execution_time_iterator
from dagster_shared.record import replace

from tests.support.project import ROOT
from varve.catalog.living.leases import Leases
from varve.dagster.internal.runs import previous_tick
from varve.dagster.internal.steps import add_partition_metadata, step_asset, step_identity, step_of, step_partition_keys
from varve.dagster.leases.leases import dead_runs, end_dead
from varve.planning.requested import PARENT_TAG, RESUME_TAG, RETRY_TAG
from varve.services.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psycopg


@pytest.fixture
def leases(connection: psycopg.Connection) -> Leases:
    return Leases(connection)


def test_the_tags_of_a_run_that_is_executed_again_are_called_as_dagster_calls_them() -> None:
    names = (tags.PARENT_RUN_ID_TAG, tags.RETRY_NUMBER_TAG, tags.RESUME_RETRY_TAG)
    assert names == (PARENT_TAG, RETRY_TAG, RESUME_TAG)


def test_the_private_names_are_those_of_this_version() -> None:
    """When this fails, read the adapter against the new version before changing the number."""
    assert version("dagster").split(".")[:2] == ["1", "13"]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
@pytest.mark.parametrize("cron", ["0 1 * * *", "30 2 * * *", "0 2 * * 0", "35 */2 * * *", "@hourly", "0 2 1 * *"])
def test_the_tick_before_is_the_one_at_which_dagster_ticked(cron: str, zone: str) -> None:
    begin, end = (dt.datetime(2026, month, 1, tzinfo=dt.UTC).timestamp() for month in (3, 12))
    dagsters = schedule_execution_time_iterator(begin, cron, zone)
    ticks = list(itertools.takewhile(lambda tick: tick.timestamp() < end, dagsters))
    before = [previous_tick(cron, zone, tick) for tick in ticks[1:]]
    assert [tick.timestamp() for tick in before] == [tick.timestamp() for tick in ticks[:-1]]


class Recording(dg.IOManager):
    """Notes what the adapter returns for the step in which it is called."""

    def __init__(self) -> None:
        self.seen: dict[str, object] = {}

    def load_input(self, context: dg.InputContext) -> None:
        step = step_of(context)
        self.seen["input"] = (step_asset(step), sorted(step_partition_keys(step)))

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:  # noqa: ARG002
        step = step_of(context)
        self.seen["output"] = (step_asset(step), sorted(step_partition_keys(step)), step_identity(step))
        numbers: dict[str | None, dict[str, int]] = {
            key: {"number": number} for number, key in enumerate(sorted(step_partition_keys(step)))
        }
        add_partition_metadata(step, context.asset_key, numbers)
        # A second time, as for a step of several outputs: what was added before stays.
        add_partition_metadata(step, context.asset_key, {key: {"again": True} for key in numbers})


def test_a_range_over_two_dimensions_is_all_of_its_partitions_each_with_its_own_metadata() -> None:
    letters = dg.StaticPartitionsDefinition(["a", "b"])
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
    product = dg.MultiPartitionsDefinition({"day": days, "letter": letters})
    recording, bodies = Recording(), []

    @dg.asset(partitions_def=days)
    def upstream() -> None: ...

    @dg.asset(
        partitions_def=product,
        ins={"upstream": dg.AssetIn(partition_mapping=dg.MultiToSingleDimensionPartitionMapping("day"))},
    )
    def downstream(context, upstream):  # type: ignore[no-untyped-def]
        bodies.append(step_asset(step_of(context)))

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [upstream, downstream],
            selection=["downstream"],
            instance=instance,
            resources={"io_manager": recording},
            tags={
                "dagster/asset_partition_range_start": "2013-01-01|a",
                "dagster/asset_partition_range_end": "2013-01-02|b",
            },
        )
    key = dg.AssetKey("downstream")
    expected = ["2013-01-01|a", "2013-01-01|b", "2013-01-02|a", "2013-01-02|b"]
    assert recording.seen["input"] == (key, expected)
    assert recording.seen["output"] == (key, expected, (result.run_id, "downstream"))
    assert bodies == [key]
    numbers = {
        event.partition: event.materialization.metadata["number"].value
        for event in result.get_asset_materialization_events()
    }
    assert numbers == {name: number for number, name in enumerate(expected)}


def test_metadata_of_many_partitions_ask_dagster_for_the_keys_of_the_run_no_more_often_than_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    definition = dg.DynamicPartitionsDefinition(name="keys")
    asked: list[int] = []

    class Counting(Recording):
        def handle_output(self, context: dg.OutputContext, obj: object) -> None:  # noqa: ARG002
            step = step_of(context)
            keys, reads = step_partition_keys(step), list[str]()
            read = type(step.instance).get_dynamic_partitions

            def counting(instance: dg.DagsterInstance, partitions_def_name: str) -> object:
                reads.append(partitions_def_name)
                return read(instance, partitions_def_name)

            with monkeypatch.context() as patched:
                patched.setattr(type(step.instance), "get_dynamic_partitions", counting)
                add_partition_metadata(step, context.asset_key, {key: {"number": 1} for key in keys})
            asked.append(len(reads))

    @dg.asset(partitions_def=definition)
    def counted() -> int:
        return 1

    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("keys", ["a", "b", "c", "d"])
        for last in ("a", "d"):
            tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": last}
            dg.materialize([counted], instance=instance, resources={"io_manager": Counting()}, tags=tags)
    assert asked == [0, 0]


# A run of a job without Varve's assets, under another host name where one is given.
STRANGE_RUN = """
import socket, sys, time
import dagster as dg

if sys.argv[2:]:
    socket.gethostname = lambda: sys.argv[2]

@dg.op
def waits() -> None:
    print(dg.OpExecutionContext.get().run_id, flush=True)
    sys.stdin.readline()

@dg.job
def strange():
    waits()

with dg.DagsterInstance.from_config(sys.argv[1]) as instance:
    strange.execute_in_process(instance=instance)
"""


@contextmanager
def strange_run(home: Path, *host: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a run, and yield its id and its process while it works."""
    process = subprocess.Popen(
        [sys.executable, "-c", STRANGE_RUN, str(home), *host],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def look_until(instance: dg.DagsterInstance, run_id: str, status: dg.DagsterRunStatus, *, seconds: float = 30) -> str:
    """Do what Dagster's monitor does until the run has this status; return the last message of the run's log."""
    from dagster._daemon.monitoring.run_monitoring import monitor_started_run

    deadline = time.monotonic() + seconds
    while True:
        record = instance.get_run_record_by_id(run_id)
        assert record is not None
        if record.dagster_run.status is status:
            return instance.all_logs(run_id)[-1].message
        assert time.monotonic() < deadline, record
        monitor_started_run(instance, None, record, logging.getLogger("test"))  # type: ignore[arg-type]
        time.sleep(0.1)


@pytest.fixture
def instance(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    assert settings.home_dir  # whose PostgreSQL it is
    monkeypatch.setenv("VARVE_LEASE_SECONDS", "1")
    shutil.copy(ROOT / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize("host", [(), ("elsewhere",)], ids=["here", "on another host"])
def test_a_run_whose_process_was_killed_is_told_from_one_that_lives_on_any_host(
    instance: dg.DagsterInstance, leases: Leases, tmp_path: Path, host: tuple[str, ...]
) -> None:
    with strange_run(tmp_path, *host) as (run_id, process):
        assert process.stdin is not None
        lease = leases.of(run_id)
        assert lease is not None
        assert lease.holder == f"process {process.pid} on {host[0] if host else socket.gethostname()}"
        wait_until = time.monotonic() + 2.5
        while time.monotonic() < wait_until:
            assert leases.dead_runs([run_id]) == set()
            time.sleep(0.1)
        process.kill()
        reason = look_until(instance, run_id, dg.DagsterRunStatus.FAILURE)
    assert lease.holder in reason
    assert "last sign of life" in reason


def test_a_run_that_died_before_any_code_of_ours_ran_does_not_stay_in_flight(
    instance: dg.DagsterInstance, leases: Leases
) -> None:
    started = instance.add_run(dg.DagsterRun("job", status=dg.DagsterRunStatus.STARTED))
    look_until(instance, started.run_id, dg.DagsterRunStatus.FAILURE)
    # The planner gets the same answer for a run of which only its launcher has entered a lease.
    launched = instance.add_run(dg.DagsterRun("job", status=dg.DagsterRunStatus.STARTING))
    leases.keep([launched.run_id], "launched by process 1 on elsewhere", 1.0)
    deadline = time.monotonic() + 30
    while not (dead := dead_runs(leases, [launched], Settings())):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    end_dead(instance, dead)
    ended = instance.get_run_by_id(launched.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE


def test_a_run_that_was_asked_for_by_a_process_that_died_then_does_not_stay_in_flight(
    instance: dg.DagsterInstance, leases: Leases
) -> None:
    asked = instance.add_run(dg.DagsterRun("job", status=dg.DagsterRunStatus.NOT_STARTED))
    deadline = time.monotonic() + 30
    while not (dead := dead_runs(leases, [asked], Settings())):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "a process that asked for the run and did not start it" in dead[asked.run_id]
    end_dead(instance, dead)
    ended = instance.get_run_by_id(asked.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE


def test_a_run_may_wait_in_the_queue_and_for_its_machine_for_ever(instance: dg.DagsterInstance, leases: Leases) -> None:
    # A look may have come between asking and queueing.
    asked, launched = (dg.DagsterRun("job", status=dg.DagsterRunStatus.NOT_STARTED) for _ in range(2))
    assert dead_runs(leases, [asked, launched], Settings()) == {}
    assert leases.of(asked.run_id) is not None
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
    asked = replace(asked, remote_job_origin=RemoteJobOrigin(repository, "job"))
    queued = instance.add_run(asked.with_status(dg.DagsterRunStatus.QUEUED))
    # Another launcher than ours has launched it, before a look could see it in the queue.
    starting = instance.add_run(launched.with_status(dg.DagsterRunStatus.STARTING))
    # Longer than two terms (VARVE_LEASE_SECONDS) and the time between two looks.
    look_on = time.monotonic() + 3.5
    while time.monotonic() < look_on:
        assert dead_runs(leases, [queued, starting], Settings()) == {}
        time.sleep(0.2)
    assert [leases.of(run.run_id) for run in (queued, starting)] == [None, None]


def test_the_lease_ends_with_its_run(instance: dg.DagsterInstance, leases: Leases, tmp_path: Path) -> None:
    with strange_run(tmp_path) as (run_id, process):
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(60) == 0
        assert leases.of(run_id) is None
    with strange_run(tmp_path) as (run_id, _):
        run = instance.get_run_by_id(run_id)
        assert run is not None
        # "Force termination" in the UI does this: the process lives on, but may not publish any more.
        instance.report_run_canceled(run)
        lease = leases.of(run_id)
        assert lease is not None
        assert lease.lost_at is not None
        assert "another process" in lease.lost_because


def test_dagster_yaml_opens_storage_on_the_embedded_server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        assert isinstance(instance.run_storage, dagster_postgres.PostgresRunStorage)
        # A run's process gets a reference to the instance, and opens the same storage from it.
        with dg.DagsterInstance.from_ref(instance.get_ref()) as again:
            assert again.run_storage.postgres_url == instance.run_storage.postgres_url
            assert str(settings.home_dir) in again.run_storage.postgres_url.replace("%2F", "/")


def test_the_events_of_a_run_of_many_partitions_are_all_there_and_told_of_each(settings: Settings) -> None:
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01")
    key = dg.AssetKey(f"many_{uuid.uuid4().hex[:8]}")

    checked = dg.AssetCheckSpec("always", asset=key)
    many = dg.asset(
        key=key, partitions_def=days, backfill_policy=dg.BackfillPolicy.single_run(), check_specs=[checked]
    )(lambda: dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)]))  # fmt: skip
    wanted = days.get_partition_keys()[30:90]
    tags = {"dagster/asset_partition_range_start": wanted[0], "dagster/asset_partition_range_end": wanted[-1]}
    storage = {"custom": {"module": "varve.dagster.internal", "class": "VarveDagsterStorage"}}
    assert settings.home_dir  # whose PostgreSQL it is
    with dg.instance_for_test(overrides={"storage": storage}) as instance:
        run = dg.materialize([many], instance=instance, tags=tags).run_id
        keys_by_definition = {
            kind: [event.get_dagster_event().partition for event in instance.all_logs(run, of_type=kind)]
            for kind in (dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_MATERIALIZATION)
        }
        record = instance.get_asset_records([key])[0].asset_entry
        assert all(sorted(partitions) == wanted for partitions in keys_by_definition.values())
        assert instance.get_materialized_partitions(key) == set(wanted)
        assert record.last_run_id == run
        assert record.last_materialization is not None
