"""The two sensors, for files that arrived and for everything else: they request the runs that the planner finds due.

Both compare the current state with the wanted state, so that nothing is forgotten when a tick, a run or the daemon
dies: whatever a tick knows, the next one finds again in the catalog and in Dagster's runs.

Not here: what is due (varve/planning), reading the facts (reconciling.py), looking at arrivals (arriving.py), and what
Dagster accepts (requesting.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg
import pendulum

from varve.catalog.code.owners import Owners
from varve.catalog.history.history import History
from varve.catalog.rejected import LeftOut, RejectedArrivals
from varve.dagster.automation.arriving import ArrivalLook, cursor_of
from varve.dagster.automation.folding import to_fold
from varve.dagster.automation.reconciling import Ended, Reconciler, default_status, ended_runs
from varve.dagster.automation.requesting import DATASET_TAG, accepted, asset_key, run_request
from varve.dagster.partitions.sets_sensor import sets_of
from varve.model.errors import VarveError
from varve.planning.requested import REASON_TAG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset
    from varve.planning.graph import Graph
    from varve.planning.reconcile import RunPlan
    from varve.planning.run_requests import Run
    from varve.project import Project
    from varve.services.settings import Settings

# Other modules import the names of a run request from here.
__all__ = ["DATASET_TAG", "REASON_TAG", "arrival_sensor", "asset_key", "downstream_sensor", "run_request"]


def arrival_sensor(
    graph: Graph, project: Project, interval_seconds: int = 5, *, on: bool = False
) -> dg.SensorDefinition:
    """Return the sensor for arrivals.

    It requests a run of every partition whose landing file is new, or has other content than its batch was made from.
    """
    sources = [dataset for dataset in graph.in_order() if dataset.arrives]
    reconciler = Reconciler(graph, project)

    @dg.sensor(
        name="arrivals",
        asset_selection=dg.AssetSelection.assets(*[asset_key(dataset) for dataset in sources]),
        minimum_interval_seconds=interval_seconds,
        default_status=default_status(on=on),
        description="Files that arrived, or arrived again with other content, run their partitions.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        def look(catalog: Catalog, settings: Settings) -> tuple[str, list[LeftOut]]:
            members = sets_of(context.instance, graph).members()
            of_others = Owners(catalog.connection, graph.project).claim([dataset.name for dataset in sources])
            arrival_look = ArrivalLook(catalog, settings, members, context.log, cursor_of(context.cursor))
            # What arrives for another project is noted by that: our landing folder may be another one.
            looked_at = arrival_look.at([dataset for dataset in sources if dataset.name not in of_others])
            return looked_at, arrival_look.left_out

        def request_runs(catalog: Catalog, plan: RunPlan, look_result: tuple[str, list[LeftOut]]) -> dg.SensorResult:
            cursor, left_out = look_result
            folds = [
                run
                for dataset in sources
                for run in to_fold(
                    catalog.connection, dataset, graph.code_versions.get(dataset.name, ""),
                    plan.judgements.get(dataset.name, {}), pendulum.now("UTC").timestamp(),
                )
            ]  # fmt: skip
            notes = TickNotes("arrivals", catalog, left_out, folds, graph.project)
            requests = _run_requests(plan, sources, context, reconciler, notes)
            return dg.SensorResult(run_requests=requests, cursor=cursor)

        return reconciler.look(context.instance, "arrivals", look, request_runs)

    return evaluate


def downstream_sensor(
    graph: Graph, project: Project, interval_seconds: int = 5, *, on: bool = False
) -> dg.SensorDefinition:
    """Return the sensor for datasets that are computed from others.

    It requests a run of every partition that is due: missing, stale, marked by a backfill, or to be refreshed.
    """
    readers = [dataset for dataset in graph.in_order() if dataset.is_computed]
    reconciler = Reconciler(graph, project)

    @dg.sensor(
        name="downstream",
        asset_selection=dg.AssetSelection.assets(*[asset_key(dataset) for dataset in readers]),
        minimum_interval_seconds=interval_seconds,
        default_status=default_status(on=on),
        description="Partitions whose inputs all exist run; those whose inputs were published anew run again.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        def request_runs(catalog: Catalog, plan: RunPlan, look_result: None) -> dg.SensorResult | dg.SkipReason:
            del look_result
            if requests := _run_requests(
                plan, readers, context, reconciler, TickNotes("downstream", catalog, project=graph.project)
            ):
                return dg.SensorResult(run_requests=requests)
            return dg.SkipReason("Every partition whose inputs exist is current, in flight or given up.")

        return reconciler.look(context.instance, "downstream", lambda *_: None, request_runs)

    return evaluate


@dataclass
class TickNotes:
    """What a tick of a sensor notes beside its requests.

    Attributes:
        left_out: what could not be looked at, judged or requested.
        project: the name of the project whose sensor it is.
        folds: runs that are requested although nothing is due: they write the same rows in one part.
    """

    sensor: str
    catalog: Catalog
    left_out: list[LeftOut] = field(default_factory=list)
    folds: Sequence[Run] = ()
    project: str = ""

    def note(self, context: dg.SensorEvaluationContext) -> None:
        """Write what was left out to the catalog, and to the log of the tick."""
        for entry in self.left_out:
            if entry.kind != "look":
                context.log.error("%s %s is left out (%s): %s", entry.dataset, entry.subject, entry.kind, entry.reason)
        # Sensors of several projects have the same names.
        sensor = f"{self.sensor} of {self.project}" if self.project else self.sensor
        RejectedArrivals(self.catalog.connection).leave_out(sensor, self.left_out)


def _run_requests(
    plan: RunPlan,
    datasets: Sequence[Dataset],
    context: dg.SensorEvaluationContext,
    reconciler: Reconciler,
    notes: TickNotes,
) -> list[dg.RunRequest]:
    names = {dataset.name for dataset in datasets}
    notes.left_out += [LeftOut(name, "plan", reason) for name, reason in plan.failed.items() if name in names]
    due = [*(run for run in plan.runs if run.dataset.name in names), *notes.folds]
    accepted_runs = list(accepted(due, context.instance, notes.left_out, context.repository_def))
    notes.note(context)
    ended = ended_runs([run.identity for run in accepted_runs], context.instance)
    folds = {fold.identity for fold in notes.folds}
    noted = {
        run.identity
        for run in accepted_runs
        if run.identity in ended.keys() - folds and _noted(notes.catalog, reconciler.graph, run, ended[run.identity])
    }
    return [
        run_request(run, ended.get(run.identity), project=notes.project)
        for run in accepted_runs
        if run.identity not in ended
        or (
            run.identity not in noted
            and reconciler.tries_again(ended[run.identity], gives_up=run.identity not in folds)
        )
    ]


def _noted(catalog: Catalog, graph: Graph, run: Run, ended: Ended) -> bool:
    """Note as a failure that the run of these partitions has ended without a word; return whether that was to be done.

    Then the next tick judges them as after any other failure: it waits, halves a run of many, and gives them up.
    """
    name, paths = run.dataset.name, [key.path for key in run.partitions]
    if not ended.run_id or ended.unfinished:
        return False
    if History(catalog.connection).batches(name, paths, run_id=ended.run_id, limit=1):
        return False
    reason = f"run {ended.run_id[:8]} ended ({ended.status}) before it could note why: its page in Dagster has its log"
    try:
        build = catalog.begin(
            run.dataset, run.partitions, run_id=ended.run_id, code_version=graph.code_versions.get(name, "")
        )
    except VarveError:
        # Another run has begun to build one of them: the next tick looks again.
        return False
    # Nobody has begun with these partitions: a machine, an image or the launcher was missing. Who cancels a run in the
    # queue does not want it.
    catalog.fail(build, reason, outage=ended.status == dg.DagsterRunStatus.FAILURE.value.lower())
    catalog.release(build)
    return True
