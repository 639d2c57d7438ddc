"""The history of the catalog on real PostgreSQL: going back, as of, pins, and what a sweep may take."""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.sales import PARIS, ZURICH, sales_dataset
from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.catalog.history.search import Search
from varve.catalog.living.killed_builds import KilledBuilds
from varve.catalog.reader import ON_HOLD
from varve.catalog.recovery.recovery import recover
from varve.model.batch import BatchId, Bounds, Input, StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import NotKept, StalePublish, VarveError
from varve.model.inventory import DescribedBatch, Publication, StoreInventory
from varve.model.partitions.key import PartitionKey
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from varve.catalog.history.rows import Retired
    from varve.services.settings import Settings

DAY, NOW = dt.timedelta(days=1), dt.timedelta(0)


def many(count: int) -> list[PartitionKey]:
    days = [dt.date(2000, 1, 1) + dt.timedelta(days=number) for number in range(count)]
    return [PartitionKey.of(day=day, store="Paris") for day in days]


@pytest.fixture
def history(catalog: Catalog) -> History:
    return History(catalog.connection)


@pytest.fixture
def other(settings: Settings) -> Iterator[History]:
    """Another person's connection."""
    with connect(settings, application="varve other") as opened:
        yield History(opened)


def publish(catalog: Catalog, dataset: Dataset, *partitions: PartitionKey, run: str = "run") -> BatchId:
    """A complete build, whose locks are released."""
    build = catalog.begin(dataset, partitions, run_id=run, code_version="")
    staged = [
        StagedBatch(
            partition, f"/lake/{partition.path}/{build.batch_id}", rows=2, size=100, files=1,
            content=f"hash of {build.batch_id}", bounds=(Bounds("sold", "1", None),),
        )
        for partition in partitions
    ]  # fmt: skip
    catalog.staged(build, staged)
    catalog.publish(build)
    catalog.release(build)
    followed(catalog, dataset)
    return build.batch_id


def followed(catalog: Catalog, dataset: Dataset) -> None:
    """As if the Hive table had followed."""
    catalog.projected(dataset.name, catalog.lagging(dataset.name).values())
    catalog.forget_withdrawn(dataset.name, catalog.withdrawn(dataset.name))


def go_back(catalog: Catalog, dataset: Dataset, targets: Mapping[PartitionKey, BatchId | None]) -> None:
    build = catalog.lock_partitions(dataset, list(targets), run_id="rollback")
    try:
        catalog.repoint(build, {key: target for key, target in targets.items() if target}, reason="it was wrong")
    finally:
        catalog.release(build)


def current(catalog: Catalog, dataset: Dataset) -> dict[str, BatchId]:
    return {path: batch.batch_id for path, batch in catalog.current(dataset.name).items()}


def collectable(history: History, dataset: Dataset, *, keep_last: int = 0) -> set[BatchId]:
    retired = history.retired(dataset.name, older_than=NOW, keep_last=keep_last)
    return {batch.batch_id for batch in retired if not batch.kept}


def sweep(history: History, dataset: Dataset, *, keep_last: int = 0) -> list[Retired]:
    """What the sweep of a store does, without a store."""
    retired = history.retired(dataset.name, older_than=NOW, keep_last=keep_last)
    history.mark_swept([batch for batch in retired if not batch.kept])
    pending = history.undeleted(dataset.name)
    history.deleted(pending)
    return pending


def states(history: History, dataset: Dataset) -> list[str]:
    return [batch.state.value for batch in history.batches(dataset.name)]


def test_of_a_partition_that_was_withdrawn_and_came_back_no_batch_is_kept_for_the_hive_table(
    catalog: Catalog, history: History, sales: Dataset
) -> None:
    first = publish(catalog, sales, PARIS)
    go_back(catalog, sales, {PARIS: None})
    # The table has not followed in between.
    second = publish(catalog, sales, PARIS)
    publish(catalog, sales, PARIS)
    assert collectable(history, sales) == {first, second}


def test_what_is_planned_for_many_new_partitions_knows_of_them(catalog: Catalog, sales: Dataset) -> None:
    other = dataclasses.replace(sales, name=f"{sales.name}_before")
    publish(catalog, other, *many(300))
    catalog.connection.execute("analyze varve.batch, varve.current")
    publish(catalog, sales, *many(900))
    for table in ("batch", "current", "published"):
        asked = f"explain (format json) select from varve.{table} where dataset = %s"
        (plans,) = catalog.connection.execute(asked.encode(), [sales.name]).fetchone() or ([],)
        assert 450 < plans[0]["Plan"]["Plan Rows"] < 1_800, table
    publish(catalog, sales, *many(900))
    assert len(current(catalog, sales)) == 900


def test_going_back_to_batches_of_many_runs_takes_for_each_partition_its_own(catalog: Catalog, sales: Dataset) -> None:
    # Each of the ids is one of either partition: only pairs say which is meant.
    first, second = publish(catalog, sales, PARIS, ZURICH), publish(catalog, sales, PARIS, ZURICH)
    third = publish(catalog, sales, PARIS, ZURICH)
    go_back(catalog, sales, {PARIS: first, ZURICH: second})
    assert current(catalog, sales) == {PARIS.path: first, ZURICH.path: second}
    states = {
        (batch.partition, batch.batch_id): batch.state.value
        for batch in History(catalog.connection).batches(sales.name)
    }
    assert {batch_id for batch_id, state in states.items() if state == "published"} == {
        (PARIS.path, first), (ZURICH.path, second)
    }  # fmt: skip
    assert states[PARIS.path, third] == states[ZURICH.path, first] == "retired"
    go_back(catalog, sales, {PARIS: third, ZURICH: first})
    assert current(catalog, sales) == {PARIS.path: third, ZURICH.path: first}


def test_a_rollback_makes_the_earlier_batch_current_and_records_both(
    catalog: Catalog, history: History, sales: Dataset
) -> None:
    first = publish(catalog, sales, PARIS, ZURICH)
    second = publish(catalog, sales, PARIS)
    go_back(catalog, sales, {PARIS: first})
    assert current(catalog, sales) == {PARIS.path: first, ZURICH.path: first}
    changes = [(change.kind, change.batch_id, change.reason) for change in history.changes(sales.name, [PARIS.path])]
    assert changes == [("rollback", first, "it was wrong"), ("publish", second, ""), ("publish", first, "")]
    batches = {batch.batch_id: batch for batch in history.batches(sales.name, [PARIS.path])}
    assert (batches[first].state.value, batches[first].is_current, batches[first].retired_at) == (
        "published",
        True,
        None,
    )
    assert (batches[second].state.value, batches[second].is_current) == ("retired", False)
    assert batches[first].content == f"hash of {first}"
    assert batches[first].bounds == (Bounds("sold", "1", None),)
    third = publish(catalog, sales, PARIS)
    assert current(catalog, sales)[PARIS.path] == third > second


def test_going_back_compares_and_swaps_all_or_nothing(catalog: Catalog, other: History, sales: Dataset) -> None:
    first = publish(catalog, sales, PARIS, ZURICH)
    second = publish(catalog, sales, PARIS, ZURICH)
    build = catalog.lock_partitions(sales, [PARIS, ZURICH], run_id="rollback")
    catalog.release(build)
    third = publish(Catalog(other.connection), sales, ZURICH)
    with pytest.raises(StalePublish, match="store=Zürich: expected"):
        catalog.repoint(build, {PARIS: first, ZURICH: first})
    assert current(catalog, sales) == {PARIS.path: second, ZURICH.path: third}


def test_a_partition_that_is_rolled_back_to_before_its_first_batch_has_none(
    catalog: Catalog, history: History, sales: Dataset
) -> None:
    first = publish(catalog, sales, PARIS, ZURICH)
    go_back(catalog, sales, {PARIS: None})
    assert current(catalog, sales) == {ZURICH.path: first}
    assert catalog.withdrawn(sales.name) == [PARIS.path]
    assert [change.batch_id for change in history.changes(sales.name, [PARIS.path])] == [None, first]
    assert set(history.as_of(sales.name, dt.datetime.now(dt.UTC))) == {ZURICH.path}
    go_back(catalog, sales, {PARIS: first})
    assert current(catalog, sales) == {PARIS.path: first, ZURICH.path: first}
    assert catalog.withdrawn(sales.name) == []


def test_what_was_taken_back_is_left_alone_until_an_input_is_newer(catalog: Catalog, sales: Dataset) -> None:
    first = publish(catalog, sales, PARIS)
    publish(catalog, sales, PARIS)
    catalog.arrived(sales.name, PARIS, uri="/landing/a.csv", size=3, fingerprint="one")
    go_back(catalog, sales, {PARIS: first, ZURICH: None})
    assert catalog.failures(sales.name) == {PARIS.path: ON_HOLD, ZURICH.path: ON_HOLD}
    later = {PARIS.path: dt.datetime.now(dt.UTC) + DAY}
    assert catalog.failures(sales.name, since=later) == {ZURICH.path: ON_HOLD}
    catalog.arrived(sales.name, PARIS, uri="/landing/a.csv", size=3, fingerprint="two")
    assert catalog.failures(sales.name) == {ZURICH.path: ON_HOLD}
    publish(catalog, sales, ZURICH)
    assert catalog.failures(sales.name) == {}


@pytest.mark.parametrize("wrong", ["never published", "swept", "unknown", "of another generation"])
def test_going_back_to_a_batch_that_is_not_there_is_refused_by_name(
    catalog: Catalog, history: History, sales: Dataset, wrong: str
) -> None:
    target = publish(catalog, sales, PARIS)
    last = publish(catalog, sales, PARIS)
    if wrong == "swept":
        sweep(history, sales)
        expected = rf"{PARIS} batch {target} was swept on 2"
    elif wrong == "never published":
        build = catalog.begin(sales, [PARIS], run_id="run", code_version="")
        catalog.fail(build, "no")
        catalog.release(build)
        target, expected = build.batch_id, r"was never published \(it is failed\)"
    elif wrong == "of another generation":
        moved = "update varve.batch set generation = generation + 1 where (dataset, batch_id) = (%s, %s)"
        catalog.connection.execute(moved, (sales.name, target.millis))
        expected = rf"{PARIS} batch {target} is of another generation than readers see \(`varve evolve {sales}`"
    else:
        target, expected = BatchId(7), r"batch 7 was never published \(it is unknown\)"
    with pytest.raises(NotKept, match=expected):
        go_back(catalog, sales, {PARIS: target})
    assert current(catalog, sales) == {PARIS.path: last}


def test_as_of_an_instant_is_what_readers_saw_then(catalog: Catalog, history: History, sales: Dataset) -> None:
    def now() -> dt.datetime:
        row = catalog.connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        instant: dt.datetime = row[0]
        return instant

    moments = [now()]
    expected: list[dict[str, BatchId]] = [{}]
    first = publish(catalog, sales, PARIS, ZURICH)
    moments.append(now())
    expected.append({PARIS.path: first, ZURICH.path: first})
    second = publish(catalog, sales, PARIS)
    moments.append(now())
    expected.append({PARIS.path: second, ZURICH.path: first})
    go_back(catalog, sales, {PARIS: first, ZURICH: None})
    moments.append(now())
    expected.append({PARIS.path: first})
    for moment, shown in zip(moments, expected, strict=True):
        batches = {path: batch.batch_id for path, batch in history.as_of(sales.name, moment).items()}
        assert batches == shown
    # What is kept no longer is not passed over in silence by who asks for it.
    go_back(catalog, sales, {PARIS: None})
    followed(catalog, sales)
    sweep(history, sales)
    assert history.as_of(sales.name, moments[2]) == {}
    assert set(history.as_of(sales.name, moments[2], swept_too=True)) == {PARIS.path, ZURICH.path}


def test_what_a_run_did_can_be_listed_and_undone(catalog: Catalog, history: History, sales: Dataset) -> None:
    first = publish(catalog, sales, PARIS, run="monday")
    second = publish(catalog, sales, PARIS, ZURICH, run="tuesday")
    reversals = {
        reversal.partition: (reversal.before, reversal.published, reversal.current)
        for reversal in history.of_run("tuesday")
    }
    assert reversals == {PARIS.path: (first, second, second), ZURICH.path: (None, second, second)}
    assert history.of_run("wednesday") == []
    assert history.of_run("tuesday", "another.dataset") == []


def test_a_sweep_takes_what_is_old_and_keeps_the_last(catalog: Catalog, history: History, sales: Dataset) -> None:
    first, second, third = (publish(catalog, sales, PARIS) for _ in range(3))
    reasons = {batch.batch_id: batch.kept for batch in history.retired(sales.name, older_than=DAY, keep_last=0)}
    assert reasons == {first: "recent", second: "recent"}
    reasons = {batch.batch_id: batch.kept for batch in history.retired(sales.name, older_than=NOW, keep_last=1)}
    assert reasons == {first: "", second: "last"}
    assert [batch.batch_id for batch in sweep(history, sales, keep_last=1)] == [first]
    assert current(catalog, sales) == {PARIS.path: third}
    assert states(history, sales) == ["published", "retired", "swept"]
    assert history.undeleted(sales.name) == []


def test_what_was_current_since_the_oldest_living_build_began_is_kept(
    catalog: Catalog, history: History, other: History, sales: Dataset
) -> None:
    early = publish(catalog, sales, PARIS)
    publish(catalog, sales, PARIS)
    # A run of anything may read what is current now, for as long as it lives.
    elsewhere = sales_dataset(StoreKind.WAREHOUSE)
    living = Catalog(other.connection).begin(elsewhere, [ZURICH], run_id="slow", code_version="")
    assert collectable(history, sales) == {early}
    publish(catalog, sales, PARIS)
    assert collectable(history, sales) == {early}
    Catalog(other.connection).release(living)
    assert len(collectable(history, sales)) == 2


@pytest.mark.parametrize("keep_last", [0, 1, 5])
def test_a_pin_survives_every_policy_and_its_end_makes_the_batch_collectable(
    catalog: Catalog, history: History, sales: Dataset, keep_last: int
) -> None:
    batches = [publish(catalog, sales, PARIS) for _ in range(3 + keep_last)]
    assert history.pin(sales.name, batches[0], owner="ann", reason="audit") == [PARIS.path]
    history.pin(sales.name, batches[0], owner="bob", reason="paper")
    sweep(history, sales, keep_last=keep_last)
    kept = [batch.batch_id for batch in history.batches(sales.name) if batch.state == "retired"]
    assert batches[0] in kept
    assert batches[1] not in kept
    assert [pin.owner for pin in history.batches(sales.name)[-1].pins] == ["ann", "bob"]
    assert history.unpin(sales.name, batches[0], owners=["ann"]) == 1
    assert batches[0] not in collectable(history, sales, keep_last=keep_last)
    assert history.unpin(sales.name, batches[0], owners=["bob"]) == 1
    assert collectable(history, sales) >= {batches[0]}
    sweep(history, sales)
    assert history.batches(sales.name)[-1].state == "swept"


def test_a_pin_may_expire_and_be_renewed(catalog: Catalog, history: History, sales: Dataset) -> None:
    first = publish(catalog, sales, PARIS)
    publish(catalog, sales, PARIS)
    with pytest.raises(VarveError, match="in the past"):
        history.pin(sales.name, first, owner="ann", reason="audit", expires_at=dt.datetime.now(dt.UTC) - DAY)
    history.pin(sales.name, first, owner="ann", reason="audit", expires_at=dt.datetime.now(dt.UTC) + DAY)
    assert collectable(history, sales) == set()
    history.connection.execute(
        "update varve.pin set expires_at = now() - interval '1 s' where dataset = %s", (sales.name,)
    )
    assert collectable(history, sales) == {first}
    assert history.forget_expired() >= 1
    history.pin(sales.name, first, owner="ann", reason="audit")
    assert collectable(history, sales) == set()


def test_what_was_swept_or_never_current_cannot_be_pinned(catalog: Catalog, history: History, sales: Dataset) -> None:
    first = publish(catalog, sales, PARIS)
    publish(catalog, sales, PARIS)
    sweep(history, sales)
    with pytest.raises(NotKept, match=rf"{PARIS} batch {first} was swept on"):
        history.pin(sales.name, first, owner="ann", reason="audit")
    with pytest.raises(NotKept, match="there is no batch 5"):
        history.pin(sales.name, BatchId(5), owner="ann", reason="audit")
    with pytest.raises(NotKept, match=rf"{ZURICH} has no batch {first}"):
        history.pin(sales.name, first, [ZURICH.path], owner="ann", reason="audit")
    building = catalog.begin(sales, [PARIS], run_id="run", code_version="")
    with pytest.raises(NotKept, match="was never current"):
        history.pin(sales.name, building.batch_id, owner="ann", reason="audit")
    catalog.release(building)


def test_a_pin_of_the_moment_of_a_sweep_holds_or_is_refused(
    catalog: Catalog, history: History, other: History, sales: Dataset
) -> None:
    for _ in range(25):
        target = publish(catalog, sales, PARIS)
        publish(catalog, sales, PARIS)
        candidates = [
            candidate for candidate in history.retired(sales.name, older_than=NOW, keep_last=0) if not candidate.kept
        ]
        together = threading.Barrier(2)

        def pin(target: BatchId = target, together: threading.Barrier = together) -> bool:
            together.wait(timeout=30)
            try:
                other.pin(sales.name, target, owner="ann", reason="audit")
            except NotKept:
                return False
            return True

        with ThreadPoolExecutor(1) as pool:
            pinning = pool.submit(pin)
            together.wait(timeout=30)
            history.mark_swept(candidates)
            pinned = pinning.result(timeout=30)
        (batch,) = [candidate for candidate in history.batches(sales.name) if candidate.batch_id == target]
        assert batch.state == ("retired" if pinned else "swept")
        assert bool(batch.pins) == pinned
        history.unpin(sales.name, target)
        sweep(history, sales)


def test_a_batch_that_is_current_again_after_the_sweep_has_chosen_it_is_not_swept(
    catalog: Catalog, history: History, sales: Dataset
) -> None:
    first = publish(catalog, sales, PARIS)
    second = publish(catalog, sales, PARIS)
    chosen = history.retired(sales.name, older_than=NOW, keep_last=0)
    go_back(catalog, sales, {PARIS: first})
    assert history.mark_swept(chosen) == 0
    followed(catalog, sales)
    assert current(catalog, sales) == {PARIS.path: first}
    assert collectable(history, sales) == {second}


def test_what_was_marked_but_not_deleted_is_on_the_next_sweeps_list(
    catalog: Catalog, history: History, sales: Dataset
) -> None:
    first = publish(catalog, sales, PARIS)
    publish(catalog, sales, PARIS)
    retired = history.retired(sales.name, older_than=NOW, keep_last=0)
    assert history.mark_swept(retired) == 1
    # Here the sweep dies.
    assert history.retired(sales.name, older_than=NOW, keep_last=0) == []
    (pending,) = history.undeleted(sales.name)
    assert (pending.batch_id, pending.location) == (first, f"/lake/{PARIS.path}/{first}")
    history.deleted([pending])
    assert history.undeleted(sales.name) == []


def test_a_build_in_progress_and_all_that_is_present_are_kept(
    catalog: Catalog, history: History, other: History, sales: Dataset
) -> None:
    def kept() -> set[BatchId]:
        return {batch_id for dataset, _, batch_id, _ in history.kept() if dataset == sales.name}

    first = publish(catalog, sales, PARIS)
    second = publish(catalog, sales, PARIS)
    living = Catalog(other.connection).begin(sales, [ZURICH], run_id="run", code_version="")
    assert kept() == {first, second, living.batch_id}
    began = history.oldest_living()
    assert began is not None
    assert began <= dt.datetime.now(dt.UTC)
    Catalog(other.connection).release(living)
    assert kept() == {first, second}
    sweep(history, sales)
    assert kept() == {second}


def test_what_a_restored_dump_has_as_building_is_published_once_it_is_recovered(
    catalog: Catalog, history: History, sales: Dataset
) -> None:
    # The dump was taken while the run computed: the row is of then, and the store has what was published since.
    build = catalog.begin(sales, [PARIS, ZURICH], run_id="run", code_version="code")
    catalog.release(build)
    described = [
        DescribedBatch(
            sales.name, path, build.batch_id, f"/lake/{path}", "run", "code", 3, 100, 1, "hash",
            (Bounds("sold", "1", "2"),), (Input("shop.landed", path, "7"),), {},
        )
        for path in (PARIS.path, ZURICH.path)
    ]  # fmt: skip
    at = dt.datetime(2026, 11, 1, 9, tzinfo=dt.UTC)
    partitions = dict.fromkeys((PARIS.path, ZURICH.path), build.batch_id.millis)
    publication = Publication(build.batch_id, "publish", "run", "", at, partitions)
    assert KilledBuilds(catalog.connection).fail() >= 2
    inventory = StoreInventory(sales.name, described, [publication], [])
    recovered = recover(catalog.connection, StoreKind.LAKE, inventory)
    assert (recovered.batches, recovered.current, recovered.findings) == (0, 2, ())
    assert states(history, sales) == ["published"] * 2
    found = catalog.current(sales.name)[PARIS.path]
    assert (found.location, found.rows, found.size, found.published_at) == (f"/lake/{PARIS.path}", 3, 100, at)
    assert (found.content, found.inputs) == ("hash", frozenset({Input("shop.landed", PARIS.path, "7")}))
    assert collectable(history, sales) == set()
    # A catalog that was recovered without that is mended by another recovery.
    catalog.connection.execute("update varve.batch set state = 'retired' where dataset = %s", [sales.name])
    assert recover(catalog.connection, StoreKind.LAKE, inventory).current == 0
    assert states(history, sales) == ["published"] * 2


@pytest.mark.parametrize("declared_dead", [False, True])
def test_what_a_restored_dump_has_as_building_is_retired_where_it_was_replaced_since(
    catalog: Catalog, history: History, sales: Dataset, *, declared_dead: bool
) -> None:
    # After the dump both were published, one after the other; a third one has failed and is in no record.
    builds = []
    for _ in range(3):
        builds.append(catalog.begin(sales, [PARIS], run_id="run", code_version="code"))
        catalog.release(builds[-1])
    first, second, _ = (build.batch_id for build in builds)
    described = [
        DescribedBatch(
            sales.name, PARIS.path, build.batch_id, f"/lake/{build.batch_id}", "run", "code", 3, 100, 1, "hash", (),
            (), {},
        )
        for build in builds
    ]  # fmt: skip
    at = dt.datetime(2026, 11, 1, 9, tzinfo=dt.UTC)
    publications = [
        Publication(batch_id, "publish", "run", "", at + number * DAY, {PARIS.path: batch_id.millis})
        for number, batch_id in enumerate((first, second))
    ]
    if declared_dead:
        KilledBuilds(catalog.connection).fail()
    else:
        catalog.connection.execute("update varve.batch set state = 'building' where dataset = %s", [sales.name])
    inventory = StoreInventory(sales.name, described, publications, [])
    before = dt.datetime.now(dt.UTC)
    recover(catalog.connection, StoreKind.LAKE, inventory)
    KilledBuilds(catalog.connection).fail()
    followed(catalog, sales)
    assert states(history, sales) == ["failed", "published", "retired"]
    *_, replaced = history.batches(sales.name)
    assert (replaced.location, replaced.published_at, replaced.failure) == (f"/lake/{first}", at, None)
    assert replaced.retired_at is not None
    assert replaced.retired_at > before - DAY
    assert {row.kept for row in history.retired(sales.name, older_than=DAY, keep_last=0)} == {"recent"}
    # It is repeated without any change, and readers may go back.
    recover(catalog.connection, StoreKind.LAKE, inventory)
    *_, again = history.batches(sales.name)
    assert again == replaced
    go_back(catalog, sales, {PARIS: first})
    assert current(catalog, sales) == {PARIS.path: first}


@pytest.mark.parametrize("state", ["building", "failed", "retired"])
def test_what_is_current_is_swept_by_nobody_whatever_its_row_says(
    catalog: Catalog, history: History, sales: Dataset, state: str
) -> None:
    batch_id = publish(catalog, sales, PARIS)
    as_restored = "update varve.batch set state = %s, retired_at = published_at where dataset = %s"
    catalog.connection.execute(as_restored, [state, sales.name])
    assert sweep(history, sales) == []
    kept = [(path, kept_id) for name, path, kept_id, _ in history.kept() if name == sales.name]
    assert kept == [(PARIS.path, batch_id)]
    assert states(history, sales) == [state]


def test_partitions_are_found_by_what_is_shown_of_them(catalog: Catalog, sales: Dataset) -> None:
    # Names that no other test has.
    odd = [PartitionKey.of(day=dt.date(1999, 1, 2), store=store) for store in ("at 13:00:00", "A/b=50%", "Plain_")]
    publish(catalog, sales, *odd)

    def found(text: str) -> list[str]:
        return [row["partition"] for row in Search(catalog.connection).partitions([sales.name, *text.split()])]

    assert found("13:00:00") == found("store=at 13:00:00") == found("1999-01-02, 13%3A00") == [odd[0].path]
    assert found("store=a/B=50%") == found("50%") == found("B=50") == [odd[1].path]
    assert found("plain_") == [odd[2].path]
    assert found("day=1999-01-02, store=") == sorted(key.path for key in odd)
    assert found("pl%in") == found("13:01") == found("plain_, 13:00") == []
