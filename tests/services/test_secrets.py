"""What is shown of a setting that holds a password; and that nobody repeats one that is malformed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.engine import make_url

from tests.support.prepared import run_prepared
from tests.support.project import ROOT
from varve.model.errors import VarveError
from varve.services.addresses import dagster_url, libpq_url, remote_address
from varve.services.postgres_server import CATALOG_DATABASE, PostgresServer
from varve.services.secrets import redacted, spark_properties, without_password, without_secrets
from varve.services.sessions import session_url
from varve.services.settings import Settings

if TYPE_CHECKING:
    import psycopg

# It is looked for in parts, too: libpq tells a host name that is the second half of a password with an @.
SECRET = "Plan7ted"  # noqa: S105
SHOWN = {
    f"postgresql://varve:{SECRET}@db:5432/varve": "postgresql://varve:***@db:5432/varve",
    f"postgresql+psycopg2://varve:{SECRET}@db/varve?sslmode=require": "postgresql+psycopg2://varve:***@db/varve?sslmode=require",
    f"postgresql://varve@db/varve?password={SECRET}&sslmode=require": "postgresql://varve@db/varve?password=***&sslmode=require",
    f"postgresql://varve@db/varve?sslpassword={SECRET}": "postgresql://varve@db/varve?sslpassword=***",
    f"postgresql://varve:a@{SECRET}@db/varve": "postgresql://varve:***@db/varve",
    f"postgresql://varve:a/{SECRET}@db/varve": "postgresql://varve:***@db/varve",
    f"host=db password={SECRET} user=varve": "host=db password=*** user=varve",
    f"sc://spark:15002/;use_ssl=true;token={SECRET};user_id=me": "sc://spark:15002/;use_ssl=true;token=***;user_id=me",
    f"jdbc:sqlserver://db:1433;user=me;password={SECRET};encrypt=true": "jdbc:sqlserver://db:1433;user=me;password=***;encrypt=true",
    f"jdbc:mysql://me:{SECRET}@db/shop?useSSL=false": "jdbc:mysql://me:***@db/shop?useSSL=false",
    f"jdbc:oracle:thin:scott/{SECRET}@//db:1521/x": "jdbc:oracle:thin:scott/***@//db:1521/x",
    "postgresql://postgres@/varve?host=/run/x": "postgresql://postgres@/varve?host=/run/x",
    "abfss://container@account.dfs.core.windows.net/lake": "abfss://container@account.dfs.core.windows.net/lake",
}  # fmt: skip
MALFORMED = {
    "VARVE_POSTGRES_URL": [
        f"postgresql://varve:{SECRET}@db:port/varve",
        f"postgresql://varve:{SECRET}@db:99999/varve",
        f"postgresql://varve:a@{SECRET}@db/varve",
        f"postgresql://varve:{SECRET}@one:1,two:x/varve",
        f"postgresql://varve:{SECRET}@db/varve?no_such_parameter={SECRET}",
        f"mysql://varve:{SECRET}@db/varve",
        f"host=db password={SECRET}",
        SECRET,
    ],
    "VARVE_DAGSTER_POSTGRES_URL": [f"postgresql://varve:{SECRET}@db:port/varve"],
    "VARVE_SOURCE_URL": [f"postgresql:/varve:{SECRET}@db"],
    "VARVE_SPARK_REMOTE": [
        f"sc:/spark;token={SECRET}",
        f"sc://spark:999999/;token={SECRET}",
        f"sc://me:{SECRET}@spark",
    ],
    "VARVE_LAKE_ROOT": [f"s3a://key:{SECRET}@bucket/lake"],
    "VARVE_LANDING_ROOT": [f"sftp://key:{SECRET}@host/landing"],
    "VARVE_SPARK_CONF": [
        f'{{"spark.hadoop.fs.s3a.secret.key": ["{SECRET}"]}}',
        f'["{SECRET}"]',
        f'{{"spark.hadoop.fs.s3a.secret.key": "{SECRET}"',
    ],
}


@pytest.mark.parametrize("url", SHOWN)
def test_an_address_is_shown_without_its_secrets(url: str) -> None:
    assert without_secrets(url) == SHOWN[url]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in MALFORMED.items() for text in texts])
def test_a_malformed_address_is_one_line_that_does_not_repeat_it(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(VarveError) as refused:
        Settings()
    error_message = str(refused.value)
    assert error_message.startswith(name)
    assert SECRET not in error_message
    assert "\n" not in error_message
    # A traceback, of Dagster for example, tells what an error came from, too.
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize("text", MALFORMED["VARVE_POSTGRES_URL"])
def test_the_url_of_somebody_elses_database_is_not_repeated_either(text: str) -> None:
    with pytest.raises(VarveError) as refused:
        libpq_url(text)
    assert SECRET not in str(refused.value)


def test_of_several_servers_the_one_that_takes_writes_is_wanted() -> None:
    url = libpq_url("postgresql://u:a%40b@one,[::1]:5433/x?sslmode=require")
    assert conninfo_to_dict(url) == {
        "user": "u", "password": "a@b", "host": "one,::1", "port": "5432,5433", "dbname": "x", "sslmode": "require",
        "target_session_attrs": "read-write",
    }  # fmt: skip
    assert libpq_url(url) == url
    any_of_them = libpq_url("postgresql://one:1,two:2/x?target_session_attrs=any")
    assert conninfo_to_dict(any_of_them)["target_session_attrs"] == "any"


def test_well_formed_addresses_are_taken() -> None:
    assert (
        libpq_url("postgresql+psycopg://u:a%40b@db:1/x?sslmode=require")
        == "postgresql://u:a%40b@db:1/x?sslmode=require"
    )
    assert remote_address("sc://spark") == ("spark", 15_002)
    assert remote_address("sc://[::1]:7/;token=a-b_c;use_ssl=true") == ("::1", 7)
    assert remote_address("sc://spark:7") == remote_address("sc://spark:7/") == ("spark", 7)


@pytest.mark.parametrize(
    ("url", "bare", "password"),
    [
        ("postgresql://u:a%40b@db/x?sslmode=require", "postgresql://u@db/x?sslmode=require", "a@b"),
        ("postgresql://u@db/x?password=abc", "postgresql://u@db/x", "abc"),
        ("postgresql://postgres@/x?host=/run", "postgresql://postgres@/x?host=%2Frun", None),
    ],
)
def test_a_password_is_taken_out_of_a_url(url: str, bare: str, password: str | None) -> None:
    assert without_password(url) == (bare, password)


def test_what_others_say_of_our_connections_is_told_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_JDBC_URL", f"jdbc:mysql://me:{SECRET}@db/shop")
    monkeypatch.setenv("VARVE_SPARK_CONF", f'{{"spark.hadoop.fs.s3a.secret.key": "{SECRET}2", "spark.x": "visible"}}')
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{SECRET}3")
    monkeypatch.setenv("VARVE_POSTGRES_URL", "postgresql://varve:varve@db/varve")
    message = f"cannot reach ({SECRET}) with {SECRET}2 or {SECRET}3; visible: run `varve repair`"
    assert redacted(message) == "cannot reach (***) with *** or ***; visible: run `varve repair`"


def test_a_blank_in_a_parameter_is_one_for_libpq_too() -> None:
    url = "postgresql://me:secret@/x?host=%2Fhome%2Fmy%20project&options=-c%20a%3Db%2Bc"
    for written in (libpq_url(url), libpq_url(without_password(url)[0])):
        told = conninfo_to_dict(written)
        assert (told["host"], told["options"]) == ("/home/my project", "-c a=b+c")


def given_by_dagster(url: str) -> object:
    """What Dagster's storage gives to psycopg2 for a URL."""
    return PGDialect_psycopg2().create_connect_args(make_url(url))[1]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("password", ["a b", " a", "b ", "a+b", "a@b/c?d&e=f#g:h%i", "%41", "a,b", "[ü]", "\\'\"$"])
def test_a_url_is_read_as_libpq_reads_it_whatever_its_texts(password: str) -> None:
    url = f"postgresql://my%20self:{quote(password, safe='')}@db:1/my%20data?sslcert=/a+b.pem&application_name=c%20d"
    wanted = conninfo_to_dict(url)
    assert wanted["password"] == password
    assert conninfo_to_dict(libpq_url(url)) == wanted
    assert conninfo_to_dict(session_url(libpq_url(url))).items() > wanted.items()
    bare, found = without_password(libpq_url(url))
    assert {**conninfo_to_dict(bare), "password": found} == wanted
    assert given_by_dagster(dagster_url(libpq_url(url))) == {**wanted, "port": 1}


def test_the_folder_of_a_socket_is_one_for_dagster_too() -> None:
    url = libpq_url("postgresql://me@%2Fvar%2Frun:5433/x")
    assert conninfo_to_dict(url) == {"user": "me", "host": "/var/run", "port": "5433", "dbname": "x"}
    assert given_by_dagster(dagster_url(url)) == conninfo_to_dict(url)


def test_a_secret_beside_an_address_in_the_settings_of_spark_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = {"spark.hadoop.fs.s3a.endpoint": "http://s3:9000", "spark.hadoop.fs.s3a.secret.key": SECRET}
    monkeypatch.setenv("VARVE_SPARK_CONF", json.dumps(conf))
    assert redacted(f"wrong key {SECRET}") == "wrong key ***"


def test_no_setting_with_a_secret_is_part_of_what_settings_print(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"postgresql://varve:{SECRET}@db/varve"
    for name in ("VARVE_POSTGRES_URL", "VARVE_DAGSTER_POSTGRES_URL", "VARVE_SOURCE_URL"):
        monkeypatch.setenv(name, url)
    monkeypatch.setenv("VARVE_SPARK_REMOTE", f"sc://spark/;token={SECRET}")
    monkeypatch.setenv("VARVE_SPARK_CONF", f'{{"spark.hadoop.fs.s3a.secret.key": "{SECRET}"}}')
    assert SECRET not in repr(Settings())
    assert SECRET not in str(Settings())


def test_settings_for_spark_submit_lie_in_a_file_of_their_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("spark.theirs 1\n", encoding="utf-8")
    ours = {"spark.a b": "x=ü\\\n€𝄞", "spark.n": "1"}
    with spark_properties(ours, also=tmp_path / "theirs", conf={"spark.n": "2"}) as name:
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
        text = Path(name).read_bytes()
    # In a file of properties the last one counts.
    assert text == (b"spark.a\\ b=x=\\u00fc\\\\\\n\\u20ac\\ud834\\udd1e\nspark.n=1\nspark.theirs 1\n\nspark.n=2\n")
    assert not Path(name).exists()


@pytest.mark.needs_seconds
@pytest.mark.parametrize("words", [("status",), ("status", "--json"), ("psql", "-c", "select 1"), ("doctor",)])
def test_a_command_ends_with_one_line_where_a_url_is_malformed(words: tuple[str, ...], tmp_path: Path) -> None:
    environment = {"VARVE_HOME": str(tmp_path), "VARVE_POSTGRES_URL": f"postgresql://varve:{SECRET}@db:port/varve"}
    done = run_prepared(Path(sys.executable).parent / "varve", *words, cwd=ROOT, env=environment)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("VarveError: VARVE_POSTGRES_URL is no PostgreSQL URL: its port is no number. Write ")
    assert len(done.stderr.splitlines()) == 1


def test_the_password_of_the_catalog_is_in_no_command_line_and_not_in_the_status(
    settings: Settings, connection: psycopg.Connection
) -> None:
    server = PostgresServer(settings.home_dir)
    url = server.url(CATALOG_DATABASE).replace("postgres@", f"postgres:{SECRET}@")
    remote = f"sc://127.0.0.1:1/;token={SECRET}"
    environment = {
        **os.environ, "VARVE_POSTGRES_URL": url, "VARVE_DAGSTER_POSTGRES_URL": url, "VARVE_SPARK_REMOTE": remote,
    }  # fmt: skip
    varve = [str(Path(sys.executable).parent / "varve")]
    results = [
        subprocess.run(
            [*varve, "status", *words], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60,
            check=True,
        )
        for words in ((), ("--json",))
    ]  # fmt: skip
    assert SECRET not in "".join(done.stdout + done.stderr for done in results)
    assert json.loads(results[1].stdout)["postgres"]["up"] is True
    process = subprocess.Popen(
        [*varve, "psql", "-Atc", "select 'connected'", "-c", "select pg_sleep(60)"],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "connected\n"
        words = Path(f"/proc/{process.pid}/cmdline").read_text(encoding="utf-8")
        assert "psql" in words
        assert SECRET not in words
        # That of its owner alone; docs/deploy.md says so.
        assert SECRET in Path(f"/proc/{process.pid}/environ").read_text(encoding="utf-8")
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()  # type: ignore[union-attr]
    # The server sees within seconds that nobody listens: the query of a killed reader delays no publish.
    deadline = time.monotonic() + 20
    while connection.execute("select 1 from pg_stat_activity where query like 'select pg_sleep%'").fetchone():
        assert time.monotonic() < deadline, "the session of a killed psql lives on"
        time.sleep(0.2)
