"""What counts as a service that is away, by the errors that real clients raise: no attempt at a partition."""

from __future__ import annotations

import errno
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import psycopg
import pytest
from pyspark.errors import PySparkException

from varve.model.errors import BadInput, ExpectationFailed, MissingUpstream, ServiceUnavailable, VarveError
from varve.services.outages import is_outage, is_server_lost, names_outage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.workbench import Workbench


def error_of(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the test is about which one it is
        call()
    return caught.value


@pytest.mark.parametrize(
    "call",
    [
        lambda: socket.create_connection(("127.0.0.1", 1), timeout=5),
        lambda: socket.getaddrinfo("nowhere.invalid", 80),
        lambda: urllib.request.urlopen("http://127.0.0.1:1/prices.json", timeout=5),
    ],
    ids=["refused", "no such host", "of a library"],
)
def test_who_refuses_the_connection_or_is_not_found_is_away(call: Callable[[], object]) -> None:
    assert is_outage(error_of(call))


def test_what_an_error_came_from_counts_unless_its_author_hides_it() -> None:
    refused = error_of(lambda: socket.create_connection(("127.0.0.1", 1), timeout=5))

    def raised(**how: object) -> Exception:
        def again() -> None:
            try:
                raise refused
            except OSError:
                if how:
                    raise VarveError("t.sales: it cannot be read.") from how["cause"]  # type: ignore[misc]
                raise VarveError("t.sales: it cannot be read.")  # noqa: B904 - what is raised while another one is handled

        return error_of(again)

    assert is_outage(raised())
    assert is_outage(raised(cause=refused))
    assert not is_outage(raised(cause=None))


def test_who_blames_the_data_has_decided_it_whatever_it_came_from() -> None:
    refused = error_of(lambda: socket.create_connection(("127.0.0.1", 1), timeout=5))
    for kind in (BadInput, ExpectationFailed, MissingUpstream):
        error = kind("t.sales: row 3 of it is none.")
        error.__cause__ = refused
        assert not is_outage(error)
    error = ServiceUnavailable("Spark cannot be used.")
    error.__cause__ = ValueError("x")
    assert is_outage(error)


def test_an_error_that_came_from_itself_ends() -> None:
    error = ValueError("round")
    error.__context__ = other = KeyError("and round")
    other.__context__ = error
    assert not is_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        BadInput("t.sales day=2026-11-28: line 3 of a.csv is none."),
        FileNotFoundError(errno.ENOENT, "no such file"),
        OSError(errno.ENOSPC, "no space left"),
        PermissionError(errno.EACCES, "not allowed"),
        psycopg.errors.SyntaxError("syntax error"),
        # Values of rows, and not the names of what was thrown.
        ValueError("no number: java.net.ConnectException: refused"),
        PySparkException("[CAST_INVALID_INPUT] The value 'x java.net.ConnectException: y' of the type STRING"),
        # A query that is too heavy times out each time.
        TimeoutError("timed out"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_data_disks_and_code_are_attempts(error: Exception) -> None:
    assert not is_outage(error)


@pytest.mark.spark
@pytest.mark.parametrize("place", ["hdfs://nowhere.invalid:8020/lake", "hdfs://127.0.0.1:1/lake"])
def test_a_file_system_that_spark_cannot_reach_is_away(workbench: Workbench, place: str) -> None:
    error = error_of(lambda: workbench.spark.read.parquet(place).collect())
    assert is_outage(error), str(error)[:2_000]
    assert not is_server_lost(error)


@pytest.mark.spark
def test_what_spark_refuses_of_files_and_queries_is_an_attempt(workbench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("no parquet")
    spark = workbench.spark
    for call in (
        lambda: spark.read.parquet(str(tmp_path / "missing")).collect(),
        lambda: spark.read.schema("a INT").parquet(str(tmp_path / "a.parquet")).collect(),
        lambda: spark.sql("SELECT CAST('java.net.ConnectException' AS INT)").collect(),
        lambda: spark.sql("SELECT nothing").collect(),
    ):
        error = error_of(call)
        assert not is_outage(error), str(error)[:2_000]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        # As Hadoop's client of S3, the metastore's and JDBC drivers say it; Spark hands on the text alone.
        ("SparkException", "Job aborted: org.apache.hadoop.net.ConnectTimeoutException: 20000 millis timeout"),
        ("UnknownException", "getFileStatus on s3a://b/k: SdkClientException: Unable to execute HTTP request: b.s3"),
        ("AnalysisException", "Hive: Could not connect to meta store using any of the URIs provided"),
        ("AnalysisException", "x\nCaused by: org.apache.thrift.transport.TTransportException: Socket is closed"),
        ("UnknownException", "(org.postgresql.util.PSQLException) Connection to db:5432 refused. Check that"),
        ("SQLNonTransientConnectionException", "Communications link failure"),
        ("botocore.exceptions.EndpointConnectionError", 'Could not connect to the endpoint URL: "http://s3"'),
        ("requests.exceptions.ConnectTimeout", "HTTPConnectionPool"),
        (ServiceUnavailable.__name__, "Spark (sc://spark) cannot be used."),
    ],
)
def test_the_texts_of_other_clients_are_known(kind: str, message: str) -> None:
    assert names_outage([(kind, message)])


def test_a_spark_that_is_lost_in_the_middle_of_the_work_is_no_outage() -> None:
    """The work may have ended it, as a query does that takes all of its memory."""
    error = RuntimeError("<_MultiThreadedRendezvous ... status = StatusCode.UNAVAILABLE, details = Socket closed>")
    assert is_server_lost(error)
    assert not is_outage(error)
