"""The embedded Spark Connect server: shared while it lives, and started again when it does not."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.killing import kill_all
from tests.support.environment import clean_environment
from varve.model.errors import ServiceUnavailable
from varve.services import spark_server
from varve.services.settings import Settings
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.needs_seconds


@pytest.fixture
def own(settings: Settings) -> Iterator[Settings]:
    """Settings with a home of their own, whose server ends with the test."""
    folder = Path(tempfile.mkdtemp(prefix="varve-"))
    settings = Settings(home=folder, spark_driver_memory="1g", spark_master=None)
    yield settings
    SparkServer(settings).stop()
    shutil.rmtree(folder, ignore_errors=True)


# A process that lives on while the server ends and another one comes, as a code server does.
AGAIN = """
import os
import psutil
from pyspark.sql import functions as F
from varve.services.settings import Settings
from varve.services.spark import open_session
from varve.services.spark_server import SparkServer

settings = Settings()
server = SparkServer(settings)
print(open_session(settings).sql("SELECT 1").collect())
process = psutil.Process(server.pid())
process.kill()
process.wait(60)
# As where the environment of before is put back.
del os.environ["SPARK_CONNECT_MODE_ENABLED"]
session = open_session(settings)
assert open_session(settings) is session
print(session.range(1).select(F.lit(2)).collect())
"""


def test_a_process_whose_server_has_ended_opens_a_session_of_the_next_one(own: Settings) -> None:
    environment = {**clean_environment(), "VARVE_HOME": str(own.home_dir), "VARVE_SPARK_DRIVER_MEMORY": "1g"}
    command = [sys.executable, "-c", AGAIN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.splitlines() == ["[Row(1=1)]", "[Row(2=2)]"], done.stderr[-3000:]


# A session that the server has ended, as it does with those that nobody has used for long.
ENDED = """
from varve.services.settings import Settings
from varve.services.spark import open_session

settings = Settings()
session = open_session(settings)
print(session.conf.get("spark.connect.session.manager.defaultSessionTimeout"))
session.client.release_session()
print(open_session(settings).sql("SELECT 2").collect())
print(open_session(settings).sql("SELECT 3").collect())
"""


def test_a_session_that_the_server_has_ended_is_replaced(own: Settings) -> None:
    environment = {**clean_environment(), "VARVE_HOME": str(own.home_dir), "VARVE_SPARK_DRIVER_MEMORY": "1g"}
    command = [sys.executable, "-c", ENDED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.splitlines() == ["1d", "[Row(2=2)]", "[Row(3=3)]"], done.stderr[-3000:]


# What clusters that have come from an older Spark set for everybody.
HOSTILE = {
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.caseSensitive": "true",
}
SAID = """
import sys
from pathlib import Path

import pyarrow.parquet as pq

from varve.services.settings import Settings
from varve.services.spark import open_session

session, folder = open_session(Settings()), sys.argv[1]
session.sql("select date '0001-01-01' as day, cast('2013-01-05 10:00:00' as timestamp) as at").write.parquet(folder)
print(pq.read_table(folder)["day"].to_pylist(), pq.read_schema(next(Path(folder).glob("*.parquet"))).field("at").type)
print(session.read.parquet(folder).select("DAY").count())
Path(folder, "broken.parquet").write_bytes(b"PAR1 is no parquet PAR1")
for rows in (session.read.schema("day date").parquet(folder), session.sql("select cast('a' as int)")):
    try:
        print(rows.collect())
    except Exception as error:
        print("broken.parquet" in str(error) or error.getCondition())
"""


def test_what_a_server_sets_for_everybody_changes_no_rows_that_are_written_and_leaves_none_out(
    own: Settings, tmp_path: Path
) -> None:
    environment = {
        **clean_environment(), "VARVE_HOME": str(own.home_dir), "VARVE_SPARK_DRIVER_MEMORY": "1g",
        "VARVE_SPARK_CONF": json.dumps(HOSTILE),
    }  # fmt: skip
    command = [sys.executable, "-c", SAID, str(tmp_path / "rows")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    said = ["[datetime.date(1, 1, 1)] timestamp[us, tz=UTC]", "1", "True", "CAST_INVALID_INPUT"]
    assert done.stdout.splitlines() == said, done.stderr[-3000:]


# tests/cli/test_services.py has both in the suite, by `varve up`.
@pytest.mark.slow
def test_a_server_is_shared_while_it_lives_and_started_again_when_it_was_killed(own: Settings) -> None:
    server = SparkServer(own)
    assert server.remote() is None
    assert server.pid() is None
    assert not server.stop()
    first = server.ensure_up()
    pid = server.pid()
    assert pid is not None
    assert SparkServer(own).ensure_up() == first
    assert server.pid() == pid
    kill_all(pid)
    assert server.remote() is None
    server.ensure_up()
    assert server.pid() not in {None, pid}
    assert server.remote() is not None
    # Only its owner may read the token.
    assert server.discovery.stat().st_mode & 0o077 == 0
    assert server.stop()
    assert server.remote() is None


@pytest.mark.slow
def test_a_server_that_starts_removes_the_temporary_files_of_a_killed_one(own: Settings) -> None:
    server = SparkServer(own)
    server.ensure_up()
    first = set(temporary_files(server))
    # What Hive, Spark's blocks and Spark Connect make when a server starts.
    assert any(name.endswith("_resources") for name in first)
    assert any(name.startswith("blockmgr-") for name in first)
    pid = server.pid()
    assert pid is not None
    kill_all(pid)
    assert set(temporary_files(server)) == first
    server.ensure_up()
    assert temporary_files(server)
    assert not first & set(temporary_files(server))


def temporary_files(server: SparkServer) -> list[str]:
    return [file.name for file in (server.folder / "tmp").iterdir()]


def test_who_comes_after_a_killed_starter_uses_the_server_that_it_was_starting(own: Settings) -> None:
    server = SparkServer(own)
    code = "from varve.services.settings import Settings; from varve.services.spark_server import SparkServer\n"
    environment = clean_environment() | {"VARVE_HOME": str(own.home), "VARVE_SPARK_DRIVER_MEMORY": "1g"}
    first = subprocess.Popen([sys.executable, "-c", f"{code}SparkServer(Settings()).ensure_up()"], env=environment)
    # The JVM runs, and is not ready: the orphaned starter holds PySpark's lock.
    deadline = time.monotonic() + 60
    while not list(server.folder.glob("spark-*.pid")):
        assert time.monotonic() < deadline, "nothing was started"
        assert first.poll() is None
        time.sleep(0.05)
    first.kill()
    first.wait()
    assert server.remote() is None
    jvm = server.pid()
    began = time.monotonic()
    server.ensure_up()
    assert server.pid() == jvm
    assert time.monotonic() - began < 120


@pytest.mark.parametrize("seconds", [0.5, 4.0])
def test_a_server_that_is_not_ready_in_time_is_ended_whole(
    own: Settings, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(spark_server, "START_SECONDS", seconds)
    # A JVM that compiles nothing is far from ready by then on any machine; another one may be ready in 4 s.
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xint")
    with pytest.raises(ServiceUnavailable, match=r"not ready within .* seconds"):
        SparkServer(own).ensure_up()
    deadline = time.monotonic() + 20
    while left := [process.pid for process in psutil.process_iter() if str(own.home) in _words_of(process)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    assert SparkServer(own).pid() is None


def _words_of(process: psutil.Process) -> str:
    """The command line and the working folder of a process; nothing where it has ended."""
    try:
        return f"{process.cmdline()} {process.cwd()}" if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""


# In a process of its own: a session and its token are this whole process's, and other tests have theirs.
CLIENT = """
import sys
from varve.services.settings import Settings
from varve.services.outages import is_server_lost
from varve.services.spark import open_session

session = open_session(Settings())
rows, folder = int(sys.argv[1]), sys.argv[2]
try:
    session.sql("SHOW DATABASES").collect()
    session.range(rows).write.mode("error").parquet(folder)
    print(session.read.parquet(folder).count())
except Exception as error:
    print("lost" if is_server_lost(error) else error)
"""


def client(own: Settings, rows: int, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """A process that writes so many rows into a folder, and says how many it found, or how it failed."""
    given = {"VARVE_HOME": str(own.home), "VARVE_SPARK_DRIVER_MEMORY": "1g", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(rows), folder],
        env=clean_environment() | given,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_a_home_with_spaces_quotes_and_letters_beyond_ascii_has_a_spark_and_who_asks_it_notices_its_end(
    own: Settings,
) -> None:
    odd = own.model_copy(update={"home": own.home / "my häuse, it's 🎈"})
    rows = odd.home_dir / "rows"
    try:
        with client(odd, 3, rows, LC_ALL="C") as short:
            assert short.communicate(timeout=180)[0].strip() == "3"
        assert (odd.home_dir / "spark" / "metastore_db").is_dir()
        # Only its owner may read the token, which is where that of any home is, and so is the log.
        assert SparkServer(odd).discovery.stat().st_mode & 0o077 == 0
        assert list((odd.home_dir / "spark" / "logs").iterdir())
        with client(odd, 10**14, odd.home_dir / "many", LC_ALL="C") as endless:
            try:
                deadline = time.monotonic() + 120
                while not (odd.home_dir / "many" / "_temporary").exists():
                    assert endless.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
                # A query whose server is stopped fails as one whose server is lost.
                assert SparkServer(odd).stop()
                assert endless.communicate(timeout=120)[0].strip() == "lost"
            finally:
                endless.kill()
    finally:
        SparkServer(odd).stop()


def test_a_home_whose_other_path_is_somebody_elses_is_refused(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(own.home))
    server = SparkServer(own.model_copy(update={"home": own.home / "two words"}))
    name = hashlib.sha256(os.fsencode(server.folder)).hexdigest()[:12]
    (own.home / f"varve-{name}-spark").symlink_to("/somewhere/else")
    with pytest.raises(ServiceUnavailable, match=r"choose a VARVE_HOME without spaces"):
        server.ensure_up()
    assert server.pid() is None


def test_a_port_in_use_is_told_by_its_number_and_its_setting(own: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = SparkServer(own.model_copy(update={"spark_port": port}))
        with pytest.raises(ServiceUnavailable) as refused:
            server.ensure_up()
    assert f"port {port} (VARVE_SPARK_PORT) is in use by another process" in str(refused.value)
    assert "leave the setting out" in str(refused.value)
    assert server.pid() is None


def test_a_discovery_file_that_is_none_counts_as_no_server(own: Settings) -> None:
    server = SparkServer(own)
    server.folder.mkdir(parents=True)
    for text in ("", "{", "[]", '{"pid": 1}'):
        server.discovery.write_text(text, encoding="utf-8")
        assert server.pid() is None
        assert server.remote() is None
