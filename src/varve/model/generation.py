"""Generations: what the batches of a dataset have in common that readers see, and which declarations begin another one.

The store, the partition columns with their windows, and the data columns. A declaration that older batches do not
follow is a new generation: its batches are built beside the old ones, and readers move to all of them in one step.

Not here: how columns may change within a generation (evolution.py), and the generations of a catalog
(varve/catalog/code/generations.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.model.dataset import StoreKind
from varve.model.evolution import evolution, former_problems, partition_problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.evolution import DeclaredColumns


@dataclass(frozen=True, slots=True)
class Shape:
    """A declaration as far as it decides about generations: the store, and the columns with the windows."""

    store: str
    columns: DeclaredColumns


@dataclass(frozen=True, slots=True)
class EnvironmentGeneration:
    """The generation in which an environment builds a dataset.

    Attributes:
        number: 0 for the first one of the dataset.
        shown: the number of the generation that readers of production see.
        store: where production's batches lie.
        declaration: with which the environment builds it, as the catalog keeps declarations.
    """

    number: int
    shown: int
    store: str
    declaration: Mapping[str, Any]

    @property
    def is_new(self) -> bool:
        """Whether it is not the generation that readers see."""
        return self.number != self.shown


def breaks(before: Shape, after: Shape) -> tuple[str, ...]:
    """Why batches of the one declaration cannot be read by the other, in sentences; empty where they can be."""
    if before.store != after.store:
        return (f"It lies in the {before.store}, and is declared in the {after.store}.",)
    problems = partition_problems(before.columns.partitions, after.columns.partitions)
    old_windows, new_windows = before.columns.windows, after.columns.windows
    if not problems and old_windows and new_windows and old_windows != new_windows:
        problems.append(f"Its windows were {old_windows}, and are {new_windows} now.")
    if after.store == StoreKind.LAKE:
        problems += evolution(before.columns.data, after.columns.data, before.columns.former).problems
    elif after.store == StoreKind.WAREHOUSE:
        problems += former_problems(before.columns, after.columns.data)
    return tuple(problems)


def begins_generation(before: Shape, after: Shape) -> tuple[str, ...]:
    """Why an environment builds the dataset as a new generation; empty where older batches and new ones fit together.

    Beside what `breaks`, another type in the warehouse: there its view could be migrated in place instead.
    """
    if reasons := breaks(before, after):
        return reasons
    if after.store != StoreKind.WAREHOUSE:
        return ()
    types = {column.name: column.type for column in before.columns.data}
    return tuple(
        f"{column.name} was {types[column.name]} and is {column.type} now."
        for column in after.columns.data
        if column.name in types and types[column.name] != column.type
    )


def has_same_partitions(before: Shape, after: Shape) -> bool:
    """Whether each partition of the one is a partition of the other, with the same rows in it."""
    old, new = before.columns, after.columns
    return (old.partitions, old.windows or new.windows) == (new.partitions, new.windows)


def is_rewritable(before: Shape, after: Shape) -> bool:
    """Whether rows of the one declaration become rows of the other by renaming, dropping and casting columns."""
    names = {column.name for column in before.columns.data}
    sources = [names & {column.name, *column.was} for column in after.columns.data]
    added = [column for column, source in zip(after.columns.data, sources, strict=True) if not source]
    # A column that goes while another comes may have been renamed, which would lose its values without a word.
    dropped = names.difference(*sources)
    return has_same_partitions(before, after) and all(column.nullable for column in added) and not (added and dropped)
