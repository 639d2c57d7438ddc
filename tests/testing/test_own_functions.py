"""Functions of one's own on Spark: a query calls them by their names, in the version that its project has now."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

import varve
from tests.documents.pages import blocks
from varve.model.errors import VarveError, VerifyFailed
from varve.sql.spark.analysis import analysis_problems
from varve.sql.sql_project import load_usable
from varve.testing import check, run_sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TILLS = """\
CREATE DATASET shop.tills (product STRING COMMENT 'what was sold', price DOUBLE COMMENT 'euros, with tax')
  COMMENT 'One row per sale.'
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01')
  INSERT (day = CAST(t AS DATE))
EXTERNAL;
"""
SALES = """\
CREATE DATASET shop.sales
  COMMENT 'One row per sale.'
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
  EXPECT whole_cents: is_whole(price)
AS
SELECT product, net(price) AS price, weekday(today) AS weekday
FROM shop.tills
WHERE day = today AND net(price) > 0;
"""
PRICES = """\
import datetime as dt

import varve
from assets import rates


@varve.function(returns="DOUBLE")
def net(price: float | None) -> float | None:
    return None if price is None else price / rates.RATE


@varve.function(returns="BOOLEAN")
def is_whole(price: float) -> bool:
    return price * 100 == int(price * 100)


@varve.function(returns="STRING")
def name_of_day(day: dt.date) -> str:
    return day.strftime("%A")
"""
HEADING = "Functions of one's own"
DAY1, DAY2 = {"day": "2026-11-01"}, {"day": "2026-11-02"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a project, whose modules this process forgets afterwards, as another one never had them."""
    (tmp_path / "varve.toml").touch()
    assets = tmp_path / "assets"
    assets.mkdir()
    files = {
        "__init__.py": "", "tills.sql": TILLS, "sales.sql": SALES.replace("weekday(", "name_of_day("),
        "prices.py": PRICES, "rates.py": "RATE = 1.25\n",
    }  # fmt: skip
    for name, text in files.items():
        (assets / name).write_text(text)
    path = list(sys.path)
    forget()
    yield tmp_path
    sys.path[:] = path
    forget()


def forget() -> None:
    """Let the process import the project's modules again, as the next process does."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "assets"]:
        del sys.modules[name]


def sale(day: str, product: str, price: float | None) -> dict[str, Any]:
    return {"day": day, "product": product, "price": price}


SOLD = [
    sale("2026-11-01", "tea", 2.50), sale("2026-11-01", "gift", None), sale("2026-11-02", "cake", 5.0),
    sale("2026-11-02", "refund", -5.0),
]  # fmt: skip


def test_a_query_calls_the_functions_of_its_project(folder: Path, spark: SparkSession) -> None:
    assert check(varve.Project.find(folder), spark=spark) == []
    inputs = {"shop.tills": SOLD}
    both = run_sql(folder, "shop.sales", partition=[DAY1, DAY2], inputs=inputs, spark=spark)
    assert [(row["product"], row["price"], row["weekday"]) for row in both] == [
        ("tea", 2.0, "Sunday"),
        ("cake", 4.0, "Monday"),
    ]
    alone = [run_sql(folder, "shop.sales", partition=day, inputs=inputs, spark=spark) for day in (DAY1, DAY2)]
    assert [row for rows in alone for row in rows] == both


def test_expect_calls_them_too(folder: Path, spark: SparkSession) -> None:
    sold = [sale("2026-11-01", "tea", 2.49)]
    with pytest.raises(VerifyFailed, match=r"1 row breaks whole_cents \(is_whole\(price\)\)"):
        run_sql(folder, "shop.sales", partition=DAY1, inputs={"shop.tills": sold}, spark=spark)


def test_a_session_that_had_the_code_of_yesterday_runs_that_of_today(folder: Path, spark: SparkSession) -> None:
    def prices() -> list[float]:
        rows = run_sql(folder, "shop.sales", partition=DAY1, inputs={"shop.tills": SOLD}, spark=spark)
        return [row["price"] for row in rows]

    assert prices() == [2.0]
    (folder / "assets" / "rates.py").write_text("RATE = 0.625  # as of today\n")
    forget()
    assert prices() == [4.0]
    # `varve check` tells Spark types alone; a run after it has the functions again.
    assert check(varve.Project.find(folder), spark=spark) == []
    assert prices() == [4.0]


def test_a_function_that_does_not_import_fails_the_run_with_its_place(folder: Path, spark: SparkSession) -> None:
    (folder / "assets" / "prices.py").write_text(f"import no_such_library\n{PRICES}")
    with pytest.raises(VarveError) as raised:
        run_sql(folder, "shop.sales", partition=DAY1, inputs={"shop.tills": SOLD}, spark=spark)
    assert str(raised.value).startswith(
        "shop.sales (assets/sales.sql:7:23) calls is_whole of assets/prices.py:14, which cannot be imported: "
        "ModuleNotFoundError: No module named 'no_such_library'. Correct that file."
    )


def test_a_function_that_is_misspelt_is_named(folder: Path, spark: SparkSession) -> None:
    file = folder / "assets" / "sales.sql"
    file.write_text(file.read_text().replace("net(price) AS", "nett(price) AS"))
    (problem,) = check(varve.Project.find(folder), spark=spark)
    assert problem.startswith("assets/sales.sql:9:17: Spark has no function nett. Did you mean net?")


def test_spark_and_the_planner_agree_on_the_types(folder: Path, spark: SparkSession) -> None:
    from varve.sql.sql_project import load

    for sql_asset in load(folder / "assets").values():
        assert analysis_problems(spark, sql_asset) == []


def test_the_example_of_the_documents_runs(folder: Path, spark: SparkSession) -> None:
    python, sql = (
        next(block.text for block in blocks(language) if block.page == "docs/sql.md" and block.heading == HEADING)
        for language in ("python", "sql")
    )
    tills = TILLS.replace("shop.tills", "shop.sold").replace(
        "price DOUBLE", "kind STRING COMMENT 'of it', price DOUBLE"
    )
    files = {"sold.sql": tills, "net_sales.sql": sql, "prices.py": python}
    for file in [folder / "assets" / name for name in ("tills.sql", "sales.sql")]:
        file.unlink()
    for name, text in files.items():
        (folder / "assets" / name).write_text(text)
    assert check(varve.Project.find(folder), spark=spark) == []
    sold = [{**sale("2026-11-01", "novel", 10.70), "kind": "book"}, {**sale("2026-11-01", "tea", 2.5), "kind": "food"}]
    rows = run_sql(folder, "shop.net_sales", partition=DAY1, inputs={"shop.sold": sold}, spark=spark)
    assert [(row["product"], round(row["price"], 2)) for row in rows] == [("novel", 10.0), ("tea", 2.0)]


def test_a_value_of_another_type_is_null_as_the_documents_say(folder: Path, spark: SparkSession) -> None:
    (folder / "assets" / "prices.py").write_text(PRICES.replace("price / rates.RATE", "1"))
    file = folder / "assets" / "sales.sql"
    text = file.read_text().replace("AND net(price) > 0", "").replace("  EXPECT whole_cents: is_whole(price)\n", "")
    file.write_text(text)
    rows = run_sql(folder, "shop.sales", partition=DAY1, inputs={"shop.tills": SOLD}, spark=spark)
    assert [row["price"] for row in rows] == [None, None]


JAVA = """
package shop;

public class Net implements org.apache.spark.sql.api.java.UDF1<Double, Double> {
    public Double call(Double price) { return price == null ? null : price / RATE; }
}
"""
IN_JAR = """
import varve


@varve.function(returns="DOUBLE", jar="lib/prices.jar", java_class="shop.Net")
def net(price): ...


@varve.function(returns="BOOLEAN")
def is_whole(price: float) -> bool:
    return True


@varve.function(returns="STRING")
def name_of_day(day) -> str:
    return day.strftime("%A")
"""


def write_jar(folder: Path, rate: str) -> None:
    """lib/prices.jar, with a class that divides by the rate."""
    build, lib = folder / "build", folder / "lib"
    build.mkdir(exist_ok=True)
    lib.mkdir(exist_ok=True)
    (build / "Net.java").write_text(JAVA.replace("RATE", rate))
    jars = Path(pyspark.__file__).parent / "jars"
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", build, build / "Net.java"], check=True, capture_output=True)
    with zipfile.ZipFile(lib / "prices.jar", "w") as jar:
        jar.write(build / "shop" / "Net.class", "shop/Net.class")


def test_a_function_of_a_jar_is_called_and_its_content_counts_as_code(folder: Path, spark: SparkSession) -> None:
    (folder / "assets" / "prices.py").write_text(IN_JAR)
    broken = "\n".join(map(str, check(varve.Project.find(folder), spark=spark)))
    assert "net cannot be used, assets/prices.py:6: its jar lib/prices.jar cannot be read (No such file" in broken
    write_jar(folder, "1.25")
    assert check(varve.Project.find(folder), spark=spark) == []
    versions = [load_usable(folder / "assets", dict)["shop.sales"].code_version]
    inputs = {"shop.tills": SOLD}
    both = run_sql(folder, "shop.sales", partition=[DAY1, DAY2], inputs=inputs, spark=spark)
    assert [(row["product"], row["price"]) for row in both] == [("tea", 2.0), ("cake", 4.0)]
    write_jar(folder, "2.5")
    forget()
    versions.append(load_usable(folder / "assets", dict)["shop.sales"].code_version)
    assert versions[0] != versions[1]
    with pytest.raises(
        VarveError, match=r"sales\.sql:\d+:\d+\) calls net .* has loaded shop\.Net from another version of"
    ):
        run_sql(folder, "shop.sales", partition=DAY1, inputs=inputs, spark=spark)
    (folder / "assets" / "prices.py").write_text(IN_JAR.replace("shop.Net", "shop.Gross"))
    forget()
    with pytest.raises(VarveError, match=r"Spark does not take the class shop\.Gross of lib/prices\.jar"):
        run_sql(folder, "shop.sales", partition=DAY1, inputs=inputs, spark=spark)
