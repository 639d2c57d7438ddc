"""Generations: what the batches of a dataset have in common that readers see, and which declarations begin another one.

The store, the partition columns with their windows, and the data columns. A declaration that older batches do not
follow is a new generation: its batches are built beside the old ones, and readers move to all of them in one step.

Not here: how columns may change within a generation (varve/model/evolution.py), and the generations of a catalog
(varve/catalog/code/generations.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.model.dataset import StoreKind
from varve.model.evolution import DeclaredColumns, casts, evolution, partition_problems, table_problems
from varve.model.partitions.own_calendar import changed_windows

if TYPE_CHECKING:
    from varve.model.schema import Column


@dataclass(frozen=True, slots=True)
class Shape:
    """A declaration as far as it decides about generations: where its batches lie, and the columns with the windows."""

    place: str
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
    if before.place != after.place:
        return (f"It lies in the {before.place}, and is declared in the {after.place}.",)
    problems = _of_partitions(before, after)
    of_columns = _COLUMNS.get(after.place)
    return (*problems, *(of_columns(before.columns, after.columns) if of_columns else ()))


def misread(published: Shape, declared: Shape) -> tuple[str, ...]:
    """Why batches of another project cannot be read by what is declared of them here; empty where they can be.

    The declaration may leave data columns out, and has every partition column, with the same windows.
    """
    if published.place != declared.place:
        return (f"It lies in the {published.place}, and is declared in the {declared.place}.",)
    problems = _of_partitions(published, declared)
    types = {column.name: column.type for column in published.columns.data}
    for column in declared.columns.data:
        if column.name not in types:
            problems.append(f"It has no column {column.name}.")
        elif types[column.name] != column.type:
            problems.append(f"{column.name} is {types[column.name]}, and is declared as {column.type}.")
    return tuple(problems)


def begins_generation(before: Shape, after: Shape) -> tuple[str, ...]:
    """Why an environment builds the dataset as a new generation; empty where older batches and new ones fit together.

    Beside what `breaks`, another type in the warehouse: there its view could be migrated in place instead.
    """
    if reasons := breaks(before, after):
        return reasons
    migrated = _MIGRATED.get(after.place)
    return tuple(migrated(before.columns, after.columns)) if migrated else ()


def _of_partitions(before: Shape, after: Shape) -> list[str]:
    """What differs in the partition columns, or else in their windows."""
    problems = list(partition_problems(before.columns.partitions, after.columns.partitions))
    if not problems and before.columns.windows and after.columns.windows:
        problems += filter(None, [_changed_windows(before.columns, after.columns)])
    return problems


def _changed_windows(before: DeclaredColumns, after: DeclaredColumns) -> str:
    """What differs in the windows, as a sentence; "" where nothing does, or where nothing is known of those before."""
    return changed_windows(before.windows or after.windows, after.windows, (before.listed, after.listed))


def _of_files(before: DeclaredColumns, after: DeclaredColumns) -> Sequence[str]:
    """Spark reads files of the earlier declarations with the later one: what it cannot read so."""
    return evolution(before.data, after.data, before.former).problems


def _of_tables(before: DeclaredColumns, after: DeclaredColumns) -> Sequence[str]:
    """A view casts and renames what older tables have: what it cannot."""
    return table_problems(before, after.data)


def _retyped(before: DeclaredColumns, after: DeclaredColumns) -> Sequence[str]:
    types = {column.name: column.type for column in before.data}
    return [
        f"{column.name} was {types[column.name]} and is {column.type} now."
        for column in after.data
        if column.name in types and types[column.name] != column.type
    ]


# What of columns each store's older batches do not follow; and what they follow only by a migration of readers.
_Rule = Callable[[DeclaredColumns, DeclaredColumns], Sequence[str]]
_COLUMNS: dict[str, _Rule] = {StoreKind.LAKE: _of_files, StoreKind.WAREHOUSE: _of_tables}
_MIGRATED: dict[str, _Rule] = {StoreKind.WAREHOUSE: _retyped}


def has_same_partitions(before: Shape, after: Shape) -> bool:
    """Whether each partition of the one is a partition of the other, with the same rows in it."""
    old, new = before.columns, after.columns
    return old.partitions == new.partitions and not _changed_windows(old, new)


def sources_of(columns: Sequence[Column], before: Shape) -> dict[str, Column]:
    """By the name of a column that is declared now the column of the generation before whose values it has.

    That is the one of its name or of a name that it had; or, where the declaration goes back behind a rename, the one
    that had its name. Without one there is no entry.
    """
    known = {old.name: old for old in before.columns.data}
    declared = {column.name for column in columns}
    renamed_since = {name: old for old in before.columns.data if old.name not in declared for name in old.was}
    sources = {
        column.name: next((known[name] for name in (column.name, *reversed(column.was)) if name in known), None)
        for column in columns
    }
    taken = {source.name for source in sources.values() if source is not None}
    for name, source in sources.items():
        if source is None and (renamed := renamed_since.get(name)) is not None and renamed.name not in taken:
            sources[name] = renamed
    return {name: source for name, source in sources.items() if source is not None}


def added_columns(before: Shape, after: Shape) -> list[str]:
    """The names of the columns of which rows of the generation before have no value."""
    sources = sources_of(after.columns.data, before)
    return [column.name for column in after.columns.data if column.name not in sources]


def not_rewritable(before: Shape, after: Shape) -> str:
    """Why renaming, dropping and casting columns does not make rows of the one declaration rows of the other.

    A sentence; "" where it does.
    """
    if not has_same_partitions(before, after):
        return "Its partitions are other ones."
    sources = sources_of(after.columns.data, before)
    added = [column for column in after.columns.data if column.name not in sources]
    # A column that goes while another comes may have been renamed, which would lose its values without a word.
    dropped = {column.name for column in before.columns.data} - {source.name for source in sources.values()}
    if added and dropped:
        gone, come = ", ".join(sorted(dropped)), ", ".join(column.name for column in added)
        return f"{gone} goes while {come} comes; where it is the same column, say RENAMED FROM."
    if needed := [column.name for column in added if not column.nullable]:
        return f"{', '.join(needed)} cannot be NULL, and those rows have no value of it."
    for column in after.columns.data:
        source = sources.get(column.name)
        if source is not None and source.type != column.type and not casts(source.type, column.type):
            return (
                f"{column.name} was {source.type} and is {column.type} now, as which its values cannot be taken over."
            )
    return ""
