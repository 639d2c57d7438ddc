"""The addresses of servers and folders in the settings: says what is wrong with one without repeating it.

An address may hold a password, and the message of a driver about a malformed address often repeats a part of it.
So addresses are checked here, before any driver sees them.

Not here: which settings there are (settings.py), and how an address is shown (secrets.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_WRITE_POSTGRES = (
    "Write postgresql://user:password@host:5432/database, with several servers host1:5432,host2:5432; in a password "
    "write @ as %40, / as %2F, : as %3A, % as %25."
)
# Several servers, or the folder of a socket, as libpq takes them: of several, the one to which writers may go is used.
_HOSTS = re.compile(r"(?P<before>[^/]+://(?:[^/@?]*@)?)(?P<hosts>[^/?@]*,[^/?@]*|%2[Ff][^/?@]*)(?P<after>[/?].*|$)")
_HOST = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>\d+))?")
_WRITE_REMOTE = "Write sc://host:15002, or sc://host:15002/;use_ssl=true;token=..."
_REMOTE = re.compile(
    r"sc://(?P<host>\[[^\]/;@\s]+\]|[^:/;@\s\[\]]+)(?::(?P<port>\d+))?/?(?P<parameters>(?:;[^=;\s]+=[^;\s]*)*);?"
)
_MOST_PORT = 65_535
# Java's own form of a local file is taken: file:/data.
_ONE_SLASH = re.compile(r"(?!file:)([A-Za-z][\w+.-]+):/(?!/)")


def libpq_url(url: str) -> str:
    """Any PostgreSQL URL as libpq (psycopg, ADBC, psql) reads it: without the name of an SQLAlchemy driver.

    Raises VarveError, whose message does not repeat the URL.
    """
    return with_blanks_for_libpq(_parsed(url).set(drivername="postgresql").render_as_string(hide_password=False))


def with_blanks_for_libpq(url: str) -> str:
    """A URL as SQLAlchemy writes it, with each blank as libpq reads it, `%20`: in parameters it is `+` there."""
    place, mark, parameters = url.partition("?")
    return f"{place.replace(' ', '%20')}{mark}{parameters.replace('+', '%20')}"


def dagster_url(url: str) -> str:
    """Any PostgreSQL URL as dagster-postgres needs it. Raises VarveError, whose message does not repeat the URL.

    It names the driver, because SQLAlchemy 2.1 takes psycopg 3 for a plain `postgresql://`, with which the `NOTIFY $1`
    of dagster-postgres fails.
    """
    return _parsed(url).set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)


def problem_of_postgres(url: str) -> str | None:
    """What is wrong with the URL of a PostgreSQL, and what to write; None where nothing is."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    problem = None
    try:
        parsed = make_url(_as_one(url))
        if parsed.get_backend_name() not in {"postgresql", "postgres"}:
            problem = "it begins with another scheme"
        elif "@" in (parsed.host or ""):
            problem = "it has more than one @"
        elif parsed.port is not None and not 0 < parsed.port <= _MOST_PORT:
            problem = f"its port is not between 1 and {_MOST_PORT}"
        else:
            rendered = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
            conninfo_to_dict(with_blanks_for_libpq(rendered))
    except ArgumentError:
        problem = "it has another form"
    except ValueError:
        problem = "its port is no number"
    except psycopg.ProgrammingError:
        # The message of libpq repeats a part of the URL.
        problem = "libpq cannot read it, or does not know one of its parameters"
    return f"is no PostgreSQL URL: {problem}. {_WRITE_POSTGRES}" if problem else None


def remote_address(remote: str) -> tuple[str, int]:
    """Host and port of a Spark Connect URL. Raises VarveError, whose message does not repeat the URL."""
    if problem := problem_of_remote(remote):
        raise VarveError(f"VARVE_SPARK_REMOTE {problem}")
    match = _REMOTE.fullmatch(remote)
    assert match is not None
    return match["host"].strip("[]"), int(match["port"] or 15_002)


def problem_of_remote(remote: str) -> str | None:
    """What is wrong with the URL of a Spark Connect server, and what to write; None where nothing is."""
    match = _REMOTE.fullmatch(remote)
    if match is None:
        return f"is no Spark Connect URL. {_WRITE_REMOTE}"
    if not 0 < int(match["port"] or 1) <= _MOST_PORT:
        return f"is no Spark Connect URL: its port is not between 1 and {_MOST_PORT}. {_WRITE_REMOTE}"
    return None


def problem_of_folder(root: str) -> str | None:
    """What is wrong with the folder or URI under which files lie, which is stored and shown; None where nothing is."""
    if match := _ONE_SLASH.match(root):
        return (
            f"is neither a folder nor a URI: {match[1]}: is followed by one slash. Write {match[1]}://host/path, or "
            f"{match[1]}:///path without a host."
        )
    return problem_of_root(root)


def problem_of_root(uri: str) -> str | None:
    """What is wrong with the URI of a folder or a metastore, which is stored and shown; None where nothing is."""
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

    return make_url(_as_one(url))


def _as_one(url: str) -> str:
    """A URL as SQLAlchemy reads it: a `+` in its parameters is `%2B`, and several hosts, or a socket, are among them.

    Unless it says which of several is wanted, it is the one that takes writes: the others are its standbys.
    Raises ValueError for a port that is no number.
    """
    place, mark, parameters = url.partition("?")
    url = f"{place}{mark}{parameters.replace('+', '%2B')}"
    match = _HOSTS.fullmatch(url)
    if match is None:
        return url
    hosts = [_HOST.fullmatch(host) for host in match["hosts"].split(",")]
    if not all(host is not None and host["host"] for host in hosts):
        raise ValueError
    after = match["after"] or "/"
    given = f"host={quote(','.join(unquote(host['host']).strip('[]') for host in hosts if host))}"
    if len(hosts) > 1 or (hosts[0] and hosts[0]["port"]):
        given += f"&port={quote(','.join(host['port'] or '5432' for host in hosts if host))}"
    if len(hosts) > 1 and "target_session_attrs=" not in after:
        given += "&target_session_attrs=read-write"
    return f"{match['before']}{after}{'&' if '?' in after else '?'}{given}"
