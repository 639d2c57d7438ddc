"""The rows in many messages of one table: where in the buffer each value lies, a column of all messages at once.

Source: PostgreSQL documentation, "Logical Replication Message Formats", "TupleData". Not here: the events that are made
of them (varve/cdc/capture/row_events.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from varve.cdc.protocol.pgoutput import DELETE, INSERT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from varve.cdc.protocol.pgoutput import Integers, Mask, Messages

# How a value was sent; ABSENT is also every value of a row that a message does not have.
NULL, ABSENT, TEXT = b"nut"
_KEY, _OLD, _NEW = b"KON"
# The kind of a message and the OID of its table; the rows follow.
_HEADER = 5


@dataclass(frozen=True)
class Image:
    """A row of each change: the one before it, the one after it, or a part of them.

    Attributes:
        names: the columns.
        marks: how each value was sent, by (change, column): NULL, TEXT or ABSENT.
        cells: the place of each value among the values of all rows, by (change, column).
    """

    names: tuple[str, ...]
    marks: NDArray[np.uint8]
    cells: Integers

    def only(self, where: Mask) -> Image:
        """This image, in which all other values are absent."""
        return replace(self, marks=np.where(where, self.marks, np.uint8(ABSENT)))

    def otherwise(self, where: Mask, other: Image) -> Image:
        """This image where that is so, and the other one, of the same columns, elsewhere."""
        if not where.any():
            return other
        return Image(self.names, np.where(where, self.marks, other.marks), np.where(where, self.cells, other.cells))

    def of(self, names: Sequence[str]) -> Image:
        """These columns in this order; those that it has not are left out."""
        places = [self.names.index(name) for name in names if name in self.names]
        return Image(tuple(self.names[place] for place in places), self.marks[:, places], self.cells[:, places])

    def beside(self, other: Image) -> Image:
        """The columns of both."""
        return Image(
            self.names + other.names, np.hstack((self.marks, other.marks)), np.hstack((self.cells, other.cells))
        )

    def has(self, names: Sequence[str]) -> Mask:
        """Whether none of these columns is absent, by change."""
        if not set(names) <= set(self.names):
            return np.zeros(len(self.marks), np.bool_)
        return np.asarray((self.of(names).marks != ABSENT).all(axis=1))


@dataclass(frozen=True)
class RowImages:
    """The rows before and after the changes of one table.

    Attributes:
        has_old: whether a change sends the row, or the key, before it.
        is_full: whether that is the whole row.
        values: the values of all rows, in the order of the messages; NULL and absent ones are empty.
    """

    messages: Messages
    has_old: Mask
    is_full: Mask
    old: Image
    new: Image
    values: pa.StringArray

    def with_constants(self, constants: Sequence[str]) -> tuple[RowImages, Integers]:
        """The same with these values, which no message has, and the cells of them."""
        values = pa.concat_arrays([self.values, pa.array(constants, pa.string())])
        return replace(self, values=values), np.arange(len(self.values), len(values))

    def texts(self, image: Image, where: Mask) -> pa.StringArray:
        """The values of an image where that is so, one row after the other. Raises BadInput where one is not UTF-8."""
        texts = self.values.take(pa.array(image.cells[where], mask=image.marks[where] == NULL))
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            is_bad = np.zeros(where.shape, np.bool_)
            is_bad[where] = [not _is_utf8(text) for text in texts.cast(pa.binary()).to_pylist()]
            self.messages.refuse(np.logical_or.reduce(is_bad, axis=1), "a text that is not UTF-8")
        return texts

    def lists(self, image: Image) -> tuple[pa.ListArray, pa.ListArray]:
        """The names and the values of what is not absent, as lists, one for each change."""
        where = image.marks != ABSENT
        offsets = np.zeros(len(where) + 1, np.int32)
        np.cumsum(np.count_nonzero(where, axis=1), out=offsets[1:])
        names = pa.array(image.names, pa.string()).take(pa.array(np.nonzero(where)[1]))
        return tuple(pa.ListArray.from_arrays(pa.array(offsets), items) for items in (names, self.texts(image, where)))


def row_images(messages: Messages, names: tuple[str, ...]) -> RowImages:
    """The rows in these messages, all of which are `I`, `U` or `D` and of one table with these columns.

    Raises BadInput that shows the message that cannot be read.
    """
    octets, kinds, at = messages.numbers("u1"), messages.kinds, messages.starts + _HEADER
    first = octets[at]
    has_old, has_new = (first == _KEY) | (first == _OLD), kinds != DELETE
    is_due = np.where(has_old, kinds != INSERT, has_new & (first == _NEW))
    messages.refuse(~is_due, "it begins with no row that is due")
    tuples = _Tuples(messages, len(names))
    at = tuples.read(0, has_old, at)
    messages.refuse(has_old & has_new & (octets[at] != _NEW), "no new row behind the old one")
    at = tuples.read(len(names), has_new, at)
    messages.refuse(at != messages.ends, "it goes on behind its last value")
    # Every other value is what lies between two of them.
    cells = 2 * np.arange(tuples.marks.size).reshape(tuples.marks.shape)
    old, new = (
        Image(names, tuples.marks[:, side], cells[:, side]) for side in (slice(len(names)), slice(len(names), None))
    )
    return RowImages(messages, has_old, first == _OLD, old, new, tuples.values())


class _Tuples:
    """Two tuples of each message: the old one and the new one, side by side."""

    def __init__(self, messages: Messages, columns: int) -> None:
        self._messages, self._columns = messages, columns
        shape = (len(messages), 2 * columns)
        self.marks = np.full(shape, ABSENT, np.uint8)
        self._starts, self._stops = np.empty(shape, np.int32), np.empty(shape, np.int32)

    def read(self, side: int, has: Mask, at: Integers) -> Integers:
        """Read the tuples that begin at these places into the columns from `side` on; where they end.

        A message that has no such tuple gets empty values at its place, so that places only grow.
        """
        messages, octets, lengths = self._messages, self._messages.numbers("u1"), self._messages.numbers("u4")
        columns = slice(side, side + self._columns)
        self._starts[:, columns] = self._stops[:, columns] = at[:, np.newaxis]
        rows: Any = slice(None) if has.all() else np.flatnonzero(has)
        some, ends = messages[rows], messages.ends[rows]
        place = at[rows] + 3
        some.refuse(place > ends, "it ends within a row")
        some.refuse(messages.numbers("u2")[place - 2] != self._columns, f"not {self._columns} columns")
        for column in range(side, side + self._columns):
            some.refuse(place >= ends, "it ends within a row")
            mark = octets[place]
            is_text = mark == TEXT
            some.refuse(~(is_text | (mark == NULL) | (mark == ABSENT)), "a value that was not sent as text")
            start = place + 1 + 4 * is_text
            place = start + np.where(is_text, lengths[place + 1], 0)
            some.refuse(place > ends, "it ends within a value")
            self.marks[rows, column], self._starts[rows, column], self._stops[rows, column] = mark, start, place
        after = at.copy()
        after[rows] = place
        return after

    def values(self) -> pa.StringArray:
        """The values as slices of the buffer, which is not copied; what lies between them are values of their own."""
        offsets = np.zeros(2 * self._starts.size + 1, np.int32)
        offsets[:-1:2], offsets[1::2] = self._starts.ravel(), self._stops.ravel()
        if self._starts.size:
            offsets[-1] = self._stops[-1, -1]
        return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(self._messages.data))


def _is_utf8(text: bytes | None) -> bool:
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
