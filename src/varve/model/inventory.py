"""What a store can tell of what lies in it: leftovers, differences, and batches that describe themselves.

Not here: what the catalog tells (varve/catalog).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from varve.model.batch import BatchId, Bounds, Input, Part


@dataclass(frozen=True, slots=True)
class Leftover:
    """What lies in a store and belongs to no batch that the catalog keeps: a killed run's, or what a sweep left.

    Attributes:
        location: a folder of the lake (URI), or a period table with its schema.
        dataset: whose it is; "" for a stray, which somebody else has put there and no sweep touches.
        size: bytes.
        changed_at: when it was last written; None where the store does not know, and it may be in use.
    """

    location: str
    dataset: str
    size: int
    changed_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference between what the catalog says and what lies there or what readers are shown.

    Attributes:
        remedy: what mends it, in words.
    """

    dataset: str
    partition: str
    batch_id: BatchId | None
    found: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Publication:
    """What one build or rollback put in force: a batch id for each partition, None where it took the last one away."""

    build_id: BatchId
    kind: str
    run_id: str
    reason: str
    published_at: dt.datetime
    partitions: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class DescribedBatch:
    """What a batch that lies in a store says of itself: all that the catalog knew of it, but for its history."""

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
    """Everything a store can tell of one dataset without a catalog.

    Attributes:
        batches: those that describe themselves and are whole.
        publications: the store's own record of what was put in force, oldest first; empty where it keeps none.
        findings: what was left out, and why.
    """

    dataset: str
    batches: Sequence[DescribedBatch]
    publications: Sequence[Publication]
    findings: Sequence[Finding]
