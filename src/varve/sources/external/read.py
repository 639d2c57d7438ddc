"""A build's read of a table of others, of whichever kind.

Not here: what every kind can be asked (tables.py), and how each answers (hive.py, postgres.py, jdbc.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.batch import Input
from varve.model.errors import NOTHING_LOST, BadInput, MissingUpstream, some
from varve.model.external import OutsideKind, OutsideTable
from varve.planning.run_requests import landing_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings
    from varve.sources.external.tables import ListedPartition, Outside
    from varve.stores.open_build import OpenBuild

# So often rows are fetched anew that have changed meanwhile.
_TRIES = 3


def open_outside(settings: Settings, table: OutsideTable, spark: Callable[[], SparkSession]) -> Outside:
    """The table, of whichever kind. `spark` opens the session when it is first needed."""
    from varve.sources.external.hive import HiveTable
    from varve.sources.external.jdbc import JdbcTable
    from varve.sources.external.postgres import PostgresTable

    if table.kind is OutsideKind.TABLE:
        return HiveTable(table, spark, settings.hive_metastore_uri)
    return PostgresTable(table, spark) if table.kind is OutsideKind.POSTGRES else JdbcTable(table, spark)


def read(opened: OpenBuild, settings: Settings, spark: Callable[[], SparkSession]) -> DataFrame:
    """The rows of the build's partitions, recorded in its trace: as they were listed, or the build is refused.

    Raises MissingUpstream for partitions that the table has not, BadInput where they change all the time.
    """
    build = opened.build
    table = build.dataset.outside
    assert table is not None
    source = open_outside(settings, table, spark)
    for _ in range(_TRIES):
        found = source.listed(build.dataset, build.partitions).partitions
        if missing := [key for key in build.partitions if key not in found]:
            raise MissingUpstream(
                f"{build.dataset}: {table} has no partition {some(missing, limit=3)}. {NOTHING_LOST} "
                "Wait for it to be written, or choose a partition that is there."
            )
        rows = source.read(build.dataset, build.partitions)
        if not rows.here:
            # Spark reads when it writes: what matters is what is there after that.
            opened.pre_publish_checks.append(lambda found=found: _refuse_changed(build, table, source, found))  # type: ignore[misc]
        elif _changed(build, source, found):
            continue
        for key in build.partitions:
            build.reads(key, Input(landing_source(build.dataset), key.path, found[key].token))
        return rows.frame
    raise _restless(build, table, build.partitions)


def _refuse_changed(
    build: Build, table: OutsideTable, source: Outside, before: Mapping[PartitionKey, ListedPartition]
) -> None:
    if changed := _changed(build, source, before):
        raise _restless(build, table, changed)


def _changed(build: Build, source: Outside, before: Mapping[PartitionKey, ListedPartition]) -> list[PartitionKey]:
    now = source.listed(build.dataset, build.partitions).partitions
    return [key for key in build.partitions if key not in now or now[key].token != before[key].token]


def _restless(build: Build, table: OutsideTable, changed: Sequence[PartitionKey]) -> BadInput:
    return BadInput(
        f"{build.dataset}: {some(changed, limit=3)} of {table} changed while it was read. {NOTHING_LOST} "
        "Run it again; the arrival sensor does so by itself."
    )
