"""The values of an input's partition columns that each scope reads, from which many scopes are joined with it.

They say which rows of an input may matter to which scope, before any row is read. A join by equality over them takes
the place of comparing each row with each scope (spark/scope_join.py).

Not here: which partitions a scope reads (dependencies.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.planning.mapping.partition_subset import TimeSpans, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.key import PartitionKey
    from varve.planning.mapping.partition_subset import KeySelection, PartitionBox
    from varve.sql.partitions.dependencies import PlannedDependency

# With more rows than this, the table of the scopes would be no small one.
_MOST_ROWS = 100_000
# The Python types of the values of a Spark type, and those of them that mean something else.
_PYTHON_TYPES: Mapping[str, tuple[type, type]] = {
    "string": (str, type(None)),
    "int": (int, bool),
    "bigint": (int, bool),
    "date": (dt.date, dt.datetime),
    "timestamp": (dt.datetime, type(None)),
}


@dataclass(frozen=True)
class ReadValues:
    """The values of some partition columns of one input that each of several scopes reads.

    A row of the input with other values matters to no result of the scope.

    Attributes:
        types: the Spark type of each of these columns, by name.
        by_scope: for each scope, in order, the values of these columns, each combination once.
    """

    types: Mapping[str, str]
    by_scope: tuple[tuple[tuple[object, ...], ...], ...]


def read_values(upstream: Dataset, dependency: PlannedDependency, keys: Sequence[PartitionKey]) -> ReadValues | None:
    """Return what the scopes of some partitions read of an input; None where nothing would be gained by it.

    So it is where all of them read the same, where each reads a single combination, which the query itself names by
    equality as a rule, and where there are too many. Columns in which the scopes do not differ are left out, and those
    of dynamic sets, whose members are not known here.
    """
    boxes_by_scope = [boxes for _, boxes in dependency.read_by(keys, any_member=True)]
    boxes = list(dict.fromkeys(box for boxes_of_scope in boxes_by_scope for box in boxes_of_scope))
    types = {column.name: str(column.type).lower() for column in upstream.partition_columns}
    places = [
        place
        for place, dimension in enumerate(upstream.partitioning.dimensions)
        if not isinstance(dimension, DynamicDimension) and len({box.choices[place] for box in boxes}) > 1
    ]
    dimensions = [upstream.partitioning.dimensions[place] for place in places]
    at_most = {box: _count(box, places) for box in boxes}
    if not places or sum(at_most[box] for boxes_of_scope in boxes_by_scope for box in boxes_of_scope) > _MOST_ROWS:
        return None
    known: dict[tuple[int, KeySelection], list[tuple[object, ...]]] = {}
    for place, dimension in zip(places, dimensions, strict=True):
        for choice in {box.choices[place] for box in boxes}:
            known[place, choice] = [dimension.column_values(value) for value in values_of(dimension, choice)]
    names = [name for dimension in dimensions for name in dimension.column_names]
    by_scope = tuple(
        tuple(
            dict.fromkeys(
                tuple(value for values in combination for value in values)
                for box in boxes_of_scope
                for combination in product(*[known[place, box.choices[place]] for place in places])
            )
        )
        for boxes_of_scope in boxes_by_scope
    )
    if max(map(len, by_scope)) < 2 or not all(_are_of(types[name], at, by_scope) for at, name in enumerate(names)):
        return None
    return ReadValues({name: types[name] for name in names}, by_scope)


def _count(box: PartitionBox, places: Sequence[int]) -> int:
    """About how many combinations of keys a box has in some dimensions, without listing them."""
    count = 1
    for place in places:
        count *= _keys(box.partitioning.dimensions[place], box.choices[place])
    return count


def _keys(dimension: Dimension, choice: KeySelection) -> int:
    if not isinstance(choice, TimeSpans):
        return len(choice)
    assert isinstance(dimension, TimeDimension)
    first = choice.spans[0][0]
    length = dimension.calendar.following(first) - first
    return sum(-(-(end - start) // length) for start, end in choice.spans)


def _are_of(kind: str, place: int, by_scope: Sequence[Sequence[tuple[object, ...]]]) -> bool:
    """Whether the values of a column are those of its declared type: others would be cast, and not be equal."""
    if kind not in _PYTHON_TYPES:
        return False
    wanted, refused = _PYTHON_TYPES[kind]
    values = [combination[place] for combinations in by_scope for combination in combinations]
    return all(isinstance(value, wanted) and not isinstance(value, refused) for value in values)
