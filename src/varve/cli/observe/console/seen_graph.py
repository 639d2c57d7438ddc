"""Who reads whom among partitions, by the graph as it is now; and the partition that an address names."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from varve.cli.selection import dataset_named, partition_named, words_of
from varve.model.errors import UnknownPartition, VarveError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.cli.observe.console.judged import Seen
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey


def named(name: str, path: str) -> tuple[Dataset, PartitionKey]:
    """The dataset and the partition of an address. Raises VarveError, UnknownPartition where there is none."""
    dataset = dataset_named(name)
    try:
        return dataset, partition_named(dataset, words_of(path))
    except ValueError as error:
        raise UnknownPartition(f"{dataset}: {path!r} names no partition ({error}).") from None


def readers_of(seen: Seen, name: str, path: str) -> Iterator[tuple[str, str]]:
    """(dataset, partition) of everything that reads a partition; nothing for one that the graph does not have."""
    dataset = seen.graph.datasets.get(name)
    if dataset is None:
        return
    try:
        key = dataset.partitioning.from_path(path)
    except VarveError:
        # Of an earlier declaration: nothing reads it any more.
        return
    for reader, edges in seen.graph.edges.items():
        for edge in edges:
            if edge.upstream.name == name:
                keys = edge.dependency.readers_of(key, members=seen.members).keys
                yield from ((reader, reader_key.path) for reader_key in keys)


def command_of(dataset: Dataset, path: str, *words: str, last: Sequence[str] = ()) -> str:
    """A command over a partition, as a shell takes it: keys may have spaces, quotes and dollar signs in them."""
    return shlex.join(["varve", *words, dataset.name, *words_of(path), *last])
