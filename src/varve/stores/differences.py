"""What differs between two frames of one dataset: by row where rows have a key, else as multisets. Spark does the work.

Only counts and samples come to this process. Values are compared as Spark compares them: NULL is the same as NULL, NaN
as NaN, and -0.0 as 0.0.

Not here: which batches the frames are of (varve/cli/rows/sides.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError
from varve.model.schema import ColumnType, Kind
from varve.stores.frames import folded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from varve.model.dataset import Dataset
    from varve.model.schema import Column

ADDED, REMOVED, CHANGED, SAME = "added", "removed", "changed", "same"
_NUMBERS = {
    Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL,
}  # fmt: skip
_EXAMPLES = 3


class NotAKey(VarveError):
    """Rows of one partition have the same values in the columns that were to tell them apart."""


@dataclass(frozen=True)
class Distribution:
    """The values of a column on one side: how many are NULL, the lowest and highest, and of numbers the mean."""

    nulls: int
    low: Any
    high: Any
    mean: float | None


@dataclass(frozen=True)
class ChangedColumn:
    """A column in which rows of the same key differ; the distributions are None where nobody asked for them."""

    column: str
    rows: int
    before: Distribution | None = None
    after: Distribution | None = None


@dataclass(frozen=True)
class RowDifference:
    """A row that differs.

    Attributes:
        kind: `added`, `removed` or `changed`.
        before: its values on the older side; None where it is added.
        after: its values on the newer side; None where it is removed.
        times: how often it was added or removed; rows without a key may be equal.
    """

    kind: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    times: int = 1


@dataclass(frozen=True)
class Differences:
    """How two frames differ.

    Attributes:
        key: the columns that tell rows apart, partition columns first; empty where they were compared as multisets.
        counts: the number of rows by `added`, `removed`, `changed` and `same`; without a key no row is changed.
        columns: the columns in which rows of the same key differ, those with most rows first.
        sample: some of the rows that differ.
    """

    key: tuple[str, ...]
    counts: Mapping[str, int]
    columns: tuple[ChangedColumn, ...]
    sample: tuple[RowDifference, ...]


def by_key(
    dataset: Dataset, before: DataFrame, after: DataFrame, key: Sequence[str], limit: int, *, distributions: bool
) -> Differences:
    """Compare two frames row by row; rows belong together whose partition and key columns are equal.

    Raises NotAKey where a key comes more than once in a partition, VarveError for a column that the dataset has not.
    """
    from pyspark.sql import functions as F  # noqa: N812

    keys = _key_columns(dataset, key)
    for frame, side in ((before, "older"), (after, "newer")):
        _refuse_duplicates(dataset, frame, keys, side)
    names = [column.name for column in dataset.read_columns()]
    others = [column for column in dataset.read_columns() if column.name not in keys]
    old, new = (_prefixed(frame, names, prefix) for frame, prefix in ((before, "a"), (after, "b")))
    places = {name: place for place, name in enumerate(names)}
    same_key = [F.lit(True), *(F.col(f"a{places[name]}").eqNullSafe(F.col(f"b{places[name]}")) for name in keys)]  # noqa: FBT003
    differs = {
        column.name: ~_comparable(column, f"a{places[column.name]}").eqNullSafe(
            _comparable(column, f"b{places[column.name]}")
        )
        for column in others
    }
    either = folded(or_, [F.lit(False), *differs.values()])  # noqa: FBT003
    kind = F.when(F.col("a").isNull(), ADDED).when(F.col("b").isNull(), REMOVED).when(either, CHANGED).otherwise(SAME)
    joined = old.join(new, folded(and_, same_key), "full_outer").withColumn("kind", kind)
    changed = F.col("kind") == CHANGED
    counted = joined.agg(
        *[F.count_if(F.col("kind") == word).alias(word) for word in (ADDED, REMOVED, CHANGED, SAME)],
        *[F.count_if(changed & differs[name]).alias(f"c{places[name]}") for name in differs],
    ).collect()[0]
    counts = {word: int(counted[word]) for word in (ADDED, REMOVED, CHANGED, SAME)}
    rows_by_column = {name: int(counted[f"c{places[name]}"]) for name in differs}
    columns = [ChangedColumn(name, rows) for name, rows in rows_by_column.items() if rows]
    if distributions:
        declared = {column.name: column for column in others}
        declared_columns = [declared[column.column] for column in columns]
        sides = _distributions(before, declared_columns), _distributions(after, declared_columns)
        columns = [ChangedColumn(each.column, each.rows, *(side[each.column] for side in sides)) for each in columns]
    in_order = [F.coalesce(F.col(f"a{places[name]}"), F.col(f"b{places[name]}")) for name in _sortable(dataset, keys)]
    rows = joined.where(F.col("kind") != SAME).orderBy(*in_order).limit(limit) if limit else None
    sample = [
        RowDifference(
            row["kind"],
            None if row["a"] is None else {name: row[f"a{place}"] for name, place in places.items()},
            None if row["b"] is None else {name: row[f"b{place}"] for name, place in places.items()},
        )
        for row in (rows.toArrow().to_pylist() if rows is not None else [])
    ]
    ordered = tuple(sorted(columns, key=lambda column: (-column.rows, column.column)))
    return Differences(tuple(keys), counts, ordered, tuple(sample))


def as_multisets(dataset: Dataset, before: DataFrame, after: DataFrame, limit: int) -> Differences:
    """Compare two frames without a key: the rows that one has more often than the other (EXCEPT ALL, both ways)."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = dataset.read_columns()
    names = [column.name for column in columns]
    # Maps cannot be grouped by: their comparable forms are, and one of the equal rows stands for all of them.
    sides = [
        frame.select(
            F.struct(*[F.col(f"`{name}`") for name in names]).alias("row"),
            *[_comparable(column, f"`{column.name}`").alias(f"g{place}") for place, column in enumerate(columns)],
            F.lit(sign).alias("n"),
        )
        for frame, sign in ((before, 1), (after, -1))
    ]
    groups = [f"g{place}" for place in range(len(columns))]
    summed = sides[0].unionAll(sides[1]).groupBy(*groups).agg(
        F.sum("n").alias("n"), F.count(F.lit(1)).alias("rows"), F.first("row").alias("row")
    )  # fmt: skip
    n = F.col("n")
    counted = summed.agg(
        F.sum(F.when(n < 0, -n).otherwise(0)).alias(ADDED),
        F.sum(F.when(n > 0, n).otherwise(0)).alias(REMOVED),
        F.sum((F.col("rows") - F.abs(n)) / 2).cast("bigint").alias(SAME),
    ).collect()[0]
    counts = {word: int(counted[word] or 0) for word in (ADDED, REMOVED, SAME)} | {CHANGED: 0}
    sortable = [f"g{names.index(name)}" for name in _sortable(dataset, names)]
    rows = (
        summed.where(n != 0).orderBy(*sortable).select("n", "row").limit(limit).toArrow().to_pylist() if limit else []
    )
    sample = [
        RowDifference(REMOVED, row["row"], None, row["n"])
        if row["n"] > 0
        else RowDifference(ADDED, None, row["row"], -row["n"])
        for row in rows
    ]
    return Differences((), counts, (), tuple(sample))


def _key_columns(dataset: Dataset, key: Sequence[str]) -> list[str]:
    names = {column.name.lower(): column.name for column in dataset.read_columns()}
    if unknown := [name for name in key if name.lower() not in names]:
        raise VarveError(f"{dataset} has no column {', '.join(unknown)}; it has {', '.join(names.values())}.")
    return list(dict.fromkeys([*dataset.partitioning.names, *(names[name.lower()] for name in key)]))


def _refuse_duplicates(dataset: Dataset, frame: DataFrame, keys: Sequence[str], side: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    grouped = frame.groupBy(*[F.col(f"`{name}`") for name in keys]).agg(F.count(F.lit(1)).alias("count(*)"))
    # As many as are shown and one more: whether there are others too.
    repeated_keys = grouped.where(F.col("count(*)") > 1).limit(_EXAMPLES + 1).toArrow().to_pylist()
    if repeated_keys:
        examples = "; ".join(
            f"{', '.join(f'{name}={row[name]}' for name in keys)} is in {row['count(*)']} rows"
            for row in repeated_keys[:_EXAMPLES]
        )
        more = "; and there are more" if len(repeated_keys) > _EXAMPLES else ""
        raise NotAKey(
            f"{dataset}: {', '.join(keys)} is no key, as on the {side} side {examples}{more}. Name more columns "
            "(--key), or none, to compare the rows as they are."
        )


def _prefixed(frame: DataFrame, names: Sequence[str], prefix: str) -> DataFrame:
    """The frame with columns a0, a1, ... and a column `a` that says that the row is there."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = [F.col(f"`{name}`").alias(f"{prefix}{place}") for place, name in enumerate(names)]
    return frame.select(F.lit(True).alias(prefix), *columns)  # noqa: FBT003


def _comparable(column: Column, name: str) -> SparkColumn:
    """The values in a form that Spark compares: maps as their sorted entries, what holds maps as its JSON."""
    from pyspark.sql import functions as F  # noqa: N812

    if not _holds_map(column.type):
        return F.col(name)
    if not any(_holds_map(part) for _, part in column.type.parts):
        return F.array_sort(F.map_entries(F.col(name)))
    return F.to_json(F.struct(F.col(name).alias("value")))


def _sortable(dataset: Dataset, names: Sequence[str]) -> Iterator[str]:
    """Those of the columns by which rows can be put in order."""
    kinds = {column.name: column.type for column in dataset.read_columns()}
    yield from (name for name in names if not _holds_map(kinds[name]))


def _distributions(frame: DataFrame, columns: Sequence[Column]) -> dict[str, Distribution]:
    from pyspark.sql import functions as F  # noqa: N812

    if not columns:
        return {}
    items = []
    for place, column in enumerate(columns):
        value = F.col(f"`{column.name}`")
        items.append(F.count_if(value.isNull()).alias(f"nulls{place}"))
        if not column.type.nested and column.type.kind is not Kind.BINARY:
            items += [F.min(value).alias(f"low{place}"), F.max(value).alias(f"high{place}")]
        if column.type.kind in _NUMBERS:
            items.append(F.avg(value.cast("double")).alias(f"mean{place}"))
    (row,) = frame.agg(*items).toArrow().to_pylist()
    return {
        column.name: Distribution(
            row[f"nulls{place}"], row.get(f"low{place}"), row.get(f"high{place}"), row.get(f"mean{place}")
        )
        for place, column in enumerate(columns)
    }


def _holds_map(kind: ColumnType) -> bool:
    return kind.kind is Kind.MAP or any(_holds_map(part) for _, part in kind.parts)
