"""A webhook of somebody else's that alerts are sent to."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Webhook:
    """A service of somebody else: it keeps what it was sent, and answers with `status`."""

    status: int = 200
    received: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    @property
    def lines(self) -> list[str]:
        """What it was told, each opening and closing a line."""
        return [line for message in self.received for line in message["message"].splitlines()]


@contextmanager
def listening_webhook() -> Iterator[Webhook]:
    """A webhook that listens on loopback until the block ends."""
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if hook.status == 200:
                hook.received.append(body)
            self.send_response(hook.status)
            self.end_headers()

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook.url = f"json://127.0.0.1:{server.server_port}/hidden-token-of-the-team"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield hook
        server.shutdown()
