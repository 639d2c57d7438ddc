"""`varve test new` on batches that are published: what it writes passes at once, and has the rows that matter."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.support.workbench import Workbench
from tests.testing.shop import write_shop
from varve.dagster.assets.sql_folders import usable
from varve.model.errors import MissingUpstream, VarveError
from varve.model.partitions.key import PartitionKey
from varve.testing.cases.suite import bound_cases, outcomes
from varve.testing.files.reading import cases_of
from varve.testing.sampling.new import write_test

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from varve.project import Project
    from varve.services.settings import Settings
    from varve.testing.files.case import Case

pytestmark = pytest.mark.spark

PRODUCTS = [f"product {number}" for number in range(150)]
DAY = {"day": "2026-11-02"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, settings: Settings, spark: SparkSession) -> Project:
    """Two days of a hundred and fifty orders in each store, and a tariff for each product, are published."""
    project = write_shop(tmp_path_factory.mktemp("new"))
    files, bench = usable(project.assets), Workbench(settings, spark)
    days = [dt.date(2026, 11, 1), dt.date(2026, 11, 2)]
    orders = [
        (product, Decimal(number) + Decimal("0.50"), dt.datetime(2026, 11, 2, 9, tzinfo=dt.UTC), day, store)
        for number, product in enumerate(PRODUCTS)
        for day in days
        for store in ("Paris", "Rome")
    ]
    frame = spark.createDataFrame(orders, "product STRING, price DECIMAL(10,2), at TIMESTAMP, day DATE, store STRING")
    keys = [PartitionKey.of(day=day, store=store) for day in days for store in ("Paris", "Rome")]
    bench.publish_frame(files["shop.orders"].dataset, keys, frame)
    # Of other products there are a thousand more, which join nothing.
    names = [*PRODUCTS, *(f"other {number}" for number in range(1_000))]
    tariffs = [(name, name.upper(), 0.25, days[1]) for name in names]
    frame = spark.createDataFrame(tariffs, "product STRING, name STRING, tax DOUBLE, day DATE")
    bench.publish_frame(files["shop.tariffs"].dataset, [PartitionKey.of(day=days[1])], frame)
    return project


def written(project: Project, path: str) -> list[Case]:
    return cases_of([project.root / path], project.root)


def passes(project: Project, cases: list[Case], spark: SparkSession) -> bool:
    return all(outcome.passed for outcome in outcomes(bound_cases(project, cases, lambda: spark), spark))


def cells(case: Case, dataset: str, column: str) -> list[str | None]:
    _, rows = case.inputs[dataset]
    return [getattr(row.values[column][1], "text", None) for row in rows.rows]


def test_a_test_of_rows_that_join_is_written_and_passes(project: Project, spark: SparkSession) -> None:
    new = write_test(project, "shop.revenue", DAY, rows=5)
    assert new.path == "assets/revenue.test.yaml"
    (case,) = written(project, new.path)
    assert (case.name, case.exact) == ("real rows of day=2026-11-02", True)
    assert new.taken == {"shop.orders": 5, "shop.tariffs": len(set(cells(case, "shop.orders", "product")))}
    assert set(cells(case, "shop.tariffs", "product")) == set(cells(case, "shop.orders", "product"))
    assert case.expected is not None
    assert len(case.expected.rows) == new.made > 0
    assert passes(project, [case], spark)


def test_rows_may_join_by_many_values(project: Project, spark: SparkSession) -> None:
    file = project.assets / "many.test.yaml"
    write_test(project, "shop.revenue", DAY, rows=300, output=file)
    (case,) = written(project, "assets/many.test.yaml")
    ordered = set(cells(case, "shop.orders", "product"))
    assert len(ordered) > 100
    assert set(cells(case, "shop.tariffs", "product")) == ordered
    assert passes(project, [case], spark)


def test_the_same_rows_are_taken_each_time_and_names_differ(project: Project, spark: SparkSession) -> None:
    file = project.assets / "again.test.yaml"
    file.write_text("# Mine.\n- {name: mine, dataset: shop.shouted, partition: {day: 2026-11-02}, fails: x}\n")
    names = [write_test(project, "shop.shouted", DAY, rows=3, output=file).name for _ in range(2)]
    assert names == ["real rows of day=2026-11-02", "real rows of day=2026-11-02 (2)"]
    mine, first, second = written(project, "assets/again.test.yaml")
    assert mine.name == "mine"
    assert file.read_text().startswith("# Mine.\n- {name: mine")
    assert cells(first, "shop.orders", "product") == cells(second, "shop.orders", "product")
    assert passes(project, [first, second], spark)
    with pytest.raises(VarveError, match=r"has a test 'mine' already\. Nothing was written"):
        write_test(project, "shop.shouted", DAY, rows=3, output=file, name="mine")


def test_masked_columns_have_other_values_that_join(project: Project, spark: SparkSession) -> None:
    file = project.assets / "masked.test.yaml"
    new = write_test(project, "shop.revenue", DAY, rows=4, masked=["product", "shop.orders.price"], output=file)
    text = file.read_text()
    assert "product 1" not in text.replace("masked: product", "")
    (case,) = written(project, "assets/masked.test.yaml")
    assert set(cells(case, "shop.orders", "product")) == set(cells(case, "shop.tariffs", "product"))
    assert new.made > 0
    assert passes(project, [case], spark)


def test_columns_that_are_not_read_are_not_written(project: Project, spark: SparkSession) -> None:
    new = write_test(project, "shop.counted", DAY, rows=3)
    assert "product" not in (project.root / new.path).read_text()
    assert passes(project, written(project, new.path), spark)


def test_a_python_dataset_has_one_too(project: Project, spark: SparkSession) -> None:
    new = write_test(project, "shop.best", {**DAY, "store": "Rome"}, rows=3)
    assert (new.path, new.made) == ("assets/shop_best.test.yaml", 1)
    (case,) = written(project, new.path)
    assert set(cells(case, "shop.orders", "store")) == {"Rome"}
    assert passes(project, [case], spark)


ROME = {**DAY, "store": "Rome"}
REFUSED: dict[str, tuple[str, dict[str, str], list[str]]] = {
    r"reads 4 partitions of shop\.orders, and none has a batch: .* Run one": (
        "shop.revenue",
        {"day": "2026-10-10"},
        [],
    ),
    r"shop\.orders comes from others": ("shop.orders", ROME, []),
    r"is a partition column of shop\.orders, which decides where a row lies": ("shop.revenue", DAY, ["day"]),
    r"no input has a column 'prise'\. Did you mean price\?": ("shop.revenue", DAY, ["prise"]),
    r"does not read shop\.order, .* Did you mean shop\.orders\?": ("shop.revenue", DAY, ["shop.order.price"]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_written_is_told_and_nothing_is(project: Project, message: str) -> None:
    dataset, partition, masked = REFUSED[message]
    file = project.assets / "a.test.yaml"
    with pytest.raises((VarveError, MissingUpstream), match=message):
        write_test(project, dataset, partition, rows=3, masked=masked, output=file)
    assert not file.exists()


def test_a_dataset_that_makes_other_rows_each_time_has_no_test(project: Project) -> None:
    shouting = project.assets / "counting.py"
    shouting.write_text(
        "import itertools\n\nCALLS = itertools.count()\n\n\ndef count(spark, scope, sold):\n"
        "    return sold.limit(1).selectExpr(f'{next(CALLS)} AS calls')\n"
    )
    sql = (project.assets / "shouted.sql").read_text()
    (project.assets / "numbered.sql").write_text(
        sql.replace("shop.shouted", "shop.numbered").replace("assets.shouting:shout", "assets.counting:count")
        .replace("product STRING COMMENT 'what was sold, in capitals'", "calls INT COMMENT 'n'")
    )  # fmt: skip
    file = project.assets / "a.test.yaml"
    with pytest.raises(VarveError, match="made other rows of the same inputs when it ran again"):
        write_test(project, "shop.numbered", DAY, rows=3, output=file)
    assert not file.exists()


def test_where_no_test_would_be_found_none_is_written(project: Project, tmp_path: Path) -> None:
    for output in (project.assets / "revenue.yaml", tmp_path / "revenue.test.yaml"):
        with pytest.raises(VarveError, match=r"revenue(\.test)?\.yaml would not be found: tests lie in .*assets"):
            write_test(project, "shop.revenue", DAY, rows=1, output=output)
        assert not output.exists()


@pytest.mark.parametrize("text", ["[]\n", "  - name: a\n    dataset: shop.revenue\n    expected: []\n"])
def test_a_file_that_would_be_none_any_more_is_left_as_it_is(project: Project, text: str) -> None:
    file = project.assets / "indented.test.yaml"
    file.write_text(text)
    try:
        with pytest.raises(VarveError, match="the test cannot be added at its end"):
            write_test(project, "shop.revenue", DAY, rows=1, output=file)
        assert file.read_text() == text
    finally:
        file.unlink()
