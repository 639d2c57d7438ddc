"""Applying to partitions: only those whose rows differ are published, all of them at once with the position."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from tests.cdc.lab import DEFAULT, UNKEYED
from tests.support.project import PROJECT
from varve.dagster.assets.datasets import captured_asset, dataset_asset, graph_of
from varve.dagster.automation.reconciling import Reconciler
from varve.model.batch import Input
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import BadInput
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.time_columns import TimeColumn
from varve.model.schema import Column, ColumnType, Schema
from varve.stores.folders.layout import Layout
from varve.stores.lake.store import LakeStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cdc.lab import Lab
    from varve.planning.graph import Graph

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def published(lab: Lab) -> set[str]:
    """The partitions that are published when what was done since is captured and applied."""
    assert lab.capture() is not None
    done = lab.apply()
    assert done is not None
    assert lab.in_lake() == lab.in_source()
    return {batch.partition.path for batch in done.published}


def test_only_partitions_whose_rows_differ_are_published(lab: Lab) -> None:
    lab.sql("insert into {t} (w, id, note) select 1, i, 'old' from generate_series(0, 6) i")
    lab.bootstrap()
    assert lab.apply() is not None
    # 37: of a row that moves to another partition, the old and the new one.
    lab.sql("update {t} set id = 10 where id = 1")
    assert published(lab) == {"part=1", "part=2"}
    # 38: what changes nothing publishes nothing, and is not looked at again.
    lab.sql("update {t} set note = note")
    assert published(lab) == set()
    assert lab.apply() is None
    # A partition that loses its last rows becomes empty, not stale.
    lab.sql("delete from {t} where mod(id, 4) = 3")
    assert published(lab) == {"part=3"}
    with lab.catalog() as catalog:
        assert catalog.current(lab.captured.dataset.name)["part=3"].rows == 0
    # A new snapshot of the same rows publishes nothing either.
    lab.bootstrap(resnapshot=True)
    done = lab.apply()
    assert done is not None
    assert done.published == ()


def due(lab: Lab, graph: Graph) -> dict[str, set[str]]:
    """What the planner would run now, by dataset."""
    paths_due: dict[str, set[str]] = {}
    with lab.catalog() as catalog, dg.DagsterInstance.ephemeral() as instance:
        for run in Reconciler(graph, PROJECT).tick(catalog.connection, instance, lab.settings).runs:
            paths_due.setdefault(run.dataset.name, set()).update(key.path for key in run.partitions)
    return paths_due


def compute(lab: Lab, reader: Dataset, code_version: str) -> None:
    """What a run of the reader does, for all partitions that its upstream has."""
    with lab.catalog() as catalog:
        store, upstream = LakeStore(Layout(lab.settings.lake), catalog, lab.spark), lab.captured.dataset
        current = catalog.current(upstream.name)
        keys = [upstream.partitioning.from_path(path) for path in current]
        build = catalog.begin(reader, keys, run_id="test", code_version=code_version)
        for path, batch in current.items():
            build.reads(upstream.partitioning.from_path(path), Input(upstream.name, path, str(batch.batch_id.millis)))
        staged = store.stage(build, store.read(upstream, list(current.values())).select("id", "part"))
        catalog.staged(build, staged)
        with catalog.connection.transaction():
            catalog.publish(build)
        catalog.release(build)


def test_what_reads_the_dataset_becomes_due_where_its_rows_have_changed(lab: Lab) -> None:
    upstream = lab.captured.dataset
    reader = Dataset(
        name=f"{upstream.db}.ids",
        comment="What is derived from it.",
        partitioning=upstream.partitioning,
        schema=Schema((Column("id", ColumnType.INT),)),
        store=StoreKind.LAKE,
    )

    @dataset_asset(reader, reads={"copy": upstream})
    def ids(context, copy):
        return copy

    graph = graph_of([captured_asset(lab.captured), ids])
    lab.sql("insert into {t} (w, id) select 1, i from generate_series(0, 7) i")
    lab.bootstrap()
    assert due(lab, graph) == {}
    assert lab.apply() is not None
    every = {f"part={part}" for part in range(4)}
    # The captured dataset itself is nobody's to run but its job's.
    assert due(lab, graph) == {reader.name: every}
    compute(lab, reader, ids.code_version)
    assert due(lab, graph) == {}
    lab.sql("update {t} set note = note where id = 1")
    lab.sql("update {t} set id = 10 where id = 3")
    assert published(lab) == {"part=2", "part=3"}
    assert due(lab, graph) == {reader.name: {"part=2", "part=3"}}


IN_PARTS = (TimeColumn("day", "%Y%m%d", ColumnType.INT), TimeColumn("hh", "%H"))
AS_A_MOMENT = (TimeColumn("begins", "%s", ColumnType.TIMESTAMP),)


@pytest.mark.parametrize(
    ("columns", "partition_by", "paths"),
    [
        (
            IN_PARTS,
            {"day": "cast(date_format(at, 'yyyyMMdd') as int)", "hh": "date_format(at, 'HH')"},
            ("day=20130105/hh=07", "day=20130105/hh=23"),
        ),
        (
            AS_A_MOMENT,
            {"begins": "date_trunc('HOUR', at)"},
            ("begins=2013-01-05 07%3A00%3A00", "begins=2013-01-05 23%3A00%3A00"),
        ),
    ],
    ids=["in several columns", "as a moment"],
)
def test_windows_are_partitions_however_their_columns_spell_them(
    lab: Lab, columns: tuple[TimeColumn, ...], partition_by: dict[str, str], paths: tuple[str, str]
) -> None:
    hours = replace(TimeDimension.of("hour", "@hourly", "2013-01-05"), columns=columns)
    dataset = replace(lab.captured.dataset, partitioning=Partitioning((hours,)))
    lab.captured = replace(lab.captured, dataset=dataset, partition_by=partition_by)
    lab.sql("insert into {t} (w, id, at) values (1, 1, '2013-01-05 07:30Z'), (1, 2, '2013-01-05 07:59:59.999999Z')")
    lab.bootstrap()
    done = lab.apply()
    assert done is not None
    assert {batch.partition.path for batch in done.published} == {paths[0]}
    # A row moves to another window.
    lab.sql("update {t} set at = '2013-01-05 23:30Z' where id = 2")
    lab.capture()
    done = lab.apply()
    assert done is not None
    assert {batch.partition.path: batch.rows for batch in done.published} == {paths[0]: 1, paths[1]: 1}
    lab.sql("insert into {t} (w, id, at) values (1, 3, '2012-12-31 00:00Z')")
    lab.capture()
    with pytest.raises(BadInput, match=f"rows belong to partitions that it does not have: {columns[0].name}=2012"):
        lab.apply()


@pytest.mark.parametrize("kind", [DEFAULT, UNKEYED])
def test_a_capture_that_lost_its_lock_and_ends_late_repeats_nothing(make_lab: Callable[..., Lab], kind: str) -> None:
    lab = make_lab(kind)
    lab.bootstrap()
    lab.apply()
    for number in (1, 2):
        lab.sql(f"insert into {{t}} values (1, {number}, 'new', 1, now(), true, 1, 'x')")
    overtaken = []

    def others_go_on(step: str) -> None:
        """Both changes are read; before they are durable, another process captures and applies the first one."""
        if step == "write":
            overtaken.append(lab.capture(most=1))
            lab.apply()

    late = lab.capture(step=others_go_on)
    assert [batch.counts.events for batch in (*overtaken, late) if batch is not None] == [1, 2]
    lab.apply()
    assert lab.in_lake() == lab.in_source()
