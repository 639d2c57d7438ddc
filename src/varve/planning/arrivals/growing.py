"""Which files of a partition that grows are new, and which of those that its batch was made from have changed. Pure.

Not here: the files themselves (varve/sources/landing/growth.py), and what follows for a batch (resources/).
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

# A batch of more parts is put together although its window is not over: every query of a view opens each table.
MOST_PARTS = 200


@dataclass(frozen=True, slots=True)
class Compared:
    """The files of a partition beside those that its batch was made from, by name.

    Attributes:
        same: those of the batch that lie there as they were read.
        touched: those of the batch that lie there in another state: perhaps another content, perhaps not.
        gone: those of the batch that do not lie there any more.
        new: those that lie there and that the batch does not have.
    """

    same: tuple[TakenFile, ...]
    touched: tuple[tuple[TakenFile, LandingFile], ...]
    gone: tuple[TakenFile, ...]
    new: tuple[LandingFile, ...]


def compared(taken: Iterable[TakenFile], listed: Mapping[str, LandingFile]) -> Compared:
    """The files that a batch was made from beside those that are listed now, by name."""
    known = {file.name: file for file in taken}
    both = [(file, listed[name]) for name, file in known.items() if name in listed]
    same = [(file, now) for file, now in both if now.token and now.token == file.token]
    return Compared(
        tuple(file for file, _ in same),
        tuple(pair for pair in both if pair not in same),
        tuple(file for name, file in known.items() if name not in listed),
        tuple(file for name, file in listed.items() if name not in known),
    )


def why_whole(changed: Sequence[TakenFile], gone: Sequence[TakenFile]) -> str:
    """Why files that were taken make a partition be read as a whole again; empty where none does."""
    said = [
        f"{some([file.name for file in files], limit=3)} {'was' if len(files) == 1 else 'were'} {what}"
        for files, what in ((changed, "sent again with other content"), (gone, "removed"))
        if files
    ]
    return " and ".join(said)


def closed_since(dataset: Dataset, key: PartitionKey, now: float, opened: Iterable[str]) -> float | None:
    """Since when a partition is closed for files that come late, in seconds since 1970; None where it is not.

    `opened` are those that a person has opened again.
    """
    if dataset.incremental is None:
        return None
    closes_at = dataset.incremental.closes_at(dataset.partitioning, key)
    return None if closes_at is None or now < closes_at or key.path in opened else closes_at


def folds(dataset: Dataset, key: PartitionKey, parts: int, now: float) -> bool:
    """Whether a partition whose batch has so many parts is to be put together now."""
    if dataset.incremental is None or parts < 2:
        return False
    return parts > MOST_PARTS or now >= dataset.incremental.folds_at(dataset.partitioning, key)
