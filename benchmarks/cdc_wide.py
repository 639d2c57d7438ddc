"""Resolving the change events of a wide table, beside a narrow one of as many bytes: `python -m benchmarks.cdc_wide`.

Two tables of texts of ten letters, one of 10 columns and one of 300, with a tenth of their rows updated as a whole, in
one Spark, in turn; one round is not counted. What counts is the time per byte of the table. Goal: at most three times
as much for the wide one.

How it compares with others: benchmarks/cdc.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.cdc import in_transactions_of_their_own, timed
from varve.cdc.event import Counts
from varve.cdc.resolve.resolve import resolve
from varve.cdc.resolve.shape import TableShape
from varve.model.schema import Column, ColumnType
from varve.services.settings import Settings
from varve.services.spark import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LETTERS = 10


@dataclass
class Side:
    """A table of so many columns, with the seconds of each round."""

    columns: int
    rows: int
    seconds: list[float] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The key, and the other columns."""
        return ["id", *(f"c{number}" for number in range(1, self.columns))]

    @property
    def shape(self) -> TableShape:
        """What the resolver has to know."""
        columns = tuple(Column(name, ColumnType.STRING) for name in self.names)
        return TableShape("bench.wide", columns, ("id",))

    @property
    def megabytes(self) -> float:
        """The texts of the table."""
        return self.rows * self.columns * _LETTERS / 1e6

    def base(self, spark: SparkSession) -> DataFrame:
        """The table before the events."""
        others = [f"lpad(id % {97 + number}, {_LETTERS}, 'x') {name}" for number, name in enumerate(self.names[1:])]
        return spark.range(self.rows).selectExpr(f"lpad(id, {_LETTERS}, '0') id", *others)

    def events(self, spark: SparkSession) -> DataFrame:
        """Every tenth row is updated, in a transaction of its own."""
        key = f"lpad(id * 10, {_LETTERS}, '0')"
        values = [key, *(f"lpad(id % {89 + number}, {_LETTERS}, 'y')" for number in range(self.columns - 1))]
        names = ", ".join(f"'{name}'" for name in self.names)
        return spark.range(self.rows // 10).selectExpr(
            "'update' changeType",
            "lpad(id, 12, '0') timestamp",
            f"array({names}) columnNames",
            f"array({', '.join(values)}) columnValues",
            "array('id') oldKeyNames",
            f"array({key}) oldKeyValues",
            *in_transactions_of_their_own("bench.wide"),
        )

    def resolved(self, base: DataFrame, events: DataFrame) -> None:
        """Have every column of every row of the table after the events computed."""
        found = resolve(base, events, self.shape, Counts(events=1))
        after = found.replaced(base).select(*self.names).unionByName(found.after)
        row = after.selectExpr(
            "count(*) n", "count_if(c1 like '%y%') updated", f"bit_xor(xxhash64({', '.join(self.names)})) h"
        ).first()
        assert row is not None
        assert (row["n"], row["updated"]) == (self.rows, self.rows // 10), row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=150, help="of each table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="4g", help="of Spark")
    given = parser.parse_args()
    sides = [Side(columns, given.megabytes * 100_000 // columns // 10 * 10) for columns in (10, 300)]
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as home:
        os.environ |= {"VARVE_HOME": home, "VARVE_SPARK_MASTER": "local[2]", "VARVE_SPARK_DRIVER_MEMORY": given.memory}
        spark = open_session(Settings())
        for side in sides:
            side.base(spark).write.parquet(f"{home}/base{side.columns}")
            side.events(spark).write.parquet(f"{home}/events{side.columns}")
        for number in range(given.rounds + 1):
            for side in sides:
                frames = [spark.read.parquet(f"{home}/{name}{side.columns}") for name in ("base", "events")]
                timed(lambda side=side, frames=frames: side.resolved(*frames), side.seconds if number else [])  # type: ignore[misc]
        spark.stop()
    show(sides, given.rounds)


def show(sides: list[Side], rounds: int) -> None:
    """Print the table."""
    table = Table(title=f"a tenth of the rows updated, {rounds} rounds; load {os.getloadavg()[0]:.0f}")
    for heading in ("columns", "rows", "MB of texts", "s (median)", "min - max", "ms per MB", "x narrow"):
        table.add_column(heading)
    per_megabyte = [1_000 * statistics.median(side.seconds) / side.megabytes for side in sides]
    for side, each in zip(sides, per_megabyte, strict=True):
        seconds = side.seconds
        table.add_row(
            str(side.columns), f"{side.rows:,}", f"{side.megabytes:.0f}", f"{statistics.median(seconds):.2f}",
            f"{min(seconds):.2f} - {max(seconds):.2f}", f"{each:.1f}", f"{each / per_megabyte[0]:.2f}",
        )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
