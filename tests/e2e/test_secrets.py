"""Secrets planted in every setting, and looked for everywhere: what commands say and write down, and every `ps`.

The servers trust whoever comes through their unix sockets, so that any password leads to them.
"""

from __future__ import annotations

import json
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from tests.e2e.conftest import WEEK
from tests.e2e.project import ROOT, Outcome, Project
from varve.services.postgres_server import CATALOG_DATABASE, DAGSTER_DATABASE, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "Plan7ted"  # noqa: S105
READS_SPARK = f"""
import pathlib, sys
from pyspark.sql import SparkSession
{{opened}}
told = [path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
assert any(b"SparkSubmit" in words for words in told)
assert not any(bytes(reversed({SECRET[::-1].encode()})) in words for words in told), "a secret is in a command line"
assert spark.conf.get("spark.hadoop.fs.s3a.secret.key") == bytes(reversed({SECRET[::-1].encode()})).decode() + "-conf"
assert spark.conf.get("spark.varve.text") == "a=b: \\\\ ü"
print("looked")
"""
CONF = json.dumps({"spark.hadoop.fs.s3a.secret.key": f"{SECRET}-conf", "spark.varve.text": "a=b: \\ ü"})


class Watch(threading.Thread):
    """Reads the command line of every process on the machine, all the time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.05):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    words = path.read_bytes()
                except OSError:
                    continue
                if SECRET.encode() in words:
                    self.seen.add(words)

    def end(self) -> set[bytes]:
        self._over.set()
        self.join()
        return self.seen


@contextmanager
def watched() -> Iterator[None]:
    watch = Watch()
    watch.start()
    try:
        yield
    finally:
        seen = watch.end()
    assert seen == set()


def with_password(url: str, password: str) -> str:
    return url.replace("postgres@", f"postgres:{quote(password)}@")


@pytest.fixture(scope="module")
def planted() -> Iterator[Project]:
    """A project whose every setting holds a secret."""
    with Project.of_its_own("planted") as found:
        server = PostgresServer(found.settings.home_dir)
        server.ensure_up()
        (Path(found.settings.home_dir) / "dagster").mkdir()
        project = found.with_dagster_home(found.settings.home_dir / "dagster").having(
            postgres_url=with_password(server.url(CATALOG_DATABASE), f"{SECRET}-catalog"),
            dagster_postgres_url=with_password(server.url(DAGSTER_DATABASE), f"{SECRET}-dagster"),
            source_url=with_password(server.url("fleet"), f"{SECRET}-source"),
            spark_conf=CONF,
        )
        keys = {"AWS_SECRET_ACCESS_KEY": f"{SECRET}-aws", "AWS_SESSION_TOKEN": f"{SECRET}-session"}
        yield Project({**project.environment, **keys})


@pytest.fixture(scope="module")
def outcomes(planted: Project) -> dict[str, Outcome]:
    """What every command says, with all settings right and with one of them wrong."""
    elsewhere = f"postgresql://varve:{SECRET}-far@127.0.0.1:1/varve"
    planted.send_flights(*WEEK[:1])
    server = PostgresServer(planted.settings.home_dir)
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute("create database fleet")
    broken = {
        "source": planted.having(source_url=elsewhere),
        "catalog": planted.having(postgres_url=elsewhere),
        "storage": planted.having(dagster_postgres_url=elsewhere),
        "malformed storage": planted.having(dagster_postgres_url=elsewhere.replace(":1/", ":x/")),
        "remote": planted.having(spark_remote=f"sc://127.0.0.1:1/;token={SECRET}-token"),
        "remote name": planted.having(spark_remote=f"sc://no.such.host.invalid:1/;token={SECRET}-token"),
    }
    with watched():
        said = {
            "up": planted.varve("up"),
            "materialize": planted.materialize("flights/departures", partition="2013-01-01"),
            "cdc status": planted.varve("cdc", "status"),
            "status": planted.varve("status"),
            "status --json": planted.varve("status", "--json"),
            "psql": planted.varve("psql", "-Atc", "select pg_sleep(0.5), 'reached'"),
            "doctor": planted.varve("doctor"),
        }
        for name, project in broken.items():
            if "source" in name:
                said[f"{name}: capture"] = project.varve("cdc", "bootstrap", "fleet.planes")
                continue
            said[f"{name}: status"] = project.varve("status", "--json")
            if "catalog" in name:
                said[f"{name}: doctor"] = project.varve("doctor")
                said[f"{name}: psql"] = project.varve("psql", "-c", "select 1")
            said[f"{name}: run"] = project.materialize("flights/departures", partition="2013-01-01")
    return said


@pytest.mark.slow
def test_every_command_did_what_it_should(outcomes: dict[str, Outcome]) -> None:
    failed = {name for name, done in outcomes.items() if done.code != 0}
    right = {name for name in outcomes if ":" not in name}
    assert not failed & right, outcomes[min(failed & right)].output
    assert {name for name in outcomes if name.endswith((": run", ": doctor", ": psql", ": capture"))} <= failed
    assert "reached" in outcomes["psql"].output


@pytest.mark.slow
def test_no_command_says_a_secret(outcomes: dict[str, Outcome]) -> None:
    assert {name: done.output for name, done in outcomes.items() if SECRET in done.output} == {}


@pytest.mark.slow
def test_what_our_own_commands_cannot_do_is_one_line_without_a_traceback(outcomes: dict[str, Outcome]) -> None:
    ours = {name: done for name, done in outcomes.items() if ": " in name and not name.endswith((": run", ": psql"))}
    for name, done in ours.items():
        assert "Traceback" not in done.output, name
        assert "defect of Varve" not in done.output, name
        assert done.code in {0, 1}, name


@pytest.mark.slow
@pytest.mark.parametrize("database", [CATALOG_DATABASE, DAGSTER_DATABASE])
def test_no_table_holds_a_secret(planted: Project, outcomes: dict[str, Outcome], database: str) -> None:
    assert outcomes
    found = []
    with psycopg.connect(PostgresServer(planted.settings.home_dir).url(database)) as connection:
        tables = connection.execute(
            "select schemaname, tablename from pg_tables where schemaname not in ('pg_catalog', 'information_schema')"
        ).fetchall()
        for schema, table in tables:
            look = sql.SQL("select count(*) from {} as t where t::text like {}")
            row = connection.execute(look.format(sql.Identifier(schema, table), sql.Literal(f"%{SECRET}%"))).fetchone()
            if row != (0,):
                found.append((schema, table))
    assert tables
    assert found == []


@pytest.mark.slow
def test_no_file_holds_a_secret(planted: Project, outcomes: dict[str, Outcome]) -> None:
    assert outcomes
    found = []
    for path in Path(planted.settings.home_dir).rglob("*"):
        try:
            if path.is_file() and SECRET.encode() in path.read_bytes():
                found.append(path)
        except OSError:
            continue
    assert found == []
    assert list(Path(tempfile.gettempdir()).glob("varve-*.properties")) == []


@pytest.mark.parametrize("mode", ["classic", "submit"])
def test_settings_of_a_spark_of_our_own_are_no_words_of_its_command_line(tmp_path: Path, mode: str) -> None:
    own = Project.at(tmp_path / "home").having(spark_master="local[1]", spark_conf=CONF)
    program = tmp_path / "looks.py"
    if mode == "classic":
        opened = "from varve.services.settings import Settings\nfrom varve.services.spark import open_session\n"
        program.write_text(READS_SPARK.format(opened=f"{opened}spark = open_session(Settings())"), encoding="utf-8")
        run = program
    else:
        program.write_text(READS_SPARK.format(opened="spark = SparkSession.builder.getOrCreate()"), encoding="utf-8")
        run = tmp_path / "submits.py"
        run.write_text(
            "import sys\nfrom varve.dagster.runs.spark_submit import Program, followed\n"
            "from varve.services.settings import Settings\n"
            f"code, tail = followed(Settings(), Program({str(program)!r}, {{}}, {{}}), {str(tmp_path)!r})\n"
            "print(*tail, sep='\\n')\nsys.exit(code)\n",
            encoding="utf-8",
        )
    with watched():
        done = Project({**own.environment, "PYTHONPATH": str(ROOT)}).run_afresh(run)
    assert done.code == 0, done.output
    assert "looked" in done.output
    assert SECRET not in done.output
