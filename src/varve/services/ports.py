"""Ports of this machine's loopback address: a free one, and a clear refusal of a taken one."""

from __future__ import annotations

import socket

from varve.model.errors import ServiceUnavailable


def free_port() -> int:
    """A port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def refuse_taken_port(port: int, *, setting: str, remedy: str) -> None:
    """Raise ServiceUnavailable where another process listens on the port, naming the setting and what to do."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ServiceUnavailable(
                f"port {port} ({setting}) is in use by another process ({error.strerror}). {remedy}"
            ) from error
