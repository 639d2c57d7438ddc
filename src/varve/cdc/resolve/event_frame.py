"""Events as rows: their columns in Arrow, parquet and Spark.

Not here: the meaning of the columns (varve/cdc/event.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from varve.cdc.event import ChangeEvent

EVENT_DDL = (
    "changeType STRING, timestamp STRING, columnNames ARRAY<STRING>, columnValues ARRAY<STRING>, "
    "oldKeyNames ARRAY<STRING>, oldKeyValues ARRAY<STRING>, relation STRING, commitLsn BIGINT, seq BIGINT, xid BIGINT, "
    "oldNames ARRAY<STRING>, oldValues ARRAY<STRING>, schemaVersion INT"
)


def arrow_schema() -> pa.Schema:
    """The columns of a file of events."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    return pa.schema(
        [
            ("changeType", pa.string()),
            ("timestamp", pa.string()),
            ("columnNames", texts),
            ("columnValues", texts),
            ("oldKeyNames", texts),
            ("oldKeyValues", texts),
            ("relation", pa.string()),
            ("commitLsn", pa.int64()),
            ("seq", pa.int64()),
            ("xid", pa.int64()),
            ("oldNames", texts),
            ("oldValues", texts),
            ("schemaVersion", pa.int32()),
        ]
    )


def arrow_table(events: Iterable[ChangeEvent]) -> pa.Table:
    """The events as rows, in their order."""
    import pyarrow as pa

    rows = [
        (
            str(change.change_type), change.timestamp, change.column_names, change.column_values, change.old_key_names,
            change.old_key_values, change.relation, change.commit_lsn, change.seq, change.xid, change.old_names,
            change.old_values, change.schema_version,
        )
        for change in events
    ]  # fmt: skip
    schema = arrow_schema()
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def event_frame(spark: SparkSession, events: Iterable[ChangeEvent]) -> DataFrame:
    """The events as a Spark frame."""
    return spark.createDataFrame(arrow_table(events), EVENT_DDL)


def with_time(events: DataFrame, name: str) -> DataFrame:
    """The events, of which each insert and update also sends the time of its commit, as a column of this name.

    It is put before the others, as a column of the source may have the name too; the first one counts. Old rows do not
    have it.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names, values = F.col("columnNames"), F.col("columnValues")
    # What was set aside by an earlier batch has it already.
    lacks = F.col("changeType").isin("insert", "update") & ~F.get(names, F.lit(0)).eqNullSafe(name)
    return events.withColumns(
        {
            "columnNames": F.when(lacks, F.concat(F.array(F.lit(name)), names)).otherwise(names),
            "columnValues": F.when(lacks, F.concat(F.array("timestamp"), values)).otherwise(values),
        }
    )
