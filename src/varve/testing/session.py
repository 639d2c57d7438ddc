"""A small Spark for tests, in the process of the tests: one core, no UI, no metastore on disk.

Not here: the Spark of a project (varve/dagster/runs/spark.py).
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_SMALL = {
    "spark.sql.catalogImplementation": "in-memory",
    # Rows of a test fit into one task.
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    # A test has few rows and a new query: what Spark does to make large queries fast is all that it would wait for.
    # These four halve the time of a test; what is computed is the same.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.showConsoleProgress": "false",
}


def spark_session() -> SparkSession:
    """The session of this process; where it has none, a new one with `local[1]` that all its tests share.

    Raises ServiceUnavailable where there is no Java.
    """
    from pyspark.sql import SparkSession

    from varve.services.settings import Settings
    from varve.services.spark import open_session

    if (session := SparkSession.getActiveSession()) is not None:
        return session
    home = Path(tempfile.mkdtemp(prefix="varve-testing-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    with _jvm_writes_to(home / "spark.log"):
        return open_session(Settings(home=home, spark_master="local[1]", spark_conf=_SMALL, spark_driver_memory="1g"))


@contextmanager
def _jvm_writes_to(log: Path) -> Iterator[None]:
    """A JVM that is started meanwhile has its standard error in a file: what it says at its start is no test's matter.

    Where it cannot be started, the file is shown.
    """
    home_of_errors = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    except BaseException:
        os.write(home_of_errors, log.read_bytes())
        raise
    finally:
        os.dup2(home_of_errors, 2)
        os.close(home_of_errors)
