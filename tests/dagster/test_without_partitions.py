"""Datasets without partitions under Dagster: SQL and Python, both stores, landing files, the sensors and the commands.

What the stores promise of them is in tests/stores/test_without_partitions.py.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import psycopg
import pytest
from typer.testing import CliRunner, Result

from varve.cli.app import app
from varve.dagster.assets.sql_folders import forget_files
from varve.dagster.definitions import build_defs
from varve.dagster.discovery import LoadedProject, load_project
from varve.dagster.driver import Driver, spelt
from varve.dagster.instance import open_instance
from varve.model.partitions.key import WHOLE
from varve.project import Project
from varve.services.postgres import warehouse_url

if TYPE_CHECKING:
    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

FILES = {
    # A dimension table that a partner sends as one file.
    "products.sql": """
CREATE DATASET {db}.products (id INT, name STRING)
EXTERNAL OPTIONS (files = 'products.csv');
""",
    "sales.sql": """
CREATE DATASET {db}.sales (product_id INT, pieces INT)
PARTITIONED BY (day DATE)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-04')
INSERT (day = CAST(t AS DATE))
EXTERNAL;
""",
    # Every day reads the one batch of the products.
    "named.sql": """
CREATE DATASET {db}.named
PARTITIONED BY (day DATE)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-03')
LET today = CAST(t AS DATE)
INSERT (day = today)
AS SELECT p.name, s.pieces FROM {db}.sales s JOIN {db}.products p ON p.id = s.product_id WHERE s.day = today;
""",
    # One table in PostgreSQL of all days.
    "totals.sql": """
CREATE DATASET {db}.totals
STORED IN WAREHOUSE
LET least = 2
ALLOW FULL SCAN OF {db}.named
EXPECT sold: pieces > 0
AS SELECT name, SUM(pieces) AS pieces FROM {db}.named GROUP BY name HAVING SUM(pieces) >= least;
""",
    "best.py": """
from pathlib import Path

import varve
from varve import Column, ColumnType, Dataset, Partitioning, Schema, StoreKind

TOTALS = varve.sql_datasets(Path(__file__).parent)["{db}.totals"].dataset
BEST = Dataset(
    name="{db}.best",
    partitioning=Partitioning(),
    schema=Schema((Column("name", ColumnType.STRING, "what sold best"),)),
    store=StoreKind.LAKE,
    comment="The one product that sold best.",
)


@varve.asset(BEST, reads={{"totals": TOTALS}})
def best(context, totals):
    assert str(varve.partitions_of(context).key) == "all"
    return totals.orderBy(totals.pieces.desc()).limit(1).select("name")
""",
}


@dataclass(frozen=True)
class Shop:
    """The project, driven by its sensors and by commands in this process."""

    root: Path
    db: str
    workbench: Workbench

    @property
    def loaded(self) -> LoadedProject:
        load_project.cache_clear()
        forget_files()
        return load_project(Project.find(self.root))

    def land(self, table: str, name: str, text: str) -> None:
        folder = Path(self.workbench.settings.landing) / self.db / table
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def drive(self) -> list[str]:
        """Let the sensors run what is due; what they asked for, without the database's name."""
        loaded, asked = self.loaded, list[str]()
        with open_instance(loaded.project.settings) as instance:
            defs = build_defs(loaded.datasets, project=loaded.project)
            driver = Driver(instance, defs, loaded.graph, after=lambda request, _: asked.append(spelt(request)))
            driver.until_quiet()
        return [text.removeprefix(f"{self.db}.") for text in asked]

    def materialise(self, table: str, **how: Any) -> dg.ExecuteInProcessResult:
        """One run that a person asks for."""
        loaded = self.loaded
        with open_instance(loaded.project.settings) as instance:
            job = build_defs(loaded.datasets, project=loaded.project).resolve_implicit_global_asset_job_def()
            return job.execute_in_process(
                asset_selection=[dg.AssetKey([self.db, table])], instance=instance, raise_on_error=False, **how
            )

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, [word.replace("shop.", f"{self.db}.") for word in words])

    def says(self, *words: str) -> str:
        done = self.run(*words)
        assert done.exit_code == 0, done.output
        return done.output.replace(f"{self.db}.", "shop.")

    def totals(self) -> list[tuple[Any, ...]]:
        with psycopg.connect(warehouse_url(self.workbench.settings)) as connection:
            table = psycopg.sql.Identifier(self.db, "totals")
            return list(connection.execute(psycopg.sql.SQL("select * from {} order by 1").format(table)))

    def lake(self, table: str) -> list[tuple[Any, ...]]:
        self.workbench.spark.catalog.refreshTable(f"{self.db}.{table}")
        return sorted(tuple(row) for row in self.workbench.spark.table(f"{self.db}.{table}").collect())


@pytest.fixture
def shop(tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Shop:
    db = f"w{uuid.uuid4().hex[:8]}"
    assets = tmp_path / f"{db}_assets"
    assets.mkdir()
    (assets / "__init__.py").write_text("")
    (tmp_path / "varve.toml").write_text(f'assets = "{assets.name}"\n')
    (tmp_path / "dagster.yaml").write_text((Path(__file__).parents[2] / "dagster.yaml").read_text())
    for name, text in FILES.items():
        (assets / name).write_text(text.format(db=db).lstrip())
    monkeypatch.setenv("VARVE_PROJECT", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    return Shop(tmp_path, db, workbench)


def test_they_flow_through_sensors_stores_and_readers_of_both_kinds(shop: Shop) -> None:
    shop.land("products", "products.csv", "id,name\n1,pen\n2,ink\n")
    for day, pieces in (("2022-03-01", 3), ("2022-03-02", 4), ("2022-03-03", 9)):
        shop.land("sales", f"{day}.csv", f"product_id,pieces\n1,{pieces}\n2,1\n")
    asked = shop.drive()
    assert sorted(asked) == [
        "best", "named 2022-03-01 ... 2022-03-02", "products", "sales 2022-03-01 ... 2022-03-03", "totals",
    ]  # fmt: skip
    assert shop.lake("products") == [(1, "pen"), (2, "ink")]
    assert shop.totals() == [("ink", 2), ("pen", 7)]
    assert shop.lake("best") == [("pen",)]
    assert shop.drive() == []

    # The partner corrects the products: each day is read again with them, and what is downstream follows.
    shop.land("products", "products.csv", "id,name\n1,pen\n2,red ink\n")
    asked = shop.drive()
    assert sorted(asked) == ["named 2022-03-01 ... 2022-03-02", "products", "totals"] or sorted(asked) == [
        "best", "named 2022-03-01 ... 2022-03-02", "products", "totals",
    ]  # fmt: skip
    assert shop.totals() == [("pen", 7), ("red ink", 2)]

    # Dagster has assets without partitions, and the metadata of each batch.
    with open_instance(shop.loaded.project.settings) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey([shop.db, "totals"]))
        assert event is not None
        assert event.asset_materialization is not None
        assert event.asset_materialization.partition is None
        assert event.asset_materialization.metadata["dagster/partition_row_count"].value == 2
    definitions = build_defs(shop.loaded.datasets, project=shop.loaded.project).resolve_asset_graph()
    assert definitions.get(dg.AssetKey([shop.db, "totals"])).partitions_def is None

    # Commands name it by its dataset alone.
    assert "shop.totals all: current" in shop.says("why", "shop.totals")
    told = shop.says("show", "shop.totals")
    assert "one table without partitions" in told
    assert "shop.named/day=2022-03-01" in told.replace(f"{shop.db}.", "shop.")
    assert "least" in told
    assert "SELECT name, SUM(pieces)" in shop.says("show", "shop.totals", "--sql")
    assert "many partitions" not in shop.says("show", "shop.totals", "--sql")
    # What is printed for a partition runs as it is in any spark-sql, and gives the rows of its batch.
    printed = shop.run("show", "shop.named", "day=2022-03-01", "--sql").output
    *_, query = [statement for statement in printed.split(";\n") if statement.strip()]
    assert sorted(map(tuple, shop.workbench.spark.sql(query).collect())) == [
        (name, pieces) for name, pieces, day in shop.lake("named") if str(day) == "2022-03-01"
    ]
    assert "shop.totals (without partitions, warehouse)" in shop.says("graph")
    assert "2 rows" in shop.says("preview", "shop.totals")
    assert [batch["partition"] for batch in json.loads(shop.says("history", "shop.totals", "--json"))] == [WHOLE, WHOLE]
    for words in (("why", "shop.totals", "day=2022-03-01"), ("history", "shop.totals", "day=2022-03-01")):
        refused = shop.run(*words)
        assert "has no partitions; leave" in str(refused.exception)
        assert "day=2022-03-01" in str(refused.exception)

    # Tasks with their states, of datasets of both kinds.
    (task,) = json.loads(shop.says("tasks", "shop.totals", "--json"))["tasks"]
    assert (task["partition"], task["scope"], task["state"]) == (WHOLE, [["least", "2", "INT"]], "current")
    days = json.loads(shop.says("tasks", "shop.named", "--json"))["tasks"]
    assert [(task["partition"], task["state"]) for task in days] == [
        ("day=2022-03-02", "current"), ("day=2022-03-01", "current"),
    ]  # fmt: skip

    # Back to the batch before, by the dataset alone.
    catalog = shop.workbench.catalog()
    (current,) = catalog.current(f"{shop.db}.totals").values()
    catalog.connection.close()
    batches = json.loads(shop.says("history", "shop.totals", "--json"))
    (earlier,) = {str(batch["batch_id"]) for batch in batches} - {str(current.batch_id)}
    shop.says("rollback", "shop.totals", "--to", earlier, "--reason", "the partner was right before")
    assert shop.totals() == [("ink", 2), ("pen", 7)]
    assert "a person took its batch back" in " ".join(shop.says("why", "shop.totals").split())


def test_a_set_that_grows_is_read_whole_and_beside_a_dataset_without_partitions(shop: Shop) -> None:
    """Which keys the set has must be known for every dataset of the query: conditions may link any two of them."""
    ratings = """
CREATE DATASET {db}.ratings (product_id INT, stars INT) PARTITIONED BY (place STRING)
FOR p IN DYNAMIC '{db}.places' INSERT (place = p) EXTERNAL;
"""
    rated = """
CREATE DATASET {db}.rated
ALLOW FULL SCAN OF {db}.ratings
AS SELECT p.name, r.place, r.stars FROM {db}.products p JOIN {db}.ratings r ON r.product_id = p.id;
"""
    for name, text in (("ratings", ratings), ("rated", rated)):
        (shop.root / f"{shop.db}_assets" / f"{name}.sql").write_text(text.format(db=shop.db).lstrip())
    shop.land("products", "products.csv", "id,name\n1,pen\n2,ink\n")
    load_project.cache_clear()
    forget_files()
    shop.says("keys", "add", f"{shop.db}.places", "Lagos", "Paris")
    for place in ("Lagos", "Paris"):
        shop.land("ratings", f"{place}.csv", "product_id,stars\n1,5\n")
    assert "rated" in shop.drive()
    assert shop.lake("rated") == [("pen", "Lagos", 5), ("pen", "Paris", 5)]
    assert "2 rows" in shop.says("preview", "shop.rated")


def test_a_function_and_a_program_compute_it_once_for_its_scope(shop: Shop) -> None:
    assets = shop.root / f"{shop.db}_assets"
    (assets / "counting.py").write_text(
        "def counted(spark, scope, p):\n    return p.selectExpr(f\"count(*) + {scope['more']} as n\")\n"
    )
    (shop.root / "count.py").write_text(
        "import sys\nfrom pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
        "p = spark.read.parquet(f'{sys.argv[1]}/inputs/p')\n"
        "p.selectExpr('count(*) as n').write.parquet(f'{sys.argv[1]}/output')\n"
    )
    using = "USING p AS (SELECT * FROM {db}.products);"
    bodies = {"by_function": f"LET more = 5 PYTHON '{shop.db}_assets.counting:counted' {using}",
              "by_program": f"STORED IN WAREHOUSE SPARK 'count.py' {using}"}  # fmt: skip
    for name, body in bodies.items():
        text = f"CREATE DATASET {shop.db}.{name} (n BIGINT) " + body.format(db=shop.db)
        (assets / f"{name}.sql").write_text(text)
    shop.land("products", "products.csv", "id,name\n1,pen\n2,ink\n")
    for name in ("products", *bodies):
        done = shop.materialise(name)
        assert done.success, done.failure_data_for_node(f"{shop.db}__{name}")
    assert shop.lake("by_function") == [(7,)]
    with psycopg.connect(warehouse_url(shop.workbench.settings)) as connection:
        table = psycopg.sql.Identifier(shop.db, "by_program")
        assert list(connection.execute(psycopg.sql.SQL("select n from {}").format(table))) == [(2,)]


def test_a_run_by_hand_needs_no_partition_and_ignores_those_of_other_assets(shop: Shop) -> None:
    shop.land("products", "products.csv", "id,name\n1,pen\n2,ink\n")
    shop.land("sales", "2022-03-01.csv", "product_id,pieces\n1,3\n")
    early = shop.materialise("totals")
    assert not early.success
    failure = str(early.failure_data_for_node(f"{shop.db}__totals"))
    assert f"{shop.db}.totals all reads 2 partitions of {shop.db}.named, of which 2 have no batch yet" in failure
    assert shop.materialise("products").success
    assert shop.materialise("sales", partition_key="2022-03-01").success
    assert shop.materialise("named", partition_key="2022-03-01").success
    shop.land("products", "products.csv", "id,name\n1,pencil\n")
    # One run of two assets, of which only one has partitions.
    loaded = shop.loaded
    with open_instance(loaded.project.settings) as instance:
        job = build_defs(loaded.datasets, project=loaded.project).resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(
            asset_selection=[dg.AssetKey([shop.db, name]) for name in ("products", "named")],
            partition_key="2022-03-01", instance=instance, raise_on_error=False,
        )  # fmt: skip
    assert done.success
    assert [row[0] for row in shop.lake("named")] == ["pencil"]
