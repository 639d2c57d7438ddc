"""The store of each kind, as the settings have it.

Not here: what they do (lake and warehouse beside this), and the builds that use them (varve/dagster/runs/builds.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.dataset import StoreKind
from varve.services.postgres import warehouse_url
from varve.stores.folders.layout import Layout
from varve.stores.lake.store import LakeStore
from varve.stores.warehouse.loading.load import Route
from varve.stores.warehouse.store import WarehouseStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from varve.catalog.catalog import Catalog
    from varve.services.settings import Settings
    from varve.stores.store import Store

# Where the warehouse's rows wait for their COPY, in the lake's root but no part of the lake.
SPOOL = "_spool"


def open_store(kind: StoreKind, settings: Settings, catalog: Catalog, spark: Callable[[], SparkSession]) -> Store:
    """The store of one kind. `spark` opens the session when it is first needed."""
    if kind is StoreKind.LAKE:
        return LakeStore(
            Layout(settings.lake), catalog, spark,
            codec=settings.compression, hashing=settings.content_hash, metastore=settings.hive_metastore_uri,
        )  # fmt: skip
    route = Route(warehouse_url(settings), settings.load_connections, spark)
    return WarehouseStore(route, Layout(f"{settings.lake}/{SPOOL}"), catalog, spark, settings.publish_seconds)
