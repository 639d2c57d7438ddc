"""The plan as of now, for commands that only read it.

Not here: launching anything (varve/dagster/automation/sensors.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pendulum

from varve.cli.context import chosen_graph, chosen_settings
from varve.dagster.automation.reconciling import limits_of, looked_up
from varve.dagster.instance import open_instance
from varve.planning.reconcile import reconcile
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from varve.catalog.planning.facts import CatalogFacts
    from varve.model.partitions.dimension import Members
    from varve.planning.reconcile import RunPlan


@dataclass(frozen=True)
class OpenPlan:
    """An open connection to the catalog with everything that a plan is made from."""

    connection: psycopg.Connection
    facts: CatalogFacts
    members: Members

    def plan(self) -> RunPlan:
        """Return the plan: every partition judged as of now."""
        now, limits = pendulum.now("UTC"), limits_of(chosen_settings())
        codes = self.facts.codes
        return reconcile(chosen_graph(), self.facts, now=now, members=self.members, limits=limits, codes=codes)


@contextmanager
def opened_plan() -> Iterator[OpenPlan]:
    """Open the catalog and Dagster's instance. Raises VarveError where they cannot be reached."""
    settings = chosen_settings()
    with connect(settings, application="varve plan") as connection, open_instance(settings) as instance:
        yield OpenPlan(connection, *looked_up(chosen_graph(), connection, instance, settings))
