"""Where started services listen, as the operating system says: on a unix socket and on loopback, and nowhere else.

The same of the UI is in tests/cli/test_services.py.
"""

from __future__ import annotations

import contextlib
import ipaddress
import stat
from typing import TYPE_CHECKING

import grpc
import psutil
import pytest

from varve.services.postgres_server import PostgresServer
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from varve.services.settings import Settings


def listening(pid: int) -> list[str]:
    """The IP addresses on which a process, or one that it started, waits for connections."""
    addresses = []
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        # A session of the server may end meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            connections = process.net_connections("inet")
            addresses += [each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN]
    return addresses


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it; Java writes an IPv4 address as one of IPv6."""
    found = ipaddress.ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def test_postgresql_listens_on_a_unix_socket_alone(settings: Settings) -> None:
    server = PostgresServer(settings.home_dir)
    pid = server.pid()
    assert pid is not None
    assert listening(pid) == []
    assert stat.S_ISSOCK((server.sockets / ".s.PGSQL.5432").stat().st_mode)


@pytest.mark.spark
def test_spark_listens_on_loopback_alone_and_wants_its_token(settings: Settings, spark: SparkSession) -> None:
    server = SparkServer(settings)
    server.ensure_up()
    pid = server.pid()
    assert pid is not None
    addresses = listening(pid)
    assert addresses
    # Spark's own web page, which wants no token, is not served at all.
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert [address for address in addresses if not is_loopback(address)] == []
    assert server.discovery.stat().st_mode & 0o077 == 0
    remote = server.remote()
    assert remote is not None
    target = remote[0].removeprefix("sc://")
    with grpc.insecure_channel(target) as channel:
        anybody = channel.unary_unary("/spark.connect.SparkConnectService/Config")
        with pytest.raises(grpc.RpcError) as refused:
            anybody(b"", timeout=30)
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
