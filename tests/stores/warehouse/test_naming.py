"""Names of period tables: within PostgreSQL's limit and unlike for unlike partitions, however nasty their keys."""

from __future__ import annotations

import datetime as dt
import re

from hypothesis import given
from hypothesis import strategies as st

from tests.support.sales import COLUMNS
from varve.model.batch import BatchId
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.stores.warehouse.tables.naming import period_table, periods_schema

BATCH = BatchId(1_763_600_000_000)
NASTY = (
    "Acme", "acme", "ACME", "a b", "a_b", "a-b", "a  b", "Zürich",
    "Zu\u0308rich", "東京", "大阪", "''", '"', "%", ".", "x" * 300,
)  # fmt: skip


def dataset(name: str) -> Dataset:
    return Dataset(
        name, Partitioning((StaticDimension("store", ("Paris",)),)), COLUMNS, StoreKind.WAREHOUSE, "One row per sale."
    )


SALES = dataset("shop.sales")
# Control characters are refused where a key is made.
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1)
batches = st.builds(BatchId, st.integers(1, 101_559_956_668_415))


def test_a_name_can_be_read_by_people() -> None:
    weekly = dataset("flights.weekly_delays")
    name = period_table(weekly, PartitionKey.of(week=dt.date(2013, 1, 7), origin="EWR"), BATCH)
    assert re.fullmatch(r"weekly_delays__2013_01_07_ewr__[a-z2-7]{12}_[0-9a-z]{8}", name)


def test_period_tables_lie_beside_the_schema_of_the_view() -> None:
    assert periods_schema(SALES) == "shop_periods"


def test_nasty_keys_have_names_of_their_own() -> None:
    names = {period_table(SALES, PartitionKey.of(store=store), BATCH) for store in NASTY}
    assert len(names) == len(NASTY)


def test_keys_whose_values_join_to_the_same_text_have_names_of_their_own() -> None:
    name = period_table(SALES, PartitionKey.of(a="x", b="y z"), BATCH)
    assert name != period_table(SALES, PartitionKey.of(a="x y", b="z"), BATCH)


def test_namesakes_in_other_datasets_and_batches_have_names_of_their_own() -> None:
    paris = PartitionKey.of(store="Paris")
    assert period_table(SALES, paris, BATCH) == period_table(SALES, paris, BATCH)
    assert period_table(SALES, paris, BATCH) != period_table(dataset("other.sales"), paris, BATCH)
    assert period_table(SALES, paris, BATCH) != period_table(SALES, paris, BatchId(BATCH.millis + 1))


@given(st.from_regex(r"[a-z][a-z0-9_]{0,80}", fullmatch=True), st.lists(texts, min_size=1, max_size=2), batches)
def test_a_name_is_never_longer_than_postgresql_keeps_and_needs_no_quotes(
    table: str, values: list[str], batch: BatchId
) -> None:
    key = PartitionKey(tuple((f"d{place}", value) for place, value in enumerate(values)))
    name = period_table(dataset(f"db.{table}"), key, batch)
    assert len(name.encode()) <= 62
    assert re.fullmatch(r"[a-z0-9_]+", name)


@given(st.tuples(texts, batches), st.tuples(texts, batches))
def test_unlike_partitions_and_batches_have_unlike_names(
    first: tuple[str, BatchId], second: tuple[str, BatchId]
) -> None:
    names = [period_table(SALES, PartitionKey.of(store=store), batch) for store, batch in (first, second)]
    assert (names[0] == names[1]) == (first == second)
