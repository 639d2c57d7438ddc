"""Partitions that are accepted as they are: by `varve accept`, and by a backfill that leaves some out."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.shop import Shop
from tests.support.project import ROOT
from varve.catalog.code.code_states import CodeStates
from varve.dagster.discovery import load_project
from varve.model.batch import Input, StagedBatch
from varve.model.errors import VarveError
from varve.planning.tick import Tick
from varve.project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.workbench import Workbench
    from varve.model.dataset import Dataset

DAY = "2026-11-01"
PATH = f"day={DAY}"
PENS = [(1, "pen", "1.00")]
OF_SALES = "AS SELECT product, price FROM shop.sales WHERE sales.day = today;"


@pytest.fixture
def shop(tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """`sales`, read by `revenue` and `prices`; `sums` reads `revenue`. All have one day, made from what is current."""
    monkeypatch.setenv("DAGSTER_HOME", str(ROOT))
    shop = Shop.at(tmp_path, workbench, monkeypatch)
    shop.sql("revenue", OF_SALES)
    shop.sql("prices", OF_SALES)
    shop.sql("sums", "AS SELECT product, price FROM shop.revenue WHERE revenue.day = today;")
    make(shop, "sales", "a")
    for name, source in (("revenue", "sales"), ("prices", "sales"), ("sums", "revenue")):
        make(shop, name, "a", source)
    return shop


def make(shop: Shop, name: str, product: str, source: str | None = None) -> int:
    """Publish the day of a dataset from what is current of its source, as a run would; return the batch."""
    dataset = shop.asset(name).dataset
    key = dataset.partitioning.from_path(PATH)
    columns = "1 AS id, 'x' AS product, CAST(1 AS DECIMAL(10, 2)) AS price, TIMESTAMP '2026-11-01' AS sold_at"
    frame = shop.workbench.spark.sql(f"SELECT {columns}, DATE '{DAY}' AS day".replace("'x'", f"'{product}'"))
    frame = frame.select(*dataset.schema.names, "day")
    with closing((catalog := shop.workbench.catalog()).connection):
        build = shop.workbench.begin(catalog, dataset, [key])
        if source is not None:
            of_source = catalog.current(shop.asset(source).dataset.name)[PATH]
            build.inputs[key] = frozenset({Input(f"{shop.db}.{source}", PATH, str(of_source.batch_id))})  # type: ignore[index]
        store = shop.workbench.store(dataset, catalog)
        staged = store.stage(build, frame)
        catalog.staged(build, staged)
        store.publish(build, staged)
        catalog.release(build)
        return build.batch_id.millis


def why(shop: Shop, name: str) -> dict[str, Any]:
    judgement: dict[str, Any] = shop.json("why", f"shop.{name}", PATH)
    return judgement


def states(shop: Shop) -> dict[str, str]:
    return {name: why(shop, name)["state"] for name in ("revenue", "prices", "sums")}


def refusal(shop: Shop, *words: str) -> str:
    error = shop.run(*words).exception
    assert isinstance(error, VarveError), error
    return str(error)


def test_what_is_accepted_is_current_until_its_input_changes_again(shop: Shop) -> None:
    assert states(shop) == {"revenue": "current", "prices": "current", "sums": "current"}
    batch = make(shop, "sales", "b")
    assert states(shop) == {"revenue": "due", "prices": "due", "sums": "current"}
    accepted = shop.json("accept", "shop.revenue", PATH, "--reason", "a typing error")
    changed = [{"dataset": f"{shop.db}.sales", "partition": PATH, "version": str(batch)}]
    assert accepted["accepted"] == [{"partition": PATH, "changed": changed}]
    assert states(shop) == {"revenue": "accepted", "prices": "due", "sums": "current"}
    reason = why(shop, "revenue")["reason"]
    assert reason.startswith(f"accepted as it is, although {shop.db}.sales {PATH} changed, by ")
    assert reason.endswith(": a typing error")
    (heat,) = [each for each in shop.json("plan")["datasets"] if each["dataset"] == f"{shop.db}.revenue"]
    assert heat["states"]["accepted"] == 1
    assert "none of 1 partition is stale" in refusal(shop, "accept", "shop.revenue", PATH)
    # A repair makes no batch, and moves the Hive table to the same one.
    shop.json("repair", "shop.revenue")
    assert states(shop)["revenue"] == "accepted"
    make(shop, "sales", "c")
    assert states(shop)["revenue"] == "due"


def test_an_acceptance_is_taken_back_and_ends_with_the_next_batch(shop: Shop) -> None:
    make(shop, "sales", "b")
    shop.json("accept", "shop.revenue")
    assert shop.json("accept", "shop.revenue", "--take-back")["taken_back"] == [PATH]
    assert states(shop)["revenue"] == "due"
    assert "no partition was accepted" in refusal(shop, "accept", "shop.revenue", "--take-back")
    shop.json("accept", "shop.revenue")
    make(shop, "revenue", "b", "sales")
    assert states(shop)["revenue"] == "current"
    assert "no partition was accepted" in refusal(shop, "accept", "shop.revenue", "--take-back")


def test_what_is_missing_or_marked_is_not_accepted(shop: Shop) -> None:
    message = refusal(shop, "accept", "shop.revenue", "day=2026-11-02")
    assert "revenue: day=2026-11-02 has no batch, and there is nothing to accept. Nothing was changed" in message
    assert "varve backfill start" in message
    shop.json("backfill", "start", "shop.revenue", PATH)
    assert "has marked it. Nothing was changed. Cancel that first" in refusal(shop, "accept", "shop.revenue", PATH)


def test_a_backfill_chooses_what_is_rebuilt_and_the_rest_is_accepted(shop: Shop) -> None:
    started = shop.json(
        "backfill", "start", "shop.sales", PATH, "--downstream", f"{shop.db}.revenue", "--accept", "rest",
        "--reason", "wrong prices",
    )  # fmt: skip
    assert started["accepted"] == {f"{shop.db}.prices": [PATH], f"{shop.db}.sums": [PATH]}
    # What is accepted does not wait for what the backfill makes.
    assert states(shop).items() >= {"prices": "current", "sums": "current"}.items()
    make(shop, "sales", "b")
    assert states(shop) == {"revenue": "due", "prices": "accepted", "sums": "current"}
    make(shop, "revenue", "b", "sales")
    assert states(shop) == {"revenue": "current", "prices": "accepted", "sums": "accepted"}
    # A change that is not of the backfill is one.
    make(shop, "sales", "c")
    assert states(shop) == {"revenue": "due", "prices": "due", "sums": "accepted"}


def test_a_build_from_before_the_backfill_is_not_what_was_accepted(shop: Shop) -> None:
    dataset = shop.asset("sales").dataset
    key = dataset.partitioning.from_path(PATH)
    with closing((catalog := shop.workbench.catalog()).connection):
        early = shop.workbench.begin(catalog, dataset, [key])
        shop.json("backfill", "start", "shop.sales", PATH, "--accept", "rest")
        store = shop.workbench.store(dataset, catalog)
        columns = "1 AS id, 'b' AS product, CAST(1 AS DECIMAL(10, 2)) AS price, TIMESTAMP '2026-11-01' AS sold_at"
        staged = store.stage(early, shop.workbench.spark.sql(f"SELECT {columns}, DATE '{DAY}' AS day"))
        catalog.staged(early, staged)
        store.publish(early, staged)
        catalog.release(early)
    assert why(shop, "prices")["state"] in {"due", "waiting"}


def test_a_cancelled_backfill_accepts_nothing_more(shop: Shop) -> None:
    number = shop.json("backfill", "start", "shop.sales", PATH, "--accept", "rest")["backfill"]
    assert shop.run("backfill", "cancel", str(number)).exit_code == 0
    make(shop, "sales", "b")
    assert states(shop)["prices"] == "due"


def test_what_cannot_be_left_out_is_refused(shop: Shop) -> None:
    words = ("backfill", "start", "shop.sales", PATH)
    both = refusal(shop, *words, "--downstream", "all", "--accept", f"{shop.db}.prices")
    assert "prices: computed again by this backfill" in both
    assert "Nothing was marked" in both
    alone = refusal(shop, *words, "--accept", f"{shop.db}.sums")
    assert f"sums reads {shop.db}.revenue, which would follow by itself. Nothing was marked" in alone
    assert "--accept takes none, rest" in refusal(shop, *words, "--accept", "all")
    for option in ("--downstream", "--accept"):
        forgotten = refusal(shop, *words, option, "--dry-run")
        assert forgotten.startswith(f"{option} needs a value, and --dry-run stands in its place. Write {option} all")
        assert "Nothing was marked" in forgotten
    assert shop.json(*words, "--accept", "rest", "--dry-run")["backfill"] is None
    assert "no partition was accepted" in refusal(shop, "accept", "shop.prices", "--take-back")


def test_a_partition_that_has_left_the_graph_keeps_no_other_from_being_accepted(shop: Shop) -> None:
    make(shop, "sales", "b")
    # A day that is none of the series any more has a batch still: nobody has retired it.
    dataset = shop.asset("revenue").dataset
    gone = dataset.partitioning.from_path("day=2026-11-02")
    with closing((catalog := shop.workbench.catalog()).connection):
        build = shop.workbench.begin(catalog, dataset, [gone])
        catalog.staged(build, [StagedBatch(gone, "/nowhere", 1, 1, 1)])
        catalog.publish(build)
        catalog.release(build)
    file = shop.assets / "revenue.sql"
    file.write_text(file.read_text().replace("END '2026-11-08'", "END '2026-11-02'"))
    assert shop.asset("revenue").dataset.partitioning.count() == 1
    assert [each["partition"] for each in shop.json("retire", "shop.revenue", "--dry-run")] == ["day=2026-11-02"]
    accepted = shop.json("accept", "shop.revenue")["accepted"]
    assert [each["partition"] for each in accepted] == [PATH]


def test_a_dataset_that_cannot_be_planned_is_shown_by_the_plan_and_costs_itself_only(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Tick.judge_dataset

    def failing(tick: Tick, dataset: Dataset) -> int:
        if dataset.table == "prices":
            raise KeyError("LGA")
        return judged(tick, dataset)

    monkeypatch.setattr(Tick, "judge_dataset", failing)
    planned = shop.json("plan")
    assert [(entry["dataset"], entry["kind"]) for entry in planned["left_out"]] == [(f"{shop.db}.prices", "plan")]
    assert f"not planned: {shop.db}.prices: 'LGA'" in shop.run("plan").output
    assert shop.json("retire", "--dry-run") == []
    make(shop, "sales", "b")
    assert shop.json("accept", "shop.revenue")["accepted"]
    for words in (("accept", "shop.prices"), ("retire", "shop.prices", "--dry-run")):
        assert f"{shop.db}.prices cannot be planned: 'LGA'" in refusal(shop, *words)


def test_the_list_of_backfills_says_what_keeps_a_partition_from_being_run(shop: Shop) -> None:
    shop.sql("rates", "EXTERNAL;", columns="(id INT, product STRING)")
    shop.sql("priced", "AS SELECT s.product, r.id FROM shop.sales s JOIN shop.rates r USING (product) "
             "WHERE s.day = today AND r.day = today;")  # fmt: skip
    shop.asset("priced")
    number = shop.json("backfill", "start", "shop.priced", PATH, "--reason", "wrong rates")["backfill"]
    started = shop.json("backfill", "start", "shop.revenue", PATH, "--reason", "again")["backfill"]

    def held_up() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Of these two; other tests have theirs in the same catalog."""
        by_number = {row["number"]: row["held_up"] for row in shop.json("backfill", "list")}
        return by_number[number], by_number[started]

    why_not = f"missing, and waits: {shop.db}.rates: 0 of 1 there; waits for 1"
    waiting = {"dataset": f"{shop.db}.priced", "state": "waiting", "reason": why_not, "partitions": [PATH]}
    # What is asked for now is not held up, nor is anything of a backfill that somebody has paused.
    assert held_up() == ([waiting], [])
    said = shop.run("backfill", "list").output
    assert f"Backfill {number}: {shop.db}.priced {PATH}: waiting: {why_not}." in said
    shop.run("backfill", "pause", str(number))
    assert held_up() == ([], [])
    for each in (number, started):
        shop.run("backfill", "cancel", str(each))


def test_who_accepts_what_other_code_has_made_is_told_that_it_stays_out_of_date(shop: Shop) -> None:
    graph = load_project(Project.find(shop.root)).graph
    with closing(shop.workbench.catalog().connection) as connection:
        CodeStates(connection).of(graph, deploy=True)
        # As runs of that code note it.
        of_code = "update varve.batch set code_version = %s where dataset = %s"
        connection.execute(of_code, (graph.code_versions[f"{shop.db}.revenue"], f"{shop.db}.revenue"))
    shop.sql("revenue", OF_SALES.replace("product, price", "UPPER(product) AS product, price"))
    shop.asset("revenue")
    number = shop.json("plan")["changes"]["number"]
    assert shop.run("apply", str(number), "--rebuild").exit_code == 0
    make(shop, "sales", "b")
    done = shop.json("accept", "shop.revenue", PATH)
    assert (len(done["accepted"]), done["of_other_code"]) == (1, [PATH])
    make(shop, "sales", "c")
    said = " ".join(shop.run("accept", "shop.revenue", PATH).output.split())
    assert f"{PATH}: still out of date, as made by other code than is deployed: `varve plan` and `varve apply`" in said
