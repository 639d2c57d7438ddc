"""Whether a dataset was dropped is asked by each of its runs, and costs the same however many others there are."""

from __future__ import annotations

import secrets

import psycopg
from psycopg.types.json import Jsonb

from varve.catalog.catalog import Catalog
from varve.catalog.history.drops import Drops

_ADD = "insert into varve.dataset (dataset, store, declaration) values (%s, 'lake', %s)"
# How often this session has looked up what PostgreSQL keeps beside the rows of datasets, as these are long.
_DECLARATIONS_READ = """
    select t.idx_scan from pg_stat_xact_sys_tables t join pg_catalog.pg_class c on c.reltoastrelid = t.relid
    where c.oid = 'varve.dataset'::regclass
"""


def declarations_read(connection: psycopg.Connection) -> int:
    row = connection.execute(_DECLARATIONS_READ).fetchone()
    assert row is not None
    return int(row[0])


def test_who_asks_for_one_name_reads_no_declaration_of_another(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        Catalog(connection).ensure_schema()
        for name in ("shop.orders", "shop.orders#17", "shop.orders_too#18", "shop.items"):
            long = {"comment": secrets.token_hex(10_000)}
            dropped = {"dropped": {"by": "me", "finished": False}} if "#" in name else {}
            connection.execute(_ADD, (name, Jsonb({**long, **dropped})))
        drops = Drops(connection)
        assert [dropped.remains for dropped in drops.of()] == ["shop.orders#17", "shop.orders_too#18"]
        for name, found in (("shop.items", []), ("shop.orders", ["shop.orders#17"])):
            with connection.transaction():
                before = declarations_read(connection)
                assert [dropped.remains for dropped in drops.of(name)] == found
                # Its own, to look for the word and to take what is there.
                assert declarations_read(connection) - before == 2 * len(found)
