"""What it costs a publish to be an Iceberg snapshot too, by partitions touched; pyiceberg's overwrite beside it.

    python -m benchmarks.iceberg [--partitions 1000] [--rounds 7] [--growth 0] [--without-pyiceberg]

One day a partition, 20 columns, one small file each. A round is the publish of a staged build: the catalog's
transaction alone, and with the Iceberg side. pyiceberg replaces the same files of a table of its own, in the same
PostgreSQL. `--growth` publishes one partition so often and says how the metadata has grown.
"""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField
from rich.console import Console
from rich.table import Table

from varve.catalog.catalog import Catalog
from varve.model.batch import StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.services.postgres_server import PostgresServer
from varve.stores.folders.layout import Layout
from varve.stores.lake.iceberg.tables import IcebergTables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table as IcebergTable

    from varve.model.build import Build

# Seconds on the wall, and of this process's processor time, which others on the machine do not lengthen.
Took = tuple[float, float]
FIRST = dt.date(2010, 1, 1)
_COLUMNS = 20
_ROWS = 10


@dataclass
class Bench:
    """A lake whose builds are staged without Spark.

    Attributes:
        file: the one data file, which every batch has a copy of.
    """

    root: Path
    connection: psycopg.Connection
    dataset: Dataset
    file: Path

    def keys(self, count: int, first: int = 0) -> list[PartitionKey]:
        """So many days."""
        return [PartitionKey.of(day=FIRST + dt.timedelta(days=day)) for day in range(first, first + count)]

    def staged(self, keys: Sequence[PartitionKey]) -> Build:
        """A build of these partitions, whose files are there."""
        catalog, layout = Catalog(self.connection), Layout(str(self.root))
        build = catalog.begin(self.dataset, keys, run_id="bench", code_version="")
        batches = []
        for key in keys:
            folder = Path(layout.batch(self.dataset, key, build.batch_id))
            folder.mkdir(parents=True)
            shutil.copy(self.file, folder / "part-00000.zstd.parquet")
            batches.append(StagedBatch(key, str(folder), _ROWS, self.file.stat().st_size, 1))
        catalog.staged(build, batches)
        return build

    def publish(self, keys: Sequence[PartitionKey], *, iceberg: bool) -> Took:
        """How long one publish took."""
        build, catalog = self.staged(keys), Catalog(self.connection)
        tables = IcebergTables(Layout(str(self.root)), catalog, default=iceberg)
        began = _now()
        tables.commit([build], lambda: catalog.publish(build))
        took = _since(began)
        catalog.release(build)
        return took

    def metadata(self) -> int:
        """The bytes of all metadata."""
        folder = Path(Layout(str(self.root)).table(self.dataset)) / "_iceberg"
        return sum(path.stat().st_size for path in folder.iterdir()) if folder.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--growth", type=int, default=0)
    parser.add_argument("--without-pyiceberg", action="store_true")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="varve-bench-"))
    server = PostgresServer(home / "pg")
    try:
        server.ensure_up()
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            Catalog(connection).ensure_schema()
            rows = measure(_bench(home, connection), given, server.url("postgres"))
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)
    title = f"{given.partitions:,} partitions, medians of {given.rounds}, {pendulum.now('UTC').to_date_string()}"
    table = Table("publish of", "without", "with Iceberg", "added", "metadata", "pyiceberg", title=title)
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)


def measure(bench: Bench, given: argparse.Namespace, url: str) -> list[tuple[str, ...]]:
    """The rows of the table."""
    bench.publish(bench.keys(given.partitions), iceberg=True)
    rows: list[tuple[str, ...]] = []
    sizes = [size for size in (1, 100, 1_000) if size <= given.partitions]
    for size in sizes:
        keys, alone, together, written = bench.keys(size), [], [], []
        for _ in range(given.rounds):
            before = bench.metadata()
            together.append(bench.publish(keys, iceberg=True))
            written.append(bench.metadata() - before)
        off = replace(bench, dataset=replace(bench.dataset, name="bench.off"))
        off.publish(off.keys(given.partitions), iceberg=False)
        alone = [off.publish(keys, iceberg=False) for _ in range(given.rounds)]
        peer = "-" if given.without_pyiceberg else _milliseconds(_by_library(bench, url, given, size))
        wall, processor = (
            (statistics.median(ours) - statistics.median(bare)) * 1000
            for ours, bare in zip(zip(*together, strict=True), zip(*alone, strict=True), strict=True)
        )
        rows.append(
            (
                f"{size:,}", _milliseconds(alone), _milliseconds(together), f"{wall:.0f} ms, CPU {processor:.0f}",
                f"{statistics.median(written) / 1000:.0f} kB", peer,
            )
        )  # fmt: skip
    if given.growth:
        before = bench.metadata()
        took = [bench.publish(bench.keys(1, number % given.partitions), iceberg=True) for number in range(given.growth)]
        grown = f"{(bench.metadata() - before) / 1e6:.0f} MB in all"
        rows.append((f"1, {given.growth:,} times: the last 20", "", _milliseconds(took[-20:]), "", grown, ""))
    return rows


def _bench(home: Path, connection: psycopg.Connection) -> Bench:
    schema = Schema(tuple(Column(f"c{number}", ColumnType.BIGINT) for number in range(_COLUMNS)))
    day = TimeDimension("day", Grain.DAY, pendulum.datetime(2010, 1, 1), pendulum.datetime(2060, 1, 1))
    dataset = Dataset("bench.on", Partitioning((day,)), schema, StoreKind.LAKE, "")
    file = home / "one.parquet"
    pq.write_table(pa.table({column.name: list(range(_ROWS)) for column in schema.columns}), file, compression="zstd")
    return Bench(home / "lake", connection, dataset, file)


def _by_library(bench: Bench, url: str, given: argparse.Namespace, size: int) -> list[Took]:
    """The seconds of pyiceberg's overwrite of so many files, in a table of its own with as many partitions."""
    catalog = SqlCatalog(
        "peer", uri=url.replace("postgresql://", "postgresql+psycopg://", 1), warehouse=f"file://{bench.root}/peer"
    )
    catalog.create_namespace_if_not_exists("peer")
    name = f"peer.t{size}"
    fields = [
        NestedField(place, column.name, LongType()) for place, column in enumerate(bench.dataset.schema.columns, 1)
    ]
    schema = IcebergSchema(*fields, NestedField(_COLUMNS + 1, "day", DateType()))
    spec = PartitionSpec(PartitionField(_COLUMNS + 1, 1000, IdentityTransform(), "day"))
    table = catalog.create_table(name, schema, partition_spec=spec)
    current = _replace(table, bench, given.partitions, {}, "first")
    took = []
    for number in range(given.rounds):
        chosen = dict(list(current.items())[:size])
        began = _now()
        current |= _replace(catalog.load_table(name), bench, size, chosen, str(number))
        took.append(_since(began))
    catalog.engine.dispose()
    return took


def _replace(
    table: IcebergTable, bench: Bench, count: int, old: dict[int, DataFile], number: str
) -> dict[int, DataFile]:
    files: dict[int, Any] = {}
    for day in range(count):
        file = DataFile.from_args(
            content=DataFileContent.DATA, file_path=f"{bench.root}/peer/{day}/{number}.parquet",
            file_format=FileFormat.PARQUET, partition=Record((FIRST - dt.date(1970, 1, 1)).days + day),
            record_count=_ROWS, file_size_in_bytes=bench.file.stat().st_size,
        )  # fmt: skip
        file.spec_id = 0
        files[day] = file
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
        for file in old.values():
            overwrite.delete_data_file(file)
        for file in files.values():
            overwrite.append_data_file(file)
    return files


def _now() -> Took:
    return time.perf_counter(), time.process_time()


def _since(began: Took) -> Took:
    now = _now()
    return now[0] - began[0], now[1] - began[1]


def _milliseconds(took: Sequence[Took]) -> str:
    wall, processor = (statistics.median(each) * 1000 for each in zip(*took, strict=True))
    return f"{wall:.0f} ms, CPU {processor:.0f}"


if __name__ == "__main__":
    main()
