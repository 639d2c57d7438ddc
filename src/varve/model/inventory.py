"""What a store reports about its data: leftovers, differences, and batches that describe themselves.

Not here: what the catalog has recorded (varve/catalog).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from varve.model.batch import BatchId, Bounds, Input, Part

# What to do about data of a batch that is gone or damaged, in a table and in a folder.
RESTORE_TABLE = "Restore it from a dump, go back to an earlier batch with `varve rollback`, or run the partition again."
RESTORE_FOLDER = (
    "Put it back from a copy, go back to an earlier batch with `varve rollback`, or run the partition again."
)
LOST_DATA = frozenset({RESTORE_TABLE, RESTORE_FOLDER})


@dataclass(frozen=True, slots=True)
class Leftover:
    """Data in a store that belongs to no batch of the catalog: a killed run wrote it, or a sweep did not finish.

    Attributes:
        location: a folder of the lake (URI), or a period table with its schema.
        dataset: the dataset to which it belonged; "" for data that somebody else has put there, and which no sweep
            touches.
        size: its size in bytes.
        changed_at: when it was last written; None where the store does not know it, and the data may be in use.
        superseded: whether such data is left by every publish, and says nothing of a run that was killed.
    """

    location: str
    dataset: str
    size: int
    changed_at: dt.datetime | None
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference between the catalog and the data in a store, or between the catalog and what readers see.

    Attributes:
        problem: the difference, as a phrase for people.
        remedy: what repairs it, as a sentence for people.
    """

    dataset: str
    partition: str
    batch_id: BatchId | None
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Publication:
    """What one build or rollback made current: a batch id for each partition, None where the partition has none now."""

    build_id: BatchId
    kind: str
    run_id: str
    reason: str
    published_at: dt.datetime
    partitions: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class DescribedBatch:
    """The description that a batch carries in its store: all that the catalog recorded of it but its history."""

    dataset: str
    partition: str
    batch_id: BatchId
    location: str
    run_id: str
    code_version: str
    rows: int
    size: int
    files: int
    content: str | None
    bounds: tuple[Bounds, ...]
    inputs: tuple[Input, ...]
    declaration: Mapping[str, Any]
    seal: str | None = None
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreInventory:
    """Everything that a store can report about one dataset without a catalog.

    Attributes:
        batches: the batches that describe themselves and are complete.
        publications: the store's own record of its publishes, oldest first; empty where the store keeps none.
        findings: the batches that were left out, and why.
    """

    dataset: str
    batches: Sequence[DescribedBatch]
    publications: Sequence[Publication]
    findings: Sequence[Finding]
