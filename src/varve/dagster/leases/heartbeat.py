"""The heartbeat of a run: a thread of its process that renews the run's lease, over a connection of its own.

The heartbeat never ends a run. Where the server is away it goes on trying; where the lease is lost, the catalog refuses
the publish. See docs/decisions/0012-leases.md.

Not here: what a lease is (varve/catalog/living/leases.py).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.catalog.living.leases import BEATS_A_TERM, Leases, lease_lost
from varve.catalog.schema import CatalogSchema
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from varve.catalog.living.leases import Lease
    from varve.services.settings import Settings

logger = logging.getLogger(__name__)


def this_process() -> str:
    """Return the name of this process as the holder of a lease: its pid and host."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class Heartbeat:
    """The lease of one run, taken and renewed from `start` to `stop`."""

    def __init__(self, settings: Settings, run_id: str) -> None:
        self.run_id = run_id
        # The lease as the catalog had it when it was lost; None as long as it is not.
        self.lost_lease: Lease | None = None
        self._settings = settings
        self._holder = this_process()
        self._connection: psycopg.Connection | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease of run {run_id[:8]}", daemon=True)

    def start(self) -> None:
        """Take the lease, if the server can be reached, and start to renew it."""
        self._beat()
        self._thread.start()

    def stop(self, *, give_back: bool) -> None:
        """Stop renewing the lease; with `give_back`, as the run has ended, release it."""
        self._stopped.set()
        self._thread.join()
        if give_back and not self.lost_lease:
            self._with_leases(lambda leases: leases.give_back(self.run_id))
        self._disconnect()

    def _renew(self) -> None:
        while not self._stopped.wait(self._settings.lease_seconds / BEATS_A_TERM):
            self._beat()

    def _beat(self) -> None:
        def renew(leases: Leases) -> None:
            taken = leases.take(self.run_id, self._holder, self._settings.lease_seconds)
            if not taken and self.lost_lease is None and (lease := leases.of(self.run_id)) is not None:
                self.lost_lease = lease
                logger.error("%s", lease_lost(lease, "its lease cannot be renewed"))
            # Else an upgrade would take a run that computes for longer than some minutes for one that has ended.
            CatalogSchema().note_use(leases.connection)

        self._with_leases(renew)

    def _with_leases(self, use: Callable[[Leases], None]) -> None:
        """Call `use` with the leases, over the open connection or a new one; errors are logged."""
        try:
            if self._connection is None:
                # These options notice a connection that was cut silently while there is time to open another one.
                beat_seconds = max(1, int(self._settings.lease_seconds / BEATS_A_TERM))
                connection_options = {
                    "connect_timeout": max(2, beat_seconds), "tcp_user_timeout": beat_seconds * 1_000,
                    "keepalives_idle": beat_seconds, "keepalives_interval": 1, "keepalives_count": 3,
                }  # fmt: skip
                application = f"varve lease of run {self.run_id[:8]}"
                self._connection = connect(self._settings, application=application, connecting=connection_options)
                Catalog(self._connection).ensure_schema()
            use(Leases(self._connection))
        except Exception as error:  # noqa: BLE001 - a heart that stops, whatever for, ends a healthy run
            # The next beat tries again. A run that cannot reach the catalog at all fails by itself, with a message.
            logger.warning("The lease of run %s could not be renewed: %s", self.run_id, error)
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Heartbeats:
    """The heartbeats of the runs of one process."""

    def __init__(self) -> None:
        self._heartbeats: dict[str, Heartbeat] = {}

    def of(self, run_id: str) -> Heartbeat | None:
        """Return the heartbeat of a run; None where this process does not renew its lease."""
        return self._heartbeats.get(run_id)

    def begin(self, settings: Settings, run_id: str) -> Heartbeat:
        """Return the heartbeat of a run of this process; it is started where there was none."""
        if run_id not in self._heartbeats:
            self._heartbeats[run_id] = Heartbeat(settings, run_id)
            self._heartbeats[run_id].start()
        return self._heartbeats[run_id]

    def end(self, run_id: str) -> bool:
        """End the heartbeat of a run and release the lease; return False where this process had none."""
        if (heartbeat := self._heartbeats.pop(run_id, None)) is None:
            return False
        heartbeat.stop(give_back=True)
        return True

    def stop(self) -> None:
        """End all heartbeats without releasing the leases: nobody reported the end of these runs, so leases expire."""
        while self._heartbeats:
            self._heartbeats.popitem()[1].stop(give_back=False)
