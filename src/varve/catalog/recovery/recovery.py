"""Rebuilds a lost catalog from what its stores hold. Whatever the catalog still holds stays as it is.

But for batches that were published: a dump that was restored may have them as building, as they were then.

Not here: reading the stores (`Store.inventory`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from varve.catalog.parts import Parts
from varve.catalog.recovery import statements
from varve.model.batch import BatchId
from varve.model.inventory import Finding, Publication

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    import psycopg

    from varve.model.inventory import DescribedBatch, StoreInventory

_LOST = "Go back to an earlier batch with `varve rollback`, or run the partition."


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was put into the catalog for one dataset, and what could not be."""

    dataset: str
    batches: int
    current: int
    findings: tuple[Finding, ...]


def recover(connection: psycopg.Connection, store: str, inventory: StoreInventory) -> Recovered:
    """Put the batches of one dataset back, and make batches current, in one transaction; may be repeated.

    The current batch of a partition is the last one in the store's own record. Where the store has no record, it is the
    newest batch, and a finding says so. A partition whose current batch is not complete in the store gets no batch: an
    older one must not become current without a word.
    """
    batches = {(batch.partition, batch.batch_id.millis): batch for batch in inventory.batches}
    last = _last(inventory.publications)
    findings = list(inventory.findings)
    if not inventory.publications and batches:
        last = {path: batch_id for path, batch_id in sorted(batches)}  # noqa: C416 - the later one of a path stays
        problem = "the store has no record of what was current; the newest batch of each partition was taken"
        findings.append(Finding(inventory.dataset, "", None, problem, "`varve history` shows the others."))
    current_paths = {path for (path,) in connection.execute(statements.CURRENT_PATHS, (inventory.dataset,))}
    targets = {path: batch_id for path, batch_id in last.items() if batch_id is not None and path not in current_paths}
    for path, batch_id in sorted(targets.items()):
        if (path, batch_id) not in batches:
            problem = "this batch was current, and does not lie there whole"
            findings.append(Finding(inventory.dataset, path, BatchId(batch_id), problem, _LOST))
    targets = {path: batch_id for path, batch_id in targets.items() if (path, batch_id) in batches}
    with connection.transaction():
        # Where nothing of it was current until now, whoever has what is current says what readers see.
        is_shown = bool(targets) and not current_paths
        declaration = Jsonb(_declaration(inventory, batches, targets))
        connection.execute(statements.DATASET, (inventory.dataset, store, declaration, is_shown))
        added = _insert(connection, inventory, batches, targets)
        Parts(connection).restore(inventory.dataset, inventory.batches)
        connection.execute(statements.CURRENT, (inventory.dataset, list(targets), list(targets.values())))
        _mark_published(connection, inventory, batches)
        latest = [batch.batch_id.millis for batch in inventory.batches] + [
            p.build_id.millis for p in inventory.publications
        ]
        connection.execute(statements.CLOCK, (max(latest, default=0),))
    return Recovered(inventory.dataset, added, len(targets), tuple(findings))


def _declaration(
    inventory: StoreInventory, batches: Mapping[tuple[str, int], DescribedBatch], current: Mapping[str, int]
) -> Mapping[str, Any]:
    """The declaration of the newest batch of those that are current, else of those that were, else of all.

    One that was never published may be of an environment, or of code that was never deployed.
    """
    shown = [batches[key] for key in current.items()]
    published = [batches[key] for key in _published_at(inventory, dict(batches)) if key in batches]  # type: ignore[index]
    candidates = shown or published or inventory.batches
    return max(candidates, key=lambda batch: batch.batch_id).declaration if candidates else {}


def _last(publications: Sequence[Publication]) -> dict[str, int | None]:
    """The current batch of each partition after all of these publications; None: it has none."""
    last: dict[str, int | None] = {}
    for publication in publications:
        last.update(publication.partitions)
    return last


def _insert(
    connection: psycopg.Connection,
    inventory: StoreInventory,
    batches: dict[tuple[str, int], DescribedBatch],
    current: dict[str, int],
) -> int:
    """Insert the batches and publications that the catalog does not hold. Returns how many batches these are."""
    published_at = _published_at(inventory, batches)
    rows = []
    for (path, batch_id), batch in sorted(batches.items()):
        is_current = current.get(path) == batch_id
        state = "published" if is_current else "retired" if (path, batch_id) in published_at else "failed"
        failure = None if state != "failed" else "found in the store; it was never current"
        rows.append(
            (inventory.dataset, path, batch_id, state, batch.run_id, batch.code_version, batch.location, batch.rows,
             batch.size, batch.files, _inputs(batch), failure, batch.batch_id.started,
             published_at.get((path, batch_id)), batch.content, _statistics(batch))
        )  # fmt: skip
    publications = inventory.publications or [
        Publication(batch.batch_id, "publish", batch.run_id, "", batch.batch_id.started, {path: batch_id})
        for (path, batch_id), batch in sorted(batches.items(), key=lambda item: item[0][1])
    ]
    with connection.cursor() as cursor:
        cursor.executemany(statements.BATCH, rows)
        added = cursor.rowcount
        for p in publications:
            targets = sorted(target for target in p.partitions.items() if target[1] is None or target in batches)
            if targets:
                build = (inventory.dataset, p.build_id.millis)
                cursor.execute(statements.PUBLISH, (*build, p.kind, p.run_id, p.reason, p.published_at))
                cursor.execute(statements.PUBLISHED, (*build, *map(list, zip(*targets, strict=True))))
    return max(added, 0)


def _mark_published(
    connection: psycopg.Connection, inventory: StoreInventory, batches: dict[tuple[str, int], DescribedBatch]
) -> None:
    """Let the rows of batches that were published say so, as the store describes them; who is not current is retired.

    Who is not is known from the store's own record only, and counts as retired now.
    """
    published_at = _published_at(inventory, batches)
    recorded = published_at.keys() if inventory.publications else ()
    others = connection.execute(statements.NOT_AS_PUBLISHED, {"dataset": inventory.dataset}).fetchall()
    rows = [
        (is_current, batch.run_id, batch.code_version, batch.location, batch.rows, batch.size, batch.files,
         _inputs(batch), batch.content, _statistics(batch), published_at.get((path, batch_id)), is_current,
         inventory.dataset, path, batch_id)
        for path, batch_id, is_current in others
        if (batch := batches.get((path, batch_id))) is not None and (is_current or (path, batch_id) in recorded)
    ]  # fmt: skip
    with connection.cursor() as cursor:
        cursor.executemany(statements.AS_PUBLISHED, rows)


def _published_at(
    inventory: StoreInventory, batches: dict[tuple[str, int], DescribedBatch]
) -> dict[tuple[str, int | None], dt.datetime]:
    """When each batch was published, by partition and batch id; where the store has no record, when it began."""
    if not inventory.publications:
        return {key: batch.batch_id.started for key, batch in batches.items()}
    return {(path, batch_id): p.published_at for p in inventory.publications for path, batch_id in p.partitions.items()}


def _inputs(batch: DescribedBatch) -> str:
    return json.dumps(sorted([read.source, read.partition, read.version] for read in batch.inputs))


def _statistics(batch: DescribedBatch) -> str:
    return json.dumps({bounds.column: [bounds.low, bounds.high] for bounds in batch.bounds})
