"""FRESH WITHIN in Dagster: a check of each dataset that says it, and Dagster's own policy where that means the same.

Dagster's freshness is about the last materialisation of an asset, whichever partition that was: it means the same for
a dataset without a time dimension, and something else for windows. Those have the check alone.

Not here: which windows are late (varve/planning/operations/freshness.py), and the policy
(varve/dagster/assets/datasets.py).
"""

from collections.abc import Sequence

import dagster as dg
import pendulum

from varve.catalog.catalog import Catalog
from varve.catalog.history.alerts.facts import AlertCatalog
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.model.dataset import Dataset
from varve.model.errors import counted, some
from varve.model.partitions.texts import length_text
from varve.planning.operations.freshness import Late, late_windows
from varve.project import Project
from varve.services.postgres import connect

CHECK = "fresh"
_LISTED = 20


def freshness_check(dataset: Dataset, project: Project) -> dg.AssetChecksDefinition:
    """Return the check of a dataset with FRESH WITHIN; the report makes it every ten minutes."""
    assert dataset.policy.fresh_within is not None
    length = length_text(dataset.policy.fresh_within)
    after = "of its last publish" if dataset.partitioning.time is None else "of the end of each window"
    key = dg.AssetKey([dataset.db, dataset.table])

    @dg.asset_check(asset=key, name=CHECK, description=f"Fails where a partition is not there within {length} {after}.")
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        now = pendulum.now("UTC").timestamp()
        members = PartitionSets(context.instance, [dataset.partitioning]).members()
        with connect(project.settings, application="varve checks") as connection:
            Catalog(connection).ensure_schema()
            facts = AlertCatalog(connection).freshness(dataset, members, now)
        return checked(key, late_windows(dataset, facts, members, now))

    return check


def checked(key: dg.AssetKey, late: Sequence[Late]) -> dg.AssetCheckResult:
    """Return the result of the check: it fails where something is late, and lists that."""
    windows = [window.window or "the dataset" for window in late]
    text = f"{counted(len(late), 'window')} late: {some(windows, limit=3)}" if late else "Everything is there in time"
    return dg.AssetCheckResult(
        check_name=CHECK, asset_key=key, passed=not late, description=f"{text}.",
        metadata={window.window or "dataset": str(window) for window in late[-_LISTED:]},
    )  # fmt: skip
