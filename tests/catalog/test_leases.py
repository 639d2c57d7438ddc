"""Leases on a real server: who lives, who counts as dead and since when, and what the dead may not do any more.

Instants are moved in the rows, by the server: no test waits for a term to pass.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.catalog.test_history import current, publish
from tests.support.sales import PARIS, ZURICH
from varve.catalog.catalog import Catalog
from varve.catalog.living.killed_builds import KilledBuilds
from varve.catalog.living.leases import Leases
from varve.catalog.planning.facts import living
from varve.catalog.schema import VERSION, state_of
from varve.cdc.captures import opened
from varve.cli.captures.cdc import find
from varve.dagster.leases.heartbeat import Heartbeat
from varve.model.errors import AlreadyBuilding, LeaseLost
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varve.model.dataset import Dataset
    from varve.services.settings import Settings

TERM = 30.0
BUILDER, ROOT = Path(__file__).with_name("frozen_build.py"), Path(__file__).resolve().parents[2]


@pytest.fixture
def leases(catalog: Catalog) -> Leases:
    return Leases(catalog.connection)


@pytest.fixture
def run_id() -> str:
    return f"run-{uuid.uuid4()}"


def pass_by(leases: Leases, run_id: str, seconds: float) -> None:
    """So much of the server's time, for one lease."""
    leases.connection.execute(
        "update varve.lease set taken_at = taken_at - %(by)s * interval '1 s', "
        "renewed_at = renewed_at - %(by)s * interval '1 s', expires_at = expires_at - %(by)s * interval '1 s', "
        "missed_at = missed_at - %(by)s * interval '1 s' where run_id = %(run)s",
        {"by": seconds, "run": run_id},
    )


def wait_until(condition: Callable[[], object], *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_a_run_that_gives_no_sign_of_life_for_a_term_counts_as_dead_at_the_second_look(
    leases: Leases, run_id: str
) -> None:
    assert leases.take(run_id, "process 1 on elsewhere", TERM)
    pass_by(leases, run_id, TERM - 1)
    assert leases.dead_runs([run_id]) == set()
    pass_by(leases, run_id, 2)
    assert leases.dead_runs([run_id]) == set()
    pass_by(leases, run_id, TERM / 3 + 1)
    assert leases.dead_runs([run_id]) == {run_id}
    assert not leases.take(run_id, "process 1 on elsewhere", TERM)
    assert leases.dead_runs([run_id]) == {run_id}


def test_runs_that_live_are_not_taken_for_dead_because_the_server_was_away(leases: Leases, run_id: str) -> None:
    leases.take(run_id, "process 1 on elsewhere", TERM)
    # An hour in which nobody could renew and nobody could look; then somebody looks before the run has renewed.
    pass_by(leases, run_id, 3_600)
    assert leases.dead_runs([run_id]) == set()
    assert leases.take(run_id, "process 1 on elsewhere", TERM)
    pass_by(leases, run_id, TERM / 2)
    assert leases.dead_runs([run_id]) == set()
    lease = leases.of(run_id)
    assert lease is not None
    assert lease.lost_at is None


def test_a_process_that_never_came_up_counts_as_dead_and_may_still_come_late(leases: Leases, run_id: str) -> None:
    leases.keep([run_id], "launched by process 1 on elsewhere", TERM)
    pass_by(leases, run_id, 2 * TERM - 1)
    leases.dead_runs([run_id])
    pass_by(leases, run_id, TERM / 3 + 2)
    assert leases.dead_runs([run_id]) == set()
    pass_by(leases, run_id, TERM / 3 + 2)
    assert leases.dead_runs([run_id]) == {run_id}
    assert leases.take(run_id, "process 2 on elsewhere", TERM)
    assert leases.dead_runs([run_id]) == set()


def test_a_run_that_dagster_was_told_to_have_ended_publishes_nothing(
    catalog: Catalog, leases: Leases, sales: Dataset, run_id: str
) -> None:
    leases.take(run_id, "process 1 on elsewhere", TERM)
    build = catalog.begin(sales, [PARIS], run_id=run_id, code_version="")
    leases.end(run_id, "somebody ended it in the UI")
    with pytest.raises(LeaseLost, match=r"somebody ended it in the UI.*Nothing was published"):
        catalog.publish(build)
    assert living(catalog.connection).get(sales.name) is None
    assert not leases.take(run_id, "process 1 on elsewhere", TERM)


def test_a_dead_run_that_keeps_its_session_is_free_for_others_and_cannot_publish(
    settings: Settings, catalog: Catalog, leases: Leases, sales: Dataset, run_id: str
) -> None:
    with connect(settings, application="the frozen one") as session:
        frozen = Catalog(session)
        leases.take(run_id, "process 1 on elsewhere", TERM)
        build = frozen.begin(sales, [PARIS], run_id=run_id, code_version="")
        assert living(catalog.connection)[sales.name] == {PARIS.path: run_id}
        with pytest.raises(AlreadyBuilding, match="process 1 on elsewhere, last sign of life"):
            catalog.begin(sales, [PARIS], run_id="another", code_version="")
        pass_by(leases, run_id, TERM + 1)
        leases.dead_runs([])
        pass_by(leases, run_id, TERM / 3 + 1)
        new = publish(catalog, sales, PARIS)
        with pytest.raises(psycopg.OperationalError):
            frozen.publish(build)
    assert current(catalog, sales) == {PARIS.path: new}


def test_a_run_that_is_publishing_is_not_taken_for_dead_until_it_is_done(
    settings: Settings, catalog: Catalog, leases: Leases, sales: Dataset, run_id: str
) -> None:
    """Its session cannot be found here, as where we may not end it; its lock on the lease is what counts."""
    leases.take(run_id, "process 1 on elsewhere", TERM)
    with connect(settings) as other, other.transaction():
        Leases(other).refuse_lost(run_id, str(sales))
        # A renewal does not wait for the publish.
        assert leases.take(run_id, "process 1 on elsewhere", TERM)
        pass_by(leases, run_id, TERM + 1)
        leases.dead_runs([])
        pass_by(leases, run_id, TERM / 3 + 1)
        assert leases.dead_runs([run_id]) == set()
    assert leases.dead_runs([run_id]) == {run_id}
    assert current(catalog, sales) == {}


def test_what_we_may_not_end_is_named(settings: Settings, catalog: Catalog, sales: Dataset, run_id: str) -> None:
    role = f"weak_{uuid.uuid4().hex[:8]}"
    owner = catalog.connection
    Leases(owner).take(run_id, "process 1 on elsewhere", TERM)
    with connect(settings) as strong, connect(settings) as weak:
        owner.execute(f"create role {role}".encode())
        try:
            owner.execute(f"grant usage on schema varve to {role}".encode())
            owner.execute(f"grant all on all tables in schema varve to {role}".encode())
            owner.execute(f"grant pg_read_all_stats to {role}".encode())
            Catalog(strong).begin(sales, [PARIS], run_id=run_id, code_version="")
            Leases(owner).end(run_id, "somebody ended it")
            weak.execute(f"set role {role}".encode())
            KilledBuilds(weak).fail()
            pid = strong.info.backend_pid
            with pytest.raises(AlreadyBuilding, match=rf"counts as dead.*pg_terminate_backend\({pid}\)"):
                Catalog(weak).begin(sales, [PARIS], run_id="another", code_version="")
            assert strong.execute("select 1").fetchone() == (1,)
            weak.execute("reset role")
        finally:
            owner.execute(f"drop owned by {role}".encode())
            owner.execute(f"drop role {role}".encode())


def test_a_capture_lets_go_of_its_table_when_its_run_counts_as_dead(
    settings: Settings, leases: Leases, run_id: str
) -> None:
    captured = find("fleet.planes")
    leases.take(run_id, "process 1 on elsewhere", TERM)
    with opened(captured, settings, run_id=run_id):
        with pytest.raises(AlreadyBuilding), opened(captured, settings):
            pass
        pass_by(leases, run_id, TERM + 1)
        leases.dead_runs([])
        pass_by(leases, run_id, TERM / 3 + 1)
        assert leases.dead_runs([run_id]) == {run_id}
        with opened(captured, settings) as again:
            assert again.captured == captured


@contextmanager
def beating(settings: Settings, run_id: str) -> Iterator[Heartbeat]:
    heartbeat = Heartbeat(settings, run_id)
    heartbeat.start()
    try:
        yield heartbeat
    finally:
        heartbeat.stop(give_back=True)


def test_a_heartbeat_renews_comes_back_after_a_lost_connection_and_gives_the_lease_back(
    settings: Settings, leases: Leases, run_id: str
) -> None:
    quick = settings.model_copy(update={"lease_seconds": 1.0})
    with beating(quick, run_id):
        first = leases.of(run_id)
        assert first is not None
        leases.connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s",
            [f"varve lease of run {run_id[:8]}"],
        )
        pass_by(leases, run_id, 3_600)
        wait_until(lambda: (now := leases.of(run_id)) is not None and now.renewed_at > first.renewed_at)
        assert leases.dead_runs([run_id]) == set()
    assert leases.of(run_id) is None


def test_a_run_that_computes_for_long_goes_on_saying_that_its_code_uses_the_catalog(
    settings: Settings, leases: Leases, run_id: str
) -> None:
    def in_use() -> bool:
        state = state_of(leases.connection)
        return state is not None and VERSION in state.in_use(VERSION + 1)

    with beating(settings.model_copy(update={"lease_seconds": 1.0}), run_id):
        wait_until(in_use)
        # As if it had been long ago: no connection is opened anew.
        leases.connection.execute("update varve.schema_version set used = '{}'")
        wait_until(in_use)


def test_a_run_that_was_frozen_beyond_its_lease_is_refused_by_name_when_it_goes_on(
    settings: Settings, catalog: Catalog, leases: Leases, sales: Dataset, run_id: str
) -> None:
    """A real process, stopped with its staged build and its heart, and continued when another run has published."""
    frozen = subprocess.Popen(
        [sys.executable, BUILDER, sales.name, run_id],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "VARVE_HOME": str(settings.home_dir), "PYTHONPATH": str(ROOT), "VARVE_LEASE_SECONDS": "1"},
    )  # fmt: skip
    try:
        assert frozen.stdin is not None
        assert frozen.stdout is not None
        assert frozen.stdout.readline() == "staged\n"
        frozen.send_signal(signal.SIGSTOP)
        wait_until(lambda: leases.dead_runs([run_id]))
        new = publish(catalog, sales, PARIS)
        frozen.send_signal(signal.SIGCONT)
        frozen.stdin.write("publish\n")
        frozen.stdin.close()
        output = frozen.stdout.read()
        assert frozen.wait(60) == 0, output
    finally:
        frozen.kill()
        frozen.wait()
        assert frozen.stdout is not None
        frozen.stdout.close()
    assert f"run {run_id} (process {frozen.pid} on" in output
    assert "has counted as dead since" in output
    assert "Nothing was published" in output
    assert current(catalog, sales) == {PARIS.path: new}
    assert publish(catalog, sales, PARIS, ZURICH) > new
