"""One day of a year is corrected at the root of three levels: `python -m benchmarks.correction`.

    python -m benchmarks.correction [--days 364] [--copies 10] [--peer-python PYTHON]
                                    [--delta-python PYTHON --delta-jars JARS]
                                    [--only ours|sensors|sqlmesh|refresh|delta]

Delays by day, origin and carrier from real flights, each so many times (`--copies`); the trailing 7 and 28 days of
them; the worst of these in each week and each month. Ours has flights and delays in the lake, and the rest in the
warehouse; it is `varve correct`, and for comparison the file in the landing folder with what the sensors make of it.
Beside it, on the same PostgreSQL: SQLMesh as its documents say (the corrected day is restated), SQLMesh with the range
that a person has to know (28 days), and a full refresh as dbt makes it, a table after the other, without the time in
which dbt itself starts. With `--delta-python`, a Python with the libraries `pyspark` of a release that Delta Lake has
one for and `deltalake`, the same as MERGE statements in Spark too (delta_pipeline.py). Each is whole processes of its
command line.

A reader asks for months and trailing 28 days in one statement all the while: an answer is mixed where the one is not
the largest of the other; of Delta Lake's tables it asks one after the other, as they have no common state. Every row is
compared with what PostgreSQL computes from the flights.

What a correction reads is counted while nobody else reads: the day after the corrected one is corrected too, without a
clock. It is the pages of tables that PostgreSQL looked at, each as often as it did, and what Spark's tasks read from
files, by Spark's event log; what is looked up in a catalog (ours, SQLMesh's, PostgreSQL's own) does not count.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.commands import home_of_its_own
from benchmarks.correction_sides import MODELS, START, Delta, FullRefresh, Side, SqlMesh, Varve, whole
from benchmarks.environments_peer import flights_of, peer_python
from varve.services.postgres_server import CATALOG_DATABASE, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pendulum

    from benchmarks.environments_peer import Flight

_SIDES = ["ours", "sqlmesh", "refresh", "delta", "sensors"]
_FLIGHTS = "create table truth.flights (day date, origin text, carrier text, delay bigint)"


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    side: str
    first: float
    seconds: float
    rows: int
    partitions: int | None
    megabytes: float
    megabytes_read: float
    mixed: int
    answers: int
    wrong: int


def measure(side: Side, day: pendulum.Date, end: pendulum.Date) -> Figure:
    """Compute everything, correct the day, and compare all rows."""
    with psycopg.connect(side.url, autocommit=True) as connection:
        began = time.perf_counter()
        side.first()
        first = time.perf_counter() - began
        flights = corrected_flights(connection, day)
        before, reader = side.written(connection), side.reader()
        began = time.perf_counter()
        try:
            side.correct(day, flights)
            seconds = time.perf_counter() - began
        finally:
            answers, mixed = reader.stop()
        after = side.written(connection)
        side.compared(connection)
        wrong = wrong_rows(connection, end)
        next_day = day.add(days=1)
        flights, read_before = corrected_flights(connection, next_day), side.read(connection)
        side.correct(next_day, flights)
        read = (side.read(connection) - read_before).total()
    partitions = None if after.partitions is None else after.partitions - (before.partitions or 0)
    megabytes = (after.bytes - before.bytes) / 1e6
    return Figure(
        side.name, first, seconds, after.rows - before.rows, partitions, megabytes, read / 1e6, mixed, answers, wrong
    )  # fmt: skip


def corrected_flights(connection: psycopg.Connection, day: pendulum.Date) -> list[Flight]:
    """The flights of a day, with one more that was very late; it is in the truth from here on."""
    connection.execute("insert into truth.flights select day, origin, carrier, 10000 from truth.flights "
                       "where day = %s limit 1", (day,))  # fmt: skip
    return connection.execute(
        "select day::text, origin, carrier, delay from truth.flights where day = %s", (day,)
    ).fetchall()


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
    parser.add_argument("--delta-python", help="a Python with pyspark that Delta Lake has a release for, and deltalake")
    parser.add_argument("--delta-jars", default="", help="comma-separated jars of Delta Lake")
    parser.add_argument("--only", choices=_SIDES, action="append", help="leave the others out")
    given = parser.parse_args()
    flights = [flight for flight in flights_of(given.days, START) for _ in range(given.copies)]
    end, corrected = START.add(days=given.days), START.add(days=given.days // 2)
    figures: list[Figure] = []
    wanted = given.only or [side for side in _SIDES if side != "delta" or given.delta_python]
    # The sensors' side has a home and a server of its own, as one home has one catalog.
    for group in (["ours", "sqlmesh", "refresh", "delta"], ["sensors"]):
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
        for side in _sides(given, chosen, server, (Path(folder), Path(settings.lake)), flights):
            _fill(side.url, flights)
            figures.append(measure(side, corrected, end))
            print(figures[-1], flush=True)
    return figures


def _sides(
    given: argparse.Namespace, wanted: Sequence[str], server: PostgresServer, folders: tuple[Path, Path],
    flights: Sequence[Flight],
) -> Iterator[Side]:  # fmt: skip
    """Those that are to be compared, each with a database of its own; the folders are theirs, and our lake."""
    folder, lake = folders
    if own := {"ours", "sensors"} & set(wanted):
        by_sensors = own == {"sensors"}
        ours = Varve(
            server.url(CATALOG_DATABASE), "Varve, file and sensors" if by_sensors else "varve correct", folder / "ours",
            lake, START.add(days=given.days), by_sensors,
        )  # fmt: skip
        ours.lay(flights)
        yield ours
    if "sqlmesh" in wanted:
        python = given.peer_python or peer_python(folder / "peer-python")
        for database, widened, name in (("mesh", 0, "SQLMesh"), ("mesh_widened", 27, "SQLMesh, 28 days by hand")):
            peer = SqlMesh(_database(server, database), name, folder / database, python, widened)
            peer.lay(str(server.sockets), database)
            yield peer
    if "refresh" in wanted:
        yield FullRefresh(_database(server, "refresh"), "full refresh")
    if "delta" in wanted:
        delta = Delta(_database(server, "delta"), folder / "delta", given.delta_python, given.delta_jars)
        delta.lay(flights)
        yield delta


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
        # Whatever looks at it later is the side, and not the server tidying up.
        cursor.execute("vacuum (freeze, analyze) truth.flights")


def show(figures: Sequence[Figure], given: argparse.Namespace, rows: int) -> None:
    """Print the table; times as ratios to ours too."""
    title = f"{given.days} days, {rows:,} flights; load {os.getloadavg()[0]:.0f}"
    table = Table(
        "", "first build s", "correction s", "x ours", "partitions", "rows written", "MB written", "MB read",
        "mixed answers", "wrong rows", title=title, title_justify="left",
    )  # fmt: skip
    ours = next((figure.seconds for figure in figures if figure.partitions is not None), None)
    for figure in figures:
        table.add_row(
            figure.side, f"{figure.first:.0f}", f"{figure.seconds:.1f}",
            "" if ours is None else f"{figure.seconds / ours:.2f}",
            "" if figure.partitions is None else f"{figure.partitions:,}", f"{figure.rows:,}",
            f"{figure.megabytes:.1f}", f"{figure.megabytes_read:.1f}", f"{figure.mixed} of {figure.answers}",
            f"{figure.wrong:,}",
        )  # fmt: skip
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
