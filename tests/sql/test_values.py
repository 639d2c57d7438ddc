"""Functions that only Spark evaluates, in conditions on partitions: it is asked once, and plans are as tight as it is.

The oracle is the author's condition in a plain Spark session, over the values of the partition columns.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from varve.planning.mapping.partition_subset import PartitionBox
from varve.sql.cache import Cache
from varve.sql.partitions.value_questions import OpenCall
from varve.sql.spark.values import answers_by_spark, values_by_spark
from varve.sql.sql_project import load_usable
from varve.sql.values import FILE, ValueAnswers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from varve.sql.files.sql_files import SqlFiles

pytestmark = pytest.mark.spark

NOW = dt.datetime.now(dt.UTC)
# Days up to now: what a plan lists grows while these tests are kept.
FIRST = (NOW - dt.timedelta(days=40)).date()
STORES = ("L'Aquila", "Lyon", "Oslo", "Paris")
_IN_SQL = ", ".join("'" + store.replace("'", "''") + "'" for store in STORES)
SALES = f"""\
CREATE DATASET shop.sales (n BIGINT)
  PARTITIONED BY (day DATE, store STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{FIRST}'),
      store IN ({_IN_SQL})
  INSERT (day = CAST(t AS DATE), store = store)
EXTERNAL;
"""
HOURS = f"""\
CREATE DATASET shop.hours (n BIGINT)
  PARTITIONED BY (at TIMESTAMP)
  FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '{(NOW - dt.timedelta(days=3)).date()}')
  INSERT (at = t)
EXTERNAL;
"""
READER = f"""\
CREATE DATASET shop.reader (n BIGINT)
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{FIRST}')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
AS
"""
# The condition on the columns of shop.sales `s`, for the scope of the first day, and the same as Spark is to see it.
CONDITIONS = {
    "soundex(s.store) = 'P620'": "",
    "SoundEx( `s`.`store` ) IN ('L500', soundex('Oslo'))": "",
    "date_format(s.day, 'EEEE') = 'Monday'": "",
    "DATE_FORMAT(s.day, 'EEEE') = date_format(today, 'EEEE')":
        "date_format(s.day, 'EEEE') = date_format({day}, 'EEEE')",
    "dayname(s.day) = dayname(:today) AND crc32(s.store) % 2 = 0":
        "dayname(s.day) = dayname({day}) AND crc32(s.store) % 2 = 0",
    "md5(concat(s.store, '{}()', s.day)) < '8'": "",
    "NOT (levenshtein(s.store, 'Paros') > 2)": "",
    "initcap(translate(s.store, 'aeiou', 'eioua')) LIKE 'P%'": "",
    "make_interval(0, 0, 0, 1) IS NOT NULL AND ascii(s.store) = 80": "ascii(s.store) = 80",
    "xxhash64(s.store, s.day) % 3 = 0": "",
    "to_char(day(s.day), '99') = ' 7' OR soundex(s.store) = 'O240'": "",
    "array_position(array('Oslo', 'Lyon'), s.store) > 0": "",
    "nullif(soundex(s.store), 'P620') IS NULL": "",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "assets"
    folder.mkdir()
    (folder / "sales.sql").write_text(SALES)
    (folder / "hours.sql").write_text(HOURS)
    return folder


def asked(folder: Path, spark: SparkSession, now: dt.datetime = NOW) -> SqlFiles:
    """What `varve check` does with the functions in conditions, in a session that is given."""
    files = load_usable(folder, cache=Cache())
    for question in files.value_questions.values():
        sql = question.parsed()
        answers = answers_by_spark(question, files.value_answers.of(sql), lambda: spark, now)
        files.value_answers.keep(sql, answers.values())
    files.value_answers.write(folder)
    return load_usable(folder, cache=Cache())


def read(files: SqlFiles, upstream: str, name: str = "shop.reader") -> set[tuple[object, ...]]:
    """The values of the partitions that the first partition of a dataset reads."""
    asset = files.checked()[name]
    first = next(iter(asset.dataset.partitioning.keys(now=NOW)))
    ((_, boxes),) = asset.dependency(upstream).read_by([first], now=NOW)
    return {key.values for box in boxes for key in box.partitions()}


def test_conditions_are_planned_as_spark_evaluates_them(folder: Path, spark: SparkSession) -> None:
    for place, condition in enumerate(CONDITIONS):
        text = READER.replace("shop.reader", f"shop.reader{place}")
        (folder / f"reader{place}.sql").write_text(f"{text}SELECT s.n FROM shop.sales s WHERE {condition};\n")
    files = asked(folder, spark)
    sales = files.checked()["shop.sales"].dataset
    keys = [key.values for key in sales.partitioning.keys(now=NOW)]
    assert len(keys) >= 160
    frame = spark.createDataFrame(keys, "day DATE, store STRING").alias("s")
    for place, (condition, in_spark) in enumerate(CONDITIONS.items()):
        plain = (in_spark or condition).replace("{day}", f"DATE '{FIRST}'")
        expected = {tuple(row) for row in frame.where(plain).collect()}
        assert 0 < len(expected) < len(keys), condition
        assert read(files, "shop.sales", f"shop.reader{place}") == expected, condition


@pytest.mark.parametrize("let", ["date_add(today, 1000)", "CAST(date_add(today, 1000) AS STRING)"], ids=["far", "text"])
def test_one_call_of_columns_with_other_values_and_of_another_type(folder: Path, spark: SparkSession, let: str) -> None:
    """Either side is asked for, though the other side is not looked at before the first one has its values."""
    reader = READER.replace("AS DATE)\n", f"AS DATE), far = {let}\n", 1)
    condition = "dayname(day) = dayname(far) AND coalesce(soundex(store), dayname(far)) = 'P620'"
    (folder / "reader.sql").write_text(f"{reader}SELECT n FROM shop.sales WHERE {condition};\n")
    weekday = (FIRST + dt.timedelta(days=1_000)).weekday()
    days = [FIRST + dt.timedelta(days=number) for number in range((NOW.date() - FIRST).days)]
    assert read(asked(folder, spark), "shop.sales") == {(day, "Paris") for day in days if day.weekday() == weekday}


def test_what_a_column_of_a_cte_is_made_of_is_asked_in_the_authors_words(folder: Path, spark: SparkSession) -> None:
    query = """
    WITH named AS (SELECT n, lower(store) AS low, soundex(store) AS sound, day FROM shop.sales),
         weekly AS (SELECT n, concat(sound, '-', dayname(day)) AS tag, low FROM named)
    SELECT w.n FROM weekly w JOIN shop.hours h ON date_trunc('DAY', h.at) = CAST(today AS TIMESTAMP)
    WHERE md5(w.tag) = md5('P620-Mon') AND initcap(w.low) = 'Paris' AND extract(DOW FROM h.at) IS NOT NULL
      AND dayname(h.at) = 'Sun' AND to_json(named_struct('h', hour(h.at))) = '{"h":3}'
    """
    text = READER.replace(f"START '{FIRST}'", f"START '{(NOW - dt.timedelta(days=3)).date()}'")
    (folder / "reader.sql").write_text(f"{text}{query};\n")
    files = asked(folder, spark)
    mondays = {
        (day, "Paris") for day in (FIRST + dt.timedelta(days=number) for number in range(41)) if day.weekday() == 0
    }
    assert read(files, "shop.sales") == mondays
    calls = {answer.call for answer in files.value_answers.entries["shop.reader"].values()}
    assert "concat({0}, '-', dayname({1}))" in calls
    assert """to_json(named_struct('h', hour({0})))""" in calls


def test_without_an_answer_nothing_is_restricted_and_the_file_says_so(folder: Path, spark: SparkSession) -> None:
    (folder / "reader.sql").write_text(f"{READER}SELECT n FROM shop.sales WHERE soundex(store) = 'P620';\n")
    (problem,) = load_usable(folder, cache=Cache()).problems
    assert "nothing says which partitions of shop.sales are read" in problem.message
    assert problem.message.endswith("Or ask Spark what the functions in its conditions give: run `varve check`.")
    assert {store for _, store in read(asked(folder, spark), "shop.sales")} == {"Paris"}
    # A list is no value that a condition compares; random values and clocks are never asked for.
    allowing = READER.removesuffix("AS\n") + "ALLOW RANDOM, CLOCK\nAS\n"
    (folder / "reader.sql").write_text(
        f"{allowing}SELECT n FROM shop.sales\n"
        "WHERE day = today AND size(sentences(store)) > 0 AND sentences(store) IS NOT NULL\n"
        "  AND concat(store, uuid()) > '' AND concat(store, current_date()) > '';\n"
    )
    files = asked(folder, spark)
    assert {store for _, store in read(files, "shop.sales")} == set(STORES)
    answers = {answer.call: answer for answer in files.value_answers.entries["shop.reader"].values()}
    assert answers["sentences({0})"].why == "it gives array<array<string>>, which is not compared before a run"
    assert {call for call, answer in answers.items() if answer.gives} == {"size(sentences({0}))"}


def test_what_gives_several_rows_for_one_value_has_no_answer(folder: Path, spark: SparkSession) -> None:
    """Each hour is in two of the sliding windows, in one of the others, and in a session that hours before it begin."""
    query = (
        "SELECT x.n FROM (SELECT DATE_FORMAT({}.start, 'yyyy-MM-dd') AS began, SUM(h.n) AS n "
        "FROM shop.hours h GROUP BY 1) x WHERE x.began = DATE_FORMAT(today, 'yyyy-MM-dd')"
    )
    first = (NOW - dt.timedelta(days=3)).date()
    allowing = READER.replace(str(FIRST), str(first)).removesuffix("AS\n") + "ALLOW FULL SCAN\nAS\n"
    windows = {
        "sliding": "WINDOW(h.at, '2 days', '1 day')", "tumbling": "WINDOW(h.at, '1 day', '1 day', '1 hour')",
        "session": "SESSION_WINDOW(h.at, '3 hours')",
    }  # fmt: skip
    for name, window in windows.items():
        text = allowing.replace("shop.reader", f"shop.{name}")
        (folder / f"{name}.sql").write_text(f"{text}{query.format(window)};\n")
    lists = "EXPLODE(ARRAY(h.at, h.at))", "INLINE_OUTER(ARRAY(STRUCT(h.at), STRUCT(h.at)))"
    for place, call in enumerate(lists):
        text = allowing.replace("shop.reader", f"shop.lists{place}")
        inner = f"SELECT {call} AS began, h.n FROM shop.hours h"
        (folder / f"lists{place}.sql").write_text(f"{text}SELECT x.n FROM ({inner}) x WHERE x.began = t;\n")
    files = asked(folder, spark)
    hours = {key.values for key in files.checked()["shop.hours"].dataset.partitioning.keys(now=NOW)}
    for name in ("sliding", "session", "lists0", "lists1"):
        assert read(files, "shop.hours", f"shop.{name}") >= hours
    assert 0 < len(read(files, "shop.hours", "shop.tumbling")) < len(hours)


def test_a_call_that_gives_several_rows_is_no_answer(spark: SparkSession) -> None:
    call = OpenCall("EXPLODE(SEQUENCE(1, {0}))", ("int",), ((1,), (2,)))
    assert values_by_spark(spark, call).why == "it gives several rows for one value, or none"
    assert values_by_spark(spark, replace(call, rows=((1,),))).values == {(1,): 1}
    assert not values_by_spark(spark, replace(call, call="EXPLODE(FILTER(ARRAY({0}), x -> x > 1))")).gives


def test_windows_of_the_coming_year_have_answers_and_later_ones_restrict_nothing(
    folder: Path, spark: SparkSession
) -> None:
    (folder / "reader.sql").write_text(
        f"{READER}SELECT n FROM shop.sales WHERE day BETWEEN date_sub(today, 6) AND today AND dayname(day) = 'Sun';\n"
    )
    files = asked(folder, spark)
    asset = files["shop.reader"]
    for days, read_days in ((360, 1), (1_000, 7)):
        later = NOW + dt.timedelta(days=days)
        key = list(asset.dataset.partitioning.keys(now=later))[-1]
        ((_, boxes),) = asset.dependency("shop.sales").read_by([key], now=later)
        assert len({partition["day"] for box in boxes for partition in box.partitions()}) == read_days
    # Asked again is when less than a year is left.
    stored = (folder / FILE).read_text()
    asked(folder, spark, NOW + dt.timedelta(days=300))
    assert (folder / FILE).read_text() == stored
    asked(folder, spark, NOW + dt.timedelta(days=400))
    assert (folder / FILE).read_text() != stored
    assert ValueAnswers.beside(folder) != ValueAnswers()


def test_answers_are_of_the_call_and_of_the_functions_in_it(folder: Path, spark: SparkSession) -> None:
    code = "import varve\n\n\n@varve.function(returns='STRING')\ndef zone(store: str) -> str:\n    return store[:{}]\n"
    (folder / "__init__.py").write_text("")
    (folder / "zones.py").write_text(code.format(1))
    (folder / "reader.sql").write_text(f"{READER}SELECT n FROM shop.sales WHERE day = today AND zone(store) = 'L';\n")
    spark.udf.register("zone", lambda store: store[:1], "string")
    assert {store for _, store in read(asked(folder, spark), "shop.sales")} == {"L'Aquila", "Lyon"}
    assert len(read(load_usable(folder, cache=Cache()), "shop.sales")) == 2
    (folder / "zones.py").write_text(code.format(2))
    assert len(read(load_usable(folder, cache=Cache()), "shop.sales")) == 4
    (folder / FILE).write_text(json.dumps({"shop.reader": [{"call": 3}]}))
    assert len(read(load_usable(folder, cache=Cache()), "shop.sales")) == 4


def test_readers_of_a_partition_are_found_with_the_answers(folder: Path, spark: SparkSession) -> None:
    (folder / "reader.sql").write_text(
        f"{READER}SELECT n FROM shop.sales WHERE dayname(day) = dayname(today) AND soundex(store) = 'P620';\n"
    )
    files = asked(folder, spark)
    sales = files["shop.sales"].dataset.partitioning
    dependency = files["shop.reader"].dependency("shop.sales")
    for store, count in (("Paris", 1), ("Oslo", 0)):
        key = sales.key([FIRST, store])
        mapped = dependency.readers_of(PartitionBox.at(sales, key), now=NOW)
        days = {partition["day"] for boxes in mapped.existing for partition in boxes.partitions()}
        assert {day.weekday() for day in days} == ({FIRST.weekday()} if count else set())
        assert len(days) == len([day for day in range(41) if day % 7 == 0]) * count
