"""The project as its users drive it: commands in processes of their own, files in the landing folder, plain readers.

Not here: fixtures (conftest.py).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest
from dagster import DagsterInstance
from psycopg import sql

from assets.flights import DAY, HOUR
from resources.partner import FLIGHTS_COLUMNS, WEATHER_COLUMNS, flights_by_day, send, weather_by_hour
from tests.support.environment import clean_environment
from tests.support.prepared import Program
from varve.catalog.catalog import Catalog
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.planning.mapping.dataset_mapping import Dependency
from varve.services.postgres import connect, warehouse_url
from varve.services.postgres_server import PostgresServer
from varve.services.settings import Settings
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from resources.partner import Row
    from varve.model.batch import Batch

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
# A whole demo beside a busy suite takes five minutes.
COMMAND_SECONDS = 600


@dataclass(frozen=True)
class Outcome:
    """How a command ended and all that it said."""

    code: int
    output: str

    @property
    def told(self) -> str:
        """What it said as one line: a terminal's width breaks messages anywhere."""
        return " ".join(self.output.split())


@dataclass(frozen=True)
class Project:
    """A project, the checkout's unless another root is given, with the environment that a user's commands run in."""

    environment: Mapping[str, str]
    root: Path = ROOT

    @classmethod
    def at(cls, home: Path) -> Project:
        """With all state in a home folder, and nothing of the caller's own settings."""
        return cls(clean_environment() | {"VARVE_HOME": str(home), "VARVE_SETTLE_SECONDS": "0"})

    @classmethod
    @contextmanager
    def of_its_own(cls, name: str) -> Iterator[Project]:
        """With a home, servers and a metastore that nobody else uses; all of it ends with the block.

        `with_databases` is cheaper, and shares Spark: its Hive tables then show what any of its projects publishes.
        """
        home = Path(tempfile.mkdtemp(prefix=f"varve-{name}-"))
        home.chmod(0o755)
        found = cls.at(home)
        try:
            yield found
        finally:
            found.end_services()
            shutil.rmtree(home, ignore_errors=True)

    def having(self, **settings: object) -> Project:
        """The same project with other settings: `having(lake_root=folder)`."""
        given = {f"VARVE_{name.upper()}": str(value) for name, value in settings.items()}
        return replace(self, environment={**self.environment, **given})

    @property
    def settings(self) -> Settings:
        """What a process of this environment reads."""
        with self.here():
            return Settings()

    @contextmanager
    def here(self) -> Iterator[None]:
        """This process with the settings of the project's environment, and no others of Varve or Dagster."""
        ours = ("VARVE_", "DAGSTER_")
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith(ours)]:
                patch.delenv(name)
            for name, value in self.environment.items():
                if name.startswith(ours):
                    patch.setenv(name, value)
            yield

    def run(self, *arguments: str | Path) -> Outcome:
        """A program of Python in the project's root, in a process that has imported the libraries already."""
        program = Program([str(argument) for argument in arguments], str(self.root), self.environment)
        with tempfile.TemporaryFile() as output:
            code = program.run(output, seconds=COMMAND_SECONDS)
            output.seek(0)
            return Outcome(code, output.read().decode(errors="replace"))

    def run_afresh(self, *arguments: str | Path) -> Outcome:
        """The same by this interpreter, which imports everything itself."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return Outcome(done.returncode, done.stdout)

    def varve(self, *words: str) -> Outcome:
        """`varve ...`."""
        return self.run(Path(sys.executable).parent / "varve", *words)

    def varve_json(self, *words: str) -> Any:
        """What `varve ... --json` prints, whatever its exit code."""
        done = self.varve(*words, "--json")
        try:
            return json.loads(done.output)
        except ValueError:
            pytest.fail(f"varve {' '.join(words)} ended with {done.code}: {done.output}")

    def materialize(self, asset: str, *, partition: str | None = None, partitions: str | None = None) -> Outcome:
        """`dagster asset materialize` of one partition, or of a range of them."""
        return self.run("-m", "dagster", *_materialize(asset, partition, partitions))

    def materialize_afresh(self, asset: str, *, partitions: str) -> Outcome:
        """The same by an interpreter that imports everything itself."""
        return self.run_afresh("-m", "dagster", *_materialize(asset, None, partitions))

    def must_materialize(self, asset: str, *, partition: str | None = None, partitions: str | None = None) -> None:
        """The same, where anything but success is a failure of the test."""
        done = self.materialize(asset, partition=partition, partitions=partitions)
        assert done.code == 0, done.output

    def crash(self, when: str, function: str, asset: str, *, partition: str, victim: str = "self") -> Outcome:
        """The same in a process that kills itself, or a server, right before or after it calls a function of ours."""
        return self.run(HERE / "crash_run.py", victim, when, function, *_materialize(asset, partition, None))

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        """The catalog over a connection of the test's own."""
        with connect(self.settings, application="varve e2e test") as connection:
            catalog = Catalog(connection)
            catalog.ensure_schema()
            yield catalog

    def current(self, dataset: str) -> dict[str, Batch]:
        """What is current, by the catalog's spelling of a partition."""
        with self.catalog() as catalog:
            return catalog.current(dataset)

    @contextmanager
    def dagster(self) -> Iterator[DagsterInstance]:
        """Dagster's own records, opened through the repository's dagster.yaml."""
        with self.here(), DagsterInstance.from_config(str(self.root)) as instance:
            yield instance

    def with_databases(self, name: str) -> Project:
        """The same services, with a new catalog and warehouse, Dagster storage, lake and landing folder."""
        server = PostgresServer(self.settings.home_dir)
        server.ensure_up()
        names = {"postgres_url": f"{name}_varve", "dagster_postgres_url": f"{name}_dagster"}
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            for database in names.values():
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(database)))
        folder = self.settings.home_dir / name
        return self.having(
            **{setting: server.url(database) for setting, database in names.items()},
            lake_root=folder / "lake",
            landing_root=folder / "landing",
        )

    def with_dagster_home(self, folder: Path) -> Project:
        """The same with a DAGSTER_HOME that holds the repository's dagster.yaml."""
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.root / "dagster.yaml", folder)
        return replace(self, environment={**self.environment, "DAGSTER_HOME": str(folder)})

    def send_flights(self, *days: dt.date, keep: int | None = None) -> list[Path]:
        """The partner sends the flights of some days; `keep` of each only, where he corrects what he has sent."""
        folder = Path(self.settings.landing) / "flights" / "departures"
        return [send(folder, day.isoformat(), FLIGHTS_COLUMNS, flights(day)[:keep]) for day in days]

    def send_weather(self, *days: dt.date) -> list[Path]:
        """The partner sends the weather of all UTC hours of some New York days."""
        folder = Path(self.settings.landing) / "flights" / "weather"
        observed = weather_by_hour(hours := [hour for day in days for hour in hours_of(day)])
        return [send(folder, hour, WEATHER_COLUMNS, observed[hour]) for hour in hours]

    def end_services(self) -> None:
        """End the servers of this home."""
        settings = self.settings
        SparkServer(settings).stop()
        PostgresServer(settings.home_dir).stop()


class Reader:
    """A session on the shared Spark that stays open, in a process that knows nothing of Varve."""

    def __init__(self, project: Project) -> None:
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, HERE / "spark_reader.py", project.settings.home_dir / "spark" / "connect.json"],
            cwd="/",
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sql(self, query: str) -> list[list[Any]]:
        """The rows of a query."""
        to, back = _piped(self._process)
        to.write(query + "\n")
        to.flush()
        answer = back.readline()
        assert answer, f"the reader ended with {self._process.wait(30)} at: {query}"
        found = json.loads(answer)
        assert isinstance(found, list)
        return found

    def close(self) -> None:
        """End the session."""
        to, back = _piped(self._process)
        to.close()
        self._process.wait(60)
        back.close()


@contextmanager
def service(project: Project, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of the virtual environment that runs until the block ends, with all processes it has started."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [Path(sys.executable).parent / arguments[0], *arguments[1:]],
            cwd=project.root,
            env=dict(project.environment),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            # What it started (code servers) is in its session; the shared servers are in sessions of their own.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str, log: Path | None = None) -> None:
    """Look again and again until the condition holds; a failure says what was waited for and ends with the log."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            tail = log.read_text(encoding="utf-8", errors="replace")[-4_000:] if log else ""
            pytest.fail(f"waited {seconds:g} s in vain until {what}\n{tail}")
        time.sleep(0.25)


def hours_of(day: dt.date) -> list[str]:
    """The UTC hours of a day in New York."""
    days, hours = Partitioning((DAY,)), Partitioning((HOUR,))
    return [str(key["hour"]) for key in Dependency(days, hours).upstream_of(PartitionKey.of(day=day)).keys]


def flights(day: dt.date) -> list[Row]:
    """The flights of a day as the package has them."""
    return _flights_of_month(day.replace(day=1))[day.isoformat()]


@lru_cache(maxsize=4)
def _flights_of_month(first: dt.date) -> dict[str, list[Row]]:
    # The package's file is read whole for however few days.
    return flights_by_day(days(first, 31))


def rows_in(folder: str) -> int:
    """The rows of a batch folder, read as anybody's parquet."""
    return sum(pq.read_metadata(file).num_rows for file in Path(folder).glob("*.parquet"))


def days(first: dt.date, count: int) -> Sequence[dt.date]:
    """So many days from the first on."""
    return [first + dt.timedelta(days=offset) for offset in range(count)]


def url_of(project: Project) -> str:
    """The libpq URL of the project's warehouse."""
    return warehouse_url(project.settings)


def _piped(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _materialize(asset: str, partition: str | None, partitions: str | None) -> list[str]:
    which = ["--partition", partition] if partition is not None else ["--partition-range", str(partitions)]
    return ["asset", "materialize", "-m", "pipeline_defs.definitions", "--select", asset, *which]
