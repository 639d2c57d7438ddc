"""Which errors say that a service is away: no attempt at the partitions, which have nothing to do with it.

So have they with readers who hold a view for too long, and with what somebody else has made of the view.

A server that was lost in the middle of the work is another matter: the work itself may have ended it, as a query does
that takes all of its memory.

Not here: what becomes of partitions whose build ended so (varve/planning/judgement/judging.py).
"""

from __future__ import annotations

import builtins
import errno
import re
import socket
from typing import TYPE_CHECKING

from varve.model import errors
from varve.model.errors import PublishTimeout, ServiceUnavailable, UnfitView, VarveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        | org\.apache\.thrift\.transport\.TTransportException(?!:\ MaxMessageSize)
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
    # What is in the way of a publish, and goes without the partition having done anything.
    PublishTimeout.__name__, UnfitView.__name__,
}  # fmt: skip
# The classes of our errors that know better.
_DECIDED = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, VarveError) and kind not in {VarveError, ServiceUnavailable}
}
_OF_PYTHON = vars(builtins).keys() - {OSError.__name__}
_QUOTED = re.compile("'[^'\n]*'")
_AWAY_NUMBERS = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENOTCONN}


def is_server_lost(error: BaseException) -> bool:
    """Whether an error of Spark says that its server is gone, or does not know our session any more."""
    return any(sign in str(error) for sign in _SIGNS_OF_LOSS)


def is_outage(error: BaseException) -> bool:
    """Whether an error, or what caused it, says that a service could not be reached."""
    return names_outage((_kind(cause), str(cause)) for cause in _causes(error))


def names_outage(causes: Iterable[tuple[str, str]]) -> bool:
    """Whether an error says so of which only the names of the classes and the messages are known, its causes last.

    An error of ours that blames the data has decided it, whatever it came from.
    """
    for kind, message in causes:
        name = kind.rpartition(".")[2]
        if name in _AWAY:
            return True
        if name in _DECIDED:
            return False
        # A message quotes values of rows, which may say anything, as those of Python do without quotes.
        if name not in _OF_PYTHON and _JAVA_AWAY.search(_QUOTED.sub("''", message)):
            return True
    return False


def _kind(error: BaseException) -> str:
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
        return ConnectionRefusedError.__name__
    if isinstance(error, OSError) and error.errno in _AWAY_NUMBERS:
        return ConnectionRefusedError.__name__
    return type(error).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and what it came from, as Python would print them, each once."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
