"""What the planner finds at this moment, for commands that only look.

Not here: launching anything (sensors.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pendulum

from pipeline_defs.cli.drive import open_instance
from pipeline_defs.definitions import graph
from pipeline_defs.planning.reconcile import reconcile
from pipeline_defs.reconciling import limits_of, looked_up
from resources.postgres import connect
from resources.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from pipeline_defs.model.dimension import Members
    from pipeline_defs.planning.reconcile import Plan
    from resources.planning import CatalogFacts


@dataclass(frozen=True)
class Looking:
    """An open catalog with everything a plan is made from."""

    connection: psycopg.Connection
    facts: CatalogFacts
    members: Members

    def plan(self) -> Plan:
        """Every partition judged as of now."""
        now, limits = pendulum.now("UTC"), limits_of(Settings())
        return reconcile(graph, self.facts, now=now, members=self.members, limits=limits)


@contextmanager
def looking() -> Iterator[Looking]:
    """Open the catalog and Dagster's records. Raises VarveError where they cannot be reached."""
    settings = Settings()
    with connect(settings, application="varve plan") as connection, open_instance(settings) as instance:
        yield Looking(connection, *looked_up(graph, connection, instance))
