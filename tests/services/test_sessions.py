"""Sessions of PostgreSQL notice that the machine of their server is gone, and are kept by a network while they wait."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.services.sessions import session_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings

OPTIONS = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


def carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while sent := source.recv(65_536):
            target.sendall(sent)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def by_tcp(server: PostgresServer) -> Iterator[int]:
    """A port of loopback that leads to the socket of a server, for one session."""

    def serve(listener: socket.socket) -> None:
        client, _ = listener.accept()
        with client, socket.socket(socket.AF_UNIX) as postgres:
            postgres.connect(str(server.sockets / ".s.PGSQL.5432"))
            answers = threading.Thread(target=carry, args=(postgres, client), daemon=True)
            answers.start()
            carry(client, postgres)
            answers.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,), daemon=True)
        serving.start()
        yield listener.getsockname()[1]
        serving.join()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="options of Linux")
@pytest.mark.parametrize(
    ("said", "wanted"), [("", [60, 10, 6, 120_000]), ("?keepalives_idle=300&tcp_user_timeout=0", [300, 10, 6, 0])]
)
def test_a_session_hears_of_the_end_of_its_servers_machine_unless_its_url_says_otherwise(
    settings: Settings, fresh_database: str, said: str, wanted: list[int]
) -> None:
    server, told = PostgresServer(settings.home_dir), conninfo_to_dict(fresh_database)
    with by_tcp(server) as port:
        url = f"postgresql://{told['user']}@127.0.0.1:{port}/{told['dbname']}{said}"
        with connect(settings.model_copy(update={"postgres_url": url})) as session:
            with socket.socket(fileno=os.dup(session.fileno())) as client:
                found = [client.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in OPTIONS]
            assert found == wanted
        # Those of ADBC, here and in Spark's workers, take it from their URL.
        names = ("keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")
        of_adbc = conninfo_to_dict(session_url(url))
        assert [int(of_adbc[name] or 0) for name in names] == wanted
