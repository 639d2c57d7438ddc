"""Real services for the suite: one PostgreSQL and one Spark in a home folder of its own, ended when the suite ends.

`--spark-mode` runs the tests marked `spark` on the shared Spark Connect server (default) or in classic mode, in this
process; `make test` does both. PySpark allows one mode in one process.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from tests.support.class_archive import jvm_options
from tests.support.sales import sales_dataset
from tests.support.workbench import Workbench
from varve.catalog.catalog import Catalog
from varve.model.dataset import Dataset, StoreKind
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.services.settings import Settings
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def pytest_configure() -> None:
    """Every Spark that a test or a command of a test starts is given the options."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spark-mode", choices=["connect", "classic"], default="connect", help="which Spark to test on")
    parser.addoption("--slow", action="store_true", help="only the tortures, which take minutes each: `make torture`")
    parser.addoption("--fast", action="store_true", help="only what needs no server: `make test-fast`, under a minute")


# First, because the workers' own hook reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With two workers, one runs the end-to-end tests on their home and the other those on the suite's.

    Whoever is done first takes the tests of the stores, on a home of its own, and what needs none. Tortures are apart:
    a plain run leaves them out, and `--slow` runs nothing else.
    """
    wanted = config.getoption("--slow")
    fast = config.getoption("--fast")
    others = [
        item
        for item in items
        if bool(item.get_closest_marker("slow")) != wanted or (fast and not _needs_no_server(item))
    ]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def _needs_no_server(item: pytest.Item) -> bool:
    """Whether a test starts no PostgreSQL, no Spark and no process of Dagster's, and does not take seconds either."""
    if item.get_closest_marker("needs_seconds") or item.get_closest_marker("spark"):
        return False
    return "settings" not in getattr(item, "fixturenames", ()) and "e2e" not in item.path.parts


def _group(item: pytest.Item) -> str:
    apart = {"test_demo", "test_services", "test_java"} | {"model", "planning"}
    found = apart & {item.path.stem, item.path.parent.name}
    if found:
        return found.pop()
    # The stores' own tests are half of the suite; whoever is done with the end-to-end tests takes them.
    if {"lake", "warehouse"} & set(item.path.parts) and "stores" in item.path.parts:
        return "stores"
    # So is SQL on Spark: a group is never divided, and the longest one says how long the suite takes.
    if "sql" in item.path.relative_to(item.config.rootpath).parts:
        return "sql"
    # What lists the assets must not run beside the end-to-end test that adds one.
    return "e2e" if "e2e" in item.path.parts or item.path.stem == "test_definitions" else "suite"


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """A home folder with a short path, as a unix socket's must be."""
    folder = Path(tempfile.mkdtemp(prefix="varve-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def settings(home: Path, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """The settings of the suite, which every process that a test starts reads from the environment too."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("VARVE_", "DAGSTER_", "SPARK_"))]:
        if name != "SPARK_SUBMIT_OPTS":
            del os.environ[name]
    os.environ |= {"VARVE_HOME": str(home), "VARVE_SETTLE_SECONDS": "0"}
    if request.config.getoption("--spark-mode") == "classic":
        os.environ["VARVE_SPARK_MASTER"] = "local[2]"
    found = Settings()
    PostgresServer(found.home_dir).ensure_up()
    yield found
    SparkServer(found).stop()
    PostgresServer(found.home_dir).stop()
    os.environ.clear()
    os.environ |= before


@pytest.fixture(scope="session")
def spark(settings: Settings) -> Iterator[SparkSession]:
    """A session in the mode under test."""
    from varve.services.spark import open_session

    session = open_session(settings)
    yield session
    session.stop()


@pytest.fixture
def connection(settings: Settings) -> Iterator[psycopg.Connection]:
    """A connection to the catalog and warehouse, whose tables are there."""
    with connect(settings, application="varve test") as opened:
        Catalog(opened).ensure_schema()
        yield opened


@pytest.fixture
def catalog(connection: psycopg.Connection) -> Catalog:
    return Catalog(connection)


@pytest.fixture
def fresh_database(settings: Settings) -> Iterator[str]:
    """The URL of a database without Varve's schema, for one test."""
    server = PostgresServer(settings.home_dir)
    name = f"test_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield server.url(name)
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def lake_sales() -> Dataset:
    return sales_dataset(StoreKind.LAKE)


@pytest.fixture
def warehouse_sales() -> Dataset:
    return sales_dataset(StoreKind.WAREHOUSE)


@pytest.fixture
def workbench(settings: Settings, spark: SparkSession) -> Workbench:
    return Workbench(settings, spark)
