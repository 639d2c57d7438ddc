"""Who may see the console: whoever has its token, from a link, a cookie or a header.

Not here: under which names it is asked (hosts.py), and the address that it listens on (serving.py).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from varve.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_COOKIE = "varve_console"
# A shorter one could be guessed, and an empty one would match a request that brings none.
SHORTEST_TOKEN = 20
# Pages have no scripts, and nothing from elsewhere; nobody else may show them in a frame of theirs.
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def token_of(home: Path) -> str:
    """The token in a file of Varve's home, which only its user can read; made where there is none, or an empty one.

    Raises BadInput for a file with something else in it, and for one that others can read.
    """
    file = home / "console.token"
    home.mkdir(parents=True, exist_ok=True)
    if not file.exists() or not file.stat().st_size:
        _make(file)
    another = f"Delete the file, and the next `varve console` makes another one: rm {file}"
    if mode := file.stat().st_mode & 0o077:
        raise BadInput(
            f"{file}: others than its user may use this file (their rights are {mode:03o}), so they may have the "
            f"token of the console. {another}"
        )
    token = file.read_bytes().strip()
    if not re.fullmatch(rb"[A-Za-z0-9_.~-]{%d,}" % SHORTEST_TOKEN, token):
        raise BadInput(
            f"{file}: what is in it is no token of the console, which has {SHORTEST_TOKEN} or more letters, digits "
            f"and - _ . ~. {another}"
        )
    return token.decode("ascii")


def cookie_of(token: str) -> str:
    """The name of the cookie with this token: its own, as a browser keeps one of a name for all ports of a host."""
    return f"{_COOKIE}_{hashlib.sha256(token.encode()).hexdigest()[:12]}"


def _make(file: Path) -> None:
    """Put a new token there, whole: another process never reads a half."""
    handle, name = tempfile.mkstemp(prefix=".console-token-", dir=file.parent)
    new = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as writing:
            writing.write(secrets.token_urlsafe(24))
        if file.exists():
            new.replace(file)
        else:
            # Whoever links first has made it; the token of the other is not used.
            os.link(new, file)
    except FileExistsError:
        return
    finally:
        new.unlink(missing_ok=True)


@dataclass(frozen=True)
class SafeHeaders:
    """Gives each answer the headers that keep a page to itself, also those of errors."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on, and add them to what comes back."""
        from starlette.datastructures import MutableHeaders

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, with_headers)


@dataclass(frozen=True)
class TokenWanted:
    """Lets a request through that has the token; a link with it is changed into a cookie.

    Attributes:
        token: the right one, which has at least `SHORTEST_TOKEN` characters.
        refused: makes the page for whoever has none.
    """

    app: ASGIApp
    token: str
    refused: Callable[[Request], Response]

    def __post_init__(self) -> None:
        """Refuse a token that a request without any could match."""
        if len(self.token) < SHORTEST_TOKEN:
            raise BadInput(f"a token of the console has {SHORTEST_TOKEN} or more characters, not {len(self.token)}.")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        from starlette.requests import Request

        answer = self._answer(Request(scope)) if scope["type"] == "http" else None
        await (self.app if answer is None else answer)(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        """The answer to a request that is not handed on."""
        if request.url.path == "/style.css":
            return None
        given = request.query_params.get("token")
        if given is not None and self._is_right(given):
            rest = request.url.remove_query_params("token").query
            # As it was written: decoded, a `?` or a `%` of a name would mean something else. And `//name` is not here.
            path = "/" + request.scope.get("raw_path", b"/").decode("ascii", errors="replace").lstrip("/\\")
            there = RedirectResponse(f"{path}?{rest}" if rest else path, status_code=303)
            there.set_cookie(cookie_of(self.token), self.token, httponly=True, samesite="strict", path="/")
            return there
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        brought = [request.cookies.get(cookie_of(self.token), ""), bearer if kind.lower() == "bearer" else ""]
        return None if given is None and any(map(self._is_right, brought)) else self.refused(request)

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", errors="replace"), self.token.encode())
