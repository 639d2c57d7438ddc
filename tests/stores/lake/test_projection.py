"""The Hive table: it follows every publish, and catches up with whatever a crash has left behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sales import COLUMNS, DAY, DETROIT, PARIS, ZURICH, key, sales_dataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import StaticDimension
from varve.model.schema import Column, ColumnType, Schema
from varve.stores.folders.layout import Layout
from varve.stores.lake import executing, projection, statements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey

pytestmark = pytest.mark.spark

ODD = ("a b", "x=y/z", "it's", "50%", "ü", 'say "so"', "back\\slash", "a+b", "{[^]}", "a:b?c*#&;", "%20")


@pytest.fixture
def catalog(workbench: Workbench) -> Iterator[Catalog]:
    opened = workbench.catalog()
    yield opened
    opened.connection.close()


def table(workbench: Workbench, dataset: Dataset) -> list[tuple[object, ...]]:
    """What a user of Spark reads by name."""
    names = ", ".join(dataset.partitioning.names)
    rows = workbench.spark.sql(f"SELECT {names}, product, sold FROM {statements.table_name(dataset)}").collect()
    return sorted(tuple(row) for row in rows)


def locations(workbench: Workbench, dataset: Dataset, partition: PartitionKey) -> str:
    """Where the metastore says that a partition lies."""
    spec = ", ".join(f"{name}='{value}'" for name, value in partition.fields)
    rows = workbench.spark.sql(f"DESCRIBE EXTENDED {statements.table_name(dataset)} PARTITION ({spec})").collect()
    return next(str(row[1]) for row in rows if row[0] == "Location")


def publish_without_following(
    workbench: Workbench,
    catalog: Catalog,
    dataset: Dataset,
    partitions: Sequence[PartitionKey],
    rows: Sequence[tuple[PartitionKey, str, int]],
) -> Build:
    """A run that dies between its publish and its projection."""
    build = workbench.begin(catalog, dataset, partitions)
    catalog.staged(build, workbench.store(dataset, catalog).stage(build, workbench.frame(dataset, rows)))
    catalog.publish(build)
    catalog.release(build)
    return build


def follow(workbench: Workbench, catalog: Catalog, dataset: Dataset) -> int:
    return projection.follow(workbench.spark, catalog, Layout(workbench.settings.lake), dataset)


class Died(BaseException):
    """Stands for the end of the process."""


@dataclass
class Steps:
    """The steps that a follower takes in Spark and in PostgreSQL, of which it dies before one."""

    die_before: int
    taken: int = 0

    def take(self) -> None:
        self.taken += 1
        if self.taken == self.die_before:
            raise Died


@dataclass
class Stepping:
    """A session or a connection whose statements are steps. A dead process sends none, and so no steps end it twice."""

    inner: Any
    steps: Steps

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        if name not in {"sql", "execute"}:
            return attribute

        def send(*words: Any, **options: Any) -> Any:
            self.steps.take()
            return attribute(*words, **options)

        return send


def follow_until(workbench: Workbench, dataset: Dataset, step: int) -> bool:
    """Whether a follower died before this step; it takes a connection of its own, and leaves it as a kill would."""
    opened, steps = workbench.catalog(), Steps(step)
    catalog = replace(opened, connection=Stepping(opened.connection, steps))  # type: ignore[arg-type]
    try:
        projection.follow(Stepping(workbench.spark, steps), catalog, Layout(workbench.settings.lake), dataset)  # type: ignore[arg-type]
    except Died:
        return True
    finally:
        opened.connection.close()
    return False


def test_a_follower_that_dies_before_any_step_does_not_hide_what_is_gone_back_to(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    """It has moved partitions, and could not say so: what was shown before is current again by then."""
    before = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    shown = table(workbench, sales)
    step, died = 0, True
    while died:
        step += 1
        publish_without_following(
            workbench, catalog, sales, [PARIS, ZURICH, DETROIT], [(PARIS, "pen", 100 + step), (DETROIT, "cap", 3)]
        )
        died = follow_until(workbench, sales, step)
        build = workbench.begin(catalog, sales, [PARIS, ZURICH, DETROIT])
        workbench.store(sales, catalog).republish(build, list(before.values()), reason="wrong")
        catalog.release(build)
        assert table(workbench, sales) == shown, step
        assert catalog.lagging(sales.name) == {}
    assert step > 6


def test_a_follower_that_dies_before_any_step_of_making_the_table_anew_leaves_it_to_the_next(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    narrow = replace(sales, schema=Schema(tuple(column for column in COLUMNS.columns if column.name != "price")))
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    shown = table(workbench, sales)
    step, died = 0, True
    while died:
        step += 1
        # As by publishes with the one declaration and the other.
        catalog.register(narrow, None)
        died = follow_until(workbench, narrow, step)
        follow(workbench, catalog, narrow)
        assert table(workbench, sales) == shown, step
        assert "price" not in workbench.spark.table(statements.table_name(sales)).columns
        catalog.register(sales, None)
        follow(workbench, catalog, sales)
        # Code that is behind the last publish takes no column away.
        follow(workbench, catalog, narrow)
        assert "price" in workbench.spark.table(statements.table_name(sales)).columns
        assert table(workbench, sales) == shown, step
    assert step > 8


def test_the_table_follows_a_publish_and_lies_at_its_batch(workbench: Workbench, sales: Dataset) -> None:
    current = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    day = PARIS["day"]
    assert table(workbench, sales) == [(day, "Paris", "pen", 1), (day, "Zürich", "ink", 2)]
    for partition in (PARIS, ZURICH):
        assert locations(workbench, sales, partition).endswith(current[partition.path].location)


def test_a_rerun_moves_its_partition_to_its_batch_and_no_other(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    before = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    assert len(table(workbench, sales)) == 2
    after = workbench.publish(sales, [PARIS], [(PARIS, "pen", 10)])
    day = PARIS["day"]
    assert table(workbench, sales) == [(day, "Paris", "pen", 10), (day, "Zürich", "ink", 2)]
    assert locations(workbench, sales, PARIS).endswith(after[PARIS.path].batch_id.folder)
    assert locations(workbench, sales, ZURICH).endswith(before[ZURICH.path].batch_id.folder)
    assert catalog.lagging(sales.name) == {}
    assert follow(workbench, catalog, sales) == 0


def test_what_a_run_published_before_it_died_is_shown_by_the_next_publish(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 1)])
    publish_without_following(workbench, catalog, sales, [PARIS, key("Detroit")], [(PARIS, "pen", 2)])
    assert [row[-1] for row in table(workbench, sales)] == [1]
    workbench.publish(sales, [ZURICH], [(ZURICH, "ink", 3)])
    day = PARIS["day"]
    assert table(workbench, sales) == [(day, "Paris", "pen", 2), (day, "Zürich", "ink", 3)]
    assert catalog.lagging(sales.name) == {}


def test_following_catches_up_with_a_first_publish_that_never_made_the_table(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    publish_without_following(workbench, catalog, sales, [PARIS, ZURICH], [(PARIS, "pen", 1)])
    assert follow(workbench, catalog, sales) == 2
    assert follow(workbench, catalog, sales) == 0
    assert table(workbench, sales) == [(PARIS["day"], "Paris", "pen", 1)]


def test_a_partition_that_was_added_but_not_recorded_is_moved_to_what_is_current(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    # As if both runs had died after the metastore took the partitions and before the catalog could note it.
    catalog.forget_projection(sales.name)
    build = publish_without_following(
        workbench, catalog, sales, [PARIS, key("Detroit")], [(PARIS, "pen", 3), (key("Detroit"), "cap", 4)]
    )
    assert follow(workbench, catalog, sales) == 3
    day = PARIS["day"]
    assert table(workbench, sales) == [(day, "Detroit", "cap", 4), (day, "Paris", "pen", 3), (day, "Zürich", "ink", 2)]
    assert locations(workbench, sales, PARIS).endswith(build.batch_id.folder)
    assert catalog.lagging(sales.name) == {}


def test_partitions_that_the_table_has_already_are_moved_in_one_call(
    workbench: Workbench, catalog: Catalog, sales: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a repair, which finds that the table shows something else of them."""
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    publish_without_following(workbench, catalog, sales, [PARIS, ZURICH], [(PARIS, "pen", 3), (ZURICH, "ink", 4)])
    catalog.invalidate_projection(sales.name, [PARIS.path, ZURICH.path], [])
    monkeypatch.setattr(statements, "set_location_sql", None)
    assert follow(workbench, catalog, sales) == 2
    day = PARIS["day"]
    assert table(workbench, sales) == [(day, "Paris", "pen", 3), (day, "Zürich", "ink", 4)]


@pytest.mark.parametrize("lost", ["DROP TABLE {table}", "DROP DATABASE {db} CASCADE"])
def test_a_lost_metastore_is_rebuilt_with_all_that_is_current(
    workbench: Workbench, catalog: Catalog, sales: Dataset, lost: str
) -> None:
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    workbench.spark.sql(lost.format(table=statements.table_name(sales), db=f"`{sales.db}`"))
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 10)])
    day = PARIS["day"]
    assert table(workbench, sales) == [(day, "Paris", "pen", 10), (day, "Zürich", "ink", 2)]
    assert catalog.lagging(sales.name) == {}


def test_a_lost_partition_is_rebuilt(workbench: Workbench, catalog: Catalog, sales: Dataset) -> None:
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    workbench.spark.sql(f"ALTER TABLE {statements.table_name(sales)} DROP PARTITION (day='2013-01-05', store='Paris')")
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 10)])
    day = PARIS["day"]
    assert table(workbench, sales) == [(day, "Paris", "pen", 10), (day, "Zürich", "ink", 2)]


def test_a_lost_one_among_many_is_rebuilt(workbench: Workbench, catalog: Catalog, sales: Dataset) -> None:
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    workbench.spark.sql(f"ALTER TABLE {statements.table_name(sales)} DROP PARTITION (day='2013-01-05', store='Paris')")
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 10), (ZURICH, "ink", 20)])
    day = PARIS["day"]
    assert table(workbench, sales) == [(day, "Paris", "pen", 10), (day, "Zürich", "ink", 20)]
    assert catalog.lagging(sales.name) == {}


def test_many_are_moved_in_one_call_of_the_metastore_whatever_their_names(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = sales_dataset(StoreKind.LAKE, dimensions=(DAY, StaticDimension("store", ODD)))
    keys = [key(store) for store in ODD]
    workbench.publish(sales, keys, [(partition, "pen", place) for place, partition in enumerate(keys)])
    before = table(workbench, sales)
    calls = []
    of_many = statements.move_partitions_sql
    monkeypatch.setattr(
        statements, "move_partitions_sql", lambda *given: calls.append(len(given[1])) or of_many(*given)
    )
    monkeypatch.setattr(statements, "set_location_sql", None)
    monkeypatch.setattr(executing, "MOVE_AT_ONCE", 6)
    after = workbench.publish(sales, keys, [(partition, "pen", 100 + place) for place, partition in enumerate(keys)])
    assert calls == [6, 5]
    assert table(workbench, sales) == sorted((*row[:-1], 100 + row[-1]) for row in before)  # type: ignore[operator]
    shown = projection.shown(workbench.spark, sales)
    assert {path: shown[path].rpartition("/")[2] for path in after} == {
        path: batch.batch_id.folder for path, batch in after.items()
    }


def test_many_are_moved_one_by_one_where_spark_has_the_setting_and_not_our_class(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch, sales: Dataset
) -> None:
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    nobody = f"varve_nobody_{sales.db}"
    monkeypatch.setattr(statements, "METASTORE", nobody)
    monkeypatch.setattr(executing, "METASTORE", nobody)
    workbench.spark.conf.set(f"spark.sql.catalog.{nobody}", "nobody.There")
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 10), (ZURICH, "ink", 20)])
    workbench.spark.conf.unset(f"spark.sql.catalog.{nobody}")
    day = PARIS["day"]
    assert table(workbench, sales) == [(day, "Paris", "pen", 10), (day, "Zürich", "ink", 20)]


def test_a_lost_table_is_rebuilt_by_the_first_publish_of_another_partition(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 1)])
    workbench.spark.sql(f"DROP TABLE {statements.table_name(sales)}")
    workbench.publish(sales, [ZURICH], [(ZURICH, "ink", 2)])
    day = PARIS["day"]
    assert table(workbench, sales) == [(day, "Paris", "pen", 1), (day, "Zürich", "ink", 2)]


def test_partitions_of_any_characters_are_read_by_value_and_pruned(workbench: Workbench) -> None:
    sales = sales_dataset(StoreKind.LAKE, dimensions=(DAY, StaticDimension("store", ODD)))
    keys = [key(store) for store in ODD]
    workbench.publish(sales, keys, [(partition, "pen", place) for place, partition in enumerate(keys)])
    expected = sorted((PARIS["day"], store, "pen", place) for place, store in enumerate(ODD))
    assert table(workbench, sales) == expected
    assert workbench.read(sales) == expected
    # Each again by a run of its own, which writes by another way, and moves the location.
    again = ODD[:5]
    for place, store in enumerate(again):
        workbench.publish(sales, [key(store)], [(key(store), "ink", 100 + place)])
    renewed = sorted(
        (PARIS["day"], store, *(("ink", 100 + place) if store in again else ("pen", place)))
        for place, store in enumerate(ODD)
    )
    assert table(workbench, sales) == renewed
    assert workbench.read(sales) == renewed
    for place, store in enumerate(ODD):
        frame = workbench.spark.table(statements.table_name(sales)).where(f"store = {_sql(store)}")
        assert [row["sold"] for row in frame.collect()] == [100 + place if store in again else place]


def _sql(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def test_a_struct_with_fields_of_any_name_is_followed_by_its_table(workbench: Workbench, catalog: Catalog) -> None:
    who = ColumnType("STRUCT<`first-name`: STRING, `größe`: INT>")
    before = replace(
        sales_dataset(StoreKind.LAKE), schema=Schema((Column("who", who), Column("product", ColumnType.STRING)))
    )

    def frame(*columns: str) -> DataFrame:
        struct = "named_struct('first-name', 'Ann', 'größe', 170) AS who"
        return workbench.spark.sql(
            f"SELECT {', '.join((struct, *columns))}, DATE '2013-01-05' AS day, 'Paris' AS store"
        )

    workbench.publish_frame(before, [PARIS], frame("'pen' AS product"))
    after = replace(before, schema=Schema((*before.schema.columns, Column("n", ColumnType.BIGINT))))
    workbench.publish_frame(after, [PARIS], frame("'pen' AS product", "CAST(1 AS BIGINT) AS n"))
    assert catalog.lagging(after.name) == {}
    rows = workbench.spark.sql(f"SELECT who.`first-name`, n FROM {statements.table_name(after)}").collect()
    assert [tuple(row) for row in rows] == [("Ann", 1)]


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_a_table_or_view_of_somebody_else_is_refused_before_anything_is_written(
    workbench: Workbench, catalog: Catalog, kind: str
) -> None:
    dataset = sales_dataset(StoreKind.LAKE)
    name = statements.table_name(dataset)
    workbench.spark.sql(statements.create_database_sql(dataset))
    query = "AS SELECT 'pen' AS product, 1 AS theirs"
    workbench.spark.sql(f"CREATE {kind} {name} {'USING parquet ' if kind == 'TABLE' else ''}{query}")
    with pytest.raises(VarveError, match=r"of the metastore has its name, and is not Varve's: Nothing was published"):
        workbench.publish(dataset, [PARIS], [(PARIS, "ink", 2)])
    # Nor where the batches are there already, as those of a catalog that was lost.
    with pytest.raises(VarveError, match="is not Varve's"):
        follow(workbench, catalog, dataset)
    assert [tuple(row) for row in workbench.spark.table(name).collect()] == [("pen", 1)]
    workbench.spark.sql(f"DROP {kind} {name}")
    workbench.publish(dataset, [PARIS], [(PARIS, "ink", 2)])
    assert table(workbench, dataset) == [(*PARIS.values, "ink", 2)]


def test_statements_are_one_call_and_fail_as_by_themselves(
    workbench: Workbench, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, sales: Dataset
) -> None:
    from pyspark.errors import AnalysisException

    spark, asked = workbench.spark, list[str]()
    of_session = type(spark).sql

    def noted(session: Any, text: str, *further: Any, **options: Any) -> Any:
        asked.append(text)
        return of_session(session, text, *further, **options)

    monkeypatch.setattr(type(spark), "sql", noted)
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, 'it\'s \\ a "pen"', 1), (ZURICH, "ink", 2)])
    made = [text for text in asked if not text.startswith("SELECT")]
    monkeypatch.setattr(executing, "EXECUTE_AT_ONCE", 1)
    assert [text.split("(")[0] for text in made] == ["CALL varve_metastore.execute"] * 2, made
    table = statements.table_name(sales)
    with pytest.raises(AnalysisException) as lost:
        executing.execute(spark, f"ALTER TABLE {table} SET TBLPROPERTIES ('note' = 'a\\'b')", "DROP TABLE nobody.there")
    assert lost.value.getCondition() in executing.LOST
    # What came before the one that failed is done.
    assert "a'b" in str(spark.sql(f"SHOW TBLPROPERTIES {table}").collect())
    with pytest.raises(AnalysisException) as there:
        executing.execute(spark, statements.add_partitions_sql(sales, catalog.current(sales.name).values()))
    assert there.value.getCondition() == executing.ALREADY_THERE
