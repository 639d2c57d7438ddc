"""What to do with each file of a landing folder: take it, wait for it, or reject it and say why. Pure.

Each time, the files that the folder lists are compared with the catalog, file by file. The result does not depend on
how far an earlier comparison came, or on the order of times: files with a wrong or an old time are found like others.

Not here: the folders themselves (varve/sources/landing/landing.py), the content of a file
(varve/sources/formats/checks.py), and the record of rejected arrivals (varve/catalog/rejected.py).
"""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

from varve.model.errors import OutsideDimension, UnknownPartition
from varve.model.partitions.texts import command_words
from varve.model.partitions.windows import WindowState, kept_from, there_from, why_not_there, window_state
from varve.planning.arrivals.growing import closed_since
from varve.planning.arrivals.landing_file import RejectionKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.arrivals.landing_file import LandingFile

# After this time a file that is still being written counts as half written: its sender has died.
HALF_WRITTEN_SECONDS = 3_600.0


# Reasons that were found by reading the file: they hold until the file or the declaration changes.
_UNTIL_CHANGED = {RejectionKind.CONTENT}
_BEING_WRITTEN = {RejectionKind.SETTLING, RejectionKind.HALF_WRITTEN}


@dataclass(frozen=True, slots=True)
class Rejected:
    """An arrival that is not taken. Instants are seconds since 1970 (UTC).

    Attributes:
        since: since when it is there without being taken.
        seen_at: since when it is in its present state.
        until: when it will be taken without a change; None: only a change can help.
        declared: a hash of the declaration of the dataset at the time of the decision.
    """

    uri: str
    kind: RejectionKind
    reason: str
    since: float
    seen_at: float
    partition: str | None = None
    size: int = 0
    stamp: str = ""
    changed_at: float | None = None
    until: float | None = None
    declared: str = ""


@dataclass(frozen=True, slots=True)
class Arrived:
    """The catalog's record of a partition that has arrived: its files and the state in which they were taken."""

    uri: str
    stamp: str


def stamp_of(files: Iterable[LandingFile]) -> str:
    """One text for the files of a partition and their states: their tokens; "" where a file has none."""
    tokens = [file.token for file in files]
    return " ".join(sorted(tokens)) if all(tokens) else ""


@dataclass
class SortedFiles:
    """The decisions about the files of one dataset.

    Attributes:
        take: the partitions whose files should be read now, with these files, oldest first.
        rejected: the files that are not taken, by uri.
        standing: the paths of the partitions that have a file which was taken before or is to be taken now.
    """

    take: list[tuple[PartitionKey, tuple[LandingFile, ...]]] = field(default_factory=list)
    rejected: dict[str, Rejected] = field(default_factory=dict)
    standing: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Sorter:
    """Decides about the files of one dataset at one instant.

    Attributes:
        arrived: the files that were taken before, by the path of their partition.
        before: the files that were rejected the last time, by uri.
        members: the members of dynamic sets.
        now: seconds since 1970.
        settle_seconds: how long a file must be unchanged before it is taken.
        declared: a hash of the declaration of the dataset.
        opened: the paths of closed partitions that a person has reopened.
    """

    dataset: Dataset
    arrived: Mapping[str, Arrived]
    before: Mapping[str, Rejected]
    members: Members | None
    now: float
    settle_seconds: float
    declared: str = ""
    opened: Collection[str] = ()

    def sort(self, files: Iterable[LandingFile]) -> SortedFiles:
        """The decision about each of the files."""
        decisions = SortedFiles()
        files_by_path: dict[str, tuple[PartitionKey, list[LandingFile]]] = {}
        for file in sorted(files, key=attrgetter("changed_at", "key", "uri")):
            key = self._key(file)
            if isinstance(key, Rejected):
                decisions.rejected[file.uri] = key
            else:
                files_by_path.setdefault(key.path, (key, []))[1].append(file)
        for key, files_of_partition in files_by_path.values():
            self._sort_part(decisions, key, files_of_partition)
        return decisions

    def _sort_part(self, decisions: SortedFiles, key: PartitionKey, files: Sequence[LandingFile]) -> None:
        """Decide about the files of one partition: all files that have settled are taken together."""
        arrived = self.arrived.get(key.path)
        stamp = stamp_of(files)
        # Nothing to do where exactly the files that were taken are there, in the same state.
        if arrived is not None and stamp and arrived.stamp == stamp:
            decisions.standing.add(key.path)
            return
        taken = set(arrived.stamp.split()) if arrived is not None else set()
        # A partition that never had a file is late, not closed.
        if arrived is not None and (since := closed_since(self.dataset, key, self.now, self.opened)) is not None:
            late = {file.uri: file for file in files if file.token not in taken and file.changed_at >= since}
            decisions.rejected |= {uri: self._late(file, key, since) for uri, file in late.items()}
            files = [file for file in files if file.uri not in late]
            if all(file.token in taken for file in files):
                decisions.standing.add(key.path)
                return
        bad = {file.uri: file for file in files if self._is_known_bad(file)}
        if bad:
            first = next(iter(bad.values()))
            for file in files:
                is_bad = file.uri in bad
                decisions.rejected[file.uri] = self.before[file.uri] if is_bad else self.beside(file, first, key)
            return
        settled_files = []
        for file in files:
            rejection = None if file.token in taken else self._settled(key, file)
            if rejection is None:
                settled_files.append(file)
            else:
                decisions.rejected[file.uri] = rejection
        if settled_files:
            decisions.standing.add(key.path)
        if len(settled_files) < len(files) and not taken <= {file.token for file in files}:
            # A file that was taken is being sent again: without it rows would be missing that readers have now.
            return
        if settled_files and (
            arrived is None or not stamp_of(settled_files) or stamp_of(settled_files) != arrived.stamp
        ):
            decisions.take.append((key, tuple(settled_files)))

    def beside(self, file: LandingFile, bad: LandingFile, key: PartitionKey) -> Rejected:
        """The rejection of a file because another file of its partition cannot be taken: rows would be missing."""
        return self.rejected(file, RejectionKind.BESIDE, f"{bad.uri} of the same partition cannot be taken", key)

    def _late(self, file: LandingFile, key: PartitionKey, since: float) -> Rejected:
        """The rejection of a file that came or changed after its partition was closed."""
        assert self.dataset.partitioning.time is not None
        at = self.dataset.partitioning.time.shown(int(since))
        words = command_words(key.path)
        return self.rejected(
            file, RejectionKind.CLOSED,
            f"{key} was closed at {at}, and this file came or changed since; `varve reopen {self.dataset} {words} "
            "--reason ...` takes it", key,
        )  # fmt: skip

    def _is_known_bad(self, file: LandingFile) -> bool:
        """Whether its content was read before, in the present state and for this declaration, and was refused."""
        old = self.before.get(file.uri)
        return (
            old is not None and old.stamp == file.stamp and old.kind in _UNTIL_CHANGED and old.declared == self.declared
        )

    def rejected(
        self,
        file: LandingFile,
        kind: RejectionKind,
        reason: str,
        key: PartitionKey | None = None,
        until: float | None = None,
    ) -> Rejected:
        """The rejection of a file, which keeps the times of an earlier rejection where it is the same arrival."""
        old = self.before.get(file.uri)
        same = old is not None and old.stamp == file.stamp
        # A file that is written for a long time is one arrival; a file that came again for another reason is a new one.
        goes_on = old is not None and (same or old.kind is kind or {old.kind, kind} <= _BEING_WRITTEN)
        since = old.since if old is not None and goes_on else self.now
        seen_at = old.seen_at if old is not None and same else self.now
        return Rejected(
            file.uri, kind, reason, since, seen_at, None if key is None else key.path, file.size, file.stamp,
            # As the catalog keeps it: with more digits it would differ from what is there at each look.
            round(file.changed_at, 6), until, self.declared,
        )  # fmt: skip

    def not_there(
        self, key: PartitionKey, changed_at: float | None = None
    ) -> tuple[RejectionKind, str, float | None] | None:
        """Why a partition cannot be taken now, as (kind, reason, from when it can, in seconds); None where it can.

        `changed_at`: since when what would be taken is as it is, which is past where it was there in time.
        """
        partitioning, time = self.dataset.partitioning, self.dataset.partitioning.time
        if not partitioning.exists(key, self.members):
            return RejectionKind.NO_KEY, f"{key} has a key that no dynamic set has; `varve keys add` adds one", None
        if time is None:
            return None
        start = time.start_of(time.value_in(key))
        first, end = self._there
        if first <= start < end:
            return None
        why = why_not_there(time, start, self.now, self.dataset.policy.retention)
        if not why:
            return None
        if window_state(time, start, self.now) is WindowState.UPCOMING:
            begins = there_from(time, start)
            return RejectionKind.EARLY, f"{why.split(',')[0]}; it is taken at {time.shown(begins)}", float(begins)
        retention = self.dataset.policy.retention
        was_in_time = retention is not None and changed_at and kept_from(time, retention, changed_at) <= start < end
        return RejectionKind.PAST if was_in_time else RejectionKind.OUTSIDE, f"{key}: {why}", None

    @cached_property
    def _there(self) -> tuple[int, int]:
        """The instants between which windows begin that are partitions now, in seconds since 1970."""
        time, retention = self.dataset.partitioning.time, self.dataset.policy.retention
        assert time is not None
        first = time.first if retention is None else kept_from(time, retention, self.now)
        return first, time.known_until(dt.datetime.fromtimestamp(self.now, tz=dt.UTC))

    def _key(self, file: LandingFile) -> PartitionKey | Rejected:
        """The partition of a file, or the rejection of the file where it has none that can be taken now."""
        if file.temporary:
            old = self.before.get(file.uri)
            waited = self.now - min(old.since if old is not None else self.now, file.changed_at)
            kind = RejectionKind.HALF_WRITTEN if waited > HALF_WRITTEN_SECONDS else RejectionKind.SETTLING
            return self.rejected(file, kind, "its name says that it is still being written, and nobody has renamed it")
        if file.problem:
            return self.rejected(file, file.kind, file.problem, self._named(file))
        try:
            key = file.partition or self.dataset.partitioning.from_dagster(file.key)
        except OutsideDimension as error:
            return self.rejected(file, RejectionKind.OUTSIDE, str(error))
        except UnknownPartition as error:
            return self.rejected(file, RejectionKind.NO_KEY, str(error))
        reason = self.not_there(key, file.changed_at)
        return key if reason is None else self.rejected(file, reason[0], reason[1], key, reason[2])

    def _named(self, file: LandingFile) -> PartitionKey | None:
        """The partition of a duplicate file, which cannot be taken; None for other files."""
        try:
            return self.dataset.partitioning.from_dagster(file.key) if file.kind is RejectionKind.DUPLICATE else None
        except UnknownPartition:
            return None

    def _settled(self, key: PartitionKey, file: LandingFile) -> Rejected | None:
        """The rejection of a file that may still be being written; None where it has settled."""
        old = self.before.get(file.uri)
        same = old is not None and old.stamp == file.stamp
        if file.changed_at < self.now - self.settle_seconds:
            return None
        # The clock of the writer or our own may be wrong: then only a second look shows that the file stays the same.
        # Strictly later, because a file may be written twice within one tick of a clock.
        if same and old is not None and abs(self.now - old.seen_at) > self.settle_seconds:
            return None
        rejection = self.rejected(file, RejectionKind.SETTLING, "it was written just now", key)
        if self.now - rejection.since > HALF_WRITTEN_SECONDS:
            return self.rejected(
                file, RejectionKind.HALF_WRITTEN, "it is being written since then, and never done", key
            )
        return rejection


def declaration_of(dataset: Dataset) -> str:
    """Return a hash of everything in the dataset's declaration that decides whether a file can be taken."""
    return hashlib.blake2b(repr(dataset).encode(), digest_size=8).hexdigest()
