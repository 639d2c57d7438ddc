"""The values that the history returns, and how they are read from the rows of its queries.

Not here: the queries (statements.py) and who executes them (history.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.model.batch import BatchId, BatchState, Bounds, Input
from varve.model.inventory import DescribedBatch

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Pin:
    """Why a batch must not be swept, who says so, and until when (None: until somebody unpins it)."""

    owner: str
    reason: str
    expires_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class PastBatch:
    """Everything that the catalog holds of one batch, in any state.

    Attributes:
        environment: in which it was computed, if it was never current in production; "" otherwise.
    """

    partition: str
    batch_id: BatchId
    state: BatchState
    is_current: bool
    run_id: str
    rows: int | None
    size: int | None
    files: int | None
    content: str | None
    bounds: tuple[Bounds, ...]
    location: str | None
    started_at: dt.datetime
    published_at: dt.datetime | None
    retired_at: dt.datetime | None
    swept_at: dt.datetime | None
    failure: str | None
    pins: tuple[Pin, ...]
    environment: str


@dataclass(frozen=True, slots=True)
class CurrentChange:
    """One change of a partition's current batch; `batch_id` None: since then it has no batch."""

    partition: str
    batch_id: BatchId | None
    kind: str
    run_id: str
    reason: str
    published_at: dt.datetime


@dataclass(frozen=True, slots=True)
class Reversal:
    """What a run did to one partition.

    Attributes:
        before: the current batch before the run; None where there was none.
        published: the batch that the run published last.
        current: the current batch now.
    """

    dataset: str
    partition: str
    before: BatchId | None
    published: BatchId | None
    current: BatchId | None


@dataclass(frozen=True, slots=True)
class Retired:
    """A batch that readers do not see any more.

    Attributes:
        retired_at: when it was, or when the last environment that had it in its overlay let go of it.
        kept: why a sweep keeps it: `pinned`, `environment`, `shown`, `recent`, `last`, `declared`, `broken`, `in use`;
            empty where it may be deleted.
    """

    dataset: str
    store: str
    partition: str
    batch_id: BatchId
    location: str
    size: int
    retired_at: dt.datetime
    kept: str


def batch_id_of(millis: int | None) -> BatchId | None:
    """The batch id of these milliseconds; None for None."""
    return None if millis is None else BatchId(millis)


def retired_of(row: Sequence[Any]) -> Retired:
    """Reads a row of RETIRED or UNDELETED."""
    dataset, store, partition, batch_id, *rest = row
    return Retired(dataset, store, partition, BatchId(batch_id), *rest)


def described_of(dataset: str, row: Sequence[Any]) -> DescribedBatch:
    """Reads a row of DESCRIBED."""
    path, batch_id, location, run_id, code_version, rows, size, files, content, statistics, inputs, declared = row
    bounds = tuple(Bounds(column, low, high) for column, (low, high) in statistics.items())
    return DescribedBatch(
        dataset, path, BatchId(batch_id), location, run_id, code_version, rows, size, files, content, bounds,
        tuple(Input(*input_fields) for input_fields in inputs), declared,
    )  # fmt: skip


def past_batch_of(row: Sequence[Any]) -> PastBatch:
    """Reads a row of BATCHES."""
    (
        partition, batch_id, state, is_current, run_id, rows, size, files, content, statistics, location,
        started, published, retired, swept, failure, pins, environment,
    ) = row  # fmt: skip
    return PastBatch(
        partition=partition,
        batch_id=BatchId(batch_id),
        state=BatchState(state),
        is_current=is_current,
        run_id=run_id,
        rows=rows,
        size=size,
        files=files,
        content=content,
        bounds=tuple(Bounds(column, low, high) for column, (low, high) in statistics.items()),
        location=location,
        started_at=started,
        published_at=published,
        retired_at=retired,
        swept_at=swept,
        failure=failure,
        pins=tuple(
            Pin(owner, reason, dt.datetime.fromisoformat(expires) if expires else None)
            for owner, reason, expires in pins
        ),
        environment=environment,
    )
