"""Batches of events go when they are applied and old; what is needed to go on exactly stays."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from varve.cdc import retention
from varve.cdc.capture.positions import Positions
from varve.cdc.event import ChangeType, event
from varve.services.postgres import connect

if TYPE_CHECKING:
    from tests.cdc.lab import Lab
    from varve.cdc.capture.positions import Position


def position(lab: Lab) -> Position:
    with closing(connect(lab.settings)) as connection:
        return Positions(connection).of(lab.captured.dataset.name)


def put(lab: Lab, number: int) -> int:
    lab.sql(f"insert into {{t}} (w, id) values (1, {number})")
    batch = lab.capture()
    assert batch is not None
    return batch.last_lsn


def test_applied_batches_go_and_the_rest_stays(lab: Lab) -> None:
    first = lab.bootstrap().last_lsn
    lsns = [put(lab, number) for number in range(3)]
    log = lab.log()
    applied = replace(position(lab), applied_lsn=lsns[1])
    assert retention.sweep(log, applied, keep_seconds=3_600) == 0
    assert retention.sweep(log, applied, keep_seconds=0) == 3
    assert [batch.last_lsn for batch in log.batches(1)] == [lsns[2]]
    assert Path(log.batches(1)[0].data).exists()
    # Of the last batch, which says what was captured, the manifest stays.
    assert retention.sweep(log, replace(applied, applied_lsn=lsns[2]), keep_seconds=0) == 1
    assert log.captured(1) == lsns[2] > first
    assert put(lab, 4) > lsns[2]
    assert lab.capture() is None


def test_an_earlier_generation_goes_when_the_new_snapshot_is_applied(lab: Lab) -> None:
    lab.bootstrap()
    put(lab, 1)
    last = lab.bootstrap(resnapshot=True).last_lsn
    now = position(lab)
    assert retention.sweep(lab.log(), now, keep_seconds=0) == 0
    assert len(lab.log().batches(1)) == 2
    assert retention.sweep(lab.log(), replace(now, applied_lsn=last), keep_seconds=0) == 2
    assert lab.log().batches(1) == []


def test_what_a_crash_left_goes_after_a_day(lab: Lab) -> None:
    lab.bootstrap()
    log = lab.log()
    writer = log.writer(1, "stream", ())
    writer.add_events([event(ChangeType.TRUNCATE)])
    old = Path(log.generation(1)) / "events=1357000000000"
    old.mkdir()
    (Path(log.generation(1)) / "quarantine=1-abc").mkdir()
    assert retention.sweep(log, position(lab), keep_seconds=3_600) == 2
    assert not old.exists()
    writer.abandon()
