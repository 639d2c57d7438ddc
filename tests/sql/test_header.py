"""A file's header: every clause, and for everything that is wrong its place and what to write."""

from __future__ import annotations

import datetime as dt

import pytest

from varve.dagster.automation import arrival_checks, freshness_checks
from varve.model.dataset import OWN_CHECKS, StoreKind
from varve.model.partitions.calendar import Every
from varve.model.partitions.grain import Grain
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.formatting import formatted
from varve.sql.syntax.header import parse
from varve.sql.syntax.sql_file import Allowed, Body, DynamicSet, OnUpstreamChange, SqlDataset, TimeSeries, ValueList

FILE = """-- Why this exists.
CREATE DATASET shop.sales (
  product STRING NOT NULL COMMENT 'what was sold',
  price DECIMAL(10, 2) RENAMED FROM cost
)
  COMMENT "a day's sales"
  OWNER 'sales@example.com', 'team:shops'
  TAGS (tier = 'gold', area = 'shops')
  STORED IN WAREHOUSE
  PARTITIONED BY (day STRING, store STRING, carrier STRING)
  FOR
    t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2023-01-01', RETENTION 30 DAYS, TIMEZONE 'Europe/Paris'),
    store IN ('Detroit', 'Paris'),
    carrier IN DYNAMIC 'carriers'
  LET the_day = DATE_FORMAT(t, 'yyyy-MM-dd'), before = DATE_SUB(the_day, 1)
  INSERT (day = the_day)
  ON UPSTREAM CHANGE IGNORE
  EXPECT positive: price >= 0, named: product IS NOT NULL
  REFRESH LAST 3
  ALLOW FULL SCAN, CLOCK
AS
SELECT product, SUM(price) AS price -- of the day
FROM shop.receipts
WHERE receipts.day = the_day
GROUP BY product;
"""


def read(text: str) -> SqlDataset:
    return parse(SourceFile("sales.sql", text))


def test_every_clause_of_the_grammar_is_read() -> None:
    dataset = read(FILE)
    assert (dataset.name, dataset.comment, dataset.store) == ("shop.sales", "a day's sales", StoreKind.WAREHOUSE)
    assert [(column.name, column.type, column.comment, column.nullable) for column in dataset.columns] == [
        ("product", "STRING", "what was sold", False), ("price", "DECIMAL(10, 2)", "", True),
    ]  # fmt: skip
    assert [column.was for column in dataset.columns] == ["", "cost"]
    assert dataset.owners == ("sales@example.com", "team:shops")
    assert dataset.tags == (("tier", "gold"), ("area", "shops"))
    time, stores, carriers = dataset.generators
    assert isinstance(time, TimeSeries)
    assert (time.tiling, time.timezone, time.retention) == (Grain.DAY, "Europe/Paris", dt.timedelta(days=30))
    assert time.end is not None
    assert isinstance(stores, ValueList)
    assert stores.values == ("Detroit", "Paris")
    assert isinstance(carriers, DynamicSet)
    assert carriers.set_name == "carriers"
    assert dataset.variables == ("t", "t_end", "store", "carrier", "the_day", "before")
    assert [insert.name for insert in dataset.inserts] == ["day"]
    assert dataset.on_upstream_change is OnUpstreamChange.IGNORE
    assert [expectation.name for expectation in dataset.expectations] == ["positive", "named"]
    assert dataset.refresh_last == 3
    assert dataset.allows == {Allowed.FULL_SCAN, Allowed.CLOCK}
    assert dataset.body is Body.SELECT
    assert dataset.query is not None


SERIES = """CREATE DATASET a.b PARTITIONED BY (p STRING)
FOR t IN TIMESERIES({}) LET p = DATE_FORMAT(t, "yyyy-MM-dd'T'HH:mm") AS SELECT 1 AS x"""


@pytest.mark.parametrize(
    ("arguments", "tiling"),
    [
        ("INTERVAL 1 HOUR, START '2022-01-01'", Grain.HOUR),
        ("INTERVAL 1 WEEK, START '2022-01-03'", Grain.WEEK),
        ("INTERVAL 1 QUARTER, START '2022-01-01'", Grain.QUARTER),
        ("INTERVAL 2 MONTHS, START '2022-01-01'", "0 0 1 */2 *"),
        ("INTERVAL 12 MONTHS, START '2022-01-01'", Grain.YEAR),
        ("CRON '30 6 * * 1-5', START '2022-01-03T06:30'", "30 6 * * 1-5"),
        ("CRON '@hourly', START '2022-01-03'", "@hourly"),
    ],
)
def test_series_are_the_calendars_of_the_model(arguments: str, tiling: object) -> None:
    (series,) = read(SERIES.format(arguments)).generators
    assert isinstance(series, TimeSeries)
    assert series.tiling == tiling


def test_an_interval_that_no_calendar_has_counts_from_its_anchor() -> None:
    (series,) = read(
        SERIES.format("INTERVAL 90 MINUTES, START '2022-01-01T01:00', ANCHOR '2022-01-01T01:00'")
    ).generators
    assert isinstance(series, TimeSeries)
    assert series.tiling == Every(dt.timedelta(minutes=90), series.start)


def test_the_header_may_stand_in_a_comment_for_tools_that_know_only_sql() -> None:
    header, query = FILE.split("AS\nSELECT")
    inside = read(f"/*@ {header.removeprefix('-- Why this exists.')} */ SELECT{query}")
    plain = read(FILE)
    assert inside.in_comment
    assert (inside.name, inside.columns[0].name, inside.variables) == (plain.name, "product", plain.variables)
    assert inside.query == plain.query


def test_foreign_bodies() -> None:
    head = "CREATE DATASET a.b (x INT) PARTITIONED BY (day STRING) FOR day IN ('a') "
    python = read(
        head + "PYTHON 'models.score:run' OPTIONS (memory = '4g') USING s AS (SELECT * FROM c.d WHERE e = day)"
    )
    assert (python.body, python.entry, python.option("memory")) == (Body.PYTHON, "models.score:run", "4g")
    assert [using_query.name for using_query in python.using] == ["s"]
    assert read(head + "EXTERNAL OPTIONS (source = 'table', table = 'x.y');").body is Body.EXTERNAL


@pytest.mark.parametrize(
    ("wrong", "right", "place", "message"),
    [
        ("PARTITIONNED BY", "PARTITIONED BY", "10:3", "Did you mean PARTITIONED?"),
        ("STORED IN LAKES", "STORED IN WAREHOUSE", "9:13", "Did you mean LAKE?"),
        ("INTERVAL 1 DAYY", "INTERVAL 1 DAY", "12:32", "Did you mean DAY?"),
        ("INTERVAL 0 DAY", "INTERVAL 1 DAY", "12:30", "a whole number from 1"),
        ("INTERVAL 5 MONTHS", "INTERVAL 1 DAY", "12:30", "only lengths that divide a year"),
        ("START '2022-03-01T10:00'", "START '2022-03-01'", "12:43", "the nearest are '2022-03-01T00:00:00'"),
        ("START 'March'", "START '2022-03-01'", "12:43", "'March' is no moment"),
        ("END '2022-01-01'", "END '2023-01-01'", "12:61", "END is not after START"),
        ("TIMEZONE 'Europe/Pairs'", "TIMEZONE 'Europe/Paris'", "12:", "is unknown"),
        ("IN ('Detroit', 'Detroit')", "IN ('Detroit', 'Paris')", "13:26", "given twice"),
        ("IN ('Detroit', NULL)", "IN ('Detroit', 'Paris')", "13:26", "NULL is no value of a scope"),
        ("IN ()", "IN ('Detroit', 'Paris')", "13:14", "the list is empty"),
        ("REFRESH LAST three", "REFRESH LAST 3", "19:16", "a whole number from 1"),
        ("ALLOW FULL SCAM", "ALLOW FULL SCAN", "20:9", "FULL SCAN"),
        ("price DECIMALL(10, 2)", "price DECIMAL(10, 2)", "4:9", "is no type of Spark"),
        ("GROUP product", "GROUP BY product", "25:1", "GROUP is not followed by BY"),
        ("WHERE", "WHERE receipts.day = the_day", "25:1", "WHERE"),
        ("AS\nDELETE FROM x;", "AS\nSELECT product, SUM(price) AS price -- of the day", "22:1",
         "a dataset's query is a SELECT, and this is DELETE"),
        ("COMMENT \"a day's sales", "COMMENT \"a day's sales\"", "6:", "not closed"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_place_and_says_what_to_write(wrong: str, right: str, place: str, message: str) -> None:
    assert right in FILE
    with pytest.raises(SqlErrors) as caught:
        read(FILE.replace(right, wrong, 1))
    assert f"sales.sql:{place}" in str(caught.value)
    assert message in str(caught.value)
    assert "^" in str(caught.value)


def test_all_problems_of_a_file_are_told_at_once() -> None:
    text = (
        FILE.replace("STORED", "STORD")
        .replace("1 DAY", "1 DAI")
        .replace("GROUP BY", "GROUP")
        .replace("LAST 3", "LAST x")
    )
    with pytest.raises(SqlErrors) as caught:
        read(text)
    assert [problem.place.split(":")[1] for problem in caught.value.problems] == ["9", "12", "19", "25"]


def test_a_caret_stands_under_what_it_means() -> None:
    with pytest.raises(SqlErrors) as caught:
        read(FILE.replace("STORED IN WAREHOUSE", "\tSTORED IN LAKES"))
    _, line, caret = str(caught.value).split("\n")
    assert line[caret.index("^") : caret.rindex("^") + 1] == "LAKES"


def test_the_layout_says_the_same_and_stays_as_it_is() -> None:
    once = formatted(SourceFile("a.sql", FILE))
    assert formatted(SourceFile("a.sql", once)) == once
    assert "-- Why this exists." in once
    assert "-- of the day" in once
    ugly = FILE.replace("STORED IN", "stored   in").replace("  FOR\n", "  for").replace("COMMENT", "comment")
    assert formatted(SourceFile("a.sql", ugly)) == once


def test_a_full_scan_is_allowed_of_some_datasets_alone() -> None:
    from varve.sql.sql_project import compiled

    head = "CREATE DATASET b.{} (n INT) PARTITIONED BY (day STRING) FOR day IN ('a', 'b')"
    both = "SELECT f.n FROM b.facts f JOIN b.names c ON f.n = c.n"

    def error_text(allow: str, query: str) -> str:
        texts = [head.format("facts") + " EXTERNAL", head.format("names") + " EXTERNAL"]
        texts.append(f"{head.format('out')} {allow} AS {query}")
        try:
            compiled([SourceFile(f"{place}.sql", text) for place, text in enumerate(texts)], {})
        except SqlErrors as error:
            return "\n".join(problem.message for problem in error.problems)
        return ""

    of = "ALLOW FULL SCAN OF b.names"
    assert not error_text(of, f"{both} WHERE f.day = :day")
    message = error_text(of, both)
    assert "which partitions of b.facts are read" in message
    assert "ALLOW FULL SCAN OF b.facts" in message
    assert "of b.names are" not in message
    assert not error_text("ALLOW CLOCK, FULL SCAN OF b.names, b.facts, RANDOM", both)
    assert not error_text("ALLOW FULL SCAN", both)
    assert "b.name is not read" in error_text(
        "ALLOW FULL SCAN OF b.name", f"{both} WHERE f.day = :day AND c.day = :day"
    )


@pytest.mark.parametrize(
    ("clause", "end_offset"),
    [("", 0), ("OPEN WINDOWS", 1), ("WINDOWS AHEAD 3", 4), ("open windows windows ahead 1", 2)],
)
def test_a_dataset_says_which_windows_it_has_beyond_the_complete_ones(clause: str, end_offset: int) -> None:
    text = FILE.replace("  ALLOW FULL SCAN", f"  {clause}\n  ALLOW FULL SCAN")
    assert read(text).end_offset == end_offset
    (laid_out,) = {
        formatted(SourceFile("sales.sql", text)),
        formatted(SourceFile("sales.sql", formatted(SourceFile("s", text)))),
    }
    assert clause.upper().replace("S WINDOWS A", "S\n  WINDOWS A") in laid_out


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("OPEN", "unexpected"),
        ("WINDOWS AHEAD 0", "a whole number from 1"),
        ("OPEN WINDOWS OPEN WINDOWS", "given twice"),
    ],
)
def test_what_a_dataset_cannot_say_of_windows_is_told(clause: str, message: str) -> None:
    with pytest.raises(SqlErrors, match=message):
        read(FILE.replace("  ALLOW FULL SCAN", f"  {clause}\n  ALLOW FULL SCAN"))


def test_windows_ahead_need_a_time_series() -> None:
    text = "CREATE DATASET t.a (n INT) PARTITIONED BY (k STRING) FOR k IN ('a', 'b') OPEN WINDOWS AS SELECT 1 AS n"
    with pytest.raises(SqlErrors, match="OPEN WINDOWS counts windows of time"):
        read(text)


@pytest.mark.parametrize("header", ["{}AS", "/*@ {}*/", "/*@ {}*/ /* -- what it is */"])
def test_comments_stay_wherever_they_stand(header: str) -> None:
    clauses = """CREATE DATASET shop.daily (product STRING)
      OWNER 'ann@example.com'
      ALLOW FULL SCAN
      -- until ticket 4711 is done
    """
    text = f"""-- above
    {header.format(clauses)}
    -- the same as in the old job
    SELECT product -- what was sold
    FROM shop.sales -- WHERE product <> 'test'
    ;
    -- definition of revenue: Ann
    """
    laid_out = formatted(SourceFile("daily.sql", text))
    assert [line.partition("-- ")[2] for line in laid_out.splitlines() if "-- " in line and "*/" not in line] == [
        "above", "until ticket 4711 is done", "the same as in the old job", "what was sold", "WHERE product <> 'test'",
        "definition of revenue: Ann",
    ]  # fmt: skip
    assert formatted(SourceFile("daily.sql", laid_out)) == laid_out


def test_comments_behind_another_body_stay() -> None:
    text = "CREATE DATASET shop.sales (n INT)\nEXTERNAL -- from the tills\n;\n-- Ann\n"
    laid_out = formatted(SourceFile("sales.sql", text))
    assert laid_out.splitlines()[-3:] == ["EXTERNAL;", "-- from the tills", "-- Ann"]
    assert formatted(SourceFile("sales.sql", laid_out)) == laid_out


def test_a_column_may_be_called_as_a_clause_is() -> None:
    names = ("comment", "owner", "tags", "options", "external", "python", "spark")
    conditions = ", ".join(f"of_{name}: price IS NULL OR {name} <> ''" for name in names)
    text = f"CREATE DATASET shop.sales (price INT)\n  EXPECT {conditions}\n  COMMENT 'what was sold'\nEXTERNAL;"
    dataset = read(text)
    assert [expectation.name for expectation in dataset.expectations] == [f"of_{name}" for name in names]
    assert (dataset.comment, dataset.body) == ("what was sold", Body.EXTERNAL)


@pytest.mark.parametrize(
    "word",
    [
        "begin",
        "cache",
        "comment",
        "copy",
        "delete",
        "desc",
        "load",
        "merge",
        "pivot",
        "refresh",
        "set",
        "update",
        "use",
    ],
)
def test_a_column_or_a_variable_may_be_called_as_a_statement_begins(word: str) -> None:
    """`EXPECT known: comment IS NOT NULL` was a statement, and `INSERT (day = begin)` followed nothing."""
    header = """CREATE DATASET shop.sales ({column} STRING) PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-23') LET {variable} = CAST(t AS DATE) INSERT (day = {variable})
  EXPECT known: {column} IS NOT NULL AND LENGTH({column}) > 1, other: {column} || 'x' <> ''
EXTERNAL;"""
    for column, variable in ((word, "today"), ("product", word)):
        text = header.format(column=column, variable=variable)
        assert [expectation.name for expectation in read(text).expectations] == ["known", "other"]
        dataset = compiled([SourceFile("sales.sql", text)], {})["shop.sales"].dataset
        assert dataset.partitioning.names == ("day",)


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("EXPECT prix_vérifié: n > 0", ": prix_vérifié is no name that Dagster takes for a check"),
        ("EXPECT fresh: n > 0", ": fresh is a check of Varve's own; take another name"),
        ("EXPECT Every_arrival_is_taken: n > 0", "is a check of Varve's own"),
        ("TAGS (équipe = 'ventes')", "the tag équipe = 'ventes' is none that Dagster takes"),
        ("RETAIN BATCHES 9999 YEARS", "9,999 years are more than 1,000 years"),
        ("FOR t IN TIMESERIES(INTERVAL 1 DAY, LAST 400000 DAYS)", "400,000 days are more than 1,000 years"),
        ("FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2024-01-01', RETENTION 99999999999 YEARS)", "1,000 years"),
    ],
)
def test_what_would_stop_the_whole_project_is_told_at_its_place(clause: str, message: str) -> None:
    with pytest.raises(SqlErrors) as told:
        read(f"CREATE DATASET shop.sales (n INT) {clause} EXTERNAL;")
    assert message in str(told.value)


def test_the_checks_that_no_expectation_may_be_called_are_those_that_there_are() -> None:
    assert {freshness_checks.CHECK, arrival_checks.CHECK} == OWN_CHECKS
