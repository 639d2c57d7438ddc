"""The catalog on real PostgreSQL: ids that grow, locks that die with their run, publishes that are all or nothing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.sales import COLUMNS, DETROIT, PARIS, ZURICH, key, sales_dataset
from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.history.history import History
from varve.catalog.planning.acceptances import Acceptances, AcceptedInput
from varve.catalog.schema import VERSION
from varve.model.batch import BatchId, Input, StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import AlreadyBuilding, CodeNotDeployed, StalePublish
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.model.build import Build
    from varve.services.settings import Settings


@pytest.fixture
def second(settings: Settings, catalog: Catalog) -> Iterator[Catalog]:
    """Another run's catalog, over a connection of its own."""
    with connect(settings, application="varve second run") as opened:
        yield Catalog(opened)


def begin(catalog: Catalog, dataset: Dataset, *partitions: PartitionKey, run: str = "run") -> Build:
    return catalog.begin(dataset, partitions, run_id=run, code_version="")


def stage(catalog: Catalog, build: Build, partitions: Sequence[PartitionKey] | None = None) -> None:
    catalog.staged(
        build,
        [
            StagedBatch(partition, f"/lake/{partition.path}/{build.batch_id.folder}", rows=2, size=100, files=1)
            for partition in (build.partitions if partitions is None else partitions)
        ],
    )


def publish(catalog: Catalog, dataset: Dataset, *partitions: PartitionKey) -> BatchId:
    """A complete build, whose locks are released."""
    build = begin(catalog, dataset, *partitions)
    stage(catalog, build)
    catalog.publish(build)
    catalog.release(build)
    return build.batch_id


def states(catalog: Catalog, dataset: Dataset, partition: PartitionKey) -> list[str]:
    rows = catalog.connection.execute(
        "select state from varve.batch where dataset = %s and partition = %s order by batch_id",
        (dataset.name, partition.path),
    )
    return [state for (state,) in rows]


def test_a_batch_id_is_when_its_build_began(catalog: Catalog, sales: Dataset) -> None:
    before = time.time()
    batch_id = begin(catalog, sales, PARIS).batch_id
    assert before - 1 <= batch_id.started.timestamp() <= time.time() + 1


def test_batch_ids_grow_even_where_the_last_one_is_ahead_of_the_clock(fresh_database: str, sales: Dataset) -> None:
    ahead = int((time.time() + 3_600) * 1_000)
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        catalog = Catalog(opened)
        catalog.ensure_schema()
        opened.execute("update varve.clock set last_batch_id = %s", (ahead,))
        ids = [publish(catalog, sales, PARIS).millis for _ in range(3)]
        assert ids == [ahead + 1, ahead + 2, ahead + 3]
        assert catalog.current(sales.name)[PARIS.path].batch_id == BatchId(ahead + 3)


def test_builds_that_begin_at_once_have_ids_of_their_own(settings: Settings, catalog: Catalog, sales: Dataset) -> None:
    def build(store: str) -> list[int]:
        with connect(settings) as opened:
            mine = Catalog(opened)
            return [publish(mine, sales, key(store)).millis for _ in range(20)]

    with ThreadPoolExecutor(3) as pool:
        ids = list(pool.map(build, ("Paris", "Zürich", "Detroit")))
    assert all(listed == sorted(listed) for listed in ids)
    assert len({batch_id for listed in ids for batch_id in listed}) == 60


def test_a_build_expects_what_is_current_when_it_begins(catalog: Catalog, sales: Dataset) -> None:
    first = publish(catalog, sales, PARIS)
    build = begin(catalog, sales, PARIS, ZURICH)
    assert build.expected == {PARIS: first, ZURICH: None}
    assert build.partitions == (PARIS, ZURICH)


def test_a_partition_in_work_is_refused_with_the_run_that_holds_it(
    catalog: Catalog, second: Catalog, sales: Dataset
) -> None:
    begin(catalog, sales, PARIS, run="run-of-monday")
    with pytest.raises(AlreadyBuilding) as refused:
        begin(second, sales, ZURICH, PARIS)
    held = "day=2013-01-05/store=Paris (run run-of-monday, since 2"
    assert f"{sales}: another run is building {held}" in str(refused.value)
    assert "nothing was changed" in str(refused.value)


def test_a_refused_build_keeps_no_lock(catalog: Catalog, second: Catalog, sales: Dataset) -> None:
    begin(catalog, sales, PARIS)
    with pytest.raises(AlreadyBuilding):
        begin(second, sales, ZURICH, PARIS, DETROIT)
    assert states(catalog, sales, ZURICH) == []
    assert begin(catalog, sales, ZURICH, DETROIT).partitions == (ZURICH, DETROIT)


def test_a_partition_of_one_dataset_does_not_lock_its_namesake_of_another(
    catalog: Catalog, second: Catalog, sales: Dataset
) -> None:
    begin(catalog, sales, PARIS)
    assert begin(second, sales_dataset(StoreKind.LAKE), PARIS).partitions == (PARIS,)


def test_a_released_partition_can_be_built_by_another_run(catalog: Catalog, second: Catalog, sales: Dataset) -> None:
    publish(catalog, sales, PARIS)
    assert begin(second, sales, PARIS).partitions == (PARIS,)


def test_what_a_dead_run_was_building_is_marked_as_failed_by_the_next_build(
    settings: Settings, catalog: Catalog, sales: Dataset
) -> None:
    dying = Catalog(connect(settings))
    build = begin(dying, sales, PARIS, ZURICH, run="run-that-dies")
    stage(dying, build, [ZURICH])
    dying.connection.close()
    wait_until(lambda: catalog.in_flight(sales.name) == set())
    begin(catalog, sales, PARIS)
    assert states(catalog, sales, PARIS) == ["failed", "building"]
    assert states(catalog, sales, ZURICH) == ["staged"]
    begin(catalog, sales, ZURICH)
    assert states(catalog, sales, ZURICH) == ["failed", "building"]
    assert catalog.failures(sales.name) == {PARIS.path: 1, ZURICH.path: 1}
    (reason,) = catalog.connection.execute(
        "select failure from varve.batch where dataset = %s and partition = %s and state = 'failed'",
        (sales.name, PARIS.path),
    ).fetchone() or ("",)
    assert "the run ended" in reason
    assert "killed" in reason


def test_a_publish_points_its_partitions_at_the_build_and_retires_what_was_current(
    catalog: Catalog, sales: Dataset
) -> None:
    publish(catalog, sales, PARIS, ZURICH)
    build = begin(catalog, sales, PARIS)
    build.reads(PARIS, Input("landing:sales", PARIS.path, "abc"))
    stage(catalog, build)
    catalog.publish(build)
    current = catalog.current(sales.name)
    assert set(current) == {PARIS.path, ZURICH.path}
    batch = current[PARIS.path]
    assert (batch.batch_id, batch.rows, batch.size, batch.run_id) == (build.batch_id, 2, 100, "run")
    assert batch.location == f"/lake/{PARIS.path}/batch_id={build.batch_id}"
    assert batch.inputs == {Input("landing:sales", PARIS.path, "abc")}
    assert states(catalog, sales, PARIS) == ["retired", "published"]
    assert states(catalog, sales, ZURICH) == ["published"]
    assert current[PARIS.path].batch_id == build.batch_id


def test_an_older_build_does_not_win_over_a_newer_one(catalog: Catalog, second: Catalog, sales: Dataset) -> None:
    old = begin(catalog, sales, PARIS)
    stage(catalog, old)
    catalog.release(old)
    new = begin(second, sales, PARIS)
    stage(second, new)
    second.publish(new)
    with pytest.raises(StalePublish, match=rf"{PARIS}: expected none to be current, found {new.batch_id}"):
        catalog.publish(old)
    assert catalog.current(sales.name)[PARIS.path].batch_id == new.batch_id


def test_a_build_that_another_run_took_for_dead_does_not_publish(
    catalog: Catalog, second: Catalog, sales: Dataset
) -> None:
    lost = begin(catalog, sales, PARIS)
    stage(catalog, lost)
    catalog.release(lost)
    begin(second, sales, PARIS)
    with pytest.raises(StalePublish, match="1 of 1 batches are not staged any more"):
        catalog.publish(lost)
    assert catalog.current(sales.name) == {}


def test_a_group_is_published_whole_or_not_at_all(catalog: Catalog, second: Catalog, sales: Dataset) -> None:
    before = publish(catalog, sales, PARIS, ZURICH, DETROIT)
    group = begin(catalog, sales, PARIS, ZURICH, DETROIT)
    stage(catalog, group)
    catalog.release(group)
    other = publish(second, sales, ZURICH)
    with pytest.raises(StalePublish, match="store=Zürich: expected"):
        catalog.publish(group)
    current = {path: batch.batch_id for path, batch in catalog.current(sales.name).items()}
    assert current == {PARIS.path: before, ZURICH.path: other, DETROIT.path: before}


def test_a_group_of_which_one_partition_is_not_staged_is_not_published(catalog: Catalog, sales: Dataset) -> None:
    before = publish(catalog, sales, PARIS, ZURICH)
    group = begin(catalog, sales, PARIS, ZURICH)
    stage(catalog, group, [PARIS])
    with pytest.raises(StalePublish, match="1 of 2 batches are not staged"):
        catalog.publish(group)
    assert {batch.batch_id for batch in catalog.current(sales.name).values()} == {before}
    assert states(catalog, sales, PARIS) == ["published", "staged"]


def test_a_reader_during_group_publishes_never_sees_half_of_one(
    settings: Settings, catalog: Catalog, sales: Dataset
) -> None:
    publish(catalog, sales, PARIS, ZURICH, DETROIT)
    done = threading.Event()

    def watch() -> int:
        reads = 0
        with connect(settings) as opened:
            reader = Catalog(opened)
            while not done.is_set() or reads == 0:
                batches = reader.current(sales.name)
                assert len(batches) == 3
                assert len({batch.batch_id for batch in batches.values()}) == 1
                reads += 1
        return reads

    with ThreadPoolExecutor(2) as pool:
        watching = [pool.submit(watch) for _ in range(2)]
        try:
            for _ in range(25):
                publish(catalog, sales, PARIS, ZURICH, DETROIT)
        finally:
            done.set()
        assert all(watcher.result(timeout=60) > 0 for watcher in watching)


def test_failures_count_since_the_last_publish(catalog: Catalog, sales: Dataset) -> None:
    def fail() -> None:
        build = begin(catalog, sales, PARIS)
        catalog.fail(build, "no")
        catalog.release(build)

    assert catalog.failures(sales.name) == {}
    fail()
    fail()
    assert catalog.failures(sales.name) == {PARIS.path: 2}
    publish(catalog, sales, PARIS)
    assert catalog.failures(sales.name) == {}
    fail()
    assert catalog.failures(sales.name) == {PARIS.path: 1}


def test_a_failure_is_noted_whatever_characters_its_error_quotes(catalog: Catalog, sales: Dataset) -> None:
    build = begin(catalog, sales, PARIS, ZURICH)
    assert catalog.fail(build, "'a\0b' is no INT", {PARIS.path: "'a\0b' of \udcff.csv is no INT"}) == 1
    catalog.release(build)
    (failed,) = History(catalog.connection).batches(sales.name)
    assert (failed.partition, failed.failure) == (PARIS.path, "'a\u2400b' of ?.csv is no INT")


def test_failing_a_build_leaves_what_it_has_published_alone(catalog: Catalog, sales: Dataset) -> None:
    build = begin(catalog, sales, PARIS)
    stage(catalog, build)
    catalog.publish(build)
    catalog.fail(build, "after the publish")
    assert states(catalog, sales, PARIS) == ["published"]


def test_a_partition_is_in_flight_only_while_its_lock_is_held(
    settings: Settings, catalog: Catalog, second: Catalog, sales: Dataset
) -> None:
    assert catalog.in_flight(sales.name) == set()
    build = begin(second, sales, PARIS, ZURICH)
    assert catalog.in_flight(sales.name) == {PARIS.path, ZURICH.path}
    stage(second, build)
    assert catalog.in_flight(sales.name) == {PARIS.path, ZURICH.path}
    second.release(build)
    assert catalog.in_flight(sales.name) == set()
    dying = Catalog(connect(settings))
    begin(dying, sales, PARIS)
    assert catalog.in_flight(sales.name) == {PARIS.path}
    dying.connection.close()
    wait_until(lambda: catalog.in_flight(sales.name) == set())
    assert states(catalog, sales, PARIS)[-1] == "building"


def test_a_published_partition_is_not_in_flight_though_its_run_still_holds_the_lock(
    catalog: Catalog, sales: Dataset
) -> None:
    build = begin(catalog, sales, PARIS)
    stage(catalog, build)
    catalog.publish(build)
    assert catalog.in_flight(sales.name) == set()


def test_the_schema_is_made_once_by_four_that_begin_at_once(fresh_database: str) -> None:
    together = threading.Barrier(4)

    def make(_: int) -> None:
        with psycopg.connect(fresh_database, autocommit=True) as opened:
            together.wait(timeout=30)
            Catalog(opened).ensure_schema()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(4)))
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        assert opened.execute("select version from varve.schema_version").fetchall() == [(VERSION,)]
        assert opened.execute("select last_batch_id from varve.clock").fetchall() == [(0,)]


def test_an_arrival_is_new_when_its_content_is(catalog: Catalog, sales: Dataset) -> None:
    def arrived(fingerprint: str) -> bool:
        return catalog.arrived(sales.name, PARIS, uri="/landing/a.csv", size=3, fingerprint=fingerprint)

    assert [arrived("one"), arrived("one"), arrived("two"), arrived("one")] == [True, False, True, True]
    assert catalog.arrivals(sales.name) == {PARIS.path: "one"}


def test_a_group_publish_notes_each_partition_once_and_the_table_that_follows_none(
    catalog: Catalog, sales: Dataset
) -> None:
    def noted() -> list[str]:
        rows = catalog.connection.execute(
            "with seen as (delete from varve.change where dataset = %s returning partition) select * from seen",
            [sales.name],
        )
        return sorted(path for (path,) in rows)

    both = sorted([PARIS.path, ZURICH.path])
    publish(catalog, sales, PARIS, ZURICH)
    assert noted() == both
    publish(catalog, sales, PARIS, ZURICH)
    publish(catalog, sales, PARIS)
    assert noted() == sorted([*both, PARIS.path])
    catalog.projected(sales.name, catalog.lagging(sales.name).values())
    catalog.forget_projection(sales.name)
    assert noted() == []
    build = catalog.lock_partitions(sales, [PARIS, ZURICH], run_id="rollback")
    catalog.repoint(build, {})
    catalog.release(build)
    assert set(noted()) == set(both)


def test_the_projection_lags_until_it_is_recorded_as_followed(catalog: Catalog, sales: Dataset) -> None:
    publish(catalog, sales, PARIS, ZURICH)
    assert set(catalog.lagging(sales.name)) == {PARIS.path, ZURICH.path}
    assert catalog.ever_projected(sales.name, [PARIS.path]) == set()
    catalog.projected(sales.name, catalog.lagging(sales.name).values())
    assert catalog.lagging(sales.name) == {}
    publish(catalog, sales, PARIS)
    assert set(catalog.lagging(sales.name)) == {PARIS.path}
    assert catalog.ever_projected(sales.name, [PARIS.path, ZURICH.path]) == {PARIS.path, ZURICH.path}
    catalog.forget_projection(sales.name)
    assert set(catalog.lagging(sales.name)) == {PARIS.path, ZURICH.path}


def test_an_acceptance_stays_while_the_projection_alone_moves(catalog: Catalog, sales: Dataset) -> None:
    acceptances = Acceptances(catalog.connection)
    publish(catalog, sales, PARIS, ZURICH)
    of_paris = AcceptedInput(sales.name, PARIS.path, "shop.prices", PARIS.path, "5")
    acceptances.add([of_paris], reason="a typing error", owner="a person")
    catalog.projected(sales.name, catalog.lagging(sales.name).values())
    catalog.forget_projection(sales.name)
    publish(catalog, sales, ZURICH)
    assert acceptances.paths(sales.name) == [PARIS.path]
    publish(catalog, sales, PARIS)
    assert acceptances.paths(sales.name) == []


def test_a_run_that_began_in_the_generation_before_publishes_nothing_into_the_next(
    catalog: Catalog, sales: Dataset
) -> None:
    first = publish(catalog, sales, PARIS)
    # A partition that has no batch: nothing of it is stale.
    build = begin(catalog, sales, ZURICH)
    Generations(catalog.connection).move(sales.name, first.millis, first.millis, [PARIS.path])
    stage(catalog, build)
    with pytest.raises(CodeNotDeployed, match="readers were moved to another generation while this run computed"):
        catalog.publish(build)
    catalog.release(build)
    assert set(catalog.current(sales.name)) == {PARIS.path}
    publish(catalog, sales, ZURICH)
    assert set(catalog.current(sales.name)) == {PARIS.path, ZURICH.path}


def test_ten_thousand_partitions_are_published_at_once_and_listed(fresh_database: str) -> None:
    names = tuple(f"shop {number:05}" for number in range(10_000))
    many = Dataset("big.sales", Partitioning((StaticDimension("shop", names),)), COLUMNS, StoreKind.LAKE, "One sale.")
    keys = [PartitionKey.of(shop=name) for name in names]
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        catalog = Catalog(opened)
        catalog.ensure_schema()
        first = publish(catalog, many, *keys)
        second = publish(catalog, many, *keys)
        current = catalog.current(many.name)
        assert list(current) == sorted(key.path for key in keys)
        assert {batch.batch_id for batch in current.values()} == {second}
        assert second > first
        assert set(catalog.current(many.name, keys[:3])) == {key.path for key in keys[:3]}
        (counts,) = catalog.counts()
        assert (counts.partitions, counts.rows, counts.batches) == (10_000, 20_000, 20_000)


def wait_until(condition: object, *, seconds: float = 15) -> None:
    """Wait for PostgreSQL to notice that a session has ended."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
