"""The services of deploy/compose as processes of this machine: their own commands, environments and health checks.

No container is made. Each image becomes a folder with what its COPY lines take; a service gets a loopback address of
its own, which stands wherever its name does, and keeps its port. PostgreSQL and S3, whose images are others', are this
environment's PostgreSQL, with passwords, and moto.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.deploy.executor_python import executor_python
from tests.deploy.images import DEPLOY, Image, Service, in_order, services
from tests.support.project import ROOT
from varve.services.java import java_home
from varve.services.ports import free_port
from varve.services.postgres_server import binaries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

START_SECONDS = 300
PASSWORDS = ("POSTGRES_PASSWORD", "VARVE_OWNER_PASSWORD", "DAGSTER_PASSWORD")
SPARK_HOME = Path(pyspark.__file__).parent
# What Ivy fetches for the image; the 700 MB stay in its own cache.
IVY = re.compile(r"\$IVY -dependency (\S+ \S+) \"?\$\{(\w+)\}")


@dataclass
class Stack:
    """The running services.

    Attributes:
        folder: everything that they write.
        metastore_port: Hive's metastore listens on all addresses of the machine, so it gets a port that is free.
    """

    folder: Path
    services: Mapping[str, Service]
    addresses: Mapping[str, str]
    metastore_port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Stack:
        """The services of the compose file, with passwords; nothing is started."""
        given = {name: f"secret{number}" for number, name in enumerate(PASSWORDS)}
        found = services({**given, "S3_USER": "key", "S3_PASSWORD": "secretkey", "WORKER_CORES": "2"})
        # A block of loopback addresses for each process of the suite.
        third = os.getpid() % 250 + 1
        return cls(folder, found, {name: f"127.77.{third}.{place}" for place, name in enumerate(found, start=2)})

    def start(self) -> None:
        """Start all services, each when those that it depends on are as it wants them."""
        self._lay_images()
        for service in in_order(self.services):
            if service.name == "postgres":
                self._start_postgres(service)
            elif service.image is None:
                self._start_s3()
            elif service.values.get("restart") == "no":
                done = self.run(service.name, *service.command)
                assert done.returncode == 0, f"{service.name}: {done.stdout}"
            else:
                self.running[service.name] = self._begun(service)
            self._wait_until_well(service)

    def run(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in the environment of a service, as `docker compose exec` runs it."""
        service = self.services[name]
        return subprocess.run(
            self._words(service, command), cwd=self._folder(service),
            env=self.environment(service), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=START_SECONDS, check=False,
        )  # fmt: skip

    def stop(self) -> None:
        """End what was started, with what it has started; the last one first."""
        for process in reversed(self.running.values()):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in reversed(self.running.values()):
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def environment(self, service: Service) -> dict[str, str]:
        """The variables of a service: its image's, then its own; of this process only where programs are."""
        image = {} if service.image is None else service.image.final.environment
        texts = {name: self._local(service, value) for name, value in {**image, **service.environment}.items()}
        path = texts.get("PATH", "").replace("$PATH", os.environ["PATH"]) or os.environ["PATH"]
        # Java asks for the machine's own name, of which there is one here.
        return {"LANG": "C.UTF-8", **texts, "PATH": path, "SPARK_LOCAL_IP": self.addresses[service.name]}

    def address(self, text: str) -> str:
        """A text with the addresses of services in place of their names."""
        for name, address in self.addresses.items():
            text = re.sub(
                rf"(?<=@){name}(?=[:/])|(?<=//){name}(?=:\d+|/|$)|(?<=\(\(['\"]){name}(?=['\"])", address, text
            )
            text = re.sub(rf"(?<=host=){name}$", address, text)
        return re.sub(r"\b9083\b", str(self.metastore_port), text)

    def log(self, name: str) -> Path:
        """What a service has written."""
        return self.folder / f"{name}.log"

    def _words(self, service: Service, command: Sequence[str]) -> list[str]:
        words, before = [], ""
        for word in command:
            is_host = before in {"--host", "-h"} and word in self.addresses
            words.append(self.addresses[word] if is_host else self._local(service, word))
            before = word
        program = shutil.which(words[0], path=self.environment(service)["PATH"])
        assert program is not None, f"{service.name}: there is no {words[0]}"
        return [program, *words[1:]]

    def _local(self, service: Service, text: str) -> str:
        """A text with addresses and folders of this machine in place of those in the container."""
        local = self.address(text).replace("0.0.0.0", self.addresses[service.name])  # noqa: S104 - it is replaced
        return re.sub(r"/(opt|srv)/[\w.-]+", lambda match: str(self._inside(service, match[0])), local)

    def _inside(self, service: Service, path: str) -> Path:
        assert service.image is not None
        return _root(self.folder, service.image) / path.lstrip("/")

    def _folder(self, service: Service) -> Path:
        assert service.image is not None
        return self._inside(service, service.image.final.folder)

    def _begun(self, service: Service) -> subprocess.Popen[bytes]:
        with self.log(service.name).open("wb") as log:
            return subprocess.Popen(
                self._words(service, service.command), cwd=self._folder(service),
                env=self.environment(service), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def _wait_until_well(self, service: Service) -> None:
        if not service.health or service.name not in self.running:
            return
        deadline, said = time.monotonic() + START_SECONDS, ""
        while time.monotonic() < deadline and self.running[service.name].poll() is None:
            if service.name == "s3":
                if _answers(self.addresses["s3"], 9000):
                    return
            else:
                done = self._health(service)
                if done.returncode == 0:
                    return
                said = done.stdout[-500:]
            time.sleep(0.25)
        log = self.log(service.name).read_text(encoding="utf-8", errors="replace")
        pytest.fail(f"{service.name} is not well: {said}\n{log[-4_000:]}")

    def _health(self, service: Service) -> subprocess.CompletedProcess[str]:
        if service.name != "postgres":
            return self.run(service.name, *service.health)
        words = [str(binaries() / service.health[0]), *service.health[1:]]
        words[words.index("--host") + 1] = self.addresses["postgres"]
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def _lay_images(self) -> None:
        jars, python = self.folder / "jars", executor_python(self.folder / "python").parent.parent
        built = {service.image.file: service.image for service in self.services.values() if service.image}
        others = {
            "/opt/varve": Path(sys.prefix),
            "/opt/python": python,
            "/opt/spark-jars": jars,
            "/opt/java/openjdk": java_home(self.folder),
        }
        for image in built.values():
            root = _root(self.folder, image)
            for copied in image.final.copied:
                if copied.stage is not None:
                    (link := root / copied.target.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(others[copied.target])
                    continue
                for source in copied.sources:
                    _copy(ROOT / source, root / image.final.folder.lstrip("/"), root, copied.target)
            if any("/opt/spark" in command for command in image.final.commands):
                (root / "opt/spark").symlink_to(SPARK_HOME)
                _fetch_jars(image, jars)
            for path in re.findall(r"/srv/[\w/]+", " ".join(image.final.commands)):
                (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
            for workspace in root.rglob("workspace.yaml"):
                text = workspace.read_text(encoding="utf-8")
                workspace.write_text(text.replace("host: code", f"host: {self.addresses['code']}"), encoding="utf-8")

    def _start_postgres(self, service: Service) -> None:
        data, password, user = self.folder / "data", self.folder / "password", _postgres_user()
        data.mkdir()
        password.write_text(service.environment["POSTGRES_PASSWORD"], encoding="utf-8")
        for path in (data, password):
            if user is not None:
                shutil.chown(path, user, user)
        (data / "run").mkdir()
        made = [
            binaries() / "initdb",
            "-D",
            data / "db",
            "-U",
            "postgres",
            "--auth=scram-sha-256",
            f"--pwfile={password}",
        ]
        if user is not None:
            shutil.chown(data / "run", user, user)
        subprocess.run(made, user=user, cwd="/", check=True, capture_output=True)
        words = [
            str(binaries() / service.command[0]), "-D", str(data / "db"), *service.command[1:],
            "-c", f"listen_addresses={self.addresses['postgres']}", "-c", f"unix_socket_directories={data / 'run'}",
        ]  # fmt: skip
        with self.log("postgres").open("wb") as log:
            self.running["postgres"] = subprocess.Popen(
                words, user=user, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self._wait_until_well(service)
        # As the image runs them, once, before anybody else comes.
        for script in sorted((DEPLOY / "compose" / "postgres").glob("*.sh")):
            given = {**os.environ, **service.environment, "PATH": f"{binaries()}:{os.environ['PATH']}"}
            login = {"PGHOST": self.addresses["postgres"], "PGPASSWORD": service.environment["POSTGRES_PASSWORD"]}
            subprocess.run(["sh", script], env={**given, **login}, check=True, capture_output=True)

    def _start_s3(self) -> None:
        words = [Path(sys.executable).parent / "moto_server", "--host", self.addresses["s3"], "--port", "9000"]
        with self.log("s3").open("wb") as log:
            self.running["s3"] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )


def _root(folder: Path, image: Image) -> Path:
    return folder / image.file.stem


def _copy(source: Path, folder: Path, root: Path, target: str) -> None:
    """One source of a COPY line, into a folder where the target ends with a slash, under its name otherwise."""
    to = (root / target.lstrip("/")) if target.startswith("/") else folder / target
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        return
    if target.endswith("/"):
        to.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, to)


def _fetch_jars(image: Image, folder: Path) -> None:
    """What the image fetches by the Ivy that comes with Spark, at the versions of its build arguments."""
    folder.mkdir()
    text = image.file.read_text(encoding="utf-8")
    (ivy,) = (SPARK_HOME / "jars").glob("ivy-*.jar")
    for package, argument in IVY.findall(text):
        (version,) = re.findall(rf"^ARG {argument}=(\S+)", text, re.MULTILINE)
        subprocess.run(
            [java_home(folder) / "bin" / "java", "-jar", ivy, "-confs", "default", "-types", "jar", "bundle",
             "-dependency", *package.split(), version, "-retrieve", f"{folder}/[artifact]-[revision].[ext]"],
            check=True, capture_output=True, timeout=600,
        )  # fmt: skip


def _postgres_user() -> str | None:
    """PostgreSQL refuses to run as root; its wheel has made a user."""
    return "pgserver" if os.geteuid() == 0 else None


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
