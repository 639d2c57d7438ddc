"""The part of `varve plan` about code: what differs from what is deployed, and what would follow.

Not here: what it is (varve/planning/changes/code_changes.py), and applying it (apply.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pendulum
from rich.text import Text

from varve.catalog.catalog import Catalog
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.kept import with_kept
from varve.catalog.code.plans import CodePlan, Plans
from varve.catalog.rows import full_declaration
from varve.cli.context import chosen_graph
from varve.cli.selection import who
from varve.model.errors import VarveError, counted, some
from varve.model.evolution import Consequence
from varve.planning.changes.code_changes import CodeChangeKind
from varve.stores.open import consequences_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.cli.plan.open_plan import OpenPlan
    from varve.model.dataset import Dataset
    from varve.planning.changes.code_changes import CodeChange

_SIGNS = {
    CodeChangeKind.ADDED: ("+", "green"),
    CodeChangeKind.CHANGED: ("~", "yellow"),
    CodeChangeKind.DECIDED: ("~", "yellow"),
    CodeChangeKind.OUTDATED: ("~", "magenta"),
    CodeChangeKind.REDECLARED: ("~", "yellow"),
    CodeChangeKind.REBUILDING: ("~", "cyan"),
    CodeChangeKind.EVOLVING: ("~", "yellow"),
    CodeChangeKind.REMOVED: ("-", "red"),
    CodeChangeKind.ELSEWHERE: ("!", "red"),
}
_DIFF_LINES = 24


def code_plan(open_plan: OpenPlan) -> CodePlan:
    """Return what the code here changes, with a number where something is to be decided."""
    graph = chosen_graph()
    plan = Plans(open_plan.connection, graph, open_plan.members).kept(pendulum.now("UTC"), by=who())
    catalog = Catalog(open_plan.connection)
    published = {name: (store, before) for name, store, before in catalog.declared()}

    deployments = Deployments(open_plan.connection)

    def consequences(change: CodeChange) -> tuple[Consequence, ...]:
        dataset = graph.datasets.get(change.dataset)
        is_other = change.kind in {CodeChangeKind.CHANGED, CodeChangeKind.DECIDED}
        until = deployments.until(change.dataset, change.version) if is_other else ""
        of_checkout = (Consequence(f"{until}. Is this checkout behind?"),) if until else ()
        if dataset is None or dataset.name not in published:
            return of_checkout
        return (*of_checkout, *of_batches(dataset))

    def of_batches(dataset: Dataset) -> tuple[Consequence, ...]:
        follows = consequences_of(*published[dataset.name], dataset.store, full_declaration(dataset))
        if any(consequence.new_generation for consequence in follows):
            return tuple(follows)
        return (*follows, *_left_over(dataset, sorted(catalog.current(dataset.name))))

    changes = [
        with_kept(open_plan.connection, graph, replace(change, consequences=consequences(change)), open_plan.members)
        for change in plan.changes
    ]
    return replace(plan, changes=tuple(changes))


def _left_over(dataset: Dataset, current: Sequence[str]) -> list[Consequence]:
    """Return what follows for current partitions that the dataset does not declare any more: of another grain, say."""
    left = []
    for path in current:
        try:
            dataset.partitioning.from_path(path)
        except VarveError:
            left.append(path)
    if not left:
        return []
    message = (
        f"{len(left):,} of {counted(len(current), 'partition')} are none of those that it declares now "
        f"({some(left, limit=2)}): readers see them beside the new ones until `varve retire {dataset}`."
    )
    return [Consequence(message)]


def plan_values(plan: CodePlan) -> dict[str, Any]:
    """Return the plan as plain values for JSON."""
    return {"number": plan.number, "datasets": [change.as_values() for change in plan.changes]}


def show_code_plan(console: Console, plan: CodePlan, *, explain: bool = False) -> None:
    """Print what the code here changes; nothing where it is what is deployed. `explain` prints whole differences."""
    for change in plan.changes:
        sign, colour = _SIGNS[change.kind]
        console.print(Text(f"{sign} {headline(change)}", style=colour), highlight=False, soft_wrap=True)
        for line in details(change):
            console.print(f"    {line}", markup=False, highlight=False, soft_wrap=True)
        diff = change.source_diff()[2:] if change.kind in {CodeChangeKind.CHANGED, CodeChangeKind.DECIDED} else []
        for line in diff if explain else diff[:_DIFF_LINES]:
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            console.print(Text(f"    {line}", style=style), highlight=False, soft_wrap=True)
        if not explain and len(diff) > _DIFF_LINES:
            console.print(f"    and {len(diff) - _DIFF_LINES} more lines; --explain prints them all.", highlight=False)
    evolving = [change.dataset for change in plan.decisions if _needs_generation(change)]
    if evolving:
        console.print(
            f"{', '.join(evolving)}: `varve apply` cannot do that. `varve evolve {evolving[0]}` builds it beside what "
            "readers see, with what reads it; until then nothing of it is computed here.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    if plan.number is not None and len(evolving) < len(plan.decisions):
        # Where some need more, an apply of all of them is refused.
        others = [change.dataset for change in plan.decisions if not _needs_generation(change)] if evolving else []
        apply = " ".join(["varve apply", str(plan.number), *others])
        console.print(
            f"Plan {plan.number}. Until it is applied, nothing of these datasets is computed here. "
            f"`{apply}` does as they declare; `--rebuild` computes their partitions again, "
            "`--forward-from DATE` keeps those of earlier windows, `--hold` deploys it and leaves them for later.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip


def _needs_generation(change: CodeChange) -> bool:
    return any(consequence.new_generation for consequence in change.consequences)


def headline(change: CodeChange) -> str:
    """Return what has happened to a dataset, in one line."""
    count = f"{len(change.partitions):,} of {counted(change.of, 'partition')}"
    stay = f"{counted(change.of, 'partition')} stay until `varve drop {change.dataset}`"
    return {
        CodeChangeKind.ADDED: f"{change.dataset}: new",
        CodeChangeKind.CHANGED: f"{change.dataset}: changed; {count} were made by other code than the code here",
        CodeChangeKind.DECIDED: f"{change.dataset}: changed; the next run deploys it, and {count} are computed again",
        CodeChangeKind.OUTDATED: f"{change.dataset}: {count} were made by other code than is deployed, and are on hold",
        CodeChangeKind.REDECLARED: f"{change.dataset}: declared as before another decision replaced that; with it "
        f"{count} are computed again",
        CodeChangeKind.REBUILDING: f"{change.dataset}: made by other code: {count}; they are computed again",
        CodeChangeKind.EVOLVING: f"{change.dataset}: declared here as another generation than readers see, and on hold",
        CodeChangeKind.REMOVED: f"{change.dataset}: nobody declares it any more; its {stay}",
        CodeChangeKind.ELSEWHERE: f"{change.dataset}: belongs to project {change.owner}; what is declared here counts "
        "for nothing",
    }[change.kind]


def details(change: CodeChange) -> list[str]:
    """Return what follows from a change, a line each."""
    lines = [column.message(change.dataset) for column in change.columns]
    lines += [consequence.message for consequence in change.consequences]
    for reader, owners, columns in change.readers:
        what = f"reads {', '.join(columns)}" if columns else "reads all columns, as far as its text tells"
        lines.append(f"reader {reader} {what}; owner {', '.join(owners) or 'not named'}")
    if change.kind is CodeChangeKind.ELSEWHERE:
        return [f"to read it here: varve import {change.dataset}; to take it over: varve own {change.dataset}"]
    if change.kind in {CodeChangeKind.ADDED, CodeChangeKind.REMOVED, CodeChangeKind.EVOLVING}:
        return lines
    if change.kind is CodeChangeKind.REDECLARED:
        lines.append(f"declared: ON CODE CHANGE {change.declared.upper()}; or is this checkout behind?")
    if change.kind in {CodeChangeKind.CHANGED, CodeChangeKind.DECIDED}:
        same = "its code is the one that is deployed, and what it says of earlier code is not"
        other = f"code {change.deployed} is deployed, {change.version} is here"
        here = same if change.version == change.deployed else other
        lines.append(f"{here}; declared: ON CODE CHANGE {change.declared.upper()}")
    if change.stay:
        lines.append(f"{counted(change.stay, 'partition')} of earlier windows stay as earlier code has made them")
    if change.partitions:
        first, last = next(iter(change.partitions)), list(change.partitions)[-1]
        span = first if first == last else f"{first} ... {last}"
        cost = "" if change.seconds is None else f", about {_duration(change.seconds)}"
        lines.append(f"to compute: {span}: {change.rows:,} rows, {_size(change.size)}{cost}")
    if change.kept.partitions:
        lines += _kept(change)
    lines += [
        f"downstream: at most {counted(count, 'partition')} of {name}, where the rows that it reads differ"
        for name, count in change.downstream.items()
    ]
    return lines


def _kept(change: CodeChange) -> list[str]:
    """Return what need not be computed, and how its rows compare with the current ones."""
    kept, count = change.kept, counted(len(change.partitions), "partition")
    where = f", computed in {', '.join(kept.environments)}" if kept.environments else ""
    # By `varve apply` the sensors compute them again: they take no batch that was made elsewhere.
    how = "a new environment takes them (varve env create, env run), and promoting it computes nothing"
    lines = [f"kept from before: {len(kept.partitions):,} of {count}{where}; {how}"]
    if kept.compared:
        same = f"{kept.compared - len(kept.differing):,} of {counted(kept.compared, 'partition')}"
        verb = "differs" if len(kept.differing) == 1 else "differ"
        differing = f"; {some(kept.differing, limit=2)} {verb}" if kept.differing else ""
        lines.append(f"rows of the kept batches: the same as the current ones in {same}{differing}")
    return lines


def as_markdown(plan: CodePlan) -> str:
    """Return the plan for a pull request."""
    if not plan.changes:
        return "No dataset differs from what is deployed.\n"
    parts = ["| | dataset | partitions | downstream |", "|---|---|---|---|"]
    for change in plan.changes:
        downstream = ", ".join(f"{name} {count:,}" for name, count in change.downstream.items()) or "-"
        partitions = f"{len(change.partitions):,} of {change.of:,}"
        parts.append(f"| {change.kind} | `{change.dataset}` | {partitions} | {downstream} |")
    for change in plan.changes:
        parts += ["", f"**{change.dataset}**: {headline(change).partition(': ')[2]}", ""]
        parts += [f"- {line}" for line in details(change)]
        if diff := change.source_diff()[2:]:
            parts += ["", "```diff", *diff, "```"]
    return "\n".join([*parts, ""])


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min"


def _size(size: int) -> str:
    amount = float(size)
    for unit in ("bytes", "KB", "MB", "GB"):
        if amount < 1_000:
            return f"{amount:.0f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} TB"
