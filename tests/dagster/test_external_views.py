"""EXTERNAL VIEW: the files of others are read where they are, exactly as they were listed, or not at all."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.dagster.test_external_assets import SALES, tick
from tests.dagster.test_sql_assets import HEAD, materialise
from tests.support.project import PROJECT, commands_on
from varve.catalog.history.history import History
from varve.cli.batches import rollback
from varve.cli.batches.drop import readers_of
from varve.cli.files import importing
from varve.dagster.assets.datasets import DatasetAsset, graph_of
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.automation.sensors import arrival_sensor, downstream_sensor
from varve.model.errors import BadInput, MissingUpstream, VarveError
from varve.model.partitions.key import PartitionKey
from varve.sources.external import read as external_read
from varve.sources.external.read import open_external_table
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.stores.open import open_store
from varve.stores.views.store import ViewStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dagster as dg

    from tests.support.workbench import Workbench
    from varve.model.dataset import Dataset

COLUMNS = "product STRING, price INT"


def files(db: str, options: str, body: str = "EXTERNAL VIEW") -> list[DatasetAsset]:
    texts = {
        "receipts": HEAD.format(db=db, name="receipts", columns=COLUMNS) + f"{body} OPTIONS ({options})",
        "sales": HEAD.format(db=db, name="sales", columns="product STRING, revenue BIGINT") + SALES.format(db=db),
    }
    return sql_assets(compiled([SourceFile(f"{name}.sql", text) for name, text in texts.items()], {}))


@dataclass
class Partner:
    """Who owns the files: a table of the metastore, or a folder that no metastore knows."""

    bench: Workbench
    db: str
    source: str
    folder: Path

    @property
    def table(self) -> str:
        return f"default.{self.db}"

    @property
    def assets(self) -> list[DatasetAsset]:
        place = f"table = '{self.table}'" if self.source == "table" else f"folder = '{self.folder}'"
        return files(self.db, f"source = '{self.source}', {place}")

    @property
    def view(self) -> Dataset:
        return self.assets[0].dataset

    def write(self, day: int, *rows: tuple[str, int]) -> None:
        """Write a partition as its owner does: with Spark over its table, or by files of its own."""
        frame = self.bench.spark.createDataFrame(list(rows), COLUMNS)
        if self.source == "parquet":
            frame.coalesce(1).write.mode("overwrite").parquet(f"{self.folder}/day=2022-03-{day:02}")
            return
        frame.createOrReplaceTempView("written")
        self.bench.spark.sql(
            f"INSERT OVERWRITE {self.table} PARTITION (day = '2022-03-{day:02}') SELECT * FROM written"
        )

    def bytes_here(self) -> int:
        """How many bytes of data lie in the folders of Varve for this dataset."""
        return sum(
            file.stat().st_size for file in Path(self.bench.settings.lake).glob(f"{self.db}/receipts/**/*.parquet")
        )

    def read(self, *days: int) -> list[tuple[object, ...]]:
        catalog = self.bench.catalog()
        try:
            keys = [PartitionKey.of(day=f"2022-03-{day:02}") for day in days]
            batches = [*catalog.current(self.view.name, keys).values()]
            store = open_store(self.view.store, self.bench.settings, catalog, lambda: self.bench.spark)
            return sorted(tuple(row) for row in store.read(self.view, batches).collect())
        finally:
            catalog.connection.close()


@pytest.fixture(params=["table", "parquet"])
def partner(request: pytest.FixtureRequest, workbench: Workbench, tmp_path: Path) -> Iterator[Partner]:
    made = Partner(workbench, f"v{uuid.uuid4().hex[:8]}", request.param, tmp_path / "clicks")
    if made.source == "table":
        workbench.spark.sql(f"CREATE TABLE {made.table} ({COLUMNS}, day STRING) USING parquet PARTITIONED BY (day)")
    made.write(1, ("x", 1), ("y", 2))
    made.write(2, ("x", 3))
    yield made
    workbench.spark.sql(f"DROP TABLE IF EXISTS {made.table}")


@pytest.mark.spark
def test_files_of_others_are_listed_and_read_where_they_are_and_what_reads_them_follows(
    partner: Partner,
) -> None:
    assets, db, spark = partner.assets, partner.db, partner.bench.spark
    graph = graph_of(assets)
    arrivals, downstream = arrival_sensor(graph, PROJECT), downstream_sensor(graph, PROJECT)
    both = ("2022-03-01", "2022-03-02")
    assert [*tick(arrivals)] == [("receipts", *both)]
    assert materialise(assets, f"{db}.receipts", *both).success
    assert [*tick(downstream)] == [("sales", *both)]
    assert materialise(assets, f"{db}.sales", *both).success
    assert partner.bytes_here() == 0
    assert partner.read(1, 2) == [("x", 1, both[0]), ("x", 3, both[1]), ("y", 2, both[0])]
    catalog = partner.bench.catalog()
    assert {path: batch.rows for path, batch in catalog.current(f"{db}.receipts").items()} == {
        "day=2022-03-01": 2, "day=2022-03-02": 1,
    }  # fmt: skip
    shown = spark.sql(f"SELECT product, price, day FROM {db}.receipts WHERE day = '2022-03-02'").collect()
    assert [tuple(row) for row in shown] == [("x", 3, "2022-03-02")]

    # Its owner writes a day anew: nobody reads it as if it were still what was listed.
    partner.write(2, ("x", 30))
    with pytest.raises(MissingUpstream, match=r"day=2022-03-02: .* no history to read or to roll back to"):
        partner.read(2)
    assert partner.read(1) == [("x", 1, both[0]), ("y", 2, both[0])]
    failed = materialise(assets, f"{db}.sales", both[1], both[1])
    assert "It is an EXTERNAL VIEW" in str(failed.failure_data_for_node(f"{db}__sales"))
    findings = open_store("view", partner.bench.settings, catalog, lambda: spark).examine(
        partner.view, [*catalog.current(f"{db}.receipts").values()]
    )
    assert [finding.partition for finding in findings] == ["day=2022-03-02"]

    # A changed listing is another batch, and makes due what reads it, and nothing else.
    assert [*tick(arrivals)] == [("receipts", both[1], both[1])]
    assert materialise(assets, f"{db}.receipts", both[1], both[1]).success
    assert [*tick(downstream)] == [("sales", both[1], both[1])]
    assert materialise(assets, f"{db}.sales", both[1], both[1]).success
    assert partner.read(2) == [("x", 30, both[1])]

    # The batch before is in the history, and cannot be gone back to.
    key = PartitionKey.of(day="2022-03-02")
    before = min(History(catalog.connection).batches(f"{db}.receipts", [key.path]), key=lambda batch: batch.batch_id)
    build = catalog.lock_partitions(partner.view, [key], run_id="by hand")
    store = open_store("view", partner.bench.settings, catalog, lambda: spark)
    with pytest.raises(MissingUpstream, match="Nothing was changed"):
        store.republish(build, [before])  # type: ignore[list-item]
    catalog.connection.close()
    assert partner.read(2) == [("x", 30, both[1])]


@pytest.mark.spark
@pytest.mark.parametrize("partner", ["table"], indirect=True)
def test_a_table_that_exists_is_imported(partner: Partner, capsys: pytest.CaptureFixture[str]) -> None:
    importing.import_table(Console(width=200), partner.table, name="", copies=False, only_print=True)
    assert (
        capsys.readouterr().out
        == f"""CREATE DATASET {partner.table} (
  product STRING,
  price INT
)
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
  INSERT (day = DATE_FORMAT(t, 'yyyy-MM-dd'))
EXTERNAL VIEW OPTIONS (source = 'table', table = '{partner.table}');
"""
    )
    with pytest.raises(VarveError, match=r"default\.nowhere: it cannot be read: .* Nothing was written"):
        importing.import_table(Console(), "default.nowhere", name="", copies=False, only_print=True)


def test_a_view_over_the_table_of_its_own_name_is_no_reader_of_itself() -> None:
    graph = graph_of(files("own", "source = 'table', table = 'own.receipts'"))
    assert readers_of("own.receipts", graph) == ["own.sales"]


@pytest.mark.spark
@pytest.mark.parametrize("partner", ["parquet"], indirect=True)
def test_a_reader_is_not_published_where_the_files_change_while_it_reads(
    partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets, db = partner.assets, partner.db
    day = "2022-03-01"
    tick(arrival_sensor(graph_of(assets), PROJECT))
    assert materialise(assets, f"{db}.receipts", day, day).success
    read = ViewStore.read

    def then_written(*arguments: object) -> object:
        frame = read(*arguments)  # type: ignore[arg-type]
        (file,) = partner.folder.glob(f"day={day}/*.parquet")
        file.write_bytes(file.read_bytes())
        return frame

    monkeypatch.setattr(ViewStore, "read", then_written)
    failed = materialise(assets, f"{db}.sales", day, day)
    told = str(failed.failure_data_for_node(f"{db}__sales"))
    assert re.search(r"was written again \(\d+ bytes, 20[-0-9]{8} [0-9:.]+ UTC; now \d+ bytes, 20", told)
    catalog = partner.bench.catalog()
    assert catalog.current(f"{db}.sales") == {}
    catalog.connection.close()


@pytest.mark.spark
@pytest.mark.parametrize("partner", ["parquet"], indirect=True)
def test_a_partition_that_is_gone_for_good_is_taken_out_by_a_person(
    partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets, db, day = partner.assets, partner.db, "2022-03-02"
    before = dt.datetime.now(dt.UTC)
    assert materialise(assets, f"{db}.receipts", "2022-03-01", day).success
    shutil.rmtree(partner.folder / f"day={day}")
    failed = materialise(assets, f"{db}.sales", day, day)
    assert "one that is gone for good is taken out by varve rollback" in said(failed)
    commands_on(graph_of(assets), monkeypatch)
    plans = rollback.plan_time(f"{db}.receipts", [f"day={day}"], before)
    rollback.carry_out(plans, reason="the partner has deleted it", withdraw=True)
    catalog = partner.bench.catalog()
    assert [*catalog.current(f"{db}.receipts")] == ["day=2022-03-01"]
    catalog.connection.close()
    assert materialise(assets, f"{db}.sales", "2022-03-01", "2022-03-01").success


@pytest.mark.parametrize(
    ("options", "clause", "message"),
    [
        ("source = 'postgres', table = 'a.b', url = 'X'", "", "EXTERNAL VIEW reads files where they are"),
        ("source = 'table', table = 'a.b', changed = 'at'", "", "the files of an EXTERNAL VIEW tell"),
        ("source = 'parquet'", "", "which folder? Write OPTIONS (source = 'parquet', folder = '/data/clicks')"),
        ("source = 'table', table = 'a.b'", "STORED IN LAKE", "STORED IN is about batches that are written"),
        ("source = 'table', table = 'a.b'", "EXPECT some: price > 0", "EXPECT is about batches that are written"),
        ("source = 'table', table = 'a.b'", "SCHEDULE '@daily'", "SCHEDULE is for what is computed"),
    ],
)
def test_what_a_view_cannot_be_is_told_at_its_place(options: str, clause: str, message: str) -> None:
    with pytest.raises(SqlErrors) as caught:
        files("shop", options, f"{clause}\nEXTERNAL VIEW")
    assert message in str(caught.value)
    assert str(caught.value).startswith(("receipts.sql:6:", "receipts.sql:7:"))


PADDED = """CREATE DATASET {db}.clicks (product STRING, price INT)
PARTITIONED BY (year INT, month INT, hour STRING)
FOR t IN TIMESERIES(INTERVAL 1 MONTH, START '2022-01-01'), hour IN ('a b', 'c')
INSERT (year = YEAR(t), month = MONTH(t), hour = hour)
EXTERNAL VIEW OPTIONS (source = 'parquet', folder = '{folder}')
"""


@pytest.mark.spark
def test_folders_that_spell_their_partitions_otherwise_are_read_with_the_keys_of_the_dataset(
    workbench: Workbench, tmp_path: Path
) -> None:
    db, folder = f"v{uuid.uuid4().hex[:8]}", tmp_path / "clicks"
    text = PADDED.format(db=db, folder=folder)
    dataset = compiled([SourceFile("clicks.sql", text)], {})[f"{db}.clicks"].dataset
    frame = workbench.spark.createDataFrame([("x", 1)], COLUMNS)
    for place in ("year=2022/month=03/hour=a%20b", "year=2022/month=11/hour=c"):
        frame.write.parquet(f"{folder}/{place}")
    (folder / "year=2022/month=03/hour=a%20b/_SUCCESS").write_text("no data", encoding="utf-8")
    assert dataset.external is not None
    source = open_external_table(workbench.settings, dataset.external, lambda: workbench.spark)
    listed = source.listed(dataset)
    assert listed.strays == {}
    catalog = workbench.catalog()
    build = workbench.begin(catalog, dataset, sorted(listed.partitions))
    store = open_store("view", workbench.settings, catalog, lambda: workbench.spark)
    staged = store.stage(build, external_read.listing_frame(workbench.spark, listed.partitions))
    catalog.staged(build, staged)
    store.publish(build, staged)
    rows = sorted(tuple(row) for row in store.read(dataset, [*catalog.current(dataset.name).values()]).collect())
    assert rows == [("x", 1, 2022, 3, "a b"), ("x", 1, 2022, 11, "c")]
    frame.withColumn("price", frame.price.cast("string")).write.mode("overwrite").parquet(
        f"{folder}/year=2022/month=11/hour=c"
    )
    with pytest.raises(BadInput, match="price is string there and declared INT"):
        store.stage(build, external_read.listing_frame(workbench.spark, source.listed(dataset).partitions))
    catalog.connection.close()


@pytest.mark.spark
@pytest.mark.parametrize("body", ["EXTERNAL VIEW", "EXTERNAL"])
def test_characters_that_spark_takes_for_wildcards_are_part_of_names(
    body: str, workbench: Workbench, tmp_path: Path
) -> None:
    db, folder = f"v{uuid.uuid4().hex[:8]}", tmp_path / "{all}[1]"
    text = (
        HEAD.format(db=db, name="clicks", columns=COLUMNS) + f"{body} OPTIONS (source = 'parquet', folder = '{folder}')"
    )
    assets = sql_assets(compiled([SourceFile("clicks.sql", text)], {}))
    (folder / "day=2022-03-01").mkdir(parents=True)
    for name, price in (("shop1.parquet", 1), ("shop[1].parquet", 2), ("shop?.parquet", 3)):
        rows = pa.table({"product": ["x"], "price": pa.array([price], pa.int32())})
        pq.write_table(rows, folder / "day=2022-03-01" / name)
    assert materialise(assets, f"{db}.clicks", "2022-03-01", "2022-03-01").success
    catalog, dataset = workbench.catalog(), assets[0].dataset
    store = open_store(dataset.store, workbench.settings, catalog, lambda: workbench.spark)
    rows = store.read(dataset, [*catalog.current(dataset.name).values()]).collect()
    catalog.connection.close()
    assert sorted(row["price"] for row in rows) == [1, 2, 3]
    if body == "EXTERNAL VIEW":
        assert workbench.spark.table(f"{db}.clicks").count() == 3


@pytest.mark.spark
@pytest.mark.parametrize("body", ["EXTERNAL VIEW", "EXTERNAL"])
def test_a_column_that_no_file_of_a_folder_has_is_a_mistake_and_one_that_was_added_is_none(
    body: str, workbench: Workbench, tmp_path: Path
) -> None:
    db, folder = f"v{uuid.uuid4().hex[:8]}", tmp_path / "clicks"
    columns = f"{COLUMNS}, prize BIGINT"
    text = (
        HEAD.format(db=db, name="clicks", columns=columns) + f"{body} OPTIONS (source = 'parquet', folder = '{folder}')"
    )
    assets = sql_assets(compiled([SourceFile("clicks.sql", text)], {}))
    frame = workbench.spark.createDataFrame([("x", 1)], COLUMNS)
    frame.write.parquet(f"{folder}/day=2022-03-01")
    frame.write.parquet(f"{folder}/day=2022-03-02")
    refused = materialise(assets, f"{db}.clicks", "2022-03-01", "2022-03-01")
    assert "no file of" in said(refused)
    assert "has a column prize; they have price, product. Nothing was published" in said(refused)
    # It is added from the second day on, as Spark writes it, in another case.
    later = workbench.spark.createDataFrame([("y", 2, 3)], "product STRING, price INT, Prize BIGINT")
    later.write.mode("overwrite").parquet(f"{folder}/day=2022-03-02")
    assert materialise(assets, f"{db}.clicks", "2022-03-01", "2022-03-02").success
    catalog, dataset = workbench.catalog(), assets[0].dataset
    store = open_store(dataset.store, workbench.settings, catalog, lambda: workbench.spark)
    rows = sorted(tuple(row)[:3] for row in store.read(dataset, [*catalog.current(dataset.name).values()]).collect())
    assert rows == [("x", 1, None), ("y", 2, 3)]
    if body == "EXTERNAL VIEW":
        shown = workbench.spark.sql(f"SELECT product, prize FROM {db}.clicks ORDER BY product").collect()
        assert [tuple(row) for row in shown] == [("x", None), ("y", 3)]
    catalog.connection.close()
    # A file that is only begun, beside a whole one.
    (folder / "day=2022-03-02" / "part-9.parquet").touch()
    assert "part-9.parquet is no parquet file that can be read" in said(
        materialise(assets, f"{db}.clicks", "2022-03-02", "2022-03-02")
    )


@pytest.mark.spark
def test_a_column_of_a_copied_folder_may_be_widened_and_another_type_is_told_by_its_file(
    workbench: Workbench, tmp_path: Path
) -> None:
    db, folder = f"v{uuid.uuid4().hex[:8]}", tmp_path / "clicks"
    options = f"OPTIONS (source = 'parquet', folder = '{folder}')"
    text = HEAD.format(db=db, name="clicks", columns="product STRING, price BIGINT") + f"EXTERNAL {options}"
    assets = sql_assets(compiled([SourceFile("clicks.sql", text)], {}))
    workbench.spark.createDataFrame([("x", 1)], COLUMNS).write.parquet(f"{folder}/day=2022-03-01")
    workbench.spark.createDataFrame([("x", "1")], "product STRING, price STRING").write.parquet(
        f"{folder}/day=2022-03-02"
    )
    assert materialise(assets, f"{db}.clicks", "2022-03-01", "2022-03-01").success
    text = said(materialise(assets, f"{db}.clicks", "2022-03-02", "2022-03-02"))
    assert re.search(r"the file \S+/day=2022-03-02/\S+ has price as \w+, which cannot be read as bigint", text)
    assert "Declare the type of the files. Nothing was published" in text


def said(result: dg.ExecuteInProcessResult) -> str:
    """What the failed run says."""
    assert not result.success
    return " ".join(str(event.event_specific_data) for event in result.all_events if event.is_step_failure)
