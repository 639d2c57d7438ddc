"""What the console says to addresses that nobody meant, and where its catalog is down or of another version."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from starlette.testclient import TestClient
from typer.testing import CliRunner

from tests.cli.console_project import SCRIPT, TOKEN
from tests.support.project import ROOT
from varve.cli.app import app
from varve.cli.observe.console.access import cookie_of
from varve.cli.observe.console.app import application
from varve.model.errors import ServiceUnavailable
from varve.project import Project
from varve.services.postgres import connect, warehouse_url

if TYPE_CHECKING:
    from tests.cli.console_project import Console

HUGE = "9" * 400
# Texts in the place of a path, a month, a batch or a run; each is quoted as a browser would.
GARBAGE = (
    "", "=", "/", "//", "day", "day=", "=2026-11-01", "day=2026-13-45/store=Paris", "day=2026-11-01", "all", "../..",
    "day=2026-11-01/store=Paris/more=1", "day=2026-11-01/day=2026-11-01", "store=Paris/day=2026-11-01/x",
    "\0", "day=2026-11-01/store=\0", "\x1b[31m", "\U0001f600", "%", "%zz", "day=%00/store=Paris", "-1", "1.5", "1e9",
    HUGE, f"day={HUGE}/store=Paris", "NaN", "'; drop table varve.batch; --", SCRIPT, "a" * 3_999, "a" * 4_001,
    "\u202eabc", "day=99999-01-01/store=Paris", "day=0000-00-00/store=Paris", "\ufffe",
)  # fmt: skip


def test_an_address_that_nobody_meant_is_a_page_in_words(console: Console) -> None:
    browser = console.again(raise_server_exceptions=False)
    for address in (address for text in GARBAGE for address in _places(console.db, quote(text, safe=""))):
        answer = browser.get(address)
        assert answer.status_code in {200, 400, 404}, (address, answer.text)
        assert "<script" not in answer.text.lower(), address
        assert "</html>" in answer.text, address


def _places(db: str, written: str) -> list[str]:
    """Every address that takes a text, with this one."""
    sales = f"/dataset/{db}.sales"
    return [
        f"{sales}/partition?path={written}", f"{sales}?month={written}", f"{sales}?row={written}", f"/run/{written}",
        f"/dataset/{written}", f"/dataset/{written}/partition?path={written}", f"/search?q={written}", f"/{written}",
        f"{sales}/partition?path={written}&path={written}", f"{sales}/partition?{written}",
    ]  # fmt: skip


def test_bytes_that_are_no_text_are_a_page_in_words(console: Console) -> None:
    browser = console.again(raise_server_exceptions=False)
    for address in ("/search?q=%ff%fe", "/run/%ff", "/dataset/%c3%28", "/search?q=%ed%a0%80"):
        assert browser.get(address).status_code in {200, 400, 404}, address


def test_what_is_not_a_question_is_refused_in_words(console: Console) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = console.browser.request(method, "/")
        assert answer.status_code == 405
        assert "changes nothing" in answer.text


def test_commands_are_shown_as_a_shell_takes_them(console: Console) -> None:
    """Keys with spaces, quotes and what a shell would run."""
    odd = "a b'c\"$(touch x)`|;&"
    run = f"run of {odd}"
    (console.project.assets / "odd.sql").write_text(
        f"CREATE DATASET {console.db}.odd (n INT) COMMENT 'c' OWNER 'o@example.com' STORED IN LAKE\n"
        f"PARTITIONED BY (k STRING) FOR k IN ('{odd.replace(chr(39), chr(39) * 2)}')\nEXTERNAL;\n"
    )
    console.reload()
    path = f"k={quote(odd, safe='')}"
    batch = console.publish("odd", path, run)
    commands = console.commands(f"/dataset/{console.db}.odd/partition?path={quote(path, safe='')}")
    assert ["varve", "why", f"{console.db}.odd", f"k={odd}"] in [shlex.split(command) for command in commands]
    assert ["varve", "show", f"{console.db}.odd", f"k={odd}", "--batch", str(batch)] in map(shlex.split, commands)
    (rollback,) = console.commands(f"/run/{quote(run, safe='')}")
    assert shlex.split(rollback) == ["varve", "rollback", "--run", run, "--reason", "..."]


def test_without_a_catalog_it_says_which_server_it_has_asked(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARVE_POSTGRES_URL", "postgresql://nobody:hidden-word@127.0.0.1:1/none")
    project = Project.find(console.project.root)
    browser = TestClient(application(project, TOKEN, hosts=["testserver"]), cookies={cookie_of(TOKEN): TOKEN})
    answer = browser.get("/environments")
    assert answer.status_code == 503
    assert "127.0.0.1" in answer.text
    assert "hidden-word" not in answer.text


def test_a_catalog_that_goes_away_is_a_page_that_says_so(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a page has shown it before, and for each page."""
    console.publish("sales", "day=2026-11-01/store=Paris", "r")
    console.page("/")
    monkeypatch.setenv("VARVE_POSTGRES_URL", "postgresql://nobody@127.0.0.1:1/none")
    for address in (
        "/", f"/dataset/{console.db}.sales", "/environments", "/search?q=a", "/run/r",
        f"/dataset/{console.db}.sales/partition?path=day%3D2026-11-01/store%3DParis",
    ):  # fmt: skip
        shown = console.page(address, 503)
        assert "127.0.0.1" in shown
        assert "Traceback" not in shown
    assert console.browser.get("/metrics").status_code == 503


def test_a_database_without_a_catalog_stays_without_one(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages only look: `varve up`, and `varve console` as it begins, make the tables."""
    url = make_conninfo(warehouse_url(console.project.settings), dbname="postgres")
    monkeypatch.setenv("VARVE_POSTGRES_URL", _url_of(url))
    assert "`varve up` makes one" in console.again().get("/").text
    with psycopg.connect(url) as connection:
        assert connection.execute("select from pg_namespace where nspname = 'varve'").fetchone() is None


def _url_of(conninfo: str) -> str:
    parts = conninfo_to_dict(conninfo)
    return f"postgresql:///{parts.pop('dbname')}?{urlencode(parts)}"


@pytest.mark.parametrize(("version", "says"), [(10_000, "a newer Varve has made"), (12, "Upgrade it: varve migrate")])
def test_a_catalog_of_another_version_is_neither_read_nor_changed(console: Console, version: int, says: str) -> None:
    console.page("/environments")
    with connect(console.project.settings, application="varve test") as connection:
        ours = connection.execute("select version, oldest from varve.schema_version").fetchone()
        try:
            connection.execute("update varve.schema_version set version = %s, oldest = %s", (version, version))
            for address in ("/", "/environments", "/search?q=a"):
                assert says in console.page(address, 503).replace("&#39;", "'")
            assert connection.execute("select version from varve.schema_version").fetchone() == (version,)
        finally:
            connection.execute("update varve.schema_version set version = %s, oldest = %s", ours)
    console.page("/environments")


def test_a_page_starts_no_server(
    console: Console, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded PostgreSQL that was stopped stays so: a page that is left open in a browser must not start it."""
    home = tmp_path_factory.mktemp("h")
    monkeypatch.setenv("VARVE_HOME", str(home))
    project = Project.find(console.project.root)
    browser = TestClient(application(project, TOKEN, hosts=["testserver"]), cookies={cookie_of(TOKEN): TOKEN})
    answer = browser.get("/")
    assert answer.status_code == 503
    assert "varve up" in answer.text
    assert list(home.iterdir()) == []


def test_what_only_looks_starts_no_server_for_dagsters_storage_either(
    console: Console, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the catalog is on a server of its own, and Dagster's storage on the embedded one, which was stopped."""
    console.publish("sales", "day=2026-11-01/store=Paris", "r")
    home = tmp_path_factory.mktemp("h")
    monkeypatch.setenv("VARVE_POSTGRES_URL", warehouse_url(console.project.settings))
    monkeypatch.delenv("VARVE_DAGSTER_POSTGRES_URL", raising=False)
    monkeypatch.setenv("VARVE_HOME", str(home))
    shutil.copy(ROOT / "dagster.yaml", console.project.root)
    browser = console.again()
    for address in ("/", "/metrics"):
        answer = browser.get(address)
        assert answer.status_code == 503
        assert f"the embedded PostgreSQL of {home}, which has Dagster" in answer.text
    # What asks Dagster nothing is shown.
    assert browser.get("/run/r").status_code == 200
    for words in (["metrics"], ["logs", f"{console.db}.sales", "day=2026-11-01", "store=Paris"]):
        with pytest.raises(ServiceUnavailable, match=r"which has Dagster's storage, is down\. Start it: varve up"):
            raise CliRunner().invoke(app, words).exception or AssertionError(words)
    assert list(home.iterdir()) == []
