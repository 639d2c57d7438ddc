"""The asset `varve/report`: the state of every partition as a picture in Dagster, and a check that none has failed.

The asset has no data; the schedule `report` draws the picture again every ten minutes.
"""

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

import dagster as dg
import pendulum
import psycopg

from varve.catalog.rejected import RejectedArrivals
from varve.dagster.automation.planner_facts import limits_of
from varve.dagster.automation.reconciling import looked_up
from varve.model.errors import counted, some
from varve.planning.arrivals.arrivals import Rejected
from varve.planning.arrivals.landing_file import RejectionKind
from varve.planning.graph import Graph
from varve.planning.judgement.judgement import State
from varve.planning.operations.heat import WORST_FIRST, heat
from varve.planning.reconcile import RunPlan, overview
from varve.project import Project
from varve.services.postgres import connect
from varve.services.settings import Settings

KEY = dg.AssetKey(["varve", "report"])
CHECK = "no_partition_left_failed"
COLOURS = {
    State.FAILED: "#d64545",
    State.BACKING_OFF: "#e8833a",
    State.ON_HOLD: "#a35bbf",
    State.OUTDATED: "#c98bb9",
    State.UNWANTED: "#6b7280",
    State.IN_FLIGHT: "#3aa7c9",
    State.DUE: "#f0c330",
    State.WAITING: "#5b7bd5",
    State.UPCOMING: "#b9c4e0",
    State.MISSING: "#d9dce1",
    State.ACCEPTED: "#8fb98f",
    State.CURRENT: "#3fa66b",
}
# Sizes of the picture in pixels: the height of a row, the width of a cell with its gap, and where the cells begin.
_ROW, _CELL, _LEFT = 20, 14, 200
_LISTED = 20


def report_key(project: str = "") -> dg.AssetKey:
    """Return the key of the report: `varve/report`, and `varve/report/shop` for a project with that name."""
    return dg.AssetKey([*KEY.path, re.sub(r"\W", "_", project)]) if project else KEY


def report_asset(graph: Graph, project: Project) -> dg.AssetsDefinition:
    """Return the report asset over all datasets of a graph."""
    key = report_key(graph.project)

    @dg.asset(
        key=key,
        group_name="varve",
        kinds={"report"},
        description="Every dataset over time: what is current, missing, due, in flight, failed, on hold.",
        check_specs=[
            dg.AssetCheckSpec(CHECK, asset=key, description="Fails where a partition was given up after its attempts.")
        ],
    )
    def report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        plan, rejected = look(graph, context.instance, project.settings)
        counts = Counter(
            judgement.state for judgements in plan.judgements.values() for judgement in judgements.values()
        )
        return dg.MaterializeResult(
            metadata={
                "varve/over time": dg.MetadataValue.md(picture(graph, plan)),
                "varve/due runs": len(plan.runs),
                "varve/rejected arrivals": dg.MetadataValue.md(listed(rejected)),
                **{f"varve/{state}": counts[state] for state in WORST_FIRST},
            },
            check_results=[checked(plan, key)],
        )

    return report


def report_schedule(checks: Sequence[dg.AssetChecksDefinition] = (), *, project: str = "") -> dg.ScheduleDefinition:
    """Return the schedule that draws the report of a project, and runs these checks, every ten minutes."""
    target: dg.AssetSelection = dg.AssetSelection.assets(report_key(project))
    for check in checks:
        target |= dg.AssetSelection.checks(check)
    return dg.ScheduleDefinition(
        name="report",
        target=target,
        cron_schedule="*/10 * * * *",
        description="Draws the state of every partition anew; checks that none is left failed, and none rejected.",
    )


def look(graph: Graph, instance: dg.DagsterInstance, settings: Settings) -> tuple[RunPlan, list[tuple[str, Rejected]]]:
    """Return the plan as of now, and the rejected arrivals, each with the name of its dataset.

    Raises VarveError where a server cannot be reached.
    """
    with connect(settings, application="varve report") as connection:
        facts, members = looked_up(graph, connection, instance, settings)
        plan = overview(
            graph, facts, now=pendulum.now("UTC"), members=members, limits=limits_of(settings), codes=facts.codes,
            fatal=(psycopg.Error,),
        )  # fmt: skip
        # What was there in time, and is past its retention now, is no news.
        untaken = RejectedArrivals(connection).all()
        return plan, [(name, arrival) for name, arrival in untaken if arrival.kind is not RejectionKind.PAST]


def listed(rejected: Sequence[tuple[str, Rejected]]) -> str:
    """Return the rejected arrivals as a table in Markdown."""
    if not rejected:
        return "Nothing is refused of what the sensor arrivals has looked at."
    cells = [
        f"| {dataset} | {_cell(arrival.uri)} | {arrival.kind} | {_cell(arrival.reason)} |"
        for dataset, arrival in rejected[:_LISTED]
    ]
    more_text = [f"and {len(rejected) - _LISTED} more"] if len(rejected) > _LISTED else []
    return "\n".join(["| dataset | what | kind | why |", "|---|---|---|---|", *cells, "", *more_text])


def _cell(text: str) -> str:
    return escape(text).replace("|", "\\|")


def picture(graph: Graph, plan: RunPlan) -> str:
    """Return the heat map as an image in Markdown, with a table of how many partitions are in which state."""
    dataset_rows = heat(graph, plan)["datasets"]
    image = base64.b64encode(drawn(dataset_rows).encode()).decode()
    counts = [
        f"| {row['dataset']} | {', '.join(f'{count:,} {state}' for state, count in row['states'].items()) or 'none'} |"
        for row in dataset_rows
    ]
    image_tag = f"![every dataset over time](data:image/svg+xml;base64,{image})"
    return "\n".join([image_tag, "", "| dataset | partitions |", "|---|---|", *counts])


def drawn(datasets: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of a heat map as SVG: a square for each cell in the colour of its state, and the legend."""
    width, height = _LEFT + 32 * _CELL + 10, (len(datasets) + 2) * _ROW
    font = 'font-family="sans-serif" font-size="12" fill="#333"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {font}>']
    for row, dataset_row in enumerate(datasets):
        parts.append(f'<text x="0" y="{row * _ROW + 14}">{escape(dataset_row["dataset"])}</text>')
        squares: dict[str, str] = {}
        for index, cell in enumerate(dataset_row["cells"]):
            square = f"M{_LEFT + index * _CELL} {row * _ROW + 3}h12v14h-12z"
            squares[cell["state"]] = squares.get(cell["state"], "") + square
        parts += [f'<path fill="{COLOURS[State(state)]}" d="{path}"/>' for state, path in squares.items()]
    for index, (state, colour) in enumerate(COLOURS.items()):
        x, y = index % 5 * 120, len(datasets) * _ROW + 8 + index // 5 * 16
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 11}">{state}</text>')
    return "".join([*parts, "</svg>"])


def checked(plan: RunPlan, key: dg.AssetKey = KEY) -> dg.AssetCheckResult:
    """Return the result of the check: it fails where partitions were given up, and lists them with their reasons."""
    failed = {
        f"{name} {path}": judgement.reason
        for name, judgements in plan.judgements.items()
        for path, judgement in judgements.items()
        if judgement.state is State.FAILED
    }
    summary = (
        f"Given up: {counted(len(failed), 'partition')}: {some(list(failed), limit=3)}"
        if failed
        else "None was given up"
    )
    return dg.AssetCheckResult(
        check_name=CHECK, asset_key=key, passed=not failed, description=f"{summary}.",
        metadata={path: reason for path, reason in sorted(failed.items())[:_LISTED]},  # noqa: C416
    )  # fmt: skip
