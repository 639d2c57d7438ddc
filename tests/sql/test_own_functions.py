"""Functions of one's own in queries: typed and versioned without an import, and errors that stand at the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from varve.model.errors import VarveError
from varve.model.function import function
from varve.sql.checks.functions import is_builtin
from varve.sql.sql_project import load_usable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from varve.model.schema import Column
    from varve.sql.files.sql_files import SqlFiles
    from varve.sql.sql_asset import SqlAsset

TILLS = """\
CREATE DATASET shop.tills (product STRING, price DOUBLE)
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01')
  INSERT (day = DATE_FORMAT(t, 'yyyy-MM-dd'))
EXTERNAL;
"""
SALES = """\
CREATE DATASET shop.sales
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01')
  LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
  INSERT (day = today)
AS
SELECT product, net(price) AS price FROM shop.tills WHERE day = today;
"""
PLAIN = SALES.replace("shop.sales", "shop.plain").replace("net(price)", "price")
PRICES = """\
import varve
from assets.rates import RATE


@varve.function(returns="DOUBLE")
def net(price: float | None, rate: float = RATE) -> float | None:
    return None if price is None else price / rate
"""
RATES = "RATE = 1.25\nOTHER = 3\n"


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    folder = tmp_path / "assets"
    folder.mkdir()
    files = {
        "__init__.py": "", "tills.sql": TILLS, "sales.sql": SALES, "plain.sql": PLAIN, "prices.py": PRICES,
        "rates.py": RATES,
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def loaded(folder: Path) -> SqlFiles:
    return load_usable(folder)


def sales(folder: Path) -> SqlAsset:
    return loaded(folder).checked()["shop.sales"]


def messages(folder: Path) -> list[str]:
    return [f"{problem.place}: {problem.message}" for problem in loaded(folder).problems]


def price_of(folder: Path) -> Column:
    return next(column for column in sales(folder).dataset.schema.columns if column.name == "price")


def test_the_declared_type_is_that_of_the_column_and_spark_is_not_asked(assets: Path) -> None:
    price = price_of(assets)
    assert (str(price.type), price.nullable) == ("DOUBLE", True)
    assert sales(assets).lineage["price"] == (("shop.tills", "price"),)


def test_a_change_of_a_declared_type_is_a_change_of_the_column(assets: Path) -> None:
    assert str(price_of(assets).type) == "DOUBLE"
    (assets / "prices.py").write_text(PRICES.replace("DOUBLE", "decimal(10, 2)"))
    assert str(price_of(assets).type) == "DECIMAL(10,2)"


@pytest.mark.parametrize(
    ("file", "was", "becomes"),
    [
        ("prices.py", "price / rate", "price * rate"),
        ("prices.py", "DOUBLE", "FLOAT"),
        ("rates.py", "1.25", "1.19"),
    ],
)
def test_a_change_of_its_code_is_a_change_of_the_datasets_that_call_it_alone(
    assets: Path, file: str, was: str, becomes: str
) -> None:
    before = loaded(assets).checked()
    text = (assets / file).read_text()
    (assets / file).write_text(text.replace(was, becomes))
    after = loaded(assets).checked()
    changed = [name for name in before if before[name].code_version != after[name].code_version]
    assert changed == ["shop.sales"]


@pytest.mark.parametrize(
    ("file", "was", "becomes"),
    [
        ("prices.py", "    return", "    # In euros.\n    return"),
        ("prices.py", "import varve\n", 'import varve\n\n"""Prices."""\n\n\ndef unused() -> int:\n    return 1\n\n'),
        ("rates.py", "OTHER = 3", "OTHER = 4"),
    ],
)
def test_what_changes_no_value_is_the_same_code(assets: Path, file: str, was: str, becomes: str) -> None:
    before = sales(assets).code_version
    text = (assets / file).read_text()
    assert was in text
    (assets / file).write_text(text.replace(was, becomes))
    assert sales(assets).code_version == before


def test_a_file_that_calls_none_has_the_version_that_it_had(assets: Path) -> None:
    with_functions = loaded(assets).checked()["shop.plain"].code_version
    (assets / "sales.sql").unlink()
    (assets / "prices.py").unlink()
    assert loaded(assets).checked()["shop.plain"].code_version == with_functions


def test_a_function_over_a_partition_column_reads_what_it_must(assets: Path) -> None:
    (assets / "sales.sql").write_text(SALES.replace("day = today;", "net(CAST(day AS DOUBLE)) > 1;"))
    (message,) = messages(assets)
    assert "assets/sales.sql:7:42: nothing says which partitions of shop.tills are read" in message


@pytest.mark.parametrize(
    ("prices", "call", "message"),
    [
        (PRICES, "net()", "net takes 1 to 2 arguments, not 0; it is declared in assets/prices.py:6."),
        (PRICES, "net(price, 1, 2)", "net takes 1 to 2 arguments, not 3; it is declared in assets/prices.py:6."),
        (
            PRICES.replace("net(", "upper("),
            "upper(price)",
            "upper is a function of SQL, and assets/prices.py:6 declares one of this name; give that one another name.",
        ),
        (
            PRICES.replace("net(", "bround("),
            "BROUND(price)",
            "bround is a function of SQL, and assets/prices.py:6 declares one of this name; give that one another",
        ),
        (
            PRICES + PRICES.replace("import varve\nfrom assets.rates import RATE\n", ""),
            "net(price)",
            "net is declared by assets/prices.py:6 and assets/prices.py:11; give all but one of them another name.",
        ),
        (
            PRICES.replace('"DOUBLE"', '"DUBLE"'),
            "net(price)",
            "net cannot be used, assets/prices.py:6: 'DUBLE' is no type of a column.",
        ),
        (
            PRICES.replace('returns="DOUBLE"', ""),
            "net(price)",
            "net cannot be used, assets/prices.py:6: its type is not written as a literal; write @varve.function(",
        ),
        (
            PRICES.replace("def net", "async def net"),
            "net(price)",
            "net cannot be used, assets/prices.py:6: it is async, and Spark calls plain functions; write def.",
        ),
        (
            PRICES.replace("rate: float = RATE", "*, rate: float"),
            "net(price)",
            "net cannot be used, assets/prices.py:6: it has arguments that must be named",
        ),
        (
            PRICES.replace("None if", "None wenn"),
            "net(price)",
            "net cannot be used, assets/prices.py:7: the file is no Python: invalid syntax.",
        ),
    ],
    ids=[
        "too few",
        "too many",
        "built in",
        "of Spark alone",
        "twice",
        "no type",
        "no literal",
        "async",
        "named",
        "no Python",
    ],
)
def test_what_is_wrong_with_a_function_is_said_at_its_call(assets: Path, prices: str, call: str, message: str) -> None:
    (assets / "prices.py").write_text(prices)
    (assets / "sales.sql").write_text(SALES.replace("net(price)", call))
    (problem,) = messages(assets)
    assert problem.startswith(f"assets/sales.sql:7:17: {message}"), problem


def test_a_wrong_call_in_expect_has_its_place_too(assets: Path) -> None:
    (assets / "sales.sql").write_text(SALES.replace("AS\nSELECT", "  EXPECT dear: net() > 1\nAS\nSELECT"))
    (problem,) = messages(assets)
    assert problem.startswith("assets/sales.sql:6:16: net takes 1 to 2 arguments, not 0")


def test_a_declaration_of_no_type_is_refused_where_it_stands() -> None:
    with pytest.raises(VarveError, match="'DUBLE' is no type of a column"):
        function(returns="DUBLE")


@pytest.mark.spark
def test_every_function_of_spark_is_known_by_its_name(spark: SparkSession) -> None:
    names = [str(row[0]) for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()]
    assert [name for name in names if name.isidentifier() and not is_builtin(name)] == []


def test_a_function_may_be_called_as_one_of_another_database_is(assets: Path) -> None:
    (assets / "prices.py").write_text(PRICES.replace("def net(", "def epoch("), encoding="utf-8")
    (assets / "sales.sql").write_text(SALES.replace("net(price)", "epoch(price)"), encoding="utf-8")
    assert messages(assets) == []
    (assets / "prices.py").write_text(PRICES, encoding="utf-8")
    (message,) = messages(assets)
    assert "Spark has no function EPOCH" in message
