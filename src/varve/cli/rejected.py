"""Rejected arrivals and what a tick left out, as `varve plan`, `status`, `doctor` and `why` show them.

Not here: what is rejected and why (varve/planning/arrivals/arrivals.py), and the same in Dagster
(varve/dagster/automation/arrival_checks.py).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pendulum
import psycopg

from varve.catalog.rejected import RejectedArrivals, rejected_rows
from varve.planning.arrivals.landing_file import RejectionKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

_LISTED = 20


def rejected_values(connection: psycopg.Connection) -> list[dict[str, Any]]:
    """Everything that arrived and is not taken, as plain values; nothing where the catalog is older than that."""
    try:
        found = RejectedArrivals(connection).all()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return []
    return [
        {
            "dataset": dataset,
            "uri": one.uri,
            "kind": str(one.kind),
            "reason": one.reason,
            "partition": one.partition,
            "bytes": one.size,
            "since": _text(one.since),
            "changed_at": _text(one.changed_at),
            "taken_at": _text(one.until),
        }
        for dataset, one in found
    ]


def rejected_row_values(
    connection: psycopg.Connection, dataset: str | None = None, partition: str | None = None
) -> list[dict[str, Any]]:
    """The current partitions with rejected rows, as plain values; nothing where there is no catalog yet."""
    try:
        found = rejected_rows(connection, dataset, partition)
    except psycopg.errors.UndefinedTable:
        return []
    return [{**asdict(each), "told": str(each)} for each in found]


def show_rejected_rows(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """The same for people."""
    for each in found[:_LISTED]:
        console.print(each["told"], markup=False, highlight=False, soft_wrap=True)
    if len(found) > _LISTED:
        console.print(f"and {len(found) - _LISTED:,} more partitions with rejected rows; --json lists them all.")


def left_out_values(connection: psycopg.Connection) -> list[dict[str, Any]]:
    """What the last ticks of the sensors could not do, as plain values."""
    return [
        {
            "dataset": one.dataset,
            "kind": one.kind,
            "partitions": list(one.partitions),
            "reason": one.reason,
            "sensor": one.sensor,
            "since": _text(one.since),
        }
        for one in RejectedArrivals(connection).left_out()
    ]


def show_rejected(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """The rejected arrivals for people."""
    for one in found[:_LISTED]:
        word = "early" if one["kind"] == RejectionKind.EARLY else f"rejected ({one['kind']})"
        text = f"{word}: {one['dataset']} {one['uri']}: {one['reason']} (since {one['since']})"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    if len(found) > _LISTED:
        console.print(f"and {len(found) - _LISTED:,} more that are not taken; --json lists them all.")


def show_left_out(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """What was left out, for people."""
    words = {"look": "not looked at", "plan": "not planned", "request": "not asked for"}
    for one in found[:_LISTED]:
        text = f"{words[one['kind']]}: {one['dataset']}: {one['reason']} (since {one['since']})"
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _text(instant: float | None) -> str | None:
    return None if instant is None else pendulum.from_timestamp(instant).isoformat(timespec="seconds")
