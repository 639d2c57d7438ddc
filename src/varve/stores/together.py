"""Changes of what is current in several datasets, of one store or of several, in one transaction.

Not here: what a store does for its readers (`Store.commit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.stores.store import Store


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
) -> None:
    """Make all changes in one transaction, with what readers of each store see; then do what follows a publish.

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
    commit()
    for change in ordered:
        store_of(change.build.dataset).published(change.build)
