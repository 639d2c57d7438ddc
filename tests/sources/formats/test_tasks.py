"""What Spark's workers get: everything by value, so that nothing of Varve need be installed where they run."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import cloudpickle

from varve.sources import formats
from varve.sources.formats import tasks
from varve.sources.formats.file_reading import DeclaredColumn, FileReading, FileSource

if TYPE_CHECKING:
    from pathlib import Path

WORKER = """
import pickle, sys
sys.modules["varve"] = None
import pyarrow as pa
task = pickle.load(open(sys.argv[1], "rb"))
rows = task(iter([pa.RecordBatch.from_arrays([pa.array([0])], names=["id"])]))
print(next(rows).to_pylist())
try:
    next(rows)
except RuntimeError as error:
    print(error)
"""


def test_a_worker_without_varve_reads_files_and_names_the_one_with_a_bad_row(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int32()), ("day", pa.string())])
    reading = FileReading((DeclaredColumn("a", "INT", pa.int32()),))
    (good := tmp_path / "good.csv").write_text('a\n"7"\n')
    (bad := tmp_path / "bäd.csv").write_text("a\nseven\n")
    pieces = [tasks.FilePiece(FileSource(str(path), "csv"), ("monday",), 1) for path in (good, bad)]
    cloudpickle.register_pickle_by_value(formats)
    (tmp_path / "task").write_bytes(cloudpickle.dumps(tasks.in_task([pieces], reading, schema)))
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path / "task")], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout.splitlines() == [
        "[{'a': 7, 'day': 'monday'}]",
        f"{tasks.MARK}{str(bad).encode().hex()}{tasks.MARK}",
    ]


def test_a_file_with_two_colons_in_its_name_is_one_file(tmp_path: Path) -> None:
    (file := tmp_path / "EU::west.csv").write_text("a\n7\n")
    reading = FileReading((DeclaredColumn("a", "INT", pa.int32()),))
    for uri in (str(file), file.as_uri().replace("%3A", ":")):
        piece = tasks.FilePiece(FileSource(uri, "csv"), ("EU::west",), 1)
        (chunk,) = tasks.chunks_of(piece, reading, ["region"])
        assert chunk.columns[0].to_pylist() == [7]
