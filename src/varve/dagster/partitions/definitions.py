"""Dimensions as Dagster's own partition definitions, so that its UI, backfills and CLI understand ours.

Windows that Dagster tiles as we do are its time windows. Windows that it cannot say (every 90 minutes), or begins
elsewhere where clocks move, are a set of its that grows as time passes; so are folds with a dynamic dimension
(sets_sensor.py).

Not here: what a key means (model/) and how datasets depend on each other (mappings.py).
"""

from __future__ import annotations

import datetime as dt
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING

import dagster as dg
import pendulum

from varve.model.partitions.calendar import Every, cron_of
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.partitioning import DAGSTER_COMFORT, Fold, Partitioning, fold_texts, set_of, time_set
from varve.model.partitions.windows import kept_from
from varve.model.partitions.zone import DAY, stretch
from varve.planning.mapping.dimension_mapping import moved

if TYPE_CHECKING:
    from varve.model.dataset import Dataset

# How far ahead the clocks of a zone are compared where a dimension has no end.
_YEARS_AHEAD = 3
# How many of the first windows are compared in any case: Dagster loses its way in some crons of few days.
_FIRST = 200


class LargeProduct(UserWarning):
    """A dataset has more partitions than Dagster's UI shows with ease."""


def dataset_partitions_def(dataset: Dataset) -> dg.PartitionsDefinition[str]:
    """The partitions of a dataset, as far as they are kept."""
    return partitions_def(dataset.partitioning, dataset.policy.retention)


@lru_cache
def partitions_def(partitioning: Partitioning, retention: dt.timedelta | None = None) -> dg.PartitionsDefinition[str]:
    """The partitions of a product; one object for equal products, as Dagster compares them."""
    folds = {name: fold_def(fold, retention) for name, fold in partitioning.folds.items()}
    if len(folds) == 1:
        return next(iter(folds.values()))
    return dg.MultiPartitionsDefinition(folds)


@lru_cache
def fold_def(fold: Fold, retention: dt.timedelta | None = None) -> dg.PartitionsDefinition[str]:
    """One of Dagster's dimensions, made of one or more of ours.

    Windows whose retention is over are not in it: a set loses them as time passes, and Dagster's own time windows begin
    where they begin when the definitions are loaded, as nothing can be missing for ever.
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
    return (
        dg.StaticPartitionsDefinition(fold_texts(fold)) if name is None else dg.DynamicPartitionsDefinition(name=name)
    )


@lru_cache
def tiled_alike(dimension: TimeDimension) -> bool:
    """Whether Dagster begins the same windows, with the same keys, wherever clocks move in the dimension's extent."""
    if isinstance(dimension.tiling, Every):
        return False
    last = dimension.last or int(pendulum.now("UTC").add(years=_YEARS_AHEAD).timestamp())
    first = dimension.calendar.floor(dimension.first)
    if not _alike_between(dimension, first, min(last, moved(dimension.calendar, first, _FIRST))):
        return False
    at = dimension.first
    while at < last:
        around = stretch(dimension.timezone, at)
        if around.offset != around.before and not _alike_around(dimension, around.start):
            return False
        at = around.end
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
    """Whether both tile the days around one move of the clock alike."""
    calendar = dimension.calendar
    return _alike_between(dimension, calendar.floor(instant - 2 * DAY), calendar.following(instant + 2 * DAY))


def _alike_between(dimension: TimeDimension, start: int, end: int) -> bool:
    """Whether both tile the time between two boundaries alike."""
    calendar = dimension.calendar
    ours = []
    at = start
    while at < end:
        ours.append((dimension.text_at(at), at, calendar.following(at)))
        at = calendar.following(at)
    try:
        first, last = (pendulum.from_timestamp(each, tz=dimension.timezone) for each in (start, end))
        theirs = _windows(dimension, first, last, 0)
        return ours == [
            (key, int(window.start.timestamp()), int(window.end.timestamp()))
            for key in theirs.get_partition_keys(current_time=dt.datetime.fromtimestamp(end, tz=dt.UTC))
            for window in [theirs.time_window_for_partition_key(key)]
        ]
    except ValueError:
        # The cron reader inside Dagster gives some expressions up: `0 0 1 * 1#2`.
        return False


def _windows(
    dimension: TimeDimension, start: pendulum.DateTime, end: pendulum.DateTime | None, end_offset: int
) -> dg.TimeWindowPartitionsDefinition:
    assert not isinstance(dimension.tiling, Every)
    return dg.TimeWindowPartitionsDefinition(
        cron_schedule=cron_of(dimension.tiling),
        timezone=dimension.timezone,
        fmt=dimension.text_format,
        start=dt.datetime.fromtimestamp(start.timestamp(), tz=start.tzinfo),
        end=end and dt.datetime.fromtimestamp(end.timestamp(), tz=end.tzinfo),
        end_offset=end_offset,
    )
