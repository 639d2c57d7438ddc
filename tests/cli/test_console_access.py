"""Who may see the console: the token and its file, the names by which it is asked, and the headers of every answer."""

from __future__ import annotations

import socket
import stat
from typing import TYPE_CHECKING

import pytest
from rich.console import Console as RichConsole
from starlette.testclient import TestClient

from tests.cli.console_project import TOKEN
from varve.cli.observe.console.access import SHORTEST_TOKEN, cookie_of, token_of
from varve.cli.observe.console.app import application
from varve.cli.servers.ui import serve_ui
from varve.model.errors import BadInput, ServiceUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.console_project import Console

STRANGE = ("", "wrong", "\u0442\u043e\u043a\u0435\u043d", "\u00e9" * 30, "%ff%fe", "a" * 5_000, TOKEN[:-1])


def test_only_the_token_opens_a_page_and_a_link_with_it_becomes_a_cookie(console: Console) -> None:
    app = application(console.project, TOKEN, hosts=["testserver"])
    stranger = TestClient(app, follow_redirects=False)
    for address in ("/", f"/dataset/{console.db}.sales", "/metrics", "/nothing", "/?token=wrong", "/?token="):
        refused = stranger.get(address)
        assert refused.status_code == 403, address
        assert "console.token" in refused.text
        assert console.db not in refused.text
    assert stranger.get("/style.css").status_code == 200
    linked = stranger.get(f"/search?q=a&token={TOKEN}")
    assert (linked.status_code, linked.headers["location"]) == (303, "/search?q=a")
    assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in linked.headers["set-cookie"].split(";")}
    assert stranger.get("/search?q=a").status_code == 200
    bearer = TestClient(app).get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert bearer.status_code == 200
    # A page of another site that has a name lead to this address cannot read it.
    stranger = TestClient(app, base_url="http://evil.example", cookies={cookie_of(TOKEN): TOKEN})
    assert stranger.get("/").status_code == 400


def test_a_browser_may_have_several_consoles_of_one_machine_open(console: Console) -> None:
    """It keeps cookies by host, path and name, whatever the port: a later one of a name takes the place of another."""
    tokens = (TOKEN, "the-token-of-another-console")
    apps = [application(console.project, token, hosts=["testserver"]) for token in tokens]
    kept: dict[str, str] = {}
    for app, token in zip(apps, tokens, strict=True):
        visitor = TestClient(app)
        visitor.get(f"/nothing?token={token}")
        kept |= dict(visitor.cookies)
    assert [TestClient(app, cookies=kept).get("/nothing").status_code for app in apps] == [404, 404]


def test_a_token_of_any_letters_that_is_not_the_right_one_is_refused(console: Console) -> None:
    stranger = TestClient(console.app(), raise_server_exceptions=False)
    for given in STRANGE:
        assert stranger.get("/", params={"token": given}).status_code == 403
        assert stranger.get("/", headers={"authorization": b"Bearer " + given.encode()}).status_code == 403
        cookie = f"{cookie_of(TOKEN)}=".encode() + given.encode()
        assert stranger.get("/", headers={"cookie": cookie}).status_code == 403


@pytest.mark.parametrize("size", [0, 1, SHORTEST_TOKEN - 1])
def test_no_console_is_opened_with_a_token_that_a_request_without_one_could_match(console: Console, size: int) -> None:
    with pytest.raises(BadInput, match="20 or more characters"):
        TestClient(application(console.project, "a" * size)).get("/")


def test_the_token_lies_in_a_file_that_nobody_else_reads(tmp_path: Path) -> None:
    token = token_of(tmp_path / "home")
    assert len(token) >= 30
    assert token_of(tmp_path / "home") == token
    assert stat.S_IMODE((tmp_path / "home" / "console.token").stat().st_mode) == 0o600


def test_an_empty_file_is_given_a_token_of_its_own(tmp_path: Path) -> None:
    """A process that was killed before it had written one has left it."""
    file = tmp_path / "console.token"
    file.touch()
    file.chmod(0o644)
    token = token_of(tmp_path)
    assert len(token) >= 30
    assert file.read_text() == token == token_of(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["console.token"]


@pytest.mark.parametrize(
    "content", [b"\n", b"short", b"   \n  ", "\u00e9".encode() * 30, b"\xff" * 40, b"with spaces " * 4]
)
def test_a_file_with_something_else_in_it_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "console.token"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(BadInput, match="is no token of the console") as refused:
        token_of(tmp_path)
    assert f"rm {file}" in str(refused.value)
    assert file.read_bytes() == content


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token_of(tmp_path)
    (tmp_path / "console.token").chmod(0o640)
    with pytest.raises(BadInput, match="others than its user may use this file"):
        token_of(tmp_path)


def test_a_link_with_the_token_leads_to_the_same_page_and_to_none_of_others(console: Console) -> None:
    browser = TestClient(console.app(), follow_redirects=False)

    def led_to(address: str) -> str:
        return str(browser.get(f"{address}token={TOKEN}").headers["location"])

    assert led_to("/run/a%3Fb%25c%23d?") == "/run/a%3Fb%25c%23d", "an id with a question mark in it"
    assert led_to("/search?q=a%26b&") == "/search?q=a%26b"
    for address in ("//evil.example/?", "///evil.example?", "/\\evil.example?", "/%5Cevil.example?"):
        assert not led_to(address).startswith(("//", "/\\", "http")), address


HOSTS_OURS = ("localhost", "LOCALHOST:3001", "localhost.", "127.0.0.1:3001", "[::1]", "[::1]:3333", "0.0.0.0:3001",
             "192.168.7.9:3001", "[fe80::1]:1")  # fmt: skip


def test_it_is_asked_by_localhost_and_by_addresses(console: Console) -> None:
    browser = TestClient(application(console.project, TOKEN), cookies={cookie_of(TOKEN): TOKEN})
    for host in HOSTS_OURS:
        assert browser.get("/nothing", headers={"host": host}).status_code == 404, host


HOSTS_OF_OTHERS = ("evil.example", "evil.example:3001", "localhost.evil.example", "127.0.0.1.evil.example", "",
             "[::1", "::1",
             "127.0.0.1@evil.example", "[evil.example]", "localhost:3001:3001", "localhost:x", "a b",
             "testserver")  # fmt: skip


def test_another_name_is_refused_whatever_it_leads_to(console: Console) -> None:
    """A site that lets its own name lead to this machine has the browser send that name (DNS rebinding)."""
    app = application(console.project, TOKEN)
    browser = TestClient(app, cookies={cookie_of(TOKEN): TOKEN}, raise_server_exceptions=False)
    for host in HOSTS_OF_OTHERS:
        refused = browser.get("/", headers={"host": host})
        assert refused.status_code == 400, host
        assert "--name NAME" in refused.text
        assert console.db not in refused.text


def test_a_further_name_is_one_that_was_given(console: Console) -> None:
    app = application(console.project, TOKEN, hosts=["Varve.Example"])
    browser = TestClient(app, cookies={cookie_of(TOKEN): TOKEN})
    assert browser.get("/nothing", headers={"host": "varve.example:3001"}).status_code == 404


def test_every_answer_has_the_headers_that_keep_it_to_itself(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = console.again(raise_server_exceptions=False)
    answers = [browser.get(address) for address in ("/", "/nothing", "/style.css", "/metrics", "/?token=wrong")]
    answers += [browser.post("/"), browser.get("/", headers={"host": "evil.example"})]

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("varve.cli.observe.console.pages.Pages.environments", broken)
    answers.append(browser.get("/environments"))
    assert [answer.status_code for answer in answers] == [200, 404, 200, 200, 403, 405, 400, 500]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'"), answer.url
        assert "unsafe" not in policy
        assert "script" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert "ZeroDivisionError" in answers[-1].text
    assert "Traceback" not in answers[-1].text


def test_a_taken_port_is_told_before_the_ui_starts_anything(console: Console) -> None:
    """And how to have the UI without the console, or elsewhere."""
    assert console.project.settings
    with socket.socket() as ours, socket.socket() as theirs:
        ours.bind(("127.0.0.1", 0))
        port = int(ours.getsockname()[1])
        theirs.bind(("127.0.0.1", port + 1))
        theirs.listen()
        ours.close()
        with pytest.raises(ServiceUnavailable, match=rf"port {port + 1} \(--console-port\).*--no-console"):
            serve_ui(RichConsole(), port)
