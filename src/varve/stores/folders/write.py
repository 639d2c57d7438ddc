"""Writing batches: one Spark job for any number of partitions, then what really lies there.

Appends of two jobs into one table root lose files silently (10 of 52 jobs, measured: Spark's committer shares
`_temporary`). So one partition is written with its own batch folder as the job's root, and many in dynamic overwrite
mode, which stages each job privately (0 of 75).

Not here: the catalog, and which batch is current.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.batch import StagedBatch
from varve.model.errors import NOTHING_LOST, BadInput, VerifyFailed, some
from varve.services.files import open_files, renames_cheaply
from varve.stores.folders import content, footers, manifest
from varve.stores.folders.layout import BATCH_COLUMN
from varve.stores.frames import arrow_schema, conform, in_partitions, observed_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.stores.folders.layout import Layout

# The empty, typed file of a partition without rows: Spark writes no folder for one in a partitioned write.
EMPTY_FILE = "part-00000-empty.parquet"
_FOOTER_THREADS = 8
_NO_SUCCESS_FILE = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
# 2: a task moves its files to where they stay, and the job does not move them a second time. Where a rename is a copy
# that saves one of every byte. What it gives up, that a job which dies leaves nothing of some tasks, nobody needs here:
# no reader is shown the folder before its rows are counted.
_COMMIT = "mapreduce.fileoutputcommitter.algorithm.version"


@dataclass(frozen=True, slots=True)
class How:
    """How files are written, beyond what the dataset says.

    Attributes:
        codec: the compression, by Spark's name.
        max_rows: at most so many rows in a file.
        hashed: whether to hash the rows of a single partition as they pass.
    """

    codec: str = "zstd"
    max_rows: int | None = None
    hashed: bool = False


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What a job reported: the rows it wrote, wherever they belong, and the hash of a single partition's.

    Attributes:
        frame: what it wrote, not computed yet another time.
    """

    rows: int
    frame: DataFrame
    content: str | None = None


def write_batches(layout: Layout, build: Build, frame: DataFrame, how: How | None = None) -> WriteReport:
    """Run the one Spark job that computes the frame and writes every partition's batch folder.

    Raises BadInput where columns do not fit or rows lie outside the one partition of the build; where there are more,
    `verify_rows` does. Then nothing points at what was written.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    how = how or How()
    names, sort = build.dataset.partitioning.names, build.dataset.lake.sort
    single = len(build.partitions) == 1
    hashed = how.hashed and single and content.can_hash(build.dataset.schema.columns)
    seen = Observation("varve")
    fitted = conform(build, frame)
    observed = fitted.observe(
        seen,
        F.count(F.lit(1)).alias("rows"),
        # Rows of many partitions tell by their folders where they belong, and a look at each takes a tenth longer.
        *([F.count_if(~in_partitions(build.partitions)).alias("outside")] if single else ()),
        *(content.sums(build.dataset.schema.columns) if hashed else ()),
    )
    if single:
        (only,) = build.partitions
        target = layout.batch(build.dataset, only, build.batch_id)
        rows = observed.drop(*names)
        writer = (rows.sortWithinPartitions(*sort) if sort else rows).write.mode("error")
    else:
        target = layout.table(build.dataset)
        # Each partition's rows to few tasks, or every task would write a file into every partition.
        rows = observed.withColumn(BATCH_COLUMN, F.lit(build.batch_id.millis)).hint("rebalance", *names)
        writer = (
            # Spark needs the partitions' rows together; sorted so far, it does not sort once more.
            (rows.sortWithinPartitions(*names, BATCH_COLUMN, *sort) if sort else rows)
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy(*names, BATCH_COLUMN)
        )
    if how.max_rows is not None:
        writer = writer.option("maxRecordsPerFile", how.max_rows)
    if not renames_cheaply(layout.root):
        writer = writer.option(_COMMIT, "2")
    writer.options(**{"compression": how.codec, _NO_SUCCESS_FILE: "false"}).parquet(target)
    found = {"rows": 0, "outside": 0, **observed_by(seen)}
    if found["outside"]:
        raise BadInput(_outside(build, found["outside"], found["rows"], _strays(build, fitted)))
    return WriteReport(found["rows"], fitted, content.text(found["rows"], found) if hashed else None)


def survey(layout: Layout, build: Build) -> list[StagedBatch]:
    """What lies in each partition's batch folder, by its parquet footers; empty partitions get their typed file.

    Raises VerifyFailed where a file is not whole or has other columns than declared.
    """
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        return list(pool.map(lambda partition: _survey_one(layout, build, partition), build.partitions))


def verify_rows(build: Build, staged: Sequence[StagedBatch], written: WriteReport) -> None:
    """Compare the rows of the footers with those that Spark has counted. Raises BadInput and VerifyFailed."""
    found = sum(batch.rows for batch in staged)
    missing = set(build.partitions) - {batch.partition for batch in staged}
    if found == written.rows and not missing:
        return
    if found < written.rows and (strays := _strays(build, written.frame)):
        raise BadInput(_outside(build, written.rows - found, written.rows, strays))
    without = f" {len(missing)} partitions have no files: {some(sorted(missing))}." if missing else ""
    raise VerifyFailed(
        f"{build}: Spark wrote {written.rows} rows, the files hold {found}.{without} {NOTHING_LOST} "
        "Run it again; if this repeats, the file system under the lake loses writes."
    )


def write_manifests(layout: Layout, build: Build, staged: Sequence[StagedBatch]) -> None:
    """Put each batch's description into its folder, so that a lost catalog can be rebuilt from storage."""
    files, _ = open_files(layout.root)
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        list(pool.map(lambda batch: manifest.write(files, manifest.of(build, batch)), staged))


def remove_batches(layout: Layout, build: Build) -> None:
    """Remove the batch folders of a failed build, as far as they are there."""
    files, _ = open_files(layout.root)
    for partition in build.partitions:
        folder = layout.batch(build.dataset, partition, build.batch_id)
        if files.exists(folder):
            files.rm(folder, recursive=True)


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
        found = footers.survey(files, data, build.dataset.schema.columns, bounds=build.dataset.lake.bounds)
    except ValueError as error:
        raise VerifyFailed(
            f"{build}: a file of {partition} in {folder} is not whole: {error}. {NOTHING_LOST} Run it again."
        ) from error
    if found.problems:
        raise VerifyFailed(f"{build}: {some(found.problems, limit=3)} {NOTHING_LOST}")
    return StagedBatch(partition, folder, found.rows, found.size, found.files, bounds=found.bounds, seal=found.seal)


def _strays(build: Build, fitted: DataFrame) -> list[str]:
    """Some partitions that are none of the build's, and that the frame has rows of."""
    names = build.dataset.partitioning.names
    strays = fitted.where(~in_partitions(build.partitions)).select(*names).distinct().limit(4).collect()
    return ["/".join(f"{name}={row[name]}" for name in names) for row in strays]


def _outside(build: Build, outside: int, rows: int, strays: Sequence[str]) -> str:
    return (
        f"{build}: {outside} of {rows} rows lie outside the partitions of this run "
        f"({some(build.partitions, limit=3)}); they belong to {', '.join(strays)}. {NOTHING_LOST} "
        "Filter the frame to its partitions, or run those too."
    )
