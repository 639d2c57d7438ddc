"""Dagster's runs in the planner: runs that have not started are in flight, runs that ended silently are retried."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from typing import TYPE_CHECKING

import dagster as dg
import pendulum
import pytest

from assets.flights import DELAYS, DEPARTURES
from pipeline_defs.definitions import graph
from tests.support.project import PROJECT
from varve.catalog.history.history import History
from varve.dagster.automation.reconciling import (
    FORMER_IDENTITY_TAG,
    Ended,
    Reconciler,
    ended_runs,
    looked_up,
    runs_in_flight,
)
from varve.dagster.automation.sensors import downstream_sensor, run_request
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import Policy
from varve.planning.graph import Graph
from varve.planning.judgement.judgement import State
from varve.planning.judgement.judging import RetryLimits
from varve.planning.reconcile import Limits, reconcile
from varve.planning.requested import FULL_REASON_TAG, RANGE_END_TAG, RANGE_START_TAG, REASON_TAG
from varve.planning.run_requests import Due, Run, runs
from varve.services.postgres import connect

if TYPE_CHECKING:
    from varve.catalog.catalog import Catalog
    from varve.services.settings import Settings

DAYS = [PartitionKey.of(day=dt.date(2013, 1, day)) for day in (1, 2, 3)]


def planned() -> Run:
    (run,) = runs(DEPARTURES, [Due(key, frozenset(), "missing") for key in DAYS], limit=10)
    return run


def record(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, tags: dict[str, str], table: str) -> str:
    """Store a run in Dagster's instance."""
    run = dg.DagsterRun(
        job_name="__ASSET_JOB", run_id=str(uuid.uuid4()), status=status, tags=tags,
        asset_selection=frozenset({dg.AssetKey(["flights", table])}),
    )  # fmt: skip
    return instance.add_run(run).run_id


def test_a_run_of_a_range_that_has_not_started_has_all_of_its_partitions_in_flight() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run_id = record(instance, dg.DagsterRunStatus.NOT_STARTED, dict(run_request(planned()).tags), "departures")
        assert runs_in_flight(graph, instance) == {DEPARTURES.name: {key.path: run_id for key in DAYS}}


def test_a_run_by_hand_or_of_a_backfill_is_in_flight_and_one_that_ended_is_not() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run_id = record(instance, dg.DagsterRunStatus.STARTED, {"dagster/partition": "2013-01-05|EWR"}, "delays")
        record(instance, dg.DagsterRunStatus.SUCCESS, {"dagster/partition": "2013-01-06|EWR"}, "delays")
        record(instance, dg.DagsterRunStatus.STARTED, {"dagster/partition": "no partition"}, "delays")
        assert runs_in_flight(graph, instance) == {DELAYS.name: {"day=2013-01-05/origin=EWR": run_id}}


def test_a_run_of_a_whole_job_which_names_no_assets_is_in_flight_like_one_that_names_them() -> None:
    @dg.asset(key=["flights", "departures"], partitions_def=dg.DailyPartitionsDefinition("2013-01-01"))
    def departures() -> None: ...

    @dg.asset(partitions_def=departures.partitions_def)
    def no_dataset() -> None: ...

    jobs = [
        dg.define_asset_job("both", selection=[departures, no_dataset]),
        dg.define_asset_job("other", selection=[no_dataset]),
    ]
    defs = dg.Definitions([departures, no_dataset], jobs=jobs)
    with dg.DagsterInstance.ephemeral() as instance:
        both, _ = (
            instance.create_run_for_job(
                defs.resolve_job_def(name), tags={"dagster/partition": "2013-01-02"}, status=dg.DagsterRunStatus.STARTED
            )
            for name in ("both", "other")
        )
        assert both.asset_selection is None
        assert runs_in_flight(graph, instance) == {DEPARTURES.name: {"day=2013-01-02": both.run_id}}


def test_a_run_that_counts_as_dead_is_not_in_flight_and_dagster_is_told(
    settings: Settings, fresh_database: str
) -> None:
    quick = settings.model_copy(update={"postgres_url": fresh_database})
    with dg.DagsterInstance.ephemeral() as instance, connect(quick) as connection:
        tags = {"dagster/partition": "2013-01-05|EWR"}
        run_id = record(instance, dg.DagsterRunStatus.STARTED, tags, "delays")
        reconciler, seen = (
            Reconciler(graph, PROJECT),
            [looked_up(graph, connection, instance, PROJECT.settings)[0].in_flight],
        )
        for _ in range(3):
            connection.execute(
                "update varve.lease set expires_at = expires_at - interval '1 h', "
                "missed_at = missed_at - interval '1 h'"
            )
            reconciler.tick(connection, instance, settings)
            seen.append(looked_up(graph, connection, instance, PROJECT.settings)[0].in_flight)
        ended = instance.get_run_by_id(run_id)
    # The run is seen without a lease, then late, then late again.
    assert [bool(in_flight.get(DELAYS.name)) for in_flight in seen] == [True, True, False, False]
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE])
def test_a_run_that_ended_without_a_word_is_asked_for_again_under_another_key(status: dg.DagsterRunStatus) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        first = run_request(planned())
        assert ended_runs([planned().identity], instance) == {}
        record(instance, status, dict(first.tags), "departures")
        ended_run = ended_runs([planned().identity], instance)[planned().identity]
        assert (ended_run.count, ended_run.in_vain) == (1, 1)
        assert run_request(planned(), ended_run).run_key != first.run_key


def test_deleted_runs_leave_no_run_key_that_dagster_knows_already() -> None:
    """Dagster would launch nothing for it, silently, at each tick."""
    with dg.DagsterInstance.ephemeral() as instance:
        run_ids, keys = list[str](), list[str]()

        def ask() -> None:
            request = run_request(planned(), ended_runs([planned().identity], instance).get(planned().identity))
            assert request.run_key
            keys.append(request.run_key)
            run_ids.append(record(instance, dg.DagsterRunStatus.FAILURE, dict(request.tags), "departures"))

        for _ in range(3):
            ask()
        for deleted in (0, 1, 3):
            instance.delete_run(run_ids[deleted])
            ask()
        assert len(set(keys)) == len(keys)


def test_a_run_that_waits_or_works_is_none_that_ended_and_is_not_asked_for_again() -> None:
    reconciler, identity = Reconciler(graph, PROJECT), planned().identity
    with dg.DagsterInstance.ephemeral() as instance:
        tags = dict(run_request(planned()).tags)
        # Dagster launches a run that it has only created when the sensor asks for the same run key again.
        record(instance, dg.DagsterRunStatus.NOT_STARTED, tags, "departures")
        assert ended_runs([identity], instance) == {}
        record(instance, dg.DagsterRunStatus.SUCCESS, tags, "departures")
        assert reconciler.tries_again(ended_runs([identity], instance)[identity])
        for status in (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED):
            record(instance, status, tags, "departures")
            waiting = ended_runs([identity], instance)[identity]
            assert (waiting.count, waiting.unfinished) == (1, True)
            assert not reconciler.tries_again(waiting)


def test_runs_that_end_without_a_word_are_failures_after_which_the_partition_is_given_up(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_BACKOFF_SECONDS", "0.001")
    letters = Partitioning((StaticDimension("letter", ("a", "b")),))
    alone = Dataset(
        f"t{uuid.uuid4().hex[:8]}.alone", letters, DEPARTURES.schema, StoreKind.LAKE, "", policy=Policy(by_itself=True)
    )
    alone_graph = Graph({alone.name: alone}, {alone.name: ()}, {})
    sensor = downstream_sensor(alone_graph, PROJECT)
    key = dg.AssetKey(alone.name.split("."))
    requested: list[list[str]] = []
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(20):
            with dg.build_sensor_context(instance) as context:
                result = sensor(context)
            requests = list(result.run_requests or ()) if isinstance(result, dg.SensorResult) else []
            requested.append([request.tags[REASON_TAG] for request in requests])
            for request in requests:
                # It was cancelled in the queue, or its pod could not be started.
                status = dg.DagsterRunStatus.CANCELED
                instance.add_run(
                    dg.DagsterRun("job", status=status, tags=dict(request.tags), asset_selection=frozenset({key}))
                )
        facts, _ = looked_up(alone_graph, catalog.connection, instance, PROJECT.settings)
        judged = reconcile(alone_graph, facts, now=pendulum.now("UTC")).judgements[alone.name]
    # Both together, then each alone as often as any other failure: every second look only notes what has ended.
    assert [len(reasons) for reasons in requested] == [1, 0, 2, 0, 2, 0, 2, *[0] * 13]
    assert {path: judgement.state for path, judgement in judged.items()} == dict.fromkeys(judged, State.FAILED)
    assert len(judged) == 2
    (failure,) = {batch.failure for batch in History(catalog.connection).batches(alone.name)[:1]}
    assert "ended (canceled) before it could note why" in str(failure)


def test_runs_that_an_earlier_version_has_stored_count_like_those_of_this_one() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        former = {FORMER_IDENTITY_TAG: planned().identity, "varve/dataset": DEPARTURES.name}
        record(instance, dg.DagsterRunStatus.FAILURE, former, "departures")
        record(instance, dg.DagsterRunStatus.SUCCESS, dict(run_request(planned()).tags), "departures")
        ended_run = ended_runs([planned().identity], instance)[planned().identity]
    assert (ended_run.count, ended_run.in_vain) == (2, 1)


def test_a_person_sees_the_partitions_and_the_reason_of_a_run_and_no_tag_that_only_varve_reads() -> None:
    shown = {tag: text for tag, text in run_request(planned()).tags.items() if not tag.startswith(".dagster/")}
    assert shown == {
        RANGE_START_TAG: "2013-01-01",
        RANGE_END_TAG: "2013-01-03",
        REASON_TAG: "2013-01-01...03 (3): missing",
        FULL_REASON_TAG: "2013-01-01...2013-01-03 (3 partitions): missing",
    }


def test_what_ends_without_a_word_backs_off_and_is_given_up() -> None:
    reconciler = Reconciler(graph, PROJECT, Limits(RetryLimits(attempts=3, first=60.0)))
    now = time.time()
    assert reconciler.tries_again(Ended(count=1, in_vain=0))
    assert not reconciler.tries_again(Ended(count=1, in_vain=1, last=now - 50))
    assert reconciler.tries_again(Ended(count=1, in_vain=1, last=now - 70))
    assert not reconciler.tries_again(Ended(count=2, in_vain=2, last=now - 70))
    assert not reconciler.tries_again(Ended(count=3, in_vain=3, last=0.0))
    # What only puts things in order is asked for as long as it takes.
    assert reconciler.tries_again(Ended(count=3, in_vain=3, last=0.0), gives_up=False)
    assert not reconciler.tries_again(Ended(count=3, in_vain=3, last=now - 70), gives_up=False)
