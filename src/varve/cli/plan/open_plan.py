"""The plan as of now, for commands that only read it.

Not here: launching anything (varve/dagster/automation/sensors.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pendulum
import psycopg

from varve.cli.context import chosen_graph, chosen_settings
from varve.dagster.automation.looking_up import facts_and_members
from varve.dagster.automation.planner_facts import limits_of
from varve.model.errors import VarveError
from varve.planning.operations.one_partition import judged_with_inputs
from varve.planning.reconcile import overview, reconcile
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
        """Return the plan as of now, with the state of every partition; what is settled has no reason of its own.

        A dataset that cannot be planned is among the `failed` ones of the plan, and keeps no other from being shown.
        """
        return overview(
            chosen_graph(), self.facts, now=pendulum.now("UTC"), members=self.members,
            limits=limits_of(chosen_settings()), codes=self.facts.codes, fatal=(psycopg.Error,),
        )  # fmt: skip

    def plan(self) -> RunPlan:
        """Return the plan as of now: every partition judged, each with its reason; failed datasets as in `overview`."""
        return reconcile(
            chosen_graph(), self.facts, now=pendulum.now("UTC"), members=self.members,
            limits=limits_of(chosen_settings()), codes=self.facts.codes, fatal=(psycopg.Error,),
        )  # fmt: skip

    def judgements(self, dataset: Dataset) -> Mapping[str, Judgement]:
        """Return those judgements of one dataset, by path. Raises VarveError where it cannot be planned."""
        plan = self.plan()
        refuse_unplanned(plan, dataset.name)
        return plan.judgements[dataset.name]

    def judged(self, dataset: Dataset, path: str) -> Mapping[str, Mapping[str, Judgement]]:
        """Return the judgements as of now of one partition and of all that it is made from, by dataset and path."""
        return judged_with_inputs(
            chosen_graph(), self.facts, dataset, path,
            now=pendulum.now("UTC"), members=self.members, limits=limits_of(chosen_settings()), codes=self.facts.codes,
        )  # fmt: skip


def refuse_unplanned(plan: RunPlan, dataset: str) -> None:
    """Raise VarveError where a dataset could not be planned: nothing is known of its partitions."""
    if (reason := plan.failed.get(dataset)) is not None:
        raise VarveError(f"{dataset} cannot be planned: {reason.removeprefix(f'{dataset}: ')}")


@contextmanager
def opened_plan() -> Iterator[OpenPlan]:
    """Open the catalog and Dagster's storage. Raises VarveError where they cannot be reached."""
    settings = chosen_settings()
    with connect(settings, application="varve plan") as connection:
        yield OpenPlan(connection, *facts_and_members(chosen_graph(), connection, settings))
