"""The batches of events under the lake's root: each manifest is read once, many at a time."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.sales import sales_dataset
from tests.support.slow_files import Calls, slow_files
from varve.cdc.capture import event_log
from varve.cdc.capture.event_log import EventLog
from varve.cdc.event import ChangeType, event
from varve.model.dataset import StoreKind
from varve.stores.folders.file_calls import AT_ONCE

if TYPE_CHECKING:
    import pytest

    from varve.cdc.capture.batch_writer import EventBatch

BATCHES = 60


def test_a_process_that_looks_again_and_again_reads_only_what_is_new(tmp_path: Path) -> None:
    """As the ticks of a capture and of the alerts do, each with a log of its own: a week of batches is kept."""
    dataset = sales_dataset(StoreKind.LAKE)

    def captured(lsn: int) -> Path:
        writer = EventLog(str(tmp_path), dataset).writer(1, "stream", ())
        writer.add_events([event(ChangeType.TRUNCATE)])
        return Path(writer.finish(lsn).location)

    folders = [captured(lsn) for lsn in (1, 2, 3)]
    with slow_files() as far_away:
        root = f"hdfs://{tmp_path}"

        def ticks(count: int) -> list[list[int]]:
            return [[each.last_lsn for each in EventLog.remembered(root, dataset).batches(1)] for _ in range(count)]

        far_away.calls = Calls()
        assert ticks(5) == [[1, 2, 3]] * 5
        assert far_away.calls.of["open"] == 3
        captured(4)
        shutil.rmtree(folders[0])
        assert ticks(2) == [[2, 3, 4]] * 2
        assert far_away.calls.of["open"] == 4
        # What has gone is not remembered either, or the memory of the process would grow from month to month.
        assert len(EventLog.remembered(root, dataset).seen) == 3


def test_many_manifests_are_copied_into_one_file_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = sales_dataset(StoreKind.LAKE)
    monkeypatch.setattr(event_log, "MANY_MANIFESTS", 20)

    def captured(count: int, first: int) -> list[EventBatch]:
        made = []
        for lsn in range(first, first + count):
            writer = EventLog(str(tmp_path), dataset).writer(1, "stream", ("id",))
            writer.add_events([event(ChangeType.INSERT, new={"id": "1"}, commit_lsn=lsn, seq=1)])
            horizon, others = (lsn, 1), {"public.x": lsn}
            made.append(writer.finish(lsn, filenode=7, horizon=horizon, late=2, others=others, snapshot=(5, 6)))
        return made

    with slow_files() as far_away:
        root = f"hdfs://{tmp_path}"

        def new_process() -> tuple[list[EventBatch], int]:
            """What a new process finds, and how many files it reads for that; then it sweeps."""
            log = EventLog(root, dataset)
            far_away.calls = Calls()
            found, opened = log.batches(1), far_away.calls.of["open"]
            log.copy_manifests(1)
            return [
                dataclasses.replace(batch, location=batch.location.removeprefix("hdfs://")) for batch in found
            ], opened

        batches = captured(19, 1)
        assert [new_process() for _ in range(2)] == [(batches, 19)] * 2
        batches += captured(11, 20)
        # The copies are looked for, and there are none yet.
        assert new_process() == (batches, 31)
        assert new_process() == (batches, 1)
        batches += captured(5, 31)
        shutil.rmtree(batches.pop(3).location)
        assert [new_process() for _ in range(2)] == [(batches, 6)] * 2
        # Lost, they are made again.
        (tmp_path / "_changes" / dataset.name.replace(".", "/") / "generation=1" / "manifests.parquet").unlink()
        assert new_process() == (batches, 35)
        assert new_process() == (batches, 1)


def test_a_manifest_is_read_once_however_often_the_batches_are_asked_for(tmp_path: Path) -> None:
    dataset = sales_dataset(StoreKind.LAKE)
    writer = EventLog(str(tmp_path), dataset).writer(1, "stream", ())
    writer.add_events([event(ChangeType.TRUNCATE)])
    first = Path(writer.finish(1).location)

    def made(number: int) -> Path:
        folder = first.parent / f"events={number}"
        shutil.copytree(first, folder)
        manifest = json.loads((folder / "_varve.json").read_text(encoding="utf-8"))
        (folder / "_varve.json").write_text(json.dumps({**manifest, "last_lsn": number}), encoding="utf-8")
        return folder

    folders = [made(number) for number in range(2, BATCHES + 1)]
    with slow_files() as far_away:
        log = EventLog(f"hdfs://{tmp_path}", dataset)
        far_away.calls = Calls()
        for _ in range(3):
            assert [batch.last_lsn for batch in log.batches(1)] == list(range(1, BATCHES + 1))
        assert far_away.calls.of == {"exists": 3, "ls": 3, "open": BATCHES}
        assert AT_ONCE // 2 <= far_away.calls.most_at_once <= AT_ONCE
        # One that comes is seen, as soon as it is whole, and one that goes is not.
        (first.parent / "events=61").mkdir()
        assert log.captured(1) == BATCHES
        (first.parent / "events=61").rmdir()
        made(61)
        assert log.captured(1) == BATCHES + 1
        shutil.rmtree(folders[0])
        assert [batch.last_lsn for batch in log.batches(1)] == [1, *range(3, BATCHES + 2)]
