"""`varve up | status | down | psql | ui` as a person uses them, in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from rich.console import Console

from tests.support.environment import clean_environment
from tests.support.prepared import run_prepared
from varve.cli.servers.ui import _end, _workspace
from varve.project import Project
from varve.services.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.needs_seconds

VARVE = str(Path(sys.executable).parent / "varve")


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """The environment of a process with an empty home; its services are stopped afterwards."""
    home = Path(tempfile.mkdtemp(prefix="varve-cli-"))
    home.chmod(0o755)
    environment = {**clean_environment(), "VARVE_HOME": str(home)}
    yield environment
    subprocess.run([VARVE, "down"], env=environment, check=True, capture_output=True)
    shutil.rmtree(home, ignore_errors=True)


def varve(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return run_prepared(VARVE, *words, cwd=Path.cwd(), env=environment, seconds=200)


def test_help_teaches_every_command() -> None:
    done = varve(dict(os.environ), "--help")
    assert done.returncode == 0
    for word in ("up", "down", "status", "ui", "psql", "land", "demo"):
        assert word in done.stdout
    own = done.stdout.partition("─ Commands ")[2].partition("─ Begin ")[0]
    names = [line.split()[1] for line in own.splitlines() if line.startswith("│ ") and line[2] != " "]
    assert names == ["land", "demo"]


def test_a_help_breaks_its_lines_where_the_terminal_ends() -> None:
    done = varve({**os.environ, "COLUMNS": "80"}, "diff", "--help")
    text = done.stdout.partition("With a key")[2].partition("Example")[0]
    assert min(len(line.strip()) for line in text.strip().splitlines()[:-1]) > 60
    assert "[OPTIONS] {DATASET} [COL=VALUE]..." in done.stdout


def test_status_starts_nothing(environment: dict[str, str]) -> None:
    status = json.loads(varve(environment, "status", "--json").stdout)
    assert (status["postgres"]["up"], status["spark"]["up"], status["datasets"]) == (False, False, [])


def test_up_twice_at_once_is_one_set_of_services(environment: dict[str, str]) -> None:
    both = [
        subprocess.Popen([VARVE, "up"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    first = json.loads(varve(environment, "status", "--json").stdout)
    assert first["postgres"]["up"]
    assert first["spark"]["up"]
    assert varve(environment, "up").returncode == 0
    assert json.loads(varve(environment, "status", "--json").stdout) == first


def test_a_service_that_died_is_noticed_and_started_again(environment: dict[str, str]) -> None:
    assert varve(environment, "up").returncode == 0
    before = json.loads(varve(environment, "status", "--json").stdout)
    for service in ("postgres", "spark"):
        os.kill(before[service]["pid"], signal.SIGKILL)
    down = json.loads(varve(environment, "status", "--json").stdout)
    assert (down["postgres"]["up"], down["spark"]["up"]) == (False, False)
    assert varve(environment, "up").returncode == 0
    after = json.loads(varve(environment, "status", "--json").stdout)
    assert after["postgres"]["up"]
    assert after["spark"]["up"]
    assert after["postgres"]["pid"] != before["postgres"]["pid"]


def test_psql_speaks_to_the_warehouse(environment: dict[str, str]) -> None:
    done = varve(environment, "psql", "-Atc", "select count(*) from varve.current")
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


def test_a_taken_port_is_a_clear_message(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = varve(environment, "ui", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "is in use by another process" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unreachable_server_is_a_clear_message(environment: dict[str, str]) -> None:
    done = varve({**environment, "VARVE_POSTGRES_URL": "postgresql://nobody@127.0.0.1:1/nowhere"}, "up")
    assert done.returncode == 1
    assert "PostgreSQL (VARVE_POSTGRES_URL) cannot be reached" in done.stderr.replace("\n", " ")


# `varve watch` is ended by the other signal in the suite (test_watch.py).
@pytest.mark.parametrize(
    "ending",
    [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGINT, signal.SIGKILL))],
)
def test_the_ui_is_served_until_it_is_ended_with_all_it_has_started(
    environment: dict[str, str], ending: signal.Signals, tmp_path: Path
) -> None:
    """From another folder than the project's. SIGKILL is that of its daemon, without which it is of no use."""
    port, console_port = free_port(), free_port()
    (project := tmp_path / "project").symlink_to(Path.cwd())
    with (printed := tmp_path / "printed").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [VARVE, "ui", "--port", str(port), "--console-port", str(console_port)], cwd=tmp_path,
            # A proxy, which is not asked for what this machine says.
            env={
                **environment, "VARVE_PROJECT": project.name, "VARVE_LANDING_ROOT": "here",
                "http_proxy": "http://127.0.0.1:1",
            },
            stdout=output, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
    children: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + 120
        while f"The Dagster UI is at http://127.0.0.1:{port}" not in printed.read_text(encoding="utf-8"):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert _serves(port)
        while not _refuses_strangers(console_port):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        children = psutil.Process(process.pid).children(recursive=True)
        # The web server, its code server, the daemon and the console: no address but loopback's.
        assert _addresses(children) == {"127.0.0.1"}
        while not (locations := _locations(port)):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert locations == {"varve": "RepositoryLocation"}
        of_landing = {child.environ().get("VARVE_LANDING_ROOT") for child in children if "dagster" in child.name()}
        assert of_landing == {str(tmp_path / "here")}
    finally:
        # The signal goes to one process alone; the first one has to end its children itself.
        by_words = {" ".join(child.cmdline()): child for child in children if child.is_running()}
        daemons = [child for words, child in by_words.items() if "dagster-daemon run" in words]
        (daemons[0] if ending is signal.SIGKILL else process).send_signal(ending)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == (1 if ending is signal.SIGKILL else 0)
    assert ("dagster-daemon (exit code -9) ended by itself" in said) == (ending is signal.SIGKILL)
    assert not _serves(port)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


def test_who_waits_for_the_processes_of_the_ui_to_end_is_told_so_and_need_not_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    children = [subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) for _ in range(2)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline()
        child.stdout.close()
    # As `varve ui` does: whoever starts the tests in the background has SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    impatient = threading.Timer(4, os.kill, (os.getpid(), signal.SIGINT))
    impatient.start()
    began = time.monotonic()
    try:
        _end(children, Console(width=200))
    finally:
        impatient.cancel()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 20
    assert [child.returncode for child in children] == [-signal.SIGKILL] * 2
    first, second = capsys.readouterr().out.splitlines()
    assert first == "Waiting for the console and the console to end, 30 s at most; Ctrl-C ends them at once."
    assert second == "They are ended at once."


def test_the_console_listens_when_it_says_where(environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [VARVE, "console", "--port", str(free_port())], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = next(line.split()[-1] for line in process.stdout if "The console is at" in line)
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(address, timeout=60) as page:
            assert page.status == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_down_stops_both_and_may_be_repeated(environment: dict[str, str]) -> None:
    assert varve(environment, "up").returncode == 0
    assert "Spark: stopped\nPostgreSQL: stopped" in varve(environment, "down").stdout
    assert "was not running" in varve(environment, "down").stdout


def _locations(port: int) -> dict[str, str]:
    """What the web server says of its code locations; empty while it loads them."""
    entry = "name loadStatus locationOrLoadError { __typename }"
    query = f"{{ workspaceOrError {{ ... on Workspace {{ locationEntries {{ {entry} }} }} }} }}"
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own address
        entries = json.load(answer)["data"]["workspaceOrError"]["locationEntries"]
    if any(entry["loadStatus"] != "LOADED" for entry in entries):
        return {}
    return {entry["name"]: entry["locationOrLoadError"]["__typename"] for entry in entries}


def _addresses(processes: list[psutil.Process]) -> set[str]:
    """The addresses on which the processes wait for connections."""
    return {
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


def _refuses_strangers(port: int) -> bool:
    """Whether the console answers there: it shows nothing without its token."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except urllib.error.HTTPError as error:
        return error.code == 403
    except OSError:
        return False
    raise AssertionError("the console shows its pages to whoever asks")


def _serves(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_project_without_a_workspace_is_served_by_its_definitions(tmp_path: Path) -> None:
    (tmp_path / "varve.toml").write_text('assets = "shop"\ndefinitions = "shop.definitions"\n')
    (tmp_path / "shop").mkdir()
    project = Project.find(tmp_path)
    assert _workspace(project) == ["-m", "shop.definitions", "-d", str(tmp_path)]
    (tmp_path / "workspace.yaml").write_text("load_from: []\n")
    assert _workspace(project) == ["-w", str(tmp_path / "workspace.yaml")]
