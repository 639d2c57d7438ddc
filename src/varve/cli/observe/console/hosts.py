"""Under which names the console is asked: a page of another site must not reach it by a name of its own.

A browser sends the name from which it has the address. A site that lets its own name lead to 127.0.0.1 (DNS rebinding)
cannot make it send another one. An address is no name: whoever asks by one has asked for this machine.

Not here: who may see a page (access.py).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = "localhost"
_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class HostWanted:
    """Lets a request through that names `localhost`, an address, or one of the further names.

    Attributes:
        names: in lower case.
        refused: makes the page for another name.
    """

    app: ASGIApp
    names: frozenset[str]
    refused: Callable[[Request], Response]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        from starlette.requests import Request

        if scope["type"] != "http" or self.is_wanted(Request(scope).headers.get("host", "")):
            await self.app(scope, receive, send)
        else:
            await self.refused(Request(scope))(scope, receive, send)

    def is_wanted(self, host: str) -> bool:
        """Whether a header `Host` names us, with or without a port."""
        parts = _HOST.fullmatch(host)
        if parts is None:
            return False
        name = (parts["six"] or parts["name"]).lower().removesuffix(".")
        return name in {LOOPBACK, *self.names} or is_address(name)


def is_address(text: str) -> bool:
    """Whether a text is an address of the Internet Protocol, version 4 or 6, and no name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
