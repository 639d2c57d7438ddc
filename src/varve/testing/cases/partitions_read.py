"""In which partitions the rows of an input lie, and whether the run would read those: a test sees what a run sees.

Not here: the values of the other columns (bound.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from varve.model.errors import UnknownPartition, VarveError, some
from varve.model.partitions.dimension import DynamicDimension
from varve.model.partitions.key import text_of
from varve.testing.files.nodes import Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey, Value
    from varve.testing.cases.targets import Upstream
    from varve.testing.files.case import Row


class NoPartition(Exception):
    """A row lies in no partition that is read, or in none that is certain; the message says which there are."""


@dataclass(frozen=True)
class PartitionsRead:
    """The partitions of one input that the run of a test reads.

    Attributes:
        upstream: the input.
        keys: the partitions of the run.
        members: the keys of dynamic sets: those that the test names.
    """

    upstream: Upstream
    keys: Sequence[PartitionKey]
    members: Members

    @cached_property
    def read(self) -> dict[PartitionKey, None]:
        """The partitions, each once, in order."""
        mapped = [self.upstream.dependency.upstream_of(key, members=self.members).keys for key in self.keys]
        return dict.fromkeys(sorted({key for keys in mapped for key in keys}))

    def of(self, row: Row) -> PartitionKey:
        """Return the partition that a row lies in; what it does not say is filled in where that is certain.

        Raises NoPartition.
        """
        dataset = self.upstream.dataset
        given = given_keys(dataset, row)
        candidates = [key for key in self.read if all(key[name] == value for name, value in given.items())]
        if len(candidates) == 1:
            return candidates[0]
        is_single = len(self.keys) == 1
        if not candidates:
            where = ", ".join(f"{name}={text_of(value)}" for name, value in given.items())
            not_read = "which this partition does not read" if is_single else "which these partitions do not read"
            raise NoPartition(f"lies in {where or 'a partition'}, {not_read}; it reads {_listed(self.read)}")
        reader = "this partition reads" if is_single else "these partitions read"
        missing = [name for name in dataset.partitioning.names if name not in given]
        raise NoPartition(
            f"has no {' and no '.join(missing)}, and {reader} {len(candidates)} partitions that it may lie in: "
            f"{_listed(candidates)}. Write its {' and its '.join(missing)}"
        )


def given_keys(dataset: Dataset, row: Row) -> dict[str, Value]:
    """Return the values of the partition columns that a row names. Raises NoPartition for one that is none."""
    values: dict[str, Value] = {}
    for name in dataset.partitioning.names:
        if name not in row.values:
            continue
        dimension = dataset.partitioning[name]
        _, node = row.values[name]
        if not isinstance(node, Scalar) or node.text is None:
            raise NoPartition(f"has {node} as {name}, which is a partition column; write its key")
        try:
            values[name] = dimension.parse_column(name, node.text)
        except UnknownPartition as error:
            raise NoPartition(f"lies in no partition: {str(error).rstrip('.')}") from None
    return values


def members_of(
    keys: Sequence[PartitionKey], dataset: Dataset, rows: Mapping[str, tuple[Dataset, Sequence[Row]]]
) -> Members:
    """Return the keys of dynamic sets that a test names: in its partitions, and in the rows of its inputs."""
    members: dict[str, set[Value]] = {}
    for dimension in _dynamic(dataset):
        members.setdefault(dimension.set_name, set()).update(key[dimension.name] for key in keys)
    for upstream, upstream_rows in rows.values():
        for dimension in _dynamic(upstream):
            named = members.setdefault(dimension.set_name, set())
            for row in upstream_rows:
                _, node = row.values.get(dimension.name, (None, None))
                if isinstance(node, Scalar) and node.text is not None:
                    try:
                        named.add(dimension.parse(node.text))
                    except VarveError:
                        # Told with the row.
                        continue
    return {name: sorted(values, key=text_of) for name, values in members.items()}


def _dynamic(dataset: Dataset) -> Iterator[DynamicDimension]:
    for dimension in dataset.partitioning.dimensions:
        if isinstance(dimension, DynamicDimension):
            yield dimension


def _listed(keys: Mapping[PartitionKey, None] | Sequence[PartitionKey]) -> str:
    paths = [key.path for key in keys]
    if len(paths) > 3:
        return f"{paths[0]}, {paths[1]}, ... {paths[-1]} ({len(paths)} in all)"
    return some(paths) or "none"
