"""Several datasets put in force at once: by runs that carry the tag `varve/publish: together`, and when they go back.

Each step stages, verifies and audits its dataset, and keeps it back; steps after it read what was kept back. The last
one publishes all of them in one transaction. Where a step fails, or the run is killed, nothing of it is in force.

Dagster has told of the earlier steps' materialisations by then; what counts is the catalog.

Not here: the order of a publish (varve/stores/lake/store.py, varve/stores/warehouse/publish.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, VarveError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch, BatchId
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.stores.open_build import OpenBuild
    from varve.stores.store import Store

TAG = "varve/publish"
TOGETHER = "together"


def members(tags: Mapping[str, str], datasets: set[str], here: set[str]) -> list[str]:
    """The datasets that a run with these tags publishes at once; empty where each step publishes its own.

    `datasets` are all that the run is to compute, and `here` those of them that this process is to. Raises VarveError
    where there are others: they could not be kept back.
    """
    asked = tags.get(TAG)
    if asked is None:
        return []
    if asked != TOGETHER:
        raise VarveError(
            f"the run's tag {TAG} is {asked!r}; it may be {TOGETHER!r}, or be left out. Nothing was computed."
        )
    if away := sorted(datasets - here):
        raise VarveError(
            f"the run publishes {', '.join(sorted(datasets))} together, and this process is not to compute "
            f"{', '.join(away)}. {NOTHING_LOST} Run all of them again, in one process (dg.in_process_executor), not "
            f"from the step that failed; or without the tag {TAG}."
        )
    return sorted(datasets)


def complete(staged: Sequence[OpenBuild], opened: OpenBuild) -> list[OpenBuild]:
    """What is to be published now that `opened` is staged: it alone, nothing yet, or all of the run with it last.

    `staged` are the builds of the run that are kept back.
    """
    if not opened.together:
        return opened.with_rejected
    others = [other for other in staged if other is not opened]
    there = {other.build.dataset.name for other in (*others, opened)}
    return [*others, opened] if there.issuperset(opened.together) else []


def kept_back(staged: Sequence[OpenBuild], dataset: Dataset) -> Mapping[str, Batch]:
    """What an earlier step of the run has staged of a dataset, by partition, as if it were current."""
    return {
        batch.partition.path: opened.build.as_batch(batch)
        for opened in staged
        if opened.build.dataset.name == dataset.name
        for batch in opened.staged
    }


def publish(group: Sequence[OpenBuild], store_of: Callable[[Dataset, Catalog], Store]) -> None:
    """Publish a build, or several in one transaction of the last one's connection.

    Each build's own connection keeps its locks: one that has lost it, and whose partitions another run has taken
    meanwhile, is not staged any more, and nothing is published. Raises what the stores' publish raises.
    """
    last = group[-1]
    if len(group) == 1:
        store_of(last.build.dataset, last.catalog).publish(last.build, last.staged)
        return
    for opened in group[:-1]:
        # Its own step has looked when it staged; the others may have taken hours since.
        for look in opened.pre_publish_checks:
            look()
    changes = [PendingChange(opened.build, partial(_publish, last.catalog, opened.build)) for opened in group]
    put_in_force(last.catalog, changes, lambda dataset: store_of(dataset, last.catalog))


def republish(
    catalog: Catalog,
    returns: Mapping[str, tuple[Build, Sequence[Batch]]],
    store_of: Callable[[Dataset], Store],
    *,
    reason: str,
) -> None:
    """Put earlier batches back in force, by dataset with the build that holds its partitions.

    All at once or none; see `Store.republish`.
    """
    if len(returns) == 1:
        ((build, batches),) = returns.values()
        store_of(build.dataset).republish(build, batches, reason=reason)
        return
    changes = []
    for build, batches in returns.values():
        store_of(build.dataset).refuse_missing(build.dataset, batches)
        keys = {partition.path: partition for partition in build.partitions}
        targets = {keys[batch.partition]: batch.batch_id for batch in batches}
        changes.append(PendingChange(build, partial(_repoint, catalog, build, targets, reason)))
    put_in_force(catalog, changes, store_of)


@dataclass(frozen=True)
class PendingChange:
    """What is put in force of one build's dataset, as the catalog is told it: as of an instant."""

    build: Build
    point: Callable[[dt.datetime], None]


def put_in_force(catalog: Catalog, changes: Sequence[PendingChange], store_of: Callable[[Dataset], Store]) -> None:
    """Make the changes in one transaction, with what readers of each store are shown; then what follows a publish."""
    ordered = sorted(changes, key=lambda change: change.build.dataset.name)

    def point() -> None:
        with catalog.connection.transaction():
            at = catalog.instant()
            for change in ordered:
                change.point(at)

    by_store: dict[str, list[Build]] = {}
    for change in ordered:
        by_store.setdefault(change.build.dataset.store, []).append(change.build)
    commit = point
    for builds in by_store.values():
        commit = partial(store_of(builds[0].dataset).commit, builds, commit)
    commit()
    for change in ordered:
        store_of(change.build.dataset).published(change.build)


def _publish(catalog: Catalog, build: Build, at: dt.datetime) -> None:
    catalog.publish(build, at=at)


def _repoint(
    catalog: Catalog, build: Build, targets: Mapping[PartitionKey, BatchId], reason: str, at: dt.datetime
) -> None:
    catalog.repoint(build, targets, reason=reason, at=at)
