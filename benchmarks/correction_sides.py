"""The sides that benchmarks/correction.py compares: ours, SQLMesh, a full refresh, and MERGE of Delta Lake.

Not here: what is measured of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pendulum
import psycopg

from benchmarks.delta_pipeline import event_log
from benchmarks.environments_peer import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.environments_peer import Flight

START = pendulum.date(2013, 1, 1)
_PAGE = 8192
# The rows by their truth, as queries over truth.flights; `{schema}` has what they read.
_TRAILING = """
    select e.day, d.origin, sum(d.delay)::bigint as delay from (select distinct day from {schema}.delays) e
    join {schema}.delays d on d.day between e.day - %d and e.day group by e.day, d.origin
"""
_WORST = """
    select date_trunc('%s', day)::date as %s, origin, max(delay) as delay from {schema}.%s group by 1, 2
"""
MODELS = {
    "delays": """
        select day, origin, carrier, count(*) as flights, sum(delay)::bigint as delay from truth.flights
        group by day, origin, carrier
    """,
    "trailing7": _TRAILING % 6,
    "trailing28": _TRAILING % 27,
    "weekly": _WORST % ("week", "week", "trailing7"),
    "monthly": _WORST % ("month", "month", "trailing28"),
}
_MIXED = """
    select count(*) from air.monthly m
    where m.delay <> (select max(t.delay) from air.trailing28 t
                      where t.origin = m.origin and t.day >= m.month and t.day < m.month + interval '1 month')
"""
_OURS = """CREATE DATASET air.{name}
  COMMENT 'Of a benchmark.'
  STORED IN {store}
  PARTITIONED BY ({column} DATE)
  FOR t IN TIMESERIES(INTERVAL 1 {unit}, START '{start}', END '{end}', TIMEZONE 'UTC')
  LET today = CAST(t AS DATE)
  INSERT ({column} = today)
AS {query};
"""
_OUR_QUERIES = {
    "delays": "SELECT origin, carrier, COUNT(*) AS flights, SUM(flights.delay) AS delay FROM air.flights "
    "WHERE flights.day = today GROUP BY origin, carrier",
    "trailing7": "SELECT origin, SUM(delays.delay) AS delay FROM air.delays "
    "WHERE delays.day BETWEEN today - INTERVAL 6 DAYS AND today GROUP BY origin",
    "trailing28": "SELECT origin, SUM(delays.delay) AS delay FROM air.delays "
    "WHERE delays.day BETWEEN today - INTERVAL 27 DAYS AND today GROUP BY origin",
    "weekly": "SELECT origin, MAX(trailing7.delay) AS delay FROM air.trailing7 "
    "WHERE trailing7.day BETWEEN today AND today + INTERVAL 6 DAYS GROUP BY origin",
    "monthly": "SELECT origin, MAX(trailing28.delay) AS delay FROM air.trailing28 "
    "WHERE trailing28.day >= today AND trailing28.day < ADD_MONTHS(today, 1) GROUP BY origin",
}
_LANDED = """CREATE DATASET air.flights (origin STRING NOT NULL, carrier STRING NOT NULL, delay BIGINT NOT NULL)
  COMMENT 'One row per flight.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', END '{end}', TIMEZONE 'UTC')
  LET day = CAST(t AS DATE)
EXTERNAL OPTIONS (source = 'landing', files = 'flights_{{day:%Y-%m-%d}}.csv');
"""
_PEER_CONFIG = """
gateways:
  local:
    connection: {{type: postgres, host: {host}, port: 5432, user: postgres, password: '', database: {database}}}
default_gateway: local
model_defaults: {{dialect: postgres, start: '{start}'}}
"""
# As a person writes them: each model filters by the interval that it is asked for, and says how far it looks back.
_PEER_DELAYS = """
SELECT day, origin, carrier, COUNT(*) AS flights, SUM(delay)::BIGINT AS delay FROM truth.flights
WHERE day BETWEEN @start_date AND @end_date GROUP BY day, origin, carrier
"""
_PEER_TRAILING = """
SELECT e.day AS day, d.origin AS origin, SUM(d.delay)::BIGINT AS delay
FROM (SELECT DISTINCT day FROM air.delays WHERE day BETWEEN @start_date AND @end_date) AS e
JOIN air.delays AS d ON d.day BETWEEN e.day - INTERVAL '%d days' AND e.day GROUP BY e.day, d.origin
"""
_PEER_WORST = """
SELECT DATE_TRUNC('%s', day)::DATE AS %s, origin, MAX(delay) AS delay FROM air.%s
WHERE day BETWEEN @start_date AND @end_date GROUP BY 1, 2
"""
# For each model: its column of time, when it runs, how far it looks back, and its query.
_PEER_MODELS = {
    "delays": ("day", "@daily", "", _PEER_DELAYS),
    "trailing7": ("day", "@daily", ", lookback 6", _PEER_TRAILING % 6),
    "trailing28": ("day", "@daily", ", lookback 27", _PEER_TRAILING % 27),
    "weekly": ("week", "0 0 * * 1", "", _PEER_WORST % ("week", "week", "trailing7")),
    "monthly": ("month", "@monthly", "", _PEER_WORST % ("month", "month", "trailing28")),
}
_PEER_MODEL = """
MODEL (name air.{name}, kind INCREMENTAL_BY_TIME_RANGE (time_column {column}{lookback}), cron '{cron}');
{query}
"""


@dataclass(frozen=True)
class Written:
    """What a side has written so far: rows, bytes, and partitions where it has some."""

    rows: int
    bytes: int
    partitions: int | None = None


class Reader(Protocol):
    """Whoever asks while a side corrects a day."""

    def stop(self) -> tuple[int, int]:
        """Stop asking; how many answers there were, and how many were mixed."""
        ...


class Side(Protocol):
    """One of those that are compared, with its database."""

    name: str
    url: str

    def first(self) -> None:
        """Compute everything."""
        ...

    def correct(self, day: pendulum.Date, flights: Sequence[Flight]) -> None:
        """Say that a day has these flights now, and let what follows be computed."""
        ...

    def written(self, connection: psycopg.Connection) -> Written:
        """What it has written so far."""
        ...

    def reader(self) -> Reader:
        """Begin to ask for its tables."""
        ...

    def read(self, connection: psycopg.Connection) -> Counter[str]:
        """The bytes that were read so far, by what they were read from."""
        ...

    def compared(self, connection: psycopg.Connection) -> None:
        """Have its tables in the schema `air` of its database."""
        ...


@dataclass
class InPostgres:
    """A side whose tables are in PostgreSQL, in the schema `air`."""

    url: str
    name: str

    def written(self, connection: psycopg.Connection) -> Written:
        """See `Side`: rows that were inserted, and bytes of the log."""
        _flush(connection)
        row = connection.execute(
            "select tup_inserted, (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint from pg_stat_database "
            "where datname = current_database()"
        ).fetchone()
        assert row is not None
        return Written(int(row[0]), int(row[1]))

    def read(self, connection: psycopg.Connection) -> Counter[str]:
        """See `Side`: pages of its tables that statements looked at, in memory or not; nobody's catalog."""
        _flush(connection)
        pages = connection.execute(
            "select relid::text, heap_blks_hit + heap_blks_read from pg_statio_user_tables "
            "where schemaname not in ('varve', 'sqlmesh', 'expected')"
        )
        return Counter({table: int(of_table) * _PAGE for table, of_table in pages})

    def reader(self) -> Reader:
        """See `Side`."""
        return Watching(self.url)

    def compared(self, connection: psycopg.Connection) -> None:
        """See `Side`: they are there."""


@dataclass
class Varve(InPostgres):
    """Ours: a project in a folder, corrected by `varve correct` or by the sensors."""

    home: Path
    lake: Path
    end: pendulum.Date
    by_sensors: bool

    def lay(self, flights: Sequence[Flight]) -> None:
        """Write the project and the files of the landing folder."""
        (self.home / "air_assets").mkdir(parents=True)
        (self.home / "air_assets" / "__init__.py").write_text("")
        (self.home / "varve.toml").write_text('assets = "air_assets"\ndefinitions = "air_definitions"\n')
        (self.home / "air_definitions.py").write_text(
            "import varve\n\ndefs = varve.definitions(varve.Project.find(__file__))\n"
        )
        (self.home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        assets = self.home / "air_assets"
        (assets / "flights.sql").write_text(_LANDED.format(start=START, end=self.end))
        for name, query in _OUR_QUERIES.items():
            column, unit, start, end = {
                "weekly": ("week", "WEEK", *whole(self.end, "week")),
                "monthly": ("month", "MONTH", *whole(self.end, "month")),
            }.get(name, ("day", "DAY", START, self.end))
            text = _OURS.format(
                name=name, store="LAKE" if name == "delays" else "WAREHOUSE", column=column, unit=unit, start=start,
                end=end, query=query,
            )  # fmt: skip
            (assets / f"{name}.sql").write_text(text)
        for day, of_day in by_day(flights).items():
            send(self.home / "landing" / "air" / "flights", day, of_day)

    def first(self) -> None:
        """See `Side`."""
        script = "import varve; varve.run_due(varve.Project.find('.'))"
        run([sys.executable, "-c", script], self.home, self._environment())

    def correct(self, day: pendulum.Date, flights: Sequence[Flight]) -> None:
        """See `Side`."""
        if self.by_sensors:
            send(self.home / "landing" / "air" / "flights", str(day), flights)
            self.first()
        else:
            send(self.home / "corrected", str(day), flights)
            command = [str(Path(sys.executable).parent / "varve"), "correct", "air.flights"]
            run([*command, f"corrected/flights_{day}.csv"], self.home, self._environment())

    def written(self, connection: psycopg.Connection) -> Written:
        """See `Side`: rows and partitions are in the catalog, whose own rows do not count; files count as bytes."""
        logged = super().written(connection).bytes
        row = connection.execute("select coalesce(sum(rows), 0)::bigint, count(*) from varve.batch").fetchone()
        assert row is not None
        return Written(int(row[0]), logged + bytes_below(self.lake), int(row[1]))

    def read(self, connection: psycopg.Connection) -> Counter[str]:
        """See `Side`: files that Spark read, too."""
        return super().read(connection) + Counter(files=bytes_read_by_spark(self.home / "events"))

    def _environment(self) -> dict[str, str]:
        (self.home / "events").mkdir(exist_ok=True)
        own = {"VARVE_PROJECT": str(self.home), "VARVE_LANDING_ROOT": str(self.home / "landing")}
        own["VARVE_SPARK_CONF"] = json.dumps(event_log(self.home / "events"))
        return os.environ | own | {"DAGSTER_HOME": str(self.home), "PYTHONPATH": str(self.home)}


def send(folder: Path, day: str, flights: Sequence[Flight]) -> Path:
    """Write the file of a day."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{origin},{carrier},{delay}\n" for _, origin, carrier, delay in flights)
    file = folder / f"flights_{day}.csv"
    file.write_text(f"origin,carrier,delay\n{lines}")
    return file


def _flush(connection: psycopg.Connection) -> None:
    """Wait until all sessions have told PostgreSQL's statistics what they did."""
    connection.execute("select pg_stat_force_next_flush()")
    time.sleep(1.5)


def bytes_below(folder: Path) -> int:
    """The bytes of the files in a folder and below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def bytes_read_by_spark(events: Path) -> int:
    """The bytes that Spark's tasks read from files, by the event log in a folder."""
    lines = (line for file in events.rglob("events_*") for line in file.read_text().splitlines())
    tasks = (json.loads(line) for line in lines if '"SparkListenerTaskEnd"' in line)
    return sum(task["Task Metrics"]["Input Metrics"]["Bytes Read"] for task in tasks if task.get("Task Metrics"))


@dataclass
class SqlMesh(InPostgres):
    """SQLMesh: a project in a folder, and the Python that has it; `widened` by so many days after the corrected one."""

    home: Path
    python: str
    widened: int

    def lay(self, host: str, database: str) -> None:
        """Write the project."""
        (self.home / "models").mkdir(parents=True)
        (self.home / "config.yaml").write_text(_PEER_CONFIG.format(host=host, database=database, start=START))
        for name, (column, cron, lookback, query) in _PEER_MODELS.items():
            model = _PEER_MODEL.format(name=name, column=column, cron=cron, lookback=lookback, query=query)
            (self.home / "models" / f"{name}.sql").write_text(model)

    def first(self) -> None:
        """See `Side`."""
        self._plan()

    def correct(self, day: pendulum.Date, flights: Sequence[Flight]) -> None:
        """See `Side`."""
        del flights
        self._plan("--restate-model", "air.delays", "--start", str(day), "--end", str(day.add(days=self.widened)))

    def _plan(self, *words: str) -> None:
        command = [str(Path(self.python).parent / "sqlmesh"), "plan", *words, "--auto-apply", "--no-prompts"]
        run(command, self.home, os.environ | {"SQLMESH__DISABLE_ANONYMIZED_ANALYTICS": "true", "NO_COLOR": "1"})


@dataclass
class FullRefresh(InPostgres):
    """A full refresh as dbt's materialisation `table` makes it: a new table beside the old one, and two renames."""

    def first(self) -> None:
        """See `Side`."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("create schema if not exists air")
            for name, query in MODELS.items():
                swap = (
                    f"create table air.{name}__tmp as {query.format(schema='air')}",
                    f"alter table if exists air.{name} rename to {name}__backup",
                    f"alter table air.{name}__tmp rename to {name}",
                )
                with connection.transaction():
                    for statement in swap:
                        connection.execute(statement)  # type: ignore[arg-type, unused-ignore]
                connection.execute(f"drop table if exists air.{name}__backup cascade")  # type: ignore[arg-type, unused-ignore]

    def correct(self, day: pendulum.Date, flights: Sequence[Flight]) -> None:
        """See `Side`."""
        del day, flights
        self.first()


def whole(end: pendulum.Date, unit: str) -> tuple[pendulum.Date, pendulum.Date]:
    """The first and the end of the whole weeks or months of the days."""
    first = START.start_of(unit)
    return (first if first == START else first.add(**{f"{unit}s": 1})), end.start_of(unit)


@dataclass
class Delta:
    """MERGE of Delta Lake: a folder of tables; the database is for the comparison of rows alone."""

    url: str
    home: Path
    python: str
    jars: str
    name: str = "MERGE of Delta Lake"
    rows: int = 0

    def lay(self, flights: Sequence[Flight]) -> None:
        """Write the files of the landing folder."""
        for day, of_day in by_day(flights).items():
            send(self.home / "landing", day, of_day)

    def first(self) -> None:
        """See `Side`."""
        self._run("first")

    def correct(self, day: pendulum.Date, flights: Sequence[Flight]) -> None:
        """See `Side`."""
        self._run("correct", str(day), str(send(self.home / "corrected", str(day), flights)))

    def written(self, connection: psycopg.Connection) -> Written:
        """See `Side`: by Delta Lake's own metrics."""
        del connection
        return Written(self.rows, bytes_below(self.home / "tables"))

    def read(self, connection: psycopg.Connection) -> Counter[str]:
        """See `Side`: all that it reads are files."""
        del connection
        return Counter(files=bytes_read_by_spark(self.home / "events"))

    def reader(self) -> Reader:
        """See `Side`."""
        return WatchingFiles(self._command("-", "watch"))

    def compared(self, connection: psycopg.Connection) -> None:
        """See `Side`."""
        run(self._command("-", "dump"), self.home, dict(os.environ))
        connection.execute("create schema air")
        for name, query in MODELS.items():
            text = (self.home / f"{name}.csv").read_text()
            columns = text.split("\n", 1)[0].strip()
            connection.execute(f"create table air.{name} as {query.format(schema='air')} with no data")  # type: ignore[arg-type, unused-ignore]
            with connection.cursor().copy(f"copy air.{name} ({columns}) from stdin csv header") as copy:  # type: ignore[arg-type, unused-ignore]
                copy.write(text)

    def _run(self, *words: str) -> None:
        output = run(self._command(self.jars, *words), self.home, dict(os.environ))
        self.rows += json.loads(output.splitlines()[-1])["rows"]

    def _command(self, jars: str, *words: str) -> list[str]:
        return [self.python, str(Path(__file__).parent / "delta_pipeline.py"), str(self.home), jars, *words]


def by_day(flights: Sequence[Flight]) -> dict[str, list[Flight]]:
    """The flights of each day."""
    of_days: dict[str, list[Flight]] = {}
    for flight in flights:
        of_days.setdefault(flight[0], []).append(flight)
    return of_days


class Watching:
    """A reader of PostgreSQL's tables, in a thread."""

    def __init__(self, url: str) -> None:
        self.url, self.answers, self.mixed = url, 0, 0
        self._over, self._thread = threading.Event(), threading.Thread(target=self._ask)
        self._thread.start()

    def stop(self) -> tuple[int, int]:
        """See `Reader`."""
        self._over.set()
        self._thread.join()
        return self.answers, self.mixed

    def _ask(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            while not self._over.wait(0.02):
                row = connection.execute(_MIXED).fetchone()
                self.answers += 1
                self.mixed += bool(row and row[0])


class WatchingFiles:
    """A reader of tables in files, in a process of its own, which asks until its input ends."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "asking\n":
            raise SystemExit(f"{' '.join(command)} does not ask.")

    def stop(self) -> tuple[int, int]:
        """See `Reader`."""
        output, _ = self._process.communicate("")
        seen = json.loads(output.splitlines()[-1])
        return seen["answers"], seen["mixed"]
