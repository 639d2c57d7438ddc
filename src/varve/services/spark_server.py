"""The embedded Spark: one long-lived Spark Connect server that PySpark starts and every process of Varve shares.

PySpark's own `spark.local.connect.reuse` does the work (pyspark.sql.connect.local_server, which calls itself
experimental: it is used nowhere else). A warm server costs a run about 2 s where a JVM of its own costs 10 to 14.

Not here: sessions (spark.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from varve.model.errors import ServiceUnavailable
from varve.services.folders import writable
from varve.services.java import java_home
from varve.services.ports import free_port, refuse_taken_port

if TYPE_CHECKING:
    from varve.services.settings import Settings

START_SECONDS = 300


def static_conf(settings: Settings) -> dict[str, str]:
    """What a Spark that Varve starts is given once, at start: catalog, memory, loopback; the same in both modes."""
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
        # Data here is days and hours, not terabytes, unless a deployment says otherwise.
        "spark.sql.shuffle.partitions": "8",
        "spark.log.level": "WARN",
    }
    if settings.hive_metastore_uri:
        conf["spark.hadoop.hive.metastore.uris"] = settings.hive_metastore_uri
    else:
        derby = home / "spark" / "metastore_db"
        conf["spark.hadoop.javax.jdo.option.ConnectionURL"] = f"jdbc:derby:;databaseName={derby};create=true"
        # Derby writes its log into the working directory otherwise.
        conf["spark.driver.extraJavaOptions"] = _quoted(f"-Dderby.stream.error.file={home / 'spark' / 'derby.log'}")
    return {**conf, **settings.spark_conf}


def utf8_locale() -> str:
    """The locale of this process where it is one of UTF-8, else the one that every glibc has."""
    found = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    return found if re.search("utf-?8", found, re.IGNORECASE) else "C.UTF-8"


@dataclass(frozen=True)
class SparkServer:
    """The Spark Connect server of one home folder."""

    settings: Settings

    @property
    def folder(self) -> Path:
        """Its discovery file (which holds the token, mode 0600), pid file, logs and metastore."""
        return self.settings.home_dir / "spark"

    @property
    def discovery(self) -> Path:
        """Where PySpark records how to reach the server."""
        return self.folder / "connect.json"

    def pid(self) -> int | None:
        """The server's pid as recorded, whether it lives or not; while it is starting, as its script has it."""
        if (found := self._recorded()) is not None:
            return int(str(found["pid"]))
        for file in self.folder.glob("spark-*.pid"):
            with contextlib.suppress(OSError, ValueError):
                return int(file.read_text(encoding="utf-8"))
        return None

    def remote(self) -> tuple[str, str] | None:
        """The `sc://` URL and the token if the server lives and listens; no JVM and no PySpark are touched.

        The token is not part of the URL: PySpark would then speak TLS, which a loopback server does not. It goes into
        SPARK_CONNECT_AUTHENTICATE_TOKEN.
        """
        found = self._recorded()
        if found is None or not _alive(int(str(found["pid"]))):
            return None
        try:
            socket.create_connection(("127.0.0.1", int(str(found["port"]))), timeout=2).close()
        except OSError:
            return None
        return f"sc://localhost:{found['port']}", str(found["token"])

    def ensure_up(self) -> tuple[str, str]:
        """The server's URL and token, after starting it where it is not up; several processes may call it at once.

        Raises ServiceUnavailable with the reason and the place of the log.
        """
        if found := self.remote():
            return found
        writable(self.settings.home_dir)
        with FileLock(writable(self.folder, mode=0o700) / "start.lock"):
            if found := self.remote():
                return found
            if self.settings.spark_port is not None:
                refuse_taken_port(
                    self.settings.spark_port,
                    setting="VARVE_SPARK_PORT",
                    remedy="Choose another, or leave the setting out to take any free port.",
                )
            self._end_unreachable()
            self._start()
            if found := self.remote():
                return found
        raise ServiceUnavailable(f"the Spark server started but cannot be reached; see {self.folder / 'logs'}.")

    def stop(self) -> bool:
        """Stop the server if it runs; whether it did."""
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
            # In an ASCII locale Java cannot open a file whose name has other letters.
            "LC_ALL": utf8_locale(),
            # Python workers need what this environment has (pyarrow, ADBC); `python3` of the PATH may be any.
            "PYSPARK_PYTHON": sys.executable,
        }
        # A token or a Spark of the caller's environment is not this server's.
        for name in ("SPARK_CONNECT_AUTHENTICATE_TOKEN", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE"):
            environment.pop(name, None)
        conf = static_conf(self.settings)
        # Any free port, unless one is asked for: 15002 may be somebody else's next minute.
        conf["spark.local.connect.server.port"] = str(self.settings.spark_port or free_port())
        starter = subprocess.Popen(
            [sys.executable, "-m", "varve.services.spark_server"],
            env=environment,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # The server outlives its starter, and a Ctrl-C meant for the starter is not meant for it.
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

    def _plain_folder(self) -> Path:
        """Our folder by a path without a space: Spark's start script does not quote those of its log and its pid file.

        A home of another kind is reached through a link under the system's temporary folder, named after it.
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
            found = json.loads(self.discovery.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and {"pid", "port", "token"} <= set(found) else None

    def _end_unreachable(self) -> None:
        """A server of ours that lives but does not listen would keep the metastore locked."""
        pid = self.pid()
        if pid is not None and self._ours(pid):
            os.kill(pid, signal.SIGKILL)
        self.discovery.unlink(missing_ok=True)
        for file in self.folder.glob("spark-*.pid"):
            file.unlink(missing_ok=True)

    @staticmethod
    def _ours(pid: int) -> bool:
        from psutil import Error, Process

        try:
            return any("SparkConnectServer" in word for word in Process(pid).cmdline())
        except Error:
            return False


def _quoted(option: str) -> str:
    """An option as a word of `extraJavaOptions`, which Spark takes apart as a shell does."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _end_group(starter: subprocess.Popen[str]) -> None:
    """End the scripts and the JVM that it has begun: a server that came up later would belong to nobody."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(starter.pid, signal.SIGKILL)


def _alive(pid: int) -> bool:
    from psutil import STATUS_ZOMBIE, Error, Process

    try:
        # A killed JVM is a zombie whose sockets still take connections for a moment; nobody would answer.
        return bool(Process(pid).status() != STATUS_ZOMBIE)
    except Error:
        return False


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return re.sub(r"^[\w.]+Error: ", "", lines[-1]) if lines else "no output."


if __name__ == "__main__":
    from pyspark.sql.connect.local_server import ServerLauncher, reuse_or_start_local_connect_server

    # PySpark gives up after 120 s, within which a JVM has not come up on a machine that others kept busy.
    ServerLauncher._READY_TIMEOUT = START_SECONDS - 20
    reuse_or_start_local_connect_server("local[*]", json.load(sys.stdin))
