"""Loading: every row exactly once by whichever way, however often a piece is tried; nothing of a failed load stays."""

from __future__ import annotations

import datetime as dt
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import EqualTo, GreaterThan, IsNull, LessThan, StringContains

from varve.model.errors import BadInput, ServiceUnavailable, VarveError, VerifyFailed
from varve.model.partitions.key import PartitionKey
from varve.model.schema import Schema
from varve.model.store_options import Index, WarehouseOptions
from varve.services.postgres import connect, warehouse_url
from varve.stores.folders.layout import Layout
from varve.stores.folders.write import survey, write_batches
from varve.stores.frames import arrow_schema
from varve.stores.postgres import spark_source as source
from varve.stores.warehouse import reading
from varve.stores.warehouse.loading import copying, load
from varve.stores.warehouse.loading import errors as load_errors
from varve.stores.warehouse.tables import notes, view

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.workbench import Workbench
    from varve.model.batch import StagedBatch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.stores.warehouse.loading.copying import CopyPiece, Outcome

pytestmark = pytest.mark.spark

KEYS = [PartitionKey.of(day=dt.date(2013, 1, 5), store=store) for store in ("Detroit", "Paris")]
ROWS = 400


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Half of the rows in each of two stores, in several tasks."""
    return spark.range(0, ROWS, 1, 4).select(
        F.concat(F.lit("p"), "id").alias("product"),
        F.col("id").alias("sold"),
        F.lit(1.5).alias("price"),
        F.timestamp_seconds("id").alias("at"),
        F.lit(dt.date(2013, 1, 5)).alias("day"),
        F.when(F.col("id") % 2 == 0, "Detroit").otherwise("Paris").alias("store"),
    )


@pytest.fixture
def spooled(workbench: Workbench, sales: Dataset, rows: DataFrame) -> Iterator[tuple[Build, list[StagedBatch]]]:
    """A build whose files are there, and no table yet."""
    catalog = workbench.catalog()
    build = workbench.begin(catalog, sales, KEYS)
    layout = Layout(f"{workbench.settings.lake}/_spool")
    write_batches(layout, build, rows)
    yield build, survey(layout, build)
    catalog.connection.close()


def counts(connection: psycopg.Connection, sales: Dataset, batches: list[StagedBatch]) -> list[int]:
    names = [view.table_name(sales, batch.location).as_string(connection) for batch in batches]
    return [(connection.execute(f"select count(*) from {name}".encode()).fetchone() or (0,))[0] for name in names]


@pytest.mark.parametrize("spark_from", [0, 1 << 40], ids=["in Spark's tasks", "in this process"])
def test_both_ways_load_every_row_once(
    workbench: Workbench, sales: Dataset, rows: DataFrame, monkeypatch: pytest.MonkeyPatch, spark_from: int
) -> None:
    monkeypatch.setattr(load, "_BYTES_FOR_SPARK", spark_from)
    monkeypatch.setattr(load, "_BYTES_A_CONNECTION", 1)
    current = workbench.publish_frame(sales, KEYS, rows)
    assert {path: batch.rows for path, batch in current.items()} == {key.path: ROWS // 2 for key in KEYS}
    assert sorted(row[3] for row in workbench.read(sales)) == list(range(ROWS))


def test_a_column_may_be_called_as_our_statements_call_a_table(
    workbench: Workbench, sales: Dataset, rows: DataFrame
) -> None:
    names = {"product": "t", "sold": "c", "price": "l", "at": "content"}
    columns = [replace(column, name=names[column.name]) for column in sales.schema.columns]
    dataset = replace(sales, schema=Schema(tuple(columns)))
    current = workbench.publish_frame(dataset, KEYS, rows.withColumnsRenamed(names))
    assert {path: batch.rows for path, batch in current.items()} == {key.path: ROWS // 2 for key in KEYS}
    catalog = workbench.catalog()
    assert workbench.store(dataset, catalog).examine(dataset, [*current.values()], deep=True) == []
    catalog.connection.close()


def test_a_piece_tried_again_adds_nothing(
    connection: psycopg.Connection,
    workbench: Workbench,
    spooled: tuple[Build, list[StagedBatch]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build, files = spooled
    route = load.Route(warehouse_url(workbench.settings))
    once = copying.copy_pieces

    def twice(url: str, schema: object, pieces: list[tuple[int, CopyPiece]]) -> Iterator[Outcome]:
        yield from once(url, schema, pieces)
        yield from once(url, schema, pieces)

    monkeypatch.setattr(copying, "copy_pieces", twice)
    loaded = load.load(connection, route, build, files)
    load.verify_rows(connection, build, files, loaded)
    assert counts(connection, build.dataset, loaded) == [ROWS // 2] * 2


def test_two_attempts_at_one_piece_at_the_same_time_add_it_once(
    connection: psycopg.Connection,
    workbench: Workbench,
    spooled: tuple[Build, list[StagedBatch]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build, files = spooled
    route = load.Route(warehouse_url(workbench.settings))

    def speculate(route: load.Route, schema: object, shares: list[list[tuple[int, CopyPiece]]]) -> Iterator[Outcome]:
        with ThreadPoolExecutor(4) as pool:
            attempts = [
                pool.submit(lambda pieces=pieces: list(copying.copy_pieces(route.loading_url, schema, pieces)))
                for pieces in [share for share in shares for _ in range(4)]
            ]
            for attempt in attempts:
                yield from attempt.result(60)

    monkeypatch.setattr(load, "in_threads", speculate)
    loaded = load.load(connection, route, build, files)
    load.verify_rows(connection, build, files, loaded)
    assert counts(connection, build.dataset, loaded) == [ROWS // 2] * 2


def test_a_piece_whose_table_is_gone_leaves_no_note(
    connection: psycopg.Connection, workbench: Workbench, spooled: tuple[Build, list[StagedBatch]]
) -> None:
    build, files = spooled
    load.load(connection, load.Route(warehouse_url(workbench.settings)), build, files)
    schema = arrow_schema(build.dataset.schema.columns)
    (piece, *_) = load.pieces_of(connection, build.dataset, [("no_such_table", files[0])])
    (outcome,) = copying.copy_pieces(warehouse_url(workbench.settings), schema, [(0, piece)])
    assert "store=Detroit: its table is gone; another run" in str(load_errors.explained(build, piece, outcome))
    assert notes.loaded(connection, ["no_such_table"]) == {}


def test_rows_that_are_not_the_files_fail_the_build(
    connection: psycopg.Connection, workbench: Workbench, spooled: tuple[Build, list[StagedBatch]]
) -> None:
    build, files = spooled
    loaded = load.load(connection, load.Route(warehouse_url(workbench.settings)), build, files)
    name = view.table_name(build.dataset, loaded[0].location).as_string(connection)
    connection.execute(f"delete from {name} where sold = 0".encode())
    counted = [replace(loaded[0], rows=counts(connection, build.dataset, loaded)[0]), loaded[1]]
    with pytest.raises(VerifyFailed, match=rf"store=Detroit has {ROWS // 2} rows, its table .* holds {ROWS // 2 - 1}"):
        load.verify_rows(connection, build, files, counted)


def test_a_failed_build_leaves_no_table_and_no_note(
    workbench: Workbench, sales: Dataset, rows: DataFrame, connection: psycopg.Connection
) -> None:
    catalog = workbench.catalog()
    build = workbench.begin(catalog, sales, KEYS)
    store = workbench.store(sales, catalog)
    staged = store.stage(build, rows)
    tables = [batch.location for batch in staged]
    assert notes.loaded(connection, tables) == dict.fromkeys(tables, ROWS // 2)
    store.discard(build)
    assert notes.loaded(connection, tables) == {}
    left = connection.execute("select relname from pg_class where relname = any(%s)", (tables,)).fetchall()
    assert left == []
    catalog.connection.close()


def test_indexes_are_built_before_the_publish_and_refuse_doubles_by_key(
    workbench: Workbench, rows: DataFrame, sales: Dataset, connection: psycopg.Connection
) -> None:
    indexed = replace(sales, warehouse=WarehouseOptions((Index(("product",), unique=True), Index(("sold", "at")))))
    current = workbench.publish_frame(indexed, KEYS, rows)
    counts = connection.execute(
        "select tablename, count(*) from pg_indexes where tablename = any(%s) group by 1",
        ([batch.location for batch in current.values()],),
    ).fetchall()
    assert dict(counts) == {batch.location: 2 for batch in current.values()}
    with pytest.raises(BadInput, match=r"an index of day=2013-01-05/store=Detroit refused .*\(product\)=\(pen\)"):
        workbench.publish_frame(indexed, KEYS, rows.withColumn("product", F.lit("pen")))
    assert workbench.current(indexed) == current


def test_an_index_of_no_column_is_refused_when_it_is_declared(sales: Dataset) -> None:
    with pytest.raises(VarveError, match="an index names colour, no data column"):
        replace(sales, warehouse=WarehouseOptions((Index(("colour",)),)))


def test_a_server_that_cannot_be_reached_during_a_load_is_told_as_lost(
    connection: psycopg.Connection, spooled: tuple[Build, list[StagedBatch]]
) -> None:
    build, files = spooled
    with pytest.raises(ServiceUnavailable, match=r"PostgreSQL was lost during the load: .* Nothing was published"):
        load.load(connection, load.Route("postgresql://nobody@127.0.0.1:1/none"), build, files)


def test_large_batches_are_read_in_parallel_with_filters_pushed_down(
    workbench: Workbench, sales: Dataset, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = workbench.publish_frame(sales, KEYS, rows)
    monkeypatch.setattr(reading, "_BYTES_FOR_SPARK", 0)
    monkeypatch.setattr(reading, "_BYTES_A_TASK", reading._PAGE)
    catalog = workbench.catalog()
    frame = workbench.store(sales, catalog).read(sales, list(current.values()))
    pages = catalog.connection.execute(
        "select sum(pg_relation_size(c.oid) / 8192)::int from pg_class c where relname = any(%s)",
        ([batch.location for batch in current.values()],),
    ).fetchone()
    assert frame.select(F.spark_partition_id()).distinct().count() == (pages or (0,))[0] >= 4
    assert sorted(row["sold"] for row in frame.collect()) == list(range(ROWS))
    paris = frame.where((F.col("store") == "Paris") & (F.col("sold") < 10) & F.col("product").isin("p1", "p3", "p4"))
    assert sorted(row["sold"] for row in paris.collect()) == [1, 3]
    paris_table = view.table_name(sales, current[KEYS[1].path].location).as_string(catalog.connection)
    with ThreadPoolExecutor(1) as pool, catalog.connection.transaction():
        catalog.connection.execute(f"lock table {paris_table}".encode())
        asking = pool.submit(paris.collect)
        asked = wait_for_query_of(workbench, paris_table)
    assert len(asking.result(60)) == 2
    assert """("store" in ('Paris'::text)) and ("sold" < (10)) and ("product" in ('p1'::text,""" in asked
    catalog.connection.close()


def wait_for_query_of(workbench: Workbench, table: str, *, seconds: float = 60) -> str:
    """The query of a session that waits for a table."""
    deadline = time.monotonic() + seconds
    with connect(workbench.settings) as opened:
        while True:
            rows = opened.execute(
                "select query from pg_stat_activity where wait_event_type = 'Lock' and strpos(query, %s) > 0", (table,)
            ).fetchall()
            if rows:
                return str(rows[0][0])
            assert time.monotonic() < deadline, "no query came"


def test_what_cannot_be_said_in_sql_with_certainty_is_left_to_spark() -> None:
    assert source.condition_of(EqualTo(("a",), "it's")) == "\"a\" in ('it''s'::text)"
    assert source.condition_of(GreaterThan(('odd"name',), "x")) == '"odd""name" > \'x\'::text collate "C"'
    assert source.condition_of(LessThan(("d",), dt.date(2013, 1, 5))) == "\"d\" < '2013-01-05'::date"
    assert source.condition_of(IsNull(("a",))) == '"a" is null'
    for unsure in (EqualTo(("a", "b"), 1), EqualTo(("a",), 1.5), EqualTo(("a",), "\0"), StringContains(("a",), "x")):
        assert source.condition_of(unsure) is None
