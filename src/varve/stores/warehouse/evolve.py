"""What follows from a changed declaration in the warehouse, and the refusal of names that older tables use otherwise.

Not here: which changes a view takes under its readers (tables/shape.py), and a migration (migrate.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.catalog.rows import columns_of
from varve.model.errors import NOTHING_LOST, BadInput, some
from varve.model.evolution import Consequence, evolution, table_problems
from varve.stores.postgres.types import postgres_type

if TYPE_CHECKING:
    from varve.model.build import Build
    from varve.model.evolution import DeclaredColumns

_ANOTHER_NAME = "Give the new column another name, as tables of older batches have that one; or: varve evolve."


def refuse_former(build: Build) -> None:
    """Raise BadInput where a column has a name that older tables have, whose values would not be read as it."""
    problems = table_problems(columns_of(build.registered or {}), build.dataset.schema.columns)
    if problems:
        raise BadInput(f"{build}: {' '.join(problems)} {NOTHING_LOST} {_ANOTHER_NAME}")


def consequences(before: DeclaredColumns, after: DeclaredColumns) -> list[Consequence]:
    """What follows where the declaration with these columns replaces another one."""
    names = {name for column in after.data for name in (column.name, *column.was)}
    types = {column.name: column.type for column in before.data}
    change = evolution(before.data, after.data, before.former)
    follows = []
    if renamed := [column for column in change.added if set(column.was) & types.keys()]:
        pairs = [f"{next(name for name in column.was if name in types)} -> {column.name}" for column in renamed]
        follows.append(Consequence(f"{some(pairs)}: the next run renames it in the view, with older periods."))
    if added := [column.name for column in change.added if column not in renamed]:
        follows.append(Consequence(f"{some(added)}: NULL in partitions that are not computed again."))
    if removed := [column.name for column in change.removed if column.name not in names]:
        follows.append(
            Consequence(
                f"{some(removed)}: tables keep it, and the view shows it no more from the next run on; where other "
                "views stand on that view, it shows NULL until `varve warehouse migrate`."
            )
        )
    retyped = [
        f"{column.name} was {types[column.name]} and is {column.type}"
        for column in after.data
        if column.name in types and postgres_type(column.type) != postgres_type(types[column.name])
    ]
    if retyped:
        follows.append(
            Consequence(
                f"{some(retyped)}: runs are refused until `varve warehouse migrate` has changed the view; with "
                "--dry-run it says whether every value stays the same. Or `varve evolve` computes it anew."
            )
        )
    return follows
