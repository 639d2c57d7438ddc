"""What each command asks of a large catalog, and how long PostgreSQL takes: `python -m benchmarks.catalog_scale`.

    python -m benchmarks.catalog_scale [--datasets 5000] [--partitions 1000000] [--rounds 10] [--large 100000]

The commands' own functions run over a catalog that `large_catalog` makes, of 10 million batches where nothing else is
said; that takes a quarter of an hour and 8 GB of disk, and `--home FOLDER` keeps it for the next time. Their datasets
are declared here, and not read from 5,000 files. The stores are empty: what is measured is the catalog. The
partition that is named is one of the largest dataset. Each runs twice, and the second time counts, as `--times 2` says.

Goals, in processor seconds of the server: 0.2 for what names a partition, 0.1 for a tick after one publish. `--slow 3`
also prints the three slowest statements of what misses its goal.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import io
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from benchmarks.commands import home_of_its_own
from benchmarks.database_time import database_time
from benchmarks.large_catalog import CatalogSize, fill, graph_of
from varve.catalog.catalog import Catalog
from varve.catalog.planning.facts import CatalogFacts, Changes, living
from varve.cli.batches import doctor, history, pins, rollback, sweep
from varve.cli.observe import costs
from varve.cli.plan import show as show_command
from varve.cli.plan import why
from varve.cli.servers import services
from varve.dagster.automation import report
from varve.dagster.discovery import LoadedProject
from varve.dagster.instance import open_instance
from varve.observe.cost_statements import CostsBy
from varve.planning.reconcile import Limits, Planner
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.services.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from benchmarks.database_time import DatabaseTime
    from varve.planning.graph import Graph

NAMED, TICK = 0.2, 0.1
_USUAL = CatalogSize()
_PUBLISHED_AGAIN = """
    with again as (
        insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, rows, bytes, inputs,
            published_at)
        select dataset, partition, %s, 'published', 'benchmark', code_version, rows, bytes, inputs, clock_timestamp()
        from varve.batch where (dataset, partition) = (%s, %s) and state = 'published' returning *
    )
    update varve.current c set batch_id = a.batch_id from again a
    where (c.dataset, c.partition) = (a.dataset, a.partition)
"""
_UNPUBLISHED = """
    with gone as (delete from varve.batch where dataset = %s and batch_id = %s returning dataset, partition)
    update varve.current c set batch_id = %s from gone g where (c.dataset, c.partition) = (g.dataset, g.partition)
"""


@dataclass(frozen=True)
class Asked:
    """A command, and the most seconds that the database may take for it; None: there is no goal.

    Attributes:
        before: what has to be done before each time, and is not measured.
    """

    name: str
    run: Callable[[], object]
    goal: float | None = None
    before: Callable[[], object] = lambda: None


class NoFiles:
    """A store in which nothing lies, for what a command asks of the catalog alone."""

    def leftovers(self) -> list[Any]:
        """Nothing."""
        return []

    def examine(self, *_: object, **__: object) -> list[Any]:
        """Nothing."""
        return []

    def name_publishes(self, *_: object) -> None:
        """Nothing."""


def main() -> None:
    """Fill a catalog where there is none yet, ask it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=_USUAL.datasets)
    parser.add_argument("--partitions", type=int, default=_USUAL.partitions)
    parser.add_argument("--rounds", type=int, default=_USUAL.rounds, help="batches of each partition")
    parser.add_argument("--large", type=int, default=_USUAL.large, help="partitions of the largest dataset")
    parser.add_argument("--home", type=Path, help="a folder of services that stays, with its catalog")
    parser.add_argument("--only", nargs="*", default=("",), help="beginnings of commands")
    parser.add_argument("--times", type=int, default=2, help="how often each runs; the last time counts")
    parser.add_argument("--slow", type=int, default=0, help="print so many slow statements of what misses its goal")
    given = parser.parse_args()
    try:
        size = CatalogSize(given.datasets, given.partitions, given.rounds, given.large)
    except ValueError as error:
        parser.error(str(error))
    console = Console(width=120)
    with _home(given.home) as settings, connect(settings, application="varve benchmark") as connection:
        graph = graph_of(size)
        start = time.monotonic()
        if not _is_filled(connection):
            fill(connection, graph, size, lambda step: console.print(f"{time.monotonic() - start:6.0f} s: {step}"))
        with _commands_over(graph):
            every = asked(connection, settings, graph, size)
            commands = [each for each in every if each.name.startswith(tuple(given.only))]
            show(console, connection, commands, given, server_pid(settings))


def asked(connection: psycopg.Connection, settings: Settings, graph: Graph, size: CatalogSize) -> list[Asked]:
    """The commands, each over a partition of the largest dataset or over everything."""
    reader = list(graph.datasets)[size.width]
    at = size.large // 2
    path = next(iter(list(graph.datasets[reader].partitioning.keys())[at : at + 1])).path
    words = [path]
    batches = _batches_of(connection, reader, path)
    earlier, run = batches[1][0], batches[0][1]
    before = dt.datetime.fromtimestamp(batches[0][0] / 1_000 - 1, dt.UTC)
    week, quiet = dt.timedelta(days=7), Console(file=io.StringIO())

    tick = TickAfterPublish(connection, graph, size, path)

    def pin() -> object:
        return pins.pin(reader, words, batch=None, owner="b", reason="b", expires_at=None)

    return [
        Asked("why", lambda: why.why(reader, words), NAMED),
        Asked("history", lambda: history.history(reader, words, run=None, limit=50), NAMED),
        Asked("history --changes", lambda: history.changes(reader, words, run=None, limit=50), NAMED),
        Asked("show", lambda: show_command.show(quiet, reader, words, as_json=False), NAMED),
        Asked("rollback --to --dry-run", lambda: rollback.plan_batch(reader, words, earlier), NAMED),
        Asked("rollback --at --dry-run", lambda: rollback.plan_time(reader, words, before), NAMED),
        Asked("rollback --run --dry-run", lambda: rollback.plan_run(run, None), NAMED),
        Asked("pin", pin, NAMED),
        Asked("unpin", lambda: pins.unpin(reader, words, batch=None, owner="b"), NAMED, before=pin),
        Asked("tick after one publish", tick, TICK, before=tick.publish),
        Asked("status", services.status),
        Asked("report", lambda: _report(graph, settings)),
        Asked("sweep --dry-run", lambda: sweep.sweep(
            dataset=None, older_than=week, keep_last=1, orphans_older_than=week, dry_run=True)),
        Asked("costs", lambda: costs.costs(None, by=CostsBy.DATASET, since=None)),
        Asked("costs of one dataset", lambda: costs.costs(reader, by=CostsBy.DATASET, since=None)),
        Asked("costs --by run --since 31d", lambda: costs.costs(None, by=CostsBy.RUN, since="31d")),
        Asked("doctor", lambda: doctor.doctor(None)),
        Asked("doctor of one dataset", lambda: doctor.doctor(reader)),
    ]  # fmt: skip


class TickAfterPublish:
    """A planner that has judged everything, and one publish of the largest dataset that it has not seen."""

    def __init__(self, connection: psycopg.Connection, graph: Graph, size: CatalogSize, path: str) -> None:
        self._connection, self._size, self._path = connection, size, path
        self._root = next(iter(graph.datasets))
        self._planner, self._changes = Planner(graph, Limits()), Changes()
        self._published: tuple[int, int] | None = None

    def publish(self) -> None:
        """Publish the partition again, after a look at everything, or after the publish before was taken back."""
        if self._published is None:
            self.look()
        else:
            self._connection.execute(_UNPUBLISHED, (self._root, *self._published))
            self.look()
        (current, _), *_ = _batches_of(self._connection, self._root, self._path)
        self._published = current + 1, current
        self._connection.execute(_PUBLISHED_AGAIN, (current + 1, self._root, self._path))

    def __call__(self) -> None:
        """The tick that sees the publish."""
        assert self.look(), "what reads the new batch is due"

    def look(self) -> int:
        """One tick; returns how many runs are due."""
        in_flight = living(self._connection)
        changed = self._changes.since_last(self._connection, in_flight)
        facts = CatalogFacts(self._connection, in_flight)
        return len(self._planner.tick(facts, changed, now=self._size.now).runs)


def show(
    console: Console, connection: psycopg.Connection, commands: list[Asked], given: argparse.Namespace, pid: int
) -> None:
    """Run each command so many times, and print the last time as a row."""
    row = connection.execute(
        "select (select count(*) from varve.dataset), (select count(*) from varve.current), "
        "(select count(*) from varve.batch), pg_size_pretty(pg_database_size(current_database()))"
    ).fetchone()
    assert row is not None
    title = "{:,} datasets, {:,} partitions, {:,} batches, {}".format(*row)
    table = Table(
        "command",
        "server, processor s",
        "waited, s",
        "statements",
        "in all, s",
        "goal",
        "",
        title=title,
        title_justify="left",
    )
    for command in commands:
        measured = _measured(command, given.times, pid)
        missed = command.goal is not None and measured.processor > command.goal
        table.add_row(
            command.name, f"{measured.processor:.2f}", f"{measured.seconds:.3f}", f"{measured.statements:,}",
            f"{measured.wall:.2f}",
            "" if command.goal is None else f"{command.goal:g}", "missed" if missed else "",
        )  # fmt: skip
        console.print(f"{command.name}: {measured.processor:.2f} s of the server, {measured.seconds:.3f} s waited")
        if given.slow and (missed or (command.goal is None and measured.seconds > 1)):
            for seconds, text in measured.slowest(given.slow):
                console.print(f"{command.name}: {seconds:.3f} s: {text}", markup=False, highlight=False)
    console.print(table)


def _measured(command: Asked, times: int, pid: int) -> DatabaseTime:
    for _ in range(times):
        command.before()
        with database_time(pid) as measured:
            command.run()
    return measured


def server_pid(settings: Settings) -> int:
    """The process of the embedded server from which all others of it come."""
    pid = PostgresServer(settings.home_dir).pid()
    assert pid is not None
    return pid


def _report(graph: Graph, settings: Settings) -> str:
    with open_instance(settings) as instance:
        plan, _ = report.look(graph, instance, settings)
    return report.picture(graph, plan)


def _batches_of(connection: psycopg.Connection, dataset: str, path: str) -> list[tuple[int, str]]:
    """The published batches of a partition and their runs, the newest first."""
    statement = """
        select batch_id, run_id from varve.batch where (dataset, partition) = (%s, %s) and published_at is not null
        order by batch_id desc
    """
    return connection.execute(statement, (dataset, path)).fetchall()


def _is_filled(connection: psycopg.Connection) -> bool:
    Catalog(connection).ensure_schema()
    return connection.execute("select from varve.dataset limit 1").rowcount > 0


@contextlib.contextmanager
def _home(folder: Path | None) -> Iterator[Settings]:
    if folder is None:
        with home_of_its_own() as settings:
            yield settings
        return
    folder.mkdir(exist_ok=True, parents=True)
    folder.chmod(0o755)
    os.environ["VARVE_HOME"] = str(folder)
    settings = Settings()
    try:
        yield settings
    finally:
        PostgresServer(settings.home_dir).stop()


@contextlib.contextmanager
def _commands_over(graph: Graph) -> Iterator[None]:
    """Let the commands work on this graph, and on stores without files."""
    modules = (doctor, sweep, rollback)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            patch("varve.dagster.discovery.load_project", lambda project: LoadedProject(project, (), graph))
        )
        for module in modules:
            stack.enter_context(patch.object(module, "open_store", lambda *_: NoFiles()))
        yield


if __name__ == "__main__":
    main()
