"""Which partitions each of many scopes reads, and which scopes read a partition: conditions over what may exist.

Not here: the conditions (pushdown/scans.py), and how some scopes are matched with what may exist (matching.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from varve.sql.partitions.matching import ScanPlan, ScanReading

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Mapping

    from sqlglot import exp

    from varve.planning.mapping.partition_subset import PartitionBox
    from varve.sql.evaluate.vector import Array
    from varve.sql.partitions.axes import Bindings, Upstream
    from varve.sql.pushdown.scans import Dependencies

# Scopes are taken so many at a time, so that neighbours share a short list of windows.
_CHUNK = 512


def readings(
    found: Dependencies,
    upstreams: Mapping[str, Upstream],
    scopes: Bindings,
    *,
    now: dt.datetime | None = None,
    warn: Callable[[exp.Expr, str], None] = lambda *_: None,
) -> Iterator[tuple[range, list[ScanReading]]]:
    """What the scopes read, for some of them at a time, in their order: their places and a reading for each scan.

    Windows that are not over at `now` are read too where a condition bounds them: a plan waits for them. Without such
    a condition, what is read is what there is at `now`.
    """
    for start in range(0, scopes.count, _CHUNK):
        part = scopes.part(start, start + _CHUNK)
        yield range(start, start + part.count), ScanPlan(found, upstreams, part, now, warn).readings()


def readers(
    found: Dependencies,
    upstreams: Mapping[str, Upstream],
    scopes: Bindings,
    dataset: str,
    partition: PartitionBox,
    *,
    warn: Callable[[exp.Expr, str], None] = lambda *_: None,
) -> Array:
    """Which of the scopes read any of some partitions of a dataset: a boolean for each."""
    answer = np.zeros(scopes.count, dtype=bool)
    for start in range(0, scopes.count, _CHUNK):
        part = scopes.part(start, start + _CHUNK)
        # One scan at a time: a dataset that is joined with itself may be read elsewhere by its other scan.
        for scan in found.scans:
            if scan.dataset == dataset:
                plan = ScanPlan(found, upstreams, part, None, warn, fixed=(scan.place, partition))
                reading = next(each for each in plan.readings() if each.scan is scan)
                read = np.ones(part.count, dtype=bool)
                for group in reading.groups:
                    read &= group.mask.any(axis=1)
                answer[start : start + part.count] |= read
    return answer
