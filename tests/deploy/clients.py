"""Who uses the stack from outside: the partner who sends files, and readers of both stores, on hosts of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import s3fs
from psycopg import sql

from tests.support.environment import clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deploy.processes import Stack

# A client that has never heard of Varve.
_READER = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
rows = spark.sql(sys.argv[2]).collect()
print(json.dumps([[None if value is None else str(value) for value in row] for row in rows]))
"""


def land(stack: Stack, local: Path) -> None:
    """The partner puts the files of a local folder into the bucket."""
    environment = stack.environment(stack.services["bucket"])
    bucket = s3fs.S3FileSystem(
        key=environment["AWS_ACCESS_KEY_ID"], secret=environment["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=f"http://{stack.network.address('s3')}:9000", use_listings_cache=False,
    )  # fmt: skip
    for file in sorted(local.rglob("*.csv")):
        bucket.put_file(file, f"varve/landing/{file.relative_to(local)}")


def published(stack: Stack) -> dict[str, int]:
    """How many partitions each dataset has."""
    with stack.connect() as connection:
        if connection.execute("select to_regclass('varve.current')").fetchone() == (None,):
            return {}
        counted = connection.execute("select dataset, count(*) from varve.current group by 1").fetchall()
    return dict(counted)


def in_the_lake(stack: Stack, query: str) -> list[list[str | None]]:
    """The rows of a query as texts, by any client of the stack's Spark."""
    remote = stack.environment(stack.services["code"])["VARVE_SPARK_REMOTE"]
    reader = stack.network.hosts.get("reader") or stack.network.add("reader", {})
    done = subprocess.run(
        reader.words([sys.executable, "-c", _READER, remote, query]), env=clean_environment(), capture_output=True,
        text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows: list[list[str | None]] = json.loads(done.stdout)
    return rows


def in_the_warehouse(stack: Stack, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, as the role of readers, with a password over TCP."""
    with stack.connect() as connection:
        connection.execute(sql.SQL("alter role varve_reader password {}").format(sql.Literal("readers")))
    with stack.connect("varve_reader", "readers") as reader:
        return reader.execute(query.encode()).fetchall()
