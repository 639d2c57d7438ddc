"""`varve retire` on real stores: partitions that left the graph are hidden from readers, and nothing is deleted."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pendulum
import pytest

from tests.support.project import commands_on
from tests.support.sales import DAY, key, sales_dataset
from varve.cli.batches import hosts, rollback
from varve.cli.batches.doctor import doctor
from varve.cli.plan import retire
from varve.dagster.instance import dagster_home
from varve.model.dataset import StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.planning.graph import Graph

if TYPE_CHECKING:
    from tests.support.workbench import Workbench
    from varve.model.dataset import Dataset


def declare(patch: pytest.MonkeyPatch, dataset: Dataset) -> None:
    """Make the dataset the only one of the project."""
    commands_on(Graph({dataset.name: dataset}, {dataset.name: ()}, {}), patch)


@pytest.mark.spark
@pytest.mark.parametrize("kind", [StoreKind.LAKE, StoreKind.WAREHOUSE])
def test_a_key_that_left_the_graph_is_retired_and_its_batch_kept(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch, kind: StoreKind
) -> None:
    # The command sets these variables; monkeypatch removes them after the test.
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home(workbench.settings)))
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "100")
    before = sales_dataset(kind)
    keys = [key("Detroit"), key("Paris")]
    workbench.publish(before, keys, [(keys[0], "tea", 1), (keys[1], "tea", 2)])
    after = replace(before, partitioning=Partitioning((DAY, StaticDimension("store", ("Paris",)))))
    declare(monkeypatch, after)
    gone = [{"dataset": after.name, "partition": keys[0].path,
             "reason": "the graph has no such partition any more; to be retired"}]  # fmt: skip

    assert retire.retire(None, dry_run=True) == gone
    assert set(workbench.current(after)) == {keys[0].path, keys[1].path}
    assert retire.retire(None, dry_run=False) == gone
    assert set(workbench.current(after)) == {keys[1].path}
    assert workbench.read(after) == [(dt.date(2013, 1, 5), "Paris", "tea", 2)]
    # The rows of the retired partition stay until a sweep deletes them.
    with closing(workbench.catalog().connection) as connection:
        states = connection.execute(
            "select state from varve.batch where dataset = %s and partition = %s", (after.name, keys[0].path)
        ).fetchall()
    assert states == [("retired",)]
    assert retire.retire(None, dry_run=False) == []


@pytest.mark.spark
@pytest.mark.parametrize("kind", [StoreKind.LAKE, StoreKind.WAREHOUSE])
def test_a_rollback_takes_keys_that_left_the_graph_back_with_the_others(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch, kind: StoreKind
) -> None:
    before = sales_dataset(kind)
    keys = [key("Detroit"), key("Paris", 4), key("Paris")]
    workbench.publish(before, keys, [(each, "tea", sold) for sold, each in enumerate(keys, 1)])
    with closing(workbench.catalog().connection) as connection:
        ((then,),) = connection.execute("select clock_timestamp()").fetchall()
    workbench.publish(before, keys, [(each, "tea", sold) for sold, each in enumerate(keys, 10)])
    later = replace(DAY, start=pendulum.datetime(2013, 1, 5))
    after = replace(before, partitioning=Partitioning((later, StaticDimension("store", ("Paris",)))))
    declare(monkeypatch, after)

    plans = rollback.plan_time(after.name, (), then)
    assert [list(plan.moves) for plan in plans] == [sorted(each.path for each in keys)]
    rollback.carry_out(plans, reason="the second was wrong", withdraw=False)
    days = [dt.date(2013, 1, 4), dt.date(2013, 1, 5)]
    expected = [(days[0], "Paris", "tea", 2), (days[1], "Detroit", "tea", 1), (days[1], "Paris", "tea", 3)]
    assert workbench.read(before) == expected


@pytest.mark.spark
@pytest.mark.parametrize("kind", [StoreKind.LAKE, StoreKind.WAREHOUSE])
def test_a_dataset_without_a_declaration_is_retired_only_where_it_is_named(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch, kind: StoreKind
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home(workbench.settings)))
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "100")
    gone, left = sales_dataset(kind), sales_dataset(kind)
    keys = [key("Detroit"), key("Paris")]
    workbench.publish(gone, keys, [(keys[0], "tea", 1), (keys[1], "tea", 2)])
    declare(monkeypatch, left)
    assert retire.retire(None, dry_run=False) == []
    assert len(workbench.read(gone)) == 2
    retired = retire.retire(gone.name, dry_run=False)
    assert [partition["partition"] for partition in retired] == [partition_key.path for partition_key in keys]
    assert {partition["reason"] for partition in retired} == {"the code declares its dataset no more"}
    assert workbench.current(gone) == {}
    assert workbench.read(gone) == []
    with pytest.raises(VarveError, match="no dataset"):
        retire.retire(gone.name, dry_run=False)


@pytest.mark.spark
def test_a_dataset_that_is_being_built_keeps_no_other_from_being_retired(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home(workbench.settings)))
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "100")
    before = sorted((sales_dataset(StoreKind.LAKE) for _ in range(3)), key=lambda dataset: dataset.name)
    keys = [key("Detroit"), key("Paris")]
    for dataset in before:
        workbench.publish(dataset, keys, [(keys[0], "tea", 1), (keys[1], "tea", 2)])
    only_paris = Partitioning((DAY, StaticDimension("store", ("Paris",))))
    after = {dataset.name: replace(dataset, partitioning=only_paris) for dataset in before}
    commands_on(Graph(after, dict.fromkeys(after, ()), {}), monkeypatch)
    catalog, busy = workbench.catalog(), before[1]
    build = catalog.lock_partitions(busy, [keys[0]], run_id="somebody's")
    with pytest.raises(VarveError) as refused:
        retire.retire(None, dry_run=False)
    catalog.release(build)
    catalog.connection.close()
    assert f"1 partition of {before[0].name}, 1 partition of {before[2].name}. {busy.name} was not:" in str(
        refused.value
    )
    assert [len(workbench.current(dataset)) for dataset in before] == [1, 2, 1]


@pytest.mark.spark
def test_of_a_withdrawn_declaration_with_nothing_but_a_failed_batch_nothing_is_told(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home(workbench.settings)))
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "100")
    gone, left = sales_dataset(StoreKind.LAKE), sales_dataset(StoreKind.LAKE)
    catalog = workbench.catalog()
    build = workbench.begin(catalog, gone, [key("Paris")])
    catalog.fail(build, "its input was half a file")
    catalog.release(build)
    catalog.connection.close()
    declare(monkeypatch, left)
    assert [finding for finding in doctor(None).findings if finding.dataset == gone.name] == []
    assert [entry for entry in retire.retire(None, dry_run=True) if entry["dataset"] == gone.name] == []


@pytest.mark.parametrize(("seconds", "which"), [(-300, "300 s behind"), (300, "300 s ahead of"), (30, "")])
def test_the_doctor_says_how_far_the_clocks_are_apart(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch, seconds: int, which: str
) -> None:
    del workbench
    declare(monkeypatch, sales_dataset(StoreKind.WAREHOUSE))

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return dt.datetime.now(tz) + dt.timedelta(seconds=seconds)

    monkeypatch.setattr(hosts, "dt", SimpleNamespace(datetime=Clock, UTC=dt.UTC))
    problems = [finding.problem for finding in doctor(None).findings if "clock" in finding.problem]
    assert problems == ([f"the clock of this machine is {which} the one of PostgreSQL"] if which else [])
