"""Columns are what their declaration says, in either store: by any case of their names, and never without a value."""

from __future__ import annotations

import pytest

import varve
from tests.cli.test_environments import DAYS, Store, shop_at_rest  # noqa: F401 - a fixture
from varve.model.errors import VarveError

pytestmark = pytest.mark.spark

MIXED = (
    "AS SELECT SUM(sales.cents) AS Total, MAX(sales.PRODUCT) AS `Größe`, COUNT(*) AS nUmber "
    "FROM {db}.sales WHERE sales.DAY = today;"
)
READER = "AS SELECT TOTAL + nuMBER AS Sum_Of, `größE` AS Size FROM {db}.mixed WHERE mixed.day = today;"
WITH_GAP = (
    "AS SELECT product, NULLIF(sales.cents, 5) AS cents, CAST(NULL AS STRING) AS note "
    "FROM {db}.sales WHERE sales.day = today;"
)
NOT_NULL = "(product STRING NOT NULL, cents BIGINT NOT NULL, note STRING)"
FUNCTION = """
import pathlib
import varve

SALES = varve.sql_datasets(pathlib.Path(__file__).parent)["{db}.sales"].dataset
OWN = varve.Dataset(
    name="{db}.own", comment="By hand.", partitioning=SALES.partitioning, store=varve.StoreKind.{store},
    schema=varve.Schema((varve.Column("Cents", varve.ColumnType("BIGINT"), nullable=False),)),
)


@varve.asset(OWN, reads={{"sales": SALES}})
def own(sales):
    return sales.selectExpr("nullif(cents, 5) as CENTS", "DAY")
"""


@pytest.mark.parametrize("store", ["LAKE", "WAREHOUSE"])
def test_a_name_may_be_written_in_any_case(store: str, shop_at_rest: Store) -> None:  # noqa: F811
    shop = shop_at_rest
    for day in DAYS[:2]:
        shop.send(day, ("pen", 100), ("ink", 200))
    shop.sql("mixed", MIXED, store=store)
    shop.sql("reader", READER, store="WAREHOUSE")
    shop.run_due()
    with varve.open(shop.root) as data:
        rows = [tuple(row) for row in data.table(f"{shop.db}.mixed").select("total", "größe", "number").collect()]
    assert rows == [(300, "pen", 2)] * 2
    assert shop.rows("select sum_of, size from shop.reader") == [(302, "pen")] * 2
    assert [each["name"] for each in shop.json("preview", "shop.mixed", f"day={DAYS[0]}")["columns"]][:2] == [
        "total",
        "größe",
    ]


@pytest.mark.parametrize("store", ["LAKE", "WAREHOUSE"])
def test_a_row_without_a_value_where_one_is_declared_publishes_nothing(store: str, shop_at_rest: Store) -> None:  # noqa: F811
    """Of a query and of a function; readers keep what they have, and the next correction is taken."""
    shop = shop_at_rest
    shop.sql("gaps", WITH_GAP, store=store, columns=NOT_NULL)
    (shop.root / f"{shop.db}_assets" / "own.py").write_text(FUNCTION.format(db=shop.db, store=store))
    shop.send(DAYS[0], ("pen", 100))
    shop.run_due()
    shop.send(DAYS[1], ("pen", 100), ("ink", 5))
    told = r"\.(gaps|own) failed: .* is declared NOT NULL, .* Nothing was published"
    for _ in range(2):
        with pytest.raises(VarveError, match=told):
            shop.run_due()
    before = {DAYS[0]: 100}
    for name, column in (("gaps", "cents"), ("own", "Cents")):
        with varve.open(shop.root) as data:
            assert {row["day"]: row[column] for row in data.table(f"{shop.db}.{name}").collect()} == before
        said = " ".join(shop.varve("why", f"shop.{name}", f"day={DAYS[1]}").split())
        assert f"{column} is declared NOT NULL, and nothing stands there in a row of day={DAYS[1]}." in said
    with pytest.raises(VarveError, match=rf"cents is declared NOT NULL, and nothing .* of day={DAYS[1]}"):
        shop.varve("preview", "shop.gaps", f"day={DAYS[1]}")
    shop.send(DAYS[1], ("pen", 7))
    shop.run_due()
    with varve.open(shop.root) as data:
        for name, column in (("gaps", "cents"), ("own", "Cents")):
            rows = data.table(f"{shop.db}.{name}").collect()
            assert {row["day"]: row[column] for row in rows} == {**before, DAYS[1]: 7}
