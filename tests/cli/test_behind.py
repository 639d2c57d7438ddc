"""Commands in a checkout that is behind: the columns that readers see are those of the last publish."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.shop import SALES, Shop

if TYPE_CHECKING:
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

    def iceberg_metadata() -> Path | None:
        row = connection.execute(
            "select metadata_location from varve.iceberg_table where dataset = %s and environment is null",
            (f"{shop.db}.kept",),
        ).fetchone()
        return None if row is None else Path(row[0].removeprefix("file://"))

    def iceberg_columns() -> set[str]:
        """Of the table's schema, as its metadata has it; none where the store has no Iceberg tables."""
        if (file := iceberg_metadata()) is None:
            return set()
        document = json.loads(file.read_text(encoding="utf-8"))
        (schema,) = [each for each in document["schemas"] if each["schema-id"] == document["current-schema-id"]]
        return {field["name"] for field in schema["fields"]}

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
    in_iceberg = iceberg_columns()
    assert ("tax" in in_iceberg) is (store == "LAKE")

    declare(tax=False)
    done = shop.json("rollback", "shop.kept", f"day={DAY}", "--to", str(first.batch_id.millis), "--reason", "wrong")
    assert done["done"]
    assert taxes() == [5, None]
    assert iceberg_columns() == in_iceberg
    # Lost, it is made anew.
    if (file := iceberg_metadata()) is not None:
        file.unlink()
    assert shop.run("repair", "shop.kept").exit_code == 0
    assert taxes() == [5, None]
    assert iceberg_columns() == in_iceberg
