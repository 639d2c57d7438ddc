"""Which errors say that a service is away: no attempt at the partitions, which have nothing to do with it.

A server that was lost in the middle of the work is another matter: the work itself may have ended it, as a query does
that takes all of its memory.

Not here: what becomes of partitions whose build ended so (varve/planning/judgement/judging.py).
"""

from __future__ import annotations

import errno
import re
import socket
from typing import TYPE_CHECKING

from varve.model.errors import ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

# What the client says of a server that is gone, and what a server says whose context has been stopped.
_SIGNS_OF_LOSS = (
    "StatusCode.UNAVAILABLE",
    "failed to connect to all addresses",
    "INVALID_HANDLE.SESSION_",
    "stopped SparkContext",
    "SparkContext was shut down",
)
# What Java throws, as the first or the last cause, where nobody answers: object stores, HDFS, metastores and databases.
_JAVA_AWAY = re.compile(
    r"""(?mx)
    (?:^|[ (:])(?:
        java\.net\.(?:ConnectException|UnknownHostException|NoRouteToHostException)
        | java\.net\.SocketTimeoutException:\ [Cc]onnect\ timed\ out
        | org\.apache\.hadoop\.net\.ConnectTimeoutException
        | org\.apache\.hadoop\.ipc\.(?:StandbyException|RetriableException)
        | org\.apache\.hadoop\.hdfs\.server\.namenode\.SafeModeException
        | org\.apache\.hadoop\.fs\.s3a\.AWS(?:Status500|ServiceThrottled)Exception
        | org\.apache\.http\.conn\.(?:HttpHostConnectException|ConnectTimeoutException)
        | org\.apache\.thrift\.transport\.TTransportException
    )\b
    | Unable\ to\ execute\ HTTP\ request
    | Could\ not\ connect\ to\ meta\ store
    | Connection\ to\ \S+\ refused\.
    | Communications\ link\ failure
    """
)
# Classes of Python's clients, which our own code cannot name: they may not be installed.
_AWAY = {
    "ConnectionRefusedError", "gaierror", "NewConnectionError", "NameResolutionError", "ConnectTimeoutError",
    "EndpointConnectionError", "ClientConnectorError", "ConnectTimeout", ServiceUnavailable.__name__,
}  # fmt: skip
_AWAY_NUMBERS = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENOTCONN}


def is_server_lost(error: BaseException) -> bool:
    """Whether an error of Spark says that its server is gone, or does not know our session any more."""
    return any(sign in str(error) for sign in _SIGNS_OF_LOSS)


def is_outage(error: BaseException) -> bool:
    """Whether an error, or what caused it, says that a service could not be reached."""
    return any(
        isinstance(cause, (ServiceUnavailable, ConnectionRefusedError, socket.gaierror))
        or (isinstance(cause, OSError) and cause.errno in _AWAY_NUMBERS)
        or names_outage(type(cause).__name__, str(cause))
        for cause in _causes(error)
    )


def names_outage(kind: str, message: str) -> bool:
    """Whether an error that is only known by the name of its class and its message says so."""
    return kind.rpartition(".")[2] in _AWAY or _JAVA_AWAY.search(message) is not None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and what it came from, as Python would print them, each once."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
