"""SQL files as Dagster assets: `sql_assets()`.

Not here: what a file says and means (sql/), and the datasets themselves (assets/*.sql).
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from pipeline_defs.datasets import DatasetAsset, dataset_asset
from pipeline_defs.model.dataset import Dataset
from pipeline_defs.model.dimension import DynamicDimension
from pipeline_defs.model.errors import NOTHING_LOST, VarveError, VerifyFailed
from pipeline_defs.planning.graph import PlannedReads
from pipeline_defs.reconciling import AGAIN_TAG
from pipeline_defs.sql.asset import SqlAsset
from pipeline_defs.sql.execute import per_scope_rows, rows_of, sql_of, united
from pipeline_defs.sql.project import load
from pipeline_defs.sql.source import Body

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline_defs.model.partition import PartitionKey
    from resources.builds import OpenBuild
    from resources.traces import Again

# So many scopes meet the rows that they read in one join; a run of more is several joins in one job.
AT_ONCE = 500
FOLDER = Path(__file__).parent.parent / "assets"


@lru_cache
def project(folder: Path = FOLDER) -> Mapping[str, SqlAsset]:
    """The SQL datasets of a folder, read once in a process. Raises SqlErrors with everything that is wrong."""
    return load(folder)


def sql_assets(files: Mapping[str, SqlAsset], others: Sequence[Dataset] = ()) -> list[DatasetAsset]:
    """An asset for each file; `others` are datasets that Python declares and SQL may read."""
    datasets = {**{each.name: each for each in others}, **{name: each.dataset for name, each in files.items()}}
    return [_asset(found, datasets) for found in files.values()]


def _asset(found: SqlAsset, datasets: Mapping[str, Dataset]) -> DatasetAsset:
    reads = {
        _argument(name): PlannedReads(
            dataset=datasets[name], dependency=found.dependency(name), columns=found.kept.columns[name]
        )
        for name in found.reads
    }
    about: dict[str, Any] = {
        "tags": {f"varve/{name}": value for name, value in found.kept.tags},
        "metadata": {
            "varve/file": found.source.path,
            "varve/sql": dg.MetadataValue.md(f"```sql\n{found.source.text}\n```"),
            **lineage_metadata(found),
        },
        "check_specs": [
            dg.AssetCheckSpec(
                name,
                asset=dg.AssetKey(found.dataset.name.split(".")),
                description=f"no row for which {condition} is false; else the run publishes nothing",
            )
            for name, condition in found.kept.expectations
        ],
    }
    return dataset_asset(found.dataset, reads=reads, code_version=found.code_version, about=about)(_compute(found))


def lineage_metadata(found: SqlAsset) -> dict[str, Any]:
    """Of which columns each column is made, under Dagster's key for it; nothing where the body is no SELECT."""
    made = {
        name: [dg.TableColumnDep(dg.AssetKey(dataset.split(".")), column) for dataset, column in sources]
        for name, sources in found.lineage.items()
        if sources
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(made)} if made else {}


def _argument(name: str) -> str:
    return name.replace(".", "__")


def _compute(found: SqlAsset) -> Callable[..., Any]:
    """The body of the asset: its rows, then what its expectations said of them."""

    def compute(context: dg.AssetExecutionContext, **inputs: Any) -> Iterator[Any]:
        opened = context.resources.builds.of(context)
        expectations = Expectations(found, context, opened)
        if (again := _again(found, context, opened)) is not None:
            yield dg.Output(again, metadata=lineage_metadata(found))
            yield from expectations.results()
            return
        frames = {name: inputs[_argument(name)] for name in found.reads}
        frame = _rows(found, context, opened.build.partitions, frames)
        yield dg.Output(expectations.watched(frame), metadata=lineage_metadata(found))
        yield from expectations.results()

    compute.__name__ = found.dataset.table
    compute.__doc__ = found.dataset.comment
    return compute


def _again(found: SqlAsset, context: dg.AssetExecutionContext, opened: "OpenBuild") -> "Again | None":
    """Batches that hold what a run of the planner would compute, as its query was asked of the same inputs before.

    Not for runs by hand and backfills, which want it computed, nor where a foreign function may do something else.
    """
    from resources.traces import Traces

    asked = context.run.tags.get(AGAIN_TAG) == "yes"
    if not asked or opened.together or found.sql.query is None or found.dataset.policy.refresh_last:
        return None
    return Traces(opened.catalog.connection).again(opened.build)


def _rows(
    found: SqlAsset,
    context: dg.AssetExecutionContext,
    keys: "Sequence[PartitionKey]",
    frames: "Mapping[str, DataFrame]",
) -> "DataFrame":
    if found.sql.body is Body.EXTERNAL:
        return _external(found, context, keys)
    spark: SparkSession = context.resources.spark.spark_session
    if found.sql.query is None:
        return _python(found, spark, keys, frames)
    parts = [keys[place : place + AT_ONCE] for place in range(0, len(keys), AT_ONCE)]
    if len(parts) == 1:
        return rows_of(spark, found.scopes, found.sql.query, keys, frames)
    return united(
        [rows_of(spark, found.scopes, found.sql.query, part, _narrowed(found, part, frames)) for part in parts]
    )


def _narrowed(
    found: SqlAsset, keys: "Sequence[PartitionKey]", frames: "Mapping[str, DataFrame]"
) -> "dict[str, DataFrame]":
    """What some of the run's partitions read: Spark then opens, and compares with their scopes, no other rows."""
    from resources.frames import in_partitions

    narrowed = dict(frames)
    for name in found.reads:
        dimensions = found.upstreams[name].partitioning.dimensions
        # Which keys a dynamic set has is not asked here.
        if not any(isinstance(each, DynamicDimension) for each in dimensions):
            boxes = [box for _, read in found.dependency(name).read_by(keys) for box in read]
            read = sorted({key for box in dict.fromkeys(boxes) for key in box.partitions()})
            narrowed[name] = frames[name].where(in_partitions(read)) if read else frames[name].limit(0)
    return narrowed


def _external(found: SqlAsset, context: dg.AssetExecutionContext, keys: "Sequence[PartitionKey]") -> "DataFrame":
    """What others have produced: files of the landing folder, or the partitions of a table of the metastore."""
    from resources.frames import in_partitions

    if found.dataset.landing:
        landed: DataFrame = context.resources.landing.read(context)
        return landed
    table = found.sql.option("table")
    assert table is not None
    spark: SparkSession = context.resources.spark.spark_session
    return spark.table(table).where(in_partitions(keys))


def _python(
    found: SqlAsset, spark: "SparkSession", keys: "Sequence[PartitionKey]", frames: "Mapping[str, DataFrame]"
) -> "DataFrame":
    """What the foreign function returns for each scope, with its partition columns."""
    from pyspark.sql import functions as F  # noqa: N812

    from pipeline_defs.sql.constants import literal

    module, _, name = found.sql.entry.partition(":")
    function = getattr(importlib.import_module(module), name)
    arms: list[DataFrame] = []
    for key in keys:
        scope = found.scopes.of(key)
        inputs = {
            each.name: per_scope_rows(spark, found.scopes, each.query, [scope], frames, partitions=False)
            for each in found.sql.using
        }
        rows = function(spark, {name: typed.value for name, typed in scope.values.items()}, **inputs)
        if not hasattr(rows, "columns") or not hasattr(rows, "select"):
            raise VarveError(
                f"{found.dataset} {key}: {found.sql.entry} returned {type(rows).__name__}, not a DataFrame of Spark."
            )
        values = found.scopes.partition_values(key)
        columns = [F.expr(sql_of(literal(values[each]))).alias(each) for each in values]
        data = [F.col(f"`{each}`") for each in rows.columns if each not in values]
        arms.append(rows.select(*columns, *data))
    frame = arms[0]
    for arm in arms[1:]:
        frame = frame.unionByName(arm)
    return frame


class Expectations:
    """Counts, in the job that writes them, the rows that break an EXPECT; the run publishes nothing where there are."""

    def __init__(self, found: SqlAsset, context: dg.AssetExecutionContext, opened: "OpenBuild") -> None:
        self.found = found
        self.context = context
        self.opened = opened
        self.seen: Any = None

    def watched(self, frame: "DataFrame") -> "DataFrame":
        """The frame, observed."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        if not self.found.sql.expectations:
            return frame
        self.seen = Observation("expectations")
        counts = [F.count_if(~F.expr(sql_of(each.expression))).alias(each.name) for each in self.found.sql.expectations]
        self.opened.last_looks.append(self.look)
        return frame.observe(self.seen, *counts)

    def look(self) -> None:
        """Raise VerifyFailed, before anything is published, with each expectation that rows break."""
        broken = {name: count for name, count in self.seen.get.items() if count}
        key = self.context.asset_key
        for name, count in broken.items():
            self.context.instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    asset_key=key,
                    check_name=name,
                    passed=False,
                    metadata={"rows": count, "run": self.opened.build.run_id},
                )
            )
        if broken:
            texts = {each.name: sql_of(each.expression) for each in self.found.sql.expectations}
            told = "; ".join(f"{count} rows break {name} ({texts[name]})" for name, count in broken.items())
            raise VerifyFailed(f"{self.opened.build}: {told}. {NOTHING_LOST} Mend the query or what it reads.")

    def results(self) -> Iterator[dg.AssetCheckResult]:
        """All of them hold: else the run would have failed."""
        for each in self.found.sql.expectations:
            yield dg.AssetCheckResult(check_name=each.name, passed=True, metadata={"rows": 0})
