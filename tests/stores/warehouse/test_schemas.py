"""Two sessions that make the same schema at once."""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING

from varve.services.postgres import connect
from varve.stores.warehouse.tables.schemas import ensure_schema

if TYPE_CHECKING:
    import psycopg

    from varve.services.settings import Settings

_WAITS = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"


def test_a_schema_that_another_session_is_just_making_is_waited_for(
    settings: Settings, connection: psycopg.Connection
) -> None:
    name = f"s{uuid.uuid4().hex[:8]}"
    errors: list[BaseException] = []

    def make(session: psycopg.Connection) -> None:
        try:
            with session.transaction():
                ensure_schema(session, name)
                session.execute("select 1")
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    with connect(settings, application="varve test") as first, connect(settings, application="varve test") as second:
        with first.transaction():
            ensure_schema(first, name)
            thread = threading.Thread(target=make, args=(second,))
            thread.start()
            deadline = time.monotonic() + 60
            while connection.execute(_WAITS, (second.info.backend_pid,)).fetchone() != (True,):
                assert thread.is_alive()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        thread.join(60)
        assert errors == []
        first.execute(f"drop schema {name}".encode())
