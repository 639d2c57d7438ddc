"""Which partitions a backfill marks: a range of one dataset, and what follows from it downstream, exactly.

Not here: the marks themselves (varve/catalog/backfills.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.model.partitions.key import text_of
from varve.planning.mapping.dataset_mapping import listed
from varve.planning.mapping.dimension_mapping import everything
from varve.planning.mapping.partition_subset import PartitionBox, TimeSpans, boxes_of, choice_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Dimension, Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Graph
    from varve.planning.mapping.partition_subset import KeySelection


def selected(
    dataset: Dataset,
    *,
    first: str | None,
    last: str | None,
    words: Mapping[str, str],
    members: Members | None,
    now: dt.datetime,
) -> list[PartitionKey]:
    """The partitions from one window to another, both included, whose other columns have the values of `words`.

    Without a first or last window, from the dimension's first and to the last complete one. Raises VarveError for a
    range over anything but time, a column that the dataset has not, and where nothing is selected.
    """
    partitioning = dataset.partitioning
    if unknown := sorted(set(words) - set(partitioning.names)):
        raise UnknownPartition(
            f"{dataset} has no column {', '.join(unknown)}; its columns are {', '.join(partitioning.names)}."
        )
    ranged = first is not None or last is not None
    if ranged and partitioning.time is None:
        dynamic = [each.name for each in partitioning.dimensions if isinstance(each, DynamicDimension)]
        kind = f"{dynamic[0]} is a set that grows, and has no order" if dynamic else "its keys are a list"
        raise VarveError(f"{dataset}: --from and --to need a time dimension; {kind}. Name the keys: column=value.")
    choices = [
        _named(each, words[each.name], members)
        if each.name in words
        else _ranged(each, first, last, now)
        if isinstance(each, TimeDimension)
        else everything(each, members, now)
        for each in partitioning.dimensions
    ]
    found = list(PartitionBox(partitioning, tuple(choices)).partitions()) if all(choices) else []
    if not found:
        time = partitioning.time
        extent = f" {time.name} {time.extent}." if time is not None else ""
        raise VarveError(f"{dataset} has no partition in that range. Nothing was marked.{extent}")
    return found


def with_downstream(
    graph: Graph,
    dataset: Dataset,
    keys: Sequence[PartitionKey],
    downstream: Collection[str] | None,
    *,
    members: Members | None,
    now: dt.datetime,
) -> dict[str, list[PartitionKey]]:
    """The partitions by dataset, upstream first, with what reads them in the named datasets (None: in all).

    Follows the exact dependencies through datasets that are not named, too. Raises VarveError for a name that is not
    downstream.
    """
    reached: dict[str, list[PartitionKey]] = {dataset.name: list(keys)}
    for reader in graph.in_order():
        found: dict[PartitionKey, None] = {}
        for edge in graph.edges[reader.name]:
            for box in boxes_of(edge.upstream.partitioning, reached.get(edge.upstream.name, ())):
                mapped = edge.dependency.readers_of(box, members=members, now=now)
                found |= dict.fromkeys(listed(mapped.existing))
        if found and reader.name != dataset.name:
            reached[reader.name] = sorted(found)
    if downstream is None:
        return reached
    if strangers := sorted(set(downstream) - set(reached)):
        below = ", ".join(name for name in reached if name != dataset.name) or "nothing"
        raise VarveError(f"{', '.join(strangers)}: not downstream of what is selected of {dataset}; that is {below}.")
    return {name: found for name, found in reached.items() if name == dataset.name or name in downstream}


def _named(dimension: Dimension, word: str, members: Members | None) -> KeySelection:
    value = dimension.parse(word)
    if not dimension.exists(value, members):
        raise UnknownPartition(f"{text_of(value)!r} is no key of dimension {dimension.name} now.")
    return choice_of(dimension, [value])


def _ranged(dimension: TimeDimension, first: str | None, last: str | None, now: dt.datetime) -> KeySelection:
    start = dimension.first if first is None else dimension.start_of(dimension.parse(first))
    if last is None:
        return TimeSpans.of([(start, dimension.known_until(now))])
    return TimeSpans.of([(start, dimension.calendar.following(dimension.start_of(dimension.parse(last))))])
