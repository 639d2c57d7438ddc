"""Processor seconds of a step in this process and in PostgreSQL, which others on the machine do not lengthen."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spent:
    """Seconds: on the wall, of this process's processor time, and of that of the connection's PostgreSQL process."""

    wall: float
    client: float
    server: float

    @classmethod
    def so_far(cls, connection: psycopg.Connection) -> Spent:
        """All until now; the difference of two is what a step took."""
        stat = Path(f"/proc/{connection.info.backend_pid}/stat").read_text().rpartition(")")[2].split()
        return cls(time.perf_counter(), time.process_time(), (int(stat[11]) + int(stat[12])) / _TICKS)

    def __sub__(self, before: Spent) -> Spent:
        return Spent(self.wall - before.wall, self.client - before.client, self.server - before.server)

    @property
    def processor(self) -> float:
        """Processor seconds of both."""
        return self.client + self.server
