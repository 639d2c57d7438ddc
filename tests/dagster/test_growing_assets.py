"""Growing weeks under the sensor: declared in SQL, closed when they are over, and opened again by a person."""

from __future__ import annotations

import datetime as dt
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pendulum
import pytest

from tests.dagster.test_sql_assets import rows
from tests.support.project import PROJECT
from varve.catalog.rejected import RejectedArrivals
from varve.cli.batches import reopen
from varve.dagster.assets.datasets import graph_of
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.automation.folding import REASON
from varve.dagster.automation.sensors import arrival_sensor
from varve.dagster.definitions import build_defs
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.landing.growth import Incremental
from varve.model.landing.options import LandingOptions
from varve.model.landing.rejection import RejectInto
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.model.store_options import Index, Period, WarehouseOptions
from varve.planning.arrivals.arrivals import Arrived, Sorter
from varve.planning.arrivals.landing_file import LandingFile, RejectionKind
from varve.planning.requested import FULL_REASON_TAG
from varve.services.postgres import connect
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.formatting import formatted
from varve.sql.syntax.header import parse
from varve.stores.warehouse import examine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.workbench import Workbench
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.services.settings import Settings

HEAD = """CREATE DATASET {db}.orders (product STRING, sold BIGINT)
  STORED IN WAREHOUSE
  PARTITIONED BY (week DATE)
  FOR t IN TIMESERIES(INTERVAL 1 WEEK, START '2026-09-07')
  LET week = CAST(t AS DATE)
  {clause}
EXTERNAL OPTIONS (files = 'week={{week}}/*.csv');
"""
WEEK = TimeDimension("week", Grain.WEEK, pendulum.datetime(2026, 9, 7))


def orders(db: str, clause: str) -> list[DatasetAsset]:
    return sql_assets(compiled([SourceFile("orders.sql", HEAD.format(db=db, clause=clause))], {}))


def send(folder: Path, name: str, sold: int, age: float = 60.0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.csv"
    path.write_text(f"product,sold\n{name},{sold}\n")
    then = pendulum.now("UTC").timestamp() - age
    os.utime(path, (then, then))


@dataclass
class Runner:
    """Ticks the arrival sensor of some datasets and executes the runs that it requests, in one Dagster instance."""

    assets: list[DatasetAsset]
    instance: dg.DagsterInstance

    def asked(self) -> list[dg.RunRequest]:
        """Tick the sensor, and return the runs that it requests."""
        sensor = arrival_sensor(graph_of(self.assets), PROJECT)
        with dg.build_sensor_context(self.instance) as context:
            result: Any = sensor(context)
        if isinstance(result, dg.SkipReason):
            assert "Nothing was looked at" not in str(result.skip_message)
            return []
        return list(result.run_requests)

    def ran(self) -> list[str]:
        """Tick the sensor and execute the runs that it requests; return the reason of each."""
        requests = self.asked()
        job = build_defs(self.assets).resolve_implicit_global_asset_job_def()
        for request in requests:
            done = job.execute_in_process(
                asset_selection=list(request.asset_selection or ()), partition_key=request.partition_key,
                tags=request.tags, instance=self.instance,
            )  # fmt: skip
            assert done.success
        return [request.tags[FULL_REASON_TAG].partition(": ")[2] for request in requests]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


@pytest.mark.spark
def test_a_week_grows_under_the_sensor_is_put_together_and_closed_and_a_person_opens_it_again(
    settings: Settings, workbench: Workbench, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = f"l{uuid.uuid4().hex[:8]}"
    assets = orders(db, "INCREMENTAL CLOSED AFTER 2 HOURS")
    graph, runner = graph_of(assets), Runner(assets, instance)
    monday = pendulum.now("UTC").start_of("week")
    # Not the week before this one: early on a Monday its two hours are not over.
    last = monday.subtract(weeks=2).to_date_string()
    folder = Path(settings.landing) / db / "orders"
    this = folder / f"week={monday.to_date_string()}"
    # In the open window each look takes every file that is there; then one more file comes.
    send(this, "h00", 1)
    send(this, "h01", 2)
    assert runner.ran() == ["orders arrived"]
    send(this, "h02", 3)
    assert runner.ran() == ["orders re-sent"]
    assert [row[:2] for row in rows(workbench, assets, f"{db}.orders")] == [("h00", 1), ("h01", 2), ("h02", 3)]
    assert runner.asked() == []
    # A window that was over before any file came takes its first files; then it is closed to late ones.
    send(folder / f"week={last}", "h00", 10)
    assert runner.ran() == ["orders arrived"]
    send(folder / f"week={last}", "h01", 11)
    assert runner.asked() == []
    with connect(settings) as connection:
        ((uri, late),) = RejectedArrivals(connection).of(f"{db}.orders").items()
    assert (uri.rsplit("/", 1)[-1], late.kind) == ("h01.csv", RejectionKind.CLOSED)
    assert f"varve reopen {db}.orders week={last}" in late.reason
    monkeypatch.setattr("varve.cli.selection.dataset_named", graph.datasets.__getitem__)
    monkeypatch.setattr(reopen, "dataset_named", graph.datasets.__getitem__)
    with pytest.raises(VarveError, match="is closed"):
        reopen.reopen(f"{db}.orders", [f"week={monday.to_date_string()}"], reason="", close=False, dry_run=False)
    opened = reopen.reopen(f"{db}.orders", [f"week={last}"], reason="a shop was late", close=False, dry_run=False)
    assert opened["partitions"] == [f"week={last}"]
    assert runner.ran() == ["orders re-sent"]
    # A run of its own folds the parts of a window that is over.
    assert runner.ran() == [REASON]
    assert runner.asked() == []
    reopen.reopen(f"{db}.orders", [f"week={last}"], reason="they all came", close=True, dry_run=False)
    send(folder / f"week={last}", "h00", 77)
    assert runner.asked() == []
    with connect(settings) as connection:
        assert [arrival.kind for arrival in RejectedArrivals(connection).of(f"{db}.orders").values()] == [
            RejectionKind.CLOSED
        ]
        assert len(examine.tables_under(connection, f"{db}.orders")) == 3
    assert sorted(row[:2] for row in rows(workbench, assets, f"{db}.orders")) == [
        ("h00", 1), ("h00", 10), ("h01", 2), ("h01", 11), ("h02", 3)
    ]  # fmt: skip


@pytest.mark.spark
def test_without_the_word_all_files_that_have_settled_make_one_new_batch_at_each_look(
    settings: Settings, workbench: Workbench, instance: dg.DagsterInstance
) -> None:
    db = f"l{uuid.uuid4().hex[:8]}"
    assets = orders(db, "COMMENT 'plain'")
    runner = Runner(assets, instance)
    monday = pendulum.now("UTC").start_of("week").to_date_string()
    folder = Path(settings.landing) / db / "orders" / f"week={monday}"
    for hours in ((0, 1, 2), (3,), (4, 5)):
        for hour in hours:
            send(folder, f"h{hour:02}", hour)
        assert len(runner.ran()) == 1
        assert [row[1] for row in rows(workbench, assets, f"{db}.orders")] == list(range(hours[-1] + 1))
        with connect(settings) as connection:
            assert len(examine.tables_under(connection, f"{db}.orders")) == 1
    assert runner.asked() == []


@pytest.mark.parametrize(
    ("clause", "incremental"),
    [
        ("INCREMENTAL", Incremental()),
        ("incremental closed after 2 hours", Incremental(dt.timedelta(hours=2))),
        ("INCREMENTAL CLOSED AFTER 1 DAY", Incremental(dt.timedelta(days=1))),
        ("COMMENT 'x'", None),
    ],
)
def test_the_header_says_whether_a_partition_grows_and_when_it_is_closed(
    clause: str, incremental: Incremental | None
) -> None:
    text = HEAD.format(db="shop", clause=clause)
    (asset,) = orders("shop", clause)
    assert asset.dataset.incremental == incremental
    assert parse(SourceFile("orders.sql", formatted(SourceFile("orders.sql", text)))).incremental == incremental
    # INCREMENTAL does not change the code version: partitions that were read are not computed again.
    assert asset.code_version == orders("shop", "COMMENT 'x'")[0].code_version


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        (HEAD.replace("week={{week}}/*.csv", "{{week}}.csv"), "it has no more than one"),
        (HEAD.replace("{clause}", "INCREMENTAL CLOSED AFTER 2"), "expected a unit"),
        (
            HEAD.replace("EXTERNAL OPTIONS (files = 'week={{week}}/*.csv')", "AS SELECT 'a' AS product, 1L AS sold"),
            "this dataset takes none: it is for EXTERNAL",
        ),
    ],
)
def test_what_cannot_grow_is_refused_with_its_place(text: str, expected_message: str) -> None:
    with pytest.raises(SqlErrors) as caught:
        sql_assets(compiled([SourceFile("orders.sql", text.format(db="shop", clause="INCREMENTAL"))], {}))
    assert expected_message in str(caught.value)
    # Where the unit is missing, the next word is taken for it and refused.
    assert str(caught.value).startswith(("orders.sql:6:", "orders.sql:7:1: expected a unit"))


@pytest.mark.parametrize(
    ("given", "expected_message"),
    [
        ({"landing": True}, "it has no more than one"),
        ({"partitioning": Partitioning((StaticDimension("week", ("a",)),))}, "INCREMENTAL needs a time dimension"),
        ({"warehouse": WarehouseOptions(indexes=(Index(("n",), unique=True),))}, "a table for each addition"),
        ({"warehouse": WarehouseOptions(compact=Period.MONTH)}, "take one of the two"),
        ({"reject_into": RejectInto(3, "shop.rejected")}, "REJECT UP TO counts the bad rows of all files"),
        ({"incremental": Incremental(dt.timedelta(hours=-1))}, "before its window is over"),
    ],
)
def test_a_python_declaration_that_cannot_grow_is_refused(given: dict[str, Any], expected_message: str) -> None:
    declared = {
        "partitioning": Partitioning((WEEK,)), "landing": LandingOptions(files="week={week}/*.csv"),
        "incremental": Incremental(),
    }  # fmt: skip
    with pytest.raises(VarveError, match=expected_message):
        Dataset(
            name="shop.orders", schema=Schema((Column("n", ColumnType.BIGINT),)), store=StoreKind.WAREHOUSE, comment="",
            **{**declared, **given},
        )  # fmt: skip


END = WEEK.calendar.following(WEEK.start_of(dt.date(2026, 11, 2)))
HOUR = 3_600.0
CLOSING = orders("shop", "INCREMENTAL CLOSED AFTER 2 HOURS")[0].dataset


def listed(name: str, changed_at: float, stamp: str = "1") -> LandingFile:
    return LandingFile(changed_at, "2026-11-02", f"/in/{name}", 1, stamp)


@pytest.mark.parametrize(
    ("now", "changed_at", "opened", "taken"),
    [
        (END + HOUR, END + HOUR - 60, (), True),  # not closed yet
        (END + 3 * HOUR, END + 3 * HOUR - 60, (), False),  # late
        (END + 3 * HOUR, END + HOUR, (), True),  # in time; nobody looked until now
        (END + 3 * HOUR, END + 3 * HOUR - 60, ("week=2026-11-02",), True),
    ],
)
def test_a_file_is_late_by_its_own_time_unless_a_person_has_opened_its_partition(
    now: float, changed_at: float, opened: tuple[str, ...], *, taken: bool
) -> None:
    old = listed("old.csv", END - HOUR)
    arrived = {"week=2026-11-02": Arrived(old.uri, old.token)}
    look = Sorter(CLOSING, arrived, {}, None, now, 5.0, opened=opened).sort([old, listed("new.csv", changed_at)])
    assert [[file.uri for file in files] for _, files in look.take] == (
        [["/in/old.csv", "/in/new.csv"]] if taken else []
    )
    assert {uri: arrival.kind for uri, arrival in look.rejected.items()} == (
        {} if taken else {"/in/new.csv": RejectionKind.CLOSED}
    )
    assert look.standing == {"week=2026-11-02"}


def test_a_file_of_a_closed_partition_that_goes_or_changes_takes_nothing_away() -> None:
    kept, changed, gone = (listed(f"{name}.csv", END - HOUR) for name in ("kept", "changed", "gone"))
    arrived = {"week=2026-11-02": Arrived(kept.uri, " ".join(sorted(file.token for file in (kept, changed, gone))))}
    again = listed("changed.csv", END + 4 * HOUR, "2")
    look = Sorter(CLOSING, arrived, {}, None, END + 5 * HOUR, 5.0).sort([kept, again])
    assert look.take == []
    assert {uri: arrival.kind for uri, arrival in look.rejected.items()} == {again.uri: RejectionKind.CLOSED}
    assert look.standing == {"week=2026-11-02"}
    # A partition without any files was never closed.
    first = Sorter(CLOSING, {}, {}, None, END + 5 * HOUR, 5.0).sort([kept])
    assert [key.path for key, _ in first.take] == ["week=2026-11-02"]
