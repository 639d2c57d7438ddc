"""REJECT UP TO n ROWS INTO: what is taken and what is rejected are published together by one run, or neither is."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from pipeline_defs.datasets import dataset_asset, graph_of
from pipeline_defs.definitions import build_defs
from pipeline_defs.model.dataset import Dataset, StoreKind
from pipeline_defs.model.dimension import StaticDimension
from pipeline_defs.model.errors import VarveError
from pipeline_defs.model.partition import PartitionKey
from pipeline_defs.model.partitioning import Partitioning
from pipeline_defs.model.rejecting import RejectInto
from pipeline_defs.model.schema import Column, ColumnType, Schema
from pipeline_defs.sensors import arrival_sensor, downstream_sensor
from pipeline_defs.sql.errors import Source, SqlErrors
from pipeline_defs.sql.project import compiled
from pipeline_defs.sql_assets import sql_assets
from resources import group
from resources.catalog import Catalog
from resources.landed import checks
from resources.postgres import connect
from tests.pipeline_defs.test_outside_assets import tick
from tests.pipeline_defs.test_sql_assets import materialise, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline_defs.datasets import DatasetAsset
    from resources.settings import Settings
    from tests.conftest import Workbench

ORDERS = """CREATE DATASET {db}.orders (product STRING NOT NULL, price DECIMAL(10,2))
STORED IN {store}
PARTITIONED BY (day DATE, region STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-09-01', END '2026-09-05'), region IN ('EU', 'US')
LET day = CAST(t AS DATE)
{reject}
EXTERNAL OPTIONS (source = 'landing');
"""
COUNTS = """CREATE DATASET {db}.counts (n BIGINT)
PARTITIONED BY (day DATE)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-09-01', END '2026-09-05')
LET today = CAST(t AS DATE)
INSERT (day = today)
AS SELECT COUNT(*) AS n FROM {db}.orders_rejected WHERE orders_rejected.day = today
"""
REJECT = "REJECT UP TO 3 ROWS INTO {db}.orders_rejected"
GOOD = "product,price\npen,1.50\n"
BAD = GOOD + "ink,cheap\n,2.00\n"
FIRST = "2026-09-01|EU"
KEY = PartitionKey.of(day="2026-09-01", region="EU")


def orders(db: str, reject: str = REJECT, store: str = "LAKE") -> list[DatasetAsset]:
    texts = {"orders": ORDERS, "counts": COUNTS} if reject else {"orders": ORDERS}
    sources = [
        Source(f"{name}.sql", text.format(db=db, reject=reject.format(db=db), store=store))
        for name, text in texts.items()
    ]
    return sql_assets(compiled(sources, {}))


def send(settings: Settings, db: str, content: str, name: str = f"{FIRST}.csv") -> Path:
    path = Path(settings.landing) / db / "orders" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def with_rejected(found: list[DatasetAsset]) -> list[Any]:
    """The assets with what stands for the rejected rows, for helpers that look datasets up by name."""
    from pipeline_defs.datasets import with_rejected as all_of

    return all_of(found)


def current(settings: Settings, name: str) -> dict[str, Any]:
    with connect(settings) as connection:
        return dict(Catalog(connection).current(name))


@pytest.mark.spark
@pytest.mark.parametrize("store", ["LAKE", "WAREHOUSE"])
def test_rows_that_cannot_be_read_go_into_a_dataset_of_their_own_with_those_that_can(
    store: str, settings: Settings, workbench: Workbench
) -> None:
    db = f"t{uuid.uuid4().hex[:8]}"
    found = orders(db, store=store)
    path = send(settings, db, BAD)
    done = materialise(found, f"{db}.orders", FIRST, FIRST)
    assert done.success
    every = with_rejected(found)
    assert [(row[0], str(row[1]), row[-1]) for row in rows(workbench, every, f"{db}.orders")] == [("pen", "1.50", "EU")]
    assert [row[:7] for row in rows(workbench, every, f"{db}.orders_rejected")] == [
        (str(path), 3, "price", "cheap", "'cheap' is not of type DECIMAL(10,2)", None, "ink,cheap"),
        (str(path), 4, "product", "", "nothing stands there, and it is NOT NULL", None, ",2.00"),
    ]
    taken, rejected = (current(settings, f"{db}.{name}")[KEY.path] for name in ("orders", "orders_rejected"))
    # One transaction: the same instant; and what was taken is what the rejected rows are of.
    assert taken.published_at == rejected.published_at
    assert (taken.rows, rejected.rows, taken.run_id) == (1, 2, rejected.run_id)
    assert {(each.source, each.version) for each in rejected.inputs} == {(f"{db}.orders", str(taken.batch_id))}
    told = {event.asset_key.path[-1]: event for event in done.get_asset_materialization_events()}
    assert told["orders_rejected"].partition == FIRST
    assert told["orders_rejected"].materialization.metadata["dagster/partition_row_count"].value == 2
    about = told["orders"].materialization.metadata
    assert [about[f"varve/rejected_{name}"].value for name in ("rows", "at_most", "into")] == [
        2, 3, f"{db}.orders_rejected",
    ]  # fmt: skip
    # The planner asks for what reads the rejected rows, and never for these.
    assert {dataset for dataset, _, _ in tick(downstream_sensor(graph_of(found)))} <= {"counts"}

    # One row too many: nothing changes, of either.
    send(settings, db, BAD + "cap\npad,x\n")
    failed = materialise(found, f"{db}.orders", FIRST, FIRST)
    assert not failed.success
    said = str(failed.get_step_failure_events()[0].event_specific_data)
    assert (
        f"{path} ({db}.orders): 4 rows of it cannot be read as declared, more than the 3 that go into "
        f"{db}.orders_rejected: line 3: column price: 'cheap' is not of type DECIMAL(10,2), line 4:"
    ) in said
    assert current(settings, f"{db}.orders") == {KEY.path: taken}
    assert current(settings, f"{db}.orders_rejected") == {KEY.path: rejected}

    # A corrected file leaves no rejected rows.
    send(settings, db, GOOD + "ink,2.00\n")
    assert materialise(found, f"{db}.orders", FIRST, FIRST).success
    assert [current(settings, f"{db}.{name}")[KEY.path].rows for name in ("orders", "orders_rejected")] == [2, 0]
    assert rows(workbench, every, f"{db}.orders_rejected") == []
    assert materialise(found, f"{db}.counts", "2026-09-01", "2026-09-01").success is False, "the US is not there yet"
    send(settings, db, GOOD, "2026-09-01|US.csv")
    assert materialise(found, f"{db}.orders", "2026-09-01|EU", "2026-09-01|US").success
    assert materialise(found, f"{db}.counts", "2026-09-01", "2026-09-01").success
    assert [row[0] for row in rows(workbench, found, f"{db}.counts")] == [0]
