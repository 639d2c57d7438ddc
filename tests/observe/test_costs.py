"""What builds have cost, by what the catalog records of them."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.catalog.test_planning import DAILY, WEEKLY, arrive, day
from varve.catalog.backfills import Backfills
from varve.catalog.catalog import Catalog
from varve.catalog.history.drops import Drops
from varve.catalog.history.history import History
from varve.catalog.parts import Parts
from varve.catalog.recovery.recovery import recover
from varve.catalog.rows import full_declaration
from varve.cli.app import app
from varve.cli.observe import commands
from varve.cli.plan.heat import with_estimates
from varve.model.batch import BatchId, Input, Part, StagedBatch, TakenFile
from varve.model.dataset import StoreKind
from varve.model.errors import VarveError
from varve.model.inventory import DescribedBatch, Publication, StoreInventory
from varve.model.partitions.key import PartitionKey
from varve.observe.cost_statements import CostsBy
from varve.observe.costs import Costs, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

WEEK = PartitionKey.of(week=dt.date(2024, 1, 1))


@pytest.fixture
def catalog(fresh_database: str) -> Iterator[Catalog]:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        found = Catalog(connection)
        found.ensure_schema()
        yield found


def run(
    catalog: Catalog, sizes: Mapping[PartitionKey, int], *, run_id: str = "run", seconds: float = 2.0,
    inputs: Mapping[PartitionKey, Input] | None = None, failure: str = "",
) -> BatchId:  # fmt: skip
    """A run of so many seconds that writes batches of these bytes, with a tenth as many rows, or fails."""
    dataset = WEEKLY if WEEK in sizes else DAILY
    build = catalog.begin(dataset, list(sizes), run_id=run_id, code_version="")
    for key, read in (inputs or {}).items():
        build.reads(key, read)
    if failure:
        catalog.fail(build, failure)
    else:
        batches = [StagedBatch(key, f"/lake/{key.path}", size // 10, size, 1) for key, size in sizes.items()]
        catalog.staged(build, batches)
        catalog.publish(build)
    column = "failed_at" if failure else "staged_at"
    catalog.connection.execute(
        f"update varve.batch set started_at = {column} - %s * interval '1 second' where batch_id = %s",
        (seconds, build.batch_id.millis),
    )
    catalog.release(build)
    return build.batch_id


def test_what_a_batch_took_is_not_known_after_its_catalog_was_lost(catalog: Catalog) -> None:
    """It counted as the time from its start until the catalog was rebuilt: a month for this one."""
    built = BatchId(int((dt.datetime.now(dt.UTC) - dt.timedelta(days=31)).timestamp() * 1_000))
    declared = full_declaration(DAILY)
    batch = DescribedBatch("p.daily", day(1).path, built, "/lake/1", "run", "c", 10, 100, 1, "", (), (), declared)
    publication = Publication(built, "publish", "run", "", built.started, {day(1).path: built.millis})
    recover(catalog.connection, StoreKind.LAKE, StoreInventory("p.daily", [batch], [publication], []))
    (cost,) = Costs(catalog.connection).listed("p.daily")
    assert (cost.runs, cost.seconds, cost.bytes_written) == (1, 0, 100)
    assert Backfills(catalog.connection).costs(["p.daily"]) == {}


def test_the_partitions_of_a_run_are_one_job_whose_seconds_count_once(catalog: Catalog) -> None:
    run(catalog, {day(1): 100, day(2): 300}, run_id="first", seconds=4)
    run(catalog, {day(3): 50}, run_id="second", seconds=1)
    (cost,) = Costs(catalog.connection).listed("p.daily")
    assert (cost.runs, cost.failed, cost.partitions) == (2, 0, 3)
    assert cost.seconds == pytest.approx(5, abs=0.01)
    assert (cost.rows, cost.bytes_written, cost.bytes_read) == (45, 450, 0)
    second, first = Costs(catalog.connection).listed("p.daily", by=CostsBy.RUN)
    assert (first.run_id, first.partitions, first.bytes_written) == ("first", 2, 400)
    assert (second.run_id, second.seconds) == ("second", pytest.approx(1, abs=0.01))


def test_what_a_failed_run_took_is_counted(catalog: Catalog) -> None:
    run(catalog, {day(1): 100}, run_id="bad", seconds=3, failure="no rate")
    (cost,) = Costs(catalog.connection).listed("p.daily")
    assert (cost.runs, cost.failed, cost.bytes_written) == (1, 1, 0)
    assert cost.seconds == pytest.approx(3, abs=0.01)


def test_an_input_that_several_partitions_of_a_run_read_is_read_once(catalog: Catalog) -> None:
    first = run(catalog, {day(1): 1_000})
    read = Input("p.daily", day(1).path, str(first))
    run(catalog, {day(2): 10, day(3): 10}, run_id="readers", inputs={day(2): read, day(3): read})
    (cost, *_) = Costs(catalog.connection).listed("p.daily", by=CostsBy.RUN)
    assert (cost.run_id, cost.bytes_read) == ("readers", 1_000)


def test_landing_files_count_with_their_size(catalog: Catalog) -> None:
    catalog.arrived("p.daily", day(1), uri="/file", size=777, fingerprint="f1")
    run(catalog, {day(1): 10}, inputs={day(1): Input("landing:p.daily", day(1).path, "f1")})
    assert [cost.bytes_read for cost in Costs(catalog.connection).listed()] == [777]


def test_of_a_partition_that_grows_a_run_has_read_and_written_its_own_part_also_after_a_sweep(
    catalog: Catalog,
) -> None:
    run(catalog, {day(1): 100})
    # The arrival of a partition of many files is all of them.
    catalog.arrived("p.daily", day(1), uri="/folder", size=1_000, fingerprint="of all files")
    build = catalog.begin(DAILY, [day(1)], run_id="grown", code_version="")
    build.reads(day(1), Input("landing:p.daily", day(1).path, "of all files"))
    part = Part(build.batch_id, "/lake/b", 3, 30, (TakenFile("b.csv", "b", "f1", 4), TakenFile("c.csv", "c", "f2", 6)))
    catalog.staged(build, [StagedBatch(day(1), "/lake/b", 13, 130, 2, parts=(part,))])
    catalog.publish(build)
    catalog.release(build)

    def grown() -> tuple[int, int, int]:
        (cost,) = [cost for cost in Costs(catalog.connection).listed(by=CostsBy.RUN) if cost.run_id == "grown"]
        return cost.rows, cost.bytes_written, cost.bytes_read

    assert grown() == (3, 30, 10)
    run(catalog, {day(1): 1}, run_id="replaces it")
    catalog.connection.execute(
        "update varve.batch set state = 'swept', swept_at = now(), deleted_at = now() where batch_id = %s",
        (build.batch_id.millis,),
    )
    Parts(catalog.connection).forget("p.daily")
    assert catalog.connection.execute("select from varve.part").fetchall() == []
    assert grown() == (3, 30, 10)


def test_what_was_dropped_is_listed_under_its_name_beside_its_successor(catalog: Catalog) -> None:
    run(catalog, {day(1): 100}, run_id="before")
    dropped = Drops(catalog.connection).drop("p.daily", by="ann")
    (cost,) = Costs(catalog.connection).listed("p.daily")
    assert (cost.dataset, cost.bytes_written, cost.storage) == (dropped.remains, 100, Storage(retired=100))
    run(catalog, {day(1): 10}, run_id="after")
    listed = Costs(catalog.connection).listed("p.daily", by=CostsBy.RUN)
    assert {cost.run_id: cost.dataset for cost in listed} == {"before": dropped.remains, "after": "p.daily"}


def test_storage_is_what_readers_see_what_was_replaced_and_what_is_pinned(catalog: Catalog) -> None:
    first = run(catalog, {day(1): 100})
    run(catalog, {day(1): 10})
    run(catalog, {day(1): 1})
    assert Costs(catalog.connection).storage() == {"p.daily": Storage(current=1, retired=110)}
    History(catalog.connection).pin("p.daily", first, [day(1).path], owner="me", reason="audit")
    assert Costs(catalog.connection).storage("p.daily") == {"p.daily": Storage(current=1, retired=10, pinned=100)}


def test_what_batches_of_a_growing_warehouse_partition_share_is_held_once(catalog: Catalog) -> None:
    grown = replace(DAILY, name="p.grown", store=StoreKind.WAREHOUSE)
    numbers: list[int] = []

    def grow(size: int) -> None:
        build = catalog.begin(grown, [day(1)], run_id="grown", code_version="")
        numbers.append(build.batch_id.millis)
        catalog.connection.execute(
            "insert into varve.part values ('p.grown', %s, %s, 't', 1, %s)", (day(1).path, numbers[-1], size)
        )
        catalog.connection.execute(
            "insert into varve.batch_part values ('p.grown', %s, %s, %s, '')", (day(1).path, numbers[-1], numbers)
        )
        held = catalog.connection.execute(
            "select sum(bytes)::bigint from varve.part where part_id = any(%s)", (numbers,)
        )
        catalog.staged(build, [StagedBatch(day(1), "t", 1, held.fetchall()[0][0], 1)])
        catalog.publish(build)
        catalog.release(build)

    for size in (100, 10, 1):
        grow(size)
    assert Costs(catalog.connection).storage() == {"p.grown": Storage(current=111)}
    # The parts became one table: what only earlier batches list is retired, once.
    numbers.clear()
    grow(111)
    assert Costs(catalog.connection).storage() == {"p.grown": Storage(current=111, retired=111)}
    pinned = History(catalog.connection).batches("p.grown", [day(1).path])[2].batch_id
    History(catalog.connection).pin("p.grown", pinned, [day(1).path], owner="me", reason="audit")
    assert Costs(catalog.connection).storage("p.grown") == {"p.grown": Storage(current=111, retired=1, pinned=110)}


def test_months_are_those_in_which_runs_began(catalog: Catalog) -> None:
    old = run(catalog, {day(1): 100})
    catalog.connection.execute(
        "update varve.batch set started_at = '2025-12-31T23:59Z', staged_at = '2026-01-01T00:01Z' where batch_id = %s",
        (old.millis,),
    )
    run(catalog, {day(2): 10})
    listed = Costs(catalog.connection).listed(by=CostsBy.MONTH)
    assert [cost.month for cost in listed][-1] == "2025-12"
    assert listed[-1].seconds == 120
    recent = Costs(catalog.connection).listed(since=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert [cost.bytes_written for cost in recent] == [10]


def test_an_estimate_is_the_median_of_recent_runs(catalog: Catalog) -> None:
    for number, seconds in enumerate((1, 2, 1_000), start=1):
        run(catalog, {day(number): 100}, seconds=seconds)
    cost = Backfills(catalog.connection).costs(["p.daily", "p.weekly"])["p.daily"]
    assert cost.runs == 3
    assert cost.seconds == pytest.approx(2, abs=0.01)
    estimate = cost.estimate(10, runs=1)
    assert (estimate.rows, estimate.size) == (100, 1_000)
    assert estimate.seconds == pytest.approx(20, abs=0.1)
    # One slow run among the last three is no reason to expect slow ones; twenty runs ago nothing counts any more.
    for number in range(20):
        run(catalog, {day(number + 4): 1_000}, seconds=7)
    assert Backfills(catalog.connection).costs(["p.daily"])["p.daily"].seconds == pytest.approx(7, abs=0.01)
    due = [{"dataset": "p.daily", "partitions": 2}, {"dataset": "p.weekly", "partitions": 1}]
    estimated, unknown = with_estimates(due, Backfills(catalog.connection))
    assert (estimated["rows"], estimated["bytes"]) == (200, 2_000)
    assert unknown["seconds"] is None


def test_a_fingerprint_of_digits_is_no_batch_id(catalog: Catalog) -> None:
    arrive(catalog, day(1), "9" * 40)
    run(catalog, {day(1): 10}, inputs={day(1): Input("landing:p.daily", day(1).path, "9" * 40)})
    assert [cost.bytes_read for cost in Costs(catalog.connection).listed()] == [1]


def test_the_command_prints_a_table_and_refuses_what_was_never_built(
    catalog: Catalog, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    assert "No run has cost anything" in CliRunner().invoke(app, ["costs"]).output
    run(catalog, {day(1): 12_345}, seconds=150)
    monkeypatch.setattr(commands, "console", Console(width=200))
    printed = CliRunner().invoke(app, ["costs"])
    assert printed.exit_code == 0, printed.exception
    assert "p.daily" in printed.output
    assert "2 min" in printed.output
    assert "12.3 kB" in printed.output
    assert json.loads(CliRunner().invoke(app, ["costs", "p.daily", "--json"]).output)[0]["seconds"] == 150
    refused = CliRunner().invoke(app, ["costs", "p.dialy"])
    assert isinstance(refused.exception, VarveError)
    assert "nothing of 'p.dialy' was ever built. Did you mean p.daily?" in str(refused.exception)
    assert "write it like 7d" in str(CliRunner().invoke(app, ["costs", "--since", "a week"]).exception)


@pytest.mark.parametrize("words", [["costs"], ["metrics"]])
def test_without_a_catalog_a_command_says_what_to_do(
    words: list[str], fresh_database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    refused = CliRunner().invoke(app, words)
    assert "there is no catalog in database" in str(refused.exception)
    assert "`varve up` makes one" in str(refused.exception)
    # Nothing is started only to be looked at.
    monkeypatch.delenv("VARVE_POSTGRES_URL")
    monkeypatch.setenv("VARVE_HOME", str(tmp_path))
    refused = CliRunner().invoke(app, words)
    assert "is down, so there is no catalog to look at. Start it: varve up" in str(refused.exception)
    assert list(tmp_path.iterdir()) == []
