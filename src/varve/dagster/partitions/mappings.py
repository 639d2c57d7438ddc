"""Dependencies between datasets as Dagster's built-in partition mappings, for its daemon and its UI.

Our own planner always maps exactly (varve/planning/mapping/dataset_mapping.py). Where no built-in mapping is exact, the
tightest one that covers the dependency is used: Dagster then waits for too much rather than too little, and `Compiled`
says so.

Not here: mappings of our own. Dagster supports no subclasses of `PartitionMapping` but its own.
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
        mapping: Dagster's mapping; None where one side has no partitions, and is read whole or reads all.
        exact: whether it maps every partition to the same existing partitions as ours; if not, it covers them.
        why: the reason why it is not exact; "" where it is.
    """

    mapping: dg.PartitionMapping | None
    exact: bool
    why: str = ""


def compiled(dependency: Dependency) -> Compiled:
    """Return the tightest built-in mapping that covers what a partition of the reader reads of the upstream."""
    with warnings.catch_warnings():
        # Dagster calls multi-dimensional mappings beta, and Varve depends on them: the warning says nothing new.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return _compiled(dependency)


def _compiled(dependency: Dependency) -> Compiled:
    reader, upstream = dependency.reader.folds, dependency.upstream.folds
    mappings = {mapping.upstream.name: mapping for mapping in dependency.dimension_mappings}
    if not reader or not upstream:
        exact = all(isinstance(mapping.rule, All) for mapping in mappings.values())
        return Compiled(None, exact, "" if exact else "for a dataset without partitions Dagster reads all of them")
    if all(isinstance(mapping.rule, All) for mapping in mappings.values()):
        return Compiled(dg.AllPartitionMapping(), exact=not dependency.why_wider, why=dependency.why_wider)
    parts = {
        name: _fold(fold, [mappings[dimension.name] for dimension in fold], reader) for name, fold in upstream.items()
    }
    if len(upstream) == 1 and len(reader) == 1:
        return next(iter(parts.values())).compiled
    if len(upstream) == 2 and len(reader) == 2:
        return _multi_to_multi(parts, list(reader))
    return _single_to_multi(dependency, parts)


_WHOLE = "Dagster reads the other dimension whole"


@dataclass(frozen=True)
class _Part:
    """How one of the upstream's Dagster dimensions is read.

    Attributes:
        of: the name of the reader's dimension that it follows; None where it follows none.
        compiled: the mapping between the two dimensions.
    """

    of: str | None
    compiled: Compiled


def _multi_to_multi(parts: dict[str, _Part], unused_readers: list[str]) -> Compiled:
    """Map two dimensions to two.

    Dagster uses each of the reader's dimensions once; a dimension of the upstream that gets none is read whole.
    """
    mapped: dict[str, dg.DimensionPartitionMapping] = {}
    reasons = [part.compiled.why for part in parts.values() if part.compiled.why]
    for name, part in sorted(parts.items(), key=lambda named_part: named_part[1].of is None):
        if isinstance(part.compiled.mapping, dg.AllPartitionMapping):
            continue
        reader_name = part.of or next(iter(unused_readers), None)
        if reader_name not in unused_readers:
            reasons.append(f"Dagster reads {name} whole, as it follows no dimension by itself")
            continue
        unused_readers.remove(reader_name)
        assert part.compiled.mapping is not None
        mapped[name] = dg.DimensionPartitionMapping(reader_name, part.compiled.mapping)
    mapping = dg.MultiPartitionMapping(mapped) if mapped else dg.AllPartitionMapping()
    return Compiled(mapping, exact=not reasons, why="; ".join(reasons))


def _single_to_multi(dependency: Dependency, parts: dict[str, _Part]) -> Compiled:
    """Map one dimension to two, or two to one.

    Dagster can follow one of the two by identity, and reads the other one whole.
    """
    multi = dependency.upstream if len(dependency.upstream.folds) == 2 else dependency.reader
    single = dependency.reader if multi is dependency.upstream else dependency.upstream
    (single_fold,) = single.folds.values()
    first, second = map(fold_def, multi.folds.values())
    if first == second:
        return _covered_by_all("Dagster does not tell apart two dimensions of the same keys")
    for name, fold in multi.folds.items():
        part = parts[name] if multi is dependency.upstream else next(iter(parts.values()))
        follows = part.of == (next(iter(single.folds)) if multi is dependency.upstream else name)
        both = (fold, single_fold) if multi is dependency.upstream else (single_fold, fold)
        if not _same_fold(*both) or not follows or not _identity(part):
            continue
        others = [other_part.compiled for other, other_part in parts.items() if other_part is not part]
        others_whole = all(isinstance(other_part.mapping, dg.AllPartitionMapping) for other_part in others)
        return Compiled(
            dg.MultiToSingleDimensionPartitionMapping(name),
            exact=others_whole and all(other_part.exact for other_part in others),
            why="; ".join(
                filter(None, [*(other_part.why for other_part in others), *([] if others_whole else [_WHOLE])])
            ),
        )
    reasons = [part.compiled.why for part in parts.values() if part.compiled.why]
    reason = "between one and two dimensions Dagster maps only by the same windows or keys"
    return Compiled(dg.AllPartitionMapping(), exact=False, why="; ".join([*reasons, reason]))


def _identity(part: _Part) -> bool:
    return isinstance(part.compiled.mapping, dg.IdentityPartitionMapping) or part.compiled.mapping == _same_windows()


def _same_windows() -> dg.TimeWindowPartitionMapping:
    """Return the mapping of each window to the same window, where the other side has it."""
    return dg.TimeWindowPartitionMapping(0, 0, allow_nonexistent_upstream_partitions=True)


def _same_fold(upstream: Fold, reader: Fold) -> bool:
    """Return whether Dagster maps equal keys of two folds to each other; the upstream's may have more time windows.

    Where it has fewer, a run of another window would fail at once: Dagster takes what it does not find for missing.
    """
    if fold_def(upstream) == fold_def(reader):
        return True
    (first, *_), (second, *_) = upstream, reader
    if not (isinstance(first, TimeDimension) and isinstance(second, TimeDimension)):
        return False
    ends_later = first.last is None or (second.last is not None and second.last <= first.last)
    has_all = first.first <= second.first and ends_later and second.end_offset <= first.end_offset
    return first.same_windows(second) and tiled_alike(first) and has_all


def _fold(fold: Fold, mappings: list[DimensionMapping], reader: dict[str, Fold]) -> _Part:
    if len(fold) == 1:
        (mapping,) = mappings
        reader_name = next(
            (name for name, reader_fold in reader.items() if mapping.reader_dimension in reader_fold), None
        )
        return _Part(reader_name, _single_dimension(mapping, reader[reader_name] if reader_name else None))
    reader_name = next(
        (
            name
            for name, reader_fold in reader.items()
            if any(mapping.reader_dimension in reader_fold for mapping in mappings)
        ),
        None,
    )
    if (
        reader_name is not None
        and reader[reader_name] == fold
        and all(isinstance(mapping.rule, Same) and mapping.reader_dimension == mapping.upstream for mapping in mappings)
    ):
        return _Part(reader_name, Compiled(dg.IdentityPartitionMapping(), exact=True))
    if all(isinstance(mapping.rule, All) for mapping in mappings):
        return _Part(reader_name, Compiled(dg.AllPartitionMapping(), exact=True))
    return _Part(
        reader_name, _covered_by_all("Dagster has these dimensions as one, and their keys are matched one by one")
    )


def _single_dimension(mapping: DimensionMapping, reader_fold: Fold | None) -> Compiled:  # noqa: PLR0911 - one for each rule
    """Return the mapping of one dimension of the upstream, not folded with others, to a fold of the reader's."""
    rule, upstream = mapping.rule, mapping.upstream
    if isinstance(rule, All):
        return Compiled(dg.AllPartitionMapping(), exact=True)
    if isinstance(rule, Only):
        return Compiled(_only(mapping, rule), exact=True)
    if isinstance(rule, Latest):
        if isinstance(upstream, TimeDimension) and upstream.end_offset > 0:
            return _covered_by_all("Dagster's last partition is a window that is not over")
        ordered = (
            tiled_alike(upstream) if isinstance(upstream, TimeDimension) else isinstance(upstream, StaticDimension)
        )
        return (
            Compiled(dg.LastPartitionMapping(), exact=True)
            if ordered
            else _covered_by_all("Dagster orders its sets otherwise")
        )
    if reader_fold is None or len(reader_fold) > 1:
        return _covered_by_all("Dagster has the reader's dimension as one with others")
    if isinstance(rule, Overlap):
        return _overlap(mapping, rule)
    if isinstance(rule, Same) and upstream == mapping.reader_dimension:
        return Compiled(dg.IdentityPartitionMapping(), exact=True)
    if (
        isinstance(upstream, StaticDimension)
        and isinstance(mapping.reader_dimension, StaticDimension)
        and isinstance(rule, Same | TableReads)
    ):
        return Compiled(_table(mapping, rule), exact=True)
    return _covered_by_all("only Varve can call the function or see the set")


def _only(mapping: DimensionMapping, rule: Only) -> dg.PartitionMapping:
    upstream = mapping.upstream
    if isinstance(upstream, TimeDimension):
        return dg.SpecificPartitionsPartitionMapping([upstream.text_at(upstream.start_of(key)) for key in rule.keys])
    return dg.SpecificPartitionsPartitionMapping([dagster_text(key) for key in rule.keys])


def _table(mapping: DimensionMapping, rule: Same | TableReads) -> dg.PartitionMapping:
    assert isinstance(mapping.upstream, StaticDimension)
    assert isinstance(mapping.reader_dimension, StaticDimension)
    readers: dict[str, set[str]] = {dagster_text(key): set() for key in mapping.upstream.members}
    for member in mapping.reader_dimension.members:
        read = (member,) if isinstance(rule, Same) else rule.keys.get(member, ())
        for key in read:
            if key in mapping.upstream.places:
                readers[dagster_text(key)].add(dagster_text(member))
    return dg.StaticPartitionMapping({key: sorted(keys) for key, keys in readers.items()})


def _overlap(mapping: DimensionMapping, rule: Overlap) -> Compiled:  # noqa: PLR0911 - one for each kind of windows
    upstream, reader = mapping.upstream, mapping.reader_dimension
    assert isinstance(upstream, TimeDimension)
    assert isinstance(reader, TimeDimension)
    if upstream.same_windows(reader) and rule.first == rule.last == 0:
        if upstream == reader:
            return Compiled(dg.IdentityPartitionMapping(), exact=True)
        # Time windows map to the same windows, however far each side reaches. Of two sets Dagster would take a window
        # that only the reader has for one that is missing, and a run of it would fail at once.
        if tiled_alike(upstream):
            return Compiled(_same_windows(), exact=True)
        return _covered_by_all("Dagster has the windows as two sets, which need not have the same ones")
    if not (tiled_alike(upstream) and tiled_alike(reader)):
        return _covered_by_all("Dagster has the windows as a set, whose keys it cannot lay over others")
    if upstream.timezone != reader.timezone:
        return _covered_by_all(f"Dagster lays no windows of {upstream.timezone} over those of {reader.timezone}")
    # Windows before the upstream's first and after its last are no error: a first week may have fewer days.
    if rule.unit is Unit.READER or (upstream.tiling == reader.tiling) or rule.first == rule.last == 0:
        return Compiled(
            dg.TimeWindowPartitionMapping(rule.first, rule.last, allow_nonexistent_upstream_partitions=True), exact=True
        )
    if not _no_longer(upstream, reader):
        return _covered_by_all("Dagster counts offsets in the reader's windows, which are shorter here")
    # Each window of the reader is at least as long as any of the upstream's. So the same number of reader's windows
    # covers at least the same time.
    return Compiled(
        dg.TimeWindowPartitionMapping(
            min(rule.first, 0), max(rule.last, 0), allow_nonexistent_upstream_partitions=True
        ),
        exact=False,
        why="Dagster counts offsets in the reader's windows",
    )


def _no_longer(upstream: TimeDimension, reader: TimeDimension) -> bool:
    """Return whether no window of the upstream is longer than any of the reader's, over the first 399 of both."""
    return max(_window_lengths(upstream)) <= min(_window_lengths(reader))


def _window_lengths(dimension: TimeDimension) -> list[int]:
    window_start, starts = dimension.first, []
    for _ in range(400):
        starts.append(window_start)
        window_start = dimension.calendar.following(window_start)
    return [end - start for start, end in pairwise(starts)]


def _covered_by_all(why: str) -> Compiled:
    return Compiled(dg.AllPartitionMapping(), exact=False, why=why)
