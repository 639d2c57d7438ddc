"""Keys of strangers: whatever a key holds is data. It names one partition, reads back as it was, and leads nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from tests.support.sales import DAY, sales_dataset
from varve.catalog.history.history import History
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.services.postgres import warehouse_url
from varve.stores.folders.layout import Layout

if TYPE_CHECKING:
    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

HOSTILE = (
    "it's", '"quoted"', "'; drop table sales; --", "$$; drop schema varve cascade; $$",
    "../../../etc/passwd", "..", ".", "/etc/passwd", "a/b", "a\\b", "C:\\x",
    "100%", "%2e%2e%2f", "%s", "%(name)s", "{}", "{0.__class__}", "${HOME}", "${env:HOME}", "$(touch x)", "`touch x`",
    "a=b", "day=2013-01-05", "*", "?[x]", "~", "Zürich", "日本語", "😀", "e\u0301", "\u202egnp",
    " leading and trailing ", "null", "x" * 60,
)  # fmt: skip
# What no key may hold, as neither Dagster nor a folder can: refused before anything is written.
REFUSED = ("two\nlines", "a\rb", "tab\there", "nul\0", "", "__HIVE_DEFAULT_PARTITION__", "x" * 4_000)


def dataset(store: StoreKind, values: tuple[str, ...] = HOSTILE) -> Dataset:
    return sales_dataset(store, dimensions=(DAY, StaticDimension("store", values)))


def keys() -> dict[str, PartitionKey]:
    return {value: PartitionKey.of(day=DAY.start.date(), store=value) for value in HOSTILE}


@pytest.mark.parametrize("store", [StoreKind.LAKE, StoreKind.WAREHOUSE])
def test_hostile_keys_stay_data_and_one_of_them_is_republished_and_swept_alone(
    workbench: Workbench, store: StoreKind
) -> None:
    sales, by_value = dataset(store), keys()
    everything_else = others(workbench, sales)
    current = workbench.publish(
        sales, list(by_value.values()), [(key, value, number) for number, (value, key) in enumerate(by_value.items())]
    )
    assert len(current) == len(HOSTILE)
    day = DAY.start.date()
    expected = sorted((day, value, value, number) for number, value in enumerate(HOSTILE))
    assert workbench.read(sales) == expected
    for number, (value, key) in list(enumerate(by_value.items()))[:6]:
        assert workbench.read(sales, [key]) == [(day, value, value, number)]
    assert_within(workbench, sales)

    # One of them anew: the others do not move.
    worst = by_value["../../../etc/passwd"]
    after = workbench.publish(sales, [worst], [(worst, "again", 7)])
    assert {path for path in after if after[path] != current[path]} == {worst.path}
    assert workbench.read(sales, [worst]) == [(day, "../../../etc/passwd", "again", 7)]
    assert_within(workbench, sales)
    catalog = workbench.catalog()
    try:
        present = History(catalog.connection).present(sales.name)
        assert [finding.problem for finding in workbench.store(sales, catalog).examine(sales, present, deep=True)] == []
    finally:
        catalog.connection.close()
    assert others(workbench, sales) == everything_else


def test_readers_of_the_warehouse_find_them_by_ordinary_parameters(workbench: Workbench) -> None:
    sales, by_value = dataset(StoreKind.WAREHOUSE), keys()
    workbench.publish(sales, list(by_value.values()), [(key, "pen", 1) for key in by_value.values()])
    view = sql.Identifier(sales.db, sales.table)
    with psycopg.connect(warehouse_url(workbench.settings)) as reader:
        for value in HOSTILE:
            query = sql.SQL("select count(*), min(store) from {} where store = %s").format(view)
            assert reader.execute(query, (value,)).fetchone() == (1, value)
        assert reader.execute(sql.SQL("select count(*) from {}").format(view)).fetchone() == (len(HOSTILE),)


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: repr(value[:20]))
def test_a_key_that_cannot_be_one_is_refused_when_it_is_declared(value: str) -> None:
    with pytest.raises(VarveError):
        dataset(StoreKind.LAKE, ("Paris", value))


def assert_within(workbench: Workbench, sales: Dataset) -> None:
    """Whatever was written lies in the dataset's own folder, or in its own schemas."""
    if sales.store == StoreKind.LAKE:
        root = Path(Layout(workbench.settings.lake).table(sales)).resolve()
        for batch in workbench.current(sales).values():
            folder = Path(batch.location)
            assert folder.resolve() == folder
            assert folder.is_relative_to(root)
            # day, store, batch: a key adds one level, whatever it holds.
            assert len(folder.relative_to(root).parts) == 3
        return
    with psycopg.connect(warehouse_url(workbench.settings)) as reader:
        for batch in workbench.current(sales).values():
            (found,) = reader.execute(
                "select count(*) from pg_tables where schemaname = %s and tablename = %s",
                (f"{sales.db}_periods", batch.location.rpartition(".")[2]),
            ).fetchone() or (0,)
            assert found == 1


def others(workbench: Workbench, sales: Dataset) -> tuple[set[str], set[str]]:
    """What is there that is not the dataset's: files beside the lake, and everybody's schemas."""
    home = workbench.settings.home_dir
    Path(workbench.settings.lake).mkdir(exist_ok=True)
    files = {path.name for folder in (home, Path(workbench.settings.lake)) for path in folder.iterdir()}
    catalog = workbench.catalog()
    try:
        schemas = {row[0] for row in catalog.connection.execute("select nspname from pg_namespace").fetchall()}
    finally:
        catalog.connection.close()
    # The lake's first build makes the folders of its records and spools.
    return (
        {name for name in files if name != sales.db and not name.startswith("_")},
        {name for name in schemas if not name.startswith(("pg_", sales.db))},
    )
