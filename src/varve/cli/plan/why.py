"""`varve why`: the state of one partition, the reason in words, and the facts that the reason follows from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.catalog.living.leases import Lease, Leases
from varve.cdc.capture.positions import Positions
from varve.cli.context import chosen_graph, chosen_project, chosen_settings
from varve.cli.plan.open_plan import opened_plan
from varve.cli.plan.unseen import WHO_TAKES_IT, taken_next
from varve.cli.printing import Table
from varve.cli.problems.rejected import (
    left_out_values,
    rejected_row_values,
    rejected_values,
    show_left_out,
    show_rejected,
    show_rejected_rows,
)
from varve.cli.selection import dataset_named, partition_named
from varve.dagster.discovery import load_project
from varve.model.errors import counted, some
from varve.planning.judgement.facts import NOTHING
from varve.planning.judgement.judgement import State
from varve.planning.requested import nothing_there, why_not

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from varve.cli.plan.open_plan import OpenPlan
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.judgement.judgement import Judgement

_LISTED = 40


def why(name: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the state of a partition and its reason, and the state of everything that it reads, as plain values.

    Raises VarveError for an unknown dataset, UnknownPartition for words that name no partition.
    """
    dataset = dataset_named(name)
    key = partition_named(dataset, words)
    with opened_plan() as open_plan:
        values = why_of(dataset, key, open_plan, open_plan.judged(dataset, key.path))
        if values["state"] != State.MISSING or values["not_there"]:
            return values
        # Only then is the folder listed, which may be large.
        files = taken_next(dataset, Catalog(open_plan.connection), chosen_settings(), open_plan.members).get(key)
    if not files:
        return values
    names = some([file.uri.rpartition("/")[2] for file in files], limit=3)
    return values | {"reason": f"{names} arrived: {WHO_TAKES_IT}"}


def why_of(
    dataset: Dataset, key: PartitionKey, open_plan: OpenPlan, judgements: Mapping[str, Mapping[str, Judgement]]
) -> dict[str, Any]:
    """The same of a partition by judgements that were made before, of every partition."""
    fact = open_plan.facts.of(dataset.name, [key.path]).get(key.path, NOTHING)
    judged = judgements[dataset.name].get(key.path)
    reads = []
    # A key that is in no set reads nothing, and of what it would read nothing was judged.
    has_inputs = fact.batch or dataset.partitioning.exists(key, open_plan.members)
    for edge in chosen_graph().edges[dataset.name] if has_inputs else ():
        upstream = edge.upstream.name
        wanted = [
            upstream_key.path for upstream_key in edge.dependency.upstream_of(key, members=open_plan.members).keys
        ]
        upstream_facts = open_plan.facts.of(upstream, wanted)
        reads += [
            {
                "dataset": upstream,
                "partition": path,
                "batch": upstream_facts.get(path, NOTHING).batch or None,
                "state": judgements[upstream][path].state if path in judgements[upstream] else State.MISSING,
                "reason": judgements[upstream][path].reason
                if path in judgements[upstream]
                else nothing_there(edge.upstream),
            }
            for path in wanted
        ]
    lease_values = None if not fact.run else _lease_values(Leases(open_plan.connection).of(fact.run))
    # Environments fail for themselves: their batches are in the history too, and are no reason why production waits.
    began = {failure.began for failure in fact.failures}
    failures = [
        batch
        for batch in History(open_plan.connection).batches(dataset.name, [key.path])
        if batch.failure and batch.started_at.timestamp() in began
    ]
    left_out = [entry for entry in left_out_values(open_plan.connection) if entry["dataset"] == dataset.name]
    rejected_rows = rejected_row_values(open_plan.connection, dataset.rejected_of or dataset.name, key.path)
    rejected = [
        arrival for arrival in rejected_values(open_plan.connection, dataset.name) if arrival["partition"] == key.path
    ]
    capture = _capture(dataset, open_plan)
    absence_reason = why_not(dataset, key, now=pendulum.now("UTC").timestamp(), members=open_plan.members)
    return {
        "dataset": dataset.name,
        "partition": key.path,
        "state": judged.state if judged else State.MISSING,
        "reason": judged.reason
        if judged
        else absence_reason or _not_captured(dataset, open_plan) or nothing_there(dataset),
        "not_there": absence_reason,
        "rejected": rejected,
        "rejected_rows": rejected_rows,
        "left_out": [entry for entry in left_out if key.path in entry["partitions"] or entry["kind"] != "request"],
        "batch": fact.batch or None,
        "capture": capture,
        "in_flight": {"run": fact.run, "run_url": chosen_settings().run_url(fact.run), **(lease_values or {})}
        if fact.run
        else None,
        "made_from": [list(source_version) for source_version in sorted(map(tuple, fact.trace))],
        "marks": [{"backfill": mark.backfill, "reason": mark.reason, "paused": mark.paused} for mark in fact.marks],
        "failures": [{"batch": batch.batch_id.millis, "failure": batch.failure} for batch in failures],
        "reads": reads,
    }


def _not_captured(dataset: Dataset, open_plan: OpenPlan) -> str | None:
    """Why a captured table holds nothing before its first capture, and the command for it; None for what else is."""
    captured = next((table for table in load_project(chosen_project()).captured if table.dataset == dataset), None)
    positions = Positions(open_plan.connection)
    if captured is None or (positions.exist() and positions.find(dataset.name) is not None):
        return None
    if captured.files is not None:
        return (
            f"no file of its changes was taken yet: varve cdc capture {dataset}, or its sensor, takes those there are"
        )
    return f"it is not captured yet: varve cdc bootstrap {dataset} takes its first snapshot of {captured.source}"


def _capture(dataset: Dataset, open_plan: OpenPlan) -> dict[str, Any] | None:
    """Return, for a captured table, what was captured and is in no batch yet; None for other datasets."""
    positions = Positions(open_plan.connection)
    position = positions.find(dataset.name) if positions.exist() else None
    if position is None:
        return None
    from varve.cdc.capture.event_log import EventLog

    try:
        waiting = EventLog.remembered(chosen_settings().lake, dataset).batches(
            position.generation, after=position.applied_lsn
        )
        to_apply = sum(batch.counts.events for batch in waiting)
    except OSError:
        # The lake is out of reach from here: what the catalog says is said all the same.
        to_apply = None
    return {
        "state": position.state,
        "reason": position.reason,
        "events_to_apply": to_apply,
        "quarantined": position.quarantined,
    }


def _lease_values(lease: Lease | None) -> dict[str, Any]:
    """Return what the lease says of the run that builds a partition.

    A run without a lease waits in Dagster's queue, is starting, or is a command: its values are None.
    """
    if lease is None:
        return {"holder": None, "since": None, "last_sign_of_life": None, "counts_as_dead_from": None}
    return {
        "holder": lease.holder,
        "since": lease.taken_at.isoformat(),
        "last_sign_of_life": lease.renewed_at.isoformat(),
        "counts_as_dead_from": (lease.lost_at or lease.expires_at).isoformat(),
    }


def _alike(failures: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The failures, newest first, with those that differ by nothing but the number of their batch as one."""
    reasons: dict[str, list[dict[str, Any]]] = {}
    for failure in failures:
        reasons.setdefault(str(failure["failure"]).replace(str(failure["batch"]), ""), []).append(failure)
    return list(reasons.values())


def _in_flight(in_flight: dict[str, Any]) -> str:
    """Return the values of `_lease_values` as text, with how to end the run."""
    stop = f"To end it: Terminate, on the page of run {in_flight['run']} in the Dagster UI"
    if in_flight["run_url"]:
        stop += f" ({in_flight['run_url']})"
    if in_flight["holder"] is None:
        return f"it waits in Dagster's queue, comes up, or is a command. {stop}."
    since, last, dead_from = (
        in_flight[name][:19].replace("T", " ") for name in ("since", "last_sign_of_life", "counts_as_dead_from")
    )
    return (
        f"{in_flight['holder']}, since {since} UTC; last sign of life {last} UTC. Without another one it counts as "
        f"dead soon after {dead_from} UTC. {stop}, or end that process."
    )


def show(console: Console, judgement: dict[str, Any]) -> None:
    """Print the state of the partition, its reason, and a table of what it reads."""
    console.print(f"[bold]{judgement['dataset']} {judgement['partition']}[/]: {judgement['state']}", highlight=False)
    console.print(f"  {judgement['reason']}", markup=False, highlight=False)
    console.print(f"  current batch: {judgement['batch'] or 'none'}", highlight=False)
    if (capture := judgement["capture"]) is not None and capture["events_to_apply"]:
        count = counted(capture["events_to_apply"], "event")
        console.print(
            f"  {count} of the table captured and not applied yet: the sensor asks for a run, or varve cdc capture "
            f"{judgement['dataset']}", highlight=False, soft_wrap=True,
        )  # fmt: skip
    if capture is not None and (capture["state"] != "running" or capture["reason"]):
        state = "waits" if capture["state"] == "running" else f"is {capture['state']}"
        console.print(f"  capture {state}: {capture['reason'] or ''}", markup=False, highlight=False)
    if judgement["in_flight"]:
        console.print(f"  in flight: {_in_flight(judgement['in_flight'])}", markup=False, highlight=False)
    show_rejected_rows(console, judgement["rejected_rows"])
    show_rejected(console, judgement["rejected"])
    show_left_out(console, judgement["left_out"])
    for mark in judgement["marks"]:
        console.print(f"  marked by backfill {mark['backfill']}: {mark['reason']}", markup=False, highlight=False)
    for same in _alike(judgement["failures"]):
        newest, others = same[0], len(same) - 1
        also = f" (and {others} before it, for the same reason)" if others else ""
        console.print(f"  batch {newest['batch']} failed{also}: {newest['failure']}", markup=False, highlight=False)
    if not judgement["reads"]:
        return
    versions = {(source, path): version for source, path, version in judgement["made_from"]}
    table = Table("it reads", "partition", "batch", "made from", "state", title_justify="left")
    for upstream in judgement["reads"][:_LISTED]:
        version = versions.get((upstream["dataset"], upstream["partition"]), "")
        table.add_row(
            upstream["dataset"], upstream["partition"], str(upstream["batch"] or ""), version, str(upstream["state"])
        )
    console.print(table)
    if len(judgement["reads"]) > _LISTED:
        console.print(f"  and {len(judgement['reads']) - _LISTED} more; --json lists them all.")
