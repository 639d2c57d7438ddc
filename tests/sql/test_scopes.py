# ruff: noqa: E501, ISC004 - declarations, one a line
"""Scopes: the comprehension as a partitioning, the variables of one partition, and what no comprehension may say."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import pytest

from varve.model.partitions.key import PartitionKey
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from varve.sql.partitions.scopes import Scopes

DAY = "t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')"
HOUR = "t IN TIMESERIES(INTERVAL 1 HOUR, START '2012-01-01'{})"
SPELT = "LET hour = DATE_FORMAT(t, \"yyyy-MM-dd'T'HH\")"


def scopes(columns: str, generators: str, rest: str = "") -> Scopes:
    text = f"CREATE DATASET a.b\nPARTITIONED BY ({columns})\nFOR {generators}\n{rest}\nAS SELECT 1 AS x"
    return scopes_of(parse(SourceFile("b.sql", text)))


def shown(dataset_scopes: Scopes, **key: object) -> dict[str, str]:
    return {name: str(typed) for name, typed in dataset_scopes.of(PartitionKey.of(**key)).values.items()}  # type: ignore[arg-type]


def test_two_days_and_two_stores_make_four_scopes() -> None:
    dataset_scopes = scopes(
        "day STRING, store STRING",
        "t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-30', END '2022-04-01'), store IN ('Detroit', 'Paris')",
        "LET day = DATE_FORMAT(t, 'yyyy-MM-dd')",
    )
    assert [key.path for key in dataset_scopes.partitioning.keys()] == [  # noqa: SIM118 - no dict
        "day=2022-03-30/store=Detroit", "day=2022-03-30/store=Paris",
        "day=2022-03-31/store=Detroit", "day=2022-03-31/store=Paris",
    ]  # fmt: skip
    assert shown(dataset_scopes, day="2022-03-31", store="Paris") == {
        "t": "2022-03-31T00:00:00Z", "t_end": "2022-04-01T00:00:00Z", "store": "Paris", "day": "2022-03-31",
    }  # fmt: skip
    assert dataset_scopes.types == {"t": "TIMESTAMP", "t_end": "TIMESTAMP", "store": "STRING", "day": "STRING"}


def test_expressions_are_evaluated_in_the_zone_of_the_series() -> None:
    dataset_scopes = scopes(
        "day DATE", "t IN TIMESERIES(INTERVAL 1 DAY, START '2013-01-01', TIMEZONE 'America/New_York')",
        "LET today = CAST(t AS DATE), before = DATE_SUB(today, 3), month = DATE_FORMAT(t, 'yyyyMM') "
        "INSERT (day = today)",
    )  # fmt: skip
    assert shown(dataset_scopes, day=dt.date(2013, 3, 10)) == {
        "t": "2013-03-10T05:00:00Z", "t_end": "2013-03-11T04:00:00Z",
        "today": "2013-03-10", "before": "2013-03-07", "month": "201303",
    }  # fmt: skip


def test_a_list_may_be_named_by_what_an_expression_makes_of_it() -> None:
    dataset_scopes = scopes(
        "day STRING, code STRING", f"{DAY}, store IN ('Detroit', 'Paris')",
        "LET day = DATE_FORMAT(t, 'yyyy-MM-dd'), code = UPPER(SUBSTRING(store, 1, 3))",
    )  # fmt: skip
    assert shown(dataset_scopes, day="2022-03-02", code="PAR")["store"] == "Paris"


def test_one_scope_of_ten_years_of_hours_costs_one_scope() -> None:
    dataset_scopes = scopes("hour STRING", HOUR.format(""), SPELT)
    began = time.perf_counter()
    assert shown(dataset_scopes, hour="2021-12-31T23")["t"] == "2021-12-31T23:00:00Z"
    # All of them take a minute.
    assert time.perf_counter() - began < 10


def test_columns_of_many_scopes_are_those_of_each() -> None:
    dataset_scopes = scopes(
        "day STRING, store STRING", f"{DAY}, store IN ('Detroit', 'Paris')",
        "LET day = DATE_FORMAT(t, 'yyyy-MM-dd'), old = day < '2022-03-03', one = 1",
    )  # fmt: skip
    keys = list(dataset_scopes.partitioning.keys(now=dt.datetime(2022, 3, 20, tzinfo=dt.UTC)))
    columns = dataset_scopes.columns(keys)
    for place, key in enumerate(keys):
        values = dataset_scopes.of(key).values
        assert {name: vector.to_list()[place] for name, vector in columns.items()} == {
            name: typed.value for name, typed in values.items()
        }


@pytest.mark.parametrize(
    ("columns", "generators", "rest", "path", "start"),
    [
        ("year INT, month INT, day INT, hour INT", HOUR.format(""),
         "INSERT (year = YEAR(t), month = MONTH(t), day = DAY(t), hour = HOUR(t))",
         "year=2022/month=3/day=31/hour=7", "2022-03-31T07:00:00Z"),
        ("day STRING, hour STRING", HOUR.format(""),
         "LET day = DATE_FORMAT(t, 'yyyy-MM-dd'), hour = DATE_FORMAT(t, 'HH')",
         "day=2022-03-31/hour=07", "2022-03-31T07:00:00Z"),
        ("month STRING, day STRING", DAY, "LET month = DATE_FORMAT(t, 'yyyy-M'), day = DATE_FORMAT(t, 'd')",
         "month=2022-3/day=31", "2022-03-31T00:00:00Z"),
        ("day INT", DAY, "LET day = CAST(DATE_FORMAT(t, 'yyyyMMdd') AS INT)", "day=20220331", "2022-03-31T00:00:00Z"),
        ("second BIGINT", HOUR.format(""), "LET second = UNIX_TIMESTAMP(t)", "second=1648710000", "2022-03-31T07:00:00Z"),
        ("millis BIGINT", HOUR.format(""), "LET millis = UNIX_TIMESTAMP(t) * 1000", "millis=1648710000000",
         "2022-03-31T07:00:00Z"),
        ("at TIMESTAMP", HOUR.format(""), "INSERT (at = t)", "at=2022-03-31 07%3A00%3A00", "2022-03-31T07:00:00Z"),
        ("year INT, quarter INT", "t IN TIMESERIES(INTERVAL 1 QUARTER, START '2020-01-01')",
         "LET year = YEAR(t), quarter = QUARTER(t)", "year=2022/quarter=2", "2022-04-01T00:00:00Z"),
        ("month DATE, day INT", DAY, "LET month = TRUNC(t, 'MM'), day = DAY(t)", "month=2022-03-01/day=31",
         "2022-03-31T00:00:00Z"),
        ("day DATE, hour INT", HOUR.format(", TIMEZONE 'America/New_York'"),
         "LET day = CAST(t AS DATE), hour = (UNIX_TIMESTAMP(t) - UNIX_TIMESTAMP(DATE_TRUNC('DAY', t))) DIV 3600",
         "day=2022-11-06/hour=24", "2022-11-07T04:00:00Z"),
        ("day DATE, store STRING, hour INT", f"{HOUR.format('')}, store IN ('Detroit', 'Paris')",
         "LET day = CAST(t AS DATE), hour = HOUR(t)", "day=2022-03-31/store=Paris/hour=7", "2022-03-31T07:00:00Z"),
    ],
)  # fmt: skip
def test_the_columns_of_one_series_say_together_which_window_it_is(
    columns: str, generators: str, rest: str, path: str, start: str
) -> None:
    dataset_scopes = scopes(columns, generators, rest)
    partition = dataset_scopes.partitioning.from_path(path)
    assert partition.path == path
    assert str(dataset_scopes.of(partition).values["t"]) == start


def test_a_day_of_25_hours_has_25_partitions() -> None:
    dataset_scopes = scopes(
        "day DATE, hour INT",
        "t IN TIMESERIES(INTERVAL 1 HOUR, START '2022-11-06', END '2022-11-07', TIMEZONE 'America/New_York')",
        "LET day = CAST(t AS DATE), hour = (UNIX_TIMESTAMP(t) - UNIX_TIMESTAMP(DATE_TRUNC('DAY', t))) DIV 3600",
    )
    keys = list(dataset_scopes.partitioning.keys())
    assert [key["hour"] for key in keys] == list(range(25))
    assert dataset_scopes.partitioning.to_dagster(keys[2]) == "2022-11-06T01-0500"


@pytest.mark.parametrize(
    ("columns", "generators", "rest", "expected"),
    [
        ("day STRING", f"{DAY}, store IN ('a', 'b')", "LET day = DATE_FORMAT(t, 'yyyy-MM-dd')",
         "3:58: no partition column follows store, so that several scopes would write one partition"),
        ("hour STRING", HOUR.format(", TIMEZONE 'America/New_York'"), SPELT,
         "the clock of America/New_York shows it twice"),
        ("day STRING", HOUR.format(""), "LET day = DATE_FORMAT(t, 'yyyy-MM-dd')", "for more than one window of hour"),
        ("day STRING, code STRING, name STRING", f"{DAY}, store IN ('Detroit', 'Paris')",
         "LET day = DATE_FORMAT(t, 'yyyy-MM-dd'), code = LEFT(store, 1), name = store", "code and name both follow store"),
        ("day DATE, hour INT", HOUR.format(", TIMEZONE 'America/New_York'"), "LET day = CAST(t AS DATE), hour = HOUR(t)",
         "2:27: PARTITIONED BY (day, hour): day=2012-11-04 hour=1 are the windows of 2012-11-04 01:00:00-04:00 and of "
         "2012-11-04 01:00:00-05:00, as the clock of America/New_York shows that hour twice"),
        ("day DATE, hour INT", HOUR.format(", TIMEZONE 'America/New_York'"), "LET day = CAST(t AS DATE), hour = HOUR(t)",
         "hour = (UNIX_TIMESTAMP(t) - UNIX_TIMESTAMP(DATE_TRUNC('DAY', t))) DIV 3600"),
        ("year INT, month INT", HOUR.format(""), "LET year = YEAR(t), month = MONTH(t)",
         "2:27: PARTITIONED BY (year, month): year=2012 month=1 are the windows of 2012-01-01 00:00:00+00:00 and of "
         "2012-01-01 01:00:00+00:00, so that the columns do not say which: add a column with the part that is missing"),
        ("year INT, day INT, hour INT", HOUR.format(""), "LET year = YEAR(t), day = DAY(t), hour = HOUR(t)",
         "Write year = YEAR(t), month = MONTH(t), day = DAY(t), hour = HOUR(t)"),
        ("day INT, hour INT", HOUR.format(""), "LET day = DAY(t), hour = HOUR(t)", "together the columns name the year"),
        ("year INT, part INT", HOUR.format(""), "LET year = YEAR(t), part = HOUR(t) DIV 6",
         "2:27: part is declared INT, and its expression is a whole number, 0 at 2012-01-01 00:00:00+00:00: that is no"),
        ("year STRING, hour INT", HOUR.format(""), "LET year = YEAR(t), hour = HOUR(t)",
         "2:17: year is declared STRING, and its expression is a whole number, 2012 at"),
        ("day INT, hour INT", HOUR.format(""), "LET day = UNIX_TIMESTAMP(t) * 1000, hour = HOUR(t)",
         "day is declared INT, and its expression is a whole number, 1325376000000"),
        ("year INT, amount DOUBLE", HOUR.format(""), "LET year = YEAR(t), amount = HOUR(t)",
         "2:27: amount is DOUBLE; a column of time is STRING, INT, BIGINT, DATE or TIMESTAMP"),
        ("day DATE, hour INT", f"{DAY}, u IN TIMESERIES(INTERVAL 1 HOUR, START '2022-03-01')",
         "INSERT (day = CAST(t AS DATE), hour = HOUR(u))",
         "two TIMESERIES, t and u; a dataset has one dimension of time. Write the finer one alone"),
        ("year INT, store STRING", f"{DAY}, store IN ('a')", "INSERT (year = YEAR(t) + LENGTH(store))",
         "follows t and store; each follows exactly one variable of FOR"),
        ("day STRING, code STRING", f"{DAY}, store IN ('Detroit', 'Dallas')",
         "LET day = DATE_FORMAT(t, 'yyyy-MM-dd'), code = LEFT(store, 1)", "two scopes would write one partition"),
        ("day STRING, code STRING", f"{DAY}, store IN ('Detroit')",
         "LET day = DATE_FORMAT(t, 'yyyy-MM-dd'), code = NULLIF(store, 'Detroit')", "no partition is named by NULL"),
        ("day STRING", DAY, "LET dai = DATE_FORMAT(t, 'yyyy-MM-dd')", "write INSERT (day = dai)"),
        ("day STRING", DAY, "LET day = DATE_FORMAT(tt, 'yyyy-MM-dd')", "4:23: no variable tt is bound before this"),
        ("day DATE", DAY, "LET day = DATE_FORMAT(t, 'yyyy-MM-dd')", "declared DATE, but its expression is STRING"),
        ("day INT", DAY, "LET day = DAY(t)", "PARTITIONED BY (day): day=1 are the windows of 2022-03-01"),
        ("day DOUBLE", DAY, "LET day = DAY(t)", "a column of time is STRING, INT, BIGINT, DATE or TIMESTAMP"),
        ("day STRING", DAY, "LET day = SHA2(t, 256)", "4:11: SHA2 is not evaluated before a run"),
        ("day STRING", DAY, "LET day = DATE_FORMAT(t, 'yyyy-MM-dd'), far = DATE_ADD(DATE '9999-12-31', 1)",
         "it is a date outside of the years 1 to 9999"),
        ("day STRING", DAY.replace(")", ", TIMEZONE 'America/New_York')"),
         "LET day = DATE_FORMAT(t, 'yyyy-MM-dd'), far = TIMESTAMP '9999-12-31 23:59:59'",
         "it is a timestamp outside of the years 1 to 9999"),
        ("day STRING", DAY, "LET t = 'a', day = t", "variable t is bound twice"),
        ("day STRING", DAY, "LET d = DATE_FORMAT(t, 'yyyy-MM-dd') INSERT (dai = d)", "Did you mean day?"),
    ],
)  # fmt: skip
def test_what_no_comprehension_may_say(columns: str, generators: str, rest: str, expected: str) -> None:
    with pytest.raises(SqlErrors) as caught:
        scopes(columns, generators, rest)
    assert expected in str(caught.value)
