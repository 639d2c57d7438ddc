"""A code server that outlives its Spark: what looks at tables of others goes on with the next one."""

from __future__ import annotations

import pytest

from tests.e2e.project import Project

pytestmark = pytest.mark.slow

LOOKS = """
from varve.dagster.assets.datasets import graph_of
from varve.dagster.automation.sensors import arrival_sensor
from varve.services.spark_server import SparkServer
from varve.services.settings import Settings
from varve.services.spark import open_session
from tests.dagster.test_external_assets import files, tick
from tests.support.project import PROJECT

settings = Settings()
open_session(settings).sql("CREATE TABLE default.d (product STRING, price INT, day STRING) USING parquet "
                           "PARTITIONED BY (day)")
open_session(settings).sql("INSERT INTO default.d VALUES ('x', 1, '2022-03-01')")
sensor = arrival_sensor(graph_of(files("shop", "source = 'table', table = 'default.d'")), PROJECT)
for stopped in (False, True, False):
    if stopped:
        SparkServer(settings).stop()
        print("looks: lost", len(tick(sensor)))
    else:
        print("looks:", *tick(sensor))
"""


def test_a_look_goes_on_after_spark_was_started_anew() -> None:
    with Project.of_its_own("external") as project:
        done = project.run("-c", LOOKS)
    found = "looks: ('receipts', '2022-03-01', '2022-03-01')"
    assert [line for line in done.output.splitlines() if line.startswith("looks")] == [found, "looks: lost 1", found]
