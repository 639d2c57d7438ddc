"""Conditions of which people are told: each holds or does not, by facts that somebody else has read.

A condition has a stable identity, so that it is told of when it begins and when it ends, and not at every look. `None`
in the place of facts means that they could not be read: such conditions neither begin nor end.

Not here: what was told before (varve/catalog/history/alerts/alerts.py), and to whom it is said
(varve/services/channels.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from varve.model.errors import counted, cut
from varve.model.partitions.own_calendar import Calendar
from varve.planning.arrivals.landing_file import RejectionKind
from varve.planning.judgement.judgement import State
from varve.planning.operations.freshness import FreshnessFacts, late_windows, windows_looked_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.planning.arrivals.arrivals import Rejected
    from varve.planning.judgement.judgement import Judgement

LONGEST = 500
# How the text of an alert begins that has closed although nobody knows that its window has come.
LOOKED_AT_NO_MORE = "looked at no more; when it was last: "
# So long before the last window of a calendar of one's own ends, people are told to write more of them.
_CALENDAR_SECONDS = 30 * 86_400
# After so many attempts in a row that came to nothing people are told that a service is away; the first may be chance.
_OUTAGES = 3
# Rejections that end by themselves as time passes, or that only repeat what another file of the partition has. And what
# was there in time, and is past its retention by now.
_NO_ALERT = {RejectionKind.EARLY, RejectionKind.SETTLING, RejectionKind.PAST}


class AlertKind(StrEnum):
    """What a condition is about; the values are shown to people and kept in the catalog."""

    NOT_FRESH = "not fresh"
    REJECTED = "rejected arrival"
    GIVEN_UP = "given up"
    AWAY = "service away"
    EXPECTATION = "expectation fails"
    CAPTURE = "capture lags"
    PROJECTION = "projection lags"
    DISK = "disk nearly full"
    DAEMON = "daemon has not ticked"
    CALENDAR = "calendar ends"


class AlertIdentity(NamedTuple):
    """What makes two conditions the same one: the kind, the dataset ("" for none) and what it is about there."""

    kind: AlertKind
    dataset: str
    subject: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that holds. `text` says what was found; it may change while the condition lasts."""

    identity: AlertIdentity
    text: str


@dataclass(frozen=True, slots=True)
class AlertLimits:
    """From when on something is too much: the percentage of a disk in use, and seconds of lag."""

    disk_percent: float = 90.0
    lag_seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class FailedExpectation:
    """The newest build of a partition failed by an expectation; `text` is its failure."""

    dataset: str
    partition: str
    text: str


@dataclass(frozen=True, slots=True)
class CaptureFacts:
    """A captured table.

    Attributes:
        reason: why it has stopped, or waits.
        quarantined: how many events could not be decided.
        behind_since: since when changes are captured and not applied, in seconds since 1970; None: all are applied.
        warning: what is wrong at the source: it cannot be reached, or will not keep its log for us much longer.
        unread: why its captured changes could not be read, so that neither of the two is known; else "".
    """

    dataset: str
    state: str
    reason: str = ""
    quarantined: int = 0
    behind_since: float | None = None
    warning: str = ""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class ProjectionFacts:
    """A dataset whose Hive table, Iceberg table or view is not what is current.

    Attributes:
        kind: `Hive table`, `Iceberg table` or `view`.
        since: since when, in seconds since 1970; None: it has stopped, and does not follow by itself.
    """

    dataset: str
    kind: str
    text: str
    since: float | None


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """A file system that holds something of ours: what lies there, its size in use and in all in bytes, and where."""

    names: str
    used: int
    total: int
    machine: str


@dataclass(frozen=True)
class AlertFacts:
    """Everything that conditions depend on, as read at `now`, in seconds since 1970.

    Attributes:
        datasets: the declared datasets by name; of others nothing is told.
        freshness: by dataset with FRESH WITHIN.
        judgements: by dataset and path, of unsettled partitions at least.
        unjudged: the datasets that could not be judged; what is told by their judgements neither begins nor ends.
        outages: by dataset what the last run met that could not reach a service.
        unusable: datasets with open alerts that are declared, but cannot be used as they are written, or read such a
            dataset; nothing that is told of them begins or ends.
        daemon_seen: when Dagster's sensor daemon last gave a sign of life; 0.0: it does so now.
        project: the name of the project that looks; "" for one without a name.
    """

    now: float
    datasets: Mapping[str, Dataset]
    members: Members | None = None
    freshness: Mapping[str, FreshnessFacts] | None = None
    rejected: Sequence[tuple[str, Rejected]] | None = None
    judgements: Mapping[str, Mapping[str, Judgement]] | None = None
    unjudged: Collection[str] = ()
    unusable: Collection[str] = ()
    expectations: Sequence[FailedExpectation] | None = None
    outages: Mapping[str, str] = field(default_factory=dict)
    captures: Sequence[CaptureFacts] | None = None
    projections: Sequence[ProjectionFacts] | None = None
    disks: Sequence[DiskFacts] | None = None
    daemon_seen: float | None = None
    limits: AlertLimits = field(default_factory=AlertLimits)
    project: str = ""

    @property
    def known_kinds(self) -> frozenset[AlertKind]:
        """The kinds whose facts could be read."""
        facts = {
            AlertKind.NOT_FRESH: self.freshness,
            AlertKind.REJECTED: self.rejected,
            AlertKind.GIVEN_UP: self.judgements,
            AlertKind.AWAY: self.judgements,
            AlertKind.EXPECTATION: None if self.judgements is None else self.expectations,
            AlertKind.CAPTURE: self.captures,
            AlertKind.PROJECTION: self.projections,
            AlertKind.DISK: self.disks,
            AlertKind.DAEMON: self.daemon_seen,
            AlertKind.CALENDAR: self.datasets,
        }
        return frozenset(kind for kind, values in facts.items() if values is not None)

    @property
    def windows_looked_at(self) -> list[tuple[str, str]]:
        """The windows of which it is known whether they are there in time, each with its dataset before it."""
        return [
            (name, window)
            for name in self.freshness or {}
            for window in windows_looked_at(self.datasets[name], self.now)
        ]

    @property
    def unknown(self) -> frozenset[tuple[AlertKind, str]]:
        """The kinds whose facts could not be read of one dataset, with that dataset."""
        by_judgements = (AlertKind.GIVEN_UP, AlertKind.AWAY, AlertKind.EXPECTATION)
        return frozenset(
            {(kind, name) for kind in by_judgements for name in self.unjudged}
            | {(AlertKind.CAPTURE, capture.dataset) for capture in self.captures or () if capture.unread}
        )


def conditions(facts: AlertFacts) -> dict[AlertIdentity, Condition]:
    """The conditions that hold by these facts, by identity; a pure function."""
    listed = (
        *_not_fresh(facts), *_rejected(facts), *_given_up(facts), *_away(facts), *_expectations(facts),
        *_captures(facts), *_projections(facts), *_disks(facts), *_daemon(facts), *_calendars(facts),
    )  # fmt: skip
    return {condition.identity: condition for condition in listed}


def _condition(kind: AlertKind, dataset: str, subject: str, text: str) -> Condition:
    return Condition(AlertIdentity(kind, dataset, subject), cut(" ".join(text.split()), LONGEST))


def _not_fresh(facts: AlertFacts) -> Iterator[Condition]:
    for name, freshness in (facts.freshness or {}).items():
        for late in late_windows(facts.datasets[name], freshness, facts.members, facts.now):
            yield _condition(AlertKind.NOT_FRESH, name, late.window, str(late))


def _rejected(facts: AlertFacts) -> Iterator[Condition]:
    for name, arrival in facts.rejected or ():
        if arrival.kind not in _NO_ALERT and name in facts.datasets:
            yield _condition(AlertKind.REJECTED, name, arrival.uri, f"not taken ({arrival.kind}): {arrival.reason}")


def _given_up(facts: AlertFacts) -> Iterator[Condition]:
    for name, judgements in (facts.judgements or {}).items():
        if name in facts.unjudged:
            continue
        for path, judgement in judgements.items():
            if judgement.state is State.FAILED:
                yield _condition(AlertKind.GIVEN_UP, name, path, judgement.reason)


def _away(facts: AlertFacts) -> Iterator[Condition]:
    """One condition for each dataset: an outage is that of all of its partitions, which are tried one after another."""
    for name, judgements in (facts.judgements or {}).items():
        waiting = [judgement.outages for judgement in judgements.values() if judgement.outages >= _OUTAGES]
        if waiting and name not in facts.unjudged:
            tried = f"{counted(len(waiting), 'partition')} tried {max(waiting)} times in a row"
            text = f"{tried}: what it needs was away, full or in use. {facts.outages.get(name, '')}"
            yield _condition(AlertKind.AWAY, name, "", text)


def _expectations(facts: AlertFacts) -> Iterator[Condition]:
    # Whether a failure is settled, only the judgements say.
    if (judgements := facts.judgements) is None:
        return
    for failed in facts.expectations or ():
        if failed.dataset not in facts.datasets or failed.dataset in facts.unjudged:
            continue
        judged = judgements.get(failed.dataset, {}).get(failed.partition)
        # What was changed for that build was taken back since: the batch of before is as it should be.
        settled = judged is None or judged.state in {State.CURRENT, State.ACCEPTED}
        if not (failed.dataset in judgements and settled):
            yield _condition(AlertKind.EXPECTATION, failed.dataset, failed.partition, failed.text)


def _captures(facts: AlertFacts) -> Iterator[Condition]:
    for capture in facts.captures or ():
        if capture.dataset not in facts.datasets:
            continue
        if capture.state == "stopped":
            text = capture.reason or "it has stopped"
            yield _condition(AlertKind.CAPTURE, capture.dataset, "stopped", text)
        if capture.state == "running" and capture.reason:
            yield _condition(AlertKind.CAPTURE, capture.dataset, "waits", capture.reason)
        if capture.quarantined:
            text = f"{capture.quarantined:,} events could not be decided: varve cdc quarantine {capture.dataset}"
            yield _condition(AlertKind.CAPTURE, capture.dataset, "quarantine", text)
        if capture.warning:
            yield _condition(AlertKind.CAPTURE, capture.dataset, "source", capture.warning)
        if capture.unread:
            yield _condition(AlertKind.CAPTURE, capture.dataset, "log", capture.unread)
        since = capture.behind_since
        if capture.state == "running" and since is not None and facts.now - since > facts.limits.lag_seconds:
            minutes = int((facts.now - since) // 60)
            text = f"changes are captured and not applied for {minutes:,} minutes: varve cdc capture {capture.dataset}"
            yield _condition(AlertKind.CAPTURE, capture.dataset, "behind", text)


def _projections(facts: AlertFacts) -> Iterator[Condition]:
    for projection in facts.projections or ():
        too_long = projection.since is None or facts.now - projection.since > facts.limits.lag_seconds
        if projection.dataset in facts.datasets and too_long:
            yield _condition(AlertKind.PROJECTION, projection.dataset, projection.kind, projection.text)


def _disks(facts: AlertFacts) -> Iterator[Condition]:
    for disk in facts.disks or ():
        percent = 100 * disk.used / disk.total if disk.total else 0.0
        if percent >= facts.limits.disk_percent:
            free = (disk.total - disk.used) / 1e9
            size = f"{disk.total / 1e9:,.1f} GB on {disk.machine}"
            text = f"{percent:.0f} % of {size} are in use, {free:,.1f} GB are free"
            yield _condition(AlertKind.DISK, "", _of_project(facts, disk.names), text)


def _daemon(facts: AlertFacts) -> Iterator[Condition]:
    seen = facts.daemon_seen
    if seen and facts.now - seen > facts.limits.lag_seconds:
        minutes = int((facts.now - seen) // 60)
        text = f"no sign of life for {minutes:,} minutes: no sensor looks, and nothing runs by itself"
        yield _condition(AlertKind.DAEMON, "", _of_project(facts, ""), text)


def _of_project(facts: AlertFacts, subject: str) -> str:
    """The subject of what is about no dataset: each project of a catalog has a disk and a daemon of its own."""
    return ": ".join(part for part in (facts.project and f"project {facts.project}", subject) if part)


def _calendars(facts: AlertFacts) -> Iterator[Condition]:
    """The calendars of one's own that have no windows for long: nothing would be planned, and nobody would notice."""
    for name, dataset in facts.datasets.items():
        time = dataset.partitioning.time
        if time is None or time.problem or not isinstance(time.tiling, Calendar):
            continue
        end = time.calendar.extent[1]
        if facts.now < end - _CALENDAR_SECONDS or (time.last is not None and time.last <= end):
            continue
        ends = "ends" if facts.now < end else "has ended"
        text = (
            f"the last window of {time.tiling} {ends} at {time.shown(end)}; nothing is planned behind it: add windows"
        )
        yield _condition(AlertKind.CALENDAR, name, time.tiling.name, text)
