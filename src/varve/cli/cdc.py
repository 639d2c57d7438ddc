"""`varve cdc`: captured tables, for people.

Not here: capturing and applying (varve/cdc).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console

from varve.cdc.captures import opened
from varve.cdc.event import format_lsn
from varve.cli.context import chosen_project, chosen_settings
from varve.cli.printing import Table
from varve.dagster.assets.datasets import DatasetAsset
from varve.dagster.discovery import load_project
from varve.model.errors import VarveError, counted

if TYPE_CHECKING:
    from varve.cdc.captured_table import CapturedTable
    from varve.cdc.captures import OpenCapture


def _assets() -> list[DatasetAsset]:
    return [found for found in load_project(chosen_project()).datasets if isinstance(found, DatasetAsset)]


def find(name: str) -> CapturedTable:
    """The captured table of a dataset. Raises VarveError, naming those that there are."""
    found = {each.dataset.name: each.captured for each in _assets() if each.captured is not None}
    if name not in found:
        raise VarveError(f"{name} is no captured dataset; the project has {', '.join(found) or 'none'}.")
    return found[name]


def status(console: Console, *, as_json: bool) -> None:
    """How far each captured table is, what waits, and what keeps the source's log."""
    found = [_status(captured) for captured in (each.captured for each in _assets()) if captured is not None]
    if as_json:
        console.print_json(json.dumps(found))
        return
    table = Table(box=None)
    for name in ("dataset", "source", "state", "applied", "to apply", "quarantined", "kept at the source"):
        table.add_column(name)
    for one in found:
        kept = "" if one.get("bytes_retained") is None else f"{one['bytes_retained'] / 1e6:.1f} MB"
        table.add_row(one["dataset"], one["source"], one["state"], one.get("applied", ""),
                      f"{one['events_to_apply']} events" if "events_to_apply" in one else "",
                      str(one.get("quarantined", "")), kept)  # fmt: skip
    console.print(table)
    for one in found:
        if one.get("late"):
            console.print(
                f"{one['dataset']}: {one['late']} events of files came late; see docs/cdc.md", highlight=False
            )
        if one.get("reason"):
            console.print(one["reason"], highlight=False)


def bootstrap(console: Console, name: str, *, again: bool, as_json: bool) -> None:
    """Take a snapshot under living writers, and apply it."""
    with opened(find(name), chosen_settings()) as capture:
        # Whoever reads JSON from us reads errors elsewhere.
        said = Console(stderr=True)
        batch = capture.bootstrap(
            again=again, say=lambda text: said.print(text, highlight=False, markup=False, soft_wrap=True)
        )
        at = format_lsn(batch.last_lsn)
        if not as_json:
            console.print(
                f"{name}: a snapshot of {counted(batch.counts.inserts, 'row')} at {at} is durable.", highlight=False
            )
        _apply(console, capture, {"rows": batch.counts.inserts, "lsn": at}, as_json=as_json)


def capture(console: Console, name: str, *, as_json: bool) -> None:
    """Capture what was committed until now, and apply it."""
    with opened(find(name), chosen_settings()) as found:
        events = found.capture()
        if not as_json:
            console.print(f"{name}: {counted(events, 'event')} captured.", highlight=False)
        _apply(console, found, {"captured": events}, as_json=as_json)


def quarantine(console: Console, name: str, *, as_json: bool) -> None:
    """The events that could not be decided, and why."""
    import pyarrow.parquet as pq

    with opened(find(name), chosen_settings(), lock=False) as found:
        folder = found.position.quarantine
    rows = pq.read_table(folder).to_pylist() if folder else []
    rows.sort(key=lambda row: (row["commitLsn"], row["seq"]))
    if as_json:
        console.print_json(json.dumps(rows))
        return
    for row in rows:
        old = dict(zip(row["oldKeyNames"], row["oldKeyValues"], strict=True))
        new = dict(zip(row["columnNames"], row["columnValues"], strict=True))
        console.print(f"{format_lsn(row['commitLsn'])} {row['changeType']} {old or ''} {new or ''}: {row['reason']}",
                      highlight=False, markup=False)  # fmt: skip
    console.print(f"{name}: {counted(len(rows), 'event')} in quarantine; the next apply tries again.", highlight=False)


def _apply(console: Console, found: OpenCapture, said: dict[str, Any], *, as_json: bool) -> None:
    from varve.services.spark import open_session

    done = found.apply(lambda: open_session(chosen_settings()), "varve cdc")
    name = found.captured.dataset.name
    if as_json:
        counts = {"applied": 0, "quarantined": found.position.quarantined} if done is None else {
            "applied": done.events, "quarantined": done.quarantined}  # fmt: skip
        published = [] if done is None else [batch.partition.path for batch in done.published]
        console.print_json(json.dumps({"dataset": name, **said, **counts, "published": published}))
        return
    if done is None:
        console.print(f"{name} holds what the source had committed.")
        return
    console.print(
        f"{name}: {counted(done.events, 'event')} applied, {counted(len(done.published), 'partition')} published, "
        f"{done.quarantined:,} quarantined.", highlight=False,
    )  # fmt: skip


def _status(captured: CapturedTable) -> dict[str, Any]:
    found: dict[str, Any] = {"dataset": captured.dataset.name, "source": captured.source, "state": "not captured"}
    # Without the lock: while somebody captures is when people look.
    with opened(captured, chosen_settings(), lock=False) as capture:
        position = capture.capturing.positions.find(captured.dataset.name)
        if position is None:
            return found
        batches = capture.capturing.log.batches(position.generation, after=position.applied_lsn)
        kept = capture.kept()
        found |= {
            "state": position.state,
            "reason": position.reason or kept.warning,
            "applied": format_lsn(max(position.applied_lsn, 0)),
            "events_to_apply": sum(batch.counts.events for batch in batches),
            "quarantined": position.quarantined,
            "late": sum(batch.late for batch in capture.capturing.log.batches(position.generation)),
        }
        if kept.slot is not None:
            found |= {"bytes_retained": kept.slot.retained, "bytes_safe": kept.slot.safe,
                      "wal_status": kept.slot.wal_status}  # fmt: skip
        return found
