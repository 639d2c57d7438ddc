"""Due partitions of a dynamic set beside other dimensions: as few runs as Dagster's order of the set allows.

Dagster's own expansion of each range is the oracle: the runs get exactly what is due, each partition once.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from itertools import chain, combinations_with_replacement
from typing import TYPE_CHECKING

import dagster as dg
import pendulum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from varve.dagster.automation.reconciling import runs_in_flight
from varve.dagster.automation.requesting import acceptable, accepted, run_request
from varve.dagster.driver import Driver
from varve.dagster.internal.partition_keys import keys_in_range
from varve.dagster.partitions.definitions import dataset_partitions_def
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning, set_of
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import Graph
from varve.planning.requested import RANGE_END_TAG, RANGE_START_TAG, asked_partitions
from varve.planning.run_requests import Due, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.catalog.rejected import LeftOut
    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.key import Value
    from varve.planning.run_requests import Run

DAY = TimeDimension("day", Grain.DAY, pendulum.datetime(2026, 11, 1))
MODEL, SHOP = DynamicDimension("model", "models"), StaticDimension("shop", ("Rome", "Lyon", "Bern"))
# Neither in the order of the alphabet nor in that of the keys that are due.
ADDED = ("b", "d", "a", "e", "c")
DAYS = tuple(dt.date(2026, 11, day) for day in (3, 4, 5, 8))


def dataset(*dimensions: Dimension) -> Dataset:
    schema = Schema((Column("n", ColumnType.BIGINT),))
    return Dataset("t.usage", Partitioning(dimensions), schema, StoreKind.LAKE, "One row per use.")


def asked(of: Dataset, keys: Sequence[PartitionKey], instance: dg.DagsterInstance) -> list[Run]:
    for fold in of.partitioning.folds.values():
        if name := set_of(fold):
            rows = [{"day": DAYS[0], "model": model, "shop": shop} for model in ADDED for shop in SHOP.members]
            every = [of.partitioning.key([row[name] for name in of.partitioning.dimension_names]) for row in rows]
            texts = dict.fromkeys(of.partitioning.text_of_fold(fold, key) for key in every)
            instance.add_dynamic_partitions(name, [*texts])
    planned = runs(of, [Due(key, frozenset(), "", token=str(place)) for place, key in enumerate(keys)], limit=1_000)
    found = [acceptable(run, instance) for run in planned]
    assert [left_out for _, left_out in found if left_out] == []
    return list(chain.from_iterable(accepted for accepted, _ in found))


def given_by_dagster(run: Run, instance: dg.DagsterInstance) -> set[str]:
    text_of, definition = run.dataset.partitioning.to_dagster, dataset_partitions_def(run.dataset)
    if len(run.partitions) == 1:
        return {text_of(run.first)}
    assert definition is not None
    return keys_in_range(definition, instance, text_of(run.first), text_of(run.last))


@pytest.mark.parametrize("count", [1, 5])
def test_a_set_is_read_once_however_many_runs_of_it_are_asked_for(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    of, reads = dataset(MODEL), list[str]()
    read = dg.DagsterInstance.get_dynamic_partitions

    def counting(instance: dg.DagsterInstance, partitions_def_name: str) -> Sequence[str]:
        reads.append(partitions_def_name)
        return read(instance, partitions_def_name)

    keys = [of.partitioning.key([f"m{place:02}"]) for place in range(2 * count)]
    planned = runs(of, [Due(key, frozenset(), "") for key in keys], limit=2)
    left_out: list[LeftOut] = []
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("varve/models", [of.partitioning.to_dagster(key) for key in keys])
        monkeypatch.setattr(dg.DagsterInstance, "get_dynamic_partitions", counting)
        found = list(accepted(planned, instance, left_out))
        assert (len(found), left_out, reads) == (count, [], ["varve/models"])
        reads.clear()
        in_flight = [
            dg.DagsterRun(
                "job", run_id=str(place), tags=run_request(run).tags, asset_selection={dg.AssetKey(["t", "usage"])}
            )
            for place, run in enumerate(found)
        ]
        held = runs_in_flight(Graph({of.name: of}, {of.name: ()}, {}), instance, in_flight)
    assert held == {of.name: {key.path: str(place // 2) for place, key in enumerate(keys)}}
    assert reads == ["varve/models"]


def test_all_keys_of_neighbouring_windows_are_one_run() -> None:
    of = dataset(DAY, MODEL)
    keys = [PartitionKey.of(day=day, model=model) for day in DAYS[:3] for model in sorted(ADDED)]
    with dg.DagsterInstance.ephemeral() as instance:
        (run,) = asked(of, keys, instance)
        assert of.partitioning.to_dagster(run.first) == "2026-11-03|b"
        assert of.partitioning.to_dagster(run.last) == "2026-11-05|c"
        assert given_by_dagster(run, instance) == {of.partitioning.to_dagster(key) for key in keys}


def test_a_key_between_two_others_that_is_not_due_divides_them() -> None:
    keys = [PartitionKey.of(day=day, model=model) for day in DAYS[:2] for model in "abc"]
    with dg.DagsterInstance.ephemeral() as instance:
        found = asked(dataset(DAY, MODEL), keys, instance)
        assert [[key["model"] for key in run.partitions] for run in found] == [["b", "b"], ["a", "a"], ["c", "c"]]


@settings(max_examples=60)
@given(
    kind=st.sampled_from([(DAY, MODEL), (MODEL, SHOP), (MODEL,), (DAY, SHOP), (DAY, SHOP, MODEL)]),
    picked=st.sets(st.tuples(st.sampled_from(DAYS), st.sampled_from(ADDED), st.sampled_from(SHOP.members)), min_size=1),
)
def test_the_runs_get_exactly_what_is_due_each_partition_once(
    kind: tuple[Dimension, ...], picked: set[tuple[dt.date, str, str]]
) -> None:
    of = dataset(*kind)
    rows = [dict(zip(("day", "model", "shop"), values, strict=True)) for values in sorted(picked)]
    keys = list(dict.fromkeys(of.partitioning.key([row[dimension.name] for dimension in kind]) for row in rows))
    with dg.DagsterInstance.ephemeral() as instance:
        found = asked(of, keys, instance)
        texts = [text for run in found for text in given_by_dagster(run, instance)]
        assert sorted(texts) == sorted(map(of.partitioning.to_dagster, keys))
        # Each partition keeps its own token, from which the identity of the run is made.
        tokens = {key: token for run in found for key, token in zip(run.partitions, run.tokens, strict=True)}
        assert tokens == {key: str(place) for place, key in enumerate(keys)}
        assert len({run.identity for run in found}) == len(found)


def test_what_a_range_over_folded_lists_asks_for_is_what_dagster_expands() -> None:
    kind = StaticDimension("kind", ("new", "old"))
    day = replace(DAY, start=pendulum.datetime(2026, 11, 3), end=pendulum.datetime(2026, 11, 5))
    for dimensions in ((day, SHOP, kind), (SHOP, day, kind), (SHOP, kind, StaticDimension("part", ("b", "a")))):
        of = dataset(*dimensions)
        definition = dataset_partitions_def(of)
        assert definition is not None
        with dg.DagsterInstance.ephemeral() as instance:
            for first, last in combinations_with_replacement(definition.get_partition_keys(), 2):
                requested = asked_partitions(of, {RANGE_START_TAG: first, RANGE_END_TAG: last})
                expanded = keys_in_range(definition, instance, first, last)
                assert sorted(map(of.partitioning.to_dagster, requested)) == sorted(expanded), (first, last)


@pytest.mark.parametrize(
    ("dimensions", "values"),
    [
        (
            (DAY, SHOP, StaticDimension("kind", ("new", "old"))),
            [(day, *corner) for day in DAYS[:2] for corner in (("Rome", "old"), ("Lyon", "new"))],
        ),
        # In the order in which the set has them.
        ((MODEL,), [("b",), ("d",), ("a",)]),
    ],
)
def test_run_due_takes_a_run_whose_last_key_is_before_its_first_one_in_some_list(
    dimensions: tuple[Dimension, ...], values: list[tuple[Value, ...]]
) -> None:
    of = dataset(*dimensions)
    keys = list(map(of.partitioning.key, values))
    with dg.DagsterInstance.ephemeral() as instance:
        (run,) = asked(of, keys, instance)
        assert set(run.partitions) == set(keys)
        Driver(instance, dg.Definitions(), Graph({of.name: of}, {}, {}))._refuse_partial(run_request(run))


@pytest.mark.parametrize("count", [1, 2])
def test_of_two_sets_each_key_is_a_run_of_its_own(count: int) -> None:
    other = DynamicDimension("site", "sites")
    of = dataset(MODEL, other)
    keys = [PartitionKey.of(model=model, site=site) for model in "ab" for site in "xy"[:count]]
    planned = runs(of, [Due(key, frozenset(), "") for key in keys], limit=1_000)
    assert sorted(len(run.partitions) for run in planned) == [1] * len(keys)
