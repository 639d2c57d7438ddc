"""What is written, and what is looked at before it can be published: files, bounds, hashes, columns, expectations."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.support.sales import COLUMNS, DETROIT, PARIS, ZURICH, key, sales_dataset
from varve.model.batch import Bounds
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import BadInput, ExpectationFailed, VarveError, VerifyFailed
from varve.model.expectation import Expectation, Of
from varve.model.schema import Column, ColumnType, Schema
from varve.model.store_options import LakeOptions
from varve.services.settings import Compression, ContentHash
from varve.stores.expectations import audit
from varve.stores.folders import write
from varve.stores.folders.hash_text import content_of
from varve.stores.folders.layout import Layout
from varve.stores.lake import statements
from varve.stores.lake.store import LakeStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.model.batch import StagedBatch
    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey

pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(workbench: Workbench) -> Iterator[Catalog]:
    opened = workbench.catalog()
    yield opened
    opened.connection.execute("select pg_advisory_unlock_all()")
    opened.connection.close()


@pytest.fixture
def adaptive(workbench: Workbench) -> Iterator[None]:
    """Spark as it is outside of tests: without adaptive execution it does not know how to rebalance."""
    workbench.spark.conf.set("spark.sql.adaptive.enabled", "true")
    yield
    workbench.spark.conf.set("spark.sql.adaptive.enabled", "false")


def lake(workbench: Workbench, catalog: Catalog, **options: object) -> LakeStore:
    return LakeStore(Layout(workbench.settings.lake), catalog, lambda: workbench.spark, **options)  # type: ignore[arg-type]


def stage(
    workbench: Workbench, store: LakeStore, dataset: Dataset, partitions: Sequence[PartitionKey], frame: DataFrame
) -> tuple[Build, list[StagedBatch]]:
    build = workbench.begin(store.catalog, dataset, partitions)
    staged = store.stage(build, frame)
    store.catalog.staged(build, staged)
    return build, staged


def data_of(batch: StagedBatch) -> list[Path]:
    return sorted(Path(batch.location).glob("*.parquet"))


@pytest.mark.usefixtures("adaptive")
def test_files_have_the_codec_and_the_rows_that_are_asked_for(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    few = dataclasses.replace(sales, lake=LakeOptions(file_rows=3))
    store = lake(workbench, catalog, codec=Compression.GZIP)
    rows = [(PARIS, f"p{number}", number) for number in range(8)] + [(ZURICH, "ink", 1)]
    _, (paris, zurich) = stage(workbench, store, few, [PARIS, ZURICH], workbench.frame(few, rows))
    assert sorted(pq.read_metadata(file).num_rows for file in data_of(paris)) == [2, 3, 3]
    assert (paris.files, paris.rows, zurich.files) == (3, 8, 1)
    assert pq.read_metadata(data_of(zurich)[0]).row_group(0).column(0).compression == "GZIP"
    _, (alone,) = stage(workbench, lake(workbench, catalog), few, [DETROIT], workbench.frame(few, []))
    assert pq.read_metadata(data_of(alone)[0]).num_rows == 0


@pytest.mark.usefixtures("adaptive")
@pytest.mark.parametrize("stores", [("Paris", "Zürich"), ("Paris", "Zürich", "Detroit", "Lagos", "Quito")])
def test_many_small_partitions_are_written_by_as_many_tasks_as_there_are_cores_and_each_is_one_file(
    stores: tuple[str, ...], workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    spark = workbench.spark
    # Spark splits a range over all of its cores, where nothing else is said.
    cores = spark.range(1000).selectExpr("spark_partition_id() AS task").distinct().count()
    keys = [key(store, day) for store in stores for day in range(1, 25)]
    rows = [(partition, product, 1) for partition in keys for product in ("ink", "pen")]
    pieces, coalesce = "spark.sql.shuffle.partitions", "spark.sql.adaptive.coalescePartitions"
    of_coalescing = [f"{coalesce}.minPartitionSize", f"{coalesce}.enabled"]
    before, coalescing_before = spark.conf.get(pieces), [spark.conf.get(name) for name in of_coalescing]
    spark.conf.set(pieces, "16")
    try:
        _, staged = stage(workbench, lake(workbench, catalog), sales, keys, workbench.frame(sales, rows))
    finally:
        spark.conf.set(pieces, before)
    # The name of a file begins with the number of the task that wrote it, as Spark counts them.
    tasks = {file.name.split("-")[1] for batch in staged for file in data_of(batch)}
    assert cores <= len(tasks) <= 16
    # Of very many partitions each piece is a task, so that the cores end together.
    assert len(tasks) == 16 or len(keys) < 100
    assert [batch.files for batch in staged] == [1] * len(keys)
    assert [spark.conf.get(name) for name in of_coalescing] == coalescing_before


def test_partitions_of_which_none_has_a_row_are_batches(workbench: Workbench, sales: Dataset) -> None:
    current = workbench.publish(sales, [PARIS, ZURICH], [])
    assert [batch.rows for batch in current.values()] == [0, 0]


def test_a_file_becomes_about_as_large_as_asked_by_what_the_last_batch_weighed(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    frame = workbench.spark.sql(
        "SELECT concat('p', id) product, id * 7919 sold, id * 1.5D price, timestamp_seconds(id) at FROM range(5000)"
    )
    store = lake(workbench, catalog)
    build, staged = stage(workbench, store, sales, [PARIS], frame)
    catalog.publish(build)
    catalog.release(build)
    size = staged[0].size
    small = dataclasses.replace(sales, lake=LakeOptions(file_bytes=size // 4))
    _, (batch,) = stage(workbench, store, small, [PARIS], frame)
    # Each of Spark's tasks rounds up.
    assert batch.files in {4, 5, 6}
    assert max(file.stat().st_size for file in data_of(batch)) < size / 2


@pytest.mark.parametrize("together", [False, True])
def test_rows_are_sorted_in_their_files_where_asked(
    workbench: Workbench, catalog: Catalog, sales: Dataset, *, together: bool
) -> None:
    ordered = dataclasses.replace(sales, lake=LakeOptions(sort=("sold",), bounds=("sold", "product", "at")))
    rows = [(PARIS, f"p{number}", (number * 37) % 101) for number in range(101)]
    keys = [PARIS, ZURICH] if together else [PARIS]
    _, (batch, *_) = stage(workbench, lake(workbench, catalog), ordered, keys, workbench.frame(ordered, rows))
    files = [pq.read_table(file)["sold"].to_pylist() for file in data_of(batch)]
    assert all(values == sorted(values) for values in files)
    assert sorted(sold for values in files for sold in values) == list(range(101))
    assert batch.bounds == (
        Bounds("sold", "0", "100"),
        Bounds("product", "p0", "p99"),
        Bounds("at", "1970-01-01T00:00:00+00:00", "1970-01-01T00:01:40+00:00"),
    )


def test_bounds_of_nothing_are_none_and_come_with_the_history(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    bounded = dataclasses.replace(sales, lake=LakeOptions(bounds=("sold",)))
    store = lake(workbench, catalog)
    _, (batch,) = stage(workbench, store, bounded, [PARIS], workbench.frame(bounded, []))
    assert batch.bounds == (Bounds("sold", None, None),)
    with pytest.raises(VarveError, match="sort or bounds name colour, no data column of it"):
        dataclasses.replace(sales, lake=LakeOptions(sort=("colour",)))


def test_equal_rows_have_equal_hashes_whatever_their_order_files_and_run(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    rows = [(PARIS, f"p{number}", number) for number in range(40)]
    store = lake(workbench, catalog, hashing=ContentHash.ALWAYS)

    def hashed(keys: Sequence[PartitionKey], values: Sequence[tuple[PartitionKey, str, int]]) -> dict[str, str | None]:
        build, staged = stage(workbench, store, sales, keys, workbench.frame(sales, values))
        catalog.release(build)
        return {batch.partition.path: batch.content for batch in staged}

    expected = hashed([PARIS], rows)[PARIS.path]
    assert expected is not None
    assert expected.startswith("40:")
    assert hashed([PARIS], rows[::-1])[PARIS.path] == expected
    both = hashed([PARIS, ZURICH, DETROIT], [*rows[20:], *rows[:20], (ZURICH, "p0", 0)])
    assert both[PARIS.path] == expected
    assert (
        both[DETROIT.path] == hashed([DETROIT], [])[DETROIT.path] == content_of("0:0000000000000000", COLUMNS.columns)
    )
    assert both[ZURICH.path] == hashed([PARIS], rows[:1])[PARIS.path]
    others = [rows[:-1], [*rows, rows[0]], [*rows[:-1], (PARIS, "p39", 40)]]
    assert len({expected, *(hashed([PARIS], other)[PARIS.path] for other in others)}) == 4


def test_nulls_that_change_places_change_the_hash(workbench: Workbench, catalog: Catalog, sales: Dataset) -> None:
    pair = dataclasses.replace(sales, schema=Schema((Column("a", ColumnType.STRING), Column("b", ColumnType.STRING))))
    store = lake(workbench, catalog)
    hashes = set()
    for query in ("SELECT 'x' a, CAST(NULL AS STRING) b", "SELECT CAST(NULL AS STRING) a, 'x' b"):
        build, (batch,) = stage(workbench, store, pair, [PARIS], workbench.spark.sql(query))
        catalog.release(build)
        hashes.add(batch.content)
    assert len(hashes) == 2


def test_the_hash_is_in_the_catalog_and_may_be_left_out(workbench: Workbench, catalog: Catalog, sales: Dataset) -> None:
    first = workbench.publish(sales, [PARIS], [(PARIS, "pen", 1)])[PARIS.path]
    assert workbench.publish(sales, [PARIS], [(PARIS, "pen", 1)])[PARIS.path].content == first.content
    assert workbench.publish(sales, [PARIS], [(PARIS, "pen", 2)])[PARIS.path].content != first.content
    never = lake(workbench, catalog, hashing=ContentHash.NEVER)
    _, (batch,) = stage(workbench, never, sales, [ZURICH], workbench.frame(sales, []))
    assert batch.content is None


def test_a_file_that_lost_its_end_after_it_was_written_is_not_published(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    build = workbench.begin(catalog, sales, [PARIS])
    layout = Layout(workbench.settings.lake)
    write.write_batches(layout, build, workbench.frame(sales, [(PARIS, "pen", 1)]))
    data, *_ = sorted(Path(layout.batch(sales, PARIS, build.batch_id)).glob("*.parquet"))
    data.write_bytes(data.read_bytes()[:-10])
    with pytest.raises(VerifyFailed, match=r"store=Paris in .* is not whole"):
        write.survey(layout, build)


def test_a_file_of_other_columns_than_declared_is_not_published(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    layout = Layout(workbench.settings.lake)
    other = Schema((*COLUMNS.columns[:1], Column("sold", ColumnType.INT), *COLUMNS.columns[2:]))
    build = workbench.begin(catalog, sales, [PARIS])
    write.write_batches(layout, build, workbench.frame(sales, [(PARIS, "pen", 1)]))
    build.dataset = dataclasses.replace(sales, schema=other)
    with pytest.raises(VerifyFailed, match="sold is declared INT, and written as int64"):
        write.survey(layout, build)
    build.dataset = dataclasses.replace(sales, schema=Schema(COLUMNS.columns[:2]))
    with pytest.raises(VerifyFailed, match="it has the columns product, sold, price, at, declared are product, sold"):
        write.survey(layout, build)


def test_a_column_may_be_added_and_a_type_widened_and_old_batches_still_read(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    narrow = dataclasses.replace(
        sales, schema=Schema((Column("product", ColumnType.STRING), Column("sold", ColumnType.INT)))
    )
    spark = workbench.spark

    def publish(dataset: Dataset, partition: PartitionKey, query: str) -> None:
        build, staged = stage(workbench, lake(workbench, catalog), dataset, [partition], spark.sql(query))
        workbench.store(dataset, catalog).publish(build, staged)
        catalog.release(build)

    def by_name(columns: str) -> list[tuple[object, ...]]:
        query = f"SELECT store, {columns} FROM {statements.table_name(sales)} ORDER BY store"
        return [tuple(row) for row in spark.sql(query).collect()]

    publish(narrow, PARIS, "SELECT 'pen' product, 1 sold")
    added = dataclasses.replace(
        narrow, schema=Schema((*narrow.schema.columns, Column("colour", ColumnType.STRING, "it's new")))
    )
    publish(added, ZURICH, "SELECT 'ink' product, 2 sold, 'blue' colour")
    assert by_name("sold, colour") == [("Paris", 1, None), ("Zürich", 2, "blue")]
    wide = dataclasses.replace(
        narrow,
        schema=Schema(
            (Column("product", ColumnType.STRING), Column("sold", ColumnType.BIGINT), added.schema.columns[2])
        ),
    )
    publish(wide, DETROIT, f"SELECT 'cap' product, {1 << 40} sold, CAST(NULL AS STRING) colour")
    assert by_name("sold, colour") == [("Detroit", 1 << 40, None), ("Paris", 1, None), ("Zürich", 2, "blue")]
    frame = workbench.store(wide, catalog).read(wide, list(catalog.current(wide.name).values()))
    assert sorted((row["sold"], row["colour"]) for row in frame.collect() if row["sold"] < 9) == [
        (1, None),
        (2, "blue"),
    ]
    # Code of yesterday, still running: it must not take a type away again. (Whether its code counts: CodeNotDeployed.)
    with pytest.raises(BadInput, match=r"sold was BIGINT and is INT now"):
        publish(narrow, PARIS, "SELECT 'pen' product, 1 sold")
    assert len(by_name("sold, colour")) == 3


def test_a_column_with_a_dot_in_its_name_is_read(workbench: Workbench, catalog: Catalog, sales: Dataset) -> None:
    dotted = dataclasses.replace(sales, schema=Schema((Column("price.net", ColumnType.INT),)))
    frame = workbench.spark.sql("SELECT 7 AS `price.net`, DATE '2013-01-05' AS day, 'Paris' AS store")
    current = workbench.publish_frame(dotted, [PARIS], frame)
    rows = lake(workbench, catalog).read(dotted, list(current.values()), ["price.net"])
    assert [row["price.net"] for row in rows.collect()] == [7]
    assert [row["price.net"] for row in workbench.spark.table(statements.table_name(dotted)).collect()] == [7]


def test_a_declaration_that_never_got_published_binds_nobody(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    build, _ = stage(workbench, lake(workbench, catalog), sales, [PARIS], workbench.frame(sales, []))
    catalog.fail(build, "a test")
    catalog.release(build)
    other = dataclasses.replace(sales, schema=Schema((Column("colour", ColumnType.STRING),)))
    build, _ = stage(workbench, lake(workbench, catalog), other, [PARIS], workbench.spark.sql("SELECT 'red' colour"))
    catalog.publish(build)
    assert catalog.connection.execute(
        "select declaration -> 'columns' -> 0 ->> 0 from varve.dataset where dataset = %s", (sales.name,)
    ).fetchone() == ("colour",)


POSITIVE = Expectation("positive", "sold > 0")
NOT_EMPTY = Expectation("not_empty", "count(*) > 0", of=Of.PARTITION)


@pytest.fixture(params=[StoreKind.LAKE, StoreKind.WAREHOUSE])
def promising(request: pytest.FixtureRequest) -> Dataset:
    return dataclasses.replace(sales_dataset(request.param), expectations=(POSITIVE, NOT_EMPTY))


def test_what_keeps_its_promises_is_published(workbench: Workbench, catalog: Catalog, promising: Dataset) -> None:
    store = workbench.store(promising, catalog)
    build = workbench.begin(catalog, promising, [PARIS, ZURICH])
    rows = [(PARIS, "pen", 1), (ZURICH, "ink", 2)]
    staged = store.stage(build, workbench.frame(promising, rows))
    audit(store, build, staged)


def test_what_breaks_them_is_told_by_partition_and_row_and_stays_unseen(
    workbench: Workbench, catalog: Catalog, promising: Dataset
) -> None:
    workbench.publish(promising, [PARIS], [(PARIS, "pen", 1)])
    store = workbench.store(promising, catalog)
    build = workbench.begin(catalog, promising, [PARIS, ZURICH, DETROIT])
    rows = [(PARIS, "pen", -5), (PARIS, "ink", 2), (ZURICH, "cap", 3)]
    staged = store.stage(build, workbench.frame(promising, rows))
    with pytest.raises(ExpectationFailed) as refused:
        audit(store, build, staged)
    error_message, text_of = str(refused.value), promising.partitioning.to_dagster
    assert (
        f"Expectation positive (sold > 0): 1 of 2 rows of {text_of(PARIS)} break it, such as sold=-5. " in error_message
    )
    assert f"Expectation not_empty (count(*) > 0) does not hold for {text_of(DETROIT)}." in error_message
    assert text_of(ZURICH) not in error_message
    assert f"lies unseen in {staged[0].location}" in error_message
    assert [row[-1] for row in workbench.read(promising)] == [1]


def test_an_expectation_may_be_called_as_a_partition_column_is(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    expected = (
        Expectation("store", "store <> 'Paris' OR sold > 0"),
        Expectation("day", "count(*) > 0", of=Of.PARTITION),
    )
    named = dataclasses.replace(sales, expectations=expected)
    store = workbench.store(named, catalog)
    build = workbench.begin(catalog, named, [PARIS, ZURICH])
    staged = store.stage(build, workbench.frame(named, [(PARIS, "pen", 1), (ZURICH, "ink", -1)]))
    audit(store, build, staged)
    staged = store.stage(workbench.begin(catalog, named, [DETROIT]), workbench.frame(named, []))
    with pytest.raises(ExpectationFailed, match=r"Expectation day \(count\(\*\) > 0\) does not hold for .*Detroit"):
        audit(store, build, staged)


def test_a_condition_that_is_none_is_told_by_name(workbench: Workbench, catalog: Catalog, sales: Dataset) -> None:
    build, staged = stage(workbench, lake(workbench, catalog), sales, [PARIS], workbench.frame(sales, []))
    for condition, expected in {
        "solt > 0": "Spark does not understand the expectation wrong",
        "sold >": "Spark does not understand the expectation wrong",
        "product": r"the expectation wrong \(product\) is of type string, and no condition",
    }.items():
        build.dataset = dataclasses.replace(sales, expectations=(Expectation("wrong", condition),))
        with pytest.raises(BadInput, match=expected):
            audit(lake(workbench, catalog), build, staged)
