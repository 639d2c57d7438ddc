# ruff: noqa: E501, ISC004 - literals in a table
"""Literals mean to the planner what they mean to Spark, whose own answer is the oracle: in one query."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from varve.sql.evaluate.constants import Typed, literal_text
from varve.sql.evaluate.functions import Evaluator
from varve.sql.evaluate.vector import CannotEvaluate
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.syntax.body import parsed
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    r"'O''Brien'", r"'O' 'Brien'", "'a'\n  'b'", "'a' -- c\n 'b'", "'a' /* 'x' */ \"b\"", r"''", r"''''", r"'\''''", r"''  ''",
    r'"x""y"', r'"x"' + r"'y'", r'"it''s"', r"'say ""hi""'", r"'a\'b'", r"'a\\b'", r"'a\\'", r"'tab\tnew\nline\r\b\0z\Z'",
    r"'100\%'", r"'a\_b'", r"'\q\d\.'", r"'\u0041\u00e9'", r"'\U0001F600'", r"'\u{41}'", r"'\u41'", r"'\101\047\400\08\8'",
    r"r'a\nb'", r"R'\d+'", r"r'a''b'", r"r'a\' ", r'r"a""b"', r"'a' r'\n'", "'é日本'", "'a\nb'", "'a\\\nb'", r"'{varve_input_0}'",
    r"'--no comment'", r"'/* none */'", r"'`x`'", r"'\x41'",
]  # fmt: skip
NUMBERS = ["1", "2147483648", "-1", "- 1", "1L", "127Y", "1S", "5 DIV 2", "TRUE", "NULL", "(3)", "+4"]
HARD = ["-128Y", "1BD", "1.5BD", "1e3", ".5", "1.", "1e3BD", "1.5F", "0x1F", "X'1F'", "1.50"]
HEADER = """CREATE DATASET t.out (n BIGINT) PARTITIONED BY (s STRING)
FOR shop IN ({}) INSERT (s = shop) AS SELECT 1 AS n"""


@pytest.mark.spark
def test_every_kind_of_literal_has_the_value_that_spark_gives_it(spark: SparkSession) -> None:
    literals = [*TEXTS, *NUMBERS]
    row = spark.sql(
        f"SELECT {', '.join(f'{literal} AS c{place}' for place, literal in enumerate(literals))}"
    ).collect()[0]
    for text, expected in zip(literals, row, strict=True):
        assert Evaluator({}).of(parsed(text)).to_list() == [expected], text


def test_what_is_no_literal_here_is_not_evaluated() -> None:
    for text in HARD:
        with pytest.raises(CannotEvaluate):
            Evaluator({}).of(parsed(text))


@pytest.mark.spark
def test_values_of_scopes_are_themselves_to_spark(spark: SparkSession) -> None:
    values = [
        "O'Brien",
        "L'Aquila",
        "a\\b",
        "a\\'",
        "%_",
        '"',
        "{x}",
        "a\nb\tc\0",
        "é日本😀",
        "'",
        "\\",
        "`",
        ":x",
        "--",
    ]
    row = spark.sql(f"SELECT {', '.join(literal_text(Typed('STRING', value)) for value in values)}").collect()[0]
    assert list(row) == values


@pytest.mark.spark
def test_a_moment_of_a_scope_is_itself_to_spark_in_every_year(spark: SparkSession) -> None:
    since = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    moments = [dt.datetime(year, 2, 3, 4, 5, 6, 7, tzinfo=dt.UTC) for year in (1, 33, 999, 1000, 2024, 9999)]
    literals = [literal_text(Typed("TIMESTAMP", moment)) for moment in moments]
    (row,) = spark.sql(f"SELECT {', '.join(f'UNIX_MICROS({literal})' for literal in literals)}").collect()
    assert list(row) == [(moment - since) // dt.timedelta(microseconds=1) for moment in moments]
    assert str(Typed("TIMESTAMP", moments[2])) == "0999-02-03T04:05:06Z"


@pytest.mark.parametrize(
    ("listed", "values"),
    [
        (r"'O''Brien', 'L''Aquila'", ["O'Brien", "L'Aquila"]),
        (r"""'a' 'b', "c""d", r'\e'""", ["ab", 'c"d', "\\e"]),
    ],
)
def test_a_quote_in_a_value_stays_in_its_partition(listed: str, values: list[str]) -> None:
    scopes = scopes_of(parse(SourceFile("t.sql", HEADER.format(listed))))
    assert [key["s"] for key in scopes.partitioning.keys()] == values  # noqa: SIM118 - no dict


def test_a_comment_that_goes_on_in_the_next_line_is_refused() -> None:
    text = HEADER.format("'a'") + " -- here \\\n WHERE shop = 'a'"
    with pytest.raises(SqlErrors, match="goes on in the next line"):
        parse(SourceFile("t.sql", text))
