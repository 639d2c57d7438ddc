"""Generations in the stores: every change of a declaration that older batches do not follow, there and back.

A reader has a view over the dataset's view, a grant, a comment, and a prepared statement, and asks at each step.
"""

from __future__ import annotations

import datetime as dt
import pickle
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pendulum
import psycopg
import pytest

from tests.stores.evolving import Evolving
from tests.support.sales import DAY, sales_dataset
from varve.catalog.code.code_states import CodeStates
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.generations import Generations, shape_of
from varve.catalog.environments.environments import Environments
from varve.catalog.history.history import History
from varve.model.dataset import StoreKind
from varve.model.errors import BadInput, CodeNotDeployed, NotKept, VarveError
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.changes.generation import not_rewritable
from varve.stores.environments.promotion import NotClosed
from varve.stores.environments.rewriting import Rewriter
from varve.stores.environments.store import EnvironmentStore
from varve.stores.environments.undoing import Undoing
from varve.stores.together import hide

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings

pytestmark = pytest.mark.spark

HOUR = TimeDimension("hour", Grain.HOUR, pendulum.datetime(2013, 1, 5), pendulum.datetime(2013, 1, 7))
INT, BIGINT, STRING = ColumnType.INT, ColumnType.BIGINT, ColumnType.STRING
DAYS = (dt.date(2013, 1, 5), dt.date(2013, 1, 6))
ROWS = "SELECT 'pen' product, 12 sold, {key} UNION ALL SELECT 'ink', 30, {key}"


@pytest.fixture
def catalog(workbench: Workbench) -> Iterator[Catalog]:
    with closing((opened := workbench.catalog()).connection):
        yield opened


@pytest.fixture(params=[StoreKind.LAKE, StoreKind.WAREHOUSE])
def sales(request: pytest.FixtureRequest, workbench: Workbench, catalog: Catalog) -> Evolving:
    schema = Schema((Column("product", STRING, "what"), Column("sold", INT, "pieces")))
    dataset = replace(sales_dataset(request.param, dimensions=(DAY,)), schema=schema)
    sales = Evolving(workbench, catalog, dataset)
    days = " UNION ALL ".join(ROWS.format(key=f"DATE'{day}' day") for day in DAYS)
    sales.build(catalog, keys_of(sales), days)
    return sales


def keys_of(sales: Evolving) -> list[PartitionKey]:
    return [sales.dataset.partitioning.key([day]) for day in DAYS]


OLD = sorted((day, product, sold) for day in DAYS for product, sold in (("pen", 12), ("ink", 30)))


def test_columns_are_renamed_dropped_and_retyped_there_and_back(sales: Evolving, settings: Settings) -> None:
    name, role, connection = sales.dataset.name, f"bi_{sales.dataset.db}", sales.catalog.connection
    in_warehouse = sales.dataset.store == StoreKind.WAREHOUSE
    if in_warehouse:
        connection.execute(f"create role {role}".encode())
        connection.execute(f"create view public.{role} as select day, product as what from {name}".encode())
        connection.execute(f"grant select on {name}, public.{role} to {role}".encode())
        connection.execute(f"comment on view public.{role} is 'the board reads this'".encode())
    prepared = f"select count(*) from {name}".encode()
    changed = sales.changed(
        schema=Schema((Column("article", STRING, "what", was=("product",)), Column("sold", STRING, "pieces")))
    )

    # A process with the new declaration builds nothing in production, and says what to type.
    breaks = Generations(connection).breaking([changed.dataset])
    if not in_warehouse:
        assert breaks
        with pytest.raises(CodeNotDeployed, match=f"varve evolve {name}"):
            changed.build(changed.catalog, keys_of(changed)[:1], "SELECT 'pen' article, '1' sold, DATE'2013-01-05' day")
        assert CodeStates(connection).of(changed.graph)[name].evolving == name

    environment = changed.environment()
    before = Generations(connection).published([name])[name].shape
    assert not not_rewritable(before, shape_of(changed.dataset))
    # Half of it is there: readers are not moved.
    rewriter = Rewriter(
        environment, changed.dataset, before, sales.workbench.store(sales.dataset, sales.catalog),
        EnvironmentStore(changed.workbench.store(changed.dataset, environment), environment),
    )  # fmt: skip
    batches = list(sales.catalog.current(name).values())
    rewriter.rewrite(batches[:1], run_id="rewrite-1", code_version=changed.code)
    with pytest.raises(NotClosed, match="day=2013-01-06"):
        changed.promote(environment)
    with_reader = psycopg.connect(connection.info.dsn, password=connection.info.password, autocommit=True)
    with with_reader as reader:
        if in_warehouse:
            assert reader.execute(prepared, prepare=True).fetchone() == (4,)
        assert sales.seen("day, product, sold") == OLD
        rewriter.rewrite(batches[1:], run_id="rewrite-2", code_version=changed.code)
        changed.promote(environment)
        assert changed.seen("day, article, sold") == sorted((day, product, str(sold)) for day, product, sold in OLD)
        if in_warehouse:
            assert reader.execute(prepared, prepare=True).fetchone() == (4,)
            assert len(reader.execute(f"select what from public.{role}".encode()).fetchall()) == 4
            for view in (name, f"public.{role}"):
                granted = f"select has_table_privilege('{role}', '{view}', 'select')"
                assert reader.execute(granted.encode()).fetchone() == (True,)
            assert reader.execute(f"select obj_description('public.{role}'::regclass)".encode()).fetchone() == (
                "the board reads this",
            )
        assert changed.workbench.store(changed.dataset, changed.catalog).repair(changed.dataset) == 0
        # The batches of before are never read, nor made current one by one, by a declaration that they do not follow.
        if not in_warehouse:
            with pytest.raises(BadInput, match=r"day=2013-01-0\d batch .* is of another generation"):
                Generations(connection).refuse_unreadable(changed.dataset, batches)
        build = changed.catalog.lock_partitions(changed.dataset, keys_of(changed)[:1], run_id="one by one")
        with pytest.raises(NotKept, match="is of another generation than readers see"):
            changed.catalog.repoint(build, {keys_of(changed)[0]: batches[0].batch_id})
        changed.catalog.release(build)

        # Back to the generation before, whose batches are there; what is in it is taken.
        back = replace(sales, catalog=changed.catalog)
        environment = back.environment()
        assert Generations(connection).of_environment(environment.environment)[name].number == 0
        build = environment.unlocked(back.dataset, keys_of(back), run_id="back", code_version=back.code)
        EnvironmentStore(back.workbench.store(back.dataset, environment), environment).republish(build, batches)
        back.promote(environment)
        assert back.seen("day, product, sold") == OLD
        if in_warehouse:
            assert reader.execute(prepared, prepare=True).fetchone() == (4,)
            assert len(reader.execute(f"select what from public.{role}".encode()).fetchall()) == 4
            connection.execute(f"drop view public.{role}".encode())
            connection.execute(f"drop owned by {role}".encode())
            connection.execute(f"drop role {role}".encode())


def evolved(sales: Evolving, query: str, keys: Sequence[PartitionKey]) -> Evolving:
    """Build the partitions with the declaration that is here in an environment, and promote it."""
    environment = sales.environment()
    sales.build(environment, keys, query)
    sales.promote(environment)
    Environments(sales.catalog.connection).drop(environment.environment)
    return sales


def of_keys(sales: Evolving, column: str, values: Sequence[str]) -> str:
    kind = sales.dataset.partition_columns[0].type
    rows = [
        f"SELECT 'pen' product, {number} sold, CAST('{value}' AS {kind}) {column}"
        for number, value in enumerate(values, 1)
    ]
    return " UNION ALL ".join(rows)


@pytest.mark.parametrize("kinds", [("hour", "store"), pytest.param(("day", "shop"), marks=pytest.mark.slow)])
def test_windows_partition_columns_and_store_change_there_and_back(sales: Evolving, kinds: tuple[str, ...]) -> None:
    """To hours, to weeks under the same name, to shops, and to the other store; each time back to days."""
    connection, name = sales.catalog.connection, sales.dataset.name
    batches = sales.catalog.current(name)
    other_store = StoreKind.WAREHOUSE if sales.dataset.store == StoreKind.LAKE else StoreKind.LAKE
    hours = ("2013-01-05T07", "2013-01-05T08", "2013-01-06T07")
    weeks = TimeDimension("day", Grain.WEEK, pendulum.datetime(2012, 12, 31), pendulum.datetime(2013, 2, 4))
    shop = StaticDimension("shop", ("Detroit", "Paris"))
    changes = {
        "hour": ({"partitioning": Partitioning((HOUR,))}, hours),
        "day": ({"partitioning": Partitioning((weeks,))}, ("2012-12-31",)),
        "shop": ({"partitioning": Partitioning((shop,))}, ("Detroit", "Paris")),
        "store": ({"store": other_store}, tuple(map(str, DAYS))),
    }
    for number, change in enumerate(kinds):
        declared, values = changes[change]
        column = "day" if change == "store" else change
        changed = sales.changed(**declared)
        assert CodeStates(connection).of(changed.graph)[name].evolving == name
        partitioning = changed.dataset.partitioning
        keys = [partitioning.from_path(f"{column}={value}") for value in values]
        evolved(changed, of_keys(changed, column, values), keys)
        assert [(str(key), sold) for key, sold in changed.seen(f"{column}, sold")] == list(
            zip(values, range(1, len(values) + 1), strict=True)
        )
        store = changed.workbench.store(changed.dataset, changed.catalog)
        assert store.repair(changed.dataset) == 0
        assert Generations(connection).all_left() == []
        if change == "store":
            assert not is_shown(sales), "the store that it has left shows nothing of it"

        environment = sales.environment()
        assert Generations(connection).of_environment(environment.environment)[name].number == 0
        build = environment.unlocked(sales.dataset, keys_of(sales), run_id=f"back{number}", code_version=sales.code)
        back = EnvironmentStore(sales.workbench.store(sales.dataset, environment), environment)
        back.republish(build, list(batches.values()))
        sales.promote(environment)
        Environments(connection).drop(environment.environment)
        assert sales.seen("day, product, sold") == OLD
        assert sales.catalog.current(name).keys() == batches.keys()
        if change == "store":
            assert not is_shown(changed)
    # What is retired is swept as it always is, each generation in its own store.
    retired = History(connection).retired(name, older_than=dt.timedelta(0), keep_last=0)
    moved = {True, False} if "store" in kinds else {False}
    assert {(batch.store == other_store, batch.kept) for batch in retired} == {(other, "") for other in moved}


def is_shown(sales: Evolving) -> bool:
    if sales.dataset.store == StoreKind.LAKE:
        return bool(sales.workbench.spark.catalog.tableExists(sales.dataset.name))
    found = sales.catalog.connection.execute("select to_regclass(%s) is not null", (sales.dataset.name,)).fetchone()
    return bool(found and found[0])


def test_a_rollback_of_the_publish_crosses_generations(sales: Evolving) -> None:
    connection, name = sales.catalog.connection, sales.dataset.name
    if in_warehouse := sales.dataset.store == StoreKind.WAREHOUSE:
        connection.execute(f"create view {sales.dataset.db}.board as select product from {name}".encode())
    hourly = Schema((Column("article", STRING, was=("product",)), Column("sold", BIGINT)))
    changed = sales.changed(partitioning=Partitioning((HOUR,)), schema=hourly)
    environment = changed.environment()
    keys = [changed.dataset.partitioning.from_path("hour=2013-01-05T07")]
    changed.build(environment, keys, "SELECT 'pen' article, 7L sold, '2013-01-05T07' hour")
    promotion = changed.promote(environment)
    assert changed.seen("hour, article, sold") == [("2013-01-05T07", "pen", 7)]

    # Whichever declaration is here: this process has the new one.
    undoing = Undoing(changed.catalog, lambda each: changed.workbench.store(each, changed.catalog), {})
    undos = undoing.look(promotion.run_id)
    assert [(undo.dataset, undo.generation, len(undo.moves)) for undo in undos] == [(name, 0, 3)]
    late = changed.dataset.partitioning.from_path("hour=2013-01-05T08")
    changed.build(changed.catalog, [late], "SELECT 'ink' article, 8L sold, '2013-01-05T08' hour")
    with pytest.raises(VarveError, match=f"{name} hour=2013-01-05T08 were published meanwhile, in the generation that"):
        undoing.undo(undos, reason="too early", by="ann")
    undos = undoing.look(promotion.run_id)
    assert undos[0].since == (late.path,)
    undoing.undo(undos, reason="too early", by="ann")
    assert sales.seen("day, product, sold") == OLD
    assert Deployments(connection).current()[name].code_version == sales.code
    assert Generations(connection).breaking([sales.dataset]) == {}
    assert CodeStates(connection).of(changed.graph)[name].evolving == name
    if in_warehouse:
        assert len(connection.execute(f"select * from {sales.dataset.db}.board".encode()).fetchall()) == 4
    assert sales.workbench.store(sales.dataset, sales.catalog).repair(sales.dataset) == 0
    # The environment has what it had, and can be promoted again.
    Environments(connection).rebase(environment.environment, code_too=True)


@dataclass(frozen=True)
class Death:
    """When the process that evolves a dataset kills itself, and whether readers see the new generation then."""

    when: str
    function: str
    moved: bool
    store: StoreKind = StoreKind.LAKE
    to: StoreKind = StoreKind.LAKE

    def __str__(self) -> str:
        return f"{self.when} {self.function.rpartition('.')[2]}, {self.store} to {self.to}"


LAKE, WAREHOUSE = StoreKind.LAKE, StoreKind.WAREHOUSE
MOVE = "varve.catalog.code.generations:Generations.move"
HIDE = "varve.stores.together:hide"
DEATHS = [
    Death("after", "varve.catalog.environments.overlay:EnvironmentCatalog.publish", moved=False),
    Death("after", MOVE, moved=False),
    Death("before", "varve.stores.lake.store:LakeStore.published", moved=True),
    Death("after", "varve.stores.lake.projection:_ensure_table", moved=True),
    Death("after", "varve.stores.warehouse.loading.load:load", moved=False, store=WAREHOUSE, to=WAREHOUSE),
    Death("after", "varve.stores.warehouse.rebuild:rebuild", moved=False, store=WAREHOUSE, to=WAREHOUSE),
    Death("before", "varve.stores.warehouse.store:WarehouseStore.published", moved=True, store=WAREHOUSE, to=WAREHOUSE),
    Death("after", MOVE, moved=False, store=LAKE, to=WAREHOUSE),
    Death("before", HIDE, moved=True, store=LAKE, to=WAREHOUSE),
    Death("after", "varve.stores.warehouse.tables.notes:forget_view", moved=False, store=WAREHOUSE, to=LAKE),
    Death("before", HIDE, moved=True, store=WAREHOUSE, to=LAKE),
]


@pytest.mark.slow
@pytest.mark.parametrize("death", DEATHS, ids=str)
def test_a_killed_evolution_shows_one_generation_whole_and_goes_on(
    death: Death, workbench: Workbench, catalog: Catalog, tmp_path: Path
) -> None:
    schema = Schema((Column("product", STRING), Column("sold", INT)))
    sales = Evolving(workbench, catalog, replace(sales_dataset(death.store, dimensions=(DAY,)), schema=schema))
    sales.build(catalog, keys_of(sales), " UNION ALL ".join(ROWS.format(key=f"DATE'{day}' day") for day in DAYS))
    renamed = Schema((Column("article", STRING, was=("product",)), Column("sold", STRING)))
    changed = sales.changed(schema=renamed, store=death.to)
    new = sorted((day, product, str(sold)) for day, product, sold in OLD)
    file = tmp_path / "evolving.pickle"
    file.write_bytes(pickle.dumps((sales.dataset, changed.dataset, changed.code, changed.environment().environment)))

    killed = evolve(death.when, death.function, file)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    published = Generations(catalog.connection).published([sales.dataset.name])[sales.dataset.name]
    assert bool(published.generation) == death.moved
    # Readers of the warehouse see one of them; those of the lake too, or nothing until the table is repaired.
    if death.moved:
        if death.to == WAREHOUSE:
            assert changed.seen("day, article, sold") == new
        for left, kind in Generations(catalog.connection).all_left():
            hide(catalog, workbench.store(replace(changed.dataset, store=kind), catalog), left)
        changed.workbench.store(changed.dataset, catalog).repair(changed.dataset)
        assert changed.seen("day, article, sold") == new
    else:
        assert sales.seen("day, product, sold") == OLD
    done = evolve("never", "", file)
    assert done.returncode == 0, done.stderr
    assert changed.seen("day, article, sold") == new
    assert changed.workbench.store(changed.dataset, catalog).repair(changed.dataset) == 0
    if death.store != death.to:
        assert not is_shown(sales)


def evolve(when: str, function: str, file: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.stores.evolving", when, function, str(file)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
