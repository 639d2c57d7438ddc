"""Our dimensions as Dagster's: folded to two, with the same windows where Dagster can, and any characters."""

from __future__ import annotations

import datetime as dt

import click
import dagster as dg
import pendulum
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.model.test_calendar import SINCE, UNTIL, ZONES, crons
from tests.planning.shapes import MEMBERS, NOW, all_keys, partitionings
from varve.dagster.partitions.definitions import LargeProduct, partitions_def, tiled_alike, warn_of_size
from varve.model.errors import UnknownPartition
from varve.model.partitions.calendar import Every, Grain, calendar_of
from varve.model.partitions.dimension import Dimension, DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning, fold_texts
from varve.model.partitions.zone import DAY, stretch

NASTY = st.sampled_from([*"|,[]~%'/=\\😀 .", '"', "%7C", "...", "....", ".."])
ANY = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=4)
TEXTS = st.lists(NASTY | ANY, min_size=1, max_size=6).map("".join).filter(bool)
LISTS = st.lists(TEXTS, min_size=1, max_size=4, unique_by=lambda text: text.rstrip(" ")).map(tuple)


@st.composite
def products(draw: st.DrawFn) -> Partitioning:
    """Draw products of one to five dimensions whose keys have any characters."""
    dimensions: list[Dimension] = [
        StaticDimension(f"d{place}", draw(LISTS)) for place in range(draw(st.integers(1, 4)))
    ]
    if draw(st.booleans()):
        day = TimeDimension.of("e_day", "@daily", "2024-03-09", "2024-03-12", timezone="America/New_York")
        dimensions.insert(draw(st.integers(0, len(dimensions))), day)
    product = Partitioning(tuple(dimensions))
    product.check()
    return product


@settings(max_examples=80)
@given(products(), st.data())
def test_folding_and_unfolding_any_number_of_dimensions_is_the_identity(
    partitioning: Partitioning, data: st.DataObject
) -> None:
    key = partitioning.key(
        [data.draw(st.sampled_from(list(dimension.keys()))) for dimension in partitioning.dimensions]
    )
    text = partitioning.to_dagster(key)
    assert partitioning.from_dagster(text) == key
    assert partitioning.from_path(key.path) == key
    assert len(partitioning.folds) == min(2, len(partitioning.dimensions))
    with dg.partition_loading_context(NOW):
        assert partitions_def(partitioning).has_partition_key(text)


@settings(max_examples=60)
@given(products())
def test_dagster_lists_just_our_keys(partitioning: Partitioning) -> None:
    ours = [partitioning.to_dagster(key) for key in partitioning.keys(now=NOW)]
    assume(len(ours) <= 2_000)
    theirs = partitions_def(partitioning).get_partition_keys(current_time=NOW)
    assert len(set(ours)) == len(ours) == partitioning.count(now=NOW)
    assert set(theirs) == set(ours)


@settings(max_examples=100)
@given(partitionings(), st.data())
def test_keys_of_every_kind_survive_dagster_and_paths(partitioning: Partitioning, data: st.DataObject) -> None:
    keys = all_keys(partitioning)
    assume(keys)
    key = data.draw(st.sampled_from(keys))
    assert partitioning.from_dagster(partitioning.to_dagster(key)) == key
    assert partitioning.from_path(key.path) == key
    assert partitioning.exists(key, MEMBERS)


def test_a_key_of_200_bytes_is_a_key() -> None:
    text = "é" * 100
    partitioning = Partitioning(
        (StaticDimension("name", (text, "😀" * 50, "x" * 200)), DynamicDimension("user", "users"))
    )
    partitioning.check()
    key = partitioning.key([text, "y" * 200])
    assert partitioning.from_dagster(partitioning.to_dagster(key)) == key
    assert partitioning.from_path(key.path) == key


@pytest.mark.needs_seconds
@settings(max_examples=20)
@given(crons(), st.sampled_from(ZONES), st.data())
def test_dagster_has_the_same_windows_where_they_are_said_to_be_alike(
    cron: str, zone: str, data: st.DataObject
) -> None:
    compare_windows(cron, zone, data)


@pytest.mark.slow
@settings(max_examples=400)
@given(crons(), st.sampled_from(ZONES), st.data())
def test_dagster_has_the_same_windows_in_hundreds_of_calendars(cron: str, zone: str, data: st.DataObject) -> None:
    compare_windows(cron, zone, data)


def compare_windows(cron: str, zone: str, data: st.DataObject) -> None:
    """Dagster's windows around a move of the clock are ours, or it is given none to make."""
    # Dagster cannot iterate over crons that name both; see the test below.
    assume("#" not in cron or cron.split()[2] == "*")
    calendar = calendar_of(cron, zone)
    moved = stretch(zone, data.draw(st.integers(SINCE, UNTIL))).start
    start, end = calendar.floor(moved - 2 * DAY), calendar.following(moved + 2 * DAY)
    dimension = TimeDimension(
        "time", cron, pendulum.from_timestamp(start, tz=zone), pendulum.from_timestamp(end, tz=zone)
    )
    theirs = partitions_def(Partitioning((dimension,)))
    if not tiled_alike(dimension):
        assert isinstance(theirs, dg.DynamicPartitionsDefinition)
        return
    assert isinstance(theirs, dg.TimeWindowPartitionsDefinition)
    later = dt.datetime(2060, 1, 1, tzinfo=dt.UTC)
    keys, values = theirs.get_partition_keys(current_time=later), list(dimension.keys(now=later))
    assert list(map(str, values)) == list(keys)
    for value, key in list(zip(values, keys, strict=True))[:20]:
        ours, window = dimension.window(value), theirs.time_window_for_partition_key(key)
        assert (ours.start.timestamp(), ours.end.timestamp()) == (window.start.timestamp(), window.end.timestamp())


def test_windows_of_two_zones_that_start_at_one_instant_are_two_definitions_of_dagster() -> None:
    here = TimeDimension.of("hour", "@hourly", "2024-02-29T19:00", timezone="America/New_York")
    there = TimeDimension.of("hour", "@hourly", "2024-03-01", timezone="UTC")
    assert partitions_def(Partitioning((here,))) != partitions_def(Partitioning((there,)))


def test_the_fold_of_a_dynamic_dimension_is_a_set_that_equal_products_share() -> None:
    user, store = DynamicDimension("user", "users"), StaticDimension("store", ("a", "b"))
    day = TimeDimension.of("day", "@daily", "2024-03-09")
    first, second = Partitioning((day, user, store)), Partitioning((user, day, store))
    assert first.folds["user~store"] == second.folds["user~store"]
    assert fold_texts(first.folds["user~store"], {"users": ("x",)}) == ["x~a", "x~b"]
    assert partitions_def(first) == partitions_def(second)


@pytest.mark.parametrize("text", ["2024-03-09", "a|b|2024-03-09", "a~b|2024-03-09", "2024-03-09|zz", ""])
def test_a_text_that_dagster_would_never_give_is_no_key(text: str) -> None:
    partitioning = Partitioning((TimeDimension.of("day", "@daily", "2024-03-09"), StaticDimension("store", ("a", "b"))))
    with pytest.raises(UnknownPartition):
        partitioning.from_dagster(text)


def test_each_of_hundreds_of_calendars_is_compared_with_dagsters_windows_once() -> None:
    """A tick asks this of every dataset."""
    starts = [dt.date(2013, 1, 1) + dt.timedelta(days=number) for number in range(300)]
    anchor = pendulum.datetime(2013, 1, 1)
    slots = [TimeDimension.of("slot", Every(dt.timedelta(minutes=90), anchor), str(start)) for start in starts]
    definitions = [(tiled_alike(slot), partitions_def(Partitioning((slot,)))) for slot in slots]
    compared = tiled_alike.cache_info().misses
    for slot, (alike, definition) in zip(slots, definitions, strict=True):
        assert tiled_alike(slot) is alike is False
        assert partitions_def(Partitioning((slot,))) is definition
    assert tiled_alike.cache_info().misses == compared


def test_a_large_product_is_warned_of() -> None:
    partitioning = Partitioning(tuple(StaticDimension(name, tuple(map(str, range(400)))) for name in ("one", "other")))
    with pytest.warns(LargeProduct, match=r"dataset t\.sales: 160000 partitions, above the 100000"):
        warn_of_size("t.sales", partitioning)


@pytest.mark.parametrize(
    ("cron", "start"),
    # Mondays of February, as it has no 31st: to Dagster the cron is not valid.
    [("0 * 1 * 1#2", "2024-03-01"), ("0 0 31 2 1", "2024-02-05")],
)
def test_a_cron_that_dagster_cannot_walk_is_a_set_that_grows(cron: str, start: str) -> None:
    dimension = TimeDimension.of("time", cron, start, timezone="America/New_York")
    dimension.check()
    assert isinstance(partitions_def(Partitioning((dimension,))), dg.DynamicPartitionsDefinition)


def test_a_shorthand_that_dagster_does_not_know_is_the_same_windows_there() -> None:
    quarters = TimeDimension.of("quarter", "@quarterly", "2024-01-01", "2025-01-01")
    assert tiled_alike(quarters)
    definition = partitions_def(Partitioning((quarters,)))
    assert definition is not None
    assert definition.get_partition_keys() == ["2024-01-01", "2024-04-01", "2024-07-01", "2024-10-01"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("grain", [Grain.DAY, Grain.WEEK, Grain.MONTH, Grain.QUARTER, Grain.YEAR])
def test_long_windows_that_began_lately_and_have_no_end_are_dagsters_own(grain: Grain, zone: str) -> None:
    # Two hundred of them reach into years of which nothing is compared.
    start = calendar_of(grain, zone).floor(int(pendulum.now("UTC").timestamp()))
    dimension = TimeDimension("time", grain, pendulum.from_timestamp(start, tz=zone))
    assert tiled_alike(dimension)
    assert isinstance(partitions_def(Partitioning((dimension,))), dg.TimeWindowPartitionsDefinition)


def test_a_product_with_a_set_tells_at_the_shell_which_key_the_set_has_not() -> None:
    day = TimeDimension("day", Grain.DAY, pendulum.datetime(2026, 11, 1))
    definition = partitions_def(Partitioning((day, DynamicDimension("meter", "of_shell"))))
    assert definition is not None
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("varve/of_shell", ["a%7Cb", "CH1"])
        with dg.partition_loading_context(dynamic_partitions_store=instance) as context:
            definition.validate_partition_key("2026-11-01|CH1", context)
            # The UI and the daemon get Dagster's own error, which they know.
            with pytest.raises(dg.DagsterUnknownPartitionError):
                definition.validate_partition_key("2026-11-01|CH2", context)
            with click.Context(click.Command("materialize"), info_name="dagster asset materialize"):
                with pytest.raises(click.UsageError, match="the set of_shell has no key CH2, its 2 keys are"):
                    definition.validate_partition_key("2026-11-01|CH2", context)
                # What is wrong with other parts of a key is for Dagster to say.
                for other in ("1999-11-01|CH1", "2026-11-01", "a|b|c"):
                    with pytest.raises(dg.DagsterUnknownPartitionError):
                        definition.validate_partition_key(other, context)
