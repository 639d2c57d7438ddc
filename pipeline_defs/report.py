"""The asset `varve/report`: the state of every partition as a picture in Dagster, and a check that none is left failed.

It has no data of its own; the schedule `report` draws it anew.
"""

from collections import Counter

import dagster as dg
import pendulum

from pipeline_defs.model.errors import some
from pipeline_defs.planning.graph import Graph
from pipeline_defs.planning.heat import WORST_FIRST, heat
from pipeline_defs.planning.judging import State
from pipeline_defs.planning.reconcile import Plan, reconcile
from pipeline_defs.reconciling import limits_of, looked_up
from resources.postgres import connect
from resources.settings import Settings

KEY = dg.AssetKey(["varve", "report"])
CHECK = "no_partition_left_failed"
_SQUARES = {
    State.FAILED: "🟥",
    State.BACKING_OFF: "🟧",
    State.HELD: "🟪",
    State.UNWANTED: "⬛",
    State.IN_FLIGHT: "🟦",
    State.DUE: "🟨",
    State.WAITING: "🟫",
    State.MISSING: "⬜",
    State.CURRENT: "🟩",
}
_LISTED = 20


def report_asset(graph: Graph) -> dg.AssetsDefinition:
    """The report over all datasets of a graph."""

    @dg.asset(
        key=KEY,
        group_name="varve",
        description="Every dataset over time: what is current, missing, due, in flight, failed, held.",
        check_specs=[
            dg.AssetCheckSpec(CHECK, asset=KEY, description="Fails where a partition was given up after its attempts.")
        ],
    )
    def report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        plan = look(graph, context.instance)
        counts = Counter(found.state for judged in plan.judgements.values() for found in judged.values())
        return dg.MaterializeResult(
            metadata={
                "varve/over time": dg.MetadataValue.md(picture(graph, plan)),
                "varve/due runs": len(plan.runs),
                **{f"varve/{state}": counts[state] for state in WORST_FIRST},
            },
            check_results=[checked(plan)],
        )

    return report


def report_schedule() -> dg.ScheduleDefinition:
    """Draws the report every ten minutes."""
    return dg.ScheduleDefinition(
        name="report",
        target=dg.AssetSelection.assets(KEY),
        cron_schedule="*/10 * * * *",
        description="Draws the state of every partition anew, and checks that none is left failed.",
    )


def look(graph: Graph, instance: dg.DagsterInstance) -> Plan:
    """Every partition judged as of now. Raises VarveError where a server cannot be reached."""
    settings = Settings()
    with connect(settings, application="varve report") as connection:
        facts, members = looked_up(graph, connection, instance)
        return reconcile(graph, facts, now=pendulum.now("UTC"), members=members, limits=limits_of(settings))


def picture(graph: Graph, plan: Plan) -> str:
    """The cells of each dataset in Markdown, with what the colours mean."""
    lines = ["| dataset | over time | partitions |", "|---|---|---|"]
    for one in heat(graph, plan)["datasets"]:
        cells = "".join(_SQUARES[State(cell["state"])] for cell in one["cells"])
        counts = ", ".join(f"{count:,} {state}" for state, count in one["states"].items())
        lines.append(f"| {one['dataset']} | {cells} | {counts or 'nothing yet'} |")
    legend = " ".join(f"{_SQUARES[state]} {state}" for state in WORST_FIRST)
    return "\n".join([*lines, "", legend])


def checked(plan: Plan) -> dg.AssetCheckResult:
    """Whether no partition was given up, and which were, with their reasons."""
    failed = {
        f"{name} {path}": found.reason
        for name, judged in plan.judgements.items()
        for path, found in judged.items()
        if found.state is State.FAILED
    }
    said = f"{len(failed):,} partitions were given up: {some(list(failed), limit=3)}" if failed else "None was given up"
    return dg.AssetCheckResult(
        check_name=CHECK, asset_key=KEY, passed=not failed, description=f"{said}.",
        metadata={path: reason for path, reason in sorted(failed.items())[:_LISTED]},  # noqa: C416
    )  # fmt: skip
