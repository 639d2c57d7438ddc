"""`varve why`: the judgement of one partition in words, with everything that it follows from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline_defs.cli.looking import looking
from pipeline_defs.cli.printing import Table
from pipeline_defs.cli.show import dataset_named, parsed
from pipeline_defs.definitions import graph
from pipeline_defs.planning.facts import NOTHING
from pipeline_defs.planning.judging import State
from resources.history import History

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

_LISTED = 40


def why(name: str, words: Sequence[str]) -> dict[str, Any]:
    """The state of a partition and its reason, as plain values; and the state of everything that it reads.

    Raises VarveError for an unknown dataset, UnknownPartition for words that name no partition.
    """
    dataset = dataset_named(name, graph)
    key = parsed(dataset, words)
    with looking() as found:
        plan = found.plan()
        fact = found.facts.of(dataset.name, [key.path]).get(key.path, NOTHING)
        judged = plan.judgements[dataset.name].get(key.path)
        reads = []
        for edge in graph.edges[dataset.name]:
            wanted = [each.path for each in edge.dependency.upstream_of(key, members=found.members).keys]
            above, facts = plan.judgements[edge.upstream.name], found.facts.of(edge.upstream.name, wanted)
            reads += [
                {
                    "dataset": edge.upstream.name,
                    "partition": path,
                    "batch": facts[path].batch if path in facts and facts[path].batch else None,
                    "state": above[path].state if path in above else State.MISSING,
                    "reason": above[path].reason if path in above else "nothing that it reads is there",
                }
                for path in wanted
            ]
        failures = [batch for batch in History(found.connection).batches(dataset.name, [key.path]) if batch.failure]
    return {
        "dataset": dataset.name,
        "partition": key.path,
        "state": judged.state if judged else State.MISSING,
        "reason": judged.reason if judged else "nothing that it reads is there",
        "batch": fact.batch or None,
        "made_from": [list(each) for each in sorted(map(tuple, fact.trace))],
        "marks": [{"backfill": mark.backfill, "reason": mark.reason, "paused": mark.held} for mark in fact.marks],
        "failures": [
            {"batch": batch.batch_id.millis, "failure": batch.failure} for batch in failures[: len(fact.failures)]
        ],
        "reads": reads,
    }


def show(console: Console, found: dict[str, Any]) -> None:
    """The same for people."""
    console.print(f"[bold]{found['dataset']} {found['partition']}[/]: {found['state']}", highlight=False)
    console.print(f"  {found['reason']}", markup=False, highlight=False)
    console.print(f"  batch in force: {found['batch'] or 'none'}", highlight=False)
    for mark in found["marks"]:
        console.print(f"  marked by backfill {mark['backfill']}: {mark['reason']}", markup=False, highlight=False)
    for failure in found["failures"]:
        console.print(f"  batch {failure['batch']} failed: {failure['failure']}", markup=False, highlight=False)
    if not found["reads"]:
        return
    versions = {(source, path): version for source, path, version in found["made_from"]}
    table = Table("it reads", "partition", "batch", "made from", "state", title_justify="left")
    for each in found["reads"][:_LISTED]:
        version = versions.get((each["dataset"], each["partition"]), "")
        table.add_row(each["dataset"], each["partition"], str(each["batch"] or ""), version, str(each["state"]))
    console.print(table)
    if len(found["reads"]) > _LISTED:
        console.print(f"  and {len(found['reads']) - _LISTED} more; --json lists them all.")
