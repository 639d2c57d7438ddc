"""A process that upgrades a catalog, for a test to kill in the middle.

python -m tests.catalog.upgrading URL FOLDER VERSION
"""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg

from varve.catalog.schema import CatalogSchema


def main(url: str, folder: str, version: str) -> None:
    with psycopg.connect(url, autocommit=True, application_name="varve upgrading") as connection:
        CatalogSchema(int(version), Path(folder)).migrate(connection, force=True)


main(*sys.argv[1:])
