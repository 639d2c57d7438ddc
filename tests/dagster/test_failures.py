"""Messages of a run that loses PostgreSQL: they say what the server knows of its batches, and never guess."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest

from tests.support.project import PROJECT
from tests.support.sales import sales_dataset
from varve.catalog.catalog import Catalog
from varve.dagster.driver import RUN_CONFIG, failure_reason
from varve.dagster.internal.steps import only_step
from varve.dagster.partitions.definitions import dataset_partitions_def
from varve.dagster.runs import failures as explain
from varve.dagster.runs.builds.builds import Builds
from varve.dagster.runs.failures import StepFailure, step_failures
from varve.dagster.runs.spark import SparkResource
from varve.model.batch import StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import AlreadyBuilding, VarveError
from varve.model.partitions.dimension import DynamicDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import Graph
from varve.planning.requested import PARTITION_TAG, RANGE_END_TAG, RANGE_START_TAG, asked_partitions
from varve.services.postgres import connect
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings

PARIS, ZURICH = (PartitionKey.of(day=dt.date(2013, 1, 5), store=store) for store in ("Paris", "Zürich"))


@pytest.fixture
def staged(settings: Settings, catalog: Catalog) -> Iterator[OpenBuild]:
    """A staged build over a connection of its own, ready to be published."""
    assert catalog is not None  # its tables are there
    with connect(settings, application="varve test of losses") as connection:
        own = Catalog(connection)
        build = own.begin(sales_dataset(StoreKind.LAKE), (PARIS, ZURICH), run_id="run", code_version="")
        staged_batches = [StagedBatch(key, f"/lake/{key.path}", rows=1, size=1, files=1) for key in build.partitions]
        own.staged(build, staged_batches)
        yield OpenBuild(build, own, staged=staged_batches)


def cut(opened: OpenBuild, catalog: Catalog) -> None:
    """End the build's session, as a server that goes away does, and let the build notice it."""
    session = (opened.catalog.connection.info.backend_pid,)
    catalog.connection.execute("select pg_terminate_backend(%s, 5000)", session)
    with pytest.raises(psycopg.OperationalError):
        opened.catalog.connection.execute("select 1")


def message_of(opened: OpenBuild, catalog: Catalog, *, published: bool) -> str:
    with pytest.raises(VarveError) as caught, explain.explained(opened, PROJECT.settings):  # noqa: PT012 - as a run does it
        if published:
            opened.catalog.publish(opened.build)
        cut(opened, catalog)
        opened.catalog.connection.execute("select 1")
    return str(caught.value)


def test_a_run_that_is_cut_off_right_after_its_commit_does_not_say_that_nothing_was_published(
    staged: OpenBuild, catalog: Catalog
) -> None:
    message = message_of(staged, catalog, published=True)
    assert "The batch had become current by then" in message
    assert "Nothing was published" not in message
    assert set(catalog.current(staged.build.dataset.name)) == {PARIS.path, ZURICH.path}


def test_one_that_is_cut_off_before_it_says_so_and_can_be_run_again_at_once(
    staged: OpenBuild, catalog: Catalog
) -> None:
    message = message_of(staged, catalog, published=False)
    assert "Nothing was published" in message
    assert catalog.current(staged.build.dataset.name) == {}
    again = catalog.begin(staged.build.dataset, staged.build.partitions, run_id="again", code_version="")
    catalog.release(again)


def test_where_the_server_does_not_answer_it_says_that_it_cannot_know(
    staged: OpenBuild, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_POSTGRES_URL", "postgresql://127.0.0.1:1/varve")
    monkeypatch.setattr(explain, "_ASK_SECONDS", 0.0)
    message = message_of(staged, catalog, published=True)
    assert f"`varve history {staged.build.dataset}`" in message
    assert "Nothing was published" not in message


def test_a_session_that_still_holds_its_locks_may_still_commit(staged: OpenBuild, catalog: Catalog) -> None:
    """A cancelled statement rolls back, and the run knows that without asking the server."""
    with (
        pytest.raises(VarveError, match="Nothing was published") as caught,
        explain.explained(staged, PROJECT.settings),
    ):
        staged.catalog.connection.execute("set statement_timeout = 1; select pg_sleep(1)")
    assert "canceling statement" in str(caught.value)
    assert catalog.in_flight(staged.build.dataset.name) == {PARIS.path, ZURICH.path}


def failed_run(tags: dict[str, str], *, selects: bool = True) -> tuple[Builds, dg.DagsterRun]:
    """A process of a run of the sales, and the run."""
    sales = sales_dataset(StoreKind.LAKE)
    key = dg.AssetKey(sales.name.split("."))
    selection = frozenset({key}) if selects else None
    run = dg.DagsterRun("job", f"run-{uuid.uuid4()}", asset_selection=selection, tags=tags)
    return Builds(Graph({sales.name: sales}, {sales.name: ()}, {}), SparkResource(), PROJECT.settings), run


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


def failures_of(catalog: Catalog, run: dg.DagsterRun) -> list[str]:
    statement = "select failure from varve.batch where run_id = %s and state = 'failed' and not outage"
    return [reason for (reason,) in catalog.connection.execute(statement, (run.run_id,))]


def test_a_failure_that_another_process_of_the_run_has_noted_is_not_noted_again(
    catalog: Catalog, instance: dg.DagsterInstance
) -> None:
    builds, run = failed_run({PARTITION_TAG: "2013-01-05|Paris"})
    sales = builds.graph.in_order()[0]
    (failed,) = asked_partitions(sales, run.tags)
    build = catalog.begin(sales, [failed], run_id=run.run_id, code_version="")
    catalog.fail(build, "no such table")
    catalog.release(build)
    builds.note_failures(run, {"__".join(sales.name.split(".")): StepFailure("no such table")}, instance)
    assert failures_of(catalog, run) == ["no such table"]


@pytest.mark.parametrize("selects", [True, False], ids=["names its assets", "of a whole job"])
def test_a_failure_of_a_step_that_had_not_begun_a_build_is_noted_once(
    catalog: Catalog, instance: dg.DagsterInstance, *, selects: bool
) -> None:
    builds, run = failed_run({PARTITION_TAG: "2013-01-05|Paris"}, selects=selects)
    for _ in range(2):
        builds.note_failures(
            run, {"__".join(builds.graph.in_order()[0].name.split(".")): StepFailure("no such column")}, instance
        )
    assert failures_of(catalog, run) == ["no such column"]


def test_a_failure_of_a_run_that_was_asked_for_no_partition_of_its_dataset_ends_without_an_error(
    catalog: Catalog, instance: dg.DagsterInstance
) -> None:
    builds, run = failed_run({PARTITION_TAG: "yesterday"})
    builds.note_failures(
        run, {"__".join(builds.graph.in_order()[0].name.split(".")): StepFailure("no such partition")}, instance
    )
    assert failures_of(catalog, run) == []


def test_a_failure_of_a_range_of_a_set_is_noted_of_each_of_its_keys(
    catalog: Catalog, instance: dg.DagsterInstance
) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    rates = Dataset(
        f"{name}.rates", Partitioning((DynamicDimension("currency", f"{name}_currencies"),)),
        Schema((Column("rate", ColumnType.DOUBLE),)), StoreKind.LAKE, "One row per rate.",
    )  # fmt: skip
    keys = [f"C{place}" for place in range(5)]
    definition = dataset_partitions_def(rates)
    assert isinstance(definition, dg.DynamicPartitionsDefinition)
    assert definition.name is not None
    instance.add_dynamic_partitions(definition.name, keys)
    tags = {RANGE_START_TAG: "C1", RANGE_END_TAG: "C4"}
    run = dg.DagsterRun("job", f"run-{uuid.uuid4()}", tags=tags)
    builds = Builds(Graph({rates.name: rates}, {rates.name: ()}, {}), SparkResource(), PROJECT.settings)
    builds.note_failures(run, {f"{name}__rates": StepFailure("no such host")}, instance)
    statement = "select partition from varve.batch where run_id = %s and state = 'failed' order by 1"
    noted = [path for (path,) in catalog.connection.execute(statement, (run.run_id,))]
    assert noted == [f"currency=C{place}" for place in range(1, 5)]


def test_a_process_knows_whether_it_computes_one_step_of_its_run_or_several() -> None:
    steps: list[str | None] = []

    @dg.resource
    def noting(context: dg.InitResourceContext) -> None:
        steps.append(only_step(context))

    @dg.op(required_resource_keys={"noting"})
    def first() -> None: ...

    @dg.op(required_resource_keys={"noting"})
    def second() -> None: ...

    @dg.job(resource_defs={"noting": noting})
    def both() -> None:
        first()
        second()

    both.execute_in_process()
    both.execute_in_process(op_selection=["second"])
    assert steps == [None, "second"]


def test_a_step_that_could_not_reach_a_service_before_it_began_is_noted_as_that(
    catalog: Catalog, instance: dg.DagsterInstance
) -> None:
    builds, run = failed_run({PARTITION_TAG: "2013-01-05|Paris"})
    step = "__".join(builds.graph.in_order()[0].name.split("."))
    builds.note_failures(run, {step: StepFailure("no such host", outage=True)}, instance)
    statement = "select failure, outage from varve.batch where run_id = %s"
    assert catalog.connection.execute(statement, (run.run_id,)).fetchall() == [("no such host", True)]
    assert failures_of(catalog, run) == []


def test_a_run_that_failed_is_told_by_its_cause_and_not_by_its_step() -> None:
    @dg.op
    def refused() -> None:
        raise AlreadyBuilding("shop.sales: another run is building day=2026-09-07. Wait for it.")

    @dg.job
    def one_step() -> None:
        refused()

    result = one_step.execute_in_process(raise_on_error=False, run_config=RUN_CONFIG)
    assert failure_reason(result).endswith("shop.sales: another run is building day=2026-09-07. Wait for it.")
    assert "executing op" not in failure_reason(result)


def test_a_run_that_was_cancelled_says_so_and_not_the_name_of_a_class(
    catalog: Catalog, instance: dg.DagsterInstance, staged: OpenBuild
) -> None:
    @dg.op
    def cancelled() -> None:
        raise dg.DagsterExecutionInterruptedError

    @dg.job
    def one_step() -> None:
        cancelled()

    with pytest.raises(dg.DagsterExecutionInterruptedError):
        one_step.execute_in_process(instance=instance, run_id="7e3a6c1e-6d0f-4c57-9a53-2b1d1f0f0a11")
    failures = step_failures(instance, "7e3a6c1e-6d0f-4c57-9a53-2b1d1f0f0a11")
    assert failures["cancelled"].reason.startswith("the run was interrupted: somebody has cancelled it")
    builds, _ = failed_run({})
    # Where it publishes, the error is at hand, without a message.
    builds.abandon(staged, dg.DagsterExecutionInterruptedError(), discard=False)
    statement = "select distinct failure from varve.batch where dataset = %s and batch_id = %s"
    of_build = (staged.build.dataset.name, staged.build.batch_id.millis)
    assert catalog.connection.execute(statement, of_build).fetchall() == [(failures["cancelled"].reason,)]


def test_a_server_that_was_lost_is_told_in_one_whole_sentence(staged: OpenBuild, settings: Settings) -> None:
    """gRPC says it over many lines, of which the first names a class and stops in mid-sentence."""
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    says = (
        "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n"
        '\tdetails = "failed to connect to all addresses; last error: UNKNOWN: Connection refused"\n'
        '\tdebug_error_string = "x"\n>'
    )
    with pytest.raises(VarveError) as caught, explain.explained(staged, settings):
        raise SparkConnectGrpcException(says)
    assert str(caught.value).startswith(
        f"{staged.build}: Spark was lost: failed to connect to all addresses; last error: UNKNOWN: Connection refused "
        "(UNAVAILABLE). Nothing was published"
    )
