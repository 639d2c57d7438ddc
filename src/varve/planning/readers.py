"""Which partition reads which, by path, for the planner, which asks a million times: mappings are cached.

Not here: the mappings themselves (mapping/dataset_mapping.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.errors import UnknownPartition
from varve.model.partitions.dimension import TimeDimension
from varve.model.reads import Custom, Overlap, Same
from varve.model.schema import column_set
from varve.planning.mapping.dataset_mapping import Dependency, listed
from varve.planning.mapping.partition_subset import boxes_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Dimension, Members
    from varve.model.partitions.key import PartitionKey, Value
    from varve.model.partitions.partitioning import Partitioning
    from varve.planning.graph import Edge, Graph


class Keys:
    """The keys of one partitioning by their paths."""

    def __init__(self, partitioning: Partitioning, members: Members | None) -> None:
        self._partitioning = partitioning
        # A path outside of a time dimension is refused when it is parsed, and to look twice doubled the time.
        self._with_members = [each for each in partitioning.dimensions if not isinstance(each, TimeDimension)]
        self._members = members
        self._key_of_path: dict[str, PartitionKey | None] = {}
        self._existing: set[str] = set()

    def key(self, path: str) -> PartitionKey | None:
        """The key with that path; None where the partitioning has no such key."""
        if path not in self._key_of_path:
            key = self._key_of_path[path] = self._parsed(path)
            if key is not None:
                self._existing.add(path)
        return self._key_of_path[path]

    def inside(self, paths: AbstractSet[str]) -> set[str]:
        """The paths, of those given, that the partitioning has."""
        for path in paths - self._existing:
            self.key(path)
        return self._existing.intersection(paths)

    def _parsed(self, path: str) -> PartitionKey | None:
        try:
            key = self._partitioning.from_path(path)
        except UnknownPartition:
            return None
        return key if all(each.exists(each.value_in(key), self._members) for each in self._with_members) else None


class RememberedMappings:
    """The cached results of all mappings of one shape, at one instant."""

    def __init__(self) -> None:
        self.wanted: dict[tuple[Value, ...], tuple[str, ...]] = {}
        # Results for the last set of partitions: one dataset after another asks for the same set, nearly always.
        self.wanted_by: tuple[frozenset[str], dict[str, tuple[str, ...]]] = (frozenset(), {})
        self.readers: tuple[frozenset[str], set[str]] = (frozenset(), set())


class MappingMemory:
    """The caches of mappings at one instant. Edges of one shape, for example all from hours to days, share a cache."""

    def __init__(self) -> None:
        self._shapes: dict[object, RememberedMappings] = {}

    def of(self, edge: Edge) -> RememberedMappings:
        """The cache for the shape of an edge."""
        dependency = edge.dependency
        # Without rules the partitions follow from a query, and the edge shares its cache with no other.
        shape: object = id(dependency)
        if by_rules(edge):
            rules = tuple(sorted(dependency.rules.items(), key=lambda rule: rule[0]))
            shape = dependency.reader, dependency.upstream, rules
        return self._shapes.setdefault(shape, RememberedMappings())


class EdgePaths:
    """One edge of the graph at one instant, from paths of the reader to paths of the upstream and back."""

    def __init__(
        self,
        edge: Edge,
        reader: Keys,
        upstream: Keys,
        *,
        shapes: MappingMemory,
        members: Members | None,
        now: dt.datetime,
    ) -> None:
        self.edge = edge
        self.identical = identical(edge)
        self.columns = None if edge.columns_read is None else column_set(edge.columns_read)
        # Asked of a query only where it matters, as it must be parsed for that.
        has_retention = edge.upstream.policy.retention is not None
        self.all_windows = has_retention and edge.reads_all_windows
        self.by_window = has_retention and edge.reads_by_window
        self._reader, self._upstream = reader, upstream
        self._members, self._now = members, now
        # Where a query decides, its dimension mappings read too much: any dimension of the reader may matter.
        followed = (
            [
                mapping.reader_dimension
                for mapping in edge.dependency.dimension_mappings
                if mapping.reader_dimension is not None
            ]
            if by_rules(edge)
            else None
        )
        self._follows = edge.dependency.reader.dimensions if followed is None else tuple(dict.fromkeys(followed))
        self._shape = shapes.of(edge)

    def wanted(self, path: str) -> tuple[str, ...]:
        """The upstream paths that a partition of the reader reads; the graph must have the partition."""
        if self.identical:
            return (path,)
        follows = self._followed(path)
        if follows not in self._shape.wanted:
            self._map({follows: self._key(path)})
        return self._shape.wanted[follows]

    def wanted_by(self, paths: AbstractSet[str]) -> Mapping[str, Sequence[str]]:
        """For each of these partitions of the reader the upstream paths; the graph must have the partitions."""
        if self.identical:
            return {path: (path,) for path in paths}
        if self._shape.wanted_by[0] != paths:
            follows = {path: self._followed(path) for path in paths}
            new = {values: path for path, values in follows.items() if values not in self._shape.wanted}
            self._map({values: self._key(path) for values, path in new.items()})
            self._shape.wanted_by = (
                frozenset(paths),
                {path: self._shape.wanted[values] for path, values in follows.items()},
            )
        return self._shape.wanted_by[1]

    def readers(self, paths: AbstractSet[str]) -> AbstractSet[str]:
        """The paths of the reader that read any of these upstream paths; unknown upstream paths have no readers."""
        if self.identical:
            return self._upstream.inside(paths)
        if self._shape.readers[0] != paths:
            self._shape.readers = frozenset(paths), self._readers(paths)
        return self._shape.readers[1]

    def _readers(self, paths: AbstractSet[str]) -> set[str]:
        keys = [key for path in paths if (key := self._upstream.key(path)) is not None]
        reader_keys: dict[PartitionKey, None] = {}
        for box in boxes_of(self.edge.upstream.partitioning, keys):
            mapped = self.edge.dependency.readers_of(box, members=self._members, now=self._now)
            reader_keys |= dict.fromkeys(listed((*mapped.existing, *mapped.upcoming)))
        return {key.path for key in reader_keys}

    def _map(self, keys: Mapping[tuple[Value, ...], PartitionKey]) -> None:
        mapped = self.edge.dependency.upstream_of_each([*keys.values()], members=self._members, now=self._now)
        for follows, mapped_partitions in zip(keys, mapped, strict=True):
            # Windows that are not complete are waited for like all others.
            self._shape.wanted[follows] = tuple(
                [key.path for key in listed((*mapped_partitions.existing, *mapped_partitions.upcoming))]
            )

    def _key(self, path: str) -> PartitionKey:
        key = self._reader.key(path)
        assert key is not None, "only partitions of the graph are asked for"
        return key

    def _followed(self, path: str) -> tuple[Value, ...]:
        key = self._key(path)
        return tuple([dimension.value_in(key) for dimension in self._follows])


def by_rules(edge: Edge) -> bool:
    """Whether only rules between dimensions decide which partitions are read, and not a query."""
    return type(edge.dependency) is Dependency


def identical(edge: Edge) -> bool:
    """Whether every partition reads exactly the partition with the same path."""
    dependency = edge.dependency
    return (
        by_rules(edge)
        and dependency.reader.same_keys(dependency.upstream)
        and all(
            _same(mapping.reader_dimension, mapping.upstream)
            and (
                isinstance(mapping.rule, Same)
                or (isinstance(mapping.rule, Overlap) and mapping.rule.first == mapping.rule.last == 0)
            )
            for mapping in dependency.dimension_mappings
        )
    )


def _same(first: Dimension | None, second: Dimension) -> bool:
    return first.same_windows(second) if isinstance(first, TimeDimension) else first == second


def is_found_late(dataset: Dataset, graph: Graph) -> bool:
    """Whether an input that was there early does not find the windows that read it, as they were not over then.

    Rules between dimensions tell them. Among the windows of a query, or of a function without its inverse, only those
    that are over are asked whether they read an input.
    """
    own = dataset.partitioning.time
    return own is not None and any(not _finds_readers(edge, own) for edge in graph.edges[dataset.name])


def _finds_readers(edge: Edge, own: TimeDimension) -> bool:
    return by_rules(edge) and any(
        mapping.reader_dimension is own and (not isinstance(mapping.rule, Custom) or mapping.rule.readers is not None)
        for mapping in edge.dependency.dimension_mappings
    )
