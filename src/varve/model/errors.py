"""The errors a person is meant to read: what was found, where, what was expected and what to do.

Not here: errors of programming, which stay Python's own.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class VarveError(Exception):
    """Something the user can mend. The message is complete: it needs no traceback to be understood."""


class UnknownPartition(VarveError):
    """A key names no partition of the dataset."""


class OutsideDimension(UnknownPartition):
    """A key that its dimension would have, were it not too early or too late for it."""


class BadInput(VarveError):
    """A file or a frame is not what its dataset declares."""


class AlreadyBuilding(VarveError):
    """Another run holds the lock of a partition; one writer per partition (docs/decisions/0012)."""


class MissingUpstream(VarveError):
    """A partition that this build reads has no published batch."""


class StalePublish(VarveError):
    """Another run published a partition after our build began; ours is older and must not win."""


class LeaseLost(VarveError):
    """A run goes on that counts as dead: frozen until its lease had expired, or ended by others."""


class NotKept(VarveError):
    """A batch that is asked for was swept, or was never in force."""


class VerifyFailed(VarveError):
    """What lies in the store is not what was computed."""


class ExpectationFailed(VarveError):
    """A staged batch does not keep what its dataset promises."""


class PublishTimeout(VarveError):
    """Readers kept the view or an old snapshot for longer than the publish may wait."""


class ServiceUnavailable(VarveError):
    """PostgreSQL, Spark or Java cannot be reached or started."""


NOTHING_LOST = "Nothing was published; the current batch stays in force."


def counted(count: int, noun: str) -> str:
    """How many of what: `1 batch`, `2,000 batches`."""
    many = f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def some(items: Iterable[object], *, limit: int = 5) -> str:
    """The first `limit` items for a message, and how many more there are: `a, b, c and 7 more`."""
    listed: Sequence[object] = list(items)
    shown = ", ".join(str(item) for item in listed[:limit])
    rest = len(listed) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown


def nearest(word: str, known: Iterable[str]) -> str:
    """` Did you mean X?`, or nothing where nothing is near."""
    listed = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower(), listed, n=1, cutoff=0.6)
    return f" Did you mean {listed[found[0]]}?" if found else ""
