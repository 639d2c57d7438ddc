"""What to do with each file of a landing folder: take it, wait for it, or reject it and say why. Pure.

A look compares what the folder lists with what the catalog knows, file by file. Nothing depends on how far an
earlier look has come, or on the order of times: a file whose clock is wrong, or that keeps an old time, is found like
any other.

Not here: the folders themselves (varve/sources/landing/landing.py), what is in a file (resources/landing_problems.py),
and where rejected arrivals are kept (varve/catalog/rejected.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varve.model.errors import OutsideDimension, UnknownPartition
from varve.model.partitions.windows import WindowState, there_from, why_not_there, window_state
from varve.planning.arrivals.growing import closed_since
from varve.planning.arrivals.landing_file import RejectionKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.arrivals.landing_file import LandingFile

# A file that is still being written after so long is half written: its sender has died.
HALF_WRITTEN_SECONDS = 3_600.0


# What was found by reading the file: it stays true until the file or the declaration changes.
_UNTIL_CHANGED = {RejectionKind.CONTENT}
_BEING_WRITTEN = {RejectionKind.SETTLING, RejectionKind.HALF_WRITTEN}


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something that arrived and is not taken. Instants are seconds since 1970.

    Attributes:
        since: since when it is there and not taken; `seen_at`: since when it is as it is now.
        until: when it is taken by itself; None: when it changes.
        declared: the declaration by which it was judged.
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
    """What the catalog knows of a partition that has arrived: its files and the state in which they were taken."""

    uri: str
    stamp: str


def stamp_of(files: Iterable[LandingFile]) -> str:
    """What stands for the files of one partition and their states: the token of each."""
    tokens = [file.token for file in files]
    return " ".join(sorted(tokens)) if all(tokens) else ""


@dataclass
class SortedFiles:
    """What a look at one dataset has found so far.

    Attributes:
        take: partitions with their files that are to be looked into, the oldest first.
        rejected: what is not taken, by uri.
        standing: the paths of the partitions of which there is something that was taken, or is to be taken now.
    """

    take: list[tuple[PartitionKey, tuple[LandingFile, ...]]] = field(default_factory=list)
    rejected: dict[str, Rejected] = field(default_factory=dict)
    standing: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Sorter:
    """Sorts the files of one dataset as of one moment.

    Attributes:
        arrived: what has been taken before, by the path of its partition.
        before: what was rejected at the last look, by uri.
        members: those of dynamic sets.
        now: in epoch seconds.
        declared: what stands for the declaration of the dataset.
        opened: the paths of closed partitions that a person has opened again.
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
        """What to do with each of the files."""
        look = SortedFiles()
        parts: dict[str, tuple[PartitionKey, list[LandingFile]]] = {}
        for file in sorted(files):
            key = self._key(file)
            if isinstance(key, Rejected):
                look.rejected[file.uri] = key
            else:
                parts.setdefault(key.path, (key, []))[1].append(file)
        for key, there in parts.values():
            self._sort_part(look, key, there)
        return look

    def _sort_part(self, look: SortedFiles, key: PartitionKey, files: Sequence[LandingFile]) -> None:
        """What to do with the files of one partition: all that have settled are taken together."""
        arrived = self.arrived.get(key.path)
        stamp = stamp_of(files)
        # What lies under the names of files that were taken, and is as it was then, needs no look.
        if arrived is not None and stamp and arrived.stamp == stamp:
            look.standing.add(key.path)
            return
        taken = set(arrived.stamp.split()) if arrived is not None else set()
        # What has never had a file was not closed, but late.
        if arrived is not None and (since := closed_since(self.dataset, key, self.now, self.opened)) is not None:
            late = [file for file in files if file.token not in taken and file.changed_at >= since]
            look.rejected |= {file.uri: self._late(file, key, since) for file in late}
            files = [file for file in files if file not in late]
            if all(file.token in taken for file in files):
                look.standing.add(key.path)
                return
        bad = [file for file in files if self._is_known_bad(file)]
        if bad:
            for file in files:
                look.rejected[file.uri] = self.before[file.uri] if file in bad else self.beside(file, bad[0], key)
            return
        settled = []
        for file in files:
            found = None if file.token in taken else self._settled(key, file)
            if found is None:
                settled.append(file)
            else:
                look.rejected[file.uri] = found
        if settled:
            look.standing.add(key.path)
        if settled and (arrived is None or not stamp_of(settled) or stamp_of(settled) != arrived.stamp):
            look.take.append((key, tuple(settled)))

    def beside(self, file: LandingFile, bad: LandingFile, key: PartitionKey) -> Rejected:
        """A file of a partition of which another one cannot be taken: its rows alone would not be the partition."""
        return self.rejected(file, RejectionKind.BESIDE, f"{bad.uri} of the same partition cannot be taken", key)

    def _late(self, file: LandingFile, key: PartitionKey, since: float) -> Rejected:
        """A file of a partition that is closed, in another state than when it was taken or not taken at all."""
        assert self.dataset.partitioning.time is not None
        at = self.dataset.partitioning.time.shown(int(since))
        words = key.path.replace("/", " ")
        return self.rejected(
            file, RejectionKind.CLOSED,
            f"{key} was closed at {at}, and this file came or changed since; `varve reopen {self.dataset} {words} "
            "--reason ...` takes it", key,
        )  # fmt: skip

    def _is_known_bad(self, file: LandingFile) -> bool:
        """Whether it was looked into before, as it is now, and refused for what is in it."""
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
        """A file that is not taken, since when it is so."""
        old = self.before.get(file.uri)
        same = old is not None and old.stamp == file.stamp
        # Whoever writes on and on is one arrival; a file that came anew for another reason is another.
        goes_on = old is not None and (same or old.kind is kind or {old.kind, kind} <= _BEING_WRITTEN)
        since = old.since if old is not None and goes_on else self.now
        seen_at = old.seen_at if old is not None and same else self.now
        return Rejected(
            file.uri, kind, reason, since, seen_at, None if key is None else key.path, file.size, file.stamp,
            file.changed_at, until, self.declared,
        )  # fmt: skip

    def not_there(self, key: PartitionKey) -> tuple[RejectionKind, str, float | None] | None:
        """Why a partition cannot be taken now, and when it can; None where it can."""
        partitioning, time = self.dataset.partitioning, self.dataset.partitioning.time
        if not partitioning.exists(key, self.members):
            return RejectionKind.NO_KEY, f"{key} has a key that no dynamic set has; `varve keys add` adds one", None
        if time is None:
            return None
        start = time.start_of(key[time.name])
        why = why_not_there(time, start, self.now, self.dataset.policy.retention)
        if not why:
            return None
        if window_state(time, start, self.now) is WindowState.UPCOMING:
            begins = there_from(time, start)
            return RejectionKind.EARLY, f"{why.split(',')[0]}; it is taken at {time.shown(begins)}", float(begins)
        return RejectionKind.OUTSIDE, f"{key}: {why}", None

    def _key(self, file: LandingFile) -> PartitionKey | Rejected:
        """The partition that a file is of, or why it is of none that can be taken now."""
        if file.temporary:
            old = self.before.get(file.uri)
            waited = self.now - min(old.since if old is not None else self.now, file.changed_at)
            kind = RejectionKind.HALF_WRITTEN if waited > HALF_WRITTEN_SECONDS else RejectionKind.SETTLING
            return self.rejected(file, kind, "its name says that it is still being written, and nobody has renamed it")
        if file.problem:
            return self.rejected(file, file.kind, file.problem, self._named(file))
        try:
            key = self.dataset.partitioning.from_dagster(file.key)
        except OutsideDimension as error:
            return self.rejected(file, RejectionKind.OUTSIDE, str(error))
        except UnknownPartition as error:
            return self.rejected(file, RejectionKind.NO_KEY, str(error))
        found = self.not_there(key)
        return key if found is None else self.rejected(file, found[0], found[1], key, found[2])

    def _named(self, file: LandingFile) -> PartitionKey | None:
        """The partition that a file which cannot be taken is of all the same: a second file of it."""
        try:
            return self.dataset.partitioning.from_dagster(file.key) if file.kind is RejectionKind.DUPLICATE else None
        except UnknownPartition:
            return None

    def _settled(self, key: PartitionKey, file: LandingFile) -> Rejected | None:
        """Whether a file is no longer being written: None where it is settled."""
        old = self.before.get(file.uri)
        same = old is not None and old.stamp == file.stamp
        if file.changed_at < self.now - self.settle_seconds:
            return None
        # The clock of whoever wrote it, or our own, is wrong: then only looking again tells. Strictly later, as one
        # file may be written twice in one tick of a clock.
        if same and old is not None and abs(self.now - old.seen_at) > self.settle_seconds:
            return None
        found = self.rejected(file, RejectionKind.SETTLING, "it was written just now", key)
        if self.now - found.since > HALF_WRITTEN_SECONDS:
            return self.rejected(
                file, RejectionKind.HALF_WRITTEN, "it is being written since then, and never done", key
            )
        return found
