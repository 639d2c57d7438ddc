"""Which files a run reads of partitions that grow: the new ones, or all where one was changed or removed.

A file whose rows are in the current batch, and whose state has not changed, is not opened.

Not here: comparing names and states (varve/planning/arrivals/growing.py), and reading a file (rows.py).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varve.catalog.parts import Parts
from varve.model.batch import TakenFile
from varve.model.errors import NOTHING_LOST, BadInput, counted, some
from varve.model.landing.growth import Growth
from varve.planning.arrivals.growing import closed_since, compared, folds, why_whole
from varve.sources.landing.inspected import Inspected

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from varve.model.batch import Batch, Part
    from varve.model.partitions.key import PartitionKey
    from varve.planning.arrivals.landing_file import LandingFile
    from varve.stores.open_build import OpenBuild


@dataclass(frozen=True)
class _CurrentBatch:
    """The current batch of a partition and its parts; None and no parts where the partition is read as a whole."""

    batch: Batch | None = None
    parts: tuple[Part, ...] = ()

    @property
    def files(self) -> tuple[TakenFile, ...]:
        """The files from which the batch was made."""
        return tuple(file for part in self.parts for file in part.files)


@dataclass(frozen=True)
class Intake:
    """Decides for the partitions of one build which files they read.

    Attributes:
        inspect: inspects whole files, several at once; returns None for a file that is not there.
        reuse_allowed: whether a batch that the same code made from the same files may be reused. Runs of sensors may
            reuse it, runs that a person requested may not.
    """

    opened: OpenBuild
    folder: str
    inspect: Callable[[Sequence[str]], Mapping[str, Inspected | None]]
    reuse_allowed: bool
    now: float = field(default_factory=time.time)

    def taken(
        self, listed: Mapping[PartitionKey, Sequence[LandingFile]], unsettled: Collection[str]
    ) -> dict[PartitionKey, list[Inspected]]:
        """For each partition all files of its next batch; the files to read are recorded in the build as `Growth`.

        `unsettled` are the URIs of files that are being written. Raises BadInput for a file that cannot be read, or
        that is removed meanwhile, and where a file that was taken is being sent again.
        """
        build, catalog = self.opened.build, self.opened.catalog
        current = catalog.current(build.dataset.name, build.partitions)
        batches = {
            key: current[key.path]
            for key in build.partitions
            if key.path in current and current[key.path].batch_id == build.expected[key]
        }
        parts = Parts(catalog.connection)
        parts_of_partition = parts.with_files(build.dataset.name, list(batches.values()))
        versions = parts.code_versions(build.dataset.name, list(batches.values()))
        marked = parts.marked(build.dataset.name, build.paths)
        opened_again = parts.open_again(build.dataset.name)
        arrived = catalog.arrived_files(build.dataset.name)
        files_of_partition = {}
        for key, files in listed.items():
            batch = batches.get(key)
            before = _CurrentBatch(batch, parts_of_partition.get(key.path, ()))
            self._refuse_being_sent(key, before.files, unsettled)
            reason_to_read_all = ""
            if batch is None:
                reason_to_read_all = "its first batch"
            elif key.path not in parts_of_partition:
                reason_to_read_all = "its batch does not say which files it was made from"
            elif versions.get(key.path) != build.code_version:
                reason_to_read_all = "its code was changed"
            elif key.path in marked:
                reason_to_read_all = "it was marked to be made anew"
            closed = closed_since(build.dataset, key, self.now, opened_again) is not None
            since_then = set(arrived[key.path].stamp.split()) if closed and key.path in arrived else None
            files_of_partition[key] = self._files_of_partition(key, files, before, reason_to_read_all, since_then)
        return files_of_partition

    def _files_of_partition(
        self,
        key: PartitionKey,
        files: Sequence[LandingFile],
        before: _CurrentBatch,
        reason_to_read_all: str,
        arrived: set[str] | None,
    ) -> list[Inspected]:
        """All files of one partition; `arrived` are the tokens of files that came before it was closed, else None."""
        listed = {self._name(file.uri): file for file in files}
        if arrived is not None:
            taken = {file.token for file in before.files}
            if arrived - taken - {file.token for file in files}:
                raise BadInput(
                    f"{self.opened.build.dataset} {key}: a file was removed or changed after the partition was closed, "
                    f"and before it was read. {NOTHING_LOST} Put it back, or open the partition with `varve reopen`."
                )
            listed = {name: file for name, file in listed.items() if file.token in arrived | taken}
        comparison = compared(before.files, listed)
        inspected = self._inspected(key, [listed_file.uri for _, listed_file in comparison.touched])
        changed = [
            taken_file
            for taken_file, listed_file in comparison.touched
            if inspected[listed_file.uri].fingerprint != taken_file.fingerprint
        ]
        # A closed partition keeps the rows of files that were taken, even if they are changed or gone. Where all files
        # are gone, somebody has archived them elsewhere.
        gone = () if arrived is not None or not files else comparison.gone
        reason_to_read_all = reason_to_read_all or why_whole(changed, gone)
        if not reason_to_read_all and not comparison.new:
            if self.reuse_allowed and folds(self.opened.build.dataset, key, len(before.parts), self.now):
                reason = f"{len(before.parts)} parts are put together"
                self.opened.build.growth[key] = Growth(
                    before.files, before.batch, before.parts, fold=True, reason=reason
                )
                return self._unread(before.files)
            reason_to_read_all = "it was asked for again, and no file is new"
        if reason_to_read_all:
            if arrived is not None and comparison.gone:
                names = some([file.name for file in comparison.gone], limit=3)
                raise BadInput(
                    f"{self.opened.build.dataset} {key}: {names} cannot be read again as it was taken: it was removed "
                    f"or changed after the partition was closed, which is to be read as a whole: {reason_to_read_all}. "
                    f"{NOTHING_LOST} Put it back, or open the partition with `varve reopen`."
                )
            return self._read(key, list(listed.values()), _CurrentBatch(), f"all files were read: {reason_to_read_all}")
        assert before.batch is not None
        reason = f"{counted(len(comparison.new), 'file')} added to those of batch {before.batch.batch_id}"
        return self._read(key, comparison.new, before, reason)

    def _refuse_being_sent(self, key: PartitionKey, files: Sequence[TakenFile], unsettled: Collection[str]) -> None:
        """Raise BadInput where a file whose rows are in the batch is being written: its rows would be missing."""
        taken = {file.name for file in files}
        if sent_again := [uri for uri in unsettled if self._name(uri) in taken]:
            raise BadInput(
                f"{self.opened.build.dataset} {key}: {some(sent_again, limit=3)} is being sent again right now. "
                f"{NOTHING_LOST} Run the partition again when it has arrived; the arrival sensor does so by itself."
            )

    def _read(
        self, key: PartitionKey, files: Sequence[LandingFile], before: _CurrentBatch, reason: str
    ) -> list[Inspected]:
        """Record in the build that these files are read, and that the rows of the batch before are kept."""
        inspected = self._inspected(key, [file.uri for file in files])
        taken_files = [
            TakenFile(self._name(file.uri), file.token, inspected[file.uri].fingerprint, inspected[file.uri].size)
            for file in files
        ]
        self.opened.build.growth[key] = Growth(tuple(taken_files), before.batch, before.parts, reason=reason)
        return [*self._unread(before.files), *inspected.values()]

    def _inspected(self, key: PartitionKey, uris: Sequence[str]) -> dict[str, Inspected]:
        results = self.inspect(uris)
        inspected_files = {uri: inspected for uri, inspected in results.items() if inspected is not None}
        if gone := [uri for uri in uris if uri not in inspected_files]:
            raise BadInput(
                f"{self.opened.build.dataset} {key}: {some(gone, limit=3)} was removed while it was read. "
                f"{NOTHING_LOST} Run the partition again; the arrival sensor does so by itself."
            )
        return inspected_files

    def _unread(self, files: Sequence[TakenFile]) -> list[Inspected]:
        return [Inspected(f"{self.folder}/{file.name}", file.size, file.fingerprint) for file in files]

    def _name(self, uri: str) -> str:
        return uri.removeprefix(f"{self.folder}/")
