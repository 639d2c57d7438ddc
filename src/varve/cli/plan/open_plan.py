"""The plan as of now, for commands that only read it.

Not here: launching anything (varve/dagster/automation/sensors.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pendulum

from varve.cli.context import chosen_graph, chosen_settings
from varve.dagster.automation.looking_up import facts_and_members
from varve.dagster.automation.planner_facts import limits_of
from varve.planning.operations.one_partition import judged_with_inputs
from varve.planning.reconcile import overview, reconcile
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg

    from varve.catalog.planning.facts import CatalogFacts
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.planning.judgement.judgement import Judgement
    from varve.planning.reconcile import RunPlan


@dataclass(frozen=True)
class OpenPlan:
    """An open connection to the catalog with everything that a plan is made from."""

    connection: psycopg.Connection
    facts: CatalogFacts
    members: Members

    def overview(self) -> RunPlan:
        """Return the plan as of now, with the state of every partition; what is settled has no reason of its own."""
        return overview(
            chosen_graph(), self.facts,
            now=pendulum.now("UTC"), members=self.members, limits=limits_of(chosen_settings()), codes=self.facts.codes,
        )  # fmt: skip

    def plan(self) -> RunPlan:
        """Return the plan as of now: every partition judged, each with its reason."""
        return reconcile(
            chosen_graph(), self.facts,
            now=pendulum.now("UTC"), members=self.members, limits=limits_of(chosen_settings()), codes=self.facts.codes,
        )  # fmt: skip

    def judged(self, dataset: Dataset, path: str) -> Mapping[str, Mapping[str, Judgement]]:
        """Return the judgements as of now of one partition and of all that it is made from, by dataset and path."""
        return judged_with_inputs(
            chosen_graph(), self.facts, dataset, path,
            now=pendulum.now("UTC"), members=self.members, limits=limits_of(chosen_settings()), codes=self.facts.codes,
        )  # fmt: skip


@contextmanager
def opened_plan() -> Iterator[OpenPlan]:
    """Open the catalog and Dagster's storage. Raises VarveError where they cannot be reached."""
    settings = chosen_settings()
    with connect(settings, application="varve plan") as connection:
        yield OpenPlan(connection, *facts_and_members(chosen_graph(), connection, settings))
