"""The heartbeat of a run: a thread of its process that renews the run's lease, over a connection of its own.

It never ends a run: where the server is away it goes on trying, and where the lease is lost the publish is refused.

Not here: what a lease is (varve/catalog/leases.py).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.catalog.leases import BEATS_A_TERM, Leases, lost
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from varve.catalog.leases import Lease
    from varve.services.settings import Settings

logger = logging.getLogger(__name__)


def this_process() -> str:
    """Who holds a lease, for people."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class Heartbeat:
    """The lease of one run, taken and renewed from `start` to `stop`."""

    def __init__(self, settings: Settings, run_id: str) -> None:
        self.run_id = run_id
        # The lease, where it is lost for good.
        self.lost: Lease | None = None
        self._settings = settings
        self._holder = this_process()
        self._connection: psycopg.Connection | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease of run {run_id[:8]}", daemon=True)

    def start(self) -> None:
        """Take the lease, if the server can be asked, and go on renewing it."""
        self._beat()
        self._thread.start()

    def stop(self, *, give_back: bool) -> None:
        """Renew it no more; `give_back` where the run has ended."""
        self._stopped.set()
        self._thread.join()
        if give_back and not self.lost:
            self._ask(lambda leases: leases.give_back(self.run_id))
        self._disconnect()

    def _renew(self) -> None:
        while not self._stopped.wait(self._settings.lease_seconds / BEATS_A_TERM):
            self._beat()

    def _beat(self) -> None:
        def renew(leases: Leases) -> None:
            taken = leases.take(self.run_id, self._holder, self._settings.lease_seconds)
            if not taken and self.lost is None and (lease := leases.of(self.run_id)) is not None:
                self.lost = lease
                logger.error("%s", lost(lease, "its lease cannot be renewed"))

        self._ask(renew)

    def _ask(self, what: Callable[[Leases], None]) -> None:
        """Over the connection that there is, or a new one."""
        try:
            if self._connection is None:
                # A link that is cut without a word is noticed while there is time to take another one.
                beat = max(1, int(self._settings.lease_seconds / BEATS_A_TERM))
                link = {
                    "connect_timeout": max(2, beat), "tcp_user_timeout": beat * 1_000,
                    "keepalives_idle": beat, "keepalives_interval": 1, "keepalives_count": 3,
                }  # fmt: skip
                application = f"varve lease of run {self.run_id[:8]}"
                self._connection = connect(self._settings, application=application, connecting=link)
                Catalog(self._connection).ensure_schema()
            what(Leases(self._connection))
        except Exception as error:  # noqa: BLE001 - a heart that stops, whatever for, ends a healthy run
            # The next beat asks again. A run that cannot reach the catalog at all says so itself, and better.
            logger.warning("The lease of run %s could not be renewed: %s", self.run_id, error)
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Heartbeats:
    """The heartbeats of the runs of one process."""

    def __init__(self) -> None:
        self._beating: dict[str, Heartbeat] = {}

    def of(self, run_id: str) -> Heartbeat | None:
        """The heartbeat of a run; None where its lease is not held here."""
        return self._beating.get(run_id)

    def begin(self, settings: Settings, run_id: str) -> Heartbeat:
        """The heartbeat of a run of this process, begun where it had none."""
        if run_id not in self._beating:
            self._beating[run_id] = Heartbeat(settings, run_id)
            self._beating[run_id].start()
        return self._beating[run_id]

    def end(self, run_id: str) -> bool:
        """End it and give the lease back; False where it was not held here."""
        if (beating := self._beating.pop(run_id, None)) is None:
            return False
        beating.stop(give_back=True)
        return True

    def stop(self) -> None:
        """End all of them, of runs whose end nobody has told: their leases will expire."""
        while self._beating:
            self._beating.popitem()[1].stop(give_back=False)
