"""Changes of what is current in several datasets, of one store or of several, in one transaction.

Not here: what a store does for its readers (`Store.commit`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from varve.catalog.code.generations import Generations
from varve.model.errors import StalePublish

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.stores.store import Store

logger = logging.getLogger(__name__)
T = TypeVar("T")
_ATTEMPTS = 5


@dataclass(frozen=True)
class PendingChange:
    """The change of the current batches of one dataset; `point` writes it to the catalog, as of an instant."""

    build: Build
    point: Callable[[dt.datetime], None]


def make_current(
    catalog: Catalog,
    changes: Sequence[PendingChange],
    store_of: Callable[[Dataset], Store],
    *,
    within: Callable[[Callable[[], None]], None] = lambda point: point(),
    leaving: Sequence[tuple[Store, str]] = (),
) -> None:
    """Make all changes in one transaction, with what readers of each store see; then do what follows a publish.

    `leaving` are the stores from which datasets move to others by that, with their names.

    `within` is called in the transaction with the function that changes the catalog, and must call it once.
    """
    ordered = sorted(changes, key=lambda change: change.build.dataset.name)

    def change_catalog() -> None:
        instant = catalog.instant()
        for change in ordered:
            change.point(instant)

    def point() -> None:
        with catalog.connection.transaction():
            within(change_catalog)

    by_store: dict[str, list[Build]] = {}
    for change in ordered:
        by_store.setdefault(change.build.dataset.store, []).append(change.build)
    commit = point
    # In one order everywhere, as each store takes locks of its own: else two publishes could wait for each other.
    for _, builds in sorted(by_store.items()):
        commit = partial(store_of(builds[0].dataset).commit, builds, commit)
    for store, name in leaving:
        commit = partial(store.leave, name, commit)
    commit()
    for store, name in leaving:
        hide(catalog, store, name)
    for change in ordered:
        store_of(change.build.dataset).published(change.build)


def hide(catalog: Catalog, store: Store, name: str) -> None:
    """Show readers of a store nothing of a dataset that has moved to another one; where that fails, a sweep does it."""
    try:
        store.left(name)
    except Exception as error:  # noqa: BLE001 - the move is made, and must not fail afterwards
        logger.warning("%s has moved to another store, and readers may still see it in the old one: %s", name, error)
        return
    Generations(catalog.connection).hidden(name)


def unless_locked(work: Callable[[], T]) -> T:
    """Do it, again where a publish came between, or PostgreSQL ended it so that one could go on."""
    return Retrying(
        retry=retry_if_exception_type(
            (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable, StalePublish)
        ),
        stop=stop_after_attempt(_ATTEMPTS), wait=wait_random_exponential(multiplier=0.05, max=1), reraise=True,
    )(work)  # fmt: skip
