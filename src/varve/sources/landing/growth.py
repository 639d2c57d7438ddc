"""What a run reads of partitions that grow: the files that are new, or all of them where one was changed or removed.

A file that the current batch was made from, and that lies there as it was, is not opened.

Not here: comparing names and states (varve/planning/arrivals/growing.py), and what is in a file (landing.py).
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
class _Before:
    """The batch that a partition has, and the parts of which it consists; neither where it is read as a whole."""

    batch: Batch | None = None
    parts: tuple[Part, ...] = ()

    @property
    def files(self) -> tuple[TakenFile, ...]:
        """The files that it was made from."""
        return tuple(file for part in self.parts for file in part.files)


@dataclass(frozen=True)
class Intake:
    """Decides for the partitions of one build which files they read.

    Attributes:
        inspect: looks at whole files, some at once; None for one that is not there.
        again: whether what the same code made of the same files before may stand for a computation: so ask the
            sensors, and no person.
    """

    opened: OpenBuild
    folder: str
    inspect: Callable[[Sequence[str]], Mapping[str, Inspected | None]]
    again: bool
    now: float = field(default_factory=time.time)

    def taken(
        self, listed: Mapping[PartitionKey, Sequence[LandingFile]], unsettled: Collection[str]
    ) -> dict[PartitionKey, list[Inspected]]:
        """By partition all files of which its batch will consist; what is to be read is noted in the build.

        `unsettled` are the URIs of files that are being written. Raises BadInput for a file that cannot be read, or
        that goes while it is looked at, and where one that was taken is being sent again.
        """
        build, catalog = self.opened.build, self.opened.catalog
        current = catalog.current(build.dataset.name, build.partitions)
        batches = {
            key: current[key.path]
            for key in build.partitions
            if key.path in current and current[key.path].batch_id == build.expected[key]
        }
        parts = Parts(catalog.connection)
        known = parts.with_files(build.dataset.name, list(batches.values()))
        versions = parts.code_versions(build.dataset.name, list(batches.values()))
        marked = parts.marked(build.dataset.name, build.paths)
        opened_again = parts.open_again(build.dataset.name)
        arrived = catalog.arrived_files(build.dataset.name)
        found = {}
        for key, files in listed.items():
            batch = batches.get(key)
            before = _Before(batch, known.get(key.path, ()))
            self._refuse_being_sent(key, before.files, unsettled)
            why = ""
            if batch is None:
                why = "its first batch"
            elif key.path not in known:
                why = "its batch does not say which files it was made from"
            elif versions.get(key.path) != build.code_version:
                why = "its code was changed"
            elif key.path in marked:
                why = "it was marked to be made anew"
            closed = closed_since(build.dataset, key, self.now, opened_again) is not None
            since_then = set(arrived[key.path].stamp.split()) if closed and key.path in arrived else None
            found[key] = self._one(key, files, before, why, since_then)
        return found

    def _one(
        self,
        key: PartitionKey,
        files: Sequence[LandingFile],
        before: _Before,
        why: str,
        arrived: set[str] | None,
    ) -> list[Inspected]:
        """One partition; `arrived` are the tokens of the files that came before it was closed."""
        listed = {self._name(file.uri): file for file in files}
        if arrived is not None:
            taken = {file.token for file in before.files}
            if arrived - taken - {file.token for file in files}:
                raise BadInput(
                    f"{self.opened.build.dataset} {key}: a file was removed or changed after the partition was closed, "
                    f"and before it was read. {NOTHING_LOST} Put it back, or open the partition with `varve reopen`."
                )
            listed = {name: file for name, file in listed.items() if file.token in arrived | taken}
        beside = compared(before.files, listed)
        looked = self._inspected(key, [now.uri for _, now in beside.touched])
        changed = [old for old, now in beside.touched if looked[now.uri].fingerprint != old.fingerprint]
        # A closed partition keeps the rows of files that were taken, whatever has become of them; and where all files
        # are gone, somebody keeps them elsewhere now.
        gone = () if arrived is not None or not files else beside.gone
        why = why or why_whole(changed, gone)
        if not why and not beside.new:
            if self.again and folds(self.opened.build.dataset, key, len(before.parts), self.now):
                said = f"{len(before.parts)} parts are put together"
                self.opened.build.growth[key] = Growth(before.files, before.batch, before.parts, fold=True, reason=said)
                return self._unread(before.files)
            why = "it was asked for again, and no file is new"
        if why:
            if arrived is not None and beside.gone:
                names = some([file.name for file in beside.gone], limit=3)
                raise BadInput(
                    f"{self.opened.build.dataset} {key}: {names} cannot be read again as it was taken: it was removed "
                    f"or changed after the partition was closed, which is to be read as a whole: {why}. "
                    f"{NOTHING_LOST} Put it back, or open the partition with `varve reopen`."
                )
            return self._read(key, list(listed.values()), _Before(), f"all files were read: {why}")
        assert before.batch is not None
        said = f"{counted(len(beside.new), 'file')} added to those of batch {before.batch.batch_id}"
        return self._read(key, beside.new, before, said)

    def _refuse_being_sent(self, key: PartitionKey, files: Sequence[TakenFile], unsettled: Collection[str]) -> None:
        """Raise BadInput where a file whose rows are in the batch is being written: its rows would be missing."""
        taken = {file.name for file in files}
        if again := [uri for uri in unsettled if self._name(uri) in taken]:
            raise BadInput(
                f"{self.opened.build.dataset} {key}: {some(again, limit=3)} is being sent again right now. "
                f"{NOTHING_LOST} Run the partition again when it has arrived; the arrival sensor does so by itself."
            )

    def _read(self, key: PartitionKey, files: Sequence[LandingFile], before: _Before, reason: str) -> list[Inspected]:
        """Note that these files are read, and that the rows of the batch before are kept."""
        looked = self._inspected(key, [file.uri for file in files])
        read = [
            TakenFile(self._name(file.uri), file.token, looked[file.uri].fingerprint, looked[file.uri].size)
            for file in files
        ]
        self.opened.build.growth[key] = Growth(tuple(read), before.batch, before.parts, reason=reason)
        return [*self._unread(before.files), *looked.values()]

    def _inspected(self, key: PartitionKey, uris: Sequence[str]) -> dict[str, Inspected]:
        found = self.inspect(uris)
        looked = {uri: one for uri, one in found.items() if one is not None}
        if gone := [uri for uri in uris if uri not in looked]:
            raise BadInput(
                f"{self.opened.build.dataset} {key}: {some(gone, limit=3)} was removed while it was read. "
                f"{NOTHING_LOST} Run the partition again; the arrival sensor does so by itself."
            )
        return looked

    def _unread(self, files: Sequence[TakenFile]) -> list[Inspected]:
        return [Inspected(f"{self.folder}/{file.name}", file.size, file.fingerprint) for file in files]

    def _name(self, uri: str) -> str:
        return uri.removeprefix(f"{self.folder}/")
