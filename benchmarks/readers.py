"""Readers of a view or a table while somebody publishes: eight processes that check every answer and time it.

Not here: publishers (publish.py).
"""

from __future__ import annotations

import multiprocessing
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Event

LONG_SECONDS = 20
# How long before it looks at the view a REPEATABLE READ reader has taken its snapshot.
_SNAPSHOT_AGE = 0.3
_BETWEEN_LONG_READS = 1.0


@dataclass(frozen=True)
class Target:
    """What is read: `relation` has columns period, batch and value; each period `rows` rows of one batch."""

    url: str
    relation: str
    periods: int
    rows: int


@dataclass
class Reads:
    """What a reader saw: seconds of each read, wrong answers, errors in words."""

    kind: str
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


KINDS = ("simple", "simple", "prepared", "prepared", "one period", "one period", "repeatable read", "long")


@contextmanager
def reading(target: Target, *, long_seconds: float = LONG_SECONDS) -> Iterator[list[Reads]]:
    """Read with one process of each kind until the block ends; then the list holds what they saw."""
    context = multiprocessing.get_context("spawn")
    stop, told = context.Event(), context.Queue()
    ready = context.Semaphore(0)
    arguments = (target, long_seconds, stop, ready, told)
    processes = [context.Process(target=_read, args=(kind, *arguments), daemon=True) for kind in KINDS]
    found: list[Reads] = []
    for process in processes:
        process.start()
    try:
        for _ in processes:
            assert ready.acquire(timeout=120), "a reader did not start"
        yield found
    finally:
        stop.set()
        found.extend(told.get(timeout=long_seconds + 60) for _ in processes)
        for process in processes:
            process.join(30)


def _read(kind: str, target: Target, long_seconds: float, stop: Event, ready: Any, told: Any) -> None:  # noqa: PLR0917
    reads = Reads(kind)
    ready.release()
    while not stop.is_set():
        try:
            with psycopg.connect(target.url, autocommit=True, application_name=f"reader: {kind}") as connection:
                while not stop.is_set():
                    _once(connection, target, reads, long_seconds, stop)
        except psycopg.Error as error:
            reads.errors.append(f"{error.sqlstate} {str(error).splitlines()[0]}")
    told.put(reads)


def _once(connection: psycopg.Connection, target: Target, reads: Reads, long_seconds: float, stop: Event) -> None:
    where, prepare = b"", reads.kind == "prepared"
    wanted = {str(number) for number in range(target.periods)}
    if reads.kind == "one period":
        wanted = {str(len(reads.seconds) % target.periods)}
        where = f" where period = '{min(wanted)}'".encode()
    query = (
        b"select period, count(*), min(batch), max(batch), sum(value) from "
        + target.relation.encode() + where + b" group by period"
    )  # fmt: skip
    if reads.kind == "repeatable read":
        connection.execute("begin isolation level repeatable read")
        connection.execute("select 1")
        stop.wait(_SNAPSHOT_AGE)
    elif reads.kind == "long":
        connection.execute("begin")
    started = time.monotonic()
    rows = connection.execute(query, prepare=prepare or None).fetchall()
    reads.seconds.append(time.monotonic() - started)
    if reads.kind == "long":
        stop.wait(long_seconds)
    if reads.kind in {"repeatable read", "long"}:
        connection.execute("commit")
    if reads.kind == "long":
        # Were it back at once, nobody who changes a view or a table would ever find it free.
        stop.wait(_BETWEEN_LONG_READS)
    if problem := _problem(rows, wanted, target.rows):
        reads.wrong.append(problem)


def _problem(rows: list[tuple[Any, ...]], wanted: set[str], count: int) -> str:
    """What is wrong with an answer; empty where nothing is. The values of a batch are its id, so sums are known."""
    if missing := wanted - {row[0] for row in rows}:
        return f"period {min(missing)} is missing"
    for period, found, low, high, total in rows:
        if low != high:
            return f"period {period} shows batches {low} and {high}"
        if found != count or total != low * count:
            return f"period {period} shows {found} of {count} rows"
    return ""
