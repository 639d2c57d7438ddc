"""Opens sessions of PostgreSQL. Their first statements set everything on which our other statements depend.

A role, a database or a server may have any defaults. Under REPEATABLE READ, a publisher would make a view from a list
that another publisher has just changed; with a `statement_timeout`, a load would fail; under another `search_path`, a
name would mean another table. Settings of storage (`default_tablespace`) and memory (`work_mem`) stay as they are.

Not here: which server it is (postgres.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The values are written as PostgreSQL shows them.
_WANTED = {
    # What a transaction sees, and whether it may write.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    # Limits of statements, transactions and sessions: where we want one, we set it for that statement.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "transaction_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    # What names and texts mean. PostgreSQL's own names come first, whatever else has the same name; most extensions are
    # in `public`.
    "search_path": "pg_catalog, public",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "xmlbinary": "base64",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "quote_all_identifiers": "off",
    # A policy that hides rows from us is an error, not a smaller table. Our triggers always run.
    "row_security": "off",
    "session_replication_role": "origin",
    # PostgreSQL prunes the views over period tables by it.
    "constraint_exclusion": "partition",
}
# Settings that older servers do not have, and settings that not everybody may change.
_NOT_EVERYWHERE = {"transaction_timeout", "session_replication_role"}
# A publish that was reported is kept, whatever happens to the server next. A stronger setting stays.
_DURABLE = "on"
_TOO_WEAK = ("off", "local")


_SETTINGS = """
    select pg_catalog.set_config(w.name, w.value, {local})
    from (values {wanted}) w (name, value) cross join lateral pg_catalog.current_setting(w.name, true) s (setting)
    where s.setting <> w.value and (w.name <> 'synchronous_commit' or s.setting in ({weak}))
"""


def settings_statement(wanted: Mapping[str, str] | None = None, *, local: bool = False) -> str:
    """The statement that gives our settings to a session or, if `local`, to the transaction that executes it.

    `wanted` are settings that differ from those of all sessions. Settings that an older server does not have are left
    out. A setting that has its value already costs nothing.
    """
    return _statement(tuple((wanted or {}).items()), local)


@cache
def _statement(wanted: tuple[tuple[str, str], ...], local: bool) -> str:  # noqa: FBT001 - of one caller
    pairs = {**_WANTED, "synchronous_commit": _DURABLE, **dict(wanted)}
    rows = [sql.SQL("({}, {})").format(sql.Literal(name), sql.Literal(value)) for name, value in pairs.items()]
    statement = sql.SQL(_SETTINGS).format(
        local=sql.Literal(local), wanted=sql.SQL(", ").join(rows), weak=sql.SQL(", ").join(map(sql.Literal, _TOO_WEAK))
    )
    return statement.as_string(None)


# By these parameters of libpq a session hears within two minutes that the machine of its server is gone, where it
# waited for two hours; and a network that forgets a connection on which nothing is said for some minutes (350 s in
# some clouds) does not, while Spark computes for longer. Those that a URL has count.
_ALIVE = {"keepalives_idle": "60", "keepalives_interval": "10", "keepalives_count": "6", "tcp_user_timeout": "120000"}

# Executed first: a default limit may be so low that the statement of all settings exceeds it.
NO_LIMIT = "set statement_timeout = 0"
FIRST_NAMES = "set search_path = pg_catalog, public"


def session_url(url: str, **parameters: str) -> str:
    """A libpq URL that contains the settings, for drivers that query the server before our first statement.

    ADBC recognises types by the names of functions, which `quote_all_identifiers` changes. A pooler refuses such a URL.
    `parameters` are those of libpq. `options` of the URL itself stay.
    """
    base, _, query = url.partition("?")
    given = [pair.partition("=") for pair in query.split("&") if pair]
    options = [unquote(value) for name, _, value in given if name == "options"]
    settings = [f"-c {name}={_escaped(value)}" for name, value in _WANTED.items() if name not in _NOT_EVERYWHERE]
    ours = {**kept_alive(url), **parameters, "options": " ".join([*options, *settings])}
    theirs = [f"{name}={value}" for name, _, value in given if name not in ours]
    return f"{base}?{'&'.join([*theirs, *(f'{name}={quote(value)}' for name, value in ours.items())])}"


def kept_alive(url: str) -> dict[str, str]:
    """The parameters of libpq by which a session notices that its server is gone, but for those that the URL has."""
    given = conninfo_to_dict(url)
    return {name: value for name, value in _ALIVE.items() if name not in given}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def open_session(
    url: str,
    *,
    application: str,
    wanted: Mapping[str, str] | None = None,
    connecting: Mapping[str, str | int] | None = None,
) -> psycopg.Connection:
    """A new autocommit connection with our settings, except those in `wanted`; `connecting` are libpq's parameters.

    Raises psycopg.OperationalError where the server does not let us in.
    """
    parameters = {**kept_alive(url), "connect_timeout": 10, "application_name": application, **(connecting or {})}
    connection = psycopg.connect(make_conninfo(url, **parameters), autocommit=True)
    try:
        connection.execute(NO_LIMIT)
        connection.execute(FIRST_NAMES)
        connection.execute(settings_statement(wanted).encode())
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def reading(url: str, *, application: str, wanted: Mapping[str, str] | None = None) -> Iterator[psycopg.Connection]:
    """One transaction that only reads, with our settings, except those in `wanted`, for itself alone.

    So it is right through a pooler too, which gives one session to several clients: a setting of the session would be
    that of the next client, and of no statement of ours that another session gets.

    Raises psycopg.OperationalError where the server does not let us in.
    """
    text = make_conninfo(url, **kept_alive(url), connect_timeout=10, application_name=application)
    connection = psycopg.connect(text, prepare_threshold=None)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.read_only = True
    with connection:
        for first in (NO_LIMIT, FIRST_NAMES):
            connection.execute(first.replace("set ", "set local ").encode())
        connection.execute(settings_statement(wanted, local=True).encode())
        yield connection
