"""Generations in the stores: every change of a declaration that older batches do not follow, there and back.

A reader has a view over the dataset's view, a grant, a comment, and a prepared statement, and asks at each step.
"""

from __future__ import annotations

import datetime as dt
import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pendulum
import psycopg
import pytest

from tests.support.sales import DAY, sales_dataset
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.generations import Generations, shape_of
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.catalog.history.history import History
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import CodeNotDeployed
from varve.model.generation import is_rewritable
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import Graph
from varve.planning.reconcile import Limits
from varve.stores.environments.promotion import LeftBehind, NotClosed, Promoter
from varve.stores.environments.rewriting import Rewriter
from varve.stores.environments.store import EnvironmentStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings
    from varve.stores.environments.promotion import Promotion

pytestmark = pytest.mark.spark

NOW = pendulum.datetime(2013, 1, 10)
HOUR = TimeDimension("hour", Grain.HOUR, pendulum.datetime(2013, 1, 5), pendulum.datetime(2013, 1, 7))
INT, BIGINT, STRING = ColumnType.INT, ColumnType.BIGINT, ColumnType.STRING
DAYS = (dt.date(2013, 1, 5), dt.date(2013, 1, 6))
ROWS = "SELECT 'pen' product, 12 sold, {key} UNION ALL SELECT 'ink', 30, {key}"


@dataclass
class Evolving:
    """A dataset whose declaration changes, and its environments."""

    workbench: Workbench
    catalog: Catalog
    dataset: Dataset
    code: str = "v1"

    @property
    def graph(self) -> Graph:
        name = self.dataset.name
        return Graph({name: self.dataset}, {name: ()}, {name: self.code}, sources={name: repr(self.dataset)})

    def changed(self, **changes: Any) -> Evolving:
        return replace(self, dataset=replace(self.dataset, **changes), code=uuid.uuid4().hex[:8])

    def build(self, catalog: Catalog, keys: Sequence[PartitionKey], query: str) -> None:
        """Begin, stage, verify and publish, as a run does."""
        store = self.workbench.store(self.dataset, catalog)
        if isinstance(catalog, EnvironmentCatalog):
            store = EnvironmentStore(store, catalog)
        else:
            Deployments(catalog.connection).admit(self.dataset, self.code, "", [key.path for key in keys])
        build = catalog.begin(self.dataset, keys, run_id=f"run-{uuid.uuid4()}", code_version=self.code)
        try:
            staged = store.stage(build, self.workbench.spark.sql(query))
            catalog.staged(build, staged)
            store.verify(build, staged)
            store.publish(build, staged)
        finally:
            catalog.release(build)

    def environment(self) -> EnvironmentCatalog:
        """An environment that has computed nothing with the code that is here."""
        name = f"e{uuid.uuid4().hex[:8]}"
        environments = Environments(self.catalog.connection)
        environments.create(name, by="ann")
        environments.set_code(name, self.graph)
        Generations(self.catalog.connection).enter(name, self.graph)
        return EnvironmentCatalog(self.catalog.connection, name)

    def promote(self, environment: EnvironmentCatalog) -> Promotion:
        promoter = Promoter(
            self.catalog, self.graph, lambda each: self.workbench.store(each, self.catalog), {}, Limits(), NOW
        )
        return promoter.promote(environment.environment, LeftBehind.REFUSE, by="ann")

    def seen(self, columns: str) -> list[tuple[Any, ...]]:
        """What a reader by name sees."""
        if self.dataset.store == StoreKind.LAKE:
            self.workbench.spark.catalog.refreshTable(self.dataset.name)
            rows = self.workbench.spark.sql(f"SELECT {columns} FROM {self.dataset.name}").collect()
            return sorted(map(tuple, rows))
        query = f"select {columns} from {self.dataset.name}"
        return sorted(self.catalog.connection.execute(query.encode()).fetchall())

    def keys(self) -> list[PartitionKey]:
        return [self.dataset.partitioning.key([day]) for day in DAYS]


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
    sales.build(catalog, sales.keys(), days)
    return sales


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
            changed.build(changed.catalog, changed.keys()[:1], "SELECT 'pen' article, '1' sold, DATE'2013-01-05' day")
        assert Deployments(connection).states(changed.graph)[name].evolving == name

    environment = changed.environment()
    before = Generations(connection).published([name])[name].shape
    assert is_rewritable(before, shape_of(changed.dataset))
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

        # Back to the generation before, whose batches are there; what is in it is taken.
        back = replace(sales, catalog=changed.catalog)
        environment = back.environment()
        assert Generations(connection).of_environment(environment.environment)[name].number == 0
        build = environment.unlocked(back.dataset, back.keys(), run_id="back", code_version=back.code)
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


def test_windows_partition_columns_and_store_change_there_and_back(sales: Evolving) -> None:
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
    for number, (change, (declared, values)) in enumerate(changes.items()):
        column = "day" if change == "store" else change
        changed = sales.changed(**declared)
        assert Deployments(connection).states(changed.graph)[name].evolving == name
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
        build = environment.unlocked(sales.dataset, sales.keys(), run_id=f"back{number}", code_version=sales.code)
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
    assert {(batch.store == other_store, batch.kept) for batch in retired} == {(False, ""), (True, "")}


def is_shown(sales: Evolving) -> bool:
    if sales.dataset.store == StoreKind.LAKE:
        return bool(sales.workbench.spark.catalog.tableExists(sales.dataset.name))
    found = sales.catalog.connection.execute("select to_regclass(%s) is not null", (sales.dataset.name,)).fetchone()
    return bool(found and found[0])
