"""Connections of ADBC to PostgreSQL, in this process and in Spark's Python workers.

The module is sent to the workers by value, with the functions that use it: Varve need not be installed there.
"""

from __future__ import annotations

from typing import Any

# ADBC reads the columns of all tables of the database as it connects, to know their rows as types: 0.1 ms and more for
# each period table. What is loaded and read here has types that PostgreSQL comes with.
_BUILTIN_TYPES = {"adbc.postgresql.type_resolver_mode": "builtin"}


def connect(url: str) -> Any:
    """Open a connection that knows the types PostgreSQL comes with; raises adbc_driver_manager.Error."""
    import adbc_driver_manager
    import adbc_driver_postgresql.dbapi as adbc

    try:
        return adbc.connect(url, db_kwargs=_BUILTIN_TYPES)
    except adbc_driver_manager.NotSupportedError:
        # A driver before 1.13, which a worker may have, knows no such option.
        return adbc.connect(url)
