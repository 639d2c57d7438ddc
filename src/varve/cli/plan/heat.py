"""`varve plan`: a heat map of every dataset over time, coloured by state, with the counts and what is due.

Not here: the cells (varve/planning/operations/heat.py), and the same picture in Dagster
(varve/dagster/automation/report.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Column
from rich.text import Text

from varve.catalog.backfills import Backfills
from varve.catalog.catalog import Catalog
from varve.catalog.code.owners import Owners
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.plan.changes import code_plan, plan_values, show_code_plan
from varve.cli.plan.open_plan import opened_plan
from varve.cli.plan.unseen import show_unseen, unseen_values
from varve.cli.printing import Table
from varve.cli.problems.broken import broken_values, show_broken
from varve.cli.problems.rejected import left_out_values, rejected_values, show_left_out, show_rejected
from varve.cli.selection import dataset_named, duration_text, size_text
from varve.model.errors import counted, some
from varve.planning.judgement.judgement import State
from varve.planning.operations.heat import WORST_FIRST
from varve.planning.operations.heat import heat as heat_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg
    from rich.console import Console

    from varve.catalog.code.plans import CodePlan

_COLOURS = {
    State.FAILED: "red",
    State.BACKING_OFF: "dark_orange",
    State.ON_HOLD: "magenta",
    State.OUTDATED: "bright_magenta",
    State.UNWANTED: "grey50",
    State.IN_FLIGHT: "cyan",
    State.DUE: "yellow",
    State.WAITING: "blue",
    State.UPCOMING: "grey70",
    State.MISSING: "grey30",
    State.ACCEPTED: "dark_sea_green4",
    State.CURRENT: "green",
}
# One letter for each state, for terminals and files without colours.
LETTERS = {state: str(state)[0] for state in State} | {
    State.ON_HOLD: "h",
    State.UPCOMING: "o",
    State.OUTDATED: "x",
    State.MISSING: ".",
    State.CURRENT: "■",
}


def heat() -> dict[str, Any]:
    """Return the heat map as plain values (see `planning.operations.heat.heat`).

    With it come the files that arrived and are not taken, and what the code here changes.
    """
    return heat_and_changes()[0]


def heat_and_changes(names: Sequence[str] = ()) -> tuple[dict[str, Any], CodePlan]:
    """Return the heat map as plain values, and what the code here changes; with names only the map of those datasets.

    Raises VarveError for a name that is no dataset, and DatasetIsBroken for one whose file has errors.
    """
    wanted = {dataset_named(name).name for name in names}
    with opened_plan() as open_plan:
        plan = code_plan(open_plan)
        judged = open_plan.overview()
        picture = heat_of(chosen_graph(), judged)
        values = picture | {
            "due": with_estimates(picture["due"], Backfills(open_plan.connection)),
            "changes": plan_values(plan),
            "rejected": of_this_project(open_plan.connection, rejected_values(open_plan.connection)),
            "left_out": of_this_project(open_plan.connection, left_out_values(open_plan.connection, judged.failed)),
            "unseen": unseen_values(
                chosen_graph().in_order(), Catalog(open_plan.connection), chosen_settings(), open_plan.members
            ),
            "broken": broken_values(chosen_graph().broken),
        }
    if wanted:
        # What the code changes and which files are broken is said always: it may be why nothing is due.
        for part in ("datasets", "due", "rejected", "left_out", "unseen"):
            values[part] = [entry for entry in values[part] if entry["dataset"] in wanted]
    return values, plan


def of_this_project(connection: psycopg.Connection, entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries without those of datasets that another project over the catalog has and this one does not read."""
    graph = chosen_graph()
    of_others = Owners(connection, graph.project).others({entry["dataset"] for entry in entries})
    return [entry for entry in entries if entry["dataset"] in graph.datasets or entry["dataset"] not in of_others]


def show(console: Console, heat_values: dict[str, Any], plan: CodePlan | None = None, *, explain: bool = False) -> None:
    """Print what the code here changes, the heat map, what is due, and what arrived and is not taken."""
    if plan is not None:
        show_code_plan(console, plan, explain=explain)
    plain = console.no_color or console.color_system is None
    signs = LETTERS if plain else dict.fromkeys(State, "■")
    table = Table(Column("dataset", no_wrap=True), Column("over time", no_wrap=True), "partitions")
    for dataset in heat_values["datasets"]:
        states = [State(cell["state"]) for cell in dataset["cells"]]
        cells = Text.assemble(*[(signs[state], _COLOURS[state]) for state in states])
        counts = ", ".join(f"{count:,} {state}" for state, count in dataset["states"].items()) or "nothing yet"
        table.add_row(dataset["dataset"], cells, counts)
    console.print(table)
    legend = [part for state in WORST_FIRST for part in ((f"{signs[state]} ", _COLOURS[state]), f"{state}  ")]
    console.print(Text.assemble(*legend))
    for run in heat_values["due"][:10]:
        console.print(f"due: {run['dataset']} {run['text']}", markup=False, highlight=False)
    if heat_values["due"]:
        console.print(_total(heat_values["due"]), markup=False, highlight=False, soft_wrap=True)
    show_unseen(console, heat_values["unseen"])
    show_rejected(console, heat_values["rejected"])
    show_left_out(console, heat_values["left_out"])
    show_broken(console, heat_values["broken"])


def with_estimates(due: Sequence[dict[str, Any]], backfills: Backfills) -> list[dict[str, Any]]:
    """Return due runs with the seconds, rows and bytes that each will take; None where the dataset had no run yet."""
    costs = backfills.costs(sorted({run["dataset"] for run in due}))
    estimates = [costs[run["dataset"]].estimate(run["partitions"]) if run["dataset"] in costs else None for run in due]
    return [
        run
        | {
            "seconds": None if estimate is None else round(estimate.seconds, 3),
            "rows": None if estimate is None else estimate.rows,
            "bytes": None if estimate is None else estimate.size,
        }
        for run, estimate in zip(due, estimates, strict=True)
    ]


def _total(due: Sequence[dict[str, Any]]) -> str:
    """Return what all due runs will take, by the medians of recent runs."""
    partitions = counted(sum(run["partitions"] for run in due), "partition")
    estimated = [run for run in due if run["seconds"] is not None]
    text = f"due in all: {counted(len(due), 'run')} of {partitions}"
    if not estimated:
        return f"{text}; what they will take is not known before the first run."
    seconds, rows, size = (sum(run[name] for run in estimated) for name in ("seconds", "rows", "bytes"))
    unknown = sorted({run["dataset"] for run in due if run["seconds"] is None})
    without = f"; without {some(unknown, limit=3)}, which had no run yet" if unknown else ""
    return f"{text}, about {duration_text(seconds)}, {rows:,} rows and {size_text(size)}, by recent runs{without}."
