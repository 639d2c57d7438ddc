"""What happens to the servers and the disk that all processes share, for a while, and then it is over.

Not here: who suffers from it (operations.py), and when it happens (history.py).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import psutil
import psycopg

from tests.killing import kill_all
from tests.support.prepared import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tests.torture.project import TorturedProject

EXHAUSTING_SECONDS = 90
# One list of all rows in the memory of one task.
_EXHAUST = """
from pyspark.sql.connect.session import SparkSession
from varve.services.settings import Settings
from varve.services.spark_server import SparkServer
import os

url, token = SparkServer(Settings()).remote()
os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
spark = SparkSession.builder.remote(url).create()
spark.sql("SELECT size(collect_list(repeat(CAST(id AS STRING), 50))) FROM range(0, 200000000, 1, 1)").collect()
"""


def kill(milliseconds: int, find: Callable[[], int | None]) -> None:
    """Kill a server with all its processes."""
    # The others have begun meanwhile; the moment is the history's, whatever they have come to.
    threading.Event().wait(milliseconds / 1_000)
    if (pid := find()) is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            kill_all(pid)


def crowd(draw: Mapping[str, Any], url: str) -> None:
    """Somebody takes every connection that the server has left."""
    threading.Event().wait(draw["milliseconds"] / 1_000)
    with ExitStack() as stack:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(closing(psycopg.connect(url)))
        threading.Event().wait(draw["seconds"])


def fill_disk(draw: Mapping[str, Any], project: TorturedProject) -> None:
    """Somebody's file takes what is left of the disk on which everything lies."""
    if not project.small_disk:
        return
    threading.Event().wait(draw["milliseconds"] / 1_000)
    place = os.statvfs(project.home)
    with tempfile.NamedTemporaryFile(dir=project.home, prefix="somebody-") as file:
        # Others may take a part of it at the same moment.
        for part in (place.f_bavail, 64, 1):
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, part * place.f_bsize)
        threading.Event().wait(draw["seconds"])


def exhaust_spark(draw: Mapping[str, Any], project: TorturedProject) -> None:
    """Somebody's query takes all memory of Spark's JVM, which ends by it."""
    threading.Event().wait(draw["milliseconds"] / 1_000)
    program = Program(["-c", _EXHAUST], str(project.root), project.environment)
    before = project.spark.pid()
    with tempfile.TemporaryFile() as output:
        try:
            program.run(output, seconds=EXHAUSTING_SECONDS)
        except subprocess.TimeoutExpired:
            # The query goes on without its client. The accident must be over with its turn: nobody may fail after it.
            if before is not None and project.spark.pid() == before:
                kill(0, lambda: before)
