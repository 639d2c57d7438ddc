"""Readers see what is current again, where a publish or a move to another store was made and could not be shown.

Not here: how a store follows (store.py), and the sensor that asks for it (varve/dagster/automation/following.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from varve.catalog.code.generations import Generations
from varve.model.errors import ServiceUnavailable, VarveError
from varve.stores.frames import spark_errors, spark_says
from varve.stores.together import hide

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset
    from varve.stores.store import Store

logger = logging.getLogger(__name__)


def catch_up(
    catalog: Catalog,
    store_of: Callable[[str], Store],
    declared: Mapping[str, Dataset],
    names: Collection[str],
    tell: Callable[[str], None] = logger.warning,
) -> dict[str, int]:
    """Let what readers are shown of these datasets follow the catalog; by dataset how many batches they see more.

    `store_of` gives the store of a kind. A dataset that cannot follow is told of and skipped; the data that its readers
    may still be shown is not swept.
    """
    generations = Generations(catalog.connection)
    for moved, kind in generations.all_left():
        if moved in names:
            hide(catalog, store_of(kind), moved)
    shown = {}
    for name in names:
        lags = catalog.lagging(name) or catalog.withdrawn(name)
        dataset = declared.get(name) if lags else None
        # A declaration of another generation does not say what readers of this one see.
        if dataset is not None and not generations.breaking([dataset]):
            try:
                shown[name] = store_of(dataset.store).follow(dataset)
            except ServiceUnavailable:
                continue
            except Exception as error:
                if not isinstance(error, (VarveError, *spark_errors())):
                    raise
                tell(f"{name}: what its readers are shown cannot follow what is published: {spark_says(error)}")
    return shown
