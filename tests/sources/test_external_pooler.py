"""A table of others behind a pooler, whose sessions are also those of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.sources.test_external import HARE, URL, ZURICH, declared, key, opened
from tests.stores.warehouse.test_roles import pooler

if TYPE_CHECKING:
    import pytest

    from varve.services.settings import Settings

SETTINGS = ("default_transaction_read_only", "statement_timeout", "search_path", "TimeZone", "DateStyle")


def test_a_look_through_a_pooler_leaves_its_sessions_as_they_were(
    settings: Settings, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        admin.execute("create table public.receipts (product text, price numeric, day date, store text)")
        admin.execute(f"alter database {admin.info.dbname} set datestyle = 'German, DMY'".encode())
    dataset = declared(f"source = 'postgres', table = 'public.receipts', url = '{URL}'")
    external = opened(dataset, settings, None)  # type: ignore[arg-type]
    with pooler(fresh_database, str(conninfo_to_dict(fresh_database)["user"])) as url:
        monkeypatch.setenv(URL, url)
        # Prepared statements are a session's, which nobody has there.
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as application:
            before = [application.execute(f"show {name}".encode()).fetchone() for name in SETTINGS]
            for day, store in ((1, HARE), (2, ZURICH)):
                insert = "insert into receipts values ('x', 1, make_date(2022, 3, %s), %s)"
                application.execute(insert, (day, store))
                assert key(day, store) in external.listed(dataset).partitions
            assert [application.execute(f"show {name}".encode()).fetchone() for name in SETTINGS] == before
