"""Dagster without anything of ours in its dagster.yaml, and its own commands as the documents write them.

The dagster.yaml is the one of docs/deploy.md: the stock storage, and so the stock launcher.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from tests.documents.pages import PAGES, blocks, code_in_lines
from tests.e2e.project import COMMAND_SECONDS, ROOT, Project, flights, service, wait_until
from tests.e2e.test_documented_commands import PROJECT_FILES
from varve.catalog.living.leases import Leases
from varve.services.addresses import dagster_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.catalog.living.leases import Lease

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

(DEPLOYED,) = [block for block in blocks("console") if (block.page, block.heading) == ("docs/deploy.md", "Deploy")][:1]
(STOCK,) = [block for block in blocks("yaml") if block.page == "docs/deploy.md"]
# What the page sets for Dagster; the servers' addresses are those of the test.
EXPORTS = [line for line in DEPLOYED.commands if line.startswith("export DAGSTER_")]
SERVICES = [part.strip() for line in DEPLOYED.commands if line.startswith("dagster-") for part in line.split("&")]
LEASE_SECONDS = 10
DAY = dt.date(2013, 4, 1)


def documented() -> list[str]:
    """Every command of Dagster's own that a page writes within a line."""
    commands = {
        code for page in PAGES for code in code_in_lines(page) if re.match(r"dagster (sensor|schedule|instance) ", code)
    }
    return sorted(commands)


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    with Project.of_its_own("stock") as found:
        yield found.with_databases("stock")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, in which the commands are typed."""
    copied = tmp_path_factory.mktemp("typed")
    for name in PROJECT_FILES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copied / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copied)
    return copied


def environment(project: Project) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{project.environment['PATH']}"
    return {**project.environment, "PATH": path}


def typed(project: Project, folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """A command after what the page exports."""
    return subprocess.run(
        ["bash", "-c", "\n".join([*EXPORTS, command])], cwd=folder, env=environment(project), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMMAND_SECONDS, check=False,
    )  # fmt: skip


def test_the_pages_name_the_commands_that_are_typed_here() -> None:
    assert EXPORTS
    assert [words.split()[0] for words in SERVICES] == ["dagster-webserver", "dagster-daemon"]
    assert {command.split()[1] for command in documented()} == {"instance", "schedule", "sensor"}


@pytest.mark.parametrize("command", documented())
def test_a_command_of_the_pages_runs_with_what_the_page_exports(project: Project, folder: Path, command: str) -> None:
    done = typed(project, folder, command)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("command", SERVICES)
def test_a_service_of_the_page_comes_up_with_what_it_exports(project: Project, folder: Path, command: str) -> None:
    log = folder / f"{command.split(maxsplit=1)[0]}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", "\n".join([*EXPORTS, command])], cwd=folder, env=environment(project),
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        up = "Serving dagster-webserver on" if "webserver" in command else "Instance is configured with"
        wait_until(
            lambda: up in log.read_text(encoding="utf-8") or process.poll() is not None,
            seconds=200, what=f"{command} is up", log=log,
        )  # fmt: skip
        assert process.poll() is None, log.read_text(encoding="utf-8")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


class TestStockStorage:
    """`storage: postgres` and the default launcher, under the real daemon."""

    def test_a_run_gets_its_lease_and_a_killed_one_fails_and_is_run_again(
        self, project: Project, tmp_path: Path
    ) -> None:
        (tmp_path / "dagster.yaml").write_text(STOCK.text, encoding="utf-8")
        (variable,) = re.findall(r"env: (\w+)", STOCK.text)
        storage = dagster_url(project.settings.dagster_postgres_url or "")
        stock = project.having(lease_seconds=LEASE_SECONDS, backoff_seconds=1)
        stock = Project({**stock.environment, "DAGSTER_HOME": str(tmp_path), variable: storage})
        # The run that is killed must not be the one that starts Spark.
        up = stock.varve("up")
        assert up.code == 0, up.output
        stock.send_flights(DAY)
        for sensor in ("arrivals", "downstream"):
            started = stock.run("-m", "dagster", "sensor", "start", sensor, "-w", "workspace.yaml")
            assert started.code == 0, started.output
        log = tmp_path / "daemon.log"
        with service(stock, log, "dagster-daemon", "run", "-w", "workspace.yaml"):
            wait_until(lambda: taken(stock) != [], seconds=300, what="a run has its lease", log=log)
            (lease,) = taken(stock)
            pid = re.match(r"process (\d+) on ", lease.holder)
            assert pid is not None, lease.holder
            os.kill(int(pid[1]), signal.SIGKILL)
            killed = time.monotonic()
            wait_until(
                lambda: status(stock, lease.run_id) is DagsterRunStatus.FAILURE, seconds=120, what="it failed", log=log
            )
            assert time.monotonic() - killed < 60 + 3 * LEASE_SECONDS
            wait_until(
                lambda: f"day={DAY}" in stock.current("flights.departures"),
                seconds=400, what="another run has published the day", log=log,
            )  # fmt: skip
        batch = stock.current("flights.departures")[f"day={DAY}"]
        assert batch.rows == len(flights(DAY))
        assert batch.run_id != lease.run_id


def taken(project: Project) -> list[Lease]:
    """The leases that processes of runs have."""
    with project.catalog() as catalog:
        leases = Leases(catalog.connection)
        runs = catalog.connection.execute("select run_id from varve.lease where taken and lost_at is null").fetchall()
        return [lease for (run_id,) in runs if (lease := leases.of(run_id)) is not None]


def status(project: Project, run_id: str) -> DagsterRunStatus:
    with project.here(), pytest.MonkeyPatch.context() as patch:
        for name in ("DAGSTER_HOME", *re.findall(r"env: (\w+)", STOCK.text)):
            patch.setenv(name, project.environment[name])
        with DagsterInstance.from_config(project.environment["DAGSTER_HOME"]) as instance:
            (run,) = instance.get_runs(RunsFilter([run_id]))
            return run.status
