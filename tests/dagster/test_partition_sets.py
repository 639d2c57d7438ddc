"""Dynamic sets in Dagster's own storage, on PostgreSQL: shared, folded, interrupted, mended, and edited by hand."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import dagster as dg
import pendulum
import pytest

from tests.e2e.project import wait_until
from tests.support.project import ROOT
from varve.dagster.assets.datasets import dataset_asset, graph_of
from varve.dagster.internal.partition_keys import set_filled_since
from varve.dagster.partitions.definitions import partitions_def
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.dagster.partitions.sets_sensor import fill, grow, has_sets, partition_sets_sensor, sets_of
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.calendar import Every
from varve.model.partitions.dimension import Dimension, DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning, set_of, time_set
from varve.model.partitions.set_source import SetSource
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.model.partitions.key import Value
    from varve.planning.graph import Graph
    from varve.services.settings import Settings

DAY = TimeDimension.of("day", "@daily", "2013-01-01", "2013-02-01")
PART = StaticDimension("part", ("left", "a|b~c"))
STRANGE = ("a|b", "x,y", "[z]", "it's", 'say "so"', "in/out", "👋🏽", "50%", "50%25", "a...b", "a~b", " ", "Ü" * 100)


class Place(PartitionKey):
    """A key with several fields."""

    x: float
    name: str


@pytest.fixture(scope="module")
def instance(settings: Settings) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance whose storage is the suite's PostgreSQL."""
    with dg.DagsterInstance.from_config(str(ROOT)) as configured:
        yield configured


@dataclass(frozen=True)
class Shared:
    """Three partitionings that share one set: alone, in a product, and folded with another dimension."""

    sets: PartitionSets
    tenant: DynamicDimension

    @property
    def base(self) -> str:
        return f"varve/{self.tenant.set_name}"

    @property
    def fold(self) -> str:
        (name,) = self.sets.folds
        return name

    def texts(self, name: str) -> list[str]:
        return sorted(self.sets.instance.get_dynamic_partitions(name))


def test_a_look_at_a_set_parses_the_keys_that_came_since_the_last_one(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sensors look every few seconds, and a set may have a hundred thousand keys."""
    number = fresh(int)
    sets = PartitionSets(instance, [Partitioning((number,)), Partitioning((number, PART))])
    instance.add_dynamic_partitions(f"varve/{number.set_name}", [*map(str, range(50)), "007", "no number"])
    sets.follow()
    parsed = list[str]()
    parse = DynamicDimension.parse
    monkeypatch.setattr(DynamicDimension, "parse", lambda self, text: parsed.append(text) or parse(self, text))  # type: ignore[func-returns-value]
    for _ in range(2):
        sets.follow()
        assert sets.members() == {number.set_name: tuple(range(50))}
    assert parsed == []
    sets.add(number, [50])
    assert (parsed, max(sets.members()[number.set_name])) == (["50"], 50)


def fresh(value_type: type = str) -> DynamicDimension:
    """Return a dynamic dimension with a set of its own."""
    return DynamicDimension("tenant", f"tenants_{uuid.uuid4().hex[:8]}", value_type)


def sharing(instance: dg.DagsterInstance, tenant: DynamicDimension) -> Shared:
    products: list[tuple[Dimension, ...]] = [(tenant,), (DAY, tenant), (DAY, PART, tenant)]
    return Shared(PartitionSets(instance, [Partitioning(dimensions) for dimensions in products]), tenant)


@pytest.fixture
def shared(instance: dg.DagsterInstance) -> Shared:
    return sharing(instance, fresh())


def graph(*dimensions: tuple[Dimension, ...]) -> Graph:
    """Return a graph of datasets with these dimensions."""
    columns = Schema((Column("text", ColumnType.STRING, "anything"),))
    name = f"t{uuid.uuid4().hex[:8]}"

    def declared(number: int, product: tuple[Dimension, ...]) -> Dataset:
        return Dataset(f"{name}.d{number}", Partitioning(product), columns, StoreKind.LAKE, "Rows.")

    def asset(dataset: Dataset) -> object:
        @dataset_asset(dataset)
        def rows() -> None: ...

        return rows

    return graph_of(asset(declared(number, product)) for number, product in enumerate(dimensions))  # type: ignore[misc]


def test_of_datasets_that_share_a_set_the_one_that_says_what_fills_it_counts(instance: dg.DagsterInstance) -> None:
    tenant, source = fresh(), SetSource("shop.sales", "tenant")
    partitionings = [Partitioning((dimension,)) for dimension in (tenant, replace(tenant, source=source), tenant)]
    for order in (partitionings, partitionings[:2], partitionings[1:]):
        assert PartitionSets(instance, order).dimensions[tenant.set_name].source == source


def test_keys_that_are_added_are_members_once_and_in_order(shared: Shared) -> None:
    assert shared.sets.add(shared.tenant, ["zoe", "ann", "zoe"]) == ["zoe", "ann"]
    assert shared.sets.add(shared.tenant, ["ann", "bob"]) == ["bob"]
    assert shared.sets.members() == {shared.tenant.set_name: ("ann", "bob", "zoe")}


@pytest.mark.parametrize(
    ("value_type", "keys"),
    [
        (str, STRANGE),
        (int, (-7, 0, 10**20)),
        (dt.date, (dt.date(2013, 1, 5), dt.date(1, 1, 1))),
        (Place, (Place(0, "a,b|c"), Place(-0.5, "50%"))),
    ],
)
def test_keys_of_every_type_come_back_as_they_went_in(
    instance: dg.DagsterInstance, value_type: type, keys: tuple[Value, ...]
) -> None:
    shared = sharing(instance, fresh(value_type))
    shared.sets.add(shared.tenant, keys)
    assert shared.sets.members()[shared.tenant.set_name] == tuple(sorted(keys))
    # Dagster itself accepts each of the keys as a partition of the product.
    product = shared.sets.partitionings[2]
    definition = partitions_def(product)
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        for key in keys:
            whole = product.key([dt.date(2013, 1, 1), "a|b~c", key])
            assert definition.has_partition_key(product.to_dagster(whole))
            assert product.from_dagster(product.to_dagster(whole)) == whole


def test_a_key_that_no_store_can_hold_is_refused_and_none_is_added(shared: Shared) -> None:
    with pytest.raises(VarveError, match=r"dimension tenant: an empty key is no key"):
        shared.sets.add(shared.tenant, ["fine", ""])
    with pytest.raises(VarveError, match=r"dimension tenant: .*control characters"):
        shared.sets.add(shared.tenant, ["fine", "a\x00b"])
    assert shared.texts(shared.base) == []


def test_keys_that_a_metastore_cannot_tell_apart_are_refused_and_none_is_added(shared: Shared) -> None:
    with pytest.raises(VarveError, match=r"the keys 'ann' and 'ann ' differ in blanks at the end alone"):
        shared.sets.add(shared.tenant, ["bob", "ann", "ann "])
    shared.sets.add(shared.tenant, ["ann ", " ann"])
    with pytest.raises(VarveError, match=r"the keys 'ann ' and 'ann' differ in blanks at the end alone"):
        shared.sets.add(shared.tenant, ["ann"])
    assert shared.sets.members()[shared.tenant.set_name] == (" ann", "ann ")


@pytest.mark.parametrize("others", [0, 3])
def test_adding_and_removing_a_key_asks_for_no_set_that_does_not_change_with_it(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    tenant = fresh()
    of_others = [sharing(instance, fresh()).sets.partitionings for _ in range(others)]
    mine = sharing(instance, tenant)
    sets = PartitionSets(instance, [*mine.sets.partitionings, *(each for listed in of_others for each in listed)])
    read, asked = instance.get_dynamic_partitions, set[str]()

    def noting(name: str) -> Sequence[str]:
        asked.add(name)
        return read(name)

    monkeypatch.setattr(instance, "get_dynamic_partitions", noting)
    sets.add(tenant, ["ann", "bob"])
    sets.remove(tenant, ["ann"])
    assert asked == {mine.base, mine.fold}
    assert mine.texts(mine.fold) == ["a%7Cb%7Ec~bob", "left~bob"]


def test_folds_follow_what_is_added_and_removed(shared: Shared) -> None:
    shared.sets.add(shared.tenant, ["ann", "50%"])
    assert shared.texts(shared.fold) == [
        "a%7Cb%7Ec~50%25", "a%7Cb%7Ec~ann", "left~50%25", "left~ann",
    ]  # fmt: skip
    shared.sets.remove(shared.tenant, ["50%", "nobody"])
    assert shared.texts(shared.base) == ["ann"]
    assert shared.texts(shared.fold) == ["a%7Cb%7Ec~ann", "left~ann"]


def test_two_dynamic_dimensions_fold_into_every_pair(instance: dg.DagsterInstance) -> None:
    tenant, place = fresh(), DynamicDimension("place", f"places_{uuid.uuid4().hex[:8]}", int)
    sets = PartitionSets(instance, [Partitioning((DAY, place, tenant))])
    sets.add(tenant, ["ann"])
    (fold,) = sets.folds
    assert instance.get_dynamic_partitions(fold) == []
    sets.add(place, [2, 1])
    assert sorted(instance.get_dynamic_partitions(fold)) == ["1~ann", "2~ann"]


def test_an_addition_that_dies_before_the_folds_is_mended_by_the_sensor_and_told(instance: dg.DagsterInstance) -> None:
    tenant = fresh()
    project = graph((DAY, PART, tenant))
    sets = sets_of(instance, project)
    (fold,) = sets.folds
    # This is the first step of `add`, which then was interrupted.
    instance.add_dynamic_partitions(f"varve/{tenant.set_name}", ["ann"])
    assert instance.get_dynamic_partitions(fold) == []
    with dg.build_sensor_context(instance=instance) as context:
        skip_reason = partition_sets_sensor(project)(context)
    assert isinstance(skip_reason, dg.SkipReason)
    assert skip_reason.skip_message == f"{fold}: 2 keys added, 0 taken out"
    assert sorted(instance.get_dynamic_partitions(fold)) == ["a%7Cb%7Ec~ann", "left~ann"]
    assert grow(instance, project) == []


def test_what_is_in_a_set_and_is_no_key_of_it_is_left_out(instance: dg.DagsterInstance) -> None:
    shared = sharing(instance, fresh(int))
    shared.sets.add(shared.tenant, [1])
    instance.add_dynamic_partitions(shared.base, ["by hand", "02"])
    assert shared.sets.members()[shared.tenant.set_name] == (1,)
    assert shared.sets.follow() == []
    assert shared.texts(shared.fold) == ["a%7Cb%7Ec~1", "left~1"]


def test_a_key_that_somebody_added_in_the_ui_is_spelt_as_it_will_be_asked_for(shared: Shared) -> None:
    shared.sets.instance.add_dynamic_partitions(shared.base, ["50%", "a~b", "plain"])
    assert shared.sets.follow()[:2] == [
        f"{shared.base}: 50% is spelt 50%25", f"{shared.base}: a~b is spelt a%7Eb",
    ]  # fmt: skip
    assert shared.texts(shared.base) == ["50%25", "a%7Eb", "plain"]
    assert shared.sets.members()[shared.tenant.set_name] == ("50%", "a~b", "plain")
    assert len(shared.texts(shared.fold)) == 6
    assert shared.sets.follow() == []


def test_a_run_that_adds_a_key_while_another_follows_keeps_it(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    shared.sets.add(shared.tenant, ["ann"])
    others = PartitionSets(shared.sets.instance, shared.sets.partitionings)
    members = PartitionSets.members

    def meanwhile(self: PartitionSets) -> object:
        keys_by_set = members(self)
        if self is shared.sets:
            others.add(shared.tenant, ["bob"])
        return keys_by_set

    monkeypatch.setattr(PartitionSets, "members", meanwhile)
    shared.sets.follow()
    assert shared.texts(shared.fold) == ["a%7Cb%7Ec~ann", "a%7Cb%7Ec~bob", "left~ann", "left~bob"]


def test_the_same_product_of_two_datasets_is_one_set_and_another_product_another() -> None:
    tenant = fresh()
    folds = [Partitioning((DAY, *others)).folds for others in ((PART, tenant), (PART, tenant), (tenant, PART))]
    names = [set_of(next(fold for fold in fold_by_name.values() if len(fold) > 1)) for fold_by_name in folds]
    assert names[0] == names[1]
    assert names[0] != names[2]


class TestWindows:
    """Windows that Dagster cannot express are a set that is filled as time passes."""

    @staticmethod
    def spans(minutes: int, start: pendulum.DateTime, end: pendulum.DateTime | None = None) -> TimeDimension:
        return TimeDimension("span", Every(dt.timedelta(minutes=minutes), start), start, end)

    @pytest.fixture
    def start(self) -> pendulum.DateTime:
        """Return an instant at which no other test starts, as equal dimensions share a set."""
        return pendulum.datetime(2013, 1, 1).add(minutes=uuid.uuid4().int % 100_000)

    def test_they_are_added_in_order_a_limited_number_at_a_time(
        self, instance: dg.DagsterInstance, start: pendulum.DateTime
    ) -> None:
        span = self.spans(90, start, start.add(minutes=90 * 16))
        project = graph((span,), (span, PART))
        changes = [
            grow(instance, project, limit=10),
            grow(instance, project, limit=10),
            grow(instance, project, limit=10),
        ]
        # The second dataset has the same windows, so it continues the set where the first one left it.
        assert [len(call_changes) for call_changes in changes] == [2, 0, 0]
        assert instance.get_dynamic_partitions(time_set(span)) == [str(key) for key in span.keys()]  # noqa: SIM118

    def test_only_complete_windows_are_there_and_more_as_time_passes(self, instance: dg.DagsterInstance) -> None:
        start = pendulum.now("UTC").start_of("second").subtract(seconds=uuid.uuid4().int % 5 + 5)
        span = TimeDimension("span", Every(dt.timedelta(seconds=2), start), start)
        (dataset,) = graph((span,)).datasets.values()
        before = fill(instance, dataset)
        assert span.window(before[-1]).end <= pendulum.now("UTC")
        wait_until(lambda: bool(fill(instance, dataset)), seconds=60, what="another window had come to pass")
        there = instance.get_dynamic_partitions(time_set(span))
        assert there[: len(before)] == before
        assert there == sorted(set(there))

    def test_what_somebody_added_by_hand_does_not_stop_them(
        self, instance: dg.DagsterInstance, start: pendulum.DateTime
    ) -> None:
        span = self.spans(90, start, start.add(minutes=90 * 4))
        project = graph((span,))
        grow(instance, project, limit=2)
        instance.add_dynamic_partitions(time_set(span), ["by hand"])
        grow(instance, project)
        there = instance.get_dynamic_partitions(time_set(span))
        assert [text for text in there if text != "by hand"] == [str(key) for key in span.keys()]  # noqa: SIM118

    def test_keys_that_dagster_would_misread_are_escaped_and_go_on_where_they_ended(
        self, instance: dg.DagsterInstance, start: pendulum.DateTime
    ) -> None:
        span = TimeDimension(
            "span", Every(dt.timedelta(minutes=7), start), start, start.add(minutes=21), key_format="%Y-%m-%d|%H,%M"
        )
        project = graph((span,))
        for _ in range(3):
            grow(instance, project, limit=1)
        assert [text.count("%7C") for text in instance.get_dynamic_partitions(time_set(span))] == [1, 1, 1]

    def test_a_zone_in_which_the_clock_goes_back_has_every_window_once(self, instance: dg.DagsterInstance) -> None:
        start = pendulum.datetime(2013, 11, 3, tz="America/New_York")
        span = self.spans(30, start, start.add(days=1))
        (dataset,) = graph((span,)).datasets.values()
        fill(instance, dataset)
        there = instance.get_dynamic_partitions(time_set(span))
        assert len(there) == len(set(there)) == 50
        assert there[2:6] == ["2013-11-03T01:00", "2013-11-03T01:30", "2013-11-03T01:00-0500", "2013-11-03T01:30-0500"]


def test_only_a_graph_with_sets_has_the_sensor() -> None:
    assert not has_sets(graph((DAY,), (DAY, PART)))
    assert has_sets(graph((DAY,), (DAY, fresh())))


def test_since_when_a_set_has_had_keys_is_known_in_the_storage_of_a_project(instance: dg.DagsterInstance) -> None:
    name = f"filled_{uuid.uuid4().hex[:8]}"
    assert set_filled_since(instance, name) is None
    before = time.time()
    instance.add_dynamic_partitions(name, ["a"])
    instance.add_dynamic_partitions(name, ["b"])
    since = set_filled_since(instance, name)
    assert since is not None
    assert before - 5 < since < time.time() + 5
