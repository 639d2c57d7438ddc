"""Which partitions a backfill marks, of the dataset itself."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pendulum
import pytest

from tests.planning.test_reconcile import DAY, STORE, dataset
from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.time_columns import TimeColumn
from varve.model.policy import Policy
from varve.planning.backfill import selected

NOW = pendulum.datetime(2024, 1, 21, 9)
HOUR = TimeDimension.of("hour", "@hourly", "2024-01-01")
IN_COLUMNS = replace(HOUR, columns=(TimeColumn("day", "%Y-%m-%d"), TimeColumn("hour", "%H")))


def paths(
    *dimensions: object, first: str | None = None, last: str | None = None, policy: Policy | None = None, **words: str
) -> list[str]:
    of = dataset("sales", *dimensions, policy=policy or Policy())  # type: ignore[arg-type]
    return [key.path for key in selected(of, first=first, last=last, words=words, members=None, now=NOW)]


def test_a_range_and_words_are_met_both() -> None:
    assert paths(DAY, first="2024-01-05", last="2024-01-06") == ["day=2024-01-05", "day=2024-01-06"]
    assert paths(DAY, day="2024-01-05", first="2024-01-05") == ["day=2024-01-05"]
    with pytest.raises(VarveError, match="has no partition in that range"):
        paths(DAY, day="2024-01-01", first="2024-01-05")
    in_columns = paths(IN_COLUMNS, day="2024-01-05", first="2024-01-05T22", last="2024-01-06T01")
    assert in_columns == ["day=2024-01-05/hour=22", "day=2024-01-05/hour=23"]
    assert paths(DAY, STORE, day="2024-01-05", store="Paris") == ["day=2024-01-05/store=Paris"]


def test_what_no_run_computes_any_more_is_not_marked() -> None:
    # On 21 January the windows of the ten days before it are kept.
    kept = Policy(retention=dt.timedelta(days=10))
    assert paths(DAY, policy=kept)[0] == "day=2024-01-11"
    assert paths(DAY, policy=kept, last="2024-01-12") == ["day=2024-01-11", "day=2024-01-12"]
    message = "Its retention is over before day=2024-01-11"
    with pytest.raises(VarveError, match=message):
        paths(DAY, policy=kept, day="2024-01-05")


def test_windows_that_are_no_partitions_yet_are_not_marked() -> None:
    """The backfill would not end before them, and they would be computed without waiting for a schedule."""
    assert paths(DAY, first="2024-01-19", last="2062-01-01") == ["day=2024-01-19", "day=2024-01-20"]
    with pytest.raises(UnknownPartition, match="day=2024-01-21 is no partition now: its window is open until"):
        paths(DAY, day="2024-01-21")
    with pytest.raises(UnknownPartition, match="day=2024-03-01 is no partition now: its window begins at"):
        paths(DAY, day="2024-03-01")
    reaching = replace(DAY, end_offset=1)
    assert paths(reaching, first="2024-01-20", last="2024-02-01") == ["day=2024-01-20", "day=2024-01-21"]
    assert paths(reaching, day="2024-01-21") == ["day=2024-01-21"]
