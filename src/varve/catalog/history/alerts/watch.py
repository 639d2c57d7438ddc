"""Whose view counts where machines differ: in their disks, in whether they reach the lake and the sources.

What one machine sees, another one may not, so that each would close what the other has opened. The sensor's view counts
wherever it runs; where none looks, that of the machine whose command came first, as long as it goes on.

Not here: what is looked at (varve/dagster/automation/alerting.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

# No machine has this name.
SENSOR = "the sensor"
# A machine that does not look for so long leaves it to the next one that does.
MACHINE_SECONDS = 3_600.0

# All times are of the server's clock: those of the machines may differ.
_TAKE = """
    insert into varve.alert_watch as w (project, watcher, until)
    values (%(project)s, %(watcher)s, clock_timestamp() + make_interval(secs => %(seconds)s))
    on conflict (project) do update set watcher = excluded.watcher, until = excluded.until
    where w.watcher = excluded.watcher or w.until <= clock_timestamp() or excluded.watcher = %(sensor)s
"""
_WATCHER = "select watcher from varve.alert_watch where project = %s"


@dataclass(frozen=True)
class Watch:
    """The watch of a project, over a connection to the catalog in autocommit mode."""

    connection: psycopg.Connection
    project: str = ""

    def take(self, watcher: str, seconds: float) -> str:
        """Take the watch for so many seconds, or longer where it is taken again before; the sensor gets it always.

        Returns who has it: the watcher, or another one that has looked of late.
        """
        values = {"project": self.project, "watcher": watcher, "seconds": seconds, "sensor": SENSOR}
        self.connection.execute(_TAKE, values)
        row = self.connection.execute(_WATCHER, (self.project,)).fetchone()
        assert row is not None, "it was there, or was made"
        return str(row[0])
