"""What is taken from the messages of one read of a slot, many of them at once.

Messages between two that describe or truncate tables are taken together: to which transaction each belongs, which place
it has in it, and which of them change rows of our table, are arrays. Their events go to the writer in at most three
parts: the rest of the transaction in progress, whole transactions, and the beginning of the next one.

Not here: fetching the messages (slot_reader.py), and the rows in them (row_events.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from varve.cdc.capture.row_events import EventRows, RowEvents, RowShape
from varve.cdc.event import ChangeType, event
from varve.cdc.protocol.pgoutput import RELATION, TRUNCATE
from varve.cdc.protocol.transactions import InProgress, Transactions, timestamps

if TYPE_CHECKING:
    from varve.cdc.capture.batch_writer import BatchWriter
    from varve.cdc.protocol.messages import RelationMessage
    from varve.cdc.protocol.pgoutput import Integers, Mask, Messages
    from varve.cdc.table_changes import Fit


@dataclass
class Look:
    """One read of the slot, as far as its messages were taken.

    Attributes:
        done: everything that was committed before this LSN is durable.
        last: the end of the last transaction after the durable ones, whichever tables it changed.
        ended: the end of the last transaction; 0: there is none.
        truncated_by: the committed transactions that truncated the table.
        refilled_by: those that then changed rows of it as well.
        last_at: when the transaction committed that ends at `done`, the last durable one; "": it did not come again.
        names_are_theirs: whether each column of the rows that came has a name by which the table is described.
        misfit: why the read ends before the transaction in progress, of which nothing may be kept; "": it does not.
    """

    writer: BatchWriter
    fit: Fit
    done: int
    version: int = field(init=False)
    last: int = field(init=False)
    ended: int = 0
    truncated_by: set[int] = field(default_factory=set)
    refilled_by: set[int] = field(default_factory=set)
    last_at: str = ""
    names_are_theirs: bool = True
    misfit: str = ""

    def __post_init__(self) -> None:
        captured, before = self.fit.captured, self.fit.before
        self.version, self.last = before.version, self.done
        missing = {column.name: column.missing for column in self.fit.now.columns if column.since is not None}
        self._shape = RowShape(before.key, captured.source_columns, missing)
        self._layout = before.layout
        self._ours: RelationMessage | None = None
        self._described: set[int] = set()
        self._in_progress = InProgress()
        self._truncates: set[int] = set()
        self._refills: set[int] = set()

    def take(self, messages: Messages) -> None:
        """Take the messages in their order, until one that does not fit."""
        for part in messages.between_tables():
            kind = part.kinds[0]
            if kind == RELATION:
                self._describe(part.relation())
            elif kind == TRUNCATE:
                self._truncate(part)
            else:
                self._change(part)
            if self.misfit:
                return

    def _describe(self, relation: RelationMessage) -> None:
        self._described.add(relation.oid)
        # Not by its name: another table may have it for a while, and ours another one.
        if relation.oid == self.fit.before.oid:
            self._ours = relation

    def _truncate(self, message: Messages) -> None:
        transaction = self._in_progress
        for oid in message.truncated():
            message.refuse(np.array([oid not in self._described]), f"table {oid} was not described")
            transaction = replace(transaction, changes=transaction.changes + 1)
            # Somebody may have added other tables to the publication.
            if self._ours is None or oid != self._ours.oid or transaction.final_lsn < self.done:
                continue
            self.misfit = self.fit.misfit(self._ours)
            if self.misfit:
                return
            self._count_version(self._ours)
            truncate = event(
                ChangeType.TRUNCATE, timestamp=timestamps(np.array([transaction.micros]))[0].as_py(),
                relation=self._ours.full_name, seq=transaction.changes, xid=transaction.xid,
                schema_version=self.version,
            )  # fmt: skip
            self.writer.add_open(EventRows.of([truncate], self._shape.declared))
            self._truncates.add(transaction.xid)
        self._in_progress = transaction

    def _change(self, messages: Messages) -> None:
        transactions = Transactions.of(messages, self._in_progress)
        is_new, is_ended = transactions.final_lsn >= self.done, transactions.end_lsn > 0
        is_ours = self._are_ours(messages, transactions)
        places = np.flatnonzero(is_ours & is_new[transactions.number])
        misfit = self.fit.misfit(self._ours) if self._ours is not None and len(places) else ""
        if misfit:
            if places[0]:
                # What was committed before the first of them fits.
                self._change(messages[: places[0]])
            self.misfit = misfit
            return
        if self._ours is not None and is_ours.any():
            # Of durable ones as well: their batch may not be recorded in the position yet.
            self.names_are_theirs &= self.fit.names_are_theirs(self._ours)
        # The changes of the transaction that was in progress, those of all others that end here, and the rest.
        number, last = transactions.number[places], len(is_ended) - 1
        begun = int(np.searchsorted(number, 1))
        ended = max(begun, int(np.searchsorted(number, last + is_ended[last])))
        rows = self._rows(messages, transactions, places)
        if rows and begun > 0:
            self._refills |= self._truncates & {self._in_progress.xid}
            self.writer.add_open(rows.part(0, begun))
        if is_ended[0] and is_new[0]:
            self.writer.commit(int(transactions.end_lsn[0]))
        if rows and ended > begun:
            self.writer.add(rows.part(begun, ended))
        if rows and len(places) > ended:
            self.writer.add_open(rows.part(ended, len(places)))
        if (is_last := transactions.end_lsn == self.done).any() and self.done:
            self.last_at = timestamps(transactions.micros[is_last])[0].as_py()
        self._count_ends(transactions.end_lsn[is_ended], is_new[is_ended])
        self._in_progress = transactions.in_progress

    def _rows(self, messages: Messages, transactions: Transactions, places: Integers) -> RowEvents | None:
        """The events of the messages at these places; None where there are none."""
        if self._ours is None or not len(places):
            return None
        self._count_version(self._ours)
        return RowEvents(messages, self._ours, self._shape, transactions, places, self.version)

    def _count_ends(self, ends: Integers, is_new: Mask) -> None:
        if len(ends):
            self.ended = int(ends[-1])
        if is_new.any():
            self.last = max(self.last, int(ends[is_new].max()))
            self.truncated_by |= self._truncates
            self.refilled_by |= self._refills

    def _are_ours(self, messages: Messages, transactions: Transactions) -> Mask:
        tables = messages.numbers("u4")[messages.starts + 1]
        is_ours: Mask = transactions.is_change & (tables == (self._ours.oid if self._ours else 0))
        is_other = transactions.is_change & ~is_ours
        if is_other.any():
            messages.refuse(is_other & ~np.isin(tables, list(self._described)), "its table was not described")
        return is_ours

    def _count_version(self, relation: RelationMessage) -> None:
        layout = tuple((column.name, column.typmod) for column in relation.columns)
        self.version += layout != self._layout
        self._layout = layout
