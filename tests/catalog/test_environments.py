"""Environments: overlay over base, runs beside production, sweeps, and promotion with its closure check.

Over the catalog alone, whose batches hold no rows here: what is computed from what is all that matters. With real
stores and runs: tests/cli/test_environments.py.
"""

from __future__ import annotations

import datetime as dt
import random
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.catalog.test_deployments import DAYS, NOW, Process
from varve.catalog.catalog import Catalog
from varve.catalog.code.code_states import CodeStates
from varve.catalog.code.promotions import Promotions
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.facts import EnvironmentFacts, codes_of
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.catalog.history.history import History
from varve.catalog.planning.facts import CatalogFacts
from varve.catalog.traces import Traces
from varve.model.batch import Input, StagedBatch
from varve.model.errors import AlreadyBuilding, BadInput, NotKept, StalePublish, VarveError
from varve.planning.judgement.judgement import State
from varve.planning.judgement.settled import OneByOne
from varve.planning.reconcile import Limits, Planner, reconcile
from varve.stores.environments.promoter import Promoter
from varve.stores.environments.promotion import Closure, LeftBehind, NotClosed, Promotion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.stores.environments.closure import Judged

NAMES = ("shop.orders", "shop.revenue", "shop.report")


@dataclass(frozen=True)
class PointersOnly:
    """A store without data: a promotion changes the catalog, and nothing follows."""

    def commit(self, builds: object, point: Callable[[], None]) -> None:
        del builds
        point()

    def published(self, build: Build) -> None:
        del build


class LookingAtAll(Promoter):
    """Every partition of every dataset is judged one by one, before and after: what the quick check must agree with."""

    def _swapped(
        self, promotion: Promotion, behind: LeftBehind, point: Callable[[], None], by: str
    ) -> tuple[Closure, int]:
        before, former = self._judged(promotion), self.check.former(promotion)
        number = self._point_all(promotion, behind, point, by)
        return self.check.unclosed(promotion, before, self._judged(promotion), former), number

    def _judged(self, promotion: Promotion) -> Judged:
        del promotion
        codes = CodeStates(self.catalog.connection).of(self.graph)
        facts = OneByOne(CatalogFacts(self.catalog.connection, {}, codes))
        plan = reconcile(self.graph, facts, now=self.now, codes=codes)
        return {
            name: {path: (judgement.state, judgement.reason) for path, judgement in judgements.items()}
            for name, judgements in plan.judgements.items()
        }


@dataclass
class Environment:
    """An environment in which a process works."""

    process: Process
    name: str

    @property
    def environments(self) -> Environments:
        return Environments(self.process.connection)

    @property
    def catalog(self) -> EnvironmentCatalog:
        return EnvironmentCatalog(self.process.connection, self.name)

    def states(self, name: str) -> dict[int, State]:
        """By day, the state of each partition; what is told in bulk is compared with looking at each."""
        graph = self.process.graph
        facts = EnvironmentFacts(self.process.connection, self.name, graph)
        plan = reconcile(graph, OneByOne(facts), now=NOW, codes=codes_of(graph, {}))
        in_bulk = Planner(graph, Limits()).tick(facts, None, now=NOW, codes=codes_of(graph, {}))
        assert in_bulk.judgements[name] == {
            path: judgement for path, judgement in plan.judgements[name].items()
            if judgement.state is not State.CURRENT or judgement.pending
        }  # fmt: skip
        assert in_bulk.runs == plan.runs
        return {int(path[-2:]): judgement.state for path, judgement in sorted(plan.judgements[name].items())}

    def begin(self, name: str, *keys: PartitionKey) -> Build:
        dataset = self.process.graph.datasets[name]
        return self.catalog.begin(dataset, keys, run_id=f"run-{self.name}", code_version=self.process.codes[name])

    def finish(self, build: Build) -> None:
        for key in build.partitions:
            for edge in self.process.graph.edges[build.dataset.name]:
                for path, batch in self.catalog.current(edge.upstream.name, [key]).items():
                    build.reads(key, Input(edge.upstream.name, path, str(batch.batch_id)))
        self.catalog.staged(build, [StagedBatch(key, "/nowhere", 1, 1, 1) for key in build.partitions])
        try:
            self.catalog.publish(build)
        finally:
            self.catalog.release(build)

    def run(self, *days: int) -> list[tuple[str, int]]:
        """Compute what is due of these days (none: of all), as `varve env run` does; returns what was computed."""
        self.environments.set_code(self.name, self.process.graph)
        computed = []
        for name in NAMES:
            for day, state in self.states(name).items():
                if state is State.DUE and (not days or day in days):
                    self.finish(self.begin(name, DAYS[day - 1]))
                    computed.append((name, day))
        return computed

    def promoter(self, kind: type[Promoter] = Promoter, *, earlier_code: bool = False) -> Promoter:
        store = PointersOnly()
        return kind(
            Catalog(self.process.connection), self.process.graph, lambda _: store, {}, Limits(), NOW,  # type: ignore[arg-type, return-value]
            earlier_code=earlier_code,
        )  # fmt: skip

    def promote(self, behind: LeftBehind = LeftBehind.REFUSE, *, earlier_code: bool = False) -> Promotion:
        return self.promoter(earlier_code=earlier_code).promote(self.name, behind, by="ann")

    def closure(self, kind: type[Promoter] = Promoter) -> list[list[tuple[str, str]]]:
        """What a promotion would leave inconsistent: what moved, and what is behind."""
        closure = self.promoter(kind).look(self.name).closure
        return [
            sorted((name, path) for name, paths in listed.items() for path in paths)
            for listed in (closure.moved, closure.behind)
        ]

    def codes(self, name: str = "shop.revenue") -> dict[int, str]:
        """By day, which code has made what the environment's readers see."""
        rows = self.process.connection.execute(
            """select c.partition, b.code_version from varve.environment_current c
               join varve.batch b using (dataset, partition, batch_id)
               where c.environment = %s and c.dataset = %s order by 1""",
            (self.name, name),
        )
        return {int(path[-2:]): code for path, code in rows}


@pytest.fixture
def process(fresh_database: str) -> Iterator[Process]:
    """Three days of all three datasets in production, made by the code that is deployed."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        Catalog(connection).ensure_schema()
        process = Process(connection)
        for key in DAYS:
            process.arrive(key, "a")
        for name in process.codes:
            process.run(name, *DAYS)
        yield process


def environment(process: Process, name: str = "alice") -> Environment:
    Environments(process.connection).create(name, by="ann")
    return Environment(process, name)


def correct(process: Process, day: int, fingerprint: str) -> None:
    """A file is sent again, and production computes what follows."""
    process.arrive(DAYS[day - 1], fingerprint)
    process.run("shop.orders", DAYS[day - 1])
    for name in ("shop.revenue", "shop.report"):
        for number, state in process.states(name).items():
            if state is State.DUE:
                process.run(name, DAYS[number - 1])


def published(process: Process) -> dict[str, dict[str, int]]:
    return {
        name: {path: batch.batch_id.millis for path, batch in Catalog(process.connection).current(name).items()}
        for name in NAMES
    }


def test_making_one_writes_no_batch_and_shows_what_is_current(process: Process) -> None:
    before = process.connection.execute("select count(*) from varve.batch").fetchone()
    alice = environment(process)
    assert process.connection.execute("select count(*) from varve.batch").fetchone() == before
    production = published(process)
    assert {name: {path: batch.batch_id.millis for path, batch in alice.catalog.current(name).items()}
            for name in NAMES} == production  # fmt: skip
    assert alice.states("shop.report") == dict.fromkeys((1, 2, 3), State.CURRENT)


def test_what_no_code_of_the_project_makes_is_not_due_in_an_environment(process: Process) -> None:
    """As a captured table: its batches say which code of ours resolved them, and no run of the project can make any."""
    codes = {**process.codes, "shop.orders": ""}
    assert environment(replace(process, codes=codes)).states("shop.orders") == dict.fromkeys((1, 2, 3), State.CURRENT)


def test_a_change_is_computed_beside_production_and_nobody_there_sees_it(process: Process) -> None:
    before = published(process)
    edited = environment(process.with_code("r2"))
    assert edited.states("shop.revenue") == dict.fromkeys((1, 2, 3), State.DUE)
    assert edited.run(2) == [("shop.revenue", 2), ("shop.report", 2)]
    assert edited.codes() == {1: "r1", 2: "r2", 3: "r1"}
    assert published(process) == before
    assert process.states("shop.report") == dict.fromkeys((1, 2, 3), State.CURRENT)
    # It is not offered to a rollback: it was never current.
    (row,) = [row for row in Environments(process.connection).overlay("alice") if row.dataset == "shop.revenue"]
    build = Catalog(process.connection).lock_partitions(process.revenue, [DAYS[1]], run_id="back")
    assert row.batch_id is not None
    with pytest.raises(NotKept, match="of environment alice, and was never current"):
        Catalog(process.connection).repoint(build, {DAYS[1]: row.batch_id})
    Catalog(process.connection).release(build)
    # Nor by a dry run, which only looks.
    with pytest.raises(NotKept, match="of environment alice, and was never current"):
        Catalog(process.connection).look_at_targets("shop.revenue", {DAYS[1].path: row.batch_id})


def test_its_base_stays_what_it_was_until_it_is_moved(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run()
    correct(process, 2, "b")
    assert edited.run() == []
    moved = edited.environments.rebase("alice", code_too=True)
    assert moved.base is not None
    assert edited.run() == [("shop.revenue", 2), ("shop.report", 2)]


def test_a_live_one_follows_production_and_is_never_promoted(process: Process) -> None:
    Environments(process.connection).create("watch", by="ann", live=True)
    live = Environment(process, "watch")
    correct(process, 2, "b")
    assert live.catalog.current("shop.revenue") == Catalog(process.connection).current("shop.revenue")
    live.run()
    with pytest.raises(VarveError, match="follows production"):
        live.promote()


def test_builds_of_both_hold_the_same_partition_at_once(process: Process) -> None:
    alice, bob = environment(process.with_code("r2")), environment(process.with_code("r2"), "bob")
    production = process.begin("shop.revenue", DAYS[0])
    here = alice.begin("shop.revenue", DAYS[0])
    with psycopg.connect(process.connection.info.dsn, autocommit=True) as other:
        second = Environment(replace(process.with_code("r2"), connection=other), "alice")
        with pytest.raises(AlreadyBuilding):
            second.begin("shop.revenue", DAYS[0])
    there = bob.begin("shop.revenue", DAYS[0])
    assert Catalog(process.connection).in_flight("shop.revenue") == {DAYS[0].path}
    for build, owner in ((here, alice), (there, bob)):
        owner.finish(build)
    process.finish(production)
    # Nobody took another's build for dead.
    rows = process.connection.execute("select count(*) from varve.batch where state = 'failed'").fetchone()
    assert rows == (0,)


def test_what_fails_in_an_environment_is_no_failure_of_production(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    for _ in range(5):
        build = edited.begin("shop.revenue", DAYS[0])
        edited.catalog.fail(build, "no such column")
        edited.catalog.release(build)
    process.arrive(DAYS[0], "b")
    process.run("shop.orders", DAYS[0])
    assert process.states()[1] is State.DUE
    assert edited.states("shop.revenue")[1] is State.FAILED
    # Nor does it count when the code of the environment is mended.
    assert replace(edited, process=process.with_code("r3")).states("shop.revenue")[1] is State.DUE


def test_a_run_that_another_one_has_overtaken_is_refused(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    slow = edited.begin("shop.revenue", DAYS[0])
    edited.catalog.release(slow)
    edited.run(1)
    with pytest.raises(StalePublish, match="another run in environment alice"):
        edited.finish(slow)


def test_what_is_computed_in_a_dropped_one_is_refused(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    build = edited.begin("shop.revenue", DAYS[0])
    edited.environments.drop("alice")
    with pytest.raises(VarveError, match="environment alice was dropped"):
        edited.finish(build)


class Cut(psycopg.Connection[tuple[object, ...]]):
    """A connection that is lost before its n-th statement: the process that had it was killed there."""

    left = 1_000_000

    def execute(self, *words: object, **options: object) -> psycopg.Cursor[tuple[object, ...]]:
        self.left -= 1
        if self.left < 0:
            self.close()
        return super().execute(*words, **options)  # type: ignore[arg-type]


def test_a_promotion_that_is_killed_anywhere_leaves_all_as_it_was_and_the_next_one_does_it(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run()
    before, dsn, killed = published(process), process.connection.info.dsn, 0
    for statement in range(400):
        with Cut.connect(dsn, autocommit=True) as connection:
            connection.left = statement
            try:
                promotion = Environment(replace(edited.process, connection=connection), "alice").promote()
            except psycopg.OperationalError:
                killed += 1
            else:
                break
        assert published(process) == before
        assert process.deployments.current()["shop.revenue"].code_version == "r1"
        assert len(edited.environments.overlay("alice")) == 6
    assert killed > 20
    assert promotion.partitions == 6
    assert process.code_of() == {1: "r2", 2: "r2", 3: "r2"}


@pytest.mark.parametrize("name", ["", "Alice", "a-b", "1a", "a" * 32, "a; drop table varve.current"])
def test_a_name_that_cannot_be_part_of_a_schema_is_refused(process: Process, name: str) -> None:
    with pytest.raises(BadInput, match="cannot be the name of an environment"):
        Environments(process.connection).create(name, by="ann")


def test_a_name_that_is_taken_and_one_that_is_not_there_are_refused(process: Process) -> None:
    environment(process)
    with pytest.raises(BadInput, match="there is an environment alice already, of ann"):
        environment(process)
    with pytest.raises(VarveError, match=r"there is no environment 'alise'.*alice"):
        Environments(process.connection).get("alise")


def swept(process: Process) -> int:
    """Sweep without any time of grace; returns how many batches were marked. There is no Hive table to lag here."""
    process.connection.execute("update varve.current set projected_batch_id = batch_id")
    history = History(process.connection)
    retired = history.retired(None, older_than=dt.timedelta(0), keep_last=0)
    return history.mark_swept([batch for batch in retired if not batch.kept])


def test_a_sweep_takes_nothing_that_a_living_environment_needs(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run()
    base = {name: edited.catalog.current(name) for name in NAMES}
    for day in (1, 2, 3):
        correct(process, day, "b")
        correct(process, day, "c")
    assert swept(process) > 0
    assert {name: edited.catalog.current(name) for name in NAMES} == base
    edited.environments.drop("alice")
    assert swept(process) == 3 * 5


def test_an_environment_that_nobody_uses_expires(process: Process) -> None:
    Environments(process.connection).create("old", by="ann", ttl=dt.timedelta(microseconds=1))
    old = Environment(process.with_code("r2"), "old")
    old.run()
    assert swept(process) == 6
    assert [each.expired for each in old.environments.all()] == [True]
    # A run that takes longer than that uses it.
    build = old.begin("shop.revenue", DAYS[0])
    assert [each.expired for each in old.environments.all()] == [False]
    assert not old.environments.drop_expired("old")
    old.catalog.fail(build, "it was enough")
    old.catalog.release(build)
    assert old.environments.drop_expired("old")


def test_a_promotion_makes_batches_and_code_current_at_once_and_computes_nothing(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run()
    batches = process.connection.execute("select count(*) from varve.batch").fetchone()
    promotion = edited.promote()
    assert process.connection.execute("select count(*) from varve.batch").fetchone() == batches
    assert (promotion.partitions, dict(promotion.codes)) == (6, {"shop.revenue": "r2"})
    assert process.code_of() == {1: "r2", 2: "r2", 3: "r2"}
    assert edited.process.states("shop.report") == dict.fromkeys((1, 2, 3), State.CURRENT)
    times = process.connection.execute(
        "select count(distinct published_at), count(*) from varve.publish where run_id = %s", (promotion.run_id,)
    ).fetchone()
    assert times == (1, 2)
    # The environment stands on it: there is nothing more to promote.
    assert edited.environments.overlay("alice") == []
    assert edited.promote().partitions == 0


def test_a_promotion_that_would_mix_codes_or_leave_a_reader_behind_is_refused(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.environments.set_code("alice", edited.process.graph)
    edited.finish(edited.begin("shop.revenue", *DAYS))
    before = published(process)
    with pytest.raises(NotClosed, match=r"3 partitions of production would be left behind \(shop.report day=2026-11"):
        edited.promote()
    assert published(process) == before
    assert process.deployments.current()["shop.revenue"].code_version == "r1"
    # One day of three: the table would have two codes.
    other = environment(process.with_code("r3"), "bob")
    other.run(1)
    with pytest.raises(NotClosed, match="made by other code than is deployed") as refused:
        other.promote()
    assert sorted(refused.value.promotion.closure.behind["shop.revenue"]) == [DAYS[1].path, DAYS[2].path]
    assert published(process) == before


def test_then_run_leaves_the_rest_to_the_sensors(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run(1)
    promotion = edited.promote(LeftBehind.RUN)
    assert promotion.closure.behind["shop.revenue"].keys() == {DAYS[1].path, DAYS[2].path}
    assert edited.process.states() == {1: State.CURRENT, 2: State.DUE, 3: State.DUE}


def test_only_what_is_consistent_is_promoted_where_that_is_asked_for(process: Process) -> None:
    """Both queries were changed, and only one of them was computed in full."""
    codes = {**process.codes, "shop.revenue": "r2", "shop.report": "p2"}
    edited = environment(replace(process, codes=codes))
    edited.environments.set_code("alice", edited.process.graph)
    for day in (1, 2, 3):
        edited.finish(edited.begin("shop.report", DAYS[day - 1]))
    edited.finish(edited.begin("shop.revenue", DAYS[0]))
    promotion = edited.promote(LeftBehind.LEAVE_OUT)
    assert {name: len(paths) for name, paths in promotion.batches.items()} == {"shop.report": 3}
    assert dict(promotion.codes) == {"shop.report": "p2"}
    assert list(promotion.left_out) == ["shop.revenue"]
    assert process.code_of() == {1: "r1", 2: "r1", 3: "r1"}


def test_what_production_has_corrected_meanwhile_is_computed_again_and_only_that(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run()
    correct(process, 2, "b")
    with pytest.raises(NotClosed, match="of it 1 partition not made from what is current now"):
        edited.promote()
    edited.environments.rebase("alice", code_too=False)
    assert edited.run() == [("shop.revenue", 2), ("shop.report", 2)]
    edited.promote()
    assert process.code_of() == {1: "r2", 2: "r2", 3: "r2"}


def test_going_back_takes_what_is_kept_and_keeps_a_correction(process: Process) -> None:
    first = published(process)
    edited = environment(process.with_code("r2"))
    edited.run()
    edited.promote()
    correct(edited.process, 2, "b")
    undo = environment(process, "undo")
    undo.environments.set_code("undo", process.graph)
    traces, taken, computed = Traces(process.connection), [], []
    for name in ("shop.revenue", "shop.report"):
        facts = EnvironmentFacts(process.connection, "undo", process.graph)
        plan = reconcile(process.graph, facts, now=NOW, codes=codes_of(process.graph, {}))
        for path, judgement in sorted(plan.judgements[name].items()):
            key = DAYS[int(path[-2:]) - 1]
            if judgement.state is not State.DUE:
                continue
            code = process.codes[name]
            kept = traces.equal_batches(name, code, {path: judgement.inputs}, current_too=True)
            if kept:
                build = undo.catalog.unlocked(process.graph.datasets[name], [key], run_id="undo", code_version=code)
                undo.catalog.repoint(build, {key: kept[path].batch_id})
                taken.append((name, path))
            else:
                undo.finish(undo.begin(name, key))
                computed.append((name, path))
    assert computed == [("shop.revenue", DAYS[1].path), ("shop.report", DAYS[1].path)]
    assert len(taken) == 4
    with pytest.raises(VarveError, match=r"in force until .* UTC, when ann deployed other code. Is this checkout beh"):
        undo.promote()
    undo.promote(earlier_code=True)
    now = published(process)
    assert process.code_of() == {1: "r1", 2: "r1", 3: "r1"}
    for name in ("shop.revenue", "shop.report"):
        assert {path for path in now[name] if now[name][path] != first[name][path]} == {DAYS[1].path}


def test_the_same_code_changed_in_both_is_a_conflict_until_it_is_merged(process: Process) -> None:
    ann, bob = environment(process.with_code("r2")), environment(process.with_code("r3"), "bob")
    ann.run()
    bob.run()
    ann.promote()
    with pytest.raises(VarveError, match="bob has changed its code, and so has ann in production"):
        bob.promote()
    merged = Environment(process.with_code("r2+r3"), "bob")
    merged.environments.rebase("bob", code_too=True)
    merged.run()
    merged.promote()
    assert process.code_of() == {1: "r2+r3", 2: "r2+r3", 3: "r2+r3"}


def test_two_that_change_different_datasets_are_both_in_force_in_the_end(process: Process) -> None:
    """The second reads what the first has changed: what it had computed is computed again, and nothing is lost."""
    ann = environment(process.with_code("r2"))
    bob = environment(replace(process, codes={**process.codes, "shop.report": "p2"}), "bob")
    ann.run()
    bob.run()
    ann.promote()
    with pytest.raises(NotClosed):
        bob.promote()
    bob.environments.rebase("bob", code_too=False)
    assert bob.run() == [("shop.report", day) for day in (1, 2, 3)]
    bob.promote()
    # The second goes on from a checkout without the code of the first, which stays in force all the same.
    bob = Environment(replace(process, codes={**process.codes, "shop.report": "p3"}), "bob")
    assert bob.run() == [("shop.report", day) for day in (1, 2, 3)]
    assert dict(bob.promote().codes) == {"shop.report": "p3"}
    rows = process.connection.execute(
        """select c.dataset, array_agg(distinct b.code_version) from varve.current c
           join varve.batch b using (dataset, partition, batch_id) group by 1"""
    )
    assert dict(rows.fetchall()) == {"shop.orders": ["o1"], "shop.revenue": ["r2"], "shop.report": ["p3"]}


def test_a_partition_that_was_out_of_date_before_mixes_no_codes_either(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run(1, 2)
    # What day 3 reads has come again, and is not computed in production yet.
    process.arrive(DAYS[2], "b")
    process.run("shop.orders", DAYS[2])
    with pytest.raises(NotClosed, match=r"1 partition of production .* \(shop.revenue day=2026-11-03"):
        edited.promote()
    assert process.code_of() == {1: "r1", 2: "r1", 3: "r1"}
    edited.environments.rebase(edited.name, code_too=False)
    edited.run()
    edited.promote()
    assert process.code_of() == {1: "r2", 2: "r2", 3: "r2"}


def test_an_old_checkout_undoes_nothing_by_a_new_environment(process: Process) -> None:
    bob = environment(process.with_code("r2"), "bob")
    bob.run()
    bob.promote()
    # Made after that, with a change of ann's own, in a checkout that has not what bob has deployed.
    ann = environment(replace(process, codes={**process.codes, "shop.report": "p2"}))
    ann.run()
    with pytest.raises(VarveError, match=r"shop.revenue: the code here was in force until .* alice --earlier-code"):
        ann.promote()
    assert process.code_of() == {1: "r2", 2: "r2", 3: "r2"}
    merged = Environment(replace(process, codes={**process.codes, "shop.revenue": "r2", "shop.report": "p2"}), "alice")
    # What was computed with the old code is computed again, with what is made of it.
    assert merged.run() == [(name, day) for name in ("shop.revenue", "shop.report") for day in (1, 2, 3)]
    assert dict(merged.promote().codes) == {"shop.report": "p2"}


def test_what_was_computed_with_code_that_another_has_replaced_is_computed_with_the_new_one(process: Process) -> None:
    ann = environment(process.with_code("r2"))
    carl = environment(replace(process, codes={**process.codes, "shop.report": "p2"}), "carl")
    ann.run()
    carl.run()
    # What ann has changed carl has changed too, and more than what ann's own reports are made with.
    carl.promote()
    correct(replace(process, codes={**process.codes, "shop.report": "p2"}), 1, "z")
    with pytest.raises(
        VarveError, match=r"shop.report: .* computed with its code of before, .*, by ann in production on"
    ):
        ann.promote()
    merged = Environment(replace(process, codes={**process.codes, "shop.revenue": "r2", "shop.report": "p2"}), "alice")
    merged.environments.rebase("alice", code_too=True)
    merged.run()
    assert dict(merged.promote().codes) == {"shop.revenue": "r2"}
    assert process.connection.execute(
        """select array_agg(distinct b.code_version) from varve.current c
           join varve.batch b using (dataset, partition, batch_id) where c.dataset = 'shop.report'"""
    ).fetchone() == (["p2"],)


def test_what_is_deployed_before_the_first_run_is_no_part_of_the_environments_code(process: Process) -> None:
    ann, bob = environment(process.with_code("r2")), environment(process.with_code("r3"), "bob")
    ann.run()
    ann.promote()
    bob.run()
    with pytest.raises(VarveError, match="bob has changed its code, and so has ann in production"):
        bob.promote()


def test_code_that_the_environment_has_not_computed_with_is_not_deployed(process: Process) -> None:
    edited = environment(process.with_code("r2"))
    edited.run()
    later = Environment(process.with_code("r3"), "alice")
    with pytest.raises(VarveError, match=r"has not computed with the code that is here: shop\.revenue"):
        later.promote()


@pytest.mark.parametrize("seed", range(8))
def test_random_histories_end_as_a_clean_build_of_the_final_code(  # noqa: PLR0912 - one for each action
    process: Process, seed: int
) -> None:
    """Corrections, two environments, sweeps and promotions in any order: what is current always fits together."""
    chance = random.Random(seed)
    deployed = dict(process.codes)
    # A checkout that is behind has what was deployed at some time.
    checkouts = [dict(deployed)]
    living: dict[str, Environment] = {}
    edited: dict[str, set[str]] = {}
    for step in range(80):
        actions = ["correct", "create", "back", "edit", "edit", *["promote"] * 4, "run", "sweep", "drop"]
        action = chance.choice(actions if living else actions[:3])
        chosen = chance.choice(list(living.values())) if living else None
        if action == "correct":
            correct(replace(process, codes=dict(deployed)), chance.choice([1, 2, 3]), f"f{step}")
        elif action == "back":
            deployed |= taken_back(process, deployed, f"b{step}")
        elif chosen is None or (action == "create" and len(living) < 2):
            codes = chance.choice([deployed, deployed, *checkouts])
            living[f"e{step}"] = environment(replace(process, codes=dict(codes)), f"e{step}")
            edited[f"e{step}"] = set()
        elif action == "edit":
            dataset = chance.choice(["shop.revenue", "shop.report"])
            codes = {**chosen.process.codes, dataset: f"{dataset[5:8]}{step}"}
            living[chosen.name] = Environment(replace(process, codes=codes), chosen.name)
            edited[chosen.name].add(dataset)
        elif action == "run":
            chosen.run(*chance.choice([(), (1,), (2, 3)]))
        elif action == "promote":
            if chance.random() < 0.7:
                chosen.run()
            with suppress(VarveError):
                assert chosen.closure() == chosen.closure(LookingAtAll)
            try:
                promotion = chosen.promote(chance.choice([LeftBehind.REFUSE, LeftBehind.REFUSE, LeftBehind.LEAVE_OUT]))
            except NotClosed:
                chosen.environments.rebase(chosen.name, code_too=False)
                chosen.run()
            except VarveError as refused:
                if "--merged" in str(refused):
                    merged = {name: f"{code}+{step}" for name, code in deployed.items() if name != "shop.orders"}
                    chosen = living[chosen.name] = Environment(
                        replace(process, codes={**deployed, **merged}), chosen.name
                    )
                    chosen.environments.rebase(chosen.name, code_too=True)
                    edited[chosen.name] = set(merged)
                elif "Is this checkout behind?" in str(refused):
                    own = {name: chosen.process.codes[name] for name in edited[chosen.name]}
                    chosen = living[chosen.name] = Environment(replace(process, codes={**deployed, **own}), chosen.name)
                chosen.run()
            else:
                # Nothing that others have deployed is undone.
                assert promotion.codes.keys() <= edited[chosen.name]
                deployed |= promotion.codes
                checkouts.append(dict(deployed))
        elif action == "sweep":
            swept(process)
        elif action == "drop" and chance.random() < 0.3:
            living.pop(chosen.name).environments.drop(chosen.name)
        assert_consistent(replace(process, codes=dict(deployed)))
    # Whatever has happened, a change can be promoted now, and taken back.
    before = dict(deployed)
    last = environment(replace(process, codes={**deployed, "shop.revenue": "end"}), "end")
    last.run()
    deployed |= last.promote().codes
    assert deployed == {**before, "shop.revenue": "end"}
    assert_consistent(replace(process, codes=dict(deployed)))
    deployed |= taken_back(process, deployed, "back")
    assert deployed == before
    assert_consistent(replace(process, codes=dict(deployed)))
    final = replace(process, codes=dict(deployed))
    assert {name: deployment.code_version for name, deployment in final.deployments.current().items()} == deployed


@pytest.mark.parametrize("name", ["99999", "nobody", "²"])
def test_what_is_no_promotion_is_told_so(process: Process, name: str) -> None:
    with pytest.raises(VarveError, match=f"'{name}' is not a promotion that was made"):
        Promotions(process.connection).made(name)


def taken_back(process: Process, deployed: dict[str, str], name: str) -> dict[str, str]:
    """Take back the last promotion that deployed code, where nothing followed; returns what is deployed by that."""
    promotions = Promotions(process.connection)
    last = process.connection.execute(
        "select max(id) from varve.plan where applied_at is not null and contents -> 'codes' <> '{}'"
    ).fetchone()
    if last is None or last[0] is None:
        return {}
    try:
        before = promotions.code_before(promotions.made(str(last[0])))
    except VarveError:
        return {}
    codes = {dataset: deployment.code_version for dataset, deployment in before.items() if deployment is not None}
    undo = environment(replace(process, codes={**deployed, **codes}), name)
    undo.run()
    assert undo.promote(earlier_code=True).codes == codes
    undo.environments.drop(name)
    return codes


def assert_consistent(process: Process) -> None:
    """Every current batch is of the deployed code, kept, and made from what is current: one oracle in plain SQL."""
    wrong = process.connection.execute(
        """select c.dataset, c.partition, b.state, b.code_version, b.inputs
           from varve.current c join varve.batch b using (dataset, partition, batch_id)
           where b.state <> 'published' or b.code_version <> (%s::jsonb ->> c.dataset) or exists (
               select from jsonb_array_elements(b.inputs) i
               where not i ->> 0 like 'landing:%%' and not exists (
                   select from varve.current x
                   where x.dataset = i ->> 0 and x.partition = i ->> 1 and x.batch_id::text = i ->> 2))""",
        (psycopg.types.json.Jsonb(process.codes),),
    ).fetchall()
    assert wrong == []
    lost = process.connection.execute(
        """select * from varve.environment_current c left join varve.batch b using (dataset, partition, batch_id)
           where b.state is null or b.state not in ('published', 'retired')"""
    ).fetchall()
    assert lost == []
