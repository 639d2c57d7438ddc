"""A small project of somebody's own, with the kinds of datasets that tests of files meet."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from varve.project import Project
from varve.testing.cases.suite import bound_cases, outcomes
from varve.testing.files.reading import read_cases

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from varve.testing.cases.running import Outcome

DAYS = "FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-10-01', END '2026-12-01', TIMEZONE 'Europe/Paris')"
ORDERS = f"""\
CREATE DATASET shop.orders (
  product STRING NOT NULL COMMENT 'what was sold',
  price DECIMAL(10, 2) COMMENT 'euros',
  at TIMESTAMP COMMENT 'when'
)
  COMMENT 'One row per order.'
  STORED IN LAKE
  PARTITIONED BY (day DATE, store STRING)
  {DAYS}, shop IN ('Paris', 'Rome')
  LET today = CAST(t AS DATE)
  INSERT (day = today, store = shop)
EXTERNAL;
"""
TARIFFS = f"""\
CREATE DATASET shop.tariffs (
  product STRING COMMENT 'what is sold', name STRING COMMENT 'its name', tax DOUBLE COMMENT 'of the price'
)
  COMMENT 'One row per product.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  {DAYS}
  LET today = CAST(t AS DATE)
  INSERT (day = today)
EXTERNAL;
"""
REVENUE = f"""\
CREATE DATASET shop.revenue (
  product STRING COMMENT 'what was sold',
  orders BIGINT COMMENT 'how many',
  revenue DECIMAL(20, 2) COMMENT 'euros',
  tax DOUBLE COMMENT 'euros'
)
  COMMENT 'One row per product: what was sold on a day and the day before.'
  STORED IN WAREHOUSE
  PARTITIONED BY (day DATE)
  {DAYS}
  LET today = CAST(t AS DATE)
  INSERT (day = today)
  EXPECT no_refunds: revenue >= 0
AS
SELECT
  orders.product,
  COUNT(*) AS orders,
  CAST(SUM(orders.price) AS DECIMAL(20, 2)) AS revenue,
  CAST(SUM(orders.price * tariffs.tax) AS DOUBLE) AS tax
FROM shop.orders
LEFT JOIN shop.tariffs ON tariffs.product = orders.product AND tariffs.day = today
WHERE orders.day BETWEEN DATE_SUB(today, 1) AND today
GROUP BY orders.product;
"""
TYPES = """\
CREATE DATASET shop.types (
  text STRING COMMENT 'a text', flag BOOLEAN COMMENT 'a flag', tiny TINYINT COMMENT 'n', small SMALLINT COMMENT 'n',
  number INT COMMENT 'n', large BIGINT COMMENT 'n', half FLOAT COMMENT 'n', whole DOUBLE COMMENT 'n',
  money DECIMAL(12, 3) COMMENT 'euros', day_of DATE COMMENT 'a day', at TIMESTAMP COMMENT 'a moment',
  local TIMESTAMP_NTZ COMMENT 'a moment', bytes BINARY COMMENT 'bytes', list ARRAY<INT> COMMENT 'numbers',
  pairs MAP<STRING, DECIMAL(5, 2)> COMMENT 'prices', place STRUCT<city: STRING, at: TIMESTAMP> COMMENT 'where'
)
  COMMENT 'One row with every type.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-10-01')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
EXTERNAL;
"""
SAME_TYPES = TYPES.replace("shop.types", "shop.same_types").replace(
    "EXTERNAL;", "AS\nSELECT * EXCEPT (day) FROM shop.types WHERE types.day = today;"
)
BY_PRODUCT = """\
CREATE DATASET shop.by_product (price DECIMAL(10, 2) COMMENT 'the highest')
  COMMENT 'One row.'
  STORED IN LAKE
  PARTITIONED BY (product STRING)
  FOR sold IN DYNAMIC 'products'
  INSERT (product = sold)
AS
SELECT MAX(orders.price) AS price FROM shop.orders WHERE orders.day = DATE '2026-11-02' AND orders.product = sold;
"""
DOUBLED = """\
CREATE DATASET shop.doubled (price DECIMAL(11, 2) COMMENT 'twice the highest')
  COMMENT 'One row.'
  STORED IN LAKE
  PARTITIONED BY (product STRING)
  FOR sold IN DYNAMIC 'products'
  INSERT (product = sold)
AS
SELECT CAST(by_product.price * 2 AS DECIMAL(11, 2)) AS price
FROM shop.by_product WHERE by_product.product = sold;
"""
COUNTED = f"""\
CREATE DATASET shop.counted (orders BIGINT COMMENT 'how many')
  COMMENT 'One row.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  {DAYS}
  LET today = CAST(t AS DATE)
  INSERT (day = today)
AS
SELECT COUNT(*) AS orders FROM shop.orders WHERE orders.day = today;
"""
SHOUTED = f"""\
CREATE DATASET shop.shouted (product STRING COMMENT 'what was sold, in capitals')
  COMMENT 'One row per product.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  {DAYS}
  LET today = CAST(t AS DATE)
  INSERT (day = today)
PYTHON 'assets.shouting:shout'
USING sold AS (SELECT orders.product FROM shop.orders WHERE orders.day = today);
"""
SHOUTING = """\
def shout(spark, scope, sold):
    from pyspark.sql import functions as F

    if sold.where("product = 'secret'").count():
        raise ValueError("nobody shouts a secret")
    return sold.select(F.upper("product").alias("product")).distinct()
"""
BEST = """\
from pathlib import Path

import varve

FILES = varve.sql_datasets(Path(__file__).parent)
ORDERS = FILES["shop.orders"].dataset
BEST = varve.Dataset(
    name="shop.best",
    comment="One row: the dearest product of a store.",
    partitioning=ORDERS.partitioning,
    schema=varve.Schema((varve.Column("product", varve.ColumnType.STRING, nullable=True),)),
    store=varve.StoreKind.LAKE,
    expectations=(varve.Expectation("some", "count(*) > 0", of=varve.Of.PARTITION),),
)


@varve.asset(BEST, reads={"orders": ORDERS})
def best(context, orders):
    where = varve.partitions_of(context).where
    if orders.where("product = 'stray'").count():
        return orders.selectExpr("product", "date_add(day, 1) as day", "store")
    return orders.where(where).orderBy("price", ascending=False).select("product", "day", "store").limit(1)
"""
FILES = {
    "__init__.py": "", "orders.sql": ORDERS, "tariffs.sql": TARIFFS, "revenue.sql": REVENUE, "types.sql": TYPES,
    "same_types.sql": SAME_TYPES, "by_product.sql": BY_PRODUCT, "doubled.sql": DOUBLED, "counted.sql": COUNTED,
    "shouted.sql": SHOUTED,
    "shouting.py": SHOUTING, "best.py": BEST,
}  # fmt: skip


def write_shop(folder: Path) -> Project:
    """The project, in a folder of its own."""
    (folder / "varve.toml").touch()
    assets = folder / "assets"
    assets.mkdir()
    for name, text in FILES.items():
        (assets / name).write_text(text, encoding="utf-8")
    return Project.find(folder)


def run_tests(project: Project, spark: SparkSession, text: str) -> list[Outcome]:
    """The outcomes of the tests of a text."""
    cases = read_cases(textwrap.dedent(text), project.assets / "a.test.yaml", "assets/a.test.yaml")
    return list(outcomes(bound_cases(project, cases, lambda: spark), spark))
