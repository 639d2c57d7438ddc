"""`varve why` of a partition that a run builds: which run, where, its last sign of life, and how to end it."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console

from pipeline_defs.definitions import graph
from tests.cli.shop import Shop
from tests.support.project import ROOT
from tests.support.workbench import Workbench
from varve.catalog.catalog import Catalog
from varve.cli.plan.why import show, why
from varve.cli.problems.rejected import show_left_out
from varve.dagster.leases.heartbeat import Heartbeats
from varve.model.partitions.key import PartitionKey
from varve.services.postgres import connect

if TYPE_CHECKING:
    from pathlib import Path

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


def test_why_of_a_table_that_was_never_captured_names_the_command_that_begins(
    settings: Settings, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    monkeypatch.setenv("VARVE_DAGSTER_POSTGRES_URL", fresh_database)
    with connect(settings.model_copy(update={"postgres_url": fresh_database})) as connection:
        Catalog(connection).ensure_schema()
    reason = "it is not captured yet: varve cdc bootstrap fleet.planes takes its first snapshot of public.planes"
    assert why("fleet.planes", ["built=2004"])["reason"] == reason
    assert why("flights.fleet", ["of_year=2013"])["reason"] != reason


def test_failures_for_one_reason_are_one_line(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(ROOT))
    shop = Shop.at(tmp_path, Workbench(settings, None), monkeypatch)  # type: ignore[arg-type]
    dataset = shop.asset("sales").dataset
    with closing((catalog := shop.workbench.catalog()).connection):
        for reason in ("the disk is full", "{}: half a file", "{}: half a file"):
            build = shop.workbench.begin(catalog, dataset, [dataset.partitioning.from_path("day=2026-11-01")])
            catalog.fail(build, reason.format(build))
            catalog.release(build)
        newest = build.batch_id.millis
        # What fails in an environment is no reason why production waits.
        other = shop.workbench.begin(catalog, dataset, [dataset.partitioning.from_path("day=2026-11-01")])
        catalog.fail(other, "an experiment")
        catalog.release(other)
        catalog.connection.execute(
            "update varve.batch set environment = 'alice' where batch_id = %s", (other.batch_id.millis,)
        )
    told = " ".join(shop.run("why", "shop.sales", "day=2026-11-01").output.split())
    assert "an experiment" not in told
    assert f"batch {newest} failed (and 1 before it, for the same reason): {build}: half a file" in told
    assert (told.count("half a file"), told.count("the disk is full")) == (1, 1)
    assert len(shop.json("why", "shop.sales", "day=2026-11-01")["failures"]) == 3


def test_a_partition_whose_retention_is_over_is_missing_whether_it_has_failed_or_was_never_made(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(ROOT))
    shop = Shop.at(tmp_path, Workbench(settings, None), monkeypatch)  # type: ignore[arg-type]
    file = shop.assets / "sales.sql"
    kept = file.read_text(encoding="utf-8").replace("TIMEZONE 'UTC'", "TIMEZONE 'UTC', RETENTION 1 DAY")
    file.write_text(kept, encoding="utf-8")
    dataset = shop.asset("sales").dataset
    with closing((catalog := shop.workbench.catalog()).connection):
        build = shop.workbench.begin(catalog, dataset, [dataset.partitioning.from_path("day=2026-11-01")])
        catalog.fail(build, "half a file")
        catalog.release(build)
    for day in ("2026-11-01", "2026-11-02"):
        judgement = shop.json("why", "shop.sales", f"day={day}")
        assert (judgement["state"], judgement["batch"]) == ("missing", None)
        assert "retention" in judgement["not_there"]
    (picture,) = [each for each in shop.json("plan")["datasets"] if each["dataset"] == f"{shop.db}.sales"]
    assert picture["states"] == {}


def test_what_was_left_out_is_counted_where_it_is_not_listed() -> None:
    entry = {"kind": "plan", "dataset": "shop.sales", "reason": "its file is broken", "since": "2026-11-01"}
    console = Console(file=(output := StringIO()), width=1_000)
    show_left_out(console, [entry] * 20)
    assert "more" not in output.getvalue()
    show_left_out(console, [entry] * 25)
    assert output.getvalue().endswith("and 5 more that were left out; --json lists them all.\n")
