"""REJECT UP TO n ROWS INTO: one run publishes accepted and rejected rows together, or neither of them."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from rich.console import Console

from tests.dagster.test_external_assets import tick
from tests.dagster.test_sql_assets import materialise, rows
from tests.support.project import PROJECT, ROOT, commands_on
from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.cli.batches import pins, rollback
from varve.cli.plan import backfill
from varve.cli.plan import why as why_command
from varve.cli.problems.rejected import rejected_row_values
from varve.cli.servers.services import show_status, status
from varve.dagster.assets.datasets import dataset_asset, graph_of, with_rejected
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.automation.sensors import downstream_sensor
from varve.dagster.definitions import build_defs
from varve.dagster.runs import atomic_publish
from varve.model.batch import BatchId, StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import NotKept, VarveError
from varve.model.landing.rejection import RejectInto
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.tick import Limits
from varve.services.postgres import connect
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.formatting import formatted
from varve.stores.environments.closure import ClosureCheck
from varve.stores.environments.promotion import Closure, Promotion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.workbench import Workbench
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.services.settings import Settings

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
        SourceFile(f"{name}.sql", text.format(db=db, reject=reject.format(db=db), store=store))
        for name, text in texts.items()
    ]
    return sql_assets(compiled(sources, {}))


def send(settings: Settings, db: str, content: str, name: str = f"{FIRST}.csv") -> Path:
    path = Path(settings.landing) / db / "orders" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def current(settings: Settings, name: str) -> dict[str, Any]:
    with connect(settings) as connection:
        return dict(Catalog(connection).current(name))


@pytest.mark.spark
@pytest.mark.parametrize("store", ["LAKE", "WAREHOUSE"])
def test_rows_that_cannot_be_read_go_into_a_dataset_of_their_own_with_those_that_can(
    store: str, settings: Settings, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = f"t{uuid.uuid4().hex[:8]}"
    assets = orders(db, store=store)
    path = send(settings, db, BAD)
    done = materialise(assets, f"{db}.orders", FIRST, FIRST)
    assert done.success
    every = with_rejected(assets)
    assert [(row[0], str(row[1]), row[-1]) for row in rows(workbench, every, f"{db}.orders")] == [("pen", "1.50", "EU")]
    assert [row[:7] for row in rows(workbench, every, f"{db}.orders_rejected")] == [
        (str(path), 3, "price", "cheap", "'cheap' is not of type DECIMAL(10,2)", None, "ink,cheap"),
        (str(path), 4, "product", "", "nothing stands there, and it is NOT NULL", None, ",2.00"),
    ]
    taken, rejected = (current(settings, f"{db}.{name}")[KEY.path] for name in ("orders", "orders_rejected"))
    # Both are of one transaction and one instant, and the rejected rows were made from the accepted batch.
    assert taken.published_at == rejected.published_at
    assert (taken.rows, rejected.rows, taken.run_id) == (1, 2, rejected.run_id)
    assert {(trace_input.source, trace_input.version) for trace_input in rejected.inputs} == {
        (f"{db}.orders", str(taken.batch_id))
    }
    events = {event.asset_key.path[-1]: event for event in done.get_asset_materialization_events()}
    assert events["orders_rejected"].partition == FIRST
    assert events["orders_rejected"].materialization.metadata["dagster/partition_row_count"].value == 2
    taken_key, rejected_key = (events[name].materialization.partition for name in ("orders", "orders_rejected"))
    assert taken_key == rejected_key
    assert type(taken_key) is type(rejected_key)
    about = events["orders"].materialization.metadata
    assert [about[f"varve/rejected_{name}"].value for name in ("rows", "at_most", "into")] == [
        2, 3, f"{db}.orders_rejected",
    ]  # fmt: skip
    # The planner requests runs of what reads the rejected rows, and never of the rejected rows themselves.
    assert {dataset for dataset, _, _ in tick(downstream_sensor(graph_of(assets), PROJECT))} <= {"counts"}

    # With one rejected row too many, neither dataset changes.
    send(settings, db, BAD + "cap\npad,x\n")
    failed = materialise(assets, f"{db}.orders", FIRST, FIRST)
    assert not failed.success
    failure_text = str(failed.get_step_failure_events()[0].event_specific_data)
    assert (
        f"{path} ({db}.orders): 4 rows of it cannot be read as declared, more than the 3 that go into "
        f"{db}.orders_rejected: line 3: column price: 'cheap' is not of type DECIMAL(10,2), line 4:"
    ) in failure_text
    assert current(settings, f"{db}.orders") == {KEY.path: taken}
    assert current(settings, f"{db}.orders_rejected") == {KEY.path: rejected}

    # Another run has published rejected rows in between: neither dataset is published.
    publish = atomic_publish.publish

    def disturbed(ready: Sequence[Any], store_of: Any) -> None:
        with connect(settings) as connection:
            connection.execute(
                "delete from varve.current where dataset = %s and partition = %s", (f"{db}.orders_rejected", KEY.path)
            )
        publish(ready, store_of)

    send(settings, db, GOOD + "ink,2.00\n")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_publish, "publish", disturbed)
        assert not materialise(assets, f"{db}.orders", FIRST, FIRST).success
    assert current(settings, f"{db}.orders") == {KEY.path: taken}
    assert current(settings, f"{db}.orders_rejected") == {}

    # A corrected file leaves no rejected rows.
    send(settings, db, GOOD + "ink,2.00\n")
    assert materialise(assets, f"{db}.orders", FIRST, FIRST).success
    assert [current(settings, f"{db}.{name}")[KEY.path].rows for name in ("orders", "orders_rejected")] == [2, 0]
    assert rows(workbench, every, f"{db}.orders_rejected") == []
    if store == "LAKE":
        # Readers of rejected rows read empty batches, too.
        send(settings, db, GOOD, "2026-09-01|US.csv")
        assert materialise(assets, f"{db}.orders", "2026-09-01|EU", "2026-09-01|US").success
        assert materialise(assets, f"{db}.counts", "2026-09-01", "2026-09-01").success
        assert [row[0] for row in rows(workbench, assets, f"{db}.counts")] == [0]

    # A rollback of either dataset rolls back the other one.
    commands_on(graph_of(assets), monkeypatch)
    plans = rollback.plan_batch(f"{db}.orders", ["day=2026-09-01", "region=EU"], taken.batch_id.millis)
    assert {plan.dataset for plan in plans} == {f"{db}.orders", f"{db}.orders_rejected"}
    rollback.carry_out(plans, reason="a test", withdraw=False)
    assert current(settings, f"{db}.orders")[KEY.path].batch_id == taken.batch_id
    assert current(settings, f"{db}.orders_rejected")[KEY.path].batch_id == rejected.batch_id
    assert [row[1] for row in rows(workbench, every, f"{db}.orders_rejected")] == [3, 4]
    back = rollback.plan_batch(f"{db}.orders_rejected", ["region=EU"], rejected.batch_id.millis)
    assert [plan.moves for plan in back] == [{}, {}]


def test_status_and_why_say_how_many_rows_were_rejected_of_how_many(
    settings: Settings, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    monkeypatch.setenv("VARVE_DAGSTER_POSTGRES_URL", fresh_database)
    graph = graph_of(orders("shop"))
    commands_on(graph, monkeypatch)
    with connect(type(settings)()) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        for name, count in (("shop.orders", 7), ("shop.orders_rejected", 3)):
            build = catalog.begin(graph.datasets[name], [KEY], run_id="a run", code_version="")
            catalog.staged(build, [StagedBatch(KEY, "/nowhere", count, 1, 1)])
            catalog.publish(build)
            catalog.release(build)
        words = ["day=2026-09-01", "region=EU"]
        message = "3 rows rejected, of at most 3: shop.orders day=2026-09-01/region=EU, see shop.orders_rejected"
        assert [values["message"] for values in rejected_row_values(connection)] == [message]
        for name in ("shop.orders", "shop.orders_rejected"):
            judgement = why_command.why(name, words)
            assert [values["message"] for values in judgement["rejected_rows"]] == [message]
            why_command.show(Console(file=(output := StringIO()), width=1_000), judgement)
            assert message in output.getvalue()
        assert (judgement["state"], judgement["reason"]) == ("current", "written by the runs of shop.orders")
        other = why_command.why("shop.orders_rejected", ["day=2026-09-01", "region=US"])
        assert (other["state"], other["rejected_rows"]) == ("missing", [])
        show_status(Console(file=(output := StringIO()), width=1_000), status())
        assert message in output.getvalue()
    with pytest.raises(
        VarveError, match=r"whose runs write both. Nothing was marked. Run varve backfill start shop.orders\."
    ):
        backfill.plan("shop.orders_rejected", words, first=None, last=None, downstream="none")
    parts, accepted = backfill.plan("shop.orders", words, first=None, last=None, downstream="all")
    assert accepted == []
    assert [part.dataset for part in parts] == ["shop.orders", "shop.counts"]


NAMES = ("shop.orders", "shop.orders_rejected")
OLDER, NEWER = "run in an environment", "run in production"


@pytest.fixture
def taken_twice(
    settings: Settings, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Catalog, dict[tuple[str, str], BatchId]]]:
    """A catalog in which two runs have published accepted and rejected rows of a partition; by run and dataset."""
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    monkeypatch.setenv("VARVE_DAGSTER_POSTGRES_URL", fresh_database)
    graph = graph_of(orders("shop"))
    commands_on(graph, monkeypatch)
    made: dict[tuple[str, str], BatchId] = {}
    with connect(type(settings)()) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        for run in (OLDER, NEWER):
            for name in NAMES:
                build = catalog.begin(graph.datasets[name], [KEY], run_id=run, code_version="")
                catalog.staged(build, [StagedBatch(KEY, f"/nowhere/{run}", 3, 1, 1)])
                catalog.publish(build)
                catalog.release(build)
                made[run, name] = build.batch_id
        yield catalog, made


def test_a_rollback_to_what_was_promoted_takes_both_back(
    taken_twice: tuple[Catalog, dict[tuple[str, str], BatchId]],
) -> None:
    catalog, made = taken_twice
    # A promotion publishes what another run has made.
    catalog.connection.execute("update varve.publish set run_id = 'promote-1' where run_id = %s", (OLDER,))
    for name, other in (NAMES, NAMES[::-1]):
        plans = rollback.plan_batch(name, ["region=EU"], made[OLDER, name].millis)
        targets = {plan.dataset: [batch and batch.batch_id for _, batch in plan.moves.values()] for plan in plans}
        assert targets == {each: [made[OLDER, each]] for each in (name, other)}


@pytest.mark.parametrize(("name", "other"), [NAMES, NAMES[::-1]])
def test_neither_goes_back_where_the_other_was_swept(
    name: str, other: str, taken_twice: tuple[Catalog, dict[tuple[str, str], BatchId]]
) -> None:
    catalog, made = taken_twice
    of_other = (other, made[OLDER, other].millis)
    catalog.connection.execute(
        "update varve.batch set state = 'swept', swept_at = now() where dataset = %s and batch_id = %s", of_other
    )
    said = rf"{name} goes back together with {other}, .* {other}: day=2026-09-01/region=EU batch \d+ was swept on"
    with pytest.raises(NotKept, match=said):
        rollback.plan_batch(name, ["region=EU"], made[OLDER, name].millis)
    # What was taken before its rejected rows were kept has none; and no rows are taken away for rejected ones.
    catalog.connection.execute("delete from varve.batch where dataset = %s and batch_id = %s", of_other)
    plans = rollback.plan_batch(name, ["region=EU"], made[OLDER, name].millis)
    assert [target for _, target in plans[1].moves.values()] == [None]
    if other == "shop.orders":
        with pytest.raises(VarveError, match=r"shop\.orders day=2026-09-01/region=EU had no batch then"):
            rollback.carry_out(plans, reason="a test", withdraw=False)


@pytest.mark.parametrize(("name", "other"), [NAMES, NAMES[::-1]])
def test_what_goes_back_together_is_pinned_together(
    name: str, other: str, taken_twice: tuple[Catalog, dict[tuple[str, str], BatchId]]
) -> None:
    catalog, made = taken_twice
    history = History(catalog.connection)

    def pinned() -> set[tuple[str, BatchId]]:
        return {(each, batch_id) for each in NAMES for batch_id in history.pinned(each)}

    def pin(batch: int | None, owner: str) -> list[tuple[str, int]]:
        done = pins.pin(name, ["region=EU"], batch=batch, owner=owner, reason="an audit", expires_at=None)
        return [(row["dataset"], row["batch_id"]) for row in done]

    old, new = ([(each, made[run, each]) for each in (name, other)] for run in (OLDER, NEWER))
    assert pin(made[OLDER, name].millis, "ann") == [(each, batch_id.millis) for each, batch_id in old]
    assert pin(None, "ann") == [(each, batch_id.millis) for each, batch_id in new]
    assert pin(None, "bob") == [(each, batch_id.millis) for each, batch_id in new]
    assert pinned() == {*old, *new}
    assert pins.unpin(other, ["region=EU"], batch=made[NEWER, other].millis, owner="ann").count == 2
    assert pinned() == {*old, *new}, "those of bob stay"
    assert pins.unpin(other, [], batch=None, owner=None).count == 4
    assert pinned() == set()
    with pytest.raises(VarveError, match="there is no pin"):
        pins.unpin(name, [], batch=None, owner=None)
    # Of what was swept the other one is kept all the same.
    catalog.connection.execute(
        "update varve.batch set state = 'swept', swept_at = now() where dataset = %s and batch_id = %s",
        (other, made[OLDER, other].millis),
    )
    assert pin(made[OLDER, name].millis, "ann") == [(name, made[OLDER, name].millis)]


@pytest.mark.parametrize("left", ["shop.orders", "shop.orders_rejected"])
def test_a_promotion_leaves_both_out_or_neither(left: str) -> None:
    names, graph = ("shop.orders", "shop.orders_rejected"), graph_of(orders("shop"))
    other = graph.datasets["shop.orders"].partitioning.from_path("day=2026-09-01/region=US")
    batches = {name: {KEY.path: BatchId(1), other.path: BatchId(1)} for name in names}
    promotion = Promotion("alice", {}, batches, Closure(), {})
    check = ClosureCheck(None, graph, {}, Limits(), dt.datetime.now(dt.UTC))  # type: ignore[arg-type]
    smaller = check.without(promotion, Closure({left: {KEY.path: "its input was replaced"}}))
    assert {name: set(paths) for name, paths in smaller.batches.items()} == {key: {other.path} for key in names}
    assert smaller.left_out == {key: {KEY.path: "its input was replaced"} for key in names}


ORDERS_ONLY = ORDERS.format(db="shop", store="LAKE", reject="{reject}")


@pytest.mark.parametrize(
    ("clause", "column", "expected_message"),
    [
        ("REJECT UP TO none ROWS INTO shop.bad", 14, "expected how many rows, a whole number from 1, found 'none'"),
        ("REJECT UP TO 20000 ROWS INTO shop.bad", 14, "it is a number from 1 to 10,000"),
        ("REJECT UP TO 3 LINES INTO shop.bad", 16, "write REJECT UP TO 10 ROWS INTO shop.orders_rejected"),
        ("REJECT UP TO 3 ROWS INTO bad", 1, "expected '.', found"),
        ("REJECT UP TO 3 ROWS INTO shop.Bad", 26, "lower-case letters"),
        ("REJECT UP TO 3 ROWS INTO shop.orders", 26, "shop.orders is also declared in orders.sql"),
        ("REJECT UP TO 3 ROWS INTO shop.other", 26, "shop.other is also declared in other.sql; nobody else may"),
        ("REJECT UP TO 3 ROWS INTO shop.python", 26, "shop.python is also declared in Python; nobody else may"),
    ],
)
def test_a_tolerance_that_cannot_be_is_refused_at_its_place(clause: str, column: int, expected_message: str) -> None:
    (python,) = [asset.dataset for asset in orders("shop", reject="")]
    other = ORDERS.format(db="shop", store="LAKE", reject="").replace("shop.orders", "shop.other")
    sources = [SourceFile("orders.sql", ORDERS_ONLY.format(reject=clause)), SourceFile("other.sql", other)]
    with pytest.raises(SqlErrors) as caught:
        compiled(sources, {"shop.python": replace(python, name="shop.python")})
    assert expected_message in str(caught.value)
    line = 7 if column == 1 else 6
    assert str(caught.value).startswith(f"orders.sql:{line}:{column}")


def test_two_datasets_do_not_share_rejected_rows_and_tables_of_others_have_none() -> None:
    sql_text = ORDERS_ONLY.format(reject="REJECT UP TO 3 ROWS INTO shop.bad")
    with pytest.raises(SqlErrors, match=r"two.sql:6:26.*\n?.*shop.bad is also declared in one.sql"):
        compiled(
            [SourceFile("one.sql", sql_text), SourceFile("two.sql", sql_text.replace("shop.orders", "shop.two"))], {}
        )
    with pytest.raises(SqlErrors, match="REJECT UP TO belongs to landing files"):
        compiled([SourceFile("one.sql", sql_text.replace("'landing'", "'table', table = 'a.b'"))], {})
    renamed = sql_text.replace("region IN", "file IN").replace("region STRING", "file STRING")
    with pytest.raises(SqlErrors, match="a column of rejected rows is called file, as a partition column is"):
        compiled([SourceFile("one.sql", renamed)], {})


def test_python_declares_a_tolerance_alike_and_its_rejected_rows_are_an_asset() -> None:
    region = StaticDimension("region", ("EU", "US"))

    def declared(name: str, **how: Any) -> Dataset:
        schema = Schema((Column("n", ColumnType.BIGINT),))
        return Dataset(name, Partitioning((region,)), schema, StoreKind.LAKE, "", **how)

    @dataset_asset(declared("shop.sales", landing=True, reject_into=RejectInto(5, "shop.sales_rejected")))
    def sales(context) -> None: ...  # type: ignore[no-untyped-def]

    graph = graph_of([sales])
    assert set(graph.datasets) == {"shop.sales", "shop.sales_rejected"}
    rejected = graph.datasets["shop.sales_rejected"]
    assert [upstream.name for upstream in graph.upstreams(rejected)] == ["shop.sales"]
    assert rejected.partitioning == graph.datasets["shop.sales"].partitioning
    repository = build_defs([sales]).get_repository_def()
    node = repository.asset_graph.get(dg.AssetKey(["shop", "sales_rejected"]))
    assert node.parent_keys == {dg.AssetKey(["shop", "sales"])}
    assert node.partitions_def is not None
    assert not node.is_executable
    # No sensor requests runs of a dataset of rejected rows.
    assert {sensor.name for sensor in repository.sensor_defs} == {"alerts", "arrivals", "projections", "retirement"}

    @dataset_asset(declared("shop.sales_rejected"))
    def clash(context) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(VarveError, match=r"its rejected rows are to go into shop\.sales_rejected, which is another"):
        graph_of([sales, clash])
    for into, expected_message in (("Bad", "a name is `db.table`"), ("shop.sales", "cannot go into itself")):
        with pytest.raises(VarveError, match=expected_message):
            declared("shop.sales", landing=True, reject_into=RejectInto(5, into))
    with pytest.raises(VarveError, match="only rows of landing files are rejected"):
        declared("shop.sales", reject_into=RejectInto(5, "shop.bad"))


def test_the_example_of_the_reference_is_a_dataset_and_its_rejected_rows() -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    example = text.partition("### Rejected rows")[2].partition("```sql\n")[2].partition("```")[0]
    graph = graph_of(sql_assets(compiled([SourceFile("orders.sql", example)], {})))
    assert set(graph.datasets) == {"shop.orders", "shop.orders_rejected"}
    documented = [line.split("`")[1] for line in text.partition("| column | holds |")[2].splitlines() if "`" in line]
    kept = sql_assets(compiled([SourceFile("orders.sql", example.replace("-01')", "-01', RETENTION 30 DAYS)"))], {}))
    assert {asset.dataset.policy.retention for asset in with_rejected(kept)} == {dt.timedelta(days=30)}
    written = example.replace("REJECT UP TO 10 ROWS INTO", "reject up to 10 rows into")
    assert "\n  REJECT UP TO 10 ROWS INTO shop.orders_rejected\n" in formatted(SourceFile("orders.sql", written))
    assert documented[:7] == list(graph.datasets["shop.orders_rejected"].schema.names)
