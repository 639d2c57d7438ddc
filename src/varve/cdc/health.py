"""Problems of captures that the catalog has recorded, for `varve doctor`.

Not here: the state of slots at the source (captures.py), as the source may be down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cdc.capture.positions import Positions
from varve.model.errors import AlreadyBuilding, counted
from varve.model.inventory import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from varve.cdc.capture.positions import Position


def capture_findings(connection: psycopg.Connection, dataset: str | None) -> Iterator[Finding]:
    """A finding for each captured table that has stopped or waits, or has an unfinished snapshot or a quarantine."""
    positions = Positions(connection)
    for position in positions.all() if positions.exist() else ():
        if dataset in {None, position.dataset}:
            yield from _findings(positions, position)


def captured_sources(connection: psycopg.Connection, dataset: str | None) -> dict[str, str]:
    """The source table of each dataset (None: of all) of which a capture was begun, whether or not it is declared."""
    positions = Positions(connection)
    listed = positions.all() if positions.exist() else []
    return {position.dataset: position.source for position in listed if dataset in {None, position.dataset}}


def _findings(positions: Positions, position: Position) -> Iterator[Finding]:
    name = position.dataset
    if position.state == "stopped":
        yield Finding(name, "", None, f"its capture of {position.source} has stopped", position.reason or "")
    if position.state == "running" and position.reason:
        yield Finding(name, "", None, f"its capture of {position.source} waits", position.reason)
    if position.state == "starting" and not _busy(positions, name):
        command = "resnapshot" if position.generation else "bootstrap"
        text = f"a snapshot of {position.source} was begun and not finished"
        yield Finding(name, "", None, text, f"Take it again: varve cdc {command} {name}")
    if position.quarantined:
        text = f"{counted(position.quarantined, 'event')} of {position.source} could not be decided"
        yield Finding(name, "", None, text, f"`varve cdc quarantine {name}` says why.")


def _busy(positions: Positions, dataset: str) -> bool:
    """Whether a process is taking the snapshot right now."""
    try:
        positions.lock(dataset)
    except AlreadyBuilding:
        return True
    positions.unlock(dataset)
    return False
