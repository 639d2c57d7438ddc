"""Events of many row changes at once, as rows of Arrow: no Python object for a change or a value.

Not here: the bytes of the messages (varve/cdc/protocol), which changes are taken (slot_reader.py) and the files
(batch_writer.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varve.cdc.event import ChangeType, Counts
from varve.cdc.protocol.pgoutput import DELETE, INSERT, UPDATE
from varve.cdc.protocol.row_images import ABSENT, NULL, TEXT, Image, row_images
from varve.cdc.protocol.transactions import timestamps
from varve.cdc.resolve.event_frame import arrow_schema, arrow_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.cdc.event import ChangeEvent
    from varve.cdc.protocol.messages import RelationMessage
    from varve.cdc.protocol.pgoutput import Integers, Mask, Messages
    from varve.cdc.protocol.row_images import RowImages
    from varve.cdc.protocol.transactions import Transactions


@dataclass(frozen=True)
class EventRows:
    """Events of one table in their order.

    Attributes:
        table: their rows, with the columns of a file of events.
        counts: how many there are of each type.
    """

    table: pa.Table
    counts: Counts

    @classmethod
    def of(cls, events: Sequence[ChangeEvent], columns: Sequence[str]) -> EventRows:
        """These events of a table with these columns."""
        return cls(arrow_table(events), Counts.of(events, columns))


@dataclass(frozen=True)
class RowShape:
    """What a table's rows are like, beside what the stream says of them.

    Attributes:
        key: the columns that tell rows apart.
        declared: the columns that the dataset declares.
        missing: the value of a row in a declared column that its table had not got yet; others have NULL there.
    """

    key: tuple[str, ...]
    declared: tuple[str, ...]
    missing: Mapping[str, str | None]


class RowEvents:
    """The events of some messages `I`, `U` and `D` of one table, of which any part can be taken."""

    def __init__(  # noqa: PLR0917 - each a part of what an event is made of
        self, messages: Messages, relation: RelationMessage, shape: RowShape, transactions: Transactions,
        places: Integers, version: int,
    ) -> None:  # fmt: skip
        """The messages at these places among those of the transactions. Raises BadInput where one cannot be read."""
        messages, number = messages[places], transactions.number[places]
        kinds = messages.kinds
        self._of_kind = [kinds == kind for kind in (INSERT, UPDATE, DELETE)]
        is_insert, is_update, is_delete = self._of_kind
        images = row_images(messages, tuple(column.name for column in relation.columns))
        # Columns outside of the key are sent as NULL, whatever their value is, where only the key is.
        is_key = np.array([column.key for column in relation.columns], np.bool_)
        sent_old = images.old.only(images.is_full[:, np.newaxis] | is_key)
        old = images.old.only(images.is_full[:, np.newaxis])
        # Under FULL the old row contains the values that the new row leaves out because they are unchanged.
        is_healed = (images.new.marks == ABSENT) & (images.is_full & is_update)[:, np.newaxis]
        new = images.old.otherwise(is_healed, images.new)
        before = sent_old.otherwise(images.has_old[:, np.newaxis], images.new)
        old_key = before.of(shape.key).only(~is_insert[:, np.newaxis])
        self._moves = _differ(images, old_key, new, is_update & images.has_old)
        images, whole = _completed(images, new, is_insert, shape)
        self._masked = ~is_delete & ~whole.has(shape.declared)
        self._imageless = ~is_insert & ~old.has(shape.declared)
        size = len(kinds)
        columns = [
            _texts([ChangeType.INSERT, ChangeType.UPDATE, ChangeType.DELETE], is_update + 2 * is_delete),
            timestamps(transactions.micros[number]),
            *images.lists(whole),
            *images.lists(old_key),
            _texts([relation.full_name], np.zeros(size, np.int64)),
            pa.array(transactions.end_lsn[number]),
            pa.array(transactions.seq[places]),
            pa.array(transactions.xid[number]),
            *images.lists(old),
            pa.array(np.full(size, version, np.int32)),
        ]
        self._table = pa.table(columns, schema=arrow_schema())

    def part(self, begin: int, end: int) -> EventRows:
        """The events from one place to before another."""
        flags = (*self._of_kind, np.zeros(end, np.bool_), self._masked, self._moves, self._imageless)
        counts = Counts(end - begin, *(int(np.count_nonzero(flag[begin:end])) for flag in flags))
        return EventRows(self._table.slice(begin, end - begin), counts)


def _completed(images: RowImages, new: Image, is_insert: Mask, shape: RowShape) -> tuple[RowImages, Image]:
    """An inserted row has a value in every column: NULL, not unknown, where its table has lost the column.

    Where its table had not got the column yet, it is the value that the row was given then (`shape.missing`).
    """
    absent = tuple(sorted(set(shape.declared) - set(new.names)))
    if not absent:
        return images, new
    constants = [shape.missing.get(name) for name in absent]
    images, cells = images.with_constants([constant or "" for constant in constants])
    size = (len(is_insert), 1)
    marks = np.array([NULL if constant is None else TEXT for constant in constants], np.uint8)
    more = Image(absent, np.tile(marks, size), np.tile(cells, size)).only(is_insert[:, np.newaxis])
    return images, new.beside(more)


def _differ(images: RowImages, key: Image, new: Image, where: Mask) -> Mask:
    """Which of these changes have another value in a column of the key after them than before them."""
    differ = np.zeros(len(where), np.bool_)
    if not where.any():
        return differ
    for name in key.names:
        before, after = key.of([name]), new.of([name])
        both = (before.marks != ABSENT) & (after.marks != ABSENT) & where[:, np.newaxis]
        other = pc.not_equal(images.texts(before, both), images.texts(after, both)).fill_null(False)
        differ[both[:, 0]] |= other.to_numpy(zero_copy_only=False)
        differ |= (both & ((before.marks == NULL) != (after.marks == NULL)))[:, 0]
    return differ


def _texts(texts: Sequence[str], which: Integers | Mask) -> pa.StringArray:
    return pa.array(map(str, texts), pa.string()).take(pa.array(which))
