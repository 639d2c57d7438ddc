"""Batches in the lake: going back to them, sweeping, leftovers, differences, and a catalog lost and rebuilt."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.support.sales import DAY, PARIS, ZURICH, key, sales_dataset
from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.catalog.recovery.recovery import recover
from varve.dagster.runs.builds.builds import Builds
from varve.dagster.runs.failures import StepFailure
from varve.dagster.runs.spark import SparkResource
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import MissingUpstream, VarveError
from varve.model.partitions.dimension import StaticDimension
from varve.planning.graph import Graph
from varve.stores.folders import clean
from varve.stores.folders.layout import MANIFEST, Layout
from varve.stores.lake import projection, statements
from varve.stores.lake.iceberg.clean import is_metadata
from varve.stores.lake.store import LakeStore
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.workbench import Workbench
    from varve.model.batch import Batch
    from varve.model.inventory import Finding
    from varve.model.partitions.key import PartitionKey

pytestmark = pytest.mark.spark

NOW = dt.timedelta(0)


@pytest.fixture
def catalog(workbench: Workbench) -> Iterator[Catalog]:
    opened = workbench.catalog()
    yield opened
    opened.connection.close()


@pytest.fixture
def store(workbench: Workbench, catalog: Catalog, sales: Dataset) -> LakeStore:
    lake = workbench.store(sales, catalog)
    assert isinstance(lake, LakeStore)
    return lake


def table(workbench: Workbench, dataset: Dataset) -> list[tuple[object, ...]]:
    """What a user of Spark reads by name."""
    rows = workbench.spark.sql(f"SELECT store, product, sold FROM {statements.table_name(dataset)}").collect()
    return sorted(tuple(row) for row in rows)


def go_back(
    store: LakeStore, dataset: Dataset, partitions: Sequence[PartitionKey], targets: Mapping[str, Batch]
) -> None:
    build = store.catalog.lock_partitions(dataset, partitions, run_id="rollback")
    try:
        store.republish(build, list(targets.values()), reason="it was wrong")
    finally:
        store.catalog.release(build)


def leftovers(store: LakeStore, dataset: Dataset) -> list[str]:
    """What killed builds have left; metadata of Iceberg that newer metadata replaces is not of them."""
    return [
        leftover.location for leftover in store.leftovers()
        if leftover.dataset == dataset.name and not is_metadata(leftover.location)
    ]  # fmt: skip


def sweep(store: LakeStore, dataset: Dataset) -> list[str]:
    """What `varve sweep --older-than 0` does to the batches of the dataset."""
    history = History(store.catalog.connection)
    history.mark_swept(batch for batch in history.retired(dataset.name, older_than=NOW, keep_last=0) if not batch.kept)
    pending = history.undeleted(dataset.name)
    store.sweep(dataset.name, [batch.location for batch in pending])
    history.deleted(pending)
    return [batch.location for batch in pending]


def examine(store: LakeStore, dataset: Dataset) -> Sequence[Finding]:
    return store.examine(dataset, History(store.catalog.connection).present(dataset.name))


def test_going_back_shows_every_reader_the_earlier_batch(
    workbench: Workbench, store: LakeStore, sales: Dataset
) -> None:
    first = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "bad", 10), (ZURICH, "bad", 20)])
    go_back(store, sales, [PARIS, ZURICH], first)
    assert table(workbench, sales) == [("Paris", "pen", 1), ("Zürich", "ink", 2)]
    assert [row[-2:] for row in workbench.read(sales)] == [("pen", 1), ("ink", 2)]
    assert examine(store, sales) == []
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 100)])
    assert table(workbench, sales) == [("Paris", "pen", 100), ("Zürich", "ink", 2)]


def test_a_partition_taken_back_to_before_its_first_batch_is_gone_for_every_reader(
    workbench: Workbench, store: LakeStore, sales: Dataset
) -> None:
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    go_back(store, sales, [PARIS], {})
    assert table(workbench, sales) == [("Zürich", "ink", 2)]
    assert [row[-2:] for row in workbench.read(sales)] == [("ink", 2)]
    assert examine(store, sales) == []
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 3)])
    assert table(workbench, sales) == [("Paris", "pen", 3), ("Zürich", "ink", 2)]


def test_going_back_to_a_folder_that_somebody_removed_is_refused(
    workbench: Workbench, store: LakeStore, sales: Dataset
) -> None:
    first = workbench.publish(sales, [PARIS], [(PARIS, "pen", 1)])
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 2)])
    remove(first[PARIS.path])
    with pytest.raises(MissingUpstream, match="is not there: somebody removed it"):
        go_back(store, sales, [PARIS], first)
    assert table(workbench, sales) == [("Paris", "pen", 2)]


def test_a_sweep_deletes_the_retired_folder_and_nothing_else(
    workbench: Workbench, store: LakeStore, sales: Dataset
) -> None:
    first = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 2)])
    assert sweep(store, sales) == [first[PARIS.path].location]
    assert not Path(first[PARIS.path].location).exists()
    # The second is only what a sweep does that died between its deletion and its note.
    store.sweep(sales.name, [first[PARIS.path].location])
    assert table(workbench, sales) == [("Paris", "pen", 2), ("Zürich", "ink", 2)]
    assert examine(store, sales) == []
    assert leftovers(store, sales) == []


def test_a_batch_that_the_table_still_shows_is_not_swept(
    workbench: Workbench, store: LakeStore, catalog: Catalog, sales: Dataset
) -> None:
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 1)])
    # A run that dies between its publish and its projection: readers by name still read the retired batch.
    build = workbench.begin(catalog, sales, [PARIS])
    catalog.staged(build, store.stage(build, workbench.frame(sales, [(PARIS, "pen", 2)])))
    store.commit([build], partial(catalog.publish, build))
    catalog.release(build)
    (retired,) = History(catalog.connection).retired(sales.name, older_than=NOW, keep_last=0)
    assert retired.kept == "shown"
    assert sweep(store, sales) == []
    assert table(workbench, sales) == [("Paris", "pen", 1)]
    store.follow(sales)
    assert sweep(store, sales) == [retired.location]
    assert table(workbench, sales) == [("Paris", "pen", 2)]


@pytest.mark.parametrize("wrong", ["/", "{root}", "{table}", "{batch}/..", "{partition}", "/elsewhere/batch_id=1"])
def test_only_folders_of_batches_are_ever_deleted(
    workbench: Workbench, store: LakeStore, sales: Dataset, wrong: str
) -> None:
    batch = workbench.publish(sales, [PARIS], [(PARIS, "pen", 1)])[PARIS.path].location
    place = wrong.format(
        root=store.layout.root, table=store.layout.table(sales), batch=batch, partition=batch.rpartition("/")[0]
    )
    with pytest.raises(VarveError, match="is no batch folder of the lake"):
        store.sweep(sales.name, [batch, place])
    assert Path(batch).exists()


def test_what_killed_runs_leave_is_found_and_what_living_ones_write_is_not(
    workbench: Workbench, store: LakeStore, catalog: Catalog, sales: Dataset
) -> None:
    current = workbench.publish(sales, [PARIS], [(PARIS, "pen", 1)])
    assert leftovers(store, sales) == []
    build = workbench.begin(catalog, sales, [PARIS, ZURICH])
    store.stage(build, workbench.frame(sales, [(PARIS, "pen", 2), (ZURICH, "pen", 2)]))
    staging = Path(store.layout.table(sales)) / ".spark-staging-1234" / "day=2013-01-05"
    staging.mkdir(parents=True)
    (staging / "part-0.parquet").write_bytes(b"1234")
    assert leftovers(store, sales) == [str(staging.parent)]
    # The run dies: its connection and with it its locks are gone.
    catalog.release(build)
    leftovers_by_place = {
        leftover.location: leftover for leftover in store.leftovers() if leftover.dataset == sales.name
    }
    folders = {store.layout.batch(sales, partition, build.batch_id) for partition in (PARIS, ZURICH)}
    assert set(leftovers_by_place) == {str(staging.parent), *folders}
    assert leftovers_by_place[str(staging.parent)].size == 4
    for leftover in leftovers_by_place.values():
        assert leftover.changed_at is not None
        assert abs(leftover.changed_at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
    store.sweep(sales.name, list(leftovers_by_place))
    assert leftovers(store, sales) == []
    assert Path(current[PARIS.path].location).exists()


def test_every_difference_is_found_by_name_and_the_rest_is_still_read(
    workbench: Workbench, store: LakeStore, sales: Dataset
) -> None:
    stores = ["Paris", "Zürich", "Detroit"]
    days = {name: key(name, day) for day, name in enumerate(stores, start=1)}
    keys = [*days.values(), key("Paris", 8), key("Zürich", 9), key("Paris", 10)]
    current = workbench.publish(sales, keys, [(partition, "pen", 1) for partition in keys])
    assert examine(store, sales) == []
    gone, cut, odd, other, more, unnamed = (Path(current[partition.path].location) for partition in keys)
    remove(current[keys[0].path])
    data, *_ = sorted(cut.glob("*.parquet"))
    data.write_bytes(data.read_bytes()[:-20])
    description = json.loads((odd / MANIFEST).read_text(encoding="utf-8"))
    (odd / MANIFEST).write_text(json.dumps({**description, "rows": 7}), encoding="utf-8")
    (other / MANIFEST).write_text("{not json", encoding="utf-8")
    (more / "part-1.parquet").write_bytes(next(odd.glob("*.parquet")).read_bytes())
    (unnamed / MANIFEST).unlink()
    batch_id = current[keys[2].path].batch_id
    sizes = [current[partition.path].size for partition in keys]
    expected = [
        f"the folder {gone} is gone",
        f"{cut}/{data.name} is no whole parquet file",
        f"the folder's description is of {sales} {keys[2]} batch {batch_id}, 7 rows in {sizes[2]} bytes",
        f"{other}/{MANIFEST} is not a batch's description",
        f"the folder holds 2 rows in {2 * sizes[4]} bytes, and 1 rows in {sizes[4]} bytes were published",
        "the folder has no description",
    ]
    problems = {finding.partition: finding.problem.split(":")[0] for finding in examine(store, sales)}
    assert problems == {partition.path: text for partition, text in zip(keys, expected, strict=True)}
    assert store.repair(sales) == 3
    assert {finding.partition for finding in examine(store, sales)} == {keys[0].path, keys[1].path, keys[4].path}
    assert len(workbench.read(sales, [keys[2], keys[3], keys[5]])) == 3


def test_a_damaged_page_of_equal_size_is_found_by_a_deep_look_and_another_footer_by_any(
    workbench: Workbench, store: LakeStore, sales: Dataset
) -> None:
    rows = [(PARIS, f"pen {number}", number) for number in range(500)] + [(ZURICH, "ink", 2)]
    current = workbench.publish(sales, [PARIS, ZURICH], rows)
    present = History(store.catalog.connection).present(sales.name)
    assert store.examine(sales, present, deep=True) == []
    page, footer = [
        max(Path(current[key.path].location).glob("*.parquet"), key=lambda path: path.stat().st_size)
        for key in (PARIS, ZURICH)
    ]
    whole = page.read_bytes()
    metadata = pq.read_metadata(page).row_group(0).column(0)
    place = metadata.data_page_offset + metadata.total_compressed_size // 2
    page.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
    assert pq.read_metadata(page).num_rows == 500
    # Who wrote it is text of the footer, which no reader needs.
    text = footer.read_bytes()
    changed = text.replace(b"parquet-mr", b"parquet-mx")
    assert changed != text
    footer.write_bytes(changed)
    assert {finding.partition: finding.problem for finding in store.examine(sales, present)} == {
        ZURICH.path: "a footer of its files is not the one that was published, although rows and size are"
    }
    problems = {finding.partition: finding.problem for finding in store.examine(sales, present, deep=True)}
    assert set(problems) == {PARIS.path, ZURICH.path}
    assert problems[PARIS.path].startswith(f"{page} is damaged: ")
    page.write_bytes(whole)
    footer.write_bytes(text)
    assert store.examine(sales, present, deep=True) == []


def test_a_table_that_was_changed_behind_our_back_is_told_and_mended(
    workbench: Workbench, store: LakeStore, sales: Dataset
) -> None:
    first = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    second = workbench.publish(sales, [PARIS], [(PARIS, "pen", 3)])
    name = statements.table_name(sales)
    workbench.spark.sql(statements.set_location_sql(sales, first[PARIS.path]))
    workbench.spark.sql(f"ALTER TABLE {name} DROP PARTITION (day='2013-01-05', store='Zürich')")
    workbench.spark.sql(f"ALTER TABLE {name} ADD PARTITION (day='2013-01-09', store='Paris')")
    problems = {finding.partition: finding.problem for finding in examine(store, sales)}
    assert set(problems) == {PARIS.path, ZURICH.path, key("Paris", 9).path}
    assert problems[PARIS.path] == (
        f"the Hive table shows {first[PARIS.path].batch_id.folder}, and batch {second[PARIS.path].batch_id} is current"
    )
    assert problems[ZURICH.path] == f"the Hive table does not show batch {first[ZURICH.path].batch_id}"
    assert problems[key("Paris", 9).path].endswith("and nothing is current")
    assert store.repair(sales) == 3
    assert examine(store, sales) == []
    assert table(workbench, sales) == [("Paris", "pen", 3), ("Zürich", "ink", 2)]
    assert store.repair(sales) == 0


def test_nobody_moves_partitions_of_the_table_while_a_repair_notes_what_it_shows(
    workbench: Workbench, store: LakeStore, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 1)])
    shown = projection.shown

    def while_another_follows(*words: object) -> object:
        other = workbench.catalog()
        with closing(other.connection):
            other.connection.execute("set lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.lock_projection(sales.name)
        return shown(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(projection, "shown", while_another_follows)
    assert store.repair(sales) == 0
    other = workbench.catalog()
    with closing(other.connection):
        other.connection.execute("set lock_timeout = '2s'")
        other.lock_projection(sales.name)


def test_where_the_table_shows_its_partitions_is_asked_of_their_files_as_of_each(
    workbench: Workbench, store: LakeStore
) -> None:
    texts = ["Paris", "100% | a/b", 'it\'s "quoted"', "=[%20],", "🎈", " blank ", "empty", "gone"]
    names = StaticDimension("store", tuple(texts))
    sales = sales_dataset(StoreKind.LAKE, dimensions=(DAY, names))
    current = workbench.publish(sales, [key(text) for text in texts], [(key(text), "pen", 1) for text in texts[:6]])
    current |= workbench.publish(sales, [key("gone")], [(key("gone"), "pen", 1)])
    shutil.rmtree(current[key("gone").path].location)
    spelt = [row[0] for row in workbench.spark.sql(f"SHOW PARTITIONS {statements.table_name(sales)}").collect()]
    described = {path: projection._described_location(workbench.spark, sales, path) for path in spelt}
    shown = projection.shown(workbench.spark, sales)
    assert {path: Path(place.removeprefix("file:")) for path, place in shown.items()} == {
        path: Path(batch.location) for path, batch in current.items()
    }
    assert sorted(place.removeprefix("file:") for place in described.values()) == sorted(
        place.removeprefix("file:").replace("//", "/") for place in shown.values()
    )
    files = projection._folders_by_files(workbench.spark, sales)
    assert {text for _, text in files} == set(texts[:6])


def test_a_lost_catalog_is_rebuilt_from_the_folders_as_it_was(
    workbench: Workbench, store: LakeStore, catalog: Catalog, sales: Dataset, fresh_database: str
) -> None:
    first = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "bad", 10), (ZURICH, "ink", 20)])
    go_back(store, sales, [PARIS], {PARIS.path: first[PARIS.path]})
    # A batch that was staged and never current: the newest folder is not the current one.
    build = workbench.begin(catalog, sales, [PARIS])
    store.stage(build, workbench.frame(sales, [(PARIS, "failed", 9)]))
    catalog.release(build)
    detroit = key("Detroit")
    workbench.publish(sales, [detroit], [(detroit, "cap", 5)])
    go_back(store, sales, [detroit], {})
    before, read = catalog.current(sales.name), workbench.read(sales)
    changes = History(catalog.connection).changes(sales.name)
    assert examine(store, sales) == []
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        anew = Catalog(opened)
        anew.ensure_schema()
        lost = LakeStore(store.layout, anew, store.spark)
        (inventory,) = [described for described in lost.inventory() if described.dataset == sales.name]
        for expected in ((6, 2), (0, 0)):
            recovered = recover(opened, StoreKind.LAKE, inventory)
            assert (recovered.batches, recovered.current, recovered.findings) == (*expected, ())
        after = anew.current(sales.name)
        assert {path: (batch.batch_id, batch.inputs, batch.rows, batch.location) for path, batch in after.items()} == {
            path: (batch.batch_id, batch.inputs, batch.rows, batch.location) for path, batch in before.items()
        }
        assert History(opened).changes(sales.name) == changes
        assert leftovers(lost, sales) == [store.layout.batch(sales, PARIS, build.batch_id)]
        assert lost.repair(sales) == 0
        newest = max(batch.batch_id for batch in History(opened).batches(sales.name))
        assert anew.begin(sales, [PARIS], run_id="run", code_version="").batch_id > newest
        frame = lost.read(sales, list(after.values())).select("product", "sold").collect()
        assert sorted(tuple(row) for row in frame) == sorted(row[-2:] for row in read)


def test_what_is_not_whole_is_left_out_of_a_rebuilt_catalog_by_name(
    workbench: Workbench, store: LakeStore, sales: Dataset, fresh_database: str
) -> None:
    older = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    newer = workbench.publish(sales, [PARIS], [(PARIS, "pen", 3)])
    data, *_ = sorted(Path(newer[PARIS.path].location).glob("*.parquet"))
    data.write_bytes(data.read_bytes()[:-20])
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        catalog = Catalog(opened)
        catalog.ensure_schema()
        (inventory,) = [item for item in store.inventory() if item.dataset == sales.name]
        recovered = recover(opened, StoreKind.LAKE, inventory)
        assert set(catalog.current(sales.name)) == {ZURICH.path}
        findings = [(item.partition, item.batch_id, item.problem.split(":")[0]) for item in recovered.findings]
        broken = newer[PARIS.path].batch_id
        assert findings == [
            (PARIS.path, broken, "the folder holds a broken parquet file"),
            (PARIS.path, broken, "this batch was current, and does not lie there whole"),
        ]
        kept = History(opened).batches(sales.name, [PARIS.path])
        assert [(batch.batch_id, batch.state.value) for batch in kept] == [(older[PARIS.path].batch_id, "retired")]


def test_a_lake_without_a_record_gives_the_newest_batches_and_says_so(
    workbench: Workbench, store: LakeStore, sales: Dataset, fresh_database: str
) -> None:
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    current = workbench.publish(sales, [PARIS], [(PARIS, "pen", 3)])
    for file in Path(store.layout.record_of(sales.name)).iterdir():
        file.unlink()
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        catalog = Catalog(opened)
        catalog.ensure_schema()
        (inventory,) = [item for item in store.inventory() if item.dataset == sales.name]
        recovered = recover(opened, StoreKind.LAKE, inventory)
        assert [item.problem for item in recovered.findings] == [
            "the store has no record of what was current; the newest batch of each partition was taken"
        ]
        recovered_ids = {path: batch.batch_id for path, batch in catalog.current(sales.name).items()}
        assert recovered_ids == {path: batch.batch_id for path, batch in current.items()}


def test_a_publish_that_died_before_its_record_is_recorded_by_the_next(
    workbench: Workbench, store: LakeStore, catalog: Catalog, sales: Dataset
) -> None:
    build = workbench.begin(catalog, sales, [PARIS])
    catalog.staged(build, store.stage(build, workbench.frame(sales, [(PARIS, "pen", 2)])))
    catalog.publish(build)
    catalog.release(build)
    folder = Path(store.layout.record_of(sales.name))
    assert not folder.exists()
    after = workbench.publish(sales, [ZURICH], [(ZURICH, "ink", 2)])[ZURICH.path].batch_id
    assert sorted(file.name for file in folder.iterdir()) == [f"{build.batch_id}.json", f"{after}.json"]


def test_a_run_that_is_ended_right_after_its_publish_takes_nothing_away(
    workbench: Workbench, store: LakeStore, catalog: Catalog, sales: Dataset
) -> None:
    builds = Builds(Graph({sales.name: sales}, {sales.name: ()}, {}), SparkResource(), workbench.settings)
    build = workbench.begin(catalog, sales, [PARIS])
    catalog.staged(build, store.stage(build, workbench.frame(sales, [(PARIS, "pen", 2)])))
    catalog.publish(build)
    # As Dagster does where a person terminates the run: an exception in whatever it was doing.
    builds.abandon(OpenBuild(build, catalog), StepFailure("terminated"))
    assert [row[-2:] for row in workbench.read(sales)] == [("pen", 2)]
    unpublished = workbench.catalog()
    failing = workbench.begin(unpublished, sales, [PARIS])
    LakeStore(store.layout, unpublished, store.spark).stage(failing, workbench.frame(sales, []))
    folder = Path(store.layout.batch(sales, PARIS, failing.batch_id))
    assert folder.exists()
    builds.abandon(OpenBuild(failing, unpublished), StepFailure("terminated"))
    assert not folder.exists()


def remove(batch: Batch) -> None:
    """Delete the folder of a batch, and tell the catalog nothing."""
    for file in sorted(Path(batch.location).rglob("*")):
        file.unlink()
    Path(batch.location).rmdir()


def test_folders_are_told_apart_by_name(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    table = tmp_path / "db" / "sales"
    for place in ("day=1/batch_id=5/x.parquet", "_temporary/0/y/x", "day=1/x.parquet", "_varve/7.json", "readme"):
        (table / place).parent.mkdir(parents=True, exist_ok=True)
        (table / place).write_bytes(b"12")
    # What another store has put beside the databases is that store's.
    spooled = tmp_path / "_spool" / "db" / "totals" / "day=1" / "batch_id=7"
    spooled.mkdir(parents=True)
    (spooled / "x.parquet").write_bytes(b"12")
    (tmp_path / "batch_id=9").mkdir()
    sizes = {unit.location.removeprefix(f"{tmp_path}/"): unit.size for unit in clean.units(layout)}
    assert sizes == {"db/sales/day=1/batch_id=5": 2, "db/sales/_temporary/0": 2}
    assert [clean.batch_of(place) for place in sorted(sizes)] == [None, 5]
    of_spool = clean.units(Layout(str(tmp_path / "_spool")))
    assert [(unit.dataset, unit.location) for unit in of_spool] == [("db.totals", str(spooled))]
