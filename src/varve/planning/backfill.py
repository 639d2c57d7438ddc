"""Which partitions a backfill marks: a range of one dataset, and exactly the partitions downstream of it.

Not here: the marks themselves (varve/catalog/backfills.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.model.partitions.key import text_of
from varve.model.partitions.windows import kept_from, why_not_there
from varve.planning.mapping.dataset_mapping import listed
from varve.planning.mapping.dimension_mapping import everything
from varve.planning.mapping.partition_subset import PartitionBox, TimeSpans, boxes_of, choice_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

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
    """The partitions from one window to another, both included, whose columns have the values in `words`.

    Without `first` the range begins with the dimension; without `last` it ends with the last complete window. Windows
    whose retention is over are left out, as no run computes them. Raises VarveError for a range without a time
    dimension, a column that the dataset does not have, and where no partition is left.
    """
    partitioning = dataset.partitioning
    if unknown := sorted(set(words) - set(partitioning.names)):
        raise UnknownPartition(
            f"{dataset} has no column {', '.join(unknown)}; its columns are {', '.join(partitioning.names) or 'none'}."
        )
    ranged = first is not None or last is not None
    if ranged and partitioning.time is None:
        growing_dimensions = [
            dimension.name for dimension in partitioning.dimensions if isinstance(dimension, DynamicDimension)
        ]
        kind = (
            f"{growing_dimensions[0]} is a set that grows, and has no order"
            if growing_dimensions
            else "its keys are a list"
        )
        if not partitioning.dimensions:
            raise VarveError(f"{dataset}: --from and --to need a time dimension; it has no partitions. Leave them out.")
        raise VarveError(f"{dataset}: --from and --to need a time dimension; {kind}. Name the keys: column=value.")
    choices = [_choice(dimension, words, (first, last), members, now) for dimension in partitioning.dimensions]
    keys = list(PartitionBox(partitioning, tuple(choices)).partitions()) if all(choices) else []
    kept = list(_kept(dataset, keys, now))
    if not kept:
        time, retention = partitioning.time, dataset.policy.retention
        extent = f" {time.name} {time.extent}." if time is not None else ""
        if keys and time is not None and retention is not None:
            oldest = time.text_at(kept_from(time, retention, now.timestamp()))
            extent = f" Its retention is over before {time.name}={oldest}, and no run computes what lies before that."
        raise VarveError(f"{dataset} has no partition in that range. Nothing was marked.{extent}")
    return kept


def with_downstream(
    graph: Graph,
    dataset: Dataset,
    keys: Sequence[PartitionKey],
    downstream: Collection[str] | None,
    *,
    members: Members | None,
    now: dt.datetime,
) -> dict[str, list[PartitionKey]]:
    """The partitions and all partitions downstream of them, by dataset, upstream first.

    Those whose retention is over are not among them, as no run computes them. `downstream` limits the result to these
    datasets (None: all); dependencies are followed through the others too. Raises VarveError for a name that is not
    downstream.
    """
    reached: dict[str, list[PartitionKey]] = {dataset.name: list(keys)}
    for reader in graph.in_order():
        readers: dict[PartitionKey, None] = {}
        for edge in graph.edges[reader.name]:
            for box in boxes_of(edge.upstream.partitioning, reached.get(edge.upstream.name, ())):
                mapped = edge.dependency.readers_of(box, members=members, now=now)
                readers |= dict.fromkeys(_kept(reader, listed(mapped.existing), now))
        if readers and reader.name != dataset.name:
            reached[reader.name] = sorted(readers)
    if downstream is None:
        return reached
    if not_downstream := sorted(set(downstream) - set(reached)):
        below = ", ".join(name for name in reached if name != dataset.name) or "nothing"
        raise VarveError(
            f"{', '.join(not_downstream)}: not downstream of what is selected of {dataset}; that is {below}."
        )
    return {name: partitions for name, partitions in reached.items() if name == dataset.name or name in downstream}


def _kept(dataset: Dataset, keys: Iterable[PartitionKey], now: dt.datetime) -> Iterator[PartitionKey]:
    """The partitions whose retention is not over."""
    time, retention = dataset.partitioning.time, dataset.policy.retention
    if time is None or retention is None:
        yield from keys
        return
    first = kept_from(time, retention, now.timestamp())
    for key in keys:
        if time.start_of(time.value_in(key)) >= first:
            yield key


def _choice(
    dimension: Dimension,
    words: Mapping[str, str],
    ends: tuple[str | None, str | None],
    members: Members | None,
    now: dt.datetime,
) -> KeySelection:
    """The keys of a dimension that words name, or all, and of a time dimension those within the range."""
    if not words.keys().isdisjoint(dimension.column_names):
        named = _named(dimension, words, members, now)
        if isinstance(dimension, TimeDimension) and ends != (None, None):
            assert isinstance(named, TimeSpans)
            return named.meet(_ranged(dimension, *ends, now))
        return named
    if isinstance(dimension, TimeDimension):
        return _ranged(dimension, *ends, now)
    return everything(dimension, members, now)


def _named(dimension: Dimension, words: Mapping[str, str], members: Members | None, now: dt.datetime) -> KeySelection:
    if not words.keys() >= set(dimension.column_names):
        assert isinstance(dimension, TimeDimension)
        spans = everything(dimension, members, now)
        assert isinstance(spans, TimeSpans)
        following = dimension.calendar.following
        starts = dimension.windows_with(words, spans.starts(dimension))
        return TimeSpans.of((start, following(start)) for start in starts)
    value = dimension.parse_columns(words)
    if not dimension.exists(value, members):
        raise UnknownPartition(f"{text_of(value)!r} is no key of dimension {dimension.name} now.")
    if isinstance(dimension, TimeDimension):
        why = why_not_there(dimension, dimension.start_of(value), now.timestamp())
        if why:
            raise UnknownPartition(f"{dimension.name}={text_of(value)} is no partition now: {why}.")
    return choice_of(dimension, [value])


def _ranged(dimension: TimeDimension, first: str | None, last: str | None, now: dt.datetime) -> TimeSpans:
    start = dimension.first if first is None else dimension.start_of(dimension.parse(first))
    if last is None:
        return TimeSpans.of(dimension.calendar.runs(start, dimension.known_until(now)))
    end = min(dimension.start_of(dimension.parse(last)) + 1, dimension.known_until(now))
    return TimeSpans.of(dimension.calendar.runs(start, end))
