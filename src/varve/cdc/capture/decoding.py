"""Errors of decoding the source's log: which of them pass by themselves, and which asking again does not mend.

PostgreSQL decodes with what its catalog was when a change was written. Where that is not to be had ("could not map
filenumber ... to relation OID"), or a part of the log is gone or damaged, the same question has the same answer for
ever, and only a new snapshot helps.

Not here: what is asked (slot_reader.py), and how often (capture.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from varve.model.errors import BadInput, VarveError

if TYPE_CHECKING:
    from collections.abc import Iterator

# What these classes of SQLSTATE say is not of the log: connections, rights, conflicts, resources, states of the server
# that its administrator sets, shutdowns, its disk.
_NOT_OF_THE_LOG = ("08", "28", "40", "42501", "53", "55", "57", "58030")


class Undecodable(VarveError):
    """The source's decoding failed, or what it sent cannot be read."""


@contextmanager
def decoding() -> Iterator[None]:
    """Raise Undecodable where the error is of the log itself; other errors pass through."""
    try:
        yield
    except BadInput as error:
        raise Undecodable(str(error)) from error
    except psycopg.Error as error:
        # Without a code the server said nothing: the connection is gone.
        if error.sqlstate is None or error.sqlstate.startswith(_NOT_OF_THE_LOG):
            raise
        raise Undecodable(f"{str(error).strip()} (SQLSTATE {error.sqlstate})") from error
