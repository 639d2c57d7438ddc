"""Tables of others: which partitions they have, what tells that one was changed, and rows that are taken or refused."""

from __future__ import annotations

import datetime as dt
import re
import time
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from varve.model.errors import BadInput, MissingUpstream, ServiceUnavailable, VarveError
from varve.model.partitions.key import PartitionKey
from varve.sources.external import jdbc, postgres
from varve.sources.external.read import open_external_table
from varve.sql.spark.run_errors import run_message
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from varve.model.dataset import Dataset
    from varve.services.settings import Settings
    from varve.sources.external.tables import ExternalSource, ListedPartition

pytestmark = pytest.mark.spark

HEADER = """CREATE DATASET shop.receipts ({columns}) PARTITIONED BY (day STRING, store STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-05'), shop IN ('O\\'Hare', 'Zürich "x"')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today, store = shop)
EXTERNAL OPTIONS ({options})
"""
COLUMNS = "product STRING, price DECIMAL(9, 2)"
ENDS = 'alter table "Sales".receipts add ends date; update "Sales".receipts set ends = \'-infinity\''
HARE, ZURICH = "O'Hare", 'Zürich "x"'
URL = "VARVE_TEST_SHOP_URL"


def declared(options: str, columns: str = COLUMNS) -> Dataset:
    text = HEADER.format(columns=columns, options=options)
    return compiled([SourceFile("receipts.sql", text)], {})["shop.receipts"].dataset


def opened(dataset: Dataset, settings: Settings, spark: SparkSession) -> ExternalSource:
    assert dataset.external is not None
    return open_external_table(settings, dataset.external, lambda: spark)


def key(day: int, store: str) -> PartitionKey:
    return PartitionKey.of(day=f"2022-03-{day:02}", store=store)


def rows(external: ExternalSource, dataset: Dataset, *keys: PartitionKey) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in external.read(dataset, keys).frame.collect())


class Shop:
    """The partner's database, with one table."""

    def __init__(self, url: str, settings: Settings, spark: SparkSession) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.settings, self.spark = settings, spark
        self.run('create schema "Sales"')
        self.run('create table "Sales".receipts (product text, price numeric, day date, store text, at timestamptz)')
        self.sell("2022-03-01", HARE, 1, 2)
        self.sell("2022-03-02", ZURICH, 3)

    def run(self, statement: str, parameters: tuple[object, ...] | None = None) -> None:
        self.connection.execute(statement, parameters)  # type: ignore[arg-type]

    def sell(self, day: str | None, store: str, *prices: float) -> None:
        for price in prices:
            insert = "insert into \"Sales\".receipts values ('x', %s, %s, %s, now())"
            self.run(insert, (price, day, store))

    def external(
        self, more: str = "", columns: str = COLUMNS, table: str = "Sales.receipts"
    ) -> tuple[Dataset, ExternalSource]:
        dataset = declared(f"source = 'postgres', table = '{table}', url = '{URL}'{more}", columns)
        return dataset, opened(dataset, self.settings, self.spark)

    def listed(self, more: str = "", table: str = "Sales.receipts") -> dict[PartitionKey, ListedPartition]:
        dataset, external = self.external(more, table=table)
        return dict(external.listed(dataset).partitions)


@pytest.fixture
def shop(
    fresh_database: str, settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv(URL, fresh_database)
    made = Shop(fresh_database, settings, spark)
    yield made
    made.connection.close()


def test_a_table_of_postgresql_has_the_partitions_that_its_rows_have(shop: Shop) -> None:
    shop.sell(None, HARE, 1)
    shop.sell("2022-02-01", HARE, 1)
    shop.sell("2022-03-03", "nobody's", 1)
    dataset, external = shop.external()
    listed = external.listed(dataset)
    assert set(listed.partitions) == {key(1, HARE), key(2, ZURICH)}
    assert listed.partitions[key(1, HARE)].size == 2
    assert "3 partitions are not taken" in listed.message()
    assert "day is NULL" in listed.message()
    assert set(external.listed(dataset, [key(2, ZURICH), key(4, HARE)]).partitions) == {key(2, ZURICH)}


@pytest.mark.parametrize(
    "change",
    [
        "insert into \"Sales\".receipts (day, store) values ('2022-03-01', 'O''Hare')",
        'update "Sales".receipts set price = 9 where price = 2',
        "update \"Sales\".receipts set price = price where day = '2022-03-01'",
        'delete from "Sales".receipts where price = 2',
    ],
)
def test_any_write_to_a_partition_changes_its_token_and_no_other(shop: Shop, change: str) -> None:
    before = shop.listed()
    shop.run('vacuum analyze "Sales".receipts')
    shop.run('vacuum full freeze "Sales".receipts')
    assert shop.listed() == before
    shop.run(change)
    after = shop.listed()
    assert after[key(1, HARE)].token != before[key(1, HARE)].token
    assert after[key(2, ZURICH)] == before[key(2, ZURICH)]


def test_a_transaction_that_began_early_and_committed_late_is_seen(shop: Shop, fresh_database: str) -> None:
    with psycopg.connect(fresh_database) as late:
        late.execute('update "Sales".receipts set price = 7 where price = 1')
        shop.run('update "Sales".receipts set price = 8 where price = 2')
        before = shop.listed()
        late.commit()
    assert shop.listed()[key(1, HARE)].token != before[key(1, HARE)].token


def test_of_a_view_a_column_tells_what_changed(shop: Shop) -> None:
    shop.run('create view "Sales".shown as select * from "Sales".receipts')
    with pytest.raises(VarveError, match="does not say which transactions wrote its rows"):
        shop.listed(table="Sales.shown")
    before = shop.listed(", changed = 'at'", "Sales.shown")
    shop.run('update "Sales".receipts set at = now() where price = 2')
    after = shop.listed(", changed = 'at'", "Sales.shown")
    assert [partition for partition in after if after[partition] != before[partition]] == [key(1, HARE)]


def test_a_table_of_many_parts_is_one_table(shop: Shop) -> None:
    shop.run('create table "Sales".parts (product text, price numeric, day date, store text) partition by list (day)')
    shop.run('create table "Sales".one partition of "Sales".parts default')
    shop.run('insert into "Sales".parts select product, price, day, store from "Sales".receipts')
    assert set(shop.listed(table="Sales.parts")) == {key(1, HARE), key(2, ZURICH)}


def test_rows_are_read_whole_by_this_process_and_by_tasks_of_spark(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (
        "product STRING, price DECIMAL(9, 2), n BIGINT, real DOUBLE, at TIMESTAMP, wall TIMESTAMP_NTZ, raw BINARY, "
        "tags ARRAY<STRING>, id STRING, ok BOOLEAN"
    )
    shop.run('drop table "Sales".receipts')
    shop.run("""create table "Sales".receipts as select 'a''"\\%' as product, 1.25 as price, 7 as n, 0.5::real as real,
        timestamptz '2022-03-01 12:00+02' as at, timestamp '2022-03-01 12:00' as wall, '\\x00ff'::bytea as raw,
        '["x", null]'::jsonb as tags, '00000000-0000-0000-0000-00000000000a'::uuid as id, null::boolean as ok,
        '2022-03-01'::text as day, 'O''Hare'::varchar as store, 'not declared' as other""")
    dataset, external = shop.external(columns=columns)
    frames = [external.read(dataset, [key(1, HARE), key(3, HARE)]).frame]
    monkeypatch.setattr(postgres, "_ROWS_FOR_SPARK", 0)
    frames.append(external.read(dataset, [key(1, HARE), key(3, HARE)]).frame)
    for frame in frames:
        (row,) = frame.withColumn("at", F.col("at").cast("string")).collect()
        assert [str(value) for value in row[:2]] == ["a'\"\\%", "1.25"]
        assert (row["n"], row["real"], row["at"], row["raw"]) == (7, 0.5, "2022-03-01 10:00:00", b"\x00\xff")
        assert (row["wall"].isoformat(), row["tags"], row["ok"]) == ("2022-03-01T12:00:00", ["x", None], None)
        assert (row["id"][-1], row["day"], row["store"]) == ("a", "2022-03-01", HARE)
        assert frame.columns[-2:] == ["day", "store"]


@pytest.mark.parametrize(
    ("columns", "change", "problem"),
    [
        ("product STRING, prize DOUBLE", "", "Sales.receipts has no column prize; it has product, price, day"),
        ("product STRING, price BIGINT", "", "price is declared BIGINT, found numeric"),
        ("product INT, price STRING", "", "product is declared INT, found text; price is declared STRING, found num"),
        (COLUMNS, 'update "Sales".receipts set price = 0.125', "holds a value that does not fit"),
        (COLUMNS, "update \"Sales\".receipts set price = 'NaN'", "holds a value that does not fit"),
        # Arrow's own arithmetic makes other numbers of these.
        (
            "price DECIMAL(38, 0)",
            'update "Sales".receipts set price = 9888244515508103224771869364016269889566',
            "holds a value that does not fit: column price: Decimal type with precision 40 does not fit",
        ),
        (
            "price DECIMAL(38, 18)",
            'update "Sales".receipts set price = 123456789012345678901234567890.5',
            "holds a value that does not fit: column price: ",
        ),
        (
            "at TIMESTAMP",
            "update \"Sales\".receipts set at = 'infinity'",
            "has infinity in the column at, which is no",
        ),
        ("ends DATE", ENDS, "has -infinity in the column ends, which is no"),
        (COLUMNS, 'drop table "Sales".receipts', "is not there"),
        (COLUMNS, 'drop schema "Sales" cascade', "is not there"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(shop: Shop, columns: str, change: str, problem: str) -> None:
    dataset, external = shop.external(columns=columns)
    if change:
        shop.run(change)
    with pytest.raises((BadInput, MissingUpstream), match=problem) as caught:
        rows(external, dataset, key(1, HARE))
    assert "shop.receipts: " in str(caught.value)


def test_a_server_that_is_not_there_is_told_without_its_password(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, message in (
        ("postgresql://nobody:secret@127.0.0.1:1/nowhere", "cannot be reached"),
        ("mysql://nobody:secret@127.0.0.1:1/nowhere", "is no PostgreSQL URL"),
        ("secret", "is no PostgreSQL URL"),
        ("", f"the environment variable {URL} is not set"),
    ):
        monkeypatch.setenv(URL, url)
        with pytest.raises(ServiceUnavailable, match=message) as caught:
            shop.listed()
        assert "secret" not in str(caught.value)


class Dump:
    """A table of the metastore that others write."""

    def __init__(self, settings: Settings, spark: SparkSession) -> None:
        self.settings, self.spark = settings, spark
        self.name = f"default.dump_{uuid.uuid4().hex[:8]}"
        frame = self.frame(("x", 1, "2022-03-01", HARE), ("y", 2, "2022-03-02", ZURICH))
        frame.write.partitionBy("day", "store").saveAsTable(self.name)

    def frame(self, *rows: tuple[object, ...]) -> object:
        return self.spark.createDataFrame(list(rows), "product STRING, price INT, day STRING, store STRING")

    def external(self, more: str = "", columns: str = "product STRING, price INT") -> tuple[Dataset, ExternalSource]:
        dataset = declared(f"source = 'table', table = '{self.name}'{more}", columns)
        return dataset, opened(dataset, self.settings, self.spark)

    def listed(self, more: str = "") -> dict[PartitionKey, ListedPartition]:
        dataset, external = self.external(more)
        return dict(external.listed(dataset).partitions)

    def overwrite(self, *rows: tuple[object, ...]) -> None:
        self.frame(*rows).write.mode("overwrite").insertInto(self.name)  # type: ignore[attr-defined]


@pytest.fixture
def dump(settings: Settings, spark: SparkSession) -> Iterator[Dump]:
    made = Dump(settings, spark)
    yield made
    spark.sql(f"DROP TABLE IF EXISTS {made.name}")


def test_a_table_of_the_metastore_tells_by_its_files_what_changed(dump: Dump) -> None:
    before = dump.listed()
    assert set(before) == {key(1, HARE), key(2, ZURICH)}
    assert dump.listed() == before
    # The same partition with the same rows, and a new one; then one that is empty, and one that is nobody's.
    dump.overwrite(("x", 1, "2022-03-01", HARE), ("z", 3, "2022-03-03", HARE))
    dump.spark.sql(f"ALTER TABLE {dump.name} ADD PARTITION (day = '2022-03-04', store = 'Zürich \"x\"')")
    dump.overwrite(("n", 0, None, HARE), ("n", 0, "2022-02-01", HARE))
    after = dump.listed()
    assert {partition for partition in after if after[partition] != before.get(partition)} == {
        key(1, HARE),
        key(3, HARE),
        key(4, ZURICH),
    }
    dataset, external = dump.external()
    assert "2 partitions are not taken" in external.listed(dataset).message()
    assert rows(external, dataset, key(1, HARE), key(4, ZURICH)) == [("x", 1, "2022-03-01", HARE)]
    assert set(external.listed(dataset, [key(4, ZURICH)]).partitions) == {key(4, ZURICH)}
    dump.spark.sql(f"ALTER TABLE {dump.name} DROP PARTITION (day = '2022-03-01', store = 'O\\'Hare')")
    assert key(1, HARE) not in dump.listed()


def test_a_table_that_is_not_partitioned_tells_by_a_column_what_changed(dump: Dump) -> None:
    plain = f"{dump.name}_plain"
    dump.spark.table(dump.name).write.saveAsTable(plain)
    dump.name, whole = plain, dump.name
    try:
        with pytest.raises(VarveError, match="is not partitioned by day, store") as caught:
            dump.listed()
        assert "changed = 'updated_at'" in str(caught.value)
        before = dump.listed(", changed = 'price'")
        dump.frame(("w", 9, "2022-03-02", ZURICH)).write.insertInto(plain)  # type: ignore[attr-defined]
        after = dump.listed(", changed = 'price'")
        assert [partition for partition in after if after[partition] != before[partition]] == [key(2, ZURICH)]
        dataset, external = dump.external(", changed = 'prize'")
        with pytest.raises(BadInput, match="has no column prize; it has product, price, day, store"):
            external.listed(dataset)
    finally:
        dump.spark.sql(f"DROP TABLE {plain}")
        dump.name = whole


def test_a_table_that_is_gone_is_told_by_name(dump: Dump) -> None:
    dataset, external = dump.external()
    assert external.listed(dataset).partitions
    dump.spark.sql(f"DROP TABLE {dump.name}")
    for ask in (lambda: external.listed(dataset), lambda: external.read(dataset, [key(1, HARE)])):
        with pytest.raises(MissingUpstream, match=f"there is no table {dump.name} in the metastore"):
            ask()


def test_a_partition_whose_key_is_no_date_does_not_stop_those_that_are(dump: Dump) -> None:
    text = HEADER.replace("day STRING", "day DATE").replace("DATE_FORMAT(t, 'yyyy-MM-dd')", "CAST(t AS DATE)")
    options = f"source = 'table', table = '{dump.name}'"
    dump.overwrite(("x", 1, "test", HARE))
    # Another spelling of a day of the table: a partition of its own, whose changes nobody would see.
    dump.overwrite(("z", 7, "2022-3-1", HARE))
    for changed, taken in (("", 1), (", changed = 'price'", 2)):
        of_dates = text.format(columns="product STRING, price INT", options=options + changed)
        dataset = compiled([SourceFile("receipts.sql", of_dates)], {})["shop.receipts"].dataset
        external = opened(dataset, dump.settings, dump.spark)
        listed = external.listed(dataset)
        assert len(listed.partitions) == 2
        assert len(listed.strays) == 3 - taken
        first = PartitionKey.of(day=dt.date(2022, 3, 1), store=HARE)
        both = [(product, price, dt.date(2022, 3, 1), HARE) for product, price in (("x", 1), ("z", 7))]
        assert rows(external, dataset, first) == both[:taken]
        assert set(external.listed(dataset, [first]).partitions) == {first}


def test_keys_that_are_instants_are_listed_in_utc_wherever_the_process_is(
    dump: Dump, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{dump.name}_hours"
    text = (
        "CREATE DATASET shop.hours (n INT) PARTITIONED BY (hour TIMESTAMP) "
        "FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '2022-10-30', END '2022-10-31') INSERT (hour = t) "
        f"EXTERNAL OPTIONS (source = 'table', table = '{name}', changed = 'at')"
    )
    dataset = compiled([SourceFile("hours.sql", text)], {})["shop.hours"].dataset
    dump.spark.sql(
        f"CREATE TABLE {name} AS SELECT n, hour, hour AS at FROM VALUES (1, TIMESTAMP '2022-10-30T00:00:00Z'), "
        "(2, TIMESTAMP '2022-10-30T01:00:00Z') AS v(n, hour)"
    )
    monkeypatch.setenv("TZ", "Europe/Zurich")
    time.tzset()
    try:
        listed = opened(dataset, dump.settings, dump.spark).listed(dataset)
    finally:
        monkeypatch.undo()
        time.tzset()
        dump.spark.sql(f"DROP TABLE {name}")
    assert {key.path: entry.token for key, entry in listed.partitions.items()} == {
        "hour=2022-10-30 00%3A00%3A00": "1 rows, 2022-10-30 00:00:00",
        "hour=2022-10-30 01%3A00%3A00": "1 rows, 2022-10-30 01:00:00",
    }


def test_a_view_cannot_have_what_only_the_names_of_folders_say(dump: Dump) -> None:
    text = (
        "CREATE DATASET shop.days (product STRING, store STRING) PARTITIONED BY (day STRING) "
        "FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-05') "
        f"INSERT (day = DATE_FORMAT(t, 'yyyy-MM-dd')) {{}} OPTIONS (source = 'table', table = '{dump.name}')"
    )
    for body in ("EXTERNAL", "EXTERNAL VIEW"):
        dataset = compiled([SourceFile("days.sql", text.format(body))], {})["shop.days"].dataset
        external = opened(dataset, dump.settings, dump.spark)
        if body == "EXTERNAL":
            assert rows(external, dataset, PartitionKey.of(day="2022-03-01")) == [("x", HARE, "2022-03-01")]
            continue
        with pytest.raises(BadInput, match=f"store is a partition column of {dump.name}, so no file has it"):
            external.listed(dataset)


class Till:
    """A database of Spark's own JVM, which it has a driver for: Derby."""

    columns: ClassVar = {"product": "string", "price": "decimal(9,2)", "day": "date", "store": "string",
                         "at": "timestamp_ntz"}  # fmt: skip

    def __init__(self, folder: Path, settings: Settings, spark: SparkSession) -> None:
        self.url = f"jdbc:derby:{folder}/till;create=true"
        self.settings, self.spark = settings, spark
        self.sell(("x", 1, "2022-03-01", HARE, "2022-03-01 10:00"), ("y", 2, "2022-03-02", ZURICH, "2022-03-02 10:00"))

    def sell(self, *rows: tuple[object, ...], mode: str = "append") -> None:
        texts = ", ".join(f"{name} STRING" for name in self.columns)
        frame = self.spark.createDataFrame([tuple(None if v is None else str(v) for v in row) for row in rows], texts)
        typed = frame.select(*[F.col(name).cast(of) for name, of in self.columns.items()])
        options = {
            "url": self.url,
            "dbtable": "APP.receipts",
            "createTableColumnTypes": "product VARCHAR(20), store VARCHAR(20)",
        }
        # In one part: parts are written at once, and a read would meet the rows in another order each time.
        typed.coalesce(1).write.format("jdbc").options(**options).mode(mode).save()

    def external(
        self, columns: str = COLUMNS, table: str = "APP.receipts", changed: str = "at"
    ) -> tuple[Dataset, ExternalSource]:
        dataset = declared(f"source = 'jdbc', table = '{table}', url = '{URL}', changed = '{changed}'", columns)
        return dataset, opened(dataset, self.settings, self.spark)

    def listed(self) -> dict[PartitionKey, ListedPartition]:
        dataset, external = self.external()
        return dict(external.listed(dataset).partitions)


@pytest.fixture
def till(settings: Settings, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Till:
    made = Till(tmp_path, settings, spark)
    monkeypatch.setenv(URL, made.url)
    return made


def test_a_table_behind_a_jdbc_driver_has_the_partitions_that_its_rows_have(till: Till) -> None:
    before = till.listed()
    assert set(before) == {key(1, HARE), key(2, ZURICH)}
    assert till.listed() == before
    till.sell(
        ("z", 3, "2022-03-02", ZURICH, "2022-03-02 09:00"),
        ("n", 0, None, HARE, "2022-03-02 09:00"),
        ("n", 0, "2022-02-01", HARE, "2022-03-02 09:00"),
    )
    dataset, external = till.external()
    listed = external.listed(dataset)
    assert {partition for partition in listed.partitions if listed.partitions[partition] != before[partition]} == {
        key(2, ZURICH)
    }
    assert listed.partitions[key(2, ZURICH)].size == 2
    assert "2 partitions are not taken" in listed.message()
    assert set(external.listed(dataset, [key(2, ZURICH), key(4, HARE)]).partitions) == {key(2, ZURICH)}
    assert rows(external, dataset, key(2, ZURICH), key(1, HARE)) == [
        ("x", Decimal("1.00"), "2022-03-01", HARE),
        ("y", Decimal("2.00"), "2022-03-02", ZURICH),
        ("z", Decimal("3.00"), "2022-03-02", ZURICH),
    ]


def test_the_database_is_asked_for_the_partitions_and_no_others(till: Till, capsys: pytest.CaptureFixture[str]) -> None:
    dataset, external = till.external()
    external.read(dataset, [key(1, HARE)]).frame.explain()
    plan = capsys.readouterr().out
    assert "EqualTo(day,2022-03-01)" in plan
    assert "EqualTo(store,O'Hare)" in plan
    keys = [key(day, store) for day in range(1, 5) for store in (HARE, ZURICH)]
    assert len(rows(external, dataset, *keys)) == 2


def test_years_of_partitions_are_read_at_once_from_behind_a_jdbc_driver(till: Till) -> None:
    dataset, external = till.external()
    days = [(dt.date(2022, 1, 1) + dt.timedelta(days=n)).isoformat() for n in range(3 * 365)]
    keys = [PartitionKey.of(day=day, store=HARE) for day in days]
    assert rows(external, dataset, *keys) == [("x", Decimal("1.00"), "2022-03-01", HARE)]
    assert set(external.listed(dataset, keys).partitions) == {key(1, HARE)}


def of_stores(kind: str, keys: str) -> Dataset:
    text = f"""CREATE DATASET shop.receipts (product STRING) PARTITIONED BY (store {kind}) FOR store IN ({keys})
    EXTERNAL OPTIONS (source = 'jdbc', table = 'APP.receipts', url = '{URL}', changed = 'at')"""
    return compiled([SourceFile("receipts.sql", text)], {})["shop.receipts"].dataset


def test_a_key_with_a_backslash_is_no_escape_and_no_sql(till: Till, capsys: pytest.CaptureFixture[str]) -> None:
    key, hostile = PartitionKey.of(store="a\\b"), PartitionKey.of(store="\\' OR 1=1 -- ")
    for number, of in enumerate((key, hostile)):
        till.sell((number, 1, "2022-03-01", of["store"], "2022-03-01 10:00"))
    dataset = of_stores("STRING", "'a\\\\b', '\\\\\\' OR 1=1 -- '")
    external = opened(dataset, till.settings, till.spark)
    for of in (key, hostile):
        frame = external.read(dataset, [of]).frame
        frame.explain()
        # MySQL takes a backslash for an escape, in which Spark's texts do not go by it.
        assert "EqualTo(store" not in capsys.readouterr().out
        assert [row["store"] for row in frame.collect()] == [of["store"]]
        assert set(external.listed(dataset, [of]).partitions) == {of}


def test_a_change_of_any_spelling_of_a_key_is_one_of_its_partition(till: Till) -> None:
    till.sell(("a", 1, "2022-03-01", "3", "2022-03-01 10:00"), ("b", 1, "2022-03-01", "03", "2022-03-01 10:00"))
    dataset, key = of_stores("BIGINT", "3, 4"), PartitionKey.of(store=3)
    external = opened(dataset, till.settings, till.spark)
    tokens = set()
    for spelt in ("3", "03", "03", "3"):
        for listed in (external.listed(dataset), external.listed(dataset, [key])):
            assert set(listed.partitions) == {key}
            tokens.add(listed.partitions[key].token)
        till.sell(("c", 1, "2022-03-02", spelt, "2022-03-02 10:00"))
    assert len(tokens) == 4
    # Stores that are no numbers are in no partition.
    assert rows(external, dataset, key) == [("a", 3), ("b", 3), *[("c", 3)] * 4]
    assert external.listed(dataset).partitions[key].size == 6


def test_texts_that_mysql_takes_for_the_same_are_told_apart(till: Till, capsys: pytest.CaptureFixture[str]) -> None:
    dataset, external = till.external()
    assert isinstance(external, jdbc.JdbcTable)
    of_hare, texts = [PartitionKey.of(store=HARE)], {"store"}
    asked = external._load(dataset, "APP.receipts").where(jdbc._any_of(of_hare, texts, jdbc._between))
    exact = asked.where(jdbc._any_of(of_hare, texts, jdbc._same_bytes))
    exact.explain()
    plan = capsys.readouterr().out
    # MySQL is asked, and whatever it gives, Spark does not take the second condition for decided by the first one.
    assert "GreaterThanOrEqual(store,O'Hare)" in plan
    assert "cast(store" in plan
    assert [row["store"] for row in exact.collect()] == [HARE]


def test_what_a_jdbc_driver_cannot_do_is_told(till: Till, monkeypatch: pytest.MonkeyPatch) -> None:
    for (dataset, external), message in (
        (till.external(table="APP.nothing"), r"APP\.nothing \(VARVE_TEST_SHOP_URL\) cannot be read: .*NOTHING"),
        (till.external(changed="moved"), "has no column moved; it has product, price, day, store, at"),
    ):
        with pytest.raises(VarveError, match=message):
            external.listed(dataset)
    dataset, external = till.external(columns="product STRING, prize INT")
    with pytest.raises(BadInput, match="has no column prize; it has product, "):
        external.read(dataset, [key(1, HARE)])
    monkeypatch.setenv(URL, "jdbc:nosuch://me:secret@host/db")
    with pytest.raises(
        ServiceUnavailable, match=r"Spark has no driver for this database\. .*name its class too"
    ) as caught:
        till.listed()
    assert "secret" not in str(caught.value)
    monkeypatch.setenv(URL, "jdbc:oracle:thin:me/secret@host/db")
    with pytest.raises(ServiceUnavailable, match=r"this database, oracle\.jdbc\.OracleDriver\. Name its jar") as caught:
        till.listed()
    assert "secret" not in str(caught.value)
    own = f"source = 'jdbc', table = 'APP.receipts', url = '{URL}', changed = 'at', driver = 'com.example.Driver'"
    dataset = declared(own)
    with pytest.raises(ServiceUnavailable, match=r"this database, com\.example\.Driver\. "):
        opened(dataset, till.settings, till.spark).listed(dataset)
    with pytest.raises(
        VarveError, match=r"'two words' is no name of a class; write driver = 'org\.postgresql\.Driver'"
    ):
        declared(own.replace("com.example.Driver", "two words"))
    monkeypatch.delenv(URL)
    with pytest.raises(ServiceUnavailable, match=f"the environment variable {URL} is not set"):
        till.listed()


def test_numbers_that_a_database_gives_no_scale_are_taken_to_the_last_digit_or_refused(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Derby has 31 digits at most, where Spark gives a number without a scale all 38 that it has.
    monkeypatch.setattr(jdbc, "DECIMAL_DIGITS", 31)
    till.columns = till.columns | {"price": "decimal(31,18)", "number": "decimal(31,10)"}
    long = "1234567.123456789012345678"
    sold = ("2022-03-01", HARE, "2022-03-01 10:00")
    till.sell(("x", "12.50", *sold, "7"), ("y", long, *sold, "-3e2"), ("z", None, *sold, None), mode="overwrite")
    dataset, external = till.external("product STRING, price DECIMAL(25, 18), number BIGINT")
    assert [row[:3] for row in rows(external, dataset, key(1, HARE))] == [
        ("x", Decimal("12.50"), 7), ("y", Decimal(long), -300), ("z", None, None),
    ]  # fmt: skip
    for columns, refused in (
        ("product STRING, price DECIMAL(18, 2)", rf"price is declared DECIMAL\(18,2\), and {long} stands there"),
        ("product STRING, price INT", "price is declared INT, and 12.5(0*) stands there"),
        ("product STRING, number TINYINT", r"number is declared TINYINT, and -300\.0* stands there"),
    ):
        dataset, external = till.external(columns)
        with pytest.raises(PySparkException) as caught:
            rows(external, dataset, key(1, HARE))
        assert re.fullmatch(rf"{refused} in a row of day=2022-03-01/store=O'Hare\.", run_message(caught.value))
    # What is no number exactly is refused as ever.
    dataset, external = till.external("product STRING, price DOUBLE")
    assert external.read(dataset, [key(1, HARE)]).frame.schema["price"].dataType.simpleString() == "decimal(31,18)"


def test_a_key_that_is_a_number_without_a_scale_is_the_whole_number_that_it_is(till: Till) -> None:
    till.columns = till.columns | {"number": "decimal(31,10)"}
    day = ("2022-03-01", HARE, "2022-03-01 10:00")
    till.sell(("x", 1, *day, 7), ("y", 2, *day, "7.5"), ("z", 3, *day, -300), ("w", 4, *day, 40), mode="overwrite")
    text = f"""CREATE DATASET shop.receipts (product STRING) PARTITIONED BY (number BIGINT) FOR n IN (7, -300, 40)
    INSERT (number = n)
    EXTERNAL OPTIONS (source = 'jdbc', table = 'APP.receipts', url = '{URL}', changed = 'at')"""
    dataset = compiled([SourceFile("receipts.sql", text)], {})["shop.receipts"].dataset
    external = opened(dataset, till.settings, till.spark)
    listed = external.listed(dataset)
    assert {partition.path for partition in listed.partitions} == {"number=-300", "number=40", "number=7"}
    assert list(listed.strays) == ["number=7.5000000000"]
    assert rows(external, dataset, *listed.partitions) == [("w", 40), ("x", 7), ("z", -300)]


def unpartitioned(options: str, settings: Settings, spark: SparkSession) -> tuple[Dataset, ExternalSource]:
    """The same table as a dataset without partitions: its partition columns there are columns like any other."""
    text = f"CREATE DATASET shop.receipts (product STRING, price INT, store STRING) EXTERNAL OPTIONS ({options})"
    dataset = compiled([SourceFile("receipts.sql", text)], {})["shop.receipts"].dataset
    return dataset, opened(dataset, settings, spark)


ALL = PartitionKey.of()


def whole(dataset: Dataset, external: ExternalSource) -> ListedPartition:
    """What is listed of the one partition that there is."""
    listed = external.listed(dataset)
    assert (set(listed.partitions), listed.strays) == ({ALL}, {})
    assert external.listed(dataset, [ALL]) == listed
    return listed.partitions[ALL]


def test_a_dataset_without_partitions_is_a_whole_table_of_postgresql(shop: Shop) -> None:
    shop.run('alter table "Sales".receipts alter price type int')
    dataset, external = unpartitioned(
        f"source = 'postgres', table = 'Sales.receipts', url = '{URL}'", shop.settings, shop.spark
    )
    before = whole(dataset, external)
    assert before.size == 3
    assert rows(external, dataset, ALL) == [("x", 1, HARE), ("x", 2, HARE), ("x", 3, ZURICH)]
    shop.run('update "Sales".receipts set price = 9 where price = 3')
    assert whole(dataset, external).token != before.token
    # A table without rows is one too.
    shop.run('delete from "Sales".receipts')
    assert whole(dataset, external).size == 0
    assert rows(external, dataset, ALL) == []


def test_a_dataset_without_partitions_is_a_whole_table_of_the_metastore_partitioned_or_not(dump: Dump) -> None:
    plain = f"{dump.name}_plain"
    dump.spark.table(dump.name).write.saveAsTable(plain)
    try:
        for name in (dump.name, plain):
            dataset, external = unpartitioned(f"source = 'table', table = '{name}'", dump.settings, dump.spark)
            before = whole(dataset, external)
            assert rows(external, dataset, ALL) == [("x", 1, HARE), ("y", 2, ZURICH)]
            dump.frame(("w", 9, "2022-03-07", ZURICH)).write.insertInto(name)  # type: ignore[attr-defined]
            assert whole(dataset, external).token != before.token
            assert len(rows(external, dataset, ALL)) == 3
        by_column = unpartitioned(f"source = 'table', table = '{plain}', changed = 'price'", dump.settings, dump.spark)
        assert (whole(*by_column).size, whole(*by_column).token.endswith(", 9")) == (3, True)
    finally:
        dump.spark.sql(f"DROP TABLE {plain}")


def test_a_dataset_without_partitions_is_a_whole_table_behind_a_jdbc_driver(till: Till) -> None:
    options = f"source = 'jdbc', table = 'APP.receipts', url = '{URL}', changed = 'at'"
    dataset, external = unpartitioned(options, till.settings, till.spark)
    before = whole(dataset, external)
    till.sell(("z", 3, "2022-03-02", ZURICH, "2022-03-02 09:00"))
    assert whole(dataset, external).token != before.token
    found = rows(external, dataset, ALL)
    assert [(row[0], int(float(str(row[1]))), row[2]) for row in found] == [
        ("x", 1, HARE),
        ("y", 2, ZURICH),
        ("z", 3, ZURICH),
    ]


# What the extension citext makes, of which the suite's server has none.
CITEXT = """
    set search_path = "Sales", public; create type citext;
    create function i(cstring) returns citext language internal immutable strict as 'textin';
    create function o(citext) returns cstring language internal immutable strict as 'textout';
    create type citext (input = i, output = o, like = text, category = 'S', collatable = true);
    create cast (citext as text) without function as implicit;
    create cast (text as citext) without function as assignment;
    create function c(citext, citext) returns int language sql immutable strict
        as $$ select pg_catalog.bttextcmp(lower($1::text), lower($2::text)) $$;
    create function e(citext, citext) returns bool language sql immutable strict as $$ select "Sales".c($1, $2) = 0 $$;
    create function l(citext, citext) returns bool language sql immutable strict as $$ select "Sales".c($1, $2) < 0 $$;
    create operator = (function = e, leftarg = citext, rightarg = citext);
    create operator < (function = l, leftarg = citext, rightarg = citext);
    create operator class of_citext default for type citext using btree as
        operator 1 <, operator 3 =, function 1 c(citext, citext);
    create domain code as citext;
"""


@pytest.mark.parametrize("kind", ["citext", "code"])
def test_keys_that_postgresql_takes_for_the_same_are_partitions_of_their_own(shop: Shop, kind: str) -> None:
    shop.run(CITEXT)
    shop.run(f"alter table receipts alter store type {kind}")
    shop.sell("2022-03-01", HARE.upper(), 9)
    dataset, external = shop.external()
    listed = external.listed(dataset)
    assert listed.partitions[key(1, HARE)].size == 2
    assert "O'HARE" in listed.message()
    assert external.listed(dataset, [key(1, HARE)]).partitions == {key(1, HARE): listed.partitions[key(1, HARE)]}
    assert {row[3] for row in rows(external, dataset, key(1, HARE))} == {HARE}


@pytest.mark.parametrize(("kind", "found"), [("DATE", "text"), ("DATE", "character varying"), ("INT", "text")])
def test_keys_that_a_table_spells_as_texts_are_not_taken_for_dates_or_numbers(
    shop: Shop, kind: str, found: str
) -> None:
    shop.run(f'create table "Sales".texts (product text, day {found})')
    shop.run("insert into \"Sales\".texts values ('x', '2022-03-01')")
    today = "CAST(t AS DATE)" if kind == "DATE" else "CAST(DATE_FORMAT(t, 'yyyyMMdd') AS INT)"
    text = (
        f"CREATE DATASET shop.texts (product STRING) PARTITIONED BY (day {kind}) "
        f"FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01') INSERT (day = {today}) "
        f"EXTERNAL OPTIONS (source = 'postgres', table = 'Sales.texts', url = '{URL}')"
    )
    dataset = compiled([SourceFile("texts.sql", text)], {})["shop.texts"].dataset
    message = f"does not fit the declaration: day is declared {kind}, found {found}"
    with pytest.raises(BadInput, match=message):
        opened(dataset, shop.settings, shop.spark).listed(dataset)


def test_a_data_column_called_location_is_not_where_the_files_are(settings: Settings, spark: SparkSession) -> None:
    name = f"default.located_{uuid.uuid4().hex[:8]}"
    frame = spark.createDataFrame([("Rome", 1, "2022-03-01", HARE)], "Location STRING, n INT, day STRING, store STRING")
    frame.write.partitionBy("day", "store").saveAsTable(name)
    try:
        dataset = declared(f"source = 'table', table = '{name}'", "Location STRING, n INT")
        external = opened(dataset, settings, spark)
        assert set(external.listed(dataset).partitions) == {key(1, HARE)}
        assert rows(external, dataset, key(1, HARE)) == [("Rome", 1, "2022-03-01", HARE)]
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_a_folder_whose_name_arrow_has_encoded_is_the_partition_that_it_spells(
    settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    columns = {
        "product": ["pen", "ink"], "price": pa.array([1, 2], pa.decimal128(9, 2)), "day": ["2022-03-01"] * 2,
        "store": [HARE, ZURICH],
    }  # fmt: skip
    pq.write_to_dataset(pa.table(columns), tmp_path, partition_cols=["day", "store"])
    assert [path.name for path in tmp_path.glob("*/store=Z*")] == ["store=Z%C3%BCrich%20%22x%22"]
    dataset = declared(f"source = 'parquet', folder = '{tmp_path}'")
    external, keys = opened(dataset, settings, spark), (key(1, HARE), key(1, ZURICH))
    assert external.listed(dataset).partitions.keys() == {*keys}
    assert rows(external, dataset, *keys) == [
        ("ink", Decimal("2.00"), "2022-03-01", ZURICH),
        ("pen", Decimal("1.00"), "2022-03-01", HARE),
    ]
