# ruff: noqa: E501 - queries, one a line
"""What people who begin with this write wrong, and what each is told: every message whole, with its place.

The files of `mistakes/` are one mistake each. The snapshot is to be read: a message says where, what was found and what
to write. `pytest test_mistakes.py --snapshot-update` writes it anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from varve.dagster.assets.datasets import dataset_asset, graph_of
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import Policy
from varve.model.schema import Column, ColumnType, Schema
from varve.sql.spark.analysis import analysis_problems, columns_by_spark
from varve.sql.sql_project import usable
from varve.sql.syntax.errors import Problem, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from syrupy.assertion import SnapshotAssertion

    from varve.sql.files.sql_files import SqlFiles

FOLDER = Path(__file__).parent / "mistakes"
SALES = b"""CREATE DATASET shop.sales (id INT, price DOUBLE, product STRING, sizes ARRAY<INT>, place STRUCT<city: STRING>)
PARTITIONED BY (day STRING) FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
LET day = DATE_FORMAT(t, 'yyyy-MM-dd') EXTERNAL"""
DAY = TimeDimension.of("day", "@daily", "2026-11-01")
N = Schema((Column("n", ColumnType.BIGINT),))
DECLARED = {
    "Column": Column, "ColumnType": ColumnType, "DAY": DAY, "Dataset": Dataset, "N": N, "Partitioning": Partitioning,
    "Policy": Policy,
    "Schema": Schema, "TimeDimension": TimeDimension, "dataset_asset": dataset_asset, "graph_of": graph_of,
    "SALES": Dataset("shop.sales", Partitioning((DAY,)), N, StoreKind.LAKE, "Sales."),
    "ORDERS": Dataset("shop.orders", Partitioning((DAY,)), N, StoreKind.LAKE, "Orders."), "LAKE": StoreKind.LAKE,
}  # fmt: skip


def names(folder: str, ending: str) -> list[str]:
    return sorted(path.name.removesuffix(ending) for path in (FOLDER / folder).glob(f"*{ending}"))


def read(path: Path) -> SqlFiles:
    return usable([source_of(SALES, "sales.sql"), source_of(path.read_bytes(), path.name)], {})


def problem_texts(problems: list[Problem]) -> str:
    ordered = sorted(set(problems), key=lambda problem: (problem.span, problem.message))
    return "\n".join(map(str, ordered)).replace(str(Path(__file__).parents[2]), "<the project>")


@pytest.mark.parametrize("name", names("", ".sql"))
def test_a_mistake_in_a_file_is_told_at_its_place(name: str, snapshot: SnapshotAssertion) -> None:
    problems = list(read(FOLDER / f"{name}.sql").problems)
    assert problems
    for problem in problems:
        line, column = problem.source.position(problem.span.start)
        assert problem.place == f"{name}.sql:{line}:{column}"
        assert problem.message.endswith((".", "?"))
        assert re.search(r"\^", str(problem))
    assert problem_texts(problems) == snapshot


@pytest.mark.spark
@pytest.mark.parametrize("name", names("spark", ".sql"))
def test_what_only_spark_finds_is_told_at_its_place(
    name: str, snapshot: SnapshotAssertion, spark: SparkSession
) -> None:
    files = read(FOLDER / "spark" / f"{name}.sql")
    answers = [columns_by_spark(spark, question) for question, _ in files.questions]
    problems = [answer for answer in answers if isinstance(answer, Problem)]
    problems += [problem for file in files.values() for problem in analysis_problems(spark, file)]
    assert problems, files.problems
    for problem in problems:
        # A few words, and never the query as somebody else would write it.
        assert problem.span.end - problem.span.start < 40
        assert "varve_" not in problem.message
    assert problem_texts(problems) == snapshot


@pytest.mark.parametrize("name", names("python", ".py.txt"))
def test_a_mistake_in_python_is_told_with_the_name(name: str, snapshot: SnapshotAssertion) -> None:
    text = (FOLDER / "python" / f"{name}.py.txt").read_text()
    with pytest.raises(VarveError) as caught:
        eval(compile(text, f"{name}.py", "eval"), DECLARED)  # noqa: S307 - a line of our own
    assert str(caught.value) == snapshot
