"""What a database administrator has set on a dataset's views is there after every publish, compaction and migration.

No Spark here, as in test_projection.py.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.stores.warehouse.test_projection import BIGINT, DOUBLE, Shop, comments_of, dataset, key, leaves
from varve.model.schema import Column, Schema
from varve.stores.warehouse import publish
from varve.stores.warehouse.migrate import migrate
from varve.stores.warehouse.tables import notes
from varve.stores.warehouse.tables.naming import leaf_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset

EVERYTHING = """
    select c.reloptions, pg_get_userbyid(c.relowner), c.relacl::text,
      (select jsonb_object_agg(a.attname, a.attacl::text) from pg_attribute a
       where a.attrelid = c.oid and a.attacl is not null),
      (select array_agg(pg_get_triggerdef(t.oid) order by 1) from pg_trigger t where t.tgrelid = c.oid),
      (select array_agg(pg_get_ruledef(r.oid) order by 1) from pg_rewrite r
       where r.ev_class = c.oid and r.rulename <> '_RETURN'),
      (select array_agg(pg_get_expr(d.adbin, d.adrelid)) from pg_attrdef d where d.adrelid = c.oid)
    from pg_class c where c.oid = %s::regclass
"""


@pytest.fixture
def shop(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(notes, "LEAF_TABLES", 2)
    return Shop(catalog)


@pytest.fixture
def role(shop: Shop) -> Iterator[str]:
    name = f"r{uuid.uuid4().hex[:8]}"
    shop.connection.execute(f"create role {name}".encode())
    yield name
    shop.connection.execute(f"drop owned by {name} cascade; drop role {name}".encode())


def run(shop: Shop, *statements: str) -> None:
    for statement in statements:
        shop.connection.execute(statement.encode())


def state(shop: Shop, name: str) -> tuple[Any, ...]:
    row = shop.connection.execute(EVERYTHING, (name,)).fetchone()
    assert row is not None
    return row


def leaf(shop: Shop, sales: Dataset, number: int) -> str:
    return f"{sales.db}_periods.{leaf_view(sales, notes.generation(shop.connection, sales), number)}"


def test_the_view_is_as_somebody_has_made_it_after_new_leaves_and_new_columns(shop: Shop, role: str) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    run(
        shop,
        f"alter view {sales} set (security_barrier = true, security_invoker = false)",
        f"grant select on {sales} to {role} with grant option", f"grant select (day, sold) on {sales} to public",
        f"alter view {sales} alter column sold set default 7",
        f"create function {sales.db}.refuse() returns trigger language plpgsql as 'begin return null; end'",
        f"create trigger no_writes instead of insert on {sales} for each row execute function {sales.db}.refuse()",
        f"create rule quiet as on delete to {sales} do instead nothing",
        f"grant usage, create on schema {sales.db} to {role}", f"alter view {sales} owner to {role}",
        # Leaves that come later are as those that are there.
        f"grant usage on schema {sales.db}_periods to {role}", f"grant select on {leaf(shop, sales, 1)} to {role}",
    )  # fmt: skip
    before = state(shop, str(sales))
    assert before[0] == ["security_barrier=true", "security_invoker=false"]
    for day in range(1, 7):
        shop.publish(sales, {key(day): [("pen", day * 10)]})
        assert state(shop, str(sales)) == before
    assert len(leaves(shop, sales)) == 3
    wider = replace(sales, schema=Schema((*sales.schema.columns, Column("price", DOUBLE))))
    shop.publish(wider, {key(1): [("pen", 10, 0.5)]})
    assert state(shop, str(sales)) == before
    publish.show_current(shop.catalog, wider, seconds=5)
    assert state(shop, str(sales)) == before
    assert [row[3] for row in shop.rows(sales)] == [10, 20, 30, 40, 50, 60]


def test_leaves_keep_what_they_have_and_new_ones_are_like_them(shop: Shop, role: str) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    first = leaf(shop, sales, 1)
    run(
        shop,
        f"alter view {sales} set (security_invoker = true)", f"alter view {first} set (security_barrier)",
        f"grant select on {first} to {role}", f"grant select (sold) on {first} to public",
    )  # fmt: skip
    before = state(shop, first)
    for day in range(1, 5):
        shop.publish(sales, {key(day): [("pen", day * 10)]})
    assert len(leaves(shop, sales)) == 2
    assert state(shop, first) == before
    assert state(shop, leaf(shop, sales, 2)) == before
    wider = replace(sales, schema=Schema((*sales.schema.columns, Column("price", DOUBLE))))
    shop.publish(wider, {key(1): [("pen", 10, 0.5)]})
    assert leaf(shop, sales, 1) != first
    assert [state(shop, leaf(shop, sales, number)) for number in (1, 2)] == [before, before]


def test_a_check_option_stays_as_long_as_postgresql_takes_it_and_stops_no_publish(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    run(shop, f"alter view {sales} set (check_option = local, security_barrier)")
    shop.publish(sales, {key(1): [("pen", 2)], key(2): [("pen", 2)]})
    assert set(state(shop, str(sales))[0]) == {"check_option=local", "security_barrier=true"}
    publish.show_current(shop.catalog, sales, seconds=5)
    assert set(state(shop, str(sales))[0]) == {"check_option=local", "security_barrier=true"}
    # A second leaf makes it a view that PostgreSQL has no check option for.
    shop.publish(sales, {key(3): [("pen", 3)]})
    assert state(shop, str(sales))[0] == ["security_barrier=true"]
    assert [row[3] for row in shop.rows(sales)] == [2, 2, 3]


def test_comments_of_somebody_else_stay_and_ours_follow_the_declaration(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    run(shop, f"comment on view {sales} is 'mine'", f"comment on column {sales}.product is 'mine too'")
    run(shop, f"comment on column {sales}.day is 'and mine'")
    shop.publish(sales, {key(2): [("pen", 1)]})
    mine = {None: "mine", "product": "mine too", "day": "and mine"}
    assert comments_of(shop.connection, sales) == {**mine, "sold": "pieces"}
    columns = Column("product", sales.schema.columns[0].type, "its name"), Column("sold", BIGINT, "how many")
    declared = replace(
        sales, comment="Sales.", schema=Schema((columns[0], replace(columns[1], type=sales.schema.columns[1].type)))
    )
    shop.publish(declared, {key(3): [("pen", 1)]})
    assert comments_of(shop.connection, sales) == {**mine, "sold": "how many"}
    migrate(shop.catalog, replace(declared, schema=Schema(columns)), seconds=5, dry_run=False)
    assert comments_of(shop.connection, sales) == {**mine, "sold": "how many"}
    further = replace(columns[1], comment="how many of them")
    shop.publish(replace(declared, schema=Schema((columns[0], further))), {key(4): [("pen", 1)]})
    assert comments_of(shop.connection, sales) == {**mine, "sold": "how many of them"}


def test_a_comment_that_is_declared_later_or_again_reaches_the_view(shop: Shop) -> None:
    sales = replace(dataset(), comment="")
    for comment in ("", "Sales.", "", "Sales of shops."):
        shop.publish(replace(sales, comment=comment), {key(1): [("pen", 1)]})
        assert comments_of(shop.connection, sales).get(None, "") == comment
    for comment in ("pieces", "", "how many", ""):
        columns = [replace(column, comment=comment if column.name == "sold" else "") for column in sales.schema.columns]
        shop.publish(replace(sales, schema=Schema(tuple(columns))), {key(1): [("pen", 1)]})
        assert comments_of(shop.connection, sales).get("sold", "") == comment
    # One that somebody else has written where none was declared stays.
    other = replace(dataset(), comment="")
    shop.publish(other, {key(1): [("pen", 1)]})
    run(shop, f"comment on view {other} is 'mine'")
    shop.publish(replace(other, comment="Sales."), {key(1): [("pen", 1)]})
    assert comments_of(shop.connection, other)[None] == "mine"


def test_a_comment_that_somebody_has_removed_stays_away_and_a_new_view_has_all_of_them(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    run(shop, f"comment on column {sales}.sold is null")
    shop.publish(sales, {key(1): [("pen", 1)]})
    ours = {None: "One row per product.", "product": "what"}
    assert comments_of(shop.connection, sales) == ours
    run(shop, f"drop view {sales}")
    publish.show_current(shop.catalog, sales, seconds=5)
    assert comments_of(shop.connection, sales) == {**ours, "sold": "pieces"}


def test_a_warehouse_of_before_learns_which_comments_are_ours(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    run(shop, "drop table varve.view_comment, varve.stray, varve.loading, varve.sealed, varve.view_grant")
    shop.publish(sales, {key(1): [("pen", 1)]})
    shop.publish(replace(sales, comment="Other."), {key(1): [("pen", 1)]})
    assert comments_of(shop.connection, sales)[None] == "Other."


def test_what_hangs_on_the_view_reads_it_on(shop: Shop) -> None:
    sales = dataset()
    shop.publish(sales, {key(1): [("pen", 1)]})
    run(
        shop,
        f"create view {sales.db}.over with (security_barrier) as select * from {sales}",
        f"create materialized view {sales.db}.stored as select sum(sold) as sold from {sales}",
        f"create function {sales.db}.total() returns bigint language sql begin atomic "
        f"select sum(sold) from {sales}; end",
    )  # fmt: skip
    for day in range(1, 5):
        shop.publish(sales, {key(day): [("pen", day)]})
    run(shop, f"refresh materialized view {sales.db}.stored")
    for what in (f"select sum(sold) from {sales.db}.over", f"table {sales.db}.stored", f"select {sales.db}.total()"):
        assert shop.connection.execute(what.encode()).fetchone() == (10,)
    assert state(shop, f"{sales.db}.over")[0] == ["security_barrier=true"]
