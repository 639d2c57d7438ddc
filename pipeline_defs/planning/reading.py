"""Who reads whom by path, as the planner asks for it a million times: mappings remembered, identities not computed.

Not here: the mappings themselves (mapping.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_defs.model.errors import UnknownPartition
from pipeline_defs.model.reads import Overlap, Same
from pipeline_defs.planning.mapping import listed
from pipeline_defs.planning.region import boxes_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from pipeline_defs.model.dimension import Members
    from pipeline_defs.model.partition import PartitionKey, Value
    from pipeline_defs.model.partitioning import Partitioning
    from pipeline_defs.planning.graph import Edge


class Keys:
    """The keys of one partitioning by their paths."""

    def __init__(self, partitioning: Partitioning, members: Members | None) -> None:
        self._partitioning = partitioning
        self._members = members
        self._found: dict[str, PartitionKey | None] = {}

    def key(self, path: str) -> PartitionKey | None:
        """The key with that path; None where the partitioning has none."""
        if path not in self._found:
            self._found[path] = self._parsed(path)
        return self._found[path]

    def _parsed(self, path: str) -> PartitionKey | None:
        try:
            key = self._partitioning.from_path(path)
        except UnknownPartition:
            return None
        return key if self._partitioning.exists(key, self._members) else None


class Shapes:
    """What is remembered of mappings as of one moment: edges of one shape, like all from hours to days, share it."""

    def __init__(self) -> None:
        self._wanted: dict[object, dict[tuple[Value, ...], tuple[str, ...]]] = {}

    def wanted(self, edge: Edge) -> dict[tuple[Value, ...], tuple[str, ...]]:
        """What is remembered for the shape of an edge: what is read, by the values that say so."""
        dependency = edge.dependency
        shape = (
            dependency.reader,
            dependency.upstream,
            tuple(sorted(dependency.rules.items(), key=lambda rule: rule[0])),
        )
        return self._wanted.setdefault(shape, {})


class EdgePaths:
    """One edge of the graph, between paths of the reader and paths of what it reads, as of one moment."""

    def __init__(
        self, edge: Edge, reader: Keys, upstream: Keys, *, shapes: Shapes, members: Members | None, now: dt.datetime
    ) -> None:
        self.edge = edge
        self._reader, self._upstream = reader, upstream
        self._members, self._now = members, now
        self._identical = identical(edge)
        self._follows = list(dict.fromkeys(way.of.name for way in edge.dependency.ways if way.of is not None))
        self._wanted = shapes.wanted(edge)

    def wanted(self, path: str) -> tuple[str, ...]:
        """What a partition of the reader, which the graph has, reads."""
        if self._identical:
            return (path,)
        key = self._reader.key(path)
        assert key is not None, "only partitions of the graph are asked for"
        follows = tuple([key[name] for name in self._follows])
        if follows not in self._wanted:
            mapped = self.edge.dependency.upstream_of(key, members=self._members, now=self._now)
            # Windows that are not complete are waited for like any other.
            self._wanted[follows] = tuple(each.path for each in listed((*mapped.existing, *mapped.upcoming)))
        return self._wanted[follows]

    def readers(self, paths: Iterable[str]) -> list[str]:
        """The partitions of the reader that read any of these; those that the graph does not have read nothing."""
        keys = {path: key for path in paths if (key := self._upstream.key(path)) is not None}
        if self._identical:
            return list(keys)
        found: dict[PartitionKey, None] = {}
        for box in boxes_of(self.edge.upstream.partitioning, keys.values()):
            mapped = self.edge.dependency.readers_of(box, members=self._members, now=self._now)
            found |= dict.fromkeys(listed((*mapped.existing, *mapped.upcoming)))
        return [key.path for key in found]


def identical(edge: Edge) -> bool:
    """Whether every partition reads the one of the same path, and nothing else."""
    dependency = edge.dependency
    return dependency.reader == dependency.upstream and all(
        way.of == way.upstream
        and (isinstance(way.rule, Same) or (isinstance(way.rule, Overlap) and way.rule.first == way.rule.last == 0))
        for way in dependency.ways
    )
