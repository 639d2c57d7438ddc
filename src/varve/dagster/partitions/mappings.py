"""Dependencies between datasets as Dagster's built-in partition mappings, for its daemon and its UI.

Our own planner always maps exactly (varve/planning/mapping/dataset_mapping.py). Where no built-in can say a mapping,
the tightest that covers it is taken, so that Dagster waits for too much rather than too little, and `Compiled` says so.

Not here: mappings of our own. Dagster does not support subclasses of `PartitionMapping` outside itself.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import dagster as dg

from varve.dagster.partitions.definitions import fold_def, tiled_alike
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.partitioning import dagster_text
from varve.model.reads import All, Latest, Only, Overlap, Same, TableReads, Unit

if TYPE_CHECKING:
    from varve.model.partitions.partitioning import Fold
    from varve.planning.mapping.dataset_mapping import Dependency
    from varve.planning.mapping.dimension_mapping import DimensionMapping


@dataclass(frozen=True)
class Compiled:
    """A dependency as Dagster has it.

    Attributes:
        exact: whether it maps every partition to exactly the existing ones that ours does; else it covers them.
        why: why it is not exact; empty where it is.
    """

    mapping: dg.PartitionMapping
    exact: bool
    why: str = ""


def compiled(dependency: Dependency) -> Compiled:
    """The tightest built-in that covers what a partition of the reader reads of the upstream."""
    with warnings.catch_warnings():
        # Multi-dimensional mappings are called beta; the product stands on them.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return _compiled(dependency)


def _compiled(dependency: Dependency) -> Compiled:
    reader, upstream = dependency.reader.folds, dependency.upstream.folds
    ways = {way.upstream.name: way for way in dependency.dimension_mappings}
    if all(isinstance(way.rule, All) for way in ways.values()):
        return Compiled(dg.AllPartitionMapping(), exact=True)
    parts = {name: _fold(fold, [ways[each.name] for each in fold], reader) for name, fold in upstream.items()}
    if len(upstream) == 1 and len(reader) == 1:
        return next(iter(parts.values())).compiled
    if len(upstream) == 2 and len(reader) == 2:
        return _multi_to_multi(parts, list(reader))
    return _single_to_multi(dependency, parts)


_WHOLE = "Dagster reads the other dimension whole"


@dataclass(frozen=True)
class _Part:
    """How one of Dagster's dimensions of the upstream is read: following which of the reader's."""

    of: str | None
    compiled: Compiled


def _multi_to_multi(parts: dict[str, _Part], free: list[str]) -> Compiled:
    """Dagster takes each of the reader's dimensions once; a dimension of the upstream that gets none is read whole."""
    mapped: dict[str, dg.DimensionPartitionMapping] = {}
    whys = [part.compiled.why for part in parts.values() if part.compiled.why]
    for name, part in sorted(parts.items(), key=lambda each: each[1].of is None):
        if isinstance(part.compiled.mapping, dg.AllPartitionMapping):
            continue
        of = part.of or next(iter(free), None)
        if of not in free:
            whys.append(f"Dagster reads {name} whole, as it follows no dimension by itself")
            continue
        free.remove(of)
        mapped[name] = dg.DimensionPartitionMapping(of, part.compiled.mapping)
    mapping = dg.MultiPartitionMapping(mapped) if mapped else dg.AllPartitionMapping()
    return Compiled(mapping, exact=not whys, why="; ".join(whys))


def _single_to_multi(dependency: Dependency, parts: dict[str, _Part]) -> Compiled:
    """Where only one side has two dimensions, Dagster can follow one of them by identity, and reads the other whole."""
    multi = dependency.upstream if len(dependency.upstream.folds) == 2 else dependency.reader
    single = dependency.reader if multi is dependency.upstream else dependency.upstream
    (alone,) = single.folds.values()
    for name, fold in multi.folds.items():
        part = parts[name] if multi is dependency.upstream else next(iter(parts.values()))
        follows = part.of == (next(iter(single.folds)) if multi is dependency.upstream else name)
        if not _same_fold(fold, alone) or not follows or not _identity(part):
            continue
        others = [found.compiled for other, found in parts.items() if found is not part]
        whole = all(isinstance(found.mapping, dg.AllPartitionMapping) for found in others)
        return Compiled(
            dg.MultiToSingleDimensionPartitionMapping(name),
            exact=whole and all(found.exact for found in others),
            why="; ".join(filter(None, [*(found.why for found in others), *([] if whole else [_WHOLE])])),
        )
    whys = [part.compiled.why for part in parts.values() if part.compiled.why]
    why = "between one and two dimensions Dagster maps only by the same windows or keys"
    return Compiled(dg.AllPartitionMapping(), exact=False, why="; ".join([*whys, why]))


def _identity(part: _Part) -> bool:
    return isinstance(part.compiled.mapping, dg.IdentityPartitionMapping) or part.compiled.mapping == _same_windows()


def _same_windows() -> dg.TimeWindowPartitionMapping:
    """Each window to the same one, where the other side has it."""
    return dg.TimeWindowPartitionMapping(0, 0, allow_nonexistent_upstream_partitions=True)


def _same_fold(fold: Fold, other: Fold) -> bool:
    """Whether Dagster maps a key of one to the same of the other; time windows too, of which one has more."""
    if fold_def(fold) == fold_def(other):
        return True
    (one, *_), (two, *_) = fold, other
    return isinstance(one, TimeDimension) and one.same_windows(two) and tiled_alike(one)


def _fold(fold: Fold, ways: list[DimensionMapping], reader: dict[str, Fold]) -> _Part:
    if len(fold) == 1:
        (way,) = ways
        of = next((name for name, theirs in reader.items() if way.reader_dimension in theirs), None)
        return _Part(of, _one(way, reader[of] if of else None))
    of = next((name for name, theirs in reader.items() if any(way.reader_dimension in theirs for way in ways)), None)
    if (
        of is not None
        and reader[of] == fold
        and all(isinstance(way.rule, Same) and way.reader_dimension == way.upstream for way in ways)
    ):
        return _Part(of, Compiled(dg.IdentityPartitionMapping(), exact=True))
    if all(isinstance(way.rule, All) for way in ways):
        return _Part(of, Compiled(dg.AllPartitionMapping(), exact=True))
    return _Part(of, _all("Dagster has these dimensions as one, and their keys are matched one by one"))


def _one(way: DimensionMapping, of: Fold | None) -> Compiled:  # noqa: PLR0911 - one for each rule
    """One dimension of the upstream that Dagster has by itself, following a fold of the reader's."""
    rule, upstream = way.rule, way.upstream
    if isinstance(rule, All):
        return Compiled(dg.AllPartitionMapping(), exact=True)
    if isinstance(rule, Only):
        return Compiled(_only(way, rule), exact=True)
    if isinstance(rule, Latest):
        ordered = (
            tiled_alike(upstream) if isinstance(upstream, TimeDimension) else isinstance(upstream, StaticDimension)
        )
        return Compiled(dg.LastPartitionMapping(), exact=True) if ordered else _all("Dagster orders its sets otherwise")
    if of is None or len(of) > 1:
        return _all("Dagster has the reader's dimension as one with others")
    if isinstance(rule, Overlap):
        return _overlap(way, rule)
    if isinstance(rule, Same) and upstream == way.reader_dimension:
        return Compiled(dg.IdentityPartitionMapping(), exact=True)
    if (
        isinstance(upstream, StaticDimension)
        and isinstance(way.reader_dimension, StaticDimension)
        and isinstance(rule, Same | TableReads)
    ):
        return Compiled(_table(way, rule), exact=True)
    return _all("only Varve can call the function or see the set")


def _only(way: DimensionMapping, rule: Only) -> dg.PartitionMapping:
    upstream = way.upstream
    if isinstance(upstream, TimeDimension):
        return dg.SpecificPartitionsPartitionMapping([upstream.text_at(upstream.start_of(key)) for key in rule.keys])
    return dg.SpecificPartitionsPartitionMapping([dagster_text(key) for key in rule.keys])


def _table(way: DimensionMapping, rule: Same | TableReads) -> dg.PartitionMapping:
    assert isinstance(way.upstream, StaticDimension)
    assert isinstance(way.reader_dimension, StaticDimension)
    readers: dict[str, set[str]] = {dagster_text(key): set() for key in way.upstream.members}
    for member in way.reader_dimension.members:
        read = (member,) if isinstance(rule, Same) else rule.keys.get(member, ())
        for key in read:
            if key in way.upstream.places:
                readers[dagster_text(key)].add(dagster_text(member))
    return dg.StaticPartitionMapping({key: sorted(found) for key, found in readers.items()})


def _overlap(way: DimensionMapping, rule: Overlap) -> Compiled:
    upstream, of = way.upstream, way.reader_dimension
    assert isinstance(upstream, TimeDimension)
    assert isinstance(of, TimeDimension)
    if upstream.same_windows(of) and rule.first == rule.last == 0:
        # Of time windows, however far each reaches; of two sets Dagster takes the keys that both have.
        alike = upstream == of or not tiled_alike(upstream)
        return Compiled(dg.IdentityPartitionMapping() if alike else _same_windows(), exact=True)
    if not (tiled_alike(upstream) and tiled_alike(of)):
        return _all("Dagster has the windows as a set, whose keys it cannot lay over others")
    if upstream.timezone != of.timezone:
        return _all(f"Dagster lays no windows of {upstream.timezone} over those of {of.timezone}")
    # Windows before the first and after the last are no error: a first week has fewer days.
    if rule.unit is Unit.READER or (upstream.tiling == of.tiling) or rule.first == rule.last == 0:
        return Compiled(
            dg.TimeWindowPartitionMapping(rule.first, rule.last, allow_nonexistent_upstream_partitions=True), exact=True
        )
    if not _no_longer(upstream, of):
        return _all("Dagster counts offsets in the reader's windows, which are shorter here")
    # Each window of the reader is at least as long as any of the upstream's, so that as many of them reach as far.
    return Compiled(
        dg.TimeWindowPartitionMapping(
            min(rule.first, 0), max(rule.last, 0), allow_nonexistent_upstream_partitions=True
        ),
        exact=False,
        why="Dagster counts offsets in the reader's windows",
    )


def _no_longer(upstream: TimeDimension, of: TimeDimension) -> bool:
    """Whether no window of the upstream is longer than any of the reader's, over the first ones of both."""
    return max(_lengths(upstream)) <= min(_lengths(of))


def _lengths(dimension: TimeDimension) -> list[int]:
    at, starts = dimension.first, []
    for _ in range(400):
        starts.append(at)
        at = dimension.calendar.following(at)
    return [end - start for start, end in pairwise(starts)]


def _all(why: str) -> Compiled:
    return Compiled(dg.AllPartitionMapping(), exact=False, why=why)
