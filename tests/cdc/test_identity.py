"""What a bootstrap does to the application: after it every INSERT, UPDATE and DELETE works, or nothing was created.

The server refuses changes of a published table whose old rows it could not describe; which ones depends on the replica
identity, on generated columns and on the options of the publication.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from varve.cdc.captured_table import SourceColumn, SourceRefused, SourceTable
from varve.cdc.declaration_checks import check
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cdc.lab import Lab

pytestmark = pytest.mark.timeout(300)

DECLARED = ("id", "note", "doubled")
KINDS = {"id": ColumnType.INT, "note": ColumnType.STRING, "doubled": ColumnType.INT}
STORED = "doubled int generated always as (id * 2) stored"
VIRTUAL = "doubled int generated always as (id * 2) virtual"


def declared(lab: Lab, *names: str) -> None:
    columns = tuple(Column(name, KINDS[name]) for name in names)
    lab.captured = replace(lab.captured, dataset=replace(lab.captured.dataset, schema=Schema(columns)))


def made(lab: Lab, columns: str, *then: str) -> None:
    lab.sql("drop table {t}")
    lab.sql(f"create table {{t}} ({columns})")
    for statement in then:
        lab.sql(statement)


def used_by_its_application(lab: Lab, others: str = "") -> None:
    """Insert, update and delete rows, as the application did before."""
    lab.sql("insert into {t} (id, note) values (1, 'one'), (2, 'two'), (3, 'three')")
    lab.sql("update {t} set note = 'uno' where id = 1")
    lab.sql("update {t} set id = 20 where id = 2")
    lab.sql("delete from {t} where id = 3")


def replayed(lab: Lab, *names: str) -> list[tuple[str | None, ...]]:
    """The rows after all durable events, each of which says which row it was about."""
    rows: dict[str | None, tuple[str | None, ...]] = {}
    for batch in lab.log().batches(1):
        for event in pq.read_table(batch.data).to_pylist():
            new = dict(zip(event["columnNames"], event["columnValues"], strict=True))
            old = dict(zip(event["oldKeyNames"], event["oldKeyValues"], strict=True))
            old |= dict(zip(event["oldNames"], event["oldValues"], strict=True))
            if event["changeType"] in ("update", "delete"):
                # A key that is generated says it as well.
                key = old["id"] if "id" in old else str(int(old["doubled"]) // 2)
                del rows[key]
            if event["changeType"] in ("insert", "update"):
                rows[new["id"]] = tuple(new[name] for name in names)
    return sorted(rows.values(), key=repr)


@pytest.mark.parametrize("wanted", [DECLARED, DECLARED[:2]], ids=["declared", "not declared"])
@pytest.mark.parametrize(
    ("columns", "then"),
    [
        pytest.param(f"id int primary key, note text, {STORED}", (), id="default"),
        pytest.param(f"id int, note text, {STORED}", ("alter table {t} replica identity full",), id="full"),
        pytest.param(
            f"id int primary key, note text, {STORED}", ("alter table {t} replica identity full",), id="full and a key"
        ),
        pytest.param(
            f"id int not null, note text, {STORED}",
            ("create unique index i_{n} on {t} (id)", "alter table {t} replica identity using index i_{n}"),
            id="index",
        ),
        pytest.param(
            f"id int not null, note text, {STORED} not null",
            ("create unique index i_{n} on {t} (doubled)", "alter table {t} replica identity using index i_{n}"),
            id="index of a generated column",
        ),
        pytest.param(f"id int, note text, {STORED} primary key", (), id="generated key"),
    ],
)
def test_stored_generated_columns_are_published_and_the_application_goes_on(
    lab: Lab, columns: str, then: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    name = lab.table.partition(".")[2]
    made(lab, columns, *[text.replace("{n}", name) for text in then])
    declared(lab, *wanted)
    generated_key = any(text in str((columns, then)) for text in ("(doubled)", "stored primary key"))
    if generated_key and "doubled" not in wanted:
        with pytest.raises(SourceRefused, match="its key column doubled is not declared"):
            lab.bootstrap()
        used_by_its_application(lab)
        return
    lab.bootstrap()
    used_by_its_application(lab)
    assert lab.capture() is not None
    full: list[tuple[str | None, ...]] = [("1", "uno", "2"), ("20", "two", "40")]
    assert replayed(lab, *wanted) == [row[: len(wanted)] for row in full]


def test_a_generated_column_that_comes_later_does_not_break_the_application(lab: Lab) -> None:
    made(lab, "id int, note text", "alter table {t} replica identity full")
    declared(lab, *DECLARED[:2])
    lab.bootstrap()
    lab.sql(f"alter table {{t}} add {STORED}")
    used_by_its_application(lab)


@pytest.mark.parametrize(
    ("columns", "then", "wanted", "message"),
    [
        pytest.param(
            f"id int, note text, {VIRTUAL}", ("alter table {t} replica identity full",), DECLARED[:2],
            "identity is FULL and doubled is a virtual generated column.*REPLICA IDENTITY DEFAULT", id="virtual, full",
        ),
        pytest.param(
            f"id int primary key, note text, {VIRTUAL}", (), DECLARED,
            "doubled is generated, and the source does not send it", id="virtual, declared",
        ),
        pytest.param(
            "id int not null, note text",
            ("create unique index i_{n} on {t} (id)", "alter table {t} replica identity using index i_{n}",
             "drop index public.i_{n}"),
            DECLARED[:2], "the index that is its replica identity is gone", id="index that is gone",
        ),
        pytest.param(
            "id int not null, note text", ("alter table {t} replica identity nothing",), DECLARED[:2],
            "replica identity is NOTHING", id="nothing",
        ),
        pytest.param("id int, note text", (), DECLARED[:2], "it has no primary key", id="no key"),
        pytest.param(
            "id int primary key deferrable, note text", (), DECLARED[:2], "primary key is deferrable", id="deferrable"
        ),
    ],
)  # fmt: skip
def test_what_would_break_the_application_is_refused_before_anything_is_created(
    lab: Lab, columns: str, then: tuple[str, ...], wanted: tuple[str, ...], message: str
) -> None:
    name = lab.table.partition(".")[2]
    made(lab, columns, *[text.replace("{n}", name) for text in then])
    declared(lab, *wanted)
    with pytest.raises(SourceRefused, match=f"(?s){message}"):
        lab.bootstrap()
    assert nothing_was_created(lab)
    used_by_its_application(lab)


def test_virtual_generated_columns_that_are_no_identity_are_passed_over(lab: Lab) -> None:
    made(lab, f"id int primary key, note text, {VIRTUAL}")
    declared(lab, *DECLARED[:2])
    lab.bootstrap()
    used_by_its_application(lab)
    assert lab.capture() is not None
    assert replayed(lab, "id", "note") == [("1", "uno"), ("20", "two")]


def test_a_partitioned_table_is_refused_and_its_partitions_are_captured(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.sql("drop table {t}")
    lab.sql("create table {t} (id int primary key, note text) partition by range (id)")
    declared(lab, *DECLARED[:2])
    with pytest.raises(SourceRefused, match="is partitioned; capture its partitions"):
        lab.bootstrap()
    assert nothing_was_created(lab)
    lab.sql("create table {t}_low partition of {t} for values from (0) to (10)")
    lab.sql("create table {t}_high partition of {t} for values from (10) to (100)")
    root, lab.captured = lab.captured, replace(lab.captured, source=f"{lab.table}_low")
    lab.bootstrap()
    lab.captured = replace(lab.captured, source=root.source)
    used_by_its_application(lab)
    lab.captured = replace(lab.captured, source=f"{root.source}_low")
    assert lab.capture() is not None
    # A row that moves to another partition is deleted here.
    assert replayed(lab, "id", "note") == [("1", "uno")]


def nothing_was_created(lab: Lab) -> bool:
    with lab.source() as source:
        row = source.execute(
            "select (select count(*) from pg_publication where pubname = %(name)s) + "
            "(select count(*) from pg_replication_slots where slot_name = %(name)s)",
            {"name": lab.captured.slot},
        ).fetchone()
    return row == (0,)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        # A server before 18: it changes such rows, and does not send their generated columns.
        (SourceTable(1, (), (), "f", unsent=("doubled",)), None),
        (SourceTable(1, (), ("doubled",), "d", unsent=("doubled",)), "its key column doubled is generated"),
        (SourceTable(1, (), ("doubled",), "i", unsent=("doubled",)), "USING INDEX, with a unique index of columns"),
        (SourceTable(1, (), ("id",), "d", unsent=("note",)), "note is generated, and the source does not send it"),
        (SourceTable(1, (), (), "i"), "the index that is its replica identity is gone"),
    ],
)
def test_older_servers_send_no_generated_columns(lab: Lab, table: SourceTable, message: str | None) -> None:
    declared(lab, "id", "note")
    columns = [SourceColumn("id", 1, "integer"), SourceColumn("note", 2, "text")]
    sent = tuple(column for column in columns if column.name not in table.unsent)
    table = replace(table, columns=sent)
    if message is None:
        check(lab.captured, table)
        return
    with pytest.raises(SourceRefused, match=message):
        check(lab.captured, table)
