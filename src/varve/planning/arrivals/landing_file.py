"""`LandingFile`: a file as its folder lists it, and the kinds of reasons for not taking one.

Not here: what is done with it (arrivals.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from varve.model.partitions.key import PartitionKey


class RejectionKind(StrEnum):
    """The kind of reason for which an arrival is not taken; the values are shown to people."""

    EARLY = "early"
    SETTLING = "settling"
    HALF_WRITTEN = "half written"
    OUTSIDE = "outside"
    PAST = "past"
    NO_KEY = "no key"
    FORMAT = "unknown format"
    CONTENT = "content"
    DUPLICATE = "duplicate"
    UNREADABLE = "unreadable"
    BESIDE = "beside"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, order=True)
class LandingFile:
    """A file as the folder lists it.

    Attributes:
        changed_at: when it was last written or moved into place, in seconds since 1970. For a local file its change
            time counts too, because copying can keep the modification time of an old file.
        key: the partition as Dagster spells it; for a file that cannot be taken, its name below the dataset's folder.
        uri: where the file is.
        size: its size in bytes.
        stamp: all that the folder lists of its state; where the stamp changes, the content may have changed.
        problem: why it cannot be a landing file, whatever its content; "" where it can. `kind` is the kind of reason.
        temporary: whether its name says that it is still being written.
        partition: the partition that `key` spells, where whoever listed it has it at hand.
    """

    changed_at: float
    key: str
    uri: str
    size: int
    stamp: str = ""
    problem: str = ""
    kind: RejectionKind = RejectionKind.FORMAT
    temporary: bool = False
    partition: PartitionKey | None = field(default=None, compare=False, repr=False)

    @property
    def token(self) -> str:
        """A hash of its name and its state; "" where the folder does not list its state."""
        text = f"{self.uri}\0{self.stamp}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest() if self.stamp else ""
