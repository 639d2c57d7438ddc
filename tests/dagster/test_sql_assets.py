"""SQL files as Dagster assets, run whole: an external table, a query, a foreign function, and a broken expectation."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from varve.dagster.assets import sql_rows as running
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.definitions import build_defs
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.workbench import Workbench
    from varve.dagster.assets.datasets import DatasetAsset

pytestmark = pytest.mark.spark

HEAD = """CREATE DATASET {db}.{name} ({columns})
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-05')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
"""
ROWS = [("x", 1, "2022-03-01"), ("y", 2, "2022-03-01"), ("x", 3, "2022-03-02"), ("x", -1, "2022-03-04")]


def scored(spark: SparkSession, scope: dict[str, Any], trailing: DataFrame) -> DataFrame:
    """The foreign function: it counts the receipts until the scope's day, and returns the day that it was given."""
    return spark.sql("SELECT COUNT(*) AS n, {today} AS seen FROM {trailing}", trailing=trailing, today=scope["today"])


def files(db: str, table: str, expected: str = "revenue >= 0") -> list[DatasetAsset]:
    def text(name: str, columns: str, rest: str) -> SourceFile:
        return SourceFile(f"{name}.sql", HEAD.format(db=db, name=name, columns=columns) + rest.format(db=db))

    return sql_assets(
        compiled(
            [
                text(
                    "receipts", "product STRING, price INT", f"EXTERNAL OPTIONS (source = 'table', table = '{table}')"
                ),
                text(
                    "sales", "product STRING, revenue BIGINT",
                    f"EXPECT revenue_positive: {expected}, has_product: product IS NOT NULL\n"
                    "AS SELECT product, SUM(price) AS revenue "
                    "FROM {db}.receipts WHERE receipts.day BETWEEN DATE_SUB(today, 1) AND today GROUP BY product",
                ),
                text(
                    "scores", "n BIGINT, seen STRING",
                    f"PYTHON '{__name__}:scored' USING trailing AS "
                    "(SELECT * FROM {db}.receipts WHERE receipts.day BETWEEN DATE_SUB(today, 1) AND today)",
                ),
            ],
            {},
        )
    )  # fmt: skip


@pytest.fixture
def project(workbench: Workbench) -> tuple[str, list[DatasetAsset]]:
    db = f"q{uuid.uuid4().hex[:8]}"
    table = f"default.{db}_dumps"
    frame = workbench.spark.createDataFrame(ROWS, "product STRING, price INT, day STRING")
    frame.write.partitionBy("day").saveAsTable(table)
    # A partition without rows exists; a partition that is not listed does not.
    workbench.spark.sql(f"ALTER TABLE {table} ADD PARTITION (day = '2022-03-03')")
    return db, files(db, table)


def check_results(instance: dg.DagsterInstance, run_id: str) -> list[dg.AssetCheckEvaluation]:
    """The results of asset checks that Dagster has of a run."""
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    return [entry.dagster_event.event_specific_data for entry in entries]  # type: ignore[union-attr, misc]


def test_a_column_that_is_handed_on_has_the_description_of_where_it_comes_from() -> None:
    texts = {
        "orders": "product STRING COMMENT 'what was sold', price INT COMMENT 'cents') {rest} EXTERNAL",
        "sales": "product STRING, price BIGINT, n BIGINT) {rest} AS SELECT product, SUM(price) AS price, "
        "COUNT(*) AS n FROM s.orders WHERE orders.day = today GROUP BY product",
        "best": "product STRING, n BIGINT COMMENT 'how many') {rest} AS SELECT product, n FROM s.sales "
        "WHERE sales.day = today",
    }
    files = compiled(
        [SourceFile(f"{name}.sql", HEAD.format(db="s", name=name, columns=text.partition(") {rest} ")[0])
                    + text.partition(") {rest} ")[2]) for name, text in texts.items()], {},
    )  # fmt: skip
    shown = {}
    for asset in sql_assets(files):
        (metadata,) = asset.asset.metadata_by_key.values()  # type: ignore[union-attr]
        shown[asset.dataset.table] = {  # type: ignore[union-attr]
            column.name: column.description for column in metadata["dagster/column_schema"].columns
        }
    assert shown == {
        "orders": {"day": "partition column", "product": "what was sold", "price": "cents"},
        "sales": {"day": "partition column", "product": "what was sold", "price": None, "n": None},
        "best": {"day": "partition column", "product": "what was sold", "n": "how many"},
    }


def test_the_frames_of_a_function_are_put_together_in_pairs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark Connect fails where some six hundred of them are a chain; a run may have a thousand partitions."""
    texts = {
        "receipts": "product STRING, price INT) {rest} EXTERNAL",
        "scores": f"n BIGINT, seen STRING) {{rest}} PYTHON '{__name__}:scored' USING trailing AS "
        "(SELECT * FROM s.receipts WHERE receipts.day = today)",
    }
    sources = [
        SourceFile(f"{name}.sql", HEAD.format(db="s", name=name, columns=text.partition(") {rest} ")[0])
                   + text.partition(") {rest} ")[2]) for name, text in texts.items()
    ]  # fmt: skip
    scores = compiled(sources, {})["s.scores"]
    keys = list(scores.dataset.partitioning.keys())
    frame = spark.createDataFrame(ROWS, "product STRING, price INT, day STRING")
    depths: dict[int, int] = {}
    united: list[DataFrame] = []
    union = type(frame).unionByName

    def counting(one: DataFrame, other: DataFrame) -> DataFrame:
        united.append(union(one, other))
        depths[id(united[-1])] = 1 + max(depths.get(id(one), 0), depths.get(id(other), 0))
        return united[-1]

    monkeypatch.setattr(type(frame), "unionByName", counting)
    together = running.computed(scores, spark, keys, {"s.receipts": frame})
    assert (len(keys), len(united), depths[id(together)]) == (4, 3, 2)


def test_an_expectation_is_a_check_that_blocks(project: tuple[str, list[DatasetAsset]]) -> None:
    db, assets = project
    graph = build_defs(assets).resolve_asset_graph()
    checks = [graph.get_check_spec(key) for key in graph.get_check_keys_for_assets({dg.AssetKey([db, "sales"])})]
    assert {check.name: check.blocking for check in checks} == {"revenue_positive": True, "has_product": True}


def materialise(
    assets: list[DatasetAsset], name: str, first: str, last: str, *, instance: dg.DagsterInstance | None = None
) -> dg.ExecuteInProcessResult:
    defs = build_defs(assets)
    job = defs.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        asset_selection=[dg.AssetKey(name.split("."))],
        tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
        raise_on_error=False,
        instance=instance,
    )


def rows(workbench: Workbench, assets: list[DatasetAsset], name: str) -> list[tuple[object, ...]]:
    (dataset,) = [asset.dataset for asset in assets if asset.dataset.name == name]
    catalog = workbench.catalog()
    batches = list(catalog.current(name).values())
    frame = workbench.store(dataset, catalog).read(dataset, batches)
    answer = sorted(tuple(row) for row in frame.collect())
    catalog.connection.close()
    return answer


def test_files_run_as_assets_and_a_broken_expectation_publishes_nothing(
    workbench: Workbench, project: tuple[str, list[DatasetAsset]], monkeypatch: pytest.MonkeyPatch
) -> None:
    db, assets = project
    # A run of three days is two joins.
    monkeypatch.setattr(running, "AT_ONCE", 2)
    assert materialise(assets, f"{db}.receipts", "2022-03-01", "2022-03-04").success
    assert rows(workbench, assets, f"{db}.receipts") == sorted(ROWS)
    # Days without rows are partitions, too.
    run_result = materialise(assets, f"{db}.sales", "2022-03-01", "2022-03-03")
    assert run_result.success
    assert [evaluation.passed for evaluation in run_result.get_asset_check_evaluations()] == [True, True]
    expected = [
        ("x", 1, "2022-03-01"), ("x", 3, "2022-03-03"), ("x", 4, "2022-03-02"),
        ("y", 2, "2022-03-01"), ("y", 2, "2022-03-02"),
    ]  # fmt: skip
    assert rows(workbench, assets, f"{db}.sales") == expected
    (event, *_) = run_result.asset_materializations_for_node(f"{db}__sales")
    lineage = event.metadata["dagster/column_lineage"].value
    assert isinstance(lineage, dg.TableColumnLineage)
    (source,) = lineage.deps_by_column["revenue"]
    assert (source.asset_key, source.column_name) == (dg.AssetKey([db, "receipts"]), "price")
    # Dagster plots numbers only.
    plotted = {"dagster/partition_row_count", "varve/bytes", "varve/files", "varve/inputs", "varve/seconds"}
    assert plotted == {
        name for name, value in event.metadata.items() if isinstance(value, dg.IntMetadataValue | dg.FloatMetadataValue)
    }
    assert 0 < float(str(event.metadata["varve/seconds"].value)) < 600
    batch = event.metadata["varve/batch_id"].value
    assert event.metadata["varve/rollback"].value == (
        f"varve rollback {db}.sales day={event.partition} --to {batch} --reason '...'"
    )
    with dg.DagsterInstance.ephemeral() as instance:
        failed = materialise(assets, f"{db}.sales", "2022-03-03", "2022-03-04", instance=instance)
        assert not failed.success
        checks = check_results(instance, failed.run_id)
    failure_text = str(failed.failure_data_for_node(f"{db}__sales"))
    message = "revenue_positive (revenue >= 0): 1 of 1 rows of 2022-03-04 break it, such as revenue=-1"
    assert message in failure_text
    # Only the one that rows break has failed; Dagster would call both failed, as the run did.
    assert [(check.check_name, check.passed) for check in checks] == [
        ("revenue_positive", False), ("has_product", True),
    ]  # fmt: skip
    assert checks[0].description == message
    assert [check.metadata["rows"].value for check in checks] == [1, 0]
    # Nor does the catalog call the other partition of the run failed: it need not wait until it is tried again.
    catalog = workbench.catalog()
    failures = catalog.connection.execute(
        "select partition, broken from varve.batch where dataset = %s and state = 'failed'", (f"{db}.sales",)
    ).fetchall()
    catalog.connection.close()
    assert failures == [("day=2022-03-04", ["revenue_positive"])]
    assert rows(workbench, assets, f"{db}.sales") == expected
    assert materialise(assets, f"{db}.scores", "2022-03-01", "2022-03-03").success
    assert rows(workbench, assets, f"{db}.scores") == [
        (1, "2022-03-03", "2022-03-03"), (2, "2022-03-01", "2022-03-01"), (3, "2022-03-02", "2022-03-02"),
    ]  # fmt: skip


PRICES = [("x", 1), ("x", 2), ("y", 10), ("y", 20), ("z", -128), ("O'Brien", 7)]
# Each of these texts was once executed with another meaning.
AS_WRITTEN = """SELECT 'O''Brien' AS name, TO_CHAR(SUM(price), 'S999') AS sum,
  PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY price DESC) AS quarter,
  PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY price DESC) AS step,
  PERCENTILE(price, 0.25, 3) AS weighed, COUNT_IF(price = -128Y) AS least, LOG10(COUNT(*)) AS digits,
  'varve_input_0 {varve_input_0} :shop' AS text, COUNT_IF(product = 'O''Brien') AS his /* shop */
FROM {table} WHERE """


def test_what_is_published_is_what_the_author_wrote(workbench: Workbench) -> None:
    db, spark = f"q{uuid.uuid4().hex[:8]}", workbench.spark
    columns = (
        "name STRING, sum STRING, quarter DOUBLE, step DOUBLE, weighed DOUBLE, least BIGINT, digits DOUBLE, "
        "text STRING, his BIGINT"
    )
    shops = "PARTITIONED BY (store STRING) FOR shop IN ('L''Aquila', \"O'Brien\") INSERT (store = shop)"
    query = AS_WRITTEN.replace("{table}", f"{db}.prices") + "prices.store = shop"
    table = f"default.{db}_prices"
    data = [(product, price, store) for product, price in PRICES for store in ("L'Aquila", "O'Brien")]
    data += [("x", 50, "O'Brien")]
    spark.createDataFrame(data, "product STRING, price INT, store STRING").write.partitionBy("store").saveAsTable(table)
    assets = sql_assets(
        compiled(
            [
                SourceFile("a.sql", f"CREATE DATASET {db}.prices (product STRING, price INT) {shops} EXTERNAL OPTIONS "
                       f"(source = 'table', table = '{table}')"),
                SourceFile("b.sql", f"CREATE DATASET {db}.stats ({columns}) {shops}\n"
                       f"EXPECT his_name: name = 'O''Brien'\nAS {query}"),
            ],
            {},
        )
    )  # fmt: skip
    for name in ("prices", "stats"):
        assert materialise(assets, f"{db}.{name}", "L'Aquila", "O'Brien").success
    expected = [
        (*spark.sql(AS_WRITTEN.replace("{table}", table) + f"store = {store}").first(), value)  # type: ignore[misc]
        for store, value in (("'L\\'Aquila'", "L'Aquila"), ('"O\'Brien"', "O'Brien"))
    ]
    assert expected[0][0] == "O'Brien"
    assert expected[0][-2] == 1
    assert rows(workbench, assets, f"{db}.stats") == sorted(expected)
