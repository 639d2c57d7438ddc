"""Finds the secrets in settings, and shows settings to people without them.

Passwords and tokens stay in the environment, in connections, and in files that only their owner may read. They are not
shown, not logged, and never part of a command line, which every user of the machine may read.

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

from varve.services.addresses import with_blanks_for_libpq

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HIDDEN = "***"
# Names of secrets by Spark (spark.redaction.regex), by libpq and by drivers.
_SECRET_NAME = re.compile(r"(?i)secret|passw|pwd|token|credential|access[._-]?key|account[._-]?key|api[._-]?key")
_PARAMETER = re.compile(r"(?P<before>(?:^|[?&;,:\s(\"'])(?P<name>[\w.\-]+)\s*=\s*)(?P<value>[^?&;,\s)\"']*)")
_USER_INFO = re.compile(r"(?P<before>\w://[^/?#:@]*:)(?P<value>[^?#\"'\s]*)(?=@)")
# jdbc:oracle:thin:user/password@host
_ORACLE = re.compile(r"(?P<before>jdbc:oracle:\w+:[^/@\s]*/)(?P<value>[^@\s]+)(?=@)")
_PATTERNS = (_USER_INFO, _ORACLE, _PARAMETER)
# Shorter secrets would be found by chance in any text.
_SHORTEST = 5
_SECRET_VARIABLES = (
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "OPENLINEAGE_API_KEY", "PGPASSWORD",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN",
)  # fmt: skip
# Shorter parts of a channel's URL are rather names, such as that of a host.
_SHORTEST_PART = 8


def without_secrets(url: str) -> str:
    """A URL as it may be shown: passwords and tokens are `***`. The URL may be malformed."""
    for pattern in _PATTERNS:
        url = pattern.sub(_hidden, url)
    return url


def without_password(url: str) -> tuple[str, str | None]:
    """A well-formed PostgreSQL URL without its password, and the password. Other secrets in the URL stay."""
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    named = parsed.query.get("password")
    password = parsed.password if named is None else named if isinstance(named, str) else named[-1]
    bare = parsed.difference_update_query(["password"])._replace(password=None)
    return with_blanks_for_libpq(bare.render_as_string(hide_password=False)), password


def is_secret(name: str) -> bool:
    """Whether this is the name of a secret: of a parameter, a setting of Spark or an environment variable."""
    return _SECRET_NAME.search(name) is not None


def redacted(text: str) -> str:
    """A text by others, such as a driver's message, with every secret of the environment hidden.

    A password that is also the user, host or database of its URL cannot be told from that name, and stays.
    """
    for secret in sorted(_of_environment(os.environ), key=len, reverse=True):
        text = re.sub(rf"(?<![^\W_]){re.escape(secret)}(?![^\W_])", HIDDEN, text)
    return text


@contextlib.contextmanager
def spark_properties(
    defaults: Mapping[str, str], *, also: Path | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A file of settings for spark-submit that only its owner can read; deleted when the context ends.

    The settings of the file `also` count before the `defaults`, and those of `conf` before both.
    """
    handle, name = tempfile.mkstemp(prefix="varve-", suffix=".properties")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(_lines(defaults))
            if also is not None:
                file.write(also.read_text(encoding="utf-8") + "\n")
            file.writelines(_lines(conf or {}))
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


def _lines(conf: Mapping[str, str]) -> Iterator[str]:
    for key, value in conf.items():
        yield f"{_property(key, key=True)}={_property(value)}\n"


def _property(text: str, *, key: bool = False) -> str:
    """A text as java.util.Properties reads it; Spark strips spaces at both ends."""
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if key:
        special |= {"=": "\\=", ":": "\\:", " ": "\\ ", "#": "\\#", "!": "\\!"}
    escaped = "".join(special.get(letter, letter) for letter in text)
    units = [escaped.encode("utf-16-be")[place : place + 2] for place in range(0, len(escaped.encode("utf-16-be")), 2)]
    return "".join(chr(unit[1]) if unit[0] == 0 and unit[1] < 128 else f"\\u{unit.hex()}" for unit in units)


def _hidden(match: re.Match[str]) -> str:
    """What replaces a match of one of the patterns."""
    groups = match.groupdict()
    if not groups["value"] or ("name" in groups and not is_secret(groups["name"])):
        return match[0]
    return f"{groups['before']}{HIDDEN}"


def _of_environment(environment: Mapping[str, str]) -> set[str]:
    """The secrets in environment variables."""
    secrets: set[str] = set()
    for name, value in environment.items():
        if name in _SECRET_VARIABLES:
            secrets.add(value)
        elif name == "VARVE_ALERTS":
            secrets |= _of_channels(value)
        elif name == "VARVE_SPARK_CONF":
            secrets |= _of_json(value)
        elif "://" in value or value.startswith("jdbc:"):
            secrets |= _of_url(value)
    return {text for secret in secrets for text in (secret, unquote(secret)) if len(text) >= _SHORTEST}


def _of_url(url: str) -> set[str]:
    """The secrets in a URL that are not also shown parts of it."""
    secrets = {
        match["value"]
        for pattern in _PATTERNS
        for match in pattern.finditer(url)
        if match["value"] and ("name" not in match.groupdict() or is_secret(match["name"]))
    }
    shown = set(re.split(r"[^\w-]+", without_secrets(url)))
    # A password may have an @, / or : that nobody has escaped: messages of servers then repeat parts of it.
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


def _of_channels(text: str) -> set[str]:
    """The URLs of channels, and what they are made of: a service's token may stand anywhere in one."""
    import json

    try:
        channels = json.loads(text)
    except ValueError:
        return set()
    urls = [str(url) for url in channels.values()] if isinstance(channels, dict) else []
    parts = {part for url in urls for part in re.split(r"[/:@?&=]+", url.partition("://")[2])}
    return {*urls, *(part for part in parts if len(part) >= _SHORTEST_PART)}
