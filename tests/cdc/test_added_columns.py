"""A column that the source has added is loaded when the dataset declares it, without a new snapshot.

PostgreSQL's own rows are the oracle, whatever was captured and applied between the ALTER and the declaration.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest

from tests.cdc.lab import Follower, Killed
from tests.cdc.test_fleet import OpenSpark
from tests.cdc.test_looks import STEPS
from tests.cdc.test_odd_tables import INT, TEXT, TIME, captured, in_lake, in_source
from tests.support.project import PROJECT
from varve.cdc.captured_table import VALIDITY, CapturedTable, NeedsResnapshot, SourceRefused
from varve.cdc.captures import opened
from varve.cdc.health import capture_findings
from varve.dagster.assets.captured import capture_job, capture_sensor
from varve.model.errors import BadInput, VarveError
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from varve.model.batch import StagedBatch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COLUMNS = (Column("id", INT), Column("name", TEXT), Column("big", TEXT))
ADDED = {
    "none": ("int", INT), "seven": ("int default 7", INT), "odd": ("""text default E'x,"y{{}}\\'\\\\ NULL'""", TEXT),
    "empty": ("text default ''", TEXT), "at": ("timestamptz default now()", TIME),
    "amount": ("numeric(8,2) not null default 1.5", TEXT), "tags": ("text[] default '{{a,NULL}}'", TEXT),
    "raw": ("bytea default '\\xff00'", ColumnType.BINARY),
}  # fmt: skip
ALTER = "alter table {t} " + ", ".join(f"add {name} {kind}" for name, (kind, _) in ADDED.items())


def declare(follower: Follower, *columns: Column) -> None:
    dataset = follower.captured.dataset
    schema = Schema((*dataset.schema.columns, *columns))
    follower.captured = replace(follower.captured, dataset=replace(dataset, schema=schema))


def made(follow: Callable[[CapturedTable], Follower], *more: str, key: str = "primary key (id)") -> Follower:
    """A table of ten rows, captured and applied."""
    table = f"a{uuid.uuid4().hex[:8]}"
    follower = follow(captured(f"public.{table}", COLUMNS, "cast(pmod(id, 4) as string)"))
    follower.sql(f"create table {{t}} ({', '.join(('id int', 'name text', 'big text', *more, key))})")
    follower.sql("alter table {t} alter big set storage external")
    follower.sql("insert into {t} (id, name) select i, 'n' || i from generate_series(0, 9) i")
    follower.bootstrap()
    follower.apply()
    return follower


def catches_up(follower: Follower, most: int = 500) -> tuple[StagedBatch, ...]:
    """Captures and applies; the lake is what PostgreSQL has."""
    while follower.capture(most=most) is not None:
        pass
    done = follower.apply()
    assert in_lake(follower) == in_source(follower)
    assert done is None or done.quarantined == 0
    return done.published if done else ()


@pytest.mark.parametrize(
    "looked", [pytest.param("never", marks=pytest.mark.slow), "captured", "applied", "declared first"]
)
def test_every_row_has_what_postgresql_has_in_the_added_columns(
    follow: Callable[[CapturedTable], Follower], looked: str
) -> None:
    follower = made(follow)
    follower.sql("insert into {t} (id, name) values (20, 'before')")
    follower.sql("update {t} set name = 'before' where id in (1, 2)")
    follower.sql("update {t} set id = 30 where id = 3")
    added = [Column(name, kind) for name, (_, kind) in ADDED.items()]
    if looked == "declared first":
        declare(follower, *added)
        with pytest.raises(VarveError, match=r"the source does not send it.*Add the column to the source first"):
            follower.capture()
    follower.sql(ALTER)
    follower.sql("update {t} set seven = 8, none = 1 where id in (2, 4)")
    follower.sql("update {t} set id = 50, seven = null where id = 5")
    follower.sql("insert into {t} (id) values (60)")
    follower.sql("delete from {t} where id = 6")
    follower.sql("insert into {t} (id, odd) values (6, 'again')")
    if looked in {"captured", "applied"}:
        follower.capture()
    if looked == "applied":
        follower.apply()
    follower.sql("update {t} set odd = 'later' where id = 7")
    if looked != "declared first":
        declare(follower, *added)
    assert catches_up(follower, most=1)
    follower.sql("update {t} set tags = null, name = 'after' where id in (7, 8)")
    assert catches_up(follower)
    assert catches_up(follower) == ()


def test_a_capture_waits_for_a_declared_column_without_runs_and_goes_on_when_the_source_has_it(
    follow: Callable[[CapturedTable], Follower], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = made(follow)
    name = follower.captured.dataset.name
    follower.sql("update {t} set name = 'captured, and not applied' where id = 1")
    follower.capture()
    declare(follower, Column("extra", INT))
    monkeypatch.setenv("VARVE_SOURCE_URL", follower.url)
    job, instance = capture_job(follower.captured, PROJECT), dg.DagsterInstance.ephemeral()
    sensor = capture_sensor(follower.captured, PROJECT, job)

    def found() -> list[str]:
        with follower.catalog() as catalog:
            return [finding.problem for finding in capture_findings(catalog.connection, name)]

    for _ in range(2):
        skipped = sensor(dg.build_sensor_context(instance))
        assert isinstance(skipped, dg.SkipReason)
        assert "Nothing was captured" in str(skipped.skip_message)
        assert "declares extra since its rows were loaded, and the source does not send it" in str(skipped.skip_message)
        assert found() == [f"its capture of {follower.table} waits"]
    follower.sql("alter table {t} add extra int default 7")
    asked = sensor(dg.build_sensor_context(instance))
    assert isinstance(asked, dg.SensorResult)
    assert (asked.run_requests or ())[0].tags["why"] == "0 events captured, 1 to apply; extra to load"
    assert job.execute_in_process(instance=instance, resources={"spark": OpenSpark(spark)}).success
    assert in_lake(follower) == in_source(follower)
    assert found() == []


def test_a_column_without_a_default_publishes_only_partitions_that_have_a_value_in_it(
    follow: Callable[[CapturedTable], Follower],
) -> None:
    follower = made(follow)
    follower.sql("alter table {t} add extra int")
    follower.sql("update {t} set extra = 1 where id = 1")
    follower.sql("update {t} set name = name where id = 2")
    assert catches_up(follower) == ()
    declare(follower, Column("extra", INT))
    assert [batch.partition.path for batch in catches_up(follower)] == ["part=1"]
    # One more column, of which no row has a value: nothing is published, and it is declared all the same.
    follower.sql("alter table {t} add more int")
    declare(follower, Column("more", INT))
    assert catches_up(follower) == ()
    follower.sql("update {t} set more = 5, extra = 6 where id = 3")
    assert [batch.partition.path for batch in catches_up(follower)] == ["part=3"]


@pytest.mark.parametrize("step", ["resolved", "staged", "committing", "published"])
def test_an_apply_that_dies_loads_the_column_the_next_time(
    follow: Callable[[CapturedTable], Follower], step: str
) -> None:
    follower = made(follow)
    follower.sql("alter table {t} add extra int default 7")
    follower.sql("update {t} set extra = 1 where id = 1")
    follower.capture()
    follower.apply()
    declare(follower, Column("extra", INT))
    follower.capture()
    with pytest.raises(Killed):
        follower.apply(die_at=step)
    catches_up(follower)


@pytest.mark.parametrize(
    ("alter", "kind", "error", "message"),
    [
        ("add extra float8 default random()", ColumnType.DOUBLE, NeedsResnapshot, "every row written anew"),
        ("add extra int generated always as identity", INT, NeedsResnapshot, "every row written anew"),
        ("add extra bigint", INT, SourceRefused, "extra is bigint at the source and declared INT"),
        ("add extra box default '((1,1),(0,0))'", TEXT, NeedsResnapshot, "cannot be read"),
        ("add extra date default 'infinity'", ColumnType.DATE, NeedsResnapshot, "a value of it is none of date"),
    ],
)
def test_what_cannot_be_loaded_so_is_refused(
    follow: Callable[[CapturedTable], Follower], alter: str, kind: ColumnType, error: type[VarveError], message: str
) -> None:
    follower = made(follow)
    before = in_lake(follower)
    follower.sql(f"alter table {{t}} {alter}")
    declared_before = follower.captured
    declare(follower, Column("extra", kind))

    def catch_up() -> None:
        follower.capture()
        follower.apply()

    with pytest.raises(error, match=message):
        catch_up()
    follower.captured = declared_before
    assert in_lake(follower) == before


def test_where_the_events_do_not_say_it_a_snapshot_is_asked_for(follow: Callable[[CapturedTable], Follower]) -> None:
    snapshot = r"cannot be loaded from the stream.*{}.*varve cdc resnapshot"
    follower = made(follow, "there int")
    declared_before = follower.captured
    declare(follower, Column("there", INT))
    with pytest.raises(NeedsResnapshot, match=snapshot.format("was not added since")):
        follower.capture()
    # A large value that an update left alone is not in its event.
    follower.captured = declared_before
    follower.sql("alter table {t} add large text")
    follower.sql("alter table {t} alter large set storage external")
    follower.sql("update {t} set large = repeat('x', 9000) where id = 1")
    follower.sql("update {t} set name = 'y' where id = 1")
    follower.capture()
    follower.apply()
    declare(follower, Column("large", TEXT))
    follower.capture()
    with pytest.raises(NeedsResnapshot, match=snapshot.format("large and unchanged")):
        follower.apply()
    # Events that were applied are not kept for ever.
    follower.captured = declared_before
    follower.sql("alter table {t} add extra int")
    follower.sql("update {t} set extra = 1 where id = 2")
    follower.capture()
    settings = follower.settings.model_copy(update={"source_url": None, "changes_days": 0})
    with opened(follower.captured, settings) as capture:
        from varve.stores.open import open_store

        assert capture.apply(open_store, follower.spark, "test") is not None
    declare(follower, Column("extra", INT))
    for refused in (follower.capture, follower.apply):
        with pytest.raises(NeedsResnapshot, match=snapshot.format("VARVE_CHANGES_DAYS")):
            refused()
    follower.bootstrap(resnapshot=True)
    catches_up(follower)


UPDATED = "update {t} set extra = '1' where id = 1"
LOOK = "look"


@pytest.mark.parametrize(
    "steps",
    [
        ("add tmp text", UPDATED.replace("extra", "tmp"), LOOK, "rename tmp to extra"),
        ("add tmp text", UPDATED.replace("extra", "tmp"), LOOK, "rename tmp to extra", LOOK),
        ("add tmp text", UPDATED.replace("extra", "tmp"), "rename tmp to extra"),
        ("add tmp text", "insert into {t} (id, tmp) values (20, '1')", "rename tmp to extra", LOOK),
        ("add extra text", LOOK, "rename extra to tmp", UPDATED.replace("extra", "tmp"), "rename tmp to extra", LOOK),
        (UPDATED.replace("extra", "old"), LOOK, "rename old to extra", UPDATED, "drop extra", "add extra text", LOOK),
        ("rename old to extra", LOOK, UPDATED, "drop extra", "add extra text", LOOK),
        ("add extra text", UPDATED, "drop extra", "add extra text", LOOK),
        ("add extra text", "add tmp text", LOOK, UPDATED, "rename extra to was", "rename tmp to extra",
         "rename was to tmp", UPDATED, LOOK),
        ("add extra text", "add tmp text", LOOK, "rename extra to was", "rename tmp to extra", "rename was to tmp",
         UPDATED, "rename extra to was", "rename tmp to extra", "rename was to tmp", LOOK),
    ],
)  # fmt: skip
def test_a_column_whose_name_was_not_its_own_all_the_time_asks_for_a_snapshot(
    follow: Callable[[CapturedTable], Follower], steps: tuple[str, ...]
) -> None:
    follower = made(follow, "old text")
    for step in steps:
        if step == LOOK:
            follower.capture()
            follower.apply()
        else:
            follower.sql(step if "{t}" in step else f"alter table {{t}} {step}")
    declare(follower, Column("extra", TEXT))

    def catch_up() -> None:
        follower.capture()
        follower.apply()

    for _ in range(2):
        with pytest.raises(NeedsResnapshot, match=r"extra is declared since.*renamed or dropped.*varve cdc resnapshot"):
            catch_up()
    follower.bootstrap(resnapshot=True)
    catches_up(follower)


def test_other_columns_may_be_renamed_and_dropped_while_the_added_one_waits(
    follow: Callable[[CapturedTable], Follower],
) -> None:
    follower = made(follow, "old text", "older text")
    for step in ("add extra text", UPDATED, LOOK, "rename old to was", UPDATED.replace("1", "2"), LOOK, "drop older",
                 UPDATED.replace("1", "3"), "add more int", UPDATED.replace("1", "4"), LOOK):  # fmt: skip
        if step == LOOK:
            follower.capture()
            follower.apply()
        else:
            follower.sql(step if "{t}" in step else f"alter table {{t}} {step}")
    declare(follower, Column("extra", TEXT))
    assert catches_up(follower)


def test_histories_tables_without_a_key_and_required_columns_ask_for_a_snapshot(
    follow: Callable[[CapturedTable], Follower],
) -> None:
    def refused(follower: Follower, message: str, *, nullable: bool = True) -> None:
        follower.sql("alter table {t} add extra int default 7")
        follower.capture()
        declare(follower, Column("extra", INT, nullable=nullable))
        with pytest.raises(NeedsResnapshot, match=f"{message}.*varve cdc resnapshot"):
            follower.capture()

    refused(made(follow), "declared NOT NULL", nullable=False)
    unkeyed = follow(captured(f"public.u{uuid.uuid4().hex[:8]}", COLUMNS, "'0'"))
    unkeyed.sql("create table {t} (id int, name text, big text)")
    unkeyed.sql("alter table {t} replica identity full")
    history = follow(captured(f"public.h{uuid.uuid4().hex[:8]}", (*COLUMNS, *VALIDITY), "'0'"))
    history.captured = replace(history.captured, history=True)
    history.sql("create table {t} (id int primary key, name text, big text)")
    for follower, message in ((unkeyed, "no key that tells"), (history, "versions that lie in its history")):
        follower.bootstrap()
        refused(follower, message)


def test_an_alter_that_is_undone_before_capture_has_stopped_loses_no_value_of_an_added_column(
    follow: Callable[[CapturedTable], Follower],
) -> None:
    follower = made(follow)
    follower.sql("alter table {t} add extra int default 7")
    for number in range(4):
        follower.sql(f"update {{t}} set extra = {number} where id = {number}")
    follower.sql("alter table {t} rename name to title")
    # Only a part of what was committed before it.
    assert follower.capture(most=1) is not None
    follower.sql("alter table {t} rename title to name")
    follower.sql("update {t} set extra = 8 where id = 8")
    assert catches_up(follower) == ()
    declare(follower, Column("extra", INT))
    assert catches_up(follower)


def test_a_row_without_a_value_where_one_is_declared_is_told_and_taken_when_it_has_one(
    follow: Callable[[CapturedTable], Follower],
) -> None:
    table = f"a{uuid.uuid4().hex[:8]}"
    columns = (Column("id", INT), Column("name", TEXT, nullable=False), Column("big", TEXT))
    follower = follow(captured(f"public.{table}", columns, "cast(pmod(id, 4) as string)"))
    follower.sql("create table {t} (id int primary key, name text, big text)")
    follower.sql("insert into {t} values (1, 'one'), (2, 'two')")
    follower.bootstrap()
    assert follower.apply() is not None
    before = in_lake(follower)
    follower.sql("insert into {t} values (3, null), (4, 'four')")
    assert follower.capture() is not None
    for _ in range(2):
        with pytest.raises(
            BadInput, match=r"name is declared NOT NULL, and nothing stands there .* So the source has it"
        ):
            follower.apply()
    assert in_lake(follower) == before
    follower.sql("update {t} set name = 'three' where id = 3")
    assert catches_up(follower)


def test_dagster_asks_for_a_run_that_loads_the_column(
    follow: Callable[[CapturedTable], Follower], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = made(follow)
    follower.sql("alter table {t} add extra int default 7")
    declare(follower, Column("extra", INT))
    monkeypatch.setenv("VARVE_SOURCE_URL", follower.url)
    job, instance = capture_job(follower.captured, PROJECT), dg.DagsterInstance.ephemeral()
    sensor = capture_sensor(follower.captured, PROJECT, job)
    asked = sensor(dg.build_sensor_context(instance))
    assert isinstance(asked, dg.SensorResult)
    (request,) = asked.run_requests or ()
    assert request.tags["why"].endswith("extra to load")
    # The run fails, as without Spark. What it has left is asked for again, though the source has nothing new.
    broken = dg.ResourceDefinition(lambda _: 1 / 0)
    assert not job.execute_in_process(instance=instance, resources={"spark": broken}, raise_on_error=False).success
    waits = sensor(dg.build_sensor_context(instance))
    assert isinstance(waits, dg.SkipReason)
    assert "extra to load. The last 1 run failed" in str(waits.skip_message)
    monkeypatch.setenv("VARVE_BACKOFF_SECONDS", "0")
    assert isinstance(sensor(dg.build_sensor_context(instance)), dg.SensorResult)
    done = job.execute_in_process(instance=instance, resources={"spark": OpenSpark(spark)})
    assert len([event for event in done.all_events if event.is_step_materialization]) == 4
    assert in_lake(follower) == in_source(follower)
    assert isinstance(sensor(dg.build_sensor_context(instance)), dg.SkipReason)
    # It has stopped, and is declared otherwise, too: the error says why it has stopped.
    follower.sql("update {t} set extra = 8 where id = 1")
    follower.sql("alter table {t} rename name to title")
    assert isinstance(sensor(dg.build_sensor_context(instance)), dg.SensorResult)
    declare(follower, Column("more", INT))
    with pytest.raises(dg.Failure, match="name is now called title"):
        capture_job(follower.captured, PROJECT).execute_in_process(resources={"spark": OpenSpark(spark)})


def equal_with_added_columns(follow: Callable[[CapturedTable], Follower], seed: int) -> None:
    """A random history, with columns that are added and declared at any time, and captures that die anywhere."""
    pick, follower = random.Random(seed), made(follow)
    if seed % 2:
        follower.sql("alter table {t} replica identity full")
    undeclared: list[Column] = []
    extra: list[str] = []

    def change(source: psycopg.Connection) -> None:
        table, a, b = follower.table, pick.randint(0, 14), pick.randint(0, 14)
        column, value = pick.choice(["name", *extra]), pick.choice(["null", "'1'", "'2'", "default"])
        source.execute(pick.choice((
            f"insert into {table} (id, {column}) values ({a}, {value})",
            f"update {table} set {column} = {value} where id = {a}",
            f"update {table} set id = {b} where id = {a}",
            f"update {table} set big = repeat('{b % 10}', 3000) where id = {a}",
            f"delete from {table} where id = {a}",
        )))  # fmt: skip

    with follower.source() as source:
        for number in range(6):
            for _ in range(pick.randint(0, 12)):
                with contextlib.suppress(psycopg.errors.UniqueViolation), source.transaction():
                    for _ in range(pick.randint(1, 3)):
                        change(source)
            if pick.random() < 0.6:
                default = pick.choice(("", " default 7", " default 8"))
                with contextlib.suppress(psycopg.errors.UniqueViolation), source.transaction():
                    change(source)
                    source.execute(f"alter table {follower.table} add extra{number} int{default}")
                    change(source)
                with source.cursor() as cursor:
                    cursor.execute(f"select * from {follower.table} limit 0")
                    names = [column.name for column in cursor.description or ()]
                if f"extra{number}" in names:
                    extra.append(f"extra{number}")
                    undeclared.append(Column(f"extra{number}", INT))
            if undeclared and pick.random() < 0.5:
                declare(follower, *undeclared)
                undeclared.clear()
            dies_at, limit = pick.choice((*STEPS, None, None)), pick.choice((1, 3, 500))

            def step(name: str, dies_at: str | None = dies_at) -> None:
                if name == dies_at:
                    raise Killed(name)

            with contextlib.suppress(Killed):
                follower.capture(step, most=limit)
            if pick.random() < 0.4:
                with contextlib.suppress(VarveError):
                    # Declared and not captured yet, where the capture died.
                    follower.apply()
    declare(follower, *undeclared)
    catches_up(follower)
    follower.sql(f"select pg_drop_replication_slot('{follower.captured.slot}')")


@pytest.mark.slow
def test_random_histories_with_added_columns_end_in_the_table_that_postgresql_has(
    follow: Callable[[CapturedTable], Follower],
) -> None:
    for seed in range(3):
        equal_with_added_columns(follow, seed)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_20_random_histories_with_added_columns_end_in_the_table_that_postgresql_has(
    follow: Callable[[CapturedTable], Follower],
) -> None:
    for seed in range(3, 23):
        equal_with_added_columns(follow, seed)
