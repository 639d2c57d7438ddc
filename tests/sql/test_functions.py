# ruff: noqa: E501 - expressions in a table
"""Every function that is evaluated before a run, against Spark itself, on awkward values: one job for each zone."""

from __future__ import annotations

import datetime as dt
import random
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError

from varve.sql.evaluate import scalars
from varve.sql.evaluate.functions import _NODES, Evaluator, is_known
from varve.sql.evaluate.vector import CannotEvaluate, Vector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"d": "date", "e": "date", "t": "timestamp", "s": "string", "w": "string", "ds": "string",
           "i": "int", "j": "int", "b": "bigint", "k": "string", "o": "boolean"}  # fmt: skip
EXPRESSIONS = """
d = e | d <> e | d < e | d <= e | d > e | d >= e | d <=> e | d IS DISTINCT FROM e | d IS NOT DISTINCT FROM e
d = ds | ds > d | t >= d | t = ds | ds < t | k = i | i < k | i = b | s = w | s < w | s >= w | i <=> NULL | s <=> w
d BETWEEN e AND '2024-03-01' | ds BETWEEN DATE_SUB(ds, 3) AND ds | ds BETWEEN d AND ds | s NOT BETWEEN 'a' AND w
t BETWEEN '2024-01-01' AND e | i BETWEEN j AND 7
d IN ('2024-02-29', '2023-12-31') | s IN ('a', w) | i NOT IN (1, NULL, 3) | ds IN ('2024-03-10', ds) | i IN (j, 3) | d IN (e, ds)
o AND i > 2 | o OR i > 2 | NOT o | NOT (o AND i > 2) | o AND NULL | o OR NULL | TRUE | NULL IS NULL
o IS NULL | s IS NOT NULL | o IS TRUE | o IS NOT FALSE | o = TRUE | (i > 2) IS NULL
IF(o, d, e) | IF(i > 2, 'a', NULL) | CASE WHEN i > 2 THEN d WHEN o THEN e END | CASE i WHEN 1 THEN 'one' WHEN j THEN 'j' ELSE s END
COALESCE(s, w, 'x') | COALESCE(d, ds) | NVL(i, b) | NULLIF(s, w) | NULLIF(i, 3) | GREATEST(d, e) | LEAST(i, j, b) | GREATEST(s, w)
CAST(ds AS DATE) | CAST(d AS STRING) | CAST(t AS DATE) | CAST(d AS TIMESTAMP) | CAST(ds AS TIMESTAMP) | CAST(t AS STRING)
CAST(k AS INT) | CAST(i AS STRING) | CAST(i AS BIGINT) | CAST(k AS BIGINT) | CAST(o AS STRING) | CAST(o AS INT) | CAST(i AS BOOLEAN)
CAST(t AS BIGINT) | CAST(i AS DOUBLE) = i | CAST('2024-3-1' AS DATE) | CAST('2024-03' AS DATE) | CAST(' 2024-03-01 ' AS DATE)
CAST('2024-03-01T11:12' AS DATE) | CAST('2024-03-01 11:12:13.5' AS TIMESTAMP) | DATE '2024-02-29' | TIMESTAMP '2024-03-10 02:30:00'
CAST(CAST(i AS DOUBLE) AS INT) | d::STRING | DATE(ds) | STRING(i) | INT(k) | CAST(k AS DOUBLE) = 7
DATE_SUB(d, 3) | DATE_SUB(ds, i) | DATE_ADD(d, j) | DATE_ADD(t, 1) | DATEDIFF(d, e) | DATEDIFF(ds, t) | DATE_DIFF(d, ds) | DATEADD(d, 1)
ADD_MONTHS(d, 1) | ADD_MONTHS(d, -13) | ADD_MONTHS(ds, i) | LAST_DAY(d) | LAST_DAY(ds) | MAKE_DATE(2024, i, 3)
d + INTERVAL 1 DAY | d - INTERVAL '2' DAYS | d + INTERVAL 1 MONTH | d - INTERVAL 1 YEAR | t + INTERVAL 1 DAY | t - INTERVAL 36 HOURS
t - INTERVAL 1 DAY 12 HOURS | t + INTERVAL 2 DAYS 36 HOURS 5 MINUTES | d + INTERVAL 1 YEAR 2 MONTHS | t - INTERVAL 1 YEAR 14 MONTHS
d - INTERVAL 7 DAYS + 1 | d + INTERVAL 1 MONTH + 2 | d - INTERVAL 1 DAY - 1 | d - INTERVAL 1 YEAR 1 MONTH + 3
d - INTERVAL 1 WEEK 2 DAYS | d + INTERVAL 1 DAY 5 HOURS | t - INTERVAL -1 DAY 2 HOURS | t - (INTERVAL 1 DAY + INTERVAL 30 HOURS)
d + 3 | d - 1 | t + INTERVAL 1 MONTH | t - INTERVAL 1 WEEK | d + INTERVAL 1 WEEK | t + INTERVAL 90 MINUTES | d + INTERVAL 5 HOURS | t - INTERVAL 30 SECONDS
TRUNC(d, 'MM') | TRUNC(d, 'YEAR') | TRUNC(ds, 'QUARTER') | TRUNC(d, 'WEEK') | TRUNC(t, 'MON')
DATE_TRUNC('DAY', t) | DATE_TRUNC('WEEK', t) | DATE_TRUNC('MONTH', d) | DATE_TRUNC('YEAR', ds) | DATE_TRUNC('HOUR', t) | DATE_TRUNC('MINUTE', t) | DATE_TRUNC('QUARTER', t) | DATE_TRUNC('SECOND', t)
YEAR(d) | YEAR(ds) | QUARTER(d) | MONTH(t) | DAY(d) | DAYOFMONTH(ds) | DAYOFWEEK(d) | DAYOFYEAR(d) | WEEKOFYEAR(d) | WEEKDAY(d) | WEEKOFYEAR(t)
HOUR(t) | MINUTE(t) | SECOND(t) | HOUR(ds) | EXTRACT(YEAR FROM d) | EXTRACT(MONTH FROM t) | EXTRACT(DAY FROM d) | EXTRACT(HOUR FROM t) | EXTRACT(WEEK FROM d) | EXTRACT(DOY FROM d) | EXTRACT(DAYOFWEEK FROM d) | EXTRACT(QUARTER FROM d)
DATE_FORMAT(t, 'yyyy-MM-dd') | DATE_FORMAT(d, 'yyyyMMdd') | DATE_FORMAT(t, "yyyy-MM-dd'T'HH:mm:ss") | DATE_FORMAT(ds, 'yyyy/MM') | DATE_FORMAT(t, 'HH') | DATE_FORMAT(d, 'd.M.yyyy') | DATE_FORMAT(t, 'H:mm')
TO_DATE(ds) | TO_DATE(DATE_FORMAT(d, 'yyyyMMdd'), 'yyyyMMdd') | TO_DATE(t) | TO_TIMESTAMP(ds) | TO_TIMESTAMP(DATE_FORMAT(t, 'yyyy-MM-dd HH:mm'), 'yyyy-MM-dd HH:mm') | TO_DATE(ds, 'yyyy-MM-dd')
UNIX_TIMESTAMP(t) | TIMESTAMP_SECONDS(b) | FROM_UTC_TIMESTAMP(t, 'America/New_York') | TO_UTC_TIMESTAMP(t, 'Europe/Paris') | FROM_UTC_TIMESTAMP(d, 'Asia/Kolkata')
SUBSTR(s, 2, 3) | SUBSTRING(ds, 1, 7) | SUBSTR(s, -2) | SUBSTR(s, 0, 2) | SUBSTR(s, i) | SUBSTRING(s, -9, 8) | LEFT(s, 2) | RIGHT(s, 2) | LEFT(s, j) | RIGHT(s, 0) | SUBSTRING(s FROM 2 FOR 2)
UPPER(k) | LOWER(k) | LENGTH(s) | CHAR_LENGTH(w) | REVERSE(s) | REPEAT(s, 2) | REPLACE(s, 'a', 'xy') | REPLACE(s, 'é') | TRIM(s) | LTRIM(s) | RTRIM(s)
CONCAT(s, '-', w) | s || w | CONCAT(d, '|', i) | CONCAT('y=', YEAR(d)) | LPAD(k, 3, '0') | RPAD(s, 4, 'xy') | LPAD(s, 2) | LPAD(HOUR(t), 2, '0') | t || 'z'
s LIKE 'a%' | s LIKE '_b%' | s NOT LIKE '%é' | s LIKE w | ds LIKE '2024-%' | STARTSWITH(s, 'a') | ENDSWITH(s, 'é') | CONTAINS(s, 'b') | s LIKE 'a.c'
s RLIKE '^a' | ds RLIKE '2024-0[1-3]' | ds RLIKE '^[0-9]{4}-(01|02)-' | s NOT RLIKE 'b' | REGEXP_LIKE(s, 'a.c') | ds RLIKE '-29$' | s REGEXP 'a\\\\.c'
s LIKE 'a/%c' ESCAPE '/' | s NOT LIKE 'b^_' ESCAPE '^' | s LIKE '_|_' ESCAPE '|' | s LIKE 'b\\\\_' | s LIKE 'a\\\\%c'
(COALESCE(k, 'n'), COALESCE(s, 'n')) IN (('1', 'a'), ('2', 'abc')) | (COALESCE(i, 0), COALESCE(k, '')) NOT IN ((3, '3'), (COALESCE(j, 1), '4')) | (COALESCE(ds, ''), 1) IN (('2024-02-29', 1))
ARRAY_CONTAINS(ARRAY('a', w), s) | ARRAY_CONTAINS(ARRAY(1, j, 3), i) | NOT ARRAY_CONTAINS(ARRAY(d, e), d) | ARRAY_CONTAINS(SPLIT(ds, '-'), '2024') | ARRAY_CONTAINS(SPLIT(s, 'b'), w)
SPLIT(ds, '-')[0] | SPLIT(ds, '-', 2)[1] | ELEMENT_AT(SPLIT(ds, '-'), -1) | ELEMENT_AT(SPLIT(ds, '-'), 2) | SIZE(SPLIT(COALESCE(ds, ''), '-')) | SPLIT_PART(ds, '-', 2) | SPLIT_PART(s, 'b', -1) | SPLIT_PART(s, 'b', 9)
LPAD(i, 3, 0) | LPAD(DAY(d), 2, 0) | RPAD(d, 12, i) | SUBSTRING(d, 1, 7) | LEFT(d, 4) | RIGHT(b, 1) | CONTAINS(d, '-0') | CONTAINS(s, i) | REPLACE(d, '-') | REPLACE(ds, '-', 0) | STARTSWITH(d, 2024) | LENGTH(d) | LENGTH(i)
SPLIT_PART(d, '-', 1) | SUBSTRING_INDEX(t, ' ', 1) | REVERSE(i) | REPEAT(j, 2) | TRIM(i) | INSTR(d, '-') | d LIKE '2024-%' | i LIKE '1%' | t LIKE '%00' | d RLIKE '-29$' | UPPER(o) | LOWER(d) | REGEXP_REPLACE(d, '-', '') | SUBSTR(t, 12, 2) | s LIKE i
SUBSTRING_INDEX('a---b', '--', 2) | SUBSTRING_INDEX('a---b', '--', -2) | SUBSTRING_INDEX('----', '--', 3) | SUBSTRING_INDEX('----', '--', -3) | SUBSTRING_INDEX(s, 'b', -1)
SUBSTRING_INDEX(ds, '-', 2) | SUBSTRING_INDEX(ds, '-', -1) | SUBSTRING_INDEX(s, 'b', 0) | INSTR(s, 'b') | LOCATE('b', s) | POSITION('a' IN s) | INSTR(s, w) | REGEXP_REPLACE(ds, '-', '') | REGEXP_REPLACE(s, '[a-c]+', '<') | NVL2(s, i, j) | EQUAL_NULL(s, w)
NEXT_DAY(d, 'MO') | NEXT_DAY(ds, 'friday') | NEXT_DAY(t, 'Sun') | MONTHS_BETWEEN(d, e) | MONTHS_BETWEEN(t, d) | MONTHS_BETWEEN(ds, t) | MONTHS_BETWEEN(d, '2024-02-29') <= 1 | UNIX_DATE(d) | DATE_FROM_UNIX_DATE(i) | FROM_UNIXTIME(b) | FROM_UNIXTIME(i * 86400, 'yyyy-MM-dd') | FROM_UNIXTIME(UNIX_TIMESTAMP(t), 'yyyyMMdd HH')
i + j | i - j | i * j | i DIV 2 | i % 3 | -i | ABS(j) | PMOD(j, 3) | b + i | j DIV 3 | j % 3 | i * 2 + 1 | b - 5000000000 | MOD(i, 2) | i + NULL
MONTH(d) * 100 + DAY(d) | DATE_SUB(LAST_DAY(ADD_MONTHS(d, -1)), 0) | DATE_ADD(TRUNC(d, 'MM'), 14) = e | CAST(DATE_FORMAT(t, 'HH') AS INT) % 6
"""
CASES = [part.strip() for line in EXPRESSIONS.splitlines() for part in line.split(" | ") if part.strip()]
ZONES = ("UTC", "America/New_York", "Europe/Paris", "Asia/Kolkata", "America/Sao_Paulo")


def rows() -> list[dict[str, object]]:
    """Values at the turns of years, months, weeks and clocks, and every one of them NULL somewhere."""
    random_ = random.Random(7)
    days = [dt.date(2024, 2, 28) + dt.timedelta(days=day) for day in range(12)]
    days += [dt.date(2023, 12, 28) + dt.timedelta(days=day) for day in range(8)]
    days += [
        dt.date(2000, 2, 29),
        dt.date(1969, 12, 31),
        dt.date(1970, 1, 1),
        dt.date(2013, 3, 10),
        dt.date(2100, 3, 1),
    ]
    days += [
        dt.date(2018, 11, 4),
        dt.date(2024, 10, 27),
        dt.date(2024, 11, 3),
        dt.date(2021, 1, 3),
        dt.date(1955, 6, 30),
    ]
    texts = ["", "a", "abc", "éa", " ab ", "a%c", "zzzz", "aéb", "A", "a.c", "日本語", "b_", "\U0001f600", "\uffff"]
    rows: list[dict[str, object]] = []
    for place, day in enumerate(days * 2):
        at = dt.datetime(day.year, day.month, day.day, place % 24, (place * 7) % 60, (place * 11) % 60, tzinfo=dt.UTC)
        if place % 5 == 0:
            at = at.replace(hour=6, minute=30, microsecond=120_000)
        row: dict[str, object] = {
            "d": day, "e": random_.choice(days), "t": at, "s": random_.choice(texts), "w": random_.choice(texts),
            "ds": random_.choice(days).isoformat(), "i": place % 12 + 1, "j": random_.randint(-9, 9),
            "b": random_.choice([0, 1, 5, 2**33]), "k": str(random_.randint(0, 12)), "o": random_.random() < 0.5,
        }  # fmt: skip
        if place > 30:
            row[random_.choice(list(COLUMNS))] = None
        rows.append(row)
    return [*rows, dict.fromkeys(COLUMNS)]


@pytest.fixture(scope="module")
def cases() -> list[exp.Expr]:
    return [sqlglot.parse_one(case, dialect="spark") for case in CASES]


@pytest.mark.spark
def test_every_function_has_sparks_value_in_every_zone(spark: SparkSession, cases: list[exp.Expr]) -> None:
    table = rows()
    columns = {("", name): Vector.of(kind, [row[name] for row in table]) for name, kind in COLUMNS.items()}
    kinds = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    listed = [tuple(row[name] for name in COLUMNS) for row in table]
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.createDataFrame(listed, kinds).createOrReplaceTempView("function_rows")
    selected = ", ".join(f"{case} AS c{place}" for place, case in enumerate(CASES))
    wrong: list[str] = []
    try:
        for zone in ZONES:
            spark.conf.set("spark.sql.session.timeZone", zone)
            expected = spark.sql(f"SELECT {selected} FROM function_rows").collect()
            evaluator = Evaluator(columns, zone)
            for place, (text, case) in enumerate(zip(CASES, cases, strict=True)):
                value = evaluator.of(case)
                ours = (value if value.values.size > 1 else _spread(value, len(table))).to_list()
                for row, our_value, answer in zip(table, ours, expected, strict=True):
                    if our_value != (theirs := _plain(answer[place])) or type(our_value) is not type(theirs):
                        wrong.append(f"{zone}: {text} of {row}: ours {our_value!r}, Spark {theirs!r}")
                        break
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert not wrong, "\n".join(wrong)


def test_every_function_of_the_list_is_compared_with_spark(cases: list[exp.Expr]) -> None:
    used = {type(node) for case in cases for node in case.walk()}
    named = {node.name.upper() for case in cases for node in case.find_all(exp.Anonymous)}
    assert ({*_NODES, *scalars.BY_CLASS} - used) <= {exp.StrToTime, exp.Column, exp.Literal}
    assert set(scalars.BY_NAME) <= named


@pytest.mark.parametrize(
    "text",
    ["CAST('x' AS DATE)", "CAST('99' AS TINYINT) + CAST('99' AS TINYINT)", "1.5 > 1", "my_udf(i)", "RAND() > 0", "i / 2",
     "CAST(k AS DECIMAL(5, 2))", "DATE_FORMAT(t, 'EEEE')", "DATE_FORMAT(t, s)", "i % 0", "2147483647 + i", "s RLIKE 'a++'",
     "UPPER('ß')", "TRY_CAST(s AS INT)", "i = o", "d + INTERVAL '1 2' DAY TO HOUR", "s LIKE 'a\\\\b'", "s RLIKE '(?i)A'", "s RLIKE '[a[b]]'", "s LIKE 'a/b' ESCAPE '/'",
     "SPLIT(s, 'x*')[0]", "SPLIT(s, '-')[3]", "SPLIT(s, '-')", "ARRAY('a')", "(i, s)", "(s, NULL) IN (('x', 'y'))", "NEXT_DAY(d, 'noday')",
     "ARRAY_CONTAINS(ARRAY(1), s)", "MONTHS_BETWEEN(d, t, FALSE)", "REGEXP_REPLACE(s, '(x)', '$1')", "REGEXP_REPLACE('\U0001f600', 'b*', '-')", "SPLIT_PART(s, 'x', 0)", "i IN (SELECT 1)",
     "TO_DATE(ds, 'yyyy')", "CAST(d AS INT)", "HASH(s)", "CAST('2024-13-01' AS DATE)", "s = i", "UNKNOWN_COLUMN = 1"],
)  # fmt: skip
def test_what_spark_refuses_or_we_do_not_know_has_no_value(text: str) -> None:
    row = {"i": 3, "t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "s": "x", "o": True, "k": "1", "d": dt.date(2024, 1, 1),
           "ds": "2024-01-01"}  # fmt: skip
    columns = {("", name): Vector.of(COLUMNS[name], [value]) for name, value in row.items()}
    node = sqlglot.parse_one(text, dialect="spark")
    with pytest.raises(CannotEvaluate):
        Evaluator(columns).of(node)


def test_a_function_that_is_not_listed_is_not_known() -> None:
    assert is_known(sqlglot.parse_one("DATE_SUB(a, 1)", dialect="spark"))
    assert not is_known(sqlglot.parse_one("my_udf(a)", dialect="spark"))


LITERALS = (
    "'abc'", "''", "5", "-1", "10000000000", "NULL", "DATE'2026-01-31'", "DATE'9999-12-31'", "DATE'0001-01-01'",
    "TIMESTAMP'2026-01-31 12:00:00'", "INTERVAL 1 DAY",
)  # fmt: skip


@pytest.mark.parametrize("count", range(5))
def test_any_function_with_any_arguments_has_a_value_or_none_and_ends_nothing(count: int) -> None:
    """A call that Spark would refuse, or for which it would cast an argument, is no reason to know nothing."""
    choice = random.Random(count)
    names = {"TRIM", "IF", "NVL2", *scalars.BY_NAME, *Spark.Parser.FUNCTIONS}
    every = list(product(LITERALS, repeat=count)) if count < 3 else []
    evaluated = 0
    for name in sorted(names):
        for arguments in every or [choice.choices(LITERALS, k=count) for _ in range(20)]:
            try:
                node = sqlglot.parse_one(f"{name}({', '.join(arguments)})", dialect="spark")
            except (ParseError, TypeError, ValueError, LookupError, AttributeError):
                continue  # sqlglot's own
            if not is_known(node):
                break
            with suppress(CannotEvaluate):
                evaluated += Evaluator({}, "Europe/Berlin").of(node).values.size
    assert evaluated >= 20 * min(count, 1)


@pytest.mark.parametrize("text", ["TRIM('x' FROM 'axb')", "TRIM(LEADING 'x' FROM 'xa')", "RTRIM('x', 'ax')"])
def test_other_characters_are_trimmed_by_spark_alone(text: str) -> None:
    with pytest.raises(CannotEvaluate, match="TRIM of other characters"):
        Evaluator({}).of(sqlglot.parse_one(text, dialect="spark"))


@pytest.mark.parametrize(
    "text",
    ["REPEAT('x', 10000000000)", "LPAD('x', 2000000000, 'ab')", "REPLACE(REPEAT('a', 99999), 'a', REPEAT('b', 99999))",
     "REGEXP_REPLACE(REPEAT('a', 99999), 'a', REPEAT('b', 99999))"],
)  # fmt: skip
def test_no_text_of_gigabytes_is_made_to_plan_with(text: str) -> None:
    with pytest.raises(CannotEvaluate, match="a text of more than 100,000 characters"):
        Evaluator({}).of(sqlglot.parse_one(text, dialect="spark"))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
def test_a_date_that_stands_for_never_ends_nothing(day: str, zone: str) -> None:
    known = {("", "t"): Vector.of("timestamp", [dt.datetime(2026, 11, 26, tzinfo=dt.UTC)])}
    for text in (f"DATE'{day}' < t", f"CAST(DATE'{day}' - 400 AS STRING)", f"YEAR(DATE'{day}' + INTERVAL 400 DAYS)"):
        with suppress(CannotEvaluate):
            assert Evaluator(known, zone).of(sqlglot.parse_one(text, dialect="spark")).values.size == 1


def test_pairs_of_scopes_and_partitions_broadcast() -> None:
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=day) for day in range(30)]
    columns = {
        ("scope", "day"): Vector.of("string", [day.isoformat() for day in days]).reshaped(30, 1),
        ("p", "day"): Vector.of("string", [day.isoformat() for day in days]).reshaped(1, 30),
    }
    node = sqlglot.parse_one("p.day BETWEEN DATE_SUB(scope.day, 2) AND scope.day", dialect="spark")
    vector = Evaluator(columns).of(node)
    assert vector.values.shape == (30, 30)
    assert [int(row_sum) for row_sum in vector.values.sum(axis=1)] == [1, 2, *[3] * 28]


def _plain(value: object) -> object:
    """Spark's timestamps come back naive, in the zone of this process."""
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


def _spread(value: Vector, count: int) -> Vector:
    import numpy as np

    return Vector(value.type, np.broadcast_to(value.values, (count,)), np.broadcast_to(value.valid, (count,)))
