"""Partitions that grew and of which no more is expected: which are to be put together now.

Not here: what that does to a batch (varve/stores/lake/grown.py, varve/stores/warehouse/loading/grown.py), and asking
for the runs (sensors.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.catalog.parts import Parts
from varve.model.errors import UnknownPartition
from varve.planning.arrivals.growing import folds
from varve.planning.run_requests import Run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import psycopg

    from varve.model.dataset import Dataset

REASON = "its window is over: what was added is put together"


def to_fold(
    connection: psycopg.Connection,
    dataset: Dataset,
    code_version: str,
    unsettled: Collection[str] | Mapping[str, object],
    now: float,
) -> Iterator[Run]:
    """A run for each partition of a dataset that is to be put together, by itself.

    None of those that are `unsettled`: they are about to change, or a person has taken them back. None that other code
    has made: it would not add to what that has read.
    """
    if dataset.incremental is None:
        return
    for path, batch_id, parts, version in Parts(connection).several(dataset.name):
        if path in unsettled or version != code_version:
            continue
        try:
            key = dataset.partitioning.from_path(path)
        except UnknownPartition:
            continue
        if folds(dataset, key, parts, now):
            yield Run(dataset, (key,), frozenset(), REASON, (f"put together {batch_id}",))
