"""The last ticks of sensors, as Dagster keeps them."""

from __future__ import annotations

import time

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType  # noqa: TID251 - what the daemon writes
from dagster._core.remote_origin import (  # noqa: TID251
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (  # noqa: TID251
    InstigatorState,
    InstigatorStatus,
    SensorInstigatorData,
    TickData,
    TickStatus,
)

from varve.dagster.automation.ticks import last_ticks


def ticked(
    instance: dg.DagsterInstance,
    name: str,
    status: InstigatorStatus,
    ticks: dict[float, TickStatus],
    *,
    location: str = "shop",
) -> None:
    """Let a sensor have had these ticks, by their times, as the daemon notes them."""
    origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "repository"), name)
    data = SensorInstigatorData()
    state = InstigatorState(origin, InstigatorType.SENSOR, status, data)
    instance.add_instigator_state(state)
    for at, outcome in ticks.items():
        instance.create_tick(
            TickData(
                state.instigator_origin_id,
                name,
                InstigatorType.SENSOR,
                outcome,
                at,
                run_ids=[],
                selector_id=state.selector_id,
            )
        )


def test_the_last_tick_and_those_of_ten_minutes_are_told_by_sensor() -> None:
    now = time.time()
    with dg.instance_for_test() as instance:
        assert last_ticks(instance) == []
        ticked(
            instance, "downstream", InstigatorStatus.RUNNING,
            {now - 3_600: TickStatus.SUCCESS, now - 60: TickStatus.SUCCESS, now - 5: TickStatus.STARTED},
        )  # fmt: skip
        ticked(instance, "arrivals", InstigatorStatus.STOPPED, {now - 7_200: TickStatus.SUCCESS})
        ticked(instance, "retirement", InstigatorStatus.RUNNING, {})
        arrivals, downstream, retirement = last_ticks(instance)
    assert (arrivals.name, arrivals.running, arrivals.last, dict(arrivals.recent)) == (
        "arrivals", False, now - 7_200, {},
    )  # fmt: skip
    assert (downstream.running, downstream.last) == (True, now - 5)
    assert dict(downstream.recent) == {"success": 1, "started": 1}
    assert retirement.last is None


def test_a_sensor_of_a_code_location_that_has_another_name_now_is_told_once() -> None:
    now = time.time()
    with dg.instance_for_test() as instance:
        ticked(instance, "arrivals", InstigatorStatus.RUNNING, {now - 7_200: TickStatus.SUCCESS}, location="before")
        ticked(instance, "arrivals", InstigatorStatus.STOPPED, {now - 60: TickStatus.SUCCESS})
        ticked(instance, "arrivals", InstigatorStatus.RUNNING, {}, location="never looked")
        (arrivals,) = last_ticks(instance)
    assert (arrivals.running, arrivals.last) == (False, now - 60)
