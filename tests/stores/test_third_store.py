"""A store that Varve does not have: a parquet file for each batch, in a folder. A package adds it by an entry point.

It goes through the life of batches with the real catalog and the real Spark, with no other file than this one.
"""

from __future__ import annotations

import datetime as dt
import shutil
import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow.parquet as pq
import pytest

from tests.support.sales import sales_dataset
from tests.support.workbench import Workbench
from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.cli.batches import doctor, history, sweep
from varve.dagster.assets.datasets import dataset_asset
from varve.dagster.definitions import definitions
from varve.dagster.discovery import load_project
from varve.dagster.runs.atomic_publish import republish
from varve.model.batch import BatchId, StagedBatch
from varve.model.dataset import store_names
from varve.model.errors import BadInput, MissingUpstream, StalePublish, VarveError, VerifyFailed
from varve.model.inventory import Finding, Leftover
from varve.model.partitions.key import PartitionKey
from varve.project import Project
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.header import parse
from varve.stores.basic import BasicStore
from varve.stores.frames import conform, in_partitions, spark_schema
from varve.stores.open import open_store, store_type
from varve.stores.store import StoreType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.batch import Batch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.services.settings import Settings
    from varve.stores.store import Store

ROWS = "rows.parquet"


@dataclass(frozen=True)
class FolderStore(BasicStore):
    """`<root>/<dataset>/<partition>/batch_id=<id>/rows.parquet`."""

    root: Path
    spark: Callable[[], SparkSession]

    def folder(self, dataset: str, path: str, batch_id: BatchId) -> Path:
        return self.root / dataset / path / batch_id.folder

    def stage(self, build: Build, frame: DataFrame) -> list[StagedBatch]:
        rows = conform(build, frame)
        if outside := rows.where(~in_partitions(build.partitions)).count():
            raise BadInput(f"{build}: {outside} rows lie outside the partitions of this run.")
        return [self._written(build, key, rows.where(in_partitions([key]))) for key in build.partitions]

    def _written(self, build: Build, key: PartitionKey, rows: DataFrame) -> StagedBatch:
        table = rows.drop(*build.dataset.partitioning.names).toArrow()
        folder = self.folder(build.dataset.name, key.path, build.batch_id)
        folder.mkdir(parents=True)
        pq.write_table(table, folder / ROWS)
        return StagedBatch(key, str(folder), table.num_rows, (folder / ROWS).stat().st_size, 1)

    def verify(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        if any(pq.read_metadata(Path(each.location, ROWS)).num_rows != each.rows for each in staged):
            raise VerifyFailed(f"{build}: a file has other rows than were written.")

    def discard(self, build: Build) -> None:
        for path in build.paths:
            shutil.rmtree(self.folder(build.dataset.name, path, build.batch_id), ignore_errors=True)

    def refuse_missing(self, dataset: Dataset, batches: Sequence[Batch]) -> None:
        if findings := self.examine(dataset, batches):
            raise MissingUpstream(f"{dataset}: {len(findings)} files are gone.")

    def sweep(self, dataset_name: str, locations: Sequence[str]) -> None:
        del dataset_name
        for location in locations:
            shutil.rmtree(location, ignore_errors=True)

    def leftovers(self) -> list[Leftover]:
        there = {str(file.parent): file for file in self.root.rglob(ROWS)}
        for dataset, path, batch_id, _ in History(self.catalog.connection).kept():
            there.pop(str(self.folder(dataset, path, batch_id)), None)
        return [
            Leftover(place, Path(place).relative_to(self.root).parts[0], file.stat().st_size, dt.datetime.now(dt.UTC))
            for place, file in there.items()
        ]

    def scratch(self, dataset: Dataset) -> str:
        return str(self.root / dataset.name)

    def examine(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> list[Finding]:
        del deep
        gone = [each for each in batches if not Path(each.location, ROWS).exists()]
        return [Finding(dataset.name, each.partition, each.batch_id, "its file is gone", "Run it.") for each in gone]

    def read(self, dataset: Dataset, batches: Sequence[Batch], columns: Sequence[str] | None = None) -> DataFrame:
        self.refuse_missing(dataset, batches)
        wanted = dataset.read_columns(columns)
        schema = spark_schema(wanted)
        reader = self.spark().read.schema(schema).option("basePath", str(self.root / dataset.name))
        files = [each.location for each in batches]
        if not files:
            return self.spark().createDataFrame([], schema)
        return reader.parquet(*files).select(*[column.name for column in wanted])


def _open(settings: Settings, catalog: Catalog, spark: Callable[[], SparkSession]) -> FolderStore:
    return FolderStore(catalog, settings.home_dir / "folders", spark)


FOLDER = StoreType("folder", "parquet", _open, in_folders=True)
NO_STORE = "neither"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the store, as pip leaves it; and one of a store that is none."""
    about = tmp_path / "packages" / "folder_store-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: folder-store\nVersion: 1.0\n")
    points = {"folder": f"{__name__}:FOLDER", "neither": f"{__name__}:NO_STORE", "gone": "no_such_package:STORE"}
    (about / "entry_points.txt").write_text(
        "[varve.stores]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
    )
    monkeypatch.syspath_prepend(about.parent)


@pytest.fixture
def sales() -> Dataset:
    return sales_dataset(FOLDER.name)


PARIS, ZURICH = (PartitionKey.of(day=dt.date(2013, 1, 5), store=store) for store in ("Paris", "Zürich"))
DAY = dt.date(2013, 1, 5)


@pytest.mark.usefixtures("installed")
def test_a_store_is_known_by_its_entry_point() -> None:
    assert store_names() == ["lake", "warehouse", "view", "folder", "gone", "neither"]
    assert store_type("folder") is FOLDER
    with pytest.raises(VarveError, match=r"there is no store 'foldr'. Did you mean folder\? There are lake, warehouse"):
        store_type("foldr")
    with pytest.raises(VarveError, match=r"the store neither is .*:NO_STORE, which is 'neither' and no StoreType"):
        store_type("neither")
    with pytest.raises(VarveError, match=r"the store gone is no_such_package:STORE, which cannot be imported"):
        store_type("gone")


def test_without_its_package_a_dataset_of_the_store_is_refused_by_name(sales: Dataset) -> None:
    with pytest.raises(VarveError, match=rf"dataset {sales.name}: there is no store 'folder'\..* lake, warehouse"):
        dataset_asset(sales)(lambda _: None)


@pytest.mark.spark
@pytest.mark.usefixtures("installed")
def test_batches_are_staged_verified_published_read_and_put_back(
    settings: Settings, spark: SparkSession, sales: Dataset
) -> None:
    bench = Bench(settings, spark)
    first = bench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    assert {path: batch.rows for path, batch in first.items()} == {PARIS.path: 1, ZURICH.path: 1}
    assert bench.read(sales) == [(DAY, "Paris", "pen", 1), (DAY, "Zürich", "ink", 2)]

    second = bench.publish(sales, [PARIS], [(PARIS, "pen", 10), (PARIS, "tea", 20)])
    assert second[ZURICH.path] == first[ZURICH.path]
    assert bench.read(sales, [PARIS]) == [(DAY, "Paris", "pen", 10), (DAY, "Paris", "tea", 20)]

    with closing(bench.catalog().connection) as connection:
        catalog = Catalog(connection)
        store = bench.store(sales, catalog)
        build = catalog.lock_partitions(sales, [PARIS], run_id="back")
        store.republish(build, [first[PARIS.path]], reason="the second was wrong")
        assert list(store.examine(sales, list(first.values()))) == []
    assert bench.read(sales, [PARIS]) == [(DAY, "Paris", "pen", 1)]


@pytest.mark.spark
@pytest.mark.usefixtures("installed")
def test_the_catalog_keeps_its_promises_over_any_store(settings: Settings, spark: SparkSession, sales: Dataset) -> None:
    bench = Bench(settings, spark)
    before = bench.publish(sales, [PARIS], [(PARIS, "pen", 1)])
    with pytest.raises(BadInput, match="1 rows lie outside"):
        bench.publish(sales, [PARIS], [(PARIS, "pen", 2), (ZURICH, "pen", 2)])
    with closing(bench.catalog().connection) as connection:
        slow = Catalog(connection)
        store, build = bench.store(sales, slow), bench.begin(slow, sales, [PARIS])
        staged = store.stage(build, bench.frame(sales, [(PARIS, "slow", 1)]))
        slow.staged(build, staged)
        store.verify(build, staged)
        assert bench.read(sales) == [(DAY, "Paris", "pen", 1)]
        # Whoever builds now is no leftover's owner.
        assert staged[0].location not in {leftover.location for leftover in store.leftovers()}
        slow.release(build)
        bench.publish(sales, [PARIS], [(PARIS, "fast", 2)])
        with pytest.raises(StalePublish):
            store.publish(build, staged)
        slow.fail(build, "another was faster")
        assert [leftover.dataset for leftover in store.leftovers() if leftover.location == staged[0].location] == [
            sales.name
        ]
        store.discard(build)
        assert not Path(staged[0].location).exists()
        Path(before[PARIS.path].location, ROWS).unlink()
        with pytest.raises(MissingUpstream):
            store.read(sales, list(before.values()))


@pytest.mark.spark
@pytest.mark.usefixtures("installed")
def test_datasets_of_three_stores_go_back_together(settings: Settings, spark: SparkSession) -> None:
    bench = Bench(settings, spark)
    datasets = [sales_dataset(store) for store in ("lake", "warehouse", "folder")]
    first = {each.name: bench.publish(each, [PARIS], [(PARIS, "pen", 1)]) for each in datasets}
    for each in datasets:
        bench.publish(each, [PARIS], [(PARIS, "pen", 2)])
    with closing(bench.catalog().connection) as connection:
        catalog = Catalog(connection)
        returns = {
            each.name: (catalog.lock_partitions(each, [PARIS], run_id="back"), list(first[each.name].values()))
            for each in datasets
        }
        gone = {
            name: (
                build,
                [replace(batch, location="/gone") for batch in batches] if name == datasets[2].name else batches,
            )
            for name, (build, batches) in returns.items()
        }
        with pytest.raises(MissingUpstream):
            republish(catalog, gone, lambda dataset: bench.store(dataset, catalog), reason="wrong")
        assert [bench.read(each) for each in datasets] == [[(DAY, "Paris", "pen", 2)]] * 3
        republish(catalog, returns, lambda dataset: bench.store(dataset, catalog), reason="wrong")
    assert [bench.read(each) for each in datasets] == [[(DAY, "Paris", "pen", 1)]] * 3


@dataclass
class Bench(Workbench):
    """The workbench over whichever stores are installed."""

    def store(self, dataset: Dataset, catalog: Catalog) -> Store:
        return open_store(dataset.store, self.settings, catalog, lambda: self.spark)


FILE = """CREATE DATASET {db}.{name}
STORED IN {store}
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-05')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
AS {query};
"""
DAYS = {"dagster/asset_partition_range_start": "2022-03-01", "dagster/asset_partition_range_end": "2022-03-02"}


@pytest.mark.spark
@pytest.mark.usefixtures("installed")
def test_a_sql_file_names_the_store_and_every_command_knows_it(
    settings: Settings, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = f"t{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "shop"
    (folder / "assets").mkdir(parents=True)
    (folder / "varve.toml").write_text("")
    queries = {
        ("made", "folder"): "SELECT 'pen' AS product, {number} AS sold",
        ("seen", "lake"): "SELECT product, SUM(sold) AS sold FROM {db}.made WHERE made.day = today GROUP BY product",
    }
    monkeypatch.setenv("VARVE_PROJECT", str(folder))

    def declare(number: int) -> dg.JobDefinition:
        for (name, store), query in queries.items():
            text = FILE.format(db=db, name=name, store=store, query=query.format(db=db, number=number))
            (folder / "assets" / f"{name}.sql").write_text(text)
        load_project.cache_clear()
        return definitions(Project.find()).resolve_implicit_global_asset_job_def()

    for number in (1, 2):
        keys = [dg.AssetKey([db, "made"]), dg.AssetKey([db, "seen"])]
        done = declare(number).execute_in_process(asset_selection=keys, tags=DAYS)
        assert done.success
    events = done.asset_materializations_for_node(keys[0].to_python_identifier())
    assert all(str(settings.home_dir / "folders") in str(event.metadata["dagster/uri"].value) for event in events)
    made = load_project(Project.find()).graph.datasets[f"{db}.made"]
    assert made.store == "folder"
    assert [row["location"] for row in history.folders(made.name, [])] == [
        str(event.metadata["dagster/uri"].value) for event in events
    ]
    report = sweep.sweep(
        dataset=made.name, older_than=dt.timedelta(0), keep_last=0, orphans_older_than=dt.timedelta(0), dry_run=False
    )
    # One reads the other: what it was made from is kept no longer than that.
    assert report.batches[made.name].count == 2
    assert doctor.doctor(made.name, deep=False).findings == []
    for row in history.folders(made.name, []):
        shutil.rmtree(row["location"])
    assert [finding.problem for finding in doctor.doctor(made.name, deep=False).findings] == ["its file is gone"] * 2


@pytest.mark.usefixtures("installed")
def test_a_sql_file_with_another_store_is_told_which_there_are() -> None:
    text = FILE.format(db="a", name="b", store="FOLDR", query="SELECT 1 AS one")
    with pytest.raises(
        SqlErrors, match=r"LAKE, WAREHOUSE, FOLDER, GONE, NEITHER; found 'FOLDR'\. Did you mean FOLDER\?"
    ):
        parse(SourceFile("b.sql", text))
