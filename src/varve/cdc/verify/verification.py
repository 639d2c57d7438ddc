"""Verification: source and lake compared at one LSN, slice by slice, down to the rows that differ.

Both sides are read once, where they lie, and at the same time: PostgreSQL and Spark each add up a number of each row
of each slice of the keys. Only slices whose sums differ are read by rows.

Not here: the command (varve/cli/captures/cdc.py) and the check in Dagster (varve/dagster/assets/captured.py).
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from varve.cdc.capture import source_database
from varve.cdc.capture.capture import Capture
from varve.cdc.capture.fence import fence
from varve.cdc.event import format_lsn
from varve.cdc.verify.lake_sums import lake_rows, lake_sums
from varve.cdc.verify.slices import Comparison, differing, row_differences, slices_for, to_read
from varve.cdc.verify.source_sums import estimated_rows, source_rows, source_sums
from varve.model.errors import VarveError, counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from varve.cdc.capture.fence import Fence
    from varve.cdc.captured_table import CapturedTable, SourceTable
    from varve.cdc.captures import OpenCapture, OpenStore
    from varve.cdc.verify.slices import RowDifference, Sum


@dataclass(frozen=True)
class Verification:
    """The result of a comparison.

    Attributes:
        lsn: the place in the source's log at which both sides were compared.
        slices: into how many slices the keys were divided; `slices_differing` of them had other sums, and the rows of
            `slices_read` of these were compared: all but in a table that differs nearly everywhere.
        rows: the rows that differ, in the slices that were read.
        misplaced: rows of the lake in another partition than `partition_by` says.
        not_compared: columns of the dataset that the source has dropped.
        quarantined: events that were set aside, whose rows are expected to differ.
        seconds: how long the sums of each side took.
    """

    dataset: str
    source: str
    lsn: int
    source_rows: int
    lake_rows: int
    slices: int
    slices_differing: int
    slices_read: int
    rows: tuple[RowDifference, ...]
    misplaced: int
    not_compared: tuple[str, ...]
    quarantined: int
    seconds: dict[str, float]

    @property
    def equal(self) -> bool:
        """Whether the lake has exactly the rows of the source, each in its partition."""
        return not self.slices_differing and not self.misplaced

    def as_json(self, limit: int) -> dict[str, Any]:
        """The result as JSON values, with `limit` rows at most."""
        values = asdict(self) | {"equal": self.equal, "lsn": format_lsn(self.lsn), "rows_differing": len(self.rows)}
        return values | {"rows": values["rows"][:limit]}


def verify(
    capture: OpenCapture, open_store: OpenStore, spark: Callable[[], SparkSession], run_id: str,
    say: Callable[[str], None] = lambda _: None,
) -> Verification:  # fmt: skip
    """Bring the dataset up to a snapshot of its source, and compare them there.

    The caller holds the dataset's lock, which is released as soon as the lake is where the source is: captures go on
    during the comparison. Raises VarveError where there is no source to compare with, what capture and apply raise, and
    ServiceUnavailable where transactions stay open at the source.
    """
    captured, capturing = capture.captured, capture.capturing
    if not isinstance(capturing, Capture):
        raise VarveError(
            f"{captured.dataset} follows files of changes, so there is no source to compare it with. Compare it where "
            "the files come from."
        )
    if captured.ignore_null_updates:
        raise VarveError(
            f"{captured.dataset} is declared with ignore_null_updates: it keeps values that its source has not, so "
            "that they cannot be compared."
        )
    say(f"{captured.dataset}: a snapshot of {captured.source} is opened.")
    with fence(captured, capturing.source, capture.settings.bootstrap_seconds, say) as opened_fence:
        events = _bring_up_to(opened_fence, capture, open_store, spark, run_id)
        at = format_lsn(opened_fence.moment.upto)
        say(f"{captured.dataset}: the lake is at {at} as well, after {counted(events, 'event')}.")
        # Noted under the lock. The sweep takes none of them for days, whatever is published from now on.
        current = list(capture.catalog.current(captured.dataset.name).values())
        position = capture.position
        capturing.positions.unlock(captured.dataset.name)
        store = open_store(captured.dataset.store, capture.settings, capture.catalog, spark)
        frame = store.read(captured.dataset, current)
        if captured.history:
            frame = frame.where("valid_to_lsn is null")
        comparison, dropped = comparison_of(captured, opened_fence)
        result = _compare(captured, opened_fence, comparison, frame, say)
    return Verification(
        captured.dataset.name, captured.source, opened_fence.moment.upto, **result, not_compared=dropped,
        quarantined=position.quarantined,
    )  # fmt: skip


def comparison_of(captured: CapturedTable, opened_fence: Fence) -> tuple[Comparison, tuple[str, ...]]:
    """The columns of both sides, and the columns of the dataset that the source has dropped."""
    table: SourceTable = opened_fence.moment.table
    sources = {captured.column(column.name): column for column in table.columns}
    columns = tuple((column, sources[column.name]) for column in captured.columns if column.name in sources)
    key = tuple(captured.column(name) for name in table.key) if table.keyed else ()
    rows = estimated_rows(opened_fence.connection, table.oid)
    dropped = tuple(column.name for column in captured.columns if column.name not in sources)
    return Comparison(columns, key, slices_for(rows)), dropped


def _bring_up_to(
    opened_fence: Fence, capture: OpenCapture, open_store: OpenStore, spark: Callable[[], SparkSession], run_id: str
) -> int:
    """Capture and apply what was committed up to the fence; returns the number of events that were captured."""
    assert isinstance(capture.capturing, Capture)
    events, upto = 0, opened_fence.moment.upto
    while (batch := capture.capturing.capture(opened_fence.moment)) is not None:
        events += batch.counts.events
    durable = capture.capturing.log.captured(capture.position.generation) or 0
    if durable > upto:
        raise VarveError(
            f"{capture.captured.dataset}: {format_lsn(durable)} was captured already, which is after the snapshot at "
            f"{format_lsn(upto)}. Nothing was compared. Run it again."
        )
    capture.apply(open_store, spark, run_id)
    return events


def _compare(
    captured: CapturedTable, opened_fence: Fence, comparison: Comparison, frame: DataFrame, say: Callable[[str], None]
) -> dict[str, Any]:
    connection = opened_fence.connection
    seconds: dict[str, float] = {}

    def of_source() -> dict[int, Sum]:
        began = time.monotonic()
        with source_database.asked(captured):
            sums = source_sums(connection, captured.source, comparison)
        seconds["source"] = round(time.monotonic() - began, 2)
        say(f"{captured.source}: {counted(_rows(sums), 'row')} added up in {seconds['source']:.1f} s.")
        return sums

    with ThreadPoolExecutor(1, "varve verify") as executor:
        pending = executor.submit(of_source)
        began = time.monotonic()
        try:
            in_lake, misplaced = lake_sums(frame, comparison, captured.partition_by)
        except BaseException:
            connection.cancel()
            raise
        seconds["lake"] = round(time.monotonic() - began, 2)
        say(f"{captured.dataset}: {counted(_rows(in_lake), 'row')} added up in {seconds['lake']:.1f} s.")
        in_source = pending.result()
    slices = differing(in_source, in_lake)
    read = to_read(slices, in_source, in_lake) if slices else []
    rows: list[RowDifference] = []
    if read:
        say(f"{captured.dataset}: {counted(len(slices), 'slice')} of {comparison.slices:,} differ; "
            f"the rows of {len(read):,} are compared.")  # fmt: skip
        with source_database.asked(captured):
            at_source = list(source_rows(connection, captured.source, comparison, read))
        rows = row_differences(comparison, at_source, lake_rows(frame, comparison, read))
    return {
        "source_rows": _rows(in_source), "lake_rows": _rows(in_lake), "slices": comparison.slices,
        "slices_differing": len(slices), "slices_read": len(read), "rows": tuple(rows), "misplaced": misplaced,
        "seconds": seconds,
    }  # fmt: skip


def _rows(sums: dict[int, Sum]) -> int:
    return sum(item.rows for item in sums.values())
