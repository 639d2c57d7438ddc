"""The connections to Dagster's storage: one of a process is kept for the next statement, a minute at most.

dagster-postgres opens one for each statement, so that instances which are never closed leave none behind: a run of one
partition took 61. Each costs a process of the server, and over a network with TLS some ten milliseconds. Here all
instances of a process share what is kept, so that there is no more than one.

Not here: the storage itself (internal).
"""

from __future__ import annotations

import os
from functools import lru_cache
from weakref import WeakSet

from sqlalchemy import Engine, create_engine

# A connection that is older is replaced: one that nobody uses for long may be cut off somewhere on its way, and whoever
# then asks by it waits for minutes.
_KEPT_SECONDS = 60
_engines = WeakSet[Engine]()


@lru_cache
def kept_engine(url: str) -> Engine:
    """The engine of this process for the storage at an SQLAlchemy URL; safe for threads, and after a fork.

    A connection that the server has ended is replaced before it is used.
    """
    engine = create_engine(
        url, isolation_level="AUTOCOMMIT", pool_size=1, max_overflow=-1, pool_recycle=_KEPT_SECONDS, pool_pre_ping=True
    )
    _engines.add(engine)
    return engine


def _leave_to_the_parent() -> None:
    """In a child that was forked: what is kept is the parent's connection; the child opens its own."""
    for engine in _engines:
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_leave_to_the_parent)
