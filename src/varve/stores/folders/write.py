"""Writes batches: one Spark job for any number of partitions, then a survey of the files that it wrote.

Jobs that append below one table root at the same time lose files without an error, because the first one that ends
deletes the folder `_temporary`, which they share (docs/decisions/0004). So one partition is written with its own batch
folder as the job's root, and a job of many partitions gets a folder of its own in `_temporary`, and deletes that alone.

Not here: the catalog, and which batch is current.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varve.model.batch import StagedBatch
from varve.model.errors import NOTHING_LOST, BadInput, VerifyFailed, some
from varve.services.files import is_local, make_durable, open_files, renames_cheaply
from varve.stores.folders import content, footers, manifest
from varve.stores.folders.file_calls import at_once
from varve.stores.folders.layout import BATCH_COLUMN
from varve.stores.frames import arrow_schema, conform, in_partitions, observed_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.stores.folders.layout import Layout

# The empty, typed file of a partition without rows, for which Spark's partitioned write makes no folder.
EMPTY_FILE = "part-00000-empty.parquet"
_NO_SUCCESS_FILE = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
# With version 2 a task moves its files to their final place, and the job does not move them a second time: where a
# rename is a copy, every byte is copied once less, and where each call takes its time, the driver does not move one
# partition after another. On a disk the driver is faster: it moves folders and not files. A job that dies leaves the
# files of some tasks behind, which does no harm here: no reader sees the folder before its rows are counted.
_COMMIT = "mapreduce.fileoutputcommitter.algorithm.version"
# The name of a job's own folder in `_temporary`, a positive INT for Hadoop. At its end a job would delete all of
# `_temporary`, with what other jobs have there.
_JOB, _JOBS = "mapreduce.job.application.attempt.id", 2**31
_NO_CLEANING = "mapreduce.fileoutputcommitter.cleanup.skipped"
# How large adaptive execution makes a task from pieces of a shuffle: 1 MB at least, however many cores are idle. But a
# small partition costs the making of its file and not its bytes: 672 of them were one task of 20 s.
_LEAST_PIECE = "spark.sql.adaptive.coalescePartitions.minPartitionSize"
# With so many partitions, and at least as many as the shuffle has pieces, every piece is a task: each has files of its
# own to make. Else pieces are put together until there are about as many tasks as cores, and with one task more than
# cores all but one core wait for it: 3,650 partitions were 3 tasks of 45 s on two cores.
_MANY_PARTITIONS = 100
_COALESCE, _PIECES = "spark.sql.adaptive.coalescePartitions.enabled", "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How files are written, in addition to the dataset's own options.

    Attributes:
        codec: the compression, by Spark's name.
        max_rows: the limit of rows in a file.
        hashed: whether to hash the rows of a single partition while they are written.
        hashed_sets: whether to hash them by the columns that readers read too.
    """

    codec: str = "zstd"
    max_rows: int | None = None
    hashed: bool = False
    hashed_sets: bool = False


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What a job reported: how many rows it wrote, whatever their partition, and the hash of a single partition.

    Attributes:
        frame: the frame that was written; to use it computes the rows again.
    """

    rows: int
    frame: DataFrame
    content: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)


def write_batches(layout: Layout, build: Build, frame: DataFrame, options: WriteOptions | None = None) -> WriteReport:
    """Run the one Spark job that computes the frame and writes every partition's batch folder.

    Raises BadInput where columns do not fit, or where rows lie outside the only partition of the build; in a build of
    several partitions `verify_rows` finds such rows. Nothing points at the written files then.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    options = options or WriteOptions()
    names, sort = build.dataset.partitioning.names, build.dataset.lake.sort
    single = len(build.partitions) == 1
    hashed = options.hashed and single and content.can_hash(build.dataset.schema.columns)
    by_sets = options.hashed_sets and single and not build.growth
    seen = Observation("varve")
    fitted = conform(build, frame)
    observed = fitted.observe(
        seen,
        F.count(F.lit(1)).alias("rows"),
        # With many partitions the folders show which rows lie outside; to check each row takes a tenth longer.
        *([F.count_if(~in_partitions(build.partitions)).alias("outside")] if single else ()),
        *(content.sums(build.dataset.schema.columns) if hashed else ()),
        *(content.sums_of_sets(build) if by_sets else ()),
    )
    if single:
        (only,) = build.partitions
        target = layout.batch(build.dataset, only, build.batch_id)
        rows = observed.drop(*names) if names else observed
        writer = (rows.sortWithinPartitions(*sort) if sort else rows).write.mode("error")
    else:
        target = layout.table(build.dataset)
        # The rows of a partition go to few tasks, or every task would write a file into every partition.
        rows = observed.withColumn(BATCH_COLUMN, F.lit(build.batch_id.millis)).hint("rebalance", *names)
        # Spark sorts by the partition columns; rows that are sorted by them first are not sorted again.
        rows = rows.sortWithinPartitions(*names, BATCH_COLUMN, *sort) if sort else rows
        writer = rows.write.mode("append").partitionBy(*names, BATCH_COLUMN)
        writer = writer.options(**{_JOB: str(_job(build)), _NO_CLEANING: "true"})
    if options.max_rows is not None:
        writer = writer.option("maxRecordsPerFile", options.max_rows)
    files, _ = open_files(layout.root)
    if not is_local(files) and (not single or not renames_cheaply(layout.root)):
        writer = writer.option(_COMMIT, "2")
    writer = writer.options(**{"compression": options.codec, _NO_SUCCESS_FILE: "false"})
    if single:
        # It is not spread: each task would write a file of its own.
        writer.parquet(target)
    else:
        with _spread_over_cores(frame.sparkSession, len(build.partitions)), _own_temporary(layout, build):
            writer.parquet(target)
    observed_values = {"rows": 0, "outside": 0, **observed_by(seen)}
    if observed_values["outside"]:
        raise BadInput(
            outside_message(build, observed_values["outside"], observed_values["rows"], strays_of(build, fitted))
        )
    rows_written = observed_values["rows"]
    return WriteReport(
        rows_written, fitted,
        content.of_whole(build.dataset.schema.columns, rows_written, observed_values) if hashed else None,
        content.digests(build, rows_written, observed_values) if by_sets else {},
    )  # fmt: skip


def _job(build: Build) -> int:
    """A number for the job of a build of many partitions, which no other job has that runs at the same time."""
    return build.batch_id.millis % _JOBS


@contextmanager
def _own_temporary(layout: Layout, build: Build) -> Iterator[None]:
    """Delete the job's own folder in `_temporary` when the job has ended, and leave those of others."""
    try:
        yield
    finally:
        files, _ = open_files(layout.root)
        # Tasks of a job that has failed may write still: what they leave there is for a sweep.
        with suppress(OSError):
            files.rm(layout.temporary(build.dataset, _job(build)), recursive=True)


@contextmanager
def _spread_over_cores(spark: SparkSession, partitions: int) -> Iterator[None]:
    """Let Spark make at least as many tasks of a shuffle as it has cores, however few bytes there are."""
    # Some builds of Spark take words such as `auto` there.
    pieces = spark.conf.get(_PIECES) or ""
    are_many = pieces.isdigit() and partitions >= max(_MANY_PARTITIONS, int(pieces))
    name, value = (_COALESCE, "false") if are_many else (_LEAST_PIECE, "1b")
    before = spark.conf.get(name)
    assert before is not None, "Spark has a default"
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def survey(layout: Layout, build: Build) -> list[StagedBatch]:
    """The batch in each partition's folder, by its parquet footers. A partition without rows gets its empty file.

    Raises VerifyFailed where a file is not complete or has other columns than declared.
    """
    return at_once(lambda partition: _survey_one(layout, build, partition), build.partitions)


def verify_rows(build: Build, staged: Sequence[StagedBatch], written: WriteReport) -> None:
    """Compare the rows of the footers with those that Spark has counted. Raises BadInput and VerifyFailed."""
    rows = sum(batch.rows for batch in staged)
    missing = set(build.partitions) - {batch.partition for batch in staged}
    if rows == written.rows and not missing:
        return
    if rows < written.rows and (strays := strays_of(build, written.frame)):
        raise BadInput(outside_message(build, written.rows - rows, written.rows, strays))
    without = f" {len(missing)} partitions have no files: {some(sorted(missing))}." if missing else ""
    raise VerifyFailed(
        f"{build}: Spark wrote {written.rows} rows, the files hold {rows}.{without} {NOTHING_LOST} "
        "Run it again; if this repeats, the file system under the lake loses writes."
    )


def write_manifests(layout: Layout, build: Build, staged: Sequence[StagedBatch]) -> None:
    """Write the description of each batch into its folder, so that a lost catalog can be rebuilt.

    The folders are then whole, and on disk: PostgreSQL does not forget a publish, so its files must not either.
    """
    files, _ = open_files(layout.root)
    at_once(lambda batch: manifest.write(files, manifest.of(build, batch)), staged)
    make_durable(layout.root, [batch.location for batch in staged])


def remove_batches(layout: Layout, build: Build) -> None:
    """Remove the batch folders of a failed build, as far as they exist."""
    files, _ = open_files(layout.root)

    def remove(partition: PartitionKey) -> None:
        with suppress(FileNotFoundError):
            files.rm(layout.batch(build.dataset, partition, build.batch_id), recursive=True)

    at_once(remove, build.partitions)


def _survey_one(layout: Layout, build: Build, partition: PartitionKey) -> StagedBatch:
    import pyarrow.parquet as pq

    folder = layout.batch(build.dataset, partition, build.batch_id)
    files, _ = open_files(folder)
    data = footers.data_files(files, folder)
    if not data:
        files.makedirs(folder, exist_ok=True)
        with files.open(f"{folder}/{EMPTY_FILE}", "wb") as file:
            pq.write_table(arrow_schema(build.dataset.schema.columns).empty_table(), file)
        data = footers.data_files(files, folder)
    try:
        summary = footers.survey(files, data, build.dataset.schema.columns, bounds=build.dataset.lake.bounds)
    except ValueError as error:
        raise VerifyFailed(
            f"{build}: a file of {partition} in {folder} is not whole: {error}. {NOTHING_LOST} Run it again."
        ) from error
    if summary.problems:
        raise VerifyFailed(f"{build}: {some(summary.problems, limit=3)} {NOTHING_LOST}")
    return StagedBatch(
        partition, folder, summary.rows, summary.size, summary.files, bounds=summary.bounds, seal=summary.seal
    )


def strays_of(build: Build, fitted: DataFrame) -> list[str]:
    """Up to four partitions that have rows in the frame and do not belong to the build."""
    names = build.dataset.partitioning.names
    strays = fitted.where(~in_partitions(build.partitions)).select(*names).distinct().limit(4).collect()
    return ["/".join(f"{name}={row[name]}" for name in names) for row in strays]


def outside_message(build: Build, outside: int, rows: int, strays: Sequence[str]) -> str:
    """What is said of rows that lie outside of the partitions of the build."""
    return (
        f"{build}: {outside} of {rows} rows lie outside the partitions of this run "
        f"({some(build.partitions, limit=3)}); they belong to {', '.join(strays)}. {NOTHING_LOST} "
        "Filter the frame to its partitions, or run those too."
    )
