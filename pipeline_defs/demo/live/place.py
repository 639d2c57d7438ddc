"""Where the live demo works: databases and folders of its own beside the project's, and a daemon that ends with it.

The servers are those of the home folder; the project's own catalog, lake and landing folder are not touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg import sql

from varve.cli.context import chosen_project, chosen_settings
from varve.model.errors import VarveError
from varve.services.folders import writable
from varve.services.postgres_server import PostgresServer
from varve.services.sessions import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings

MODULE = "pipeline_defs.demo.live.project.definitions"
# A demo is watched: a file is settled and looked for sooner than by default, unless the environment says otherwise.
_QUICK = {"VARVE_SETTLE_SECONDS": "1", "VARVE_SENSOR_INTERVAL_SECONDS": "2", "VARVE_BACKOFF_SECONDS": "5"}
_END_SECONDS = 30


@dataclass(frozen=True)
class LivePlace:
    """A catalog, Dagster's storage and a lake, over a landing folder that several places share.

    Attributes:
        folder: the folder of the live demo, which holds the landing folder and a folder for each place.
        name: of the place, and what the names of its two databases begin with.
    """

    folder: Path
    name: str

    @property
    def landing(self) -> Path:
        """The landing folder of the dataset that the partner sends."""
        return self.folder / "landing" / "varve_live" / "orders"

    def environment(self, settings: Settings) -> dict[str, str]:
        """The variables that make a process work here."""
        server = PostgresServer(settings.home_dir)
        return {
            **{name: os.environ.get(name, value) for name, value in _QUICK.items()},
            "VARVE_HOME": str(settings.home_dir),
            "VARVE_POSTGRES_URL": server.url(self.name),
            "VARVE_DAGSTER_POSTGRES_URL": server.url(f"{self.name}_dagster"),
            "VARVE_LAKE_ROOT": str(self.folder / self.name / "lake"),
            "VARVE_LANDING_ROOT": str(self.folder / "landing"),
            "DAGSTER_HOME": str(self.folder / self.name / "dagster"),
        }

    def make(self, settings: Settings) -> None:
        """Begin with nothing: the databases and folders of an earlier demo are removed."""
        server = PostgresServer(settings.home_dir)
        server.ensure_up()
        with open_session(server.url("postgres"), application="varve demo") as connection:
            for database in (self.name, f"{self.name}_dagster"):
                name = sql.Identifier(database)
                connection.execute(sql.SQL("drop database if exists {} with (force)").format(name))
                connection.execute(sql.SQL("create database {}").format(name))
        own = self.folder / self.name
        shutil.rmtree(own, ignore_errors=True)
        home = writable(own / "dagster")
        shutil.copyfile(chosen_project().root / "dagster.yaml", home / "dagster.yaml")

    @contextmanager
    def here(self, settings: Settings) -> Iterator[Settings]:
        """This process with the settings of the place, and no other ones of where data is."""
        before = dict(os.environ)
        os.environ.update(self.environment(settings))
        try:
            yield chosen_settings()
        finally:
            os.environ.clear()
            os.environ.update(before)

    @contextmanager
    def daemon(self, settings: Settings, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Dagster's daemon over the demo's definitions; it ends with the block, and so does all that it has started."""
        from psutil import NoSuchProcess, Process, wait_procs

        words = [
            str(Path(sys.executable).parent / "dagster-daemon"),
            "run",
            "-m",
            MODULE,
            "-d",
            str(chosen_project().root),
        ]
        with log.open("wb") as file:
            process = subprocess.Popen(
                words, env={**os.environ, **self.environment(settings)}, cwd=chosen_project().root,
                stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT,
                # A Ctrl-C is for this process, which then ends the other in order.
                start_new_session=True,
            )  # fmt: skip
            try:
                yield process
            finally:
                started = []
                with suppress(NoSuchProcess):
                    started = Process(process.pid).children(recursive=True)
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECONDS)
                # Runs that are under way, and code servers that do not see their daemon go.
                for child in started:
                    with suppress(NoSuchProcess):
                        child.terminate()
                _, alive = wait_procs(started, timeout=5)
                for child in alive:
                    with suppress(NoSuchProcess):
                        child.kill()
                if process.poll() is None:
                    process.kill()
                process.wait(_END_SECONDS)


def refuse_deployed(settings: Settings) -> None:
    """Raise VarveError where the servers are not ours to make databases on."""
    if not settings.embedded_postgres:
        raise VarveError(
            "varve demo --live makes and drops databases of its own, and does so on the embedded PostgreSQL alone. "
            "Leave VARVE_POSTGRES_URL out for it."
        )


def forget_tables() -> None:
    """Take the demo's tables out of Spark's catalog, in which all projects of a home folder meet."""
    from varve.services.spark import open_session as open_spark

    spark = open_spark(chosen_settings())
    try:
        spark.sql("DROP DATABASE IF EXISTS varve_live CASCADE")
    finally:
        spark.stop()
