"""Dagster's mappings beside ours: they cover what is read, and are exact where they say so."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.planning.shapes import MEMBERS, NOW, all_keys, dependencies
from varve.dagster.partitions.definitions import partitions_def, tiled_alike
from varve.dagster.partitions.mappings import compiled
from varve.model.partitions.dimension import DynamicDimension, StaticDimension
from varve.model.partitions.partitioning import Partitioning, fold_texts, set_of, time_set
from varve.model.reads import All, Latest, Only
from varve.planning.mapping.dataset_mapping import Dependency

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from varve.model.partitions.key import PartitionKey


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def grow(instance: dg.DagsterInstance, partitioning: Partitioning) -> None:
    """A Dagster instance with the sets as they are at NOW."""
    for fold in partitioning.folds.values():
        name = set_of(fold)
        texts = fold_texts(fold, MEMBERS, NOW)
        if partitioning.time in fold and partitioning.time is not None and not tiled_alike(partitioning.time):
            name = time_set(partitioning.time)
        if name is not None:
            instance.add_dynamic_partitions(name, texts)


class Sides:
    """One dependency, as Dagster maps it."""

    def __init__(self, dependency: Dependency, instance: dg.DagsterInstance) -> None:
        self.dependency, self.instance = dependency, instance
        grow(instance, dependency.reader)
        grow(instance, dependency.upstream)
        self.reader, self.upstream = partitions_def(dependency.reader), partitions_def(dependency.upstream)
        self.compiled = compiled(dependency)

    def upstream_of(self, keys: Iterable[PartitionKey]) -> set[str]:
        with dg.partition_loading_context(NOW, self.instance), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            subset = self.reader.subset_with_partition_keys([self.dependency.reader.to_dagster(key) for key in keys])
            upstream_result = self.compiled.mapping.get_upstream_mapped_partitions_result_for_partitions(
                subset, self.reader, self.upstream, NOW, self.instance
            )
            # A step whose mapping finds keys missing fails before it begins.
            assert list(upstream_result.required_but_nonexistent_subset.get_partition_keys()) == []
            return set(upstream_result.partitions_subset.get_partition_keys())

    def readers_of(self, keys: Iterable[PartitionKey]) -> set[str]:
        with dg.partition_loading_context(NOW, self.instance), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            texts = [self.dependency.upstream.to_dagster(key) for key in keys]
            reader_subset = self.compiled.mapping.get_downstream_partitions_for_partitions(
                self.upstream.subset_with_partition_keys(texts), self.upstream, self.reader, NOW, self.instance
            )
            return set(reader_subset.get_partition_keys())


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dependency=dependencies(), data=st.data())
def test_dagster_reads_at_least_what_is_read_and_just_that_where_it_says_so(
    dependency: Dependency, data: st.DataObject, instance: dg.DagsterInstance
) -> None:
    keys = all_keys(dependency.reader)
    assume(keys)
    sides = Sides(dependency, instance)
    chosen = data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True))
    ours = {
        dependency.upstream.to_dagster(upstream_key)
        for key in chosen
        for upstream_key in dependency.upstream_of(key, members=MEMBERS, now=NOW).keys
    }
    theirs = sides.upstream_of(chosen)
    assert ours <= theirs
    assert bool(sides.compiled.why) != sides.compiled.exact
    if sides.compiled.exact:
        assert ours == theirs


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dependency=dependencies(), data=st.data())
def test_dagster_finds_at_least_the_readers_and_just_those_where_it_says_so(
    dependency: Dependency, data: st.DataObject, instance: dg.DagsterInstance
) -> None:
    keys = all_keys(dependency.upstream)
    assume(keys)
    sides = Sides(dependency, instance)
    chosen = data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True))
    ours = {
        dependency.reader.to_dagster(reader_key)
        for key in chosen
        for reader_key in dependency.readers_of(key, members=MEMBERS, now=NOW).keys
    }
    theirs = sides.readers_of(chosen)
    assert ours <= theirs
    if sides.compiled.exact:
        # Of a dimension that begins after NOW and has open windows, Dagster maps a window that its reader has not yet.
        assert ours == theirs & {dependency.reader.to_dagster(key) for key in all_keys(dependency.reader)}


def test_a_mapping_that_is_not_exact_says_why_even_where_it_follows_one_dimension() -> None:
    user, device = DynamicDimension("user", "users"), DynamicDimension("device", "devices", int)
    reader, upstream = Partitioning((user,)), Partitioning((user, device))
    dagster_mapping = compiled(Dependency(reader, upstream, {"device": Latest()}))
    assert isinstance(dagster_mapping.mapping, dg.MultiToSingleDimensionPartitionMapping)
    assert not dagster_mapping.exact
    assert dagster_mapping.why


def test_two_dimensions_of_the_same_keys_are_mapped_by_what_a_step_can_be_given(instance: dg.DagsterInstance) -> None:
    home, away = (StaticDimension(name, ("A", "B", "C")) for name in ("home", "away"))
    sides = Sides(Dependency(Partitioning((home, away)), Partitioning((home,))), instance)
    (key,) = (key for key in all_keys(sides.dependency.reader) if key.values == ("A", "B"))
    assert {"A"} <= sides.upstream_of([key])
    assert not isinstance(sides.compiled.mapping, dg.MultiToSingleDimensionPartitionMapping)
    assert "does not tell apart two dimensions of the same keys" in sides.compiled.why


def test_of_assets_without_partitions_dagster_needs_no_mapping() -> None:
    nothing, places = Partitioning(), Partitioning((StaticDimension("place", ("Lagos", "Paris")),))
    assert partitions_def(nothing) is None
    for dependency in (Dependency(places, nothing), Dependency(nothing, places, {"place": All()})):
        assert (compiled(dependency).mapping, compiled(dependency).exact) == (None, True)
    some = compiled(Dependency(nothing, places, {"place": Only(("Paris",))}))
    assert (some.mapping, some.exact) == (None, False)
    assert "Dagster reads all of them" in some.why
