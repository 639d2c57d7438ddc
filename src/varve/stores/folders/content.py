"""A hash of the rows of a batch that does not depend on their order, files or partitions: equal hashes, equal rows.

It is the sum of a 64-bit hash of each row: a sum does not depend on the order, and counts equal rows. It recognises a
rerun with the same rows; it is no protection against forgery. -0.0 and 0.0 are different values here: Spark compares
them as equal, but what is computed from them differs (`1 / x`, a text), and after an equal hash nothing downstream runs
again. All NaN are one value, as they are in Spark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from varve.model.batch import Hashes
from varve.model.schema import ColumnType, Kind, column_set
from varve.stores.folders.hash_text import content_of
from varve.stores.frames import partition_texts, texts_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from varve.model.build import Build
    from varve.model.schema import Column

_LOW, _HIGH = "content_low", "content_high"
_HALF = 0xFFFF_FFFF
# More sets of columns than this are not hashed: readers of the others are due whatever has changed.
_MOST_SETS = 8


def can_hash(columns: Sequence[Column]) -> bool:
    """Whether Spark hashes all of these types: it does not hash maps, whose entries have no order."""
    return not any(_holds_map(column.type) for column in columns)


def sums(columns: Sequence[Column], of: str = "") -> list[SparkColumn]:
    """The aggregates from which `text` makes the hash. On overflow they are NULL, not an error.

    `of` ends their names, where there are several hashes of the same rows. Without columns, rows are only counted.
    """
    from pyspark.sql import functions as F  # noqa: N812

    words = ", ".join(word for column in columns for word in _words(column)) or "0"
    row = f"xxhash64({words})"
    if signs := [_sign(column) for column in columns if _holds_float(column.type)]:
        # Spark hashes -0.0 as 0.0. Rows without -0.0 keep the hash without this addition.
        has_signed_zero = " or ".join(f"coalesce({expression}, false)" for expression, _ in signs)
        row = f"if({has_signed_zero}, xxhash64({words}, {', '.join(word for _, word in signs)}), {row})"
    return [
        F.expr(f"try_sum({row} & {_HALF}) as {_LOW}{of}"),
        F.expr(f"try_sum(shiftrightunsigned({row}, 32)) as {_HIGH}{of}"),
    ]


def sums_of_sets(build: Build) -> list[SparkColumn]:
    """The aggregates from which `digests` makes the hashes of the columns that readers read."""
    return [total for of, columns in _sets(build) if of for total in sums(columns, of)]


def digests(build: Build, rows: int, totals: Mapping[str, Any]) -> dict[str, str]:
    """For each set of columns that a reader reads, the hash of the rows in these columns together.

    A hash for each column alone would not do: two columns may be paired in another way, row by row, and each still
    holds the same values.
    """
    hashes = {column_set(columns): text(rows, totals, of) for of, columns in _sets(build)}
    return {name: digest for name, digest in hashes.items() if digest is not None}


def set_names(build: Build) -> list[str]:
    """The names of the sets of columns by which the rows of a build are hashed: the keys of `digests`."""
    return [column_set(columns) for _, columns in _sets(build)]


def _sets(build: Build) -> list[tuple[str, list[Column]]]:
    """The sets that Spark can hash, with how the names of their sums end.

    Each is in order of names: how the dataset orders its columns changes nothing. Of all columns, where they are
    declared in that order, the sums are those of the whole rows, and end with "".
    """
    in_order = [sorted(columns, key=lambda column: column.name) for columns in build.column_sets]
    whole = list(build.dataset.schema.columns)
    others = [columns for columns in in_order if columns != whole][:_MOST_SETS]
    named = [*([("", whole)] if whole in in_order else []), *((f"_{place}", set_) for place, set_ in enumerate(others))]
    return [(of, columns) for of, columns in named if can_hash(columns)]


def text(rows: int, totals: Mapping[str, Any], of: str = "") -> str | None:
    """The hash as text, without the columns of which it is; None where the sum has overflowed."""
    low, high = totals.get(f"{_LOW}{of}"), totals.get(f"{_HIGH}{of}")
    if rows and (low is None or high is None):
        return None
    return f"{rows}:{((low or 0) + ((high or 0) << 32)) % (1 << 64):016x}"


def of_whole(columns: Sequence[Column], rows: int, totals: Mapping[str, Any]) -> str | None:
    """The hash of whole rows of these columns as the catalog stores it; None where the sum has overflowed."""
    hashed = text(rows, totals)
    return None if hashed is None else content_of(hashed, columns)


def of_written(build: Build, frame: DataFrame) -> dict[str, Hashes]:
    """The hashes of each partition that was written, by its path. Reads the rows once more."""
    from pyspark.sql import functions as F  # noqa: N812

    names, columns = build.dataset.partitioning.names, build.dataset.schema.columns
    hashable = can_hash(columns)
    totals = [*(sums(columns) if hashable else ()), *sums_of_sets(build)]
    counted = frame.groupBy(*partition_texts(names)).agg(F.count(F.lit(1)).alias("rows"), *totals)
    by_text = {texts_of(key): key.path for key in build.partitions}
    of_none = Hashes(of_whole(columns, 0, {}) if hashable else None, digests(build, 0, {}))
    hashes = dict.fromkeys(by_text.values(), of_none)
    for row in counted.collect():
        # By place: a partition column may be called `rows`.
        values, rows = row.asDict(), row[len(names)]
        path = by_text[tuple(row[: len(names)])]
        hashes[path] = Hashes(of_whole(columns, rows, values) if hashable else None, digests(build, rows, values))
    return hashes


def of_batches(build: Build, frame: DataFrame, columns: Mapping[str, Collection[str]]) -> dict[str, Hashes]:
    """The hashes of earlier batches of partitions of the build, of which `frame` has the rows, by partition.

    `columns` are those that each batch really has, by partition. Where they are not the declared ones, the hash of
    whole rows is left out: a row that has lost a column would equal one that never had it.
    """
    earlier = [partition for partition in build.partitions if partition.path in columns]
    hashes = of_written(replace(build, partitions=tuple(earlier)), frame)
    declared = {column.name for column in build.dataset.schema.columns}
    return {
        path: hashes[path] if set(of_batch) - set(build.dataset.partitioning.names) == declared
        else hashes[path]._replace(content=None)
        for path, of_batch in columns.items()
    }  # fmt: skip


def _words(column: Column) -> list[str]:
    """What is hashed of a column: its value, and what Spark's hash of it does not tell.

    It ignores NULLs, so that (NULL, 'a') would have the hash of ('a', NULL), and knows no bounds within a value:
    [1, NULL] would have that of [1], and [[1], [2]] that of [[1, 2]]. A text with both tells them apart.
    """
    name = f"`{column.name}`"
    bounds = (
        [f"to_json(struct({name}), map('ignoreNullFields', 'false', 'timeZone', 'UTC'))"] if column.type.nested else []
    )
    return [name, f"{name} is null", *bounds]


def _sign(column: Column) -> tuple[str, str]:
    """Two expressions for a column: whether a value has a zero with a sign, and a value that tells which zeros have."""
    name = f"`{column.name}`"
    if column.type.nested:
        return f"contains(cast({name} as string), '-0.0')", f"cast({name} as string)"
    # Spark's functions of numbers treat -0.0 as 0.0. Its text differs, and is made only where there is a zero.
    negative = f"{name} = 0 and cast({name} as string) = '-0.0'"
    return negative, f"coalesce({negative}, false)"


def _holds_float(kind: ColumnType) -> bool:
    return kind.kind in {Kind.FLOAT, Kind.DOUBLE} or any(_holds_float(part) for _, part in kind.parts)


def _holds_map(kind: ColumnType) -> bool:
    return kind.kind is Kind.MAP or any(_holds_map(part) for _, part in kind.parts)
