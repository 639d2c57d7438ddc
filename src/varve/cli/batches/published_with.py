"""What runs publish together with a dataset goes back with it, and is pinned with it: accepted rows and rejected rows.

Not here: the rollback itself (rollback.py), and pins (pins.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from varve.catalog.history.history import History
    from varve.model.batch import BatchId
    from varve.model.dataset import Dataset


def batches_beside(
    history: History, dataset: Dataset, batches: Mapping[BatchId, Collection[str] | None], *, swept_too: bool
) -> dict[BatchId, list[str]]:
    """Return the batches that the runs of these have made in the dataset beside it.

    Batches are given and returned with the paths of their partitions; None stands for all that one has. With
    `swept_too` also those are returned whose data is not kept. There is none where no dataset is published together
    with it, and of partitions that were taken before rejected rows were kept.
    """
    if not dataset.published_with or not batches:
        return {}
    wanted = {batch_id: None if paths is None else frozenset(paths) for batch_id, paths in batches.items()}
    named = [paths for paths in wanted.values() if paths is not None]
    among = sorted({path for paths in named for path in paths}) if len(named) == len(wanted) else None
    by_run: dict[str, list[str]] = {}
    for batch in history.batches(dataset.name, among):
        paths = wanted.get(batch.batch_id, frozenset())
        if paths is None or batch.partition in paths:
            by_run.setdefault(batch.run_id, []).append(batch.partition)
    found: dict[BatchId, list[str]] = {}
    for run_id, made_paths in by_run.items():
        made = history.made_by(run_id, dataset.published_with, made_paths, swept_too=swept_too)
        for path, batch_id in made.items():
            found.setdefault(batch_id, []).append(path)
    return found
