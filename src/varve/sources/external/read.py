"""Reading an external table of any kind for a build.

Not here: the interface of all kinds (tables.py), and each kind (hive.py, postgres.py, jdbc.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.batch import Input
from varve.model.errors import NOTHING_LOST, BadInput, MissingUpstream, some
from varve.model.external import ExternalTable, ExternalTableKind
from varve.planning.run_requests import landing_source
from varve.sources.external.tables import Rows
from varve.stores.views.store import LISTING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings
    from varve.sources.external.tables import ExternalSource, ListedPartition
    from varve.stores.open_build import OpenBuild

# How often rows are fetched again where they have changed meanwhile.
_TRIES = 3


def open_external_table(settings: Settings, table: ExternalTable, spark: Callable[[], SparkSession]) -> ExternalSource:
    """The source for an external table of any kind. `spark` opens the session when it is first needed."""
    from varve.sources.external.hive import HiveTable
    from varve.sources.external.jdbc import JdbcTable
    from varve.sources.external.parquet import ParquetFolder
    from varve.sources.external.postgres import PostgresTable

    if table.kind is ExternalTableKind.TABLE:
        return HiveTable(table, spark, settings.hive_metastore_uri)
    if table.kind is ExternalTableKind.PARQUET:
        return ParquetFolder(table, spark)
    return PostgresTable(table, spark) if table.kind is ExternalTableKind.POSTGRES else JdbcTable(table, spark)


def read(opened: OpenBuild, settings: Settings, spark: Callable[[], SparkSession]) -> DataFrame:
    """The rows of the build's partitions, recorded in its trace. The build is refused where they change after listing.

    Where the dataset reads the files of others where they are, it is their listing in the place of rows.

    Raises MissingUpstream for partitions that the table does not have, BadInput where they change all the time.
    """
    build = opened.build
    table = build.dataset.external
    assert table is not None
    source = open_external_table(settings, table, spark)
    for _ in range(_TRIES):
        listed = source.listed(build.dataset, build.partitions).partitions
        if missing := [key for key in build.partitions if key not in listed]:
            raise MissingUpstream(
                f"{build.dataset}: {table} has no partition {some(missing, limit=3)}. {NOTHING_LOST} "
                "Wait for it to be written, or choose a partition that is there."
            )
        if build.dataset.is_view:
            rows = Rows(listing_frame(spark(), listed), here=False)
        else:
            rows = source.read(build.dataset, build.partitions)
        if not rows.here:
            # Spark reads when the batch is written: so the partitions are compared again after that.
            opened.pre_publish_checks.append(lambda listed=listed: _refuse_changed(build, table, source, listed))  # type: ignore[misc]
        elif _changed(build, source, listed):
            continue
        for key in build.partitions:
            build.reads(key, Input(landing_source(build.dataset), key.path, listed[key].token))
        return rows.frame
    raise _changing_error(build, table, build.partitions)


def listing_frame(spark: SparkSession, listed: Mapping[PartitionKey, ListedPartition]) -> DataFrame:
    """The files of partitions, as `ViewStore.stage` takes them; a folder without files has a row without a file."""
    folders = [(key.path, folder, files) for key, entry in listed.items() for folder, files in entry.folders.items()]
    rows = [
        *((path, folder, None, None, None) for path, folder, _ in folders),
        *((path, folder, file.inside, file.size, file.changed) for path, folder, files in folders for file in files),
    ]
    return spark.createDataFrame(rows, LISTING)


def _refuse_changed(
    build: Build, table: ExternalTable, source: ExternalSource, before: Mapping[PartitionKey, ListedPartition]
) -> None:
    if changed := _changed(build, source, before):
        raise _changing_error(build, table, changed)


def _changed(
    build: Build, source: ExternalSource, before: Mapping[PartitionKey, ListedPartition]
) -> list[PartitionKey]:
    now = source.listed(build.dataset, build.partitions).partitions
    return [key for key in build.partitions if key not in now or now[key].token != before[key].token]


def _changing_error(build: Build, table: ExternalTable, changed: Sequence[PartitionKey]) -> BadInput:
    return BadInput(
        f"{build.dataset}: {some(changed, limit=3)} of {table} changed while it was read. {NOTHING_LOST} "
        "Run it again; the arrival sensor does so by itself."
    )
