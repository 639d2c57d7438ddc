"""Which stores there are: the lake, the warehouse, views of others' files, and those of packages; and opening one.

A package adds a store by an entry point of the group `varve.stores`, whose name is the store's and whose value is a
`StoreType`: `folder = "my_package.folder_store:FOLDER"`.

Not here: what they do (lake and warehouse beside this), and the builds that use them (varve/dagster/runs/builds).
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.catalog.rows import columns_of
from varve.model.dataset import STORE_ENTRY_POINTS, refuse_unknown_store
from varve.model.errors import VarveError
from varve.model.evolution import Consequence
from varve.planning.changes.generation import Shape, breaks
from varve.stores.environments.store import EnvironmentStore
from varve.stores.lake.store import LAKE
from varve.stores.store import StoreType
from varve.stores.views.store import VIEW
from varve.stores.warehouse.store import WAREHOUSE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from pyspark.sql import SparkSession

    from varve.catalog.catalog import Catalog
    from varve.services.settings import Settings
    from varve.stores.store import Store

_BUILT_IN = {LAKE.name: LAKE, WAREHOUSE.name: WAREHOUSE, VIEW.name: VIEW}


def store_type(name: str) -> StoreType:
    """The store of that name. Raises VarveError where there is none, or where its package offers something else."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    refuse_unknown_store(name)
    (point, *_) = entry_points(group=STORE_ENTRY_POINTS, name=name)
    try:
        store_type = point.load()
    except (ImportError, AttributeError) as error:
        raise VarveError(
            f"the store {name} is {point.value}, which cannot be imported: {error}. Mend or uninstall its package."
        ) from error
    if not isinstance(store_type, StoreType) or store_type.name != name:
        raise VarveError(
            f"the store {name} is {point.value}, which is {store_type!r} and no StoreType of that name. Mend or "
            "uninstall its package."
        )
    return store_type


def consequences_of(
    store_before: str, before: Mapping[str, Any], store: str, after: Mapping[str, Any]
) -> Sequence[Consequence]:
    """What follows for the batches of a dataset where one declaration, as the catalog keeps it, replaces another."""
    if reasons := breaks(Shape(store_before, columns_of(before)), Shape(store, columns_of(after))):
        text = (
            f"It needs a new generation. {' '.join(reasons)} `varve evolve` builds it beside the old one and moves "
            "readers in one step; until then production leaves the dataset alone, and all that reads it."
        )
        return [Consequence(text, new_generation=True)]
    return store_type(store).consequences(columns_of(before), columns_of(after))


def open_store(name: str, settings: Settings, catalog: Catalog, spark: Callable[[], SparkSession]) -> Store:
    """The store of that name, as the settings have it. `spark` opens the session when it is first needed.

    With the catalog of an environment, what is published there stays there.
    """
    store = store_type(name).open(settings, catalog, spark)
    return EnvironmentStore(store, catalog) if isinstance(catalog, EnvironmentCatalog) else store
