"""Executors whose Python has pyarrow and nothing else compute every kind of dataset, on a cluster of Spark's own.

`local-cluster` starts a master, a worker and its executors as processes; nothing but what Spark sends reaches them.
What workers need besides, where much is loaded or read by them, test_executor_packages.py says by package.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.deploy.executor_python import executor_python
from tests.e2e.project import ROOT, Project, url_of
from tests.support.environment import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

DAY = "2024-01-01"
FOR_EACH_DAY = """  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2024-01-01', END '2024-01-03')
  LET day = CAST(t AS DATE)
"""
FILES = {
    "varve.toml": 'definitions = "defs"\n',
    "defs.py": "import varve\n\ndefs = varve.definitions(varve.Project.find(__file__))\n",
    "assets/__init__.py": "",
    "assets/rates.py": "RATE = 2\n",
    "assets/pricing.py": """
from pathlib import Path

import varve
from assets.rates import RATE

SALES = varve.sql_datasets(Path(__file__).parent)["till.sales"].dataset
DOUBLED = varve.Dataset(
    name="till.doubled", comment="", partitioning=SALES.partitioning, store=varve.StoreKind.LAKE,
    schema=varve.Schema((varve.Column("cents", varve.ColumnType.BIGINT, ""),)),
)


@varve.function(returns="BIGINT")
def taxed(cents: int) -> int:
    return cents * RATE + 1


@varve.asset(DOUBLED, reads={"sales": SALES})
def doubled(sales):
    return sales.select("day", "cents").mapInArrow(of_each_day, "day DATE, cents BIGINT")


def of_each_day(batches):
    from importlib.util import find_spec
    import pyarrow as pa

    assert find_spec("fsspec") is None, "this is the driver's Python"
    for batch in batches:
        cents = [number * RATE for number in batch.column("cents").to_pylist()]
        yield pa.record_batch([batch.column("day"), pa.array(cents, pa.int64())], names=["day", "cents"])


def scored(spark, scope, sales):
    return sales.select("cents").mapInArrow(scores, "score BIGINT")


def scores(batches):
    import pyarrow as pa

    for batch in batches:
        found = [number + RATE for number in batch.column(0).to_pylist()]
        yield pa.record_batch({"score": pa.array(found, pa.int64())})
""",
    "assets/sales.sql": f"""CREATE DATASET till.sales (product STRING, cents BIGINT)
  STORED IN LAKE
{FOR_EACH_DAY}EXTERNAL OPTIONS (source = 'landing');
""",
    "assets/taxes.sql": f"""CREATE DATASET till.taxes
  STORED IN LAKE
{FOR_EACH_DAY}AS SELECT product, taxed(cents) AS cents FROM till.sales WHERE sales.day = CAST(t AS DATE);
""",
    "assets/totals.sql": f"""CREATE DATASET till.totals
  STORED IN WAREHOUSE
{FOR_EACH_DAY}AS SELECT SUM(cents) AS cents FROM till.taxes WHERE taxes.day = CAST(t AS DATE);
""",
    "assets/scores.sql": f"""CREATE DATASET till.scores (score BIGINT)
  STORED IN LAKE
{FOR_EACH_DAY}PYTHON 'assets.pricing:scored'
USING sales AS (SELECT cents FROM till.sales WHERE sales.day = CAST(t AS DATE));
""",
}


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    """A project on a cluster of one executor, whose file of a day has arrived."""
    root = Path(tempfile.mkdtemp(prefix="varve-bare-"))
    python = executor_python(root / "python", packages=("pyarrow",))
    for name, text in FILES.items():
        (file := root / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "dagster.yaml", root / "project")
    try:
        with Project.of_its_own("bare") as own:
            # Spark as users have it, without the suite's archive of classes.
            environment = {name: value for name, value in own.environment.items() if name != KEPT}
            found = replace(own, root=root / "project", environment=environment).having(
                spark_master="local-cluster[1,1,1024]",
                spark_conf=json.dumps({"spark.pyspark.python": str(python), "spark.executor.memory": "512m"}),
            )
            (landing := Path(found.settings.landing) / "till" / "sales").mkdir(parents=True)
            (landing / f"{DAY}.csv").write_text("product,cents\ntea,5\nrum,7\n", encoding="utf-8")
            yield found
    finally:
        shutil.rmtree(root, ignore_errors=True)


def in_the_lake(project: Project, name: str, column: str) -> list[int]:
    """A column of the current batch of the day, as anybody's parquet."""
    (batch,) = project.current(name).values()
    return sorted(value for file in Path(str(batch.location)).glob("*.parquet")
                  for value in pq.read_table(file)[column].to_pylist())  # fmt: skip


def test_every_kind_of_dataset_is_computed(project: Project) -> None:
    done = project.run_afresh("-c", "import varve; varve.run_due(varve.Project.find('.'))")
    assert done.code == 0, done.output
    assert in_the_lake(project, "till.sales", "cents") == [5, 7]
    assert in_the_lake(project, "till.taxes", "cents") == [11, 15]
    assert in_the_lake(project, "till.doubled", "cents") == [10, 14]
    assert in_the_lake(project, "till.scores", "score") == [7, 9]
    with psycopg.connect(url_of(project)) as connection:
        assert connection.execute("select cents from till.totals").fetchall() == [(26,)]
