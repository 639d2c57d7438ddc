"""A reader is spared where nothing has changed in the columns that it reads, taken together as rows.

The oracle is plain recomputation: what the reader would compute from the rows before and from the rows after.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pendulum
import pytest
from pyspark.sql import functions as F  # noqa: N812

from varve.model.batch import BatchId
from varve.model.build import Build
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import Reads
from varve.model.schema import Column, ColumnType, Schema, column_set
from varve.planning.graph import Graph
from varve.planning.judgement.code import CodeState, MadeBy
from varve.planning.judgement.facts import Fact
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import reconcile
from varve.stores.folders import content

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from varve.planning.judgement.judgement import Judgement

pytestmark = pytest.mark.spark

START = pendulum.datetime(2026, 11, 1)
NOW = START.add(days=2)
DAYS = Partitioning((TimeDimension("day", "@daily", START, START.add(days=1)),))
PATH = "day=2026-11-01"
ROWS = Dataset(
    "shop.rows", DAYS, Schema(tuple(Column(name, ColumnType(kind)) for name, kind in
                                    (("a", "INT"), ("b", "STRING"), ("c", "DOUBLE")))), StoreKind.LAKE, "Rows.",
)  # fmt: skip
# None: all columns.
READ: dict[str, tuple[str, ...] | None] = {
    "shop.of_a": ("a",), "shop.of_b": ("b",), "shop.of_pairs": ("b", "a"), "shop.of_c": ("c", "a"),
    "shop.of_none": (), "shop.of_all": None,
}  # fmt: skip
READERS = {
    name: Dataset(name, DAYS, Schema((Column("n", ColumnType("BIGINT")),)), StoreKind.LAKE, "Rows.") for name in READ
}
GRAPH = Graph(
    {ROWS.name: ROWS, **READERS}, {name: (Reads(ROWS, columns=columns),) for name, columns in READ.items()}, {}
)
Rows = list[tuple[Any, ...]]
Digests = dict[int, tuple[str | None, dict[str, str]]]


def digests_of(spark: SparkSession, tables: Sequence[Rows]) -> Digests:
    """By the place of each table, the hash of its rows and those of the columns that readers read."""
    build = Build(ROWS, (), BatchId(1), "run", {}, column_sets=GRAPH.column_sets(ROWS))
    frame = spark.createDataFrame(
        [(place, *row) for place, rows in enumerate(tables) for row in rows], "which INT, a INT, b STRING, c DOUBLE"
    )
    counted = frame.groupBy("which").agg(
        F.count(F.lit(1)).alias("rows"), *content.sums(ROWS.schema.columns), *content.sums_of_sets(build)
    )
    return {
        row["which"]: (content.text(row["rows"], row.asDict()), content.digests(build, row["rows"], row.asDict()))
        for row in counted.collect()
    }


def judged(digests: Digests, before: int, after: int, made_by: MadeBy = MadeBy.DEPLOYED) -> Mapping[str, Judgement]:
    """What is said of each reader, made from one table, when another one is current."""
    (hash_before, sets_before), (hash_after, sets_after) = digests[before], digests[after]
    equal = (1,) if hash_before == hash_after else ()
    equal_in = {name: [1] for name, digest in sets_after.items() if sets_before.get(name) == digest}

    class Facts:
        def of(self, dataset: str, paths: object) -> Mapping[str, Fact]:
            del paths
            if dataset == ROWS.name:
                return {PATH: Fact(2, 2.0, equal, equal_in=equal_in)}
            return {PATH: Fact(3, 1.5, trace=[(ROWS.name, PATH, "1")], made_by=made_by)}

    codes = {name: CodeState("1", "1", may_be_mixed=True) for name in READERS}
    plan = reconcile(GRAPH, Facts(), now=NOW, codes=codes)
    return {name: plan.judgements[name][PATH] for name in READERS}


def as_read(rows: Rows, columns: tuple[str, ...] | None) -> Counter[tuple[Any, ...]]:
    """What a reader of these columns gets: rows in no order."""
    names = [column.name for column in ROWS.schema.columns]
    places = range(3) if columns is None else [names.index(column) for column in columns]
    return Counter(tuple(row[place] for place in places) for row in rows)


def test_exactly_the_readers_that_would_compute_the_same_are_spared(spark: SparkSession) -> None:
    chance = random.Random(20261122)
    values = [[0, 1, None], ["x", "", None], [0.5, 2.0]]
    tables = [[tuple(map(chance.choice, values)) for _ in range(chance.randint(1, 3))] for _ in range(60)]
    digests, spared = digests_of(spark, tables), Counter[str]()
    for before, after in itertools.combinations(range(len(tables)), 2):
        found = judged(digests, before, after)
        for name, columns in READ.items():
            same = as_read(tables[before], columns) == as_read(tables[after], columns)
            assert (found[name].state is State.CURRENT) == same, (name, tables[before], tables[after])
            spared[name] += same
    assert all(spared[name] for name in READ if READ[name] is not None), spared


def test_columns_that_are_paired_in_another_way_are_no_equal_rows(spark: SparkSession) -> None:
    """Each column alone holds the same values: a hash of each would spare the reader of both, and be wrong."""
    paired: Rows = [(1, "x", 0.5), (2, "y", 0.5)]
    otherwise: Rows = [(1, "y", 0.5), (2, "x", 0.5)]
    found = judged(digests_of(spark, [paired, otherwise]), 0, 1)
    assert {name for name, judgement in found.items() if judgement.state is State.CURRENT} == {
        "shop.of_a", "shop.of_b", "shop.of_c", "shop.of_none",
    }  # fmt: skip
    assert found["shop.of_a"].reason == f"spared: nothing that it reads of shop.rows {PATH} has changed"
    # Rows that are there twice count twice, also where no column is read.
    twice = judged(digests_of(spark, [paired, [*paired, *paired]]), 0, 1)
    assert {judgement.state for judgement in twice.values()} == {State.DUE}


def test_a_batch_of_earlier_code_is_not_spared_as_that_may_have_read_other_columns(spark: SparkSession) -> None:
    digests = digests_of(spark, [[(1, "x", 0.5)], [(1, "y", 0.5)]])
    assert judged(digests, 0, 1)["shop.of_a"].state is State.CURRENT
    assert judged(digests, 0, 1, MadeBy.ACCEPTED)["shop.of_a"].state is State.DUE


def test_a_column_of_another_type_is_another_column() -> None:
    assert column_set([Column("a", ColumnType("INT"))]) != column_set([Column("a", ColumnType("BIGINT"))])
    pair = [Column("a", ColumnType("INT")), Column("b", ColumnType("INT"))]
    assert column_set(pair) == column_set(pair[::-1])
