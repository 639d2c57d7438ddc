"""Which expected rows were made, which are missing, which were not expected, and which differ in some cells.

Not here: how that is printed (shown.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.model.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.schema import ColumnType
    from varve.testing.cases.bound import ExpectedRow

# A FLOAT has seven digits.
_FLOAT_TOLERANCE = 1e-6
_FLOATS = frozenset({Kind.FLOAT, Kind.DOUBLE})


@dataclass(frozen=True)
class ChangedRow:
    """An expected row, the row that was made most like it, and the columns in which they differ."""

    expected: Mapping[str, Any]
    made: Mapping[str, Any]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """How the rows that were made differ from those that were expected.

    Attributes:
        columns: the columns that are compared, in the dataset's order.
        types: the types of the columns.
        missing: expected rows that were not made.
        unexpected: rows that were made and not expected.
        changed: rows that were expected and made with other values in some columns.
        made: how many rows were made.
        expected: how many rows were expected.
    """

    columns: tuple[str, ...]
    types: Mapping[str, ColumnType]
    missing: tuple[Mapping[str, Any], ...]
    unexpected: tuple[Mapping[str, Any], ...]
    changed: tuple[ChangedRow, ...]
    made: int
    expected: int

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.changed)


def difference(
    dataset: Dataset, made: Sequence[Mapping[str, Any]], expected: Sequence[ExpectedRow], tolerance: float
) -> Difference:
    """Compare rows without regard to their order; each row that is made stands for one that is expected."""
    types = {column.name: column.type for column in dataset.read_columns()}
    named = {name for row in expected for name in row.values}
    columns = tuple(name for name in types if name in named) or tuple(dataset.schema.names)
    comparison = _Comparison(types, tolerance)
    wanted = [row.values for row in expected]
    pairs = _matched(comparison, wanted, made)
    missing = [place for place in range(len(wanted)) if place not in pairs]
    taken = set(pairs.values())
    unexpected = [place for place in range(len(made)) if place not in taken]
    changed = _most_alike(comparison, dataset, wanted, made, missing, unexpected)
    changed_expected, changed_made = {pair[0] for pair in changed}, {pair[1] for pair in changed}
    return Difference(
        columns,
        types,
        tuple(wanted[place] for place in missing if place not in changed_expected),
        tuple(made[place] for place in unexpected if place not in changed_made),
        tuple(
            ChangedRow(wanted[place], made[other], comparison.differing(wanted[place], made[other]))
            for place, other in changed
        ),
        len(made),
        len(wanted),
    )


@dataclass(frozen=True)
class _Comparison:
    types: Mapping[str, ColumnType]
    tolerance: float

    def differing(self, expected: Mapping[str, Any], made: Mapping[str, Any]) -> tuple[str, ...]:
        """The columns that the expected row names and in which the other one differs."""
        return tuple(
            name
            for name in self.types
            if name in expected and not same_value(expected[name], made[name], self.types[name], self.tolerance)
        )


def same_value(expected: Any, made: Any, kind: ColumnType, tolerance: float) -> bool:
    """Return whether two values of a type are the same: NaN is NaN, and floating point is within the tolerance."""
    if expected is None or made is None:
        return expected is made
    if kind.kind in _FLOATS:
        within = max(tolerance, _FLOAT_TOLERANCE) if kind.kind is Kind.FLOAT else tolerance
        both_nan = math.isnan(expected) and math.isnan(made)
        return both_nan or math.isclose(expected, made, rel_tol=within, abs_tol=tolerance)
    if kind.kind is Kind.ARRAY:
        ((_, element),) = kind.parts
        return len(expected) == len(made) and all(
            same_value(left, right, element, tolerance) for left, right in zip(expected, made, strict=True)
        )
    if kind.kind is Kind.STRUCT:
        return all(same_value(expected[name], made[name], field, tolerance) for name, field in kind.parts)
    if kind.kind is Kind.MAP:
        return _same_map(expected, made, kind, tolerance)
    return bool(expected == made)


def _same_map(expected: Any, made: Any, kind: ColumnType, tolerance: float) -> bool:
    (_, key_type), (_, value_type) = kind.parts
    left = list(made)
    for key, value in expected:
        for entry in left:
            if same_value(key, entry[0], key_type, tolerance) and same_value(value, entry[1], value_type, tolerance):
                left.remove(entry)
                break
        else:
            return False
    return not left


def _matched(
    comparison: _Comparison, expected: Sequence[Mapping[str, Any]], made: Sequence[Mapping[str, Any]]
) -> dict[int, int]:
    """The largest assignment of expected rows to equal rows that were made (augmenting paths)."""
    exact = _exact_columns(comparison.types, expected)
    buckets: dict[Hashable, list[int]] = defaultdict(list)
    for place, row in enumerate(made):
        buckets[tuple(row[name] for name in exact)].append(place)
    equal = [
        [
            place
            for place in buckets.get(tuple(row[name] for name in exact), ())
            if not comparison.differing(row, made[place])
        ]
        for row in expected
    ]
    owners: dict[int, int] = {}
    chosen: dict[int, int] = {}
    for place in range(len(expected)):
        _assign(place, equal, owners, chosen)
    return chosen


def _assign(start: int, equal: Sequence[Sequence[int]], owners: dict[int, int], chosen: dict[int, int]) -> None:
    """Give an expected row a row of its own, where there is one; others move to another of theirs for it."""
    reached_from: dict[int, int] = {}
    queue = [start]
    for place in queue:
        for candidate in equal[place]:
            if candidate in reached_from:
                continue
            reached_from[candidate] = place
            if candidate in owners:
                queue.append(owners[candidate])
                continue
            free: int | None = candidate
            while free is not None:
                owner = reached_from[free]
                before = chosen.get(owner)
                owners[free], chosen[owner] = owner, free
                free = before
            return


def _exact_columns(types: Mapping[str, ColumnType], expected: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns that every expected row names and whose values are equal or not, without a tolerance."""
    return [
        name
        for name, kind in types.items()
        if kind.kind not in _FLOATS and not kind.nested and all(name in row for row in expected)
    ]


def _most_alike(  # noqa: PLR0917
    comparison: _Comparison,
    dataset: Dataset,
    expected: Sequence[Mapping[str, Any]],
    made: Sequence[Mapping[str, Any]],
    missing: Iterable[int],
    unexpected: Iterable[int],
) -> list[tuple[int, int]]:
    """Pairs of an expected row and one that was made with some equal values in data columns, the most equal first."""
    data = set(dataset.schema.names)
    left_expected, left_made = list(missing), list(unexpected)
    alone = len(left_expected) == len(left_made) == 1
    scores = []
    for place in left_expected:
        row = expected[place]
        for other in left_made:
            different = set(comparison.differing(row, made[other]))
            # A value that is NULL on both sides makes no two rows alike.
            equal = sum(name in data and name not in different and row[name] is not None for name in row)
            if equal or alone:
                scores.append((-equal, len(different), place, other))
    pairs: list[tuple[int, int]] = []
    used_expected: set[int] = set()
    used_made: set[int] = set()
    for _, _, place, other in sorted(scores):
        if place not in used_expected and other not in used_made:
            used_expected.add(place)
            used_made.add(other)
            pairs.append((place, other))
    return sorted(pairs)
