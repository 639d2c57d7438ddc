"""A Spark Connect server that somebody else deployed: one that is none, and one that is lost."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.killing import kill_all
from varve.model.errors import ServiceUnavailable
from varve.services.outages import is_server_lost
from varve.services.settings import Settings
from varve.services.spark import _DEPLOYED, _EMBEDDED, open_session
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


# What a run may take to fail whose server is gone.
MINUTE = 60.0
LONG = "select max(sha2(cast(id as string), 256)) from range(0, 1000000000000)"


@pytest.fixture
def deployed(settings: Settings) -> Iterator[SparkServer]:
    """A server that is not the suite's: what a test calls deployed, and may kill."""
    folder = Path(tempfile.mkdtemp(prefix="varve-"))
    server = SparkServer(Settings(home=folder, spark_driver_memory="1g", spark_master=None))
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_no_client_asks_a_lost_server_for_as_long_as_a_run_may_take_to_fail() -> None:
    assert _EMBEDDED.seconds < 10
    # Long enough for a connection that a network has cut, and short enough for the whole run.
    assert 20 < _DEPLOYED.seconds < MINUTE - 15


@pytest.mark.spark
def test_a_port_of_another_service_is_told_at_once(settings: Settings, spark: SparkSession) -> None:
    # This process has a session on the embedded server, whose token is nothing for others.
    assert spark.range(3).count() == 3

    def answer(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.recv(1_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        url = f"sc://127.0.0.1:{listener.getsockname()[1]}"
        for remote, problem in ((url, "Failed parsing HTTP/2"), (f"{url}/;token=secret", "Tls handshake failed")):
            began = time.monotonic()
            with pytest.raises(ServiceUnavailable, match=problem) as caught:
                open_session(settings.model_copy(update={"spark_remote": remote, "spark_master": None}))
            assert "secret" not in str(caught.value)
            assert time.monotonic() - began < 15


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED:UserWarning")
def test_a_query_whose_deployed_server_is_lost_fails_within_a_minute(
    settings: Settings, spark: SparkSession, deployed: SparkServer
) -> None:
    if settings.spark_master is not None:
        assert spark.range(3).count() == 3, "one mode in one process, and in classic mode Spark ends with it"
        return
    url, token = deployed.ensure_up()
    session = open_session(settings.model_copy(update={"spark_remote": f"{url}/;token={token}"}))
    assert session is not spark
    assert session.range(3).count() == 3
    pid = deployed.pid()
    assert pid is not None
    killer = threading.Timer(3, kill_all, [pid])
    killer.start()
    began = time.monotonic()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - gRPC's and PySpark's errors have no class in common
        session.sql(LONG).collect()
    assert is_server_lost(caught.value), caught.value
    assert 3 < time.monotonic() - began < MINUTE
    killer.join()
    # That of the other server goes on as before.
    assert spark.range(3).count() == 3
