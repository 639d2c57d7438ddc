"""What of a setting is a secret, and how the setting is told to people without it.

A password or token stays in the environment, in connections, and in files that only their owner may read. It is not
shown, not logged, and never a word of a command line, which every user of the machine may read.

Not here: the settings themselves (settings.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HIDDEN = "***"
# What Spark itself takes for a secret (spark.redaction.regex), libpq's names, and those of drivers.
_SECRET_NAME = re.compile(r"(?i)secret|passw|pwd|token|credential|access[._-]?key|account[._-]?key|api[._-]?key")
_PARAMETER = re.compile(r"(?P<before>(?:^|[?&;,:\s(\"'])(?P<name>[\w.\-]+)\s*=\s*)(?P<value>[^?&;,\s)\"']*)")
_USER_INFO = re.compile(r"(?P<before>\w://[^/?#:@]*:)(?P<value>[^?#\"'\s]*)(?=@)")
# jdbc:oracle:thin:user/password@host
_ORACLE = re.compile(r"(?P<before>jdbc:oracle:\w+:[^/@\s]*/)(?P<value>[^@\s]+)(?=@)")
_PLACES = (_USER_INFO, _ORACLE, _PARAMETER)
# Shorter ones would be found by chance in any text.
_SHORTEST = 5
_NAMED = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD", "SPARK_CONNECT_AUTHENTICATE_TOKEN")


def without_secrets(url: str) -> str:
    """A URL as it may be shown: passwords and tokens are `***`, whatever else is wrong with it."""
    for place in _PLACES:
        url = place.sub(_hidden, url)
    return url


def without_password(url: str) -> tuple[str, str | None]:
    """A well-formed PostgreSQL URL without its password, and that; other secrets that it may hold stay."""
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    named = parsed.query.get("password")
    password = parsed.password if named is None else named if isinstance(named, str) else named[-1]
    bare = parsed.difference_update_query(["password"])._replace(password=None)
    return bare.render_as_string(hide_password=False), password


def is_secret(name: str) -> bool:
    """Whether what has this name is a secret: a parameter, a setting of Spark, an environment variable."""
    return _SECRET_NAME.search(name) is not None


def redacted(text: str) -> str:
    """A text with every secret of the environment hidden: what others have written of our connections.

    A password that is also the name of a user, host or database of its URL cannot be told from that, and stays.
    """
    for secret in sorted(_of_environment(os.environ), key=len, reverse=True):
        text = re.sub(rf"(?<![^\W_]){re.escape(secret)}(?![^\W_])", HIDDEN, text)
    return text


@contextlib.contextmanager
def spark_properties(conf: Mapping[str, str], *, also: str | None = None) -> Iterator[str]:
    """A file of settings for spark-submit, which only its owner can read, for as long as the context is open.

    `also` names a file of settings that stands before them.
    """
    handle, name = tempfile.mkstemp(prefix="varve-", suffix=".properties")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if also is not None:
                file.write(Path(also).read_text(encoding="utf-8") + "\n")
            file.writelines(f"{_property(key, key=True)}={_property(value)}\n" for key, value in conf.items())
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


def _property(text: str, *, key: bool = False) -> str:
    """As java.util.Properties reads it; Spark leaves out spaces at either end."""
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if key:
        special |= {"=": "\\=", ":": "\\:", " ": "\\ ", "#": "\\#", "!": "\\!"}
    told = "".join(special.get(letter, letter) for letter in text)
    units = [told.encode("utf-16-be")[place : place + 2] for place in range(0, len(told.encode("utf-16-be")), 2)]
    return "".join(chr(unit[1]) if unit[0] == 0 and unit[1] < 128 else f"\\u{unit.hex()}" for unit in units)


def _hidden(found: re.Match[str]) -> str:
    groups = found.groupdict()
    if not groups["value"] or ("name" in groups and not is_secret(groups["name"])):
        return found[0]
    return f"{groups['before']}{HIDDEN}"


def _of_environment(environment: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    for name, value in environment.items():
        if name in _NAMED:
            found.add(value)
        elif "://" in value or value.startswith("jdbc:"):
            found |= _of_url(value)
        elif name == "VARVE_SPARK_CONF":
            found |= _of_json(value)
    return {text for secret in found for text in (secret, unquote(secret)) if len(text) >= _SHORTEST}


def _of_url(url: str) -> set[str]:
    secrets = {
        match["value"]
        for place in _PLACES
        for match in place.finditer(url)
        if match["value"] and ("name" not in match.groupdict() or is_secret(match["name"]))
    }
    shown = set(re.split(r"[^\w-]+", without_secrets(url)))
    # Of a password with an @, / or : in it that nobody has escaped, servers tell the parts.
    parts = {part for secret in secrets for part in re.split(r"[@/:]", secret)}
    return {secret for secret in secrets | parts if secret not in shown}


def _of_json(text: str) -> set[str]:
    import json

    try:
        conf = json.loads(text)
    except ValueError:
        return set()
    if not isinstance(conf, dict):
        return set()
    plain = {str(value) for name, value in conf.items() if is_secret(name)}
    return plain.union(*(_of_url(str(value)) for value in conf.values()))
