"""The errors that a person is meant to read: what was found, where, what was expected and what to do.

Not here: programming errors, which stay Python's own exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class VarveError(Exception):
    """An error that the user can mend. The message is complete: nobody needs the traceback to understand it.

    Attributes:
        reasons: of a build, the paths of those that are to blame, each with an error of its own, or without one where
            the message is that of all; empty where it is not known who is to blame, or they all are.
    """

    def __init__(self, message: str = "", *, partitions: Iterable[str] | Mapping[str, str] = ()) -> None:
        super().__init__(message)
        self.reasons: Mapping[str, str] = (
            dict(partitions) if isinstance(partitions, Mapping) else dict.fromkeys(partitions, "")
        )

    @property
    def partitions(self) -> frozenset[str]:
        """The paths of the partitions that are to blame."""
        return frozenset(self.reasons)


class UnknownPartition(VarveError):
    """A key that names no partition of the dataset."""


class OutsideDimension(UnknownPartition):
    """A key that is spelt correctly, but lies before the start or after the end of its dimension."""


class BadInput(VarveError):
    """A file or a frame is not what its dataset declares."""


class AlreadyBuilding(VarveError):
    """Another run holds the lock of a partition, which has one writer at a time (docs/decisions/0012-leases.md)."""


class MissingUpstream(VarveError):
    """A partition that this build reads has no published batch."""


class StalePublish(VarveError):
    """Another run published a partition after our build began; ours is older and must not win."""


class CodeNotDeployed(VarveError):
    """A run has other code than is deployed for its dataset, or would mix the two; nothing was computed."""


class OtherOwner(VarveError):
    """A dataset belongs to another project over the same catalog, which alone computes and changes it."""


class LeaseLost(VarveError):
    """A run continues although its lease is gone: it was frozen until the lease expired, or somebody ended it."""


class NotKept(VarveError):
    """A batch that was asked for was swept, or was never published."""


class StillShown(VarveError):
    """Readers are shown data that the catalog does not know, so that no sweep may delete it."""


class VerifyFailed(VarveError):
    """The data in the store differs from the data that was computed."""


class ExpectationFailed(VarveError):
    """A staged batch does not meet an expectation of its dataset.

    Attributes:
        broken: by name of the expectation, what is wrong.
    """

    def __init__(
        self, message: str, broken: Mapping[str, str] | None = None, *, partitions: Iterable[str] = ()
    ) -> None:
        self.broken = dict(broken or {})
        super().__init__(message, partitions=partitions)


class PublishTimeout(VarveError):
    """Readers held the view or an old snapshot for longer than the publish may wait."""


class UnfitView(VarveError):
    """The view of a dataset has other columns than a publish can show in it, as one that somebody has replaced."""


class ServiceUnavailable(VarveError):
    """PostgreSQL, Spark or Java cannot be reached or started."""


class UnfitCatalog(VarveError):
    """The tables of the catalog are not there, or are those of a version that this Varve does not read."""


NOTHING_LOST = "Nothing was published; the current batch is unchanged."


def counted(count: int, noun: str) -> str:
    """A count with its noun, for a message: `1 batch`, `2,000 batches`."""
    plural = f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def some(items: Iterable[object], *, limit: int = 5) -> str:
    """The first `limit` items and the number of the others, for a message: `a, b, c and 7 more`."""
    item_list: Sequence[object] = list(items)
    shown = ", ".join(str(item) for item in item_list[:limit])
    left_out = len(item_list) - limit
    return f"{shown} and {left_out} more" if left_out > 0 else shown


def cut(text: str, limit: int) -> str:
    """The text, with `...` in place of what exceeds the limit."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def nearest(word: str, candidates: Iterable[str]) -> str:
    """` Did you mean X?` with the candidate that is spelt most like `word`; "" where none is near."""
    candidate_of_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(word.lower(), candidate_of_lower, n=1, cutoff=0.6)
    return f" Did you mean {candidate_of_lower[matches[0]]}?" if matches else ""
