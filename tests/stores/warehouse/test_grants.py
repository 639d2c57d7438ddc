"""GRANT SELECT TO: a view is granted as its dataset declares, through publishes and migrations; others' grants stay."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from tests.stores.warehouse.test_projection import INT, Shop, dataset, key
from varve.model.errors import VarveError
from varve.model.schema import Column, ColumnType, Schema
from varve.model.store_options import WarehouseOptions
from varve.stores.warehouse.migrate import migrate
from varve.stores.warehouse.publish import show_current

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset

MAY_SELECT = "select has_table_privilege(%s, %s, 'select') and has_schema_privilege(%s, %s, 'usage')"


@pytest.fixture
def shop(catalog: Catalog) -> Shop:
    return Shop(catalog)


@pytest.fixture
def roles(connection: psycopg.Connection) -> Iterator[list[str]]:
    """Three roles of the server, one of them with a name that must be quoted; they go with the test."""
    names = [f"{name}{uuid.uuid4().hex[:8]}" for name in ("analysts_", "Bi-team ", "auditor_")]
    for name in names:
        connection.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
    yield names
    for name in names:
        connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


def granting(sales: Dataset, *roles: str) -> Dataset:
    return replace(sales, warehouse=WarehouseOptions(grants=roles))


def allowed(shop: Shop, sales: Dataset, roles: list[str]) -> list[bool]:
    return [
        shop.connection.execute(MAY_SELECT, (role, sales.name, role, sales.db)).fetchone() == (True,) for role in roles
    ]


def test_a_view_is_granted_as_it_is_declared_from_publish_to_publish(shop: Shop, roles: list[str]) -> None:
    analysts, team, auditor = roles
    sales = dataset()
    shop.publish(granting(sales, analysts, team), {key(1): [("pen", 1)]})
    assert allowed(shop, sales, roles) == [True, True, False]
    # Somebody else's grant is not ours to take.
    grant = sql.SQL("grant select on {} to {}").format(sql.Identifier(sales.db, sales.table), sql.Identifier(auditor))
    shop.connection.execute(grant)
    shop.connection.execute(
        sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(sales.db), sql.Identifier(auditor))
    )
    # A new partition replaces the view, an old one a leaf.
    shop.publish(granting(sales, analysts, team), {key(2): [("ink", 1)], key(1): [("pen", 2)]})
    assert allowed(shop, sales, roles) == [True, True, True]
    shop.publish(granting(sales, team), {key(1): [("pen", 3)]})
    assert allowed(shop, sales, roles) == [False, True, True]
    # What was taken back by hand is declared all the same.
    shop.connection.execute(
        sql.SQL("revoke select on {} from {}").format(sql.Identifier(sales.db, sales.table), sql.Identifier(team))
    )
    shop.publish(granting(sales, team), {key(1): [("pen", 4)]})
    assert allowed(shop, sales, roles) == [False, True, True]
    shop.publish(sales, {key(1): [("pen", 5)]})
    assert allowed(shop, sales, roles) == [False, False, True]


def test_a_migration_and_a_repair_keep_what_is_declared(shop: Shop, roles: list[str]) -> None:
    analysts, team, _ = roles
    sales = granting(dataset(), analysts)
    shop.publish(sales, {key(1): [("pen", 1)]})
    wider = replace(
        granting(sales, analysts, team),
        schema=Schema((Column("sold", ColumnType.BIGINT, "pieces"), Column("product", ColumnType.STRING, "what"))),
    )
    dry = migrate(shop.catalog, wider, seconds=10, dry_run=True)
    assert any("grant select" in statement and team in statement for statement in dry.statements)
    assert allowed(shop, sales, roles) == [True, False, False]
    migrate(shop.catalog, wider, seconds=10, dry_run=False)
    assert allowed(shop, sales, roles) == [True, True, False]
    shop.connection.execute(sql.SQL("drop view {}").format(sql.Identifier(sales.db, sales.table)))
    show_current(shop.catalog, wider, seconds=10)
    assert allowed(shop, sales, roles) == [True, True, False]


def test_a_migration_makes_grants_where_nothing_else_has_changed(shop: Shop, roles: list[str]) -> None:
    analysts, team, _ = roles
    sales = dataset()
    shop.publish(granting(sales, analysts), {key(1): [("pen", 1)]})
    declared = granting(sales, team)
    name = f'"{sales.db}"."{sales.table}"'
    expected = (
        f'revoke select on {name} from "{analysts}"',
        f'grant usage on schema "{sales.db}" to "{team}"',
        f'grant select on {name} to "{team}"',
    )
    assert migrate(shop.catalog, declared, seconds=10, dry_run=True).statements == expected
    assert allowed(shop, sales, roles) == [True, False, False]
    assert migrate(shop.catalog, declared, seconds=10, dry_run=False).statements == expected
    assert allowed(shop, sales, roles) == [False, True, False]
    assert migrate(shop.catalog, declared, seconds=10, dry_run=False).statements == ()


def test_a_role_that_is_not_there_publishes_nothing(shop: Shop, roles: list[str]) -> None:
    analysts, _, _ = roles
    sales = dataset(Column("product", ColumnType.STRING), Column("sold", INT))
    shop.publish(granting(sales, analysts), {key(1): [("pen", 1)]})
    misspelt = f"{analysts[:-1]}x"
    with pytest.raises(VarveError) as caught:
        shop.publish(granting(sales, misspelt), {key(1): [("pen", 2)]})
    assert f"{sales}: GRANT SELECT TO {misspelt}: the server has no role {misspelt}." in str(caught.value)
    assert f'Its administrator creates it: create role "{misspelt}";' in str(caught.value)
    assert [row[3] for row in shop.rows(sales)] == [1]
    assert allowed(shop, sales, roles) == [True, False, False]


def test_a_role_that_has_gone_needs_no_grant_to_be_taken_back(shop: Shop, connection: psycopg.Connection) -> None:
    leaver, sales = f"leaver_{uuid.uuid4().hex[:8]}", dataset()
    connection.execute(sql.SQL("create role {}").format(sql.Identifier(leaver)))
    shop.publish(granting(sales, leaver), {key(1): [("pen", 1)]})
    connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(leaver)))
    shop.publish(sales, {key(1): [("pen", 2)]})
    assert [row[3] for row in shop.rows(sales)] == [2]
