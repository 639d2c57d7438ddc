"""Iceberg tables of environments beside production's publishes: each shows what its environment has, or nothing."""

from __future__ import annotations

import datetime as dt
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.stores.lake.iceberg.readers import by_pyiceberg, iceberg_table
from tests.stores.lake.iceberg.test_keeping import age, metadata_files, sweep, write_again
from tests.support.sales import DAY, PARIS, STORE, ZURICH
from varve.catalog.code.generations import Generations
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.model.store_options import LakeOptions
from varve.planning.graph import Graph
from varve.stores.environments.store import EnvironmentStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.stores.lake.iceberg.builder import Builder, LakeWithoutHive, Rows
    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset

NOON = dt.datetime(2013, 1, 5, 12, tzinfo=dt.UTC)
ONE_STORE, ONE_DAY = PartitionKey.of(store="Paris"), PartitionKey.of(day=dt.date(2013, 1, 5))


def sold(*products: str, **more: Any) -> Rows:
    return [
        {"product": product, "sold": place, "price": 1.5, "at": NOON, **more} for place, product in enumerate(products)
    ]


@dataclass
class Sandbox:
    """An environment whose builds write files by pyarrow."""

    builder: Builder
    catalog: Catalog
    name: str

    @property
    def lake(self) -> LakeWithoutHive:
        return self.builder.over(EnvironmentCatalog(self.catalog.connection, self.name))

    def enter(self, dataset: Dataset) -> None:
        """As each run of an environment does with the declarations that are here."""
        graph = Graph({dataset.name: dataset}, {dataset.name: ()}, {dataset.name: "v"}, sources={dataset.name: "v"})
        Environments(self.catalog.connection).set_code(self.name, graph)
        Generations(self.catalog.connection).enter(self.name, graph)

    def publish(self, dataset: Dataset, rows: Mapping[PartitionKey, Rows]) -> None:
        self.enter(dataset)
        lake = self.lake
        build, staged = self.builder.stage(lake, dataset, rows)
        EnvironmentStore(lake, EnvironmentCatalog(self.catalog.connection, self.name)).publish(build, staged)
        self.catalog.connection.execute("select pg_advisory_unlock_all()")

    def rows(self, dataset: Dataset) -> list[dict[str, Any]]:
        return by_pyiceberg(iceberg_table(self.builder.settings, dataset, self.name))

    def products(self, dataset: Dataset) -> list[str]:
        return sorted(row["product"] for row in self.rows(dataset))

    def hidden_because(self, dataset: Dataset) -> str:
        """Why its table is hidden, which it is."""
        with pytest.raises(NoSuchTableError):
            iceberg_table(self.builder.settings, dataset, self.name)
        assert self.lake.iceberg is not None
        pointer = self.lake.iceberg.pointers.of(dataset.name)
        return "" if pointer is None else pointer.hidden_because


@contextmanager
def sandbox(builder: Builder, dataset: Dataset, *, live: bool = False) -> Iterator[Sandbox]:
    with builder.store() as store:
        environments, name = Environments(store.catalog.connection), f"s{dataset.db}"
        environments.create(name, by="ann", live=live)
        try:
            yield Sandbox(builder, store.catalog, name)
        finally:
            environments.drop(name)


def products(builder: Builder, dataset: Dataset) -> list[str]:
    return sorted(row["product"] for row in by_pyiceberg(iceberg_table(builder.settings, dataset)))


def test_production_goes_on_beside_a_live_environment_that_has_other_partition_columns(
    builder: Builder, sales: Dataset
) -> None:
    builder.publish(sales, {PARIS: sold("base"), ZURICH: sold("base")})
    by_store = replace(sales, partitioning=Partitioning((STORE,)))
    with sandbox(builder, sales, live=True) as environment:
        environment.publish(by_store, {ONE_STORE: sold("tried")})
        assert environment.products(sales) == ["tried"]
        builder.publish(sales, {PARIS: sold("later")})
        assert products(builder, sales) == ["base", "later"]
        assert environment.products(sales) == ["tried"]


def test_a_live_environment_with_batches_of_a_generation_that_production_has_left_is_hidden(
    builder: Builder, sales: Dataset
) -> None:
    builder.publish(sales, {PARIS: sold("base"), ZURICH: sold("base")})
    by_day = replace(sales, partitioning=Partitioning((DAY,)))
    with sandbox(builder, sales, live=True) as environment, builder.store() as store:
        environment.publish(sales, {PARIS: sold("tried")})
        # What a promotion does: `environment` knows of no generation yet.
        connection = store.catalog.connection
        with connection.transaction():
            build, _ = builder.stage(store, by_day, {ONE_DAY: sold("promoted")})
            number = build.batch_id.millis
            Generations(connection).move(sales.name, 0, number, [])
            build.generation = number
            store.commit([build], lambda: store.catalog.publish(build))
            connection.execute("select pg_advisory_unlock_all()")
        assert products(builder, sales) == ["promoted"]
        assert "partition columns" in environment.hidden_because(sales)
        builder.publish(by_day, {ONE_DAY: sold("promoted", "later")})
        assert products(builder, sales) == ["later", "promoted"]
        assert "partition columns" in environment.hidden_because(sales)


def test_a_live_environment_keeps_its_columns_when_production_publishes(builder: Builder, sales: Dataset) -> None:
    narrow = replace(sales, schema=Schema((Column("product", ColumnType.STRING), Column("sold", ColumnType.INT))))
    wide = replace(
        sales,
        schema=Schema(
            (
                Column("product", ColumnType.STRING), Column("sold", ColumnType.BIGINT),
                Column("colour", ColumnType.STRING),
            )
        ),
    )  # fmt: skip
    builder.publish(narrow, {PARIS: [{"product": "pen", "sold": 1}], ZURICH: [{"product": "ink", "sold": 2}]})
    with sandbox(builder, sales, live=True) as environment:
        environment.publish(wide, {PARIS: [{"product": "pad", "sold": 2**40, "colour": "red"}]})
        builder.publish(narrow, {ZURICH: [{"product": "cap", "sold": 3}]})
        rows = [(row["product"], row["sold"], row["colour"]) for row in environment.rows(sales)]
        assert rows == [("cap", 3, None), ("pad", 2**40, "red")]
        # Its readers would read files of the type that production has now wrong.
        real = replace(narrow, schema=Schema((*narrow.schema.columns[:1], Column("sold", ColumnType.DOUBLE))))
        builder.publish(real, {ZURICH: [{"product": "cap", "sold": 0.5}]})
        assert "sold was DOUBLE and is BIGINT now" in environment.hidden_because(sales)
        # It is shown again by itself, once it can be.
        builder.publish(narrow, {ZURICH: [{"product": "hat", "sold": 4}]})
        assert environment.products(sales) == ["hat", "pad"]


def test_a_table_of_an_environment_that_was_hidden_is_shown_by_its_next_publish_that_can_be(
    builder: Builder, sales: Dataset
) -> None:
    cents = replace(sales, schema=Schema((Column("price", ColumnType("DECIMAL(9,2)")),)))
    finer = replace(sales, schema=Schema((Column("price", ColumnType("DECIMAL(12,4)")),)))
    builder.publish(cents, {PARIS: [{"price": 1}], ZURICH: [{"price": 2}]})
    with sandbox(builder, sales, live=True) as environment:
        environment.publish(finer, {PARIS: [{"price": 3}]})
        assert "price was DECIMAL(9,2)" in environment.hidden_because(sales)
        environment.publish(finer, {ZURICH: [{"price": 4}]})
        assert sorted(int(row["price"]) for row in environment.rows(sales)) == [3, 4]


def test_no_environment_fails_a_publish_of_production(
    builder: Builder, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.publish(sales, {PARIS: sold("base"), ZURICH: sold("base")})
    with sandbox(builder, sales, live=True) as environment:
        environment.publish(sales, {PARIS: sold("tried")})

        def breaks(catalog: EnvironmentCatalog, dataset: str) -> None:
            catalog.connection.execute("select from varve.no_such_table_of " + dataset)

        with monkeypatch.context() as patched:
            patched.setattr(EnvironmentCatalog, "current", breaks)
            builder.publish(sales, {ZURICH: sold("later")})
        assert products(builder, sales) == ["base", "later"]
        assert "It could not follow production: SyntaxError" in environment.hidden_because(sales)
        builder.publish(sales, {ZURICH: sold("latest")})
        assert environment.products(sales) == ["latest", "tried"]


def test_an_environment_takes_only_what_is_current_at_its_base_and_a_sweep_goes_on(
    builder: Builder, sales: Dataset
) -> None:
    """Of the snapshots that its base had then, a sweep may have taken some away."""
    for product in ("one", "two"):
        builder.publish(sales, {PARIS: sold(product), ZURICH: sold("stays")})
    with sandbox(builder, sales) as environment:
        builder.publish(sales, {PARIS: sold("three")})
        sweep(builder, sales)
        environment.publish(sales, {PARIS: sold("tried")})
        assert environment.products(sales) == ["stays", "tried"]
        table = iceberg_table(builder.settings, sales, environment.name)
        shown = [by_pyiceberg(table, snapshot_id=each.snapshot_id) for each in table.snapshots()]
        assert [sorted(row["product"] for row in rows) for rows in shown] == [["stays", "two"], ["stays", "tried"]]
        before = metadata_files(builder, sales)
        builder.publish(sales, {PARIS: sold("four")})
        age(builder, sales, 5)
        sweep(builder, sales)
        assert before - metadata_files(builder, sales)
        assert environment.products(sales) == ["stays", "tried"]


@pytest.mark.parametrize("live", [False, True])
def test_where_it_is_turned_off_in_an_environment_nobody_is_shown_its_base_in_place_of_it(
    builder: Builder,
    sales: Dataset,
    live: bool,  # noqa: FBT001
) -> None:
    builder.publish(sales, {PARIS: sold("base"), ZURICH: sold("base")})
    off = replace(sales, lake=LakeOptions(iceberg=False))
    with sandbox(builder, sales, live=live) as environment:
        assert environment.products(sales) == ["base", "base"]
        environment.publish(off, {PARIS: sold("tried")})
        assert "no Iceberg side" in environment.hidden_because(sales)
        builder.publish(sales, {ZURICH: sold("later")})
        assert "no Iceberg side" in environment.hidden_because(sales)
        environment.publish(sales, {PARIS: sold("tried", "again")})
        assert environment.products(sales) == ["again", "later" if live else "base", "tried"]
        environment.publish(off, {PARIS: sold("tried")})
        assert "no Iceberg side" in environment.hidden_because(sales)


def test_a_live_environment_follows_production_where_that_has_no_iceberg_table(
    builder: Builder, sales: Dataset
) -> None:
    builder.publish(sales, {PARIS: sold("base"), ZURICH: sold("base")})
    off = replace(sales, lake=LakeOptions(iceberg=False))
    with sandbox(builder, sales, live=True) as environment:
        environment.publish(sales, {PARIS: sold("tried")})
        builder.publish(off, {ZURICH: sold("later")})
        with pytest.raises(NoSuchTableError):
            iceberg_table(builder.settings, sales)
        assert environment.products(sales) == ["later", "tried"]


def test_an_environment_is_shown_no_older_state_than_that_of_its_base(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {PARIS: sold("first"), ZURICH: sold("first")})
    builder.publish(replace(sales, lake=LakeOptions(iceberg=False)), {PARIS: sold("second")})
    with sandbox(builder, sales) as environment:
        builder.publish(sales, {PARIS: sold("third")})
        assert environment.hidden_because(sales) == ""
        environment.publish(sales, {ZURICH: sold("tried")})
        assert environment.products(sales) == ["second", "tried"]
        assert products(builder, sales) == ["first", "third"]


def test_what_an_environment_has_computed_is_not_replaced_by_its_base_where_it_has_no_table(
    builder: Builder, sales: Dataset
) -> None:
    """As where production has begun to have Iceberg tables after that."""
    builder.on = False
    builder.publish(sales, {PARIS: sold("base"), ZURICH: sold("base")})
    with sandbox(builder, sales, live=True) as environment:
        environment.publish(sales, {PARIS: sold("tried")})
        environment.catalog.connection.execute("delete from varve.iceberg_table where dataset = %s", (sales.name,))
        builder.on = True
        builder.publish(sales, {ZURICH: sold("later")})
        assert products(builder, sales) == ["base", "later"]
        assert environment.hidden_because(sales) == ""
        environment.publish(sales, {PARIS: sold("tried", "again")})
        assert environment.products(sales) == ["again", "later", "tried"]


def test_a_repair_shows_environments_too_what_was_published_last(builder: Builder, sales: Dataset) -> None:
    builder.on = False
    builder.publish(sales, {PARIS: sold("one"), ZURICH: sold("one")})
    with sandbox(builder, sales) as environment:
        builder.on = True
        assert environment.hidden_because(sales) == ""
        assert write_again(builder, sales) == 2
        assert environment.products(sales) == ["one", "one"]
        for path in (Path(builder.settings.lake) / sales.db / sales.table / "_iceberg").iterdir():
            path.unlink()
        assert write_again(builder, sales) == 2
        assert environment.products(sales) == ["one", "one"]
        builder.publish(sales, {PARIS: sold("two")})
        assert environment.products(sales) == ["one", "one"]
