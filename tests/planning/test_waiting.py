"""Wait policies: Airflow's, and a deadline after which a partition is made of what is there."""

from __future__ import annotations

import datetime as dt

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planning.known import CatalogReader
from varve.model.batch import Input
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import Dimension, TimeDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import Reads, Wait
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import Graph
from varve.planning.judgement.facts import Fact
from varve.planning.judgement.wait_policy import verdict
from varve.planning.reconcile import reconcile

END = pendulum.datetime(2024, 6, 11)
HOUR = dt.timedelta(hours=1)


@pytest.mark.parametrize(
    ("wait", "present", "wanted", "ready"),
    [
        (Wait(), 23, 24, False),
        (Wait(), 24, 24, True),
        (Wait(), 0, 0, True),
        (Wait(at_least=2), 1, 3, False),
        (Wait(at_least=2), 2, 3, True),
        (Wait(missing=1), 1, 3, False),
        (Wait(missing=1), 2, 3, True),
        # Airflow calls it unreachable and waits for ever; all of them are as many as there can be.
        (Wait(at_least=30), 23, 24, False),
        (Wait(at_least=30), 24, 24, True),
        # Nothing at all is never enough to compute from.
        (Wait(at_least=0), 0, 3, False),
        (Wait(missing=5), 0, 3, False),
        (Wait(missing=5), 1, 3, True),
    ],
)
def test_a_policy_is_content_with_as_many_as_it_says(wait: Wait, present: int, wanted: int, ready: bool) -> None:  # noqa: FBT001
    assert verdict(wait, wanted=wanted, present=present).ready is ready


@pytest.mark.parametrize(
    ("now", "present", "ready"),
    [
        (END + HOUR - dt.timedelta(seconds=1), 3, False),
        (END + HOUR, 3, True),
        (END + 2 * HOUR, 3, True),
        (END + 2 * HOUR, 0, False),
        (END - HOUR, 24, True),
    ],
)
def test_a_deadline_counts_from_the_end_of_the_window(now: dt.datetime, present: int, ready: bool) -> None:  # noqa: FBT001
    wait_verdict = verdict(Wait(deadline=HOUR), wanted=24, present=present, window_end=END, now=now)
    assert wait_verdict.ready is ready


def test_a_verdict_says_how_many_are_there_and_what_it_waits_for() -> None:
    assert verdict(Wait(missing=2), wanted=24, present=20).reason == "20 of 24 there; waits for 22"
    late = verdict(Wait(deadline=HOUR), wanted=24, present=20, window_end=END, now=END)
    assert late.reason == "20 of 24 there; waits until 2024-06-11T01:00:00+00:00"


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_more_that_is_there_never_makes_a_partition_wait(wanted: int, present: int, more: int, count: int) -> None:
    for wait in (Wait(), Wait(at_least=count), Wait(missing=count)):
        if verdict(wait, wanted=wanted, present=min(present, wanted)).ready:
            assert verdict(wait, wanted=wanted, present=min(present + more, wanted)).ready
    assert verdict(Wait(at_least=count), wanted=wanted, present=wanted).ready


def dataset(name: str, *dimensions: Dimension) -> Dataset:
    schema = Schema((Column("sold", ColumnType.BIGINT),))
    return Dataset(f"t.{name}", Partitioning(dimensions), schema, StoreKind.LAKE, "One row per sale.")


HOURS = dataset("hours", TimeDimension.of("hour", "@hourly", "2024-06-10", "2024-06-12"))
DAYS = dataset("days", TimeDimension.of("day", "@daily", "2024-06-10", "2024-06-12"))


@pytest.mark.parametrize(
    ("wait", "now", "made"),
    [
        (Wait(), END, 0),
        (Wait(at_least=3), END, 3),
        (Wait(missing=21), END, 3),
        (Wait(missing=20), END, 0),
        (Wait(deadline=HOUR), END, 0),
        (Wait(deadline=HOUR), END + HOUR, 3),
    ],
)
def test_a_day_is_made_of_the_hours_that_are_there_when_it_waits_no_more(
    wait: Wait, now: dt.datetime, made: int
) -> None:
    graph = Graph({HOURS.name: HOURS, DAYS.name: DAYS}, {DAYS.name: (Reads(HOURS, wait=wait),)}, {})
    published_hours = {f"hour=2024-06-10T{hour:02}": Fact(batch=1 + hour, published=1.0) for hour in range(3)}
    plan = reconcile(graph, CatalogReader({HOURS.name: published_hours}), now=now)
    inputs = frozenset(Input(HOURS.name, path, str(fact.batch)) for path, fact in published_hours.items())
    inputs_of_run = {run.partitions: run.inputs for run in plan.runs if run.dataset is DAYS}
    assert inputs_of_run == ({(PartitionKey.of(day=dt.date(2024, 6, 10)),): inputs} if made else {})
