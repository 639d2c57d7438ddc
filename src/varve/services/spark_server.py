"""The embedded Spark: one long-lived Spark Connect server that PySpark starts and every process of Varve shares.

PySpark's own `spark.local.connect.reuse` does the work (pyspark.sql.connect.local_server, which calls itself
experimental; this is the only module that uses it). With a warm server a run is ready after about 2 s; with a JVM of
its own, after 10 to 14 s. Why a shared server: docs/decisions/0011.

Not here: sessions (spark.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from varve.model.errors import ServiceUnavailable
from varve.services.folders import writable
from varve.services.jvm.class_path import add_our_classes, is_replaced, of_our_classes
from varve.services.jvm.java import java_home
from varve.services.ports import free_port, refuse_taken_port

if TYPE_CHECKING:
    from varve.services.settings import Settings

START_SECONDS = 300
# The process id of who starts the server, in its folder.
_STARTER = "starter.pid"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def static_conf(settings: Settings) -> dict[str, str]:
    """The settings of a Spark that Varve starts: catalog, memory, loopback; the same in connect and classic mode."""
    home = settings.home_dir
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(home / "spark" / "warehouse"),
        "spark.driver.memory": settings.spark_driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.scheduler.mode": "FAIR",
        # Partition columns and timestamps mean the same to every reader of this server.
        "spark.sql.session.timeZone": "UTC",
        # Partitions here are days and hours, not terabytes; a deployment may set another number.
        "spark.sql.shuffle.partitions": "8",
        "spark.log.level": "WARN",
        # A run may compute for hours between two questions, and Spark ends a session that asks nothing for one hour.
        "spark.connect.session.manager.defaultSessionTimeout": "1d",
    }
    if settings.hive_metastore_uri:
        conf["spark.hadoop.hive.metastore.uris"] = settings.hive_metastore_uri
    else:
        derby = home / "spark" / "metastore_db"
        conf["spark.hadoop.javax.jdo.option.ConnectionURL"] = f"jdbc:derby:;databaseName={derby};create=true"
        # Otherwise Derby writes its log into the working directory.
        conf[_JAVA_OPTIONS] = _quoted(f"-Dderby.stream.error.file={home / 'spark' / 'derby.log'}")
    return {**conf, **settings.spark_conf}


def utf8_locale() -> str:
    """The locale of this process where it is one of UTF-8, else C.UTF-8, which every glibc has."""
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    return locale if re.search("utf-?8", locale, re.IGNORECASE) else "C.UTF-8"


@dataclass(frozen=True)
class SparkServer:
    """The Spark Connect server of one home folder."""

    settings: Settings

    @property
    def folder(self) -> Path:
        """The folder of its discovery file (which holds the token, mode 0600), pid file, logs and metastore."""
        return self.settings.home_dir / "spark"

    @property
    def discovery(self) -> Path:
        """Where PySpark records how to reach the server."""
        return self.folder / "connect.json"

    def pid(self) -> int | None:
        """The server's recorded process id, whether or not it lives; while the server starts, the one of its script."""
        if (record := self._recorded()) is not None:
            return int(str(record["pid"]))
        for file in self.folder.glob("spark-*.pid"):
            with contextlib.suppress(OSError, ValueError):
                return int(file.read_text(encoding="utf-8"))
        return None

    def remote(self) -> tuple[str, str] | None:
        """The `sc://` URL and the token if the server lives and listens; starts no JVM and imports no PySpark.

        To `localhost` PySpark sends a token without TLS, which a loopback server does not have.
        """
        record = self._recorded()
        if record is None or not _alive(int(str(record["pid"]))):
            return None
        try:
            socket.create_connection(("127.0.0.1", int(str(record["port"]))), timeout=2).close()
        except OSError:
            return None
        return f"sc://localhost:{record['port']}", str(record["token"])

    def ensure_up(self) -> tuple[str, str]:
        """Start the server where it is not up, and return its URL and token; several processes may call it at once.

        Raises ServiceUnavailable with the reason and the place of the log.
        """
        if address := self.remote():
            return address
        writable(self.settings.home_dir)
        with FileLock(writable(self.folder, mode=0o700) / "start.lock"):
            if address := self.remote():
                return address
            if self.settings.spark_port is not None:
                refuse_taken_port(
                    self.settings.spark_port,
                    setting="VARVE_SPARK_PORT",
                    remedy="Choose another, or leave the setting out to take any free port.",
                )
            self._wait_for_orphan()
            if address := self.remote():
                return address
            self._end_unreachable()
            self._start()
            if address := self.remote():
                return address
        raise ServiceUnavailable(f"the Spark server started but cannot be reached; see {self.folder / 'logs'}.")

    def stop(self) -> bool:
        """Stop the server if it runs. Returns whether it ran."""
        from psutil import NoSuchProcess, Process, TimeoutExpired

        pid = self.pid()
        if pid is None:
            return False
        with FileLock(self.folder / "start.lock"):
            was_up = self._ours(pid)
            if was_up:
                try:
                    process = Process(pid)
                    process.terminate()
                    try:
                        process.wait(20)
                    except TimeoutExpired:
                        process.kill()
                        process.wait(10)
                except NoSuchProcess:
                    pass
            for file in (self.discovery, *self.folder.glob("spark-*.pid")):
                file.unlink(missing_ok=True)
        return was_up

    def _start(self) -> None:
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home(self.settings.home_dir)),
            "SPARK_LOCAL_CONNECT_DISCOVERY": str(self._plain_folder() / self.discovery.name),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # In an ASCII locale, Java cannot open a file whose name has other letters.
            "LC_ALL": utf8_locale(),
            # Python workers need the packages of this environment (pyarrow, ADBC); another `python3` may not have them.
            "PYSPARK_PYTHON": sys.executable,
        }
        # A token or a Spark of the caller's environment belongs to another server.
        for name in ("SPARK_CONNECT_AUTHENTICATE_TOKEN", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE"):
            environment.pop(name, None)
        conf = static_conf(self.settings)
        # A server that is killed leaves its temporary files, some megabytes each time. The next one removes them.
        scratch = self.folder / "tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(exist_ok=True)
        conf = {"spark.local.dir": str(scratch), **conf}
        if _JAVA_OPTIONS not in self.settings.spark_conf:
            conf[_JAVA_OPTIONS] = f"{conf.get(_JAVA_OPTIONS, '')} {_quoted(f'-Djava.io.tmpdir={scratch}')}".strip()
        if not is_replaced(_spark_home() / "conf"):
            add_our_classes(environment)
            conf = of_our_classes(conf)
        # Any free port, unless the settings name one: 15002 may soon be somebody else's.
        conf["spark.local.connect.server.port"] = str(self.settings.spark_port or free_port())
        starter = subprocess.Popen(
            [sys.executable, "-m", "varve.services.spark_server"],
            env=environment,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # The server outlives its starter, and a Ctrl-C for the starter must not end it.
            start_new_session=True,
        )
        try:
            _, errors = starter.communicate(json.dumps(conf), timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            errors = f"it was not ready within {START_SECONDS} seconds."
            _end_group(starter)
            starter.communicate()
        if starter.returncode == 0:
            return
        _end_group(starter)
        self._end_unreachable()
        raise ServiceUnavailable(f"the Spark server did not start: {_last_line(errors)} See {self.folder / 'logs'}.")

    def _wait_for_orphan(self) -> None:
        """Wait while a starter whose parent was killed is at work: it holds PySpark's lock, and its server will do."""
        try:
            pid = int((self.folder / _STARTER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        deadline = time.monotonic() + START_SECONDS
        while _runs(pid, __name__) and self.remote() is None and time.monotonic() < deadline:
            time.sleep(0.2)

    def _plain_folder(self) -> Path:
        """A path to our folder without a space: Spark's start script does not quote the paths of its log and pid file.

        Where the folder's own path has a space, this is a link under the system's temporary folder, named after it.
        """
        if not re.search(r"\s", str(self.folder)):
            return self.folder
        name = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]
        link = Path(tempfile.gettempdir()) / f"varve-{name}-spark"
        if not link.is_symlink():
            link.symlink_to(self.folder)
        if link.readlink() != self.folder or link.lstat().st_uid != os.geteuid():
            raise ServiceUnavailable(
                f"{link} is to lead to {self.folder}, which Spark's start script cannot name for its spaces, and is "
                "somebody else's. Remove it, or choose a VARVE_HOME without spaces."
            )
        return link

    def _recorded(self) -> dict[str, object] | None:
        try:
            record = json.loads(self.discovery.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) and {"pid", "port", "token"} <= set(record) else None

    def _end_unreachable(self) -> None:
        """End a server of ours that lives but does not listen: it would keep the metastore locked."""
        pid = self.pid()
        if pid is not None and self._ours(pid):
            os.kill(pid, signal.SIGKILL)
        self.discovery.unlink(missing_ok=True)
        for file in self.folder.glob("spark-*.pid"):
            file.unlink(missing_ok=True)

    @staticmethod
    def _ours(pid: int) -> bool:
        return _runs(pid, "SparkConnectServer")


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def _quoted(option: str) -> str:
    """An option as a word of `extraJavaOptions`, which Spark splits as a shell does."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _end_group(starter: subprocess.Popen[str]) -> None:
    """End the scripts and the JVM that the starter has begun: nobody would stop a server that came up later."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(starter.pid, signal.SIGKILL)


def _runs(pid: int, program: str) -> bool:
    """Whether the process lives and has the program in its command line."""
    from psutil import Error, Process

    try:
        return any(program in word for word in Process(pid).cmdline())
    except Error:
        return False


def _alive(pid: int) -> bool:
    from psutil import STATUS_ZOMBIE, Error, Process

    try:
        # The sockets of a killed JVM (a zombie) still accept connections for a moment, and nobody answers.
        return bool(Process(pid).status() != STATUS_ZOMBIE)
    except Error:
        return False


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return re.sub(r"^[\w.]+Error: ", "", lines[-1]) if lines else "no output."


if __name__ == "__main__":
    from pyspark.sql.connect.local_server import ServerLauncher, reuse_or_start_local_connect_server

    Path(_STARTER).write_text(str(os.getpid()), encoding="utf-8")
    # PySpark gives up after 120 s. On a busy machine, a JVM took longer to start.
    ServerLauncher._READY_TIMEOUT = START_SECONDS - 20
    reuse_or_start_local_connect_server("local[*]", json.load(sys.stdin))
