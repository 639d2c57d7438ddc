"""Messages of a run that loses PostgreSQL: they say what the server knows of its batches, and never guess."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest

from tests.support.project import PROJECT
from tests.support.sales import sales_dataset
from varve.catalog.catalog import Catalog
from varve.dagster.driver import RUN_CONFIG, failure_reason
from varve.dagster.runs import failures as explain
from varve.model.batch import StagedBatch
from varve.model.dataset import StoreKind
from varve.model.errors import AlreadyBuilding, VarveError
from varve.model.partitions.key import PartitionKey
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
