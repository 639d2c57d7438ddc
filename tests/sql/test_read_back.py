"""What a plan keeps of a query is its meaning: of conditions that are stored as text, and of small clauses.

The partitions that are read are counted here by hand.
"""

from __future__ import annotations

import datetime as dt

import pytest
from sqlglot import exp, parse_one

from tests.sql.predicates import conditions
from varve.model.partitions.key import PartitionKey
from varve.model.reads import Same
from varve.sql.checks.problems import plan_problems
from varve.sql.names.trees import copied, text_of
from varve.sql.partitions.dependencies import Inference
from varve.sql.pushdown.scans import Dependencies
from varve.sql.sql_project import compiled
from varve.sql.syntax.body import parsed
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.header import parse
from varve.sql.syntax.sql_file import DynamicSet

DAYS = "FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}'{zone})"
SINCE = DAYS.format(start="2025-01-01", zone="")
EVERY = "CREATE DATASET shop.{name} (n INT) PARTITIONED BY ({columns}) FOR {series} INSERT ({values}) EXTERNAL;"
DAILY = SINCE.removeprefix("FOR ")
SOURCES = [
    EVERY.format(name="sales", columns="day DATE", series=DAILY, values="day = CAST(t AS DATE)"),
    EVERY.format(
        name="stores", columns="day DATE, store STRING", series=f"{DAILY}, store IN ('Paris', 'Rome', 'Oslo')",
        values="day = CAST(t AS DATE), store = store",
    ),
    EVERY.format(
        name="hours", columns="at TIMESTAMP", series="t IN TIMESERIES(INTERVAL 1 HOUR, START '2025-06-01')",
        values="at = t",
    ),
    EVERY.format(
        name="years", columns="year STRING", series="t IN TIMESERIES(INTERVAL 1 YEAR, START '1985-01-01')",
        values="year = DATE_FORMAT(t, 'yyyy')",
    ),
]  # fmt: skip
READER = (
    "CREATE DATASET shop.reader (n INT) PARTITIONED BY (day DATE) {days} LET d = CAST(t AS DATE) INSERT (day = d) "
    "ALLOW FULL SCAN AS {query};"
)
NOW = dt.datetime(2025, 7, 1, tzinfo=dt.UTC)
DAY = dt.date(2025, 6, 16)
# With the day that is not over.
ALL_DAYS = 182
LATELY = "day > DATE'2025-06-01' - INTERVAL 7 DAYS + 1"


def read(query: str, upstream: str, day: dt.date = DAY, start: str = "2025-01-01") -> set[str]:
    """The keys of the dataset that this day of the query reads, each without the names of its columns."""
    reader = READER.format(days=DAYS.format(start=start, zone=""), query=query)
    files = [SourceFile(f"{place}.sql", text) for place, text in enumerate([*SOURCES, reader])]
    dependency = compiled(files, {})["shop.reader"].dependency(upstream)
    mapped = dependency.upstream_of(PartitionKey.of(day=day), now=NOW)
    return {"/".join(map(str, key.values)) for box in mapped.existing for key in box.partitions()}


@pytest.mark.parametrize(
    ("where", "stores"),
    [
        (
            "s.day = d OR ((s.store = 'Paris' OR s.store = 'Rome') AND s.day = DATE_SUB(d, 1))",
            {"2025-06-16/Paris", "2025-06-16/Rome", "2025-06-16/Oslo", "2025-06-15/Paris", "2025-06-15/Rome"},
        ),
        (
            "s.day = d AND (s.store NOT BETWEEN 'P' AND 'Q' OR s.store = 'Paris') AND s.store <> 'Rome'",
            {"2025-06-16/Paris", "2025-06-16/Oslo"},
        ),
        ("NOT (s.day <> d OR NOT (s.store = 'Oslo' AND NOT s.store = 'Rome'))", {"2025-06-16/Oslo"}),
        ("UNIX_DATE(s.day) = UNIX_DATE(d) AND s.store = 'Rome'", {"2025-06-16/Rome"}),
        ("s.day = DATE_ADD(d, 10 - (3 + 2)) AND s.store = 'Rome'", {"2025-06-21/Rome"}),
        ("s.day = DATE_ADD(d, 10 - (3 - (2 - 1))) AND s.store = 'Rome'", {"2025-06-24/Rome"}),
    ],
)
def test_brackets_of_a_condition_are_kept(where: str, stores: set[str]) -> None:
    assert read(f"SELECT s.n FROM shop.stores s WHERE {where}", "shop.stores") == stores


def test_an_interval_of_several_units_is_taken_away_whole() -> None:
    hours = read("SELECT h.n FROM shop.hours h WHERE h.at >= t - INTERVAL 1 DAY 12 HOURS AND h.at < t", "shop.hours")
    noon = dt.datetime(2025, 6, 14, 12, tzinfo=dt.UTC)
    assert hours == {str(noon + dt.timedelta(hours=place)) for place in range(36)}
    days = read("SELECT s.n FROM shop.sales s WHERE s.day > d - INTERVAL 1 WEEK 2 DAYS AND s.day <= d", "shop.sales")
    assert days == {f"2025-06-{day:02}" for day in range(8, 17)}


def test_a_comparison_by_a_collation_is_left_to_spark() -> None:
    query = "SELECT s.n FROM shop.stores s WHERE CAST(s.store AS STRING COLLATE UTF8_LCASE) = 'PARIS' AND s.day = d"
    assert read(query, "shop.stores") == {"2025-06-16/Paris", "2025-06-16/Rome", "2025-06-16/Oslo"}


@pytest.mark.parametrize("cut", ["ORDER BY n DESC LIMIT 5", "ORDER BY n OFFSET 2", "LIMIT 1"])
def test_a_limit_behind_brackets_is_one(cut: str) -> None:
    inner = "(SELECT s.n, s.day FROM shop.sales s)"
    assert len(read(f"SELECT q.n FROM ({inner} {cut}) q WHERE q.day = d", "shop.sales")) == ALL_DAYS
    assert len(read(f"SELECT q.n FROM (({inner} {cut})) q WHERE q.day = d", "shop.sales")) == ALL_DAYS
    assert read(f"SELECT q.n FROM (({inner})) q WHERE q.day = d", "shop.sales") == {"2025-06-16"}


YEAR_OF = "(SELECT MAX(y.n) FROM shop.years y WHERE y.year = '2024')"
TODAY = "SELECT s.n FROM shop.sales s WHERE s.day = d"


@pytest.mark.parametrize(
    "query",
    [
        (
            f"WITH good AS ({TODAY} AND s.n IN {YEAR_OF}) "
            "SELECT h.n FROM shop.hours h LEFT JOIN (good g LEFT JOIN shop.stores c ON c.n = g.n) ON g.n = h.n "
            "WHERE h.at = t"
        ),
        (
            f"WITH good AS ({TODAY}), best AS (SELECT g.n, {YEAR_OF} AS m FROM good g) "
            "SELECT h.n FROM shop.hours h RIGHT JOIN (best b JOIN shop.stores c ON c.n = b.n) ON b.n = h.n"
        ),
        f"{TODAY} UNION ALL {TODAY} ORDER BY CASE WHEN n = {YEAR_OF} THEN 0 ELSE 1 END LIMIT 9",
        f"SELECT q.n FROM (({TODAY}) ORDER BY CASE WHEN n = {YEAR_OF} THEN 0 ELSE 1 END LIMIT 9) q",
    ],
)
def test_what_only_a_query_within_another_one_reads_is_read(query: str) -> None:
    assert read(query, "shop.years") == {"2024"}
    assert read(query, "shop.sales") == {"2025-06-16"}


def test_a_dataset_without_a_scan_is_an_error_where_somebody_reads_it() -> None:
    query = f"WITH nobody AS (SELECT y.n FROM shop.years y), all_of AS ({TODAY}) SELECT a.n FROM all_of a"
    assert read(query, "shop.years") == set()
    reader = parse(SourceFile("reader.sql", READER.format(days=DAYS.format(start="2025-01-01", zone=""), query=query)))
    (problem,) = plan_problems(reader, Inference(()), [Dependencies(())])
    assert problem.message.startswith("which partitions of shop.sales are read cannot be told")
    assert problem.source.text[problem.span.start :].startswith("shop.sales s WHERE")


@pytest.mark.parametrize("behind", ["", " ORDER BY n", " LIMIT 5", " ORDER BY n LIMIT 5"])
def test_a_with_before_brackets_is_of_the_query_in_them(behind: str) -> None:
    for inner in ("(SELECT q.n FROM q)", "((SELECT q.n FROM q) UNION ALL (SELECT 1))"):
        query = f"WITH q AS ({TODAY}) {inner}{behind}"
        assert read(query, "shop.sales") == {"2025-06-16"}
        assert read(f"SELECT x.n FROM ({query}) x", "shop.sales") == {"2025-06-16"}
        twice = f"WITH p AS ({TODAY}) ((WITH q AS (SELECT p.n FROM p) {inner}{behind}) LIMIT 7)"
        assert read(twice, "shop.sales") == {"2025-06-16"}


def test_a_query_behind_the_brackets_around_the_whole_is_refused() -> None:
    with pytest.raises(SqlErrors, match="no query can stand behind the brackets around the whole"):
        read(f"({TODAY}) ORDER BY n = {YEAR_OF} LIMIT 3", "shop.sales")


def test_names_that_a_generator_may_move_are_refused() -> None:
    inner = "SELECT EXPLODE({}), y.year FROM shop.years y WHERE y.year = '2024'"
    query = "WITH x ({}) AS ({}) SELECT CAST(1 AS INT) AS n FROM x WHERE x.v = 'b' AND x.d > ''"
    moved = query.format("k, v, d", inner.format("MAP('a', 'b')"))
    with pytest.raises(SqlErrors, match=r"which of the names x \(k, v, d\) are those of EXPLODE is not known"):
        read(moved, "shop.years")
    named = moved.replace("'b')),", "'b')) AS (one, other),")
    assert named != moved
    assert read(named, "shop.years") == {"2024"}
    assert read(query.format("v, d", inner.format("ARRAY('a', 'b')")), "shop.years") == {"2024"}


def test_of_a_union_by_name_nothing_is_concluded_beside_constants() -> None:
    query = (
        "SELECT q.n FROM (SELECT n, day FROM shop.sales UNION ALL BY NAME SELECT day, n FROM shop.sales) q "
        "JOIN (SELECT 'a' AS x UNION ALL SELECT 'b') c WHERE q.day = d"
    )
    assert len(read(query, "shop.sales")) == ALL_DAYS


@pytest.mark.parametrize(("left", "right"), [(" AS (n, b)", " AS (x, y)"), ("", ""), (" AS (n, b)", "")])
def test_columns_of_a_union_are_counted_with_all_of_a_generator(left: str, right: str) -> None:
    """In the second branch `c` is the key of the map, and not what stands in the second place."""
    query = (
        "SELECT CAST(1 AS INT) AS n FROM ("
        f"SELECT EXPLODE(MAP(1, s.day)){left}, s.day AS c, s.day AS e FROM shop.sales s UNION ALL "
        f"SELECT 1, s.day, EXPLODE(MAP(DATE_SUB(s.day, 1), s.day)){right} FROM shop.stores s) q WHERE q.c = d"
    )
    assert "2025-06-17/Paris" in read(query, "shop.stores")


@pytest.mark.parametrize("group", ["ROLLUP(d)", "CUBE(d, s.day)", "GROUPING SETS ((d), ())", "d WITH ROLLUP"])
def test_what_is_grouped_by_in_several_ways_is_null_in_some_rows(group: str) -> None:
    inner = f"SELECT d AS r, CAST(SUM(n) AS INT) AS n FROM shop.sales s WHERE s.day = d GROUP BY {group}"
    assert read(f"SELECT q.n FROM ({inner}) q WHERE q.r IS NULL", "shop.sales") == {"2025-06-16"}


@pytest.mark.parametrize("where", ["CAST(y.year AS DATE) = TRUNC(d, 'YEAR')", "y.year = TRUNC(d, 'YEAR')"])
@pytest.mark.parametrize("year", [1985, 1990, 1997, 2024])
def test_a_year_is_compared_with_a_date_as_its_first_day(where: str, year: int) -> None:
    query = f"SELECT y.n FROM shop.years y WHERE {where}"
    assert read(query, "shop.years", dt.date(year, 6, 1), "1985-01-01") == {str(year)}


def test_letters_within_quotes_of_a_date_pattern_are_spelt_by_spark_alone() -> None:
    where = "DATE_FORMAT(s.day, \"'Y'yyyy-MM-dd\") = CONCAT('Y', d)"
    assert "2025-06-16" in read(f"SELECT s.n FROM shop.sales s WHERE {where}", "shop.sales")
    where = "DATE_FORMAT(s.day, \"yyyy-MM-dd'T'\") = CONCAT(d, 'T')"
    assert read(f"SELECT s.n FROM shop.sales s WHERE {where}", "shop.sales") == {"2025-06-16"}


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("DATEDIFF('2025-06-16', s.day) = 0", 1),
        # To Spark, 1 is taken from the whole number that the texts spell.
        ("CAST(YEAR(s.day) || '0' || MONTH(s.day) - 1 AS STRING) = '202505'", ALL_DAYS),
        ("CAST(YEAR(s.day) || '0' || (MONTH(s.day) - 1) AS STRING) = '202505'", 30),
        ("s.day = d - INTERVAL 7 DAYS + 1", 1),
        ("s.day <= d - INTERVAL 1 DAY + 1 AND s.day > d - INTERVAL 1 WEEK", 7),
    ],
)
def test_as_many_days_are_read_as_spark_would_take(where: str, count: int) -> None:
    assert len(read(f"SELECT s.n FROM shop.sales s WHERE {where}", "shop.sales")) == count


@pytest.mark.parametrize(
    "query",
    [
        "FROM shop.sales |> ORDER BY n DESC |> LIMIT 5 |> WHERE day = d |> SELECT n",
        "SELECT n, day FROM shop.sales LIMIT 5 |> WHERE day = d",
    ],
)
def test_pipes_are_refused_where_they_stand(query: str) -> None:
    with pytest.raises(SqlErrors, match=r"which partitions a query with \|> reads is not known before it runs"):
        read(query, "shop.sales")


def test_dagster_is_told_of_two_dimensions_of_the_same_keys_which_follows_which() -> None:
    teams = "FOR home IN ('A', 'B', 'C'), away IN ('A', 'B', 'C')"
    head = "CREATE DATASET league.{name} (n INT) PARTITIONED BY (home STRING, away STRING) {teams} {rest};"
    query = "AS SELECT m.n FROM league.matches m WHERE {where}"
    for where, followed in (
        ("m.home = :home AND m.away = :away", ["home", "away"]),
        ("m.home = :away AND m.away = :home", ["away", "home"]),
    ):
        files = [
            SourceFile("matches.sql", head.format(name="matches", teams=teams, rest="EXTERNAL")),
            SourceFile("odds.sql", head.format(name="odds", teams=teams, rest=query.format(where=where))),
        ]
        dependency = compiled(files, {})["league.odds"].dependency("league.matches")
        rules = [mapping.rule for mapping in dependency.dimension_mappings]
        assert rules == [Same(name) for name in followed]


@pytest.mark.parametrize(("zone", "is_equal"), [("UTC", True), ("Europe/Paris", False)])
def test_a_variable_that_a_query_names_itself_is_of_another_zone_than_in_a_let(zone: str, *, is_equal: bool) -> None:
    days = DAYS.format(start="2025-01-01", zone=f", TIMEZONE '{zone}'")
    head = f"CREATE DATASET shop.reader (n INT) PARTITIONED BY (day DATE) {days}"
    bodies = [
        "LET today = CAST(t AS DATE) INSERT (day = today) AS SELECT s.n FROM shop.sales s WHERE s.day = today",
        "INSERT (day = CAST(t AS DATE)) AS SELECT s.n FROM shop.sales s WHERE s.day = (CAST(t AS DATE))",
    ]
    versions = {
        compiled([SourceFile("a.sql", SOURCES[0]), SourceFile("b.sql", f"{head} {body};")], {})[
            "shop.reader"
        ].code_version
        for body in bodies
    }
    assert (len(versions) == 1) is is_equal


@pytest.mark.parametrize(
    ("before", "after", "lets", "is_equal"),
    [
        ("'EU=eur', 'US=usd'", "'EU=eur', 'US=cad'", "LET key = SPLIT(f, '=')[0] INSERT (region = key)", False),
        ("'paris'", "'Paris'", "INSERT (region = UPPER(f))", False),
        ("'1', '2'", "1, 2", "INSERT (region = CAST(f AS STRING))", False),
        # The value is the key: another one is another partition, and changes no row of these.
        ("'EU', 'US'", "'EU', 'US', 'JP'", "INSERT (region = f)", True),
        ("'EU', 'US'", "'EU', 'US', 'JP'", "LET key = F INSERT (region = key)", True),
    ],
)
def test_a_value_behind_a_key_counts_for_the_code(before: str, after: str, lets: str, *, is_equal: bool) -> None:
    head = "CREATE DATASET shop.reader (c STRING) PARTITIONED BY (region STRING) FOR f IN ({values}) {lets} "
    query = "ALLOW FULL SCAN AS SELECT CAST(:f AS STRING) AS c FROM shop.sales s;"
    versions = [
        compiled(
            [SourceFile("a.sql", SOURCES[0]), SourceFile("b.sql", head.format(values=values, lets=lets) + query)], {}
        )["shop.reader"].code_version
        for values in (before, after)
    ]
    assert (versions[0] == versions[1]) is is_equal


@pytest.mark.parametrize(
    ("query", "key", "where"),
    [
        ("SELECT DISTINCT TO_CHAR(f.n, '000') FROM shop.sales f WHERE f.n > 0", "TO_CHAR(n, '000')", "n > 0"),
        (
            f"SELECT DATE_FORMAT(f.day, \"'FY'yyyy\") AS k FROM shop.sales f WHERE f.{LATELY}",
            "DATE_FORMAT(day, \"'FY'yyyy\")", LATELY,
        ),
        ("SELECT CAST(shop.sales.n AS STRING) k FROM shop.sales WHERE n IS DISTINCT FROM 3 -- why\n",
         "CAST(n AS STRING)", "n IS DISTINCT FROM 3"),
        ("SELECT /* a */ CAST( f . n + 1 AS STRING)||'x' FROM shop.sales f", "CAST( n + 1 AS STRING)||'x'", ""),
    ],
)  # fmt: skip
def test_a_set_is_filled_by_the_text_of_its_author(query: str, key: str, where: str) -> None:
    text = (
        f"CREATE DATASET shop.reader (n INT) PARTITIONED BY (k STRING) FOR k IN DYNAMIC 'ks' FROM ({query}) "
        "ALLOW FULL SCAN AS SELECT s.n FROM shop.sales s;"
    )
    asset = compiled([SourceFile("a.sql", SOURCES[0]), SourceFile("b.sql", text)], {})["shop.reader"]
    (generator,) = asset.sql.generators
    assert isinstance(generator, DynamicSet)
    assert generator.source is not None
    assert (generator.source.expression, generator.source.where) == (key, where)


def test_every_condition_of_the_suite_is_read_back_as_it_was() -> None:
    found = [
        where.this
        for text in conditions()
        for where in parse_one(text, read="spark").find_all(exp.Where, exp.Having)
        if not where.this.find(exp.Query)
    ]
    assert len(found) > 300
    for condition in found:
        plain = without_brackets(condition)
        assert without_brackets(parsed(text_of(plain))) == plain or "FROM_UTC_TIMESTAMP" in text_of(plain)


def without_brackets(tree: exp.Expr) -> exp.Expr:
    root = exp.Paren(this=copied(tree))
    for brackets in [*root.find_all(exp.Paren)][1:]:
        brackets.replace(brackets.this)
    return root.this
