"""kill -9 of PostgreSQL at every step of a build: readers see the old rows, leftovers are found, the next build works.

The same for a run that is killed is in tests/e2e/test_kill.py, for a Python worker of Spark in test_retries.py.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.killing import kill_all
from tests.stores.warehouse.test_publish import KEYS, PARIS, Desk, periods
from tests.support.sales import sales_dataset
from varve.catalog.catalog import Catalog
from varve.model.dataset import StoreKind
from varve.model.errors import VarveError
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.stores.warehouse import clean, examine, projection, publish
from varve.stores.warehouse.loading import copying, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings

MOMENTS = {
    "before a table is filled": (copying, "_copy", "before"),
    "after a table is filled": (copying, "_copy", "after"),
    "before its rows are counted": (load, "_finish", "before"),
    "after the load": (load, "load", "after"),
    "before the publish": (publish, "_wait_for_snapshots", "before"),
    "between the waiting and the swap": (publish, "_swap", "before"),
    "inside the swap, before the views": (projection, "plan", "after"),
    "inside the swap, after the views": (publish, "replace_views", "after"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that may be killed, as nobody else is on it."""
    folder = Path(tempfile.mkdtemp(prefix="varve-"))
    folder.chmod(0o755)
    started = PostgresServer(folder)
    yield started
    started.stop()
    shutil.rmtree(folder, ignore_errors=True)


def kill(server: PostgresServer) -> None:
    pid = server.pid()
    assert pid is not None
    kill_all(pid)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_server_that_is_killed_loses_no_period(
    settings: Settings, server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    own = settings.model_copy(update={"home": server.home, "postgres_url": None})
    sales = sales_dataset(StoreKind.WAREHOUSE)
    with connect(own) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        desk = Desk(own, sales, tmp_path, catalog)
        first = desk.publish(KEYS).batch_id.millis
        module, name, when = MOMENTS[moment]
        real = getattr(module, name)

        def fatal(*given: Any, **named: Any) -> Any:
            monkeypatch.setattr(module, name, real)
            if when == "before":
                kill(server)
                return real(*given, **named)
            done = real(*given, **named)
            kill(server)
            return done

        monkeypatch.setattr(module, name, fatal)
        with pytest.raises((VarveError, psycopg.OperationalError)):
            desk.publish([PARIS])
    server.ensure_up()
    with connect(own) as connection:
        catalog = Catalog(connection)
        desk = Desk(own, sales, tmp_path, catalog)
        assert periods(connection, sales) == desk.current() == {key.path: first for key in KEYS}
        assert list(examine.tables(connection, sales, list(catalog.current(sales.name).values()))) == []
        left = [leftover.location for leftover in clean.leftovers(connection) if leftover.dataset == sales.name]
        assert len(left) == 1
        clean.drop(connection, sales.name, left)
        assert [leftover for leftover in clean.leftovers(connection) if leftover.dataset == sales.name] == []
        second = desk.publish([PARIS]).batch_id.millis
        assert periods(connection, sales) == desk.current()
        assert desk.current()[PARIS.path] == second
