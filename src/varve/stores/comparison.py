"""Hashes the batches that a build is about to replace, where nobody has: what reads them may then be spared.

A run of many partitions does not hash its rows by default, as that reads them once more. Where the code of a dataset
has changed, readers should still be spared if they would get the same rows, so both sides are hashed then.

Not here: the batches of the build itself, which its store hashes (`Build.compared`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from varve.catalog.planning.hashes import HashesOfBatches
from varve.stores.folders import content

if TYPE_CHECKING:
    from varve.catalog.catalog import Catalog
    from varve.model.build import Build
    from varve.stores.store import Store

logger = logging.getLogger(__name__)


def hash_replaced(store: Store, catalog: Catalog, build: Build) -> int:
    """Hash what is current of the partitions of a build that is compared; how many batches.

    Whatever fails here, the build goes on: what reads it is computed then, as without hashes.
    """
    # The hash of rows that were added to others cannot be compared column by column.
    if not build.compared or build.growth:
        return 0
    name, known = build.dataset.name, HashesOfBatches(catalog.connection)
    unhashed = known.unhashed(
        name, list(catalog.current(name, build.partitions).values()), content.set_names(build),
        whole=content.can_hash(build.dataset.schema.columns),
    )  # fmt: skip
    if not unhashed:
        return 0
    try:
        known.record(name, unhashed, store.hashes(build, unhashed))
    except Exception as error:  # noqa: BLE001
        logger.warning(
            "%s: the rows that it replaces could not be hashed, so that its readers are computed even where they would "
            "get the same rows: %s",
            build, error,
        )  # fmt: skip
        return 0
    return len(unhashed)
