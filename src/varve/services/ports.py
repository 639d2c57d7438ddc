"""Ports of this machine's loopback address: a free one, and a clear refusal of a taken one."""

from __future__ import annotations

import errno
import socket

from varve.model.errors import ServiceUnavailable


def free_port() -> int:
    """A port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def refuse_taken_port(port: int, *, setting: str, remedy: str, host: str = "127.0.0.1") -> None:
    """Raise ServiceUnavailable where nobody can listen on the port of an address, naming the setting and what to do."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServiceUnavailable(
                f"port {port} ({setting}) is in use by another process ({error.strerror}). {remedy}"
                if error.errno == errno.EADDRINUSE
                else f"port {port} ({setting}) of {host} cannot be listened on: {error.strerror}. {remedy}"
            ) from error
