"""Runs of a capture are asked for one at a time, and again after a failure, though nothing new was captured."""

from __future__ import annotations

import dagster as dg
import pytest
from dagster._core.remote_origin import (  # noqa: TID251 - a queued run cannot be made without
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from tests.support.project import PROJECT
from varve.dagster.assets import capture_runs
from varve.dagster.assets.capture_runs import why_not_asked

Status = dg.DagsterRunStatus


@dg.job
def capture_job() -> None:
    """Stands for the job of a captured table."""


@dg.job
def other_job() -> None:
    """That of another one."""


def put(instance: dg.DagsterInstance, status: Status, job: dg.JobDefinition = capture_job) -> dg.DagsterRun:
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
    run = dg.DagsterRun(job.name, status=status, remote_job_origin=RemoteJobOrigin(repository, job.name))
    return instance.add_run(run)


def why(instance: dg.DagsterInstance) -> str:
    return why_not_asked(instance, capture_job.name, PROJECT.settings)


@pytest.mark.parametrize("status", [Status.NOT_STARTED, Status.QUEUED, Status.STARTING, Status.STARTED])
def test_no_second_run_is_asked_for_while_one_waits_or_is_under_way(status: Status) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        put(instance, Status.STARTED, other_job)
        assert why(instance) == ""
        run = put(instance, status)
        assert why(instance).startswith(f"Run {run.run_id[:8]} is {status.value.lower().replace('_', ' ')}, ")
        instance.report_run_canceled(run)
        assert why(instance) == ""


def test_a_run_that_has_ended_without_a_word_holds_nobody_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks has had the lock, which such a run would hold. One in the queue has no process that could have ended."""
    with dg.DagsterInstance.ephemeral() as instance:
        put(instance, Status.NOT_STARTED)
        put(instance, Status.STARTED)
        assert why(instance)
        monkeypatch.setattr(capture_runs, "_OPENS_WITHIN", capture_runs._OPENS_WITHIN * 0)
        assert why(instance) == ""
        put(instance, Status.QUEUED)
        assert "is queued" in why(instance)


def test_after_a_failure_it_is_asked_for_again_and_each_time_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        put(instance, Status.SUCCESS)
        failed = put(instance, Status.FAILURE)
        assert why(instance).startswith(f"The last 1 run failed (run {failed.run_id[:8]} says why); the next is asked")
        put(instance, Status.FAILURE)
        assert why(instance).startswith("The last 2 runs failed")
        monkeypatch.setenv("VARVE_BACKOFF_SECONDS", "0")
        assert why(instance) == ""
        monkeypatch.delenv("VARVE_BACKOFF_SECONDS")
        # A person has ended one, or one has succeeded: what failed before that is over.
        put(instance, Status.CANCELED)
        assert why(instance) == ""
