"""A run that is cancelled while it publishes: what readers see, Dagster knows too, and nothing else begins."""

from __future__ import annotations

import os
import signal
import uuid
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from tests.dagster import group_run
from varve.dagster.internal.runs import held_interrupts
from varve.stores.lake.store import LakeStore

if TYPE_CHECKING:
    from tests.support.workbench import Workbench
    from varve.model.build import Build

pytestmark = pytest.mark.spark


@pytest.fixture
def cancelled_while(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lake's functions in which somebody presses Cancel, once; what has ended is in the list as well."""
    asked: list[str] = []
    for name in ("commit", "published"):
        original = getattr(LakeStore, name)

        def disturbed(store: LakeStore, *words: object, _name: str = name, _original: object = original) -> None:
            if _name in asked:
                asked.remove(_name)
                os.kill(os.getpid(), signal.SIGTERM)
                asked.append(f"{_name} went on")
            _original(store, *words)  # type: ignore[operator]

        monkeypatch.setattr(LakeStore, name, disturbed)
    monkeypatch.setenv(group_run.VERSION, "1")
    return asked


@pytest.mark.parametrize("step", ["commit", "published"])
def test_what_is_published_is_known_to_dagster_and_the_next_step_does_not_begin(
    step: str, workbench: Workbench, cancelled_while: list[str]
) -> None:
    db = f"c{uuid.uuid4().hex[:8]}"
    cancelled_while.append(step)
    with dg.DagsterInstance.ephemeral() as instance:
        with pytest.raises(dg.DagsterExecutionInterruptedError):
            group_run.job(db).execute_in_process(tags=group_run.tags(together=None), instance=instance)
        assert cancelled_while == [f"{step} went on"]
        (run,) = instance.get_runs()
        first = instance.get_materialized_partitions(dg.AssetKey([db, "lake_first"]))
        others = [instance.get_materialized_partitions(dg.AssetKey([db, name])) for name in group_run.TABLES[1:]]
        said = [record.user_message for record in instance.all_logs(run.run_id)]
    datasets = group_run.datasets(db)
    assert set(workbench.current(datasets["lake_first"])) == {f"day={day}" for day in group_run.DAYS}
    assert first == set(group_run.DAYS)
    assert others == [set(), set()]
    assert all(workbench.current(datasets[name]) == {} for name in group_run.TABLES[1:])
    assert sum("was being published when the run was cancelled" in message for message in said) == 1
    with dg.DagsterInstance.ephemeral() as instance:
        again = group_run.job(db).execute_in_process(tags=group_run.tags(together=None), instance=instance)
        assert again.success


def test_a_cancellation_is_not_forgotten_where_the_publish_fails() -> None:
    """Steps that do not depend on the failed one would go on."""
    told: list[str] = []

    def fails() -> None:
        with held_interrupts(lambda: told.append("cancelled")):
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("the publish fails")

    with pytest.raises(ValueError, match="the publish fails"):
        fails()
    assert told == ["cancelled"]
    with held_interrupts(lambda: told.append("again")):
        pass
    assert told == ["cancelled"]


def test_before_it_is_published_a_cancelled_run_publishes_nothing(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = f"c{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv(group_run.VERSION, "1")
    stage = LakeStore.stage

    def cancelled(store: LakeStore, build: Build, frame: object) -> object:
        staged = stage(store, build, frame)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        return staged

    monkeypatch.setattr(LakeStore, "stage", cancelled)
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.DagsterExecutionInterruptedError):
        group_run.job(db).execute_in_process(tags=group_run.tags(together=None), instance=instance)
    assert workbench.current(group_run.datasets(db)["lake_first"]) == {}
