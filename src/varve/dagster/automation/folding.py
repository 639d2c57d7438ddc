"""Partitions that grew by several parts and are complete now: which of them are to be folded into one part.

Not here: folding a batch (varve/stores/lake/grown.py, varve/stores/warehouse/loading/grown.py), and requesting the
runs (sensors.py). See docs/decisions/0013-growing.md.
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
    """Yield a run of its own for each partition of a dataset that is to be folded.

    Partitions in `unsettled` are left out: they are about to change, or a person has rolled them back. So are
    partitions that another code version has made: a run would compute them again instead of adding to them.
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
