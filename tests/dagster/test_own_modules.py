"""Functions of the project's modules in Spark's workers, which have no checkout of the project."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from varve.dagster.runs.spark import SparkResource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

RATES = "RATE = 3\n"
ROWS = """
import varve
from rates_of_executors.rates import RATE

assert varve.Dataset is not None


def priced(frame):
    return frame.mapInArrow(tripled, "price BIGINT")


def tripled(batches):
    import pyarrow as pa

    for batch in batches:
        prices = [number * RATE for number in batch.column(0).to_pylist()]
        yield pa.record_batch({"price": pa.array(prices, pa.int64())})
"""


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of a project, which takes a constant from another one; both are imported here and nowhere else."""
    package = tmp_path / "rates_of_executors"
    package.mkdir()
    for name, text in {"__init__": "", "rates": RATES, "rows": ROWS}.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "varve.toml").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(f"{package.name}.rows")
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[name]


def test_without_a_project_the_workers_do_not_find_its_modules(workbench: Workbench, rows: Any) -> None:
    with pytest.raises(Exception, match="No module named 'rates_of_executors'"):
        rows.priced(workbench.spark.range(3)).collect()


def test_a_function_of_a_module_runs_where_the_project_is_not(workbench: Workbench, rows: Any, tmp_path: Path) -> None:
    spark = SparkResource(project=str(tmp_path)).spark_session
    # What is named here is pickled when the rows are asked for.
    priced = rows.priced(spark.range(3))
    assert sorted(row["price"] for row in priced.collect()) == [0, 3, 6]
