"""The services of deploy/compose, each on a host of its own (tests/support/hosts.py), by their own words.

No container is made. A host has, at the very paths of the image, what the COPY lines take, and the hosts know each
other by the names of the services: commands, environments and health checks run as they are written. PostgreSQL and
S3, whose images are others', are this environment's PostgreSQL, with passwords, and moto.

Not here: what the folders of a host hold (laid_images.py).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.deploy.images import DEPLOY, Service, dependencies, services
from tests.deploy.laid_images import ImageFolders
from varve.services.postgres_server import binaries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.hosts import Host, Network

START_SECONDS = 600
PASSWORDS = ("POSTGRES_PASSWORD", "VARVE_OWNER_PASSWORD", "DAGSTER_PASSWORD")
# More hosts of a service: Spark has two workers.
TWINS = {"spark-worker-2": "spark-worker"}


@dataclass
class Stack:
    """The hosts and what runs on them.

    Attributes:
        folder: everything that they write.
        services: by the names of their hosts.
    """

    folder: Path
    network: Network
    services: Mapping[str, Service]
    images: ImageFolders
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, network: Network, *, executor_packages: tuple[str, ...] | None = None) -> Stack:
        """The services of the compose file, with passwords; nothing is started.

        `executor_packages`: all that Spark's Python has, in the place of requirements-executor.txt.
        """
        given = {name: f"secret{number}" for number, name in enumerate(PASSWORDS)}
        found = services({**given, "S3_USER": "key", "S3_PASSWORD": "secretkey", "WORKER_CORES": "1"})
        twins = {name: twin_of(found[original], name) for name, original in TWINS.items()}
        return cls(folder, network, {**found, **twins}, ImageFolders(folder, executor_packages))

    def start(self) -> None:
        """Make all hosts, and start the services, each when those that it depends on are as it wants them."""
        for name in self.services:
            self.add_host(name)
        order = dependencies(self.services)
        order.prepare()
        with ThreadPoolExecutor(len(self.services)) as pool:
            starting: dict[Future[None], str] = {}
            while order.is_active():
                starting.update({pool.submit(self._bring_up, name): name for name in order.get_ready()})
                for up in wait(starting, return_when=FIRST_COMPLETED).done:
                    up.result()
                    order.done(starting.pop(up))

    def stop(self) -> None:
        """End all hosts, and with them what runs on them."""
        self.network.close()
        for process in self.running.values():
            process.wait(60)

    def add_host(self, name: str, *, takes_name: str | None = None) -> Host:
        """A new host for a service; with `takes_name`, the name of another one leads to it from now on."""
        return self.network.add(name, self.images.laid(self.services[name]), takes_name=takes_name)

    def start_service(self, name: str) -> None:
        """Start what a host runs, for the first time or again."""
        service = self.services[name]
        if name == "postgres":
            words, folder = self._postgres(service), "/"
        elif service.image is None:
            words, folder = [f"{sys.prefix}/bin/moto_server", "--host", "0.0.0.0", "--port", "9000"], "/"  # noqa: S104
        else:
            words, folder = [*service.command], service.image.final.folder
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                self.network.hosts[name].words(words, folder), env=self.environment(service),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _bring_up(self, name: str) -> None:
        service = self.services[name]
        if service.values.get("restart") == "no":
            done = self.run(name, *service.command)
            assert done.returncode == 0, f"{name}: {done.stdout}"
            return
        self.start_service(name)
        self.wait_until_well(name)
        if name == "postgres":
            self._make_databases(service)

    def kill(self, name: str) -> None:
        """End all processes of a host at once; the host goes on."""
        self.network.hosts[name].kill_processes()
        self.running.pop(name).wait(60)

    def run(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in the environment of a service, as `docker compose exec` runs it."""
        service = self.services[name]
        folder = "/" if service.image is None else service.image.final.folder
        return subprocess.run(
            self.network.hosts[name].words(command, folder), env=self.environment(service), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=START_SECONDS, check=False,
        )  # fmt: skip

    def environment(self, service: Service) -> dict[str, str]:
        """The variables of a service: its image's, then its own; of this process only where programs are."""
        image = {} if service.image is None else service.image.final.environment
        path = image.get("PATH", "$PATH").replace("$PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if service.name == "postgres":
            path = f"{binaries()}:{path}"
        return {"LANG": "C.UTF-8", **image, **service.environment, "PATH": path}

    def connect(self, user: str = "", password: str = "", *, database: str = "varve") -> psycopg.Connection:
        """A connection to a database as this role, or as the server's administrator."""
        url = self.services["roles"].environment["VARVE_POSTGRES_URL"]
        if user:
            url = url.replace(url[url.index("//") + 2 : url.index("@")], f"{user}:{password}")
        address = self.network.address("postgres")
        return psycopg.connect(url, autocommit=True, dbname=database, hostaddr=address, connect_timeout=10)

    def log(self, name: str) -> Path:
        """What a service has written."""
        return self.folder / f"{name}.log"

    def wait_until_well(self, name: str) -> None:
        """Wait until the service's own health check succeeds; fail with what it has written."""
        deadline, said = time.monotonic() + START_SECONDS, ""
        while time.monotonic() < deadline and self.running[name].poll() is None:
            if name == "s3":
                if _answers(self.network.address("s3"), 9000):
                    return
            else:
                done = self.run(name, *self.services[name].health)
                if done.returncode == 0:
                    return
                said = done.stdout[-500:]
            # Each look is a process of its own, and the machine has other work.
            time.sleep(2)
        log = self.log(name).read_text(encoding="utf-8", errors="replace")
        pytest.fail(f"{name} is not well: {said}\n{log[-4_000:]}")

    def _postgres(self, service: Service) -> list[str]:
        """The words of the server, as a user who is not root; its data are made at the first start."""
        data = self.folder / "postgres-data"
        as_user = ["setpriv", "--reuid=pgserver", "--regid=pgserver", "--clear-groups"]
        if not data.exists():
            password = self.folder / "password"
            password.write_text(service.environment["POSTGRES_PASSWORD"], encoding="utf-8")
            (data / "run").mkdir(parents=True)
            for path in (password, data, data / "run"):
                shutil.chown(path, "pgserver", "pgserver")
            words = ["initdb", "-D", str(data / "db"), "-U", "postgres", "--auth=scram-sha-256", f"--pwfile={password}"]
            done = self.run("postgres", *as_user, *words)
            assert done.returncode == 0, done.stdout
            with (data / "db" / "pg_hba.conf").open("a", encoding="utf-8") as rules:
                rules.write("host all all all scram-sha-256\n")
        sockets = f"unix_socket_directories={data / 'run'}"
        # After a crash of the host, a file of its predecessor may name a process that is another one now.
        (data / "db" / "postmaster.pid").unlink(missing_ok=True)
        return [*as_user, *service.command, "-D", str(data / "db"), "-c", "listen_addresses=*", "-c", sockets]

    def _make_databases(self, service: Service) -> None:
        # As the image runs them, once, before anybody else comes.
        for script in sorted((DEPLOY / "compose" / "postgres").glob("*.sh")):
            login = ["env", "PGHOST=postgres", f"PGPASSWORD={service.environment['POSTGRES_PASSWORD']}"]
            done = self.run("postgres", *login, "sh", str(script))
            assert done.returncode == 0, done.stdout


def twin_of(service: Service, name: str) -> Service:
    """One more host of a service, whose own words name it."""
    own = re.compile(rf"(?<![\w-]){re.escape(service.name)}(?![\w-])")
    return replace(
        service, name=name,
        command=tuple(own.sub(name, word) for word in service.command),
        health=tuple(own.sub(name, word) for word in service.health),
    )  # fmt: skip


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
