"""A SQL file as a Dagster asset, and what a run of it does.

Not here: what it is without Dagster (sql_assets.py), and the rows of a run (sql_rows.py).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import or_
from typing import TYPE_CHECKING, Any

import dagster as dg

from varve.dagster.assets.asset_definitions import computed_asset
from varve.dagster.assets.sql_rows import broken_expectations, row_error, rows, watched
from varve.dagster.internal.steps import report_check, step_of
from varve.dagster.runs.failures import as_dagster_failure, explained
from varve.dagster.runs.whole import still_whole
from varve.model.errors import NOTHING_LOST, VarveError, VerifyFailed
from varve.planning.requested import reuse_allowed
from varve.services.secrets import redacted
from varve.sql.sql_asset import SqlAsset
from varve.stores.expectations import broken_rows
from varve.stores.frames import folded, observed_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from varve.catalog.traces import ReusedBatches
    from varve.model.reads import Reads
    from varve.stores.open_build import OpenBuild


def sql_asset_definition(sql_asset: SqlAsset, reads: "Mapping[str, Reads]") -> dg.AssetsDefinition:
    """Return Dagster's asset of a SQL file; `reads` is what it reads, by the name of the dataset."""
    return computed_asset(
        sql_asset.dataset,
        _compute(sql_asset),
        {_argument(name): each for name, each in reads.items()},
        sql_asset.code_version,
        {
            "tags": {f"varve/{name}": value for name, value in sql_asset.compiled.tags},
            "metadata": {
                "varve/file": sql_asset.source.path,
                "varve/sql": dg.MetadataValue.md(f"```sql\n{sql_asset.source.text}\n```"),
                **lineage_metadata(sql_asset),
            },
            "check_specs": [
                dg.AssetCheckSpec(
                    name,
                    asset=dg.AssetKey(sql_asset.dataset.name.split(".")),
                    description=f"no row for which {condition} is false; else the run publishes nothing",
                    blocking=True,
                )
                for name, condition in sql_asset.compiled.expectations
            ],
        },
    )


def lineage_metadata(sql_asset: SqlAsset) -> dict[str, Any]:
    """Return the column lineage under Dagster's metadata key; empty where the body is no SELECT."""
    column_dependencies = {
        name: [dg.TableColumnDep(dg.AssetKey(dataset.split(".")), column) for dataset, column in sources]
        for name, sources in sql_asset.lineage.items()
        if sources
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(column_dependencies)} if column_dependencies else {}


def _argument(name: str) -> str:
    return name.replace(".", "__")


def _compute(sql_asset: SqlAsset) -> Callable[..., Any]:
    """Return the body of the asset: it yields the rows, and then the results of the expectations."""

    def compute(context: dg.AssetExecutionContext, **inputs: Any) -> Iterator[Any]:
        opened = context.resources.builds.of(context)
        expectations = Expectations(sql_asset, context, opened)
        if (reused := _reusable_batches(sql_asset, context, opened)) is not None and expectations.hold_in(reused):
            yield dg.Output(reused, metadata=lineage_metadata(sql_asset))
            yield from expectations.results()
            return
        frames = {name: inputs[_argument(name)] for name in sql_asset.reads}
        opened.row_error = partial(row_error, sql_asset, opened.build.partitions)
        with as_dagster_failure(context):
            try:
                with explained(opened, context.resources.builds.settings):
                    frame = rows(sql_asset, context, opened, frames)
            except VarveError as error:
                context.resources.builds.abandon(opened, error, blamed=error.reasons)
                raise
        if (reused := _same_files(sql_asset, context, opened)) is not None and expectations.hold_in(reused):
            yield dg.Output(reused, metadata=lineage_metadata(sql_asset))
            yield from expectations.results()
            return
        yield dg.Output(expectations.watched(frame), metadata=lineage_metadata(sql_asset))
        yield from expectations.results()

    compute.__name__ = sql_asset.dataset.table
    compute.__doc__ = sql_asset.dataset.comment
    return compute


def _reusable_batches(
    sql_asset: SqlAsset, context: dg.AssetExecutionContext, opened: "OpenBuild"
) -> "ReusedBatches | None":
    """Return earlier batches of the same query over the same inputs, so that a planner's run need not compute them.

    Returns None for runs by hand and for backfills, which ask for a computation, and for foreign functions, which may
    return something else the next time.
    """
    from varve.catalog.traces import Traces

    if (
        not reuse_allowed(context.run.tags)
        or opened.together
        or sql_asset.sql.query is None
        or sql_asset.dataset.recomputes
    ):
        return None
    in_environment = bool(opened.catalog.environment)
    reusable = Traces(opened.catalog.connection).reusable_batches(opened.build, current_too=in_environment)
    return _if_whole(reusable, context, opened)


def _same_files(sql_asset: SqlAsset, context: dg.AssetExecutionContext, opened: "OpenBuild") -> "ReusedBatches | None":
    """Return earlier batches of the same landing files, which the run has looked at and not yet read.

    An environment may have taken them before. What it has computed of them is taken over then, too.
    """
    from varve.catalog.traces import Traces

    dataset = sql_asset.dataset
    if not dataset.landing or dataset.incremental is not None or opened.rejected is not None or opened.together:
        return None
    if not reuse_allowed(context.run.tags):
        return None
    return _if_whole(Traces(opened.catalog.connection).reusable_batches(opened.build), context, opened)


def _if_whole(
    reusable: "ReusedBatches | None", context: dg.AssetExecutionContext, opened: "OpenBuild"
) -> "ReusedBatches | None":
    """Return the batches where all of them lie there as they were published."""
    if reusable is None:
        return None
    dataset = opened.build.dataset
    store = context.resources.builds.store(dataset, opened.catalog)
    batches = {batch.partition: batch for batch in reusable.batches}
    return reusable if len(still_whole(store, dataset, batches, context.log)) == len(batches) else None


class Expectations:
    """Counts the rows that break an EXPECT, in the Spark job that writes the rows; such a run publishes nothing."""

    def __init__(self, sql_asset: SqlAsset, context: dg.AssetExecutionContext, opened: "OpenBuild") -> None:
        self.sql_asset = sql_asset
        self.context = context
        self.opened = opened
        self.observation: Any = None

    def watched(self, frame: "DataFrame") -> "DataFrame":
        """Return the frame with an observation that counts the rows which break each expectation."""
        watched_frame, self.observation = watched(self.sql_asset, frame)
        if self.observation is not None:
            self.opened.pre_publish_checks.append(self.look)
        return watched_frame

    def hold_in(self, reused: "ReusedBatches") -> bool:
        """Return whether earlier batches are as is expected now. It may have been declared after they were made.

        Where they are not, the rows are made again, and what is wrong is told as of any other rows.
        """
        from pyspark.sql import functions as F  # noqa: N812

        dataset = self.opened.build.dataset
        wrong = [
            *(F.col(f"`{column.name}`").isNull() for column in dataset.schema.columns if not column.nullable),
            *(~F.expr(f"({expectation.text}\n)") for expectation in self.sql_asset.sql.expectations),
        ]
        if not wrong:
            return True
        store = self.context.resources.builds.store(dataset, self.opened.catalog)
        rows_of_batches = store.read(dataset, reused.batches)
        return bool(rows_of_batches.where(folded(or_, wrong)).isEmpty())

    def look(self) -> None:
        """Raise VerifyFailed, before anything is published, with each expectation that rows break.

        Every expectation gets its own result: Dagster would call all of them failed that have none when the run fails.
        """
        counts = {name: int(count) for name, count in observed_by(self.observation).items() if count}
        if not counts:
            return
        messages, blamed = self._broken(counts)
        self.opened.broken_expectations |= messages
        for expectation in self.sql_asset.sql.expectations:
            message = messages.get(expectation.name)
            report_check(
                step_of(self.context),
                dg.AssetCheckEvaluation(
                    asset_key=self.context.asset_key,
                    check_name=expectation.name,
                    passed=message is None,
                    description=message or "No row breaks it; the run published nothing, as another check failed.",
                    metadata={"rows": dg.IntMetadataValue(counts.get(expectation.name, 0))},
                    blocking=True,
                ),
            )
        raise VerifyFailed(
            f"{self.opened.build}: {'; '.join(messages.values())}. {NOTHING_LOST} Mend the query or what it reads.",
            partitions=blamed,
        )

    def _broken(self, counts: Mapping[str, int]) -> tuple[dict[str, str], set[str]]:
        """Return by expectation that rows break how many of which partitions do, and some of them.

        With it the paths of the partitions that break one; none where an expectation does not say which.
        """
        opened = self.opened
        store = self.context.resources.builds.store(opened.build.dataset, opened.catalog)
        staged_rows = store.read(opened.build.dataset, [opened.build.as_batch(batch) for batch in opened.staged])
        messages, blamed, is_known = {}, set[str](), True
        for expectation in self.sql_asset.sql.expectations:
            if count := counts.get(expectation.name):
                phrase, paths = broken_rows(staged_rows, expectation.text, opened.build, opened.staged)
                blamed, is_known = blamed | paths, is_known and bool(paths)
                by_count = broken_expectations(self.sql_asset, {expectation.name: count})
                # A condition may be false of the rows that are made, and true of them as they are stored.
                message = f"{expectation.name} ({expectation.text}): {phrase}" if phrase else by_count
                messages[expectation.name] = redacted(message)
        return messages, blamed if is_known else set()

    def results(self) -> Iterator[dg.AssetCheckResult]:
        """Yield a passed check for each expectation: where one had failed, the run would have ended before."""
        for expectation in self.sql_asset.sql.expectations:
            yield dg.AssetCheckResult(check_name=expectation.name, passed=True, metadata={"rows": 0})
