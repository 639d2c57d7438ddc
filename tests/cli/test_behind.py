"""Commands in a checkout that is behind: the columns that readers see are those of the last publish."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.cli.shop import SALES, Shop

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

DAY, OTHER = "2026-11-01", "2026-11-02"
QUERY = "AS SELECT 1 AS id, 'x' AS product, CAST(1 AS DECIMAL(10, 2)) AS price, t AS sold_at{tax};"


@pytest.mark.parametrize("store", ["LAKE", "WAREHOUSE"])
def test_a_rollback_and_a_repair_take_no_column_away_that_was_added_since(
    store: str, tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch, connection: psycopg.Connection
) -> None:
    shop = Shop.at(tmp_path, workbench, monkeypatch)

    def declare(*, tax: bool) -> None:
        columns = SALES.replace(")", ", tax INT)").replace("2, tax INT)", "2)") if tax else SALES
        shop.sql("kept", QUERY.format(tax=", 5 AS tax" if tax else ""), columns=columns, store=store)

    def taxes() -> list[int | None]:
        if store == "LAKE":
            workbench.spark.catalog.refreshTable(f"{shop.db}.kept")
            return sorted((row.tax for row in workbench.spark.table(f"{shop.db}.kept").collect()), key=str)
        return sorted((tax for (tax,) in connection.execute(f"select tax from {shop.db}.kept".encode())), key=str)

    declare(tax=False)
    first = shop.sell(DAY, [(1, "pen", "2.50")], of="kept")
    declare(tax=True)
    dataset = shop.asset("kept").dataset
    for day in (DAY, OTHER):
        frame = workbench.spark.sql(
            "SELECT 1 AS id, 'pen' AS product, CAST(2.5 AS DECIMAL(10, 2)) AS price, "
            f"TIMESTAMP'2026-11-01 09:00' AS sold_at, 5 AS tax, DATE'{day}' AS day"
        )
        workbench.publish_frame(dataset, [dataset.partitioning.key([dt.date.fromisoformat(day)])], frame)
    assert taxes() == [5, 5]

    declare(tax=False)
    done = shop.json("rollback", "shop.kept", f"day={DAY}", "--to", str(first.batch_id.millis), "--reason", "wrong")
    assert done["done"]
    assert taxes() == [5, None]
    assert shop.run("repair", "shop.kept").exit_code == 0
    assert taxes() == [5, None]
