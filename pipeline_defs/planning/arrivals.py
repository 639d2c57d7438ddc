"""Which landing files to look at: everything since the cursor, in order, once it is settled.

Not here: the folders themselves (resources/landing.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, order=True)
class LandingFile:
    """A file as the folder lists it.

    Attributes:
        changed_at: when it was last written or moved into place, in epoch seconds. A local file's change time counts
            too, not only its modification time: a partner may keep the latter when copying an old file in.
        key: its name without the ending: the partition as Dagster spells it.
    """

    changed_at: float
    key: str
    uri: str
    size: int


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """How far a folder has been looked through; files are ordered by change, then by name."""

    changed_at: float = 0.0
    key: str = ""


def settled(files: Iterable[LandingFile], cursor: Cursor, *, now: float, settle_seconds: float) -> list[LandingFile]:
    """The files after the cursor that have not changed for more than `settle_seconds`, in order.

    More than: a file may still be written at this very instant, and its name may sort before the cursor.

    A file that is still being written changes all the time, so it and whatever changed after it wait; the cursor never
    passes it.
    """
    return sorted(
        file for file in files if Cursor(file.changed_at, file.key) > cursor and file.changed_at < now - settle_seconds
    )
