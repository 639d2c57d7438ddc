"""`varve evolve`: a changed declaration is held back, built beside what readers see, and moved to in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import pytest

import varve
from tests.cli.test_environments import DAYS, HEAD, REVENUE, Store, shop_at_rest  # noqa: F401 - a fixture
from tests.documents.pages import blocks
from varve.catalog.code.generations import Generations
from varve.catalog.environments.environments import Environments
from varve.services.postgres import connect

if TYPE_CHECKING:
    import datetime as dt

HERE = "tests/cli/test_generations.py"
pytestmark = pytest.mark.spark

RENAMED = REVENUE.replace("AS cents", "AS amount")
TOTALS = "AS SELECT SUM(revenue.{column}) AS cents FROM {{db}}.revenue WHERE revenue.day = today;"
# The landing dataset, whose files are gone by then.
SALES_RENAMED = "(article STRING NOT NULL RENAMED FROM product, cents BIGINT NOT NULL)"

ITEMS = """CREATE DATASET {db}.items (item STRUCT<{fields}>)
  COMMENT 'One row per item.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', TIMEZONE 'UTC')
  LET day = CAST(t AS DATE)
EXTERNAL OPTIONS (source = 'landing', files = 'items_{{day:%Y-%m-%d}}.jsonl');
"""


def test_a_declaration_that_old_batches_do_not_follow_is_held_back_and_evolved(shop_at_rest: Store) -> None:  # noqa: F811
    shop, days = shop_at_rest, DAYS[:2]
    (shop.root / f"{shop.db}_assets" / "trailing.sql").unlink()
    shop.sql("totals", TOTALS.format(column="cents"), store="WAREHOUSE")
    for number, day in enumerate(days):
        shop.send(day, ("pen", 100), ("ink", 200 + number))
    shop.run_due()
    before = {day: 300 + number for number, day in enumerate(days)}
    assert shop.totals() == before

    # The landing files are gone, and a column of theirs has another name now; so has one of the revenue.
    shop.sql("revenue", REVENUE.replace("product,", "article,").replace("GROUP BY product", "GROUP BY article"))
    sales = shop.root / f"{shop.db}_assets" / "sales.sql"
    sales.write_text(
        sales.read_text().replace("(product STRING NOT NULL,", SALES_RENAMED.split(" cents", maxsplit=1)[0])
    )
    for file in (shop.root / "landing" / shop.db / "sales").iterdir():
        file.unlink()
    assert shop.run_due() == []
    assert f"varve evolve {shop.db}.sales" in shop.varve("why", "shop.sales", f"day={days[0]}")
    name = f"look_{shop.db}"
    shop.json("env", "create", name)
    looked_at = shop.json("env", "run", name, "--dry-run")
    assert looked_at["due"]
    assert looked_at["rewritten"] == {f"{shop.db}.sales": 2}
    assert "2 partitions would be written again for another generation" in shop.varve("env", "run", name, "--dry-run")
    with connect(shop.settings, application="a look") as connection:
        # Nothing was entered that a look at what is due would have had to leave alone.
        assert Generations(connection).of_environment(name) == {}
    shop.json("env", "drop", name)
    dry_run, command = [command for block in blocks("console") if block.runner == HERE for command in block.commands]
    looked_at = shop.json(*dry_run.split()[1:])
    assert looked_at["rewritten"] == {f"{shop.db}.sales": 2}
    # Whose query was edited too.
    assert looked_at["also_deployed"] == [f"{shop.db}.revenue"]
    told = " ".join(shop.varve(*dry_run.split()[1:]).split())
    assert f"{shop.db}.revenue: its code here, which waits for a decision (varve plan), would be deployed" in told
    with connect(shop.settings, application="a look") as connection:
        assert Environments(connection).all() == []
    assert shop.totals() == before

    done = shop.json(*command.split()[1:])
    assert done["rewritten"] == {f"{shop.db}.sales": 2}
    assert done["computed"] == {f"{shop.db}.revenue": 2, f"{shop.db}.totals": 2}
    assert shop.totals() == before
    assert shop.run_due() == []
    with connect(shop.settings, application="a look") as connection:
        assert Environments(connection).all() == []
    assert "nothing is to be done" in " ".join(shop.varve("evolve", "shop.sales").split())


def test_files_that_no_sensor_has_looked_at_are_read_again_all_the_same(shop_at_rest: Store) -> None:  # noqa: F811
    """What was published by hand needs no sensor."""
    shop, days = shop_at_rest, DAYS[:3]

    def declare(fields: str) -> None:
        text = ITEMS.format(db=shop.db, fields=fields, start=DAYS[0])
        (shop.root / f"{shop.db}_assets" / "items.sql").write_text(text, encoding="utf-8")
        shop.reload()

    def names() -> list[tuple[dt.date, str]]:
        with varve.open(shop.root) as data:
            rows = data.table(f"{shop.db}.items").select("day", "item.name").collect()
        return sorted((row["day"], row["name"]) for row in rows)

    declare("name: STRING, cents: BIGINT")
    folder = shop.root / "landing" / shop.db / "items"
    folder.mkdir(parents=True)
    for day in days:
        file = folder / f"items_{day}.jsonl"
        file.write_text('{"item": {"name": "pen", "cents": 100}}\n', encoding="utf-8")
    key = dg.AssetKey([shop.db, "items"])
    # The last file is there, and was not published.
    repository = shop.project.module(shop.project.definitions).defs.get_repository_def()
    job = repository.get_implicit_job_def_for_assets([key])
    with dg.DagsterInstance.ephemeral() as instance:
        for day in days[:2]:
            job.execute_in_process(instance=instance, partition_key=str(day), asset_selection=[key])
    assert names() == [(day, "pen") for day in days[:2]]
    declare("cents: BIGINT, name: STRING")
    looked = shop.json("evolve", "shop.items", "--dry-run")
    assert (looked["due"], looked["waiting"]) == ({f"{shop.db}.items": [f"day={day}" for day in days]}, {})
    assert shop.rows(f"select partition from varve.arrival where dataset = '{shop.db}.items'") == []
    done = shop.json("evolve", "shop.items")
    assert (done["computed"], done["lacking"]) == ({f"{shop.db}.items": 3}, {})
    assert names() == [(day, "pen") for day in days]
    assert shop.run_due() == []
