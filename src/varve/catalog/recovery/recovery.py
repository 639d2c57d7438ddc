"""A catalog made anew from what the stores can tell. Whatever the catalog still knows stays as it is.

Not here: reading the stores (`Store.remains`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from varve.catalog.parts import Parts
from varve.catalog.recovery import statements
from varve.model.batch import BatchId
from varve.model.inventory import Finding, Publication

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from varve.model.inventory import DescribedBatch, StoreInventory

_LOST = "Go back to an earlier batch with `varve rollback`, or run the partition."


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was put into the catalog for one dataset, and what could not be."""

    dataset: str
    batches: int
    in_force: int
    findings: tuple[Finding, ...]


def recover(connection: psycopg.Connection, store: str, remains: StoreInventory) -> Recovered:
    """Put the batches of one dataset back, and point at those in force, in one transaction; may be repeated.

    In force is what the store's own record put there last. Where it has none, it is the newest batch, as seed 002
    says; a finding tells so. A partition whose batch in force is not whole gets none: an older one must not come back
    in silence.
    """
    batches = {(one.partition, one.batch_id.millis): one for one in remains.batches}
    last = _last(remains.publications)
    findings = list(remains.findings)
    if not remains.publications and batches:
        last = {path: found for path, found in sorted(batches)}  # noqa: C416 - the later one of a path stays
        text = "the store has no record of what was in force; the newest batch of each partition was taken"
        findings.append(Finding(remains.dataset, "", None, text, "`varve history` shows the others."))
    known = {path for (path,) in connection.execute(statements.KNOWN, (remains.dataset,))}
    wanted = {path: found for path, found in last.items() if found is not None and path not in known}
    for path, found in sorted(wanted.items()):
        if (path, found) not in batches:
            text = "this batch was in force, and does not lie there whole"
            findings.append(Finding(remains.dataset, path, BatchId(found), text, _LOST))
    wanted = {path: found for path, found in wanted.items() if (path, found) in batches}
    with connection.transaction():
        declaration = max(remains.batches, key=lambda one: one.batch_id).declaration if remains.batches else {}
        connection.execute(statements.DATASET, (remains.dataset, store, Jsonb(declaration)))
        added = _insert(connection, remains, batches, wanted)
        Parts(connection).restore(remains.dataset, remains.batches)
        connection.execute(statements.CURRENT, (remains.dataset, list(wanted), list(wanted.values())))
        latest = [one.batch_id.millis for one in remains.batches] + [p.build_id.millis for p in remains.publications]
        connection.execute(statements.CLOCK, (max(latest, default=0),))
    return Recovered(remains.dataset, added, len(wanted), tuple(findings))


def _last(publications: Sequence[Publication]) -> dict[str, int | None]:
    """What each partition has in force after all of these."""
    last: dict[str, int | None] = {}
    for publication in publications:
        last.update(publication.partitions)
    return last


def _insert(
    connection: psycopg.Connection,
    remains: StoreInventory,
    batches: dict[tuple[str, int], DescribedBatch],
    wanted: dict[str, int],
) -> int:
    ever = {(path, found): p.published_at for p in remains.publications for path, found in p.partitions.items()}
    if not remains.publications:
        ever = {(path, found): batches[path, found].batch_id.started for path, found in batches}
    rows = []
    for (path, found), one in sorted(batches.items()):
        in_force = wanted.get(path) == found
        state = "published" if in_force else "retired" if (path, found) in ever else "failed"
        failure = None if state != "failed" else "found in the store; it was never put in force"
        statistics = json.dumps({bounds.column: [bounds.low, bounds.high] for bounds in one.bounds})
        inputs = json.dumps(sorted([read.source, read.partition, read.version] for read in one.inputs))
        rows.append(
            (remains.dataset, path, found, state, one.run_id, one.code_version, one.location, one.rows, one.size,
             one.files, inputs, failure, one.batch_id.started, ever.get((path, found)), one.content, statistics)
        )  # fmt: skip
    publications = remains.publications or [
        Publication(one.batch_id, "publish", one.run_id, "", one.batch_id.started, {path: found})
        for (path, found), one in sorted(batches.items(), key=lambda item: item[0][1])
    ]
    with connection.cursor() as cursor:
        cursor.executemany(statements.BATCH, rows)
        added = cursor.rowcount
        for p in publications:
            told = sorted(each for each in p.partitions.items() if each[1] is None or each in batches)
            if told:
                build = (remains.dataset, p.build_id.millis)
                cursor.execute(statements.PUBLISH, (*build, p.kind, p.run_id, p.reason, p.published_at))
                cursor.execute(statements.PUBLISHED, (*build, *map(list, zip(*told, strict=True))))
    return max(added, 0)
