"""`varve drop` on real stores: nothing of a dropped dataset is left, whenever it was killed; nothing of others goes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from tests.cli.shop import SALES, Shop
from tests.documents.pages import blocks
from tests.support.dagster_home import make_dagster_home
from varve.catalog.history.drops import Drops
from varve.catalog.history.history import History
from varve.catalog.recovery.recovery import recover
from varve.dagster.assets.sql_folders import forget_files
from varve.dagster.discovery import load_project
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

pytestmark = pytest.mark.spark

HERE = "tests/cli/test_drop.py"
LAKE, WAREHOUSE = "LAKE", "WAREHOUSE"
# Everything in the catalog that names a dataset. The planner's changes go by their age.
TABLES = """
    select c.relname from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'varve' and a.attname = 'dataset' and c.relkind = 'r' and c.relname <> 'change' order by 1
"""


@pytest.fixture
def shop(tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop that declares `sales`, and `kept`, which nobody drops."""
    shop = Shop.at(tmp_path, workbench, monkeypatch)
    shop.sql("kept", "EXTERNAL;", columns=SALES)
    return shop


@pytest.fixture
def catalog(workbench: Workbench) -> Iterator[Catalog]:
    with closing((opened := workbench.catalog()).connection):
        yield opened


@pytest.fixture(params=[LAKE, WAREHOUSE])
def sales(request: pytest.FixtureRequest, shop: Shop) -> Dataset:
    """`sales` in each of the stores, with two days, one of them sold twice; and nobody declares it any more."""
    shop.sql("sales", "EXTERNAL;", columns=SALES, store=request.param)
    dataset: Dataset = shop.asset("sales").dataset
    shop.sell("2026-11-01", [(1, "pen", "1.00")])
    shop.sell("2026-11-02", [(2, "ink", "2.00")])
    shop.sell("2026-11-01", [(1, "pen", "1.50")])
    undeclare(shop)
    return dataset


def undeclare(shop: Shop, name: str = "sales") -> None:
    (shop.assets / f"{name}.sql").unlink()
    read_again()


def read_again() -> None:
    """Let this process read the project's files again, as the next process does."""
    load_project.cache_clear()
    forget_files()


def rows_of(catalog: Catalog, name: str) -> dict[str, int]:
    """How many rows each table of the catalog has of the dataset, under its own name or that of its drop."""
    tables = [table for (table,) in catalog.connection.execute(TABLES)]
    counts = {}
    for table in tables:
        query = f"select count(*) from varve.{table} where dataset = %s or starts_with(dataset, %s || '#')"
        ((count,),) = catalog.connection.execute(query.encode(), (name, name))
        counts[table] = count
    return {table: count for table, count in counts.items() if count}


def shown(workbench: Workbench, dataset: Dataset) -> list[tuple[object, ...]] | None:
    """What somebody reads by name; None where there is nothing of that name."""
    if dataset.store == LAKE.lower():
        if not workbench.spark.catalog.tableExists(dataset.name):
            return None
        return sorted(tuple(row) for row in workbench.spark.sql(f"SELECT id, product FROM {dataset.name}").collect())
    with closing(workbench.catalog().connection) as connection:
        if connection.execute("select to_regclass(%s)", (dataset.name,)).fetchone() == (None,):
            return None
        return sorted(connection.execute(f"select id, product from {dataset.name}".encode()))


def data_of(catalog: Catalog, workbench: Workbench, dataset: Dataset) -> list[str]:
    """The batches whose data lies in the store."""
    if dataset.store == LAKE.lower():
        root = Path(workbench.settings.lake, dataset.db, dataset.table)
        return sorted(str(folder) for folder in root.glob("**/batch_id=*"))
    query = "select tablename from pg_tables where schemaname = %s and tablename like 'sales%%' order by 1"
    return [table for (table,) in catalog.connection.execute(query, (f"{dataset.db}_periods",))]


def views_of(connection: psycopg.Connection, dataset: Dataset) -> list[str]:
    query = "select schemaname || '.' || viewname from pg_views where schemaname in (%s, %s) order by 1"
    return [view for (view,) in connection.execute(query, (dataset.db, f"{dataset.db}_periods"))]


def problems(shop: Shop, name: str = "shop.sales") -> list[str]:
    """What the doctor says of the dataset."""
    name = name.replace("shop.", f"{shop.db}.")
    findings = shop.json("doctor")["findings"]
    return [f"{each['problem']}. {each['remedy']}" for each in findings if each["dataset"] == name]


def test_a_dropped_dataset_is_shown_to_nobody_and_its_data_waits_for_the_sweep(
    shop: Shop, workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    (problem,) = problems(shop)
    assert problem == (
        f"the catalog has 3 batches of it, and no code declares it. Declare it again, or end it: `varve drop {sales}`."
    )
    assert shown(workbench, sales) == [(1, "pen"), (2, "ink")]

    looked = shop.json("drop", "shop.sales", "--dry-run")
    assert (looked["done"], looked["partitions"], looked["batches"], looked["store"]) == (False, 2, 3, sales.store)
    assert shown(workbench, sales) == [(1, "pen"), (2, "ink")]
    assert "was dropped, with its 2 partitions" in shop.run("drop", "shop.sales").output

    assert shown(workbench, sales) is None
    assert views_of(catalog.connection, sales) == []
    assert catalog.current(sales.name) == {}
    assert problems(shop) == []
    assert set(rows_of(catalog, sales.name)) == {"batch", "dataset", "publish", "published"}
    data = data_of(catalog, workbench, sales)
    assert len(data) == 3
    assert [each["dataset"] for each in shop.json("status")["datasets"] if each["dataset"].startswith(shop.db)] == []
    # The grace period of the ordinary sweep: the data of the first batch was retired moments ago, as the others were.
    assert shop.json("sweep", "shop.sales", "--keep-last", "5")["batches"] == {}
    assert data_of(catalog, workbench, sales) == data
    (swept,) = shop.json("sweep", "shop.sales", "--older-than", "0", "--keep-last", "5")["batches"].values()
    assert swept["count"] == 3
    assert data_of(catalog, workbench, sales) == []
    assert rows_of(catalog, sales.name) == {}
    assert problems(shop) == []
    assert not Path(workbench.settings.lake, sales.db, sales.table).exists()


def test_a_purge_asks_twice_and_deletes_at_once(
    shop: Shop, workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    assert "--json cannot: say --yes too" in str(shop.run("drop", "shop.sales", "--purge", "--json").exception)
    for answers in ("n\n", "y\nshop.other\n"):
        assert "was not dropped" in str(shop.run("drop", "shop.sales", "--purge", answers=answers).exception)
    assert shown(workbench, sales) == [(1, "pen"), (2, "ink")]
    done = shop.run("drop", "shop.sales", "--purge", answers=f"y\n{sales}\n")
    assert "Delete 3 batches" in done.output
    assert shown(workbench, sales) is None
    assert data_of(catalog, workbench, sales) == []
    assert rows_of(catalog, sales.name) == {}
    again = shop.run("drop", "shop.sales", "--purge", "--yes").exception
    assert "was ever built" in str(again)


def test_a_dataset_that_is_declared_again_begins_anew(
    shop: Shop, workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    shop.json("drop", "shop.sales")
    old_data = data_of(catalog, workbench, sales)
    # The price is a text now, and there is no time: no batch of before could be read so.
    shop.sql("sales", "EXTERNAL;", columns="(id INT, product STRING, price STRING)", store=sales.store.upper())
    again: Dataset = shop.asset("sales").dataset
    frame = workbench.spark.createDataFrame([(7, "cup", "dear")], "id INT, product STRING, price STRING").selectExpr(
        "*", "DATE'2026-11-01' AS day"
    )
    (batch,) = workbench.publish_frame(again, [again.partitioning.from_path("day=2026-11-01")], frame).values()
    assert shown(workbench, again) == [(7, "cup")]
    assert [each["batch_id"] for each in shop.json("history", "shop.sales")] == [batch.batch_id.millis]
    assert problems(shop) == []
    # A catalog that is lost and rebuilt does not find the batches of before under the new name either.
    (inventory,) = [each for each in workbench.store(again, catalog).inventory() if each.dataset == again.name]
    assert [each.batch_id for each in inventory.batches] == [batch.batch_id]
    assert {build for each in inventory.publications for build in each.partitions.values()} == {batch.batch_id.millis}

    shop.json("sweep", "shop.sales", "--older-than", "0")
    assert set(data_of(catalog, workbench, again)).isdisjoint(old_data)
    assert shown(workbench, again) == [(7, "cup")]
    assert Drops(catalog.connection).of(again.name) == []
    assert problems(shop) == []


# Each step in one of the stores; `make torture` has it in the other too.
STEPS = {"drop": LAKE, "commit": WAREHOUSE, "finish": LAKE, "mark": WAREHOUSE, "delete": LAKE, "forget": WAREHOUSE}


@pytest.mark.parametrize(
    ("sales", "step"),
    [
        pytest.param(store, step, marks=[] if store == chosen else [pytest.mark.slow])
        for step, chosen in STEPS.items()
        for store in (LAKE, WAREHOUSE)
    ],
    indirect=["sales"],
)
def test_a_drop_that_is_killed_is_finished_by_the_next(
    shop: Shop, workbench: Workbench, catalog: Catalog, sales: Dataset, step: str
) -> None:
    command = [sys.executable, "-m", "tests.cli.dying_drop", step, sales.name]
    killed = subprocess.run(command, check=False, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    # All of it is current, or nothing: the catalog knows, whoever reads by name follows.
    if step in {"drop", "commit"}:
        assert set(catalog.current(sales.name)) == {"day=2026-11-01", "day=2026-11-02"}
        assert shown(workbench, sales) == [(1, "pen"), (2, "ink")]
    else:
        assert catalog.current(sales.name) == {}
        assert History(catalog.connection).stores().get(sales.name) is None
        # What a reader by name may still be shown is never deleted under him.
        seen = shown(workbench, sales)
        assert seen == [(1, "pen"), (2, "ink")] if (step, sales.store) == ("finish", "lake") else seen is None
    if step == "finish":
        assert problems(shop) == [
            "it was dropped, and readers by name may still be shown it. `varve sweep` finishes that."
        ]
    shop.json("drop", "shop.sales", "--purge", "--yes")
    assert shown(workbench, sales) is None
    assert data_of(catalog, workbench, sales) == []
    assert rows_of(catalog, sales.name) == {}
    assert problems(shop) == []


def test_a_sweep_finishes_a_drop_that_was_killed_before_it_deletes_anything(
    shop: Shop, workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    workbench.store(sales, catalog).drop(sales.name, lambda: Drops(catalog.connection).drop(sales.name, by="a test"))
    assert len(data_of(catalog, workbench, sales)) == 3
    shop.json("sweep", "--older-than", "0")
    assert shown(workbench, sales) is None
    assert data_of(catalog, workbench, sales) == []
    assert rows_of(catalog, sales.name) == {}


def test_the_table_of_a_dataset_that_was_declared_again_is_not_taken_for_the_dropped_one(
    shop: Shop, workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    store = workbench.store(sales, catalog)
    # Killed right after its commit, so that a Hive table still shows what was dropped.
    dropped = store.drop(sales.name, lambda: Drops(catalog.connection).drop(sales.name, by="a test"))
    shop.sql("sales", "EXTERNAL;", columns=SALES, store=sales.store.upper())
    shop.sell("2026-11-03", [(7, "cup", "7.00")])
    assert shown(workbench, sales) == [(7, "cup")]
    # Whoever comes back from the middle of the drop now.
    store.finish_drop(dropped)
    store.finish_drop(dropped)
    assert shown(workbench, sales) == [(7, "cup")]
    assert set(catalog.current(sales.name)) == {"day=2026-11-03"}
    assert problems(shop) == []


def test_dagster_shows_nothing_of_it_as_materialised_any_more(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "dagster"
    make_dagster_home(home)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "100")
    shop.sell("2026-11-01", [(1, "pen", "1.00")])
    dropped, kept = dg.AssetKey([shop.db, "sales"]), dg.AssetKey([shop.db, "kept"])
    with dg.DagsterInstance.get() as instance:
        for key in (dropped, kept):
            instance.report_runless_asset_event(dg.AssetMaterialization(key, partition="2026-11-01"))
        undeclare(shop)
        shop.json("drop", "shop.sales")
        assert (instance.has_asset_key(dropped), instance.has_asset_key(kept)) == (False, True)


def test_every_table_of_the_catalog_that_names_a_dataset_is_thought_of(catalog: Catalog) -> None:
    from varve.catalog.history.drops import ENDED, RENAMED

    notes_of_the_warehouse = {"view", "leaf", "compacted", "view_comment", "view_grant"}
    notes_of_the_lake = {"iceberg_table", "iceberg_snapshot"}
    # The alert of a dataset that is not declared any more is closed at the next look, and its end is told.
    notes_for_people = {"alert"}
    thought_of = {
        *notes_for_people,
        *ENDED,
        *RENAMED,
        "batch",
        "dataset",
        *notes_of_the_warehouse,
        *notes_of_the_lake,
        "cdc_position",
    }
    assert {table for (table,) in catalog.connection.execute(TABLES)} <= thought_of


def refusal(shop: Shop, *words: str) -> str:
    error = shop.run("drop", "shop.sales", *words).exception
    assert isinstance(error, VarveError), error
    return str(error)


def test_what_is_declared_or_read_is_not_dropped(shop: Shop, workbench: Workbench) -> None:
    shop.sell("2026-11-01", [(1, "pen", "1.00")])
    shop.sql("revenue", "AS SELECT id, price FROM shop.sales WHERE sales.day = today;")
    read_again()
    assert refusal(shop) == (
        f"{shop.db}.sales is still declared: the project does it. Nothing was changed. Delete the declaration first, "
        f"and drop it then. It is read by {shop.db}.revenue: change them too."
    )
    undeclare(shop)
    assert f"{shop.db}.sales is read by {shop.db}.revenue (" in refusal(shop)
    assert "Nothing was changed" in refusal(shop, "--dry-run")
    undeclare(shop, "revenue")
    (shop.assets / "unreadable.sql").write_text("CREATE DATASET")
    read_again()
    assert "unreadable.sql may declare it, and cannot be read. Nothing was changed" in refusal(shop)


def test_what_is_being_built_or_is_pinned_is_not_dropped(shop: Shop, workbench: Workbench, catalog: Catalog) -> None:
    batch: Batch = shop.sell("2026-11-01", [(1, "pen", "1.00")])
    dataset: Dataset = shop.asset("sales").dataset
    with closing((builder := workbench.catalog()).connection):
        build = builder.begin(dataset, [dataset.partitioning.from_path("day=2026-11-02")], run_id="r1", code_version="")
        undeclare(shop)
        assert "sales: run r1 builds day=2026-11-02. Nothing was changed. Wait for its end" in refusal(shop)
        builder.fail(build, "the test is over")
        builder.release(build)
    History(catalog.connection).pin(dataset.name, batch.batch_id, owner="ann", reason="audit")
    message = refusal(shop)
    assert f"somebody has pinned 1 batch: day=2026-11-01 batch {batch.batch_id} by ann (audit). Nothing was" in message
    assert shown(workbench, dataset) == [(1, "pen")]
    History(catalog.connection).unpin(dataset.name, batch.batch_id)
    shop.json("drop", "shop.sales")
    assert shown(workbench, dataset) is None


def test_what_others_have_made_of_the_view_is_named_with_its_owner_and_never_dropped(
    shop: Shop, workbench: Workbench, catalog: Catalog
) -> None:
    shop.sql("sales", "EXTERNAL;", columns=SALES, store=WAREHOUSE)
    shop.sell("2026-11-01", [(1, "pen", "1.00")])
    dataset: Dataset = shop.asset("sales").dataset
    undeclare(shop)
    owner, db = f"r{shop.db}", shop.db
    (leaf,) = [view for view in views_of(catalog.connection, dataset) if "leaf" in view]
    table = data_of(catalog, workbench, dataset)[0]
    for statement in (
        f"create role {owner}", f"create schema {owner} authorization {owner}",
        f"create view {owner}.dear as select product from {dataset} where price > 1",
        f"alter view {owner}.dear owner to {owner}",
        f"create view {owner}.by_leaf as select product from {leaf}",
        f"create materialized view {owner}.by_table as select product from {db}_periods.{table}",
        f"create function {owner}.dearest() returns setof {dataset} language sql as 'select * from {dataset}'",
        f"alter function {owner}.dearest() owner to {owner}",
        f"create table {owner}.baskets (number int, content {dataset}[])",
    ):  # fmt: skip
        catalog.connection.execute(statement.encode())
    try:
        message = refusal(shop)
        assert f"view {owner}.dear, owned by {owner}" in message
        assert f"function {owner}.dearest(), owned by {owner}" in message
        assert f"view {owner}.by_leaf, owned by " in message
        assert f"materialized view {owner}.by_table, owned by " in message
        assert f"column content of table {owner}.baskets, owned by " in message
        assert "what is not ours is never dropped. Let the owners read something else" in message
        assert shown(workbench, dataset) == [(1, "pen")]
        assert catalog.connection.execute(f"select count(*) from {owner}.by_leaf".encode()).fetchone() == (1,)
    finally:
        catalog.connection.execute(f"drop schema {owner} cascade; drop role {owner}".encode())
    shop.json("drop", "shop.sales", "--purge", "--yes")
    assert views_of(catalog.connection, dataset) == []


def test_a_lost_catalog_does_not_bring_a_dropped_dataset_back(
    shop: Shop, workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    shop.json("drop", "shop.sales")
    inventories = [each for each in workbench.store(sales, catalog).inventory() if each.dataset == sales.name]
    for inventory in inventories:
        recover(catalog.connection, sales.store, inventory)
    assert catalog.current(sales.name) == {}
    assert sales.name not in History(catalog.connection).stores()


def test_the_commands_of_the_page_end_a_dataset(shop: Shop, workbench: Workbench, catalog: Catalog) -> None:
    shop.sell("2026-11-01", [(1, "pen", "1.00")])
    dataset: Dataset = shop.asset("sales").dataset
    undeclare(shop)
    commands = [command for block in blocks("console") if block.runner == HERE for command in block.commands]
    assert [command.split()[:3] for command in commands] == [["varve", "drop", "shop.sales"]] * 3
    said = [shop.run(*command.split()[1:], answers=f"y\n{dataset}\n").output for command in commands]
    assert "would be dropped, with its 1 partition of the lake" in said[0]
    assert "was dropped, with its 1 partition of the lake" in said[1]
    assert "Delete 1 batch (" in said[2]
    assert data_of(catalog, workbench, dataset) == []
    assert rows_of(catalog, dataset.name) == {}
