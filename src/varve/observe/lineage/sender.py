"""Sends events by the transport that OpenLineage's own configuration names, beside the run and never in its way.

OpenLineage is configured by its own variables (`OPENLINEAGE_URL`, `OPENLINEAGE__TRANSPORT__...`, `OPENLINEAGE_CONFIG`)
or an `openlineage.yml`. Where there is none of them, its client is not even imported.

Not here: the events (events.py).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varve.model.errors import counted
from varve.services.distribution import install_command
from varve.services.secrets import redacted, without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from varve.observe.lineage.events import LineageEvents
    from varve.planning.graph import Graph

DEFAULT_NAMESPACE = "varve"
# The end of a run waits so long for events that are not sent yet; what is left then is lost.
CLOSE_SECONDS = 5.0
# So many events wait at most, of about 5 kB each; the oldest go first.
_MOST_WAITING = 20_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


def configuration(project: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """Return what the client is to be configured with beside its own variables and files; None: nobody wants events.

    The client looks for `openlineage.yml` in the working directory and in `~/.openlineage`. Processes of a deployment
    run anywhere, so that one in the project's folder counts too, where the client would find none.
    """
    variables = os.environ if environment is None else environment
    if variables.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return None
    places = (
        variables.get("OPENLINEAGE_CONFIG"),
        Path.cwd() / "openlineage.yml",
        Path("~/.openlineage/openlineage.yml").expanduser(),
    )
    if any(place and Path(place).is_file() for place in places):
        return {}
    if (file := project / "openlineage.yml").is_file():
        import yaml

        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    named = ("OPENLINEAGE_URL", "OPENLINEAGE__TRANSPORT")
    return {} if any(name.startswith(named) and value for name, value in variables.items()) else None


class LineageSender:
    """Sends events in order, from a thread of its own. No method raises, and none waits but `close`."""

    def __init__(self, connect: Callable[[], Any], close_seconds: float = CLOSE_SECONDS) -> None:
        self._connect = connect
        self._close_seconds = close_seconds
        self._waiting: deque[Any] = deque(maxlen=_MOST_WAITING)
        self._changed = threading.Condition()
        self._closing = False
        self._unwanted = 0
        self._first_error = ""
        self._thread: threading.Thread | None = None

    def send(self, events: Iterable[Any]) -> None:
        """Let these events be sent, after those before them."""
        listed = list(events)
        with self._changed:
            if (dropped := len(self._waiting) + len(listed) - _MOST_WAITING) > 0:
                self._unwanted += dropped
                self._first_error = self._first_error or f"more than {_MOST_WAITING:,} waited"
            self._waiting.extend(listed)
            if self._thread is None and self._waiting:
                self._thread = threading.Thread(target=self._run, name="OpenLineage", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> str:
        """Send what is left, for some seconds at most. Returns what was lost and why; "" where everything was sent."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(self._close_seconds)
        with self._changed:
            if not (lost := len(self._waiting) + self._unwanted):
                return ""
            why = self._first_error or f"nobody took them within {self._close_seconds:g} seconds"
            return (
                f"{counted(lost, 'OpenLineage event')} could not be sent: {why}. Nothing else of the run is concerned. "
                "Look at OPENLINEAGE_URL or openlineage.yml."
            )

    def note(self, error: Exception, *, unwanted: int = 0) -> None:
        """Remember why an event was not sent, for the end; `unwanted` events are not tried again."""
        with self._changed:
            self._unwanted += unwanted
            self._first_error = self._first_error or without_secrets(redacted(f"{type(error).__name__}: {error}"))

    def _run(self) -> None:
        # What cannot be sent is said once, at the end, and not by the transport for each of its tries.
        of_others, silence = logging.getLogger("urllib3.connectionpool"), _NotOfThisThread(threading.get_ident())
        of_others.addFilter(silence)
        try:
            self._send_all()
        finally:
            of_others.removeFilter(silence)

    def _send_all(self) -> None:
        client, pause = None, _FIRST_PAUSE
        while (event := self._next()) is not None:
            try:
                client = client or self._connect()
                client.emit(event)
            except Exception as error:  # noqa: BLE001 - whatever a transport raises, the run goes on
                if _is_refused(error):
                    self.note(error, unwanted=1)
                    self._done(event)
                    continue
                self.note(error)
                if self._pause(pause):
                    break
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._done(event)
                pause = _FIRST_PAUSE
        if client is not None:
            try:
                client.close(self._close_seconds)
            except Exception as error:  # noqa: BLE001 - as above
                self.note(error)

    def _next(self) -> Any:
        """The next event, when there is one; None where the sender is closed and none is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting[0] if self._waiting else None

    def _done(self, event: Any) -> None:
        with self._changed:
            if self._waiting and self._waiting[0] is event:
                self._waiting.popleft()
            else:
                # More events came than may wait: it has left already, and was counted as one that is not sent.
                self._unwanted -= 1

    def _pause(self, seconds: float) -> bool:
        """Wait before the next try; return whether the sender was closed, so that there is none."""
        until = time.monotonic() + seconds
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, max(0.0, until - time.monotonic()))


class _NotOfThisThread(logging.Filter):
    """Keeps back what a thread logs."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread


def _is_refused(error: Exception) -> bool:
    """Whether the receiver has understood the event and does not want it: another try would end in the same way."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(status, int) and 400 <= status < 500 and status not in {408, 425, 429}


class Lineage:
    """The events of the builds of one process: made and sent where OpenLineage is configured, else nothing at all.

    `problem` is why none are sent although somebody wants them.
    """

    def __init__(
        self, sender: LineageSender | None = None, events: LineageEvents | None = None, problem: str = ""
    ) -> None:
        self._sender = sender
        self._events = events
        self._problem = problem

    @classmethod
    def open(cls, graph: Graph, project: Path) -> Lineage:
        """The events of a graph's builds, as OpenLineage is configured now. Never raises."""
        try:
            settings = configuration(project)
        except Exception as error:  # noqa: BLE001 - a file that cannot be read is no reason for a run to fail
            file = project / "openlineage.yml"
            return cls(problem=f"No OpenLineage events are sent: {file} cannot be read: {error}. Correct it.")
        if settings is None:
            return cls()
        try:
            from openlineage.client import OpenLineageClient

            from varve.observe.lineage.events import LineageEvents
        except ImportError as error:
            return cls(
                problem=f"No OpenLineage events are sent: its client is not installed ({error}). "
                f"Install it: {install_command('lineage')}"
            )
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or DEFAULT_NAMESPACE
        return cls(LineageSender(lambda: OpenLineageClient(config=settings or None)), LineageEvents(graph, namespace))

    @property
    def is_wanted(self) -> bool:
        """Whether events are made."""
        return self._sender is not None

    def tell(self, events_of: Callable[[LineageEvents], Iterable[Any]]) -> None:
        """Make events and let them be sent; nothing where nobody wants them. Never raises."""
        if self._sender is None or self._events is None:
            return
        try:
            self._sender.send(list(events_of(self._events)))
        except Exception as error:  # noqa: BLE001 - as in the sender
            self._sender.note(error, unwanted=1)

    def close(self) -> str:
        """Send what is left. Returns what is to be said of it, once, in the log; "" where everything was sent."""
        return self._problem if self._sender is None else self._sender.close()
