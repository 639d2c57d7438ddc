"""`changed_at`: a column with the time of the commit that sent a row last."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.cdc.formats import KEY, decoded
from tests.cdc.lab import DEFAULT, FULL, SCHEMA, UNKEYED, Application, Lab
from tests.cdc.test_verify import verified
from varve.cdc.captured_table import VALIDITY, CapturedTable, SourceRefused
from varve.cdc.event import ChangeType
from varve.model.errors import VarveError
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varve.cdc.event import ChangeEvent

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TIME = Column("sent_at", ColumnType.TIMESTAMP)


def with_time(captured: CapturedTable, *, history: bool = False, **other: object) -> CapturedTable:
    columns = (*SCHEMA.columns, TIME, *(VALIDITY if history else ()))
    dataset = dataclasses.replace(captured.dataset, schema=Schema(columns))
    return dataclasses.replace(captured, **{"dataset": dataset, "history": history, "changed_at": TIME.name, **other})


def last_times(snapshot: dt.datetime, rows: Sequence[tuple[int, int]], events: Sequence[ChangeEvent]) -> dict[str, str]:
    """The time of the last change of each key, by playing the events one after the other."""
    times = dict.fromkeys(((str(w), str(number)) for w, number in rows), snapshot)
    for event in events:
        if event.change_type is ChangeType.TRUNCATE:
            times.clear()
            continue
        after = tuple(event.new[name] for name in KEY) if event.column_names else ()
        before = tuple(event.old_key[name] for name in KEY) if event.old_key else after
        times.pop(before, None)  # type: ignore[call-overload]
        if after:
            times[after] = dt.datetime.fromisoformat(event.timestamp)  # type: ignore[index]
    return {"|".join(key): time.astimezone(dt.UTC).isoformat() for key, time in times.items()}


def in_lake(lab: Lab) -> dict[str, str]:
    with lab.lake() as frame:
        rows = frame.selectExpr("w", "id", "cast(unix_micros(sent_at) as bigint) as at").collect()
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return {f"{row['w']}|{row['id']}": (epoch + dt.timedelta(microseconds=row["at"])).isoformat() for row in rows}


@pytest.mark.parametrize("kind", [DEFAULT, FULL])
def test_each_row_has_the_time_of_the_commit_that_sent_it_last(make_lab: Callable[..., Lab], kind: str) -> None:
    lab = make_lab(kind)
    lab.captured = with_time(lab.captured)
    lab.sql("insert into {t} (w, id, note) select 7, i, 'before' from generate_series(1, 5) i")
    snapshot = lab.bootstrap()
    lab.apply()
    # The rows of a snapshot have its time.
    (of_snapshot,) = set(in_lake(lab).values())
    sessions = [Application(lab, workload, workload, 100, truncates=True) for workload in range(2)]
    for session in sessions:
        session.start()
    for session in sessions:
        session.join(timeout=120)
    lab.sql("update {t} set note = note where w = 7 and id = 2")
    lab.sql("update {t} set id = 90 where w = 7 and id = 3")
    events = decoded(lab)
    assert {event.change_type for event in events} >= {ChangeType.INSERT, ChangeType.UPDATE, ChangeType.DELETE}
    while lab.capture() is not None:
        pass
    lab.apply()
    assert lab.in_lake() == lab.in_source()
    assert snapshot.counts.inserts == 5
    expected = last_times(dt.datetime.fromisoformat(of_snapshot), [(7, number) for number in range(1, 6)], events)
    assert in_lake(lab) == expected
    assert len(set(expected.values())) > 1


def test_the_column_is_nothing_that_the_source_is_compared_by(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.captured = with_time(lab.captured, verify="@daily")
    lab.sql("insert into {t} (w, id, note) values (1, 1, 'a'), (1, 2, 'b')")
    lab.bootstrap()
    lab.apply()
    lab.sql("update {t} set note = 'c' where id = 2")
    result = verified(lab)
    assert result.equal, result
    assert (result.source_rows, result.lake_rows) == (2, 2)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"changed_at": "nowhere"}, "changed_at = 'nowhere' is no column of it: declare the column as TIMESTAMP"),
        ({"changed_at": "note"}, "changed_at = 'note' is STRING: declare the column as TIMESTAMP"),
        ({"history": True}, "a history has it already, as valid_from"),
        ({"renames": {"noted": "sent_at"}}, "is also a column of the source, by renames"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(
    make_lab: Callable[..., Lab], other: dict[str, object], message: str
) -> None:
    with pytest.raises(VarveError, match=message):
        with_time(make_lab().captured, **other)  # type: ignore[arg-type]


def test_rows_without_a_key_have_no_last_change(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(UNKEYED)
    lab.captured = with_time(lab.captured)
    with pytest.raises(SourceRefused, match="changed_at follows rows by their key"):
        lab.bootstrap()


def test_a_declaration_that_did_not_ask_for_it_is_the_same_as_before(make_lab: Callable[..., Lab]) -> None:
    assert "changed_at" not in make_lab().captured.declaration
    assert with_time(make_lab().captured).declaration["changed_at"] == TIME.name
