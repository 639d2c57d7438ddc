"""Writing batches: one Spark job for any number of partitions, then what really lies there.

Appends of two jobs into one table root lose files silently (10 of 52 jobs, measured: Spark's committer shares
`_temporary`). So one partition is written with its own batch folder as the job's root, and many in dynamic overwrite
mode, which stages each job privately (0 of 75).

Not here: the catalog, and which batch is current.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fsspec

from pipeline_defs.model.batch import StagedBatch
from pipeline_defs.model.errors import NOTHING_LOST, BadInput, VerifyFailed, some
from resources.frames import arrow_schema, conform, in_partitions
from resources.lake import manifest
from resources.lake.layout import BATCH_COLUMN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from pipeline_defs.model.partition import PartitionKey
    from resources.lake.layout import Layout
    from resources.store import Build

# The empty, typed file of a partition without rows: Spark writes no folder for one in a partitioned write.
EMPTY_FILE = "part-00000-empty.parquet"
_FOOTER_THREADS = 8


@dataclass(frozen=True, slots=True)
class Written:
    """What a job reported: the rows it wrote, over all partitions."""

    rows: int


def write_batches(layout: Layout, build: Build, frame: DataFrame) -> Written:
    """Run the one Spark job that computes the frame and writes every partition's batch folder.

    Raises BadInput where columns do not fit or rows lie outside the build's partitions; then nothing points at what
    was written.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    names = build.dataset.partitioning.names
    inside = in_partitions(build.partitions)
    seen = Observation("varve")
    fitted = conform(build, frame)
    observed = fitted.observe(seen, F.count(F.lit(1)).alias("rows"), F.count_if(~inside).alias("outside"))
    if len(build.partitions) == 1:
        (only,) = build.partitions
        writer = observed.drop(*names).write.mode("error")
        target = layout.batch(build.dataset, only, build.batch_id)
    else:
        writer = (
            observed.withColumn(BATCH_COLUMN, F.lit(build.batch_id.millis))
            # Each partition's rows to few tasks, or every task would write a file into every partition.
            .hint("rebalance", *names)
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy(*names, BATCH_COLUMN)
        )
        target = layout.table(build.dataset)
    writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(target)
    found = seen.get
    if found["outside"]:
        raise BadInput(_outside(build, fitted, found["outside"], found["rows"]))
    return Written(rows=found["rows"])


def survey(layout: Layout, build: Build) -> list[StagedBatch]:
    """What lies in each partition's batch folder, by its parquet footers; empty partitions get their typed file."""
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        return list(pool.map(lambda partition: _survey_one(layout, build, partition), build.partitions))


def verify_rows(build: Build, staged: Sequence[StagedBatch], expected_rows: int) -> None:
    """Compare the rows of the footers with those that Spark has counted. Raises VerifyFailed."""
    found = sum(batch.rows for batch in staged)
    missing = set(build.partitions) - {batch.partition for batch in staged}
    if found != expected_rows or missing:
        without = f" {len(missing)} partitions have no files: {some(sorted(missing))}." if missing else ""
        raise VerifyFailed(
            f"{build}: Spark wrote {expected_rows} rows, the files hold {found}.{without} {NOTHING_LOST} "
            "Run it again; if this repeats, the file system under the lake loses writes."
        )


def write_manifests(layout: Layout, build: Build, staged: Sequence[StagedBatch]) -> None:
    """Put each batch's description into its folder, so that a lost catalog can be rebuilt from storage."""
    files, _ = fsspec.core.url_to_fs(layout.root)
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        list(pool.map(lambda batch: manifest.write(files, manifest.of(build, batch)), staged))


def remove_batches(layout: Layout, build: Build) -> None:
    """Remove the batch folders of a failed build, as far as they are there."""
    files, _ = fsspec.core.url_to_fs(layout.root)
    for partition in build.partitions:
        folder = layout.batch(build.dataset, partition, build.batch_id)
        if files.exists(folder):
            files.rm(folder, recursive=True)


def footer_rows(files: Any, name: str) -> int:
    """The rows of a parquet file by its footer. Raises OSError or ValueError where it has no whole one."""
    import pyarrow.parquet as pq

    with files.open(name, "rb") as file:
        return int(pq.read_metadata(file).num_rows)


def _survey_one(layout: Layout, build: Build, partition: PartitionKey) -> StagedBatch:
    import pyarrow.parquet as pq

    folder = layout.batch(build.dataset, partition, build.batch_id)
    files, _ = fsspec.core.url_to_fs(folder)
    data = data_files(files, folder)
    if not data:
        files.makedirs(folder, exist_ok=True)
        with files.open(f"{folder}/{EMPTY_FILE}", "wb") as file:
            pq.write_table(arrow_schema(build.dataset.schema.columns).empty_table(), file)
        data = data_files(files, folder)
    rows = sum(footer_rows(files, entry["name"]) for entry in data)
    return StagedBatch(partition, folder, rows, sum(entry["size"] for entry in data), len(data))


def data_files(files: Any, folder: str) -> list[dict[str, Any]]:
    """The parquet files of a batch folder, with their sizes; none where there is no folder."""
    if not files.exists(folder):
        return []
    return [entry for entry in files.ls(folder, detail=True, refresh=True) if entry["name"].endswith(".parquet")]


def _outside(build: Build, fitted: DataFrame, outside: int, rows: int) -> str:
    names = build.dataset.partitioning.names
    strays = fitted.where(~in_partitions(build.partitions)).select(*names).distinct().limit(4).collect()
    listed = ", ".join("/".join(f"{name}={row[name]}" for name in names) for row in strays)
    return (
        f"{build}: {outside} of {rows} rows lie outside the partitions of this run "
        f"({some(build.partitions, limit=3)}); they belong to {listed}. {NOTHING_LOST} "
        "Filter the frame to its partitions, or run those too."
    )
