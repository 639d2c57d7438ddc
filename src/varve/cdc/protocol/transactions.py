"""The transactions of many messages: to which one each message belongs, and its place in it.

Source: PostgreSQL documentation, "Logical Replication Message Formats", "Begin" and "Commit". Not here: what is done
with the changes in them (varve/cdc/capture/look.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from varve.cdc.protocol.pgoutput import BEGIN, COMMIT, DELETE, INSERT, UPDATE

if TYPE_CHECKING:
    from varve.cdc.protocol.pgoutput import Integers, Mask, Messages

# The first instant of PostgreSQL's clock.
_EPOCH = np.datetime64("2000-01-01", "us")


@dataclass(frozen=True, slots=True)
class InProgress:
    """A transaction whose commit has not come yet.

    Attributes:
        final_lsn: where its commit record begins.
        micros: when it commits, in microseconds since 2000.
        changes: how many of its changes have come, of any table.
    """

    final_lsn: int = 0
    micros: int = 0
    xid: int = 0
    changes: int = 0


@dataclass(frozen=True)
class Transactions:
    """The transactions of some messages; the first one was in progress before them, and may have no message here.

    Attributes:
        number: which of the transactions each message belongs to.
        is_change: whether each message changes a row.
        seq: the place of each message that changes a row among the changes of its transaction.
        final_lsn, micros, xid: of each transaction, as of the one in progress.
        end_lsn: where the commit record of each transaction ends; 0: its commit is not among the messages.
        in_progress: the last transaction, as it is after the messages.
    """

    number: Integers
    is_change: Mask
    seq: Integers
    final_lsn: Integers
    micros: Integers
    xid: Integers
    end_lsn: Integers
    in_progress: InProgress

    @classmethod
    def of(cls, messages: Messages, before: InProgress) -> Transactions:
        """The transactions of these messages, of which none describes or truncates a table."""
        kinds = messages.kinds
        is_begin, is_commit = kinds == BEGIN, kinds == COMMIT
        is_change = (kinds == INSERT) | (kinds == UPDATE) | (kinds == DELETE)
        number, changes = np.cumsum(is_begin), np.cumsum(is_change)
        begins, commits = messages.starts[is_begin], messages.starts[is_commit]

        def of_each(first: int, form: str, offset: int) -> Integers:
            return np.concatenate(([first], messages.numbers(form)[begins + offset].astype(np.int64)))

        final_lsn, micros = of_each(before.final_lsn, "u8", 1), of_each(before.micros, "i8", 9)
        xid = of_each(before.xid, "u4", 17)
        end_lsn = np.zeros(len(xid), np.int64)
        end_lsn[number[is_commit]] = messages.numbers("u8")[commits + 10]
        changes_before = np.concatenate(([-before.changes], changes[is_begin]))
        last = InProgress(int(final_lsn[-1]), int(micros[-1]), int(xid[-1]), int(changes[-1] - changes_before[-1]))
        return cls(number, is_change, changes - changes_before[number], final_lsn, micros, xid, end_lsn, last)


def timestamps(micros: Integers) -> pa.StringArray:
    """Instants, given in microseconds since 2000, in ISO 8601."""
    instants, which = np.unique(micros, return_inverse=True)
    texts = np.char.add(np.datetime_as_string(_EPOCH + instants.astype("m8[us]")), "+00:00")
    return pa.array(texts.tolist(), pa.string()).take(pa.array(which))
