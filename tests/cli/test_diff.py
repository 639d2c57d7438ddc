"""`varve diff`: two states of a dataset compared by partitions, and where those differ by rows; in both stores."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.shop import SALES, Shop
from varve.catalog.history.history import History
from varve.model.errors import NotKept, UnknownPartition, VarveError
from varve.stores.differences import NotAKey, as_multisets, by_key

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg
    from pyspark.sql import SparkSession

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

DAY = "2026-11-01"
BEFORE = [(1, "pen", "2.50"), (2, "ink", "9.99"), (3, "cap", "4.00"), (4, "box", None)]
AFTER = [(1, "pen", "2.50"), (2, "ink", "8.00"), (4, "box", "1.00"), (5, "mug", "7.25")]


@pytest.fixture
def shop(tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop.at(tmp_path, workbench, monkeypatch)


def states(values: dict[str, Any]) -> dict[str, str]:
    return {each["partition"]: each["state"] for each in values["partitions"]}


def in_store(shop: Shop, store: str) -> str:
    """The table whose sales are compared; a query names it, so that it can lie in either store."""
    query = "AS SELECT 1 AS id, 'x' AS product, CAST(1 AS DECIMAL(10, 2)) AS price, t AS sold_at;"
    shop.sql("kept", query, columns=SALES, store=store)
    return "kept"


@pytest.mark.parametrize("store", ["LAKE", "WAREHOUSE"])
def test_rows_of_a_key_are_added_removed_and_changed(shop: Shop, store: str, connection: psycopg.Connection) -> None:
    table = in_store(shop, store)
    old = shop.sell(DAY, BEFORE, of=table)
    new = shop.sell(DAY, AFTER, of=table)
    shop.sell("2026-11-02", BEFORE, of=table)
    values = shop.json("diff", f"shop.{table}", "--key", "ID", "--columns")
    assert (values["from"], values["to"], values["equal"]) == ("before now", "now", False)
    # The other day was published once: there is nothing to compare it with.
    (partition,) = values["partitions"]
    assert partition == {
        "partition": f"day={DAY}",
        "state": "differs",
        "from": {"batch": old.batch_id.millis, "rows": 4, "content": old.content},
        "to": {"batch": new.batch_id.millis, "rows": 4, "content": new.content},
    }
    rows = values["rows"]
    assert rows["key"] == ["day", "id"]
    assert {kind: rows[kind] for kind in ("added", "removed", "changed", "same")} == {
        "added": 1, "removed": 1, "changed": 2, "same": 1,
    }  # fmt: skip
    assert rows["columns"] == [
        {
            "column": "price",
            "changed": 2,
            "before": {"nulls": 1, "min": "2.50", "max": "9.99", "avg": pytest.approx(16.49 / 3)},
            "after": {"nulls": 0, "min": "1.00", "max": "8.00", "avg": pytest.approx(18.75 / 4)},
        }
    ]
    sample = [(row["kind"], (row["before"] or row["after"])["id"]) for row in rows["sample"]]
    assert sample == [("changed", 2), ("removed", 3), ("changed", 4), ("added", 5)]
    told = shop.run("diff", f"shop.{table}", "--key", "id").output
    assert "9.99 → 8.00" in told
    assert "1 row added, 1 row removed, 2 rows changed, 1 row same" in told
    # Nothing stays pinned.
    pins = connection.execute("select count(*) from varve.pin where dataset = %s", (f"{shop.db}.{table}",)).fetchone()
    assert pins == (0,)


def test_without_a_key_rows_are_counted_as_often_as_they_are_there(shop: Shop) -> None:
    shop.sell(DAY, [(1, "pen", "1.00")] * 3 + [(2, "ink", None)])
    shop.sell(DAY, [(1, "pen", "1.00")] + [(2, "ink", None)] * 2)
    rows = shop.json("diff", "shop.sales")["rows"]
    assert (rows["added"], rows["removed"], rows["same"], rows["key"]) == (1, 2, 2, [])
    assert [(row["kind"], row["times"], (row["before"] or row["after"])["product"]) for row in rows["sample"]] == [
        ("removed", 2, "pen"),
        ("added", 1, "ink"),
    ]


def test_partitions_with_equal_content_and_those_of_one_side_are_told_without_spark(shop: Shop) -> None:
    first = shop.sell(DAY, BEFORE)
    start = first.published_at + dt.timedelta(microseconds=1)
    shop.sell(DAY, list(reversed(BEFORE)))
    shop.sell("2026-11-02", BEFORE)
    values = shop.json("diff", "shop.sales", "--from", start.isoformat())
    assert states(values) == {f"day={DAY}": "equal content", "day=2026-11-02": "only after"}
    assert (values["rows"], values["equal"]) == (None, False)
    assert shop.json("diff", "shop.sales", f"day={DAY}", "--from", start.isoformat())["equal"] is True
    # Of a batch only its own partitions are compared.
    assert states(shop.json("diff", "shop.sales", "--from", str(first.batch_id))) == {f"day={DAY}": "equal content"}
    assert states(shop.json("diff", "shop.sales", "--from", "now")) == {
        f"day={DAY}": "the same batch",
        "day=2026-11-02": "the same batch",
    }


def test_the_exit_code_says_whether_something_differs_where_it_is_asked_to(shop: Shop) -> None:
    shop.sell(DAY, BEFORE)
    shop.sell(DAY, AFTER)
    assert shop.run("diff", "shop.sales").exit_code == 0
    assert shop.run("diff", "shop.sales", "--exit-code").exit_code == 1
    assert shop.run("diff", "shop.sales", "--from", "now", "--exit-code").exit_code == 0


def test_a_key_that_is_none_is_refused_with_examples(shop: Shop) -> None:
    shop.sell(DAY, [*BEFORE, (9, "pen", "3.00")])
    shop.sell(DAY, AFTER)
    with pytest.raises(NotAKey, match="product is no key, as on the older side day=2026-11-01, product=pen is in 2"):
        shop.json("diff", "shop.sales", "--key", "product")
    with pytest.raises(VarveError, match="has no column colour; it has id, product, price"):
        shop.json("diff", "shop.sales", "--key", "colour")


def test_a_state_that_is_not_there_or_not_kept_is_told(shop: Shop, connection: psycopg.Connection) -> None:
    first = shop.sell(DAY, BEFORE)
    with pytest.raises(UnknownPartition, match="no partition had another batch before now"):
        shop.json("diff", "shop.sales")
    with pytest.raises(NotKept, match="there is no batch 7"):
        shop.json("diff", "shop.sales", "--from", "7")
    shop.sell(DAY, AFTER)
    history = History(connection)
    retired = history.retired(f"{shop.db}.sales", older_than=dt.timedelta(0), keep_last=0)
    history.mark_swept(retired)
    with pytest.raises(NotKept, match=f"the data of before now was swept since: day={DAY} batch {first.batch_id}"):
        shop.json("diff", "shop.sales")


def test_values_that_spark_cannot_compare_by_itself_are_compared_too(shop: Shop, spark: SparkSession) -> None:
    columns = "(id INT, m MAP<STRING, INT>, n ARRAY<STRUCT<a: INT, m: MAP<STRING, INT>>>, x DOUBLE)"
    shop.sql("odd", "EXTERNAL;", columns=columns)
    dataset = shop.asset("odd").dataset

    def frame(*rows: str) -> Any:
        values = " union all ".join(f"select {row}, date'{DAY}'" for row in rows)
        return spark.sql(values).toDF("id", "m", "n", "x", "day")

    nested = "array(named_struct('a', 1, 'm', map('k', 1)))"
    before = frame(f"1, map('a', 1, 'b', 2), {nested}, double('NaN')", "2, map(), null, 1.0D", "3, null, null, 0.0D")
    after = frame(
        f"1, map('b', 2, 'a', 1), {nested}, double('NaN')", "2, map('c', 1), null, 1.0D", "3, null, null, -0.0D"
    )
    keyed = by_key(dataset, before, after, ["id"], 10, distributions=True)
    assert ([column.column for column in keyed.columns], keyed.counts["same"]) == (["m"], 2)
    counted = as_multisets(dataset, before, after, 10)
    assert (counted.counts["same"], counted.counts["added"], counted.counts["removed"]) == (2, 1, 1)


def test_rows_of_many_columns_are_compared(shop: Shop, spark: SparkSession) -> None:
    names = [f"c{number}" for number in range(100)]
    shop.sql("wide", "EXTERNAL;", columns=f"({', '.join(f'{name} INT' for name in names)})")
    dataset = shop.asset("wide").dataset
    rows = [(*[number] * 100, dt.date.fromisoformat(DAY)) for number in range(3)]
    ddl = ", ".join([*(f"{name} INT" for name in names), "day DATE"])
    before = spark.createDataFrame(rows, ddl)
    after = spark.createDataFrame([(*row[:99], row[0] * 2, row[100]) for row in rows[:2]] + rows[2:], ddl)
    found = by_key(dataset, before, after, ["c0"], 10, distributions=True)
    assert found.counts == {"added": 0, "removed": 0, "changed": 1, "same": 2}
    assert [(column.column, column.rows) for column in found.columns] == [("c99", 1)]
    counted = as_multisets(dataset, before, after, 10).counts
    assert (counted["added"], counted["removed"], counted["same"]) == (1, 1, 2)


def test_rows_that_a_unique_index_allows_are_compared(shop: Shop) -> None:
    query = "AS SELECT 1 AS id, 'x' AS product, CAST(1 AS DECIMAL(10, 2)) AS price, t AS sold_at;"
    shop.sql("kept", f"INDEX UNIQUE (id)\n{query}", columns=SALES, store="WAREHOUSE")
    shop.sell(DAY, [(None, "pen", "1.00"), (None, "ink", "2.00"), (1, "cap", "3.00")], of="kept")
    shop.sell(DAY, [(None, "pen", "1.00"), (None, "ink", "2.50"), (1, "cap", "3.00")], of="kept")
    values = shop.json("diff", "shop.kept")
    assert (values["rows"]["key"], values["rows"]["added"], values["rows"]["removed"]) == ([], 1, 1)
    with pytest.raises(NotAKey):
        shop.json("diff", "shop.kept", "--key", "id")
