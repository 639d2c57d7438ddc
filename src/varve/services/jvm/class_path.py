"""What a Spark that Varve starts on this machine has on its class path, beside Spark's own jars.

Not here: Sparks of others, whose clusters have class paths and file systems of their own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

# The classes of `source/`, by `make jar`.
JAR = Path(__file__).parent / "varve.jar"
# What Spark's start scripts put behind Spark's own jars; unlike the setting, it takes nothing away from spark-defaults.
_BEHIND = "SPARK_DIST_CLASSPATH"
FILE_SYSTEM = "varve.PosixLocalFileSystem"
# The catalog whose procedures do in one call what Spark's statements do in many.
METASTORE = "varve_metastore"


def add_our_classes(environment: MutableMapping[str, str]) -> None:
    """Let a JVM that is started with this environment find our classes."""
    known = environment.get(_BEHIND, "").split(os.pathsep)
    if str(JAR) not in known:
        environment[_BEHIND] = os.pathsep.join([*filter(None, known), str(JAR)])


def is_replaced(conf: Path) -> bool:
    """Whether a folder of Spark's configuration has a `spark-env.sh` that may name another class path in this place."""
    try:
        return _BEHIND in (conf / "spark-env.sh").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def of_our_classes(conf: Mapping[str, str]) -> dict[str, str]:
    """Settings of a Spark that finds our classes and has no executors but its driver, unless they say otherwise.

    Folders and files of the local file system get their permissions without a process each: 2,000 partitions of a
    Parquet dataset are written in 2 s in place of 33. The embedded metastore moves 1,000 partitions of a table in 3 s
    in place of 84.
    """
    return {
        "spark.hadoop.fs.file.impl": FILE_SYSTEM,
        f"spark.sql.catalog.{METASTORE}": "varve.Metastore",
        **conf,
    }
