"""The metrics: what the catalog holds, in a text that Prometheus can read, whatever the names are."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.catalog.test_planning import DAILY, arrive, begin, day, finish
from tests.support.project import ROOT
from varve.catalog.backfills import Backfills
from varve.catalog.catalog import Catalog
from varve.catalog.history.alerts.facts import AlertCatalog
from varve.catalog.history.drops import Drops
from varve.catalog.living.leases import Leases
from varve.cdc.capture.positions import Positions
from varve.model.batch import Part, StagedBatch
from varve.model.partitions.partitioning import Partitioning
from varve.observe.metrics import SensorTicks, exposition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varve.model.batch import BatchId
    from varve.model.partitions.key import PartitionKey

HOSTILE = 'a"b\\c\nd} 1\nvarve_fake{x="'
DASHBOARD = ROOT / "deploy" / "grafana" / "varve.json"


@pytest.fixture
def catalog(fresh_database: str) -> Iterator[Catalog]:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        found = Catalog(connection)
        found.ensure_schema()
        yield found


Sample = tuple[str, frozenset[tuple[str, str]]]


def samples(catalog: Catalog, ticks: Sequence[SensorTicks] = ()) -> dict[Sample, float]:
    text = exposition(catalog.connection, ticks).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: dict[Sample, float], name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def withdraw(catalog: Catalog, *keys: PartitionKey, left: Mapping[PartitionKey, BatchId] | None = None) -> None:
    """Leave these partitions without a batch, as a retirement does, except for those that are `left` with one."""
    build = replace(catalog.lock_partitions(DAILY, keys, run_id="retire"), holds=False)
    catalog.repoint(build, left or {})
    catalog.release(build)


def test_runs_publishes_and_partitions_are_counted(catalog: Catalog) -> None:
    for key in (day(1), day(2)):
        arrive(catalog, key, "a")
        finish(catalog, begin(catalog, DAILY, key))
    finish(catalog, begin(catalog, DAILY, day(1)))
    failed = begin(catalog, DAILY, day(3))
    catalog.fail(failed, "no rate")
    catalog.release(failed)
    Backfills(catalog.connection).add({"p.daily": [day(2).path]}, reason="wrong", owner="me")
    found = samples(catalog)
    assert value(found, "varve_runs_total", dataset="p.daily", outcome="succeeded") == 3
    assert value(found, "varve_runs_total", dataset="p.daily", outcome="failed") == 1
    assert value(found, "varve_publishes_total", dataset="p.daily", kind="publish") == 3
    assert value(found, "varve_publish_wait_seconds_count", dataset="p.daily") == 3
    partitions = {"current": 2, "failed": 1, "marked": 1}
    assert {
        state: value(found, "varve_partitions", dataset="p.daily", state=state) for state in partitions
    } == partitions
    assert value(found, "varve_storage_bytes", dataset="p.daily", batches="retired") == 1
    assert value(found, "varve_arrivals", dataset="p.daily") == 2


def test_a_retirement_is_no_publish(catalog: Catalog) -> None:
    finish(catalog, begin(catalog, DAILY, day(1), day(2)))
    # What withdraws one partition and makes another batch current is one.
    rerun = begin(catalog, DAILY, day(1))
    finish(catalog, rerun)
    withdraw(catalog, day(1), day(2), left={day(1): rerun.batch_id})
    before = samples(catalog)
    withdraw(catalog, day(1))
    found = samples(catalog)
    assert value(found, "varve_publishes_total", dataset="p.daily", kind="publish") == 3
    last = {"dataset": "p.daily", "kind": "publish"}
    assert value(found, "varve_last_publish_timestamp_seconds", **last) == value(
        before, "varve_last_publish_timestamp_seconds", **last
    )
    whole = replace(DAILY, name="p.whole", partitioning=Partitioning())
    assert AlertCatalog(catalog.connection).freshness(whole, None, 0.0).published is None
    published = AlertCatalog(catalog.connection).freshness(replace(whole, name="p.daily"), None, 0.0).published
    assert published == pytest.approx(value(found, "varve_last_publish_timestamp_seconds", **last))


def test_a_partition_that_was_withdrawn_after_it_had_failed_is_not_failed(catalog: Catalog) -> None:
    def failed() -> float | None:
        return value(samples(catalog), "varve_partitions", dataset="p.daily", state="failed")

    def fail(*keys: PartitionKey) -> None:
        build = begin(catalog, DAILY, *keys)
        catalog.fail(build, "no rate")
        catalog.release(build)

    finish(catalog, begin(catalog, DAILY, day(1), day(2)))
    fail(day(1), day(2))
    assert failed() == 2
    withdraw(catalog, day(1))
    assert failed() == 1
    # It is asked for again, and fails again.
    fail(day(1))
    assert failed() == 2


def test_to_a_partition_that_grows_a_run_has_written_its_own_part(catalog: Catalog) -> None:
    finish(catalog, begin(catalog, DAILY, day(1)))
    names = ("varve_rows_written_total", "varve_bytes_written_total")
    of_daily = {"dataset": "p.daily", "outcome": "succeeded"}
    before = [value(samples(catalog), name, **of_daily) or 0 for name in names]
    build = begin(catalog, DAILY, day(1))
    parts = (Part(build.batch_id, "/lake/b", 3, 30),)
    catalog.staged(build, [StagedBatch(day(1), "/lake/b", 13, 130, 2, parts=parts)])
    catalog.publish(build)
    catalog.release(build)
    assert [value(samples(catalog), name, **of_daily) for name in names] == [before[0] + 3, before[1] + 30]


def test_what_had_failed_of_a_dropped_dataset_is_no_partition_that_failed(catalog: Catalog) -> None:
    failed = begin(catalog, DAILY, day(1))
    catalog.fail(failed, "no rate")
    catalog.release(failed)
    assert value(samples(catalog), "varve_partitions", dataset="p.daily", state="failed") == 1
    Drops(catalog.connection).drop("p.daily", by="ann")
    states = {dict(labels).get("state") for name, labels in samples(catalog) if name == "varve_partitions"}
    assert "failed" not in states


def test_a_build_that_goes_on_is_in_flight_and_has_a_lease(catalog: Catalog) -> None:
    build = begin(catalog, DAILY, day(1))
    Leases(catalog.connection).take("run", "me", 30)
    found = samples(catalog)
    assert value(found, "varve_partitions", dataset="p.daily", state="building") == 1
    assert value(found, "varve_leases", state="held") == 1
    assert value(found, "varve_leases", state="lost") == 0
    catalog.release(build)


def test_what_was_rejected_says_since_when(catalog: Catalog) -> None:
    catalog.connection.execute(
        "insert into varve.rejected_arrival (dataset, uri, kind, reason, bytes, stamp, declared, since)"
        " values ('p.daily', %s, %s, '', 1, '', '', clock_timestamp() - interval '1 hour')",
        (HOSTILE, HOSTILE),
    )
    found = samples(catalog)
    assert value(found, "varve_rejected_arrivals", dataset="p.daily", kind=HOSTILE) == 1
    age = value(found, "varve_rejected_arrival_age_seconds", dataset="p.daily", kind=HOSTILE)
    assert age == pytest.approx(3_600, abs=60)
    assert "varve_fake" not in {name for name, _ in found}


def test_ticks_are_those_of_the_sensors(catalog: Catalog) -> None:
    (now,) = catalog.connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone() or (0,)
    ticks = [
        SensorTicks(HOSTILE, running=True, last=now - 90, recent={"success": 3, "failure": 1}),
        SensorTicks("downstream", running=False, last=None, recent={}),
    ]
    found = samples(catalog, ticks)
    assert value(found, "varve_tick_age_seconds", sensor=HOSTILE) == pytest.approx(90, abs=30)
    assert value(found, "varve_tick_age_seconds", sensor="downstream") is None
    assert value(found, "varve_ticks_recent", sensor=HOSTILE, status="failure") == 1
    assert value(found, "varve_sensor_running", sensor="downstream") == 0


def test_captures_are_there_once_a_table_is_captured(catalog: Catalog) -> None:
    assert not [name for name, _ in samples(catalog) if name.startswith("varve_capture")]
    Positions(catalog.connection).ensure_schema()
    catalog.connection.execute(
        "insert into varve.cdc_position (dataset, source, state, captured_at, quarantined)"
        " values ('p.planes', 'planes', 'stopped', clock_timestamp() - interval '2 hours', 5)"
    )
    found = samples(catalog)
    assert value(found, "varve_capture_lag_seconds", dataset="p.planes") == pytest.approx(7_200, abs=60)
    assert value(found, "varve_capture_running", dataset="p.planes", state="stopped") == 0
    assert value(found, "varve_capture_quarantined_events", dataset="p.planes") == 5


def test_a_reader_that_waits_is_seen_while_it_waits(catalog: Catalog, fresh_database: str) -> None:
    with (
        psycopg.connect(fresh_database) as holder,
        psycopg.connect(fresh_database, autocommit=True, application_name="psql") as reader,
    ):
        holder.execute("create table public.held (n int)")
        holder.commit()
        holder.execute("lock table public.held in access exclusive mode")
        waiting = threading.Thread(target=lambda: reader.execute("select * from public.held"))
        waiting.start()
        found: dict[Sample, float] = {}
        for _ in range(200):
            found = samples(catalog)
            if value(found, "varve_waiting_sessions", who="reader"):
                break
            catalog.connection.execute("select pg_sleep(0.05)")
        assert value(found, "varve_waiting_sessions", who="reader") == 1
        assert value(found, "varve_waiting_sessions", who="varve") == 0
        holder.rollback()
        waiting.join()
    assert value(samples(catalog), "varve_waiting_sessions", who="reader") == 0


def test_a_restart_loses_nothing(catalog: Catalog, fresh_database: str) -> None:
    finish(catalog, begin(catalog, DAILY, day(1)))
    with psycopg.connect(fresh_database, autocommit=True) as another:
        fresh = samples(Catalog(another))
    assert value(fresh, "varve_runs_total", dataset="p.daily", outcome="succeeded") == 1


def test_every_metric_of_the_dashboard_is_one_that_there_is(catalog: Catalog) -> None:
    Positions(catalog.connection).ensure_schema()
    text = exposition(catalog.connection).decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    there = {
        *kinds,
        *(f"{name}_{end}" for name, kind in kinds.items() if kind == "summary" for end in ("sum", "count")),
    }
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries += [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    shown = {name for query in queries for name in re.findall(r"\bvarve_\w+", query)}
    assert shown - there == set()
    # And nothing that is there is forgotten.
    whole = {re.sub(r"_(sum|count)$", "", name) if name not in kinds else name for name in shown}
    assert set(kinds) - whole == set()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
