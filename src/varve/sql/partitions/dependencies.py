"""Dependencies that a query itself says, as the planner's `Dependency`: exact, over theoretical partitions (seed 001).

For Dagster, which knows only rules between dimensions, the narrowest rules are found that cover what many partitions
read; our own planner never uses them.

Not here: how conditions are found (pushdown/scans.py) and evaluated over partitions (scan_reads.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.model.reads import All, Only, Overlap, Rule, Same, Unit
from varve.planning.mapping.dataset_mapping import Dependency, Mapped, split_box
from varve.planning.mapping.dimension_mapping import DimensionMapping, everything
from varve.planning.mapping.partition_subset import PartitionBox, TimeSpans, boxes_of
from varve.sql.partitions.axes import Bindings, Upstream
from varve.sql.partitions.scan_reads import readers, readings
from varve.sql.pushdown.scans import dependencies
from varve.sql.types.inference import qualified

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.calendar import Calendar
    from varve.model.partitions.dimension import Dimension, Members
    from varve.model.partitions.key import PartitionKey, Value
    from varve.sql.partitions.scopes import Scopes
    from varve.sql.pushdown.scans import Dependencies
    from varve.sql.syntax.sql_file import SqlDataset
    from varve.sql.types.outputs import Inferred, QueryFinding

# Of so many partitions the rules for Dagster are read off.
_SAMPLES = 12
_WEEK, _YEAR = 7 * 86_400, 366 * 86_400


@dataclass(frozen=True)
class Inference:
    """What is known of each query of a file, in order; where something stands against one, nothing is planned."""

    queries: tuple[Inferred, ...]

    @cached_property
    def findings(self) -> tuple[QueryFinding, ...]:
        """What stands against the queries."""
        return tuple(finding for each in self.queries for finding in each.findings)

    def dependencies(self, upstreams: Mapping[str, Dataset]) -> tuple[Dependencies, ...]:
        """The scans of each query with their conditions."""
        partitions = {
            name: {column.name: column.type.lower() for column in each.partition_columns}
            for name, each in upstreams.items()
        }
        return tuple(dependencies(each.tree, partitions) for each in self.queries)


@dataclass(frozen=True, eq=False)
class QueryPlan:
    """The conditions that a dataset's queries put on what they read, and the scopes that they are evaluated in.

    Attributes:
        made: both, when they are asked for: many datasets are loaded of which few are planned.
    """

    upstreams: Mapping[str, Dataset]
    made: Callable[[], tuple[Scopes, tuple[Dependencies, ...]]] = field(repr=False)

    @cached_property
    def scopes(self) -> Scopes:
        """The scopes of the dataset."""
        return self._made[0]

    @cached_property
    def found(self) -> tuple[Dependencies, ...]:
        """The scans of each query with their conditions."""
        return self._made[1]

    @cached_property
    def _made(self) -> tuple[Scopes, tuple[Dependencies, ...]]:
        return self.made()

    def bindings(self, keys: Sequence[PartitionKey]) -> Bindings:
        """The variables of the scopes of some partitions, as columns. The query's session is in UTC."""
        return Bindings(self.scopes.columns(keys), len(keys))

    def known(self, members: Members | None) -> dict[str, Upstream]:
        """The theoretical partitions of what is read."""
        return {
            name: Upstream(
                name,
                dataset.partitioning,
                {column.name: column.type.lower() for column in dataset.partition_columns},
                members,
            )
            for name, dataset in self.upstreams.items()
        }


def inference(sql: SqlDataset, scopes: Scopes, upstreams: Mapping[str, Dataset]) -> Inference:
    """What is known of a file's queries over the datasets that they read."""
    schemas = {
        name: {column.name: column.type.lower() for column in (*each.schema.columns, *each.partition_columns)}
        for name, each in upstreams.items()
    }
    types = {name: kind.lower() for name, kind in scopes.types.items()}
    return Inference(tuple(qualified(query, schemas, types) for query in sql.queries))


@dataclass(frozen=True)
class PlannedDependency(Dependency):
    """What the partitions of a SQL dataset read of one upstream, by its queries."""

    plan: QueryPlan = field(kw_only=True)
    name: str = field(kw_only=True)
    # Of an earlier load, where nothing has changed since.
    known_ways: tuple[DimensionMapping, ...] = field(default=(), kw_only=True)

    def check(self) -> None:
        """A query says what it reads: there is nothing to refuse."""

    def upstream_of(
        self, what: PartitionKey | PartitionBox, *, members: Members | None = None, now: dt.datetime | None = None
    ) -> Mapped:
        """See Dependency."""
        keys = [*what.partitions()] if isinstance(what, PartitionBox) else [what]
        boxes = [box for _, found in self.read_by(keys, members=members, now=now) for box in found]
        parts = [split_box(box, members, now) for box in dict.fromkeys(boxes)]
        return Mapped(*(tuple(box for each in parts for box in each[place]) for place in range(3)))

    def upstream_of_each(
        self, keys: Sequence[PartitionKey], *, members: Members | None = None, now: dt.datetime | None = None
    ) -> list[Mapped]:
        """See Dependency; asked once for all."""
        each = []
        for _, boxes in self.read_by(keys, members=members, now=now):
            parts = [split_box(box, members, now) for box in dict.fromkeys(boxes)]
            each.append(Mapped(*(tuple(box for split in parts for box in split[place]) for place in range(3))))
        return each

    def readers_of(
        self, what: PartitionKey | PartitionBox, *, members: Members | None = None, now: dt.datetime | None = None
    ) -> Mapped:
        """See Dependency."""
        box = what if isinstance(what, PartitionBox) else PartitionBox.at(self.upstream, what)
        candidates = self._candidates(members, now)
        bindings = self.plan.bindings(candidates)
        known = self.plan.known(members)
        reading: set[PartitionKey] = set()
        for found in self.plan.found:
            if self.name in found.datasets:
                answer = readers(found, known, bindings, self.name, box)
                reading |= {candidates[place] for place in answer.nonzero()[0].tolist()}
        parts = [split_box(each, members, now) for each in boxes_of(self.reader, sorted(reading))]
        return Mapped(*(tuple(each for part in parts for each in part[place]) for place in range(3)))

    def read_by(
        self, keys: Sequence[PartitionKey], *, members: Members | None = None, now: dt.datetime | None = None
    ) -> list[tuple[PartitionKey, list[PartitionBox]]]:
        """For each partition the boxes that it reads."""
        boxes: list[list[PartitionBox]] = [[] for _ in keys]
        bindings, known = self.plan.bindings(keys), self.plan.known(members)
        for found in self.plan.found:
            if self.name not in found.datasets:
                continue
            for places, parts in readings(found, known, bindings, now=now):
                for reading in parts:
                    if reading.scan.dataset == self.name:
                        for at, place in enumerate(places):
                            boxes[place] += reading.boxes(at)
        return list(zip(keys, boxes, strict=True))

    @cached_property
    def dimension_mappings(self) -> tuple[DimensionMapping, ...]:
        """Rules that cover what a sample of partitions reads, the narrowest there are; for Dagster and for people."""
        if self.known_ways:
            return self.known_ways
        samples = [(key, boxes) for key, boxes in self._sampled() if boxes]
        return tuple(self._covering(place, samples) for place in range(len(self.upstream.dimensions)))

    def _candidates(self, members: Members | None, now: dt.datetime | None) -> list[PartitionKey]:
        """The partitions of the reader that may be asked for: up to the last window that is there."""
        choices = [everything(dimension, members, now) for dimension in self.reader.dimensions]
        return [*PartitionBox(self.reader, tuple(choices)).partitions()] if all(choices) else []

    def _sampled(self) -> list[tuple[PartitionKey, list[PartitionBox]]]:
        values: list[Sequence[Value]] = []
        for dimension in self.reader.dimensions:
            if isinstance(dimension, DynamicDimension):
                return []
            values.append(_spread(dimension))
        keys = [self.reader.key([each[place % len(each)] for each in values]) for place in range(_SAMPLES)]
        return self.read_by(list(dict.fromkeys(keys)))

    def _covering(self, place: int, samples: Sequence[tuple[PartitionKey, list[PartitionBox]]]) -> DimensionMapping:
        dimension = self.upstream.dimensions[place]
        time = self.reader.time
        if isinstance(dimension, TimeDimension):
            found = [(key, box.choices[place]) for key, boxes in samples for box in boxes]
            rule = _overlap(time, dimension, [(key, each) for key, each in found if isinstance(each, TimeSpans)])
            return DimensionMapping(dimension, rule, time if isinstance(rule, Overlap) else None)
        read = [(key, set(box.choices[place])) for key, boxes in samples for box in boxes]  # type: ignore[arg-type]
        for of in self.reader.dimensions:
            same_kind = not isinstance(of, TimeDimension) and of.value_type is dimension.value_type
            if read and same_kind and all(each == {key[of.name]} for key, each in read):
                return DimensionMapping(dimension, Same(of.name), of)
        constant = read[0][1] if read and all(each == read[0][1] for _, each in read) else None
        whole = isinstance(dimension, DynamicDimension) or constant is None or constant == set(dimension.keys())
        return DimensionMapping(dimension, All() if whole else Only(tuple(sorted(constant or ()))), None)


def _spread(dimension: Dimension) -> list[Value]:
    """Some keys of a dimension, over all of its extent."""
    if not isinstance(dimension, TimeDimension):
        return list(dimension.keys())[:_SAMPLES]
    first, last = dimension.first, dimension.last or dimension.first + 3 * _YEAR
    if dimension.calendar.following(first) - first <= _WEEK:
        # A year from the middle on: the first windows may reach over the upstream's beginning, and all are too many.
        first += (last - first) // 2
        last = min(last, first + _YEAR)
    step = max(1, (last - first) // _SAMPLES)
    starts = [dimension.calendar.floor(min(first + place * step + step // 2, last - 1)) for place in range(_SAMPLES)]
    return [dimension.value_at(each) for each in dict.fromkeys(starts) if each >= dimension.first]


def _overlap(
    time: TimeDimension | None, upstream: TimeDimension, read: Sequence[tuple[PartitionKey, TimeSpans]]
) -> Rule:
    """The narrowest rule, in either's windows, that covers what each window reads; all where there is none."""
    if time is None or not read:
        return All()
    found = []
    for unit, calendar in ((Unit.READER, time.calendar), (Unit.UPSTREAM, upstream.calendar)):
        reach = [_reach(time, calendar, key, spans) for key, spans in read if spans]
        if reach and None not in reach:
            first, last = min(each[0] for each in reach if each), max(each[1] for each in reach if each)
            found.append(Overlap(first, last, unit if first or last else Unit.READER))
    return min(found, key=lambda rule: rule.last - rule.first, default=All())


def _reach(time: TimeDimension, calendar: Calendar, key: PartitionKey, spans: TimeSpans) -> tuple[int, int] | None:
    """How many windows of a calendar what is read begins after the reader's first one, and ends after its last."""
    start = time.start_of(key[time.name])
    end = time.calendar.following(start)
    first = _windows(calendar, calendar.floor(start), calendar.floor(spans.spans[0][0]))
    last = _windows(calendar, calendar.floor(end - 1), calendar.floor(spans.spans[-1][1] - 1))
    return None if first is None or last is None else (first, last)


def _windows(calendar: Calendar, start: int, to: int, most: int = 500) -> int | None:
    """How many windows lie between two starts; None where that are very many."""
    later = earlier = start
    for count in range(most):
        if later == to:
            return count
        if earlier == to:
            return -count
        later, earlier = calendar.following(later), calendar.floor(earlier - 1)
    return None
