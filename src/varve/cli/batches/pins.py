"""`varve pin | unpin`: which batches must stay, whatever a sweep would take."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.history.history import COMPARISON, READER, History
from varve.cli.batches.history import current_ids, known, matching_partitions, opened, session
from varve.cli.batches.published_with import batches_beside
from varve.cli.context import chosen_settings
from varve.cli.selection import who
from varve.model.batch import BatchId
from varve.model.errors import VarveError, counted, some
from varve.stores.open import open_store

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence

    from rich.console import Console

    from varve.model.dataset import Dataset

# How the names begin that tables give to what was published with pinned batches.
PINNED = "pinned-"
# How the owner of the pins of a snapshot is called, before its name.
SNAPSHOT = "snapshot "
# The branch of each Iceberg table that readers are shown unless they name another.
BRANCH = "main"


def pin(
    dataset_name: str,
    words: Sequence[str],
    *,
    batch: int | None,
    owner: str | None,
    reason: str,
    expires_at: dt.datetime | None,
) -> list[dict[str, Any]]:
    """Pin one batch in the matching partitions, or their current batches where `batch` is None.

    With rows of landing files their rejected rows are pinned, as far as they are kept, and vice versa: they go back
    together. Returns what was pinned, as plain values.
    """
    with opened() as past:
        dataset = known(past, dataset_name)
        # Another run may publish between this read and the pin. A pin of a batch that was swept fails, and nothing is
        # lost.
        paths = matching_partitions(past, dataset, words) if words else None
        if batch is not None:
            wanted = {BatchId(batch): paths}
        else:
            wanted = {}
            for path, current in current_ids(past, dataset.name, paths).items():
                wanted.setdefault(current, []).append(path)  # type: ignore[union-attr]
            if not wanted:
                raise VarveError(f"nothing of {dataset} is current there. Nothing was pinned; give --batch.")
        name = owner or who()

        def pin_all(of: str, batches: Mapping[BatchId, list[str] | None]) -> dict[BatchId, list[str]]:
            return {
                batch_id: past.pin(of, batch_id, listed, owner=name, reason=reason, expires_at=expires_at)
                for batch_id, listed in sorted(batches.items())
            }

        with past.connection.transaction():
            pinned = {dataset.name: pin_all(dataset.name, wanted)}
            if beside := batches_beside(past, dataset, pinned[dataset.name], swept_too=False):
                pinned[dataset.published_with] = pin_all(dataset.published_with, beside)
        for each, batches in pinned.items():
            _name_pinned(past, known(past, each), batches)
        return [
            {"dataset": each, "partition": path, "batch_id": batch_id.millis, "owner": name}
            for each, batches in pinned.items()
            for batch_id, listed in batches.items()
            for path in listed
        ]


def show_pinned(console: Console, pinned: Sequence[dict[str, Any]]) -> None:
    """Print how many batches of which datasets were pinned."""
    counts = Counter(row["dataset"] for row in pinned)
    of_each = [f"{counted(count, 'batch')} of {name}" for name, count in counts.items()]
    console.print(f"Pinned: {', '.join(of_each)}.")


@dataclass(frozen=True)
class Unpinned:
    """How many pins of a dataset were taken off, and which snapshots have pins there, which stay."""

    dataset: str
    count: int
    snapshots: tuple[str, ...]

    @property
    def kept(self) -> str:
        """What stays, and how to let go of it; empty where no snapshot has pins there."""
        if not self.snapshots:
            return ""
        return (
            f"The pins of {some([f'{SNAPSHOT}{name}' for name in self.snapshots])} stay: a snapshot is kept whole. To "
            f"let go of it, for each dataset: varve unpin {self.dataset} --owner '{SNAPSHOT}{self.snapshots[0]}'"
        )


def unpin(dataset_name: str, words: Sequence[str], *, batch: int | None, owner: str | None) -> Unpinned:
    """Take pins off, also those of what `pin` pins with it: those of `owner`, or those of all people.

    Without `owner` the pins of snapshots stay, and those of processes that read the batches now, which expire.

    With the last pin of a snapshot the table loses the tag of that name. Raises VarveError where no pin was taken off.
    """
    with opened() as past:
        dataset = known(past, dataset_name)
        paths = matching_partitions(past, dataset, words) if words else None
        wanted = past.pinned(dataset.name, paths) if batch is None else {BatchId(batch)}
        beside = batches_beside(past, dataset, dict.fromkeys(wanted, paths), swept_too=False)
        unpinned: dict[str, Mapping[BatchId, list[str] | None]] = {dataset.name: dict.fromkeys(wanted, paths)}
        if beside:
            unpinned[dataset.published_with] = beside
        owners, snapshots = {owner} if owner is not None else set(), set[str]()
        if owner is None:
            everybody = {each for name, batches in unpinned.items() for each in past.owners(name, paths, among=batches)}
            snapshots = {name for each in everybody if (name := _snapshot_of(each))}
            # A reader has no other hold on a batch that is not current.
            of_processes = {each for each in everybody if each.startswith((READER, COMPARISON))}
            owners = {each for each in everybody - of_processes if not _snapshot_of(each)}
        before = {name: past.owners(name) for name in unpinned}
        with past.connection.transaction():
            taken = sum(
                past.unpin(name, batch_id, listed, owners=owners)
                for name, batches in unpinned.items() for batch_id, listed in batches.items()
            )  # fmt: skip
        for name, batches in unpinned.items():
            gone = before[name] - past.owners(name)
            _name_pinned(past, known(past, name), batches, {tag for each in gone if (tag := _snapshot_of(each))})
    result = Unpinned(dataset.name, taken, tuple(sorted(snapshots)))
    if not taken:
        whose = f" of {owner}" if owner else " to take off"
        where = " ".join([str(dataset), *words])
        message = f"there is no pin{whose} on {where}; `varve history` shows them. {result.kept}"
        raise VarveError(message.strip())
    return result


def show_unpinned(console: Console, unpinned: Unpinned) -> None:
    """Print how many pins were taken off, and which stay."""
    console.print(f"{counted(unpinned.count, 'pin')} taken off. {unpinned.kept}".strip(), highlight=False)


def _snapshot_of(owner: str) -> str:
    """Return the name of the snapshot whose pins an owner has; "" where it is another owner."""
    name = owner.removeprefix(SNAPSHOT)
    return "" if name == owner or is_reserved(name) else name


def is_reserved(name: str) -> bool:
    """Whether a name in the tables has a meaning of its own, and is none of a snapshot."""
    return name == BRANCH or name.startswith(PINNED)


def _name_pinned(past: History, dataset: Dataset, batch_ids: Collection[BatchId], ended: Collection[str] = ()) -> None:
    """Let readers who can look back find what was published with these batches while a pin keeps one of them.

    The names in `ended` are taken away.
    """
    pinned = past.pinned(dataset.name, among=batch_ids)
    store = open_store(dataset.store, chosen_settings(), Catalog(past.connection), session)
    names = {f"{PINNED}{batch_id}": batch_id if batch_id in pinned else None for batch_id in batch_ids}
    store.name_publishes(dataset.name, names | dict.fromkeys(ended))
