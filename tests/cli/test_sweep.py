"""`varve sweep` keeps what datasets retain: so long, so many of each partition, and all of a file that has errors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.shop import SALES, Shop
from varve.dagster.assets.sql_folders import forget_files
from varve.dagster.discovery import load_project

if TYPE_CHECKING:
    from pathlib import Path

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
