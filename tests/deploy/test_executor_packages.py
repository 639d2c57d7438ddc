"""What Varve sends to Spark's workers runs in a Python that has what requirements-executor.txt names for it alone.

A worker is played by that Python: it is given what Spark gives it, the pickled function, the numbers of its tasks and
Spark's own modules. The stack's test (test_stack.py) has Spark itself start it.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark import cloudpickle

from tests.deploy.executor_python import executor_python, requirements
from tests.support.sales import key, sales_dataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.landing.options import LandingOptions
from varve.services.postgres import warehouse_url
from varve.sources.landing.inspected import Inspected
from varve.sources.landing.rows import frame_of
from varve.stores.postgres import spark_source
from varve.stores.warehouse.loading import copying, load

if TYPE_CHECKING:
    import psycopg

    from varve.services.settings import Settings

pytestmark = pytest.mark.needs_seconds

# As Spark's worker: what it is to run comes over a pipe, and its rows go back as Arrow.
WORKER = """
import sys
from pyspark import cloudpickle
import pyarrow as pa
task, numbers = cloudpickle.loads(sys.stdin.buffer.read())
batches = list(task(iter([pa.record_batch({"id": pa.array(range(numbers), pa.int64())})])))
with pa.ipc.new_stream(sys.stdout.buffer, batches[0].schema) as out:
    for batch in batches:
        out.write_batch(batch)
"""
ROWS = [{"product": f"p{number}", "sold": number, "price": 1.5, "at": "2013-07-01 12:00:00"} for number in range(3)]
DETROIT = key("Detroit")
# What the workers need for each of what Varve has them do; s3fs comes on top where it is done on S3 (test_stack.py).
READING = ("fsspec", "pyarrow", "tzdata")
LOADING = ("adbc-driver-postgresql", "fsspec", "pyarrow")
OF_FORMATS = {"csv": READING, "csv.gz": READING, "jsonl": READING, "avro": (*READING, "fastavro")}


@dataclass
class Worker:
    """A session of Spark with one worker, as far as a job of Varve's asks for it."""

    python: Path
    numbers: int = 0

    def range(self, _start: int, end: int, _step: int, _tasks: int) -> Worker:
        return replace(self, numbers=end)

    def mapInArrow(self, task: Any, _schema: object) -> Table:  # noqa: N802 - Spark's name
        return Table(self.run(task, self.numbers))

    def run(self, task: Any, numbers: int) -> pa.Table:
        """Let the worker's Python do a task. Fails with what it said."""
        spark = Path(pyspark.__file__).parent / "python" / "lib"
        done = subprocess.run(
            [self.python, "-c", WORKER],
            # No time zones but those of its packages, and no folder of ours.
            env={"PYTHONPATH": os.pathsep.join(map(str, spark.glob("*.zip"))), "PYTHONTZPATH": ""},
            cwd="/", input=cloudpickle.dumps((task, numbers)), capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return pa.ipc.open_stream(io.BytesIO(done.stdout)).read_all()


class Row(dict[str, Any]):
    """A row of Spark, by names."""


@dataclass
class Table:
    """What a job returned."""

    rows: pa.Table

    def collect(self) -> list[Row]:
        return [Row(row) for row in self.rows.to_pylist()]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Worker:
    """One that has what a load needs."""
    return Worker(executor_python(tmp_path_factory.mktemp("executor") / "python", packages=LOADING))


def landing_dataset() -> Dataset:
    return replace(sales_dataset(StoreKind.LAKE), landing=LandingOptions(timezone="America/New_York"))


def sent(folder: Path, dataset: Dataset, kind: str) -> Inspected:
    """A file of three rows, whose clock is New York's."""
    path = folder / f"rows.{kind}"
    if kind.startswith("csv"):
        lines = [",".join(ROWS[0]), *[",".join(map(str, row.values())) for row in ROWS]]
        text = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(text) if kind.endswith("gz") else text)
    elif kind == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS), encoding="utf-8")
    else:
        fields = [{"name": name, "type": {int: "long", str: "string", float: "double"}[type(value)]}
                  for name, value in ROWS[0].items()]  # fmt: skip
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "sale", "fields": fields}, ROWS)
    return Inspected(str(path), path.stat().st_size, "")


def taken(worker: Worker, folder: Path, kind: str) -> list[dict[str, Any]]:
    """The rows that a run takes from such a file where the workers read it."""
    dataset = landing_dataset()
    table = frame_of(worker, dataset, {DETROIT: [sent(folder, dataset, kind)]}, None, bytes_for_spark=0)
    return table.collect()  # type: ignore[return-value]


@pytest.mark.parametrize("kind", OF_FORMATS)
def test_landing_files_of_every_format_are_read(tmp_path: Path, kind: str) -> None:
    rows = taken(Worker(executor_python(tmp_path / "python", packages=OF_FORMATS[kind])), tmp_path, kind)
    assert [(row["product"], row["sold"], row["price"]) for row in rows] == [(f"p{n}", n, 1.5) for n in range(3)]
    assert {row["at"].isoformat() for row in rows} == {"2013-07-01T16:00:00+00:00"}


def test_the_list_names_what_some_work_needs_and_nothing_else() -> None:
    needed = {package for packages in (*OF_FORMATS.values(), LOADING) for package in packages}
    assert {requirement.name for requirement in requirements()} == needed | {"s3fs"}


@pytest.mark.parametrize(("package", "kind"), [("fastavro", "avro"), ("tzdata", "csv"), ("fsspec", "jsonl")])
def test_without_a_package_of_the_list_its_work_fails(tmp_path: Path, package: str, kind: str) -> None:
    rest = tuple(name for name in OF_FORMATS[kind] if name != package)
    bare = Worker(executor_python(tmp_path / "python", packages=rest))
    with pytest.raises(AssertionError, match=f"{package}|No time zone found"):
        taken(bare, tmp_path, kind)


def test_a_load_into_postgresql_is_copied_by_the_worker_and_read_again(
    worker: Worker, connection: psycopg.Connection, settings: Settings, tmp_path: Path
) -> None:
    rows = pa.table({"product": ["pen", "ink"], "sold": pa.array([1, 2], pa.int64())})
    pq.write_table(rows, tmp_path / "rows.parquet")
    connection.execute("create schema if not exists executor")
    connection.execute("drop table if exists executor.sales")
    connection.execute("create table executor.sales (product text, sold bigint)")
    load.notes.ensure_tables(connection)
    piece = copying.CopyPiece("day=1", str(tmp_path / "rows.parquet"), 0, 2, "executor", "sales", "select 1")
    route = load.Route(warehouse_url(settings), 1, lambda: worker)  # type: ignore[arg-type,return-value]
    (outcome,) = load.in_spark(route, rows.schema, [[(0, piece)]])
    assert (outcome.rows, outcome.error) == (2, None)

    cloudpickle.register_pickle_by_value(spark_source)  # type: ignore[no-untyped-call]
    arrow = rows.schema.serialize().to_pybytes().hex()
    reader = spark_source.PeriodReader(route.reading_url, arrow, [["select product, sold from executor.sales"]])
    (partition,) = reader.partitions()
    assert worker.run(lambda _batches: reader.read(partition), 1).sort_by("sold") == rows
