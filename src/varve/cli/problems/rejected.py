"""Rejected arrivals and what a tick left out, as `varve plan`, `status`, `doctor` and `why` show them.

Not here: the rules for what is rejected (varve/planning/arrivals/arrivals.py), and how Dagster shows it
(varve/dagster/automation/arrival_checks.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pendulum
import psycopg

from varve.catalog.rejected import RejectedArrivals, rejected_rows
from varve.model.errors import counted
from varve.planning.arrivals.landing_file import RejectionKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

_LISTED = 20


def rejected_values(connection: psycopg.Connection, dataset: str | None = None) -> list[dict[str, Any]]:
    """Return what arrived and is not taken, of a dataset or of all, as plain values.

    Empty where the catalog lacks the table.
    """
    arrivals = RejectedArrivals(connection)
    try:
        rejected = arrivals.all() if dataset is None else [(dataset, each) for each in arrivals.untaken(dataset)]
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return []
    return [
        {
            "dataset": dataset,
            "uri": arrival.uri,
            "kind": str(arrival.kind),
            "reason": arrival.reason,
            "partition": arrival.partition,
            "bytes": arrival.size,
            "since": _text(arrival.since),
            "changed_at": _text(arrival.changed_at),
            "taken_at": _text(arrival.until),
        }
        for dataset, arrival in rejected
    ]


def rejected_row_values(
    connection: psycopg.Connection, dataset: str | None = None, partition: str | None = None
) -> list[dict[str, Any]]:
    """Return the current partitions with rejected rows, as plain values; empty where there is no catalog yet."""
    try:
        partitions = rejected_rows(connection, dataset, partition)
    except psycopg.errors.UndefinedTable:
        return []
    return [{**asdict(rejected), "message": str(rejected)} for rejected in partitions]


def show_rejected_rows(console: Console, partitions: Sequence[Mapping[str, Any]]) -> None:
    """Print the partitions with rejected rows."""
    for rejected in partitions[:_LISTED]:
        console.print(rejected["message"], markup=False, highlight=False, soft_wrap=True)
    if len(partitions) > _LISTED:
        console.print(f"and {len(partitions) - _LISTED:,} more partitions with rejected rows; --json lists them all.")


def left_out_values(
    connection: psycopg.Connection, not_planned: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return what the last ticks of the sensors could not do, as plain values.

    With them come the datasets that could not be planned just now, with the reason, where no sensor has said so.
    """
    noted = [
        {
            "dataset": left_out.dataset,
            "kind": left_out.kind,
            "partitions": list(left_out.partitions),
            "reason": left_out.reason,
            "sensor": left_out.sensor,
            "since": _text(left_out.since),
        }
        for left_out in RejectedArrivals(connection).left_out()
    ]
    told = {entry["dataset"] for entry in noted if entry["kind"] == "plan"}
    now = _text(pendulum.now("UTC").timestamp())
    return noted + [
        {"dataset": name, "kind": "plan", "partitions": [], "reason": reason, "sensor": "", "since": now}
        for name, reason in (not_planned or {}).items()
        if name not in told
    ]


def show_rejected(console: Console, rejected: Sequence[Mapping[str, Any]]) -> None:
    """Print the rejected arrivals."""
    past = Counter(arrival["dataset"] for arrival in rejected if arrival["kind"] == RejectionKind.PAST)
    rejected = [arrival for arrival in rejected if arrival["kind"] != RejectionKind.PAST]
    for arrival in rejected[:_LISTED]:
        word = "early" if arrival["kind"] == RejectionKind.EARLY else f"rejected ({arrival['kind']})"
        dataset, uri, reason = arrival["dataset"], arrival["uri"], arrival["reason"]
        where = f"{arrival['partition']}: " if arrival["partition"] else ""
        # What was found in a file begins with the file.
        told = reason.replace(f"{uri} ({dataset})", uri, 1) if reason.startswith(uri) else f"{uri}: {reason}"
        text = f"{word}: {dataset} {where}{told} (since {arrival['since']})"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    if len(rejected) > _LISTED:
        console.print(f"and {len(rejected) - _LISTED:,} more that are not taken; --json lists them all.")
    for dataset, count in sorted(past.items()):
        files = f"{counted(count, 'arrival')} {'was' if count == 1 else 'were'} there in time"
        text = f"past: {dataset}: {files}, and the retention is over; --json lists them all."
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def show_left_out(console: Console, left_out: Sequence[Mapping[str, Any]]) -> None:
    """Print what the last ticks of the sensors left out."""
    words = {"look": "not looked at", "plan": "not planned", "request": "not asked for"}
    for entry in left_out[:_LISTED]:
        # Many reasons begin with the dataset.
        reason = entry["reason"].removeprefix(f"{entry['dataset']}: ")
        text = f"{words[entry['kind']]}: {entry['dataset']}: {reason} (since {entry['since']})"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    if len(left_out) > _LISTED:
        console.print(f"and {len(left_out) - _LISTED:,} more that were left out; --json lists them all.")


def _text(instant: float | None) -> str | None:
    return None if instant is None else pendulum.from_timestamp(instant).isoformat(timespec="seconds")
