"""Tasks that Spark tries again, and tasks that it starts twice, load every row exactly once; forced, not hoped for."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.support.environment import clean_environment
from tests.support.project import ROOT
from varve.services.jvm.java import java_home
from varve.services.ports import free_port
from varve.services.postgres import warehouse_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings

SCRIPT = Path(__file__).with_name("retried_load.py")


def without_spark() -> dict[str, str]:
    """The environment without what PySpark leaves there, once it has a session on a server, for processes to come."""
    return clean_environment("SPARK_")


def loaded(how: str, master: str, folder: Path, settings: Settings) -> set[str]:
    """Run the load in a process of its own, and check its rows; the attempts that its tasks made."""
    folder.chmod(0o777)
    done = subprocess.run(
        [sys.executable, SCRIPT, how, folder],
        cwd=ROOT,
        env={
            **without_spark(),
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "VARVE_SPARK_MASTER": master,
            # A metastore of its own: the suite's Spark has the other.
            "VARVE_POSTGRES_URL": warehouse_url(settings),
            "VARVE_HOME": str(folder / "home"),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [[500, 500], [500, 500]]
    return {file.name for file in folder.iterdir() if "-" in file.name}


def test_tasks_that_die_after_their_commit_and_are_tried_again(settings: Settings, tmp_path: Path) -> None:
    assert loaded("retried", "local[2,4]", tmp_path, settings) == {"0-0", "0-1", "1-0", "1-1"}


@pytest.mark.slow
def test_a_task_that_is_started_twice_and_overtaken(settings: Settings, tmp_path: Path) -> None:
    with cluster(settings, tmp_path) as master:
        assert loaded("speculative", master, tmp_path, settings) == {"0-0", "0-1", "1-0"}


@contextmanager
def cluster(settings: Settings, folder: Path) -> Iterator[str]:
    """A standalone Spark with two workers; Spark speculates only on another host, so each has an address of its own."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(daemon(settings, folder, "master.Master", "--host", "127.0.0.1", "--port", str(port)))
        wait_for_port("127.0.0.1", port)
        for number in (2, 3):
            host = ("--host", f"127.0.0.{number}")
            stack.enter_context(daemon(settings, folder, "worker.Worker", *host, "--cores", "1", "-m", "1g", master))
        yield master


@contextmanager
def daemon(settings: Settings, folder: Path, name: str, *arguments: str) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    environment = {
        **without_spark(),
        "JAVA_HOME": str(java_home(settings.home_dir)),
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    with (folder / "daemons.log").open("ab") as log:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", "--webui-port", "0", *arguments],
            env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def wait_for_port(host: str, port: int, *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, "the master does not listen"
            time.sleep(0.1)
        else:
            return
