"""The scopes of a run as a table of its query, with a row for each, or for each value that a scope reads.

Not here: where it stands in the query (scope_join.py), and what a scope reads (partitions/read_values.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.sql.partitions.read_values import ReadValues
    from varve.sql.partitions.scopes import Scope, Scopes
    from varve.sql.spark.scope_join import ScopeNames


def scope_table(
    spark: SparkSession,
    scopes: Scopes,
    partition_scopes: Sequence[Scope],
    names: ScopeNames,
    read: ReadValues | None = None,
) -> DataFrame:
    """Return the scopes as a table with a typed column for each variable and each partition column.

    With `read`, there is a row for each of the values that a scope reads, in further columns.
    """
    types = scopes.types
    kinds = {column.name: column.type for column in scopes.dataset.partition_columns}
    columns = [
        *((names.column(name), kind) for name, kind in types.items()),
        *zip(names.keys, (kinds[name] for name in scopes.partitioning.names), strict=True),
        *((names.read(name), kind) for name, kind in (read.types.items() if read else ())),
    ]
    rows = []
    for place, scope in enumerate(partition_scopes):
        values = scopes.partition_values(scope.partition)
        row = [
            *(scope.values[name].value for name in types),
            *(values[name].value for name in scopes.partitioning.names),
        ]
        rows += [(*row, *combination) for combination in (read.by_scope[place] if read else [()])]
    return spark.createDataFrame(rows, ", ".join(f"`{name}` {kind}" for name, kind in columns))


def fitting(read: Mapping[str, ReadValues], inputs: Mapping[str, DataFrame]) -> dict[str, ReadValues]:
    """Return what is read of those inputs whose columns have the types of these values."""
    return {
        dataset: values
        for dataset, values in read.items()
        if dataset in inputs and values.types.items() <= dict(inputs[dataset].dtypes).items()
    }
