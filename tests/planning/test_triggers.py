"""Due partitions in runs: in ranges that say neither more nor less, fresh before backfills, failed ones in halves."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varve.model.batch import Input
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import Dimension, StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.key import PartitionKey, Value
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.reasons import (
    LONGEST,
    ChangedInputs,
    InputName,
    partitions_in_short,
    partitions_in_words,
    without_dataset,
)
from varve.planning.run_requests import Due, runs

if TYPE_CHECKING:
    from collections.abc import Iterable

DAY = TimeDimension("day", Grain.DAY, pendulum.datetime(2013, 1, 1), pendulum.datetime(2013, 2, 1))
HOUR = TimeDimension("hour", Grain.HOUR, pendulum.datetime(2013, 1, 1), pendulum.datetime(2013, 2, 1))
WEEK = TimeDimension("week", Grain.WEEK, pendulum.datetime(2012, 12, 31), pendulum.datetime(2013, 2, 4))
# Not in the order of the alphabet: neighbours are neighbours of the declaration.
ORIGIN = StaticDimension("origin", ("LGA", "EWR", "JFK", "BOS"))
CARRIER = StaticDimension("carrier", ("UA", "AA", "DL"))
LIMIT = 1_000


def dataset(name: str, *dimensions: Dimension) -> Dataset:
    schema = Schema((Column("flights", ColumnType.BIGINT),))
    return Dataset(f"t.{name}", Partitioning(dimensions), schema, StoreKind.LAKE, "One row per flight.")


DEPARTURES, WEATHER = dataset("departures", DAY), dataset("weather", HOUR)
DELAYS, WEEKLY = dataset("delays", DAY, ORIGIN), dataset("weekly", WEEK, ORIGIN)


def key(day: int, origin: str = "EWR") -> PartitionKey:
    return PartitionKey.of(day=dt.date(2013, 1, day), origin=origin)


def made_of(*versions: str) -> frozenset[Input]:
    return frozenset(
        Input("t.departures", f"day=2013-01-0{place}", version) for place, version in enumerate(versions, 1)
    )


def dues(keys: Iterable[PartitionKey]) -> list[Due]:
    return [Due(key, made_of("1"), "missing") for key in keys]


def test_neighbouring_days_are_one_run() -> None:
    (run,) = runs(DEPARTURES, dues(PartitionKey.of(day=dt.date(2013, 1, day)) for day in (5, 6, 7)), limit=LIMIT)
    assert (str(run.first), str(run.last)) == ("day=2013-01-05", "day=2013-01-07")
    assert run.reason == "missing"


def test_a_gap_between_days_is_two_runs() -> None:
    planned = runs(DEPARTURES, dues(PartitionKey.of(day=dt.date(2013, 1, day)) for day in (5, 6, 8)), limit=LIMIT)
    assert [len(run.partitions) for run in planned] == [2, 1]


def test_all_keys_of_neighbouring_days_are_one_run_in_their_declared_order() -> None:
    (run,) = runs(DELAYS, dues(key(day, origin) for day in (5, 6) for origin in ORIGIN.members), limit=LIMIT)
    assert (run.first, run.last) == (key(5, "LGA"), key(6, "BOS"))


def test_keys_that_are_no_neighbours_in_the_declaration_are_two_runs() -> None:
    planned = runs(DELAYS, dues([key(5, "LGA"), key(5, "JFK")]), limit=LIMIT)
    assert [run.partitions for run in planned] == [(key(5, "LGA"),), (key(5, "JFK"),)]


def test_a_run_is_made_from_the_inputs_of_all_of_its_partitions_and_tells_all_reasons() -> None:
    changed = ChangedInputs(frozenset({InputName("t.departures", "day=2013-01-02")}))
    both = [
        Due(key(5), made_of("1"), "first batch"),
        Due(key(6), made_of("1", "2"), "1 of 2 inputs new", changed=changed),
    ]
    (run,) = runs(DELAYS, both, limit=LIMIT)
    assert run.inputs == made_of("1", "2")
    assert run.reason == "first batch; 1 of 2 inputs new: departures 2013-01-02"
    assert run.in_words == f"2013-01-05...2013-01-06|EWR (2 partitions): {run.reason}"


def test_inputs_that_several_partitions_read_are_counted_once_and_only_some_are_named() -> None:
    of_week = {
        origin: ChangedInputs(
            frozenset(InputName("t.delays", f"day=2013-01-0{day}/origin={origin}") for day in (5, 6, 7))
        )
        for origin in ("EWR", "JFK")
    }
    inputs = frozenset(
        Input("t.delays", f"day=2013-01-0{day}/origin={origin}", "1") for day in range(1, 8) for origin in of_week
    )
    monday = PartitionKey.of(week=dt.date(2012, 12, 31), origin="EWR")
    other = PartitionKey.of(week=dt.date(2012, 12, 31), origin="JFK")
    marked = [Due(key, inputs, "", changed=of_week[str(key["origin"])]) for key in (monday, other)]
    (run,) = runs(WEEKLY, marked, limit=LIMIT)
    assert run.in_words == (
        "EWR...JFK|2012-12-31 (2 partitions): 6 of 14 inputs new: delays 2013-01-05|EWR, ...|JFK, "
        "2013-01-06|EWR and 3 more"
    )
    (gone,) = runs(WEEKLY, [Due(monday, inputs, "", changed=ChangedInputs(gone=of_week["EWR"].new))], limit=LIMIT)
    assert gone.reason == "3 inputs gone: delays 2013-01-05|EWR, 2013-01-06|EWR, 2013-01-07|EWR"


def test_what_the_first_and_the_last_partition_have_in_common_is_said_once() -> None:
    ends = {
        "2013-01-05|LGA...BOS (4 partitions)": [key(5, origin) for origin in ORIGIN.members],
        "2013-01-05...2013-01-06|JFK (2 partitions)": [key(5, "JFK"), key(6, "JFK")],
        "2013-01-05|LGA...2013-01-06|BOS (8 partitions)": [
            key(day, origin) for day in (5, 6) for origin in ORIGIN.members
        ],
        "2013-01-05|EWR": [key(5)],
    }
    for expected, keys in ends.items():
        assert partitions_in_words(DELAYS, keys) == expected


def test_in_short_a_reason_leaves_out_the_name_of_its_dataset_and_nothing_else() -> None:
    first = replace(DELAYS, name="t.first")
    assert without_dataset("first re-sent", first) == "re-sent"
    assert without_dataset("first batch", first) == "first batch"
    assert without_dataset("delays arrived", first) == "delays arrived"


def test_in_short_only_the_windows_of_partitions_that_differ_in_more_are_named() -> None:
    ends = {
        "2013-01-05|LGA...BOS (4)": [key(5, origin) for origin in ORIGIN.members],
        "2013-01-05...06|JFK (2)": [key(5, "JFK"), key(6, "JFK")],
        "2013-01-31...02-01|JFK (2)": [
            PartitionKey.of(day=day, origin="JFK") for day in (dt.date(2013, 1, 31), dt.date(2013, 2, 1))
        ],
        "2013-01-05...06 (8)": [key(day, origin) for day in (5, 6) for origin in ORIGIN.members],
        "2013-01-05|EWR": [key(5)],
    }
    for expected, keys in ends.items():
        assert partitions_in_short(DELAYS, keys) == expected


def test_the_words_of_a_run_have_a_greatest_length() -> None:
    (run,) = runs(DELAYS, [Due(key(5), made_of("1"), "dirty: " + "very " * 200)], limit=LIMIT)
    assert len(run.in_words) == LONGEST
    assert run.in_words.endswith("...")


def test_nothing_due_is_no_run() -> None:
    assert runs(DELAYS, [], limit=LIMIT) == []


def test_a_run_is_cut_at_the_limit_between_windows_and_never_inside_one() -> None:
    planned = runs(DELAYS, dues(key(day, origin) for day in (5, 6, 7) for origin in ORIGIN.members), limit=8)
    assert [len(run.partitions) for run in planned] == [8, 4]
    whole = runs(DELAYS, dues(key(5, origin) for origin in ORIGIN.members), limit=2)
    assert [len(run.partitions) for run in whole] == [4]


days = st.sampled_from([dt.date(2013, 1, day) for day in range(1, 8)])
PRODUCTS: dict[str, tuple[Dimension, ...]] = {
    "day": (DAY,),
    "day x origin": (DAY, ORIGIN),
    "origin x day": (ORIGIN, DAY),
    "origin": (ORIGIN,),
    "carrier x origin": (CARRIER, ORIGIN),
}


def places(dimension: Dimension) -> list[Value]:
    if isinstance(dimension, TimeDimension):
        return [dt.date(2013, 1, day) for day in range(1, 8)]
    return list(dimension.keys())


@pytest.mark.parametrize("dimensions", PRODUCTS.values(), ids=PRODUCTS.keys())
@given(data=st.data(), limit=st.integers(1, 12))
def test_blocks_are_exact_rectangles_that_partition_what_is_due(
    dimensions: tuple[Dimension, ...], data: st.DataObject, limit: int
) -> None:
    reader = dataset("reader", *dimensions)
    points = [reader.partitioning.key(values) for values in product(*map(places, dimensions))]
    wanted = data.draw(st.sets(st.sampled_from(points)))
    planned = runs(reader, dues(sorted(wanted)), limit=limit)
    listed = [partition for run in planned for partition in run.partitions]
    assert len(listed) == len(set(listed))
    assert set(listed) == wanted
    for run in planned:
        sides = [
            all_of[all_of.index(run.first[dimension.name]) : all_of.index(run.last[dimension.name]) + 1]
            for dimension in dimensions
            for all_of in [places(dimension)]
        ]
        assert {reader.partitioning.key(values) for values in product(*sides)} == set(run.partitions)
        leading = reader.partitioning.time or (dimensions[0] if len(dimensions) > 1 else None)
        rows = {partition[leading.name] if leading else None for partition in run.partitions}
        # One window's row is never cut, so a run of more than the limit has one window only.
        assert len(run.partitions) <= limit or len(rows) == 1


def test_a_run_is_another_one_when_its_inputs_change_or_a_partition_is_tried_again() -> None:
    (run,) = runs(DELAYS, dues([key(5), key(6)]), limit=LIMIT)
    (again,) = runs(DELAYS, dues([key(5), key(6)]), limit=LIMIT)
    assert again.identity == run.identity
    tokens = [replace(run, tokens=tokens).identity for tokens in (("", "1"), ("", "2"), ("1", ""))]
    assert len({run.identity, *tokens}) == 4
    assert replace(run, inputs=made_of("2")).identity != run.identity
    assert replace(run, partitions=(key(5),), tokens=("",)).identity != run.identity
    assert replace(run, reason="1 input changed").identity == run.identity
    assert replace(run, dataset=WEEKLY).identity != run.identity


def test_what_failed_together_is_asked_for_in_halves_apart_from_all_else() -> None:
    failed = [replace(planned, together=2) for planned in dues(key(5, origin) for origin in ORIGIN.members)]
    planned = runs(DELAYS, [*failed, *dues([key(6, "LGA")])], limit=LIMIT)
    assert [[str(partition["origin"]) for partition in run.partitions] for run in planned] == [
        ["LGA"], ["LGA", "EWR"], ["JFK", "BOS"],
    ]  # fmt: skip


def test_fresh_data_goes_before_backfills_and_not_in_one_run_with_them() -> None:
    marked = [replace(planned, backfill=True) for planned in dues([key(5)])]
    assert [(run.first, run.backfill) for run in runs(DELAYS, [*marked, *dues([key(6)])], limit=LIMIT)] == [
        (key(6), False), (key(5), True),
    ]  # fmt: skip


@given(st.dictionaries(days, st.sampled_from("12"), min_size=1), st.permutations(range(8)))
def test_the_identity_of_a_run_does_not_depend_on_the_order_its_inputs_came_in(
    versions: dict[dt.date, str], order: list[int]
) -> None:
    listed = [Input("t.departures", f"day={day}", planned) for day, planned in versions.items()]
    shuffled = sorted(listed, key=lambda planned: order[int(planned.partition[-1])])
    first, second = (
        runs(DELAYS, [Due(key(5), frozenset(inputs), "missing")], limit=LIMIT)[0] for inputs in (listed, shuffled)
    )
    assert first.identity == second.identity
