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

    Raises ServiceUnavailable where there is no Java, and VarveError for a session whose time zone is not that of runs.
    """
    from pyspark.sql import SparkSession

    from varve.services.settings import Settings
    from varve.services.spark import open_session

    if (session := SparkSession.getActiveSession()) is not None:
        return in_zone_of_runs(session)
    home = Path(tempfile.mkdtemp(prefix="varve-testing-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    with _jvm_writes_to(home / "spark.log"):
        return open_session(Settings(home=home, spark_master="local[1]", spark_conf=_SMALL, spark_driver_memory="1g"))


def in_zone_of_runs(session: SparkSession) -> SparkSession:
    """The session of somebody's tests, where it makes of a moment the hour and the date that runs make of it.

    It is not changed: other tests of theirs may count on its zone. Raises VarveError where it is another one.
    """
    from varve.model.errors import VarveError
    from varve.services.spark import SESSION_CONF
    from varve.sql.checks.zones import UTC_NAMES

    name = "spark.sql.session.timeZone"
    if (zone := session.conf.get(name)) not in UTC_NAMES:
        raise VarveError(
            f"the session of these tests has {name} = {zone}, and that of a run {SESSION_CONF[name]}: the hour or "
            "the date of a moment would differ from what a run makes. "
            f'Add .config("{name}", "UTC") where the session is made, or call spark.conf.set("{name}", "UTC").'
        )
    return session


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
