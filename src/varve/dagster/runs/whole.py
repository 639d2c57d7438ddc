"""Which earlier batches may be taken in the place of computing their partitions: those that are still as published.

What somebody has deleted or damaged since would otherwise be shown to readers, or end every run that takes it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.stores.store import Store

logger = logging.getLogger(__name__)


def still_whole(
    store: Store, dataset: Dataset, batches: Mapping[str, Batch], log: logging.Logger = logger
) -> dict[str, Batch]:
    """Return those of the batches, by partition, that lie there as they were published; of others the log says why."""
    damaged = {finding.partition: finding.problem for finding in store.damaged(dataset, list(batches.values()))}
    left = {path: batch for path, batch in batches.items() if path not in damaged}
    for path, problem in damaged.items():
        text = "%s %s is computed again: the batch of the same code and inputs is damaged: %s"
        log.warning(text, dataset, path, problem)
    try:
        store.refuse_missing(dataset, list(left.values()))
    except VarveError as error:
        log.warning("%s is computed again: batches of the same code and inputs cannot be taken: %s", dataset, error)
        return {}
    return left
