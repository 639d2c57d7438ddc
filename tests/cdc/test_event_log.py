"""The batches of events under the lake's root: each manifest is read once, many at a time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.support.sales import sales_dataset
from tests.support.slow_files import Calls, slow_files
from varve.cdc.capture.event_log import EventLog
from varve.cdc.event import ChangeType, event
from varve.model.dataset import StoreKind
from varve.stores.folders.file_calls import AT_ONCE

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
