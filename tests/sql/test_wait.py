"""WAIT: for how many partitions of each dataset that a query reads a partition waits, and what cannot be said so."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from varve.model.reads import Wait
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.formatting import formatted

if TYPE_CHECKING:
    from varve.sql.sql_asset import SqlAsset

DAYS = """PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
LET day = DATE_FORMAT(t, 'yyyy-MM-dd')
"""
STORES = "PARTITIONED BY (store STRING)\nFOR store IN ('Paris', 'Detroit')\n"
QUERY = "AS SELECT s.n FROM shop.sales s JOIN shop.weather w ON s.day = w.day WHERE s.day = :day AND w.day = :day"
SIX_HOURS = dt.timedelta(hours=6)


def asset(wait: str, *, dimensions: str = DAYS, body: str = QUERY) -> SqlAsset:
    upstreams = [f"CREATE DATASET shop.{name} (n INT)\n{DAYS}EXTERNAL" for name in ("sales", "weather")]
    reader = f"CREATE DATASET shop.out (n INT)\n{dimensions}{wait}\n{body}"
    sources = [SourceFile(f"{place}.sql", text) for place, text in enumerate([*upstreams, reader])]
    return compiled(sources, {})["shop.out"]


@pytest.mark.parametrize(
    ("clause", "sales", "weather"),
    [
        ("", Wait(), Wait()),
        ("WAIT ALL", Wait(), Wait()),
        ("WAIT AT LEAST 3", Wait(at_least=3), Wait(at_least=3)),
        ("WAIT ALL BUT 2", Wait(missing=2), Wait(missing=2)),
        ("WAIT ALL UNTIL 6 HOURS", Wait(deadline=SIX_HOURS), Wait(deadline=SIX_HOURS)),
        ("WAIT AT LEAST 1 OF shop.weather", Wait(), Wait(at_least=1)),
        ("WAIT AT LEAST 1 UNTIL 6 HOURS OF shop.weather, shop.sales", *[Wait(at_least=1, deadline=SIX_HOURS)] * 2),
        ("WAIT AT LEAST 1 OF shop.weather, ALL BUT 2", Wait(missing=2), Wait(at_least=1)),
        ("WAIT ALL BUT 2, ALL OF shop.weather", Wait(missing=2), Wait()),
    ],
)
def test_a_partition_waits_for_as_much_as_the_file_says(clause: str, sales: Wait, weather: Wait) -> None:
    waiting, plain = asset(clause.lower()), asset("")
    assert waiting.compiled.waits == {"shop.sales": sales, "shop.weather": weather}
    assert waiting.code_version == plain.code_version


@pytest.mark.parametrize("clause", ["WAIT AT LEAST 3", "WAIT ALL BUT 2 UNTIL 90 MINUTES", "WAIT ALL UNTIL 1 DAY", ""])
def test_a_wait_is_shown_as_a_file_says_it(clause: str) -> None:
    assert asset(clause).compiled.waits["shop.sales"].clause == clause


def test_a_wait_is_laid_out_on_a_line() -> None:
    text = f"CREATE DATASET shop.out (n INT)\n{DAYS}wait at least 3 until 6 hours of shop.sales, all but 2\n{QUERY};\n"
    once = formatted(SourceFile("out.sql", text))
    assert "\n  WAIT AT LEAST 3 UNTIL 6 HOURS OF shop.sales, all BUT 2\n" in once
    assert formatted(SourceFile("out.sql", once)) == once


@pytest.mark.parametrize(
    ("clause", "place", "message"),
    [
        ("WAIT AT LEAST -3", "5:15", "expected how many partitions, a whole number from 1, found '-'."),
        ("WAIT ALL BUT 0", "5:14", "a whole number from 1, found '0'."),
        ("WAIT 3", "5:6", "expected for how many partitions it waits (as in WAIT AT LEAST 20 UNTIL 6 HOURS): ALL BUT,"),
        ("WAIT ALL UNTIL 6 HOUR0", "5:18", "Did you mean HOUR?"),
        ("WAIT ALL UNTIL tomorrow", "5:16", "a whole number from 1, found 'tomorrow'"),
        ("WAIT ALL OF shop.sails", "5:13", "shop.sails is not read, so that nothing waits for it. Did you mean shop.s"),
        ("WAIT ALL OF a.b", "5:13", "It reads shop.sales, shop.weather."),
        ("WAIT ALL OF sales", "6:1", "expected '.', found 'AS'"),
        ("WAIT ALL, AT LEAST 1", "5:11", "two waits are for all datasets; write OF db.table behind one of them"),
        ("WAIT ALL OF shop.sales, ALL OF shop.sales", "5:32", "shop.sales has a wait already; take one of them out."),
    ],
)
def test_what_cannot_be_waited_for_is_told_at_its_place(clause: str, place: str, message: str) -> None:
    with pytest.raises(SqlErrors) as caught:
        asset(clause)
    (problem,) = [problem for problem in caught.value.problems if message in problem.message]
    assert problem.place == f"2.sql:{place}"


@pytest.mark.parametrize(
    ("dimensions", "body", "message"),
    [
        (DAYS, "EXTERNAL", "EXTERNAL reads no dataset; leave it out."),
        (DAYS, "AS SELECT 1 AS n", "this one reads no dataset."),
        (STORES, "ALLOW FULL SCAN AS SELECT n FROM shop.sales", "UNTIL counts from the end of a window"),
    ],
)
def test_what_has_nothing_to_wait_for_is_told(dimensions: str, body: str, message: str) -> None:
    with pytest.raises(SqlErrors, match=message):
        asset("WAIT ALL UNTIL 1 HOUR", dimensions=dimensions, body=body)
