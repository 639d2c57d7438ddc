"""Partitions that grow file by file, in both stores: what runs read, and what becomes of batches and their parts."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from tests.stores.growing import Growing, weekly
from varve.catalog.backfills import Backfills
from varve.catalog.history.history import History
from varve.catalog.parts import Parts
from varve.catalog.recovery.recovery import recover
from varve.cli.batches import sweep
from varve.model.dataset import StoreKind
from varve.model.errors import AlreadyBuilding, MissingUpstream, StalePublish, VerifyFailed
from varve.sources.landing import inspection

if TYPE_CHECKING:
    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.cli.batches.sweep_report import Report
    from varve.stores.store import Store

pytestmark = pytest.mark.spark


@pytest.fixture(params=list(StoreKind))
def week(request: pytest.FixtureRequest, workbench: Workbench) -> Growing:
    return Growing(workbench, weekly(request.param))


@pytest.fixture(params=[StoreKind.WAREHOUSE, pytest.param(StoreKind.LAKE, marks=pytest.mark.slow)])
def either_week(request: pytest.FixtureRequest, workbench: Workbench) -> Growing:
    """Of what the stores do alike; the lake's turn comes with the tortures."""
    return Growing(workbench, weekly(request.param))


@pytest.fixture
def warehouse_week(workbench: Workbench) -> Growing:
    return Growing(workbench, weekly(StoreKind.WAREHOUSE))


@pytest.fixture
def lake_week(workbench: Workbench) -> Growing:
    return Growing(workbench, weekly(StoreKind.LAKE))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are opened, in order."""
    names: list[str] = []
    inspect = inspection.inspect

    def noted(dataset: object, uri: str) -> object:
        names.append(uri.rsplit("/", 1)[-1])
        return inspect(dataset, uri)  # type: ignore[arg-type]

    monkeypatch.setattr(inspection, "inspect", noted)
    return names


def swept(week: Growing) -> Report:
    """A sweep of everything that nobody holds."""
    now = dt.timedelta(0)
    return sweep.sweep(
        dataset=week.dataset.name, older_than=now, keep_last=0, orphans_older_than=now, dry_run=False
    )  # fmt: skip


def lying_there(week: Growing) -> set[str]:
    """The period tables, or the batch folders, that there are."""

    def tables(catalog: Catalog, store: Store) -> set[str]:
        del store
        rows = catalog.connection.execute(
            "select tablename from pg_tables where schemaname = %s", (f"{week.dataset.db}_periods",)
        )
        return {name for (name,) in rows}

    if week.dataset.store == StoreKind.WAREHOUSE:
        return week.with_catalog(tables)
    from pathlib import Path

    return {
        path.name for path in Path(week.workbench.settings.lake).glob(f"{week.dataset.db}/orders/week=*/batch_id=*")
    }


def noted_parts(week: Growing) -> int:
    def count(catalog: Catalog, store: Store) -> int:
        del store
        row = catalog.connection.execute(
            "select count(*) from varve.part where dataset = %s", (week.dataset.name,)
        ).fetchone()
        assert row is not None
        return int(row[0])

    return week.with_catalog(count)


def test_a_run_opens_the_new_files_only_and_what_was_added_is_put_together_in_the_end(
    week: Growing, opened: list[str]
) -> None:
    for hour in range(3):
        week.send(f"h{hour:02}", [hour, hour + 100])
        opened.clear()
        batch = week.take()
        assert set(opened) == {f"h{hour:02}.csv"}
        assert week.read() == week.expected()
        assert (batch.rows, week.parts(batch)) == (2 * (hour + 1), hour + 1)
    grown = batch
    opened.clear()
    folded = week.take(reuse_allowed=True)
    assert opened == []
    assert week.read() == week.expected()
    assert (folded.rows, week.parts(folded), folded.content) == (6, 1, grown.content)
    assert folded.batch_id != grown.batch_id
    assert folded.inputs == grown.inputs
    # And grows again.
    week.send("h99", [99])
    assert week.parts(week.take()) == 2
    assert week.read() == week.expected()
    assert week.findings() == []
    assert [reason.split(" of batch")[0] for reason in week.reasons] == [
        "all files were read: its first batch", "1 file added to those", "1 file added to those",
        "3 parts are put together", "1 file added to those",
    ]  # fmt: skip


def test_a_file_that_changed_or_went_makes_all_be_read_again_and_the_reason_is_said(
    either_week: Growing, opened: list[str]
) -> None:
    week = either_week
    for name in ("a", "b", "c"):
        week.send(name, [1])
    week.take()
    week.send("d", [1])
    week.take()
    week.send("b", [7, 8])
    assert week.parts(week.take()) == 1
    assert week.read() == week.expected()
    assert "b.csv was sent again with other content" in week.reasons[-1]
    (week.folder / "a.csv").unlink()
    assert week.parts(week.take()) == 1
    assert week.read() == week.expected()
    assert "a.csv was removed" in week.reasons[-1]
    # Sent again as it was: looked into, and not read as rows; a new one beside it is added.
    week.send("c", [1])
    week.send("e", [5])
    opened.clear()
    batch = week.take()
    assert set(opened) == {"c.csv", "e.csv"}
    assert (week.parts(batch), batch.rows) == (2, 5)
    assert week.read() == week.expected()
    # Asked for again with nothing new, other code, and a mark: read as a whole.
    for code in ("test", "other"):
        week.code_version = code
        assert week.parts(week.take()) == 1
    assert "its code was changed" in week.reasons[-1]
    week.send("f", [6])
    week.with_catalog(
        lambda catalog, _: Backfills(catalog.connection).add(
            {week.dataset.name: [week.key.path]}, reason="it looks wrong", owner="ann"
        )
    )
    assert week.parts(week.take()) == 1
    assert "marked to be made anew" in week.reasons[-1]
    assert week.read() == week.expected()
    assert week.findings() == []


def test_going_back_and_a_new_file_after_it_loses_no_row_and_doubles_none(either_week: Growing) -> None:
    week = either_week
    batches = []
    for hour in range(3):
        week.send(f"h{hour}", [hour])
        batches.append(week.take())
    week.go_back(batches[0])
    assert week.read() == [("h0", 0)]
    week.send("h3", [3])
    branch = week.take()
    assert week.read() == week.expected()
    assert (week.parts(branch), branch.rows) == (2, 4)
    # And back to a batch of the other branch, whose parts are all there still.
    week.go_back(batches[2])
    assert week.read() == [("h0", 0), ("h1", 1), ("h2", 2)]
    assert week.findings() == []
    week.go_back(branch)
    assert week.read() == week.expected()


def test_a_run_that_dies_before_its_publish_leaves_nothing_behind_and_nothing_out(week: Growing) -> None:
    week.send("h0", [0])
    week.take()
    week.send("h1", [1])
    catalog = week.workbench.catalog()
    week.stage(catalog)
    catalog.connection.close()
    assert week.read() == [("h0", 0)]
    week.send("h2", [2])
    batch = week.take()
    assert week.read() == week.expected()
    assert (week.parts(batch), batch.rows) == (2, 3)
    there = lying_there(week)
    swept(week)
    assert len(there - lying_there(week)) == 2 if week.dataset.store == StoreKind.LAKE else 1
    assert week.read() == week.expected()
    assert week.findings() == []


def test_two_runs_at_once_do_not_both_add(either_week: Growing) -> None:
    week = either_week
    week.send("h0", [0])
    first = week.take()
    week.send("h1", [1])
    catalog = week.workbench.catalog()
    opened, store = week.stage(catalog)
    with pytest.raises(AlreadyBuilding):
        week.take()
    # Its lock is lost, as with a session that was cut off, and another is done meanwhile.
    catalog.release(opened.build)
    # The other takes the staged one for dead.
    week.take()
    assert week.read() == week.expected()
    with pytest.raises(StalePublish):
        store.publish(opened.build, opened.staged)
    catalog.connection.close()
    assert week.read() == week.expected()
    assert week.read() != [("h0", 0)]
    assert first.rows == 1


def test_a_sweep_takes_what_no_batch_needs_and_nothing_else(either_week: Growing) -> None:
    week = either_week
    batches = []
    for hour in range(4):
        week.send(f"h{hour}", [hour])
        batches.append(week.take())
    week.with_catalog(
        lambda catalog, _: History(catalog.connection).pin(
            week.dataset.name, batches[1].batch_id, owner="ann", reason="audit"
        )
    )
    swept(week)
    assert week.read() == week.expected()
    # All parts are needed by the last; in the lake each batch has its own files.
    assert len(lying_there(week)) == (4 if week.dataset.store == StoreKind.WAREHOUSE else 2)
    assert week.findings() == []
    week.send("h4", [4])
    week.take()
    folded = week.take(reuse_allowed=True)
    swept(week)
    # The pinned batch, which needs two parts, and the fold.
    assert len(lying_there(week)) == (3 if week.dataset.store == StoreKind.WAREHOUSE else 2)
    assert week.read() == week.expected()
    week.go_back(batches[1])
    assert week.read() == [("h0", 0), ("h1", 1)]
    week.go_back(folded)
    week.with_catalog(lambda catalog, _: History(catalog.connection).unpin(week.dataset.name, batches[1].batch_id))
    swept(week)
    assert len(lying_there(week)) == 1
    assert noted_parts(week) == 1
    assert week.read() == week.expected()
    assert week.findings() == []
    assert swept(week).orphans == {}


def test_a_lost_catalog_is_made_again_with_what_batches_consist_of(week: Growing, opened: list[str]) -> None:
    batches = []
    for hour in range(3):
        week.send(f"h{hour}", [hour])
        batches.append(week.take())
    week.go_back(batches[1])

    def lose(catalog: Catalog, store: Store) -> None:
        for table in ("current", "published", "publish", "batch_part", "part_file", "part", "batch"):
            catalog.connection.execute(
                sql.SQL("delete from {} where dataset = %s").format(sql.Identifier("varve", table)),
                (week.dataset.name,),
            )
        (inventory,) = [described for described in store.inventory() if described.dataset == week.dataset.name]
        assert inventory.findings == []
        assert recover(catalog.connection, week.dataset.store, inventory).current == 1
        store.repair(week.dataset)

    week.with_catalog(lose)
    assert week.read() == [("h0", 0), ("h1", 1)]
    assert week.findings() == []
    opened.clear()
    week.send("h3", [3])
    batch = week.take()
    assert set(opened) == {"h2.csv", "h3.csv"}
    assert (week.parts(batch), batch.rows) == (3, 4)
    assert week.read() == week.expected()


def test_several_weeks_at_once_of_which_one_is_put_together_one_grows_and_one_is_new(week: Growing) -> None:
    from dataclasses import replace

    other, third = (
        replace(week, started=week.started.add(weeks=1)),
        replace(week, started=week.started.subtract(weeks=1)),
    )
    for name in ("a", "b"):
        week.send(name, [1, 2])
        before = week.take()
    other.send("x", [1])
    other.take()
    other.send("y", [2, 3])
    third.send("z", [])
    catalog = week.workbench.catalog()
    from varve.sources.landing.landing import Landing
    from varve.stores.open_build import OpenBuild

    keys = sorted([week.key, other.key, third.key])
    build = catalog.begin(week.dataset, keys, run_id="several", code_version=week.code_version)
    opened = OpenBuild(build, catalog)
    frame = Landing(week.workbench.settings.landing).read(opened, week.workbench.spark, reuse_allowed=True)
    store = week.workbench.store(week.dataset, catalog)
    staged = store.stage(build, frame)
    catalog.staged(build, staged)
    store.verify(build, staged)
    store.publish(build, staged)
    catalog.release(build)
    current = catalog.current(week.dataset.name)
    catalog.connection.close()
    assert {path: batch.rows for path, batch in current.items()} == {
        week.key.path: 4, other.key.path: 3, third.key.path: 0
    }  # fmt: skip
    assert [week.parts(current[key.path]) for key in (week.key, other.key, third.key)] == [1, 2, 1]
    assert current[week.key.path].content == before.content
    assert week.read() == sorted([*week.expected(), *other.expected()])
    assert week.findings() == []


def test_a_part_that_somebody_has_changed_or_dropped_is_found_and_not_put_together(warehouse_week: Growing) -> None:
    week = warehouse_week
    for hour in range(3):
        week.send(f"h{hour}", [hour])
        batch = week.take()

    def tables(catalog: Catalog, store: Store) -> list[str]:
        del store
        parts = Parts(catalog.connection).of(week.dataset.name, [(batch.partition, batch.batch_id)])
        return [part.location for part in parts[batch.partition, batch.batch_id.millis]]

    first, second, _ = week.with_catalog(tables)
    name = sql.Identifier(f"{week.dataset.db}_periods", first)
    week.with_catalog(lambda c, _: c.connection.execute(sql.SQL("update {} set sold = 77").format(name)))
    assert any(first in problem and "are not those" in problem for problem in week.findings())
    with pytest.raises(VerifyFailed, match="of another hash"):
        week.take(reuse_allowed=True)
    assert ("h0", 77) in week.read()
    gone = sql.Identifier(f"{week.dataset.db}_periods", second)
    week.with_catalog(lambda c, _: c.connection.execute(sql.SQL("drop table {} cascade").format(gone)))
    assert any(second in problem and "gone" in problem for problem in week.findings())
    week.send("h3", [3])
    with pytest.raises(MissingUpstream, match=rf"`varve backfill start {week.dataset}` reads all files"):
        week.take()
    # A whole read heals it: asked for again by a person, with no new file.
    (week.folder / "h3.csv").unlink()
    week.take()
    assert week.read() == week.expected()


def test_files_of_a_lake_batch_are_links_to_those_of_the_batch_before(lake_week: Growing) -> None:
    from pathlib import Path

    week = lake_week
    week.send("h0", [0])
    first = week.take()
    week.send("h1", [1])
    second = week.take()
    before = {path.name: path.stat().st_ino for path in Path(first.location).glob("*.parquet")}
    after = {path.name: path.stat().st_ino for path in Path(second.location).glob("*.parquet")}
    assert before.items() < after.items()
    swept(week)
    assert not Path(first.location).exists()
    assert week.read() == week.expected()
    assert week.findings() == []
