"""`varve why` of a partition that a run builds: which run, where, its last sign of life, and how to end it."""

from __future__ import annotations

import os
import socket
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console

from pipeline_defs.definitions import graph
from varve.catalog.catalog import Catalog
from varve.cli.plan.why import show, why
from varve.dagster.leases.heartbeat import Heartbeats
from varve.model.partitions.key import PartitionKey
from varve.services.postgres import connect

if TYPE_CHECKING:
    import pytest

    from varve.services.settings import Settings


def test_why_names_the_process_that_is_on_a_partition_and_how_to_end_it(
    settings: Settings, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    monkeypatch.setenv("VARVE_DAGSTER_POSTGRES_URL", fresh_database)
    ours, run = settings.model_copy(update={"postgres_url": fresh_database}), "0a1b2c3d-run"
    hearts = Heartbeats()
    beating = hearts.begin(ours, run)
    assert beating.lost_lease is None
    key = PartitionKey.of(of_year="2013")
    with connect(ours) as connection:
        catalog = Catalog(connection)
        catalog.begin(graph.datasets["flights.fleet"], [key], run_id=run, code_version="")
        judgement = why("flights.fleet", ["of_year=2013"])
    hearts.end(run)
    output = StringIO()
    show(Console(file=output, width=1_000), judgement)
    assert judgement["in_flight"]["run"] == run
    assert judgement["in_flight"]["holder"] == f"process {os.getpid()} on {socket.gethostname()}"
    assert "last sign of life" in output.getvalue()
    assert (
        f"To end it: Terminate, on the page of run {run} in the Dagster UI, or end that process." in output.getvalue()
    )
