"""The views over time: leaves, new and dropped and renamed columns, comments, grants and dependents, withdrawn periods.

No Spark here: tables are made and filled by the test, as a load leaves them.
"""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pendulum
import pytest
from psycopg import sql

from tests.support.sales import DAY
from varve.model.batch import StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.dimension import Dimension, DynamicDimension, StaticDimension
from varve.model.partitions.key import PartitionKey, made, parse_path
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.stores.warehouse import budget, clean, examine, migrate, publish
from varve.stores.warehouse.tables import notes, view
from varve.stores.warehouse.tables.naming import period_table
from varve.stores.warehouse.tables.schemas import ensure_schemas_of

if TYPE_CHECKING:
    import psycopg

    from varve.catalog.catalog import Catalog
    from varve.model.build import Build

INT, BIGINT, STRING, DOUBLE = ColumnType.INT, ColumnType.BIGINT, ColumnType.STRING, ColumnType.DOUBLE
ALIEN = "$$); drop schema varve cascade; -- \"' %s \\ é😀"


def dataset(*columns: Column) -> Dataset:
    days, place = DAY, StaticDimension("store", ("Paris", ALIEN))
    listed = columns or (Column("product", STRING, "what"), Column("sold", INT, "pieces"))
    name = f"t{uuid.uuid4().hex[:8]}.sales"
    return Dataset(name, Partitioning((days, place)), Schema(listed), StoreKind.WAREHOUSE, "One row per product.")


def key(day: int, store: str = "Paris") -> PartitionKey:
    return PartitionKey.of(day=dt.date(2013, 1, 1) + dt.timedelta(days=day - 1), store=store)


@dataclass
class Shop:
    """Publishes rows without Spark."""

    catalog: Catalog

    @property
    def connection(self) -> psycopg.Connection:
        return self.catalog.connection

    def stage(self, dataset: Dataset, rows: dict[PartitionKey, list[tuple[Any, ...]]]) -> Build:
        build = self.catalog.begin(dataset, list(rows), run_id=f"run-{uuid.uuid4()}", code_version="")
        notes.ensure_tables(self.connection)
        ensure_schemas_of(self.connection, dataset)
        staged = []
        for partition, values in rows.items():
            table = period_table(dataset, partition, build.batch_id)
            described = {"dataset": dataset.name, "partition": partition.path, "batch_id": build.batch_id.millis}
            for statement in view.create_period_table(dataset, table, described):
                self.connection.execute(statement)
            for row in values:
                places = sql.SQL(", ").join(sql.Placeholder() * len(row))
                self.connection.execute(
                    sql.SQL("insert into {} values ({})").format(view.table_name(dataset, table), places), row
                )
            staged.append(StagedBatch(partition, table, len(values), 1, 1))
        self.catalog.staged(build, staged)
        return build

    def publish(self, dataset: Dataset, rows: dict[PartitionKey, list[tuple[Any, ...]]]) -> Build:
        build = self.stage(dataset, rows)
        try:
            publish.publish(self.catalog, build, seconds=10)
        finally:
            self.catalog.release(build)
        return build

    def rows(self, dataset: Dataset, columns: str = "*") -> list[tuple[Any, ...]]:
        return self.connection.execute(f"select {columns} from {dataset} order by 1, 2, 3".encode()).fetchall()

    def columns(self, dataset: Dataset) -> list[str]:
        cursor = self.connection.execute(f"select * from {dataset} limit 0".encode())
        return [column.name for column in cursor.description or ()]


@pytest.fixture
def shop(catalog: Catalog) -> Shop:
    return Shop(catalog)


def leaves(shop: Shop, sales: Dataset) -> list[int]:
    return sorted(set(notes.leaves(shop.connection, sales).values()))


@pytest.mark.parametrize(
    "place",
    [StaticDimension("store", ("Paris", ALIEN)), DynamicDimension("store", "stores")],
    ids=["listed", "dynamic"],
)
def test_a_key_of_any_characters_is_a_literal_and_nothing_else(shop: Shop, place: Dimension) -> None:
    sales = replace(dataset(), partitioning=Partitioning((DAY, place)))
    shop.publish(sales, {key(5, ALIEN): [("pen", 1)], key(5): [("ink", 2)]})
    query = f"select product from {sales} where store = %s"
    assert shop.connection.execute(query.encode(), (ALIEN,)).fetchall() == [("pen",)]
    assert {row[1] for row in shop.rows(sales)} == {ALIEN, "Paris"}


def test_many_periods_are_shown_by_leaves_and_a_publish_replaces_one_of_them(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "LEAF_TABLES", 3)
    sales = dataset()
    for start in range(1, 9, 4):
        shop.publish(sales, {key(day): [("pen", day)] for day in range(start, start + 4)})
    assert leaves(shop, sales) == [1, 2, 3]
    assert [row[3] for row in shop.rows(sales)] == list(range(1, 9))
    texts = dict(definitions(shop, sales))
    shop.publish(sales, {key(5): [("pen", 50)]})
    changed = {name for name, text in definitions(shop, sales) if texts[name] != text}
    assert len(changed) == 1
    assert "leaf" in changed.pop()
    assert [row[3] for row in shop.rows(sales)] == [1, 2, 3, 4, 50, 6, 7, 8]


def definitions(shop: Shop, sales: Dataset) -> list[tuple[str, str]]:
    return shop.connection.execute(
        "select viewname, definition from pg_views where schemaname in (%s, %s)", (sales.db, f"{sales.db}_periods")
    ).fetchall()


def test_a_new_column_goes_to_the_end_and_older_periods_show_null(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(5): [("pen", 1)]})
    wider = replace(sales, schema=Schema((Column("price", DOUBLE, "euros"), *sales.schema.columns)))
    shop.publish(wider, {key(6): [(1.5, "ink", 2)]})
    assert shop.columns(sales) == ["day", "store", "product", "sold", "price"]
    assert [row[2:] for row in shop.rows(sales)] == [("pen", 1, None), ("ink", 2, 1.5)]
    assert comments_of(shop.connection, sales)["price"] == "euros"


def test_a_dropped_column_stays_for_those_who_name_it_and_is_null_from_now_on(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(5): [("pen", 1)]})
    narrower = replace(sales, schema=Schema(sales.schema.columns[:1]))
    shop.publish(narrower, {key(6): [("ink",)]})
    assert shop.rows(sales, "product, sold, day") == [
        ("ink", None, dt.date(2013, 1, 6)),
        ("pen", 1, dt.date(2013, 1, 5)),
    ]


def test_a_renamed_column_shows_the_periods_of_its_former_name(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(5): [("pen", 1)]})
    shop.connection.execute(f"create view {sales.db}.totals as select sum(sold) as sold from {sales}".encode())
    renamed = replace(sales, schema=Schema((sales.schema.columns[0], Column("pieces", INT, was=("sold",)))))
    shop.publish(renamed, {key(6): [("ink", 2)]})
    assert shop.columns(sales) == ["day", "store", "product", "pieces"]
    assert [row[3] for row in shop.rows(sales)] == [1, 2]
    assert shop.connection.execute(f"select sold from {sales.db}.totals".encode()).fetchone() == (3,)


def test_another_type_is_refused_with_the_command_that_migrates(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(5): [("pen", 1)]})
    retyped = replace(sales, schema=Schema((sales.schema.columns[0], Column("sold", BIGINT))))
    with pytest.raises(VarveError, match=rf"sold is integer in the view and bigint .*migrate {sales} --dry-run"):
        shop.publish(retyped, {key(5): [("ink", 2)]})
    assert [row[2:] for row in shop.rows(sales)] == [("pen", 1)]


def test_grants_comments_and_dependents_survive_every_rebuild(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "LEAF_TABLES", 2)
    sales, role = dataset(), f"r{uuid.uuid4().hex[:8]}"
    shop.publish(sales, {key(1): [("pen", 1)]})
    name = str(sales)
    for statement in (
        f"create role {role}", f"grant select on {name} to {role}", f"comment on column {name}.day is 'my own'",
        f"create view {sales.db}.totals as select store, sum(sold) as sold from {name} group by store",
        f"alter view {name} set (security_barrier = true)",
    ):  # fmt: skip
        shop.connection.execute(statement.encode())
    for day in range(1, 6):
        shop.publish(sales, {key(day): [("pen", day * 10)]})
    wider = replace(sales, comment="One row.", schema=Schema((*sales.schema.columns, Column("price", DOUBLE))))
    shop.publish(wider, {key(1): [("pen", 10, 0.5)]})
    granted = shop.connection.execute("select has_table_privilege(%s, %s, 'select')", (role, name)).fetchone()
    assert granted == (True,)
    assert comments_of(shop.connection, sales) == {
        None: "One row.",
        "day": "my own",
        "product": "what",
        "sold": "pieces",
    }
    total = shop.connection.execute(f"select sold from {sales.db}.totals".encode()).fetchall()
    assert total == [(150,)]
    shop.connection.execute(f"revoke all on {name} from {role}; drop role {role}".encode())


def comments_of(connection: psycopg.Connection, sales: Dataset) -> dict[str | None, str]:
    return dict(
        connection.execute(
            "select a.attname, d.description from pg_description d left join pg_attribute a "
            "on a.attrelid = d.objoid and a.attnum = d.objsubid and d.objsubid > 0 where d.objoid = %s::regclass",
            (str(sales),),
        ).fetchall()
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("table", "a table"), ("materialized view", "a materialised view"), ("sequence", "something")],
)
def test_something_else_in_the_place_of_the_view_is_refused_by_kind(shop: Shop, kind: str, expected: str) -> None:
    sales = dataset()
    shop.connection.execute(f"create schema {sales.db}".encode())
    rest = "" if kind == "sequence" else " as select 1 as a"
    shop.connection.execute(f"create {kind} {sales}{rest}".encode())
    with pytest.raises(VarveError, match=f"{expected}.* has the name of its view. Nothing was published"):
        shop.publish(sales, {key(5): [("pen", 1)]})


def test_an_earlier_batch_comes_back_into_force_and_a_first_one_is_withdrawn(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "LEAF_TABLES", 2)
    sales = dataset()
    shop.publish(sales, {key(day): [("pen", day)] for day in (1, 2, 3)})
    first = shop.catalog.current(sales.name)[key(1).path]
    shop.publish(sales, {key(1): [("pen", 100)]})
    build = shop.catalog.lock_partitions(sales, [key(1), key(3)], run_id="back")
    publish.republish(shop.catalog, build, [first], reason="wrong", seconds=10)
    shop.catalog.release(build)
    assert sorted(row[3] for row in shop.rows(sales)) == [1, 2]
    assert shop.catalog.withdrawn(sales.name) == []
    # The place of the withdrawn one is taken by the next that comes.
    shop.publish(sales, {key(4): [("pen", 4)]})
    assert sorted(row[3] for row in shop.rows(sales)) == [1, 2, 4]
    assert list(examine.shown(shop.connection, sales, shop.catalog.current(sales.name))) == []


def test_what_has_left_the_dimensions_is_shown_until_it_is_retired(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)], key(2): [("pen", 2)], key(2, ALIEN): [("ink", 3)]})
    later, left = replace(DAY, start=pendulum.datetime(2013, 1, 2)), [key(1).path, key(2, ALIEN).path]
    fewer = replace(sales, partitioning=Partitioning((later, StaticDimension("store", ("Paris",)))))
    for path in left:
        with pytest.raises(UnknownPartition):
            fewer.partitioning.from_path(path)

    shop.publish(fewer, {key(2): [("pen", 20)]})
    assert sorted(row[3] for row in shop.rows(sales)) == [1, 3, 20]
    shop.connection.execute(f"drop view {sales}".encode())
    publish.show_current(shop.catalog, fewer, seconds=10)
    assert sorted(row[3] for row in shop.rows(sales)) == [1, 3, 20]
    wider = replace(fewer, schema=Schema((sales.schema.columns[0], Column("sold", BIGINT))))
    migrate.migrate(shop.catalog, wider, seconds=10, dry_run=False)
    assert sorted(row[3] for row in shop.rows(sales)) == [1, 3, 20]
    assert list(examine.shown(shop.connection, wider, shop.catalog.current(sales.name))) == []

    build = shop.catalog.lock_partitions(wider, [made(parse_path(path)) for path in left], run_id="retire")
    publish.republish(shop.catalog, build, [], reason="retired", seconds=10)
    shop.catalog.release(build)
    assert [row[3] for row in shop.rows(sales)] == [20]


def test_two_datasets_are_published_at_once_or_not_at_all(shop: Shop) -> None:
    first, second = dataset(), dataset()
    for sales in (first, second):
        shop.publish(sales, {key(1): [("pen", 1)]})
    builds = [shop.stage(sales, {key(1): [("pen", 2)]}) for sales in (first, second)]
    shop.catalog.fail(builds[1], "as a crash would")
    with pytest.raises(VarveError, match="not staged any more"):
        publish.publish(shop.catalog, *builds, seconds=10)
    assert [shop.rows(sales)[0][3] for sales in (first, second)] == [1, 1]
    for build in builds:
        shop.catalog.release(build)
    builds = [shop.stage(sales, {key(1): [("pen", 3)]}) for sales in (first, second)]
    publish.publish(shop.catalog, *builds, seconds=10)
    assert [shop.rows(sales)[0][3] for sales in (first, second)] == [3, 3]
    with shop.connection.transaction():
        # Who reads the one view waits no longer than for a publish of it alone.
        assert publish.lock_publishers(shop.connection, first, second) == first.warehouse.stall_milliseconds / 2
    for build in builds:
        shop.catalog.release(build)


def test_tables_nobody_keeps_are_found_and_dropped_and_others_are_not(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    killed = shop.stage(sales, {key(2): [("pen", 2)]})
    living = shop.stage(sales, {key(3): [("pen", 3)]})
    shop.catalog.fail(killed, "killed")
    shop.catalog.release(killed)
    left = [leftover for leftover in clean.leftovers(shop.connection) if leftover.dataset == sales.name]
    assert [leftover.location for leftover in left] == [
        f"{sales.db}_periods.{period_table(sales, key(2), killed.batch_id)}"
    ]
    assert left[0].changed_at == killed.batch_id.started
    clean.drop(shop.connection, sales.name, [leftover.location for leftover in left])
    clean.drop(shop.connection, sales.name, [leftover.location for leftover in left])
    assert [leftover for leftover in clean.leftovers(shop.connection) if leftover.dataset == sales.name] == []
    with pytest.raises(VarveError, match="belong to batches that are kept"):
        clean.drop(shop.connection, sales.name, [period_table(sales, key(3), living.batch_id)])
    shop.catalog.release(living)
    assert [row[3] for row in shop.rows(sales)] == [1]


def test_a_table_that_somebody_depends_on_is_not_dropped_and_he_is_named(shop: Shop) -> None:
    sales = dataset()
    build = shop.stage(sales, {key(1): [("pen", 1)]})
    table = f"{sales.db}_periods.{period_table(sales, key(1), build.batch_id)}"
    shop.connection.execute(f"create view {sales.db}.mine as select * from {table}".encode())
    shop.catalog.fail(build, "killed")
    shop.catalog.release(build)
    with pytest.raises(VarveError, match=rf"was not dropped: view {sales.db}.mine depends on table"):
        clean.drop(shop.connection, sales.name, [table])


def test_former_generations_of_leaves_go_with_the_next_sweep(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    wider = replace(sales, schema=Schema((*sales.schema.columns, Column("price", DOUBLE))))
    shop.publish(wider, {key(1): [("pen", 2, 0.5)]})
    assert len(definitions(shop, sales)) == 3
    clean.drop(shop.connection, sales.name, [])
    assert len(definitions(shop, sales)) == 2
    assert [row[3] for row in shop.rows(sales)] == [2]


def test_what_is_gone_or_shown_wrongly_is_found(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(day): [("pen", day)] for day in (1, 2)})
    current = shop.catalog.current(sales.name)
    assert list(examine.tables(shop.connection, sales, list(current.values()))) == []
    assert list(examine.shown(shop.connection, sales, current)) == []
    table = view.table_name(sales, current[key(1).path].location).as_string(shop.connection)
    shop.connection.execute(f"delete from {table}".encode())
    (wrong,) = examine.tables(shop.connection, sales, list(current.values()))
    assert wrong.partition == key(1).path
    assert "has 0 rows, and batch" in wrong.problem
    shop.connection.execute(f"drop table {table} cascade".encode())
    (gone,) = examine.tables(shop.connection, sales, list(current.values()))
    assert gone.problem.endswith("is gone")
    assert {finding.partition for finding in examine.shown(shop.connection, sales, current)} == {
        key(1).path,
        key(2).path,
    }


@pytest.mark.parametrize(
    "change",
    [
        "update {} set sold = sold + 1 where product = 'pen'",
        "delete from {0}; insert into {0} values ('pen', 1), ('pen', 1)",
        "update {} set product = null where sold = 2",
    ],
)
def test_rows_changed_behind_our_back_are_found_by_a_deep_look(shop: Shop, change: str) -> None:
    sales = dataset()
    shop.publish(sales, {key(day): [("pen", 1), ("ink", 2)] for day in (1, 2)})
    current = shop.catalog.current(sales.name)
    for batch in current.values():
        # As a load does at its end.
        assert notes.seal(shop.connection, view.table_name(sales, batch.location), batch.location) == 2
    batches = list(current.values())
    assert list(examine.tables(shop.connection, sales, batches, deep=True)) == []
    table = view.table_name(sales, current[key(1).path].location).as_string(shop.connection)
    shop.connection.execute(change.format(table).encode())
    assert list(examine.tables(shop.connection, sales, batches)) == []
    (wrong,) = examine.tables(shop.connection, sales, batches, deep=True)
    assert wrong.partition == key(1).path
    assert "are not those that batch" in wrong.problem


def test_too_few_locks_are_told_before_anything_is_published(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    assert budget.locks_of_a_reader(1_000, 0, 2) == 1 + 20 + 3_000
    monkeypatch.setattr(budget, "_CAPACITY", "select 3")
    with pytest.raises(
        VarveError,
        match=r"2 tables, and a query of it takes 4 locks; the server has room for 3.* Raise max_locks_per_transaction",
    ):
        shop.publish(sales, {key(2): [("pen", 2)]})
    assert [row[3] for row in shop.rows(sales)] == [1]
