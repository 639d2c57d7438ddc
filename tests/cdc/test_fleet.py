"""fleet.planes as Dagster runs it: the sensor captures, the job applies, the check says whether it is exact."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest
from rich.console import Console

from assets.fleet import CAPTURED_PLANES, PLANES
from pipeline_defs.demo import capture as cdc_demo
from tests.support.project import PROJECT
from varve.catalog.catalog import Catalog
from varve.cdc.captured_table import NeedsResnapshot
from varve.cdc.captures import opened, source_url
from varve.cli.captures import cdc as cdc_command
from varve.cli.plan.why import show as show_why
from varve.cli.plan.why import why
from varve.dagster.assets.captured import (
    capture_job,
    capture_sensor,
    equality_check,
    exactness_check,
    verification_schedule,
)
from varve.dagster.assets.datasets import captured_asset
from varve.services.postgres import connect
from varve.stores.folders.layout import Layout
from varve.stores.lake.store import LakeStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from varve.services.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
NAMES = ("tailnum", "year", "type", "manufacturer", "model", "engines", "seats", "speed", "engine")


class OpenSpark:
    """The resource that the job takes its session from."""

    def __init__(self, session: SparkSession) -> None:
        self.spark_session = session


@pytest.fixture
def source(settings: Settings) -> Iterator[psycopg.Connection]:
    with psycopg.connect(source_url(settings), autocommit=True) as connection:
        connection.execute("drop table if exists public.planes")
    cdc_demo.lay(Console(quiet=True))
    with closing(psycopg.connect(source_url(settings), autocommit=True)) as connection:
        yield connection


def in_lake(settings: Settings, spark: SparkSession) -> tuple[list[str], dict[str, int]]:
    with closing(connect(settings)) as connection:
        catalog = Catalog(connection)
        current = catalog.current(PLANES.name)
        frame = LakeStore(Layout(settings.lake), catalog, lambda: spark).read(PLANES, list(current.values()))
        rows = sorted(repr(tuple(row)) for row in frame.select(*NAMES).collect())
    return rows, {path: batch.batch_id.millis for path, batch in current.items()}


def in_source(source: psycopg.Connection) -> list[str]:
    return sorted(map(repr, source.execute(f"select {', '.join(NAMES)} from public.planes").fetchall()))


def compared(spark: SparkSession) -> dg.AssetCheckEvaluation:
    """The check `equal`, as its schedule asks for it."""
    defs = dg.Definitions(
        assets=[captured_asset(CAPTURED_PLANES).asset],
        asset_checks=[equality_check(CAPTURED_PLANES, PROJECT)],
        schedules=[verification_schedule(CAPTURED_PLANES, "0 3 * * *")],
        resources={"spark": OpenSpark(spark), "lake_io_manager": dg.mem_io_manager},
    )
    done = defs.resolve_job_def("verify_fleet_planes_job").execute_in_process()
    (evaluation,) = done.get_asset_check_evaluations()
    return evaluation


def test_the_fleet_follows_its_application(
    settings: Settings, spark: SparkSession, source: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(CAPTURED_PLANES, settings) as capture:
        assert capture.bootstrap().counts.inserts == 3_322
    job = capture_job(CAPTURED_PLANES, PROJECT)
    instance = dg.DagsterInstance.ephemeral()

    def run(failure: str = "") -> set[str]:
        done = job.execute_in_process(
            instance=instance, resources={"spark": OpenSpark(spark)}, run_id=str(uuid.uuid4()), raise_on_error=False
        )
        assert done.success is not bool(failure)
        failures = [done.failure_data_for_node(job.nodes[0].name)] if failure else []
        assert all(data and data.user_failure_data and failure in str(data.user_failure_data) for data in failures)
        return {event.partition for event in done.all_events if event.is_step_materialization and event.partition}

    run()
    rows, before = in_lake(settings, spark)
    assert rows == in_source(source)

    source.execute("update public.planes set seats = seats where year = 1999")
    first = "(select min(tailnum) from public.planes where year = 2004)"
    source.execute(f"update public.planes set year = 2014 where tailnum = {first}")
    source.execute("delete from public.planes where year = 1956")
    source.execute("insert into public.planes (tailnum, type) values ('N0VARVE', 'made up')")
    sensor = capture_sensor(CAPTURED_PLANES, PROJECT, job)
    asked = sensor(dg.build_sensor_context(instance))
    assert isinstance(asked, dg.SensorResult)
    assert len(asked.run_requests or ()) == 1
    moved = why(CAPTURED_PLANES.dataset.name, ["built=2004"])
    assert moved["capture"]["events_to_apply"] > 3
    show_why(Console(), moved)
    assert "events of the table captured and not applied yet" in capsys.readouterr().out
    # What an update left as it was is published nowhere; a partition that lost its last row is empty, not stale.
    assert run() == {"2004", "2014", "1956", "unknown"}
    assert why(CAPTURED_PLANES.dataset.name, ["built=2004"])["capture"]["events_to_apply"] == 0
    rows, after = in_lake(settings, spark)
    assert rows == in_source(source)
    changed = {path for path in after if before.get(path) != after[path]}
    assert changed == {"built=2004", "built=2014", "built=1956", "built=unknown"}
    assert isinstance(sensor(dg.build_sensor_context(instance)), dg.SkipReason)
    assert exactness_check(CAPTURED_PLANES, PROJECT)().passed
    assert compared(spark).passed
    name = CAPTURED_PLANES.dataset.name
    assert cdc_command.verify(Console(), name, rows_shown=5, as_json=True)
    assert json.loads(capsys.readouterr().out)["source_rows"] == len(rows)
    assert cdc_command.verify(Console(), name, rows_shown=5, as_json=False)
    assert f"{len(rows):,} rows each" in capsys.readouterr().out

    source.execute("update public.planes set engines = 8 where year = 2002")
    rows = in_source(source)
    source.execute("alter table public.planes rename model to kind")
    source.execute("update public.planes set engines = 9 where year = 2001")
    asked = sensor(dg.build_sensor_context(instance))
    assert isinstance(asked, dg.SensorResult)
    (request,) = asked.run_requests or ()
    assert "then capture stopped: fleet.planes" in request.tags["why"]
    assert not exactness_check(CAPTURED_PLANES, PROJECT)().passed
    # The run fails, with what was committed before the ALTER published.
    assert run("now called kind") == {"2002"}
    assert in_lake(settings, spark)[0] == rows
    stopped = sensor(dg.build_sensor_context(instance))
    assert isinstance(stopped, dg.SkipReason)
    assert "now called kind" in str(stopped.skip_message)
    source.execute("alter table public.planes rename kind to model")
    with opened(CAPTURED_PLANES, settings) as capture:
        capture.bootstrap(resnapshot=True)
    assert run() == {"2001"}
    assert in_lake(settings, spark)[0] == in_source(source)
    # The command does the same: what was committed before is applied, then it ends with the error.
    source.execute("update public.planes set engines = 7 where year = 2003")
    rows = in_source(source)
    source.execute("alter table public.planes rename model to kind")
    source.execute("update public.planes set engines = 9 where year = 2004")
    with pytest.raises(NeedsResnapshot, match="now called kind"):
        cdc_command.capture(Console(), name, as_json=True)
    assert capsys.readouterr().out == ""
    assert in_lake(settings, spark)[0] == rows
    source.execute("select pg_drop_replication_slot(%s)", (CAPTURED_PLANES.slot,))


@pytest.mark.slow
def test_the_demo_ends_with_lake_and_source_equal(
    settings: Settings, spark: SparkSession, source: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    # The source has its planes already; nothing of them is laid again.
    cdc_demo.lay(Console(quiet=True))
    cdc_demo.run(Console(), seconds=5)
    output = capsys.readouterr().out
    assert "Lake and source are equal, row for row" in output
    assert all(kind in output for kind in ("insert", "update", "delete", "new tail number", "swap", "rolled back"))
    source.execute("select pg_drop_replication_slot(%s)", (CAPTURED_PLANES.slot,))
