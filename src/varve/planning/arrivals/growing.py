"""Which files of a growing partition are new, and which of the files of its batch have changed. Pure.

Not here: the files themselves (varve/sources/landing/growth.py), and what a store does with them (varve/stores).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from varve.model.batch import TakenFile
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.arrivals.landing_file import LandingFile

# A batch of more parts is folded although its window is not over, because a query of the view opens every table.
MOST_PARTS = 200


@dataclass(frozen=True, slots=True)
class Compared:
    """The files of a partition, compared by name with the files from which its batch was made.

    Attributes:
        same: files of the batch that are still there in the state in which they were read.
        touched: files of the batch that are there in another state, perhaps with another content.
        gone: files of the batch that are not there any more.
        new: files that are there and not in the batch.
    """

    same: tuple[TakenFile, ...]
    touched: tuple[tuple[TakenFile, LandingFile], ...]
    gone: tuple[TakenFile, ...]
    new: tuple[LandingFile, ...]


def compared(taken: Iterable[TakenFile], listed: Mapping[str, LandingFile]) -> Compared:
    """Compare the files from which a batch was made with the files that are listed now, by name."""
    taken_by_name = {file.name: file for file in taken}
    in_both = [(file, listed[name]) for name, file in taken_by_name.items() if name in listed]
    same = [
        (file, listed_file) for file, listed_file in in_both if listed_file.token and listed_file.token == file.token
    ]
    return Compared(
        tuple(file for file, _ in same),
        tuple(pair for pair in in_both if pair not in same),
        tuple(file for name, file in taken_by_name.items() if name not in listed),
        tuple(file for name, file in listed.items() if name not in taken_by_name),
    )


def why_whole(changed: Sequence[TakenFile], gone: Sequence[TakenFile]) -> str:
    """Why a partition must be read as a whole again: files that were taken have changed or gone; "" where none has."""
    reasons = [
        f"{some([file.name for file in files], limit=3)} {'was' if len(files) == 1 else 'were'} {change}"
        for files, change in ((changed, "sent again with other content"), (gone, "removed"))
        if files
    ]
    return " and ".join(reasons)


def closed_since(dataset: Dataset, key: PartitionKey, now: float, opened: Iterable[str]) -> float | None:
    """Since when a partition is closed for late files, in seconds since 1970; None where it is not closed.

    `opened` are the paths of the partitions that a person has reopened.
    """
    if dataset.incremental is None:
        return None
    closes_at = dataset.incremental.closes_at(dataset.partitioning, key)
    return None if closes_at is None or now < closes_at or key.path in opened else closes_at


def folds(dataset: Dataset, key: PartitionKey, parts: int, now: float) -> bool:
    """Whether the parts of a partition's batch (`parts` of them) are to be put together now."""
    if dataset.incremental is None or parts < 2:
        return False
    return parts > MOST_PARTS or now >= dataset.incremental.folds_at(dataset.partitioning, key)
