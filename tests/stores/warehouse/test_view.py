"""The views: their exact text, and that PostgreSQL reads one table where one period is asked for."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import pendulum
from psycopg import sql

from tests.support.sales import sales_dataset
from varve.model.batch import Batch, BatchId
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.model.store_options import Index
from varve.stores.warehouse.tables import view
from varve.stores.warehouse.tables.naming import leaf_view, period_table
from varve.stores.warehouse.tables.schemas import ensure_schemas_of
from varve.stores.warehouse.tables.shape import declared_shape

if TYPE_CHECKING:
    import psycopg

DAY = TimeDimension("day", Grain.DAY, pendulum.datetime(2013, 1, 1))
STORE = StaticDimension("store", ("Paris", "it's"))
SALES = Dataset(
    name="shop.sales",
    comment="It's one row per sale.",
    partitioning=Partitioning((DAY, STORE)),
    schema=Schema(
        (Column("product", ColumnType.STRING, "what's sold"), Column("sold", ColumnType.BIGINT, was=("pieces",)))
    ),
    store=StoreKind.WAREHOUSE,
)
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def batch(dataset: Dataset, day: int, store: str, location: str) -> Batch:
    path = dataset.partitioning.key([dt.date(2013, 1, day), store]).path
    return Batch(path, BatchId(1), location, rows=1, size=1, run_id="run", published_at=NOW, inputs=frozenset())


def test_a_leaf_has_one_arm_per_period_with_its_partition_as_typed_literals(connection: psycopg.Connection) -> None:
    batches = [batch(SALES, 5, "Paris", "one"), batch(SALES, 6, "it's", "two")]
    columns = {"one": ["product", "sold"], "two": ["pieces"]}
    shape = declared_shape(SALES)
    arms = [view.table_arm(SALES, shape, batch.partition, batch.location, columns[batch.location]) for batch in batches]
    assert view.create_leaf(SALES, "leaf_1", shape, arms).as_string(connection) == (
        'create or replace view "shop_periods"."leaf_1" as '
        "select '2013-01-05'::date as \"day\", 'Paris'::text as \"store\", "
        '"product"::text as "product", "sold"::bigint as "sold" from "shop_periods"."one" union all '
        "select '2013-01-06'::date as \"day\", 'it''s'::text as \"store\", "
        'null::text as "product", "pieces"::bigint as "sold" from "shop_periods"."two"'
    )


def test_a_shared_table_is_shown_whole_or_for_some_of_its_partitions(connection: psycopg.Connection) -> None:
    shape, columns = declared_shape(SALES), ["day", "store", "product", "sold"]
    whole = (
        'select "day"::date as "day", "store"::text as "store", "product"::text as "product", '
        '"sold"::bigint as "sold" from "shop_periods"."all"'
    )
    assert view.shared_arm(SALES, shape, "all", columns, None).as_string(connection) == whole
    some = [batch(SALES, day, store, "").partition for day, store in ((5, "it's"), (6, "Paris"), (7, "it's"))]
    assert view.shared_arm(SALES, shape, "all", columns, some).as_string(connection) == (
        whole + " where (\"store\" = 'it''s'::text and \"day\" in ('2013-01-05'::date, '2013-01-07'::date) "
        "or \"store\" = 'Paris'::text and \"day\" in ('2013-01-06'::date))"
    )


def test_a_shared_table_is_shown_for_more_partitions_than_postgresql_takes_keys_in_one_list(
    connection: psycopg.Connection,
) -> None:
    paths = [f"day=2013-01-{day:02}/store=shop {store}" for day in range(1, 32) for store in range(500)]
    wanted = view.of_partitions(SALES, paths[:-1])
    rows = sql.SQL("(select day::date, 'shop ' || store as store from {}, generate_series(0, 499) as store) s").format(
        sql.SQL("generate_series('2013-01-01'::timestamp, '2013-02-10', '1 day') as day")
    )
    count = sql.SQL("select count(*) from {} where {}").format(rows, wanted)
    assert connection.execute(count).fetchone() == (len(paths) - 1,)


def test_the_view_shows_its_leaves(connection: psycopg.Connection) -> None:
    assert view.create_view(SALES, declared_shape(SALES), ["leaf_1", "leaf_2"]).as_string(connection) == (
        'create or replace view "shop"."sales" as '
        'select "day", "store", "product", "sold" from "shop_periods"."leaf_1" union all '
        'select "day", "store", "product", "sold" from "shop_periods"."leaf_2"'
    )


def test_views_over_nothing_have_their_columns_and_no_rows(connection: psycopg.Connection) -> None:
    nothing = (
        'as select null::date as "day", null::text as "store", null::text as "product", null::bigint as "sold" '
        "where false"
    )
    shape = declared_shape(SALES)
    assert view.create_view(SALES, shape, []).as_string(connection).endswith(f'"shop"."sales" {nothing}')
    assert view.create_leaf(SALES, "leaf_1", shape, []).as_string(connection).endswith(f'"leaf_1" {nothing}')


def test_a_period_table_has_the_data_columns_only_and_describes_its_batch(connection: psycopg.Connection) -> None:
    assert [
        statement.as_string(connection)
        for statement in view.create_period_table(SALES, "sales__one", {"partition": "store=it's"})
    ] == [
        'create table "shop_periods"."sales__one" ("product" text, "sold" bigint)',
        'comment on table "shop_periods"."sales__one" is \'{"partition": "store=it\'\'s"}\'',
    ]


def test_indexes_are_those_declared(connection: psycopg.Connection) -> None:
    assert view.create_index(SALES, "one", Index(("product", "sold"))).as_string(connection) == (
        'create index on "shop_periods"."one" ("product", "sold")'
    )
    assert view.create_index(SALES, "one", Index(("product",), unique=True)).as_string(connection) == (
        'create unique index on "shop_periods"."one" ("product")'
    )


def test_comments_are_the_datasets_and_those_columns_have(connection: psycopg.Connection) -> None:
    assert [view.comment(SALES, *comment).as_string(connection) for comment in view.comments(SALES).items()] == [
        "comment on view \"shop\".\"sales\" is 'It''s one row per sale.'",
        'comment on column "shop"."sales"."product" is \'what\'\'s sold\'',
    ]


def test_a_query_for_one_period_reads_one_table_and_sees_its_rows(connection: psycopg.Connection) -> None:
    dataset = sales_dataset(StoreKind.WAREHOUSE)
    shape = declared_shape(dataset)
    batches = []
    ensure_schemas_of(connection, dataset)
    for day in range(1, 21):
        for store in ("Detroit", "Paris"):
            key = dataset.partitioning.key([dt.date(2013, 1, day), store])
            table = period_table(dataset, key, BatchId(1_700_000_000_000))
            for statement in view.create_period_table(dataset, table, {}):
                connection.execute(statement)
            connection.execute(
                sql.SQL("insert into {} values ('pen', %s, 1.5, now())").format(view.table_name(dataset, table)), (day,)
            )
            batches.append(batch(dataset, day, store, table))
    columns = {batch.location: dataset.schema.names for batch in batches}
    leaves = [leaf_view(dataset, 1, number) for number in (1, 2)]
    for leaf, shown in zip(leaves, (batches[:25], batches[25:]), strict=True):
        arms = [
            view.table_arm(dataset, shape, batch.partition, batch.location, columns[batch.location]) for batch in shown
        ]
        connection.execute(view.create_leaf(dataset, leaf, shape, arms))
    connection.execute(view.create_view(dataset, shape, leaves))
    name = view.view_name(dataset).as_string(connection)
    query = f"select sold from {name} where day = '2013-01-13' and store = 'Paris'"
    assert connection.execute(query.encode()).fetchall() == [(13,)]
    (plan,) = connection.execute(f"explain (format json) {query}".encode()).fetchone() or ([],)
    assert tables(plan) == [batch.location for batch in batches if batch.partition == "day=2013-01-13/store=Paris"]
    (days,) = connection.execute(
        f"explain (format json) select sum(sold) from {name} where day between '2013-01-05' and '2013-01-07'".encode()
    ).fetchone() or ([],)
    assert len(tables(days)) == 6
    assert connection.execute(f"select count(*), sum(sold) from {name}".encode()).fetchone() == (40, 420)
    connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(dataset.db)))


def tables(plan: object) -> list[str]:
    """The relations that a plan reads."""
    names: list[str] = []

    def walk(node: object) -> None:
        if isinstance(node, dict):
            if "Relation Name" in node:
                names.append(str(node["Relation Name"]))
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(json.loads(plan) if isinstance(plan, str) else plan)
    return names
