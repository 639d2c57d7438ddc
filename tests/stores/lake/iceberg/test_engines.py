"""Spark with Iceberg's own runtime, and Trino, read the tables by the lines of docs/iceberg.md, as their role."""

from __future__ import annotations

import base64
import datetime as dt
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.stores.lake.iceberg.engines import ForeignSpark, Trino, database, started_trino
from tests.stores.lake.iceberg.every_type import NOON, STORES, every_type
from tests.stores.lake.iceberg.readers import by_pyiceberg, by_text, iceberg_table
from tests.support.sales import DETROIT, PARIS, ZURICH, sales_dataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.stores.lake.iceberg.builder import Builder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_500)]


class Engine(Protocol):
    """How an engine is asked."""

    def ask(self, queries: Sequence[str]) -> list[list[list[Any]]]:
        """The rows of each query, as lists of Trino's JSON values."""
        ...

    def as_of(self, table: str, instant: dt.datetime) -> str:
        """The table as of an instant, as a FROM clause has it."""
        ...

    def quoted(self, column: str) -> str:
        """The name of a column in its quotes."""
        ...

    def literal(self, text: str) -> str:
        """The text as a literal."""
        ...


@dataclass
class Published:
    """What engines are to read.

    Attributes:
        typed, evolved: a dataset with every type, and one whose columns came, went, became wider and came back.
        together: three datasets that are published together, twice; `instants`, when.
    """

    builder: Builder
    typed: Dataset
    evolved: Dataset
    together: list[Dataset]
    instants: list[dt.datetime]


@pytest.fixture
def published(builder: Builder) -> Published:
    typed, rows = every_type()
    builder.publish(typed, rows)
    evolved = sales_dataset(StoreKind.LAKE)
    narrow = (Column("product", ColumnType.STRING), Column("sold", ColumnType.INT), Column("gone", ColumnType.STRING))
    builder.publish(replace(evolved, schema=Schema(narrow)), {PARIS: [{"product": "pen", "sold": 1, "gone": "x"}]})
    wide = (narrow[0], Column("sold", ColumnType.BIGINT))
    builder.publish(replace(evolved, schema=Schema(wide)), {ZURICH: [{"product": "ink", "sold": 2**40}]})
    evolved = replace(evolved, schema=Schema((*wide, Column("colour", ColumnType.array(ColumnType.STRING)))))
    builder.publish(evolved, {DETROIT: [{"product": "pad", "sold": 3, "colour": ["red"]}]})
    evolved = replace(evolved, schema=Schema((*evolved.schema.columns, narrow[2])))
    builder.publish(evolved, {DETROIT: [{"product": "pad", "sold": 3, "colour": ["red"], "gone": "y"}]})
    together, instants = [sales_dataset(StoreKind.LAKE) for _ in range(3)], []
    for product in ("old", "new"):
        row = {"product": product, "sold": 1, "price": 1.5, "at": NOON}
        builder.publish_together([(dataset, {PARIS: [row]}) for dataset in together])
        moments = {iceberg_table(builder.settings, dataset).current_snapshot().timestamp_ms for dataset in together}
        (moment,) = moments
        instants.append(dt.datetime.fromtimestamp(moment / 1_000, dt.UTC))
    return Published(builder, typed, evolved, together, instants)


def as_json(value: Any) -> Any:
    """A value as Trino's protocol writes it."""
    match value:
        case Decimal():
            value = f"{value:f}"
        case dt.datetime():
            value = f"{value:%Y-%m-%d %H:%M:%S.%f}" + (" UTC" if value.tzinfo else "")
        case dt.date():
            value = value.isoformat()
        case bytes():
            value = base64.b64encode(value).decode()
        case dict():
            value = [as_json(each) for each in value.values()]
        case [(str(), _), *_]:
            value = {key: as_json(each) for key, each in value}
        case list():
            value = [as_json(each) for each in value]
    return value


def reads_everything(published: Published, engine: Engine) -> None:
    """The engine reads what pyiceberg reads, and what was published."""
    settings = published.builder.settings
    for dataset in (published.typed, published.evolved):
        expected = by_pyiceberg(iceberg_table(settings, dataset))
        # What pyiceberg reads is what was published, in the same order of columns.
        assert len(expected) == {published.typed.name: 2 * len(STORES), published.evolved.name: 3}[dataset.name]
        names = ", ".join(map(engine.quoted, expected[0]))
        (rows,) = engine.ask([f"select {names} from varve.{dataset.name}"])
        assert sorted(rows, key=str) == sorted([[as_json(each) for each in row.values()] for row in expected], key=str)
    first = iceberg_table(settings, published.evolved).snapshots()[0].timestamp_ms
    was = engine.as_of(f"varve.{published.evolved.name}", dt.datetime.fromtimestamp(first / 1_000, dt.UTC))
    assert engine.ask([f"select product, gone from {was}"]) == [[["pen", "x"]]]
    queries = [
        f"select i from varve.{published.typed.name} where day = date '2013-01-05' and store = {engine.literal(store)} "
        "and n is not null"
        for store in STORES
    ]
    assert engine.ask(queries) == [[[place]] for place in range(len(STORES))]
    (count,) = engine.ask([f"select count(*) from varve.{published.typed.name} where price < -1.000"])
    assert count == [[len(STORES)]]
    for product, instant in zip(("old", "new"), published.instants, strict=True):
        tables = [engine.as_of(f"varve.{dataset.name}", instant) for dataset in published.together]
        answers = engine.ask([f"select product from {table}" for table in tables])
        assert answers == [[[product]]] * 3


@dataclass
class SparkEngine:
    spark: ForeignSpark
    builder: Builder
    folder: Path

    def ask(self, queries: Sequence[str]) -> list[list[list[Any]]]:
        with database(self.builder.settings) as where:
            answers = self.spark.rows(where, queries, self.folder)
        return [[[as_json(value) for value in row.values()] for row in by_text(rows)] for rows in answers]

    def as_of(self, table: str, instant: dt.datetime) -> str:
        return f"{table} timestamp as of '{instant:%Y-%m-%d %H:%M:%S.%f}'"

    def quoted(self, column: str) -> str:
        return f"`{column}`"

    def literal(self, text: str) -> str:
        return "'" + text.replace("'", "\\'") + "'"


def test_spark_with_icebergs_runtime_reads_what_was_published(published: Published, tmp_path: Path) -> None:
    reads_everything(published, SparkEngine(ForeignSpark.installed(tmp_path), published.builder, tmp_path))


@dataclass
class TrinoEngine:
    trino: Trino

    def ask(self, queries: Sequence[str]) -> list[list[list[Any]]]:
        return [self.trino.rows(query) for query in queries]

    def as_of(self, table: str, instant: dt.datetime) -> str:
        return f"{table} for timestamp as of timestamp '{instant:%Y-%m-%d %H:%M:%S.%f} UTC'"

    def quoted(self, column: str) -> str:
        return f'"{column}"'

    def literal(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"


@pytest.fixture
def trino(published: Published, tmp_path: Path) -> Iterator[TrinoEngine]:
    with database(published.builder.settings) as where, started_trino(where, tmp_path) as running:
        yield TrinoEngine(running)


def test_trino_reads_what_was_published(published: Published, trino: TrinoEngine) -> None:
    reads_everything(published, trino)
