"""The addresses of servers and folders in the settings: what is wrong with one, told without repeating it.

An address may hold a password, and what a driver says of one that is malformed often repeats a part of it: so it is
looked at here before any driver sees it.

Not here: which settings there are (settings.py), and how an address is shown (secrets.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_WRITE_POSTGRES = (
    "Write postgresql://user:password@host:5432/database; in a password write @ as %40, / as %2F, : as %3A, % as %25."
)
_WRITE_REMOTE = "Write sc://host:15002, or sc://host:15002/;use_ssl=true;token=..."
_REMOTE = re.compile(
    r"sc://(?P<host>\[[^\]/;@\s]+\]|[^:/;@\s\[\]]+)(?::(?P<port>\d+))?/?(?P<parameters>(?:;[^=;\s]+=[^;\s]*)*);?"
)
_MOST_PORT = 65_535


def libpq_url(url: str) -> str:
    """Any PostgreSQL URL as libpq (psycopg, ADBC, psql) reads it: without an SQLAlchemy driver name.

    Raises VarveError, which does not repeat it.
    """
    return _parsed(url).set(drivername="postgresql").render_as_string(hide_password=False)


def dagster_url(url: str) -> str:
    """Any PostgreSQL URL as dagster-postgres needs it. Raises VarveError, which does not repeat it.

    Under SQLAlchemy 2.1 a plain `postgresql://` picks psycopg 3, on which its `NOTIFY $1` fails.
    """
    return _parsed(url).set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)


def problem_of_postgres(url: str) -> str | None:
    """What is wrong with the URL of a PostgreSQL, and what to write; None where nothing is."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    found = None
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() not in {"postgresql", "postgres"}:
            found = "it begins with another scheme"
        elif "@" in (parsed.host or ""):
            found = "it has more than one @"
        elif parsed.port is not None and not 0 < parsed.port <= _MOST_PORT:
            found = f"its port is not between 1 and {_MOST_PORT}"
        else:
            conninfo_to_dict(parsed.set(drivername="postgresql").render_as_string(hide_password=False))
    except ArgumentError:
        found = "it has another form"
    except ValueError:
        found = "its port is no number"
    except psycopg.ProgrammingError:
        # libpq's own words repeat a part of it.
        found = "libpq cannot read it, or does not know one of its parameters"
    return f"is no PostgreSQL URL: {found}. {_WRITE_POSTGRES}" if found else None


def remote_address(remote: str) -> tuple[str, int]:
    """Host and port of a Spark Connect URL. Raises VarveError, which does not repeat it."""
    if problem := problem_of_remote(remote):
        raise VarveError(f"VARVE_SPARK_REMOTE {problem}")
    found = _REMOTE.fullmatch(remote)
    assert found is not None
    return found["host"].strip("[]"), int(found["port"] or 15_002)


def problem_of_remote(remote: str) -> str | None:
    """What is wrong with the URL of a Spark Connect server, and what to write; None where nothing is."""
    found = _REMOTE.fullmatch(remote)
    if found is None:
        return f"is no Spark Connect URL. {_WRITE_REMOTE}"
    if not 0 < int(found["port"] or 1) <= _MOST_PORT:
        return f"is no Spark Connect URL: its port is not between 1 and {_MOST_PORT}. {_WRITE_REMOTE}"
    return None


def problem_of_root(uri: str) -> str | None:
    """What is wrong with the place of a folder or a metastore: it is written down where everybody reads it."""
    if re.match(r"[\w+.-]+://[^/?#@]*:[^/?#]*@", uri):
        return (
            "holds a password, and places of files are shown and stored with every batch. Leave it out, and give it "
            "as docs/deploy.md says: in AWS_SECRET_ACCESS_KEY, or in VARVE_SPARK_CONF."
        )
    return None


def _parsed(url: str) -> URL:
    if problem := problem_of_postgres(url):
        raise VarveError(f"The URL {problem}")
    from sqlalchemy.engine import make_url

    return make_url(url)
