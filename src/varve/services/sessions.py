"""How Varve opens a session of PostgreSQL: whatever its statements depend on is set by us, the first thing of all.

A role, a database or a server may have any defaults. Under REPEATABLE READ a publisher would make a view from a list
that another has just changed; with a `statement_timeout` a load would fail; under another `search_path` a name would
mean something else. Where to store (`default_tablespace`) and what to spend (`work_mem`) is theirs to say.

Not here: which server it is (postgres.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from collections.abc import Mapping

# As PostgreSQL itself writes them.
_WANTED = {
    # What a transaction sees, and whether it may write.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    # What ends a statement, a transaction or a session: where we want a limit we set it there.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "transaction_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    # What names and texts mean. PostgreSQL's own come first, whatever others have made of the same name; `public` is
    # where extensions mostly are.
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
    # A policy that hides rows from us is an error, not a smaller table; and our triggers are not left out.
    "row_security": "off",
    "session_replication_role": "origin",
    # Views of period tables are pruned by it.
    "constraint_exclusion": "partition",
}
# What an older server does not know, and what not everybody may set.
_NOT_EVERYWHERE = {"transaction_timeout", "session_replication_role"}
# A publish that is told of is kept, whatever happens to the server next. Who wants more than that may have it.
_DURABLE = "on"
_TOO_WEAK = ("off", "local")


_SETTINGS = """
    select pg_catalog.set_config(s.name, w.value, {local})
    from (values {wanted}) w (name, value) join pg_catalog.pg_settings s on s.name = w.name
    where s.setting <> w.value and (s.name <> 'synchronous_commit' or s.setting in ({weak}))
"""


def settings_statement(wanted: Mapping[str, str] | None = None, *, local: bool = False) -> str:
    """The statement that makes a session ours, or (`local`) the transaction that it is executed in.

    `wanted` are settings that are to be otherwise than in all sessions. What the server does not know, as an older one
    does not, is left out; what has its value already costs nothing.
    """
    pairs = {**_WANTED, "synchronous_commit": _DURABLE, **(wanted or {})}
    rows = [sql.SQL("({}, {})").format(sql.Literal(name), sql.Literal(value)) for name, value in pairs.items()]
    statement = sql.SQL(_SETTINGS).format(
        local=sql.Literal(local), wanted=sql.SQL(", ").join(rows), weak=sql.SQL(", ").join(map(sql.Literal, _TOO_WEAK))
    )
    return statement.as_string(None)


# Before the other: it may be the one that takes too long.
NO_LIMIT = "set statement_timeout = 0"
FIRST_NAMES = "set search_path = pg_catalog, public"


def session_url(url: str, **parameters: str) -> str:
    """A libpq URL that has the settings with it, for drivers that ask the server before our first statement.

    ADBC tells types by the names of functions, which `quote_all_identifiers` writes otherwise. A pooler would not let
    it pass. `parameters` are libpq's own. What the URL itself has as `options` stays.
    """
    base, _, query = url.partition("?")
    given = [pair.partition("=") for pair in query.split("&") if pair]
    options = [unquote(value) for name, _, value in given if name == "options"]
    settings = [f"-c {name}={_escaped(value)}" for name, value in _WANTED.items() if name not in _NOT_EVERYWHERE]
    ours = {**parameters, "options": " ".join([*options, *settings])}
    theirs = [f"{name}={value}" for name, _, value in given if name not in ours]
    return f"{base}?{'&'.join([*theirs, *(f'{name}={quote(value)}' for name, value in ours.items())])}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def open_session(
    url: str,
    *,
    application: str,
    wanted: Mapping[str, str] | None = None,
    connecting: Mapping[str, str | int] | None = None,
) -> psycopg.Connection:
    """A new autocommit connection with our settings, but for those in `wanted`; `connecting` is for libpq.

    Raises psycopg.OperationalError where there is none to be had.
    """
    parameters = {"connect_timeout": 10, "application_name": application, **(connecting or {})}
    opened = psycopg.connect(make_conninfo(url, **parameters), autocommit=True)
    try:
        opened.execute(NO_LIMIT)
        opened.execute(FIRST_NAMES)
        opened.execute(settings_statement(wanted).encode())
    except BaseException:
        opened.close()
        raise
    return opened
