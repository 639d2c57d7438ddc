"""The rows of a run of a SQL dataset: from its query, from an external table, from a function or from a program.

Not here: the Dagster asset (sql_assets.py), and writing the rows (varve/stores).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from varve.dagster.assets.python_files import named_module
from varve.dagster.assets.sql_functions import register_functions
from varve.model.errors import VarveError, counted
from varve.model.partitions.dimension import DynamicDimension
from varve.planning.requested import EFFECTS_TAG
from varve.sql.code.foreign import FOR
from varve.sql.spark.execute import per_scope_rows, rows_of, union_all
from varve.sql.spark.run_errors import run_problem
from varve.sql.syntax.options import ARGS, CONF, SUBMIT
from varve.sql.syntax.sql_file import Body

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import dagster as dg
    from pyspark.sql import DataFrame, Observation, SparkSession
    from sqlglot import exp

    from varve.model.partitions.key import PartitionKey
    from varve.sql.sql_asset import SqlAsset
    from varve.stores.open_build import OpenBuild

# One join handles at most so many scopes with the rows that they read; a run of more has several joins in one job.
AT_ONCE = 500


def rows(
    sql_asset: SqlAsset, context: dg.AssetExecutionContext, opened: OpenBuild, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Return the rows of the run's partitions, with their partition columns.

    `frames` are the pinned inputs, by the name of the dataset.
    """
    keys = opened.build.partitions
    if sql_asset.sql.body is Body.EXTERNAL:
        arrived_rows: DataFrame = context.resources.landing.read(context)
        return arrived_rows
    if sql_asset.sql.query is None:
        _refuse_effects(sql_asset, opened.catalog.environment, context.run.tags)
    if sql_asset.sql.body is Body.SPARK:
        return _program(sql_asset, context, opened, frames)
    return computed(sql_asset, context.resources.spark.spark_session, keys, frames, pinned=True)


def _refuse_effects(sql_asset: SqlAsset, environment: str, tags: Mapping[str, str]) -> None:
    """Raise VarveError where an environment would run what may change something outside of Varve."""
    if environment and tags.get(EFFECTS_TAG) != "yes":
        raise VarveError(
            f"{sql_asset.dataset} is computed by {sql_asset.sql.entry}, which may change something outside of Varve. "
            f"Nothing was run. Where it may run in environment {environment}, say so: the same command with --effects, "
            f"where it has that, or varve env run {environment} --effects before it."
        )


def computed(
    sql_asset: SqlAsset,
    spark: SparkSession,
    keys: Sequence[PartitionKey],
    frames: Mapping[str, DataFrame],
    *,
    pinned: bool = False,
) -> DataFrame:
    """Return the rows of a query or of a Python function for these partitions, with their partition columns.

    `pinned`: the frames are batches of partitions, as a run has them, and not rows that somebody wrote for a test.
    """
    register_functions(spark, sql_asset.sql)
    if sql_asset.sql.query is not None:
        return _queried(sql_asset, spark, sql_asset.sql.query, keys, frames, pinned=pinned)
    return _python(sql_asset, spark, keys, frames)


def watched(sql_asset: SqlAsset, frame: DataFrame) -> tuple[DataFrame, Observation | None]:
    """Return the frame with an observation that counts the rows which break each EXPECT; None where it has none."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    if not sql_asset.sql.expectations:
        return frame, None
    register_functions(frame.sparkSession, sql_asset.sql)
    observation = Observation("expectations")
    counts = [
        F.count_if(~F.expr(f"({expectation.text}\n)")).alias(expectation.name)
        for expectation in sql_asset.sql.expectations
    ]
    return frame.observe(observation, *counts), observation


def row_error(sql_asset: SqlAsset, keys: Sequence[PartitionKey], error: Exception) -> str:
    """Return what an error of Spark over the rows is, at its place in the file; "" where rows have not caused it."""
    columns = {
        name: [*upstream.schema.names, *upstream.partitioning.names] for name, upstream in sql_asset.upstreams.items()
    }
    read = [sql_asset.read_columns(chunk) for chunk in _chunks(keys)]
    return run_problem(error, sql_asset.scopes, keys, columns, [{}, *read])


def broken_expectations(sql_asset: SqlAsset, counts: Mapping[str, int]) -> str:
    """Return how many rows break which EXPECT, by the counts of the observation; "" where none does."""
    return "; ".join(
        f"{counted(counts[expectation.name], 'row')} break{'s' if counts[expectation.name] == 1 else ''} "
        f"{expectation.name} ({expectation.text})"
        for expectation in sql_asset.sql.expectations
        if counts.get(expectation.name)
    )


def _queried(
    sql_asset: SqlAsset,
    spark: SparkSession,
    query: exp.Query,
    keys: Sequence[PartitionKey],
    frames: Mapping[str, DataFrame],
    *,
    pinned: bool,
) -> DataFrame:
    """Return the query's rows for all of these partitions; the partition columns come first."""
    chunks = _chunks(keys)
    arms = []
    for chunk in chunks:
        inputs = frames if len(chunks) == 1 else narrowed(sql_asset, chunk, frames)
        read = sql_asset.read_values(chunk) if pinned else {}
        arms.append(rows_of(spark, sql_asset.scopes, query, chunk, inputs, read=read))
    return union_all(arms)


def _chunks(keys: Sequence[PartitionKey]) -> list[Sequence[PartitionKey]]:
    return [keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE)]


def narrowed(
    sql_asset: SqlAsset, keys: Sequence[PartitionKey], frames: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """Return the inputs, reduced to what these partitions read, so that Spark opens and compares no other rows."""
    from varve.stores.frames import in_partitions

    inputs = dict(frames)
    for name in sql_asset.reads:
        dimensions = sql_asset.upstreams[name].partitioning.dimensions
        # Inputs with a dynamic dimension are not reduced: the keys of the dynamic set are not looked up here.
        if not any(isinstance(dimension, DynamicDimension) for dimension in dimensions):
            boxes = [box for _, read in sql_asset.dependency(name).read_by(keys, any_member=True) for box in read]
            read = sorted({key for box in dict.fromkeys(boxes) for key in box.partitions()})
            inputs[name] = frames[name].where(in_partitions(read)) if read else frames[name].limit(0)
    return inputs


def _python(
    sql_asset: SqlAsset, spark: SparkSession, keys: Sequence[PartitionKey], frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Return the rows that the foreign function returns for each scope, with the partition columns."""
    from pyspark.sql import functions as F  # noqa: N812

    from varve.sql.evaluate.constants import literal_text
    from varve.stores.frames import folded, spark_frame

    module, _, name = sql_asset.sql.entry.partition(":")
    function = getattr(named_module(module, Path(sql_asset.sql.source.root)), name)
    scope_frames: list[DataFrame] = []
    for key in keys:
        scope = sql_asset.scopes.of(key)
        inputs = {
            using.name: per_scope_rows(spark, sql_asset.scopes, using.query, [scope], frames, partitions=False)
            for using in sql_asset.sql.using
        }
        returned = function(spark, {name: typed.value for name, typed in scope.values.items()}, **inputs)
        rows = spark_frame(returned, f"{sql_asset.dataset} {key}: {sql_asset.sql.entry}")
        values = sql_asset.scopes.partition_values(key)
        columns = [F.expr(literal_text(values[column])).alias(column) for column in values]
        data = [F.col(f"`{column}`") for column in rows.columns if column not in values]
        scope_frames.append(rows.select(*columns, *data))
    # In pairs: Spark Connect cannot send a chain of six hundred, and a run may have a thousand partitions.
    return folded(lambda one, other: one.unionByName(other), scope_frames)


def _program(
    sql_asset: SqlAsset, context: dg.AssetExecutionContext, opened: OpenBuild, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Return the rows that the program writes, in one execution for all scopes of the run."""
    from varve.dagster.runs.programs import ProgramTask
    from varve.dagster.runs.spark_submit import Program, arguments

    sql, keys = sql_asset.sql, opened.build.partitions
    spark: SparkSession = context.resources.spark.spark_session
    scopes = {key: {name: typed.value for name, typed in sql_asset.scopes.of(key).values.items()} for key in keys}
    builds = context.resources.builds
    scratch = builds.store(opened.build.dataset, opened.catalog).scratch(opened.build.dataset)
    task = ProgramTask(builds.settings, opened.build, spark, scopes, sql_asset.scopes.types, scratch)
    names = sql_asset.scopes.partitioning.names
    register_functions(spark, sql_asset.sql)
    inputs = {}
    for using in sql.using:
        frame = _queried(sql_asset, spark, using.query, keys, frames, pinned=True)
        inputs[using.name] = frame.toDF(*(f"{FOR}{name}" for name in names), *frame.columns[len(names) :])
    options = dict(sql.options)
    program = Program(
        sql.entry,
        {name: value for name, value in options.items() if name in SUBMIT},
        {name.removeprefix(CONF): value for name, value in options.items() if name.startswith(CONF)},
        arguments(options.get(ARGS)),
    )
    opened.cleanups.append(task.remove)
    return task.run(program, inputs)
