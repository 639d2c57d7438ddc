"""`LandingFile`: a file as its folder lists it, and the reasons for which one may be left where it is.

Not here: what is done with it (arrivals.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum


class RejectionKind(StrEnum):
    """Why something that arrived is not taken; in words for people."""

    EARLY = "early"
    SETTLING = "settling"
    HALF_WRITTEN = "half written"
    OUTSIDE = "outside"
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
        changed_at: when it was last written or moved into place, in epoch seconds. A local file's change time counts
            too, not only its modification time: a partner may keep the latter when copying an old file in.
        key: the partition as Dagster spells it; of a file that cannot be taken, its name below the dataset's folder.
        stamp: all that the folder says of its state; another stamp is perhaps another content.
        problem: why it can be no landing file, whatever is in it; empty where it can. `kind` says which kind of reason
            it is.
        temporary: whether its name says that it is still being written.
    """

    changed_at: float
    key: str
    uri: str
    size: int
    stamp: str = ""
    problem: str = ""
    kind: RejectionKind = RejectionKind.FORMAT
    temporary: bool = False

    @property
    def token(self) -> str:
        """What stands for its name and its state; empty where the folder says nothing of its state."""
        text = f"{self.uri}\0{self.stamp}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest() if self.stamp else ""
