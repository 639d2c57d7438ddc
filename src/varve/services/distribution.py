"""Where this Varve was installed from, so that whatever installs it again gets the same one.

Source: PEP 610 (`direct_url.json`), which pip and uv write for what they install from a path or a repository. A package
of the same name on an index may be somebody else's: what came from a file is never asked of an index.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = "varve"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a package was installed from.

    Attributes:
        url: as a requirement has it; "" where it came from an index.
        version: the version that is installed.
        editable: the folder that is used in place; "" where a copy was installed.
    """

    url: str
    version: str
    editable: str = ""

    @classmethod
    def of(cls, record: Mapping[str, Any] | None, version: str) -> Source:
        """What a `direct_url.json` says; None: there is none."""
        if record is None:
            return cls("", version)
        url: str = record["url"]
        if vcs := record.get("vcs_info"):
            url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
        if folder := record.get("subdirectory"):
            url = f"{url}#subdirectory={folder}"
        is_editable = record.get("dir_info", {}).get("editable", False)
        return cls(url, version, unquote(urlsplit(url).path) if is_editable else "")

    def requirement(self, extra: str = "") -> str:
        """The requirement that leads to the same package: `varve[local] @ file:///...`, or `varve[local]>=0.2.0`."""
        name = f"{_NAME}[{extra}]" if extra else _NAME
        return f"{name} @ {self.url}" if self.url else f"{name}>={self.version}"

    def install_command(self, extra: str) -> str:
        """The command that adds an extra to what is installed."""
        if self.editable:
            return f"pip install --editable {shlex.quote(f'{self.editable}[{extra}]')}"
        return f"pip install {shlex.quote(self.requirement(extra) if self.url else f'{_NAME}[{extra}]')}"


def installed() -> Source:
    """Where the running Varve was installed from."""
    # Of an editable install two are found, and only that of site-packages says so.
    for distribution in metadata.distributions(name=_NAME):
        if text := distribution.read_text("direct_url.json"):
            return Source.of(json.loads(text), distribution.version)
    return Source.of(None, metadata.version(_NAME))


def install_command(extra: str) -> str:
    """The command that adds an extra to the running Varve."""
    return installed().install_command(extra)
