"""Explains PostgreSQL's errors of a load: which partition, row and column, and what to do.

Not here: errors of the connection that holds the build (dagster/runs/io_manager.py).
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import psycopg

from varve.model.errors import NOTHING_LOST, BadInput, ServiceUnavailable, VarveError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.stores.warehouse.loading.copying import CopyPiece, Outcome

# Both are in the language of the server (lc_messages): `FEHLER:  ...`, `KONTEXT:  COPY rows, Zeile 1, Spalte value`.
_PLACE = re.compile(r"(?m)^(?:\w+ ?: +)?\S*COPY.*?[,\u3001] ?\w+ (\d+)(?:[,\u3001] ?\w+ (\S+))?")
_MESSAGE = re.compile(r":  (\S.*)")
_NUL = "22021"
_JSON_NUL = "22P05"
_DISK_FULL = "53100"
_OUT_OF_MEMORY = "53200"
_TOO_MANY_CONNECTIONS = "53300"
_NO_TABLE = "42P01"


def explained(build: Build, piece: CopyPiece, outcome: Outcome) -> VarveError:
    """The error for people that explains the failed outcome of a piece."""
    subject = f"{build}: {piece.partition}"
    text, state = outcome.error or "", outcome.state or ""
    message = match[1].strip() if (match := _MESSAGE.search(text)) else text.splitlines()[0]
    if state == _DISK_FULL:
        return VarveError(
            f"{build}: the disk under PostgreSQL is full. {NOTHING_LOST} Free some space, and run it again."
        )
    if state == _OUT_OF_MEMORY:
        return VarveError(f"{subject}: PostgreSQL has no memory left ({message}). {NOTHING_LOST} Run it again.")
    if state == _TOO_MANY_CONNECTIONS:
        return ServiceUnavailable(
            f"{subject}: PostgreSQL takes no more connections. {NOTHING_LOST} Lower VARVE_LOAD_CONNECTIONS or raise "
            "its max_connections, and run it again."
        )
    # The driver looks the table up itself; its error then has no SQLSTATE.
    if state == _NO_TABLE or text.startswith("NOT_FOUND"):
        return VarveError(
            f"{subject}: its table is gone; another run took this one for dead. {NOTHING_LOST} Run it again."
        )
    if state[:2] in {"22", "23"}:
        return BadInput(f"{build}: PostgreSQL refused the rows of {piece.partition}: {_refused(state, message, text)}")
    return ServiceUnavailable(
        f"{subject}: PostgreSQL was lost during the load: {message} {NOTHING_LOST} "
        "Run it again when the server is back."
    )


@contextlib.contextmanager
def of_an_index(build: Build, partition: PartitionKey) -> Iterator[None]:
    """Explain an index that refuses rows. Raises BadInput."""
    try:
        yield
    except (psycopg.errors.UniqueViolation, psycopg.errors.ProgramLimitExceeded, psycopg.DataError) as error:
        details = error.diag.message_detail or str(error).strip()
        raise BadInput(
            f"{build}: an index of {partition} refused its rows: {details} {NOTHING_LOST} Mend the rows or the index."
        ) from error


def _refused(state: str, message: str, text: str) -> str:
    place = _PLACE.search(text)
    where = f"row {place[1]} of a file, column {place[2]}: " if place and place[2] else ""
    if state in {_NUL, _JSON_NUL} and ("0x00" in text or "u0000" in text):
        hint = " A text of PostgreSQL holds no NUL character: remove it, or declare the column BINARY."
    else:
        hint = ""
    return f"{where}{message}.{hint} {NOTHING_LOST}"
