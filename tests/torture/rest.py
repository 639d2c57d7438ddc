"""What must hold when a torture is brought to rest: rows of model and source, a clean doctor, nothing in flight.

Not here: the model (model.py).
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from tests.torture.operations import json_of
from tests.torture.readers import COLUMNS, attempts, captured_rows, day_of, lake_folders, rows_in, view_rows
from tests.torture.serving import served
from varve.services.postgres_server import DAGSTER_DATABASE

if TYPE_CHECKING:
    import datetime as dt

    from tests.torture.model import Shown
    from tests.torture.operations import Operations

REST_SECONDS = 240
QUEUE_SECONDS = 90
TABLES = ("accounts", "wallets")
_IN_FLIGHT = (
    "select dataset || ' ' || partition || ' of run ' || left(run_id, 8) || ': ' || state from varve.batch "
    "where state in ('building', 'staged')"
)
_UNFINISHED = "select run_id || ': ' || status from runs where status not in ('SUCCESS', 'FAILURE', 'CANCELED')"


def rest(operations: Operations, *, after_kills: bool, deep: bool) -> list[str]:
    """Bring everything to rest, and return what does not hold."""
    project, model = operations.project, operations.model
    problems: list[str] = []
    ended = project.run("up")
    if ended.code != 0:
        return [f"varve up ended with {ended.code}: {ended.output[-2_000:]}"]
    for _ in attempts(REST_SECONDS):
        problems = []
        deployed, done = operations.deploy(), project.run("due")
        if deployed.code != 0 or done.code != 0:
            problems.append(f"what is due fails: {deployed.output[-1_500:]} {done.output[-1_500:]}")
            operations.note(problems[0])
            continue
        with closing(psycopg.connect(operations.readers.url, autocommit=True)) as connection:
            now = current(connection)
            problems += model.problems_at_rest(now)
            problems += [f"in flight for ever: {row[0]}" for row in connection.execute(_IN_FLIGHT).fetchall()]
        # A run that died is declared dead by the second look at its lease, and each `due` is one.
        problems += (unfinished := unfinished_runs(operations))
        if any(each.endswith("QUEUED") for each in unfinished):
            await_queue(operations)
        if not problems:
            model.at_rest(now)
            break
        operations.note(f"not at rest yet: {problems[0][:300]}")
    problems += [problem for table in TABLES for problem in captured(operations, table)]
    for environment in json_of(project.run("env", "list", "--json")):
        project.run("env", "drop", environment["name"])
    with operations.readers.paused():
        swept = project.run("sweep", "--older-than", "45s", "--orphans-older-than", "0")
    if swept.code != 0:
        problems.append(f"the sweep ended with {swept.code}: {swept.output[-2_000:]}")
    return problems + examined(operations, after_kills=after_kills, deep=deep)


def current(connection: psycopg.Connection[Any]) -> dict[str, dict[dt.date, Shown]]:
    """What is current, of all datasets."""
    found: dict[str, dict[dt.date, Shown]] = {}
    for dataset, columns in COLUMNS.items():
        folders = lake_folders(connection, f"shop.{dataset}")
        found[dataset] = {day_of(path): rows_in(folder, columns) for path, folder in folders.items()}
    try:
        return found | view_rows(connection)
    except psycopg.errors.UndefinedTable:
        return found | {"totals": {}, "trailing": {}}


def captured(operations: Operations, table: str) -> list[str]:
    """What differs between a table of the application and its dataset, once everything was captured."""
    ended = operations.capture({"table": table})
    if ended.code != 0:
        return [f"capture of {table} ended with {ended.code}: {ended.output[-2_000:]}"]
    with operations.source() as source, closing(psycopg.connect(operations.readers.url)) as connection:
        query = sql.SQL("select id, amount, note from {table}").format(table=sql.Identifier(table))
        wanted, found = source.execute(query).fetchall(), captured_rows(connection, f"bank.{table}")
    lost = sorted(set(map(repr, wanted)) - set(map(repr, found)))
    made_up = sorted(set(map(repr, found)) - set(map(repr, wanted)))
    if lost or made_up or len(wanted) != len(found):
        return [f"{table}: {len(wanted)} rows at the source, {len(found)} in the lake; lost {lost}, made up {made_up}"]
    return []


def examined(operations: Operations, *, after_kills: bool, deep: bool) -> list[str]:
    """What the doctor finds; `varve repair` may mend what a death has left, and nothing else."""
    words = ("doctor", "--json", *(["--deep"] if deep else []))
    found = findings(operations, *words)
    if not found:
        return []
    if not after_kills:
        return [f"nothing was killed, and the doctor says: {finding}" for finding in found]
    repaired = operations.project.run("repair")
    return [f"the doctor says after repair ({repaired.code}): {each}" for each in findings(operations, *words)]


def findings(operations: Operations, *words: str) -> list[str]:
    """The doctor's findings as texts."""
    ended = operations.project.run(*words)
    try:
        return [str(finding) for finding in json_of(ended)["findings"]]
    except ValueError:
        return [f"it ended with {ended.code}: {ended.output[-2_000:]}"]


def unfinished_runs(operations: Operations) -> list[str]:
    """Dagster's runs that nobody will ever end."""
    with closing(psycopg.connect(operations.project.server.url(DAGSTER_DATABASE))) as connection:
        return [f"Dagster calls a run unfinished, {row[0]}" for row in connection.execute(_UNFINISHED).fetchall()]


def await_queue(operations: Operations) -> None:
    """Let a daemon start what another one has left in the queue."""
    with served(operations.project, ending="SIGTERM"):
        for _ in attempts(QUEUE_SECONDS):
            if not any(each.endswith(("QUEUED", "STARTING", "STARTED")) for each in unfinished_runs(operations)):
                return
