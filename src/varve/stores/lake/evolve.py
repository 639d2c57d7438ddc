"""What follows from a changed declaration in the lake, and the refusal where older batches could not be read by it.

Not here: the rules (model/evolution.py) and the columns of the Hive table (projection.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.catalog.rows import columns_of
from varve.model.errors import NOTHING_LOST, BadInput, some
from varve.model.evolution import Consequence, evolution, partition_problems
from varve.stores.lake.iceberg.metadata import unfollowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.build import Build
    from varve.model.evolution import DeclaredColumns
    from varve.model.schema import Column

_REMEDY = (
    "Columns that may be NULL can be added, types widened, and columns taken away, but not in the step in which "
    "another is added: that may be a new name. Anything else is a new generation: varve evolve."
)


def refuse_breaking(build: Build) -> None:
    """Raise BadInput, with every difference, where batches of the last declaration cannot be read by this one."""
    if build.registered is None:
        return
    dataset = build.dataset
    problems = _problems(columns_of(build.registered), dataset.schema.columns, dataset.partition_columns)
    if problems:
        raise BadInput(
            f"{build}: the declaration has changed in a way that its older batches do not follow. {' '.join(problems)} "
            f"{NOTHING_LOST} {_REMEDY}"
        )


def consequences(before: DeclaredColumns, after: DeclaredColumns) -> list[Consequence]:
    """What follows where the declaration with these columns replaces another one."""
    change = evolution(before.data, after.data, before.former)
    follows = []
    if change.added:
        names = some(column.name for column in change.added)
        follows.append(Consequence(f"{names}: NULL in partitions that are not computed again."))
    if change.removed:
        names = some(column.name for column in change.removed)
        follows.append(
            Consequence(f"{names}: batches keep it, and readers of the Hive table do not see it from the next run on.")
        )
    known = {column.name: str(column.type) for column in (*before.former, *before.data)}
    if problems := unfollowed(known, {column.name: str(column.type) for column in after.data}):
        follows.append(
            Consequence(
                f"{' '.join(problems)} Where it is an Iceberg table too, that is hidden by the next run, until every "
                "partition was computed again and `varve repair` shows it: a new name for the dataset avoids that."
            )
        )
    if change.removed or change.widened:
        follows.append(Consequence("The next run makes the Hive table again, which is missing for a moment."))
    return follows


def _problems(before: DeclaredColumns, data: Sequence[Column], partitions: Sequence[Column]) -> list[str]:
    return [
        *evolution(before.data, data, before.former).problems,
        *partition_problems(before.partitions, partitions),
    ]
