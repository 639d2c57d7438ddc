"""The connection to Dagster's storage that a process keeps: one, of a minute at most, and of no other process."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from varve.dagster import storage_engine
from varve.dagster.instance import open_instance
from varve.dagster.storage_engine import kept_engine
from varve.services.postgres import connect, dagster_storage_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from varve.services.settings import Settings

# The child of a fork asks by a connection of its own, and the parent goes on with its own.
FORKED = """
import os, sys
from sqlalchemy import text
from varve.dagster.storage_engine import kept_engine

def backend():
    with kept_engine(sys.argv[1]).connect() as connection:
        return connection.execute(text("select pg_backend_pid()")).scalar_one()

before = backend()
reading, writing = os.pipe()
if not os.fork():
    os.write(writing, str(backend()).encode())
    os._exit(0)
of_child = int(os.read(reading, 20))
os.wait()
print(before == backend(), before != of_child)
"""


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    kept_engine.cache_clear()
    yield kept_engine(dagster_storage_url(settings))
    kept_engine.cache_clear()


def backend(engine: Engine, seconds: float = 0.0) -> int:
    """The process of the server that answers."""
    with engine.connect() as connection:
        return int(connection.execute(text(f"select pg_backend_pid() from pg_sleep({seconds})")).scalar_one())


def test_all_instances_of_a_process_ask_by_one_connection(engine: Engine, settings: Settings) -> None:
    first = backend(engine)
    for _ in range(2):
        with open_instance(settings) as instance:
            assert instance.run_storage.get_runs_count() >= 0
            assert instance.get_ticks("none", "none") == []
            for storage in (instance.run_storage, instance.event_log_storage, instance.schedule_storage):
                assert storage._engine is engine  # type: ignore[union-attr]
    assert backend(engine) == first


def test_at_once_there_are_as_many_as_are_needed_and_afterwards_one(engine: Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(lambda _: backend(engine, 0.3), range(4))}) == 4
    assert engine.pool.checkedin() == 1  # type: ignore[attr-defined]


def test_one_that_the_server_has_ended_is_replaced(engine: Engine, settings: Settings) -> None:
    first = backend(engine)
    with connect(settings, application="varve test") as administrator:
        assert administrator.execute("select pg_terminate_backend(%s, 10000)", (first,)).fetchone() == (True,)
    assert backend(engine) != first


def test_one_that_is_old_is_replaced(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_engine, "_KEPT_SECONDS", 1)
    kept_engine.cache_clear()
    engine = kept_engine(dagster_storage_url(settings))
    first = backend(engine)
    assert backend(engine) == first
    time.sleep(1.1)
    assert backend(engine) != first
    kept_engine.cache_clear()


def test_the_child_of_a_fork_opens_its_own(settings: Settings) -> None:
    command = [sys.executable, "-c", FORKED, dagster_storage_url(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "True True", done.stderr
