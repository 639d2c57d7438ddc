"""The embedded PostgreSQL: started once by whoever comes first, and again after any death."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.killing import kill_all
from tests.support.project import ROOT
from varve.services.postgres_server import CATALOG_DATABASE, DAGSTER_DATABASE, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.needs_seconds

ENSURE = (
    "import sys; from pathlib import Path; from varve.services.postgres_server import PostgresServer; "
    "server = PostgresServer(Path(sys.argv[1])); server.ensure_up(); print(server.pid())"
)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of its own, not started yet, ended with the test."""
    folder = Path(tempfile.mkdtemp(prefix="varve-"))
    folder.chmod(0o755)
    server = PostgresServer(folder)
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def answers(server: PostgresServer, database: str = CATALOG_DATABASE) -> bool:
    with psycopg.connect(server.url(database)) as connection:
        return connection.execute("select 1").fetchone() == (1,)


def test_a_server_is_made_started_and_left_alone_when_it_is_up(server: PostgresServer) -> None:
    assert not server.is_up()
    assert server.pid() is None
    server.ensure_up()
    pid = server.pid()
    assert pid is not None
    assert answers(server)
    assert answers(server, DAGSTER_DATABASE)
    configuration = (server.data / "postgresql.conf").read_text(encoding="utf-8")
    server.ensure_up()
    assert server.pid() == pid
    assert (server.data / "postgresql.conf").read_text(encoding="utf-8") == configuration
    assert configuration.count("Written by Varve") == 1


def test_a_stopped_server_starts_again_with_what_it_held(server: PostgresServer) -> None:
    server.ensure_up()
    with psycopg.connect(server.url(CATALOG_DATABASE)) as connection:
        connection.execute("create table kept as select 42 as answer")
    assert server.stop()
    assert not server.is_up()
    assert not server.stop()
    server.ensure_up()
    with psycopg.connect(server.url(CATALOG_DATABASE)) as connection:
        assert connection.execute("select answer from kept").fetchone() == (42,)


def test_two_processes_that_need_it_at_once_find_one_server(server: PostgresServer) -> None:
    starting = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURE, str(server.home)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in starting]
    assert [process.returncode for process in starting] == [0, 0], outputs
    assert {out.strip() for out, _ in outputs} == {str(server.pid())}
    assert answers(server)


def test_a_killed_server_is_started_again_and_has_lost_nothing(server: PostgresServer) -> None:
    server.ensure_up()
    with psycopg.connect(server.url(CATALOG_DATABASE)) as connection:
        connection.execute("create table kept as select 42 as answer")
    pid = server.pid()
    assert pid is not None
    kill_all(pid)
    assert not server.is_up()
    server.ensure_up()
    assert server.pid() != pid
    with psycopg.connect(server.url(CATALOG_DATABASE)) as connection:
        assert connection.execute("select answer from kept").fetchone() == (42,)


@pytest.mark.parametrize("command", [("cp", "-a"), ("mv",)], ids=["copied", "moved"])
def test_the_server_of_a_home_that_was_copied_or_moved_is_met_there_and_nowhere_else(
    server: PostgresServer, command: tuple[str, ...]
) -> None:
    original, other = PostgresServer(server.home / "a"), PostgresServer(server.home / "it's another")
    original.ensure_up()
    assert original.stop()
    subprocess.run([*command, original.home, other.home], check=True)
    try:
        other.ensure_up()
        assert other.is_up()
        assert not original.is_up()
        with psycopg.connect(other.url(CATALOG_DATABASE)) as connection:
            assert connection.execute("show data_directory").fetchone() == (str(other.data),)
    finally:
        other.stop()


def test_a_kill_while_the_data_folder_is_made_leaves_no_half_of_one(server: PostgresServer) -> None:
    making = subprocess.Popen([sys.executable, "-c", ENSURE, server.home], start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(server.home.glob("postgres*/PG_VERSION")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(making.pid, signal.SIGKILL)
    making.wait()
    assert not server.data.exists()
    server.ensure_up()
    assert answers(server)
    assert [folder.name for folder in server.home.glob("postgres*/")] == ["postgres"]


def test_a_home_whose_path_is_too_long_for_a_socket_has_its_socket_elsewhere(server: PostgresServer) -> None:
    home = server.home / ("a long name of a folder " * 5).strip() / "home"
    long = PostgresServer(home)
    assert long.sockets.parent == Path(tempfile.gettempdir())
    assert long.sockets != PostgresServer(home / "other").sockets
    try:
        long.ensure_up()
        assert answers(long)
    finally:
        long.stop()
        shutil.rmtree(long.sockets, ignore_errors=True)


def test_a_server_that_lets_nobody_in_for_a_moment_is_waited_for_and_not_started_beside(server: PostgresServer) -> None:
    server.ensure_up()
    pid = server.pid()
    with psycopg.connect(server.url(CATALOG_DATABASE)) as connection:
        # The postmaster then ends all others, and recovers: as after a kill for want of memory.
        kill_all(connection.info.backend_pid)
        server.ensure_up()
    assert answers(server)
    assert server.pid() == pid


def test_a_server_without_our_databases_gets_them(server: PostgresServer) -> None:
    server.ensure_up()
    pid = server.pid()
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"drop database {DAGSTER_DATABASE}")
        connection.execute(f"drop database {CATALOG_DATABASE}")
    server.ensure_up()
    assert answers(server)
    assert server.pid() == pid


def test_a_kill_between_its_two_databases_leaves_the_other_one_to_the_next(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def die_after_one(self: PostgresServer, name: str) -> None:
        if made:
            raise KeyboardInterrupt
        made.append(name)
        ensure(self, name)

    ensure = PostgresServer._ensure_database
    monkeypatch.setattr(PostgresServer, "_ensure_database", die_after_one)
    with pytest.raises(KeyboardInterrupt):
        server.ensure_up()
    monkeypatch.undo()
    server.ensure_up()
    assert answers(server)
    assert answers(server, DAGSTER_DATABASE)


def test_what_is_left_of_a_killed_server_is_not_stopped_and_no_other_process_is(server: PostgresServer) -> None:
    server.data.mkdir()
    with subprocess.Popen(["sleep", "60"]) as other:
        (server.data / "postmaster.pid").write_text(f"{other.pid}\n")
        assert not server.stop()
        assert server.pid() is None
        assert other.poll() is None
        other.kill()
