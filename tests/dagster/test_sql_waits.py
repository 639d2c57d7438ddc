"""A SQL dataset with WAIT is run from what is there, notes what is missing, and one without it is refused."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import dagster as dg
import pendulum
import pytest

from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.definitions import build_defs
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from tests.support.workbench import Workbench
    from varve.dagster.assets.datasets import DatasetAsset

pytestmark = pytest.mark.spark

HEAD = """CREATE DATASET {db}.{name} ({columns})
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-05')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
"""
SUMS = "AS SELECT SUM(n) AS n FROM {db}.receipts WHERE receipts.day BETWEEN DATE_SUB(today, 1) AND today GROUP BY 1 = 1"


def run(assets: list[DatasetAsset], name: str, first: str = "", last: str = "") -> dg.ExecuteInProcessResult:
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    return (
        build_defs(assets)
        .resolve_implicit_global_asset_job_def()
        .execute_in_process(
            asset_selection=[dg.AssetKey(name.split("."))], tags=tags if first else {}, raise_on_error=False
        )
    )


def test_a_partition_is_made_of_what_is_there_where_the_file_says_so(workbench: Workbench) -> None:
    db = f"w{uuid.uuid4().hex[:8]}"
    table = f"default.{db}_dumps"
    rows = [(1, "2022-03-01"), (2, "2022-03-02")]
    workbench.spark.createDataFrame(rows, "n INT, day STRING").write.partitionBy("day").saveAsTable(table)
    external = f"EXTERNAL OPTIONS (source = 'table', table = '{table}')"
    texts = [
        HEAD.format(db=db, name="receipts", columns="n INT") + external,
        HEAD.format(db=db, name="patient", columns="n BIGINT") + SUMS.format(db=db),
        HEAD.format(db=db, name="hasty", columns="n BIGINT") + "WAIT ALL BUT 1\n" + SUMS.format(db=db),
    ]
    assets = sql_assets(compiled([SourceFile(f"{place}.sql", text) for place, text in enumerate(texts)], {}))
    assert run(assets, f"{db}.receipts", "2022-03-01", "2022-03-02").success

    assert not run(assets, f"{db}.patient", "2022-03-02", "2022-03-03").success
    hasty = run(assets, f"{db}.hasty", "2022-03-02", "2022-03-03")
    assert hasty.success
    missing = {
        event.partition: event.metadata["varve/missing"].value
        for event in hasty.asset_materializations_for_node(f"{db}__hasty")
        if "varve/missing" in event.metadata
    }
    assert list(missing) == ["2022-03-03"]
    assert f"{db}.receipts day=2022-03-03" in str(missing["2022-03-03"])

    (dataset,) = [asset.dataset for asset in assets if asset.dataset.name == f"{db}.hasty"]
    catalog = workbench.catalog()
    batches = list(catalog.current(dataset.name).values())
    published = workbench.store(dataset, catalog).read(dataset, batches).orderBy("day").collect()
    assert [tuple(row) for row in published] == [(3, "2022-03-02"), (2, "2022-03-03")]
    catalog.connection.close()


def test_a_run_of_a_dataset_that_reads_all_of_a_series_misses_no_window_whose_retention_is_over(
    workbench: Workbench,
) -> None:
    """Nor does it name those thousands of days; a day that is kept and has not come is missing."""
    db = f"w{uuid.uuid4().hex[:8]}"
    table = f"default.{db}_dumps"
    today = pendulum.today("UTC")
    days = [today.subtract(days=count).to_date_string() for count in (2, 1, 0)]
    rows = [(1 + place, day) for place, day in enumerate(days)]
    workbench.spark.createDataFrame(rows, "n INT, day STRING").write.partitionBy("day").saveAsTable(table)
    series = HEAD.format(db=db, name="receipts", columns="n INT").replace("END '2022-03-05'", "RETENTION 2 DAYS")
    texts = [
        f"{series}EXTERNAL OPTIONS (source = 'table', table = '{table}')",
        f"CREATE DATASET {db}.whole (n BIGINT) ALLOW FULL SCAN AS SELECT SUM(n) AS n FROM {db}.receipts",
    ]
    assets = sql_assets(compiled([SourceFile(f"{place}.sql", text) for place, text in enumerate(texts)], {}))
    assert run(assets, f"{db}.receipts", days[1], days[2]).success
    early = run(assets, f"{db}.whole")
    assert f"of which 1 have no batch yet: day={days[0]}." in str(early.failure_data_for_node(f"{db}__whole"))
    assert run(assets, f"{db}.receipts", days[0], days[0]).success
    done = run(assets, f"{db}.whole")
    assert done.success
    (made,) = done.asset_materializations_for_node(f"{db}__whole")
    assert "varve/missing" not in made.metadata
    (dataset,) = [asset.dataset for asset in assets if asset.dataset.name == f"{db}.whole"]
    catalog = workbench.catalog()
    (batch,) = catalog.current(dataset.name).values()
    assert sorted(read.partition for read in batch.inputs) == [f"day={day}" for day in days]
    catalog.connection.close()


def test_a_partition_that_reads_only_what_is_past_its_retention_is_told_that_nothing_helps() -> None:
    db = f"w{uuid.uuid4().hex[:8]}"
    receipts = HEAD.format(db=db, name="receipts", columns="n INT").replace("END '2022-03-05'", "RETENTION 2 DAYS")
    texts = [
        f"{receipts}EXTERNAL OPTIONS (source = 'table', table = 'default.{db}_dumps')",
        HEAD.format(db=db, name="same", columns="n INT") + f"AS SELECT n FROM {db}.receipts WHERE receipts.day = today",
    ]
    assets = sql_assets(compiled([SourceFile(f"{place}.sql", text) for place, text in enumerate(texts)], {}))
    failed = run(assets, f"{db}.same", "2022-03-02", "2022-03-02")
    told = str(failed.failure_data_for_node(f"{db}__same"))
    assert f"day=2022-03-02 will not come, as the retention of {db}.receipts is over, and nothing else is read" in told
    assert "WAIT AT LEAST" not in told
