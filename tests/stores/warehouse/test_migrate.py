"""A breaking rebuild: rows unchanged, everything that hung on the view there again, or nothing changed at all."""

from __future__ import annotations

import datetime as dt
import io
import re
import uuid
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from rich.console import Console

from tests.stores.warehouse.test_projection import BIGINT, DOUBLE, INT, STRING, Shop, dataset, key
from varve.cli.batches.doctor import Examined, show_examined
from varve.model.errors import PublishTimeout, UnfitView, VarveError
from varve.model.schema import Column, ColumnType, Schema
from varve.services.postgres import connect
from varve.stores.folders.layout import Layout
from varve.stores.postgres.types import _TYPES
from varve.stores.warehouse import clean, examine, publish
from varve.stores.warehouse.loading.load import Route
from varve.stores.warehouse.migrate import depends_on_session, migrate
from varve.stores.warehouse.store import WarehouseStore
from varve.stores.warehouse.tables import grants, view
from varve.stores.warehouse.tables.naming import periods_schema
from varve.stores.warehouse.tables.roles import READER, ensure_roles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.services.settings import Settings
    from varve.stores.warehouse.migrate import Migration


@pytest.fixture
def shop(catalog: Catalog) -> Shop:
    return Shop(catalog)


@pytest.fixture
def role(shop: Shop) -> Iterator[str]:
    name = f"r{uuid.uuid4().hex[:8]}"
    shop.connection.execute(f"create role {name}".encode())
    yield name
    shop.connection.execute(f"drop owned by {name} cascade; drop role {name}".encode())


def having(sales: Dataset, *columns: Column) -> Dataset:
    return replace(sales, schema=Schema(columns))


def state(shop: Shop, sales: Dataset) -> dict[str, Any]:
    """Everything about the views of a dataset's schema that a reader or an owner could notice, but for columns."""
    rows = shop.connection.execute(
        "select c.relname, pg_get_viewdef(c.oid), (select array_agg(x::text order by x::text) from unnest(relacl) x), "
        "c.reloptions, pg_get_userbyid(c.relowner), "
        "(select array_agg(d.description order by d.description) from pg_description d where d.objoid = c.oid), "
        "(select array_agg(a.attacl::text) from pg_attribute a where a.attrelid = c.oid and a.attacl is not null) "
        "from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and relkind = 'v'",
        (sales.db,),
    ).fetchall()
    return {name: rest for name, *rest in rows}


def without_generation(migration: Migration) -> Migration:
    """A migration without the generation of its leaves, which is the second in which it ran."""
    leaf = re.compile(r"(__leaf__[a-z2-7]{12}_)\d+_")
    return replace(migration, statements=tuple(leaf.sub(r"\1", text) for text in migration.statements))


def test_a_wider_type_reaches_every_period_and_all_that_hangs_on_the_view_is_there_again(shop: Shop, role: str) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)], key(2): [("ink", 2)]})
    db = sales.db
    for statement in (
        f"create view {db}.a_b as select store, sum(sold) as total from {sales} group by store",
        f"create view {db}.a_c with (security_barrier) as select total from {db}.a_b join {sales} s using (store)",
        f"comment on view {db}.a_c is 'it''s mine'", f"comment on column {db}.a_c.total is 'all of it'",
        f"grant select on {sales} to {role} with grant option", f"grant select (total) on {db}.a_c to public",
        f"grant usage, create on schema {db} to {role}", f"alter view {db}.a_b owner to {role}",
        f"comment on column {sales}.day is 'the day'", f"alter view {sales} alter column sold set default 7",
    ):  # fmt: skip
        shop.connection.execute(statement.encode())
    before = state(shop, sales)
    wider = having(sales, Column("product", STRING, "what"), Column("sold", BIGINT, "pieces"))

    looked = migrate(shop.catalog, wider, seconds=5, dry_run=True)
    assert state(shop, sales) == before
    done = migrate(shop.catalog, wider, seconds=5, dry_run=False)

    assert without_generation(looked) == without_generation(done)
    assert done.changes == ("sold: integer -> bigint",)
    assert done.restored == (f'"{db}"."a_b"', f'"{db}"."a_c"')
    assert f'drop view "{db}"."sales"' in done.statements
    after = state(shop, sales)
    assert {name: rest[1:] for name, rest in after.items()} == {name: rest[1:] for name, rest in before.items()}
    kinds = "select string_agg(distinct pg_typeof(sold)::text, ',') from "
    assert shop.connection.execute(f"{kinds}{sales}".encode()).fetchone() == ("bigint",)
    assert [row[2:] for row in shop.rows(sales)] == [("pen", 1), ("ink", 2)]
    assert shop.connection.execute(f"select sum(total) from {db}.a_c".encode()).fetchone() == (6,)
    # And the next publish goes on from there.
    shop.publish(wider, {key(2): [("ink", 2**40)]})
    assert shop.rows(sales)[1][3] == 2**40
    clean.drop(shop.connection, sales.name, [])
    assert list(examine.shown(shop.connection, sales, shop.catalog.current(sales.name))) == []
    assert migrate(shop.catalog, wider, seconds=5, dry_run=False).changes == ()


def test_dropped_added_renamed_and_reordered_columns_are_exactly_as_declared_afterwards(shop: Shop, role: str) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    shop.connection.execute(f"create view {sales.db}.mine as select product from {sales}".encode())
    shop.connection.execute(f"grant select (product, sold) on {sales} to {role}".encode())
    other = having(sales, Column("price", DOUBLE, "euros"), Column("thing", STRING, was=("product",)))
    migration = migrate(shop.catalog, other, seconds=5, dry_run=False)
    assert migration.changes == ("price: new, double precision", "product -> thing", "sold: dropped")
    assert shop.columns(sales) == ["day", "store", "price", "thing"]
    assert [row[2:] for row in shop.rows(sales)] == [(None, "pen")]
    assert shop.connection.execute(f"select product from {sales.db}.mine".encode()).fetchone() == ("pen",)
    allowed = shop.connection.execute("select has_column_privilege(%s, %s, 'thing', 'select')", (role, str(sales)))
    assert allowed.fetchone() == (True,)


def test_a_value_that_would_not_be_the_same_is_refused_by_partition(shop: Shop) -> None:
    sales = dataset(Column("product", STRING), Column("sold", DOUBLE))
    shop.publish(sales, {key(1): [("01", 1.0)], key(2): [("2", 1.5)]})
    before = state(shop, sales)
    whole = having(sales, Column("product", STRING), Column("sold", INT))
    with pytest.raises(VarveError, match=r"sold of day=2013-01-02/store=Paris is double precision, and 1.5 would not"):
        migrate(shop.catalog, whole, seconds=5, dry_run=False)
    number = having(sales, Column("product", INT), Column("sold", DOUBLE))
    with pytest.raises(VarveError, match=r"product of day=2013-01-01/store=Paris is text, and '01' would not"):
        migrate(shop.catalog, number, seconds=5, dry_run=False)
    instant = having(sales, Column("product", STRING), Column("sold", ColumnType.DATE))
    with pytest.raises(VarveError, match=r"is double precision, which is no date: cannot cast"):
        migrate(shop.catalog, instant, seconds=5, dry_run=False)
    assert state(shop, sales) == before
    shop.publish(sales, {key(2): [("2", 2.0)]})
    assert migrate(shop.catalog, whole, seconds=5, dry_run=False).changes == ("sold: double precision -> integer",)
    assert [row[3] for row in shop.rows(sales)] == [1, 2]


def back_to(shop: Shop, sales: Dataset, *batches: Batch) -> None:
    """As `varve rollback` does it."""
    store = WarehouseStore(Route(""), Layout("/nowhere"), shop.catalog, _no_spark, 5.0)
    build = shop.catalog.lock_partitions(sales, [key(2)], run_id="back")
    try:
        store.republish(build, batches, reason="it was right")
    finally:
        shop.catalog.release(build)


def test_an_earlier_batch_does_not_come_back_with_other_values_than_it_has(shop: Shop) -> None:
    sales = dataset(Column("product", STRING), Column("sold", DOUBLE))
    shop.publish(sales, {key(1): [("1", 1.0)], key(2): [("two", 1.5)]})
    half = shop.catalog.current(sales.name)[key(2).path]
    shop.publish(sales, {key(2): [("2", 3.0)]})
    three = shop.catalog.current(sales.name)[key(2).path]
    shop.publish(sales, {key(2): [("2", 2.0)]})
    whole = having(sales, Column("product", INT), Column("sold", INT))
    assert len(migrate(shop.catalog, whole, seconds=5, dry_run=False).changes) == 2
    before = state(shop, sales)

    with pytest.raises(VarveError, match=r"product of day=2013-01-02/store=Paris is text, which is no integer"):
        back_to(shop, whole, half)
    prices = having(sales, Column("product", STRING), Column("sold", INT))
    with pytest.raises(
        VarveError,
        match=r"sold of day=2013-01-02/store=Paris is double precision, and 1\.5 would not be the same as integer\. "
        rf"Nothing was changed\. Choose another batch; or declare .* `varve warehouse migrate {sales}`, and go back",
    ):
        back_to(shop, prices, half)
    assert state(shop, sales) == before
    assert [row[2:] for row in shop.rows(sales)] == [(1, 1), (2, 2)]
    back_to(shop, whole, three)
    assert [row[2:] for row in shop.rows(sales)] == [(1, 1), (2, 3)]


NOON = dt.datetime(2013, 1, 5, 12)  # noqa: DTZ001 - a wall clock


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        ("TIMESTAMP_NTZ", "TIMESTAMP", NOON),
        ("TIMESTAMP", "TIMESTAMP_NTZ", NOON.replace(tzinfo=dt.UTC)),
        ("DATE", "TIMESTAMP", NOON.date()),
        ("TIMESTAMP", "DATE", NOON.replace(hour=0, tzinfo=dt.UTC)),
        ("DATE", "STRING", NOON.date()),
        ("TIMESTAMP", "STRING", NOON.replace(tzinfo=dt.UTC)),
    ],
)
def test_a_value_that_each_session_would_see_otherwise_is_refused(
    shop: Shop, before: str, after: str, value: object
) -> None:
    sales = dataset(Column("product", STRING), Column("at", ColumnType(before)))
    shop.publish(sales, {key(1): [("pen", None)], key(2): [("ink", value)]})
    other = having(sales, Column("product", STRING), Column("at", ColumnType(after)))
    expected = rf"at of day=2013-01-02/.* each reader would see it by the settings .*\. `varve evolve {sales}` computes"
    for dry_run in (True, False):
        with pytest.raises(VarveError, match=expected):
            migrate(shop.catalog, other, seconds=5, dry_run=dry_run)
    assert [row[3] for row in shop.rows(sales)] == [None, value]
    # Nobody sees a NULL otherwise.
    shop.publish(sales, {key(2): [("ink", None)]})
    assert migrate(shop.catalog, other, seconds=5, dry_run=False).changes


def test_a_text_that_every_session_reads_alike_may_become_a_date(shop: Shop) -> None:
    sales = dataset(Column("product", STRING), Column("at", STRING))
    shop.publish(sales, {key(1): [("pen", "05.01.2013")]})
    days = having(sales, Column("product", STRING), Column("at", ColumnType.DATE))
    with pytest.raises(VarveError, match=r"at of .* is text, "):
        migrate(shop.catalog, days, seconds=5, dry_run=False)
    shop.publish(sales, {key(1): [("pen", "2013-01-05")]})
    migrate(shop.catalog, days, seconds=5, dry_run=False)
    with shop.connection.transaction():
        shop.connection.execute("set local datestyle = 'SQL, DMY'")
        shop.connection.execute("set local timezone = 'America/New_York'")
        assert shop.connection.execute(f"select at = date '2013-01-05' from {sales}".encode()).fetchone() == (True,)


def test_postgresql_says_of_the_same_casts_that_a_session_may_change_them(shop: Shop) -> None:
    kinds = sorted({*_TYPES.values(), "numeric(10,2)"})
    by_session = set()
    for kind, cast_to in permutations(kinds, 2):
        table = f"create temp table casts (a {kind}, b {cast_to} generated always as (a::{cast_to}) stored)"
        try:
            with shop.connection.transaction(force_rollback=True):
                shop.connection.execute(table.encode())
        except psycopg.errors.CannotCoerce:
            assert not depends_on_session(kind, cast_to)
        except psycopg.errors.InvalidObjectDefinition:
            by_session.add((kind, cast_to))
    read = {pair for pair in by_session if pair[0] == "text"}
    assert {pair for pair in permutations(kinds, 2) if depends_on_session(*pair)} == by_session - read
    assert {cast_to for _, cast_to in read} == {"date", "timestamp with time zone", "timestamp without time zone"}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("create materialized view {db}.m as select * from {db}.sales", r"materialised view t\w+\.m depend"),
        ("create function {db}.f() returns bigint begin atomic select sum(sold) from {db}.sales; end", r"function .*f"),
        ("create table {db}.kept (sales {db}.sales[])", "column sales of table .*kept"),
        ("create function {db}.g(sales {db}.sales[]) returns int language sql return 1", r"function .*g\("),
        ("create table {db}.log (row {db}.sales)", "column row of table"),
        ("create rule r as on insert to {db}.sales do instead nothing", "rule r on view"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_again_is_named_and_nothing_is_changed(shop: Shop, statement: str, expected: str) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    shop.connection.execute(statement.format(db=sales.db).encode())
    before = state(shop, sales)
    wider = having(sales, Column("product", STRING), Column("sold", BIGINT))
    with pytest.raises(VarveError, match=expected):
        migrate(shop.catalog, wider, seconds=5, dry_run=False)
    assert state(shop, sales) == before


def test_a_view_that_needs_a_dropped_column_is_named_and_nothing_is_changed(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    shop.connection.execute(f"create view {sales.db}.mine as select sold from {sales}".encode())
    before = state(shop, sales)
    with pytest.raises(VarveError, match=r'column .*sold.* does not exist.*"mine".* Nothing was changed'):
        migrate(shop.catalog, having(sales, Column("product", STRING)), seconds=5, dry_run=False)
    assert state(shop, sales) == before


def test_a_reader_that_does_not_let_go_is_named_and_readers_after_him_wait_for_nothing(
    shop: Shop, settings: Settings
) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    wider = having(sales, Column("product", STRING), Column("sold", BIGINT))
    with connect(settings, application="the slow reader") as slow, slow.transaction():
        slow.execute(f"select * from {sales}".encode())
        with pytest.raises(PublishTimeout, match=r"pid .*the slow reader.*Nothing was published"):
            migrate(shop.catalog, wider, seconds=0.5, dry_run=False)
    assert migrate(shop.catalog, wider, seconds=5, dry_run=False).changes == ("sold: integer -> bigint",)


def test_readers_see_the_one_view_or_the_other(shop: Shop, settings: Settings) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)], key(2): [("ink", 2)]})
    wider = having(sales, Column("product", STRING), Column("sold", BIGINT))
    with connect(settings) as reader:
        for declared in (wider, sales, wider):
            migrate(shop.catalog, declared, seconds=5, dry_run=False)
            assert reader.execute(f"select count(*), sum(sold) from {sales}".encode()).fetchone() == (2, 3)
    assert isinstance(shop.connection, psycopg.Connection)


def _no_spark() -> Any:
    raise AssertionError("no Spark is needed to show tables")


def test_a_view_that_somebody_has_put_in_the_place_of_ours_lets_read_who_may_read_a_new_one(shop: Shop) -> None:
    ensure_roles(shop.connection, connections=2, statement_seconds=60)
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    shop.connection.execute(f"drop view {sales}; create view {sales} as select 1 as x".encode())
    with pytest.raises(UnfitView, match=r"has no partition column day.*warehouse migrate .*the next attempt then goes"):
        shop.publish(sales, {key(1): [("pen", 2)]})
    migrate(shop.catalog, sales, seconds=5, dry_run=False)
    assert shop.rows(sales, "sold, day, store")[0][0] == 1
    assert READER in grants.may_select(shop.connection, view.view_name(sales))
    # A right that somebody has taken away stays so with a view that was ours.
    shop.connection.execute(f"revoke select on {sales} from {READER}".encode())
    migrate(shop.catalog, having(sales, Column("product", STRING)), seconds=5, dry_run=False)
    assert READER not in grants.may_select(shop.connection, view.view_name(sales))


def test_where_a_table_is_gone_the_doctor_names_what_makes_the_view_again(shop: Shop) -> None:
    """Whoever drops a table with CASCADE drops the view too, and nothing can show it without that table."""
    sales = dataset()
    shop.publish(sales, {key(day): [("pen", day)] for day in range(1, 9)})
    (table,) = (batch.location for batch in [shop.catalog.current(sales.name)[key(3).path]])
    shop.connection.execute(f'drop table "{periods_schema(sales)}"."{table}" cascade'.encode())
    found = list(examine.shown(shop.connection, sales, shop.catalog.current(sales.name)))
    assert len(found) == 8
    remedy = "Compute what was in it again, which makes the view too: varve backfill start"
    words = f"({key(3).path}). {remedy} {sales} day=2013-01-03 store=Paris"
    assert {finding.remedy for finding in found} == {f"The view cannot be made while a table of it is gone {words}"}
    with pytest.raises(
        VarveError, match=f"Compute the partitions .*`varve doctor {sales}` names them, and the command"
    ):
        publish.show_current(shop.catalog, sales, seconds=5)
    console = Console(width=500, file=(told := io.StringIO()))
    show_examined(console, Examined(1, 8, found))
    assert len(told.getvalue().splitlines()) == 6
    assert f"- {sales}: 4 more partitions of which the same was found; --json lists them." in told.getvalue()
    # As the command comes to.
    shop.publish(sales, {key(3): [("pen", 30)]})
    assert list(examine.shown(shop.connection, sales, shop.catalog.current(sales.name))) == []
    assert sorted(row[3] for row in shop.rows(sales)) == [1, 2, 4, 5, 6, 7, 8, 30]


def test_where_several_tables_are_gone_one_run_has_to_load_them_all(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(day): [("pen", day)] for day in range(1, 5)})
    for day in (2, 3):
        table = shop.catalog.current(sales.name)[key(day).path].location
        shop.connection.execute(f'drop table "{periods_schema(sales)}"."{table}" cascade'.encode())
    (remedy,) = {each.remedy for each in examine.shown(shop.connection, sales, shop.catalog.current(sales.name))}
    commands = [f"varve backfill start {sales} day=2013-01-0{day} store=Paris" for day in (2, 3)]
    assert remedy.endswith(f"off, so that one run has all of them: {'; '.join(commands)}")
    with pytest.raises(VarveError, match="all in one run"):
        shop.publish(sales, {key(2): [("pen", 20)]})
    shop.publish(sales, {key(day): [("pen", day * 10)] for day in (2, 3)})
    assert sorted(row[3] for row in shop.rows(sales)) == [1, 4, 20, 30]
