"""Changes that come as files: the same histories end in the same table, each file once, nothing lost or guessed."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem
from pyarrow.fs import LocalFileSystem as LocalFiles
from rich.console import Console

from tests.cdc.formats import KEY, as_debezium, as_events, as_wal2json, as_wal2json_v1, decoded
from tests.cdc.lab import DEFAULT, FULL, SCHEMA, UNKEYED, Application, Killed, Lab
from tests.cdc.test_fleet import OpenSpark
from tests.cdc.waits import until
from tests.support.project import PROJECT
from varve.cdc import retention
from varve.cdc.capture.change_files import FileCapture
from varve.cdc.capture.event_log import EventLog
from varve.cdc.capture.positions import Positions
from varve.cdc.captured_table import VALIDITY, CapturedTable, ChangeFiles, ChangeFormat, SourceRefused
from varve.cdc.captures import opened
from varve.cdc.event import ChangeType, event, format_lsn
from varve.cdc.resolve.event_frame import arrow_table
from varve.cli.captures import cdc as cdc_command
from varve.dagster.assets.captured import capture_job, capture_sensor
from varve.model.errors import BadInput, ServiceUnavailable, VarveError
from varve.model.schema import Schema
from varve.services.ports import free_port
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from varve.cdc.event import ChangeEvent
    from varve.services.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

WRITTEN = {
    ChangeFormat.WAL2JSON: as_wal2json, ChangeFormat.WAL2JSON_V1: as_wal2json_v1,
    ChangeFormat.DEBEZIUM: as_debezium, ChangeFormat.EVENTS: as_events,
}  # fmt: skip


COLUMNS_WITHOUT_KEY = [column.name for column in SCHEMA.columns if column.name not in KEY]


@pytest.fixture(autouse=True)
def _unsettled(settings: Settings) -> None:
    assert settings.settle_seconds == 0


def followed(lab: Lab, kind: ChangeFormat, *, history: bool = False) -> Lab:
    """The same table by way of files."""
    dataset = dataclasses.replace(
        lab.captured.dataset, name=f"{lab.captured.dataset.db}.{kind}{'_history' if history else ''}",
        schema=Schema((*SCHEMA.columns, *VALIDITY)) if history else SCHEMA,
    )  # fmt: skip
    key = () if lab.kind == UNKEYED else KEY
    other = object.__new__(Lab)
    other.__dict__ |= lab.__dict__
    other.captured = CapturedTable(
        dataset, lab.captured.source, lab.captured.partition_by, history=history, files=ChangeFiles(kind, key)
    )
    return other


def put(lab: Lab, name: str, lines: Iterable[str]) -> Path:
    dataset = lab.captured.dataset
    path = Path(lab.settings.landing) / "_changes" / dataset.db / dataset.table / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def take(lab: Lab) -> int:
    """Capture and apply all files; how many partitions were published."""
    with opened(lab.captured, lab.settings) as capture:
        capture.capture()
        done = capture.apply(open_store, lab.spark, "test")
        assert done is None or done.quarantined == 0
        return len(done.published) if done else 0


# What is sent whole with a key is resolved as the first, and sent as the last: `make torture` has it too.
@pytest.mark.parametrize(
    "kind", [DEFAULT, pytest.param(FULL, marks=pytest.mark.slow), pytest.param(UNKEYED, marks=pytest.mark.slow)]
)
def test_the_same_history_through_all_three_ends_in_the_same_table(make_lab: Callable[..., Lab], kind: str) -> None:
    lab = make_lab(kind)
    lab.bootstrap()
    sessions = [Application(lab, workload, workload, 150, truncates=True) for workload in range(3)]
    for session in sessions:
        session.start()
    for session in sessions:
        session.join(timeout=120)
    events = decoded(lab)
    while lab.capture() is not None:
        pass
    lab.apply()
    expected = lab.in_source()
    assert lab.in_lake() == expected
    written = {
        ChangeFormat.WAL2JSON: as_wal2json, ChangeFormat.DEBEZIUM: as_debezium, ChangeFormat.EVENTS: as_events,
    }  # fmt: skip
    for format_, lines in written.items():
        other = followed(lab, format_)
        for number, part in enumerate(thirds(events)):
            put(other, f"{number:04}.jsonl", lines(lab.table, part))
        take(other)
        assert other.in_lake() == expected


def thirds(events: list[ChangeEvent]) -> list[list[ChangeEvent]]:
    transactions = [list(group) for _, group in groupby(events, key=lambda event: event.commit_lsn)]
    cut = len(transactions) // 3
    parts = transactions[:cut], transactions[cut : 2 * cut], transactions[2 * cut :]
    return [list(chain.from_iterable(part)) for part in parts]


def transaction(lab: Lab, lsn: int, *changes: tuple[str, int, str | None]) -> list[str]:
    """A transaction of wal2json: (action, id, note) each."""
    schema, _, table = lab.table.partition(".")
    end = {"xid": lsn, "nextlsn": format_lsn(lsn), "timestamp": f"2013-01-05 10:00:{lsn % 60:02}+00"}
    lines = [json.dumps({"action": "B", **end})]
    for action, number, note in changes:
        key = [{"name": "w", "type": "integer", "value": 1}, {"name": "id", "type": "integer", "value": number}]
        rest = [{"name": column.name, "type": "text", "value": note if column.name == "note" else None}
                for column in SCHEMA.columns[2:]]  # fmt: skip
        values = {"columns": [*key, *rest]} if action != "D" else {}
        identity = {"identity": key} if action != "I" else {}
        lines.append(json.dumps({"action": action, "schema": schema, "table": table, **values, **identity}))
    return [*lines, json.dumps({"action": "C", **end})]


def notes(lab: Lab, where: str = "true") -> list[tuple[int, str]]:
    with lab.lake() as frame:
        return sorted((tuple(row) for row in frame.where(where).select("id", "note").collect()), key=repr)


def late(lab: Lab) -> int:
    return sum(batch.late for batch in lab.log().batches(1))


def test_each_file_is_taken_once_and_late_events_do_not_turn_the_state_back(lab: Lab) -> None:
    state, history = (followed(lab, ChangeFormat.WAL2JSON, history=kept) for kept in (False, True))
    for captured_table in (state, history):
        first = transaction(captured_table, 10, ("I", 1, "a"), ("I", 2, "b"))
        put(captured_table, "1.jsonl", [*first, *transaction(captured_table, 30, ("D", 2, None))])
        assert take(captured_table) > 0
        # 01: the same lines in another file; 03 and 11: an update that is older than what is known.
        put(captured_table, "2.jsonl", first)
        put(captured_table, "3.jsonl", transaction(captured_table, 20, ("U", 1, "between"), ("U", 2, "late")))
        put(captured_table, "4.jsonl", transaction(captured_table, 40, ("U", 1, "now")))
        take(captured_table)
        assert take(captured_table) == 0
    assert notes(state) == [(1, "now")]
    assert (late(state), late(history)) == (4, 4)
    assert notes(history, "valid_to_lsn is null") == [(1, "now")]
    assert notes(history) == [(1, "a"), (1, "between"), (1, "now"), (2, "b"), (2, "late")]


def numbered_event(kind: str, lsn: int, key: int | None = None, old: int | None = None, **more: Any) -> str:
    """A line of EVENTS with its place."""
    names = ["w", *COLUMNS_WITHOUT_KEY, "id"]
    change = {"changeType": kind, "timestamp": f"2026-11-01T10:00:{lsn}Z", "commitLsn": lsn, "seq": more.get("seq", 1)}
    if key is not None:
        values = [more.get("note") if name == "note" else None for name in COLUMNS_WITHOUT_KEY]
        change |= {"columnNames": names, "columnValues": ["1", *values, str(key)]}
    if old is not None:
        change |= {"oldKeyNames": ["w", "id"], "oldKeyValues": ["1", str(old)]}
    return json.dumps(change)


def test_a_history_has_all_of_a_transaction_that_is_cut_into_files_wherever_it_is_cut(lab: Lab) -> None:
    line = numbered_event
    lines = [
        line("insert", 10, 1, seq=1, note="a"), line("insert", 10, 2, seq=2, note="a"),
        line("update", 10, 1, 1, seq=3, note="b"), line("delete", 10, old=2, seq=4), line("insert", 10, 3, seq=5),
        line("insert", 20, 4, seq=1), line("truncate", 20, seq=2), line("insert", 20, 5, seq=3),
        line("update", 20, 6, 5, seq=4, note="c"),
    ]  # fmt: skip
    expected = [(1, "b", 10, 20), (3, None, 10, 20), (6, "c", 20, None)]
    history = followed(lab, ChangeFormat.EVENTS, history=True)
    for number, each in enumerate(lines):
        put(history, f"{number}.jsonl", [each])
        take(history)
    names = ("id", "note", "valid_from_lsn", "valid_to_lsn")
    for again in ([], lines[:1], lines[4:7]):
        put(history, f"{len(again)}-again.jsonl", again)
        take(history)
        with history.lake() as frame:
            assert sorted(tuple(row) for row in frame.select(*names).collect()) == expected


@pytest.mark.parametrize("again", [False, True], ids=["once", "each file twice"])
def test_a_row_that_comes_late_ends_where_a_delete_before_it_has_found_none(lab: Lab, *, again: bool) -> None:
    line = numbered_event
    history = followed(lab, ChangeFormat.EVENTS, history=True)
    taken = [line("delete", 30, old=1), line("update", 30, key=3, old=2, seq=2), line("truncate", 40)]
    put(history, "1.jsonl", [*taken, line("insert", 50, key=5)])
    take(history)
    put(history, "2.jsonl", [line("insert", 20, 1), line("insert", 20, 2, seq=2), line("insert", 35, 4)])
    take(history)
    if again:
        put(history, "3.jsonl", [*taken, line("insert", 20, 1)])
        take(history)
    with history.lake() as frame:
        versions = sorted(tuple(row) for row in frame.select("id", "valid_from_lsn", "valid_to_lsn").collect())
    assert versions == [(1, 20, 30), (2, 20, 30), (3, 30, 40), (4, 35, 40), (5, 50, None)]


def test_a_file_that_cannot_be_taken_is_named_and_nothing_after_it_is_taken(lab: Lab) -> None:
    other = followed(lab, ChangeFormat.WAL2JSON)
    put(other, "1.jsonl", transaction(other, 10, ("I", 1, "a")))
    assert take(other) == 1
    whole = transaction(other, 20, ("I", 2, "b"))
    put(other, "3.jsonl", transaction(other, 30, ("I", 3, "c")))
    for lines, message in ((["{"], "line 1 is no JSON"), (whole[:-1], "end within a transaction, of which 1 changes")):
        broken = put(other, "2.jsonl", lines)
        with pytest.raises(BadInput, match=rf"(?s)2\.jsonl cannot be taken.*{message}.*serves its last exact state"):
            take(other)
        assert notes(other) == [(1, "a")]
    put(other, broken.name, whole)
    assert take(other) > 0
    assert notes(other) == [(1, "a"), (2, "b"), (3, "c")]
    put(other, "1.jsonl", whole)
    with pytest.raises(BadInput, match="was taken, and has other content now"):
        take(other)


def test_what_is_no_file_or_may_not_be_read_is_named_and_never_waited_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = followed(lab, ChangeFormat.WAL2JSON)
    folder = put(other, "3.jsonl", transaction(other, 30, ("I", 3, "c"))).parent
    path, us, read = folder / "2.json", os.geteuid(), LocalFileSystem.cat_file

    def as_somebody(files: LocalFileSystem, place: str, *args: object, **more: object) -> object:
        os.seteuid(us or (65_534 if path.exists() else 0))  # who may not read everything
        try:
            return read(files, place, *args, **more)
        finally:
            os.seteuid(us)

    monkeypatch.setattr(LocalFileSystem, "cat_file", as_somebody)
    kinds: dict[str, Callable[[], object]] = {
        "a directory lies where": path.mkdir,
        "something else lies where": lambda: os.mkfifo(path),
        "it is a link to nothing": lambda: path.symlink_to(folder / "nowhere"),
        "it is a link that cannot be followed: Too many": lambda: path.symlink_to(path),
        "it may not be read: Permission denied": lambda: path.touch(0),
    }
    with other.catalog() as catalog:
        capture = FileCapture(other.captured, other.settings.landing, Positions(catalog.connection), other.log())
        for problem, make in kinds.items():
            make()
            with pytest.raises(BadInput, match=rf"{path} cannot be taken: {problem}.*serves its last exact state"):
                capture.capture()
            path.rmdir() if path.is_dir() else path.unlink()
        assert capture.capture() is not None


def test_a_file_in_hdfs_is_not_taken_while_it_is_written(lab: Lab, tmp_path: Path) -> None:
    (path := tmp_path / "1.jsonl").write_text("")
    # As HDFS lists it.
    info = ArrowFSWrapper(LocalFiles()).info(str(path))
    with lab.catalog() as catalog:
        capture = FileCapture(lab.captured, str(tmp_path), Positions(catalog.connection), lab.log(), settle_seconds=60)
        assert capture._is_unsettled(info)
        assert not capture._is_unsettled({**info, "mtime": info["mtime"] - dt.timedelta(minutes=2)})


def test_files_are_found_below_folders_of_any_name(lab: Lab, tmp_path: Path) -> None:
    other = followed(lab, ChangeFormat.WAL2JSON)
    other.settings = lab.settings.model_copy(update={"landing_root": str(tmp_path / "[in] 1?*")})
    put(other, "1.jsonl", transaction(other, 10, ("I", 1, "a")))
    put(other, "1.txt", [])
    log = EventLog(str(tmp_path / "[lake]"), other.captured.dataset)
    with other.catalog() as catalog:
        capture = FileCapture(other.captured, other.settings.landing, Positions(catalog.connection), log)
        assert capture.left_alone() == ["1.txt"]
        assert capture.capture() is not None
        assert capture.capture() is None
    assert [batch.file[0] for batch in log.batches(1)] == ["1.jsonl"]


def test_what_came_before_a_file_that_cannot_be_taken_is_applied_and_then_the_error_comes(
    lab: Lab, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = followed(lab, ChangeFormat.WAL2JSON)
    put(other, "1.jsonl", transaction(other, 10, ("I", 1, "a")))
    put(other, "2.jsonl", ["{"])
    job, instance = capture_job(other.captured, PROJECT), dg.DagsterInstance.ephemeral()
    sensor = capture_sensor(other.captured, PROJECT, job)
    asked = sensor(dg.build_sensor_context(instance))
    assert isinstance(asked, dg.SensorResult)
    (request,) = asked.run_requests or ()
    assert "1 to apply; then capture stopped" in request.tags["why"]
    done = job.execute_in_process(instance=instance, resources={"spark": OpenSpark(spark)}, raise_on_error=False)
    assert not done.success
    assert [event.partition for event in done.all_events if event.is_step_materialization] == ["1"]
    assert notes(other) == [(1, "a")]
    # Nothing is left to apply.
    nothing = sensor(dg.build_sensor_context(instance))
    assert isinstance(nothing, dg.SkipReason)
    assert "Nothing was captured" in str(nothing.skip_message)
    put(other, "2.jsonl", transaction(other, 20, ("I", 2, "b")))
    put(other, "3.jsonl", ["{"])
    monkeypatch.setattr(cdc_command, "find", lambda _: other.captured)
    with pytest.raises(BadInput, match=r"3\.jsonl cannot be taken"):
        cdc_command.capture(Console(), other.captured.dataset.name, as_json=True)
    assert notes(other) == [(1, "a"), (2, "b")]


def test_what_was_captured_is_applied_also_where_the_source_is_down(lab: Lab) -> None:
    lab.sql("insert into {t} (w, id) values (1, 1)")
    lab.bootstrap()
    down = lab.settings.model_copy(update={"source_url": "postgresql://nobody@127.0.0.1:1/none"})
    with opened(lab.captured, down) as capture:
        events, stop = capture.capture_to_stop()
        assert (events, type(stop)) == (0, ServiceUnavailable)
        assert capture.apply_before_stop(stop, open_store, lab.spark, "test") is not None
        with pytest.raises(ServiceUnavailable, match="cannot be reached"):
            capture.capture_to_stop()
    assert lab.in_lake() == lab.in_source()


def test_a_capture_of_many_files_reads_each_once_unless_it_changes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    other = followed(lab, ChangeFormat.WAL2JSON)
    for number in range(1, 6):
        put(other, f"{number}.jsonl", transaction(other, number * 10, ("I", number, "a")))
    reads, read = Counter[str](), LocalFileSystem.cat_file

    def counted(files: LocalFileSystem, path: str, *args: object, **more: object) -> object:
        reads[path.rpartition("/")[2]] += 1
        return read(files, path, *args, **more)

    monkeypatch.setattr(LocalFileSystem, "cat_file", counted)
    with opened(other.captured, lab.settings) as capture:
        assert capture.capture() == 5
        assert reads == Counter(f"{number}.jsonl" for number in range(1, 6))
        put(other, "1.jsonl", transaction(other, 10, ("I", 1, "b")))
        with pytest.raises(BadInput, match=r"1\.jsonl was taken, and has other content now"):
            capture.capture()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    """An object store with a bucket, as somebody else sees it."""
    port = free_port()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    command = [Path(sys.executable).parent / "moto_server", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port))
        # An instance of another test has another server.
        s3fs.S3FileSystem.clear_instance_cache()
        owner = s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)
        owner.mkdir("bucket")
        yield owner
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.terminate()
        server.wait(30)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_what_others_put_into_an_object_store_is_seen_at_once(
    lab: Lab, bucket: s3fs.S3FileSystem, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = followed(lab, ChangeFormat.WAL2JSON)
    dataset = other.captured.dataset

    def put_object(number: int) -> None:
        text = "\n".join(transaction(other, number * 10, ("I", number, "a")))
        bucket.pipe_file(f"bucket/landing/_changes/{dataset.db}/{dataset.table}/{number}.jsonl", text.encode())

    with lab.catalog() as catalog:
        log, positions = EventLog("s3a://bucket/lake", dataset), Positions(catalog.connection)
        capture = FileCapture(other.captured, "s3a://bucket/landing", positions, log)
        for number in (1, 2):
            assert capture.capture() is None
            put_object(number)
            assert capture.capture() is not None
        taken = log.batches(1)
        assert len(taken) == 2
        # Those that another process has removed are gone here, too.
        bucket.rm(taken[0].location, recursive=True)
        assert log.batches(1) == taken[1:]
        position = replace(positions.of(dataset.name), applied_lsn=taken[1].last_lsn)
        assert retention.sweep(log, position, keep_seconds=0) == 1
        folder = f"s3a://bucket/lake/_changes/{dataset.db}/{dataset.table}/generation=1/quarantine=20-a"
        aside = arrow_table([event(ChangeType.INSERT, new={"id": "7"}, commit_lsn=20)])
        aside = aside.append_column("reason", pa.array(["nothing is known of it"]))
        with bucket.open(f"{folder}/part-0.parquet", "wb") as file:
            pq.write_table(aside, file)
        catalog.connection.execute(
            "update varve.cdc_position set quarantine = %s, quarantined = 1 where dataset = %s", (folder, dataset.name)
        )
    monkeypatch.setattr(cdc_command, "find", lambda _: other.captured)
    cdc_command.quarantine(Console(), dataset.name, as_json=True)
    assert [row["reason"] for row in json.loads(capsys.readouterr().out)] == ["nothing is known of it"]


@pytest.mark.parametrize("dies", [False, True], ids=["", "killed before the folders go"])
def test_old_files_are_remembered_without_a_folder_for_each(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    dies: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(retention, "FEW_FILES", 3)
    other = followed(lab, ChangeFormat.WAL2JSON)
    with lab.catalog() as catalog:
        log, positions = other.log(), Positions(catalog.connection)
        capture = FileCapture(other.captured, lab.settings.landing, positions, log)

        def take(*numbers: int) -> None:
            for number in numbers:
                put(other, f"{number}.jsonl", transaction(other, number * 10, ("I", number, "a")))
                assert capture.capture() is not None

        def swept() -> int:
            position = replace(positions.of(other.captured.dataset.name), applied_lsn=log.captured(1) or 0)
            return retention.sweep(log, position, keep_seconds=0)

        def folders() -> int:
            return len(list(Path(log.generation(1)).glob("events=*")))

        take(1, 2)
        assert (swept(), folders()) == (2, 2)
        take(3, 4)
        before = [(batch.file, batch.last_lsn, batch.horizon) for batch in log.batches(1)]
        if dies:
            with monkeypatch.context() as patch:
                patch.setattr(LocalFileSystem, "rm", die)
                with pytest.raises(Killed):
                    retention._list_taken(
                        log, replace(positions.of(other.captured.dataset.name), applied_lsn=40), 0, []
                    )
            assert folders() == 4
            assert [(batch.file, batch.last_lsn, batch.horizon) for batch in log.batches(1)] == before
        swept()
        assert folders() == 0
        assert [(batch.file, batch.last_lsn, batch.horizon) for batch in log.batches(1)] == before
        # None of them is taken again, by a process that has seen none of them either; what is new has its own folder.
        fresh = FileCapture(other.captured, lab.settings.landing, positions, log)
        assert fresh.capture() is None
        take(5)
        assert (swept(), folders(), len(log.batches(1))) == (1, 1, 5)
        take(6, 7)
        swept()
        assert (folders(), len(log.batches(1))) == (0, 7)
        put(other, "2.jsonl", transaction(other, 20, ("I", 2, "b")))
        # A run goes on until there is nothing new, and the next one looks at all of them.
        assert capture.capture() is None
        with pytest.raises(BadInput, match="was taken, and has other content now"):
            capture.capture()


def test_files_that_were_taken_are_neither_read_again_nor_listed_for_each_that_waits(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run read all of them: after a month of one a minute, 43,000 files each minute."""
    monkeypatch.setattr(retention, "FEW_FILES", 3)
    other = followed(lab, ChangeFormat.WAL2JSON)
    read: Counter[str] = Counter()
    listed: Counter[str] = Counter()
    cat, info = LocalFileSystem.cat_file, LocalFileSystem.info

    def counted_cat(files: LocalFileSystem, place: str, *args: object, **more: object) -> object:
        read[place.rsplit("/", 1)[1]] += 1
        return cat(files, place, *args, **more)

    def counted_info(files: LocalFileSystem, place: str, **more: object) -> object:
        listed[str(place).rsplit("/", 1)[1]] += 1
        return info(files, place, **more)

    monkeypatch.setattr(LocalFileSystem, "cat_file", counted_cat)
    monkeypatch.setattr(FileCapture, "_info", lambda _, files, path: counted_info(files, path))
    names = [f"{number}.jsonl" for number in range(1, 7)]
    with other.catalog() as catalog:
        log, positions = other.log(), Positions(catalog.connection)

        def run() -> int:
            """As a process does that has seen nothing yet."""
            capture = FileCapture(other.captured, lab.settings.landing, positions, other.log())
            return sum(1 for _ in iter(capture.capture, None))

        for number, name in enumerate(names, 1):
            put(other, name, transaction(other, number * 10, ("I", number, "a")))
        assert run() == 6
        # Once when it is taken, and once to see that it is still what was taken.
        assert read == dict.fromkeys(names, 1)
        assert listed == dict.fromkeys(names, 2)
        assert run() == 0
        assert read == dict.fromkeys(names, 1)
        position = replace(positions.of(other.captured.dataset.name), applied_lsn=log.captured(1) or 0)
        retention.sweep(log, position, keep_seconds=0)
        assert len(log.listed(1)) == 6
        assert run() == 0
        assert read == dict.fromkeys(names, 1)
        # One that was touched is read again, and is what it was.
        folder = Path(lab.settings.landing) / "_changes" / other.captured.dataset.name.replace(".", "/")
        os.utime(folder / "3.jsonl", (1, 1))
        for _ in range(2):
            # But not again and again: what it looks like now is noted.
            assert run() == 0
            assert read == {**dict.fromkeys(names, 1), "3.jsonl": 2}
        # Another content of the same size, with the time that the file had.
        before = (folder / "4.jsonl").stat()
        (folder / "4.jsonl").write_text((folder / "5.jsonl").read_text())
        os.utime(folder / "4.jsonl", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (folder / "4.jsonl").stat().st_size == before.st_size
        with pytest.raises(BadInput, match=r"4\.jsonl was taken, and has other content now"):
            run()


def die(*_: object, **__: object) -> None:
    raise Killed("rm")


def test_two_events_at_one_place_are_refused(lab: Lab) -> None:
    other = followed(lab, ChangeFormat.WAL2JSON)
    put(other, "1.jsonl", [*transaction(other, 10, ("I", 1, "a")), *transaction(other, 10, ("I", 2, "b"))])
    with pytest.raises(BadInput, match="two different events at LSN 10, sequence 1"):
        take(other)


def test_a_transaction_that_is_cut_into_two_files_is_refused_where_its_changes_have_no_number(lab: Lab) -> None:
    other = followed(lab, ChangeFormat.EVENTS)

    def line(number: int, **more: object) -> str:
        values = [None] * len(COLUMNS_WITHOUT_KEY)
        change = {"changeType": "insert", "timestamp": "2026-11-01T10:00:10Z", "commitLsn": 10,
                  "columnNames": ["w", *COLUMNS_WITHOUT_KEY, "id"], "columnValues": ["1", *values, number]}  # fmt: skip
        return json.dumps({**change, **more})

    put(other, "1.jsonl", [line(1), line(2)])
    assert take(other) == 2
    second = put(other, "2.jsonl", [line(3)])
    with pytest.raises(BadInput, match="begins within the transaction at LSN 10 that the file before it ends with"):
        take(other)
    # Sent again it is no other event, and numbered it has a place of its own.
    second.write_text(f"{line(1)}\n")
    assert take(other) == 0
    put(other, "3.jsonl", [line(3, seq=3)])
    assert take(other) == 1
    assert [number for number, _ in notes(other)] == [1, 2, 3]


def test_what_was_written_before_a_snapshot_and_committed_after_it_is_taken_from_another_file_too(lab: Lab) -> None:
    other = followed(lab, ChangeFormat.DEBEZIUM)
    schema, _, table = lab.table.partition(".")
    empty = {column.name: None for column in SCHEMA.columns}

    def line(op: str, number: int, note: str, sequence: str) -> str:
        source = {"schema": schema, "table": table, "ts_ms": 1_357_000_000_000, "txId": 7, "sequence": sequence}
        return json.dumps({"op": op, "after": {**empty, "w": 1, "id": number, "note": note}, "source": source})

    put(other, "1.jsonl", [line("r", number, "read", '[null, "100"]') for number in (1, 2)])
    assert take(other) == 2
    first = [line("u", 1, "first", '[null, "90"]'), line("u", 2, "first", '[null, "110"]')]
    put(other, "2.jsonl", first)
    assert take(other) == 2
    assert notes(other) == [(1, "first"), (2, "first")]
    # The same lines again, when later ones were taken, have the places that they had.
    put(other, "3.jsonl", [line("u", 1, "second", '["120", "115"]')])
    put(other, "4.jsonl", first)
    for _ in range(2):
        take(other)
    assert notes(other) == [(1, "second"), (2, "first")]


@pytest.mark.parametrize("history", [False, True])
def test_a_snapshot_that_fills_many_files_is_taken_from_all_of_them(
    lab: Lab,
    history: bool,  # noqa: FBT001
) -> None:
    other = followed(lab, ChangeFormat.DEBEZIUM, history=history)
    schema, _, table = lab.table.partition(".")
    empty = {column.name: None for column in SCHEMA.columns}

    def line(op: str, number: int, note: str, sequence: str) -> str:
        source = {"schema": schema, "table": table, "ts_ms": 1_357_000_000_000, "txId": 7, "sequence": sequence}
        return json.dumps({"op": op, "after": {**empty, "w": 1, "id": number, "note": note}, "source": source})

    def part(*numbers: int) -> list[str]:
        return [line("r", number, "read", '[null, "100"]') for number in numbers]

    put(other, "1.jsonl", part(1, 2, 3))
    put(other, "2.jsonl", part(4, 5, 6))
    # Delivered twice it is no other part; the last part may have as many rows as one before, or fewer.
    put(other, "3.jsonl", part(4, 5, 6))
    put(other, "4.jsonl", part(7))
    take(other)
    assert (notes(other), late(other)) == ([(number, "read") for number in range(1, 8)], 3)
    put(other, "5.jsonl", [line("u", 2, "first", '[null, "90"]'), line("u", 7, "second", '["110", "115"]')])
    put(other, "6.jsonl", part(1, 2, 3))
    take(other)
    now = notes(other, "valid_to_lsn is null" if history else "true")
    assert now == [(1, "read"), (2, "first"), *((number, "read") for number in (3, 4, 5, 6)), (7, "second")]
    assert late(other) == 6
    if history:
        # What is true from the snapshot's LSN on, and at once no more, was never true.
        assert notes(other, "valid_to_lsn is not null") == [(7, "read")]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("kind", list(ChangeFormat))
def test_a_line_ends_where_json_lines_say_it_and_not_at_what_a_text_may_hold(
    lab: Lab, kind: ChangeFormat, end: str
) -> None:
    other = followed(lab, kind)
    texts = ["a\u2028b", "c\u2029d", "e\x85f", "g\r\nh\vi\fj\x1ck"]
    nothing = dict.fromkeys(SCHEMA.names)
    changes = [
        event(ChangeType.INSERT, new={**nothing, "w": "1", "id": str(number), "note": text}, commit_lsn=10,
              timestamp="2013-01-05 10:00:00+00", seq=number)
        for number, text in enumerate(texts, 1)
    ]  # fmt: skip
    # As others write JSON: raw, but for what it wants escaped.
    lines = [json.dumps(json.loads(line), ensure_ascii=False) for line in WRITTEN[kind](lab.table, changes)]
    put(other, "1.jsonl", []).write_bytes("".join(f"{line}{end}" for line in lines).encode())
    with opened(other.captured, lab.settings) as capture:
        assert capture.capture() == len(texts)
    (batch,) = other.log().batches(1)
    rows = pq.read_table(batch.data).to_pylist()
    assert [row["columnValues"][row["columnNames"].index("note")] for row in rows] == texts


def test_a_file_of_flattened_rows_is_not_taken_until_it_has_envelopes(lab: Lab) -> None:
    other = followed(lab, ChangeFormat.DEBEZIUM)
    put(other, "1.jsonl", [json.dumps({"w": 1, "id": 7, "note": "a", "__op": "u", "__deleted": "false"})])
    with opened(other.captured, lab.settings) as capture:
        with pytest.raises(BadInput, match=r"1\.jsonl cannot be taken: .*line 1 has __deleted, __op.*mend the file"):
            capture.capture()
        assert other.log().batches(1) == []
        new = {"w": "1", "id": "7", "note": "a"}
        put(other, "1.jsonl", as_debezium(lab.table, [event(ChangeType.INSERT, new=new, commit_lsn=5, seq=1)]))
        assert capture.capture() == 1


def test_changes_of_another_table_are_passed_over_and_counted(lab: Lab) -> None:
    schema = lab.table.partition(".")[0]
    changes = [
        event(kind, new={"w": "1", "id": "7"}, old_key=key, timestamp="2013-01-05 10:00:00+00", commit_lsn=5, seq=seq)
        for seq, (kind, key) in enumerate(((ChangeType.INSERT, {}), (ChangeType.UPDATE, {"w": "1", "id": "7"})), 1)
    ]
    for kind in ChangeFormat:
        other = followed(lab, kind)
        put(other, "1.jsonl", WRITTEN[kind](f"{schema}.stranger", changes))
        assert take(other) == 0
        (batch,) = other.log().batches(1)
        manifest = json.loads((Path(batch.location) / "_varve.json").read_text(encoding="utf-8"))
        assert manifest["others"] == {f"{schema}.stranger": 2}


def test_how_many_changes_of_other_tables_there_were_is_said_by_every_command(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = followed(lab, ChangeFormat.EVENTS)
    dataset = other.captured.dataset
    line = {"changeType": "insert", "timestamp": 1, "relation": "t.typo", "columnNames": ["id"], "columnValues": [1]}
    put(other, "1.jsonl", [json.dumps(line), json.dumps({**line, "timestamp": 2})])
    put(other, "2.jsonl.gz", [])
    monkeypatch.setattr(cdc_command, "find", lambda _: other.captured)
    asset = SimpleNamespace(captured=other.captured)
    monkeypatch.setattr(cdc_command, "_assets", lambda: [asset])
    sensor = capture_sensor(other.captured, PROJECT, capture_job(other.captured, PROJECT))
    asked = sensor(dg.build_sensor_context(dg.DagsterInstance.ephemeral()))
    passed_over = f"2 changes of other tables than {other.captured.source} passed over: 2 of t.typo"
    assert isinstance(asked, dg.SensorResult)
    assert (asked.run_requests or ())[0].tags["why"] == f"0 events captured, 0 to apply; {passed_over}"
    cdc_command.capture(Console(width=1_000), dataset.name, as_json=False)
    alone = "1 file in the folder of its changes left alone, ending neither in .jsonl nor in .json: 2.jsonl.gz."
    told = capsys.readouterr().out
    assert f"{dataset}: {passed_over}.\n" in told
    assert alone in told
    cdc_command.status(Console(width=1_000), as_json=False)
    told = capsys.readouterr().out
    assert f"{dataset}: {passed_over}.\n" in told
    assert alone in told
    # What is applied and old is a line of a list.
    with lab.catalog() as catalog:
        other.log().list_taken(1, other.log().batches(1))
        for folder in Path(other.log().generation(1)).glob("events=*"):
            shutil.rmtree(folder)
        assert Positions(catalog.connection).of(dataset.name).applied_lsn >= 0
    cdc_command.status(Console(width=1_000), as_json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["other_tables"], row["left_alone"]) == ({"t.typo": 2}, ["2.jsonl.gz"])


def test_a_file_that_is_being_written_under_another_name_is_taken_when_it_has_its_own(lab: Lab) -> None:
    other = followed(lab, ChangeFormat.EVENTS)
    nothing = dict.fromkeys(SCHEMA.names)
    changes = [
        event(ChangeType.INSERT, new={**nothing, "w": "1", "id": str(number)}, timestamp="2013-01-05 10:00:00+00",
              commit_lsn=10, seq=number)
        for number in (1, 2)
    ]  # fmt: skip
    lines = list(as_events(lab.table, changes))
    with lab.catalog() as catalog:
        log, positions = other.log(), Positions(catalog.connection)
        capture = FileCapture(other.captured, lab.settings.landing, positions, log)
        names = ("1.jsonl.tmp", "1.jsonl.gz", "1.json.bak", "1.ndjson", ".1.jsonl", "_1.jsonl")
        paths = [put(other, name, lines[:1]) for name in names]
        assert capture.capture() is None
        assert capture.left_alone() == sorted(names[:4])
        for path in paths[1:]:
            path.unlink()
        put(other, "1.jsonl.tmp", lines).rename(paths[0].with_name("1.jsonl"))
        batch = capture.capture()
        assert batch is not None
        assert (batch.counts.events, batch.late, capture.left_alone()) == (2, 0, [])
        put(other, "2.json", as_events(lab.table, [replace(change, commit_lsn=20) for change in changes]))
        assert capture.capture() is not None


def test_when_the_folder_was_looked_at_last_is_known_whether_or_not_there_was_a_file(lab: Lab) -> None:
    other = followed(lab, ChangeFormat.WAL2JSON)
    name = other.captured.dataset.name
    with lab.catalog() as catalog:
        positions = Positions(catalog.connection)
        capture = FileCapture(other.captured, lab.settings.landing, positions, other.log())
        assert capture.capture() is None

        def looked() -> bool:
            found = catalog.connection.execute(
                "select captured_at > clock_timestamp() - interval '1 minute' from varve.cdc_position"
                " where dataset = %s",
                (name,),
            ).fetchone()
            catalog.connection.execute(
                "update varve.cdc_position set captured_at = clock_timestamp() - interval '1 day' where dataset = %s",
                (name,),
            )
            return found == (True,)

        assert looked()
        assert capture.capture() is None
        assert looked()
        put(other, "1.jsonl", transaction(other, 10, ("I", 1, "a")))
        assert capture.capture() is not None
        assert looked()
        # A file that is still written, or cannot be read, has not been captured.
        put(other, "2.jsonl", ["{"])
        with pytest.raises(BadInput):
            capture.capture()
        assert not looked()
        assert replace(capture, settle_seconds=3_600.0).capture() is None
        assert not looked()


def test_what_is_no_utf_8_is_named_with_its_line(lab: Lab) -> None:
    other = followed(lab, ChangeFormat.WAL2JSON)
    lines = transaction(other, 10, ("I", 1, "a"))
    put(other, "1.jsonl", []).write_bytes("\n".join([*lines, "caf\xe9"]).encode("latin-1"))
    with pytest.raises(BadInput, match=rf"1\.jsonl cannot be taken: line {len(lines) + 1} is no UTF-8"):
        take(other)


def test_a_file_of_version_1_of_wal2json_becomes_rows(lab: Lab) -> None:
    other = followed(lab, ChangeFormat.WAL2JSON_V1)
    nothing = dict.fromkeys(SCHEMA.names)
    changes = [
        event(ChangeType.INSERT, new={**nothing, "w": "1", "id": str(number), "note": "a"}, commit_lsn=10 + number)
        for number in (1, 2)
    ]
    row = {"w": "1", "id": "1"}
    changes += [
        event(ChangeType.UPDATE, new={**row, "note": "b"}, old_key=row, commit_lsn=20, seq=1),
        event(ChangeType.DELETE, old_key={"w": "1", "id": "2"}, commit_lsn=20, seq=2),
    ]
    lines = as_wal2json_v1(
        lab.table, [dataclasses.replace(each, timestamp="2013-01-05 10:00:00+00") for each in changes]
    )
    put(other, "1.jsonl", lines)
    assert take(other) > 0
    assert notes(other) == [(1, "b")]
    # A file of version 2 is refused as a whole, and named with its line.
    put(other, "2.jsonl", transaction(other, 30, ("I", 3, "c")))
    with pytest.raises(BadInput, match=r"2\.jsonl cannot be taken: .*line 1 has no list of changes.*Declare WAL2JSON"):
        take(other)
    assert notes(other) == [(1, "b")]


def test_rows_with_null_are_changed_by_version_1_of_wal2json_where_there_is_no_key(
    make_lab: Callable[..., Lab],
) -> None:
    other = followed(make_lab(UNKEYED), ChangeFormat.WAL2JSON_V1)
    other.captured = replace(other.captured, partition_by={"part": "cast(pmod(coalesce(id, 0), 4) as string)"})
    nothing = dict.fromkeys(SCHEMA.names)
    one, two = ({**nothing, "w": "1", "id": number} for number in "12")
    changes = [
        *(event(ChangeType.INSERT, new=row, commit_lsn=10) for row in (one, one, two, nothing)),
        event(ChangeType.UPDATE, new={**one, "note": "a"}, old=one, commit_lsn=20),
        event(ChangeType.UPDATE, new=two, old=two, commit_lsn=20),
        event(ChangeType.DELETE, old=nothing, commit_lsn=30),
        event(ChangeType.UPDATE, new=one, old={**one, "note": "a"}, commit_lsn=30),
        event(ChangeType.DELETE, old=one, commit_lsn=30),
    ]  # fmt: skip
    changes = [replace(change, timestamp="2013-01-05 10:00:00+00") for change in changes]
    for number in (10, 20, 30):
        lines = as_wal2json_v1(other.table, [change for change in changes if change.commit_lsn == number])
        put(other, f"{number}.jsonl", lines)
        assert take(other) > 0
        if number == 20:
            assert notes(other) == [(1, "a"), (1, None), (2, None), (None, None)]
    assert notes(other) == [(1, None), (2, None)]


def test_a_history_of_files_needs_a_key(make_lab: Callable[..., Lab]) -> None:
    other = followed(make_lab(UNKEYED), ChangeFormat.DEBEZIUM, history=True)
    with pytest.raises(SourceRefused, match="follows rows by their key"):
        take(other)


def test_files_have_no_snapshot(lab: Lab) -> None:
    other = followed(lab, ChangeFormat.DEBEZIUM)
    with opened(other.captured, lab.settings) as capture, pytest.raises(VarveError, match="which have no snapshot"):
        capture.bootstrap()
