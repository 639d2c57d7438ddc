"""Sessions of Spark: on the shared server, a deployed one, or a master URL.

The same code runs in both modes: the DataFrame API and SQL only, never `sparkContext`, `rdd` or `_jvm`.

Not here: the shared server itself (spark_server.py), and Spark as a Dagster resource (varve/dagster/runs/spark.py).
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any, cast

from varve.model.errors import ServiceUnavailable
from varve.services.addresses import remote_address
from varve.services.java import java_home
from varve.services.secrets import redacted, spark_properties, without_secrets
from varve.services.spark_server import SparkServer, static_conf, utf8_locale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from varve.services.settings import Settings

# gRPC's own handlers around a fork have crashed the child before it could start its program (initdb, in a process with
# an open session). Nothing here forks and goes on in Python.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# What a session may change by itself, in both modes.
SESSION_CONF = {
    "spark.sql.session.timeZone": "UTC",
    # A partitioned write touches only the partitions it writes, and stages privately (docs/decisions/0004).
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
    # Spark's own default, INT96, is deprecated, has no statistics, and is read as nanoseconds elsewhere.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Plans are looked at before queries of many partitions run (varve/sql/spark/plans.py); of 25 columns on, Spark cuts
    # them short.
    "spark.sql.debug.maxToStringFields": "2000",
    # More than 32 folders are listed by a Spark job, with a task for each of them unless told otherwise: 2,880 batches
    # took 8 s each time that a frame over them was looked at, and take 0.5 s so.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
}
# What the client says of a server that is gone, and what a server says whose context has been stopped.
_SIGNS_OF_LOSS = (
    "StatusCode.UNAVAILABLE",
    "failed to connect to all addresses",
    "INVALID_HANDLE.SESSION_",
    "stopped SparkContext",
    "SparkContext was shut down",
)


def open_session(settings: Settings, extra: dict[str, Any] | None = None) -> SparkSession:
    """A session in the mode that the settings ask for.

    Raises ServiceUnavailable where Spark cannot be started or reached.
    """
    conf: dict[str, Any] = dict(SESSION_CONF)
    if settings.spark_master is not None:
        conf |= {"spark.master": settings.spark_master, **_classic_conf(settings)}
    elif settings.spark_remote is not None:
        conf["spark.remote"] = settings.spark_remote
    else:
        url, token = SparkServer(settings).ensure_up()
        os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
        conf["spark.remote"] = url
    session = _reachable(lambda: _opened({**conf, **(extra or {})}, settings), settings)
    if settings.embedded_spark:
        _give_up_soon(session)
    return session


def is_server_lost(error: Exception) -> bool:
    """Whether an error of Spark says that its server is gone, or does not know our session any more."""
    return any(sign in str(error) for sign in _SIGNS_OF_LOSS)


def _give_up_soon(session: SparkSession) -> None:
    """Let a lost embedded server fail a run within seconds: PySpark would try for ten minutes, and none comes back."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=6, initial_backoff=100, max_backoff=2_000)])


def _opened(conf: dict[str, Any], settings: Settings) -> SparkSession:
    if settings.spark_master is None or not _starts_a_jvm():
        return _session(conf)
    # PySpark starts its JVM with every setting as a word of the command line, which everybody on the machine may read;
    # those of a file it reads itself.
    own = {name: value for name, value in conf.items() if name in settings.spark_conf}
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    words = shlex.split(before or "pyspark-shell")
    named = words.index("--properties-file") if "--properties-file" in words else None
    theirs = None if named is None else words[named + 1]
    first = ["--load-spark-defaults"] if named is None else []
    rest = words if named is None else words[:named] + words[named + 2 :]
    with spark_properties(own, also=theirs) as file:
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*first, "--properties-file", file, *rest])
        try:
            return _session({name: value for name, value in conf.items() if name not in own})
        finally:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
            if before is not None:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _starts_a_jvm() -> bool:
    from pyspark import SparkContext

    return SparkContext._gateway is None


def _session(conf: dict[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in _settings(conf):
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if (remote := conf.get("spark.remote")) is None:
        return session
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    # PySpark hands on the session that is there, though it may be of another project's server.
    channel: Any = session.client._builder
    if channel.endpoint == DefaultChannelBuilder(remote).endpoint:
        return session
    other: Any = RemoteSession.builder.config(map=dict(_settings(conf))).create()
    return cast("SparkSession", other)


def _settings(conf: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings by their whole names, where some are nested as Dagster's configuration of Spark may be."""
    for name, value in conf.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _classic_conf(settings: Settings) -> dict[str, str]:
    """Static settings for a JVM of our own; a cluster's own configuration decides what is left out here."""
    conf = static_conf(settings)
    assert settings.spark_master is not None
    if settings.spark_master.startswith("local"):
        os.environ["JAVA_HOME"] = str(java_home(settings.home_dir))
        os.environ["LC_ALL"] = utf8_locale()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return conf
    ours = ("spark.driver.", "spark.sql.warehouse")
    return {name: value for name, value in conf.items() if not name.startswith(ours)} | settings.spark_conf


def _reachable(open_it: Callable[[], SparkSession], settings: Settings) -> SparkSession:
    """The session, after one small query: PySpark itself would go on trying an unreachable server for ten minutes."""
    from pyspark.errors import PySparkException

    # PySpark logs every failed query as one line of JSON with the JVM's stack; the error itself is enough.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging"):
        # By level: Dagster's configuration of logging switches the last one on again, which PySpark had disabled.
        logging.getLogger(name).setLevel(os.environ.get("SPARK_CONNECT_LOG_LEVEL", "CRITICAL").upper())
    try:
        if settings.spark_remote is not None and settings.spark_master is None:
            _probe(settings.spark_remote)
        session = open_it()
        if not settings.embedded_spark:
            # The embedded server was seen to listen a moment ago. Elsewhere the round trip is the point, as far as the
            # metastore: Derby refuses a second process only when it is asked something.
            session.sql("SHOW DATABASES").collect()
    except (PySparkException, OSError, RuntimeError) as error:
        which = without_secrets(settings.spark_remote or settings.spark_master or "the embedded server")
        problem = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "XSDB6" in str(error) or "Another instance of Derby" in str(error):
            problem = (
                "its Hive metastore (Derby, one process at a time) is held by another Spark; "
                "`varve down` ends the shared one, or name a metastore in VARVE_HIVE_METASTORE_URI"
            )
        raise ServiceUnavailable(f"Spark ({which}) cannot be used: {redacted(problem)}.") from error
    return session


def _probe(remote: str) -> None:
    import socket

    socket.create_connection(remote_address(remote), timeout=10).close()
