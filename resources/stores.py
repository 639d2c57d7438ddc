"""The store of each kind, as the settings have it.

Not here: what they do (lake/, warehouse/), and the builds that use them (builds.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_defs.model.dataset import StoreKind
from resources.lake.layout import Layout
from resources.lake.store import LakeStore
from resources.postgres import warehouse_url
from resources.warehouse.load import Route
from resources.warehouse.store import WarehouseStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from resources.catalog import Catalog
    from resources.settings import Settings
    from resources.store import Store

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
