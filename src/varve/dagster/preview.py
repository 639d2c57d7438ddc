"""The rows that a run of a partition would publish, computed from what is current now; nothing is stored anywhere.

What the author wrote goes the way of a run: the same reads, the same text for Spark or the same function, the same fit
to the declared columns, the same expectations. There is no build, no lock and no batch: the connection to the catalog
only reads. Dagster is imported for datasets of Python alone.

Not here: how a preview is shown (varve/cli/preview).
"""

from __future__ import annotations

import contextlib
import inspect
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.catalog import Catalog
from varve.dagster.runs.inputs.pinning import pin
from varve.model.batch import BatchId, Input
from varve.model.build import Build
from varve.model.errors import BadInput, VarveError
from varve.model.partitions.dimension import DynamicDimension
from varve.planning.graph import PlannedReads
from varve.planning.graph import edge as edge_of
from varve.planning.requested import why_not
from varve.services.postgres import connect
from varve.services.spark import open_session, will_open_elsewhere
from varve.sql.spark.run_errors import run_message
from varve.sql.syntax.sql_file import Body
from varve.stores.expectations import counts_of_broken
from varve.stores.folders.write import outside_message, strays_of
from varve.stores.frames import conform, in_partitions, observed_by, spark_errors, spark_frame, spark_schema
from varve.stores.open import open_store
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import psycopg
    from pyspark.sql import DataFrame, SparkSession

    from varve.dagster.assets.datasets import DatasetAsset
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.model.partitions.partitioning import Partitioning
    from varve.planning.graph import Edge
    from varve.services.settings import Settings
    from varve.sql.sql_asset import SqlAsset

# A preview is no run, and what it computes no batch.
_NO_BATCH, _NO_RUN = BatchId(0), "preview"
# Under this name the rows are counted, which no expectation can have.
_ROWS = "rows of the preview"
# Spark's running number of a row: the number of its Spark partition, then this many bits for its place there.
_PLACE_BITS = 33


@dataclass(frozen=True)
class Kept:
    """How one expectation came out.

    Attributes:
        broken: how many rows break it, or 1 where the partition as a whole does; a run would publish nothing then.
    """

    name: str
    condition: str
    broken: int


@dataclass(frozen=True)
class Preview:
    """What a run of one partition would publish.

    Attributes:
        columns: the names and Spark's types of its columns; partition columns come last.
        rows: the first of its rows, in no particular order.
        row_count: how many rows there are in all.
        inputs: the partitions that were read, each at its batch.
        missing: the inputs that are not there and for which a run would not wait.
        not_now: why no run computes the partition now, as a phrase; "" where one may.
        plan: Spark's plan; "" where it was not asked for.
    """

    dataset: Dataset
    partition: PartitionKey
    columns: tuple[tuple[str, str], ...]
    rows: tuple[dict[str, Any], ...]
    row_count: int
    expectations: tuple[Kept, ...]
    inputs: tuple[Input, ...]
    missing: tuple[str, ...]
    plan: str
    not_now: str = ""


@dataclass(frozen=True)
class Computation:
    """A dataset with what its rows are computed from, and how.

    Attributes:
        edges: what it reads.
        compute: returns the rows of a build's partitions from its inputs, by the name of the dataset.
        expectations: the names and conditions of EXPECT, which are evaluated on the rows as they are computed.
        row_error: what an error of Spark over the rows of partitions is in words; "" where rows have not caused it.
    """

    dataset: Dataset
    edges: tuple[Edge, ...]
    compute: Callable[[SparkSession, Build, Mapping[str, DataFrame]], DataFrame]
    expectations: tuple[tuple[str, str], ...] = ()
    row_error: Callable[[Sequence[PartitionKey], Exception], str] = lambda _, error: run_message(error)


def of_sql(sql_asset: SqlAsset) -> Computation:
    """What a SQL file computes. Raises VarveError where that is not a query or a function."""
    from varve.dagster.assets.sql_rows import computed, row_error

    name = sql_asset.dataset.name
    if sql_asset.sql.body is Body.EXTERNAL:
        raise VarveError(f"{name} comes from others: there is nothing to compute. Preview a dataset that reads it.")
    if sql_asset.sql.body is Body.SPARK:
        raise VarveError(
            f"{name} is a program, {sql_asset.sql.entry}, which spark-submit runs with files of its own: it has no "
            "preview. Run the partition."
        )
    edges = [
        edge_of(
            sql_asset.dataset,
            PlannedReads(
                dataset=sql_asset.upstreams[upstream],
                dependency=sql_asset.dependency(upstream),
                wait=sql_asset.compiled.waits[upstream],
                columns=sql_asset.compiled.columns[upstream],
            ),
        )
        for upstream in sql_asset.reads
    ]
    return Computation(
        sql_asset.dataset,
        tuple(edges),
        lambda spark, build, frames: computed(sql_asset, spark, build.partitions, frames),
        sql_asset.compiled.expectations,
        partial(row_error, sql_asset),
    )


def of_python(asset: DatasetAsset) -> Computation:
    """What a function of Python computes. Raises VarveError for a dataset without one."""
    import dagster as dg

    if asset.compute is None or not isinstance(asset.asset, dg.AssetsDefinition):
        raise VarveError(
            f"{asset.dataset} has no function that computes it: a capture or the run of another dataset writes it. "
            "Preview a dataset that reads it."
        )
    function = asset.compute
    arguments = {argument: ".".join(key.path) for argument, key in asset.asset.keys_by_input_name.items()}

    def compute(spark: SparkSession, build: Build, frames: Mapping[str, DataFrame]) -> DataFrame:
        from varve.dagster.assets.unpublished import GivenSpark, unpublished_context

        # As in Dagster, a function need not ask for a context, which is the first argument then.
        first = next(iter(inspect.signature(function).parameters), "")
        context = (unpublished_context(build, GivenSpark(spark)),) if first and first not in arguments else ()
        returned = asset(*context, **{argument: frames[name] for argument, name in arguments.items()})
        return spark_frame(returned, f"{build.dataset}: its function")

    return Computation(asset.dataset, tuple(edge_of(asset.dataset, reads) for reads in asset.reads), compute)


def preview(
    settings: Settings, computation: Computation, partition: PartitionKey, *, limit: int, explain: bool = False
) -> Preview:
    """Compute a partition from what is current now. Services are started where they are embedded.

    Raises MissingUpstream with the input partitions that have no batch, BadInput for rows that do not fit the declared
    columns, and what Spark or the function raises.
    """
    dataset = computation.dataset
    build = Build(dataset, (partition,), _NO_BATCH, _NO_RUN, {})
    will_open_elsewhere(settings)
    with ThreadPoolExecutor(1, thread_name_prefix="spark") as opener, _reading(settings) as connection:
        # In classic mode the JVM of this process belongs to the thread that uses it.
        opening = opener.submit(open_session, settings) if settings.spark_master is None else None
        opened = OpenBuild(build, Catalog(connection))
        chosen = [
            (edge, pin(opened, edge, members_of(settings, *edge.dependency.partitionings)))
            for edge in computation.edges
        ]
        spark = open_session(settings) if opening is None else opening.result()
        frames = {
            edge.upstream.name: open_store(edge.upstream.store, settings, opened.catalog, lambda: spark).read(
                edge.upstream, batches, edge.columns
            )
            # A store may make its own tables before it reads nothing.
            if batches
            else spark.createDataFrame([], spark_schema(edge.upstream.read_columns(edge.columns)))
            for edge, batches in chosen
        }
        frame = computation.compute(spark, build, frames)
        fitting = conform(build, frame)
        plan = _explained(fitting) if explain else ""
        try:
            rows, counts = _computed(build, frame, computation.expectations, limit)
            broken = counts | counts_of_broken(build, fitting)
        except spark_errors() as error:
            if text := computation.row_error(build.partitions, error):
                raise BadInput(f"{dataset} {partition}: {text}") from error
            raise
    conditions = [
        *computation.expectations,
        *((expectation.name, expectation.condition) for expectation in dataset.expectations),
    ]
    return Preview(
        dataset,
        partition,
        tuple((field.name, field.dataType.simpleString()) for field in fitting.schema.fields),
        tuple(rows),
        counts.get(_ROWS, 0),
        tuple(Kept(name, condition, broken.get(name, 0)) for name, condition in conditions),
        tuple(sorted(build.inputs.get(partition, ()))),
        tuple(sorted(build.missing.get(partition, ()))),
        plan,
        why_not(
            dataset, partition, now=pendulum.now("UTC").timestamp(), members=members_of(settings, dataset.partitioning)
        ),
    )


def members_of(settings: Settings, *partitionings: Partitioning) -> Members | None:
    """The keys of the dynamic sets of partitionings; Dagster, which has them, is only asked where there is one."""
    dimensions = [dimension for partitioning in partitionings for dimension in partitioning.dimensions]
    if not any(isinstance(dimension, DynamicDimension) for dimension in dimensions):
        return None
    from varve.dagster.instance import open_instance
    from varve.dagster.partitions.dynamic_sets import PartitionSets

    with open_instance(settings) as instance:
        return PartitionSets(instance, partitionings).members()


@contextlib.contextmanager
def _reading(settings: Settings) -> Iterator[psycopg.Connection]:
    """A connection to a catalog that is there, which from then on refuses to write anything."""
    with connect(settings, application="varve preview") as connection:
        Catalog(connection).ensure_schema()
        connection.execute("set default_transaction_read_only = on")
        yield connection


def _computed(
    build: Build, frame: DataFrame, expectations: Sequence[tuple[str, str]], limit: int
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The first rows of a frame, and counts of all: of the rows, and of those that break each expectation.

    Raises BadInput for rows of other partitions, as a run does.

    It is one job, in which every row is computed once. As in a run, Spark observes the rows before they are cast to the
    declared columns. A `limit` would end the job early: here each Spark partition hands on its own first rows.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    observation, partitions = Observation("preview"), Observation("partitions")
    counts = [F.count_if(~F.expr(f"({condition}\n)")).alias(name) for name, condition in expectations]
    fitted = conform(build, frame.observe(observation, F.count(F.lit(1)).alias(_ROWS), *counts))
    observed = fitted.observe(partitions, F.count_if(~in_partitions(build.partitions)).alias("outside"))
    place = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << _PLACE_BITS) - 1))
    rows = observed.where(place < F.lit(limit)).toArrow().slice(0, limit).to_pylist()
    found = {name: int(count) for name, count in observed_by(observation).items()}
    if outside := observed_by(partitions).get("outside"):
        raise BadInput(outside_message(build, outside, found[_ROWS], strays_of(build, fitted)))
    return rows, found


def _explained(frame: DataFrame) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        frame.explain(mode="formatted")
    return text.getvalue().strip()
