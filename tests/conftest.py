"""Real services for the suite: one PostgreSQL and one Spark in a home folder of its own, ended when the suite ends.

`--spark-mode` runs the tests marked `spark` on the shared Spark Connect server (default) or in classic mode, in this
process; `make test` does both. PySpark allows one mode in one process.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import shutil
import sys
import tempfile
import uuid
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import settings as hypothesis_settings
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
    from contextvars import ContextVar

    from pyspark.sql import SparkSession

# No example has to be quick: a machine may be busy with other work.
hypothesis_settings.register_profile("varve", deadline=None)
hypothesis_settings.load_profile("varve")

# A whole module that a fast run leaves out says so in these words.
_NEEDS_MORE = re.compile(r"^pytestmark = .*pytest\.mark\.(spark|needs_seconds)\b", re.MULTILINE)

# A test has few rows and new queries: most of the time of Spark went to compiling code for them, and to jobs and tasks
# without rows. What is computed is the same. The end-to-end tests and the tortures have Spark as it is.
FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.ui.explainMode": "simple",
}


def pytest_configure(config: pytest.Config) -> None:
    """Every Spark that a test or a command of a test starts is given the options."""
    if config.getoption("--fast") or config.getoption("--slow"):
        # Messages of tests that such a run leaves out are compared by a whole run.
        config.option.warn_unused_snapshots = True
    os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spark-mode", choices=["connect", "classic"], default="connect", help="which Spark to test on")
    parser.addoption("--slow", action="store_true", help="only the tortures, which take minutes each: `make torture`")
    parser.addoption("--fast", action="store_true", help="only what needs no server: `make test-fast`, under a minute")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What a fast run leaves out whole is not imported either: importing is a third of it."""
    if not config.getoption("--fast"):
        return None
    if collection_path.name == "e2e":
        return True
    is_module = collection_path.suffix == ".py" and collection_path.is_file()
    return True if is_module and _NEEDS_MORE.search(collection_path.read_text(encoding="utf-8")) else None


# First, because the workers' own hook reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One worker runs the end-to-end tests on their home; the others, and later this one too, take file after file.

    What takes minutes comes first, so that nobody waits for it in the end. Tortures are apart: a plain run leaves them
    out, and `--slow` runs nothing else.
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
    items.sort(key=_rank)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def pytest_collection_finish() -> None:
    """Python looks for garbage among what is still new, and less often than for every 700 objects.

    A sixth of a worker's processor time went into looking through hundreds of thousands of objects of Dagster's,
    PySpark's and the suite's own, which stay until the end.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long each room's tests took, of all workers together, in a run of more than one room."""
    rooms: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                room = report.fspath.split("/")[:2][-1]
                rooms[room] += report.duration
                counts[room] += report.when == "call"
    if len(rooms) > 1:
        terminalreporter.section("seconds by room")
        for room, seconds in sorted(rooms.items(), key=lambda each: -each[1]):
            terminalreporter.write_line(f"{seconds:7,.0f} s  {counts[room]:5,} tests  {room}")


def _needs_no_server(item: pytest.Item) -> bool:
    """Whether a test starts no PostgreSQL, no Spark and no process of Dagster's, and does not take seconds either."""
    if item.get_closest_marker("needs_seconds") or item.get_closest_marker("spark"):
        return False
    return "settings" not in getattr(item, "fixturenames", ()) and "e2e" not in item.path.parts


def _rank(item: pytest.Item) -> int:
    """The place of a group in the queue: the longest rooms first, and of them those that are never divided."""
    if _group(item) == "e2e":
        return 0
    room = item.path.relative_to(Path(__file__).parent).parts[0]
    rooms = ("e2e", "cdc", "sql", "services", "cli", "dagster", "stores")
    return rooms.index(room) + 1 if room in rooms else len(rooms) + 1


def _group(item: pytest.Item) -> str:
    """Who shares a worker's servers, which any file may be given; only the end-to-end tests need what others made."""
    file = item.path.relative_to(Path(__file__).parent)
    of_their_own = {"test_demo", "test_documented_commands"}
    # What lists the assets must not run beside the end-to-end test that adds one.
    if (file.parts[0] == "e2e" and file.stem not in of_their_own) or file.stem == "test_definitions":
        return "e2e"
    return file.with_suffix("").as_posix()


@pytest.fixture(scope="session", autouse=True)
def _migrations_of_dagster_are_read_once() -> Iterator[None]:
    """Each opened instance asks thrice which migrations Dagster has, and reads the files of all of them for that."""
    from alembic.script import ScriptDirectory

    of_config, known = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def from_config(config: Any) -> ScriptDirectory:
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = of_config(config)
        return known[place]

    ScriptDirectory.from_config = from_config  # type: ignore[method-assign]
    yield
    ScriptDirectory.from_config = of_config  # type: ignore[method-assign]


@pytest.fixture(scope="session", autouse=True)
def _the_command_line_is_made_once() -> Iterator[None]:
    """Each call of a command within a test would make all hundred commands of their signatures: 0.1 s."""
    import typer.testing

    of_app, known = typer.testing._get_command, dict[tuple[int, int, int], Any]()

    def get_command(app: typer.Typer) -> Any:
        # A project may add commands of its own.
        place = (id(app), len(app.registered_commands), len(app.registered_groups))
        if place not in known:
            known[place] = (app, of_app(app))
        return known[place][1]

    typer.testing._get_command = get_command
    yield
    typer.testing._get_command = of_app


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
    if not request.config.getoption("--slow"):
        os.environ["VARVE_SPARK_CONF"] = json.dumps(FEW_ROWS)
    if request.config.getoption("--spark-mode") == "classic":
        os.environ["VARVE_SPARK_MASTER"] = "local[2]"
    found = Settings()
    PostgresServer(found.home_dir).ensure_up()
    yield found
    _close_sessions()
    SparkServer(found).stop()
    PostgresServer(found.home_dir).stop()
    os.environ.clear()
    os.environ |= before


def _close_sessions() -> None:
    """One that is open when the process ends asks its server to clean up, and tries again for eight seconds."""
    if "pyspark.sql.connect.client" in sys.modules:
        kind = sys.modules["pyspark.sql.connect.client"].SparkConnectClient
        for client in [each for each in gc.get_objects() if isinstance(each, kind)]:
            client.close()


@pytest.fixture(autouse=True)
def _no_closed_instance_stays_behind() -> None:
    """Dagster notes the instance that was opened last, and on leaving one notes the one before again.

    Where a context that has opened one is collected later than the instance around it, that is a closed one, and no
    definitions load any more in this process. In tests that were run apart, nothing is noted instead.
    """
    module = sys.modules.get("dagster._core.storage.defs_state.base")
    if module is None or hasattr(module, "set_as_dagster_does"):
        return
    current: ContextVar[Any] = module._current_storage
    module.set_as_dagster_does = module.set_defs_state_storage

    @contextlib.contextmanager
    def set_and_leave(storage: Any) -> Iterator[None]:
        before = current.get()
        current.set(storage)
        try:
            yield
        finally:
            current.set(None if before is None or before._instance_weakref() is None else before)

    module.set_defs_state_storage = set_and_leave


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
