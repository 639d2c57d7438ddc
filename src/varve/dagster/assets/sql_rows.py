"""The rows of a run of a SQL dataset: of its query, of what others have produced, of a function, of a program.

Not here: the Dagster asset (sql_assets.py), and where the rows go (resources/).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.model.partitions.dimension import DynamicDimension
from varve.sql.foreign_code import FOR
from varve.sql.spark.execute import per_scope_rows, rows_of, united
from varve.sql.syntax.options import ARGS, CONF, SUBMIT
from varve.sql.syntax.sql_file import Body

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import dagster as dg
    from pyspark.sql import DataFrame, SparkSession
    from sqlglot import exp

    from varve.model.partitions.key import PartitionKey
    from varve.sql.sql_asset import SqlAsset
    from varve.stores.open_build import OpenBuild

# So many scopes meet the rows that they read in one join; a run of more is several joins in one job.
AT_ONCE = 500


def rows(
    found: SqlAsset, context: dg.AssetExecutionContext, opened: OpenBuild, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """The rows of the run's partitions, with their partition columns; `frames` are its pinned inputs, by dataset."""
    keys = opened.build.partitions
    if found.sql.body is Body.EXTERNAL:
        landed: DataFrame = context.resources.landing.read(context)
        return landed
    spark: SparkSession = context.resources.spark.spark_session
    if found.sql.query is not None:
        return _queried(found, spark, found.sql.query, keys, frames)
    if found.sql.body is Body.PYTHON:
        return _python(found, spark, keys, frames)
    return _program(found, context, opened, frames)


def _queried(
    found: SqlAsset,
    spark: SparkSession,
    query: exp.Query,
    keys: Sequence[PartitionKey],
    frames: Mapping[str, DataFrame],
) -> DataFrame:
    """The query's rows for all of these partitions, after the partition columns of each."""
    parts = [keys[place : place + AT_ONCE] for place in range(0, len(keys), AT_ONCE)]
    if len(parts) == 1:
        return rows_of(spark, found.scopes, query, keys, frames)
    return united([rows_of(spark, found.scopes, query, part, _narrowed(found, part, frames)) for part in parts])


def _narrowed(found: SqlAsset, keys: Sequence[PartitionKey], frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """What some of the run's partitions read: Spark then opens, and compares with their scopes, no other rows."""
    from varve.stores.frames import in_partitions

    narrowed = dict(frames)
    for name in found.reads:
        dimensions = found.upstreams[name].partitioning.dimensions
        # Which keys a dynamic set has is not asked here.
        if not any(isinstance(each, DynamicDimension) for each in dimensions):
            boxes = [box for _, read in found.dependency(name).read_by(keys) for box in read]
            read = sorted({key for box in dict.fromkeys(boxes) for key in box.partitions()})
            narrowed[name] = frames[name].where(in_partitions(read)) if read else frames[name].limit(0)
    return narrowed


def _python(
    found: SqlAsset, spark: SparkSession, keys: Sequence[PartitionKey], frames: Mapping[str, DataFrame]
) -> DataFrame:
    """What the foreign function returns for each scope, with its partition columns."""
    from pyspark.sql import functions as F  # noqa: N812

    from varve.sql.evaluate.constants import literal_text

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
        columns = [F.expr(literal_text(values[each])).alias(each) for each in values]
        data = [F.col(f"`{each}`") for each in rows.columns if each not in values]
        arms.append(rows.select(*columns, *data))
    frame = arms[0]
    for arm in arms[1:]:
        frame = frame.unionByName(arm)
    return frame


def _program(
    found: SqlAsset, context: dg.AssetExecutionContext, opened: OpenBuild, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """What the program has written for all scopes of the run, in one go."""
    from varve.dagster.runs.programs import Program, ProgramTask, arguments

    sql, keys = found.sql, opened.build.partitions
    spark: SparkSession = context.resources.spark.spark_session
    scopes = {key: {name: typed.value for name, typed in found.scopes.of(key).values.items()} for key in keys}
    builds = context.resources.builds
    scratch = builds.store(opened.build.dataset, opened.catalog).scratch(opened.build.dataset)
    task = ProgramTask(builds.settings, opened.build, spark, scopes, found.scopes.types, scratch)
    names = found.scopes.partitioning.names
    inputs = {}
    for using in sql.using:
        frame = _queried(found, spark, using.query, keys, frames)
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
