"""Whether the executors of a cluster can do what runs need, found out by one job of tiny tasks before a run begins.

They need a Python of the driver's minor version with pyarrow, and, where the lake is a folder, that same folder.

Not here: opening sessions (varve/services/spark.py), and when runs ask it (varve/dagster/runs/spark.py).
"""

from __future__ import annotations

import re
import sys
import uuid
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varve.services.spark import runs_in_the_driver
from varve.stores.frames import spark_errors, spark_says

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from varve.services.settings import Settings

# So many tasks, each of so many seconds: enough that every executor of a small cluster gets one.
_TASKS, _SECONDS = 32, 0.02
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_CANNOT_RUN = re.compile(r'Cannot run program "([^"]+)"')


@dataclass(frozen=True, slots=True)
class ExecutorProblem:
    """What executors cannot do.

    Attributes:
        problem: as a phrase, with the host where one is known.
        remedy: as a sentence.
        stops_all: whether no run can do its work; else runs without Python on executors can.
    """

    problem: str
    remedy: str
    stops_all: bool


def is_asked(settings: Settings) -> bool:
    """Whether executors are other processes than ours: those of the embedded server and of `local` are here."""
    return not settings.embedded_spark and not runs_in_the_driver(settings.spark_master or "")


def executor_problems(spark: SparkSession, lake: str) -> list[ExecutorProblem]:
    """What executors cannot do, with the session of a cluster; a list without entries where all is well.

    A file is put into the lake's folder for the time of the job. Raises nothing of Spark's.
    """
    if other := _other_spark(spark):
        return [other]
    marker = _marker(lake)
    try:
        frame = spark.range(0, _TASKS, 1, _TASKS).mapInArrow(
            _look("" if marker is None else str(marker)), "host STRING, sees BOOLEAN"
        )
        rows = frame.distinct().collect()
    except spark_errors() as error:
        return [_python_problem(spark_says(error))]
    finally:
        if marker is not None:
            marker.unlink(missing_ok=True)
    blind = sorted(row["host"] for row in rows if not row["sees"])
    if not blind:
        return []
    return [
        ExecutorProblem(
            f"executors on {', '.join(blind)} do not see the lake's folder {lake} of this machine, or not its files",
            "Mount the same file system at that path on every host, or put the lake where all reach it "
            "(VARVE_LAKE_ROOT, for example s3a://...).",
            stops_all=True,
        )
    ]


def not_asked_yet(spark: SparkSession, settings: Settings) -> Path | None:
    """The file that says that this cluster was asked by this installation; None where it is there."""
    application = spark.conf.get("spark.app.id", None) if settings.spark_master is None else settings.spark_master
    asked = [settings.spark_remote or "", str(application), settings.lake, sys.version.partition(" ")[0]]
    name = blake2b("\n".join(asked).encode(), digest_size=12).hexdigest()
    file = settings.home_dir / "executors" / name
    return None if file.exists() else file


def _look(marker: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task. It stands within another, so that it is sent whole: executors have no Varve."""
    seconds = _SECONDS

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import socket
        import time
        from pathlib import Path

        import pyarrow as pa

        time.sleep(seconds)
        for batch in batches:
            del batch
        sees = not marker or Path(marker).exists()
        yield pa.RecordBatch.from_pydict({"host": [socket.gethostname()], "sees": [sees]})

    return look


def _marker(lake: str) -> Path | None:
    """An empty file in the folder of the lake, where it is one; None elsewhere, and where we may not write."""
    if "://" in lake and not lake.startswith("file://"):
        return None
    file = Path(lake.removeprefix("file://")) / f"_seen_by_executors_{uuid.uuid4().hex}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError:
        return None
    return file


def _other_spark(spark: Any) -> ExecutorProblem | None:
    import pyspark

    theirs, ours = str(spark.version), pyspark.__version__
    if theirs.split(".")[:2] == ours.split(".")[:2]:
        return None
    return ExecutorProblem(
        f"the server has Spark {theirs}, and PySpark here is {ours}",
        "Give both the same minor version: another one misunderstands some of what is asked.",
        stops_all=True,
    )


def _python_problem(error: str) -> ExecutorProblem:
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    needed = (
        f"Install the packages of deploy/images/requirements-executor.txt into a Python {ours} on every worker, and "
        "name it in PYSPARK_PYTHON there, or in spark.pyspark.python."
    )
    if module := _NO_MODULE.search(error):
        return ExecutorProblem(f"the Python of executors has no {module[1]}", needed, stops_all=False)
    if "PYTHON_VERSION_MISMATCH" in error:
        versions = sorted(set(re.findall(r"\b3\.\d+\b", error)) - {ours})
        theirs = f" ({', '.join(versions)})" if versions else ""
        return ExecutorProblem(
            f"executors have another Python{theirs} than this process, which has {ours}", needed, stops_all=False
        )
    if program := _CANNOT_RUN.search(error):
        return ExecutorProblem(f"executors cannot start {program[1]}", needed, stops_all=False)
    (first, *_) = error.strip().splitlines() or [""]
    return ExecutorProblem(f"a tiny task of Python failed on executors: {first[:300]}", needed, stops_all=False)
