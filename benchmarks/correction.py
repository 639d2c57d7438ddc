"""One day of a year is corrected at the root of three levels: `python -m benchmarks.correction`.

    python -m benchmarks.correction [--days 364] [--copies 10] [--peer-python PYTHON]
                                    [--only ours|sensors|sqlmesh|refresh]

Delays by day, origin and carrier from real flights, each so many times (`--copies`); the trailing 7 and 28 days of
them; the worst of these in each week and each month. Ours has flights and delays in the lake, and the rest in the
warehouse; it is `varve correct`, and for comparison the file in the landing folder with what the sensors make of it.
Beside it, on the same PostgreSQL: SQLMesh as its documents say (the corrected day is restated), SQLMesh with the range
that a person has to know (28 days), and a full refresh as dbt makes it, a table after the other, without the time in
which dbt itself starts. Each is whole processes of its command line.

A reader asks for months and trailing 28 days in one statement all the while: an answer is mixed where the one is not
the largest of the other. Every row is compared with what PostgreSQL computes from the flights.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pendulum
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.commands import home_of_its_own
from benchmarks.environments_peer import flights_of, peer_python, run
from varve.services.postgres_server import CATALOG_DATABASE, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.environments_peer import Flight

START = pendulum.date(2013, 1, 1)
_SIDES = ["ours", "sqlmesh", "refresh", "sensors"]
_FLIGHTS = "create table truth.flights (day date, origin text, carrier text, delay bigint)"
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


@dataclass
class Varve:
    """Ours: a project in a folder, corrected by `varve correct` or by the sensors."""

    home: Path
    url: str
    end: pendulum.Date
    by_sensors: bool
    name: str

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
        by_day: dict[str, list[Flight]] = {}
        for flight in flights:
            by_day.setdefault(flight[0], []).append(flight)
        for day, of_day in by_day.items():
            self._send(self.home / "landing" / "air" / "flights", day, of_day)

    def first(self) -> None:
        """See `Side`."""
        script = "import varve; varve.run_due(varve.Project.find('.'))"
        run([sys.executable, "-c", script], self.home, self._environment())

    def correct(self, day: pendulum.Date, flights: Sequence[Flight]) -> None:
        """See `Side`."""
        if self.by_sensors:
            self._send(self.home / "landing" / "air" / "flights", str(day), flights)
            self.first()
        else:
            self._send(self.home / "corrected", str(day), flights)
            command = [str(Path(sys.executable).parent / "varve"), "correct", "air.flights"]
            run([*command, f"corrected/flights_{day}.csv"], self.home, self._environment())

    def _environment(self) -> dict[str, str]:
        own = {"VARVE_PROJECT": str(self.home), "VARVE_LANDING_ROOT": str(self.home / "landing")}
        return os.environ | own | {"DAGSTER_HOME": str(self.home), "PYTHONPATH": str(self.home)}

    @staticmethod
    def _send(folder: Path, day: str, flights: Sequence[Flight]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{origin},{carrier},{delay}\n" for _, origin, carrier, delay in flights)
        (folder / f"flights_{day}.csv").write_text(f"origin,carrier,delay\n{lines}")


@dataclass
class SqlMesh:
    """SQLMesh: a project in a folder, and the Python that has it; `widened` by so many days after the corrected one."""

    home: Path
    url: str
    python: str
    widened: int
    name: str

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
class FullRefresh:
    """A full refresh as dbt's materialisation `table` makes it: a new table beside the old one, and two renames."""

    url: str
    name: str = "full refresh"

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
class Watched:
    """What a reader has seen."""

    url: str
    answers: int = 0
    mixed: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        """Ask until it is over."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            while not self.over.wait(0.02):
                row = connection.execute(_MIXED).fetchone()
                self.answers += 1
                self.mixed += bool(row and row[0])


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    side: str
    first: float
    seconds: float
    rows: int
    partitions: int | None
    megabytes: float
    mixed: int
    answers: int
    wrong: int


def measure(side: Side, day: pendulum.Date, end: pendulum.Date, lake: Path | None) -> Figure:
    """Compute everything, correct the day, and compare all rows."""
    with psycopg.connect(side.url, autocommit=True) as connection:
        began = time.perf_counter()
        side.first()
        first = time.perf_counter() - began
        connection.execute("insert into truth.flights select day, origin, carrier, 10000 from truth.flights "
                           "where day = %s limit 1", (day,))  # fmt: skip
        flights = connection.execute(
            "select day::text, origin, carrier, delay from truth.flights where day = %s", (day,)
        ).fetchall()
        before = _state(connection, lake)
        watched = Watched(side.url)
        reader = threading.Thread(target=watched.ask)
        reader.start()
        began = time.perf_counter()
        try:
            side.correct(day, flights)
            seconds = time.perf_counter() - began
        finally:
            watched.over.set()
            reader.join()
        after = _state(connection, lake)
        wrong = wrong_rows(connection, end)
        rows, partitions = after[0] - before[0], None
        if lake is not None:
            # What PostgreSQL counts of ours are the rows of the warehouse and of the catalog; ours are in the catalog.
            row = connection.execute(
                "select count(*), sum(rows) from varve.batch where batch_id > %s", (before[2],)
            ).fetchone()
            assert row is not None
            partitions, rows = int(row[0]), int(row[1])
    written = (after[1] - before[1]) / 1e6
    return Figure(side.name, first, seconds, rows, partitions, written, watched.mixed, watched.answers, wrong)


def _state(connection: psycopg.Connection, lake: Path | None) -> tuple[int, int, int]:
    """Rows that were inserted, bytes that were written (the log, and the files of the lake), and the newest batch."""
    connection.execute("select pg_stat_force_next_flush()")
    time.sleep(1.5)
    row = connection.execute(
        "select tup_inserted, (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint from pg_stat_database "
        "where datname = current_database()"
    ).fetchone()
    assert row is not None
    newest, files = (0,), 0
    if lake is not None:
        newest = connection.execute("select coalesce(max(batch_id), 0) from varve.batch").fetchone() or (0,)
        files = sum(file.stat().st_size for file in lake.rglob("*") if file.is_file())
    return int(row[0]), int(row[1]) + files, int(newest[0])


def wrong_rows(connection: psycopg.Connection, end: pendulum.Date) -> int:
    """How many rows of the tables in the warehouse are not what the flights make, or are missing."""
    connection.execute("drop schema if exists expected cascade")
    connection.execute("create schema expected")
    for name, query in MODELS.items():
        connection.execute(f"create table expected.{name} as {query.format(schema='expected')}")  # type: ignore[arg-type, unused-ignore]
    wrong = 0
    for name, column, unit in (
        ("trailing7", "day", ""), ("trailing28", "day", ""), ("weekly", "week", "week"), ("monthly", "month", "month"),
    ):  # fmt: skip
        first, until = whole(end, unit) if unit else (START, end)
        rows = f"select {column}, origin, delay from {{}}.{name} where {column} >= '{first}' and {column} < '{until}'"
        found, expected = rows.format("air"), rows.format("expected")
        statement = f"select count(*) from (({found} except {expected}) union all ({expected} except {found})) w"
        row = connection.execute(statement).fetchone()  # type: ignore[arg-type, unused-ignore]
        wrong += int(row[0]) if row else 0
    return wrong


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=364)
    parser.add_argument("--copies", type=int, default=10, help="how often each flight is there (default 10)")
    parser.add_argument("--peer-python", help="a Python that has SQLMesh already")
    parser.add_argument("--only", choices=_SIDES, action="append", help="leave the others out")
    given = parser.parse_args()
    flights = [flight for flight in flights_of(given.days, START) for _ in range(given.copies)]
    end, corrected = START.add(days=given.days), START.add(days=given.days // 2)
    figures: list[Figure] = []
    wanted = given.only or _SIDES
    # The sensors' side has a home and a server of its own, as one home has one catalog.
    for group in (["ours", "sqlmesh", "refresh"], ["sensors"]):
        if chosen := [side for side in group if side in wanted]:
            figures += _measured(given, chosen, flights, end, corrected)
    show(figures, given, len(flights))


def _measured(
    given: argparse.Namespace, chosen: Sequence[str], flights: Sequence[Flight], end: pendulum.Date,
    corrected: pendulum.Date,
) -> list[Figure]:  # fmt: skip
    figures: list[Figure] = []
    with home_of_its_own() as settings, tempfile.TemporaryDirectory(prefix="varve-peer-") as folder:
        server = PostgresServer(settings.home_dir)
        server.ensure_up()
        for side, is_ours in _sides(given, chosen, server, Path(folder), flights):
            _fill(side.url, flights)
            figures.append(measure(side, corrected, end, Path(settings.lake) if is_ours else None))
            print(figures[-1], flush=True)
    return figures


def _sides(
    given: argparse.Namespace, wanted: Sequence[str], server: PostgresServer, folder: Path, flights: Sequence[Flight]
) -> Iterator[tuple[Side, bool]]:
    """Those that are to be compared, each with a database of its own, and whether it is ours."""
    if own := {"ours", "sensors"} & set(wanted):
        by_sensors = own == {"sensors"}
        name = "Varve, file and sensors" if by_sensors else "varve correct"
        ours = Varve(
            folder / "ours", server.url(CATALOG_DATABASE), START.add(days=given.days), by_sensors=by_sensors, name=name
        )
        ours.lay(flights)
        yield ours, True
    if "sqlmesh" in wanted:
        python = given.peer_python or peer_python(folder / "peer-python")
        for database, widened, name in (("mesh", 0, "SQLMesh"), ("mesh_widened", 27, "SQLMesh, 28 days by hand")):
            peer = SqlMesh(folder / database, _database(server, database), python, widened, name)
            peer.lay(str(server.sockets), database)
            yield peer, False
    if "refresh" in wanted:
        yield FullRefresh(_database(server, "refresh")), False


def _database(server: PostgresServer, name: str) -> str:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"create database {name}")  # type: ignore[arg-type, unused-ignore]
    return server.url(name)


def _fill(url: str, flights: Sequence[Flight]) -> None:
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("create schema truth")
        cursor.execute(_FLIGHTS)
        with cursor.copy("copy truth.flights from stdin") as copy:
            for flight in flights:
                copy.write_row(flight)
        cursor.execute("create index on truth.flights (day)")
        cursor.execute("analyze truth.flights")


def show(figures: Sequence[Figure], given: argparse.Namespace, rows: int) -> None:
    """Print the table; times as ratios to ours too."""
    title = f"{given.days} days, {rows:,} flights; load {os.getloadavg()[0]:.0f}"
    table = Table(
        "", "first build s", "correction s", "x ours", "partitions", "rows written", "MB written", "mixed answers",
        "wrong rows", title=title, title_justify="left",
    )  # fmt: skip
    ours = next((figure.seconds for figure in figures if figure.partitions is not None), None)
    for figure in figures:
        table.add_row(
            figure.side, f"{figure.first:.0f}", f"{figure.seconds:.1f}",
            "" if ours is None else f"{figure.seconds / ours:.2f}",
            "" if figure.partitions is None else f"{figure.partitions:,}", f"{figure.rows:,}",
            f"{figure.megabytes:.1f}", f"{figure.mixed} of {figure.answers}", f"{figure.wrong:,}",
        )  # fmt: skip
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
