"""What leaves an environment is kept for the whole grace period from then on, and swept after it.

Over the catalog alone; with files and readers of SQL: tests/cli/test_sweep.py.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import psycopg

from tests.catalog.test_deployments import DAYS
from tests.catalog.test_environments import Environment, correct, environment, process
from varve.catalog.catalog import Catalog
from varve.catalog.environments.environments import Environments
from varve.catalog.history.drops import Drops
from varve.catalog.history.history import History, RetainedBatches
from varve.catalog.schema import CatalogSchema
from varve.model.batch import BatchId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.catalog.test_deployments import Process
    from varve.catalog.history.rows import Retired

__all__ = ["process"]

GRACE, NONE = dt.timedelta(days=7), dt.timedelta(0)
MOMENTS = """
    select c.table_name, c.column_name from information_schema.columns c
    join information_schema.tables t using (table_schema, table_name)
    where c.table_schema = 'varve' and t.table_type = 'BASE TABLE' and c.column_name in ('retired_at', 'until')
"""
ALL = "select dataset, partition, batch_id from varve.batch where state = 'retired'"

Key = tuple[str, str, int]


def days_pass(process: Process, days: int) -> None:
    """Every moment at which something was retired or let go of is so many days longer ago."""
    connection = process.connection
    connection.execute("update varve.current set projected_batch_id = batch_id")
    connection.execute("delete from varve.withdrawn")
    for table, column in connection.execute(MOMENTS).fetchall():
        moved = f"update varve.{table} set {column} = {column} - %s where {column} is not null"
        connection.execute(moved.encode(), (dt.timedelta(days=days),))


def listed(
    process: Process, *, older_than: dt.timedelta = GRACE, declared: Mapping[str, RetainedBatches | None] | None = None
) -> list[Retired]:
    return History(process.connection).retired(None, older_than=older_than, keep_last=0, declared=declared)


def kept(process: Process, *, older_than: dt.timedelta = GRACE) -> dict[Key, str]:
    """By retired batch why a sweep leaves it; empty where it would not."""
    return {
        (batch.dataset, batch.partition, batch.batch_id.millis): batch.kept
        for batch in listed(process, older_than=older_than)
    }


def taken(process: Process) -> set[Key]:
    return {key for key, why in kept(process).items() if not why}


def overlay(edited: Environment) -> set[Key]:
    return {
        (row.dataset, row.partition, row.batch_id.millis)
        for row in edited.environments.overlay(edited.name)
        if row.batch_id is not None
    }


def held(process: Process) -> tuple[Environment, set[Key], set[Key]]:
    """An environment whose batches were all retired long ago: it, the batches of its overlay, and of its base."""
    edited = environment(process.with_code("r2"))
    edited.run()
    ours = overlay(edited)
    for day in (1, 2, 3):
        correct(process, day, "b")
    bases = set(process.connection.execute(ALL).fetchall()) - ours
    assert (len(ours), len(bases)) == (6, 9)
    days_pass(process, 30)
    assert kept(process) == dict.fromkeys(ours | bases, "environment")
    return edited, ours, bases


def test_what_a_dropped_environment_has_kept_is_swept_after_the_grace_period_and_not_at_once(process: Process) -> None:
    edited, ours, bases = held(process)
    edited.environments.drop("alice")
    assert kept(process) == dict.fromkeys(ours | bases, "recent")
    days_pass(process, 6)
    assert taken(process) == set()
    days_pass(process, 2)
    assert taken(process) == ours | bases
    history = History(process.connection)
    assert history.mark_swept(listed(process)) == 15
    # Of what was swept nothing is remembered; a base is a row, whatever it kept.
    assert history.forget_left() == 6
    assert process.connection.execute("select count(*) from varve.former_overlay").fetchone() == (0,)


def test_a_base_that_moves_lets_go_of_what_it_has_kept_then(process: Process) -> None:
    edited, _, bases = held(process)
    edited.environments.rebase("alice", code_too=False)
    why = kept(process)
    assert {why[key] for key in bases} == {"recent"}
    days_pass(process, 8)
    assert taken(process) == bases
    # A base that stays where it is lets go of nothing.
    edited.environments.rebase("alice", code_too=False)
    edited.environments.use("alice")
    assert taken(process) == bases


def test_each_batch_of_an_overlay_that_is_replaced_is_kept_from_then_on(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run(1)
    replaced: list[set[Key]] = []
    for code in ("r3", "r4", "r5"):
        days_pass(process, 3)
        before = overlay(edited)
        edited = Environment(process.with_code(code), "alice")
        edited.run(1)
        replaced.append(before - overlay(edited))
    assert [len(batches) for batches in replaced] == [2, 2, 2]
    # They were made 9, 6 and 3 days ago, and replaced 6, 3 and 0 days ago.
    for days, gone in ((0, 0), (2, 1), (3, 2), (3, 3)):
        days_pass(process, days)
        assert taken(process) == set().union(*replaced[:gone])
    assert overlay(edited) & taken(process) == set()


def test_what_is_taken_out_of_an_overlay_is_kept_from_then_on(process: Process) -> None:
    edited, ours, _ = held(process)
    paths = {"shop.revenue": [DAYS[0].path, DAYS[1].path]}
    edited.environments.forget_overlay("alice", paths)
    gone = {key for key in ours if key[0] == "shop.revenue" and key[1] in paths["shop.revenue"]}
    build = edited.begin("shop.revenue", DAYS[2])
    edited.catalog.repoint(build, {})
    edited.catalog.release(build)
    gone |= {key for key in ours if key[0] == "shop.revenue"}
    assert len(gone) == 3
    assert {kept(process)[key] for key in gone} == {"recent"}
    days_pass(process, 8)
    assert taken(process) == gone


def test_a_promotion_lets_go_of_what_the_environment_stood_on(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run()
    promoted = overlay(edited)
    process.run("shop.report", *DAYS)
    days_pass(process, 30)
    bases = kept(process).keys() - promoted
    assert len(bases) == 3
    edited.promote()
    days_pass(process, 0)
    # What was promoted is current, and what it has replaced was retired this moment.
    why = kept(process)
    assert (len(why), set(why.values()), promoted & why.keys()) == (3 + 6, {"recent"}, set())
    days_pass(process, 6)
    assert taken(process) == set()
    days_pass(process, 2)
    assert taken(process) == why.keys() >= bases


def test_of_two_that_have_a_batch_the_last_one_counts(process: Process) -> None:
    edited, ours, bases = held(process)
    other = environment(process.with_code("r2"), "bob")
    for name, path, batch in ours:
        build = other.catalog.lock_partitions(
            process.graph.datasets[name], [key for key in DAYS if key.path == path], run_id="taken"
        )
        other.catalog.repoint(build, dict.fromkeys(build.partitions, BatchId(batch)))
        other.catalog.release(build)
    edited.environments.drop("alice")
    assert set(kept(process).values()) == {"recent", "environment"}
    days_pass(process, 8)
    assert taken(process) == bases
    edited.environments.drop("bob")
    days_pass(process, 6)
    assert taken(process) == bases
    days_pass(process, 2)
    assert taken(process) == ours | bases


def test_two_that_stand_on_one_base_keep_it_until_the_last_goes(process: Process) -> None:
    environment(process, "bob")
    edited, ours, bases = held(process)
    edited.environments.drop("alice")
    days_pass(process, 8)
    assert taken(process) == ours
    edited.environments.drop("bob")
    assert taken(process) == ours
    days_pass(process, 8)
    assert taken(process) == ours | bases


def test_another_of_the_same_name_keeps_nothing_of_the_one_before(process: Process) -> None:
    edited, ours, bases = held(process)
    edited.environments.drop("alice")
    again = environment(process.with_code("r2"))
    assert kept(process) == dict.fromkeys(ours | bases, "recent")
    days_pass(process, 8)
    assert taken(process) == ours | bases
    again.environments.drop("alice")
    assert taken(process) == ours | bases


def test_a_batch_that_was_current_meanwhile_counts_from_its_last_end(process: Process) -> None:
    edited, _, bases = held(process)
    edited.environments.drop("alice")
    days_pass(process, 8)
    catalog, orders = Catalog(process.connection), process.graph.datasets["shop.orders"]
    (key,) = [key for key in bases if key[:2] == ("shop.orders", DAYS[0].path)]
    build = catalog.lock_partitions(orders, [DAYS[0]], run_id="rollback")
    catalog.repoint(build, {DAYS[0]: BatchId(key[2])}, reason="it was right")
    catalog.release(build)
    days_pass(process, 20)
    assert key not in kept(process)
    assert History(process.connection).mark_swept(listed(process)) == 15
    assert catalog.current("shop.orders")[DAYS[0].path].batch_id.millis == key[2]
    process.run("shop.orders", DAYS[0])
    days_pass(process, 6)
    assert kept(process)[key] == "recent"
    days_pass(process, 2)
    assert key in taken(process)


def test_what_was_promoted_and_replaced_counts_from_its_end_in_production(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run()
    promoted = overlay(edited)
    edited.promote()
    days_pass(process, 30)
    assert History(process.connection).forget_left() == 6
    correct(edited.process, 1, "b")
    edited.environments.drop("alice")
    replaced = promoted & kept(process).keys()
    assert len(replaced) == 2
    assert taken(process) & promoted == set()
    days_pass(process, 8)
    assert taken(process) >= replaced


def test_a_dataset_retains_what_an_environment_let_go_of_from_then_on(process: Process) -> None:
    edited, ours, bases = held(process)
    edited.environments.drop("alice")
    declared = {"shop.revenue": RetainedBatches(dt.timedelta(days=20), 0)}
    days_pass(process, 8)

    def retained() -> set[Key]:
        rows = [row for row in listed(process, older_than=NONE, declared=declared) if row.kept == "declared"]
        return {(row.dataset, row.partition, row.batch_id.millis) for row in rows}

    assert retained() == {key for key in ours | bases if key[0] == "shop.revenue"}
    days_pass(process, 13)
    assert retained() == set()


def test_a_run_that_began_before_may_read_it(process: Process, fresh_database: str) -> None:
    edited, ours, bases = held(process)
    with psycopg.connect(fresh_database, autocommit=True) as elsewhere:
        slow = Catalog(elsewhere).begin(process.graph.datasets["shop.report"], [DAYS[0]], run_id="r", code_version="p1")
        edited.environments.drop("alice")
        assert kept(process, older_than=NONE) == dict.fromkeys(ours | bases, "in use")
        Catalog(elsewhere).release(slow)
    assert set(kept(process, older_than=NONE).values()) == {""}


def test_what_was_let_go_of_after_a_sweep_has_chosen_it_is_not_swept(process: Process) -> None:
    edited, ours, _ = held(process)
    edited.environments.drop("alice")
    days_pass(process, 8)
    chosen = listed(process)
    assert {row.kept for row in chosen} == {""}
    again = environment(process.with_code("r2"))
    again.environments.set_code("alice", again.process.graph)
    name, path, batch = min(ours)
    build = again.catalog.lock_partitions(
        process.graph.datasets[name], [key for key in DAYS if key.path == path], run_id="taken"
    )
    again.catalog.repoint(build, dict.fromkeys(build.partitions, BatchId(batch)))
    again.catalog.release(build)
    again.environments.drop("alice")
    assert History(process.connection).mark_swept(chosen) == 14
    assert kept(process) == {(name, path, batch): "recent"}


def test_a_drop_waits_for_no_sweep_and_a_sweep_for_no_drop(process: Process, fresh_database: str) -> None:
    _, ours, bases = held(process)
    with psycopg.connect(fresh_database) as sweeping:
        # A sweep that has chosen what to take, and holds every retired batch.
        before = History(sweeping).retired(None, older_than=GRACE, keep_last=0)
        sweeping.execute("select from varve.batch where state = 'retired' for update")
        with psycopg.connect(fresh_database) as dropping:
            dropping.execute("set lock_timeout = '5s'")
            Environments(dropping).drop("alice")
            # It is not committed: nobody sees it yet.
            during = History(sweeping).retired(None, older_than=GRACE, keep_last=0)
        after = History(sweeping).retired(None, older_than=GRACE, keep_last=0)
    assert [{row.kept for row in rows} for rows in (before, during, after)] == [
        {"environment"}, {"environment"}, {"recent"}
    ]  # fmt: skip
    assert kept(process) == dict.fromkeys(ours | bases, "recent")


def test_one_that_has_expired_and_is_there_still_lets_go_when_it_goes(process: Process) -> None:
    _, ours, bases = held(process)
    process.connection.execute("update varve.environment set ttl = '1 day', used_at = now() - interval '90 days'")
    assert kept(process) == dict.fromkeys(ours | bases, "recent")
    assert Environments(process.connection).drop_expired("alice")
    assert kept(process) == dict.fromkeys(ours | bases, "recent")
    days_pass(process, 8)
    assert taken(process) == ours | bases


def test_a_dropped_dataset_keeps_what_an_expired_environment_had_of_it(process: Process) -> None:
    _, ours, bases = held(process)
    process.connection.execute("update varve.environment set ttl = '1 day', used_at = now() - interval '90 days'")
    drops = Drops(process.connection)
    dropped = drops.drop("shop.report", by="ann")
    drops.finished(dropped)
    Environments(process.connection).drop_expired("alice")
    of_it = {key[1:] for key in ours | bases if key[0] == "shop.report"}
    remains = {key[1:]: why for key, why in kept(process).items() if key[0] == dropped.remains}
    # Those that were current until the drop, too.
    assert len(remains) == len(of_it) + 3
    assert set(remains.values()) == {"recent"}
    days_pass(process, 8)
    assert {key[0] for key in taken(process)} == {dropped.remains, "shop.orders", "shop.revenue"}
    drops.forget(dropped)
    left = process.connection.execute(
        "select count(*) from varve.former_overlay where starts_with(dataset, 'shop.report')"
    )
    assert left.fetchone() == (0,)


def test_a_catalog_of_before_is_upgraded_with_its_environments(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        CatalogSchema(19).ensure(connection)
        connection.execute("insert into varve.environment (name, base, created_by) values ('alice', 7, 'ann')")
        connection.execute(
            "insert into varve.overlay values ('alice', 'shop.sales', 'day=1', 5), ('alice', 'a.b', '', null)"
        )
        CatalogSchema().migrate(connection)
        Environments(connection).drop("alice")
        rows = connection.execute("select dataset, partition, batch_id from varve.former_overlay").fetchall()
        assert rows == [("shop.sales", "day=1", 5)]
        assert connection.execute("select base from varve.former_base").fetchall() == [(7,)]
