"""`SetSource`: the data from which a dynamic set gets its keys.

Not here: reading the keys (varve/dagster/partitions/set_feed.py) and storing them (catalog/planning/set_keys.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum


class OnRemoval(StrEnum):
    """What happens to a key that no current batch has any more."""

    KEEP = "keep"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True)
class SetSource:
    """The keys of a set are the distinct values of one expression over the rows of one dataset.

    Each row counts for itself, so that the keys of a batch follow from that batch alone, and never change.

    Attributes:
        dataset: the name of the dataset that is read.
        expression: the key of a row, in Spark SQL over the dataset's columns; a row without one (NULL) is refused.
        where: which rows count, in Spark SQL; "": all.
        on_removal: what happens to a key that is in no current batch any more.
        place: where that is written, as `file:line:column`; "" in Python.
    """

    dataset: str
    expression: str
    where: str = ""
    on_removal: OnRemoval = OnRemoval.KEEP
    place: str = ""

    @property
    def digest(self) -> str:
        """A hash of what decides which keys a batch has."""
        parts = "\n".join((self.dataset, self.expression, self.where))
        return hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()

    def __str__(self) -> str:
        words = ["SELECT DISTINCT", self.expression, "FROM", self.dataset]
        return " ".join([*words, "WHERE", self.where] if self.where else words)
