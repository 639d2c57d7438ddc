"""Several datasets published in one transaction: by runs with the tag `varve/publish: together`, and by rollbacks.

Each step stages, verifies and audits its dataset, and keeps it back; later steps of the run read what was kept back.
The last step publishes all of them in one transaction. Where a step fails, or the run is killed, nothing of the run
becomes current.

Dagster shows the materialisations of the earlier steps before that; the catalog says what is current.

Not here: the order of a publish (varve/stores/lake/store.py, varve/stores/warehouse/publish.py).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, VarveError
from varve.stores.together import PendingChange, make_current

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
    """Return the datasets that a run with these tags publishes at once; empty where each step publishes its own.

    `datasets` are all datasets that the run is to compute, and `here` those that this process is to compute. Raises
    VarveError where they differ, as another process' datasets cannot be kept back; and for an unknown value of the tag.
    """
    tag_value = tags.get(TAG)
    if tag_value is None:
        return []
    if tag_value != TOGETHER:
        raise VarveError(
            f"the run's tag {TAG} is {tag_value!r}; it may be {TOGETHER!r}, or be left out. Nothing was computed."
        )
    if elsewhere := sorted(datasets - here):
        raise VarveError(
            f"the run publishes {', '.join(sorted(datasets))} together, and this process is not to compute "
            f"{', '.join(elsewhere)}. {NOTHING_LOST} Run all of them again, in one process (dg.in_process_executor), "
            f"not from the step that failed; or without the tag {TAG}."
        )
    return sorted(datasets)


def complete(staged: Sequence[OpenBuild], opened: OpenBuild) -> list[OpenBuild]:
    """Return what is to be published now that `opened` is staged.

    That is `opened` alone with its rejected rows; or nothing yet; or all builds of the run, with `opened` as the last.
    `staged` are the builds of the run that are kept back.
    """
    if not opened.together:
        return opened.with_rejected
    other_builds = [other_build for other_build in staged if other_build is not opened]
    present = {other_build.build.dataset.name for other_build in (*other_builds, opened)}
    return [*other_builds, opened] if present.issuperset(opened.together) else []


def kept_back(staged: Sequence[OpenBuild], dataset: Dataset) -> Mapping[str, Batch]:
    """Return what an earlier step of the run has staged of a dataset, by partition path, as if it were current."""
    return {
        batch.partition.path: opened.build.as_batch(batch)
        for opened in staged
        if opened.build.dataset.name == dataset.name
        for batch in opened.staged
    }


def publish(group: Sequence[OpenBuild], store_of: Callable[[Dataset, Catalog], Store]) -> None:
    """Publish a build, or several in one transaction over the connection of the last one.

    The locks of each build stay with its own connection. Where a build has lost that connection and another run has
    taken its partitions since, the build is not staged any more, and nothing is published. Raises what the stores'
    publish raises.
    """
    last_build = group[-1]
    if len(group) == 1:
        store_of(last_build.build.dataset, last_build.catalog).publish(last_build.build, last_build.staged)
        return
    for opened in group[:-1]:
        # Its own step made these checks when it staged the build, and later steps may have taken hours since.
        for check in opened.pre_publish_checks:
            check()
    changes = [PendingChange(opened.build, partial(_publish, last_build.catalog, opened.build)) for opened in group]
    make_current(last_build.catalog, changes, lambda dataset: store_of(dataset, last_build.catalog))


def republish(
    catalog: Catalog,
    returns: Mapping[str, tuple[Build, Sequence[Batch]]],
    store_of: Callable[[Dataset], Store],
    *,
    reason: str,
) -> None:
    """Make earlier batches current again, in one transaction; see `Store.republish`.

    `returns` has, by dataset name, the build that has locked the partitions, and the batches.
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
    make_current(catalog, changes, store_of)


def _publish(catalog: Catalog, build: Build, at: dt.datetime) -> None:
    catalog.publish(build, at=at)


def _repoint(
    catalog: Catalog, build: Build, targets: Mapping[PartitionKey, BatchId], reason: str, at: dt.datetime
) -> None:
    catalog.repoint(build, targets, reason=reason, at=at)
