"""The two sensors: files that arrived, and everything else. Thin: they ask for the runs that the planner finds due.

Both compare what is with what should be, so that nothing is forgotten when a tick, a run or the daemon dies: a tick
keeps nothing that the next one could not find again in the catalog and in Dagster's runs.

Not here: what is due (planning/), where its facts are looked up (reconciling.py), what arrived (arriving.py), and what
Dagster accepts (requesting.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg
import pendulum

from varve.catalog.rejected import LeftOut, RejectedArrivals
from varve.dagster.automation.arriving import ArrivalLook, cursor_of
from varve.dagster.automation.folding import to_fold
from varve.dagster.automation.reconciling import Reconciler, ended_runs
from varve.dagster.automation.requesting import DATASET_TAG, REASON_TAG, STORE_TAG, accepted, asset_key, run_request
from varve.dagster.partitions.sets_sensor import sets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset
    from varve.planning.graph import Graph
    from varve.planning.reconcile import RunPlan
    from varve.planning.run_requests import Run
    from varve.project import Project
    from varve.services.settings import Settings

# One place to import what runs are asked for by.
__all__ = ["DATASET_TAG", "REASON_TAG", "STORE_TAG", "arrival_sensor", "asset_key", "downstream_sensor", "run_request"]

# Sensors are off until a person switches them on, but where the definitions are there for nothing else.
_STATUS = {False: dg.DefaultSensorStatus.STOPPED, True: dg.DefaultSensorStatus.RUNNING}


def arrival_sensor(
    graph: Graph, project: Project, interval_seconds: int = 5, *, on: bool = False
) -> dg.SensorDefinition:
    """Asks for a run of every partition whose landing file is new or has other content than its batch was made from."""
    sources = [dataset for dataset in graph.in_order() if dataset.arrives]
    reconciler = Reconciler(graph, project)

    @dg.sensor(
        name="arrivals",
        asset_selection=dg.AssetSelection.assets(*[asset_key(dataset) for dataset in sources]),
        minimum_interval_seconds=interval_seconds,
        default_status=_STATUS[on],
        description="Files that arrived, or arrived again with other content, run their partitions.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        def look(catalog: Catalog, settings: Settings) -> tuple[str, list[LeftOut]]:
            members = sets_of(context.instance, graph).members()
            looking = ArrivalLook(catalog, settings, members, context.log, cursor_of(context.cursor))
            return looking.at(sources), looking.left_out

        def ask(catalog: Catalog, plan: RunPlan, seen: tuple[str, list[LeftOut]]) -> dg.SensorResult:
            cursor, left_out = seen
            folds = [
                run
                for dataset in sources
                for run in to_fold(
                    catalog.connection, dataset, graph.code_versions.get(dataset.name, ""),
                    plan.judgements.get(dataset.name, {}), pendulum.now("UTC").timestamp(),
                )
            ]  # fmt: skip
            asking = Asking("arrivals", catalog, left_out, folds)
            requests = _requests(plan, sources, context, reconciler, asking)
            return dg.SensorResult(run_requests=requests, cursor=cursor)

        return reconciler.look(context.instance, "arrivals", look, ask)

    return evaluate


def downstream_sensor(
    graph: Graph, project: Project, interval_seconds: int = 5, *, on: bool = False
) -> dg.SensorDefinition:
    """Asks for a run of every partition that comes from no file and is due: missing, stale, dirty, to be refreshed."""
    readers = [dataset for dataset in graph.in_order() if not (dataset.arrives or dataset.rejected_of)]
    reconciler = Reconciler(graph, project)

    @dg.sensor(
        name="downstream",
        asset_selection=dg.AssetSelection.assets(*[asset_key(dataset) for dataset in readers]),
        minimum_interval_seconds=interval_seconds,
        default_status=_STATUS[on],
        description="Partitions whose inputs all exist run; those whose inputs were published anew run again.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        def ask(catalog: Catalog, plan: RunPlan, seen: None) -> dg.SensorResult | dg.SkipReason:
            del seen
            if requests := _requests(plan, readers, context, reconciler, Asking("downstream", catalog)):
                return dg.SensorResult(run_requests=requests)
            return dg.SkipReason("Every partition whose inputs exist is current, in flight or given up.")

        return reconciler.look(context.instance, "downstream", lambda *_: None, ask)

    return evaluate


@dataclass
class Asking:
    """What a tick of a sensor notes beside its requests: what cannot be asked for, looked at or judged.

    Attributes:
        more: runs that it asks for although nothing is due: the same rows otherwise.
    """

    sensor: str
    catalog: Catalog
    left_out: list[LeftOut] = field(default_factory=list)
    more: Sequence[Run] = ()

    def note(self, context: dg.SensorEvaluationContext) -> None:
        """Into the catalog, and into the log."""
        for one in self.left_out:
            if one.kind != "look":
                context.log.error("%s %s is left out (%s): %s", one.dataset, one.subject, one.kind, one.reason)
        RejectedArrivals(self.catalog.connection).leave_out(self.sensor, self.left_out)


def _requests(
    plan: RunPlan,
    datasets: Sequence[Dataset],
    context: dg.SensorEvaluationContext,
    reconciler: Reconciler,
    asking: Asking,
) -> list[dg.RunRequest]:
    names = {dataset.name for dataset in datasets}
    asking.left_out += [LeftOut(name, "plan", reason) for name, reason in plan.failed.items() if name in names]
    due = [*(run for run in plan.runs if run.dataset.name in names), *asking.more]
    wanted = list(accepted(due, context.instance, asking.left_out))
    asking.note(context)
    ended = ended_runs([run.identity for run in wanted], context.instance)
    return [
        run_request(run, ended.get(run.identity))
        for run in wanted
        if run.identity not in ended or reconciler.tries_again(ended[run.identity])
    ]
