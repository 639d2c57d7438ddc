"""Takes a few rows of each input of a partition that matter and join, the same ones each time; and masks columns.

Not here: reading the current batches (varve/cli/tests/writing.py), and writing the file (written.py).
"""

from __future__ import annotations

from operator import and_, or_
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError, nearest
from varve.stores.frames import folded
from varve.testing.sampling.masks import masked

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from varve.testing.cases.targets import Target
    from varve.testing.sampling.relevance import Relevance

    RowsByDataset = dict[str, list[dict[str, Any]]]


def sampled(frames: Mapping[str, DataFrame], relevance: Relevance, count: int) -> RowsByDataset:
    """Return at most `count` rows of each input, by the name of its dataset.

    The first input gives rows that matter to the partition; of the others those are taken that join to rows which were
    taken before, where there are some. Which ones is decided by a hash of each row: it is the same each time, and has
    nothing to do with the order in which the rows lie.
    """
    taken: RowsByDataset = {}
    for name, frame in frames.items():
        relevant = _relevant(frame, relevance.conditions.get(name))
        rows: list[dict[str, Any]] = []
        if (joined := _joined(relevant, name, relevance, taken)) is not None:
            rows = _first(joined, count)
        taken[name] = rows or _first(relevant, count)
    return taken


def columns_to_mask(target: Target, words: Sequence[str]) -> dict[str, set[str]]:
    """Return which columns of which inputs are masked: `column` in every input that has it, `db.table.column` in one.

    Raises VarveError for a column that no input has, and for a partition column, which decides where a row lies.
    """
    chosen: dict[str, set[str]] = {name: set() for name in target.upstreams}
    for word in words:
        table, _, column = word.rpartition(".")
        if table and table not in chosen:
            raise VarveError(
                f"--mask {word}: {target.dataset} does not read {table}, but {', '.join(chosen)}."
                f"{nearest(table, chosen)}"
            )
        is_column = False
        for name, upstream in target.upstreams.items():
            if table and name != table:
                continue
            if column in upstream.dataset.partitioning.names:
                raise VarveError(f"--mask {word}: it is a partition column of {name}, which decides where a row lies.")
            if column in upstream.dataset.schema.names:
                chosen[name].add(column)
                is_column = True
        if not is_column:
            names = sorted({name for upstream in target.upstreams.values() for name in upstream.dataset.schema.names})
            raise VarveError(f"--mask {word}: no input has a column {column!r}.{nearest(column, names)}")
    return chosen


def with_masks(rows: RowsByDataset, target: Target, chosen: Mapping[str, Collection[str]]) -> RowsByDataset:
    """Return the rows with other values in the chosen columns."""
    masked_rows: RowsByDataset = {}
    for name, dataset_rows in rows.items():
        types = {column.name: column.type for column in target.upstreams[name].dataset.schema.columns}
        masked_rows[name] = [
            {column: masked(value, types[column]) if column in chosen[name] else value for column, value in row.items()}
            for row in dataset_rows
        ]
    return masked_rows


def _relevant(frame: DataFrame, condition: str | None) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException

    if condition is None:
        return frame
    try:
        relevant = frame.where(condition)
        assert relevant.schema is not None
    except (AnalysisException, ParseException):
        # The condition went through another dialect; a sample of all rows is a sample too.
        return frame
    return relevant


def _joined(frame: DataFrame, name: str, relevance: Relevance, taken: RowsByDataset) -> DataFrame | None:
    """The rows with values that rows which were taken have in the columns that join them; None where none joins."""
    from pyspark.sql import functions as F  # noqa: N812

    partners: dict[str, dict[str, str]] = {}
    for join in relevance.joins:
        if join.dataset == name and taken.get(join.other) and join.other_column in taken[join.other][0]:
            partners.setdefault(join.other, {}).setdefault(join.column, join.other_column)
    columns = set(frame.columns)
    for other, pairs in partners.items():
        usable = {column: there for column, there in pairs.items() if column in columns}
        if not usable:
            continue
        rows = dict.fromkeys(tuple(row[there] for there in usable.values()) for row in taken[other])
        equal = [
            folded(and_, [F.col(f"`{column}`") == F.lit(value) for column, value in zip(usable, values, strict=True)])
            for values in rows
        ]
        return frame.where(folded(or_, equal))
    return None


def _first(frame: DataFrame, count: int) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F  # noqa: N812

    # As text: Spark hashes no maps.
    order = F.xxhash64(F.to_json(F.struct(*[F.col(f"`{name}`") for name in frame.columns])))
    rows: list[dict[str, Any]] = frame.orderBy(order).limit(count).toArrow().to_pylist()
    return rows
