"""The two sides of a `varve diff`: which batch each partition has on it.

A side is a value, whatever it was resolved from: a batch, an instant, or what is current now.

Not here: the comparison of rows (varve/stores/differences.py).
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.catalog.history.history import COMPARISON, History
from varve.cli.selection import matching, moment
from varve.model.batch import BatchId
from varve.model.errors import NotKept, UnknownPartition, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

# The first letters of a side that is an environment: env:alice.
ENVIRONMENT = "env:"
# So long no sweep takes the data of batches that are compared, should this process die.
_PINNED_FOR = timedelta(hours=6)


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        title: what it is, for people: `batch 1795...`, `2026-11-22 13:00:00 UTC`, `now`.
        batches: the batch of each partition, by path.
        swept: the partitions whose data is not kept any more.
        partial: whether it has some partitions of its dataset only, so that nothing is said of the others.
        until: of an instant: that instant, as what came later is not before it; None for any other side.
    """

    title: str
    dataset: Dataset
    batches: Mapping[str, Batch]
    swept: frozenset[str] = frozenset()
    partial: bool = False
    until: datetime | None = None


class State(StrEnum):
    """How a partition differs between two sides."""

    ONLY_BEFORE = "only before"
    ONLY_AFTER = "only after"
    SAME_BATCH = "the same batch"
    SAME_CONTENT = "equal content"
    DIFFERS = "differs"

    def counted(self, count: int) -> str:
        """So many partitions with their state, for a message: `1 differs`, `15 differ`, `3 with equal content`."""
        words = {State.SAME_BATCH: "with the same batch", State.SAME_CONTENT: "with equal content"}
        if self is State.DIFFERS and count != 1:
            return f"{count:,} differ"
        return f"{count:,} {words.get(self, self.value)}"


@dataclass(frozen=True)
class PartitionDifference:
    """A partition with its batch on each side; None where it has none."""

    partition: str
    state: State
    before: Batch | None
    after: Batch | None


def sides_of(
    history: History, dataset: Dataset, words: Sequence[str], first: str | None, last: str | None
) -> tuple[Side, Side]:
    """The older and the newer side: batches or instants; by default what is current now and what was before that.

    Raises UnknownPartition where no partition of either side matches the words, VarveError for a text that is neither
    a batch nor an instant, NotKept for a batch that is not there.
    """
    after = _side(history, dataset, last) if last is not None else _now(history, dataset)
    if first is None and last is not None and last.startswith(ENVIRONMENT):
        # An environment is compared with production as it is now.
        first = "now"
    before = _side(history, dataset, first) if first is not None else _previous(history, dataset, after)
    # Of a batch only its partitions are compared; the other side may have all of them.
    saying = [side for side in (before, after) if side.partial] or [before, after]
    listed = {path for side in saying for path in side.batches}
    chosen = set(matching(dataset, words, listed)) if listed else set()
    if not chosen and first is None:
        raise UnknownPartition(
            f"{dataset}: no partition had another batch before {after.title}: there is nothing to compare with. "
            f"Name another state, --from BATCH or --from TIME: `varve history {dataset}` lists them."
        )
    if not chosen:
        raise UnknownPartition(f"{dataset} had no batch on either side: {before.title}, {after.title}.")
    return _of_partitions(before, chosen), _of_partitions(after, chosen)


def partition_differences(before: Side, after: Side) -> list[PartitionDifference]:
    """Each partition of two sides with how it differs, as far as the catalog knows: by batches and content hashes."""
    differences = []
    for path in sorted({*before.batches, *after.batches}):
        old, new = before.batches.get(path), after.batches.get(path)
        if old is None or new is None:
            state = State.ONLY_AFTER if old is None else State.ONLY_BEFORE
        elif (old.batch_id, old.location) == (new.batch_id, new.location):
            state = State.SAME_BATCH
        elif old.content is not None and old.content == new.content:
            state = State.SAME_CONTENT
        else:
            state = State.DIFFERS
        differences.append(PartitionDifference(path, state, old, new))
    return differences


def refuse_swept(side: Side, partitions: Sequence[str]) -> None:
    """Raise NotKept where the rows of a partition are to be compared whose data was swept."""
    if lost := [f"{path} batch {side.batches[path].batch_id}" for path in partitions if path in side.swept]:
        raise NotKept(
            f"{side.dataset}: the data of {side.title} was swept since: {some(lost)}. Nothing was compared. "
            f"`varve history {side.dataset}` lists what is kept."
        )


@contextmanager
def held(history: History, side: Side, partitions: Sequence[str]) -> Iterator[None]:
    """Keep the batches of these partitions from sweeps, as long as they are read."""
    owner = f"{COMPARISON}{os.getpid()}@{socket.gethostname()}"
    by_id: dict[BatchId, list[str]] = {}
    for path in partitions:
        by_id.setdefault(side.batches[path].batch_id, []).append(path)
    until = datetime.now(UTC) + _PINNED_FOR
    try:
        for batch_id, paths in by_id.items():
            history.pin(side.dataset.name, batch_id, paths, owner=owner, reason="being compared", expires_at=until)
        yield
    finally:
        for batch_id, paths in by_id.items():
            history.unpin(side.dataset.name, batch_id, paths, owners=[owner])


def _now(history: History, dataset: Dataset) -> Side:
    return Side("now", dataset, Catalog(history.connection).current(dataset.name))


def _side(history: History, dataset: Dataset, text: str) -> Side:
    if text == "now":
        return _now(history, dataset)
    if text.startswith(ENVIRONMENT):
        name = text.removeprefix(ENVIRONMENT)
        Environments(history.connection).get(name)
        current = EnvironmentCatalog(history.connection, name).current(dataset.name)
        return Side(f"environment {name}", dataset, current)
    if text.isdecimal():
        return Side(f"batch {text}", dataset, history.batch(dataset.name, BatchId(int(text))), partial=True)
    at = moment(text)
    then = history.as_of(dataset.name, at, swept_too=True)
    kept = history.as_of(dataset.name, at)
    return Side(f"{at:%Y-%m-%d %H:%M:%S %Z}", dataset, then, frozenset(then.keys() - kept.keys()), until=at)


def _previous(history: History, dataset: Dataset, after: Side) -> Side:
    """What each partition of a side had before; a partition that had nothing is not compared."""
    kept: dict[str, Batch] = {}
    swept: dict[str, Batch] = {}
    earlier: dict[BatchId, list[str]] = {}
    reached: set[str] = set()
    paths_before: set[str] = set()
    # The latest change comes first.
    for change in history.changes(dataset.name, list(after.batches)):
        if after.until is not None and change.published_at > after.until:
            continue
        path, is_after = change.partition, change.batch_id == after.batches[change.partition].batch_id
        if is_after:
            reached.add(path)
        elif path in reached and path not in paths_before:
            paths_before.add(path)
            if change.batch_id is not None:
                earlier.setdefault(change.batch_id, []).append(path)
    past = {(batch.partition, batch.batch_id): batch for batch in history.batches(dataset.name, list(after.batches))}
    for batch_id, paths in earlier.items():
        there = [path for path in paths if past[path, batch_id].swept_at is None]
        if there:
            kept |= history.batch(dataset.name, batch_id, there)
        for path in set(paths) - set(there):
            row = past[path, batch_id]
            swept[path] = replace(
                after.batches[path], batch_id=batch_id, location=row.location or "", rows=row.rows or 0,
                size=row.size or 0, run_id=row.run_id, content=row.content,
            )  # fmt: skip
    return Side(f"before {after.title}", dataset, {**kept, **swept}, frozenset(swept), partial=True)


def _of_partitions(side: Side, partitions: set[str]) -> Side:
    return replace(side, batches={path: batch for path, batch in side.batches.items() if path in partitions})
