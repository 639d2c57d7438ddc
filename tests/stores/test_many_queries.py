"""Many period tables are read over one connection, and never locked all at once."""

from __future__ import annotations

import psycopg
import pyarrow as pa

from varve.stores.postgres import spark_source

TABLES = 230


def test_rows_of_many_tables_come_in_order_and_few_tables_are_locked_at_a_time(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        admin.execute("create schema periods")
        for number in range(TABLES):
            admin.execute(f"create table periods.t{number} as select {number} as n from generate_series(1, 2)")
    locked = """
        (select count(distinct relation) from pg_locks
         where pid = pg_backend_pid() and relation in (select oid from pg_class where relname ~ '^t[0-9]+$'))"""
    queries = [f"select n, {locked} as locked, pg_backend_pid() as backend from periods.t{n}" for n in range(TABLES)]
    wire = pa.schema([("n", pa.int32()), ("locked", pa.int64()), ("backend", pa.int32())])
    rows = pa.Table.from_batches(spark_source.fetch(fresh_database, queries, wire))
    assert rows["n"].to_pylist() == [number for number in range(TABLES) for _ in range(2)]
    assert len(set(rows["backend"].to_pylist())) == 1
    assert max(rows["locked"].to_pylist()) == 100
