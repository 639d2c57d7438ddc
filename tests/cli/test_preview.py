"""`varve preview`: what a run would publish, of the file as it is on disk, with nothing written anywhere."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.shop import Shop
from tests.dagster.test_sql_assets import materialise
from tests.documents.pages import blocks
from varve.dagster.discovery import load_project
from varve.model.broken_dataset import DatasetIsBroken
from varve.model.errors import BadInput, MissingUpstream, VarveError
from varve.project import Project

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

REVENUE = """EXPECT some_price: revenue > 0
AS
SELECT product, SUM(price) AS revenue, COUNT(*) AS sales
FROM shop.sales
WHERE sales.day = today
GROUP BY product;
"""
STOCK = """
from pathlib import Path

import varve

SALES = varve.sql_datasets(Path(__file__).parent)["{db}.sales"].dataset
STOCK = varve.Dataset(
    name="{db}.stock",
    partitioning=SALES.partitioning,
    schema=varve.Schema(
        (varve.Column("product", varve.ColumnType.STRING), varve.Column("sold", varve.ColumnType.BIGINT))
    ),
    store=varve.StoreKind.LAKE,
    comment="What was sold.",
    expectations=(varve.Expectation("few", "sold < 2"), varve.Expectation("any", "count(*) > 0", varve.Of.PARTITION)),
)


@varve.asset(STOCK, reads={{"sales": SALES}})
def stock(context, sales):
    assert varve.partitions_of(context).key["day"].isoformat() == "2026-11-01"
    return sales.groupBy("product", "day").count().withColumnRenamed("count", "sold")
"""


@pytest.fixture
def shop(tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop.at(tmp_path, workbench, monkeypatch)


def by_product(values: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {row["product"]: (row["revenue"], row["sales"]) for row in values["rows"]}


def everything_in(connection: psycopg.Connection) -> dict[str, list[Any]]:
    """All rows of all tables of the database, and the locks that sessions hold until they let go."""
    tables = connection.execute(
        "select format('%I.%I', schemaname, tablename) from pg_tables "
        "where schemaname not in ('pg_catalog', 'information_schema')"
    ).fetchall()
    rows: dict[str, list[Any]] = {
        name: sorted(map(str, connection.execute(f"select * from {name}").fetchall()))  # type: ignore[arg-type]
        for (name,) in tables
    }
    # Once a minute, whoever uses a catalog notes in `used` when it was used with which version.
    rows["varve.schema_version"] = connection.execute(
        "select to_jsonb(v) - 'used', (select array_agg(key order by key) from jsonb_object_keys(used) key) "
        "from varve.schema_version v"
    ).fetchall()
    rows["locks"] = connection.execute("select objid from pg_locks where locktype = 'advisory'").fetchall()
    return rows


@pytest.mark.parametrize("store", ["LAKE", "WAREHOUSE"])
def test_a_preview_shows_what_a_run_then_publishes_and_writes_nothing(
    shop: Shop, workbench: Workbench, connection: psycopg.Connection, store: str
) -> None:
    shop.sql("revenue", REVENUE, store=store)
    shop.sql("best", "AS SELECT MAX(revenue) AS best FROM shop.revenue WHERE revenue.day = today;", store=store)
    batch = shop.sell("2026-11-01", [(1, "pen", "2.50"), (2, "pen", "1.00"), (3, "ink", "9.99")])
    before = everything_in(connection)
    lake = sorted(workbench.settings.home_dir.joinpath("lake").rglob("*"))
    values = shop.json("preview", "shop.revenue", "day=2026-11-01")
    assert everything_in(connection) == before
    assert sorted(workbench.settings.home_dir.joinpath("lake").rglob("*")) == lake
    assert by_product(values) == {"pen": ("3.50", 2), "ink": ("9.99", 1)}
    assert [(column["name"], column["type"]) for column in values["columns"]] == [
        ("product", "string"), ("revenue", "decimal(20,2)"), ("sales", "bigint"), ("day", "date"),
    ]  # fmt: skip
    assert values["reads"] == [
        {"dataset": f"{shop.db}.sales", "partition": "day=2026-11-01", "batch": str(batch.batch_id)}
    ]
    assert [(kept["name"], kept["broken"]) for kept in values["expectations"]] == [("some_price", 0)]

    # What a run publishes is what was shown; and what reads it can be previewed from there.
    project = load_project(Project.find(shop.root))
    assert materialise(list(project.datasets), f"{shop.db}.revenue", "2026-11-01", "2026-11-01").success  # type: ignore[arg-type]
    dataset = shop.asset("revenue").dataset
    catalog = workbench.catalog()
    published = workbench.store(dataset, catalog).read(dataset, list(catalog.current(dataset.name).values())).collect()
    catalog.connection.close()
    assert {row["product"]: (str(row["revenue"]), row["sales"]) for row in published} == by_product(values)
    assert shop.json("preview", "shop.best", "day=2026-11-01")["rows"] == [{"best": "9.99", "day": "2026-11-01"}]


def test_an_edit_is_in_the_next_preview_and_a_mistake_is_told_with_its_place(shop: Shop) -> None:
    shop.sql("revenue", REVENUE)
    shop.sell("2026-11-01", [(1, "pen", "2.50")])
    assert by_product(shop.json("preview", "shop.revenue", "day=2026-11-01")) == {"pen": ("2.50", 1)}
    shop.sql("revenue", REVENUE.replace("SUM(price)", "CAST(2 AS DECIMAL(3, 0)) * SUM(price)"))
    assert by_product(shop.json("preview", "shop.revenue", "day=2026-11-01")) == {"pen": ("5.00", 1)}
    shop.sql("revenue", REVENUE.replace("SUM(price)", "SUM(prise)"))
    with pytest.raises(DatasetIsBroken, match=r"revenue\.sql:\d+:21: .*prise"):
        shop.json("preview", "shop.revenue", "day=2026-11-01")


def test_rows_that_break_the_query_are_told_at_their_place_by_a_preview_a_run_and_why(shop: Shop) -> None:
    shop.sql("revenue", REVENUE.replace("SUM(price)", "SUM(CAST(product AS INT))"))
    shop.sell("2026-11-01", [(1, "pen", "2.50")])
    with pytest.raises(BadInput, match=r"revenue\.sql:10:21: the value 'pen' cannot be read as INT\."):
        shop.json("preview", "shop.revenue", "day=2026-11-01")
    asset = shop.asset("revenue")
    done = materialise([shop.asset("sales"), asset], asset.dataset.name, "2026-11-01", "2026-11-01")
    (failure,) = [event for event in done.all_events if event.is_step_failure]
    error = failure.step_failure_data.error
    assert error is not None
    assert "Nothing was published; the current batch is unchanged.\n    SELECT product, SUM(CAST(" in error.message
    assert "JVM" not in str(failure)
    catalog = shop.workbench.catalog()
    ((reason,),) = catalog.connection.execute(
        "select failure from varve.batch where dataset = %s and state = 'failed'", (asset.dataset.name,)
    ).fetchall()
    assert reason.endswith("^" * len("CAST(product AS INT)"))
    catalog.connection.close()


def test_rows_beyond_the_limit_are_counted_and_count_for_what_is_expected(shop: Shop) -> None:
    shop.sql("revenue", REVENUE)
    shop.sell("2026-11-01", [(number, f"p{number}", "-1.00" if number % 3 else "1.00") for number in range(30)])
    values = shop.json("preview", "shop.revenue", "day=2026-11-01", "--limit", "2")
    assert (len(values["rows"]), values["row_count"]) == (2, 30)
    assert values["expectations"][0]["broken"] == 20
    told = shop.run("preview", "shop.revenue", "day=2026-11-01", "--limit", "2", "--explain").output
    assert "30 rows, of which 2 are shown" in told
    assert "EXPECT some_price broken by 20 rows: a run would publish nothing" in told
    assert "== Physical Plan ==" in told


def test_an_input_that_is_not_there_is_named(shop: Shop) -> None:
    shop.sql("revenue", REVENUE)
    with pytest.raises(
        MissingUpstream, match=r"of which 1 have no batch yet: day=2026-11-02.*: `varve why \w+.sales d"
    ):
        shop.json("preview", "shop.revenue", "day=2026-11-02")
    with pytest.raises(VarveError, match=r"a partition is named day=\.\.\."):
        shop.json("preview", "shop.revenue", "hour=3")
    with pytest.raises(VarveError, match="comes from others: there is nothing to compute"):
        shop.json("preview", "shop.sales", "day=2026-11-02")


def test_a_window_that_is_open_is_shown_and_said_to_be_so(shop: Shop) -> None:
    today = dt.datetime.now(dt.UTC).date()
    (shop.assets / "since.sql").write_text(
        f"""CREATE DATASET {shop.db}.since
  COMMENT 'What was sold in all.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', TIMEZONE 'UTC')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
AS SELECT COUNT(*) AS sold FROM {shop.db}.sales WHERE sales.day = DATE '2026-11-01' OR sales.day = today;
"""
    )
    shop.sell("2026-11-01", [(1, "pen", "2.00")])
    told = shop.run("preview", "shop.since", f"day={today}").output
    assert f"no run computes it now: its window is open until {today + dt.timedelta(days=1)} 00:00 UTC" in told
    assert shop.json("preview", "shop.since", "day=2026-11-01")["not_now"] is None


@pytest.mark.parametrize("asks_for_a_context", [True, False])
def test_a_function_of_python_that_reads_sql_is_computed_with_its_expectations(
    shop: Shop, *, asks_for_a_context: bool
) -> None:
    text = STOCK.format(db=shop.db)
    if not asks_for_a_context:
        lines = [line for line in text.splitlines() if "assert" not in line]
        text = "\n".join(lines).replace("(context, sales)", "(sales)")
    (shop.assets / "stock.py").write_text(text, encoding="utf-8")
    shop.sell("2026-11-01", [(1, "pen", "2.50"), (2, "pen", "1.00"), (3, "ink", "9.99")])
    values = shop.json("preview", "shop.stock", "day=2026-11-01")
    assert {row["product"]: row["sold"] for row in values["rows"]} == {"pen": 2, "ink": 1}
    assert {kept["name"]: kept["broken"] for kept in values["expectations"]} == {"few": 1, "any": 0}
    assert values["reads"][0]["partition"] == "day=2026-11-01"


def test_rows_of_other_partitions_are_refused_as_by_a_run(shop: Shop) -> None:
    moved = 'sales.withColumn("day", F.date_add("day", 1)).groupBy('
    text = STOCK.format(db=shop.db).replace("sales.groupBy(", moved)
    (shop.assets / "stock.py").write_text(f"from pyspark.sql import functions as F\n{text}", encoding="utf-8")
    shop.sell("2026-11-01", [(1, "pen", "2.50")])
    done = shop.run("preview", "shop.stock", "day=2026-11-01")
    assert isinstance(done.exception, BadInput)
    assert "1 of 1 rows lie outside the partitions of this run" in str(done.exception)


def test_the_commands_of_the_page_do_what_it_says(shop: Shop) -> None:
    shop.sql("revenue", REVENUE)
    shop.sell("2026-11-01", [(1, "pen", "2.50")])
    shop.sell("2026-11-01", [(1, "pen", "2.75"), (2, "ink", "1.00")])
    commands = [
        command
        for block in blocks("console")
        if block.page == "docs/changing.md" and block.runner == "tests/cli/test_preview.py"
        for command in block.commands
    ]
    assert len(commands) == 6
    for command in commands:
        done = shop.run(*command.replace("2026-11-01T09:00", "2020-01-01").split()[1:])
        assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"
        assert "2.75" in done.output or "only after" in done.output


def test_dagster_is_not_imported_for_a_dataset_of_sql(shop: Shop) -> None:
    shop.sql("revenue", REVENUE)
    shop.sell("2026-11-01", [(1, "pen", "2.50")])
    program = (
        "import sys\nfrom varve.cli.app import app\n"
        f"app(['preview', '{shop.db}.revenue', 'day=2026-11-01'], standalone_mode=False)\n"
        "assert 'dagster' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=shop.root, env=dict(os.environ), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, "2.50" in done.stdout) == (0, True), done.stderr
