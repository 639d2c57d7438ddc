"""The planner's `Dependency`, derived from the queries of a SQL dataset: exact, over theoretical partitions.

Dagster knows only rules between dimensions: for it, the narrowest rules are derived that cover what a sample of
partitions reads. Varve's own planner never uses those rules.

Not here: which conditions there are (pushdown/scans.py), and their evaluation over partitions (scan_reads.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from varve.model.partitions.calendar import first_from
from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.model.reads import All, Only, Overlap, Rule, Same, Unit
from varve.planning.mapping.dataset_mapping import Dependency, Mapped, split_box
from varve.planning.mapping.dimension_mapping import DimensionMapping, everything
from varve.planning.mapping.partition_subset import PartitionBox, TimeSpans, boxes_of
from varve.sql.names.own_functions import calls_in, queried_functions
from varve.sql.partitions.axes import Bindings, Upstream
from varve.sql.partitions.scan_reads import readers, readings
from varve.sql.pushdown.predicates import columns_of
from varve.sql.pushdown.scans import dependencies
from varve.sql.types.expressions import RETURNS
from varve.sql.types.inference import qualified

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import exp

    from varve.model.dataset import Dataset
    from varve.model.partitions.calendar import WindowCalendar
    from varve.model.partitions.dimension import Dimension, Members
    from varve.model.partitions.key import PartitionKey, Value
    from varve.model.partitions.partitioning import Partitioning
    from varve.sql.evaluate.asked import SparkValues
    from varve.sql.partitions.scopes import Scopes
    from varve.sql.pushdown.scans import Dependencies
    from varve.sql.syntax.sql_file import SqlDataset
    from varve.sql.types.outputs import Inferred, QueryFinding

# The rules for Dagster are derived from a sample of this many partitions.
_SAMPLES = 12
_WEEK, _YEAR = 7 * 86_400, 366 * 86_400


@dataclass(frozen=True)
class Inference:
    """What was inferred of each query of a file, in order; where a query has findings, nothing is planned."""

    queries: tuple[Inferred, ...]

    @cached_property
    def findings(self) -> tuple[QueryFinding, ...]:
        """The findings of all queries."""
        return tuple(finding for query in self.queries for finding in query.findings)

    def dependencies(
        self, upstreams: Mapping[str, Dataset], asked: Callable[[exp.Expr], exp.Expr] = lambda tree: tree
    ) -> tuple[Dependencies, ...]:
        """The scans of each query with their conditions.

        `asked` returns a query with the calls that Spark was asked for (pushdown.asked_calls.py).
        """
        partitions = {
            name: {column.name: column.type.lower() for column in upstream.partition_columns}
            for name, upstream in upstreams.items()
        }
        return tuple(dependencies(asked(query.tree), partitions) for query in self.queries)


@dataclass(frozen=True, eq=False)
class QueryPlan:
    """The conditions that a dataset's queries put on what they read, and the scopes that they are evaluated in.

    Attributes:
        compute: returns the scopes and the dependencies, called at first use: of many datasets that are loaded, few are
            planned.
        spark_values: what Spark said of calls that are not evaluated here.
    """

    upstreams: Mapping[str, Dataset]
    compute: Callable[[], tuple[Scopes, tuple[Dependencies, ...]]] = field(repr=False)
    spark_values: SparkValues | None = field(default=None, repr=False)

    @cached_property
    def scopes(self) -> Scopes:
        """The scopes of the dataset."""
        return self._computed[0]

    @cached_property
    def dependencies(self) -> tuple[Dependencies, ...]:
        """The scans of each query with their conditions."""
        return self._computed[1]

    @cached_property
    def _computed(self) -> tuple[Scopes, tuple[Dependencies, ...]]:
        return self.compute()

    def bindings(self, keys: Sequence[PartitionKey]) -> Bindings:
        """The variables of the scopes of some partitions, as columns. The query's session is in UTC."""
        return Bindings(self.scopes.columns(keys), len(keys), spark_values=self.spark_values)

    def candidates(self, box: PartitionBox) -> tuple[list[PartitionKey], Bindings]:
        """The partitions of a box of the reader, and the variables of their scopes.

        Who asks for the readers of one partition after the other asks for the same ones each time: they are kept.
        """
        (last,) = self._last_candidates
        if last is None or last[0] != box:
            keys = [*box.partitions()]
            self._last_candidates[0] = last = box, keys, self.bindings(keys)
        return last[1:]

    @cached_property
    def _last_candidates(self) -> list[tuple[PartitionBox, list[PartitionKey], Bindings] | None]:
        return [None]

    def upstream_partitions(self, members: Members | None, *, any_member: bool = False) -> dict[str, Upstream]:
        """The theoretical partitions of each dataset that is read, by its name; see `Upstream`."""
        return {
            name: Upstream(
                name,
                dataset.partitioning,
                {column.name: column.type.lower() for column in dataset.partition_columns},
                members,
                any_member,
            )
            for name, dataset in self.upstreams.items()
        }


def inference(sql: SqlDataset, scopes: Scopes, upstreams: Mapping[str, Dataset]) -> Inference:
    """Infer the columns of a file's queries from the datasets that they read."""
    schemas = {
        name: {column.name: column.type.lower() for column in (*upstream.schema.columns, *upstream.partition_columns)}
        for name, upstream in upstreams.items()
    }
    types = {name: kind.lower() for name, kind in scopes.types.items()}
    queries = [_with_declared_types(query, sql) for query in sql.queries]
    return Inference(tuple(qualified(query, schemas, types) for query in queries))


def _with_declared_types(query: exp.Query, sql: SqlDataset) -> exp.Query:
    """The query whose calls of the project's functions say what they return."""
    if not (returns := {function.name.lower(): function.returns.lower() for function in queried_functions(sql)}):
        return query
    query = query.copy()
    for call in calls_in(query):
        if kind := returns.get(call.name.lower()):
            call.meta[RETURNS] = kind
    return query


@dataclass(frozen=True)
class PlannedDependency(Dependency):
    """The partitions of one upstream dataset that the partitions of a SQL dataset read, according to its queries."""

    plan: QueryPlan = field(kw_only=True)
    name: str = field(kw_only=True)
    # The rules that an earlier load derived, where nothing has changed since.
    known_mappings: tuple[DimensionMapping, ...] = field(default=(), kw_only=True)

    @property
    def partitionings(self) -> tuple[Partitioning, ...]:
        """See Dependency: conditions between two datasets are evaluated over the partitions of both."""
        return self.reader, *(dataset.partitioning for dataset in self.plan.upstreams.values())

    @cached_property
    def reads_all_windows(self) -> bool:
        """See Dependency: whether a scan of the dataset has no condition on the columns of its time dimension."""
        return self.upstream.time is not None and self._is_scanned_whole_by(set(self.upstream.time.column_names))

    @property
    def why_wider(self) -> str:
        """See Dependency: the rules are derived from a sample of partitions, and of a set there is none."""
        has_set = any(isinstance(dimension, DynamicDimension) for dimension in self.reader.dimensions)
        if not has_set or self._is_scanned_whole_by(set(self.upstream.names)):
            return ""
        return "the keys of a set are not known when the project is loaded"

    def _is_scanned_whole_by(self, columns: set[str]) -> bool:
        """Whether a scan of the dataset has no condition on these columns."""
        scans = [scan for query_scans in self.plan.dependencies for scan in query_scans.scans]
        return any(
            scan.dataset == self.name
            and not any(
                column.table == scan.alias and column.name in columns
                for condition in scan.conditions
                for column in columns_of(condition)
            )
            for scan in scans
        )

    def check(self) -> None:
        """Nothing to check: a query states what it reads."""

    def upstream_of(
        self, what: PartitionKey | PartitionBox, *, members: Members | None = None, now: dt.datetime | None = None
    ) -> Mapped:
        """See Dependency."""
        keys = [*what.partitions()] if isinstance(what, PartitionBox) else [what]
        boxes = [box for _, read_boxes in self.read_by(keys, members=members, now=now) for box in read_boxes]
        parts = [split_box(box, members, now) for box in dict.fromkeys(boxes)]
        return Mapped(*(tuple(box for part in parts for box in part[place]) for place in range(3)))

    def upstream_of_each(
        self, keys: Sequence[PartitionKey], *, members: Members | None = None, now: dt.datetime | None = None
    ) -> list[Mapped]:
        """See Dependency; evaluates all partitions together."""
        mapped = []
        for _, read_boxes in self.read_by(keys, members=members, now=now):
            parts = [split_box(box, members, now) for box in dict.fromkeys(read_boxes)]
            mapped.append(Mapped(*(tuple(box for split in parts for box in split[place]) for place in range(3))))
        return mapped

    def readers_of(
        self, what: PartitionKey | PartitionBox, *, members: Members | None = None, now: dt.datetime | None = None
    ) -> Mapped:
        """See Dependency."""
        box = what if isinstance(what, PartitionBox) else PartitionBox.at(self.upstream, what)
        choices = [everything(dimension, members, now) for dimension in self.reader.dimensions]
        if not all(choices):
            return Mapped((), (), ())
        candidates, bindings = self.plan.candidates(PartitionBox(self.reader, tuple(choices)))
        upstreams = self.plan.upstream_partitions(members)
        reading_partitions: set[PartitionKey] = set()
        for query_scans in self.plan.dependencies:
            if self.name in query_scans.datasets:
                answer = readers(query_scans, upstreams, bindings, self.name, box)
                reading_partitions |= {candidates[place] for place in answer.nonzero()[0].tolist()}
        parts = [
            split_box(reader_box, members, now) for reader_box in boxes_of(self.reader, sorted(reading_partitions))
        ]
        return Mapped(*(tuple(box for part in parts for box in part[place]) for place in range(3)))

    def read_by(
        self,
        keys: Sequence[PartitionKey],
        *,
        members: Members | None = None,
        now: dt.datetime | None = None,
        any_member: bool = False,
    ) -> list[tuple[PartitionKey, list[PartitionBox]]]:
        """Return each partition with the boxes of upstream partitions that it reads. `any_member`: see `Upstream`."""
        boxes: list[list[PartitionBox]] = [[] for _ in keys]
        bindings = self.plan.bindings(keys)
        upstreams = self.plan.upstream_partitions(members, any_member=any_member)
        for query_scans in self.plan.dependencies:
            if self.name not in query_scans.datasets:
                continue
            for places, parts in readings(query_scans, upstreams, bindings, now=now):
                for reading in parts:
                    if reading.scan.dataset == self.name:
                        for at, place in enumerate(places):
                            boxes[place] += reading.boxes(at)
        return list(zip(keys, boxes, strict=True))

    @cached_property
    def dimension_mappings(self) -> tuple[DimensionMapping, ...]:
        """Rules that cover what a sample of partitions reads, the narrowest there are; for Dagster and for people."""
        if self.known_mappings:
            return self.known_mappings
        samples = [(key, boxes) for key, boxes in self._sampled() if boxes]
        return tuple(self._covering(place, samples) for place in range(len(self.upstream.dimensions)))

    def _sampled(self) -> list[tuple[PartitionKey, list[PartitionBox]]]:
        values: list[Sequence[Value]] = []
        for dimension in self.reader.dimensions:
            if isinstance(dimension, DynamicDimension):
                return []
            values.append(_spread(dimension, self.upstream.time))
        # Of two lists of the same keys, not only equal keys of both: each further list is shifted against the others.
        shifts = [
            0 if isinstance(dimension, TimeDimension) else at for at, dimension in enumerate(self.reader.dimensions)
        ]
        keys = [
            self.reader.key([
                keys[(place + shift * (1 + place // len(keys))) % len(keys)]
                for keys, shift in zip(values, shifts, strict=True)
            ])
            for place in range(_SAMPLES)
        ]  # fmt: skip
        # When a project is loaded, the members of dynamic sets are not known.
        return self.read_by(list(dict.fromkeys(keys)), any_member=True)

    def _covering(self, place: int, samples: Sequence[tuple[PartitionKey, list[PartitionBox]]]) -> DimensionMapping:
        dimension = self.upstream.dimensions[place]
        time = self.reader.time
        if isinstance(dimension, TimeDimension):
            choices = [(key, box.choices[place]) for key, boxes in samples for box in boxes]
            rule = _overlap(time, dimension, [(key, spans) for key, spans in choices if isinstance(spans, TimeSpans)])
            return DimensionMapping(dimension, rule, time if isinstance(rule, Overlap) else None)
        read = [(key, set(box.choices[place])) for key, boxes in samples for box in boxes]  # type: ignore[arg-type]
        for of in sorted(self.reader.dimensions, key=lambda of: of.name != dimension.name):
            same_kind = not isinstance(of, TimeDimension) and of.value_type is dimension.value_type
            if read and same_kind and all(values == {of.value_in(key)} for key, values in read):
                return DimensionMapping(dimension, Same(of.name), of)
        constant = read[0][1] if read and all(values == read[0][1] for _, values in read) else None
        whole = isinstance(dimension, DynamicDimension) or constant is None or constant == set(dimension.keys())
        return DimensionMapping(dimension, All() if whole else Only(tuple(sorted(constant or ()))), None)


def _spread(dimension: Dimension, upstream: TimeDimension | None) -> list[Value]:
    """A sample of the keys of a dimension, spread over its whole extent, as far as a calendar that it reads reaches."""
    if not isinstance(dimension, TimeDimension):
        return list(dimension.keys())[:_SAMPLES]
    first, last = dimension.first, min(dimension.last or dimension.first + 3 * _YEAR, dimension.calendar.extent[1])
    if upstream is not None and upstream.calendar.has_gaps:
        shared = first_from(dimension.calendar, max(first, upstream.first)), min(last, upstream.calendar.extent[1])
        first, last = shared if shared[0] < shared[1] else (first, last)
    if dimension.calendar.following(first) - first <= _WEEK:
        # Sample one year from the middle: the first windows may read before the upstream's beginning, and all of them
        # are too many.
        first += (last - first) // 2
        last = min(last, first + _YEAR)
    step = max(1, (last - first) // _SAMPLES)
    instants = [min(first + place * step + step // 2, last - 1) for place in range(_SAMPLES)]
    starts = [first_from(dimension.calendar, instant) for instant in instants]
    return [dimension.value_at(start) for start in dict.fromkeys(starts) if dimension.first <= start < last]


def _overlap(
    time: TimeDimension | None, upstream: TimeDimension, read: Sequence[tuple[PartitionKey, TimeSpans]]
) -> Rule:
    """The narrowest rule, counted in windows of the reader or of the upstream, that covers what each window reads.

    `All()` where there is none.
    """
    if time is None or not read:
        return All()
    rules = []
    for unit, calendar in ((Unit.READER, time.calendar), (Unit.UPSTREAM, upstream.calendar)):
        reach = [_reach(time, calendar, key, spans) for key, spans in read if spans]
        if reach and None not in reach:
            first, last = (
                min(offsets[0] for offsets in reach if offsets),
                max(offsets[1] for offsets in reach if offsets),
            )
            # Counted from a gap, the windows before it are -1 and so on: a span may end before it begins.
            last = max(first, last)
            rules.append(Overlap(first, last, unit if first or last else Unit.READER))
    return min(rules, key=lambda rule: rule.last - rule.first, default=All())


def _reach(
    time: TimeDimension, calendar: WindowCalendar, key: PartitionKey, spans: TimeSpans
) -> tuple[int, int] | None:
    """Return how far the spans reach from the reader's first and last window, in windows of `calendar`.

    None where the distance is very large.
    """
    start = time.start_of(time.value_in(key))
    end = time.calendar.following(start)
    low, high = calendar.floor(spans.spans[0][0]), calendar.floor(spans.spans[-1][1] - 1)
    if low < calendar.extent[0] or high >= calendar.extent[1]:
        return None
    # What is read of a gap is read as far as the windows beside it.
    low = low if calendar.begins(low) else calendar.previous_start(low)
    high = high if calendar.begins(high) else calendar.next_start(high)
    first = _windows(calendar, calendar.floor(start), low)
    last = _windows(calendar, calendar.floor(end - 1), high)
    return None if first is None or last is None else (first, last)


def _windows(calendar: WindowCalendar, start: int, to: int, most: int = 500) -> int | None:
    """How many windows lie between two starts (negative backwards); None where there are more than `most`."""
    later = earlier = start
    for count in range(most):
        if later == to:
            return count
        if earlier == to:
            return -count
        later, earlier = calendar.next_start(later), calendar.previous_start(earlier)
    return None
