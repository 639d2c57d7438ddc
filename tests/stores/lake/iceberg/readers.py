"""Engines that read Iceberg tables by the catalog's views: pyiceberg and Polars, as rows that compare."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import polars as pl
from pyiceberg.catalog.sql import SqlCatalog

from varve.services.postgres import warehouse_url
from varve.stores.lake.iceberg.pointers import CATALOG, SCHEMA

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from varve.model.dataset import Dataset
    from varve.services.settings import Settings


def iceberg_catalog(settings: Settings) -> SqlCatalog:
    """The catalog as another program opens it (docs/iceberg.md)."""
    url = warehouse_url(settings).replace("postgresql://", "postgresql+psycopg://", 1)
    separator = "&" if "?" in url else "?"
    options = f"{url}{separator}options=-csearch_path%3D{SCHEMA}"
    return SqlCatalog(CATALOG, uri=options, init_catalog_tables="false")


def iceberg_table(settings: Settings, dataset: Dataset, environment: str = "") -> Table:
    """The dataset's table. Raises NoSuchTableError where engines are shown none."""
    catalog = iceberg_catalog(settings)
    try:
        namespace = f"{dataset.db}__{environment}" if environment else dataset.db
        return catalog.load_table((namespace, dataset.table))
    finally:
        catalog.engine.dispose()


def by_pyiceberg(table: Table, **scan: Any) -> list[dict[str, Any]]:
    """All rows, or those that a scan with these arguments gives, sorted."""
    return by_text(table.scan(**scan).to_arrow().to_pylist())


def by_polars(table: Table) -> list[dict[str, Any]]:
    """All rows by Polars' own reader of parquet, sorted."""
    with warnings.catch_warnings():
        # That it could plan faster with one more package.
        warnings.simplefilter("ignore", pl.exceptions.PerformanceWarning)
        frame = pl.scan_iceberg(table.metadata_location, reader_override="native").collect()
    return by_text(frame.to_arrow().to_pylist())


def by_text(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of their texts, in which NaN has a place too."""
    return sorted(rows, key=str)
