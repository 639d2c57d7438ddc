"""Numbers without a scale behind the driver of a database that has them: PostgreSQL's own, from Maven."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.stores.lake.iceberg.engines import DRIVER, from_maven, relayed
from tests.support.environment import clean_environment
from varve.services.settings import Settings
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SQL = """CREATE DATASET shop.receipts (product STRING, {columns}) PARTITIONED BY (day DATE)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-11-05')
LET today = CAST(t AS DATE)
INSERT (day = today)
EXTERNAL OPTIONS (source = 'jdbc', table = 'public.receipts_{place}', url = 'SHOP', changed = 'at')"""
READ = """
import json, sys
from varve.services.settings import Settings
from varve.services.spark import open_session
from varve.sources.external.read import open_external_table
from varve.sql.spark.run_errors import run_message
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

spark = open_session(Settings())
for text in json.loads(sys.argv[1]):
    dataset = compiled([SourceFile("receipts.sql", text)], {})["shop.receipts"].dataset
    external = open_external_table(Settings(), dataset.external, lambda: spark)
    try:
        frame = external.read(dataset, list(external.listed(dataset).partitions)).frame
        print(json.dumps([[str(value) for value in row] for row in sorted(frame.collect(), key=str)]))
    except Exception as error:
        print(json.dumps(run_message(error) or str(error)))
"""


def test_numbers_of_postgresql_come_whole_through_its_driver_or_are_refused(
    settings: Settings, fresh_database: str, tmp_path: Path
) -> None:
    long, home = "12345678901234567890.123456789012345678", tmp_path / "home"
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute(
            "create table receipts (product text, price numeric, number numeric, day date, at timestamptz)"
        )
        connection.execute(
            "insert into receipts values ('a', 12.5, 7, '2026-11-01', now()), ('b', %s, -300, '2026-11-02', now()), "
            "('c', 0.00000000000000000000001, 1e15, '2026-11-03', now()), ('d', 'NaN', null, '2026-11-04', now())",
            [long],
        )
    tables = [
        ("price DECIMAL(38, 18)", "product < 'c'"), ("price DECIMAL(38, 23)", "product in ('a', 'c')"),
        ("number BIGINT", "true"), ("number INT", "true"), ("price DECIMAL(18, 2)", "true"),
        ("price DECIMAL(38, 18)", "product = 'c'"), ("price DECIMAL(38, 18)", "product = 'd'"),
    ]  # fmt: skip
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        for place, (_, condition) in enumerate(tables):
            connection.execute(f"create view receipts_{place} as select * from receipts where {condition}")
    texts = [SQL.format(columns=columns, place=place) for place, (columns, _) in enumerate(tables)]
    name, user = (psycopg.conninfo.conninfo_to_dict(fresh_database)[each] for each in ("dbname", "user"))
    with relayed(settings) as port:
        environment = clean_environment() | {
            "VARVE_HOME": str(home),
            "VARVE_SPARK_CONF": json.dumps({"spark.jars": str(from_maven(DRIVER, tmp_path))}),
            "SHOP": f"jdbc:postgresql://127.0.0.1:{port}/{name}?user={user}",
        }
        words = [sys.executable, "-c", READ, json.dumps(texts)]
        try:
            done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=300)
        finally:
            SparkServer(Settings(home=home)).stop()
    assert done.returncode == 0, done.stderr[-3_000:]
    tiny = "0.00000000000000000000001"
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        [["a", "12.500000000000000000", "2026-11-01"], ["b", long, "2026-11-02"]],
        [["a", "12.50000000000000000000000", "2026-11-01"], ["c", "1E-23", "2026-11-03"]],
        [["a", "7", "2026-11-01"], ["b", "-300", "2026-11-02"], ["c", "1000000000000000", "2026-11-03"],
         ["d", "None", "2026-11-04"]],
        "number is declared INT, and 1000000000000000 stands there in a row of day=2026-11-03.",
        f"price is declared DECIMAL(18,2), and {long} stands there in a row of day=2026-11-02.",
        f"price is declared DECIMAL(38,18), and {tiny} stands there in a row of day=2026-11-03.",
        "price is declared DECIMAL(38,18), and NaN stands there in a row of day=2026-11-04.",
    ]  # fmt: skip
