"""`varve cdc verify`: source and lake at one LSN, equal or not, down to the rows.

PostgreSQL's values of every type that a table may have are compared; an application goes on throughout; changes are
planted on either side; and random histories end without a difference.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
import re
import struct
import uuid
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.cdc.lab import DEFAULT, FULL, HISTORY, UNKEYED, Application, Lab
from tests.cdc.waits import until
from varve.cdc.capture import source_database
from varve.cdc.capture.capture import Capture, Moment
from varve.cdc.capture.fence import Fence
from varve.cdc.capture.source_database import SourceDatabase
from varve.cdc.captured_table import CapturedTable, ChangeFiles, ChangeFormat, SourceColumn
from varve.cdc.captures import opened
from varve.cdc.verify.slices import Comparison, differing
from varve.cdc.verify.source_sums import source_rows, source_sums
from varve.cdc.verify.verification import Verification, comparison_of, verify
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import ServiceUnavailable, VarveError
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.services.postgres import connect
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cdc.lab import Follower
    from varve.cdc.captures import OpenCapture
    from varve.services.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]
T = ColumnType

# Each column of the source with its type there, its type here, and values that are awkward in it.
TYPES = {
    "small": ("smallint", T.INT, ["-32768", "32767"]),
    "big": ("bigint", T.BIGINT, ["-9223372036854775808", "9223372036854775807"]),
    "flag": ("boolean", T.BOOLEAN, ["true", "false"]),
    "flag_text": ("boolean", T.STRING, ["true", "false"]),
    "single": ("real", T.FLOAT, ["'-0'", "0.1", "'NaN'", "'-Infinity'", "3.4028235e38", "1e-45"]),
    "widened": ("real", T.DOUBLE, ["0.1", "'-0'", "'NaN'", "'Infinity'", "1e-45", "16777216"]),
    "double": ("float8", T.DOUBLE, ["0.1", "'-0'", "'NaN'", "'-Infinity'", "5e-324", "2e-3", "1.7976931348623157e308",
                                    "9007199254740993", "5.684341886080802e-14"]),
    "double_text": ("float8", T.STRING, ["0.1", "'-0'", "1e300", "1e15", "'NaN'", "'Infinity'"]),
    "exact": ("numeric", T.STRING, ["1.10", "'NaN'", "'Infinity'", "-0.0", "12345678901234567890.123456789"]),
    "day": ("date", T.DATE, ["'0001-01-01'", "'1582-10-10'", "'1900-02-28'", "'9999-12-31'"]),
    "day_text": ("date", T.STRING, ["'infinity'", "'0044-03-15 BC'", "'12345-01-01'"]),
    "at": ("timestamptz", T.TIMESTAMP, ["'1969-12-31 23:59:59.999999+00'", "'2013-03-10 02:30:00.5-05'",
                                        "'0001-01-01 00:00:00+00'", "'9999-12-31 23:59:59.999999+00'"]),
    "at_text": ("timestamptz", T.STRING, ["'infinity'", "'-infinity'", "'2013-03-10 02:30:00.5-05'"]),
    "naive": ("timestamp", T.TIMESTAMP_NTZ, ["'1582-10-10 00:00:00.000001'", "'2013-10-27 02:30:00'"]),
    "naive_here": ("timestamp", T.TIMESTAMP, ["'1969-07-20 20:17:40.123456'"]),
    "raw": ("bytea", T.BINARY, ["'\\x00ff7e2c3a'", "''"]),
    "raw_text": ("bytea", T.STRING, ["'\\xdeadbeef'"]),
    "texts": ("text", T.STRING, ["''", "'~'", "E'tab\\t, newline\\n, 3:a'", "'ünïcode ☃ 😀'", "repeat('é', 70000)"]),
    "padded": ("char(5)", T.STRING, ["'ab'", "''"]),
    "several": ("int[]", T.STRING, ["'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'{}'"]),
    "words": ("text[]", T.STRING, ["array['a,b', 'NULL', '\"', NULL]"]),
    "doc": ("json", T.STRING, ["'{\"b\": 1,  \"a\": [1.0, null]}'"]),
    "docb": ("jsonb", T.STRING, ["'{\"b\": 1,  \"a\": [1.0, null], \"z\": 1e5}'"]),
    "address": ("inet", T.STRING, ["'10.0.0.1'", "'10.0.0.0/8'", "'::1'"]),
    "span": ("interval", T.STRING, ["'1 year -2 days 03:04:05.6'", "'-1 mon'"]),
    "money": ("money", T.STRING, ["1234.5"]),
    "spans": ("int4range", T.STRING, ["'[1,5)'", "'empty'"]),
    "ident": ("uuid", T.STRING, ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"]),
    "mood": ("mood", T.STRING, ["'so so'"]),
}  # fmt: skip


@contextmanager
def open_lab(follower: Follower, **settings: object) -> Iterator[OpenCapture]:
    chosen = follower.settings.model_copy(update={"source_url": follower.url, **settings})
    with opened(follower.captured, chosen) as capture:
        yield capture


def verified(follower: Follower, say: Callable[[str], None] = lambda _: None, **settings: object) -> Verification:
    with open_lab(follower, **settings) as capture:
        return verify(capture, open_store, follower.spark, "test", say)


def bootstrapped(lab: Lab, rows: int = 400) -> Lab:
    lab.sql("insert into {t} select 0, i, 'old', i, now(), true, i, repeat('old', 100) "
            f"from generate_series(1, {rows}) i")  # fmt: skip
    lab.bootstrap()
    return lab


def edit_lake(lab: Lab, change: Callable[[str], str]) -> None:
    """Rewrite the files of one partition, which nobody but a test or a defect does: `change` gives a query over it."""
    import duckdb

    with lab.catalog() as catalog:
        batch = catalog.current(lab.captured.dataset.name)["part=1"]
    file = next(Path(batch.location).glob("*.parquet"))
    temporary = file.with_name("edited")
    with duckdb.connect() as connection:
        connection.execute(f"copy ({change(str(file))}) to '{temporary}' (format parquet)")
    temporary.replace(file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def test_every_type_has_one_text_on_both_sides(follow: Callable[[CapturedTable], Follower]) -> None:
    table = f"t{uuid.uuid4().hex[:8]}"
    dataset = Dataset(
        name=f"{table}.copy", comment="Every type.", store=StoreKind.LAKE,
        partitioning=Partitioning((StaticDimension("part", ("0", "1")),)),
        schema=Schema((Column("id", T.BIGINT), *(Column(name, kind) for name, (_, kind, _) in TYPES.items()))),
    )  # fmt: skip
    follower = follow(CapturedTable(dataset, f"public.{table}", {"part": "cast(pmod(id, 2) as string)"}))
    follower.sql("drop type if exists mood; create type mood as enum ('so so')")
    columns = ", ".join(f"{name} {there}" for name, (there, _, _) in TYPES.items())
    follower.sql(f"create table {{t}} (id bigint primary key, {columns})")
    with follower.source() as source:
        rows = max(len(values) for _, _, values in TYPES.values())
        for row in range(rows):
            values = ", ".join(f"({values[row % len(values)]})::{there}" for there, _, values in TYPES.values())
            source.execute(f"insert into public.{table} values ({row}, {values})")
        # A row of NULLs.
        source.execute(f"insert into public.{table} values (100)")
    follower.bootstrap()
    result = verified(follower)
    assert (result.rows, result.misplaced) == ((), 0)
    assert result.equal
    assert result.source_rows == result.lake_rows == rows + 1
    # And each column counts: with another value of it, the sum of its slice is another one.
    url = SourceDatabase(follower.url)
    with closing(url.connect()) as connection:
        table_now = source_database.described(connection, follower.captured)
        comparison, dropped = comparison_of(follower.captured, Fence(connection, Moment(0, table_now)))
        assert dropped == ()
        before = source_sums(connection, f"public.{table}", comparison)
        for name, (there, _, values) in TYPES.items():
            with connection.transaction(force_rollback=True):
                kind = there.replace("mood", "public.mood")
                connection.execute(f"update public.{table} set {name} = ({values[0]})::{kind} where id = 100")
                after = source_sums(connection, f"public.{table}", comparison)
                assert len(differing(before, after)) == 1, name


def test_every_bit_of_a_number_counts_on_both_sides(follow: Callable[[CapturedTable], Follower]) -> None:
    """Random numbers of every size, and the same with their last bit turned."""
    drawn, table = random.Random(20), f"t{uuid.uuid4().hex[:8]}"
    dataset = Dataset(
        name=f"{table}.copy", comment="Numbers.", store=StoreKind.LAKE,
        partitioning=Partitioning((StaticDimension("part", ("0",)),)),
        schema=Schema((Column("id", T.INT), Column("double", T.DOUBLE), Column("single", T.FLOAT),
                       Column("at", T.TIMESTAMP))),
    )  # fmt: skip
    follower = follow(CapturedTable(dataset, f"public.{table}", {"part": "'0'"}))
    follower.sql("create table {t} (id int primary key, double float8, single real, at timestamptz)")
    limits = [2.0**-20, 2.0**32, 2.0**52, 2.0**-1022, 2.0**53]
    doubles = [*limits, *[-limit for limit in limits], *[math.nextafter(limit, 0) for limit in limits]]
    while len(doubles) < 1_500:
        (number,) = struct.unpack("d", drawn.randbytes(8))
        near_one = drawn.choice((1, -1)) * drawn.random() * 10.0 ** drawn.randint(-9, 12)
        doubles += [near_one, *([] if math.isnan(number) or math.isinf(number) else [number])]
    floats = []
    while len(floats) < len(doubles):
        (number,) = struct.unpack("f", drawn.randbytes(4))
        floats += [] if math.isnan(number) else [number]
    microseconds = [drawn.randint(-62_135_596_800_000_000, 253_402_300_799_999_999) for _ in doubles]
    with follower.source() as source:
        for values in zip(range(len(doubles)), doubles, floats, microseconds, strict=True):
            source.execute(
                f"insert into public.{table} values (%s, %s, %s, timestamptz 'epoch' + %s * interval '1 microsecond')",
                values,
            )
    follower.bootstrap()
    assert verified(follower).equal
    changes = {
        "double": lambda row: f"{math.nextafter(doubles[row], 0)!r}::float8",
        "at": lambda _: "at + interval '1 microsecond'",
    }
    with closing(SourceDatabase(follower.url).connect()) as connection:
        table_now = source_database.described(connection, follower.captured)
        comparison, _ = comparison_of(follower.captured, Fence(connection, Moment(0, table_now)))
        before = source_sums(connection, f"public.{table}", comparison)
        for row in range(0, len(doubles), 7):
            for column, changed in changes.items():
                with connection.transaction(force_rollback=True):
                    connection.execute(f"update public.{table} set {column} = {changed(row)} where id = {row}")
                    after = source_sums(connection, f"public.{table}", comparison)
                assert len(differing(before, after)) == 1, (column, doubles[row])


def test_values_that_rows_have_exchanged_are_a_difference(settings: Settings) -> None:
    """The sum of a column stays the same, and that of its squares; texts move from one column to the next."""
    columns = (
        (Column("id", ColumnType.BIGINT), SourceColumn("id", 1, "bigint")),
        (Column("amount", ColumnType.BIGINT), SourceColumn("amount", 2, "bigint")),
        (Column("first", ColumnType.STRING), SourceColumn("first", 3, "text")),
        (Column("second", ColumnType.STRING), SourceColumn("second", 4, "text")),
    )  # fmt: skip
    comparison = Comparison(columns, ("id",), 1)
    with connect(settings, application="a source") as connection, connection.transaction(force_rollback=True):
        connection.execute("create table public.exchanged (id bigint, amount bigint, first text, second text)")
        connection.execute("insert into public.exchanged select i, i * i, i::text, 'x' from generate_series(1, 99) i")
        before = source_sums(connection, "public.exchanged", comparison)
        for change in (
            "set amount = amount + case id when 7 then 1 when 8 then -1 end where id in (7, 8)",
            "set amount = case id when 7 then 64 else 49 end where id in (7, 8)",
            # Neither the sum of the amounts changes, nor that of their products with the ids.
            "set amount = amount + case id when 1 then 1 when 2 then -2 else 1 end where id <= 3",
            "set first = second, second = first where id = 5",
            "set first = first || 'x', second = '' where id = 5",
            "set first = null, second = first || second where id = 5",
        ):
            with connection.transaction(force_rollback=True):
                connection.execute(f"update public.exchanged {change}")
                assert source_sums(connection, "public.exchanged", comparison) != before, change


def test_a_database_of_another_encoding_has_the_same_sums(settings: Settings, source_url: str) -> None:
    columns = (
        (Column("id", ColumnType.INT), SourceColumn("id", 1, "integer")),
        (Column("name", ColumnType.STRING), SourceColumn("name", 2, "text")),
        (Column("raw", ColumnType.BINARY), SourceColumn("raw", 3, "bytea")),
    )  # fmt: skip
    comparison = Comparison(columns, ("name",), 4)
    name = f"latin_sums_{os.getpid()}"
    with closing(psycopg.connect(source_url, autocommit=True)) as admin:
        admin.execute(f"create database {name} encoding latin1 locale 'C' template template0")
    sums = []
    for url in (source_url, re.sub(r"@/\w+", f"@/{name}", source_url)):
        with closing(psycopg.connect(url, client_encoding="utf8")) as source:
            source.execute("create schema sums; create table sums.places (id int, name text, raw bytea)")
            source.execute(
                "insert into sums.places values (1, 'Zürich', '\\x00ff'), (2, 'Málaga', null), (3, null, '')"
            )
            sums.append(source_sums(source, "sums.places", comparison))
            rows = source_rows(source, "sums.places", comparison, range(4))
            assert {row[1] for row in rows} == {"Zürich", "Málaga", None}
            source.rollback()
    assert sums[0] == sums[1]
    assert sum(counted.rows for counted in sums[0].values()) == 3


@pytest.mark.parametrize("kind", [DEFAULT, UNKEYED, HISTORY])
def test_a_change_that_is_planted_in_the_lake_is_found(make_lab: Callable[..., Lab], kind: str) -> None:
    lab = bootstrapped(make_lab(kind))
    assert verified(lab).equal
    edit_lake(
        lab, lambda file: f"select * replace (case when id = 41 then 'forged' else note end as note) from '{file}'"
    )
    found = verified(lab)
    assert not found.equal
    assert found.slices_differing > 0
    if kind == UNKEYED:
        assert {(row.where, row.times, row.key["note"]) for row in found.rows} == {
            ("source", 1, "old"), ("lake", 1, "forged")
        }  # fmt: skip
    else:
        (row,) = found.rows
        assert (dict(row.key), row.where) == ({"w": "0", "id": "41"}, "both")
        assert dict(row.values) == {"note": ("old", "forged")}


def test_a_change_of_the_source_that_was_lost_is_found_and_healed_by_a_new_snapshot(
    make_lab: Callable[..., Lab],
) -> None:
    lab = bootstrapped(make_lab())
    assert verified(lab).equal
    lab.sql("update {t} set big = big || 'x' where id = 7")
    lost = lab.capture()
    assert lost is not None
    with lab.catalog() as catalog:
        catalog.connection.execute(
            "update varve.cdc_position set applied_lsn = %s where dataset = %s",
            (lost.last_lsn, lab.captured.dataset.name),
        )
    (row,) = verified(lab).rows
    assert (dict(row.key), row.where, set(row.values)) == ({"w": "0", "id": "7"}, "both", {"big"})
    # Long texts are told apart by their lengths and hashes.
    assert ["301 bytes" in str(row.values["big"][0]), "300 bytes" in str(row.values["big"][1])] == [True, True]
    lab.bootstrap(resnapshot=True)
    assert verified(lab).equal


def test_a_new_column_that_has_the_name_of_a_renamed_one_is_not_taken_for_it(make_lab: Callable[..., Lab]) -> None:
    lab = bootstrapped(make_lab())
    lab.sql("alter table {t} rename note to remark")
    lab.captured = dataclasses.replace(lab.captured, renames={"remark": "note"})
    lab.bootstrap(resnapshot=True)
    lab.sql("alter table {t} add note text")
    lab.sql("update {t} set note = 'another', remark = 'new' where id = 7")
    assert lab.capture() is not None
    assert verified(lab).equal
    lab.bootstrap(resnapshot=True)
    assert verified(lab).equal
    with lab.lake() as frame:
        assert {row["note"] for row in frame.where("id in (7, 8)").collect()} == {"new", "old"}


def test_rows_that_one_side_lacks_or_has_twice_are_found(make_lab: Callable[..., Lab]) -> None:
    lab = bootstrapped(make_lab())
    assert verified(lab).equal
    edit_lake(
        lab,
        lambda file: (
            f"select * from '{file}' where id <> 5 union all select * from '{file}' where id = 9 "
            f"union all select * replace (777 as id) from '{file}' where id = 13"
        ),
    )
    found = verified(lab)
    assert {(row.key["id"], row.where, row.times) for row in found.rows} == {
        ("5", "source", 1), ("9", "lake", 1), ("777", "lake", 1)
    }  # fmt: skip
    assert (found.source_rows, found.lake_rows) == (400, 401)


def test_a_row_in_a_wrong_partition_is_found(make_lab: Callable[..., Lab]) -> None:
    lab = bootstrapped(make_lab())
    assert verified(lab).equal
    # Both partitions have the rows that they should not have: as sets, source and lake are equal.
    moved = dataclasses.replace(lab.captured, partition_by={"part": "cast(pmod(id + 1, 4) as string)"})
    with open_lab(lab) as capture:
        # As if the rows had been loaded with this declaration: another one than that of the rows is refused.
        capture.catalog.connection.execute(
            "update varve.cdc_position set declared = %s where dataset = %s",
            (Jsonb(moved.declaration), lab.captured.dataset.name),
        )
        assert isinstance(capture.capturing, Capture)
        capturing = dataclasses.replace(capture.capturing, captured=moved)
        result = verify(
            dataclasses.replace(capture, captured=moved, capturing=capturing), open_store, lab.spark, "test"
        )
    assert (result.rows, result.slices_differing, result.misplaced) == ((), 0, 400)
    assert not result.equal


def test_a_writer_goes_on_throughout_and_there_is_no_false_difference(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    running = [Application(lab, workload, workload, 1_000_000) for workload in range(2)]
    for session in running:
        session.start()
    try:
        until(lambda: sum(session.done for session in running) > 50)
        lab.bootstrap()
        fences = []
        for _ in range(2):
            before = sum(session.done for session in running)
            result = verified(lab)
            assert (result.rows, result.equal) == ((), True)
            # The application really went on, and the lake came after it.
            until(lambda before=before: sum(session.done for session in running) > before)  # type: ignore[misc]
            fences.append(result.lsn)
        assert fences == sorted(set(fences))
    finally:
        for session in running:
            session.changes = 0
            session.join()


def test_a_transaction_that_commits_after_the_snapshot_is_in_neither_side(make_lab: Callable[..., Lab]) -> None:
    lab = bootstrapped(make_lab())

    def commit_meanwhile(message: str) -> None:
        if "is opened" in message or "is at" in message:
            lab.sql("update {t} set note = coalesce(note, '') || 'x'")

    first = verified(lab, commit_meanwhile)
    assert first.equal
    second = verified(lab)
    assert second.equal
    assert second.lsn > first.lsn


def test_captures_go_on_during_the_comparison(make_lab: Callable[..., Lab]) -> None:
    lab = bootstrapped(make_lab())
    captured: list[int] = []

    def capture_meanwhile(message: str) -> None:
        # Both sides say so, perhaps at once; the second time the other capture may be going on.
        if message.startswith(f"{lab.captured.source}: "):
            lab.sql("update {t} set note = 'new'")
            with open_lab(lab) as capture:
                captured.append(capture.capture())
                capture.apply(open_store, lab.spark, "meanwhile")

    assert verified(lab, capture_meanwhile).equal
    assert captured == [400]
    assert verified(lab).equal


def test_it_waits_for_open_transactions_no_longer_than_it_may_and_names_them(make_lab: Callable[..., Lab]) -> None:
    lab = bootstrapped(make_lab())
    with psycopg.connect(lab.url, application_name="month end") as session:
        session.execute(f"update {lab.table} set note = 'open' where id = 1")
        with pytest.raises(ServiceUnavailable, match="application month end"):
            verified(lab, bootstrap_seconds=1.0)
        session.rollback()
    assert verified(lab).equal
    with lab.source() as source:
        (slots,) = source.execute(
            "select count(*) from pg_replication_slots where slot_name like 'varve_fence%'"
        ).fetchone() or (None,)
    assert slots == 0


def test_what_has_no_source_to_compare_with_says_so(make_lab: Callable[..., Lab]) -> None:
    captured = make_lab().captured
    files = ChangeFiles(ChangeFormat.WAL2JSON, key=("w", "id"))
    with pytest.raises(VarveError, match="with files there is nothing to compare"):
        dataclasses.replace(captured, files=files, verify="0 3 * * *")
    with pytest.raises(VarveError, match="with ignore_null_updates there is nothing"):
        dataclasses.replace(captured, ignore_null_updates=True, verify="0 3 * * *")


def histories(lab: Lab, numbers: range) -> list[Verification]:
    """One random history after the other on one table, each of some transactions, captured in batches of any size."""
    results = []
    for number in numbers:
        session = Application(lab, number % 3, number, 1 + number * 37 % 400, truncates=lab.kind == FULL)
        session.start()
        lab.capture(most=1 + number * 7 % 400)
        session.join()
        assert session.error is None
        results.append(verified(lab))
    return results


@pytest.mark.parametrize("kind", [FULL, UNKEYED])
def test_random_histories_have_no_difference(make_lab: Callable[..., Lab], kind: str) -> None:
    lab = make_lab(kind)
    lab.bootstrap()
    for result in histories(lab, range(2)):
        assert (result.rows, result.equal) == ((), True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DEFAULT, FULL, UNKEYED, HISTORY])
def test_two_hundred_random_histories_have_no_difference(make_lab: Callable[..., Lab], kind: str) -> None:
    lab = make_lab(kind)
    lab.bootstrap()
    for result in histories(lab, range(50)):
        assert (result.rows, result.equal) == ((), True)
