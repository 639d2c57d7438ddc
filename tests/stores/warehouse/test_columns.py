"""What reads a warehouse dataset fetches the columns that it names and no other byte: SQL files, Python, notebooks."""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from varve.dagster.assets.datasets import DatasetAsset, dataset_asset
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.definitions import build_defs
from varve.dagster.reading import Reader
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.reads import Reads
from varve.model.schema import Column, ColumnType, Schema
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile
from varve.stores.postgres import spark_source as source

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

HEAD = """CREATE DATASET {db}.{name} ({columns})
STORED IN {store}
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-05')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
"""
WIDE, DAYS = "product STRING, price INT, note STRING", ("2022-03-01", "2022-03-02")
NOTE = "n" * 1_000


def project(db: str) -> list[DatasetAsset]:
    """A wide dataset of the warehouse; what reads it in SQL by name and by star, and in Python."""

    def text(name: str, columns: str, rest: str, store: str = "LAKE") -> SourceFile:
        return SourceFile(f"{name}.sql", HEAD.format(db=db, name=name, columns=columns, store=store) + rest)

    table = f"EXTERNAL OPTIONS (source = 'table', table = 'default.{db}_dumps')"
    named = f"AS SELECT product, SUM(price) AS price FROM {db}.receipts WHERE day = today GROUP BY product"
    files = [
        text("receipts", WIDE, table, "WAREHOUSE"),
        text("named", "product STRING, price BIGINT", named),
        text("counted", "n BIGINT", f"AS SELECT COUNT(*) AS n FROM {db}.receipts WHERE day = today"),
        text("starred", WIDE, f"AS SELECT * EXCEPT (day) FROM {db}.receipts WHERE day = today"),
    ]
    assets = sql_assets(compiled(files, {}))
    receipts = assets[0].dataset
    schema = Schema((Column("price", ColumnType.INT),))
    priced = Dataset(f"{db}.priced", receipts.partitioning, schema, StoreKind.LAKE, "The prices.")

    @dataset_asset(priced, reads={"receipts": Reads(receipts, columns=("price",))})
    def prices(receipts: DataFrame) -> DataFrame:
        return receipts

    return [*assets, prices]


@pytest.fixture
def db(workbench: "Workbench") -> str:
    db = f"w{uuid.uuid4().hex[:8]}"
    rows = [(product, place, NOTE, day) for day in DAYS for place, product in enumerate(("pen", "ink") * 20)]
    frame = workbench.spark.createDataFrame(rows, f"{WIDE}, day STRING")
    frame.write.partitionBy("day").saveAsTable(f"default.{db}_dumps")
    return db


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int]]:
    """The columns and the bytes of each fetch while a test runs."""
    seen: list[tuple[list[str], int]] = []
    fetch = source.fetch

    def watched(url: str, queries: list[str], schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
        batches = list(fetch(url, queries, schema))
        seen.append((schema.names, sum(batch.nbytes for batch in batches)))
        yield from batches

    monkeypatch.setattr(source, "fetch", watched)
    return seen


def test_only_the_columns_that_are_read_are_fetched(
    workbench: "Workbench", db: str, fetched: list[tuple[list[str], int]]
) -> None:
    assets = {asset.dataset.table: asset for asset in project(db)}
    whole = build_defs(assets.values()).resolve_implicit_global_asset_job_def()
    tags = {"dagster/asset_partition_range_start": DAYS[0], "dagster/asset_partition_range_end": DAYS[-1]}
    expected = {
        "receipts": None,
        "named": ["product", "price", "day"],
        "counted": ["day"],
        "starred": ["product", "price", "note", "day"],
        "priced": ["price", "day"],
    }
    sizes = {}
    for table, columns in expected.items():
        done = whole.execute_in_process(asset_selection=[dg.AssetKey([db, table])], tags=tags, raise_on_error=False)
        assert done.success, done.all_events
        assert {tuple(names) for names, _ in fetched} == ({tuple(columns)} if columns else set())
        sizes[table] = sum(size for _, size in fetched)
        fetched.clear()
    assert sizes["starred"] > 80 * len(NOTE) > 20 * sizes["named"]
    catalog = workbench.catalog()
    try:
        reader = Reader(workbench.settings, catalog, lambda: workbench.spark)
        sums = {(row["product"], row["day"], row["price"]) for row in reader.read(assets["named"].dataset).collect()}
        assert sums == {(product, day, price) for day in DAYS for product, price in (("pen", 380), ("ink", 400))}
        assert [row["n"] for row in reader.read(assets["counted"].dataset).collect()] == [40, 40]
        assert reader.read(assets["starred"].dataset).count() == 80
        for table in ("receipts", "named"):
            frame = reader.read(assets[table].dataset, columns=["product"], with_batch_id=True)
            assert frame.columns == ["product", "day", "_batch_id"]
            assert {row["product"] for row in frame.collect()} == {"pen", "ink"}
    finally:
        catalog.connection.close()


def test_a_column_that_is_none_of_the_dataset_s_is_refused_when_it_is_declared(workbench: "Workbench") -> None:
    del workbench
    receipts = next(asset.dataset for asset in project("w0") if asset.dataset.table == "receipts")
    with pytest.raises(VarveError, match=r"w0\.receipts has no data column pryce; it has product, price, note,"):
        Reads(receipts, columns=("pryce",))
