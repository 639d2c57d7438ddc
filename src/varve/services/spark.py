"""Sessions of Spark: on the shared server, a deployed one, or a master URL.

The same code runs in both modes: the DataFrame API and SQL only, never `sparkContext`, `rdd` or `_jvm`.

Not here: the shared server itself (spark_server.py), and Spark as a Dagster resource (varve/dagster/runs/spark.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from varve.model.errors import ServiceUnavailable
from varve.services.addresses import remote_address
from varve.services.jvm.class_path import FILE_SYSTEM, add_our_classes, of_our_classes
from varve.services.jvm.java import java_home
from varve.services.secrets import redacted, spark_properties, without_secrets
from varve.services.spark_server import SparkServer, static_conf, utf8_locale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

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
    # Otherwise Spark puts settings and environment variables in the place of `${...}`, in texts too: a partition's key
    # that is ${env:HOME} would become that folder's name.
    "spark.sql.variable.substitute": "false",
    # Plans are looked at before queries of many partitions run (varve/sql/spark/plans.py); of 25 columns on, Spark cuts
    # them short.
    "spark.sql.debug.maxToStringFields": "2000",
    # More than 32 folders are listed by a Spark job, with a task for each of them unless told otherwise: 2,880 batches
    # took 8 s each time that a frame over them was looked at, and take 0.5 s so.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
}
# What we take for granted of each query, and migrated clusters set otherwise for everybody: Spark's own defaults.
# Programs of others (`spark-submit`) keep what their cluster says.
_GRANTED = {
    # Types are inferred, and conditions evaluated, by these rules (varve/sql/types, varve/sql/evaluate).
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # A day before 1582 is written as it is: under LEGACY, whoever reads the file without Spark, as the load of the
    # warehouse does, gets another day.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # A file of a batch that is missing or broken is an error, and not a batch of fewer rows.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client goes on asking a server that does not answer.

    Attributes:
        tries: how often it asks again.
        first, longest: the pauses before that, in milliseconds: the first one, doubled each time up to the longest.
    """

    tries: int
    first: int
    longest: int

    @property
    def seconds(self) -> float:
        """All pauses together."""
        return sum(min(self.first << number, self.longest) for number in range(self.tries)) / 1_000


# What opening a session waits for the first answer of a deployed server.
_ANSWER_SECONDS = 45
# Nobody starts an embedded server again for a session that it had; a deployed one may be away for a moment.
_EMBEDDED, _DEPLOYED = Patience(6, 100, 2_000), Patience(9, 200, 8_000)


def open_session(settings: Settings, extra: dict[str, Any] | None = None) -> SparkSession:
    """A session in the mode that the settings ask for.

    Raises ServiceUnavailable where Spark cannot be started or reached.
    """
    conf: dict[str, Any] = {**SESSION_CONF, **_GRANTED}
    if settings.spark_master is not None:
        conf |= {"spark.master": settings.spark_master, **_classic_conf(settings)}
    elif settings.spark_remote is not None:
        conf["spark.remote"] = settings.spark_remote
    else:
        url, token = SparkServer(settings).ensure_up()
        # Not in the environment: PySpark would send it to every other server too, by TLS. To `localhost` it uses none.
        conf["spark.remote"] = f"{url}/;token={token}"
    session = _reachable(lambda: _opened({**conf, **(extra or {})}, settings), settings)
    if settings.spark_master is None:
        give_up_in_time(session, _EMBEDDED if settings.embedded_spark else _DEPLOYED)
    return session


def will_open_elsewhere(settings: Settings) -> None:
    """Prepare the environment of this process for a session that another thread opens.

    PySpark sets a variable when it opens one, and numpy while it is imported. A new variable moves the whole
    environment, which C code of other threads reads without Python's lock: libpq asks for forty variables for each
    connection, and psycopg2 lets threads run then. One run of some thousands ended by SIGSEGV. A variable that is there
    already is changed in its place.
    """
    if settings.spark_master is None:
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
        os.environ.setdefault("OPENBLAS_MAIN_FREE", "1")


def checkpointed(frame: DataFrame) -> DataFrame:
    """A frame over the rows of this one, computed once and kept by the server until it is collected.

    PySpark's own `localCheckpoint` gives a frame of the session that was opened first in this thread, though another
    server may have computed it: every query over it would fail there.
    """
    kept: Any = frame.localCheckpoint()
    session: Any = frame.sparkSession
    if kept.sparkSession is session:
        return cast("DataFrame", kept)
    # The plan removes its rows from the server when it is collected: it has to ask the same one.
    kept._plan._spark_session = session
    return cast("DataFrame", type(kept)(kept._plan, session))


def give_up_in_time(session: SparkSession, patience: Patience) -> None:
    """Let a run fail whose server is lost: PySpark would try for ten minutes, while the run holds its partitions."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([
        DefaultPolicy(
            max_retries=patience.tries, initial_backoff=patience.first, max_backoff=patience.longest,
            backoff_multiplier=2, jitter=0,
        )
    ])  # fmt: skip


def _opened(conf: dict[str, Any], settings: Settings) -> SparkSession:
    if settings.spark_master is None:
        return _session(conf)
    if not _starts_a_jvm():
        return _session(_with_our_classes(conf, settings.spark_master))
    # PySpark starts its JVM with every setting as a word of the command line, which everybody on the machine may read;
    # those of a file it reads itself.
    own = {name: value for name, value in conf.items() if name in settings.spark_conf}
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    words = shlex.split(before or "pyspark-shell")
    named = words.index("--properties-file") if "--properties-file" in words else None
    theirs = None if named is None else words[named + 1]
    first = ["--load-spark-defaults"] if named is None else []
    rest = words if named is None else words[:named] + words[named + 2 :]
    with spark_properties({}, also=None if theirs is None else Path(theirs), conf=own) as file:
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*first, "--properties-file", file, *rest])
        try:
            _start_jvm({name: value for name, value in conf.items() if name not in own})
            with_classes = _with_our_classes(conf, settings.spark_master)
            return _session({name: value for name, value in with_classes.items() if name not in own})
        finally:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
            if before is not None:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _starts_a_jvm() -> bool:
    from pyspark import SparkContext

    return SparkContext._gateway is None


def _start_jvm(conf: dict[str, Any]) -> None:
    """Start the JVM of this process as PySpark does, or take the one that has started this process (`spark-submit`)."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(_settings(conf))))


def _with_our_classes(conf: dict[str, Any], master: str) -> dict[str, Any]:
    """The settings, and those of our classes where the JVM finds them and there is no other that would need them.

    It does not where somebody else has started it, and where a `spark-env.sh` names another class path.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    if not runs_in_the_driver(master):
        return conf
    jvm: Any = SparkContext._jvm
    try:
        jvm.java.lang.Class.forName(FILE_SYSTEM)
    except Py4JError:
        return conf
    return of_our_classes(conf)


def _session(conf: dict[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in _settings(conf):
        builder = builder.config(name, value)
    if (remote := conf.get("spark.remote")) is None:
        return builder.getOrCreate()
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    # PySpark hands on the session that was made last, though it may be of another project's server. Frames of two
    # sessions cannot be joined: each server has one session here.
    wanted, sessions = _server_of(DefaultChannelBuilder(remote)), _sessions(os.getpid())
    known = [sessions.get(wanted), RemoteSession.getActiveSession(), RemoteSession._get_default_session()]
    living: list[Any] = [session for session in known if session is not None and not session.is_stopped]
    session = next((session for session in living if _server_of(session.client._builder) == wanted), None)
    of_remote = RemoteSession.builder.config(map=dict(_settings(conf)))
    if session is not None and _takes(session, of_remote):
        pass
    elif living:
        # PySpark's own way would try the settings on the session of the other server, and fail where that has ended.
        session = of_remote.create()
        # By this variable its functions know which kind of session there is; somebody may have put an environment back.
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    else:
        session = builder.getOrCreate()
    sessions[wanted] = session
    # Some of what PySpark offers to Python datasets asks for the active session: that of who opened one last here.
    RemoteSession._active_session.session = session
    return cast("SparkSession", session)


def _takes(session: Any, options: Any) -> bool:
    """Give a session its options; False where the server has ended it, as nobody has used it for long."""
    from pyspark.errors import PySparkException

    try:
        options._apply_options(session)
    except PySparkException as error:
        if "INVALID_HANDLE.SESSION_" not in str(error):
            raise
        with contextlib.suppress(Exception):
            session.client.close()
        return False
    return True


def _server_of(channel: Any) -> tuple[str, str | None]:
    """The address and the token. A server that is started again at the same port has another token."""
    return channel.endpoint, channel.token


@cache
def _sessions(_pid: int) -> dict[tuple[str, str | None], Any]:
    """The sessions of this process, by the addresses and tokens of their servers. A forked process makes its own."""
    return {}


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
    # PySpark asks this variable alone which Python executors are to run; of the setting only `spark-submit` knows.
    if python := settings.spark_conf.get("spark.pyspark.python"):
        os.environ["PYSPARK_PYTHON"] = python
    elif runs_in_the_driver(settings.spark_master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.spark_master.startswith("local"):
        os.environ["JAVA_HOME"] = str(java_home(settings.home_dir))
        os.environ["LC_ALL"] = utf8_locale()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if runs_in_the_driver(settings.spark_master):
            add_our_classes(os.environ)
        return conf
    ours = ("spark.driver.", "spark.sql.warehouse")
    return {name: value for name, value in conf.items() if not name.startswith(ours)} | settings.spark_conf


def runs_in_the_driver(master: str) -> bool:
    """Whether a master has no executors but the driver; those of `local-cluster[...]` are processes of their own."""
    return master == "local" or master.startswith("local[")


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
    """Ask the server for one setting. Raises OSError where it does not answer, or not as a server of Spark Connect."""
    import socket

    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.core import RpcDeadlines, SparkConnectClient

    socket.create_connection(remote_address(remote), timeout=10).close()
    deadlines = RpcDeadlines(config=_ANSWER_SECONDS)
    client = SparkConnectClient(remote, retry_policy={"max_retries": 2}, rpc_deadlines=deadlines)
    try:
        with warnings.catch_warnings():
            # That it gives up is what is asked for here.
            warnings.simplefilter("ignore")
            client.get_configs("spark.sql.session.timeZone")
    except PySparkException as error:
        raise OSError(_problem_of(error)) from error
    finally:
        client.close()


def _problem_of(error: BaseException) -> str:
    """What is wrong with a connection, in the words of gRPC, which PySpark has as the cause of its own error."""
    cause: BaseException | None = error
    while cause is not None:
        if callable(details := getattr(cause, "details", None)) and details():
            late = details() == "Deadline Exceeded"
            return f"it did not answer within {_ANSWER_SECONDS} s" if late else str(details())
        cause = cause.__cause__ or cause.__context__
    return str(error)
