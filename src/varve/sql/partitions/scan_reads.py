"""Which partitions each of many scopes reads, and which scopes read a given partition.

Conditions are evaluated over the theoretical partitions.

Not here: the conditions (pushdown/scans.py), and how a group of scopes is matched with partitions (matching.py).
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

# Scopes are processed in chunks of this size; neighbouring scopes share a short list of windows.
_CHUNK = 512


def readings(
    dependencies: Dependencies,
    upstreams: Mapping[str, Upstream],
    scopes: Bindings,
    *,
    now: dt.datetime | None = None,
    warn: Callable[[exp.Expr, str], None] = lambda *_: None,
) -> Iterator[tuple[range, list[ScanReading]]]:
    """Yield, chunk by chunk and in order, the positions of the scopes and one reading for each scan.

    Where a condition bounds the windows, those that are not over at `now` are included too: a plan waits for them.
    Without such a condition, only the windows that exist at `now` are included.
    """
    for start in range(0, scopes.count, _CHUNK):
        part = scopes.part(start, start + _CHUNK)
        yield range(start, start + part.count), ScanPlan(dependencies, upstreams, part, now, warn).readings()


def readers(
    dependencies: Dependencies,
    upstreams: Mapping[str, Upstream],
    scopes: Bindings,
    dataset: str,
    partition: PartitionBox,
    *,
    warn: Callable[[exp.Expr, str], None] = lambda *_: None,
) -> Array:
    """Return one boolean for each scope: whether it reads any of these partitions of the dataset."""
    answer = np.zeros(scopes.count, dtype=bool)
    for start in range(0, scopes.count, _CHUNK):
        part = scopes.part(start, start + _CHUNK)
        # One scan at a time: where a dataset is joined with itself, the other scan may read other partitions of it.
        for scan in dependencies.scans:
            if scan.dataset == dataset:
                plan = ScanPlan(dependencies, upstreams, part, None, warn, fixed=(scan.place, partition))
                reading = next(reading for reading in plan.readings() if reading.scan is scan)
                read = np.ones(part.count, dtype=bool)
                for group in reading.groups:
                    read &= group.mask.any(axis=1)
                answer[start : start + part.count] |= read
    return answer
