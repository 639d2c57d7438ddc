"""The union view: its exact text, and that PostgreSQL reads one table where one period is asked for."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import pendulum

from pipeline_defs.model.batch import Batch, BatchId
from pipeline_defs.model.dataset import Dataset, StoreKind
from pipeline_defs.model.dimension import StaticDimension, TimeDimension
from pipeline_defs.model.grain import Grain
from pipeline_defs.model.partitioning import Partitioning
from pipeline_defs.model.schema import Column, ColumnType, Schema
from resources.warehouse import view
from resources.warehouse.naming import period_table
from tests.conftest import sales_dataset

if TYPE_CHECKING:
    import psycopg

DAY = TimeDimension("day", Grain.DAY, pendulum.datetime(2013, 1, 1))
STORE = StaticDimension("store", ("Paris", "it's"))
SALES = Dataset(
    name="shop.sales",
    comment="It's one row per sale.",
    partitioning=Partitioning((DAY, STORE)),
    schema=Schema((Column("product", ColumnType.STRING, "what's sold"), Column("sold", ColumnType.BIGINT))),
    store=StoreKind.WAREHOUSE,
)


def batch(dataset: Dataset, day: int, store: str, location: str) -> Batch:
    path = dataset.partitioning.key([dt.date(2013, 1, day), store]).path
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return Batch(path, BatchId(1), location, rows=1, size=1, run_id="run", published_at=now, inputs=frozenset())


def test_the_view_has_one_arm_per_period_with_its_partition_as_typed_literals(connection: psycopg.Connection) -> None:
    batches = [batch(SALES, 5, "Paris", "sales__one"), batch(SALES, 6, "it's", "sales__two")]
    assert view.create_view(SALES, batches).as_string(connection) == (
        'create or replace view "shop"."sales" as '
        "select '2013-01-05'::date as \"day\", 'Paris'::text as \"store\", "
        '"product"::text as "product", "sold"::bigint as "sold" from "shop_periods"."sales__one" union all '
        "select '2013-01-06'::date as \"day\", 'it''s'::text as \"store\", "
        '"product"::text as "product", "sold"::bigint as "sold" from "shop_periods"."sales__two"'
    )


def test_the_view_over_nothing_has_its_columns_and_no_rows(connection: psycopg.Connection) -> None:
    assert view.create_view(SALES, []).as_string(connection) == (
        'create or replace view "shop"."sales" as select null::date as "day", null::text as "store", '
        'null::text as "product", null::bigint as "sold" where false'
    )


def test_a_period_table_has_the_data_columns_only_and_describes_its_batch(connection: psycopg.Connection) -> None:
    assert [
        statement.as_string(connection)
        for statement in view.create_period_table(SALES, "sales__one", {"partition": "store=it's"})
    ] == [
        'create table "shop_periods"."sales__one" ("product" text, "sold" bigint)',
        'comment on table "shop_periods"."sales__one" is \'{"partition": "store=it\'\'s"}\'',
    ]


def test_one_period_is_read_with_its_partition_columns_last(connection: psycopg.Connection) -> None:
    assert view.select_period(SALES, batch(SALES, 5, "Paris", "sales__one")).as_string(connection) == (
        'select "product"::text as "product", "sold"::bigint as "sold", '
        '\'2013-01-05\'::date as "day", \'Paris\'::text as "store" from "shop_periods"."sales__one"'
    )


def test_comments_are_the_datasets_and_those_columns_have(connection: psycopg.Connection) -> None:
    assert [statement.as_string(connection) for statement in view.comments(SALES)] == [
        "comment on view \"shop\".\"sales\" is 'It''s one row per sale.'",
        'comment on column "shop"."sales"."product" is \'what\'\'s sold\'',
    ]


def test_hours_are_texts_and_every_type_has_its_postgresql_name(connection: psycopg.Connection) -> None:
    hour = TimeDimension("hour", Grain.HOUR, pendulum.datetime(2013, 1, 1))
    schema = Schema(tuple(Column(f"c_{kind.lower()}", kind) for kind in ColumnType))
    every = Dataset("shop.every", Partitioning((hour,)), schema, StoreKind.WAREHOUSE, "One row per type.")
    (statement, _) = view.create_period_table(every, "every__one", {})
    assert statement.as_string(connection) == (
        'create table "shop_periods"."every__one" ("c_string" text, "c_boolean" boolean, "c_int" integer, '
        '"c_bigint" bigint, "c_double" double precision, "c_date" date, "c_timestamp" timestamp with time zone)'
    )
    found = Batch("hour=2013-01-05T13", BatchId(1), "every__one", 1, 1, "run", dt.datetime.now(dt.UTC), frozenset())
    assert "select '2013-01-05T13'::text as \"hour\", " in view.create_view(every, [found]).as_string(connection)


def test_a_query_for_one_period_reads_one_table_and_sees_its_rows(connection: psycopg.Connection) -> None:
    dataset = sales_dataset(StoreKind.WAREHOUSE)
    batches = []
    for statement in view.create_schemas(dataset):
        connection.execute(statement)
    for day in range(1, 21):
        for store in ("Detroit", "Paris"):
            key = dataset.partitioning.key([dt.date(2013, 1, day), store])
            table = period_table(dataset, key, BatchId(1_700_000_000_000))
            for statement in view.create_period_table(dataset, table, {}):
                connection.execute(statement)
            connection.execute(
                view.sql.SQL("insert into {} values ('pen', %s, 1.5, now())").format(view.table_name(dataset, table)),
                (day,),
            )
            batches.append(batch(dataset, day, store, table))
    connection.execute(view.create_view(dataset, batches))
    name = view.view_name(dataset).as_string(connection)
    one = f"select sold from {name} where day = '2013-01-13' and store = 'Paris'"
    assert connection.execute(one.encode()).fetchall() == [(13,)]
    (plan,) = connection.execute(f"explain (format json) {one}".encode()).fetchone() or ([],)
    assert tables(plan) == [found.location for found in batches if found.partition == "day=2013-01-13/store=Paris"]
    (days,) = connection.execute(
        f"explain (format json) select sum(sold) from {name} where day between '2013-01-05' and '2013-01-07'".encode()
    ).fetchone() or ([],)
    assert len(tables(days)) == 6
    assert connection.execute(f"select count(*), sum(sold) from {name}".encode()).fetchone() == (40, 420)
    connection.execute(view.sql.SQL("drop schema {} cascade").format(view.sql.Identifier(dataset.db)))


def tables(plan: object) -> list[str]:
    """The relations that a plan reads."""
    found: list[str] = []

    def walk(node: object) -> None:
        if isinstance(node, dict):
            if "Relation Name" in node:
                found.append(str(node["Relation Name"]))
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(json.loads(plan) if isinstance(plan, str) else plan)
    return found
