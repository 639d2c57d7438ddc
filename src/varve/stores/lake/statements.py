"""The statements of Spark SQL that make a lake table and its partitions.

Not here: how they are executed (executing.py), and when (projection.py, views.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.partitions.key import WHOLE, parse_path
from varve.services.jvm.class_path import METASTORE
from varve.stores.frames import spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.schema import Column

_NO_BATCH = "_no_batch"


def table_name(dataset: Dataset) -> str:
    """The name under which readers find the dataset, quoted."""
    return f"`{dataset.db}`.`{dataset.table}`"


def create_database_sql(dataset: Dataset) -> str:
    """Create the database where it is missing."""
    return f"CREATE DATABASE IF NOT EXISTS `{dataset.db}`"


def create_table_sql(dataset: Dataset, root: str) -> str:
    """Create an external table over the dataset's folder. It shows nothing until partitions are added.

    A table without partitions lies at a folder without files, until it is pointed at a batch.
    """
    columns = ", ".join(
        f"`{column.name}` {column.type} COMMENT {_literal(column.comment)}" for column in dataset.schema.columns
    )
    if not dataset.partitioning.dimensions:
        return (
            f"CREATE TABLE IF NOT EXISTS {table_name(dataset)} ({columns}) USING parquet "
            f"LOCATION {_literal(no_batch(root))} COMMENT {_literal(dataset.comment)}"
        )
    return (
        f"CREATE TABLE IF NOT EXISTS {table_name(dataset)} ({columns}, {spark_schema(dataset.partition_columns)}) "
        f"USING parquet PARTITIONED BY ({', '.join(f'`{name}`' for name in dataset.partitioning.names)}) "
        f"LOCATION {_literal(root)} COMMENT {_literal(dataset.comment)}"
    )


def add_columns_sql(dataset: Dataset, added: Iterable[Column]) -> str:
    """Add columns. In batches that do not have them, they are NULL."""
    columns = ", ".join(f"`{column.name}` {column.type} COMMENT {_literal(column.comment)}" for column in added)
    return f"ALTER TABLE {table_name(dataset)} ADD COLUMNS ({columns})"


def add_partitions_sql(dataset: Dataset, batches: Iterable[Batch], *, if_not_exists: bool = False) -> str:
    """Add partitions, each at the folder of its batch."""
    clauses = " ".join(f"{partition_clause(batch.partition)}LOCATION {_literal(batch.location)}" for batch in batches)
    return f"ALTER TABLE {table_name(dataset)} ADD {'IF NOT EXISTS ' if if_not_exists else ''}{clauses}"


def set_location_sql(dataset: Dataset, batch: Batch) -> str:
    """Point an existing partition, or a table without partitions, at the folder of another batch."""
    return (
        f"ALTER TABLE {table_name(dataset)} {partition_clause(batch.partition)}SET LOCATION {_literal(batch.location)}"
    )


def move_partitions_sql(dataset: Dataset, batches: Iterable[Batch]) -> str:
    """Point partitions that exist at their batches, by a procedure of services/jvm/source."""
    keys, locations = [], []
    for batch in batches:
        texts = (text for pair in parse_path(batch.partition) for text in pair)
        keys.append(f"MAP({', '.join(map(_literal, texts))})")
        locations.append(_literal(batch.location))
    table = f"{_literal(dataset.db)}, {_literal(dataset.table)}"
    return f"CALL {METASTORE}.move({table}, ARRAY({', '.join(keys)}), ARRAY({', '.join(locations)}))"


def execute_sql(texts: Iterable[str]) -> str:
    """Execute statements one after another, by a procedure of services/jvm/source."""
    return f"CALL {METASTORE}.execute(ARRAY({', '.join(map(_literal, texts))}))"


def no_batch(root: str) -> str:
    """Where a table without partitions lies as long as it has no batch: a folder that stays empty."""
    return f"{root}/{WHOLE}/{_NO_BATCH}"


def is_no_batch(location: str) -> bool:
    """Whether a table without partitions lies where it has no batch."""
    return location.endswith(f"/{_NO_BATCH}")


def clear_location_sql(dataset: Dataset, root: str) -> str:
    """Let a table without partitions show nothing."""
    return f"ALTER TABLE {table_name(dataset)} SET LOCATION {_literal(no_batch(root))}"


def drop_partition_sql(dataset: Dataset, path: str) -> str:
    """Remove a partition from the table. Its files stay, because the table is external."""
    return f"ALTER TABLE {table_name(dataset)} DROP IF EXISTS {partition_clause(path)}"


def partition_clause(path: str) -> str:
    """Name one partition of a table; empty for a table without partitions."""
    # Values are texts: the dataset's dimensions may not have the partition any more, which is then dropped.
    values = parse_path(path)
    return f"PARTITION ({', '.join(f'`{name}`={_literal(text)}' for name, text in values)}) " if values else ""


def _literal(text: str) -> str:
    return exp.Literal.string(text).sql(dialect="spark")
