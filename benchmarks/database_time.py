"""How long PostgreSQL was asked something while a piece of code ran, as the code itself waited for it.

Not here: what is measured (the benchmarks).
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class DatabaseTime:
    """The statements of one piece of code.

    Attributes:
        seconds: from each statement's start until all of its rows were here, for all of them together.
        by_statement: the same by the text of the statement.
        processor: processor seconds of the server's processes meanwhile. They count where others use the machine too:
            the seconds above include the wait for a core, and then for each statement anew.
        wall: seconds that the code took as a whole.
    """

    seconds: float = 0.0
    statements: int = 0
    by_statement: dict[str, float] = field(default_factory=dict)
    processor: float = 0.0
    wall: float = 0.0

    def slowest(self, count: int = 3) -> list[tuple[float, str]]:
        """The statements that took longest, with their seconds; the same text counts as one."""
        texts = sorted(((seconds, text) for text, seconds in self.by_statement.items()), reverse=True)
        return [(seconds, " ".join(text.split())) for seconds, text in texts[:count]]


@contextmanager
def database_time(server_pid: int) -> Iterator[DatabaseTime]:
    """Time every statement that this process executes meanwhile, over whichever connection, and the server itself."""
    before = _processor_seconds(server_pid)
    measured, execute, began = DatabaseTime(), psycopg.Cursor.execute, time.perf_counter()

    def timed(cursor: psycopg.Cursor[Any], query: Any, *arguments: Any, **named: Any) -> psycopg.Cursor[Any]:
        start = time.perf_counter()
        try:
            return execute(cursor, query, *arguments, **named)
        finally:
            seconds = time.perf_counter() - start
            text = query.as_string(cursor) if isinstance(query, sql.Composable) else str(query)
            measured.seconds += seconds
            measured.statements += 1
            measured.by_statement[text] = measured.by_statement.get(text, 0.0) + seconds

    psycopg.Cursor.execute = timed  # type: ignore[method-assign, assignment]
    try:
        yield measured
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]
        measured.wall = time.perf_counter() - began
        measured.processor = _processor_seconds(server_pid) - before


def _processor_seconds(server_pid: int) -> float:
    """What all processes of the server have used, those that have ended too; to a hundredth of a second each."""
    server = psutil.Process(server_pid)
    ended = server.cpu_times()
    seconds = float(ended.children_user + ended.children_system)
    for process in server.children():
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds
