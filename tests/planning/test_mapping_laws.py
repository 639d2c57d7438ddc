"""What holds of every dependency: both directions agree, and a set maps to what its members map to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.planning.shapes import MEMBERS, NOW, all_keys, dependencies, keys_of, times
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import Overlap, Unit
from varve.planning.mapping.dataset_mapping import Dependency, Mapped, listed
from varve.planning.mapping.partition_subset import PartitionBox, boxes_of, choice_of

if TYPE_CHECKING:
    from varve.model.partitions.dimension import TimeDimension
    from varve.model.partitions.key import PartitionKey


def read_by(dependency: Dependency, key: PartitionKey | PartitionBox) -> Mapped:
    return dependency.upstream_of(key, members=MEMBERS, now=NOW)


def readers(dependency: Dependency, key: PartitionKey | PartitionBox) -> Mapped:
    return dependency.readers_of(key, members=MEMBERS, now=NOW)


@settings(max_examples=50)
@given(dependencies(), st.data())
def test_mapping_down_then_up_covers_the_partition_it_started_from(dependency: Dependency, data: st.DataObject) -> None:
    keys = all_keys(dependency.reader)
    assume(keys)
    key = data.draw(st.sampled_from(keys))
    down = read_by(dependency, key).keys
    assume(down)
    assert key in readers(dependency, data.draw(st.sampled_from(down))).keys
    # Nor does what is not read map back to it.
    others = sorted(set(all_keys(dependency.upstream)) - set(down))
    if others:
        assert key not in readers(dependency, data.draw(st.sampled_from(others))).keys


@settings(max_examples=50)
@given(dependencies(), st.data())
def test_mapping_up_then_down_covers_the_partition_it_started_from(dependency: Dependency, data: st.DataObject) -> None:
    keys = all_keys(dependency.upstream)
    assume(keys)
    key = data.draw(st.sampled_from(keys))
    up = readers(dependency, key).keys
    assume(up)
    assert key in read_by(dependency, data.draw(st.sampled_from(up))).keys
    others = sorted(set(all_keys(dependency.reader)) - set(up))
    if others:
        assert key not in read_by(dependency, data.draw(st.sampled_from(others))).keys


def everything(mapped: Mapped) -> tuple[set[PartitionKey], ...]:
    return tuple(set(listed(part)) for part in (mapped.existing, mapped.upcoming, mapped.nonexistent))


@settings(max_examples=50)
@given(dependencies(), st.booleans(), st.data())
def test_a_box_maps_to_the_union_of_what_its_partitions_map_to(
    dependency: Dependency,
    upwards: bool,  # noqa: FBT001
    data: st.DataObject,
) -> None:
    side, ask = (dependency.upstream, readers) if upwards else (dependency.reader, read_by)
    choices = []
    for dimension in side.dimensions:
        values = keys_of(dimension)
        assume(values)
        chosen = data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1, max_size=4))
        choices.append(choice_of(dimension, [values[place] for place in sorted(chosen)]))
    box = PartitionBox(side, tuple(choices))
    parts_of_keys = [everything(ask(dependency, key)) for key in box.partitions()]
    assert everything(ask(dependency, box)) == tuple(
        set().union(*(parts[part] for parts in parts_of_keys)) for part in range(3)
    )


@settings(max_examples=50)
@given(dependencies(), st.data())
def test_partitions_are_put_into_boxes_that_hold_them_and_no_others(
    dependency: Dependency, data: st.DataObject
) -> None:
    keys = all_keys(dependency.reader)
    assume(keys)
    chosen = data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=8, unique=True))
    boxes = boxes_of(dependency.reader, chosen)
    assert sorted(listed(boxes)) == sorted(chosen)
    assert all(any(key in box for box in boxes) == (key in chosen) for key in keys[:50])


@settings(max_examples=50)
@given(times("reader"), times("upstream"), st.data())
def test_windows_that_overlap_are_just_those_that_share_an_instant(
    reader: TimeDimension, upstream: TimeDimension, data: st.DataObject
) -> None:
    values = keys_of(reader)
    assume(values)
    value = data.draw(st.sampled_from(values))
    span = reader.window(value)
    mapped = read_by(
        Dependency(Partitioning((reader,)), Partitioning((upstream,))), Partitioning((reader,)).key([value])
    )
    upstream_keys = {key["upstream"] for key in mapped.keys}
    for other in keys_of(upstream):
        window = upstream.window(other)
        touches = window.start.timestamp() < span.end.timestamp() and span.start.timestamp() < window.end.timestamp()
        assert (other in upstream_keys) == touches
    # All together they cover the window, where no gap is in what is read.
    if upstream.calendar.has_gaps:
        return
    starts = sorted(
        start
        for boxes in (mapped.existing, mapped.upcoming, mapped.nonexistent)
        for box in boxes
        for choice in box.choices
        for start in choice.spans
    )  # type: ignore[union-attr]
    assert starts[0][0] <= span.start.timestamp()
    assert starts[-1][1] >= span.end.timestamp()


@settings(max_examples=50)
@given(times("time"), st.integers(-3, 3), st.integers(0, 3), st.sampled_from(Unit), st.data())
def test_offsets_over_the_same_windows_count_windows(
    dimension: TimeDimension, first: int, more: int, unit: Unit, data: st.DataObject
) -> None:
    values = keys_of(dimension)
    assume(values)
    place = data.draw(st.integers(0, len(values) - 1))
    side = Partitioning((dimension,))
    dependency = Dependency(side, side, {"time": Overlap(first, first + more, unit)})
    keys_read = [key["time"] for key in read_by(dependency, side.key([values[place]])).keys]
    assert keys_read == [values[at] for at in range(place + first, place + first + more + 1) if 0 <= at < len(values)]
