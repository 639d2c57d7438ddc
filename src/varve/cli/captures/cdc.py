"""`varve cdc`: captured tables, for people.

Not here: capturing and applying (varve/cdc).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from varve.cdc.captures import opened, other_tables, passed_over
from varve.cdc.event import format_lsn
from varve.cli.context import chosen_project, chosen_settings
from varve.cli.printing import Table, open_error_console
from varve.dagster.assets.datasets import DatasetAsset
from varve.dagster.discovery import load_project
from varve.model.errors import VarveError, counted, some
from varve.services.files import open_files
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from varve.cdc.captured_table import CapturedTable
    from varve.cdc.captures import OpenCapture
    from varve.cdc.verify.verification import Verification


# So many seconds a command waits for another process that captures or applies, as the tick of the sensor does.
_PATIENCE = 30.0


def _assets() -> list[DatasetAsset]:
    return [dataset for dataset in load_project(chosen_project()).datasets if isinstance(dataset, DatasetAsset)]


def find(name: str) -> CapturedTable:
    """Return the captured table of a dataset.

    Raises VarveError with the names of all captured datasets where `name` is none of them.
    """
    captured_tables = {asset.dataset.name: asset.captured for asset in _assets() if asset.captured is not None}
    if name not in captured_tables:
        raise VarveError(f"{name} is no captured dataset; the project has {', '.join(captured_tables) or 'none'}.")
    return captured_tables[name]


def status(console: Console, *, as_json: bool) -> None:
    """Print how far each captured table is, what waits to be applied, and how much log the source retains for it."""
    statuses = [_status(captured) for captured in (asset.captured for asset in _assets()) if captured is not None]
    if as_json:
        console.print_json(json.dumps(statuses))
        return
    table = Table(box=None)
    for name in ("dataset", "source", "state", "applied", "to apply", "quarantined", "kept at the source"):
        table.add_column(name)
    for row in statuses:
        retained = "" if row.get("bytes_retained") is None else f"{row['bytes_retained'] / 1e6:.1f} MB"
        table.add_row(row["dataset"], row["source"], row["state"], row.get("applied", ""),
                      f"{row['events_to_apply']} events" if "events_to_apply" in row else "",
                      str(row.get("quarantined", "")), retained)  # fmt: skip
    console.print(table)
    for row in statuses:
        if row.get("late"):
            console.print(
                f"{row['dataset']}: {row['late']:,} events of files came late, after events that were made later. They "
                "are applied while those are kept: docs/cdc.md.",
                highlight=False,
            )
        for notice in _notices(row["source"], row.get("other_tables", {}), row.get("left_alone", ())):
            console.print(f"{row['dataset']}: {notice}.", highlight=False, markup=False)
        if row.get("reason"):
            console.print(row["reason"], highlight=False)


def bootstrap(console: Console, name: str, *, resnapshot: bool, as_json: bool, leave_out: bool = False) -> None:
    """Take a snapshot while others write to the table, and apply it."""
    with opened(find(name), chosen_settings(), patience=_PATIENCE) as capture:
        # Progress goes to stderr: with --json, stdout holds the JSON alone.
        error_console = open_error_console()
        batch = capture.bootstrap(
            resnapshot=resnapshot,
            leave_out=leave_out,
            say=lambda text: error_console.print(text, highlight=False, markup=False, soft_wrap=True),
        )
        at = format_lsn(batch.last_lsn)
        if not as_json:
            console.print(
                f"{name}: a snapshot of {counted(batch.counts.inserts, 'row')} at {at} is durable.", highlight=False
            )
        _apply(console, capture, {"rows": batch.counts.inserts, "lsn": at}, as_json=as_json)


def capture(console: Console, name: str, *, as_json: bool) -> None:
    """Capture what the source has committed until now, and apply it."""
    with opened(find(name), chosen_settings(), patience=_PATIENCE) as open_capture:
        events, stop = open_capture.capture_to_stop()
        if stop is not None:
            # With the error, the JSON on stdout would look like a success.
            if open_capture.waiting():
                _apply(open_error_console(), open_capture, {}, as_json=False, stop=stop)
            raise stop
        others = other_tables(open_capture.waiting())
        if not as_json:
            console.print(f"{name}: {counted(events, 'event')} captured.", highlight=False)
            for notice in _notices(open_capture.captured.source, others, open_capture.left_alone()):
                console.print(f"{name}: {notice}.", highlight=False, markup=False)
        _apply(console, open_capture, {"captured": events, "other_tables": others}, as_json=as_json)


def verify(console: Console, name: str, *, rows_shown: int, as_json: bool) -> bool:
    """Print how the dataset compares with its source, and return whether they are equal."""
    from varve.cdc.verify.verification import verify as compare_with_source
    from varve.services.spark import open_session

    error_console = open_error_console()
    with opened(find(name), chosen_settings(), patience=_PATIENCE) as open_capture:
        result = compare_with_source(
            open_capture,
            open_store,
            lambda: open_session(chosen_settings()),
            "varve cdc verify",
            lambda text: error_console.print(text, highlight=False, markup=False, soft_wrap=True),
        )
    if as_json:
        console.print_json(json.dumps(result.as_json(rows_shown)))
        return result.equal
    _print_differences(console, result, rows_shown)
    at = format_lsn(result.lsn)
    if result.equal:
        console.print(
            f"{name} and {result.source} are equal at {at}: {counted(result.source_rows, 'row')} each.", highlight=False
        )
    else:
        console.print(
            f"{name} and {result.source} differ at {at}: {counted(result.source_rows, 'row')} at the source, "
            f"{result.lake_rows:,} in the lake. Heal it: varve cdc resnapshot {name}",
            highlight=False,
        )
    return result.equal


def _print_differences(console: Console, result: Verification, limit: int) -> None:
    where = {"source": "only at the source", "lake": "only in the lake", "both": "differs"}
    if result.rows and limit:
        table = Table(box=None)
        for heading in ("key", "", "column", "source", "lake"):
            table.add_column(heading)
        for row in result.rows[:limit]:
            key = ", ".join(f"{column}={_shown(value)}" for column, value in row.key.items())
            sides = where[row.where] + (f", {row.times} times" if row.times > 1 else "")
            values = row.values if row.where == "both" else {}
            for column, (source, lake) in values.items() or (("", ("", "")),):
                table.add_row(escape(key), sides, column, escape(_shown(source)), escape(_shown(lake)))
                key, sides = "", ""
        console.print(table)
    if len(result.rows) > limit:
        console.print(f"... and {counted(len(result.rows) - limit, 'row')} more (--rows).", highlight=False)
    if result.slices_differing > result.slices_read:
        console.print(
            f"{result.slices_differing:,} of {result.slices:,} slices of the keys differ; the rows of the first "
            f"{result.slices_read:,} were compared.",
            highlight=False,
        )
    if result.misplaced:
        console.print(f"{counted(result.misplaced, 'row')} of the lake in another partition than partition_by says.")
    if result.not_compared:
        console.print(f"Not compared, as the source has dropped them: {', '.join(result.not_compared)}.")
    if result.quarantined:
        console.print(
            f"{counted(result.quarantined, 'event')} in quarantine, whose rows are as they were before: "
            f"varve cdc quarantine {result.dataset}",
            highlight=False,
        )


def _shown(value: str | None) -> str:
    return "NULL" if value is None else value


def quarantine(console: Console, name: str, *, as_json: bool) -> None:
    """Print the events that could not be applied, each with the reason."""
    import pyarrow.parquet as pq

    with opened(find(name), chosen_settings(), lock=False) as open_capture:
        folder = open_capture.position.quarantine
    rows = []
    if folder:
        files, place = open_files(folder)
        rows = pq.read_table(place, filesystem=files).to_pylist()
    rows.sort(key=lambda row: (row["commitLsn"], row["seq"]))
    if as_json:
        console.print_json(json.dumps(rows))
        return
    for row in rows:
        old = dict(zip(row["oldKeyNames"], row["oldKeyValues"], strict=True))
        new = dict(zip(row["columnNames"], row["columnValues"], strict=True))
        console.print(f"{format_lsn(row['commitLsn'])} {row['changeType']} {old or ''} {new or ''}: {row['reason']}",
                      highlight=False, markup=False)  # fmt: skip
    events = sum(row["changeType"] != "truncate" for row in rows)
    console.print(f"{name}: {counted(events, 'event')} in quarantine; the next apply tries again.", highlight=False)


def _apply(
    console: Console,
    open_capture: OpenCapture,
    captured_counts: dict[str, Any],
    *,
    as_json: bool,
    stop: VarveError | None = None,
) -> None:
    from varve.services.spark import open_session

    applied = open_capture.apply_before_stop(stop, open_store, lambda: open_session(chosen_settings()), "varve cdc")
    name = open_capture.captured.dataset.name
    if as_json:
        counts = {"applied": 0, "quarantined": open_capture.position.quarantined} if applied is None else {
            "applied": applied.events, "quarantined": applied.quarantined}  # fmt: skip
        published = [] if applied is None else [batch.partition.path for batch in applied.published]
        console.print_json(json.dumps({"dataset": name, **captured_counts, **counts, "published": published}))
        return
    if applied is None:
        console.print(f"{name} holds what the source had committed.")
        return
    console.print(
        f"{name}: {counted(applied.events, 'event')} applied, "
        f"{counted(len(applied.published), 'partition')} published, {applied.quarantined:,} quarantined.",
        highlight=False,
    )


def _status(captured: CapturedTable) -> dict[str, Any]:
    status_values: dict[str, Any] = {
        "dataset": captured.dataset.name,
        "source": captured.source,
        "state": "not captured",
    }
    # Read without the lock: people ask for the status while a capture is running.
    with opened(captured, chosen_settings(), lock=False) as capture:
        position = capture.capturing.positions.find(captured.dataset.name)
        if position is None:
            return status_values
        batches = capture.capturing.log.batches(position.generation)
        to_apply = [batch for batch in batches if batch.last_lsn > position.applied_lsn]
        retained_log = capture.kept()
        status_values |= {
            "state": position.state,
            "reason": position.reason or retained_log.warning,
            "applied": format_lsn(max(position.applied_lsn, 0)),
            "events_to_apply": sum(batch.counts.events for batch in to_apply),
            "quarantined": position.quarantined,
            "late": sum(batch.late for batch in batches),
            "other_tables": other_tables(batches),
            "left_alone": capture.left_alone(),
        }
        if retained_log.slot is not None:
            status_values |= {"bytes_retained": retained_log.slot.retained, "bytes_safe": retained_log.slot.safe,
                      "wal_status": retained_log.slot.wal_status}  # fmt: skip
        return status_values


def _notices(source: str, others: Mapping[str, int], names: Sequence[str]) -> list[str]:
    """What change files had of other tables, and the names that are those of no change files, as parts of sentences."""
    notices = [passed_over(source, Counter(others))] if others else []
    if names:
        files = counted(len(names), "file")
        notices.append(
            f"{files} in the folder of its changes left alone, ending neither in .jsonl nor in .json: {some(names)}"
        )
    return notices
