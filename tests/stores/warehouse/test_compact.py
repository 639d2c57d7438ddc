"""Two grains: fine partitions in tables of their own while their period is open, in one table when it is over."""

from __future__ import annotations

import datetime as dt
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pendulum
import psycopg
import pytest

from tests.stores.warehouse.test_projection import ALIEN, DOUBLE, INT, STRING, Shop, dataset, key
from tests.stores.warehouse.test_view import tables
from tests.support.project import commands_on
from tests.support.sales import DAY, sales_dataset
from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.cli.batches import sweep
from varve.cli.batches.doctor import doctor
from varve.cli.batches.sweep_report import Report
from varve.model.dataset import StoreKind
from varve.model.errors import PublishTimeout, VarveError
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.time_columns import TimeColumn
from varve.model.schema import Column, ColumnType, Schema
from varve.model.store_options import Index, OldSnapshots, Period, WarehouseOptions
from varve.planning.graph import Graph
from varve.services.postgres import connect
from varve.stores.folders.layout import Layout
from varve.stores.warehouse import budget, clean, compact, examine, migrate, publish, reading
from varve.stores.warehouse.loading.load import Route
from varve.stores.warehouse.store import WarehouseStore
from varve.stores.warehouse.tables import notes
from varve.stores.warehouse.tables.naming import period_table, periods_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.workbench import Workbench
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings

WEEKLY = WarehouseOptions(indexes=(Index(("product",), unique=True),), compact=Period.WEEK)


@dataclass(frozen=True)
class Counted(Catalog):
    """A catalog that counts the traces that are asked of it."""

    traces: list[str] = field(default_factory=list)

    def current(self, dataset: str, partitions: Iterable[PartitionKey] | None = None) -> dict[str, Batch]:
        batches = super().current(dataset, partitions)
        self.traces.extend(batches)
        return batches


@pytest.fixture
def shop(catalog: Catalog) -> Shop:
    return Shop(catalog)


@pytest.fixture
def sales() -> Dataset:
    return replace(dataset(), warehouse=WEEKLY)


def days(first: int, last: int) -> dict[object, list[tuple[object, ...]]]:
    """January 7th, 2013 is a Monday."""
    return {key(day): [("pen", day)] for day in range(first, last + 1)}


def shown(shop: Shop, sales: Dataset) -> set[str]:
    return examine.tables_under(shop.connection, str(sales))


def together(shop: Shop, sales: Dataset) -> int:
    return compact.compact_closed(shop.catalog, sales, seconds=10)


def sold(shop: Shop, sales: Dataset) -> list[int]:
    return [row[3] for row in shop.rows(sales)]


@pytest.mark.parametrize(
    ("period", "first"),
    [
        (Period.DAY, (2013, 3, 14)),
        (Period.WEEK, (2013, 3, 11)),
        (Period.MONTH, (2013, 3, 1)),
        (Period.YEAR, (2013, 1, 1)),
    ],
)
def test_a_day_lies_in_a_period(period: Period, first: tuple[int, int, int]) -> None:
    assert period.of(dt.date(2013, 3, 14)) == dt.date(*first)


@pytest.mark.parametrize(
    "columns",
    [
        (),
        (TimeColumn("year", "%Y", INT), TimeColumn("month", "%m", INT), TimeColumn("day", "%d", INT)),
        (TimeColumn("number", "%Y%m%d", INT),),
        # The first of a month in Paris begins on the day before in UTC.
        (TimeColumn("at", "%s", ColumnType.TIMESTAMP),),
    ],
)
def test_the_day_is_the_one_of_the_time_dimension_however_its_columns_spell_it(
    shop: Shop, columns: tuple[TimeColumn, ...]
) -> None:
    time = TimeDimension("began", Grain.DAY, pendulum.datetime(2013, 1, 1, tz="Europe/Paris"), columns=columns)
    # It looks like a date, and comes first.
    product_line = StaticDimension("line", ("20120105",))
    monthly = WarehouseOptions(compact=Period.MONTH)
    sales = replace(dataset(), partitioning=Partitioning((product_line, time)), warehouse=monthly)
    days = (dt.date(2013, 1, 30), dt.date(2013, 1, 31), dt.date(2013, 2, 1))
    keys = [sales.partitioning.key(["20120105", day]) for day in days]
    shop.publish(sales, {each: [("pen", sold)] for sold, each in enumerate(keys[:2])})
    assert together(shop, sales) == 0
    shop.publish(sales, {keys[2]: [("pen", 2)]})
    (period,) = compact.due(shop.catalog, sales)
    assert (period.first_day, len(period.batches)) == (dt.date(2013, 1, 1), 2)
    assert together(shop, sales) == 1
    assert len(shown(shop, sales)) == 2
    assert sorted(shop.rows(sales, "sold, product, line")) == [(sold, "pen", "20120105") for sold in range(3)]


def test_without_a_time_dimension_the_first_value_that_begins_with_a_date_is_the_day(shop: Shop) -> None:
    dates = StaticDimension("date", ("2013-01-07", "2013-01-08", "2013-01-14"))
    sales = replace(dataset(), partitioning=Partitioning((StaticDimension("line", ("a",)), dates)), warehouse=WEEKLY)
    keys = [sales.partitioning.key(["a", date]) for date in dates.members]
    shop.publish(sales, {each: [("pen", sold)] for sold, each in enumerate(keys)})
    assert together(shop, sales) == 1
    assert len(shown(shop, sales)) == 2


def test_a_period_stays_apart_while_it_is_open_and_comes_into_one_table_when_it_is_over(
    shop: Shop, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "LEAF_TABLES", 3)
    shop.publish(sales, days(7, 13))  # type: ignore[arg-type]
    assert together(shop, sales) == 0
    assert len(shown(shop, sales)) == 7
    shop.publish(sales, days(14, 14))  # type: ignore[arg-type]
    before, batches = shop.rows(sales), shop.catalog.current(sales.name)

    assert together(shop, sales) == 1

    assert len(shown(shop, sales)) == 2
    assert shop.rows(sales) == before
    # The batches are what they were: nothing that is made from them is out of date.
    assert shop.catalog.current(sales.name) == batches
    assert together(shop, sales) == 0
    assert list(examine.shown(shop.connection, sales, batches)) == []
    assert list(examine.tables(shop.connection, sales, list(batches.values()))) == []
    (plan,) = shop.connection.execute(
        f"explain (format json) select * from {sales} where day = '2013-01-14'".encode()
    ).fetchone() or ([],)
    assert tables(plan) == [batches[key(14).path].location]


def test_readers_are_counted_by_the_tables_that_they_lock_not_by_the_partitions(
    shop: Shop, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish(sales, days(7, 14))  # type: ignore[arg-type]
    assert together(shop, sales) == 1
    # The view and one leaf; the week's table with the index by partition and the one declared; two days with theirs.
    assert budget.locks_of_a_reader(2, 1, 1) == 2 + 3 + 2 * 2
    monkeypatch.setattr(budget, "_CAPACITY", "select 9")
    shop.publish(sales, days(15, 15))  # type: ignore[arg-type]
    monkeypatch.setattr(budget, "_CAPACITY", "select 10")
    with pytest.raises(VarveError, match="4 tables, and a query of it takes 11 locks"):
        shop.publish(sales, days(16, 16))  # type: ignore[arg-type]


def test_a_publish_asks_for_the_traces_of_its_own_partitions_alone(catalog: Catalog, sales: Dataset) -> None:
    counted = Counted(catalog.connection)
    shop = Shop(counted)
    shop.publish(sales, days(7, 30))  # type: ignore[arg-type]
    assert together(shop, sales) == 3
    counted.traces.clear()
    shop.publish(sales, {key(29): [("pen", 5)], key(31): [("pen", 31)]})
    # One of a week that is over: it is put together again, with the others of it.
    shop.publish(sales, {key(15): [("pen", 6)]})
    assert together(shop, sales) == 1
    # All other partitions lie in the same leaf, and are shown by their tables alone.
    assert set(counted.traces) == {key(day).path for day in (15, 29, 31)} | {key(day).path for day in range(14, 21)}


def test_tables_that_a_shared_one_has_replaced_are_leftovers_and_nothing_else_is(
    shop: Shop, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish(sales, days(7, 14))  # type: ignore[arg-type]
    batches = shop.catalog.current(sales.name)
    together(shop, sales)
    # Nothing is wrong with that.
    commands_on(Graph({sales.name: sales}, {sales.name: ()}, {}), monkeypatch)
    assert doctor(sales.name).findings == []
    left = [item.location for item in clean.leftovers(shop.connection) if item.dataset == sales.name]
    own = {f"{sales.db}_periods.{item.location}" for path, item in batches.items() if path != key(14).path}
    assert set(left) == own
    before = shop.rows(sales)
    clean.drop(shop.connection, sales.name, left)
    assert shop.rows(sales) == before
    assert [item for item in clean.leftovers(shop.connection) if item.dataset == sales.name] == []
    assert list(examine.tables(shop.connection, sales, list(batches.values()))) == []
    (shared,) = shown(shop, sales) - {batches[key(14).path].location}
    with pytest.raises(Exception, match="belong to batches that are kept"):
        clean.drop(shop.connection, sales.name, [shared])


def test_a_partition_loaded_again_after_its_period_is_over_shows_its_new_rows_and_goes_back(
    shop: Shop, sales: Dataset
) -> None:
    shop.publish(sales, days(7, 14))  # type: ignore[arg-type]
    together(shop, sales)
    first = shop.catalog.current(sales.name)[key(9).path]
    shop.publish(sales, {key(9): [("pen", 900), ("ink", 1)]})
    assert sorted(sold(shop, sales)) == [1, 7, 8, 10, 11, 12, 13, 14, 900]
    # Back to the batch that lies in the shared table, whose own is gone.
    clean.drop(shop.connection, sales.name, [first.location])
    build = shop.catalog.lock_partitions(sales, [key(9)], run_id="back")
    publish.republish(shop.catalog, build, [first], reason="", seconds=10)
    shop.catalog.release(build)
    assert sold(shop, sales) == [7, 8, 9, 10, 11, 12, 13, 14]
    # The period is compacted again, with the partition that was loaded again.
    shop.publish(sales, {key(9): [("pen", 901)]})
    assert together(shop, sales) == 1
    assert sold(shop, sales) == [7, 8, 901, 10, 11, 12, 13, 14]
    assert len(shown(shop, sales)) == 2
    # Back to the batch that only the first shared table holds: of that table no other row is shown.
    build = shop.catalog.lock_partitions(sales, [key(9)], run_id="back again")
    publish.republish(shop.catalog, build, [first], reason="", seconds=10)
    shop.catalog.release(build)
    assert sold(shop, sales) == [7, 8, 9, 10, 11, 12, 13, 14]
    assert together(shop, sales) == 1
    assert sold(shop, sales) == [7, 8, 9, 10, 11, 12, 13, 14]


def test_a_leaf_that_shows_nothing_any_more_is_swept_with_the_tables_under_it(
    shop: Shop, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "LEAF_TABLES", 3)
    shop.publish(sales, days(7, 14))  # type: ignore[arg-type]
    own = [batch.location for path, batch in shop.catalog.current(sales.name).items() if path != key(14).path]
    assert together(shop, sales) == 1
    clean.drop(shop.connection, sales.name, own)
    assert sold(shop, sales) == [7, 8, 9, 10, 11, 12, 13, 14]
    schema = periods_schema(sales)
    there = shop.connection.execute("select tablename from pg_tables where schemaname = %s", (schema,)).fetchall()
    assert not {table for (table,) in there} & set(own)
    # Leaves that come later take the numbers that are free.
    shop.publish(sales, days(15, 22))  # type: ignore[arg-type]
    assert sold(shop, sales) == list(range(7, 23))


def test_a_migration_looks_into_shared_tables_too(shop: Shop, sales: Dataset) -> None:
    prices = replace(sales, schema=Schema((Column("product", STRING), Column("sold", DOUBLE))))
    shop.publish(prices, {key(day): [("pen", day + 0.5)] for day in range(7, 15)})
    own = [batch.location for batch in shop.catalog.current(prices.name).values()]
    assert together(shop, prices) == 1
    clean.drop(shop.connection, prices.name, own[:-1])
    with pytest.raises(VarveError, match=r"sold of .* is double precision, and .*\.5 would not be the same as integer"):
        migrate.migrate(shop.catalog, sales, seconds=10, dry_run=True)


def test_a_partition_published_while_its_period_is_put_together_keeps_its_new_rows(
    shop: Shop, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish(sales, days(7, 14))  # type: ignore[arg-type]
    swap = compact._swap

    def late(*given: object) -> None:
        monkeypatch.setattr(compact, "_swap", swap)
        shop.publish(sales, {key(9): [("pen", 900)]})
        swap(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(compact, "_swap", late)
    assert together(shop, sales) == 1
    assert sold(shop, sales) == [7, 8, 900, 10, 11, 12, 13, 14]


def test_a_period_shares_a_table_though_one_of_its_partitions_has_left_the_dimensions(
    shop: Shop, sales: Dataset
) -> None:
    shop.publish(sales, {**days(7, 14), key(8, ALIEN): [("ink", 80)]})  # type: ignore[dict-item]
    fewer = replace(sales, partitioning=Partitioning((DAY, StaticDimension("store", ("Paris",)))))
    assert together(shop, fewer) == 1
    assert len(shown(shop, sales)) == 3
    assert sorted(sold(shop, sales)) == [*range(7, 15), 80]
    # It had left when it was in the table already: the others share a new one, and it is shown from the former.
    assert together(shop, sales) == 1
    assert len(shown(shop, sales)) == 2
    shop.publish(fewer, {key(9): [("pen", 90)]})
    assert together(shop, fewer) == 1
    assert len(shown(shop, sales)) == 3
    assert sorted(sold(shop, sales)) == [7, 8, 10, 11, 12, 13, 14, 80, 90]
    assert list(examine.shown(shop.connection, fewer, shop.catalog.current(sales.name))) == []


def test_a_withdrawn_partition_of_a_shared_table_is_not_shown(shop: Shop, sales: Dataset) -> None:
    shop.publish(sales, days(7, 14))  # type: ignore[arg-type]
    together(shop, sales)
    build = shop.catalog.lock_partitions(sales, [key(9)], run_id="back")
    publish.republish(shop.catalog, build, [], reason="", seconds=10)
    shop.catalog.release(build)
    assert sold(shop, sales) == [7, 8, 10, 11, 12, 13, 14]
    shop.publish(sales, {key(9): [("pen", 90)]})
    assert sold(shop, sales) == [7, 8, 90, 10, 11, 12, 13, 14]


def test_a_period_that_is_withdrawn_while_it_is_put_together_stays_withdrawn(
    shop: Shop, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish(sales, days(7, 14))  # type: ignore[arg-type]
    swap = compact._swap

    def late(*given: object) -> None:
        monkeypatch.setattr(compact, "_swap", swap)
        build = shop.catalog.lock_partitions(sales, [key(day) for day in range(7, 14)], run_id="back")
        publish.republish(shop.catalog, build, [], reason="", seconds=10)
        shop.catalog.release(build)
        swap(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(compact, "_swap", late)
    together(shop, sales)
    assert sold(shop, sales) == [14]
    # The table that nobody shows is a leftover like any other.
    assert len([item for item in clean.leftovers(shop.connection) if item.dataset == sales.name]) == 1
    shop.publish(sales, days(9, 9))  # type: ignore[arg-type]
    assert sold(shop, sales) == [9, 14]


def test_columns_change_over_shared_tables_as_over_others(shop: Shop, sales: Dataset) -> None:
    shop.publish(sales, days(7, 14))  # type: ignore[arg-type]
    together(shop, sales)
    renamed = replace(sales, schema=Schema((Column("product", STRING), Column("pieces", INT, was=("sold",)))))
    other = replace(
        renamed,
        schema=Schema(
            (renamed.schema.columns[0], replace(renamed.schema.columns[1], type=sales.schema.columns[1].type))
        ),
    )
    shop.publish(other, {key(15): [("pen", 15)]})
    assert shop.columns(sales)[3] == "pieces"
    assert sold(shop, sales) == list(range(7, 16))


def test_values_of_a_column_that_is_declared_no_more_come_into_the_shared_table_too(shop: Shop, sales: Dataset) -> None:
    wider = replace(sales, schema=Schema((*sales.schema.columns, Column("rebate", INT))))
    shop.publish(wider, {key(day): [("pen", day, 10 * day)] for day in range(7, 10)})
    shop.publish(sales, days(10, 13))  # type: ignore[arg-type]
    assert migrate.narrow(shop.catalog, sales, seconds=10)
    assert "rebate" not in shop.columns(sales)
    shop.publish(sales, days(14, 14))  # type: ignore[arg-type]
    assert together(shop, sales) == 1
    shop.publish(wider, {key(15): [("pen", 15, 150)]})
    assert shop.rows(wider, "sold, rebate, 1") == [
        *((day, 10 * day, 1) for day in range(7, 10)), *((day, None, 1) for day in range(10, 15)), (15, 150, 1),
    ]  # fmt: skip
    # Code that is behind the last publish takes nothing away, also where another column is declared by nobody any more.
    assert not migrate.narrow(shop.catalog, sales, seconds=10)
    shop.publish(
        replace(wider, schema=Schema((*wider.schema.columns, Column("extra", INT)))), {key(16): [("pen", 1, 2, 3)]}
    )
    shop.publish(wider, {key(16): [("pen", 1, 2)]})
    assert not migrate.narrow(shop.catalog, sales, seconds=10)
    assert {"rebate", "extra"} <= set(shop.columns(sales))
    assert migrate.narrow(shop.catalog, wider, seconds=10)
    assert "extra" not in shop.columns(sales)
    assert "rebate" in shop.columns(sales)


def test_readers_in_the_way_leave_the_tables_apart_and_are_told(
    shop: Shop, sales: Dataset, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    shop.publish(sales, days(7, 14))  # type: ignore[arg-type]
    lax = replace(sales, warehouse=replace(WEEKLY, old_snapshots=OldSnapshots.PUBLISH))
    with connect(settings, application="the slow reader") as slow, slow.transaction():
        slow.execute(f"select * from {sales}".encode())
        with pytest.raises(PublishTimeout, match="the slow reader"):
            compact.compact(shop.catalog, lax, compact.due(shop.catalog, lax)[0], seconds=0.3)
        assert compact.compact_closed(shop.catalog, lax, seconds=0.3) == 0
    assert "stays in tables of its own for now" in caplog.text
    assert len(shown(shop, sales)) == 8
    assert len([leftover for leftover in clean.leftovers(shop.connection) if leftover.dataset == sales.name]) == 2
    assert together(shop, sales) == 1


@pytest.mark.spark
def test_a_run_puts_closed_periods_together_and_what_reads_them_gets_the_same_rows(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = replace(sales_dataset(StoreKind.WAREHOUSE), warehouse=WarehouseOptions(compact=Period.WEEK))
    keys = [key(day, store) for day in range(7, 15) for store in ("Detroit", "Paris")]
    rows = [(item, "pen", place) for place, item in enumerate(keys)]
    for start in (0, 8):
        workbench.publish(sales, keys[start : start + 8], rows[start : start + 8])
    catalog = workbench.catalog()
    assert len(examine.tables_under(catalog.connection, str(sales))) == 3
    own = [item.location for item in clean.leftovers(catalog.connection) if item.dataset == sales.name]
    assert len(own) == 14
    workbench.store(sales, catalog).sweep(sales.name, own)
    expected = sorted((*item.values, "pen", place) for place, item in enumerate(keys))
    assert workbench.read(sales) == expected
    assert workbench.read(sales, keys[2:5]) == expected[2:5]
    monkeypatch.setattr(reading, "_BYTES_FOR_SPARK", 0)
    monkeypatch.setattr(reading, "_BYTES_A_TASK", reading._PAGE)
    assert workbench.read(sales, [*keys[2:5], keys[15]]) == [*expected[2:5], expected[15]]
    catalog.connection.close()


def test_a_sweep_leaves_a_compaction_in_progress_alone_and_takes_what_a_killed_one_has_left(
    shop: Shop, sales: Dataset, settings: Settings
) -> None:
    shop.publish(sales, days(7, 14))  # type: ignore[arg-type]
    (period,) = compact.due(shop.catalog, sales)
    store = WarehouseStore(Route(""), Layout(f"{settings.lake}/_spool"), shop.catalog, _no_spark, 5.0)
    now = dt.timedelta(0)

    def swept() -> Report:
        report = Report(done=True)
        sweep.sweep_leftovers(report, History(shop.connection), store, sales.name, now)
        return report

    def in_one_table() -> list[str]:
        rows = shop.connection.execute(
            "select relname from pg_class c join pg_namespace n on n.oid = relnamespace "
            "where nspname = %s and relkind = 'r' and relname like '%%all%%'", (f"{sales.db}_periods",),
        )  # fmt: skip
        return [name for (name,) in rows]

    with connect(settings) as holder, connect(settings) as other, ThreadPoolExecutor(1) as pool:
        with holder.transaction():
            # A compaction waits for old snapshots when its table is full, and before that is shown.
            holder.execute("set transaction isolation level repeatable read")
            holder.execute("select count(*) from varve.batch")
            compacting = pool.submit(compact.compact, Catalog(other), sales, period, seconds=100)
            deadline = time.monotonic() + 60
            while not in_one_table() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert len(in_one_table()) == 1
            report = swept()
            assert len(in_one_table()) == 1
            assert (report.orphans, report.orphan_locations, report.young_orphans.count) == ({}, [], 0)
            # Its session is ended, as by a kill: then nobody owns the table, and its age is known.
            shop.connection.execute("select pg_terminate_backend(%s)", (other.info.backend_pid,))
            with pytest.raises(psycopg.Error):
                compacting.result(60)
        while in_one_table() and time.monotonic() < deadline:
            report = swept()
        assert in_one_table() == []
        assert report.orphans[sales.name].count == 1
    table = compact.compact(shop.catalog, sales, period, seconds=10)
    assert in_one_table() == [table]
    swept()
    assert sold(shop, sales) == [7, 8, 9, 10, 11, 12, 13, 14]


def test_a_table_of_somebody_else_is_named_once_and_what_is_in_use_is_not_told_to_be_swept(
    shop: Shop, sales: Dataset, settings: Settings
) -> None:
    shop.publish(sales, days(7, 7))  # type: ignore[arg-type]
    killed = [shop.stage(sales, {key(day): [("pen", day)]}) for day in (8, 9)]
    for build in killed:
        shop.catalog.fail(build, "killed")
        shop.catalog.release(build)
    schema = f"{sales.db}_periods"
    locations = [f"{schema}.{period_table(sales, build.partitions[0], build.batch_id)}" for build in killed]
    shop.connection.execute(f"create table {schema}.mine (n int); insert into {schema}.mine values (1)".encode())
    shop.connection.execute(f"create view {sales.db}.depends as select * from {locations[0]}".encode())
    store = WarehouseStore(Route(""), Layout(f"{settings.lake}/_spool"), shop.catalog, _no_spark, 5.0)

    def swept(name: str | None, older_than: dt.timedelta, *, done: bool = True) -> Report:
        report = Report(done=done)
        sweep.sweep_leftovers(report, History(shop.connection), store, name, older_than)
        return report

    # Of all datasets, so old that nothing of other tests is.
    ages = dt.timedelta(days=10_000)
    for done, expected in ((False, [f"{schema}.mine"]), (True, [f"{schema}.mine"]), (True, [])):
        report = swept(None, ages, done=done)
        assert [stray for stray in report.strays if stray.startswith(schema)] == expected
        assert "" not in report.orphans
    first, second = [swept(sales.name, dt.timedelta(0)) for _ in range(2)]
    assert first.orphan_locations == [locations[1]]
    assert first.orphans[sales.name].count == 1
    assert first.strays == []
    (problem,) = first.problems
    assert f"{locations[0]} was not dropped" in problem
    assert second.orphans == {}
    assert shop.connection.execute(f"select count(*) from {schema}.mine".encode()).fetchone() == (1,)


def test_a_clock_that_is_a_day_ahead_makes_nothing_old(
    shop: Shop, sales: Dataset, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish(sales, days(7, 7))  # type: ignore[arg-type]
    build = shop.stage(sales, {key(8): [("pen", 8)]})
    shop.catalog.fail(build, "killed")
    shop.catalog.release(build)
    store = WarehouseStore(Route(""), Layout(f"{settings.lake}/_spool"), shop.catalog, _no_spark, 5.0)

    class Tomorrow(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return dt.datetime.now(tz) + dt.timedelta(days=1)

    monkeypatch.setattr(sweep, "dt", SimpleNamespace(datetime=Tomorrow, UTC=dt.UTC))
    report = Report(done=True)
    sweep.sweep_leftovers(report, History(shop.connection), store, sales.name, dt.timedelta(hours=1))
    assert (report.orphan_locations, report.young_orphans.count) == ([], 1)


def _no_spark() -> Any:
    raise AssertionError("no Spark is needed to sweep tables")
