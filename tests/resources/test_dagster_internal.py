"""The adapter to Dagster's private names: pinned to the version it was written for."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import uuid
from importlib.metadata import version
from typing import TYPE_CHECKING

import dagster as dg
import dagster_postgres
import psutil

from resources.dagster_internal import (
    WORKER_TAG,
    add_partition_metadata,
    step_asset,
    step_identity,
    step_of,
    step_partition_keys,
)

if TYPE_CHECKING:
    import pytest

    from resources.settings import Settings


def test_the_private_names_are_those_of_this_version() -> None:
    """When this fails, read the adapter against the new version before changing the number."""
    assert version("dagster").split(".")[:2] == ["1", "13"]


class Recording(dg.IOManager):
    """Notes what the adapter says of the step it is called in."""

    def __init__(self) -> None:
        self.seen: dict[str, object] = {}

    def load_input(self, context: dg.InputContext) -> None:
        step = step_of(context)
        self.seen["input"] = (step_asset(step), sorted(step_partition_keys(step)))

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:  # noqa: ARG002
        step = step_of(context)
        self.seen["output"] = (step_asset(step), sorted(step_partition_keys(step)), step_identity(step))
        for number, key in enumerate(sorted(step_partition_keys(step))):
            add_partition_metadata(step, context.asset_key, key, {"number": number})


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


def test_a_run_whose_process_was_killed_is_told_from_one_that_lives(settings: Settings) -> None:
    from dagster._daemon.monitoring.run_monitoring import monitor_started_run

    from resources.settings import project_root

    sleeper = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    started = psutil.Process(sleeper.pid).create_time()
    with dg.DagsterInstance.from_config(str(project_root())) as instance:

        def run_of(worker: str) -> dg.DagsterRun:
            tags = {WORKER_TAG: worker} if worker else {}
            return instance.add_run(dg.DagsterRun("job", status=dg.DagsterRunStatus.STARTED, tags=tags))

        def status_after_a_look(run: dg.DagsterRun) -> dg.DagsterRunStatus:
            record = instance.get_run_record_by_id(run.run_id)
            assert record is not None
            monitor_started_run(instance, None, record, logging.getLogger("test"))  # type: ignore[arg-type]
            looked_at = instance.get_run_by_id(run.run_id)
            assert looked_at is not None
            return looked_at.status

        here = socket.gethostname()
        killed = run_of(f"{here} {sleeper.pid} {started}")
        others = [run_of(""), run_of(f"elsewhere {sleeper.pid} {started}")]
        assert status_after_a_look(killed) is dg.DagsterRunStatus.STARTED
        # The pid lives, but belongs to a process that started at another time.
        assert status_after_a_look(run_of(f"{here} {sleeper.pid} 1.0")) is dg.DagsterRunStatus.FAILURE
        sleeper.kill()
        sleeper.wait()
        assert sleeper.stdin is not None
        sleeper.stdin.close()
        assert status_after_a_look(killed) is dg.DagsterRunStatus.FAILURE
        assert [status_after_a_look(run) for run in others] == [dg.DagsterRunStatus.STARTED] * 2


def test_dagster_yaml_opens_storage_on_the_embedded_server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from resources.settings import project_root

    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with dg.DagsterInstance.from_config(str(project_root())) as instance:
        assert isinstance(instance.run_storage, dagster_postgres.PostgresRunStorage)
        # A run's process gets the instance as a reference and opens the same storage from it.
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
    storage = {"custom": {"module": "resources.dagster_internal", "class": "VarveDagsterStorage"}}
    assert settings.home_dir  # whose PostgreSQL it is
    with dg.instance_for_test(overrides={"storage": storage}) as instance:
        run = dg.materialize([many], instance=instance, tags=tags).run_id
        found = {
            kind: [event.get_dagster_event().partition for event in instance.all_logs(run, of_type=kind)]
            for kind in (dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_MATERIALIZATION)
        }
        record = instance.get_asset_records([key])[0].asset_entry
        assert all(sorted(partitions) == wanted for partitions in found.values())
        assert instance.get_materialized_partitions(key) == set(wanted)
        assert record.last_run_id == run
        assert record.last_materialization is not None
