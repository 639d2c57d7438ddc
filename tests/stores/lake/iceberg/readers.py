"""Engines that read Iceberg tables by the catalog's views: pyiceberg, Polars and DuckDB, as rows that compare."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
from pyiceberg.catalog.sql import SqlCatalog

from varve.services.postgres import warehouse_url
from varve.stores.lake.iceberg.pointers import CATALOG, SCHEMA

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from varve.model.dataset import Dataset
    from varve.services.settings import Settings


def iceberg_catalog(settings: Settings, **properties: str) -> SqlCatalog:
    """The catalog as another program opens it (docs/iceberg.md); `properties` say how files are read."""
    url = warehouse_url(settings).replace("postgresql://", "postgresql+psycopg://", 1)
    separator = "&" if "?" in url else "?"
    options = f"{url}{separator}options=-csearch_path%3D{SCHEMA}"
    return SqlCatalog(CATALOG, uri=options, init_catalog_tables="false", **properties)


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


def by_duckdb(table: Table) -> list[dict[str, Any]]:
    """All rows by DuckDB's extension, which is given the location of the metadata, sorted."""
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        for name in ("avro", "iceberg"):
            package = Path(importlib.import_module(f"duckdb_extension_{name}").__path__[0])
            (extension,) = package.glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")
            connection.load_extension(str(extension))
        connection.execute("SET TimeZone = 'UTC'")
        location = table.metadata_location.removeprefix("file://")
        return by_text(connection.sql("SELECT * FROM iceberg_scan(?)", params=[location]).to_arrow_table().to_pylist())


def by_text(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of their texts, in which NaN has a place too."""
    return sorted(rows, key=str)
