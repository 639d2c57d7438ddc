"""A change, a correction and the way back, beside SQLMesh on PostgreSQL: `python -m benchmarks.environments_peer`.

    python -m benchmarks.environments_peer [--days 28] [--peer-python PYTHON] [--only ours|peer]

Delays by day, origin and carrier, and the trailing seven days of them, from real flights; both sides are whole
processes of their command lines against one PostgreSQL. A reader asks one statement over both views all the while: an
answer is mixed where the seven days are not the sum of the days. Every row is compared with what PostgreSQL computes
from the flights. SQLMesh is installed into a temporary environment, or runs in the Python that is given.

Not here: what an environment costs in the catalog (environments.py).
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pendulum
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.commands import home_of_its_own
from resources.partner import data_folder
from varve.services.postgres_server import CATALOG_DATABASE, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Flight = tuple[str, str, str, int]
START = pendulum.date(2013, 3, 1)
_TRUTH = "create table truth.flights (day date, origin text, carrier text, delay bigint)"
_TRUE_DELAYS = """
    select day, origin, carrier, count(*) as flights, sum(delay)::bigint as delay from truth.flights
    where delay > %(over)s group by 1, 2, 3
"""
_TRUE_TRAILING = """
    select e.day, d.origin, sum(d.delay)::bigint as delay
    from (select distinct day from truth.flights) e
    join right_delays d on d.day between e.day - 6 and e.day group by 1, 2
"""
_WRONG = f"""
    with right_delays as ({_TRUE_DELAYS}), right_trailing as ({_TRUE_TRAILING})
    select (select count(*) from (select * from right_delays except
                select day, origin, carrier, flights, delay::bigint from air.delays) a)
        + (select count(*) from (select * from right_trailing except
                select day, origin, delay::bigint from air.trailing) b)
"""
_MIXED = """
    select count(*) from air.trailing t
    where t.delay <> (select sum(d.delay) from air.delays d
                      where d.origin = t.origin and d.day between t.day - 6 and t.day)
"""
# Of ours every batch says how many rows were computed for it, in production and in environments.
_OURS_COMPUTED = (
    "select coalesce(sum(rows), 0)::bigint from varve.batch where dataset in ('air.delays', 'air.trailing')"
)
# SQLMesh has its rows in tables of such schemas, and drops none of them meanwhile; its views show them.
_PEER_COMPUTED = (
    "select coalesce(sum(n_tup_ins), 0)::bigint from pg_stat_user_tables where schemaname like 'sqlmesh\\_\\_%'"
)
_WRITTEN = "select pg_current_wal_lsn() - '0/0'::pg_lsn"
_HEAD = """CREATE DATASET air.{name}
  COMMENT 'Of a benchmark.'
  STORED IN WAREHOUSE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', END '{end}', TIMEZONE 'UTC')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
AS {query};
"""
_LANDED = """CREATE DATASET air.flights (origin STRING NOT NULL, carrier STRING NOT NULL, delay BIGINT NOT NULL)
  COMMENT 'One row per flight.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', END '{end}', TIMEZONE 'UTC')
  LET day = CAST(t AS DATE)
EXTERNAL OPTIONS (source = 'landing', files = 'flights_{{day:%Y-%m-%d}}.csv');
"""
_DELAYS = (
    "SELECT origin, carrier, COUNT(*) AS flights, SUM(flights.delay) AS delay FROM air.flights "
    "WHERE flights.day = today AND flights.delay > {over} GROUP BY origin, carrier"
)
_TRAILING = (
    "SELECT origin, SUM(delays.delay) AS delay FROM air.delays "
    "WHERE delays.day BETWEEN today - INTERVAL 6 DAYS AND today GROUP BY origin"
)
_PEER_CONFIG = """
gateways:
  local:
    connection: {{type: postgres, host: {host}, port: 5432, user: postgres, password: '', database: peer}}
default_gateway: local
model_defaults: {{dialect: postgres, start: '{start}'}}
"""
_PEER_DELAYS = """
MODEL (name air.delays, kind INCREMENTAL_BY_TIME_RANGE (time_column day), cron '@daily');
SELECT day, origin, carrier, COUNT(*) AS flights, SUM(delay)::BIGINT AS delay FROM truth.flights
WHERE day BETWEEN @start_date AND @end_date AND delay > {over} GROUP BY day, origin, carrier
"""
_PEER_TRAILING = """
MODEL (name air.trailing, kind INCREMENTAL_BY_TIME_RANGE (time_column day, lookback 6), cron '@daily');
SELECT e.day AS day, d.origin AS origin, SUM(d.delay)::BIGINT AS delay
FROM (SELECT DISTINCT day FROM air.delays WHERE day BETWEEN @start_date AND @end_date) AS e
JOIN air.delays AS d ON d.day BETWEEN e.day - INTERVAL '6 days' AND e.day
GROUP BY e.day, d.origin
"""
NO_FILTER, FILTER = -1_000, 0


class Side(Protocol):
    """One of the two, with its database."""

    name: str
    url: str
    computed: str
    """The query for how many rows were computed so far."""

    def edit(self, over: int) -> None:
        """Change the query: flights with a larger delay count."""
        ...

    def correct(self, day: pendulum.Date) -> None:
        """A flight of a day was ten thousand minutes late: tell the tool, and let it compute what follows."""
        ...

    def first(self) -> None:
        """Compute everything."""
        ...

    def try_out(self) -> None:
        """Compute the changed query in an environment."""
        ...

    def promote(self) -> None:
        """Put it in force."""
        ...

    def go_back(self) -> None:
        """Put the code before in force again."""
        ...


@dataclass
class Watched:
    """What a reader has seen."""

    url: str
    answers: int = 0
    mixed: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        """Ask until it is over; what is not there yet is waited for."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            while not self.over.wait(0.02):
                try:
                    row = connection.execute(_MIXED).fetchone()  # type: ignore[arg-type, unused-ignore]
                except psycopg.errors.UndefinedTable:
                    continue
                self.answers += 1
                self.mixed += bool(row and row[0])


@dataclass
class Varve:
    """Ours: a project in a folder."""

    home: Path
    url: str
    end: pendulum.Date
    name: str = "Varve"
    computed: str = _OURS_COMPUTED
    _promotion: str = ""

    def lay(self, flights: list[Flight]) -> None:
        """Write the project and the files."""
        (self.home / "air_assets").mkdir(parents=True)
        (self.home / "air_assets" / "__init__.py").write_text("")
        (self.home / "varve.toml").write_text('assets = "air_assets"\ndefinitions = "air_definitions"\n')
        (self.home / "air_definitions.py").write_text(
            "import varve\n\ndefs = varve.definitions(varve.Project.find(__file__))\n"
        )
        (self.home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        self._sql("flights", _LANDED)
        self._sql("trailing", _HEAD, _TRAILING)
        for day in sorted({flight[0] for flight in flights}):
            self._send(
                day, [flight for flight in flights if flight[0] == day], self.home / "landing" / "air" / "flights"
            )

    def edit(self, over: int) -> None:
        """See `Side`."""
        self._sql("delays", _HEAD, _DELAYS.format(over=over))

    def correct(self, day: pendulum.Date) -> None:
        """See `Side`."""
        with psycopg.connect(self.url) as connection:
            rows = connection.execute(
                "select day::text, origin, carrier, delay from truth.flights where day = %s", (day,)
            )
            file = self._send(str(day), rows.fetchall(), self.home / "corrected")
        self._varve("correct", "air.flights", str(file))

    def first(self) -> None:
        """See `Side`."""
        script = "import varve; varve.run_due(varve.Project.find('.'))"
        run([sys.executable, "-c", script], self.home, self._environment())

    def try_out(self) -> None:
        """See `Side`."""
        self._varve("env", "create", "dev")
        self._varve("env", "run", "dev")

    def promote(self) -> None:
        """See `Side`."""
        output = self._varve("promote", "dev")
        self._promotion = "".join(output.split()).partition("asrunpromote-")[2][:36]

    def go_back(self) -> None:
        """See `Side`."""
        self._varve("revert", f"promote-{self._promotion}")

    def _varve(self, *words: str) -> str:
        return run([str(Path(sys.executable).parent / "varve"), *words], self.home, self._environment())

    def _environment(self) -> dict[str, str]:
        own = {"VARVE_PROJECT": str(self.home), "VARVE_LANDING_ROOT": str(self.home / "landing")}
        return os.environ | own | {"DAGSTER_HOME": str(self.home), "PYTHONPATH": str(self.home)}

    def _send(self, day: str, flights: list[Flight], folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"flights_{day}.csv"
        lines = "".join(f"{origin},{carrier},{delay}\n" for _, origin, carrier, delay in flights)
        file.write_text(f"origin,carrier,delay\n{lines}")
        return file

    def _sql(self, name: str, head: str, query: str = "") -> None:
        text = head.format(name=name, start=START, end=self.end, query=query)
        (self.home / "air_assets" / f"{name}.sql").write_text(text)


@dataclass
class SqlMesh:
    """SQLMesh: a project in a folder, and the Python that has it."""

    home: Path
    url: str
    python: str
    host: str
    name: str = "SQLMesh"
    computed: str = _PEER_COMPUTED

    def lay(self) -> None:
        """Write the project."""
        (self.home / "models").mkdir(parents=True)
        (self.home / "config.yaml").write_text(_PEER_CONFIG.format(host=self.host, start=START))
        (self.home / "models" / "trailing.sql").write_text(_PEER_TRAILING)

    def edit(self, over: int) -> None:
        """See `Side`."""
        (self.home / "models" / "delays.sql").write_text(_PEER_DELAYS.format(over=over))

    def correct(self, day: pendulum.Date) -> None:
        """See `Side`: as its documents say, by the range that was corrected."""
        self._plan("--restate-model", "air.delays", "--start", str(day), "--end", str(day))

    def first(self) -> None:
        """See `Side`."""
        self._plan()

    def try_out(self) -> None:
        """See `Side`."""
        self._plan("dev")

    def promote(self) -> None:
        """See `Side`."""
        self._plan()

    def go_back(self) -> None:
        """See `Side`."""
        self._plan()

    def _plan(self, *words: str) -> None:
        command = [str(Path(self.python).parent / "sqlmesh"), "plan", *words, "--auto-apply", "--no-prompts"]
        run(command, self.home, os.environ | {"SQLMESH__DISABLE_ANONYMIZED_ANALYTICS": "true", "NO_COLOR": "1"})


def run(command: list[str], home: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def flights_of(days: int, start: pendulum.Date = START) -> Iterator[Flight]:
    """Flights with a delay of so many days of 2013, by default from the first of March."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive, archive.open(_flights_in(archive)) as file:
        for row in csv.DictReader(io.TextIOWrapper(file)):
            day = pendulum.date(int(row["year"]), int(row["month"]), int(row["day"]))
            if start <= day < start.add(days=days) and row["dep_delay"] not in {"", "NA"}:
                yield str(day), row["origin"], row["carrier"], int(float(row["dep_delay"]))


def _flights_in(archive: zipfile.ZipFile) -> str:
    return next(name for name in archive.namelist() if name.endswith("flights.csv") and not name.startswith("__"))


def measure(side: Side, days: int) -> list[tuple[str, ...]]:
    """The scenarios: for each what it cost, what the reader saw, and how many rows are wrong afterwards."""
    figures: list[tuple[str, ...]] = []
    corrected = START.add(days=days // 2)

    def step(name: str, work: Callable[[], None], over: int) -> None:
        with psycopg.connect(side.url, autocommit=True) as connection:
            watched = Watched(side.url)
            reader = threading.Thread(target=watched.ask)
            reader.start()
            rows = computed(connection, side)
            (before,), began = connection.execute(_WRITTEN).fetchone() or (0,), time.perf_counter()
            work()
            seconds = time.perf_counter() - began
            (after,) = connection.execute(_WRITTEN).fetchone() or (0,)
            rows = computed(connection, side) - rows
            watched.over.set()
            reader.join()
            (wrong,) = connection.execute(_WRONG, {"over": over}).fetchone() or (0,)  # type: ignore[arg-type, unused-ignore]
        figures.append((
            name, side.name, f"{seconds:.0f}", f"{float(after - before) / 1e6:.1f}", f"{rows:,}",
            f"{watched.mixed} of {watched.answers}", str(wrong),
        ))  # fmt: skip
        print(*figures[-1], sep="; ", flush=True)

    def correct(day: pendulum.Date) -> None:
        with psycopg.connect(side.url, autocommit=True) as connection:
            connection.execute(
                "insert into truth.flights"
                " select day, origin, carrier, 10000 from truth.flights where day = %s limit 1",
                (day,),
            )
        side.correct(day)

    side.edit(NO_FILTER)
    step("first build", side.first, NO_FILTER)
    step("a day is corrected", lambda: correct(corrected), NO_FILTER)
    side.edit(FILTER)
    step("a filter is tried in an environment", side.try_out, NO_FILTER)
    step("it is promoted", side.promote, FILTER)
    step("another day is corrected", lambda: correct(corrected.add(days=1)), FILTER)
    side.edit(NO_FILTER)
    step("it is taken back", side.go_back, NO_FILTER)
    return figures


def computed(connection: psycopg.Connection, side: Side) -> int:
    """How many rows were computed so far; 0 before the first command has made the tables that say so."""
    try:
        row = connection.execute(side.computed).fetchone()  # type: ignore[arg-type, unused-ignore]
    except psycopg.errors.UndefinedTable:
        return 0
    assert row is not None
    return int(row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--peer-python", help="a Python that has SQLMesh already")
    parser.add_argument("--only", choices=["ours", "peer"], help="leave the other one out")
    given = parser.parse_args()
    flights, figures = list(flights_of(given.days)), list[tuple[str, ...]]()
    with home_of_its_own() as settings, tempfile.TemporaryDirectory(prefix="varve-peer-") as folder:
        server = PostgresServer(settings.home_dir)
        server.ensure_up()
        sides: list[Side] = []
        if given.only != "peer":
            ours = Varve(Path(folder) / "ours", server.url(CATALOG_DATABASE), START.add(days=given.days))
            ours.lay(flights)
            sides.append(ours)
        if given.only != "ours":
            python = given.peer_python or peer_python(Path(folder) / "peer-python")
            with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
                connection.execute("create database peer")
            peer = SqlMesh(Path(folder) / "peer", server.url("peer"), python, str(server.sockets))
            peer.lay()
            sides.append(peer)
        for side in sides:
            with psycopg.connect(side.url, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute("create schema truth")
                cursor.execute(_TRUTH)
                with cursor.copy("copy truth.flights from stdin") as copy:
                    for flight in flights:
                        copy.write_row(flight)
            figures += measure(side, given.days)
    show(figures, given.days)


def peer_python(home: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = str(home / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "sqlmesh[postgres]"], check=True)
    return python


def show(figures: list[tuple[str, ...]], days: int) -> None:
    """Print the table, the two sides of a step below each other."""
    title = f"{days} days of flights; load {os.getloadavg()[0]:.0f}"
    table = Table(
        "step",
        "of",
        "s",
        "MB of WAL",
        "rows computed",
        "mixed answers",
        "wrong rows",
        title=title,
        title_justify="left",
    )
    for name in dict.fromkeys(figure[0] for figure in figures):
        for figure in figures:
            if figure[0] == name:
                table.add_row(*figure)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
