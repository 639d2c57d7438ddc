"""Which code is deployed, what a process with other code may do, and what becomes of partitions of other code."""

from __future__ import annotations

import datetime as dt
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pendulum
import psycopg
import pytest

from tests.support.sales import COLUMNS
from varve.catalog.catalog import Catalog
from varve.catalog.code.code_states import CodeStates
from varve.catalog.code.decision import Decision
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.plans import CodePlan, Plans
from varve.catalog.planning.facts import CatalogFacts
from varve.model.batch import BatchId, Input, StagedBatch
from varve.model.broken_dataset import BrokenDataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import CodeNotDeployed, VarveError
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import OnCodeChange, Policy
from varve.model.reads import Reads
from varve.planning.changes.changes import ColumnChange, ColumnChangeKind
from varve.planning.changes.code_changes import CodeChangeKind
from varve.planning.graph import Graph
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import Limits, Planner, RunPlan, reconcile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varve.model.build import Build

DAY = TimeDimension.of("day", "@daily", "2026-11-01", "2026-11-04", timezone="Europe/Paris")
NOW = pendulum.datetime(2026, 11, 22)
DEPLOYED = {"shop.orders": "o1", "shop.revenue": "r1", "shop.report": "p1"}
CODES = """
    select c.partition, b.code_version from varve.current c join varve.batch b using (dataset, partition, batch_id)
    where c.dataset = 'shop.revenue' order by 1
"""
DAYS = [PartitionKey.of(day=dt.date(2026, 11, number)) for number in (1, 2, 3)]
ORDERS = Dataset("shop.orders", Partitioning((DAY,)), COLUMNS, StoreKind.LAKE, "One order.", landing=True)
REVENUE = Dataset("shop.revenue", Partitioning((DAY,)), COLUMNS, StoreKind.LAKE, "One day.")
REPORT = Dataset("shop.report", Partitioning((DAY,)), COLUMNS, StoreKind.WAREHOUSE, "One day.", owners=("team:shop",))


@dataclass
class Process:
    """A process that plans and runs with its own code of each dataset, over a connection of its own."""

    connection: psycopg.Connection
    codes: dict[str, str] = field(
        default_factory=lambda: {"shop.orders": "o1", "shop.revenue": "r1", "shop.report": "p1"}
    )
    revenue: Dataset = REVENUE

    @property
    def graph(self) -> Graph:
        datasets = {"shop.orders": ORDERS, "shop.revenue": self.revenue, "shop.report": REPORT}
        reads = {"shop.orders": (), "shop.revenue": (Reads(ORDERS),), "shop.report": (Reads(self.revenue),)}
        return Graph(
            datasets, reads, self.codes, sources={name: f"text of {code}" for name, code in self.codes.items()}
        )

    @property
    def deployments(self) -> Deployments:
        return Deployments(self.connection)

    def with_code(self, code: str, policy: Policy | None = None) -> Process:
        """The process after its query of revenue was edited."""
        revenue = replace(self.revenue, policy=policy or self.revenue.policy)
        return replace(self, codes={**self.codes, "shop.revenue": code}, revenue=revenue)

    def plans(self) -> Plans:
        return Plans(self.connection, self.graph)

    def plan(self) -> CodePlan:
        return self.plans().kept(NOW, by="ann")

    def apply(self, kind: OnCodeChange, *, forward_from: str = "", only: tuple[str, ...] = ()) -> None:
        number = self.plan().number
        assert number is not None
        decision = Decision(kind, forward_from)
        self.plans().apply(number, decision, only, NOW, by="ann")

    def plan_of_runs(self, now: Callable[[], dt.datetime] = lambda: NOW, *, deploy: bool = True) -> RunPlan:
        """What a sensor of this process plans; without `deploy` what a command does, which only looks."""
        codes = CodeStates(self.deployments.connection).of(self.graph, deploy=deploy)
        return reconcile(self.graph, CatalogFacts(self.connection), now=now(), codes=codes)

    def states(
        self, name: str = "shop.revenue", *, now: Callable[[], dt.datetime] = lambda: NOW, deploy: bool = True
    ) -> dict[int, State]:
        """The state of each day of a dataset, by the day of the month, as a sensor of this process has it."""
        plan = self.plan_of_runs(now, deploy=deploy)
        return {int(path[-2:]): judgement.state for path, judgement in sorted(plan.judgements[name].items())}

    def begin(self, name: str, *keys: PartitionKey) -> Build:
        """Begin a build as a run does: its code must be deployed."""
        dataset, code = self.graph.datasets[name], self.codes[name]
        self.deployments.admit(dataset, code, f"text of {code}", [key.path for key in keys])
        return Catalog(self.connection).begin(dataset, keys, run_id="run", code_version=code)

    def finish(self, build: Build) -> None:
        """Stage and publish what was begun, made from what is current."""
        catalog = Catalog(self.connection)
        for key in build.partitions:
            if build.dataset.landing:
                build.reads(
                    key,
                    Input(f"landing:{build.dataset.name}", key.path, catalog.arrivals(build.dataset.name)[key.path]),
                )
            for edge in self.graph.edges[build.dataset.name]:
                for path, batch in catalog.current(edge.upstream.name, [key]).items():
                    build.reads(key, Input(edge.upstream.name, path, str(batch.batch_id)))
        catalog.staged(build, [StagedBatch(key, "/nowhere", 1, 1, 1) for key in build.partitions])
        try:
            catalog.publish(build)
        finally:
            catalog.release(build)

    def run(self, name: str, *keys: PartitionKey) -> None:
        self.finish(self.begin(name, *keys))

    def fail(self, name: str, key: PartitionKey) -> None:
        """A run of this process that fails as soon as it has begun."""
        build = self.begin(name, key)
        Catalog(self.connection).fail(build, "no such column")
        Catalog(self.connection).release(build)

    def go_back(self, key: PartitionKey, batch: BatchId, *, of: str = "shop.revenue") -> None:
        """A person rolls a day of a dataset back."""
        catalog = Catalog(self.connection)
        build = catalog.lock_partitions(self.graph.datasets[of], [key], run_id="rollback")
        catalog.repoint(build, {key: batch}, reason="it was wrong")
        catalog.release(build)

    def arrive(self, key: PartitionKey, fingerprint: str) -> None:
        Catalog(self.connection).arrived("shop.orders", key, uri="/file", size=1, fingerprint=fingerprint)

    def code_of(self) -> dict[int, str]:
        """By day, which code has made what readers see of revenue."""
        return {int(path[-2:]): code for path, code in self.connection.execute(CODES)}


@pytest.fixture
def process(fresh_database: str) -> Iterator[Process]:
    """Three days of all three datasets, made by the code that is deployed."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        Catalog(connection).ensure_schema()
        process = Process(connection)
        for key in DAYS:
            process.arrive(key, "a")
        for name in process.codes:
            process.run(name, *DAYS)
        assert set(process.states("shop.report").values()) == {State.CURRENT}
        yield process


def test_an_unchanged_project_has_no_plan(process: Process) -> None:
    plan = process.plan()
    assert plan.changes == ()
    assert plan.number is None


def test_three_days_of_two_codes_cannot_come_to_be(process: Process) -> None:
    """The query was edited, a day of its input was sent again: the day is not computed with the new code alone."""
    edited = process.with_code("r2")
    process.arrive(DAYS[1], "b")
    process.run("shop.orders", DAYS[1])
    assert edited.states() == {1: State.CURRENT, 2: State.ON_HOLD, 3: State.CURRENT}
    with pytest.raises(
        CodeNotDeployed, match=r"shop.revenue: the code here \(r2\) is not .* deployed \(r1, .*`varve apply`"
    ):
        edited.begin("shop.revenue", DAYS[1])
    # The process with the deployed code goes on.
    assert process.states() == {1: State.CURRENT, 2: State.DUE, 3: State.CURRENT}
    process.run("shop.revenue", DAYS[1])
    assert process.code_of() == {1: "r1", 2: "r1", 3: "r1"}


def test_a_plan_names_what_changes_and_applies_once(process: Process) -> None:
    edited = process.with_code("r2")
    plan = edited.plan()
    (change,) = plan.changes
    assert (change.dataset, change.kind, change.deployed, change.version) == (
        "shop.revenue",
        CodeChangeKind.CHANGED,
        "r1",
        "r2",
    )
    assert list(change.partitions) == [key.path for key in DAYS]
    assert (change.of, dict(change.downstream), change.rows) == (3, {"shop.report": 3}, 3)
    assert change.source_diff()[3:] == ["-text of r1", "+text of r2"]
    assert edited.plan().number == plan.number
    edited.apply(OnCodeChange.REBUILD)
    assert plan.number is not None
    with pytest.raises(VarveError, match=f"plan {plan.number} was applied at .* by ann"):
        edited.plans().apply(plan.number, None, (), NOW, by="ann")
    with pytest.raises(VarveError, match="there is no plan 99; the newest is"):
        edited.plans().apply(99, None, (), NOW, by="ann")


def test_rebuild_computes_every_partition_again_and_the_old_process_stops(process: Process) -> None:
    edited = process.with_code("r2")
    edited.apply(OnCodeChange.REBUILD)
    assert edited.states() == {1: State.DUE, 2: State.DUE, 3: State.DUE}
    assert [change.kind for change in edited.plan().changes] == [CodeChangeKind.REBUILDING]
    assert edited.plan().number is None
    assert process.states() == {1: State.OUTDATED, 2: State.OUTDATED, 3: State.OUTDATED}
    with pytest.raises(CodeNotDeployed):
        process.begin("shop.revenue", DAYS[0])
    edited.run("shop.revenue", DAYS[0])
    assert edited.states() == {1: State.CURRENT, 2: State.DUE, 3: State.DUE}
    # Its readers follow by the ordinary rules.
    assert edited.states("shop.report")[1] is State.DUE
    edited.run("shop.revenue", *DAYS[1:])
    assert edited.plan().changes == ()
    assert edited.code_of() == {1: "r2", 2: "r2", 3: "r2"}


def test_hold_deploys_the_code_and_computes_nothing_until_it_is_decided(process: Process) -> None:
    edited = process.with_code("r2")
    edited.apply(OnCodeChange.HOLD)
    assert edited.states() == {1: State.OUTDATED, 2: State.OUTDATED, 3: State.OUTDATED}
    process.arrive(DAYS[0], "b")
    process.run("shop.orders", DAYS[0])
    assert edited.states() == {1: State.ON_HOLD, 2: State.OUTDATED, 3: State.OUTDATED}
    with pytest.raises(CodeNotDeployed, match=r"2 partitions .* were made by other code .* would mix the two"):
        edited.begin("shop.revenue", DAYS[0])
    assert [change.kind for change in edited.plan().changes] == [CodeChangeKind.OUTDATED]
    edited.apply(OnCodeChange.REBUILD)
    assert edited.states() == {1: State.DUE, 2: State.DUE, 3: State.DUE}


def test_on_hold_a_run_of_all_that_is_outdated_mixes_nothing(process: Process) -> None:
    edited = process.with_code("r2")
    edited.apply(OnCodeChange.HOLD)
    edited.run("shop.revenue", *DAYS)
    assert set(edited.states().values()) == {State.CURRENT}
    edited.run("shop.revenue", DAYS[0])


def test_forward_keeps_the_windows_before_the_date_and_says_so(process: Process) -> None:
    edited = process.with_code("r2")
    edited.apply(OnCodeChange.FORWARD, forward_from="2026-11-03")
    assert edited.states() == {1: State.CURRENT, 2: State.CURRENT, 3: State.DUE}
    edited.run("shop.revenue", DAYS[2])
    assert edited.plan().changes == ()
    # What is on the other side of the boundary is not computed with the new code unless a person asks for it.
    process.arrive(DAYS[0], "b")
    process.run("shop.orders", DAYS[0])
    assert edited.states() == {1: State.ON_HOLD, 2: State.CURRENT, 3: State.CURRENT}
    edited.run("shop.revenue", DAYS[0])
    assert edited.code_of() == {1: "r2", 2: "r1", 3: "r2"}
    # The next change is about all that is there, also about what stayed before.
    third = edited.with_code("r3")
    third.apply(OnCodeChange.FORWARD, forward_from="2026-11-02")
    assert third.states() == {1: State.CURRENT, 2: State.DUE, 3: State.DUE}


def test_a_batch_of_earlier_code_to_which_a_person_goes_back_stays_before_the_date(process: Process) -> None:
    first = {path: batch.batch_id for path, batch in Catalog(process.connection).current("shop.revenue").items()}
    process.run("shop.revenue", *DAYS)
    edited = process.with_code("r2")
    edited.apply(OnCodeChange.FORWARD, forward_from="2026-11-03")
    for key in DAYS[::2]:
        edited.go_back(key, first[key.path])
        process.arrive(key, "b")
        process.run("shop.orders", key)
    assert edited.states(now=pendulum.now) == {1: State.ON_HOLD, 2: State.CURRENT, 3: State.DUE}
    judgement = edited.plan_of_runs(pendulum.now).judgements["shop.revenue"][DAYS[0].path]
    assert "made by earlier code, which stays for windows before the boundary" in judgement.reason


def test_the_declaration_may_decide(process: Process) -> None:
    rebuilt = process.with_code("r2", Policy(on_code_change=OnCodeChange.REBUILD))
    assert rebuilt.plan().number is None
    assert rebuilt.states() == {1: State.DUE, 2: State.DUE, 3: State.DUE}
    rebuilt.run("shop.revenue", *DAYS)
    forward = rebuilt.with_code("r3", Policy(on_code_change=OnCodeChange.FORWARD, forward_from="2026-11-03"))
    assert forward.states() == {1: State.CURRENT, 2: State.CURRENT, 3: State.DUE}
    # Code that was replaced is that of a process which nobody has restarted: it does not come back by itself.
    assert rebuilt.states()[3] is State.OUTDATED
    with pytest.raises(CodeNotDeployed):
        rebuilt.begin("shop.revenue", DAYS[2])
    assert forward.deployments.current()["shop.revenue"].code_version == "r3"
    assert [each.code_version for each in forward.deployments.history("shop.revenue")] == ["r1", "r2", "r3"]


def test_a_declaration_that_was_replaced_and_comes_back_is_shown_and_a_person_decides(process: Process) -> None:
    """As one that has not been restarted since would have it."""
    rebuilt = process.with_code("r2", Policy(on_code_change=OnCodeChange.REBUILD))
    assert rebuilt.states() == {1: State.DUE, 2: State.DUE, 3: State.DUE}
    forward = rebuilt.with_code("r2", Policy(on_code_change=OnCodeChange.FORWARD, forward_from="2026-11-03"))
    assert forward.states() == {1: State.CURRENT, 2: State.CURRENT, 3: State.DUE}
    assert rebuilt.states() == {1: State.CURRENT, 2: State.CURRENT, 3: State.DUE}
    plan = rebuilt.plan()
    (change,) = plan.decisions
    assert (change.dataset, change.kind) == ("shop.revenue", CodeChangeKind.REDECLARED)
    assert len(change.partitions) == 3
    assert plan.number is not None
    assert forward.plan().number is None
    rebuilt.plans().apply(plan.number, None, (), NOW, by="ann")
    assert rebuilt.plan().number is None
    assert rebuilt.states() == {1: State.DUE, 2: State.DUE, 3: State.DUE}
    # What a person has decided, no process that says otherwise replaces.
    assert forward.states() == {1: State.DUE, 2: State.DUE, 3: State.DUE}


def test_back_to_earlier_code_is_a_plan_like_any_other(process: Process) -> None:
    edited = process.with_code("r2")
    edited.apply(OnCodeChange.REBUILD)
    edited.run("shop.revenue", DAYS[0])
    process.apply(OnCodeChange.REBUILD)
    assert process.states() == {1: State.DUE, 2: State.CURRENT, 3: State.CURRENT}


def test_a_dataset_without_partitions_takes_any_code(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        Catalog(connection).ensure_schema()
        process = Process(connection)
        assert process.states() == {}
        edited = process.with_code("r2")
        assert edited.plan().number is None
        edited.states()
        assert edited.deployments.current()["shop.revenue"].code_version == "r2"
        # The sensors of two processes do not deploy against each other for ever; a run decides.
        for _ in range(3):
            process.states()
            edited.states()
        assert [each.code_version for each in process.deployments.history("shop.revenue")] == ["r1", "r2"]
        process.begin("shop.revenue", DAYS[0])
        assert process.deployments.current()["shop.revenue"].code_version == "r1"


def test_a_plan_that_has_moved_is_refused(process: Process) -> None:
    edited = process.with_code("r2")
    number = edited.plan().number
    assert number is not None
    process.run("shop.revenue", DAYS[0])
    with pytest.raises(VarveError, match=f"plan {number} is not what would be done now: .* Nothing was changed"):
        edited.plans().apply(number, None, (), NOW, by="ann")
    again = edited.plan().number
    assert again != number
    other_edit = process.with_code("r3")
    with pytest.raises(VarveError, match="is not what would be done now"):
        other_edit.plans().apply(again or 0, None, (), NOW, by="ann")
    assert process.states() == {1: State.CURRENT, 2: State.CURRENT, 3: State.CURRENT}


def test_one_dataset_of_a_plan_may_be_applied_alone(process: Process) -> None:
    edited = replace(process.with_code("r2"), codes={**process.codes, "shop.revenue": "r2", "shop.report": "p2"})
    with pytest.raises(VarveError, match=r"decides nothing of shop.orders; it is about shop.revenue, shop.report"):
        edited.apply(OnCodeChange.REBUILD, only=("shop.orders",))
    edited.apply(OnCodeChange.REBUILD, only=("shop.report",))
    assert edited.deployments.current()["shop.report"].code_version == "p2"
    assert [change.dataset for change in edited.plan().decisions] == ["shop.revenue"]


def test_what_was_computed_with_replaced_code_is_not_published(process: Process, fresh_database: str) -> None:
    build = process.begin("shop.revenue", DAYS[0])
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        replace(process.with_code("r2"), connection=connection).apply(OnCodeChange.REBUILD)
    with pytest.raises(CodeNotDeployed, match=r"other code \(r2\) was deployed while this run computed with r1"):
        process.finish(build)
    assert process.code_of() == {1: "r1", 2: "r1", 3: "r1"}


def test_an_earlier_batch_is_not_reused_with_replaced_code(process: Process) -> None:
    """A run that finds its rows in an earlier batch points at that one: the same as a publish."""
    catalog = Catalog(process.connection)
    earlier = catalog.current("shop.revenue", [DAYS[0]])[DAYS[0].path].batch_id
    process.run("shop.revenue", DAYS[0])
    build = process.begin("shop.revenue", DAYS[0])
    process.with_code("r2").apply(OnCodeChange.REBUILD)
    with pytest.raises(CodeNotDeployed, match="was deployed while this run computed with r1"):
        catalog.repoint(build, {DAYS[0]: earlier})
    # A person may go back to it: the batch is outdated then, and is left alone.
    process.connection.execute("select pg_advisory_unlock_all()")
    back = catalog.lock_partitions(REVENUE, [DAYS[0]], run_id="a person")
    catalog.repoint(replace(back, holds=True), {DAYS[0]: earlier})
    assert process.with_code("r2").states()[1] is State.ON_HOLD


def test_what_is_published_while_new_code_is_deployed_counts_as_made_by_the_code_before(
    process: Process, fresh_database: str
) -> None:
    process.connection.execute("delete from varve.current where dataset = 'shop.revenue'")
    build = process.begin("shop.revenue", DAYS[0])
    catalog = Catalog(process.connection)
    for path, batch in catalog.current("shop.orders", [DAYS[0]]).items():
        build.reads(DAYS[0], Input("shop.orders", path, str(batch.batch_id)))
    catalog.staged(build, [StagedBatch(DAYS[0], "/nowhere", 1, 1, 1)])
    waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'deploying'"

    def deploy() -> None:
        with psycopg.connect(fresh_database, autocommit=True, application_name="deploying") as connection:
            replace(process.with_code("r2"), connection=connection).states()

    with ThreadPoolExecutor(1) as pool:
        with process.connection.transaction():
            catalog.publish(build)
            deployed = pool.submit(deploy)
            with psycopg.connect(fresh_database, autocommit=True) as other:
                deadline = time.monotonic() + 30
                while other.execute(waiting).fetchone() is None:
                    assert time.monotonic() < deadline, "the deployment did not wait for the publish"
                    other.execute("select pg_sleep(0.02)")
        deployed.result(timeout=30)
    assert process.deployments.current()["shop.revenue"].may_be_mixed
    assert process.with_code("r2").states() == {1: State.OUTDATED, 2: State.ON_HOLD, 3: State.ON_HOLD}


def test_what_becomes_of_a_batch_of_other_code_to_which_a_person_went_back_can_be_decided(process: Process) -> None:
    earlier = Catalog(process.connection).current("shop.revenue", [DAYS[0]])[DAYS[0].path].batch_id
    second = process.with_code("r2")
    second.apply(OnCodeChange.HOLD)
    second.run("shop.revenue", *DAYS)
    assert second.states() == dict.fromkeys((1, 2, 3), State.CURRENT)
    second.go_back(DAYS[0], earlier)
    assert second.states() == {1: State.OUTDATED, 2: State.CURRENT, 3: State.CURRENT}
    assert [(change.kind, [*change.partitions]) for change in second.plan().decisions] == [
        (CodeChangeKind.OUTDATED, [DAYS[0].path])
    ]
    second.apply(OnCodeChange.REBUILD)
    assert second.states(now=lambda: pendulum.now("UTC")) == {1: State.DUE, 2: State.CURRENT, 3: State.CURRENT}


def test_a_look_at_the_code_before_settles_nothing_of_what_is_deployed_meanwhile(
    process: Process, fresh_database: str
) -> None:
    second = process.with_code("r2")
    second.apply(OnCodeChange.HOLD)
    second.run("shop.revenue", *DAYS)
    waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'looking'"

    def look() -> None:
        with psycopg.connect(fresh_database, autocommit=True, application_name="looking") as connection:
            replace(second, connection=connection).states()

    with ThreadPoolExecutor(1) as pool:
        with process.connection.transaction():
            process.with_code("r3").apply(OnCodeChange.HOLD)
            looked = pool.submit(look)
            with psycopg.connect(fresh_database, autocommit=True) as other:
                deadline = time.monotonic() + 30
                while other.execute(waiting).fetchone() is None:
                    assert time.monotonic() < deadline, "the look did not wait for the deployment"
                    other.execute("select pg_sleep(0.02)")
        looked.result(timeout=30)
    assert process.deployments.current()["shop.revenue"].may_be_mixed
    assert [change.kind for change in process.with_code("r3").plan().decisions] == [CodeChangeKind.OUTDATED]


def test_four_that_deploy_at_once_leave_one_code(process: Process, fresh_database: str) -> None:
    """Each process has code of its own that needs nobody's decision; whoever comes second is refused or is equal."""
    policy = Policy(on_code_change=OnCodeChange.REBUILD)
    together = threading.Barrier(4)

    def deploy(code: str) -> str:
        with psycopg.connect(fresh_database, autocommit=True) as connection:
            own = replace(process.with_code(code, policy), connection=connection)
            together.wait(timeout=30)
            own.states()
            return own.deployments.current()["shop.revenue"].code_version

    with ThreadPoolExecutor(4) as pool:
        seen = set(pool.map(deploy, ["x", "x", "y", "y"]))
    history = [each.code_version for each in process.deployments.history("shop.revenue")]
    assert sorted(history) == sorted({"r1", *history}), "no code was deployed twice"
    assert process.deployments.current()["shop.revenue"].code_version == history[-1]
    assert seen <= {"x", "y"}


def test_a_removed_dataset_is_told_and_keeps_its_partitions(process: Process) -> None:
    graph = Graph(
        {"shop.orders": ORDERS, "shop.revenue": REVENUE}, {"shop.orders": (), "shop.revenue": (Reads(ORDERS),)},
        {"shop.orders": "o1", "shop.revenue": "r1"},
    )  # fmt: skip
    (change,) = Plans(process.connection, graph).look(NOW).changes
    assert (change.dataset, change.kind, change.of) == ("shop.report", CodeChangeKind.REMOVED, 3)


def test_a_dropped_column_names_the_readers_of_it_with_their_owners(process: Process) -> None:
    schema = replace(REVENUE.schema, columns=REVENUE.schema.columns[:-1])
    edited = replace(process.with_code("r2"), revenue=replace(REVENUE, schema=schema))
    (change,) = edited.plan().changes
    dropped = REVENUE.schema.columns[-1]
    assert change.columns == (ColumnChange(dropped.name, ColumnChangeKind.DROPPED, str(dropped.type), None),)
    assert [(reader.dataset, reader.owners) for reader in change.readers] == [("shop.report", ("team:shop",))]


def test_a_planner_that_goes_on_judges_as_a_new_one_after_a_deployment(process: Process) -> None:
    """It keeps judgements from tick to tick: a deployment changes them though no fact of a partition has changed."""
    edited = process.with_code("r2")
    planner = Planner(edited.graph, Limits())
    facts = CatalogFacts(process.connection)

    def due() -> list[int]:
        codes = CodeStates(edited.deployments.connection).of(edited.graph, deploy=True)
        plan = planner.tick(facts, {}, now=NOW, codes=codes)
        return [len(run.partitions) for run in plan.runs if run.dataset.name == "shop.revenue"]

    assert due() == []
    edited.apply(OnCodeChange.REBUILD)
    assert due() == [3]
    assert due() == [3]
    process.deployments.deploy(REVENUE, "r1", "", Decision(OnCodeChange.REBUILD, plan=1), by="ann")
    assert due() == []


def test_forward_needs_windows_of_time(process: Process) -> None:
    with pytest.raises(VarveError, match="FORWARD exactly where forward_from"):
        Policy(on_code_change=OnCodeChange.FORWARD).check(has_time=True)
    with pytest.raises(VarveError, match="'soon' is no date"):
        Policy(on_code_change=OnCodeChange.FORWARD, forward_from="soon").check(has_time=True)
    with pytest.raises(VarveError, match="it has no time dimension"):
        Policy(on_code_change=OnCodeChange.FORWARD, forward_from="2026-11-01").check(has_time=False)


def test_windows_that_were_over_at_the_first_deployment_are_left_alone_whatever_is_deployed_later(
    fresh_database: str,
) -> None:
    """The fact behind CATCHUP OFF is in the catalog: no scheduler remembers when a dataset was declared."""
    begun = time.time()
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        Catalog(connection).ensure_schema()
        policy = Policy(catchup=False, on_code_change=OnCodeChange.REBUILD)
        process = Process(connection).with_code("r1", policy)
        for key in DAYS:
            process.arrive(key, "a")
            process.run("shop.orders", key)
        assert process.states() == {1: State.MISSING, 2: State.MISSING, 3: State.MISSING}
        first = CodeStates(process.deployments.connection).first_seen(process.graph)
        assert begun <= first["shop.revenue"] <= time.time()
        newer = process.with_code("r2", policy)
        newer.run("shop.revenue", DAYS[0])
        assert newer.states() == {1: State.CURRENT, 2: State.MISSING, 3: State.MISSING}
        assert CodeStates(newer.deployments.connection).first_seen(newer.graph) == first
        assert newer.with_code("r2", Policy()).states() == {1: State.CURRENT, 2: State.DUE, 3: State.DUE}


def in_an_hour() -> dt.datetime:
    return pendulum.now().add(hours=1)


REBUILDS = Policy(on_code_change=OnCodeChange.REBUILD)


def test_what_was_given_up_is_tried_again_when_mended_code_is_deployed(process: Process) -> None:
    bad = process.with_code("r2", REBUILDS)
    asked = set()
    for _ in range(3):
        asked |= {run.identity for run in bad.plan_of_runs(in_an_hour).runs}
        bad.fail("shop.revenue", DAYS[0])
    assert bad.states(now=pendulum.now) == {1: State.FAILED, 2: State.DUE, 3: State.DUE}
    mended = process.with_code("r3", REBUILDS)
    # `varve plan` promises what the sensors do then.
    assert mended.states(now=pendulum.now, deploy=False)[1] is State.DUE
    assert bad.states(now=pendulum.now)[1] is State.FAILED
    assert mended.states(now=pendulum.now) == {1: State.DUE, 2: State.DUE, 3: State.DUE}
    # Dagster starts no run for a key that it has seen.
    runs = [run for run in mended.plan_of_runs(pendulum.now).runs if run.dataset.name == "shop.revenue"]
    assert runs
    assert asked.isdisjoint(run.identity for run in runs)
    mended.fail("shop.revenue", DAYS[0])
    assert mended.states(now=pendulum.now)[1] is State.BACKING_OFF
    assert mended.states(now=in_an_hour)[1] is State.DUE


def test_the_same_code_that_is_deployed_again_gives_no_further_attempts(process: Process) -> None:
    """As a declaration with an earlier date does, or a promotion."""
    bad = process.with_code("r2", Policy(on_code_change=OnCodeChange.FORWARD, forward_from="2026-11-03"))
    assert bad.states(now=pendulum.now)[3] is State.DUE
    for _ in range(3):
        bad.fail("shop.revenue", DAYS[2])
    assert bad.states(now=pendulum.now) == {1: State.CURRENT, 2: State.CURRENT, 3: State.FAILED}
    earlier = bad.with_code("r2", Policy(on_code_change=OnCodeChange.FORWARD, forward_from="2026-11-02"))
    assert earlier.states(now=pendulum.now) == {1: State.CURRENT, 2: State.DUE, 3: State.FAILED}
    assert len(earlier.deployments.history("shop.revenue")) == 3
    # Code that comes back after other code is tried as other code is.
    other = process.with_code("r3")
    other.apply(OnCodeChange.REBUILD)
    assert other.states(now=pendulum.now)[3] is State.DUE
    process.with_code("r2").apply(OnCodeChange.REBUILD)
    assert bad.states(now=pendulum.now)[3] is State.DUE


def test_so_is_a_first_batch(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        Catalog(connection).ensure_schema()
        process = Process(connection)
        process.arrive(DAYS[0], "a")
        process.run("shop.orders", DAYS[0])
        for _ in range(3):
            process.fail("shop.revenue", DAYS[0])
        assert process.states(now=pendulum.now) == {1: State.FAILED}
        assert process.with_code("r2").states(now=pendulum.now) == {1: State.DUE}


def test_what_was_rolled_back_is_computed_again_by_code_that_is_deployed_afterwards(process: Process) -> None:
    first = {path: batch.batch_id for path, batch in Catalog(process.connection).current("shop.revenue").items()}
    second, third = process.with_code("r2"), process.with_code("r3")
    second.apply(OnCodeChange.REBUILD)
    second.run("shop.revenue", *DAYS)
    second.go_back(DAYS[0], first[DAYS[0].path])
    assert second.states(now=pendulum.now) == {1: State.ON_HOLD, 2: State.CURRENT, 3: State.CURRENT}
    third.apply(OnCodeChange.REBUILD)
    assert third.states(now=pendulum.now) == {1: State.DUE, 2: State.DUE, 3: State.DUE}
    # Not where the person did it because of that code.
    third.go_back(DAYS[1], first[DAYS[1].path])
    assert third.states(now=pendulum.now) == {1: State.DUE, 2: State.ON_HOLD, 3: State.DUE}


def test_a_broken_file_with_a_name_does_not_hide_that_another_dataset_was_removed(process: Process) -> None:
    graph = process.graph
    left = {name: dataset for name, dataset in graph.datasets.items() if name != "shop.report"}
    reads = {name: graph.reads[name] for name in left}
    for broken_name, kinds in (("shop.other", [CodeChangeKind.REMOVED]), ("", [])):
        broken = (BrokenDataset(broken_name, "other.sql", errors=("other.sql:1:1: unknown word",)),)
        without = Graph(left, reads, {name: graph.code_versions[name] for name in left}, broken)
        changes = Plans(process.connection, without).kept(NOW, by="ann").changes
        assert [change.kind for change in changes if change.dataset == "shop.report"] == kinds


def test_a_file_that_was_taken_back_is_not_taken_in_by_other_code_either(process: Process) -> None:
    first = {path: batch.batch_id for path, batch in Catalog(process.connection).current("shop.orders").items()}
    process.arrive(DAYS[0], "wrong")
    process.run("shop.orders", DAYS[0])
    process.go_back(DAYS[0], first[DAYS[0].path], of="shop.orders")
    # Of this day it was no file that was wrong: it was the code.
    second = replace(process, codes={**process.codes, "shop.orders": "o2"})
    second.apply(OnCodeChange.REBUILD)
    second.run("shop.orders", DAYS[1])
    second.go_back(DAYS[1], first[DAYS[1].path], of="shop.orders")
    third = replace(process, codes={**process.codes, "shop.orders": "o3"})
    third.apply(OnCodeChange.REBUILD)
    assert third.states("shop.orders", now=pendulum.now) == {1: State.ON_HOLD, 2: State.DUE, 3: State.DUE}
    judgement = third.plan_of_runs(pendulum.now).judgements["shop.orders"][DAYS[0].path]
    assert judgement.reason.endswith("but a person took its batch back; waits for another file")
    third.arrive(DAYS[0], "right")
    assert third.states("shop.orders", now=pendulum.now) == {1: State.DUE, 2: State.DUE, 3: State.DUE}
