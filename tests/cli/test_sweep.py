"""`varve sweep` keeps what datasets retain: so long, so many of each partition, and all of a file that has errors."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.shop import SALES, Shop
from varve.catalog.environments.environments import Environments
from varve.catalog.living.killed_builds import KilledBuilds
from varve.dagster.assets.sql_folders import forget_files
from varve.dagster.discovery import load_project

if TYPE_CHECKING:
    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

DAY = "2026-11-01"


def swept(shop: Shop) -> tuple[dict[str, int], int]:
    """How many batches the next sweep would leave, by the reason, and how many it would delete."""
    load_project.cache_clear()
    forget_files()
    report = shop.json("sweep", "shop.sales", "--older-than", "0", "--dry-run")
    left = {reason: amount["count"] for reason, amount in report["kept"].items()}
    return left, sum(amount["count"] for amount in report["batches"].values())


def test_a_dataset_says_how_long_its_replaced_batches_stay(
    tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.at(tmp_path, workbench, monkeypatch)
    for price in ("1.00", "2.00", "3.00", "4.00"):
        shop.sell(DAY, [(1, "pen", price)])
    assert swept(shop) == ({}, 3)
    # Each was replaced more than a second ago.
    time.sleep(1)
    for clause, left, deleted in (
        ("RETAIN BATCHES 30 DAYS", {"declared": 3}, 0),
        ("RETAIN BATCHES LAST 2", {"declared": 2}, 1),
        ("RETAIN BATCHES 1 SECOND AND LAST 1", {"declared": 1}, 2),
        # What its file says cannot be read.
        ("RETAIN BATCHES 30 DAYZ", {"broken": 3}, 0),
    ):
        shop.sql("sales", f"{clause}\nEXTERNAL;", columns=SALES)
        assert swept(shop) == (left, deleted)
    shop.sql("sales", "RETAIN BATCHES 30 DAYS\nEXTERNAL;", columns=SALES)
    swept(shop)
    told = " ".join(shop.run("sweep", "shop.sales", "--older-than", "0", "--dry-run").output.split())
    assert "Left: 3 retired batches" in told
    assert "as their datasets say by RETAIN BATCHES" in told
    # A checkout that does not have the file has no say in it: what was declared with the last publish holds.
    shop.sell(DAY, [(1, "pen", "5.00")])
    shop.sql("others", "EXTERNAL;", columns=SALES)
    (shop.assets / "sales.sql").unlink()
    assert swept(shop) == ({"declared": 4}, 0)


def test_what_belongs_to_no_batch_is_told_once_for_a_dataset_with_when_a_sweep_takes_it(
    tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.at(tmp_path, workbench, monkeypatch)
    shop.sell(DAY, [(1, "pen", "1.00")])
    table = Path(workbench.settings.lake) / shop.db / "sales" / f"day={DAY}"
    for batch_id in (7, 8):
        (table / f"batch_id={batch_id}").mkdir()
        (table / f"batch_id={batch_id}" / "x.parquet").write_bytes(b"1")
    # What a load of the warehouse has put there is not the lake's.
    (Path(workbench.settings.lake) / "_spool" / shop.db / "sales" / "batch_id=9").mkdir(parents=True)

    def findings() -> list[tuple[str, str]]:
        return [(found["problem"], found["remedy"]) for found in shop.json("doctor", "shop.sales")["findings"]]

    ((problem, remedy),) = findings()
    assert problem.startswith("2 places (2 B) belong to no batch, such as ")
    assert "`varve sweep` clears it away a day after it was written" in remedy
    for folder in table.glob("batch_id=[78]"):
        for place in (folder / "x.parquet", folder):
            os.utime(place, (1e9, 1e9))
    assert [remedy for _, remedy in findings()] == ["`varve sweep` clears it away."]
    shop.json("sweep", "shop.sales")
    assert findings() == []


def test_no_sweep_forgets_an_environment_that_somebody_uses_again_meanwhile(
    tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.at(tmp_path, workbench, monkeypatch)
    for name in (f"old_{shop.db}", f"used_{shop.db}"):
        assert shop.run("env", "create", name, "--ttl", "1s").exit_code == 0
    time.sleep(1.1)
    fail = KilledBuilds.fail

    def used_meanwhile(killed: KilledBuilds) -> int:
        Environments(killed.connection).use(f"used_{shop.db}")
        # Else a slow machine has its second pass once more.
        killed.connection.execute("update varve.environment set ttl = '1 day' where name = %s", [f"used_{shop.db}"])
        return fail(killed)

    monkeypatch.setattr(KilledBuilds, "fail", used_meanwhile)
    swept = shop.json("sweep", "--orphans-older-than", "30d")
    assert [name for name in swept["expired_environments"] if name.endswith(shop.db)] == [f"old_{shop.db}"]
    with workbench.catalog().connection as connection:
        names = {environment.name for environment in Environments(connection).all()}
    assert {name for name in names if name.endswith(shop.db)} == {f"used_{shop.db}"}


def test_no_sweep_deletes_what_readers_are_shown_and_a_restored_catalog_does_not_know(
    tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.at(tmp_path, workbench, monkeypatch)
    before = shop.sell(DAY, [(1, "pen", "1.00")])
    since = shop.sell(DAY, [(1, "pen", "2.00")])
    with workbench.catalog().connection as connection:
        # A backup from between the two: nothing in the catalog is of the second.
        for statement in (
            "update varve.current set batch_id = %(before)s, projected_batch_id = %(before)s where dataset = %(name)s",
            "update varve.batch set state = 'published', retired_at = null where batch_id = %(before)s",
            "delete from varve.batch where dataset = %(name)s and batch_id = %(since)s",
        ):
            ids = {"before": before.batch_id.millis, "since": since.batch_id.millis, "name": f"{shop.db}.sales"}
            connection.execute(statement, ids)
    sweep = ("sweep", "shop.sales", "--older-than", "0", "--orphans-older-than", "0")
    (problem,) = shop.json(*sweep)["problems"]
    assert f"{shop.db}.sales: the Hive table shows day={DAY} at batches that the catalog does not know" in problem
    assert Path(since.location).exists()
    shop.json("repair", "shop.sales")
    assert shop.json(*sweep)["problems"] == []
    assert not Path(since.location).exists()
    prices = workbench.spark.sql(f"select price from {shop.db}.sales where day = '{DAY}'").collect()
    assert [str(row.price) for row in prices] == ["1.00"]
