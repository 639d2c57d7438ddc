"""What a SQL file says of its batches is so in the stores: indexes, grants, comments, the order of rows and bounds."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from psycopg import sql

from tests.cli.shop import Shop
from varve.catalog.history.history import History

if TYPE_CHECKING:
    import psycopg

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

DAY = "2026-11-01"
ROWS = [(3, "cap", "4.00"), (1, "pen", "2.50"), (2, "ink", "9.99")]
COMMENTED = "(id INT COMMENT 'the number of the receipt', product STRING, price DECIMAL(10, 2), sold_at TIMESTAMP)"
QUERY = "AS SELECT id, product, price, sold_at FROM shop.sales WHERE sales.day = today;"
SELECTABLE = "select has_table_privilege(%s, %s, 'select')"
INDEXES = "select indexdef from pg_indexes where tablename = %s order by 1"
COMMENT = """select col_description(attrelid, attnum) from pg_attribute
where attrelid = to_regclass(%s) and attname = 'id'"""


@pytest.fixture
def shop(tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop.at(tmp_path, workbench, monkeypatch)
    shop.sql("sales", "EXTERNAL;", columns=COMMENTED)
    return shop


def test_in_the_warehouse(shop: Shop, connection: psycopg.Connection) -> None:
    role = f"analysts_{uuid.uuid4().hex[:8]}"
    connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    try:
        clauses = f"INDEX (product), UNIQUE (id, product)\nCOMPACT WEEK\nGRANT SELECT TO {role}\n"
        shop.sql("products", clauses + QUERY, store="WAREHOUSE")
        batch = shop.sell(DAY, ROWS, of="products")
        view = f"{shop.db}.products"
        indexes = [text.split(" USING ")[1] for (text,) in connection.execute(INDEXES, (batch.location,))]
        assert sorted(indexes) == ["btree (id, product)", "btree (product)"]
        assert connection.execute(SELECTABLE, (role, view)).fetchone() == (True,)
        assert connection.execute(COMMENT, (view,)).fetchone() == ("the number of the receipt",)
    finally:
        connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


def test_in_the_lake(shop: Shop, connection: psycopg.Connection) -> None:
    shop.sql("products", "SORTED BY (id)\nBOUNDS (product, id)\n" + QUERY)
    batch = shop.sell(DAY, ROWS, of="products")
    files = [
        pq.read_table(file)["id"].to_pylist() for file in Path(batch.location.removeprefix("file://")).glob("*.parquet")
    ]
    assert files == [sorted(values) for values in files]
    assert sorted(value for values in files for value in values) == [1, 2, 3]
    (past,) = History(connection).batches(f"{shop.db}.products")
    assert {bounds.column: (bounds.low, bounds.high) for bounds in past.bounds} == {
        "product": ("cap", "pen"),
        "id": ("1", "3"),
    }
