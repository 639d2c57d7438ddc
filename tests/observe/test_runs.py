"""A small project run for real: what its runs tell OpenLineage, its logs, its metrics and what it has cost."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from tests.documents.pages import blocks
from tests.observe.openlineage import columns_of, problems, reads_of
from tests.support.project import commands_on
from varve.catalog.catalog import Catalog
from varve.cli.app import app
from varve.dagster.assets.datasets import DatasetAsset, graph_of
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.definitions import build_defs
from varve.dagster.instance import open_instance
from varve.dagster.internal.runs import format_run_logs
from varve.services.postgres import connect
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from varve.services.settings import Settings

pytestmark = pytest.mark.spark

HEAD = """CREATE DATASET {db}.{name} ({columns})
STORED IN {store}
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-04')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
"""
SALES = """EXPECT revenue_positive: revenue >= 0, has_product: product IS NOT NULL
AS SELECT product, SUM(price) AS revenue, COUNT(*) AS n FROM {db}.receipts
WHERE receipts.day = today GROUP BY product"""
BODIES = {
    "receipts": ("LAKE", "product STRING, price INT", "EXTERNAL OPTIONS (source = 'table', table = '{table}')"),
    "sales": ("LAKE", "product STRING, revenue BIGINT, n BIGINT", SALES),
    "best": (
        "WAREHOUSE", "product STRING, share DOUBLE, made BIGINT",
        "AS SELECT s.product, s.revenue / s.n AS share, 7 AS made FROM {db}.sales s WHERE s.day = today",
    ),
}  # fmt: skip
ROWS = [("x", 1, "2022-03-01"), ("y", 2, "2022-03-01"), ("x", 3, "2022-03-02"), ("z", -1, "2022-03-03")]


@dataclass
class Story:
    """What was run: two good days, and a third one whose rows break an expectation."""

    db: str
    assets: list[DatasetAsset]
    folder: Path
    events: list[dict[str, Any]]
    runs: dict[tuple[str, str], str]
    stderr: str


@pytest.fixture(scope="module")
def story(settings: Settings, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    db, folder = f"told{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("assets")
    table = f"default.{db}_dumps"
    spark.createDataFrame(ROWS, "product STRING, price INT, day STRING").write.partitionBy("day").saveAsTable(table)
    texts = {
        name: HEAD.format(db=db, name=name, store=store, columns=columns) + body.format(db=db, table=table)
        for name, (store, columns, body) in BODIES.items()
    }
    for name, text in texts.items():
        (folder / f"{name}.sql").write_text(text, encoding="utf-8")
    compiled_files = compiled([SourceFile(f"{name}.sql", text) for name, text in texts.items()], {})
    assets = [asset for asset in sql_assets(compiled_files) if isinstance(asset, DatasetAsset)]
    sent, log, runs = folder.parent / f"{db}.events", folder.parent / f"{db}.log", {}
    with pytest.MonkeyPatch.context() as environment, log.open("w") as stderr:
        environment.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
        environment.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(sent))
        environment.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
        environment.setenv("VARVE_LOG_FORMAT", "json")
        environment.setattr("sys.stderr", stderr)
        job = build_defs(assets).resolve_implicit_global_asset_job_def()
        with open_instance(settings) as instance:
            for name, first, last in (
                ("receipts", "2022-03-01", "2022-03-03"), ("sales", "2022-03-01", "2022-03-02"),
                ("sales", "2022-03-03", "2022-03-03"), ("best", "2022-03-01", "2022-03-02"),
            ):  # fmt: skip
                done = job.execute_in_process(
                    instance=instance,
                    asset_selection=[dg.AssetKey([db, name])],
                    tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
                    raise_on_error=False,
                )
                runs[name, first] = done.run_id
    format_run_logs(None)
    events = [json.loads(line) for line in sent.read_text(encoding="utf-8").splitlines()]
    return Story(db, assets, folder, events, runs, log.read_text(encoding="utf-8"))


def varve(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_each_run_of_a_partition_has_one_start_and_one_end(story: Story) -> None:
    ends: dict[tuple[str, str], list[str]] = {}
    for event in story.events:
        facet = event["run"]["facets"]["varve_partition"]
        ends.setdefault((facet["dataset"], facet["partition"]), []).append(event["eventType"])
    told = {(name.partition(".")[2], path): kinds for (name, path), kinds in ends.items()}
    assert told == {
        **{("receipts", f"day=2022-03-0{day}"): ["START", "COMPLETE"] for day in (1, 2, 3)},
        **{(name, f"day=2022-03-0{day}"): ["START", "COMPLETE"] for name in ("sales", "best") for day in (1, 2)},
        ("sales", "day=2022-03-03"): ["START", "FAIL"],
    }
    assert [problem for event in story.events for problem in problems(event)] == []


def test_the_graph_of_the_events_is_the_graph_of_the_project(story: Story) -> None:
    printed = varve("graph", "--columns", "--in", str(story.folder))
    assert columns_of(story.events) == set(printed.splitlines())
    as_json = json.loads(varve("graph", "--format", "json", "--in", str(story.folder)))
    assert reads_of(story.events) == {
        dataset["name"]: {read["dataset"] for read in dataset["reads"]} for dataset in as_json["datasets"]
    }


def test_an_event_names_the_batches_that_the_catalog_has(story: Story, settings: Settings) -> None:
    with connect(settings) as connection:
        current = Catalog(connection).current(f"{story.db}.sales")
    told = {
        facet["partition"]: (facet["batchId"], event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"])
        for event in story.events
        if (facet := event["run"]["facets"]["varve_partition"])["dataset"] == f"{story.db}.sales"
        if event["eventType"] == "COMPLETE"
    }
    assert told == {path: (str(batch.batch_id), batch.rows) for path, batch in current.items()}
    read = {
        (one["identifier"], one["dimensions"]["day"])
        for event in story.events
        if event["eventType"] == "COMPLETE" and event["job"]["name"] == f"{story.db}.best"
        for upstream in event["inputs"]
        for one in upstream["inputFacets"]["subset"]["inputCondition"]["partitions"]
    }
    assert read == {(str(batch.batch_id), path.partition("=")[2]) for path, batch in current.items()}


def test_the_end_of_a_failed_run_says_which_expectation_rows_break(story: Story) -> None:
    (failed,) = [event for event in story.events if event["eventType"] == "FAIL"]
    assert "revenue_positive" in failed["run"]["facets"]["errorMessage"]["message"]
    tests = {test["name"]: test["status"] for test in failed["run"]["facets"]["test"]["tests"]}
    assert tests == {"revenue_positive": "fail", "has_product": "pass"}
    (broken,) = [test for test in failed["run"]["facets"]["test"]["tests"] if test["status"] == "fail"]
    assert "1 of 1 rows of 2022-03-03" in broken["description"]


def test_each_line_of_the_log_is_json_and_says_of_what_it_is(story: Story) -> None:
    lines = [json.loads(line) for line in story.stderr.splitlines()]
    assert all({"time", "level", "message", "run", "dataset", "partition", "batch"} <= set(line) for line in lines)
    run = story.runs["sales", "2022-03-03"]
    of_run = [line for line in lines if line["run"] == run]
    (failed,) = [
        line for line in of_run if line["message"].endswith("publishes nothing.") or "has failed:" in line["message"]
    ]
    assert (failed["dataset"], failed["partition"]) == (f"{story.db}.sales", "day=2022-03-03")
    assert failed["batch"] in failed["message"]
    assert failed["level"] == "error"
    several = {line["partition"] for line in lines if line["run"] == story.runs["best", "2022-03-01"]} - {None}
    assert "day=2022-03-01 ... day=2022-03-02 (2 partitions)" in several


def test_the_logs_of_a_partition_are_those_of_the_runs_that_tried_it(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands_on(graph_of(story.assets), monkeypatch)
    printed = varve("logs", f"{story.db}.sales", "day=2022-03-03")
    assert f"run {story.runs['sales', '2022-03-03']}, batch" in printed
    assert "failed" in printed.splitlines()[0]
    assert "has begun: 1 partition" in printed
    assert "1 of 1 rows of 2022-03-03 break it" in printed
    assert story.runs["sales", "2022-03-01"] not in printed
    lines = [json.loads(line) for line in varve("logs", f"{story.db}.sales", "--runs", "9", "--json").splitlines()]
    assert list(dict.fromkeys(line["run"] for line in lines)) == [
        story.runs["sales", "2022-03-01"], story.runs["sales", "2022-03-03"],
    ]  # fmt: skip
    assert {line["dataset"] for line in lines} == {f"{story.db}.sales"}
    # Of several runs one can be chosen by how its id begins.
    chosen = varve("logs", f"{story.db}.sales", "--run", story.runs["sales", "2022-03-01"][:8])
    assert chosen.startswith(f"run {story.runs['sales', '2022-03-01']}")
    for words, message in (
        (["--run", "nothing"], "no run of"), (["day=2031-01-01"], "has no partition day=2031-01-01"),
        (["shop=Paris"], "names no partition of"),
    ):  # fmt: skip
        refused = CliRunner().invoke(app, ["logs", f"{story.db}.sales", *words])
        assert message in str(refused.exception)


def test_the_costs_are_those_of_the_batches(story: Story, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    commands_on(graph_of(story.assets), monkeypatch)
    (sales,) = json.loads(varve("costs", f"{story.db}.sales", "--json"))
    with connect(settings) as connection:
        catalog = Catalog(connection)
        current, read = catalog.current(f"{story.db}.sales"), catalog.current(f"{story.db}.receipts")
    assert (sales["runs"], sales["failed"], sales["partitions"]) == (2, 1, 3)
    assert sales["storage"]["current"] == sum(batch.size for batch in current.values())
    assert sales["bytes_read"] == sum(batch.size for batch in read.values())
    assert sales["seconds"] > 0
    runs = json.loads(varve("costs", f"{story.db}.sales", "--by", "run", "--json"))
    assert [run["run_id"] for run in runs] == [story.runs["sales", "2022-03-03"], story.runs["sales", "2022-03-01"]]
    assert sum(run["seconds"] for run in runs) == pytest.approx(sales["seconds"], abs=0.01)
    # Other tests have run in the same home: their datasets are lines too.
    assert story.db in varve("costs", "--by", "month", "--limit", "100000")
    assert "lines more: --limit " in varve("costs", "--limit", "1")


def test_a_run_succeeds_while_the_receiver_is_down_and_says_so_once(
    story: Story, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody listens there.
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    job = build_defs(story.assets).resolve_implicit_global_asset_job_def()
    with open_instance(settings) as instance:
        done = job.execute_in_process(
            instance=instance, asset_selection=[dg.AssetKey([story.db, "best"])], partition_key="2022-03-01",
        )  # fmt: skip
        assert done.success
        said = [entry.user_message for entry in instance.all_logs(done.run_id) if "OpenLineage" in entry.user_message]
    (message,) = said
    assert message.startswith("2 OpenLineage events could not be sent: ")
    with connect(settings) as connection:
        current = Catalog(connection).current(f"{story.db}.best")
    assert current["day=2022-03-01"].run_id == done.run_id


def test_the_commands_of_the_page_are_as_it_says(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    commands_on(graph_of(story.assets), monkeypatch)
    (block,) = [block for block in blocks("console") if block.runner == "tests/observe/test_runs.py"]
    for command in block.commands:
        words = command.replace("flights.delays", f"{story.db}.sales").replace("2013-01-05", "2022-03-01").split()
        assert words[0] == "varve"
        everything = ("--limit", "100000") if words[1] == "costs" and "--limit" not in words else ()
        assert story.db in varve(*words[1:], *everything)


def test_the_metrics_count_the_runs(story: Story) -> None:
    printed = varve("metrics").splitlines()
    assert f'varve_runs_total{{dataset="{story.db}.sales",outcome="failed"}} 1.0' in printed
    assert f'varve_runs_total{{dataset="{story.db}.sales",outcome="succeeded"}} 1.0' in printed
    assert f'varve_partitions{{dataset="{story.db}.sales",state="current"}} 2.0' in printed
    assert f'varve_partitions{{dataset="{story.db}.sales",state="failed"}} 1.0' in printed
    assert f'varve_publishes_total{{dataset="{story.db}.sales",kind="publish"}} 1.0' in printed
