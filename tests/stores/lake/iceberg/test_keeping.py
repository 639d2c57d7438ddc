"""Doctor, repair, sweep, tags, drops and environments of Iceberg tables."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable

from tests.cdc.waits import until
from tests.stores.lake.iceberg.builder import Builder
from tests.stores.lake.iceberg.readers import by_pyiceberg, by_text, iceberg_table
from tests.support.project import commands_on
from tests.support.sales import PARIS, ZURICH, key, sales_dataset
from varve.catalog.catalog import Catalog
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.catalog.history.history import History
from varve.catalog.living.killed_builds import KilledBuilds
from varve.cli.batches import pins, snapshot
from varve.cli.batches.sweep import delete_swept, mark, sweep_leftovers
from varve.cli.batches.sweep_report import Report
from varve.model.dataset import StoreKind
from varve.model.errors import VarveError
from varve.model.store_options import LakeOptions
from varve.planning.graph import Graph
from varve.services.postgres import connect
from varve.services.settings import Settings
from varve.stores.environments.store import EnvironmentStore
from varve.stores.lake.iceberg import clean, examine
from varve.stores.lake.iceberg.clean import is_metadata
from varve.stores.lake.iceberg.pointers import SCHEMA
from varve.stores.warehouse.tables.roles import ensure_roles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varve.model.dataset import Dataset
    from varve.model.inventory import Finding
    from varve.stores.lake.iceberg.tables import IcebergTables

NOON = dt.datetime(2013, 1, 5, 12, tzinfo=dt.UTC)
NO_TIME = dt.timedelta(0)


def sold(*products: str) -> list[dict[str, Any]]:
    return [{"product": product, "sold": place, "price": 1.5, "at": NOON} for place, product in enumerate(products)]


def agree(builder: Builder, dataset: Dataset) -> None:
    names = [*dataset.schema.names, *dataset.partitioning.names]
    rows = [{name: row[name] for name in names} for row in builder.rows(dataset)]
    assert by_pyiceberg(iceberg_table(builder.settings, dataset)) == by_text(rows)


def products(builder: Builder, dataset: Dataset, environment: str = "") -> list[str]:
    return sorted(row["product"] for row in by_pyiceberg(iceberg_table(builder.settings, dataset, environment)))


def examined(builder: Builder, dataset: Dataset) -> Sequence[Finding]:
    with builder.store() as store:
        assert store.iceberg is not None
        return list(examine.findings(store.iceberg, dataset))


def write_again(builder: Builder, dataset: Dataset) -> int:
    with builder.store() as store:
        assert store.iceberg is not None
        return store.iceberg.write_again(dataset)


def sweep(builder: Builder, dataset: Dataset, *, orphans_older_than: dt.timedelta = NO_TIME) -> Report:
    """What `varve sweep` does with what was retired."""
    report = Report(done=True)
    with builder.store() as store:
        history = History(store.catalog.connection)
        mark(report, history, history.retired(dataset.name, older_than=NO_TIME, keep_last=0, declared={}))
        delete_swept(report, history, {"lake": store}, dataset.name)
        sweep_leftovers(report, history, store, dataset.name, orphans_older_than)
    assert report.problems == []
    return report


def age(builder: Builder, dataset: Dataset, hours: int) -> None:
    """Let all metadata have been written so many hours before."""
    for path in (Path(builder.settings.lake) / dataset.db / dataset.table / "_iceberg").iterdir():
        at = path.stat().st_mtime - hours * 3_600
        os.utime(path, (at, at))


def documents(builder: Builder, dataset: Dataset) -> list[str]:
    """The numbers of the documents that are there."""
    return sorted(name.partition("-")[0] for name in metadata_files(builder, dataset) if name.endswith(".json"))


def metadata_files(builder: Builder, dataset: Dataset) -> set[str]:
    return {path.name for path in (Path(builder.settings.lake) / dataset.db / dataset.table / "_iceberg").iterdir()}


def test_a_dataset_that_had_no_table_gets_one_in_one_step_and_no_data_file_is_touched(
    builder: Builder, sales: Dataset
) -> None:
    builder.on = False
    builder.publish(sales, {PARIS: sold("pen"), ZURICH: sold("ink")})
    builder.publish(sales, {PARIS: sold("pad")})
    table = Path(builder.settings.lake) / sales.db / sales.table
    before = {path: path.stat().st_mtime_ns for path in table.rglob("*.parquet")}
    builder.on = True
    assert [finding.problem for finding in examined(builder, sales)] == ["it has no Iceberg table yet"]
    assert write_again(builder, sales) == 2
    assert examined(builder, sales) == []
    agree(builder, sales)
    assert {path: path.stat().st_mtime_ns for path in table.rglob("*.parquet")} == before
    assert write_again(builder, sales) == 0


def cut(path: Path) -> None:
    """Leave the first half of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("damage", [Path.unlink, cut])
@pytest.mark.parametrize("kind", ["*.metadata.json", "snap-*.avro", "*-b2013*.avro"])
def test_lost_metadata_is_found_and_written_again(
    builder: Builder, sales: Dataset, kind: str, damage: Callable[[Path], object]
) -> None:
    first = builder.publish(sales, {PARIS: sold("pen"), ZURICH: sold("ink")})
    for path in (Path(builder.settings.lake) / sales.db / sales.table / "_iceberg").glob(kind):
        damage(path)
    assert "the metadata of its Iceberg table is lost" in examined(builder, sales)[0].problem
    if kind == "*.metadata.json":
        with pytest.raises(VarveError, match=rf"^{sales}: .* is lost: .*Nothing was named. varve repair {sales} makes"):
            snapshot.take(f"closing_{sales.db}", None)
        with builder.store() as store:
            # A pin keeps its batch, whatever has become of the table that would show its name.
            store.name_publishes(sales.name, {"audit": first})
    assert write_again(builder, sales) == 2
    assert examined(builder, sales) == []
    agree(builder, sales)


@pytest.mark.parametrize("damage", [Path.unlink, cut])
@pytest.mark.parametrize("kind", ["*.metadata.json", "snap-*.avro", "*-b2013*.avro"])
def test_a_publish_over_lost_metadata_makes_the_table_anew(
    builder: Builder, sales: Dataset, kind: str, damage: Callable[[Path], object]
) -> None:
    builder.publish(sales, {PARIS: sold("pen"), ZURICH: sold("ink")})
    for path in (Path(builder.settings.lake) / sales.db / sales.table / "_iceberg").glob(kind):
        damage(path)
    builder.publish(sales, {PARIS: sold("pad")})
    assert examined(builder, sales) == []
    agree(builder, sales)


def test_a_pointer_that_somebody_else_moved_is_found_and_taken_back(
    builder: Builder, sales: Dataset, connection: psycopg.Connection
) -> None:
    builder.publish(sales, {PARIS: sold("pen")})
    move = "update varve.iceberg_table set metadata_location = 'file:///tmp/other.metadata.json' where dataset = %s"
    connection.execute(move, (sales.name,))
    assert "somebody else has moved its Iceberg table" in examined(builder, sales)[0].problem
    assert write_again(builder, sales) == 1
    agree(builder, sales)
    connection.execute(move, (sales.name,))
    builder.publish(sales, {ZURICH: sold("ink")})
    agree(builder, sales)


def test_a_table_with_other_files_is_found_by_partition_and_mended(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {PARIS: sold("pen"), ZURICH: sold("ink")})
    number = builder.publish(sales, {PARIS: sold("pad")})
    folder = Path(builder.settings.lake) / sales.db / sales.table / PARIS.path / number.folder
    (file,) = folder.glob("*.parquet")
    shutil.move(file, folder / "part-9.parquet")
    (finding,) = examined(builder, sales)
    assert (finding.partition, finding.batch_id) == (PARIS.path, number)
    assert write_again(builder, sales) == 1
    agree(builder, sales)


def test_a_role_may_read_the_pointers_and_nothing_else(
    builder: Builder, sales: Dataset, connection: psycopg.Connection
) -> None:
    builder.publish(sales, {PARIS: sold("pen")})
    ensure_roles(connection, connections=5, statement_seconds=10)
    with connect(builder.settings, application="varve test") as reader:
        reader.execute("set role varve_iceberg")
        reader.execute("set search_path = varve_iceberg")
        rows = reader.execute("select table_name from iceberg_tables where table_namespace = %s", (sales.db,))
        assert rows.fetchall() == [(sales.table,)]
        assert reader.execute("select count(*) from iceberg_namespace_properties").fetchone() != (0,)
        for statement in (
            f"update {SCHEMA}.iceberg_tables set metadata_location = ''", f"delete from {SCHEMA}.iceberg_tables",
            "select from varve.current", "update varve.iceberg_table set metadata_location = ''",
        ):  # fmt: skip
            with pytest.raises(psycopg.Error):
                reader.execute(statement)


def test_a_sweep_lets_snapshots_go_before_the_folders_that_they_need(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {PARIS: sold("one"), ZURICH: sold("stays")})
    builder.publish(sales, {PARIS: sold("two")})
    builder.publish(sales, {PARIS: sold("three")})
    files = metadata_files(builder, sales)
    sweep(builder, sales)
    table = iceberg_table(builder.settings, sales)
    assert len(table.snapshots()) == 1
    assert len(table.history()) == 1
    agree(builder, sales)
    assert examined(builder, sales) == []
    assert len(metadata_files(builder, sales)) < len(files)
    builder.publish(sales, {PARIS: sold("four")})
    agree(builder, sales)


def test_a_batch_that_stays_keeps_its_snapshots(builder: Builder, sales: Dataset) -> None:
    first = builder.publish(sales, {PARIS: sold("one")})
    builder.publish(sales, {PARIS: sold("two")})
    builder.publish(sales, {PARIS: sold("three")})
    with builder.store() as store:
        history = History(store.catalog.connection)
        history.pin(sales.name, first, [PARIS.path], owner="ann", reason="audit", expires_at=None)
        store.name_publishes(sales.name, {"audit": first})
    sweep(builder, sales)
    table = iceberg_table(builder.settings, sales)
    tagged = table.snapshot_by_name("audit")
    assert tagged is not None
    assert [row["product"] for row in by_pyiceberg(table, snapshot_id=tagged.snapshot_id)] == ["one"]
    assert len(table.snapshots()) == 2
    with builder.store() as store:
        store.name_publishes(sales.name, {"audit": None})
    assert iceberg_table(builder.settings, sales).snapshot_by_name("audit") is None


def test_orphans_of_a_transaction_that_was_taken_back_are_swept_when_they_are_old(
    builder: Builder, sales: Dataset
) -> None:
    builder.publish(sales, {PARIS: sold("one")})
    before = metadata_files(builder, sales)
    with builder.store() as store:
        build, staged = builder.stage(store, sales, {PARIS: sold("never")})
        with store.catalog.connection.transaction(force_rollback=True):
            store.publish(build, staged)
        store.discard(build)
    assert metadata_files(builder, sales) > before
    sweep(builder, sales, orphans_older_than=dt.timedelta(hours=1))
    assert metadata_files(builder, sales) > before
    with builder.store() as store:
        KilledBuilds(store.catalog.connection).fail()
    sweep(builder, sales)
    assert metadata_files(builder, sales) == before
    agree(builder, sales)


def test_what_was_replaced_a_moment_ago_stays_for_who_reads_it_however_old_it_is(
    builder: Builder, sales: Dataset
) -> None:
    """A reader has asked where the metadata is, and opens it after a sweep that let earlier snapshots go."""
    builder.publish(sales, {PARIS: sold("one"), ZURICH: sold("stays")})
    with builder.store() as store:
        build, staged = builder.stage(store, sales, {PARIS: sold("never")})
        with store.catalog.connection.transaction(force_rollback=True):
            store.publish(build, staged)
        store.discard(build)
        KilledBuilds(store.catalog.connection).fail()
    builder.publish(sales, {PARIS: sold("two")})
    age(builder, sales, 5)
    location = iceberg_table(builder.settings, sales).metadata_location
    sweep(builder, sales, orphans_older_than=dt.timedelta(hours=1))
    assert iceberg_table(builder.settings, sales).metadata_location != location
    rows = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
    assert sorted(row["product"] for row in rows) == ["stays", "two"]
    # What was replaced five hours ago is gone. What was never current has the number of what was replaced just now.
    assert documents(builder, sales) == ["00001", "00001", "00002"]
    age(builder, sales, 2)
    sweep(builder, sales, orphans_older_than=dt.timedelta(hours=1))
    assert documents(builder, sales) == ["00002"]
    agree(builder, sales)


def test_what_is_replaced_while_a_sweep_looks_stays_too(
    builder: Builder, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publish and another sweep come after the files were listed: what replaces the document is not among them."""
    for product in ("one", "two"):
        builder.publish(sales, {PARIS: sold(product)})
    sweep(builder, sales)
    age(builder, sales, 5)
    location = iceberg_table(builder.settings, sales).metadata_location
    named, pending = clean._named, ["three"]

    def named_after_a_publish(tables: IcebergTables, dataset: str) -> set[str]:
        if pending:
            builder.publish(sales, {PARIS: sold(pending.pop())})
            sweep(builder, sales, orphans_older_than=dt.timedelta(hours=1))
        return named(tables, dataset)

    with builder.store() as store, monkeypatch.context() as patched:
        patched.setattr(clean, "_named", named_after_a_publish)
        history, report = History(store.catalog.connection), Report(done=True)
        sweep_leftovers(report, history, store, sales.name, dt.timedelta(hours=1))
    assert not pending
    document = json.loads(Path(location.removeprefix("file://")).read_text())
    led_to = {Path(snapshot["manifest-list"]).name for snapshot in document["snapshots"]}
    assert led_to
    assert led_to <= metadata_files(builder, sales)
    agree(builder, sales)


@pytest.mark.parametrize("root", ["lake", "lake [new]"])
def test_a_folder_whose_documents_are_all_gone_is_swept_too(
    builder: Builder, sales: Dataset, tmp_path: Path, root: str
) -> None:
    """As after a dataset went to the warehouse: a sweep took the documents first, and another one the rest."""
    builder = replace(builder, settings=builder.settings.model_copy(update={"lake_root": str(tmp_path / root)}))
    folder = Path(builder.settings.lake) / sales.db / "moved" / "_iceberg"
    folder.mkdir(parents=True)
    for left in ("0-1.avro", "no-document.txt", ""):
        if left:
            (folder / left).write_bytes(b"left")
        with builder.store() as store:
            mine = [Path(each.location).name for each in store.leftovers() if each.dataset == f"{sales.db}.moved"]
            assert sorted(mine) == sorted(path.name for path in folder.iterdir())
            store.sweep(
                f"{sales.db}.moved", [f"{builder.settings.lake}/{sales.db}/moved/_iceberg/{name}" for name in mine]
            )
        assert list(folder.iterdir()) == []


def test_a_sweep_of_everything_spares_what_a_publish_has_written_and_not_yet_committed(
    builder: Builder, sales: Dataset, connection: psycopg.Connection
) -> None:
    builder.publish(sales, {PARIS: sold("one")})
    with builder.store() as sweeper, builder.store() as store, ThreadPoolExecutor(1) as pool:
        build, staged = builder.stage(store, sales, {PARIS: sold("two")})
        with store.catalog.connection.transaction():
            store.publish(build, staged)
            mine = [leftover.location for leftover in sweeper.leftovers() if leftover.dataset == sales.name]
            listed = [location for location in mine if is_metadata(location)]
            assert listed, "the metadata of a transaction under way is named by nobody that others can see"
            deleting = pool.submit(sweeper.sweep, sales.name, listed)
            waiting = "select from pg_locks where pid = %s and locktype = 'advisory' and not granted"
            until(lambda: bool(connection.execute(waiting, (sweeper.catalog.connection.info.backend_pid,)).fetchall()))
        deleting.result(timeout=60)
    assert examined(builder, sales) == []
    agree(builder, sales)


def test_only_metadata_of_the_dataset_itself_is_deleted_as_such(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {PARIS: sold("one")})
    with builder.store() as store:
        own = f"{builder.settings.lake}/{sales.db}/{sales.table}/_iceberg"
        for location in (f"{builder.settings.lake}/other/table/_iceberg/a.json", f"{own}/../_iceberg/a.json"):
            with pytest.raises(VarveError, match="is no metadata of"):
                store.sweep(sales.name, [location])


def test_as_many_snapshots_stay_as_the_setting_says(builder: Builder, sales: Dataset) -> None:
    builder.keep = 3
    for number in range(6):
        builder.publish(sales, {PARIS: sold(str(number))})
    table = iceberg_table(builder.settings, sales)
    assert [by_pyiceberg(table, snapshot_id=each.snapshot_id)[0]["product"] for each in table.snapshots()] == [
        "3", "4", "5",
    ]  # fmt: skip


def test_one_name_is_given_to_what_is_current_of_all_tables(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {PARIS: sold("one")})
    with builder.store() as store:
        assert store.iceberg is not None
        assert sales.name in store.iceberg.name_current(f"closing_{sales.db}")
    builder.publish(sales, {PARIS: sold("two")})
    table = iceberg_table(builder.settings, sales)
    snapshot = table.snapshot_by_name(f"closing_{sales.db}")
    assert snapshot is not None
    assert [row["product"] for row in by_pyiceberg(table, snapshot_id=snapshot.snapshot_id)] == ["one"]


def test_an_environment_has_a_namespace_of_its_own(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {PARIS: sold("base"), ZURICH: sold("base")})
    with connect(builder.settings, application="varve test") as connection:
        Catalog(connection).ensure_schema()
        name = f"e{sales.db}"
        Environments(connection).create(name, by="ann")
        builder.publish(sales, {ZURICH: sold("later")})
        assert products(builder, sales, name) == ["base", "base"]
        catalog = EnvironmentCatalog(connection, name)
        lake = builder.over(catalog)
        build, staged = builder.stage(lake, sales, {PARIS: sold("tried")})
        EnvironmentStore(lake, catalog).publish(build, staged)
        assert products(builder, sales, name) == ["base", "tried"]
        assert products(builder, sales) == ["base", "later"]
        Environments(connection).rebase(name, code_too=False)
        lake.iceberg.write_again(sales)
        assert products(builder, sales, name) == ["later", "tried"]
        Environments(connection).drop(name)
    with pytest.raises(NoSuchTableError):
        iceberg_table(builder.settings, sales, name)
    agree(builder, sales)


def test_a_live_environment_follows_production_where_it_has_nothing_of_its_own(
    builder: Builder, sales: Dataset
) -> None:
    builder.publish(sales, {PARIS: sold("base"), ZURICH: sold("base")})
    with connect(builder.settings, application="varve test") as connection:
        name = f"l{sales.db}"
        Environments(connection).create(name, by="ann", live=True)
        catalog = EnvironmentCatalog(connection, name)
        lake = builder.over(catalog)
        build, staged = builder.stage(lake, sales, {PARIS: sold("tried")})
        EnvironmentStore(lake, catalog).publish(build, staged)
        builder.publish(sales, {PARIS: sold("later"), ZURICH: sold("later")})
        assert products(builder, sales, name) == ["later", "tried"]
        Environments(connection).drop(name)


def test_one_command_shows_and_names_the_tables_of_one_moment(builder: Builder, sales: Dataset) -> None:
    first = builder.publish(sales, {PARIS: sold("one")})
    name = f"closing_{sales.db}"
    tables = {(row["namespace"], row["table"]): row["metadata_location"] for row in snapshot.take(name, None)}
    assert tables[sales.db, sales.table] == iceberg_table(builder.settings, sales).metadata_location
    builder.publish(sales, {PARIS: sold("two")})
    sweep(builder, sales)
    table = iceberg_table(builder.settings, sales)
    named = table.snapshot_by_name(name)
    assert named is not None
    assert [row["product"] for row in by_pyiceberg(table, snapshot_id=named.snapshot_id)] == ["one"]
    assert named.summary is not None
    assert named.summary["varve.build"] == str(first)
    with pytest.raises(VarveError, match="is no name for a snapshot"):
        snapshot.take("no name", None)


def test_a_name_is_that_of_one_snapshot_until_it_is_unpinned_everywhere(
    fresh_database: str, lake_sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    other, owner = sales_dataset(StoreKind.LAKE), "snapshot closing"
    commands_on(Graph({each.name: each for each in (lake_sales, other)}, {}, {}), monkeypatch)
    builder = Builder(Settings())

    def named(dataset: Dataset) -> list[str] | None:
        """The products of the snapshot, also of a table that is hidden."""
        with builder.store() as store:
            assert store.iceberg is not None
            pointer = store.iceberg.pointers.of(dataset.name)
        assert pointer is not None
        table = StaticTable.from_metadata(str(pointer.written))
        tagged = table.snapshot_by_name("closing")
        if tagged is None:
            return None
        return [row["product"] for row in by_pyiceberg(table, snapshot_id=tagged.snapshot_id)]

    for dataset in (lake_sales, other):
        builder.publish(dataset, {PARIS: sold("one")})
    snapshot.take("closing", None)
    for dataset in (lake_sales, other):
        builder.publish(dataset, {PARIS: sold("two")})
    with pytest.raises(VarveError, match=r"a snapshot closing already.*Nothing was changed.*varve unpin"):
        snapshot.take("closing", None)
    assert (named(lake_sales), named(other)) == (["one"], ["one"])
    # Where one of the tables is hidden, the name is given up there too before it is given again.
    with builder.store() as store:
        assert store.iceberg is not None
        store.iceberg.pointers.hide(other.name, "a type has changed")
    assert pins.unpin(lake_sales.name, [], batch=None, owner=owner).count == 1
    assert (named(lake_sales), named(other)) == (None, ["one"])
    with pytest.raises(VarveError, match=rf"batches of {other.name} are pinned"):
        snapshot.take("closing", None)
    assert pins.unpin(other.name, [], batch=None, owner=owner).count == 1
    snapshot.take("closing", None)
    assert (named(lake_sales), named(other)) == (["two"], None)


def test_a_snapshot_is_let_go_of_by_its_name_only(
    builder: Builder, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands_on(Graph({sales.name: sales}, {}, {}), monkeypatch)
    first = builder.publish(sales, {PARIS: sold("one")})
    name = f"closing_{sales.db}"
    snapshot.take(name, None)
    pins.pin(sales.name, [], batch=first.millis, owner="ann", reason="an audit", expires_at=None)
    builder.publish(sales, {PARIS: sold("two")})
    with connect(builder.settings, application="a reader") as connection:
        history, now = History(connection), dt.datetime.now(dt.UTC)
        for owner in ("reader 7@host", "diff 8@host"):
            history.pin(
                sales.name, first, [PARIS.path], owner=owner, reason="being read", expires_at=now + dt.timedelta(1)
            )
        unpinned = pins.unpin(sales.name, [], batch=None, owner=None)
        assert history.owners(sales.name) == {f"snapshot {name}", "reader 7@host", "diff 8@host"}
        history.unpin(sales.name, first, owners=["reader 7@host", "diff 8@host"])
    assert (unpinned.count, unpinned.snapshots) == (1, (name,)), "that of ann"
    assert f"varve unpin {sales.name} --owner 'snapshot {name}'" in unpinned.kept
    for batch in (None, first.millis):
        with pytest.raises(VarveError, match=rf"no pin to take off on {sales.name}.*snapshot {name} stay"):
            pins.unpin(sales.name, [], batch=batch, owner=None)
    sweep(builder, sales)
    tagged = iceberg_table(builder.settings, sales).snapshot_by_name(name)
    assert tagged is not None
    table = iceberg_table(builder.settings, sales)
    assert [row["product"] for row in by_pyiceberg(table, snapshot_id=tagged.snapshot_id)] == ["one"]
    assert pins.unpin(sales.name, [], batch=None, owner=f"snapshot {name}").snapshots == ()
    assert iceberg_table(builder.settings, sales).snapshot_by_name(name) is None


def test_unpinning_takes_no_name_away_that_is_none_of_a_snapshot(
    builder: Builder, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands_on(Graph({sales.name: sales}, {}, {}), monkeypatch)
    number = builder.publish(sales, {PARIS: sold("one")})
    owner = "snapshot main"
    pins.pin(sales.name, [], batch=number.millis, owner=owner, reason="a person's", expires_at=None)
    assert pins.unpin(sales.name, [], batch=None, owner=None).count == 1
    assert set(iceberg_table(builder.settings, sales).metadata.refs) == {"main"}


@pytest.mark.parametrize("name", ["main", "pinned-1357387200000"])
def test_what_names_something_else_names_no_snapshot(builder: Builder, sales: Dataset, name: str) -> None:
    """What readers are shown is the branch main, and unpinning takes the other name away."""
    builder.publish(sales, {PARIS: sold("one")})
    with pytest.raises(VarveError, match=f"{name}.*Nothing was changed"):
        snapshot.take(name, None)
    refs = iceberg_table(builder.settings, sales).metadata.refs
    assert {name: str(ref.snapshot_ref_type) for name, ref in refs.items()} == {"main": "branch"}


def test_where_pyiceberg_is_not_installed_publishes_go_on_and_only_a_clause_is_refused(
    builder: Builder, sales: Dataset
) -> None:
    builder.publish(sales, {PARIS: sold("one")})
    with builder.store() as store:
        assert store.iceberg is not None
        without = replace(store, iceberg=replace(store.iceberg, installed=False))
        build, staged = builder.stage(without, sales, {PARIS: sold("two")})
        without.publish(build, staged)
        with pytest.raises(NoSuchTableError):
            iceberg_table(builder.settings, sales)
        asking = replace(sales, lake=LakeOptions(iceberg=True))
        build, staged = builder.stage(without, asking, {ZURICH: sold("three")})
        with pytest.raises(VarveError, match=r"says ICEBERG ON, and pyiceberg is not installed.*\[iceberg\]"):
            without.publish(build, staged)
    builder.publish(sales, {ZURICH: sold("four")})
    agree(builder, sales)


def test_metadata_of_snapshots_that_have_left_a_table_is_swept_though_no_batch_was_replaced(
    builder: Builder, sales: Dataset
) -> None:
    builder.keep = 3
    with builder.store() as store:
        environments, name = Environments(store.catalog.connection), f"k{sales.db}"
        for day in range(1, 11):
            builder.publish(sales, {key("Paris", day): sold(str(day))})
            if day == 4:
                environments.create(name, by="ann")
        before = metadata_files(builder, sales)
        age(builder, sales, 5)
        sweep(builder, sales, orphans_older_than=dt.timedelta(hours=1))
        # The last three, and that on which the environment stands.
        assert documents(builder, sales) == ["00003", "00007", "00008", "00009"]
        assert len(metadata_files(builder, sales)) < len(before)
        assert products(builder, sales, name) == ["1", "2", "3", "4"]
        table = iceberg_table(builder.settings, sales)
        assert [len(by_pyiceberg(table, snapshot_id=each.snapshot_id)) for each in table.snapshots()] == [8, 9, 10]
        environments.drop(name)
    agree(builder, sales)


def test_an_environment_that_is_made_after_a_repair_is_shown_what_was_published_last(
    builder: Builder, sales: Dataset
) -> None:
    builder.keep = 1
    builder.publish(sales, {PARIS: sold("one")})
    number = builder.publish(sales, {PARIS: sold("two")})
    folder = Path(builder.settings.lake) / sales.db / sales.table / PARIS.path / number.folder
    (file,) = folder.glob("*.parquet")
    shutil.copy(file, folder / "part-9.parquet")
    assert write_again(builder, sales) == 0, "it is damaged"
    (folder / "part-9.parquet").unlink()
    shutil.move(file, folder / "part-9.parquet")
    assert write_again(builder, sales) == 1
    with builder.store() as store:
        name = f"r{sales.db}"
        Environments(store.catalog.connection).create(name, by="ann")
        table = iceberg_table(builder.settings, sales, name)
        assert by_pyiceberg(table) == by_pyiceberg(iceberg_table(builder.settings, sales))
        location = table.metadata_location
        age(builder, sales, 5)
        sweep(builder, sales, orphans_older_than=dt.timedelta(hours=1))
        assert Path(location.removeprefix("file://")).exists()
        Environments(store.catalog.connection).drop(name)
