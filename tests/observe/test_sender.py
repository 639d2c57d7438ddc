"""Events on their way: in order, beside the run, and never a reason for it to fail or to wait."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.documents.pages import blocks
from varve.observe.lineage import sender as sender_module
from varve.observe.lineage.sender import Lineage, LineageSender, configuration
from varve.planning.graph import Graph

if TYPE_CHECKING:
    from pathlib import Path

EMPTY = Graph({}, {}, {})


class Client:
    """A client whose transport does as it is told: each event is taken, refused, or finds the receiver down."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.taken: list[Any] = []
        self.tries = 0

    def emit(self, event: Any) -> None:
        self.tries += 1
        if self.answers and (error := self.answers.pop(0)) is not None:
            raise error
        self.taken.append(event)

    def close(self, _: float) -> bool:
        return True


def refused(status: int) -> Exception:
    error = RuntimeError(f"{status} Client Error for http://marquez:secret@lineage.example/api/v1/lineage")
    error.response = type("Response", (), {"status_code": status})()  # type: ignore[attr-defined]
    return error


def test_events_are_sent_in_their_order() -> None:
    client = Client()
    sender = LineageSender(lambda: client)
    sender.send(range(50))
    sender.send(range(50, 100))
    assert sender.close() == ""
    assert client.taken == list(range(100))


def test_an_event_is_tried_again_until_it_is_taken() -> None:
    client = Client(ConnectionError("down"), None, refused(503), None)
    sender = LineageSender(lambda: client)
    sender.send("abc")
    deadline = time.monotonic() + 20
    while len(client.taken) < 3 and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert sender.close() == ""
    assert client.taken == ["a", "b", "c"]


def test_an_event_that_the_receiver_does_not_want_is_left_out() -> None:
    client = Client(None, refused(422), None)
    sender = LineageSender(lambda: client)
    sender.send("abc")
    said = sender.close()
    assert client.taken == ["a", "c"]
    assert said.startswith("1 OpenLineage event could not be sent: RuntimeError: 422 Client Error")
    assert "secret" not in said


def test_events_that_are_dropped_because_too_many_wait_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "_MOST_WAITING", 3)
    began, goes_on = threading.Event(), threading.Event()

    class Slow(Client):
        def emit(self, event: Any) -> None:
            began.set()
            assert goes_on.wait(20)
            super().emit(event)

    client = Slow()
    sender = LineageSender(lambda: client)
    sender.send("a")
    assert began.wait(20)
    # The first one is on its way and arrives, though it has no place among the others any more.
    sender.send("bcdefg")
    goes_on.set()
    said = sender.close()
    assert client.taken == ["a", "e", "f", "g"]
    assert said.startswith("3 OpenLineage events could not be sent: more than 3 waited.")


def test_a_receiver_that_is_down_costs_the_end_of_a_run_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Nobody listens there, and the client's own retries would take longer than a run wants to wait.
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

    sender = LineageSender(OpenLineageClient, close_seconds=1.0)
    run = Run("0b0e2a52-4a1c-4d2e-9c35-54ac5f2a1c11")
    event = RunEvent(eventType=RunState.START, eventTime="2026-11-23T00:00:00+00:00", run=run, job=Job("a", "b"))
    sender.send([event] * 3)
    began = time.monotonic()
    said = sender.close()
    assert time.monotonic() - began < 5
    assert said.startswith("3 OpenLineage events could not be sent: nobody took them within 1 seconds.")
    assert caplog.messages == []


def test_a_receiver_that_never_answers_is_not_waited_for() -> None:
    release = threading.Event()

    class Silent(Client):
        def emit(self, _: Any) -> None:
            release.wait(60)

    sender = LineageSender(Silent, close_seconds=0.2)
    sender.send("ab")
    assert sender.close().startswith("2 OpenLineage events")
    release.set()


class Marquez(BaseHTTPRequestHandler):
    """A receiver of events on loopback."""

    bodies: list[bytes] = []  # noqa: RUF012 - the server makes an object for each request

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(201)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of http.server's
        """Say nothing."""


def test_a_client_is_configured_by_the_variables_of_openlineage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Marquez)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

    lineage = Lineage.open(EMPTY, tmp_path)
    run = Run("0b0e2a52-4a1c-4d2e-9c35-54ac5f2a1c11")
    lineage.tell(
        lambda events: [
            RunEvent(
                eventType=RunState.START, eventTime="2026-11-23T00:00:00+00:00", run=run, job=Job(events.namespace, "b")
            )
        ]
    )
    assert lineage.close() == ""
    server.shutdown()
    server.server_close()
    (body,) = Marquez.bodies
    assert b'"namespace": "shop"' in body


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without any configuration, where the process works and is at home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_without_a_configuration_there_are_no_events(nowhere: Path) -> None:
    project = nowhere / "project"
    project.mkdir()
    assert configuration(project, {}) is None
    assert configuration(project, {"OPENLINEAGE_URL": ""}) is None
    assert configuration(project, {"OPENLINEAGE_URL": "http://lineage.example"}) == {}
    assert configuration(project, {"OPENLINEAGE__TRANSPORT__TYPE": "console"}) == {}
    assert configuration(project, {"OPENLINEAGE_CONFIG": str(nowhere / "absent.yml")}) is None
    file = project / "openlineage.yml"
    file.write_text("transport: {type: console}", encoding="utf-8")
    assert configuration(project, {}) == {"transport": {"type": "console"}}
    assert configuration(project, {"OPENLINEAGE_CONFIG": str(file)}) == {}
    assert configuration(project, {"OPENLINEAGE_DISABLED": "True"}) is None


def test_a_configuration_that_cannot_be_read_stops_no_run(nowhere: Path) -> None:
    (project := nowhere / "project").mkdir()
    (project / "openlineage.yml").write_text("transport: {type: [", encoding="utf-8")
    lineage = Lineage.open(EMPTY, project)
    lineage.tell(lambda _: pytest.fail("nobody wants events"))
    assert "No OpenLineage events are sent" in lineage.close()

    (project / "openlineage.yml").write_text("transport: {type: pigeon}", encoding="utf-8")
    lineage = Lineage.open(EMPTY, project)
    lineage.tell(lambda _: ["an event"])
    assert "1 OpenLineage event could not be sent: ImportError" in lineage.close()


def test_events_that_cannot_be_made_stop_no_run() -> None:
    from varve.observe.lineage.events import LineageEvents

    lineage = Lineage(LineageSender(Client), LineageEvents(EMPTY, "x"))
    lineage.tell(lambda events: events.started(None))  # type: ignore[arg-type]
    assert "could not be sent: AttributeError" in lineage.close()


def test_the_configuration_of_the_page_is_one(nowhere: Path) -> None:
    (block,) = [block for block in blocks("yaml") if block.page == "docs/observability.md"]
    (nowhere / "openlineage.yml").write_text(block.text, encoding="utf-8")
    settings = configuration(nowhere, {})
    from openlineage.client import OpenLineageClient

    assert OpenLineageClient(config=settings or None).transport.kind == "http"
