"""What the tests of change data capture share: databases that are captured."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.cdc.lab import DEFAULT, Follower, Lab
from varve.services.postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from varve.cdc.captured_table import CapturedTable
    from varve.services.settings import Settings


@pytest.fixture(scope="session")
def source_url(settings: Settings) -> str:
    """A database of the suite's server that is somebody else's."""
    server, name = PostgresServer(settings.home_dir), f"source_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"create database {name}")
    return server.url(name)


@pytest.fixture
def follow(
    settings: Settings, source_url: str, request: pytest.FixtureRequest
) -> Iterator[Callable[[CapturedTable], Follower]]:
    """Follows tables of the source; their slots go with the test, as a server has few of them."""
    made: list[Follower] = []

    def follow(captured: CapturedTable) -> Follower:
        made.append(Follower(settings, lambda: request.getfixturevalue("spark"), source_url, captured))
        return made[-1]

    yield follow
    _forget(made)


@pytest.fixture
def make_lab(settings: Settings, source_url: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Lab]]:
    """Makes tables and follows them."""
    made: list[Lab] = []

    def make(kind: str = DEFAULT) -> Lab:
        made.append(Lab(settings, lambda: request.getfixturevalue("spark"), source_url, kind))
        return made[-1]

    yield make
    _forget(made)


def _forget(made: Sequence[Follower]) -> None:
    for lab in made:
        with lab.source() as source:
            source.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s",
                (lab.captured.slot,),
            )


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab()
