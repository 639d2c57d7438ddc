"""An environment that a command makes for itself is held by one command at a time; whoever dies holds nothing.

Not here: environments that people make, in which several may work at once (environments.py).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOLD = "select pg_try_advisory_lock(hashtextextended('environment ' || %s, 0))"
_LET_GO = "select pg_advisory_unlock(hashtextextended('environment ' || %s, 0))"


@contextmanager
def held(connection: psycopg.Connection, environment: str) -> Iterator[None]:
    """Hold an environment, whether it is made already or not, as long as the connection lives at most.

    Raises VarveError while another session holds it.
    """
    row = connection.execute(_HOLD, (environment,)).fetchone()
    if row is None or not row[0]:
        raise VarveError(
            f"another command has the same partitions in hand right now, in environment {environment}. Nothing was "
            "changed. Wait for it."
        )
    try:
        yield
    finally:
        # Where the connection is lost, the server has let go of it.
        with suppress(psycopg.Error):
            connection.execute(_LET_GO, (environment,))
