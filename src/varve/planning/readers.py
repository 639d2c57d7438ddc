"""Who reads whom by path, as the planner asks for it a million times: mappings remembered, identities not computed.

Not here: the mappings themselves (dataset_mapping.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.errors import UnknownPartition
from varve.model.partitions.dimension import TimeDimension
from varve.model.reads import Overlap, Same
from varve.planning.mapping.dataset_mapping import Dependency, listed
from varve.planning.mapping.partition_subset import boxes_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from varve.model.partitions.dimension import Dimension, Members
    from varve.model.partitions.key import PartitionKey, Value
    from varve.model.partitions.partitioning import Partitioning
    from varve.planning.graph import Edge


class Keys:
    """The keys of one partitioning by their paths."""

    def __init__(self, partitioning: Partitioning, members: Members | None) -> None:
        self._partitioning = partitioning
        self._members = members
        self._found: dict[str, PartitionKey | None] = {}
        self._there: set[str] = set()

    def key(self, path: str) -> PartitionKey | None:
        """The key with that path; None where the partitioning has none."""
        if path not in self._found:
            found = self._found[path] = self._parsed(path)
            if found is not None:
                self._there.add(path)
        return self._found[path]

    def inside(self, paths: AbstractSet[str]) -> set[str]:
        """Those of the paths that the partitioning has."""
        for path in paths - self._there:
            self.key(path)
        return self._there.intersection(paths)

    def _parsed(self, path: str) -> PartitionKey | None:
        try:
            key = self._partitioning.from_path(path)
        except UnknownPartition:
            return None
        return key if self._partitioning.exists(key, self._members) else None


class RememberedMappings:
    """What is remembered of mappings of one shape, as of one moment."""

    def __init__(self) -> None:
        self.wanted: dict[tuple[Value, ...], tuple[str, ...]] = {}
        # Of the last partitions that were asked for: nearly always the same ones, of one dataset after the other.
        self.wanted_by: tuple[frozenset[str], dict[str, tuple[str, ...]]] = (frozenset(), {})
        self.readers: tuple[frozenset[str], set[str]] = (frozenset(), set())


class MappingMemory:
    """What is remembered of mappings as of one moment: edges of one shape, like all from hours to days, share it."""

    def __init__(self) -> None:
        self._shapes: dict[object, RememberedMappings] = {}

    def of(self, edge: Edge) -> RememberedMappings:
        """What is remembered for the shape of an edge."""
        dependency = edge.dependency
        # What a query says is told by no rules.
        shape: object = id(dependency)
        if by_rules(edge):
            rules = tuple(sorted(dependency.rules.items(), key=lambda rule: rule[0]))
            shape = dependency.reader, dependency.upstream, rules
        return self._shapes.setdefault(shape, RememberedMappings())


class EdgePaths:
    """One edge of the graph, between paths of the reader and paths of what it reads, as of one moment."""

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
        self._reader, self._upstream = reader, upstream
        self._members, self._now = members, now
        # Its ways only cover what a query reads: any dimension of the reader may make a difference.
        followed = [way.of.name for way in edge.dependency.ways if way.of is not None] if by_rules(edge) else None
        self._follows = edge.dependency.reader.names if followed is None else tuple(dict.fromkeys(followed))
        self._shape = shapes.of(edge)

    def wanted(self, path: str) -> tuple[str, ...]:
        """What a partition of the reader, which the graph has, reads."""
        if self.identical:
            return (path,)
        follows = self._followed(path)
        if follows not in self._shape.wanted:
            self._map({follows: self._key(path)})
        return self._shape.wanted[follows]

    def wanted_by(self, paths: AbstractSet[str]) -> Mapping[str, Sequence[str]]:
        """What each of these partitions of the reader, which the graph has, reads."""
        if self.identical:
            return {path: (path,) for path in paths}
        if self._shape.wanted_by[0] != paths:
            follows = {path: self._followed(path) for path in paths}
            new = {found: path for path, found in follows.items() if found not in self._shape.wanted}
            self._map({found: self._key(path) for found, path in new.items()})
            self._shape.wanted_by = (
                frozenset(paths),
                {path: self._shape.wanted[found] for path, found in follows.items()},
            )
        return self._shape.wanted_by[1]

    def readers(self, paths: AbstractSet[str]) -> AbstractSet[str]:
        """The partitions of the reader that read any of these; those that the graph does not have read nothing."""
        if self.identical:
            return self._upstream.inside(paths)
        if self._shape.readers[0] != paths:
            self._shape.readers = frozenset(paths), self._readers(paths)
        return self._shape.readers[1]

    def _readers(self, paths: AbstractSet[str]) -> set[str]:
        keys = [key for path in paths if (key := self._upstream.key(path)) is not None]
        found: dict[PartitionKey, None] = {}
        for box in boxes_of(self.edge.upstream.partitioning, keys):
            mapped = self.edge.dependency.readers_of(box, members=self._members, now=self._now)
            found |= dict.fromkeys(listed((*mapped.existing, *mapped.upcoming)))
        return {key.path for key in found}

    def _map(self, keys: Mapping[tuple[Value, ...], PartitionKey]) -> None:
        mapped = self.edge.dependency.upstream_of_each([*keys.values()], members=self._members, now=self._now)
        for follows, found in zip(keys, mapped, strict=True):
            # Windows that are not complete are waited for like any other.
            self._shape.wanted[follows] = tuple([each.path for each in listed((*found.existing, *found.upcoming))])

    def _key(self, path: str) -> PartitionKey:
        key = self._reader.key(path)
        assert key is not None, "only partitions of the graph are asked for"
        return key

    def _followed(self, path: str) -> tuple[Value, ...]:
        key = self._key(path)
        return tuple([key[name] for name in self._follows])


def by_rules(edge: Edge) -> bool:
    """Whether the partitions follow from rules between dimensions, and from nothing else."""
    return type(edge.dependency) is Dependency


def identical(edge: Edge) -> bool:
    """Whether every partition reads the one of the same path, and nothing else."""
    dependency = edge.dependency
    return (
        by_rules(edge)
        and dependency.reader.same_keys(dependency.upstream)
        and all(
            _same(way.of, way.upstream)
            and (isinstance(way.rule, Same) or (isinstance(way.rule, Overlap) and way.rule.first == way.rule.last == 0))
            for way in dependency.ways
        )
    )


def _same(one: Dimension | None, other: Dimension) -> bool:
    return one.same_windows(other) if isinstance(one, TimeDimension) else one == other
