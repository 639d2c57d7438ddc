"""Errors of decoding the source's log: which of them are temporary, and which no retry can mend.

PostgreSQL decodes a change with its catalog as it was when the change was written. Where it cannot find that catalog
("could not map filenumber ... to relation OID"), or a part of the log is gone or damaged, every retry fails in the same
way, and only a new snapshot helps.

Not here: reading the slot (slot_reader.py), and retrying (capture.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from varve.model.errors import BadInput, VarveError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Classes of SQLSTATE that are not about the log: connections, privileges, conflicts, resources, states of the server
# that its administrator sets, shutdowns, its disk.
_NOT_OF_THE_LOG = ("08", "28", "40", "42501", "53", "55", "57", "58030")


class Undecodable(VarveError):
    """The source's decoding failed, or what it sent cannot be read."""


@contextmanager
def decoding() -> Iterator[None]:
    """Raise Undecodable where an error is about the log itself; other errors pass through."""
    try:
        yield
    except BadInput as error:
        raise Undecodable(str(error)) from error
    except psycopg.Error as error:
        # Without a code the error does not come from the server: the connection is gone.
        if error.sqlstate is None or error.sqlstate.startswith(_NOT_OF_THE_LOG):
            raise
        raise Undecodable(f"{str(error).strip()} (SQLSTATE {error.sqlstate})") from error
