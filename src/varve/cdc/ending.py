"""Ends the capture of a dataset that is dropped: its slot and publication at the source, its events, its position.

Until all of that is done, the dataset is in the catalog, and serves its last exact state. Each step may be repeated: a
drop that was killed goes on where it was. What others have put into the landing folder as change files stays.

Not here: ending the dataset itself (catalog/history/drops.py).
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from varve.cdc.capture import source_database
from varve.cdc.capture.event_log import folder_of
from varve.cdc.capture.positions import Positions
from varve.cdc.capture.source_database import SourceDatabase
from varve.cdc.captured_table import slot_name
from varve.cdc.captures import source_url
from varve.model.errors import ServiceUnavailable, VarveError
from varve.services.files import open_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varve.cdc.capture.positions import Position
    from varve.services.settings import Settings


@dataclass(frozen=True)
class EndingCapture:
    """The capture of a dataset that is to be ended; whoever has it holds the lock of the capture.

    Attributes:
        connection: to the catalog, in autocommit mode.
        position: how far the table was captured.
        source_is_gone: whether the source does not exist any more, so that nothing can be removed there.
        step: called with the name of each step before the step is taken; for tests that stop there.
    """

    connection: psycopg.Connection
    settings: Settings
    position: Position
    source_is_gone: bool
    step: Callable[[str], None] = lambda _: None

    @property
    def slot(self) -> str | None:
        """The replication slot that goes; None where changes come from files, or where the source is gone."""
        # Captures of files name no server.
        no_slot = self.source_is_gone or self.position.system_identifier == ""
        return None if no_slot else slot_name(self.position.dataset)

    def refuse(self) -> None:
        """Raise VarveError where the slot at the source cannot be removed now; changes nothing."""
        if self.slot is not None:
            with self._source():
                pass

    def end(self) -> None:
        """Remove slot and publication at the source, then the events, then the position.

        Raises what `refuse` raises, and ServiceUnavailable where somebody reads the slot.
        """
        name, positions = self.position.dataset, Positions(self.connection)
        if self.slot is not None:
            with self._source() as source:
                self.step("stop capture")
                positions.end(name, f"it is being dropped: `varve drop {name}` finishes that")
                self.step("drop slot")
                try:
                    source_database.unpublish_slot(source, self.slot)
                except psycopg.Error as error:
                    raise ServiceUnavailable(
                        f"{name}: its replication slot {self.slot} could not be removed from the source: "
                        f"{str(error).strip()}. The dataset is as it was, and captured no more. Drop it again when "
                        "that is mended."
                    ) from error
        self.step("remove events")
        files, folder = open_files(folder_of(self.settings.lake, name))
        if files.exists(folder):
            files.rm(folder, recursive=True)
        self.step("forget position")
        positions.forget(name)

    @contextmanager
    def _source(self) -> Iterator[psycopg.Connection]:
        """The source, if it is the server that was captured. Raises VarveError."""
        name, before = self.position.dataset, self.position.system_identifier
        instead = (
            f"It keeps its log for the slot {self.slot} until that is dropped. If that server is gone for ever: "
            f"varve drop {name} --source-is-gone"
        )
        try:
            source = SourceDatabase(source_url(self.settings)).connect()
        except VarveError as error:
            raise type(error)(f"{name} is captured from {self.position.source}: {error} {instead}") from error
        with closing(source):
            # A snapshot that was begun and not finished has not noted its server.
            if before is not None and source_database.server(source).system_identifier != before:
                raise VarveError(
                    f"{name} was captured from another server (system {before}) than VARVE_SOURCE_URL leads to. "
                    f"Nothing was changed. {instead}"
                )
            yield source


@contextmanager
def ending_capture(
    connection: psycopg.Connection,
    settings: Settings,
    dataset: str,
    *,
    source_is_gone: bool = False,
    step: Callable[[str], None] = lambda _: None,
) -> Iterator[EndingCapture | None]:
    """The capture of a dataset under its lock; None where it is not captured. Raises AlreadyBuilding."""
    positions = Positions(connection)
    position = positions.find(dataset) if positions.exist() else None
    if position is None:
        yield None
        return
    positions.lock(dataset)
    try:
        yield EndingCapture(connection, settings, position, source_is_gone, step)
    finally:
        positions.unlock(dataset)
