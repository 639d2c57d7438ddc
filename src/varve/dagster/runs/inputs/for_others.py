"""Rows of datasets for what is none: an asset of the project's own, an asset check, or an op of a job.

They get what is current when the step begins, or what the run itself has staged to publish it with others
(atomic_publish.py); without locks and traces, as they publish nothing here.

Not here: the inputs of datasets, whose batches are pinned for the whole build (pinning.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.catalog.code.generations import Generations
from varve.catalog.environments.environments import Environments
from varve.dagster.internal.steps import is_partitioned, step_assets, step_of
from varve.dagster.runs import atomic_publish
from varve.dagster.runs.inputs.pinning import how_to_make
from varve.model.errors import MissingUpstream, some

if TYPE_CHECKING:
    import dagster as dg
    from pyspark.sql import DataFrame

    from varve.dagster.runs.builds.builds import Builds


def computes_a_dataset(builds: Builds, context: dg.InputContext) -> bool:
    """Return whether the step that an input belongs to builds one of the project's datasets."""
    keys = step_assets(step_of(context))
    return len(keys) == 1 and ".".join(keys[0].path) in builds.graph.datasets


def rows_for_others(builds: Builds, context: dg.InputContext) -> Any:
    """Return the rows of the partitions that Dagster's mapping names: staged by this run, or else current.

    They are a Spark DataFrame, or what the parameter is annotated with: a DataFrame of pandas, a Table of pyarrow.
    Whoever has no partitions gets every partition that has a batch.

    Raises MissingUpstream where the reader has partitions and one that it reads has no batch yet, and VarveError where
    the environment does not exist.
    """
    step, upstream = step_of(context), builds.dataset(context.asset_key)
    catalog = builds.catalog(upstream, step.dagster_run)
    with catalog.connection as connection:
        catalog.ensure_schema()
        if catalog.environment:
            Environments(connection).get(catalog.environment)
            Environments(connection).use(catalog.environment)
        keys = None
        if context.has_asset_partitions and is_partitioned(step):
            keys = sorted(map(upstream.partitioning.from_dagster, context.asset_partition_keys))
        staged = atomic_publish.kept_back(builds.staged(), upstream)
        wanted = staged.keys() if keys is None else {key.path for key in keys}
        current = catalog.current(upstream.name, keys) | {path: staged[path] for path in staged.keys() & wanted}
        if missing := [key for key in keys or () if key.path not in current]:
            raise MissingUpstream(
                f"{step.step.key} reads {len(keys or ())} partitions of {upstream}, of which {len(missing)} have no "
                f"batch yet: {some(missing)}. Nothing was read. {how_to_make(upstream, missing)}"
            )
        batches = [batch for _, batch in sorted(current.items())]
        if not catalog.environment:
            Generations(connection).refuse_unreadable(upstream, batches)
        return _as_annotated(context, builds.store(upstream, catalog).read(upstream, batches))


def _as_annotated(context: dg.InputContext, frame: DataFrame) -> Any:
    wanted = getattr(context.dagster_type, "typing_type", None)
    library, name = getattr(wanted, "__module__", "").partition(".")[0], getattr(wanted, "__name__", "")
    if (library, name) == ("pandas", "DataFrame"):
        return frame.toPandas()
    if (library, name) == ("pyarrow", "Table"):
        return frame.toArrow()
    return frame
