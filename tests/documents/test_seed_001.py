"""`docs/examples/seeds/001`: the examples of the post on planning by SQL, compared with what the post shows of each."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pendulum
import pytest
from typer.testing import CliRunner

from tests.planning.world import World
from tests.support.project import ROOT
from varve.cli.app import app
from varve.dagster.assets.datasets import graph_of
from varve.dagster.assets.sql_assets import assets_of
from varve.dagster.assets.sql_folders import usable
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors

EXAMPLES = ROOT / "docs" / "examples" / "seeds" / "001"
DAY = "day=2022-03-31"
BOTH_STORES = [f"bigdataflow.stores_sales/{DAY}/store={store}" for store in ("Detroit", "Paris")]


def varve(*words: str, folder: Path = EXAMPLES) -> str:
    done = CliRunner().invoke(app, [*words, "--in", str(folder)])
    if done.exception is not None:
        raise done.exception
    return done.output


def tasks(dataset: str, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(varve("tasks", dataset, *words, "--json"))["tasks"]
    return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    """All datasets on the evening of 2022-04-01: every hour of the last two days has arrived, and all was computed.

    The world of the planner's tests has files that arrive, so the dump is one of files here.
    """
    copy = Path(shutil.copytree(EXAMPLES, tmp_path / "bigdataflow"))
    dump = copy / "receipts.sql"
    text = dump.read_text(encoding="utf-8")
    dump.write_text(re.sub(r"EXTERNAL VIEW OPTIONS .*;", "EXTERNAL;", text), encoding="utf-8")
    (copy / "recent_sales.sql").unlink()
    world = World(graph_of(assets_of(usable(copy), copy)), pendulum.datetime(2022, 4, 1, 18).timestamp())
    for day in (30, 31):
        for hour in range(24):
            world.arrive("bigdataflow.receipts", f"day=2022-03-{day}/hour={hour:02}", "a1")
    world.until_quiet(check=False)
    return world


def test_a_day_and_a_store_are_four_scopes_and_four_inserts() -> None:
    listed = tasks("bigdataflow.stores_sales")
    scopes = [{name: value for name, value, _ in task["scope"] if name != "t_end"} for task in listed]
    assert scopes == [
        {"t": f"2022-03-{day}T00:00:00Z", "shop": store, "partition_day": f"2022-03-{day}"}
        for day in (31, 30)
        for store in ("Detroit", "Paris")
    ]
    assert [task["partition"] for task in listed] == [
        f"day=2022-03-{day}/store={store}" for day in (31, 30) for store in ("Detroit", "Paris")
    ]


def test_a_series_may_be_the_last_two_days_of_whichever_day_it_is() -> None:
    today = pendulum.now("UTC").start_of("day")
    listed = [task["partition"] for task in tasks("bigdataflow.recent_sales", "--at", today.to_date_string())]
    assert listed == [f"day={today.subtract(days=number).to_date_string()}" for number in (1, 2)]
    # On the day of the post, and on one to come.
    for at in ("2022-04-01", "2022-04-01T09:30", "2031-04-01"):
        assert [task["partition"] for task in tasks("bigdataflow.recent_sales", "--at", at)] == [
            f"day={at[:4]}-03-31", f"day={at[:4]}-03-30",
        ]  # fmt: skip
    assert tasks("bigdataflow.recent_sales", "--at", "2022-04-01", "--from", "2022-03-31") == [
        {
            "partition": "day=2022-03-31",
            "scope": [
                ["t", "2022-03-31T00:00:00Z", "TIMESTAMP"], ["t_end", "2022-04-01T00:00:00Z", "TIMESTAMP"],
                ["partition_day", "2022-03-31", "STRING"],
            ],
            "state": None,
            "reason": None,
        }
    ]  # fmt: skip


def test_show_prints_the_scope_the_partition_and_both_dependencies() -> None:
    printed = varve("show", "bigdataflow.products_sales", DAY)
    for heading, name, value, kind in (
        ("Evaluation Scope", "partition_day", "2022-03-31", "STRING"),
        ("Evaluation Scope", "t", "2022-03-31T00:00:00Z", "TIMESTAMP"),
        ("Partition columns", "day", "2022-03-31", "STRING"),
    ):
        _, _, section = printed.partition(heading)
        assert re.search(rf"{name}\s+\W?\s*{value}\s+\W?\s*{kind}", section), (heading, name)
    _, _, dependencies = printed.partition("Dependencies")
    assert re.findall(r"- (\S+)", dependencies)[:2] == BOTH_STORES


def test_the_query_of_a_task_has_the_values_of_its_scope() -> None:
    printed = varve("show", "bigdataflow.products_sales", DAY, "--sql")
    query = " ".join(line for line in printed.splitlines() if not line.startswith(("--", "SET ")))
    assert " ".join(query.split()) == (
        "SELECT product_id, SUM(nb_sales) AS nb_sales, SUM(revenue) AS revenue "
        "FROM bigdataflow.stores_sales AS `stores_sales` "
        "WHERE stores_sales.day = CAST('2022-03-31' AS STRING) GROUP BY product_id;"
    )


def test_three_days_before_until_the_day_are_four_partitions() -> None:
    printed = varve("show", "bigdataflow.trailing_sales", DAY)
    assert re.findall(r"- bigdataflow\.products_sales/day=(\S+)", printed) == [
        "2022-03-28", "2022-03-29", "2022-03-30", "2022-03-31",
    ]  # fmt: skip


def test_a_day_reads_the_24_hours_of_the_dump_and_the_types_are_inferred() -> None:
    files = usable(EXAMPLES).checked()
    sales = files["bigdataflow.stores_sales"]
    key = sales.dataset.partitioning.from_path(f"{DAY}/store=Paris")
    hours = [each.path for each in sales.dependency("bigdataflow.receipts").upstream_of(key).keys]
    assert sorted(hours) == [f"{DAY}/hour={hour:02}" for hour in range(24)]
    assert {column.name: str(column.type) for column in files["bigdataflow.products_sales"].dataset.schema.columns} == {
        "product_id": "BIGINT", "nb_sales": "BIGINT", "revenue": "DOUBLE",
    }  # fmt: skip


def test_an_output_that_is_missing_is_computed_once_its_inputs_are_there(world: World) -> None:
    for name, path in (("stores_sales", f"{DAY}/store=Paris"), ("products_sales", DAY)):
        assert world.builds[f"bigdataflow.{name}", path] == 1
    # Of the days before nothing has arrived: they have no batch, and nothing was asked for.
    assert ("bigdataflow.products_sales", "day=2022-03-29") not in world.builds


def test_data_out_of_retention_is_dropped_without_a_task_for_it(world: World) -> None:
    kept = "bigdataflow.trailing_sales", DAY
    world.set(*kept, batch=world.facts["bigdataflow.products_sales"][DAY].batch, published=world.now)
    world.advance(31 * 86_400)
    assert DAY in world.tick(check=False).retire["bigdataflow.trailing_sales"]


def test_a_backfill_flags_partitions_which_are_computed_again_and_no_other(world: World) -> None:
    """A flag is a mark in the store: its partition is computed again, and what was made from it where it differs."""
    before = dict(world.builds)
    world.mark("bigdataflow.stores_sales", f"{DAY}/store=Paris", "wrong prices")
    world.until_quiet(check=False)
    again = {key for key, count in world.builds.items() if count > before.get(key, 0)}
    assert ("bigdataflow.stores_sales", f"{DAY}/store=Paris") in again
    assert not [path for name, path in again if "day=2022-03-30" in path or "Detroit" in path]


def test_a_column_that_is_renamed_is_found_in_its_readers_before_it_is_merged(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(EXAMPLES, tmp_path / "bigdataflow"))
    file = copy / "stores_sales.sql"
    file.write_text(file.read_text(encoding="utf-8").replace("AS revenue", "AS income"), encoding="utf-8")
    with pytest.raises(SqlErrors) as caught:
        usable(copy).checked()
    (told, *others) = [line for line in str(caught.value).splitlines() if ".sql:" in line]
    assert others == []
    assert told.startswith("bigdataflow/products_sales.sql:11:5: ")
    assert "revenue" in told


def test_the_value_of_a_partition_may_be_the_day_as_the_post_writes_it() -> None:
    files = [EXAMPLES / f"{name}.sql" for name in ("receipts", "stores_sales")]
    texts = [file.read_text(encoding="utf-8").replace("yyyy-MM-dd", "dd-MM-yyyy") for file in files]
    sources = [SourceFile(file.name, text) for file, text in zip(files, texts, strict=True)]
    sales = compiled(sources, {})["bigdataflow.stores_sales"]
    *_, last = sales.dataset.partitioning.keys()
    assert last.path == "day=31-03-2022/store=Paris"
    hours = sales.dependency("bigdataflow.receipts").upstream_of(last).keys
    assert {key.path.partition("/")[0] for key in hours} == {"day=31-03-2022"}
