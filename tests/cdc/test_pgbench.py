"""PostgreSQL's own benchmark as the application: captured while it runs, untouched, and equal in the end.

Its tables have what others have too: char(84) that is padded, NULLs, a table without a key that only grows.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from varve.cdc.captured_table import CapturedTable, SourceRefused
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.services.postgres_server import binaries

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cdc.lab import Follower

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

INT, TEXT, TIME = ColumnType.INT, ColumnType.STRING, ColumnType.TIMESTAMP_NTZ
TABLES = {
    "accounts": (("aid", INT), ("bid", INT), ("abalance", INT), ("filler", TEXT)),
    "tellers": (("tid", INT), ("bid", INT), ("tbalance", INT), ("filler", TEXT)),
    "branches": (("bid", INT), ("bbalance", INT), ("filler", TEXT)),
    "history": (("tid", INT), ("bid", INT), ("aid", INT), ("delta", INT), ("mtime", TIME), ("filler", TEXT)),
}
PARTS = 4


def captured(table: str) -> CapturedTable:
    columns = tuple(Column(*column) for column in TABLES[table])
    dataset = Dataset(
        name=f"pgbench.{table}",
        comment="As pgbench has it.",
        partitioning=Partitioning((StaticDimension("part", tuple(str(part) for part in range(PARTS))),)),
        schema=Schema(columns),
        store=StoreKind.LAKE,
    )
    return CapturedTable(
        dataset, f"public.pgbench_{table}", {"part": f"cast(pmod({columns[0].name}, {PARTS}) as string)"}
    )


def in_source(follower: Follower) -> list[tuple[str, ...]]:
    """Each row as PostgreSQL writes it."""
    with follower.source() as source, source.cursor().copy(f"copy {follower.table} to stdout") as copy:
        return sorted(tuple(map(str, row)) for row in copy.rows())


def in_lake(follower: Follower) -> list[tuple[str, ...]]:
    from pyspark.sql import functions as F  # noqa: N812

    def text(column: Column) -> object:
        return F.date_format(column.name, "yyyy-MM-dd HH:mm:ss.SSSSSS") if column.type is TIME else F.col(column.name)

    with follower.lake() as frame:
        rows = frame.select(*[text(column) for column in follower.captured.columns]).collect()
    # PostgreSQL leaves out the zeros at the end of a second's parts.
    timed = [place for place, column in enumerate(follower.captured.columns) if column.type is TIME]
    return sorted(
        tuple(str(value).rstrip("0").rstrip(".") if place in timed else str(value) for place, value in enumerate(row))
        for row in rows
    )


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_pgbench_is_captured_to_equality(follow: Callable[[CapturedTable], Follower], seconds: int) -> None:
    tables = {table: follow(captured(table)) for table in TABLES}
    url = tables["accounts"].url
    pgbench = str(binaries() / "pgbench")
    subprocess.run([pgbench, "--initialize", "--quiet", "--scale", "1", url], check=True, capture_output=True)
    with pytest.raises(SourceRefused, match=r"ALTER TABLE public\.pgbench_history REPLICA IDENTITY FULL"):
        tables["history"].bootstrap()
    tables["history"].sql("alter table {t} replica identity full")
    application = subprocess.Popen(
        [pgbench, "--client", "4", "--time", str(seconds), "--no-vacuum", url], stdout=subprocess.PIPE, text=True
    )
    for follower in tables.values():
        follower.bootstrap()
    while application.poll() is None:
        for follower in tables.values():
            follower.capture()
    output, _ = application.communicate()
    assert application.returncode == 0
    assert "number of failed transactions: 0" in output
    for follower in tables.values():
        while follower.capture() is not None:
            pass
        done = follower.apply()
        assert done is not None
        assert done.quarantined == 0
        assert in_lake(follower) == in_source(follower)
    assert len(in_source(tables["history"])) > 100
