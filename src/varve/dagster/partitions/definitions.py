"""Dimensions as Dagster's own partition definitions, so that its UI, backfills and CLI understand them.

Windows that Dagster divides time into as we do become Dagster's time windows. Windows that Dagster cannot express
(every 90 minutes), or that it begins at other instants where clocks change, become a dynamic set in Dagster that grows
as time passes; so do folds with a dynamic dimension (sets_sensor.py).

Not here: what a key means (varve/model) and how datasets depend on each other (mappings.py).
"""

from __future__ import annotations

import datetime as dt
import warnings
from functools import cache
from typing import TYPE_CHECKING

import dagster as dg
import pendulum

from varve.dagster.partitions.set_definition import ProductPartitions, SetPartitions
from varve.model.partitions.calendar import Every, cron_of
from varve.model.partitions.cron import known_to_croniter
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.own_calendar import Calendar
from varve.model.partitions.partitioning import DAGSTER_COMFORT, Fold, Partitioning, fold_texts, set_of, time_set
from varve.model.partitions.windows import kept_from
from varve.model.partitions.zone import DAY, stretch
from varve.planning.mapping.dimension_mapping import moved

if TYPE_CHECKING:
    from varve.model.dataset import Dataset

# How many years ahead the clock changes of a zone are compared where a dimension has no end.
_YEARS_AHEAD = 3
# How many of the first windows are compared in any case: Dagster skips windows of some crons that name few days.
_FIRST = 200


class LargeProduct(UserWarning):
    """The warning that a dataset has more partitions than Dagster's UI shows with ease."""


def dataset_partitions_def(dataset: Dataset) -> dg.PartitionsDefinition[str] | None:
    """Return the partitions of a dataset, without those whose retention is over; None for one without partitions."""
    return partitions_def(dataset.partitioning, dataset.policy.retention)


@cache
def partitions_def(
    partitioning: Partitioning, retention: dt.timedelta | None = None
) -> dg.PartitionsDefinition[str] | None:
    """Return the partitions of a product of dimensions; one object for equal products, as Dagster compares them.

    None for the product of no dimensions.
    """
    folds = {name: fold_def(fold, retention) for name, fold in partitioning.folds.items()}
    if len(folds) <= 1:
        return next(iter(folds.values()), None)
    has_set = any(isinstance(fold, SetPartitions) for fold in folds.values())
    return ProductPartitions(folds) if has_set else dg.MultiPartitionsDefinition(folds)


@cache
def fold_def(fold: Fold, retention: dt.timedelta | None = None) -> dg.PartitionsDefinition[str]:
    """Return one of Dagster's dimensions, made of one or more of ours.

    Windows whose retention is over are not in it. A dynamic set loses them as time passes. Dagster's own time windows
    begin at the first window that was kept when the definitions were loaded: Dagster would show older ones as missing.
    """
    (first, *others) = fold
    if isinstance(first, TimeDimension) and not others:
        if not tiled_alike(first):
            return dg.DynamicPartitionsDefinition(name=time_set(first, retention))
        start = first.first
        if retention is not None:
            start = kept_from(first, retention, pendulum.now("UTC").timestamp())
        return _windows(first, pendulum.from_timestamp(start, tz=first.timezone), first.end, first.end_offset)
    name = set_of(fold)
    if name is None:
        return dg.StaticPartitionsDefinition(fold_texts(fold))
    return dg.DynamicPartitionsDefinition(name=name) if others else SetPartitions(name=name)


@cache
def tiled_alike(dimension: TimeDimension) -> bool:
    """Return whether Dagster has the same windows with the same keys, also where clocks change in the extent."""
    if isinstance(dimension.tiling, Every | Calendar):
        return False
    # A boundary: of a window that is cut by the end Dagster would have nothing.
    ahead = dimension.calendar.floor(int(pendulum.now("UTC").add(years=_YEARS_AHEAD).timestamp()))
    last = dimension.last or ahead
    first = dimension.calendar.floor(dimension.first)
    if not _alike_between(dimension, first, min(last, moved(dimension.calendar, first, _FIRST))):
        return False
    instant = dimension.first
    while instant < last:
        clock_stretch = stretch(dimension.timezone, instant)
        if clock_stretch.offset != clock_stretch.before and not _alike_around(dimension, clock_stretch.start):
            return False
        instant = clock_stretch.end
    return True


def warn_of_size(name: str, partitioning: Partitioning) -> None:
    """Warn where a dataset has more partitions by now than Dagster's UI shows with ease."""
    if set_of(partitioning.dimensions) is None and (count := partitioning.count()) > DAGSTER_COMFORT:
        warnings.warn(
            f"dataset {name}: {count} partitions, above the {DAGSTER_COMFORT} that Dagster's UI shows with ease; "
            "coarser windows or fewer keys would help it. Runs and planning do not mind.",
            LargeProduct,
            stacklevel=2,
        )


def _alike_around(dimension: TimeDimension, instant: int) -> bool:
    """Return whether Dagster has the same windows in the days around one change of the clock."""
    calendar = dimension.calendar
    return _alike_between(dimension, calendar.floor(instant - 2 * DAY), calendar.following(instant + 2 * DAY))


def _alike_between(dimension: TimeDimension, start: int, end: int) -> bool:
    """Return whether Dagster has the same windows between two boundaries, given in epoch seconds."""
    calendar = dimension.calendar
    our_windows = []
    window_start = start
    while window_start < end:
        our_windows.append((dimension.text_at(window_start), window_start, calendar.following(window_start)))
        window_start = calendar.following(window_start)
    try:
        first, last = (pendulum.from_timestamp(instant, tz=dimension.timezone) for instant in (start, end))
        dagster_windows = _windows(dimension, first, last, 0)
        return our_windows == [
            (key, int(window.start.timestamp()), int(window.end.timestamp()))
            for key in dagster_windows.get_partition_keys(current_time=dt.datetime.fromtimestamp(end, tz=dt.UTC))
            for window in [dagster_windows.time_window_for_partition_key(key)]
        ]
    except (ValueError, dg.DagsterInvalidDefinitionError):
        # The cron library inside Dagster is an older one, and cannot read some expressions, for example `0 0 1 * 1#2`.
        return False


def _windows(
    dimension: TimeDimension, start: pendulum.DateTime, end: pendulum.DateTime | None, end_offset: int
) -> dg.TimeWindowPartitionsDefinition:
    assert not isinstance(dimension.tiling, Every | Calendar)
    return dg.TimeWindowPartitionsDefinition(
        cron_schedule=known_to_croniter(cron_of(dimension.tiling)),
        timezone=dimension.timezone,
        fmt=dimension.text_format,
        start=dt.datetime.fromtimestamp(start.timestamp(), tz=start.tzinfo),
        end=end and dt.datetime.fromtimestamp(end.timestamp(), tz=end.tzinfo),
        end_offset=end_offset,
    )
