"""What is done with each file that lies in a landing folder: taken, waited for, or rejected with a reason."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.windows import why_not_there
from varve.model.policy import Policy
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.arrivals.arrivals import HALF_WRITTEN_SECONDS, Arrived, Rejected, SortedFiles, Sorter, stamp_of
from varve.planning.arrivals.landing_file import LandingFile, RejectionKind

SETTLE = 5.0
ZONE = "Europe/Paris"
NOW = pendulum.datetime(2026, 11, 22, 10, tz=ZONE).timestamp()
ROWS = Schema((Column("n", ColumnType.BIGINT),))


def landing(*, end: str | None = None, policy: Policy | None = None) -> Dataset:
    dimension = TimeDimension.of("day", "@daily", "2026-11-01", end, timezone=ZONE)
    return Dataset(
        "t.arriving", Partitioning((dimension,)), ROWS, StoreKind.LAKE, "", landing=True, policy=policy or Policy()
    )


DATASET = landing()


def file(key: str, changed_at: float = NOW - 60, **others: object) -> LandingFile:
    landing_file = LandingFile(changed_at, key, f"/landing/{key}.csv", 10, f"{key} {changed_at}")
    return replace(landing_file, **others)  # type: ignore[arg-type]


def look(
    *files: LandingFile,
    dataset: Dataset = DATASET,
    now: float = NOW,
    before: SortedFiles | None = None,
    arrived: dict[str, Arrived] | None = None,
) -> SortedFiles:
    rejected = before.rejected if before else {}
    return Sorter(dataset, arrived or {}, rejected, None, now, SETTLE, "v1").sort(files)


def taken(decisions: SortedFiles) -> list[str]:
    return [key.path for key, _ in decisions.take]


def kinds(decisions: SortedFiles) -> dict[str, RejectionKind]:
    return {rejection.uri: rejection.kind for rejection in decisions.rejected.values()}


def test_the_file_of_yesterday_and_that_of_today_are_taken_and_that_of_tomorrow_waits_until_it_begins() -> None:
    decisions = look(file("2026-11-21"), file("2026-11-22"), file("2026-11-23"))
    assert taken(decisions) == ["day=2026-11-21", "day=2026-11-22"]
    (early,) = decisions.rejected.values()
    assert (early.kind, early.partition) == (RejectionKind.EARLY, "day=2026-11-23")
    midnight = pendulum.datetime(2026, 11, 23, tz=ZONE).timestamp()
    assert early.until == midnight
    assert "it is taken at 2026-11-23 00:00 Europe/Paris" in early.reason
    # Nobody touches the file, and its time has come.
    assert taken(look(file("2026-11-23"), now=midnight - 1, before=decisions)) == []
    assert taken(look(file("2026-11-23"), now=midnight, before=decisions)) == ["day=2026-11-23"]


def test_windows_ahead_are_taken_as_far_as_they_are_declared() -> None:
    ahead = replace(DATASET, partitioning=DATASET.partitioning.reaching(3))
    decisions = look(file("2026-11-24"), file("2026-11-25"), dataset=ahead)
    assert taken(decisions) == ["day=2026-11-24"]
    assert kinds(decisions) == {"/landing/2026-11-25.csv": RejectionKind.EARLY}


@pytest.mark.parametrize(
    ("key", "kind", "reason"),
    [
        ("2026-10-31", RejectionKind.OUTSIDE, "lies outside dimension day"),
        ("notes", RejectionKind.NO_KEY, "is no key of dimension day"),
        ("2026-11-21T05", RejectionKind.NO_KEY, "is no key of dimension day"),
        ("2026-11-21|EU", RejectionKind.NO_KEY, "must have 1 parts"),
    ],
)
def test_what_is_of_no_partition_is_rejected_with_its_reason(key: str, kind: RejectionKind, reason: str) -> None:
    decisions = look(file(key), file("2026-11-20"))
    assert taken(decisions) == ["day=2026-11-20"]
    assert decisions.rejected[f"/landing/{key}.csv"].kind is kind
    assert reason in decisions.rejected[f"/landing/{key}.csv"].reason


@pytest.mark.parametrize("end_offset", [0, 1, 3])
@pytest.mark.parametrize("kept", [None, dt.timedelta(days=5)])
@pytest.mark.parametrize("tiling", ["0 9-17 * * 1-5", "@hourly", "@monthly"])
def test_the_windows_that_are_there_are_those_for_which_there_is_no_reason(
    tiling: str, kept: dt.timedelta | None, end_offset: int
) -> None:
    """Files that were taken are compared with the first and the last of them, at each look."""
    start_text = "2026-01-01T09:00" if "9" in tiling else "2026-01-01"
    declared = replace(TimeDimension.of("at", tiling, start_text, timezone=ZONE), end_offset=end_offset)
    dataset = replace(DATASET, partitioning=Partitioning((declared,)), policy=Policy(retention=kept))
    time = dataset.partitioning.time
    assert time is not None
    for now in (NOW, NOW - 0.5, NOW - 86_400, NOW + 1_800):
        there = Sorter(dataset, {}, {}, None, now, SETTLE)._there
        start = time.first
        while start < NOW + 40 * 86_400:
            assert (there[0] <= start < there[1]) == (not why_not_there(time, start, now, kept)), (start, now)
            start = time.calendar.next_start(start)


def test_a_series_whose_end_is_today_has_no_today() -> None:
    ending = landing(end="2026-11-22")
    decisions = look(file("2026-11-21"), file("2026-11-22"), dataset=ending)
    assert taken(decisions) == ["day=2026-11-21"]
    assert kinds(decisions) == {"/landing/2026-11-22.csv": RejectionKind.OUTSIDE}


def test_a_file_whose_retention_is_over_is_outside() -> None:
    kept = landing(policy=Policy(retention=dt.timedelta(days=2)))
    decisions = look(file("2026-11-18"), file("2026-11-20"), dataset=kept)
    assert taken(decisions) == ["day=2026-11-20"]
    assert kinds(decisions) == {"/landing/2026-11-18.csv": RejectionKind.OUTSIDE}
    assert "its retention of 2 days" in decisions.rejected["/landing/2026-11-18.csv"].reason


def test_a_file_that_was_there_in_time_is_past_when_its_retention_is_over() -> None:
    kept = landing(policy=Policy(retention=dt.timedelta(days=2)))
    in_time = NOW - 3 * 86_400
    sent = [file("2026-11-18", in_time), file("2026-11-20", in_time), file("2026-11-02", in_time)]
    decisions = look(*sent, dataset=kept)
    assert taken(decisions) == ["day=2026-11-20"]
    # The one of the second came when its own was over.
    assert kinds(decisions) == {sent[0].uri: RejectionKind.PAST, sent[2].uri: RejectionKind.OUTSIDE}
    assert taken(look(*sent, dataset=landing())) == ["day=2026-11-02", "day=2026-11-18", "day=2026-11-20"]


def test_a_second_file_of_a_partition_is_a_duplicate() -> None:
    first = file("2026-11-21")
    second = replace(
        file("2026-11-21"), uri="/landing/2026-11-21.csv.gz", problem="another is", kind=RejectionKind.DUPLICATE
    )
    decisions = look(first, second)
    assert taken(decisions) == ["day=2026-11-21"]
    assert kinds(decisions) == {second.uri: RejectionKind.DUPLICATE}


def test_what_was_taken_stands_as_long_as_something_of_it_is_there_and_settled() -> None:
    first = file("2026-11-21")
    arrived = {"day=2026-11-21": Arrived(first.uri, stamp_of([first]))}
    assert look(first, arrived=arrived).standing == {"day=2026-11-21"}
    assert look(arrived=arrived).standing == set()
    written_again = replace(first, changed_at=NOW - 1, stamp="being written")
    assert look(written_again, arrived=arrived).standing == set()
    beside = replace(written_again, uri="/landing/other.csv")
    assert look(first, beside, arrived=arrived).standing == {"day=2026-11-21"}


def test_all_settled_files_of_a_partition_are_taken_together_and_again_when_another_settles() -> None:
    parts = [replace(file("2026-11-21"), uri=f"/landing/2026-11-21/{number}.csv") for number in range(3)]
    growing = replace(parts[2], changed_at=NOW - 1, stamp="growing")
    decisions = look(*parts[:2], growing)
    ((_, files),) = decisions.take
    assert [landing_file.uri for landing_file in files] == [landing_file.uri for landing_file in parts[:2]]
    assert kinds(decisions) == {growing.uri: RejectionKind.SETTLING}
    arrived = {"day=2026-11-21": Arrived("", stamp_of(files))}
    assert taken(look(*parts[:2], growing, arrived=arrived)) == []
    ((_, all_of_them),) = look(*parts, arrived=arrived).take
    assert list(all_of_them) == parts
    # One that has gone is a change too.
    ((_, less),) = look(parts[0], arrived={"day=2026-11-21": Arrived("", stamp_of(parts))}).take
    assert list(less) == parts[:1]


def test_a_file_that_is_sent_again_is_waited_for_and_the_others_are_not_taken_without_it() -> None:
    first, second = (replace(file("2026-11-21"), uri=f"/landing/2026-11-21/{name}.csv") for name in ("a", "b"))
    arrived = {"day=2026-11-21": Arrived("", stamp_of([first, second]))}
    sent_again = replace(second, changed_at=NOW - 1, stamp="being sent")
    decisions = look(first, sent_again, arrived=arrived)
    assert (taken(decisions), decisions.standing) == ([], {"day=2026-11-21"})
    assert kinds(decisions) == {second.uri: RejectionKind.SETTLING}
    ((_, both),) = look(first, sent_again, now=NOW + 10, before=decisions, arrived=arrived).take
    assert list(both) == [first, sent_again]


def test_a_rejection_is_the_same_when_it_comes_back_from_the_catalog() -> None:
    # A file system counts nanoseconds, and the catalog microseconds.
    at = NOW - 60.123456789
    (rejected,) = look(file("notes", at)).rejected.values()
    assert rejected.changed_at == float(f"{at:.6f}")


def test_a_file_with_a_wrong_clock_that_was_taken_stays_taken_when_another_arrives() -> None:
    future, new = (replace(file("2026-11-21"), uri=f"/landing/2026-11-21/{name}.csv") for name in ("a", "b"))
    future = replace(future, changed_at=NOW + 1e6, stamp="future")
    arrived = {"day=2026-11-21": Arrived("", stamp_of([future]))}
    ((_, files),) = look(future, new, arrived=arrived).take
    assert {landing_file.uri for landing_file in files} == {future.uri, new.uri}


def test_a_refused_file_holds_the_others_of_its_partition_back_until_it_is_mended() -> None:
    bad, good = (replace(file("2026-11-21"), uri=f"/landing/2026-11-21/{name}.csv") for name in ("a", "b"))
    sorter = Sorter(DATASET, {}, {}, None, NOW, SETTLE, "v1")
    key = PartitionKey.of(day=dt.date(2026, 11, 21))
    before = {
        bad.uri: sorter.rejected(bad, RejectionKind.CONTENT, "no header", key), good.uri: sorter.beside(good, bad, key)
    }  # fmt: skip
    again = Sorter(DATASET, {}, before, None, NOW + 60, SETTLE, "v1").sort([bad, good])
    assert (again.take, kinds(again)) == ([], {bad.uri: RejectionKind.CONTENT, good.uri: RejectionKind.BESIDE})
    mended = Sorter(DATASET, {}, before, None, NOW + 60, SETTLE, "v1").sort([replace(bad, stamp="mended"), good])
    assert taken(mended) == [key.path]
    assert mended.rejected == {}


def test_what_was_taken_is_not_looked_at_again_until_anything_of_it_changes() -> None:
    first = file("2026-11-21")
    arrived = {"day=2026-11-21": Arrived(first.uri, stamp_of([first]))}
    assert taken(look(first, arrived=arrived)) == []
    # An old time, a smaller size, a time before the one it had: any other state is a change.
    for changed in (replace(first, stamp="other"), file("2026-11-21", 5.0)):
        assert taken(look(changed, arrived=arrived)) == ["day=2026-11-21"]


def test_a_file_that_was_written_just_now_waits_and_keeps_no_other_from_being_taken() -> None:
    decisions = look(file("2026-11-20", NOW - 1), file("2026-11-21"))
    assert taken(decisions) == ["day=2026-11-21"]
    assert kinds(decisions) == {"/landing/2026-11-20.csv": RejectionKind.SETTLING}
    assert taken(look(file("2026-11-20", NOW - 1), now=NOW + 10, before=decisions)) == ["day=2026-11-20"]


def test_a_file_of_the_future_is_taken_when_it_has_stayed_as_it_is() -> None:
    later = file("2026-11-21", NOW + 1e6)
    first = look(later)
    assert taken(first) == []
    assert taken(look(later, now=NOW + 1, before=first)) == []
    assert taken(look(later, now=NOW + 6, before=first)) == ["day=2026-11-21"]
    # Or the clock has gone back, by hours.
    assert taken(look(later, now=NOW - 7_200, before=first)) == ["day=2026-11-21"]
    # One that changes meanwhile has not stayed.
    assert taken(look(replace(later, stamp="other"), now=NOW + 6, before=first)) == []


def test_what_is_written_for_an_hour_is_half_written_until_it_settles() -> None:
    at, decisions = NOW, look(file("2026-11-21", NOW))
    for _ in range(8):
        at += HALF_WRITTEN_SECONDS / 7
        decisions = look(file("2026-11-21", at), now=at, before=decisions)
    assert kinds(decisions) == {"/landing/2026-11-21.csv": RejectionKind.HALF_WRITTEN}
    assert decisions.rejected["/landing/2026-11-21.csv"].since == NOW
    again = look(file("2026-11-21", at + 60), now=at + 60, before=decisions)
    assert kinds(again) == kinds(decisions)
    assert taken(look(file("2026-11-21", at + 60), now=at + 70, before=again)) == ["day=2026-11-21"]


@pytest.mark.parametrize("age", [0.0, HALF_WRITTEN_SECONDS + 1])
def test_a_temporary_name_that_stays_is_half_written(age: float) -> None:
    part = file("2026-11-21.csv.part", NOW - age, temporary=True)
    decisions = look(part)
    assert kinds(decisions) == {part.uri: RejectionKind.HALF_WRITTEN if age else RejectionKind.SETTLING}
    assert kinds(look(part, before=decisions)) == kinds(decisions)


def test_a_file_whose_content_was_refused_is_looked_into_again_when_it_or_its_declaration_changes() -> None:
    bad = file("2026-11-21")
    sorter = Sorter(DATASET, {}, {}, None, NOW, SETTLE, "v1")
    key = PartitionKey.of(day=dt.date(2026, 11, 21))
    before = {bad.uri: sorter.rejected(bad, RejectionKind.CONTENT, "no header", key)}
    again = Sorter(DATASET, {}, before, None, NOW + 60, SETTLE, "v1").sort([bad])
    assert (taken(again), again.rejected) == ([], before)
    assert taken(Sorter(DATASET, {}, before, None, NOW + 60, SETTLE, "v1").sort([replace(bad, stamp="new")])) == [
        key.path
    ]
    assert taken(Sorter(DATASET, {}, before, None, NOW + 60, SETTLE, "v2").sort([bad])) == [key.path]
    # What could not be read may be read the next time.
    unread = {bad.uri: sorter.rejected(bad, RejectionKind.UNREADABLE, "lost", key)}
    assert taken(Sorter(DATASET, {}, unread, None, NOW + 60, SETTLE, "v1").sort([bad])) == [key.path]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["2026-11-20", "2026-11-21", "2026-11-22", "2026-11-23", "2026-11-24", "x", "2099-01-01"]),
            st.sampled_from([NOW - 1e6, NOW - 60, NOW - 1, NOW, NOW + 60, NOW + 1e6]),
        ),
        unique_by=lambda pair: pair[0],
    ),
    st.sampled_from([NOW, NOW - 10_800, NOW + 10_800]),
)
def test_every_file_is_taken_or_told_and_one_partition_has_one_file(files: list[tuple[str, float]], now: float) -> None:
    listed = [file(*arguments) for arguments in files]
    decisions = look(*listed, now=now)
    take = {landing_file.uri for _, part in decisions.take for landing_file in part}
    assert take | set(decisions.rejected) == {landing_file.uri for landing_file in listed}
    assert not take & set(decisions.rejected)
    assert len(set(taken(decisions))) == len(decisions.take)
    assert all(isinstance(rejection, Rejected) and rejection.reason for rejection in decisions.rejected.values())


def test_bad_files_of_one_partition_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,000 of them that took 2.4 s, at every look."""
    files = [file("2026-11-21", uri=f"/landing/2026-11-21-{number}.csv") for number in range(50)]
    bad = [each for number, each in enumerate(files) if number % 3]
    sorter = Sorter(DATASET, {}, {}, None, NOW, SETTLE, "v1")
    before = SortedFiles(rejected={each.uri: sorter.rejected(each, RejectionKind.CONTENT, "bad") for each in bad})
    compared: list[object] = []
    monkeypatch.setattr(LandingFile, "__eq__", lambda one, other: bool(compared.append(other)) or one is other)
    decisions = look(*files, before=before)
    assert not compared
    uris = [each.uri for each in bad]
    assert sorted(uri for uri, kind in kinds(decisions).items() if kind is RejectionKind.CONTENT) == sorted(uris)
    assert len(decisions.rejected) == 50


def test_two_dimensions_in_a_name_are_one_partition() -> None:
    region = StaticDimension("region", ("EU", "US"))
    both = replace(DATASET, partitioning=Partitioning((*DATASET.partitioning.dimensions, region)))
    decisions = look(file("2026-11-21|EU"), file("2026-11-21|CN"), file("2026-11-23|EU"), dataset=both)
    assert taken(decisions) == ["day=2026-11-21/region=EU"]
    assert sorted(kinds(decisions).values()) == [RejectionKind.EARLY, RejectionKind.NO_KEY]
