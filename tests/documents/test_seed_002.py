"""`docs/examples/seeds/002`: the customers of two days, one of them loaded again into a folder beside the first."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.project import ROOT
from tests.support.workbench import Workbench
from varve.catalog.history.history import History
from varve.sql.sql_project import load_usable
from varve.stores.lake.store import LakeStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from varve.model.batch import Batch, BatchId
    from varve.model.dataset import Dataset
    from varve.services.settings import Settings

pytestmark = pytest.mark.spark

STRUCTURE = "customer_id BIGINT, address STRING, gender STRING, dt INT"
NINTH, TENTH = "dt=20151209", "dt=20151210"


@dataclass(frozen=True)
class Customers:
    """The dataset, whose second day was loaded without genders first, and then again with them."""

    workbench: Workbench
    dataset: Dataset
    first: dict[str, Batch]
    second: dict[str, Batch]

    def genders(self) -> list[tuple[object, ...]]:
        """What a user of Spark reads by the table's name."""
        rows = self.workbench.spark.sql("SELECT dt, gender FROM abc.customer ORDER BY dt, gender").collect()
        return [tuple(row) for row in rows]

    def folder(self, partition: str) -> Path:
        return Path(self.workbench.settings.lake) / "abc" / "customer" / partition


@pytest.fixture(scope="module")
def customers(settings: Settings, spark: SparkSession) -> Customers:
    workbench = Workbench(settings, spark)
    files = load_usable(ROOT / "docs" / "examples" / "seeds" / "002").checked()
    dataset = files["abc.customer"].dataset
    ninth, tenth = (dataset.partitioning.from_path(path) for path in (NINTH, TENTH))

    def rows(*values: tuple[int, str | None, int]) -> list[tuple[int, str, str | None, int]]:
        return [(number, "New York", gender, day) for number, gender, day in values]

    loaded = rows((1, "f", 20151209), (2, None, 20151210))
    first = workbench.publish_frame(dataset, [ninth, tenth], spark.createDataFrame(loaded, STRUCTURE))
    again = rows((2, "m", 20151210))
    second = workbench.publish_frame(dataset, [tenth], spark.createDataFrame(again, STRUCTURE))
    return Customers(workbench, dataset, first, second)


def test_a_second_run_lies_beside_the_first_and_the_newest_has_the_highest_id(customers: Customers) -> None:
    folders = sorted(each.name for each in customers.folder(TENTH).iterdir())
    assert folders == [customers.first[TENTH].batch_id.folder, customers.second[TENTH].batch_id.folder]
    assert all(any((customers.folder(TENTH) / name).glob("part-*.parquet")) for name in folders)
    assert customers.first[TENTH].batch_id.millis < customers.second[TENTH].batch_id.millis
    # The other day is where it was.
    assert customers.first[NINTH].batch_id == customers.second[NINTH].batch_id
    assert len(list(customers.folder(NINTH).iterdir())) == 1


def test_users_read_the_table_as_ever_and_have_the_second_run(customers: Customers) -> None:
    assert customers.genders() == [(20151209, "f"), (20151210, "m")]


def test_the_old_data_can_be_read_by_pointing_at_its_folder(customers: Customers) -> None:
    old = customers.folder(TENTH) / customers.first[TENTH].batch_id.folder
    assert [tuple(row) for row in customers.workbench.spark.read.parquet(str(old)).collect()] == [(2, "New York", None)]


def test_one_alter_table_is_all_that_a_switch_is_and_one_by_hand_is_told_and_mended(customers: Customers) -> None:
    old = customers.folder(TENTH) / customers.first[TENTH].batch_id.folder
    customers.workbench.spark.sql(f"ALTER TABLE abc.customer PARTITION (dt=20151210) SET LOCATION '{old}/'")
    customers.workbench.spark.sql("REFRESH TABLE abc.customer")
    assert customers.genders() == [(20151209, "f"), (20151210, None)]
    catalog = customers.workbench.catalog()
    with closing(catalog.connection):
        store = customers.workbench.store(customers.dataset, catalog)
        assert isinstance(store, LakeStore)
        (finding,) = store.examine(customers.dataset, History(catalog.connection).present("abc.customer"))
        assert finding.partition == TENTH
        assert f"the Hive table shows {customers.first[TENTH].batch_id.folder}" in finding.problem
        assert store.repair(customers.dataset) == 1
    assert customers.genders() == [(20151209, "f"), (20151210, "m")]


def test_a_clean_up_takes_what_no_partition_points_at_unless_it_opted_out(customers: Customers) -> None:
    dead = customers.first[TENTH].batch_id
    week, now = dt.timedelta(days=7), dt.timedelta(0)
    catalog = customers.workbench.catalog()
    with closing(catalog.connection):
        history = History(catalog.connection)

        def dead_batches(older_than: dt.timedelta) -> dict[BatchId, str]:
            """The batches that no partition points at, each with why it is kept; '' for what the clean-up takes."""
            retired = history.retired("abc.customer", older_than=older_than, keep_last=0)
            return {batch.batch_id: batch.kept for batch in retired}

        assert dead_batches(now) == {dead: ""}
        assert dead_batches(week) == {dead: "recent"}
        history.pin("abc.customer", dead, [TENTH], owner="ann", reason="the state before the addresses")
        assert dead_batches(now) == {dead: "pinned"}
        assert history.unpin("abc.customer", dead, [TENTH], owners=["ann"]) == 1
        assert dead_batches(now) == {dead: ""}
