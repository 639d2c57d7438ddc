"""Refuses a changed declaration, before anything is written, where older batches could not be read by it.

Not here: the rules (model/evolution.py) and the columns of the Hive table (projection.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, BadInput
from varve.model.evolution import evolution, partition_problems
from varve.model.schema import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from varve.model.build import Build


def refuse_breaking(build: Build) -> None:
    """Raise BadInput, with every difference, where batches of the last declaration cannot be read by this one."""
    if build.registered is None:
        return
    before, partitioned = columns_of(build.registered)
    dataset = build.dataset
    problems = [
        *evolution(before, dataset.schema.columns).problems,
        *partition_problems(partitioned, dataset.partition_columns),
    ]
    if problems:
        raise BadInput(
            f"{build}: the declaration has changed in a way that its older batches do not follow. {' '.join(problems)} "
            f"{NOTHING_LOST} Columns that may be NULL can be added and types widened; for anything else give the "
            "dataset a new name, and drop the old one when its readers have moved."
        )


def columns_of(declaration: Mapping[str, Any]) -> tuple[list[Column], list[Column]]:
    """The data columns and the partition columns of a declaration, as the catalog stores it."""
    data: Sequence[Sequence[Any]] = declaration.get("columns", [])
    partitioned: Sequence[Sequence[Any]] = declaration.get("partition_columns", [])
    return (
        [Column(name, ColumnType(kind), comment, nullable) for name, kind, nullable, comment, *_ in data],
        [Column(name, ColumnType(kind)) for name, kind, *_ in partitioned],
    )
