"""Connections of ADBC cost the same, however many period tables there are."""

from __future__ import annotations

import time

import psycopg

from varve.services.sessions import session_url
from varve.stores.postgres.driver import connect

# The rows of pg_attribute that sessions have read which are over, and their own.
_READ = """
    select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_sys_tables where relname = 'pg_attribute'
"""
_IS_OPEN = "select exists (select from pg_stat_activity where application_name = 'driver under test')"


def read_by(admin: psycopg.Connection) -> int:
    admin.execute("select pg_stat_force_next_flush()")
    row = admin.execute(_READ).fetchone()
    assert row is not None
    return int(row[0])


def test_a_connection_does_not_read_the_columns_of_all_tables(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        columns = ", ".join(f"c{number} int" for number in range(100))
        for number in range(50):
            admin.execute(f"create table t{number} ({columns})".encode())
        before = read_by(admin)
        with connect(session_url(fresh_database, application_name="driver under test")) as opened:
            with opened.cursor() as cursor:
                cursor.execute("select 1, 'x'::text, '{}'::jsonb")
                assert cursor.fetchall() == [(1, "x", "{}")]
            opened.commit()
        deadline = time.monotonic() + 60
        while admin.execute(_IS_OPEN).fetchone() != (False,):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # There are more than 5,000.
        assert read_by(admin) - before < 1_000
