"""The views that engines read by name: who opens one table does not wait for all others."""

from __future__ import annotations

import psycopg

from varve.catalog.catalog import Catalog

TABLES, ENVIRONMENTS = 100, 10
_FILL = (
    "insert into varve.environment (name, base, created_by) select 'e' || g, 1000, 'me' from generate_series(1, %s) g",
    """
    insert into varve.iceberg_table (dataset, namespace, table_name, metadata_location)
    select 's.d' || g, 's', 'd' || g, 'now' from generate_series(1, %s) g
    """,
    """
    insert into varve.publish (dataset, build_id, kind, run_id, published_at)
    select 's.d' || g, 1, 'publish', 'run', now() from generate_series(1, %s) g
    """,
    """
    insert into varve.iceberg_snapshot (dataset, snapshot_id, build_id, metadata_location, at)
    select 's.d' || g, 1, 1, 'then', now() from generate_series(1, %s) g
    """,
)
# As the JDBC catalog of Iceberg asks.
_OPEN = """
    select metadata_location from varve_iceberg.iceberg_tables
    where catalog_name = 'varve' and table_namespace = %s and table_name = %s
"""
_SCANS = """
    select seq_scan + coalesce(idx_scan, 0) from pg_stat_xact_user_tables
    where relid = 'varve.publish'::regclass
"""


def scans(connection: psycopg.Connection) -> int:
    """How often the table of publishes was looked into, for what is current at the base of an environment."""
    row = connection.execute(_SCANS).fetchone()
    assert row is not None
    return int(row[0])


def test_to_open_one_table_looks_at_no_other(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        Catalog(connection).ensure_schema()
        for statement, number in zip(_FILL, (ENVIRONMENTS, TABLES, TABLES, TABLES), strict=True):
            connection.execute(statement.encode(), (number,))
        connection.execute("analyze")
        for namespace, location in (("s", "now"), ("s__e7", "then")):
            with connection.transaction():
                before = scans(connection)
                assert connection.execute(_OPEN, (namespace, "d5")).fetchall() == [(location,)]
                # At most one for each environment; for each of all tables, too, there are a thousand.
                assert scans(connection) - before <= ENVIRONMENTS
