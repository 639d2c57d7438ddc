"""`varve why`: the judgement of one partition in words, with everything that it follows from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.history.history import History
from varve.catalog.leases import Lease, Leases
from varve.cli.context import chosen_graph
from varve.cli.plan.looking import looking
from varve.cli.printing import Table
from varve.cli.rejected import (
    left_out_values,
    rejected_row_values,
    rejected_values,
    show_left_out,
    show_rejected,
    show_rejected_rows,
)
from varve.cli.show import dataset_named, parsed
from varve.planning.judgement.facts import NOTHING
from varve.planning.judgement.judgement import State
from varve.planning.requested import why_not

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

_LISTED = 40


def why(name: str, words: Sequence[str]) -> dict[str, Any]:
    """The state of a partition and its reason, as plain values; and the state of everything that it reads.

    Raises VarveError for an unknown dataset, UnknownPartition for words that name no partition.
    """
    dataset = dataset_named(name, chosen_graph())
    key = parsed(dataset, words)
    with looking() as found:
        plan = found.plan()
        fact = found.facts.of(dataset.name, [key.path]).get(key.path, NOTHING)
        judged = plan.judgements[dataset.name].get(key.path)
        reads = []
        for edge in chosen_graph().edges[dataset.name]:
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
        on_it = None if not fact.run else _told(Leases(found.connection).of(fact.run))
        failures = [batch for batch in History(found.connection).batches(dataset.name, [key.path]) if batch.failure]
        not_asked = [one for one in left_out_values(found.connection) if one["dataset"] == dataset.name]
        rejected_rows = rejected_row_values(found.connection, dataset.rejected_of or dataset.name, key.path)
        rejected = [
            one for one in rejected_values(found.connection)
            if (one["dataset"], one["partition"]) == (dataset.name, key.path)
        ]  # fmt: skip
    not_there = why_not(dataset, key, now=pendulum.now("UTC").timestamp(), members=found.members)
    return {
        "dataset": dataset.name,
        "partition": key.path,
        "state": judged.state if judged else State.MISSING,
        "reason": judged.reason if judged else not_there or "nothing that it reads is there",
        "not_there": not_there,
        "rejected": rejected,
        "rejected_rows": rejected_rows,
        "left_out": [one for one in not_asked if key.path in one["partitions"] or one["kind"] != "request"],
        "batch": fact.batch or None,
        "in_flight": {"run": fact.run, **(on_it or {})} if fact.run else None,
        "made_from": [list(each) for each in sorted(map(tuple, fact.trace))],
        "marks": [{"backfill": mark.backfill, "reason": mark.reason, "paused": mark.paused} for mark in fact.marks],
        "failures": [
            {"batch": batch.batch_id.millis, "failure": batch.failure} for batch in failures[: len(fact.failures)]
        ],
        "reads": reads,
    }


def _told(lease: Lease | None) -> dict[str, Any]:
    """What is known of the run that is on a partition; one without a lease is in Dagster's queue, or a command."""
    if lease is None:
        return {"holder": None, "since": None, "last_sign_of_life": None, "counts_as_dead_from": None}
    return {
        "holder": lease.holder,
        "since": lease.taken_at.isoformat(),
        "last_sign_of_life": lease.renewed_at.isoformat(),
        "counts_as_dead_from": (lease.lost_at or lease.expires_at).isoformat(),
    }


def _in_flight(on_it: dict[str, Any]) -> str:
    """The same in words, with how to end the run."""
    stop = f"To end it: Terminate, on the page of run {on_it['run']} in the Dagster UI"
    if on_it["holder"] is None:
        return f"it waits in Dagster's queue, comes up, or is a command. {stop}."
    since, last, dead = (
        on_it[name][:19].replace("T", " ") for name in ("since", "last_sign_of_life", "counts_as_dead_from")
    )
    return (
        f"{on_it['holder']}, since {since} UTC; last sign of life {last} UTC. Without another one it counts as dead "
        f"soon after {dead} UTC. {stop}, or end that process."
    )


def show(console: Console, found: dict[str, Any]) -> None:
    """The same for people."""
    console.print(f"[bold]{found['dataset']} {found['partition']}[/]: {found['state']}", highlight=False)
    console.print(f"  {found['reason']}", markup=False, highlight=False)
    console.print(f"  batch in force: {found['batch'] or 'none'}", highlight=False)
    if found["in_flight"]:
        console.print(f"  in flight: {_in_flight(found['in_flight'])}", markup=False, highlight=False)
    show_rejected_rows(console, found["rejected_rows"])
    show_rejected(console, found["rejected"])
    show_left_out(console, found["left_out"])
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
