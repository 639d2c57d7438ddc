"""A PostgreSQL with a synchronous standby, on two ports of loopback, and the death of the first."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from tests.killing import kill_all
from varve.services.ports import free_port
from varve.services.postgres_server import binaries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SECONDS = 60


@dataclass(frozen=True)
class Server:
    """One of the two."""

    data: Path
    port: int

    def start(self, *options: str) -> None:
        settings = [
            f"-c port={self.port}", "-c listen_addresses=127.0.0.1", f"-c unix_socket_directories={self.data.parent}",
            "-c wal_level=logical", "-c max_connections=60", "-c max_locks_per_transaction=256", *options,
        ]  # fmt: skip
        self.control("-w", "-t", str(_SECONDS), "-l", str(self.data.parent / "log"), "-o", " ".join(settings), "start")

    def control(self, *words: str) -> None:
        run("pg_ctl", "-D", str(self.data), *words)

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])


@dataclass(frozen=True)
class Pair:
    """The first server, which takes writes, and the one that takes over."""

    first: Server
    second: Server

    def url(self, database: str) -> str:
        """Both, as a setting names them."""
        return f"postgresql://postgres@127.0.0.1:{self.first.port},127.0.0.1:{self.second.port}/{database}"

    def fail_over(self) -> None:
        """Kill the first server with all its processes, and let the second one take writes, waiting for nobody."""
        kill_all(self.first.pid)
        self.second.control("-w", "-t", str(_SECONDS), "promote")


@contextmanager
def pair(*databases: str) -> Iterator[Pair]:
    """A pair whose commits are on both servers before anybody is told."""
    # Not under pytest's own folders, which other users may not pass.
    folder = Path(tempfile.mkdtemp(prefix="varve-standby-"))
    servers = [Server(folder / name / "data", free_port()) for name in ("first", "second")]
    for server in servers:
        server.data.parent.mkdir()
    if os.geteuid() == 0:
        for place in (folder, *(server.data.parent for server in servers)):
            shutil.chown(place, "pgserver", "pgserver")
    first, second = servers
    try:
        run("initdb", "-D", str(first.data), "-U", "postgres", "--auth=trust", "--no-sync")
        first.start("-c synchronous_standby_names=*", "-c synchronous_commit=local")
        source = f"host=127.0.0.1 port={first.port} user=postgres"
        with psycopg.connect(source, autocommit=True) as admin:
            for database in databases:
                admin.execute(f"create database {database}".encode())
        run("pg_basebackup", "-d", source, "-D", str(second.data), "-R", "-X", "stream", "--checkpoint=fast")
        second.start("-c hot_standby_feedback=on")
        with psycopg.connect(source, autocommit=True) as admin:
            # From here on a commit waits for the standby.
            admin.execute("alter system set synchronous_commit = on")
            admin.execute("select pg_reload_conf()")
        yield Pair(first, second)
    finally:
        for server in servers:
            if (server.data / "postmaster.pid").exists():
                run("pg_ctl", "-D", str(server.data), "-m", "immediate", "stop", check=False)
        shutil.rmtree(folder, ignore_errors=True)


def run(*words: str, check: bool = True) -> Sequence[str]:
    """A program of PostgreSQL, as the user that may run it."""
    done = subprocess.run(
        [binaries() / words[0], *words[1:]], cwd="/", user="pgserver" if os.geteuid() == 0 else None,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=120,
        start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0 or not check, words
    return words
